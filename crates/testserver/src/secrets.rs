//! The token of the tests, and the search for it in text that must not contain it.

use std::collections::HashSet;
use std::sync::LazyLock;

use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE, Engine};

/// The bearer token that all tests send; it has letters, digits and special characters.
pub const TOKEN: &str = "s3cret-T0ken.of+The/Suite==";

/// The search finds this many consecutive characters of the token.
const PART: usize = 8;

/// All parts of the token, plain and in base64, each as a number.
static PARTS: LazyLock<HashSet<u64>> = LazyLock::new(|| {
    let mut forms = vec![TOKEN.as_bytes().to_vec()];
    for before in 0..3 {
        let bytes = [&b"___"[..before], TOKEN.as_bytes()].concat();
        for engine in [BASE64_STANDARD, BASE64_URL_SAFE] {
            let mut form = engine.encode(&bytes).into_bytes();
            // The first and the last group of four may also hold bits of the text around the token.
            form.truncate(form.len() - 4);
            forms.push(form.split_off(if before == 0 { 0 } else { 4 }));
        }
    }
    forms.iter().flat_map(|form| form.windows(PART)).map(|part| part.iter().copied().fold(0, appended)).collect()
});

/// For each pair of bytes, whether a part ends in it: a fast check, because the trace level logs many lines.
static ENDS: LazyLock<Vec<bool>> = LazyLock::new(|| {
    let mut ends = vec![false; 1 << 16];
    PARTS.iter().for_each(|part| ends[end(*part)] = true);
    ends
});

fn appended(part: u64, byte: u8) -> u64 {
    part << 8 | u64::from(byte)
}

fn end(part: u64) -> usize {
    let [.., first, last] = part.to_be_bytes();
    usize::from(u16::from_be_bytes([first, last]))
}

/// Searches for eight consecutive characters of [`TOKEN`], plain, percent-encoded or in base64, even if line breaks or
/// quotes split them. Returns the text around the first match.
#[must_use]
pub fn leak(text: &[u8]) -> Option<String> {
    let mut bare = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        match (first, after) {
            (b'%', [high, low, after @ ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                let digit = |byte: u8| char::from(byte).to_digit(16).unwrap_or_default();
                bare.extend(u8::try_from(digit(*high) << 4 | digit(*low)));
                rest = after;
            }
            (b'\\', [b'n' | b'r' | b't', after @ ..]) => rest = after,
            (b'"' | b'\'' | b'\\', _) => {}
            _ if first.is_ascii_whitespace() => {}
            _ => bare.push(first),
        }
    }
    let mut part = 0;
    let at = bare.iter().position(|byte| {
        part = appended(part, *byte);
        ENDS[end(part)] && PARTS.contains(&part)
    })?;
    let around = &bare[at.saturating_sub(60)..bare.len().min(at + 60)];
    Some(String::from_utf8_lossy(around).into_owned())
}

#[cfg(feature = "trace")]
pub use watch::watch_logs;

#[cfg(feature = "trace")]
mod watch {
    //! The search of logs.
    //!
    //! It sees millions of events of the trace level, so it checks the fields of a span once, and not with each event
    //! in the span, as a formatted line has them.

    use std::cell::RefCell;
    use std::fmt::{Debug, Write as _};
    use std::io::Write as _;
    use std::process::abort;

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use super::leak;

    /// Aborts the process at the first event or span of any library that contains the token, if the environment
    /// variable `LISTWATCH_WATCH_LOGS` is set. Servers call it when they start, so that it checks the logs of a whole
    /// test suite.
    ///
    /// It ignores the events in which h2 itself logs a GOAWAY frame.
    pub fn watch_logs() {
        static DONE: std::sync::Once = std::sync::Once::new();
        DONE.call_once(|| {
            if std::env::var_os("LISTWATCH_WATCH_LOGS").is_some()
                // Fails in a process that already has a subscriber, which then has to search its own logs.
                && tracing::subscriber::set_global_default(LogWatch).is_ok()
            {
                // The records of the crate `log`, which reqwest writes.
                let _ = tracing_log::LogTracer::init();
            }
        });
    }

    struct LogWatch;

    impl Subscriber for LogWatch {
        fn enabled(&self, _metadata: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, span: &Attributes<'_>) -> Id {
            search_fields(span.metadata().target(), |fields| span.record(fields));
            Id::from_u64(1)
        }

        fn record(&self, _span: &Id, values: &Record<'_>) {
            search_fields("", |fields| values.record(fields));
        }

        fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

        fn event(&self, event: &Event<'_>) {
            search_fields(event.metadata().target(), |fields| event.record(fields));
        }

        fn enter(&self, _span: &Id) {}

        fn exit(&self, _span: &Id) {}
    }

    /// Ends the process if the fields contain the token.
    fn search_fields(target: &str, record: impl FnOnce(&mut Fields<'_>)) {
        thread_local! {
            static LINE: RefCell<String> = const { RefCell::new(String::new()) };
        }
        LINE.with(|line| {
            // A `Debug` form that logs is an event within an event.
            let mut own = String::new();
            let mut shared = line.try_borrow_mut();
            let line = shared.as_deref_mut().unwrap_or(&mut own);
            line.clear();
            line.push_str(target);
            record(&mut Fields { line });
            // Users of h2 cannot prevent that it logs the text of a GOAWAY frame.
            if let Some(place) = leak(line.as_bytes())
                && !(target.starts_with("h2::") && line.contains("GoAway"))
            {
                // Unlike a panic, this cannot be caught, and the test harness does not capture the message.
                let _ = writeln!(std::io::stderr(), "the token is in a log line: {place}");
                abort();
            }
        });
    }

    /// Writes fields as text.
    struct Fields<'a> {
        line: &'a mut String,
    }

    impl Visit for Fields<'_> {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            let _ = write!(self.line, " {}={value:?}", field.name());
        }

        fn record_str(&mut self, field: &Field, value: &str) {
            self.line.extend([" ", field.name(), "=", value]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_token_in_every_form() {
        let encoded = |before: &str| BASE64_STANDARD.encode(format!("{before}{TOKEN} and more"));
        for (name, text) in [
            ("plain", format!("authorization: Bearer {TOKEN}")),
            ("a part", format!("token {}", &TOKEN[3..11])),
            ("wrapped", format!("{}\n  {}", &TOKEN[..4], &TOKEN[4..])),
            ("wrapped and escaped", format!("{}\\n{}", &TOKEN[..4], &TOKEN[4..])),
            ("quoted", format!("\"{}\" \"{}\"", &TOKEN[..4], &TOKEN[4..])),
            ("percent-encoded", "?t=s3cret-T0ken.of%2BThe%2fSuite%3D%3D".to_owned()),
            (
                "all of it percent-encoded",
                TOKEN.bytes().fold(String::new(), |text, byte| text + &format!("%{byte:02x}")),
            ),
            ("base64", encoded("")),
            ("base64 after one byte", encoded("u")),
            ("base64 after two bytes", encoded("u:")),
            ("base64 after three bytes", encoded("us:")),
            ("base64 for URLs", BASE64_URL_SAFE.encode(TOKEN)),
        ] {
            assert!(leak(text.as_bytes()).is_some(), "{name}: {text}");
        }
        for text in ["", "s3cret", "[redacted]", "100%", "%2", "\\"] {
            assert_eq!(leak(text.as_bytes()), None, "{text}");
        }
    }
}
