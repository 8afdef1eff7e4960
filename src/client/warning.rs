//! The warnings of a server.

/// Returns the texts of a `Warning` header that kubectl prints, which are those with the code 299.
///
/// A header may contain several warnings. As in apimachinery (`ParseWarningHeaders` in `util/net`), those after a
/// malformed one are ignored.
pub(super) fn warning_texts(header: &[u8]) -> Vec<String> {
    let (mut texts, mut rest) = (Vec::new(), header.trim_ascii());
    while let Some((code, text, after)) = next_warning(rest) {
        if code == b"299" && !text.is_empty() {
            texts.push(text);
        }
        rest = after;
    }
    texts
}

/// Returns the code and the text of the first warning, and the rest of the header: `299 agent "text" "date", …`.
fn next_warning(header: &[u8]) -> Option<(&[u8], String, &[u8])> {
    let mut parts = header.splitn(3, |byte| *byte == b' ');
    let (code, agent, quoted) = (parts.next()?, parts.next()?, parts.next()?);
    if code.len() != 3 || !code.iter().all(u8::is_ascii_digit) || agent.is_empty() || !is_plain(agent) {
        return None;
    }
    let (text, mut rest) = unquote(quoted)?;
    let text = String::from_utf8(text).ok().filter(|text| is_plain(text.as_bytes()))?;
    if let Some(date) = rest.strip_prefix(b"\"") {
        let end = date.iter().position(|byte| *byte == b'"')?;
        rest = date.get(end + 1..)?.trim_ascii();
    }
    match rest {
        [] => {}
        [b',', more @ ..] => rest = more.trim_ascii(),
        _ => return None,
    }
    Some((code, text, rest))
}

/// Returns the text in quotes, in which backslashes escape, and what follows.
fn unquote(quoted: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut text = Vec::new();
    let mut bytes = quoted.strip_prefix(b"\"")?.iter();
    loop {
        match bytes.next()? {
            b'"' => return Some((text, bytes.as_slice().trim_ascii())),
            b'\\' => text.push(*bytes.next()?),
            byte => text.push(*byte),
        }
    }
}

fn is_plain(text: &[u8]) -> bool {
    str::from_utf8(text).is_ok_and(|text| !text.contains(char::is_control))
}

#[cfg(test)]
mod tests {
    /// The cases of `TestParseWarningHeader` in apimachinery, and of the codes that kubectl prints.
    #[test]
    fn finds_the_texts_that_kubectl_prints() {
        for (header, expected) in [
            (r#"299 - "old""#, &["old"][..]),
            (r#"299 - "say \"new\" \\ please""#, &[r#"say "new" \ please"#]),
            (r#"299 - "größer ☃""#, &["größer ☃"]),
            (r#"299 - "one", 299 - "two""#, &["one", "two"]),
            (r#"299 agent "one" "Wed, 21 Oct 2015 07:28:00 GMT",199 - "other" , 299 - "two""#, &["one", "two"]),
            (r#"  299 - "one"  "#, &["one"]),
            (r#"299 - "one", 299 malformed, 299 - "two""#, &["one"]),
            (r#"299 - "one" 299 - "two""#, &[]),
            (r#"299 - "one" "half"#, &[]),
            (r#"299 - """#, &[]),
            (r#"199 - "stale""#, &[]),
            (r#"2999 - "code""#, &[]),
            (r#"299  "no agent""#, &[]),
            (r#"299 - "half"#, &[]),
            (r#"299 - "escaped end\""#, &[]),
            (r#"299 - ""#, &[]),
            ("299 - \"a\u{7}b\"", &[]),
            ("299 malformed", &[]),
            ("", &[]),
        ] {
            assert_eq!(super::warning_texts(header.as_bytes()), expected, "{header}");
        }
        assert!(super::warning_texts(b"299 - \"not UTF-8: \xff\"").is_empty());
    }
}
