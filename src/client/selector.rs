//! Parses label and field selectors from the text that users type, and writes them as in requests.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::str::FromStr;

use crate::error::InvalidInput;
use crate::object::selector::{FieldRequirement, FieldSelector, Label, LabelSelector};

/// Writes the selector as in a request: without spaces around commas, `==` as `=`, values sorted.
impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for (key, label) in &self.0 {
            f.write_str(comma)?;
            comma = ",";
            match label {
                Label::Equal(value) => write!(f, "{key}={value}")?,
                Label::NotEqual(value) => write!(f, "{key}!={value}")?,
                Label::In(values) => write!(f, "{key} in ({})", joined(values))?,
                Label::NotIn(values) => write!(f, "{key} notin ({})", joined(values))?,
                Label::Exists => write!(f, "{key}")?,
                Label::DoesNotExist => write!(f, "!{key}")?,
                Label::GreaterThan(bound) => write!(f, "{key}>{bound}")?,
                Label::LessThan(bound) => write!(f, "{key}<{bound}")?,
            }
        }
        Ok(())
    }
}

/// Parses a selector as apimachinery `labels.Parse` does. The error has the text that an API server sends.
impl FromStr for LabelSelector {
    type Err = InvalidInput;

    fn from_str(input: &str) -> Result<Self, InvalidInput> {
        let mut selector = Self::default();
        let mut tokens = Tokens { input, at: 0 };
        let refused = |message: String| InvalidInput::new(message, input);
        let mut token = tokens.peek();
        if !token.is_empty() && !begins_requirement(token) {
            return Err(refused(format!("found '{token}', expected: !, identifier, or 'end of string'")));
        }
        while !token.is_empty() {
            let parsed = requirement(&mut tokens);
            let (key, label) = parsed.map_err(|message| refused(format!("unable to parse requirement: {message}")))?;
            selector = selector.require(key, label);
            token = tokens.next();
            match (token, tokens.peek()) {
                ("", _) => {}
                (",", next) if begins_requirement(next) => {}
                (",", next) => return Err(refused(format!("found '{next}', expected: identifier after ','"))),
                _ => return Err(refused(format!("found '{token}', expected: ',' or 'end of string'"))),
            }
        }
        Ok(selector)
    }
}

impl LabelSelector {
    /// Adds a `LabelSelectorRequirement` of meta/v1: `operator` is `In`, `NotIn`, `Exists` or `DoesNotExist`.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`] for another operator, and for a key or values that an API server refuses (apimachinery
    /// `labels.NewRequirement`).
    pub fn requirement(
        self,
        key: impl Into<String>,
        operator: &str,
        values: impl IntoIterator<Item = impl Into<String>>,
    ) -> Result<Self, InvalidInput> {
        let (key, values) = (key.into(), values.into_iter().map(Into::into).collect::<BTreeSet<String>>());
        let label = match operator {
            "In" => Label::In(values),
            "NotIn" => Label::NotIn(values),
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let values: Vec<String> = values.iter().map(|value| quoted(value)).collect();
                let rule = "values set must be empty for exists and does not exist";
                let message = format!("values: Invalid value: [{}]: {rule}", values.join(","));
                return Err(InvalidInput::new(message, &key));
            }
            "Exists" => Label::Exists,
            "DoesNotExist" => Label::DoesNotExist,
            _ => {
                let message = format!("{} is not a valid label selector operator", quoted(operator));
                return Err(InvalidInput::new(message, operator));
            }
        };
        self.checked(key, label)
    }

    /// Adds a requirement that an API server accepts.
    fn checked(self, key: String, label: Label) -> Result<Self, InvalidInput> {
        check_key("key", &key).and_then(|()| label.check(&key)).map_err(|message| InvalidInput::new(message, &key))?;
        Ok(self.require(key, label))
    }

    /// Refuses a selector that the server would refuse, or parse as another selector.
    pub(super) fn validate(&self) -> Result<(), InvalidInput> {
        validate(self)
    }
}

/// Converts the selector of a Deployment, a Service or another object.
#[cfg(feature = "k8s-pb")]
impl TryFrom<&k8s_pb::apimachinery::pkg::apis::meta::v1::LabelSelector> for LabelSelector {
    type Error = InvalidInput;

