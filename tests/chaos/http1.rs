//! HTTP/1.1: a connection that ends at any byte, and wrong content lengths, also in HTTP/2.

use listwatch::Limits;
use listwatch_testserver::{Answer, Body, RawEnd};

use crate::support::seeds::seed;
use crate::support::{cases, fixture, list_decoder};
use crate::{
    BROKEN, DATA, END_STREAM, HEADERS, INCOMPLETE, SETTINGS, STALLED, Whole, alone, client, frame, framed, list,
    list_until_stalled, raw, serve,
};

#[test]
fn a_small_list_that_ends_early_at_any_byte_is_never_complete() {
    alone(async {
        for (format, whole) in [("protobuf", Whole::small()), ("JSON", Whole::small_json())] {
            for framing in ["length", "chunked", "until the end"] {
                let (head, rest) = framed(framing, &whole.body);
                let all = [&head[..], &rest].concat();
                // Both ends break the same reads, so a quick run resets at each fourth byte.
                let step = usize::try_from(cases(4, 1)).unwrap();
                let closing = (0..=all.len()).map(|cut| (cut, RawEnd::Close));
                let resetting = (0..=all.len()).step_by(step).map(|cut| (cut, RawEnd::Reset));
                for (cut, end) in closing.chain(resetting) {
                    let case = format!("{format}, {framing}, {end:?} at {cut} of {}", all.len());
                    let server = raw(&all[..cut], end).await;
                    let ending = list(&case, client(&server.url(), false), &whole).await;
                    let in_body = cut.saturating_sub(head.len());
                    // If the end of the connection ends the body, only the list itself shows whether it is whole.
                    let is_whole = match framing {
                        "until the end" => ends_a_list(&whole, in_body),
                        _ => cut == all.len(),
                    };
                    match end {
                        RawEnd::Close if is_whole => ending.expect(&case, &["complete"]),
                        // A reset discards what the client has not read.
                        _ if is_whole => ending.expect(&case, &["complete", INCOMPLETE, BROKEN]),
                        _ => ending.expect(&case, &[INCOMPLETE, BROKEN]),
                    }
                    if end == RawEnd::Close && framing != "chunked" && in_body > 0 && !is_whole {
                        assert_eq!(ending.bytes, Some(in_body as u64), "{case}: {ending:?}");
                        assert_eq!(ending.delivered, items_in(&whole.body[..in_body]), "{case}");
                    }
                }
            }
        }
    });
}

/// Returns true if a list that ends after this many bytes is whole: it may lack the empty strings after `raw`.
fn ends_a_list(whole: &Whole, length: usize) -> bool {
    let mut decoder = list_decoder(Limits::default());
    let mut body = &whole.body[..length];
    while decoder.decode(&mut body).unwrap().is_some() {}
    decoder.finish().is_ok()
}

/// Returns the number of whole items in the beginning of a list.
fn items_in(mut beginning: &[u8]) -> usize {
    let mut decoder = list_decoder(Limits::default());
    while decoder.decode(&mut beginning).unwrap().is_some() {}
    usize::try_from(decoder.items()).unwrap()
}

#[test]
fn a_large_list_that_ends_early_at_a_random_byte_is_never_complete() {
    let mut seed = seed();
    alone(async {
        let whole = Whole::large();
        let length = whole.body.len() as u64;
        let json = Whole::new(fixture("pods.json"));
        for n in 0..cases(30, 200) {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = (seed >> 20) % length;
            let body = Body::replay(whole.body.clone()).chunk_size(1 << 16);
            for (fault, body) in [("truncated", body.clone().cut_at(at)), ("reset", body.reset_at(at))] {
                let server = serve(Answer::ok(body)).await;
                for http2 in [false, true] {
                    let case = format!("{fault} at {at}, HTTP/2 {http2}");
                    let ending = list(&case, client(&server.url(), http2), &whole).await;
                    ending.expect(&case, &[INCOMPLETE, BROKEN]);
                    // A reset discards what the HTTP/2 implementation has not passed on.
                    if fault == "truncated" && at > 0 {
                        assert_eq!(ending.bytes, Some(at), "{case}");
                    }
                }
            }
            // A TCP reset, every second time in a JSON list.
            let whole = if n % 2 == 0 { &whole } else { &json };
            let cut = usize::try_from(at).unwrap() % whole.body.len();
            let (head, _) = framed("until the end", b"");
            let server = raw([&head, &whole.body[..cut]].concat(), RawEnd::Reset).await;
            let case = format!("RST at {cut} of {}", whole.body.len());
            list(&case, client(&server.url(), false), whole).await.expect(&case, &[INCOMPLETE, BROKEN]);
        }
    });
}

#[test]
fn a_list_with_a_wrong_content_length_is_never_complete() {
    alone(async {
        for whole in [Whole::small(), Whole::small_json()] {
            let body = &whole.body;
            let head = |length: &str| format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n").into_bytes();
            let (short, long) = ((body.len() - 20).to_string(), (body.len() + 1).to_string());
            for (case, length, end, expected) in [
                ("right", body.len().to_string(), RawEnd::Close, "complete"),
                ("too short", short.clone(), RawEnd::Close, INCOMPLETE),
                ("0", "0".to_owned(), RawEnd::Close, INCOMPLETE),
                ("too long", long.clone(), RawEnd::Close, INCOMPLETE),
                ("too long, and held", long.clone(), RawEnd::Hold, STALLED),
                ("2^63", (1_u64 << 63).to_string(), RawEnd::Close, INCOMPLETE),
                ("over u64", "99999999999999999999999".to_owned(), RawEnd::Close, BROKEN),
                ("negative", "-1".to_owned(), RawEnd::Close, BROKEN),
            ] {
                let server = raw([&head(&length)[..], body].concat(), end).await;
                if end == RawEnd::Hold {
                    list_until_stalled(case, &server.url(), false, &whole, &[expected]).await;
                } else {
                    list(case, client(&server.url(), false), &whole).await.expect(case, &[expected]);
                }
            }
            for (case, length, expected) in [
                ("right", body.len().to_string(), &["complete"][..]),
                ("too short", short, &[INCOMPLETE, BROKEN]),
                ("too long", long, &[INCOMPLETE, BROKEN]),
            ] {
                // An HPACK literal with an indexed name: `content-length` is entry 28 of the static table.
                let length = [&[0x0f, 13, u8::try_from(length.len()).unwrap()], length.as_bytes()].concat();
                let head = frame(HEADERS, 4, 1, &[b"\x88", &length[..]].concat());
                let bytes = [frame(SETTINGS, 0, 0, b""), head, frame(DATA, END_STREAM, 1, body)].concat();
                let server = raw(bytes, RawEnd::Hold).await;
                let case = format!("{case}, HTTP/2");
                list(&case, client(&server.url(), true), &whole).await.expect(&case, expected);
            }
        }
    });
}
