//! Recorded watches give the events that the API server sent.

use listwatch::Limits;

use super::{fixtures, protobuf};
use crate::support::watch::{Seen, reference, watch};
use crate::support::{event_frame, fixture, len_field};

#[test]
fn recorded_watches_give_the_events_that_were_sent() {
    let changes = |seen: &[Seen], wanted| {
        seen.iter().filter(|seen| matches!(seen, Seen::Changed { event, .. } if *event == wanted)).count()
    };
    for (name, added, modified, deleted, bookmarks) in [
        ("watch-configmaps.pb", 1, 3, 1, &[("549", false), ("549", false)][..]),
        ("watch-configmaps-metadata.pb", 14, 3, 1, &[][..]),
        ("watch-initial-events.pb", 14, 3, 1, &[("591", true), ("600", false)]),
        ("watch-initial-events-pods.pb", 120, 0, 0, &[("604", true)]),
        ("watch-quiet-bookmarks.pb", 0, 0, 0, &[("604", true), ("610", false), ("642", false)]),
        ("watch-configmaps.json", 14, 3, 1, &[]),
        ("watch-initial-events.json", 13, 0, 0, &[("605", true)]),
        ("watch-widgets-negotiated.json", 31, 3, 1, &[]),
    ] {
        let (seen, end) = watch(Limits::default(), [&fixture(name)[..]]);
        end.unwrap();
        let counts = [changes(&seen, "ADDED"), changes(&seen, "MODIFIED"), changes(&seen, "DELETED")];
        assert_eq!(counts, [added, modified, deleted], "{name}");
        let seen = seen.into_iter().filter(|seen| matches!(seen, Seen::Bookmark { .. })).collect::<Vec<_>>();
        let bookmark = |(version, end): &(&str, bool)| Seen::Bookmark {
            version: (*version).to_owned(),
            ends_initial_events: *end,
        };
        assert_eq!(seen, bookmarks.iter().map(bookmark).collect::<Vec<_>>(), "{name}");
    }
}

#[test]
fn an_expired_watch_gives_its_status() {
    for (name, body) in fixtures().filter(|(name, _)| name.starts_with("watch-expired")) {
        let (seen, end) = watch(Limits::default(), [&body[..]]);
        end.unwrap();
        let [Seen::Error(status)] = &seen[..] else { panic!("{name}: {seen:?}") };
        assert_eq!(status.to_string(), "410 Expired: too old resource version: 2 (463)", "{name}");
    }
}

/// The type meta changes from event to event.
#[test]
fn each_object_has_its_own_type_meta() {
    let pod = protobuf("ADDED", "v1", "Pod", b"\x0a\x03\x32\x017");
    let job = protobuf("MODIFIED", "batch/v1", "Job", b"\x0a\x03\x32\x018");
    let none = protobuf("DELETED", "", "", b"\x0a\x03\x32\x019");
    let body = [&pod[..], &pod, &job, &none, &job, &pod].concat();
    let (seen, end) = watch(Limits::default(), [&body[..]]);
    end.unwrap();
    assert_eq!((seen, true), reference(&body));
}

/// The last piece of a type meta may be the whole type meta of the event before, and an object may have none.
#[test]
fn a_type_meta_in_pieces_is_merged_for_its_event_alone() {
    let frame = |type_metas: &[&[u8]]| {
        let pieces = type_metas.iter().map(|type_meta| len_field(1, type_meta)).collect::<Vec<_>>().concat();
        event_frame("ADDED", &[b"k8s\0", &pieces[..], &len_field(2, b"\x0a\x03\x32\x017")].concat())
    };
    let (version, kind) = (&len_field(1, b"v1")[..], &len_field(2, b"Pod")[..]);
    for pieces in [[version, kind], [kind, version]] {
        let whole = pieces.concat();
        for frames in [
            [&pieces[1..], &pieces, &pieces[1..]],
            [&pieces, &[], &pieces],
            [&[&whole], &pieces, &[]],
            [&pieces[..1], &pieces, &[&whole]],
        ] {
            let body = frames.map(frame).concat();
            let (seen, end) = watch(Limits::default(), [&body[..]]);
            end.unwrap();
            assert_eq!((seen, true), reference(&body), "{frames:x?}");
        }
    }
}
