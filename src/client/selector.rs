//! Parses label and field selectors from the text that users type, and writes them as in requests.

use std::collections::BTreeSet;
use std::fmt;
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

/// Parses a selector by the grammar of apimachinery `labels.Parse`.
impl FromStr for LabelSelector {
    type Err = InvalidInput;

    fn from_str(input: &str) -> Result<Self, InvalidInput> {
        let mut selector = Self::default();
        let mut tokens = Tokens { input, at: 0 };
        if tokens.peek().text.is_empty() {
            return Ok(selector);
        }
        loop {
            let (key, label) = requirement(&mut tokens)?;
            selector = selector.require(key, label);
            let token = tokens.next();
            match token.text {
                "" => return Ok(selector),
                "," => {}
                _ => return Err(token.error(input, "expected ',' or the end")),
            }
        }
    }
}

impl LabelSelector {
    /// Adds a `LabelSelectorRequirement` of meta/v1: `operator` is `In`, `NotIn`, `Exists` or `DoesNotExist`.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`] for another operator.
    pub fn requirement(
        self,
        key: impl Into<String>,
        operator: &str,
        values: impl IntoIterator<Item = impl Into<String>>,
    ) -> Result<Self, InvalidInput> {
        Ok(match operator {
            "In" => self.is_in(key, values),
            "NotIn" => self.not_in(key, values),
            "Exists" => self.exists(key),
            "DoesNotExist" => self.does_not_exist(key),
            _ => return Err(SyntaxFault(0, "expected In, NotIn, Exists or DoesNotExist").of(operator, 0)),
        })
    }

    /// Refuses a selector that the server would parse as another selector.
    pub(super) fn validate(&self) -> Result<(), &'static str> {
        for (key, label) in &self.0 {
            if key.is_empty() || !is_one_word(key) {
                return Err("a key is empty or has a space or one of =!(),<> in it");
            }
            let is_kept = match label {
                Label::Equal(value) | Label::NotEqual(value) => is_one_word(value),
                Label::In(values) | Label::NotIn(values) if values.is_empty() => {
                    return Err("a set has no values");
                }
                Label::In(values) | Label::NotIn(values) => values.iter().all(|value| is_one_word(value)),
                Label::Exists | Label::DoesNotExist | Label::GreaterThan(_) | Label::LessThan(_) => true,
            };
            if !is_kept {
                return Err("a value has a space or one of =!(),<> in it");
            }
        }
        Ok(())
    }
}

/// Converts the selector of a Deployment, a Service or another object.
#[cfg(feature = "k8s-pb")]
impl TryFrom<&k8s_pb::apimachinery::pkg::apis::meta::v1::LabelSelector> for LabelSelector {
    type Error = InvalidInput;

    fn try_from(selector: &k8s_pb::apimachinery::pkg::apis::meta::v1::LabelSelector) -> Result<Self, InvalidInput> {
        let labels = selector.match_labels.iter();
        let equal = labels.fold(Self::new(), |all, (key, value)| all.equal(key, value));
        selector.match_expressions.iter().try_fold(equal, |all, expression| {
            let operator = expression.operator.as_deref().unwrap_or_default();
            all.requirement(expression.key.as_deref().unwrap_or_default(), operator, &expression.values)
        })
    }
}

fn is_one_word(text: &str) -> bool {
    !text.contains(|c| is_symbol(c) || is_space(c))
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

/// Parses a selector by the grammar of apimachinery `fields.ParseSelector`: `=`, `==` and `!=`, and in values `\\`, `\,` and
/// `\=` for the characters themselves.
impl FromStr for FieldSelector {
    type Err = InvalidInput;

    fn from_str(input: &str) -> Result<Self, InvalidInput> {
        let mut selector = Self::default();
        for (start, term) in terms(input).filter(|(_, term)| !term.is_empty()) {
            let expected = "expected '=', '==' or '!=' after the field";
            let (path, rest) = term.split_at(term.find(['=', '!']).unwrap_or(term.len()));
            let (is_equal, raw) = match rest.strip_prefix("!=") {
                Some(raw) => (false, raw),
                None => match rest.strip_prefix("==").or(rest.strip_prefix('=')) {
                    Some(raw) => (true, raw),
                    None => return Err(SyntaxFault(path.len(), expected).of(input, start)),
                },
            };
            check_path(path).map_err(|fault| fault.of(input, start))?;
            let value_start = start + term.len() - raw.len();
            let value = unescape(raw).map_err(|fault| fault.of(input, value_start))?;
            selector = selector.require(path, is_equal, value);
        }
        Ok(selector)
    }
}

impl FieldSelector {
    /// Refuses a selector that the server would parse as another selector.
    pub(super) fn validate(&self) -> Result<(), &'static str> {
        let is_bad = |field: &FieldRequirement| check_path(&field.path).is_err();
        if self.0.iter().any(is_bad) {
            return Err(r"a field is empty or has a space or one of =!,\ in it");
        }
        Ok(())
    }
}

