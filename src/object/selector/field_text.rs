//! Parses and prints field selectors as an API server does.

use std::fmt;
use std::str::FromStr;

use super::check_reparsed;
use super::field::{FieldRequirement, FieldSelector};
use crate::error::InvalidInput;

/// Writes the selector as a request contains it, with backslashes before `\`, `,` and `=` in values.
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

/// Parses a selector as apimachinery `fields.ParseSelector` does, with the errors that an API server sends.
///
/// The operators are `=`, `==` and `!=`. In values, `\\`, `\,` and `\=` stand for the characters themselves. Any path
/// is accepted, because only the resource can judge paths.
impl FromStr for FieldSelector {
    type Err = InvalidInput;

    fn from_str(input: &str) -> Result<Self, InvalidInput> {
        let mut all = Vec::new();
        // The API server parses the terms in the order of their texts, and reports the first error.
        let mut refused: Option<(&str, RefusedTerm)> = None;
        for term in terms(input).filter(|term| !term.is_empty()) {
            match field_requirement(term) {
                // The API server ignores it.
                Ok((path, _, value)) if path.is_empty() && value.is_empty() => {}
                Ok((path, is_equal, value)) => all.push(FieldRequirement { path: path.to_owned(), is_equal, value }),
                Err(fault) if refused.as_ref().is_none_or(|(first, _)| term < *first) => refused = Some((term, fault)),
                Err(_) => {}
            }
        }
        if let Some((term, fault)) = refused {
            return Err(InvalidInput::new(fault.message(input, term), input));
        }
        // Sorting once avoids moving all other requirements for each insertion.
        all.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self(all))
    }
}

impl FieldSelector {
    /// Refuses a selector that the server would refuse, or parse as another selector.
    pub(crate) fn validate(&self) -> Result<(), InvalidInput> {
        check_reparsed(self)
    }
}

fn terms(input: &str) -> impl Iterator<Item = &str> {
    let mut escaped = false;
    input.split(move |c: char| {
        let comma = c == ',' && !escaped;
        escaped = c == '\\' && !escaped;
        comma
    })
}

/// Returns the path, whether the value must be equal, and the value. The first operator counts, because a path cannot
/// contain escapes.
fn field_requirement(term: &str) -> Result<(&str, bool, String), RefusedTerm> {
    let (path, raw) = term.split_once('=').ok_or(RefusedTerm::NoOperator)?;
    match path.strip_suffix('!') {
        Some(path) => Ok((path, false, unescape(raw)?)),
        None => Ok((path, true, unescape(raw.strip_prefix('=').unwrap_or(raw))?)),
    }
}

enum RefusedTerm {
    NoOperator,
    /// A backslash before this character, or at the end.
    Escape(Option<char>),
    Unescaped(char),
}

impl RefusedTerm {
    /// Returns the API server's message, which may quote the whole selector.
    fn message(&self, input: &str, term: &str) -> String {
        match self {
            Self::NoOperator => format!("invalid selector: '{input}'; can't understand '{term}'"),
            Self::Escape(other) => {
                let other = other.map(String::from).unwrap_or_default();
                format!("invalid field selector: invalid escape sequence: \\{other}")
            }
            // Go prints the number of the character.
            Self::Unescaped(c) => format!("invalid field selector: unescaped character in value: {}", u32::from(*c)),
        }
    }
}

/// Unescapes a value as apimachinery `fields.UnescapeValue` does.
fn unescape(raw: &str) -> Result<String, RefusedTerm> {
    let mut value = String::with_capacity(raw.len());
    let mut chars = raw.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => value.push(c),
                other => return Err(RefusedTerm::Escape(other)),
            },
            ',' | '=' => return Err(RefusedTerm::Unescaped(c)),
            _ => value.push(c),
        }
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::check_errors;
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
            ("a,b=c=d,b", "invalid selector: 'a,b=c=d,b'; can't understand 'a'".to_owned()),
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
