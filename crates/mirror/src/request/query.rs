//! The query of a request, split as the API server splits it.

use form_urlencoded::Serializer;

use crate::response::{Refusal, status};

/// The decoded pairs of a query, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct QueryPairs(Vec<(String, String)>);

impl QueryPairs {
    /// Splits a query into decoded pairs. The API server ignores malformed pairs; the mirror refuses them, because it
    /// must read what the server reads.
    pub(crate) fn parse(query: &str) -> Result<Self, Refusal> {
        if query.contains(';') || !has_valid_escapes(query) {
            return Err(status::bad_request("the query has an invalid escape or a semicolon").into());
        }
        let pairs: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        // Escapes that are not UTF-8 became U+FFFD.
        let is_text =
            |(name, value): &(String, String)| !name.contains('\u{fffd}') && !value.contains(['\u{fffd}', '\0']);
        if !pairs.iter().all(is_text) {
            return Err(status::bad_request("the query is not text").into());
        }
        Ok(Self(pairs))
    }

    /// Returns the first value of a parameter: the API server ignores the others.
    pub(crate) fn first_value(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// Parses a flag as apimachinery does: only `0` and `false`, in any case, are false; an empty value is true.
    pub(crate) fn parse_flag(&self, name: &str) -> Option<bool> {
        self.first_value(name).map(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    /// Iterates over the names of the parameters.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// Returns the text of all pairs, with their escapes; `None` if there are none.
    pub(super) fn encode(&self) -> Option<String> {
        let is_empty = self.0.is_empty();
        (!is_empty).then(|| Serializer::new(String::new()).extend_pairs(&self.0).finish())
    }
}

/// Returns true if two hexadecimal digits follow each `%`.
pub(super) fn has_valid_escapes(text: &str) -> bool {
    let is_hex = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_hexdigit);
    text.as_bytes().split(|byte| *byte == b'%').skip(1).all(|rest| is_hex(rest.first()) && is_hex(rest.get(1)))
}