    fn try_from(selector: &k8s_pb::apimachinery::pkg::apis::meta::v1::LabelSelector) -> Result<Self, InvalidInput> {
        let mut labels = selector.match_labels.iter();
        let equal =
            labels.try_fold(Self::new(), |all, (key, value)| all.checked(key.clone(), Label::Equal(value.clone())))?;
        selector.match_expressions.iter().try_fold(equal, |all, expression| {
            let operator = expression.operator.as_deref().unwrap_or_default();
            all.requirement(expression.key.as_deref().unwrap_or_default(), operator, &expression.values)
        })
    }
}

/// Writes the selector as in a request, with backslashes before `\`, `,` and `=` in values.
impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for FieldRequirement { path, is_equal, value } in &self.0 {
            write!(f, "{comma}{path}{}", if *is_equal { "=" } else { "!=" })?;
            comma = ",";
            for c in value.chars() {
                match c {
                    '\\' | ',' | '=' => write!(f, "\\{c}")?,
                    _ => write!(f, "{c}")?,
                }
            }
        }
        Ok(())
    }
}

/// Parses a selector as apimachinery `fields.ParseSelector` does: `=`, `==` and `!=`, and in values `\\`, `\,` and `\=`
/// for the characters themselves. The error has the text that an API server sends. Any path is accepted: the resource
/// decides about paths.
impl FromStr for FieldSelector {
    type Err = InvalidInput;

    fn from_str(input: &str) -> Result<Self, InvalidInput> {
        let mut selector = Self::default();
        // The API server parses the terms in the order of their texts, and reports its first error.
        let mut refused: Option<(&str, String)> = None;
        for term in terms(input).filter(|term| !term.is_empty()) {
            match field_requirement(input, term) {
                // The API server ignores it.
                Ok((path, _, value)) if path.is_empty() && value.is_empty() => {}
                Ok((path, is_equal, value)) => selector = selector.require(path, is_equal, value),
                Err(message) if refused.as_ref().is_none_or(|(first, _)| term < *first) => {
                    refused = Some((term, message));
                }
                Err(_) => {}
            }
        }
        refused.map_or(Ok(selector), |(_, message)| Err(InvalidInput::new(message, input)))
    }
}

impl FieldSelector {
    /// Refuses a selector that the server would refuse, or parse as another selector.
    pub(super) fn validate(&self) -> Result<(), InvalidInput> {
        validate(self)
    }
}

fn validate<S: fmt::Display + FromStr<Err = InvalidInput> + PartialEq>(selector: &S) -> Result<(), InvalidInput> {
    let text = selector.to_string();
    if text.parse::<S>()? == *selector {
        return Ok(());
    }
    Err(InvalidInput::new(format!("the server would parse {text:?} as another selector"), &text))
}

/// Tokens as in apimachinery `labels.Lexer`: a word, one of the symbols `= == != ! < > ( ) ,`, or at the end the empty
/// text. The parser decides by its place whether a word is a key, an operator or a value: `in in (in)`.
#[derive(Clone, Copy)]
struct Tokens<'a> {
    input: &'a str,
    at: usize,
}

impl<'a> Tokens<'a> {
    fn peek(self) -> &'a str {
        self.split().0
    }

    fn next(&mut self) -> &'a str {
        let (token, rest) = self.split();
        // The lexer ends a token at a NUL, and drops it. Any other NUL ends the selector.
        let rest = if token.is_empty() { rest } else { rest.strip_prefix('\0').unwrap_or(rest) };
        self.at = self.input.len() - rest.len();
        token
    }

    /// Returns the next token and the text after it.
    fn split(self) -> (&'a str, &'a str) {
        let text = self.input.get(self.at..).unwrap_or_default().trim_start_matches(is_space);
        let length = if text.starts_with("==") || text.starts_with("!=") {
            2
        } else if text.starts_with(is_symbol) {
            1
        } else {
            text.find(|c| is_symbol(c) || is_space(c) || c == '\0').unwrap_or(text.len())
        };
        text.split_at(length)
    }
}

fn is_symbol(c: char) -> bool {
    "=!(),<>".contains(c)
}

fn is_space(c: char) -> bool {
    " \t\r\n".contains(c)
}

fn is_word(token: &str) -> bool {
    !token.is_empty() && !token.starts_with(is_symbol)
}

fn begins_requirement(token: &str) -> bool {
    token == "!" || is_word(token)
}

