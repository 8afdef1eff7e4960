//! Parses and prints label selectors as an API server does.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use super::check_reparsed;
use super::label::{LabelRequirement, LabelSelector};
use super::label_rules::{check_key, quoted};
use crate::error::InvalidInput;

/// Writes the selector as a request contains it: without spaces around commas, `==` as `=`, values sorted.
impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for (key, label) in &self.0 {
            f.write_str(comma)?;
            comma = ",";
            match label {
                LabelRequirement::Equal(value) => write!(f, "{key}={value}")?,
                LabelRequirement::NotEqual(value) => write!(f, "{key}!={value}")?,
                LabelRequirement::In(values) => write!(f, "{key} in ({})", joined(values))?,
                LabelRequirement::NotIn(values) => write!(f, "{key} notin ({})", joined(values))?,
                LabelRequirement::Exists => write!(f, "{key}")?,
                LabelRequirement::DoesNotExist => write!(f, "!{key}")?,
                LabelRequirement::GreaterThan(bound) => write!(f, "{key}>{bound}")?,
                LabelRequirement::LessThan(bound) => write!(f, "{key}<{bound}")?,
            }
        }
        Ok(())
    }
}

/// Parses a selector as apimachinery `labels.Parse` does, with the errors that an API server sends.
impl FromStr for LabelSelector {
    type Err = InvalidInput;

    fn from_str(input: &str) -> Result<Self, InvalidInput> {
        let mut all = Vec::new();
        let mut tokens = Tokens::new(input);
        let refused = |message: String| InvalidInput::new(message, input);
        let mut token = tokens.peek();
        if !token.is_empty() && !begins_requirement(token) {
            return Err(refused(format!("found '{token}', expected: !, identifier, or 'end of string'")));
        }
        while !token.is_empty() {
            let parsed = requirement(&mut tokens);
            let (key, label) = parsed.map_err(|message| refused(format!("unable to parse requirement: {message}")))?;
            all.push((key.to_owned(), label));
            token = tokens.next();
            match (token, tokens.peek()) {
                ("", _) => {}
                (",", next) if begins_requirement(next) => {}
                (",", next) => return Err(refused(format!("found '{next}', expected: identifier after ','"))),
                _ => return Err(refused(format!("found '{token}', expected: ',' or 'end of string'"))),
            }
        }
        // Sorting once avoids moving all other requirements for each insertion.
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(Self(all))
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
            "In" => LabelRequirement::In(values),
            "NotIn" => LabelRequirement::NotIn(values),
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let values: Vec<String> = values.iter().map(|value| quoted(value)).collect();
                let rule = "values set must be empty for exists and does not exist";
                let message = format!("values: Invalid value: [{}]: {rule}", values.join(","));
                return Err(InvalidInput::new(message, &key));
            }
            "Exists" => LabelRequirement::Exists,
            "DoesNotExist" => LabelRequirement::DoesNotExist,
            _ => {
                let message = format!("{} is not a valid label selector operator", quoted(operator));
                return Err(InvalidInput::new(message, operator));
            }
        };
        self.checked(key, label)
    }

    pub(super) fn checked(self, key: String, label: LabelRequirement) -> Result<Self, InvalidInput> {
        check_key("key", &key).and_then(|()| label.check(&key)).map_err(|message| InvalidInput::new(message, &key))?;
        Ok(self.require(key, label))
    }

    /// Refuses a selector that the server would refuse, or parse as another selector.
    pub(crate) fn validate(&self) -> Result<(), InvalidInput> {
        check_reparsed(self)
    }
}

fn requirement<'a>(tokens: &mut Tokens<'a>) -> Result<(&'a str, LabelRequirement), String> {
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
        return Ok((key, LabelRequirement::DoesNotExist));
    }
    if matches!(tokens.peek(), "" | ",") {
        return Ok((key, LabelRequirement::Exists));
    }
    let label = match tokens.next() {
        "=" | "==" => LabelRequirement::Equal(value(tokens)?),
        "!=" => LabelRequirement::NotEqual(value(tokens)?),
        "in" => LabelRequirement::In(values(tokens)?),
        "notin" => LabelRequirement::NotIn(values(tokens)?),
        ">" => LabelRequirement::GreaterThan(value(tokens)?),
        "<" => LabelRequirement::LessThan(value(tokens)?),
        found => return Err(format!("found '{found}', expected: in, notin, =, ==, !=, gt, lt")),
    };
    label.check(key)?;
    Ok((key, label))
}

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

/// Tokens as in apimachinery `labels.Lexer`: a word, one of the symbols `= == != ! < > ( ) ,`, or the empty text at the
/// end. The parser decides by the place of a word whether it is a key, an operator or a value: `in in (in)`.
#[derive(Clone, Copy)]
struct Tokens<'a> {
    input: &'a str,
    at: usize,
}

impl<'a> Tokens<'a> {
    fn new(input: &'a str) -> Self {
        Self { input, at: 0 }
    }

    fn peek(self) -> &'a str {
        self.split().0
    }

    fn next(&mut self) -> &'a str {
        let (token, rest) = self.split();
        // The lexer ends a token at a NUL and drops it. Any other NUL ends the selector.
        let rest = if token.is_empty() { rest } else { rest.strip_prefix('\0').unwrap_or(rest) };
        self.at = self.input.len() - rest.len();
        token
    }

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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::label_rules::{NAME, SUBDOMAIN, VALUE};
    use super::super::tests::check_errors;
    use super::*;

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
        let (long, longest_prefix) = ("a".repeat(64), "a".repeat(253));
        assert!(format!("{longest_prefix}/a").parse::<LabelSelector>().is_ok());
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
            (
                &format!("{longest_prefix}a/a"),
                key(&format!("\"{longest_prefix}a/a\""), "prefix part must be no more than 253 bytes"),
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
    }

    fn key() -> impl Strategy<Value = String> {
        "([a-z0-9]([-a-z0-9]{0,3}[a-z0-9])?(\\.[a-z]){0,2}/)?[A-Za-z0-9]([-._A-Za-z0-9]{0,5}[A-Za-z0-9])?|in|notin"
    }

    fn label_value() -> impl Strategy<Value = String> {
        "([A-Za-z0-9]([-._A-Za-z0-9]{0,5}[A-Za-z0-9])?)?|in|notin"
    }

    fn label() -> impl Strategy<Value = LabelRequirement> {
        let set = || proptest::collection::btree_set(label_value(), 1..4);
        prop_oneof![
            label_value().prop_map(LabelRequirement::Equal),
            label_value().prop_map(LabelRequirement::NotEqual),
            set().prop_map(LabelRequirement::In),
            set().prop_map(LabelRequirement::NotIn),
            Just(LabelRequirement::Exists),
            Just(LabelRequirement::DoesNotExist),
            "[0-9]{1,18}".prop_map(LabelRequirement::GreaterThan),
            "[0-9]{1,18}".prop_map(LabelRequirement::LessThan),
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

        /// An accepted selector round-trips.
        #[test]
        fn any_text_parses_or_is_refused(text in "[a-b1 .,=!<>()/\\\\é-]{0,16}|(a|in|notin|[ ,()=!]){0,12}|.*") {
            match text.parse::<LabelSelector>() {
                Ok(selector) => prop_assert_eq!(selector.to_string().parse(), Ok(selector)),
                Err(error) => prop_assert_eq!(error.text(), text.as_str()),
            }
        }
    }
}
