//! A setting of the decoder selects the encodings that it accepts; cargo features do not change it.

use listwatch::{BodyFormat, DecodeError, DecodeErrorKind, ListDecoder, ListError, ListReader, WatchDecoder};

use crate::support::fixture;

fn decode_list(mut decoder: ListDecoder, mut body: &[u8]) -> Result<u64, DecodeError> {
    while decoder.decode(&mut body)?.is_some() {}
    Ok(decoder.finish()?.items)
}

fn decode_watch(mut decoder: WatchDecoder, mut body: &[u8]) -> Result<u64, DecodeError> {
    let mut events = 0;
    while decoder.decode(&mut body)?.is_some() {
        events += 1;
    }
    decoder.finish().map(|()| events)
}

fn assert_refuses_json(result: Result<u64, DecodeError>, body: &str) {
    let error = result.expect_err(body);
    let is_json = match error.kind() {
        DecodeErrorKind::UnexpectedEncoding(found) => *found == BodyFormat::Json,
        _ => false,
    };
    assert!(is_json && error.offset() == 0, "{body}: {error}");
    assert!(error.to_string().contains("looks like JSON, which the decoder does not accept"), "{error}");
}

#[test]
fn refuses_json_unless_the_caller_accepts_it() {
    for name in ["pods.json", "widgets-negotiated.json"] {
        let body = fixture(name);
        assert_refuses_json(decode_list(ListDecoder::new(), &body), name);
        assert_refuses_json(decode_watch(WatchDecoder::new(), &body), name);
        let mut items = ListReader::new::<[u8]>(&body[..]);
        let Some(Err(ListError::Decode(error))) = items.next() else { panic!("the reader accepts {name}") };
        assert_refuses_json(Err(error), name);
    }
    let watch = fixture("watch-configmaps.json");
    assert_refuses_json(decode_watch(WatchDecoder::new(), &watch), "a watch");
    // Spaces before JSON are read only with it.
    let error = decode_watch(WatchDecoder::new(), &[b"\n", &watch[..]].concat()).unwrap_err();
    assert!(matches!(error.kind(), DecodeErrorKind::UnexpectedEncoding(BodyFormat::Text)), "{error}");
    assert_eq!(error.offset(), 0);
}

#[test]
fn accepts_both_encodings_with_accept_json() {
    use listwatch::{ItemError, Json};

    for (name, items) in [("pods.json", 30), ("widgets-negotiated.json", 30), ("configmaps.pb", 13)] {
        let body = fixture(name);
        assert_eq!(decode_list(ListDecoder::new().accept_json(), &body).unwrap(), items, "{name}");
        let read = ListReader::new::<[u8]>(&body[..]).accept_json().map(Result::unwrap).count();
        assert_eq!(read as u64, items, "{name}");
    }
    for name in ["watch-configmaps.json", "watch-configmaps.pb"] {
        assert!(decode_watch(WatchDecoder::new().accept_json(), &fixture(name)).unwrap() > 0, "{name}");
    }
    // `Json` needs no setting: the reader accepts JSON, and a protobuf item is an item error.
    let body = fixture("widgets-negotiated.json");
    assert_eq!(ListReader::new::<Json<serde_json::Value>>(&body[..]).map(Result::unwrap).count(), 30);
    let body = fixture("configmaps.pb");
    let first = ListReader::new::<Json<serde_json::Value>>(&body[..]).next().unwrap();
    let Err(ListError::Decode(error)) = first else { panic!("the reader decodes protobuf as JSON") };
    assert!(matches!(error.kind(), DecodeErrorKind::Item(ItemError::WrongEncoding { .. })), "{error}");
}