fn requirement<'a>(tokens: &mut Tokens<'a>) -> Result<(&'a str, Label), String> {
    let mut key = tokens.next();
    let negated = key == "!";
    if negated {
        key = tokens.next();
    }
    if !is_word(key) {
        return Err(format!("found '{key}', expected: identifier"));
    }
    check_key("<nil>", key)?;
    if negated {
        return Ok((key, Label::DoesNotExist));
    }
    if matches!(tokens.peek(), "" | ",") {
        return Ok((key, Label::Exists));
    }
    let label = match tokens.next() {
        "=" | "==" => Label::Equal(value(tokens)?),
        "!=" => Label::NotEqual(value(tokens)?),
        "in" => Label::In(values(tokens)?),
        "notin" => Label::NotIn(values(tokens)?),
        ">" => Label::GreaterThan(value(tokens)?),
        "<" => Label::LessThan(value(tokens)?),
        found => return Err(format!("found '{found}', expected: in, notin, =, ==, !=, gt, lt")),
    };
    label.check(key)?;
    Ok((key, label))
}

/// Parses a value, which may be empty.
fn value(tokens: &mut Tokens<'_>) -> Result<String, String> {
    if matches!(tokens.peek(), "" | ",") {
        return Ok(String::new());
    }
    match tokens.next() {
        word if is_word(word) => Ok(word.to_owned()),
        found => Err(format!("found '{found}', expected: identifier")),
    }
}

/// Parses `(a,b)`; an element may be empty, as in `(a,)` and `()`.
fn values(tokens: &mut Tokens<'_>) -> Result<BTreeSet<String>, String> {
    let open = tokens.next();
    if open != "(" {
        return Err(format!("found '{open}' expected: '('"));
    }
    let mut set = BTreeSet::new();
    match tokens.peek() {
        ")" => _ = set.insert(String::new()),
        first if first == "," || is_word(first) => {}
        found => return Err(format!("found '{found}', expected: ',', ')' or identifier")),
    }
    while tokens.peek() != ")" {
        match (tokens.next(), tokens.peek()) {
            (",", next) => {
                if set.is_empty() || matches!(next, "," | ")") {
                    set.insert(String::new());
                }
            }
            (word, "," | ")") if is_word(word) => _ = set.insert(word.to_owned()),
            (word, found) if is_word(word) => return Err(format!("found '{found}', expected: ',' or ')'")),
            (found, _) => return Err(format!("found '{found}', expected: ',', or identifier")),
        }
    }
    tokens.next();
    Ok(set)
}

fn joined(values: &BTreeSet<String>) -> String {
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    values.join(",")
}

impl Label {
    /// Checks the values as apimachinery `labels.NewRequirement` does.
    fn check(&self, key: &str) -> Result<(), String> {
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

fn check_key(path: &str, key: &str) -> Result<(), String> {
    let faults = key_faults(key);
    if faults.is_empty() { Ok(()) } else { Err(invalid(path, key, &faults.join("; "))) }
}

/// Writes an error as apimachinery `field.Invalid` does.
fn invalid(path: &str, value: &str, detail: &str) -> String {
    format!("{path}: Invalid value: {}: {detail}", quoted(value))
}

const NAME: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
    must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
    validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
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

/// Quotes a text as Go's `strconv.Quote` does.
fn quoted(text: &str) -> String {
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

/// Returns the parts between unescaped commas.
fn terms(input: &str) -> impl Iterator<Item = &str> {
    let mut escaped = false;
    input.split(move |c: char| {
        let comma = c == ',' && !escaped;
        escaped = c == '\\' && !escaped;
        comma
    })
}

/// Returns path, whether the value must be equal, and the value. The first operator counts, because a path has no
/// escapes.
fn field_requirement<'a>(input: &str, term: &'a str) -> Result<(&'a str, bool, String), String> {
    let Some((path, raw)) = term.split_once('=') else {
        return Err(format!("invalid selector: '{input}'; can't understand '{term}'"));
    };
    match path.strip_suffix('!') {
        Some(path) => Ok((path, false, unescape(raw)?)),
        None => Ok((path, true, unescape(raw.strip_prefix('=').unwrap_or(raw))?)),
    }
}

/// Unescapes a value as apimachinery `fields.UnescapeValue` does.
fn unescape(raw: &str) -> Result<String, String> {
    let mut value = String::with_capacity(raw.len());
    let mut chars = raw.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => value.push(c),
                other => {
                    let other = other.map(String::from).unwrap_or_default();
                    return Err(format!("invalid field selector: invalid escape sequence: \\{other}"));
                }
            },
            // Go prints the number of the character.
            ',' | '=' => {
                return Err(format!("invalid field selector: unescaped character in value: {}", u32::from(c)));
            }
            _ => value.push(c),
        }
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::object::{ItemRef, MetaView};
    use crate::wire::Encoding;

