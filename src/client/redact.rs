//! Removes credentials from texts of servers and proxies.

use super::transport::Transport;

/// Words that follow `Bearer` and `Basic` in messages without credentials, such as `invalid bearer token` of API
/// servers.
const NO_CREDENTIALS: [&str; 7] =
    ["auth", "authentication", "authorization", "credentials", "redacted", "token", "tokens"];

/// Removes the transport's secrets, words after `Bearer` or `Basic`, and JSON web tokens.
pub(super) fn redact(transport: &dyn Transport, text: String) -> String {
    let text = transport.redact(text);
    let is_inner = |c: char| c.is_ascii_alphanumeric() || "-._~+/=".contains(c);
    let (mut clean, mut rest, mut scheme) = (String::with_capacity(text.len()), &*text, false);
    while let Some(first) = rest.chars().next() {
        let inner = is_inner(first);
        let end = rest.find(|c| is_inner(c) != inner).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        if inner && (scheme && !is_word(word) || is_web_token(word)) {
            clean.push_str("[redacted]");
        } else {
            clean.push_str(word);
        }
        if inner {
            scheme = word.eq_ignore_ascii_case("bearer") || word.eq_ignore_ascii_case("basic");
        }
        rest = after;
    }
    clean
}

fn is_word(word: &str) -> bool {
    let word = word.trim_end_matches(['.', '=']);
    NO_CREDENTIALS.iter().any(|known| word.eq_ignore_ascii_case(known))
}

fn is_web_token(word: &str) -> bool {
    word.find("eyJ").is_some_and(|at| word.get(at..).is_some_and(|token| token.len() > 16))
}
