//! `-o yaml`: documents as kubectl prints them: sorted fields, no folded lines, and numbers as Go writes them.

use std::cell::RefCell;
use std::fmt::{self, Write};
use std::rc::Rc;

use listwatch::{ItemError, ItemRef};
use serde::{Serialize, Serializer};
use serde_json::{Number, Value};

use super::format::{Constructor, Event, Format, FormatInfo, Needs, OptionGroup, Purpose, Row};
use super::json::{JsonLines, event_line};

pub const YAML: FormatInfo = FormatInfo {
    name: "yaml",
    help: "One YAML document per object",
    needs: Needs::Fields,
    options: &[OptionGroup::Fields],
    constructor: Constructor::Plain(|context| {
        Rc::new(YamlFormat { lines: JsonLines::new(context), purpose: context.purpose })
    }),
};

struct YamlFormat {
    lines: JsonLines,
    purpose: Purpose,
}

impl Format for YamlFormat {
    fn info(&self) -> &'static FormatInfo {
        &YAML
    }

    /// The row of an object that becomes a part of a change is still JSON.
    fn row(&self, item: &ItemRef<'_>) -> Result<Option<Row>, ItemError> {
        let line = self.lines.object(item)?;
        let is_event = matches!(self.purpose, Purpose::Events | Purpose::Comparisons);
        Ok(Some(Row::Text(if is_event { line } else { to_yaml(&line)? })))
    }

    fn event_row(&self, row: Row, event: &Event<'_>) -> Result<Row, ItemError> {
        let Row::Text(line) = row else { return Ok(row) };
        to_yaml(&event_line(&line, event)).map(Row::Text)
    }

    fn usage_error(&self) -> Option<String> {
        self.lines.usage_error()
    }

    fn take_unknown_fields(&self) -> u64 {
        self.lines.unknown_fields.take()
    }
}

/// Returns an object in JSON as a YAML document.
pub fn to_yaml(json: &[u8]) -> Result<Vec<u8>, ItemError> {
    let value: Value = serde_json::from_slice(json).map_err(ItemError::other)?;
    let float = RefCell::new(None);
    let mut document = YamlWriter { text: "---\n".to_owned(), float: &float };
    // kubectl does not fold long lines either.
    let options = serde_saphyr::ser_options! { folded_wrap_chars: usize::MAX };
    let tree = YamlValue { value: &value, float: &float };
    serde_saphyr::to_fmt_writer_with_options(&mut document, &tree, options).map_err(ItemError::other)?;
    if !document.text.ends_with('\n') {
        document.text.push('\n');
    }
    Ok(document.text.into())
}

/// Stands for a float, whose text [`YamlWriter`] writes in its place: the serializer has a form of its own.
const FLOAT: f64 = 0.5;
const FLOAT_TEXT: &str = "0.5";

struct YamlWriter<'a> {
    text: String,
    /// The text of the float that is written next.
    float: &'a RefCell<Option<String>>,
}

impl Write for YamlWriter<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        match self.float.borrow_mut().take_if(|_| text == FLOAT_TEXT) {
            Some(float) => self.text.push_str(&float),
            None => self.text.push_str(text),
        }
        Ok(())
    }
}

struct YamlValue<'a> {
    value: &'a Value,
    /// As in [`YamlWriter`].
    float: &'a RefCell<Option<String>>,
}

impl Serialize for YamlValue<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { float, .. } = *self;
        match self.value {
            Value::Array(values) => serializer.collect_seq(values.iter().map(|value| YamlValue { value, float })),
            Value::Object(members) => {
                serializer.collect_map(members.iter().map(|(name, value)| (name, YamlValue { value, float })))
            }
            Value::Number(number) => match go_number(number) {
                Ok(integer) => integer.serialize(serializer),
                Err(text) => {
                    float.replace(Some(text));
                    serializer.serialize_f64(FLOAT)
                }
            },
            value => value.serialize(serializer),
        }
    }
}

/// Returns the integer, or the text of the float.
///
/// kubectl reads the JSON of an object as YAML, where `100.0` is written as the integer 100. Sources: `floatEncoder` in
/// Go's `encoding/json`, `floatv` in `encode.go` of `go.yaml.in/yaml/v2`.
fn go_number(number: &Number) -> Result<Number, String> {
    let Some(float) = number.as_f64().filter(|_| number.is_f64()) else { return Ok(number.clone()) };
    if float == 0.0 {
        return Ok(0.into());
    }
    // Rust writes all digits of an integer, and no dot.
    let digits = float.to_string();
    if let Ok(integer) = digits.parse::<i64>() {
        return Ok(integer.into());
    }
    if let Ok(integer) = digits.parse::<u64>() {
        return Ok(integer.into());
    }
    // As `strconv.FormatFloat(float, 'g', -1, 64)`: an exponent has at least two digits.
    let scientific = format!("{float:e}");
    let (digits_of, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse().unwrap_or(0) {
        -4..=5 => Err(digits),
        exponent @ 6.. => Err(format!("{digits_of}e+{exponent:02}")),
        exponent => Err(format!("{digits_of}e-{:02}", -exponent)),
    }
}

#[cfg(test)]
mod tests {
    /// The right side is the output of `kubectl annotate --local -o yaml`.
    #[test]
    fn prints_numbers_as_kubectl_does() {
        for (json, expected) in [
            ("1.0", "1"),
            ("-0", "0"),
            ("-0.0", "0"),
            ("1e3", "1000"),
            ("1000000.0", "1000000"),
            ("0.1", "0.1"),
            ("0.5", "0.5"),
            ("0.0001", "0.0001"),
            ("0.00001", "1e-05"),
            ("1e-7", "1e-07"),
            ("1.5e-7", "1.5e-07"),
            ("5e-324", "5e-324"),
            ("123456.7", "123456.7"),
            ("999999.5", "999999.5"),
            ("1234567.5", "1.2345675e+06"),
            ("9223372036854775807", "9223372036854775807"),
            ("-9223372036854775809", "-9.223372036854776e+18"),
            ("18446744073709551616", "1.8446744073709552e+19"),
            ("1e20", "1e+20"),
            ("1e21", "1e+21"),
            ("-1e21", "-1e+21"),
            ("1e308", "1e+308"),
        ] {
            let json = format!(r#"{{"a":{json},"b":["0.5",{json},0.5,{{"c":{json}}}]}}"#);
            let expected = format!("---\na: {expected}\nb:\n- \"0.5\"\n- {expected}\n- 0.5\n- c: {expected}\n");
            assert_eq!(String::from_utf8(super::to_yaml(json.as_bytes()).unwrap()).unwrap(), expected, "{json}");
        }
    }
}