    /// What apimachinery v0.36 accepts (`labels.Parse`), and the text as which it is written in a request.
    #[test]
    fn label_selectors_have_a_canonical_form() {
        let long = "a".repeat(63);
        for (input, canonical) in [
            ("", ""),
            ("  \t\r\n ", ""),
            ("app=web", "app=web"),
            (" app == web ", "app=web"),
            ("app!=web", "app!=web"),
            ("app", "app"),
            ("!app", "!app"),
            ("! app", "!app"),
            ("b=1,a=2,b=0", "a=2,b=1,b=0"),
            ("x in (b,a,b)", "x in (a,b)"),
            ("x notin(a)", "x notin (a)"),
            ("x in ()", "x in ()"),
            ("x in (,)", "x in ()"),
            ("x in (a,)", "x in (,a)"),
            ("x in (,a)", "x in (,a)"),
            ("x in (a,,b)", "x in (,a,b)"),
            ("x in (foo,,baz),y,z notin ()", "x in (,baz,foo),y,z notin ()"),
            ("x=", "x="),
            ("x!=,y", "x!=,y"),
            ("x>1", "x>1"),
            ("x < 007", "x<007"),
            ("x>9223372036854775807", "x>9223372036854775807"),
            // Words that are operators elsewhere.
            ("in", "in"),
            ("in in (in,notin)", "in in (in,notin)"),
            ("notin=in", "notin=in"),
            ("a=in,notin", "a=in,notin"),
            ("example.com/App_1.x=A-b_c.d", "example.com/App_1.x=A-b_c.d"),
            (&format!("{long}={long}"), &format!("{long}={long}")),
            // The lexer drops a NUL after a token.
            ("a\0", "a"),
            ("a=b\0,c", "a=b,c"),
            ("a=b,\0c", "a=b,c"),
            ("a=b \0c", "a=b"),
        ] {
            let parsed: Result<LabelSelector, _> = input.parse();
            let parsed = parsed.unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(parsed.to_string(), canonical);
            assert_eq!(parsed.is_empty(), canonical.is_empty());
        }
    }

    /// Checks that the errors are those of apimachinery v0.36, which a program of its own printed.
    fn check_errors<S: FromStr<Err = InvalidInput> + fmt::Debug>(cases: &[(&str, String)]) {
        for (input, expected) in cases {
            let error = input.parse::<S>().expect_err(input);
            assert_eq!((error.text(), error.to_string()), (*input, expected.clone()));
        }
    }

    #[test]
    fn refuses_malformed_label_selectors_as_the_api_server_does() {
        let requirement = |rest: &str| format!("unable to parse requirement: {rest}");
        check_errors::<LabelSelector>(&[
            (",", "found ',', expected: !, identifier, or 'end of string'".to_owned()),
            ("=a", "found '=', expected: !, identifier, or 'end of string'".to_owned()),
            ("(a)", "found '(', expected: !, identifier, or 'end of string'".to_owned()),
            ("a,", "found '', expected: identifier after ','".to_owned()),
            ("a==b,c=d,", "found '', expected: identifier after ','".to_owned()),
            ("a,,b", "found ',', expected: identifier after ','".to_owned()),
            ("!a=b", "found '=', expected: ',' or 'end of string'".to_owned()),
            ("!a in (b)", "found 'in', expected: ',' or 'end of string'".to_owned()),
            ("a=b c", "found 'c', expected: ',' or 'end of string'".to_owned()),
            ("a=b\0c", "found 'c', expected: ',' or 'end of string'".to_owned()),
            ("x=a,y=b,z!=c w", "found 'w', expected: ',' or 'end of string'".to_owned()),
            ("a in (b,c) d", "found 'd', expected: ',' or 'end of string'".to_owned()),
            ("!", requirement("found '', expected: identifier")),
            ("!!a", requirement("found '!', expected: identifier")),
            ("a=!b", requirement("found '!', expected: identifier")),
            ("a===b", requirement("found '=', expected: identifier")),
            ("a=)", requirement("found ')', expected: identifier")),
            ("a=>1", requirement("found '>', expected: identifier")),
            ("a>>1", requirement("found '>', expected: identifier")),
            ("a b", requirement("found 'b', expected: in, notin, =, ==, !=, gt, lt")),
            ("a in b", requirement("found 'b' expected: '('")),
            ("a notin", requirement("found '' expected: '('")),
            ("a in (", requirement("found '', expected: ',', ')' or identifier")),
            ("a in (=)", requirement("found '=', expected: ',', ')' or identifier")),
            ("a in (()", requirement("found '(', expected: ',', ')' or identifier")),
            ("a in (b", requirement("found '', expected: ',' or ')'")),
            ("a in (b c)", requirement("found 'c', expected: ',' or ')'")),
            ("a in (b=", requirement("found '=', expected: ',' or ')'")),
            ("a in (b,", requirement("found '', expected: ',', or identifier")),
            ("a in (b,=)", requirement("found '=', expected: ',', or identifier")),
        ]);
    }

