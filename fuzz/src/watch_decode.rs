//! Any bytes, in any chunks, yield the same events of a watch and the same end, in memory that the limits bound. prost
//! or `serde_json` decodes the same events from the full body.

use allocation_counter::measure;
use listwatch::{DecodeErrorKind, Fault, Limits, WatchDecoder};

use super::support::cut;
use super::support::watch::{Seen, is_json, reference, watch};

/// The last four bytes set the chunk lengths and the maximum frame size of the body before them.
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
    let (truncated, _) = watch(limits, cut(&body[..at], &lengths));
    assert_eq!(truncated, seen[..truncated.len()]);
    let end = end.map_err(|error| error.kind().clone());
    compare(body, &seen, &end);
    let counted = measure(|| drain(body, limits, &lengths));
    // Memory holds a split frame, and the Status of an error, where two bytes of a cause become three strings.
    let is_status = seen.iter().any(|seen| matches!(seen, Seen::Error(_)));
    let len = body.len() as u64;
    let allowed = 2 * max.min(len) + if is_status { 200 } else { 8 } * len + 2000;
    assert!(counted.bytes_max <= allowed, "{} bytes allocated, over the bound of {allowed}", counted.bytes_max);
}

fn compare(body: &[u8], seen: &[Seen], end: &Result<(), DecodeErrorKind>) {
    let is_json = is_json(body);
    let (expected, is_whole) = reference(body);
    for (ours, theirs) in seen.iter().zip(&expected) {
        match (ours, theirs) {
            // The reference reads only the members that recorded errors have.
            (Seen::Error(_), Seen::Error(_)) if is_json => {}
            _ => assert_eq!(ours, theirs),
        }
    }
    match end {
        // prost refuses text that is not UTF-8, which the decoder replaces in a Status.
        _ if seen.get(expected.len()).is_some_and(|next| format!("{next:?}").contains('\u{fffd}')) => {}
        // The decoder does not read all of a JSON event. The reference stops at an event that is malformed elsewhere.
        _ if is_json && seen.len() > expected.len() => {}
        Ok(()) => assert!(is_json || is_whole && seen.len() == expected.len(), "{seen:?}, expected {expected:?}"),
        // prost takes the last of several values, has no limits, and does not check the wire type of a map.
        Err(
            DecodeErrorKind::Malformed { fault: Fault::NotEmpty, .. }
            | DecodeErrorKind::Limit { .. }
            | DecodeErrorKind::Malformed { field: "metadata.annotations", fault: Fault::WireType },
        ) => {}
        // The first document does not begin with a member of an event.
        Err(_) if is_json && seen.is_empty() => {}
        Err(DecodeErrorKind::Malformed { fault: Fault::Status, .. }) if is_json => {}
        Err(kind) => assert!(!is_whole && expected.len() == seen.len(), "{kind:?}, expected {expected:?}"),
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
