//! The tokens of a label selector's text.

/// Tokens as in apimachinery `labels.Lexer`: a word, one of the symbols `= == != ! < > ( ) ,`, or at the end the empty
/// text. The parser decides by its place whether a word is a key, an operator or a value: `in in (in)`.
#[derive(Clone, Copy)]
pub(super) struct Tokens<'a> {
    input: &'a str,
    at: usize,
}

impl<'a> Tokens<'a> {
    pub(super) fn new(input: &'a str) -> Self {
        Self { input, at: 0 }
    }

    pub(super) fn peek(self) -> &'a str {
        self.split().0
    }

    pub(super) fn next(&mut self) -> &'a str {
        let (token, rest) = self.split();
        // The lexer ends a token at a NUL, and drops it. Any other NUL ends the selector.
        let rest = if token.is_empty() { rest } else { rest.strip_prefix('\0').unwrap_or(rest) };
        self.at = self.input.len() - rest.len();
        token
    }

    /// Returns the next token and the text after it.
    fn split(self) -> (&'a str, &'a str) {
        let text = self.input.get(self.at..).unwrap_or_default().trim_start_matches(is_space);
        let length = if text.starts_with("==") || text.starts_with("!=") {
            2
        } else if text.starts_with(is_symbol) {
            1
        } else {
            text.find(|c| is_symbol(c) || is_space(c) || c == '\0').unwrap_or(text.len())
        };
        text.split_at(length)
    }
}

fn is_symbol(c: char) -> bool {
    "=!(),<>".contains(c)
}

fn is_space(c: char) -> bool {
    " \t\r\n".contains(c)
}

pub(super) fn is_word(token: &str) -> bool {
    !token.is_empty() && !token.starts_with(is_symbol)
}

pub(super) fn begins_requirement(token: &str) -> bool {
    token == "!" || is_word(token)
}