    #[test]
    fn refuses_invalid_keys_and_values_as_the_api_server_does() {
        let invalid = |path: &str, value: &str, detail: &str| format!("{path}: Invalid value: {value}: {detail}");
        let requirement = |error: String| format!("unable to parse requirement: {error}");
        let key = |key: &str, detail: &str| requirement(invalid("<nil>", key, detail));
        let name = format!("name part {NAME}");
        let number = "for 'Gt', 'Lt' operators, the value must be an integer";
        let long = "a".repeat(64);
        let value = |place: &str, value: &str| invalid(&format!("values[{place}"), value, VALUE);
        check_errors::<LabelSelector>(&[
            ("app:web", key(r#""app:web""#, &name)),
            ("-a", key(r#""-a""#, &name)),
            ("a-", key(r#""a-""#, &name)),
            ("é=a", key(r#""é""#, &name)),
            ("x||y", key(r#""x||y""#, &name)),
            ("/a", key(r#""/a""#, "prefix part must be non-empty")),
            ("a/", key(r#""a/""#, &format!("name part must be non-empty; {name}"))),
            ("A.com/x", key(r#""A.com/x""#, &format!("prefix part {SUBDOMAIN}"))),
            ("a_b/x", key(r#""a_b/x""#, &format!("prefix part {SUBDOMAIN}"))),
            ("a..b/x", key(r#""a..b/x""#, &format!("prefix part {SUBDOMAIN}"))),
            ("-/-", key(r#""-/-""#, &format!("prefix part {SUBDOMAIN}; {name}"))),
            (
                "a/b/c",
                key(
                    r#""a/b/c""#,
                    &format!(
                        "a valid label key {NAME} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
                    ),
                ),
            ),
            (&long, key(&format!("{long:?}"), "name part must be no more than 63 bytes")),
            (r#"app="web""#, requirement(value("0][app]", r#""\"web\"""#))),
            ("app=*", requirement(value("0][app]", r#""*""#))),
            ("a=b/c", requirement(value("0][a]", r#""b/c""#))),
            ("a=é", requirement(value("0][a]", r#""é""#))),
            ("a=\x7f\u{200b}", requirement(value("0][a]", r#""\x7f\u200b""#))),
            ("x=a||y=b", requirement(value("0][x]", r#""a||y""#))),
            ("a>-5", requirement(value("0][a]", r#""-5""#))),
            ("a<+5", requirement(value("0][a]", r#""+5""#))),
            ("a in (b*)", requirement(value("0][a]", r#""b*""#))),
            ("a in (-b,c,d*)", requirement(format!("[{}, {}]", value("0][a]", r#""-b""#), value("2][a]", r#""d*""#)))),
            ("a>b", requirement(invalid("values[0]", r#""b""#, number))),
            ("a>", requirement(invalid("values[0]", r#""""#, number))),
            ("a<9223372036854775808", requirement(invalid("values[0]", r#""9223372036854775808""#, number))),
            (
                "a>x-",
                requirement(format!("[{}, {}]", invalid("values[0]", r#""x-""#, number), value("0][a]", r#""x-""#))),
            ),
            (
                &format!("a=-{long}"),
                requirement(invalid(
                    "values[0][a]",
                    &format!("\"-{long}\""),
                    &format!("must be no more than 63 bytes; {VALUE}"),
                )),
            ),
        ]);
        // As printed, with Go's two spaces after commas.
        assert_eq!(
            [NAME, VALUE, SUBDOMAIN],
            [
                "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
                "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            ]
        );
    }

    #[test]
    fn built_label_selectors_equal_parsed_ones() {
        let built = LabelSelector::new()
            .less_than("z", 5)
            .greater_than("z", 1)
            .equal("app", "web")
            .not_equal("tier", "")
            .is_in("x", ["b", "a"])
            .not_in("y", ["c"])
            .exists("e")
            .does_not_exist("f");
        let text = "app=web,e,!f,tier!=,x in (a,b),y notin (c),z<5,z>1";
        assert_eq!(built.to_string(), text);
        assert_eq!(text.parse(), Ok(built));
    }

    #[test]
    fn refuses_selectors_that_the_server_would_refuse_or_parse_differently() {
        let new = LabelSelector::new;
        for (selector, refused) in [
            (new().equal("a=b", "c"), true),
            (new().equal("a", "b,c"), true),
            (new().not_equal("a", "b c"), true),
            (new().is_in("a", [""; 0]), true),
            (new().not_in("a", ["b", "(c"]), true),
            (new().exists(""), true),
            (new().does_not_exist("!a"), true),
            (new().less_than("a\tb", 1), true),
            (new().equal("-a", "b"), true),
            (new().equal("a", "é*"), true),
            (new().greater_than("a", -1), true),
            (new().equal("a", "b,c"), true),
            (new().equal("a", "b").not_in("b", [""]).less_than("c", 7).exists("x.y/z"), false),
        ] {
            assert_eq!(selector.validate().is_err(), refused, "{selector:?}");
        }
        let new = FieldSelector::new;
        for (selector, refused) in [
            (new().equal("a=b", "c"), true),
            (new().equal("a,b", "c"), true),
            (new().equal("a!", "b"), true),
            (new().equal("", ""), true),
            (new().equal("a", "b,c=d\\").not_equal("a", "a").equal("spec.x y", "!"), false),
        ] {
            assert_eq!(selector.validate().is_err(), refused, "{selector:?}");
        }
    }

    #[cfg(feature = "k8s-pb")]
    #[test]
    fn converts_label_selectors_of_objects() {
        use k8s_pb::apimachinery::pkg::apis::meta::v1 as meta;

        let expression = |operator: &str, values: &[&str]| meta::LabelSelectorRequirement {
            key: Some("k".to_owned()),
            operator: Some(operator.to_owned()),
            values: values.iter().map(ToString::to_string).collect(),
        };
        for (operator, values, expected) in [
            ("In", &["a", "b"][..], Some("app=web,k in (a,b)")),
            ("NotIn", &["a"], Some("app=web,k notin (a)")),
            ("Exists", &[], Some("app=web,k")),
            ("DoesNotExist", &[], Some("app=web,!k")),
            ("Gt", &["1"], None),
            ("Exists", &["a"], None),
            ("In", &[], None),
            ("In", &["a", "-"], None),
        ] {
            let selector = meta::LabelSelector {
                match_labels: [("app".to_owned(), "web".to_owned())].into(),
                match_expressions: vec![expression(operator, values)],
            };
            let converted = LabelSelector::try_from(&selector).ok().map(|selector| selector.to_string());
            assert_eq!(converted.as_deref(), expected, "{operator}");
        }
    }

    /// What apimachinery v0.36 accepts (`fields.ParseSelector`): the resource refuses other fields later.
    #[test]
    fn field_selectors_have_a_canonical_form() {
        for (input, canonical) in [
            ("", ""),
            (",,", ""),
            ("=,!=", ""),
            ("status.phase=Running", "status.phase=Running"),
            ("b==2,a!=1,", "a!=1,b=2"),
            (r"a=x\,y\=z\\", r"a=x\,y\=z\\"),
            ("a=", "a="),
            ("=b", "=b"),
            ("a=b!c d", "a=b!c d"),
            ("a!=é", "a!=é"),
            ("a!b=c", "a!b=c"),
            ("a!!=b", "a!!=b"),
            ("a=b, c=d", " c=d,a=b"),
            (r"a\,b=c", r"a\,b=c"),
        ] {
            let parsed: Result<FieldSelector, _> = input.parse();
            let parsed = parsed.unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(parsed.to_string(), canonical);
            assert_eq!(parsed.is_empty(), canonical.is_empty());
        }
    }

    #[test]
    fn refuses_malformed_field_selectors_as_the_api_server_does() {
        check_errors::<FieldSelector>(&[
            ("metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'".to_owned()),
            ("a=b, c", "invalid selector: 'a=b, c'; can't understand ' c'".to_owned()),
            ("a>b", "invalid selector: 'a>b'; can't understand 'a>b'".to_owned()),
            ("b=c=d,a", "invalid selector: 'b=c=d,a'; can't understand 'a'".to_owned()),
            ("a===b", "invalid field selector: unescaped character in value: 61".to_owned()),
            ("x=1,a=b=c", "invalid field selector: unescaped character in value: 61".to_owned()),
            ("a!==b", "invalid field selector: unescaped character in value: 61".to_owned()),
            (r"a=\b", r"invalid field selector: invalid escape sequence: \b".to_owned()),
            (r"a=\é", r"invalid field selector: invalid escape sequence: \é".to_owned()),
            (r"a=b\", r"invalid field selector: invalid escape sequence: \".to_owned()),
        ]);
    }

    /// The table of apimachinery `labels.TestSelectorMatches` and more.
    #[test]
    fn label_selectors_match_as_on_the_server() {
        // metadata.labels {app: web, n: "5", plus: "+7", empty: ""}, sorted as servers do.
        let labels =
            b"\x5a\x0a\x0a\x03app\x12\x03web\x5a\x09\x0a\x05empty\x12\x00\x5a\x06\x0a\x01n\x12\x015\x5a\x0a\x0a\x04plus\x12\x02+7";
        let object = [&[0x0a, u8::try_from(labels.len()).unwrap()], &labels[..]].concat();
        let meta = MetaView::new(Encoding::Protobuf, &object).unwrap();
        for (selector, expected) in [
            ("", true),
            ("app=web", true),
            ("app==db", false),
            ("x=", false),
            ("empty=", true),
            ("app!=web", false),
            ("app!=db", true),
            ("x!=web", true),
            ("app in (db,web)", true),
            ("app in (db)", false),
            ("x in (web)", false),
            ("empty in ()", true),
            ("app notin (db)", true),
            ("app notin (db,web)", false),
            ("x notin (web)", true),
            ("app", true),
            ("x", false),
            ("!app", false),
            ("!x", true),
            ("n>4", true),
            ("n>5", false),
            ("n<6", true),
            ("n<5", false),
            ("n>004", true),
            ("plus>6", true),
            ("app>1", false),
            ("app<1", false),
            ("empty<1", false),
            ("x<1", false),
            ("app=web,n>4,!x", true),
            ("app=web,n>5,!x", false),
        ] {
            let parsed: LabelSelector = selector.parse().unwrap();
            assert_eq!(parsed.matches(&meta).unwrap(), expected, "{selector}");
        }
    }

    #[test]
    fn field_selectors_match_as_on_the_server() {
        let metadata = b"\x0a\x06\x0a\x01n\x1a\x01s";
        let object = [metadata, &b"\x12\x07\x52\x03n-1\x58\x01\x1a\x09\x0a\x07Running"[..]].concat();
        let json = br#"{"metadata":{"name":"n","namespace":"s"},"spec":{"nodeName":"n-1","hostNetwork":true},
            "status":{"phase":"Running"}}"#;
        let pod = crate::TypeMeta { api_version: "v1".to_owned(), kind: "PodList".to_owned() };
        let node = crate::TypeMeta { api_version: "v1".to_owned(), kind: "NodeList".to_owned() };
        for (selector, type_meta, expected) in [
            ("", &node, Ok(true)),
            ("metadata.name=n,metadata.namespace=s", &node, Ok(true)),
            ("metadata.name=n,metadata.namespace!=s", &node, Ok(false)),
            ("spec.nodeName=n-1,status.phase=Running", &pod, Ok(true)),
            ("spec.nodeName=n-1,status.phase!=Running", &pod, Ok(false)),
            ("status.podIP=,status.nominatedNodeName!=x", &pod, Ok(true)),
            ("spec.hostNetwork=true", &pod, Ok(true)),
            ("spec.hostNetwork=false", &pod, Ok(false)),
            ("spec.hostNetwork=1", &pod, Ok(false)),
            ("spec.nodeName=n-1", &node, Err("unsupported field selector: \"spec.nodeName\" of \"Node\"")),
            ("metadata.name=x,spec.x=", &pod, Err("unsupported field selector: \"spec.x\" of \"Pod\"")),
        ] {
            let parsed: FieldSelector = selector.parse().unwrap();
            let item = ItemRef::new(Encoding::Protobuf, &object).with_type_meta(type_meta);
            let matched = parsed.matches(&item).map_err(|error| error.to_string());
            assert_eq!(matched, expected.map_err(str::to_owned), "{selector}");
            let item = ItemRef::new(Encoding::Json, json).with_type_meta(type_meta);
            let of_json = parsed.matches(&item).map_err(|error| error.to_string());
            assert_eq!(of_json, matched, "{selector}, of JSON");
        }
        let empty = FieldSelector::new().equal("spec.hostNetwork", "false");
        assert_eq!(empty.matches(&ItemRef::new(Encoding::Protobuf, b"").with_type_meta(&pod)).ok(), Some(true));
        assert_eq!(empty.matches(&ItemRef::new(Encoding::Json, b"{}").with_type_meta(&pod)).ok(), Some(true));
    }

    #[test]
    fn selects_custom_resources_by_any_field() {
        let widget = br#"{"metadata":{"name":"n"},"spec":{"color":"r\u0065d","size":0,"size":-7,"on":false,"none":null,"of":{}}}"#;
        let type_meta = crate::TypeMeta { api_version: "example.com/v1".to_owned(), kind: "WidgetList".to_owned() };
        for (selector, expected) in [
            ("spec.color=red,spec.size=-7,spec.on=false", Ok(true)),
            ("spec.color!=red", Ok(false)),
            ("spec.none=,spec.more=,spec.on.more=,more.color=", Ok(true)),
            ("spec.size=7", Ok(false)),
            ("spec.of=x", Err("a value of the wrong type in field spec.of")),
        ] {
            let selector: FieldSelector = selector.parse().unwrap();
            let matched = selector.matches(&ItemRef::new(Encoding::Json, widget).with_type_meta(&type_meta));
            assert_eq!(matched.map_err(|error| error.to_string()), expected.map_err(str::to_owned), "{selector}");
        }
    }

    fn key() -> impl Strategy<Value = String> {
        "([a-z0-9]([-a-z0-9]{0,3}[a-z0-9])?(\\.[a-z]){0,2}/)?[A-Za-z0-9]([-._A-Za-z0-9]{0,5}[A-Za-z0-9])?|in|notin"
    }

    fn label_value() -> impl Strategy<Value = String> {
        "([A-Za-z0-9]([-._A-Za-z0-9]{0,5}[A-Za-z0-9])?)?|in|notin"
    }

    fn label() -> impl Strategy<Value = Label> {
        let set = || proptest::collection::btree_set(label_value(), 1..4);
        prop_oneof![
            label_value().prop_map(Label::Equal),
            label_value().prop_map(Label::NotEqual),
            set().prop_map(Label::In),
            set().prop_map(Label::NotIn),
            Just(Label::Exists),
            Just(Label::DoesNotExist),
            "[0-9]{1,18}".prop_map(Label::GreaterThan),
            "[0-9]{1,18}".prop_map(Label::LessThan),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn label_selectors_round_trip(labels in proptest::collection::vec((key(), label()), 0..5)) {
            let mut selector = LabelSelector::default();
            for (key, label) in labels {
                selector = selector.require(key, label);
            }
            prop_assert_eq!(selector.to_string().parse(), Ok(selector));
        }

        #[test]
        fn field_selectors_round_trip(
            fields in proptest::collection::vec(("[^\\s\\pC=!,\\\\]{1,8}", any::<bool>(), "\\PC*|[\\\\,=!]*"), 0..5),
        ) {
            let mut selector = FieldSelector::default();
            for (path, equal, value) in fields {
                selector = selector.require(path, equal, value);
            }
            prop_assert_eq!(selector.to_string().parse(), Ok(selector));
        }

        /// An accepted selector round-trips.
        #[test]
        fn any_text_parses_or_is_refused(text in "[a-b1 .,=!<>()/\\\\é-]{0,16}|(a|in|notin|[ ,()=!]){0,12}|.*") {
            match text.parse::<LabelSelector>() {
                Ok(selector) => prop_assert_eq!(selector.to_string().parse(), Ok(selector)),
                Err(error) => prop_assert_eq!(error.text(), text.as_str()),
            }
            match text.parse::<FieldSelector>() {
                Ok(selector) => prop_assert_eq!(selector.to_string().parse(), Ok(selector)),
                Err(error) => prop_assert_eq!(error.text(), text.as_str()),
            }
        }
    }
}
