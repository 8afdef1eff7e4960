//! The Status of a failed request: every member is read, its causes are bounded, and its texts may be broken.

use listwatch::encode::status;
use listwatch::{Encoding, Limits, ListMeta, Status, StatusCause, StatusDetails};
use prost::Message as _;

use crate::support::{body_of, decode};

const ENCODINGS: [Encoding; 2] = [Encoding::Protobuf, Encoding::Json];

/// A Status with a value in every member. Each text ends with `~`.
fn full() -> Status {
    let mut metadata = ListMeta::default();
    (metadata.resource_version, metadata.continue_token) = ("7~".into(), "token~".into());
    metadata.remaining_item_count = Some(3);
    let mut details = StatusDetails::default();
    (details.name, details.group, details.kind) = ("name~".into(), "group~".into(), "pods~".into());
    (details.uid, details.retry_after_seconds, details.causes) = ("uid~".into(), 5, vec![cause("1"), cause("2")]);
    let mut full = Status::default();
    (full.metadata, full.status, full.message) = (Some(metadata), "Failure~".into(), "message~".into());
    (full.reason, full.details, full.code) = ("Expired~".into(), Some(details), 410);
    full
}

fn cause(text: &str) -> StatusCause {
    let mut cause = StatusCause::default();
    (cause.reason, cause.message, cause.field) = (format!("R{text}~"), format!("m{text}~"), format!("f{text}~"));
    cause
}

fn read(body: &[u8]) -> Status {
    let error = decode(Limits::default(), [body]).unwrap_err();
    error.status().unwrap_or_else(|| panic!("{error}")).clone()
}

#[test]
fn every_member_is_read() {
    for encoding in ENCODINGS {
        let mut body = Vec::new();
        status(encoding, &full(), &mut body);
        assert_eq!(read(&body), full(), "{encoding}");
    }
}

#[test]
fn the_first_thousand_causes_are_kept() {
    for (sent, kept) in [(999, 999), (1000, 1000), (1001, 1000), (1100, 1000)] {
        let mut given = full();
        let causes = (0..sent).map(|n| cause(&n.to_string())).collect();
        given.details.as_mut().unwrap().causes = causes;
        for encoding in ENCODINGS {
            let mut body = Vec::new();
            status(encoding, &given, &mut body);
            let mut expected = given.clone();
            expected.details.as_mut().unwrap().causes.truncate(kept);
            assert_eq!(read(&body), expected, "{sent} causes in {encoding}");
        }
    }
}

/// Go sends any bytes in a string of protobuf, and replaces those that are not UTF-8 when it writes JSON.
#[test]
fn bytes_that_are_not_utf8_become_replacement_characters() {
    let object: Vec<u8> =
        full().encode_to_vec().into_iter().map(|byte| if byte == b'~' { 0xff } else { byte }).collect();
    let status = read(&body_of("v1", "Status", &object));
    let expected =
        Status::decode(&full().encode_to_vec()[..]).map(|status| format!("{status:?}").replace('~', "\u{fffd}"));
    assert_eq!(Ok(format!("{status:?}")), expected);
}
