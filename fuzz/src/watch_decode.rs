//! Any bytes are a watch's events or an error, the same however they are cut, in memory that the limits bound; and where the
//! decoder takes all of it, prost or `serde_json` finds the same in the full body.

use allocation_counter::measure;
use listwatch::{DecodeErrorKind, Fault, Limits, WatchDecoder};

use super::support::cut;
use super::support::watch::{Seen, is_json, reference, watch};

/// The last four bytes say how the body before them is cut, and how large a frame may be.
pub fn run(data: &[u8]) {
    let Some((body, [a, b, c, small])) = data.split_last_chunk() else { return };
    let max = if small.is_multiple_of(2) { Limits::DEFAULT_ITEM_SIZE } else { 4 * u64::from(*small) };
    let limits = Limits::default().item_size(max);
    let (seen, end) = watch(limits, [body]);
    let text =
        |end: &Result<(), listwatch::DecodeError>| end.as_ref().map_err(|error| format!("{error}: {error:?}")).cloned();
    let lengths = [1 + usize::from(a % 8), 1 + usize::from(*b), 1 + 16 * usize::from(*c)];
    for lengths in [&[1][..], &lengths] {
        let chunked = watch(limits, cut(body, lengths));
        assert_eq!((chunked.0, text(&chunked.1)), (seen.clone(), text(&end)), "in chunks of {lengths:?}");
    }
    let at = (usize::from(*a) << 8 | usize::from(*b)) % (body.len() + 1);
    let (cut_short, _) = watch(limits, cut(&body[..at], &lengths));
    assert_eq!(cut_short, seen[..cut_short.len()]);
    let end = end.map_err(|error| error.kind().clone());
    compare(body, &seen, &end);
    let counted = measure(|| drain(body, limits, &lengths));
    // A split frame; the beginning of a body that may be a Status, of which a cause of two bytes is three strings.
    let is_status =
        matches!(end, Err(DecodeErrorKind::Api(_))) || seen.iter().any(|seen| matches!(seen, Seen::Error(_)));
    let len = body.len() as u64;
    let allowed = 2 * max.min(len) + if is_status { 200 } else { 8 } * len + 2000;
    assert!(counted.bytes_max <= allowed, "{} bytes, where {allowed} are allowed", counted.bytes_max);
}

fn compare(body: &[u8], seen: &[Seen], end: &Result<(), DecodeErrorKind>) {
    let is_json = is_json(body);
    let (expected, is_whole) = reference(body);
    for (ours, theirs) in seen.iter().zip(&expected) {
        match (ours, theirs) {
            // The reference reads what recorded ones have.
            (Seen::Error(_), Seen::Error(_)) if is_json => {}
            _ => assert_eq!(ours, theirs),
        }
    }
    match end {
        // What is malformed in what the decoder does not read of JSON is found by who decodes it.
        _ if is_json && seen.len() > expected.len() => {}
        Ok(()) => assert!(is_json || is_whole && seen.len() == expected.len(), "{seen:?}, but {expected:?}"),
        // prost takes the last of several values, has no limits, and does not look at the wire type of a map.
        Err(
            DecodeErrorKind::Malformed { fault: Fault::NotEmpty, .. }
            | DecodeErrorKind::Limit { .. }
            | DecodeErrorKind::Malformed { field: "metadata.annotations", fault: Fault::WireType },
        ) => {}
        // Its first document does not begin with the name of a member of events, or is a Status that is not read to its
        // end here.
        Err(_) if is_json && seen.is_empty() => {}
        Err(DecodeErrorKind::Malformed { fault: Fault::Status, .. }) if is_json => {}
        Err(kind) => assert!(!is_whole && expected.len() == seen.len(), "{kind:?}, but {expected:?}"),
    }
}

fn drain(body: &[u8], limits: Limits, lengths: &[usize]) {
    let mut decoder = WatchDecoder::with_limits(limits).accept_json();
    for mut chunk in cut(body, lengths) {
        loop {
            match decoder.decode(&mut chunk) {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
    drop(decoder.finish());
}
