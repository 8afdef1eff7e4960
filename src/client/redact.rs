//! Removes credentials from texts of servers and proxies.
//!
//! The rule: no eight consecutive bytes of a secret are ever shown, neither as they are nor in base64. A page may
//! truncate or wrap what it echoes, and a header of basic authorization is base64.

use std::collections::HashSet;

use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE, Engine};

use super::transport::Transport;

/// Words that follow `Bearer` and `Basic` in messages without credentials, such as an API server's
/// `invalid bearer token`.
const NO_CREDENTIALS: [&str; 7] =
    ["auth", "authentication", "authorization", "credentials", "redacted", "token", "tokens"];

const REDACTED: &str = "[redacted]";

/// The length of the parts of a secret that are not shown.
const PART: usize = 8;

/// Shorter secrets are removed only where they are not part of a longer word.
const SHORTEST: usize = 4;

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
            clean.push_str(REDACTED);
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

/// Replaces a secret in a text with `[redacted]`, for implementations of [`Transport::redact`].
///
/// It replaces the secret, its base64 form, and any part of either that has eight bytes or more, because a page may
/// truncate or wrap what it echoes. A shorter secret is found only as a whole, and one of less than four bytes only
/// where it is not part of a longer word.
///
/// A secret that consists only of lower-case letters, `-`, `.` and `:` may be an ordinary word, such as a user's name.
/// It stays where API servers quote the name of a user, a group, a namespace or a resource:
/// `User "nobody" cannot list resource "pods"`.
#[must_use]
pub fn redact_secret(text: String, secret: &str) -> String {
    /// The words before a quoted name, in messages of API servers (apiserver `responsewriters.ForbiddenStatus`).
    const NAMED: [&str; 4] = ["User ", "group ", "namespace ", "resource "];
    let is_of_name = |c: char| c.is_ascii_lowercase() || "-.:".contains(c);
    let quoted = format!("\"{secret}\"");
    if secret.is_empty() {
        return text;
    }
    if !secret.chars().all(is_of_name) || !text.contains(&quoted) {
        return redact_parts(&text, secret);
    }
    let (mut clean, mut rest) = (String::with_capacity(text.len()), &*text);
    while let Some((before, after)) = rest.split_once(&quoted) {
        let is_name = NAMED.iter().any(|noun| before.ends_with(noun));
        // The text around the quotes may contain a part of the secret; the quotes themselves cannot.
        clean.push_str(&redact_parts(before, secret));
        clean.push_str(if is_name { &quoted } else { "\"[redacted]\"" });
        rest = after;
    }
    clean + &redact_parts(rest, secret)
}

fn redact_parts(text: &str, secret: &str) -> String {
    if secret.len() < SHORTEST {
        return redact_words(text, secret);
    }
    let part = secret.len().min(PART);
    let mut forms = vec![secret.as_bytes().to_vec()];
    if secret.len() >= PART {
        // base64 encodes groups of three bytes, which begin at the first, second or third byte, whatever precedes it.
        for rest in (0..3).filter_map(|first| secret.as_bytes().get(first..)) {
            let groups = rest.get(..rest.len() / 3 * 3).unwrap_or_default();
            forms.extend([&BASE64_STANDARD, &BASE64_URL_SAFE].map(|engine| engine.encode(groups).into_bytes()));
        }
    }
    let parts: HashSet<&[u8]> = forms.iter().flat_map(|form| form.windows(part)).collect();
    let (mut clean, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some(at) = rest.windows(part).position(|window| parts.contains(window)) {
        let more = rest.windows(part).skip(at).take_while(|window| parts.contains(window)).count();
        let (before, after) = (rest.get(..at), rest.get(at + more + part - 1..));
        clean.extend_from_slice(before.unwrap_or_default());
        clean.extend_from_slice(REDACTED.as_bytes());
        rest = after.unwrap_or_default();
    }
    clean.extend_from_slice(rest);
    String::from_utf8_lossy(&clean).into_owned()
}

/// Replaces a secret where it is not a part of a longer word.
fn redact_words(text: &str, secret: &str) -> String {
    let (mut clean, mut from) = (String::with_capacity(text.len()), 0);
    for (at, word) in text.match_indices(secret) {
        let (before, after) = text.split_at(at);
        let inner = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        if inner(before.chars().next_back()) || inner(after.chars().nth(word.chars().count())) {
            continue;
        }
        clean.push_str(before.get(from..).unwrap_or_default());
        clean.push_str(REDACTED);
        from = at + word.len();
    }
    clean + text.get(from..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redacts_secrets_whole_in_parts_and_in_base64() {
        for (text, secret, expected) in [
            ("a s3cret b", "s3cret", "a [redacted] b"),
            ("a s3cre b", "s3cret", "a s3cre b"),
            ("nothing", "", "nothing"),
            ("extended key of x, 6x: x", "x", "extended key of [redacted], 6x: [redacted]"),
            ("x-axis éx", "x", "[redacted]-axis éx"),
            ("a s3cret-t0ken, s3cret-t0ken b", "s3cret-t0ken", "a [redacted], [redacted] b"),
            ("truncated: s3cret-t", "s3cret-t0ken", "truncated: [redacted]"),
            ("wrapped: s3cret-t\n0ken-of-tests", "s3cret-t0ken-of-tests", "wrapped: [redacted]\n[redacted]"),
            ("dTpzM2NyZXQtdDBrZW4=", "s3cret-t0ken", "dTpz[redacted]ZW4="),
            ("é s3cret-töken é", "s3cret-töken", "é [redacted] é"),
            // An ordinary word is a name where an API server says so, and a credential anywhere else.
            (
                r#"pods is forbidden: User "nobody" cannot list resource "pods" in API group "" in the namespace "web""#,
                "nobody",
                r#"pods is forbidden: User "nobody" cannot list resource "pods" in API group "" in the namespace "web""#,
            ),
            (
                r#"User "kubernetes-admin" is not in "kubernetes-admin": token kubernetes-admin, kubernetes"#,
                "kubernetes-admin",
                r#"User "kubernetes-admin" is not in "[redacted]": token [redacted], [redacted]"#,
            ),
            (
                r#"{"token":"nobody"}, Bearer "nobody", nobody"#,
                "nobody",
                r#"{"token":"[redacted]"}, Bearer "[redacted]", [redacted]"#,
            ),
            (r#"User "hunter2" and User "s3cret-t0ken""#, "hunter2", r#"User "[redacted]" and User "s3cret-t0ken""#),
            (r#"User "s3cret-t0ken" cannot list"#, "s3cret-t0ken", r#"User "[redacted]" cannot list"#),
        ] {
            assert_eq!(redact_secret(text.to_owned(), secret), expected, "{text}");
        }
    }
}
