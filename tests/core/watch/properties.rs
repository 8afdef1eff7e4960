//! Arbitrary, edited and truncated watches end as in an independent decode, for every chunking.

use listwatch::{DecodeErrorKind, Fault, Limits};
use proptest::collection::vec;
use proptest::prelude::*;

use super::fixtures;
use crate::random::{chunk_lengths, edited, randomized, unknown_leaf};
use crate::support::watch::{reference, watch};
use crate::support::{cut, framed, len_field};

/// Known fields in any order, with unknown fields between them.
fn message(known: impl Strategy<Value = Vec<Vec<u8>>>) -> impl Strategy<Value = Vec<u8>> {
    (known, vec(unknown_leaf(), 0..2))
        .prop_map(|(known, unknown)| [known, unknown].concat())
        .prop_shuffle()
        .prop_map(|fields| fields.concat())
}

/// An event: its type, the type meta and the version of its object, and whether it ends the initial events.
fn event() -> impl Strategy<Value = (&'static str, &'static str, &'static str, String, bool)> {
    (
        prop::sample::select(&["ADDED", "MODIFIED", "DELETED", "BOOKMARK"][..]),
        prop::sample::select(
            &[("v1", "Pod"), ("apps/v1", "Deployment"), ("meta.k8s.io/v1", "PartialObjectMetadata")][..],
        ),
        "[1-9][0-9]{0,8}",
        any::<bool>(),
    )
        .prop_map(|(event, (api_version, kind), version, ends)| (event, api_version, kind, version, ends))
}

fn protobuf_body() -> impl Strategy<Value = Vec<u8>> {
    let frame = (event(), vec(unknown_leaf(), 0..3), vec(any::<u8>(), 0..300)).prop_flat_map(
        |((event, api_version, kind, version, ends), more, spec)| {
            let value: &[u8] = if ends { b"true" } else { b"false" };
            let annotation = [len_field(1, b"k8s.io/initial-events-end"), len_field(2, value)].concat();
            let metadata = message(Just(vec![len_field(6, version.as_bytes()), len_field(12, &annotation)]));
            let object = metadata.prop_flat_map(move |metadata| {
                message(Just([vec![len_field(1, &metadata), len_field(2, &spec)], more.clone()].concat()))
            });
            let type_meta = message(Just(vec![len_field(1, api_version.as_bytes()), len_field(2, kind.as_bytes())]));
            let envelope = (type_meta, object).prop_flat_map(|(type_meta, object)| {
                message(Just(vec![
                    len_field(1, &type_meta),
                    len_field(2, &object),
                    len_field(3, b""),
                    len_field(4, b""),
                ]))
            });
            let object = envelope
                .prop_flat_map(|envelope| message(Just(vec![len_field(1, &[b"k8s\0", &envelope[..]].concat())])));
            object
                .prop_flat_map(move |object| message(Just(vec![len_field(1, event.as_bytes()), len_field(2, &object)])))
                .prop_map(|frame| framed(&frame))
        },
    );
    vec(frame, 0..6).prop_map(|frames| frames.concat())
}

/// A recorded body with edits, most of them in its framing.
fn edited_body() -> impl Strategy<Value = Vec<u8>> {
    let bodies: Vec<_> = fixtures().map(|(_, body)| body).filter(|body| body.len() < 64 << 10).collect();
    edited(prop::sample::select(bodies), any::<u8>(), 60)
}

proptest! {
    #![proptest_config(randomized(200, 3000))]

    #[test]
    fn arbitrary_watches_equal_the_reference(body in protobuf_body(), lengths in chunk_lengths()) {
        let (expected, is_whole) = reference(&body);
        prop_assert!(is_whole);
        let (seen, end) = watch(Limits::default(), cut(&body, &lengths));
        prop_assert!(end.is_ok(), "{:?}", end);
        prop_assert_eq!(seen, expected);
    }

    #[test]
    fn a_truncated_watch_has_the_events_of_its_whole_frames(body in protobuf_body(), lengths in chunk_lengths(), at in any::<prop::sample::Index>()) {
        let body = &body[..at.index(body.len() + 1)];
        let (seen, end) = watch(Limits::default(), cut(body, &lengths));
        prop_assert_eq!((seen, end.is_ok()), reference(body));
    }

    /// Every chunking ends in the same error, and the events before it equal the reference.
    #[test]
    fn edited_bodies_end_the_same_in_all_chunkings(body in edited_body(), lengths in chunk_lengths()) {
        let whole = watch(Limits::default(), [&body[..]]);
        let chunked = watch(Limits::default(), cut(&body, &lengths));
        prop_assert_eq!(&whole.0, &chunked.0);
        prop_assert_eq!(whole.1.as_ref().map_err(ToString::to_string), chunked.1.as_ref().map_err(ToString::to_string));
        let (expected, is_whole) = reference(&body);
        let both = whole.0.len().min(expected.len());
        prop_assert_eq!(&whole.0[..both], &expected[..both]);
        match whole.1.map_err(|error| error.kind().clone()) {
            // The decoder leaves faults in an object to the caller that decodes it, and prost accepts a repeated value.
            Ok(()) | Err(DecodeErrorKind::Malformed { fault: Fault::NotEmpty, .. }) => {}
            Err(kind) => prop_assert!(!is_whole && expected.len() == both, "{:?}", kind),
        }
    }

    #[test]
    fn arbitrary_bytes_end_the_same_in_all_chunkings(bytes in vec(any::<u8>(), 0..300), start in 0..3_usize, lengths in chunk_lengths()) {
        let start: &[u8] = [&b""[..], b"\0\0\0\x20\x0a\x05ADDED\x12", b"{\"type\":\"ADDED\",\"object\":"][start];
        let body = [start, &bytes].concat();
        let (whole, chunked) = (watch(Limits::default(), [&body[..]]), watch(Limits::default(), cut(&body, &lengths)));
        prop_assert_eq!(whole.0, chunked.0);
        prop_assert_eq!(whole.1.err().map(|error| error.to_string()), chunked.1.err().map(|error| error.to_string()));
    }
}
