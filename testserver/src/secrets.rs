//! The token of the tests, and the search for it in text that must not contain it.

use std::collections::HashSet;
#[cfg(feature = "trace")]
use std::io::Write;
use std::sync::LazyLock;

use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE, Engine};
#[cfg(feature = "trace")]
use tracing_subscriber::fmt::writer::MakeWriterExt as _;

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

/// Aborts the process at the first log line of any library that contains the token, if the environment variable
/// `LISTWATCH_WATCH_LOGS` is set. Servers call it when they start, so that it checks the logs of a whole test suite.
///
/// It ignores the lines in which h2 itself logs a GOAWAY frame.
#[cfg(feature = "trace")]
pub fn watch_logs() {
    static DONE: std::sync::Once = std::sync::Once::new();
    DONE.call_once(|| {
        if std::env::var_os("LISTWATCH_WATCH_LOGS").is_some() {
            let subscriber = tracing_subscriber::fmt().with_max_level(tracing_subscriber::filter::LevelFilter::TRACE);
            let writer = (|| Watch { of_h2: false }).with_filter(|line| !line.target().starts_with("h2::"));
            let writer = writer.or_else(|| Watch { of_h2: true });
            // Fails in a process that already has a subscriber, which then has to search its own logs.
            let _ = subscriber.with_ansi(false).with_writer(writer).try_init();
        }
    });
}

/// A writer that searches each log line for the token.
#[cfg(feature = "trace")]
struct Watch {
    of_h2: bool,
}

#[cfg(feature = "trace")]
impl Watch {
    /// Returns true for a line in which h2 logs a GOAWAY frame and its text: users of h2 cannot prevent that.
    fn is_goaway(&self, line: &[u8]) -> bool {
        self.of_h2 && line.windows(GOAWAY.len()).any(|window| window == GOAWAY)
    }
}

#[cfg(feature = "trace")]
const GOAWAY: &[u8] = b"GoAway";

#[cfg(feature = "trace")]
impl Write for Watch {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if let Some(place) = leak(bytes)
            && !self.is_goaway(bytes)
        {
            // Unlike a panic, this cannot be caught, and the test harness does not capture the message.
            let _ = writeln!(std::io::stderr(), "the token is in a log line: {place}");
            std::process::abort();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
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
