//! Prints values as Go does: `encoding/json` for objects and arrays of templates, `fmt.Print` for the rest.

use std::io::{self, Write};
use std::ops::Range;

use serde::Serialize as _;
use serde_json::ser::Formatter;
use serde_json::{Number, Serializer, Value};

/// Prints a value as templates do: objects and arrays in JSON.
pub(super) fn template(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Array(_) | Value::Object(_) => {
            // Neither the vector nor a value can fail.
            let _ = value.serialize(&mut Serializer::with_formatter(out, GoJson));
        }
        _ => print(value, out),
    }
}

/// Prints a value as `fmt.Print` does: `map[a:1]`, `[1 2]`, `<nil>`.
pub(super) fn print(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.extend_from_slice(b"<nil>"),
        Value::Bool(value) => out.extend_from_slice(value.to_string().as_bytes()),
        Value::String(text) => out.extend_from_slice(text.as_bytes()),
        Value::Number(number) => out.extend_from_slice(go_number(number).as_bytes()),
        Value::Array(elements) => {
            out.push(b'[');
            for (at, element) in elements.iter().enumerate() {
                if at > 0 {
                    out.push(b' ');
                }
                print(element, out);
            }
            out.push(b']');
        }
        Value::Object(object) => {
            out.extend_from_slice(b"map[");
            for (at, (key, value)) in object.iter().enumerate() {
                if at > 0 {
                    out.push(b' ');
                }
                out.extend_from_slice(key.as_bytes());
                out.push(b':');
                print(value, out);
            }
            out.push(b']');
        }
    }
}

fn go_number(number: &Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() => go_float(float, -4..6),
        _ => number.to_string(),
    }
}

/// Returns the shortest digits of a float, with an exponent if it is not in `plain`.
fn go_float(float: f64, plain: Range<i32>) -> String {
    let scientific = format!("{float:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if float == 0.0 || plain.contains(&exponent) {
        return float.to_string();
    }
    format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

/// JSON with the escapes and floats of Go's `encoding/json`.
struct GoJson;

impl Formatter for GoJson {
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
