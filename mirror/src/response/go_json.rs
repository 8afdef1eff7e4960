//! Values as Go's `encoding/json` writes them.

use std::io;

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

/// Appends a value as JSON. After an error `out` is unchanged.
///
/// # Errors
///
/// A value that has no JSON form, such as a map whose keys are no texts.
pub(crate) fn write_go_json(value: &impl Serialize, out: &mut Vec<u8>) -> serde_json::Result<()> {
    let start = out.len();
    let written = value.serialize(&mut Serializer::with_formatter(&mut *out, GoFormatter));
    written.inspect_err(|_| out.truncate(start))
}

/// Escapes `<`, `>`, `&` and the line separators of JavaScript, and writes floats in Go's form.
struct GoFormatter;

impl Formatter for GoFormatter {
    fn write_string_fragment<W: io::Write + ?Sized>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some((before, escaped, after)) = split_at_escape(rest) {
            writer.write_all(before.as_bytes())?;
            write!(writer, "\\u{:04x}", u32::from(escaped))?;
            rest = after;
        }
        writer.write_all(rest.as_bytes())
    }

    fn write_f64<W: io::Write + ?Sized>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        let size = value.abs();
        if value == 0.0 || (1e-6..1e21).contains(&size) {
            // Rust's `Display` never writes an exponent.
            write!(writer, "{value}")
        } else if size < 1.0 {
            write!(writer, "{value:e}")
        } else {
            writer.write_all(format!("{value:e}").replace('e', "e+").as_bytes())
        }
    }
}

/// Splits a text at the first character that Go escapes and `serde_json` does not.
fn split_at_escape(text: &str) -> Option<(&str, char, &str)> {
    let at = text.find(['<', '>', '&', '\u{2028}', '\u{2029}'])?;
    let (before, rest) = text.split_at_checked(at)?;
    let escaped = rest.chars().next()?;
    Some((before, escaped, rest.get(escaped.len_utf8()..)?))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn writes_texts_and_numbers_as_go() {
        for (value, expected) in [
            (json!("<none>"), r#""\u003cnone\u003e""#),
            (json!("a&b\u{2028}\u{2029}é\u{7f}"), "\"a\\u0026b\\u2028\\u2029é\u{7f}\""),
            (json!("\"\\\n\r\t\u{8}\u{c}\u{1}"), r#""\"\\\n\r\t\b\f\u0001""#),
            (json!(1.0), "1"),
            (json!(-1.5), "-1.5"),
            (json!(0.0), "0"),
            (json!(1e20), "100000000000000000000"),
            (json!(1e21), "1e+21"),
            (json!(-1.25e30), "-1.25e+30"),
            (json!(1e-6), "0.000001"),
            (json!(9.5e-7), "9.5e-7"),
            (json!(7), "7"),
            (Value::Null, "null"),
        ] {
            let mut out = b"x".to_vec();
            write_go_json(&value, &mut out).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), format!("x{expected}"));
        }
    }
}