/// A fault at a byte offset of a part of a selector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SyntaxFault(usize, &'static str);

impl SyntaxFault {
    /// Returns the error for the part that starts at `start` of `input`.
    fn of(self, input: &str, start: usize) -> InvalidInput {
        InvalidInput::at("selector", input, start + self.0, self.1)
    }
}

/// A word, one of the symbols `= == != ! < > ( ) ,`, or at the end the empty text.
#[derive(Debug, Clone, Copy)]
struct Token<'a> {
    offset: usize,
    text: &'a str,
}

impl Token<'_> {
    fn is_word(self) -> bool {
        !self.text.is_empty() && !self.text.starts_with(is_symbol)
    }

    fn error(self, input: &str, reason: &'static str) -> InvalidInput {
        SyntaxFault(self.offset, reason).of(input, 0)
    }
}

/// Tokens as in apimachinery `labels.Lexer`. The parser decides by its place whether a word is a key, an operator or a value:
/// `in in (in)`.
#[derive(Clone, Copy)]
struct Tokens<'a> {
    input: &'a str,
    at: usize,
}

impl<'a> Tokens<'a> {
    fn peek(self) -> Token<'a> {
        let rest = self.input.get(self.at..).unwrap_or_default();
        let text = rest.trim_start_matches(is_space);
        let length = if text.starts_with("==") || text.starts_with("!=") {
            2
        } else if text.starts_with(is_symbol) {
            1
        } else {
            let end = |c| is_symbol(c) || is_space(c);
            text.find(end).unwrap_or(text.len())
        };
        Token { offset: self.input.len() - text.len(), text: text.get(..length).unwrap_or_default() }
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        self.at = token.offset + token.text.len();
        token
    }
}

fn is_symbol(c: char) -> bool {
    "=!(),<>".contains(c)
}

fn is_space(c: char) -> bool {
    " \t\r\n".contains(c)
}

fn requirement<'a>(tokens: &mut Tokens<'a>) -> Result<(&'a str, Label), InvalidInput> {
    let input = tokens.input;
    let mut key = tokens.next();
    let negated = key.text == "!";
    if negated {
        key = tokens.next();
    }
    if !key.is_word() {
        return Err(key.error(input, "expected a label key"));
    }
    if negated {
        return Ok((key.text, Label::DoesNotExist));
    }
    if matches!(tokens.peek().text, "" | ",") {
        return Ok((key.text, Label::Exists));
    }
    let operator = tokens.next();
    let label = match operator.text {
        "=" | "==" => Label::Equal(value(tokens)?),
        "!=" => Label::NotEqual(value(tokens)?),
        "in" => Label::In(values(tokens)?),
        "notin" => Label::NotIn(values(tokens)?),
        ">" => Label::GreaterThan(integer(tokens)?),
        "<" => Label::LessThan(integer(tokens)?),
        _ => {
            let expected = "expected ',', '=', '==', '!=', 'in', 'notin', '>' or '<'";
            return Err(operator.error(input, expected));
        }
    };
    Ok((key.text, label))
}

/// Parses a value, which may be empty.
fn value(tokens: &mut Tokens<'_>) -> Result<String, InvalidInput> {
    let token = tokens.peek();
    match token.text {
        "" | "," | ")" => Ok(String::new()),
        text if token.is_word() => {
            tokens.next();
            Ok(text.to_owned())
        }
        _ => Err(token.error(tokens.input, "expected a label value")),
    }
}

fn integer(tokens: &mut Tokens<'_>) -> Result<String, InvalidInput> {
    let token = tokens.peek();
    let text = value(tokens)?;
    match text.parse::<i64>() {
        Ok(_) => Ok(text),
        Err(_) => Err(token.error(tokens.input, "expected an integer of 64 bits")),
    }
}

