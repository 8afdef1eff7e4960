//! Any text is a selector or an error. A selector parses back from its text, and any object matches or does not,
//! without a panic.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use listwatch::InvalidInput;
use listwatch::{Event, ListDecoder};
use listwatch::{FieldSelector, LabelSelector};

use super::support::{body_of, len_field};

/// Takes a line with a label selector, a line with a field selector, and a Pod in the remaining bytes.
pub fn run(data: &[u8]) {
    let mut lines = data.splitn(3, |byte| *byte == b'\n');
    let mut next = || lines.next().unwrap_or_default();
    let (labels, fields, pod) = (next(), next(), next());
    let (labels, fields) = (parse::<LabelSelector>(labels), parse::<FieldSelector>(fields));
    let body = if pod.starts_with(b"{") {
        [br#"{"apiVersion":"v1","kind":"PodList","items":["#, pod, b"]}"].concat()
    } else {
        body_of("v1", "PodList", &len_field(2, pod))
    };
    let (mut decoder, mut rest) = (ListDecoder::new(), &body[..]);
    while let Ok(Some(event)) = decoder.decode(&mut rest) {
        let Event::Item(item) = event else { continue };
        if let (Some(labels), Ok(meta)) = (&labels, item.meta()) {
            _ = labels.matches(&meta);
        }
        if let Some(fields) = &fields {
            _ = fields.matches(&item);
        }
    }
}

fn parse<S: FromStr<Err = InvalidInput> + Display + Debug + PartialEq>(text: &[u8]) -> Option<S> {
    let text = str::from_utf8(text).ok()?;
    match text.parse::<S>() {
        Ok(selector) => {
            let written = selector.to_string();
            assert_eq!(written.parse().as_ref(), Ok(&selector), "{written}");
            Some(selector)
        }
        Err(error) => {
            assert_eq!(error.text(), text, "{error}");
            None
        }
    }
}
