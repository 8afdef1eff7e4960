//! The warnings of a server.

/// Returns the text of a `Warning` header, `299 - "text"` with quotes and backslashes escaped (apimachinery
/// `util/net.NewWarningHeader`), or the whole header if it has another form.
pub(super) fn warning_text(header: &str) -> String {
    let Some(text) = header.strip_prefix("299 - \"").and_then(|rest| rest.strip_suffix('"')) else {
        return header.to_owned();
    };
    let mut unescaped = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        unescaped.push(if c == '\\' { chars.next().unwrap_or(c) } else { c });
    }
    unescaped
}

#[cfg(test)]
mod tests {
    #[test]
    fn unescapes_the_text_of_warnings() {
        for (header, expected) in [
            (r#"299 - "old""#, "old"),
            (r#"299 - "say \"new\" \\ please""#, r#"say "new" \ please"#),
            (r#"299 - """#, ""),
            (r#"199 proxy "stale""#, r#"199 proxy "stale""#),
            (r#"299 - "half"#, r#"299 - "half"#),
            (r#"299 - ""#, r#"299 - ""#),
        ] {
            assert_eq!(super::warning_text(header), expected, "{header}");
        }
    }
}
