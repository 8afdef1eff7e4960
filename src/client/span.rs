//! The fields that the spans of lists, watches and gets share.
//!
//! Texts of callers are recorded as strings, never by `%`, because subscribers quote and escape strings.

use tracing::Span;

use super::error::Error;

/// How many namespaces a span names.
const NAMED: usize = 10;

/// Records the namespaces; none stands for all.
pub(super) fn record_namespaces<'n>(span: &Span, namespaces: impl Iterator<Item = &'n String>) {
    if span.is_disabled() {
        return;
    }
    let mut all: Vec<&str> = namespaces.map(String::as_str).collect();
    let more = all.len().saturating_sub(NAMED);
    all.truncate(NAMED);
    match (all.is_empty(), more) {
        (true, _) => {}
        (false, 0) => _ = span.record("namespace", all.join(",")),
        (false, more) => _ = span.record("namespace", format!("{} and {more} more", all.join(","))),
    }
}

/// Records the attempts of a call, and the HTTP status with which it ended, if it ended with one.
pub(super) fn record_end(span: &Span, attempts: u64, error: Option<&Error>) {
    span.record("attempts", attempts);
    if let Some(status) = error.map_or(Some(200), Error::code) {
        span.record("status", status);
    }
}
