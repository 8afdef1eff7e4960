//! Values as Go's `encoding/json` writes them.

use std::io::{self, Write};
use std::ops::Range;

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

/// Appends a value as Go's `encoding/json` writes it, with its escapes for HTML and its form of floats.
///
/// After an error, `out` is unchanged.
///
/// # Errors
///
/// A value that has no JSON form, such as a map whose keys are no texts.
pub fn write_go_json(value: &(impl Serialize + ?Sized), out: &mut Vec<u8>) -> serde_json::Result<()> {
    let start = out.len();
    let written = value.serialize(&mut Serializer::with_formatter(&mut *out, GoJson));
    written.inspect_err(|_| out.truncate(start))
}

/// Returns the shortest digits of a float, with an exponent if it is not in `plain`.
pub(crate) fn go_float(float: f64, plain: Range<i32>) -> String {
    let scientific = format!("{float:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if float == 0.0 || plain.contains(&exponent) {
        return float.to_string();
    }
    format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

struct GoJson;

impl Formatter for GoJson {
    /// client-go reads integers beyond 64 bits with a sign as floats.
    fn write_u64<W: ?Sized + Write>(&mut self, writer: &mut W, integer: u64) -> io::Result<()> {
        match i64::try_from(integer) {
            Ok(integer) => write!(writer, "{integer}"),
            #[expect(clippy::cast_precision_loss, reason = "as in Go")]
            Err(_) => self.write_f64(writer, integer as f64),
        }
    }

    fn write_f64<W: ?Sized + Write>(&mut self, writer: &mut W, float: f64) -> io::Result<()> {
        // Without the zero of e-07, which only `fmt` prints.
        writer.write_all(go_float(float, -6..21).replace("e-0", "e-").as_bytes())
    }

    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(at) = rest.find(['<', '>', '&', '\u{2028}', '\u{2029}']) {
            let (plain, special) = rest.split_at(at);
            writer.write_all(plain.as_bytes())?;
            let mut characters = special.chars();
            if let Some(special) = characters.next() {
                write!(writer, "\\u{:04x}", u32::from(special))?;
            }
            rest = characters.as_str();
        }
        writer.write_all(rest.as_bytes())
    }
}

/// Appends compact JSON on several lines, as Go's `json.Indent` with four spaces. Its first line is at this depth.
pub fn indent_json(compact: &[u8], mut depth: usize, out: &mut Vec<u8>) {
    let (mut in_text, mut is_escaped) = (false, false);
    for (at, &byte) in compact.iter().enumerate() {
        if in_text {
            out.push(byte);
            in_text = is_escaped || byte != b'"';
            is_escaped = !is_escaped && byte == b'\\';
            continue;
        }
        match byte {
            b'{' | b'[' => {
                out.push(byte);
                depth += 1;
                if !matches!(compact.get(at + 1), Some(b'}' | b']')) {
                    out.push(b'\n');
                    put_indent(out, depth);
                }
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                if !matches!(at.checked_sub(1).and_then(|before| compact.get(before)), Some(b'{' | b'[')) {
                    out.push(b'\n');
                    put_indent(out, depth);
                }
                out.push(byte);
            }
            b',' => {
                out.extend_from_slice(b",\n");
                put_indent(out, depth);
            }
            b':' => out.extend_from_slice(b": "),
            byte => {
                in_text = byte == b'"';
                out.push(byte);
            }
        }
    }
}

fn put_indent(out: &mut Vec<u8>, depth: usize) {
    out.resize(out.len() + 4 * depth, b' ');
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

    #[test]
    fn indents_as_a_pretty_printer() {
        for value in [
            json!({}),
            json!([]),
            json!("{[\"\\,:"),
            json!({"a": {"b": [1, {"c": []}, {}], "\\\"": "x\\"}, "d": [[], ["{"]], "e": null}),
        ] {
            let (mut expected, mut out) = (Vec::new(), Vec::new());
            let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
            Serialize::serialize(&value, &mut Serializer::with_formatter(&mut expected, formatter)).unwrap();
            indent_json(value.to_string().as_bytes(), 0, &mut out);
            assert_eq!(String::from_utf8(out), String::from_utf8(expected));
        }
    }
}
