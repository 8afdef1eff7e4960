//! HTTP/2: a connection that ends at any byte, GOAWAY, resets of streams, and tiny frames.

use std::time::Duration;

use listwatch::client::Retry;
use listwatch_testserver::{Answer, Body, RawAnswer, RawEnd, RawServer, TOKEN};

use crate::{
    BROKEN, CONNECT, DATA, END_STREAM, INCOMPLETE, SETTINGS, Whole, alone, client, data, elsewhere, frame, http2_head,
    list, raw, serve,
};

const RST_STREAM: u8 = 3;
const GOAWAY: u8 = 7;

fn goaway(last: u32, code: u32, text: &[u8]) -> Vec<u8> {
    frame(GOAWAY, 0, 0, &[&last.to_be_bytes(), &code.to_be_bytes(), text].concat())
}

#[test]
fn a_list_that_ends_early_at_any_byte_of_its_frames_is_never_complete() {
    alone(async {
        let whole = Whole::small();
        let (half, rest) = whole.body.split_at(40);
        let all = [http2_head(), data(half), frame(DATA, END_STREAM, 1, rest)].concat();
        for cut in 0..=all.len() {
            for end in [RawEnd::Close, RawEnd::Reset] {
                let case = format!("{end:?} at {cut} of {}", all.len());
                let server = raw(&all[..cut], end).await;
                let ending = list(&case, client(&server.url(), true), &whole).await;
                match end {
                    RawEnd::Close if cut == all.len() => ending.expect(&case, &["complete"]),
                    _ if cut == all.len() => ending.expect(&case, &["complete", INCOMPLETE, BROKEN]),
                    _ => ending.expect(&case, &[INCOMPLETE, BROKEN, CONNECT]),
                }
            }
        }
    });
}

#[test]
fn a_goaway_ends_only_the_streams_above_it() {
    const NO_ERROR: u32 = 0;
    const CALM: u32 = 11;

    alone(async {
        let whole = Whole::small();
        // The first part has an item, so that the request is not retried.
        let (half, rest) = whole.body.split_at(35);
        let (settings, head) = (frame(SETTINGS, 0, 0, b""), http2_head());
        let whole_answer = [&head[..], &frame(DATA, END_STREAM, 1, &whole.body)].concat();
        let end = frame(DATA, END_STREAM, 1, rest);
        let text = format!("slow down, {TOKEN}");
        for (case, bytes, expected) in [
            ("before the head, below", [&settings[..], &goaway(0, NO_ERROR, b"")].concat(), &[BROKEN][..]),
            (
                "before the head, at it",
                [&settings[..], &goaway(1, NO_ERROR, b""), &head[9..], &data(half), &end].concat(),
                &["complete"],
            ),
            (
                "in the list, above",
                [&head[..], &data(half), &goaway(0x7fff_ffff, NO_ERROR, b""), &end].concat(),
                &["complete"],
            ),
            ("in the list, at it", [&head[..], &data(half), &goaway(1, NO_ERROR, b""), &end].concat(), &["complete"]),
            ("in the list, below", [&head[..], &data(half), &goaway(0, NO_ERROR, b""), &end].concat(), &[INCOMPLETE]),
            (
                "in the list, at it, and no more",
                [&head[..], &data(half), &goaway(1, NO_ERROR, b"")].concat(),
                &[INCOMPLETE, BROKEN],
            ),
            (
                "twice, graceful",
                [&head[..], &goaway(0x7fff_ffff, NO_ERROR, b""), &data(half), &goaway(1, NO_ERROR, b""), &end].concat(),
                &["complete"],
            ),
            (
                "an error with a text",
                [&head[..], &data(half), &goaway(0, CALM, text.as_bytes())].concat(),
                &[INCOMPLETE, BROKEN],
            ),
        ] {
            let answers = [RawAnswer::new(bytes, RawEnd::Close)];
            let server = elsewhere(RawServer::start(answers.clone())).await;
            list(case, client(&server.url(), true), &whole).await.expect(case, expected);
            // If no item was delivered before, the client retries on a new connection.
            let answers = answers.into_iter().chain([RawAnswer::new(whole_answer.clone(), RawEnd::Close)]);
            let server = elsewhere(RawServer::start(answers.collect::<Vec<_>>())).await;
            let again = client(&server.url(), true).retry(Retry::default().delay(Duration::from_nanos(1)));
            let ending = list(case, again, &whole).await;
            ending.expect(case, if case.starts_with("before") { &["complete"] } else { expected });
        }
    });
}

#[test]
fn a_stream_that_is_reset_within_the_list_is_never_complete() {
    alone(async {
        let whole = Whole::small();
        let (head, all) = (http2_head(), data(&whole.body));
        for code in 0_u32..=14 {
            let reset = frame(RST_STREAM, 0, 1, &code.to_be_bytes());
            let ended = frame(DATA, END_STREAM, 1, &whole.body);
            for (place, bytes, expected) in [
                ("before the head", [&frame(SETTINGS, 0, 0, b"")[..], &reset].concat(), &[BROKEN][..]),
                ("after the head", [&head[..], &reset].concat(), &[INCOMPLETE, BROKEN]),
                ("in an item", [&head[..], &data(&whole.body[..30]), &reset].concat(), &[INCOMPLETE, BROKEN]),
                // hyper treats NO_ERROR and CANCEL as a regular end.
                ("in place of the end", [&head[..], &all, &reset].concat(), &["complete", INCOMPLETE, BROKEN]),
                ("after the end", [&head[..], &ended, &reset].concat(), &["complete", INCOMPLETE, BROKEN]),
            ] {
                let case = format!("{place}, code {code}");
                let server = raw(bytes, RawEnd::Close).await;
                list(&case, client(&server.url(), true), &whole).await.expect(&case, expected);
            }
        }
    });
}

#[test]
fn a_list_in_tiny_frames_is_complete() {
    alone(async {
        for (format, whole) in [("protobuf", Whole::small()), ("JSON", Whole::small_json())] {
            let server = serve(Answer::ok(Body::replay(whole.body.clone()).chunk_size(1))).await;
            for http2 in [false, true] {
                list(format, client(&server.url(), http2), &whole).await.expect(format, &["complete"]);
            }
        }
        let whole = Whole::small();
        let bytes = || whole.body.iter().map(std::slice::from_ref);
        let padded = |byte: &[u8]| frame(DATA, 8, 1, &[&[9], byte, &[0; 9]].concat());
        let ended = frame(DATA, END_STREAM, 1, b"");
        for (case, frames) in [
            ("of one byte", bytes().flat_map(data).collect::<Vec<_>>()),
            ("padded", bytes().flat_map(padded).collect()),
            ("some empty", bytes().flat_map(|byte| [frame(DATA, 0, 1, b""), data(byte)].concat()).collect()),
        ] {
            let server = raw([http2_head(), frames, ended.clone()].concat(), RawEnd::Close).await;
            list(case, client(&server.url(), true), &whole).await.expect(case, &["complete"]);
        }
    });
}