/// Parses `(a,b)`; an element may be empty, as in `(a,)` and `()`.
fn values(tokens: &mut Tokens<'_>) -> Result<BTreeSet<String>, InvalidInput> {
    let open = tokens.next();
    if open.text != "(" {
        return Err(open.error(tokens.input, "expected '('"));
    }
    let mut set = BTreeSet::new();
    loop {
        set.insert(value(tokens)?);
        let token = tokens.next();
        match token.text {
            "," => {}
            ")" => return Ok(set),
            _ => return Err(token.error(tokens.input, "expected ',' or ')'")),
        }
    }
}

fn joined(values: &BTreeSet<String>) -> String {
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    values.join(",")
}

/// Returns the parts between unescaped commas, each with its offset.
fn terms(input: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut escaped = false;
    let mut start = 0;
    let split = move |c: char| {
        let comma = c == ',' && !escaped;
        escaped = c == '\\' && !escaped;
        comma
    };
    input.split(split).map(move |term| {
        let at = start;
        start += term.len() + 1;
        (at, term)
    })
}

/// Checks a path. Apimachinery does not, but it does not support escapes in paths either.
fn check_path(path: &str) -> Result<(), SyntaxFault> {
    if path.is_empty() {
        return Err(SyntaxFault(0, "expected a field"));
    }
    let bad = |c: char| c.is_whitespace() || c.is_control() || "=!,\\".contains(c);
    match path.find(bad) {
        Some(at) => Err(SyntaxFault(at, "is not allowed in a field")),
        None => Ok(()),
    }
}

