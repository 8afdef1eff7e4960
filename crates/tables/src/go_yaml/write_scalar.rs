//! Writes texts: their escapes, and where their lines are folded.

use super::Emitter;
use super::scalar::{Style, is_break, is_printable};

/// The column beyond which a line is folded at its next space.
const WIDTH: usize = 80;

impl Emitter<'_> {
    /// Writes a text. One that may not be folded is a key before its colon.
    pub(super) fn write_scalar(&mut self, text: &str, style: Style, may_fold: bool) {
        match style {
            Style::Plain => {
                if !self.whitespace {
                    self.put(b' ');
                }
                self.write_flow(text, may_fold, Self::put_char);
                (self.whitespace, self.indention) = (false, false);
            }
            Style::SingleQuoted => {
                self.write_indicator(b"'", true, false, false);
                self.write_flow(text, may_fold, |emitter, character| {
                    if character == '\'' {
                        emitter.put(b'\'');
                    }
                    emitter.put_char(character);
                });
                self.write_indicator(b"'", false, false, false);
            }
            Style::DoubleQuoted => self.write_double_quoted(text, may_fold),
            Style::Literal => self.write_literal(text),
        }
    }

    /// Writes a plain or single-quoted text. Its first and last spaces are never folded.
    fn write_flow(&mut self, text: &str, may_fold: bool, write: impl Fn(&mut Self, char)) {
        let (mut spaces, mut breaks) = (false, false);
        for (at, character) in text.char_indices() {
            let rest = text.get(at + character.len_utf8()..).unwrap_or_default();
            if character == ' ' {
                let is_inside = at > 0 && !rest.is_empty() && !rest.starts_with(' ');
                if may_fold && !spaces && is_inside && self.column > WIDTH {
                    self.write_indent();
                } else {
                    self.put(b' ');
                }
                spaces = true;
            } else if is_break(character) {
                if !breaks && character == '\n' {
                    self.put_break();
                }
                self.write_break(character);
                self.indention = true;
                breaks = true;
            } else {
                if breaks {
                    self.write_indent();
                }
                write(self, character);
                self.indention = false;
                (spaces, breaks) = (false, false);
            }
        }
    }

    fn write_double_quoted(&mut self, text: &str, may_fold: bool) {
        self.write_indicator(b"\"", true, false, false);
        // As in libyaml, a text that begins with a byte order mark is escaped whole.
        let all_escaped = text.starts_with('\u{feff}');
        let mut spaces = false;
        for (at, character) in text.char_indices() {
            let rest = text.get(at + character.len_utf8()..).unwrap_or_default();
            if all_escaped || !is_printable(character) || is_break(character) || matches!(character, '"' | '\\') {
                self.write_escape(character);
                spaces = false;
            } else if character == ' ' {
                if may_fold && !spaces && self.column > WIDTH && at > 0 && !rest.is_empty() {
                    self.write_indent();
                    if rest.starts_with(' ') {
                        self.put(b'\\');
                    }
                } else {
                    self.put(b' ');
                }
                spaces = true;
            } else {
                self.put_char(character);
                spaces = false;
            }
        }
        self.write_indicator(b"\"", false, false, false);
    }

    fn write_escape(&mut self, character: char) {
        self.put(b'\\');
        let short = match character {
            '\0' => b'0',
            '\u{7}' => b'a',
            '\u{8}' => b'b',
            '\t' => b't',
            '\n' => b'n',
            '\u{b}' => b'v',
            '\u{c}' => b'f',
            '\r' => b'r',
            '\u{1b}' => b'e',
            '"' => b'"',
            '\\' => b'\\',
            '\u{85}' => b'N',
            '\u{a0}' => b'_',
            '\u{2028}' => b'L',
            '\u{2029}' => b'P',
            character => {
                let code = u32::from(character);
                let digits = match code {
                    0..=0xff => format!("x{code:02X}"),
                    0x100..=0xffff => format!("u{code:04X}"),
                    _ => format!("U{code:08X}"),
                };
                for byte in digits.bytes() {
                    self.put(byte);
                }
                return;
            }
        };
        self.put(short);
    }

    fn write_literal(&mut self, text: &str) {
        self.write_indicator(b"|", true, false, false);
        if text.starts_with(|first| first == ' ' || is_break(first)) {
            self.write_indicator(b"2", false, false, false);
        }
        let mut from_end = text.chars().rev();
        match (from_end.next().is_some_and(is_break), from_end.next()) {
            (false, _) => self.write_indicator(b"-", false, false, false),
            (true, before) if before.is_none_or(is_break) => self.write_indicator(b"+", false, false, false),
            (true, _) => {}
        }
        self.put_break();
        (self.whitespace, self.indention) = (true, true);
        let mut breaks = true;
        for character in text.chars() {
            if is_break(character) {
                self.write_break(character);
                self.indention = true;
                breaks = true;
            } else {
                if breaks {
                    self.write_indent();
                }
                self.put_char(character);
                self.indention = false;
                breaks = false;
            }
        }
    }

    fn write_break(&mut self, character: char) {
        if character == '\n' {
            return self.put_break();
        }
        self.put_char(character);
        self.column = 0;
    }
}
