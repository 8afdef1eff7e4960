//! The keys and values that an API server accepts in a label selector, and the text of its errors.

use std::fmt::Write as _;

use super::label::LabelRequirement;

impl LabelRequirement {
    /// Checks the values as apimachinery `labels.NewRequirement` does.
    pub(super) fn check(&self, key: &str) -> Result<(), String> {
        let (values, is_number): (Vec<&str>, _) = match self {
            Self::In(values) | Self::NotIn(values) if values.is_empty() => {
                return Err(
                    "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty".to_owned()
                );
            }
            Self::In(values) | Self::NotIn(values) => (values.iter().map(String::as_str).collect(), false),
            Self::Equal(value) | Self::NotEqual(value) => (vec![value], false),
            Self::GreaterThan(value) | Self::LessThan(value) => (vec![value], true),
            Self::Exists | Self::DoesNotExist => return Ok(()),
        };
        let numbers = values.iter().filter(|value| is_number && value.parse::<i64>().is_err());
        let numbers =
            numbers.map(|value| invalid("values[0]", value, "for 'Gt', 'Lt' operators, the value must be an integer"));
        let texts = values.iter().enumerate().filter_map(|(at, value)| {
            let faults = value_faults(value);
            (!faults.is_empty()).then(|| invalid(&format!("values[{at}][{key}]"), value, &faults.join("; ")))
        });
        let mut errors: Vec<String> = numbers.chain(texts).collect();
        match errors.len() {
            0 => Ok(()),
            1 => Err(errors.remove(0)),
            _ => Err(format!("[{}]", errors.join(", "))),
        }
    }
}

pub(super) fn check_key(path: &str, key: &str) -> Result<(), String> {
    let faults = key_faults(key);
    if faults.is_empty() { Ok(()) } else { Err(invalid(path, key, &faults.join("; "))) }
}

/// Writes an error as apimachinery `field.Invalid` does.
fn invalid(path: &str, value: &str, detail: &str) -> String {
    format!("{path}: Invalid value: {}: {detail}", quoted(value))
}

pub(super) const NAME: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
pub(super) const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
    must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
    validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
pub(super) const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
    and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// Checks a key as apimachinery `content.IsLabelKey` does.
fn key_faults(key: &str) -> Vec<String> {
    let mut parts = key.split('/');
    let (prefix, name) = match [parts.next(), parts.next(), parts.next()] {
        [Some(name), None, _] => (None, name),
        [prefix, Some(name), None] => (prefix, name),
        _ => {
            return vec![format!(
                "a valid label key {NAME} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    let mut faults = Vec::new();
    if prefix == Some("") {
        faults.push("prefix part must be non-empty".to_owned());
    } else if let Some(prefix) = prefix {
        if prefix.len() > 253 {
            faults.push("prefix part must be no more than 253 bytes".to_owned());
        }
        if !prefix.split('.').all(is_dns_label) {
            faults.push(format!("prefix part {SUBDOMAIN}"));
        }
    }
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        faults.push("name part must be no more than 63 bytes".to_owned());
    }
    if !is_name(name) {
        faults.push(format!("name part {NAME}"));
    }
    faults
}

/// Checks a value as apimachinery `content.IsLabelValue` does.
fn value_faults(value: &str) -> Vec<&'static str> {
    let is_long = (value.len() > 63).then_some("must be no more than 63 bytes");
    let is_malformed = (!value.is_empty() && !is_name(value)).then_some(VALUE);
    is_long.into_iter().chain(is_malformed).collect()
}

fn is_name(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric())
}

fn is_dns_label(text: &str) -> bool {
    is_name(text) && !text.contains(|c: char| c.is_ascii_uppercase() || "_.".contains(c))
}

pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        // After a letter, `escape_debug` escapes what Go does not print.
        let is_printable = ['a', c].iter().collect::<String>().escape_debug().eq(['a', c]);
        match (c, u32::from(c)) {
            ('"' | '\\', _) => quoted.extend(['\\', c]),
            ('\'', _) => quoted.push(c),
            ('\n', _) => quoted.push_str("\\n"),
            ('\r', _) => quoted.push_str("\\r"),
            ('\t', _) => quoted.push_str("\\t"),
            (_, 0x07) => quoted.push_str("\\a"),
            (_, 0x08) => quoted.push_str("\\b"),
            (_, 0x0b) => quoted.push_str("\\v"),
            (_, 0x0c) => quoted.push_str("\\f"),
            _ if is_printable => quoted.push(c),
            (_, code @ ..0x80) => _ = write!(quoted, "\\x{code:02x}"),
            (_, code @ ..0x1_0000) => _ = write!(quoted, "\\u{code:04x}"),
            (_, code) => _ = write!(quoted, "\\U{code:08x}"),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The results of Go's `strconv.Quote`.
    #[test]
    fn quotes_as_go_does() {
        for (text, expected) in [
            ("plain é", r#""plain é""#),
            (r#"'"\"#, r#""'\"\\""#),
            ("\n\r\t", r#""\n\r\t""#),
            ("\u{7}\u{8}\u{b}\u{c}", r#""\a\b\v\f""#),
            ("\u{1}\u{7f}", r#""\x01\x7f""#),
            ("\u{80}\u{200b}\u{ffff}", r#""\u0080\u200b\uffff""#),
            ("\u{e0001}", r#""\U000e0001""#),
        ] {
            assert_eq!(quoted(text), expected);
        }
    }
}