/// Unescapes a value as apimachinery `fields.UnescapeValue` does.
fn unescape(raw: &str) -> Result<String, SyntaxFault> {
    let mut value = String::with_capacity(raw.len());
    let mut chars = raw.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some((_, c @ ('\\' | ',' | '='))) => value.push(c),
                _ => return Err(SyntaxFault(at, r"must stand before '\', ',' or '='")),
            },
            ',' | '=' => return Err(SyntaxFault(at, r"needs a '\' before it in a value")),
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

    #[test]
    fn label_selectors_have_a_canonical_form() {
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
            ("example.com/App_1.x=A-b_c.d", "example.com/App_1.x=A-b_c.d"),
        ] {
            let parsed: Result<LabelSelector, _> = input.parse();
            let parsed = parsed.unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(parsed.to_string(), canonical);
            assert_eq!(parsed.is_empty(), canonical.is_empty());
        }
    }

    #[test]
    fn refuses_malformed_label_selectors() {
        for (input, offset, expected) in [
            (",", 0, "',' at byte 0: expected a label key"),
            ("a,", 2, "the end at byte 2: expected a label key"),
            ("a,,b", 2, "',' at byte 2: expected a label key"),
            ("!", 1, "the end at byte 1: expected a label key"),
            ("!!a", 1, "'!' at byte 1: expected a label key"),
            ("=a", 0, "'=' at byte 0: expected a label key"),
            ("!a=b", 2, "'=' at byte 2: expected ',' or the end"),
            ("a b", 2, "'b' at byte 2: expected ',', '=', '==', '!=', 'in', 'notin', '>' or '<'"),
            ("a=b c", 4, "'c' at byte 4: expected ',' or the end"),
            ("a=!b", 2, "'!' at byte 2: expected a label value"),
            ("a===b", 3, "'=' at byte 3: expected a label value"),
            ("a=)", 2, "')' at byte 2: expected ',' or the end"),
            ("a in b", 5, "'b' at byte 5: expected '('"),
            ("a in", 4, "the end at byte 4: expected '('"),
            ("a in (", 6, "the end at byte 6: expected ',' or ')'"),
            ("a in (b c)", 8, "'c' at byte 8: expected ',' or ')'"),
            ("a in (b=", 7, "'=' at byte 7: expected ',' or ')'"),
            ("a in (()", 6, "'(' at byte 6: expected a label value"),
            ("a>b", 2, "'b' at byte 2: expected an integer of 64 bits"),
            ("a>", 2, "the end at byte 2: expected an integer of 64 bits"),
            ("a<9223372036854775808", 2, "'9' at byte 2: expected an integer of 64 bits"),
        ] {
            let error = input.parse::<LabelSelector>().expect_err(input);
            assert_eq!((error.text(), error.offset()), (input, offset));
            let text = format!("invalid selector {input:?}: {expected}");
            assert_eq!(error.to_string(), text);
        }
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

    /// The server checks the syntax of keys and values.
    #[test]
    fn refuses_selectors_that_the_server_would_parse_differently() {
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
            (new().equal("-a", "é*").not_in("b", [""]), false),
        ] {
            assert_eq!(selector.validate().is_err(), refused, "{selector:?}");
        }
        let new = FieldSelector::new;
        for (selector, refused) in [
            (new().equal("a=b", "c"), true),
            (new().equal("a", "b").not_equal("", "c"), true),
            (new().equal("a\\", "b"), true),
            (new().equal("a", "b,c=d\\"), false),
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
        ] {
            let selector = meta::LabelSelector {
                match_labels: [("app".to_owned(), "web".to_owned())].into(),
                match_expressions: vec![expression(operator, values)],
            };
            let converted = LabelSelector::try_from(&selector).ok().map(|selector| selector.to_string());
            assert_eq!(converted.as_deref(), expected, "{operator}");
        }
    }

    #[test]
    fn field_selectors_have_a_canonical_form() {
        for (input, canonical) in [
            ("", ""),
            (",,", ""),
            ("status.phase=Running", "status.phase=Running"),
            ("b==2,a!=1,", "a!=1,b=2"),
            (r"a=x\,y\=z\\", r"a=x\,y\=z\\"),
            ("a=", "a="),
            ("a=b!c d", "a=b!c d"),
            ("a!=é", "a!=é"),
        ] {
            let parsed: Result<FieldSelector, _> = input.parse();
            let parsed = parsed.unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(parsed.to_string(), canonical);
            assert_eq!(parsed.is_empty(), canonical.is_empty());
        }
    }

    #[test]
    fn refuses_malformed_field_selectors() {
        for (input, offset, expected) in [
            ("metadata.name", 13, "the end at byte 13: expected '=', '==' or '!=' after the field"),
            ("a=b, c", 6, "the end at byte 6: expected '=', '==' or '!=' after the field"),
            ("a!b=c", 1, "'!' at byte 1: expected '=', '==' or '!=' after the field"),
            ("=b", 0, "'=' at byte 0: expected a field"),
            ("a=b, c=d", 4, "' ' at byte 4: is not allowed in a field"),
            ("a =b", 1, "' ' at byte 1: is not allowed in a field"),
            (r"a\,b=c", 1, r"'\\' at byte 1: is not allowed in a field"),
            ("a===b", 3, r"'=' at byte 3: needs a '\' before it in a value"),
            ("x=1,a=b=c", 7, r"'=' at byte 7: needs a '\' before it in a value"),
            (r"a=\b", 2, r"'\\' at byte 2: must stand before '\', ',' or '='"),
            (r"a=b\", 3, r"'\\' at byte 3: must stand before '\', ',' or '='"),
        ] {
            let error = input.parse::<FieldSelector>().expect_err(input);
            assert_eq!((error.text(), error.offset()), (input, offset));
            let text = format!("invalid selector {input:?}: {expected}");
            assert_eq!(error.to_string(), text);
        }
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
            let type_meta = crate::TypeMeta::default();
            let may_match =
                parsed.prefilter().matches(&ItemRef::new(Encoding::Protobuf, &object).with_type_meta(&type_meta));
            assert!(may_match || !expected, "{selector} has a false negative");
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
            assert!(parsed.prefilter().matches(&item) || matched != Ok(true), "{selector} has a false negative");
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

        /// An accepted selector round-trips; the offset of an error is in the input.
        #[test]
        fn any_text_parses_or_is_refused(text in "[a-b1 .,=!<>()/\\\\é-]{0,16}|(a|in|notin|[ ,()=!]){0,12}|.*") {
            match text.parse::<LabelSelector>() {
                Ok(selector) => prop_assert_eq!(selector.to_string().parse(), Ok(selector)),
                Err(error) => prop_assert!(text.is_char_boundary(error.offset())),
            }
            match text.parse::<FieldSelector>() {
                Ok(selector) => prop_assert_eq!(selector.to_string().parse(), Ok(selector)),
                Err(error) => prop_assert!(text.is_char_boundary(error.offset())),
            }
        }
    }
}
