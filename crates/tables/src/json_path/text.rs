//! Prints values as Go does: `encoding/json` for objects and arrays of templates, `fmt.Print` for the rest.

use serde_json::{Number, Value};

use crate::go_json::{go_float, write_go_json};

/// Prints a value as templates do: objects and arrays in JSON.
pub(crate) fn template(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Array(_) | Value::Object(_) => {
            // A value always has a JSON form.
            let _ = write_go_json(value, out);
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
