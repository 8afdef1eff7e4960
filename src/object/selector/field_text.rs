//! Parses and prints field selectors as an API server does.

use std::fmt;
use std::str::FromStr;

use super::field::{FieldRequirement, FieldSelector};
use super::validate::check_reparsed;
use crate::error::InvalidInput;

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
    pub(crate) fn validate(&self) -> Result<(), InvalidInput> {
        check_reparsed(self)
    }
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

    use super::super::validate::tests::check_errors;
    use super::*;

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

    #[test]
    fn refuses_selectors_that_the_server_would_refuse_or_parse_differently() {
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

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

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
            match text.parse::<FieldSelector>() {
                Ok(selector) => prop_assert_eq!(selector.to_string().parse(), Ok(selector)),
                Err(error) => prop_assert_eq!(error.text(), text.as_str()),
            }
        }
    }
}
