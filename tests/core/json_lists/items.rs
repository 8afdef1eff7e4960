//! Items of JSON lists: their type meta, their metadata, and decoding them with serde.

use k8s_pb::api::core::v1::Pod;
use listwatch::{Encoding, Event, ItemError, Json, ListDecoder, ListReader};

use super::items;
#[cfg(feature = "async")]
use super::reference;
#[cfg(feature = "async")]
use crate::support::cut;
use crate::support::{chain, fixture};

/// In lists of custom resources, `kind` follows the items.
#[test]
fn an_item_has_the_type_meta_read_before_it() {
    let (mut decoder, body) = (ListDecoder::new().accept_json(), fixture("widgets-page-1.json"));
    let (mut rest, mut events) = (&body[..], Vec::new());
    while let Some(event) = decoder.decode(&mut rest).unwrap() {
        events.push(match event {
            Event::TypeMeta(type_meta) => format!("{} {}", type_meta.api_version, type_meta.kind),
            Event::ListMeta(list_meta) => format!("{:?} left", list_meta.remaining_item_count),
            Event::Item(item) => format!("{}: {:?}", item.index(), item.type_meta().api_version),
            _ => unreachable!("no other events"),
        });
    }
    assert_eq!(events[..2], ["0: \"example.com/v1\"", "1: \"example.com/v1\""]);
    assert_eq!(events[20..], ["example.com/v1 WidgetList", "Some(10) left"]);
}

#[derive(Debug, serde::Deserialize)]
struct Named {
    metadata: Name,
}

#[derive(Debug, serde::Deserialize)]
struct Name {
    name: String,
}

#[test]
fn decodes_items_with_serde() {
    let names = ListReader::new::<Json<Named>>(&fixture("pods.json")[..])
        .map(|item| item.map(|item| item.metadata.name))
        .collect::<Result<Vec<_>, _>>()
        .unwrap();
    assert_eq!((names.len(), names[0].as_str()), (30, "billing-401f53e7-00028"));

    let (list, broken) =
        (items(r#"{"metadata":{"name":"a"}},{"metadata":{"name":7}},{"#), r#"{"metadata":{"name":tru}}]}"#);
    let body = list.replace("{]}", broken);
    let mut items = ListReader::new::<Json<Named>>(body.as_bytes()).skip_item_errors(true);
    assert_eq!(items.by_ref().map(|item| item.unwrap().metadata.name).collect::<Vec<_>>(), ["a"]);
    assert_eq!(items.end().unwrap().skipped, 2);
    let error = ListReader::new::<Json<Named>>(body.as_bytes()).find_map(Result::err).unwrap();
    assert_eq!(
        chain(&error),
        "cannot read item 1, at byte 106, 1 item delivered: cannot decode the JSON: \
         invalid type: integer `7`, expected a string at line 1 column 21"
    );
}

#[test]
fn refuses_items_of_the_other_encoding() {
    let (json, protobuf) = (fixture("pods.json"), fixture("pods.pb"));
    for (error, expected) in [
        (
            ListReader::new::<Pod>(&json[..]).accept_json().find_map(Result::err).unwrap(),
            "cannot read item 0, at byte 224, 0 items delivered: \
             unexpected encoding: the item is in JSON, expected protobuf",
        ),
        (
            ListReader::new::<Json<Named>>(&protobuf[..]).find_map(Result::err).unwrap(),
            "cannot read item 0, at byte 34, 0 items delivered: \
             unexpected encoding: the item is in protobuf, expected JSON",
        ),
    ] {
        assert_eq!(chain(&error), expected);
    }
}

/// The same collection in both encodings; the JSON is its first page.
#[test]
fn metadata_from_json_and_protobuf_is_equal() {
    fn read(body: &[u8]) -> Vec<String> {
        let items = ListReader::with(body, |item| {
            let meta = item.meta()?;
            let managers = meta.managed_fields()?.map(|entry| (entry.manager, entry.time));
            Ok::<_, ItemError>(format!(
                "{meta:?} {} {} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?}",
                meta.generate_name(),
                meta.generation(),
                meta.creation_timestamp()?,
                meta.deletion_timestamp()?,
                meta.deletion_grace_period_seconds(),
                meta.labels()?.collect::<Vec<_>>(),
                meta.label("app.kubernetes.io/name")?,
                meta.annotations()?.collect::<Vec<_>>(),
                meta.annotation("kubernetes.io/config.source")?,
                meta.owner_references()?.collect::<Vec<_>>(),
                meta.finalizers()?.collect::<Vec<_>>(),
                managers.collect::<Vec<_>>(),
            ))
        })
        .accept_json();
        items.collect::<Result<_, _>>().unwrap()
    }
    let (json, protobuf) = (read(&fixture("pods.json")), read(&fixture("pods.pb")));
    assert_eq!((json.len(), protobuf.len()), (30, 120));
    assert_eq!(json, protobuf[..30]);
}

#[cfg(feature = "async")]
#[test]
fn streams_read_json() {
    use bytes::Bytes;
    use futures::{StreamExt as _, executor::block_on, stream};
    use listwatch::ListStream;

    let body = fixture("widgets-negotiated.json");
    let expected: Vec<_> = reference(&body).unwrap().items.into_iter().map(Vec::into_boxed_slice).collect();
    let chunks = stream::iter(cut(&body, &[100]).map(|chunk| Ok::<_, std::io::Error>(Bytes::copy_from_slice(chunk))));
    let streamed: Vec<_> = block_on(ListStream::new::<[u8]>(chunks).accept_json().map(Result::unwrap).collect());
    assert_eq!(streamed, expected);
}

#[test]
fn a_wrong_encoding_error_names_both_encodings() {
    let error = ItemError::WrongEncoding { found: Encoding::Json, expected: Encoding::Protobuf };
    assert_eq!(error.to_string(), "unexpected encoding: the item is in JSON, expected protobuf");
}

#[test]
fn to_json_adds_a_missing_type_meta_and_refuses_other_values() {
    let head = r#"{"kind":"PodList","apiVersion":"v1","#;
    for (item, expected) in [
        ("{}", Ok(r#"{"kind":"Pod","apiVersion":"v1"}"#)),
        (r#"{ "a" : [ 1, "x y" ] }"#, Ok(r#"{"kind":"Pod","apiVersion":"v1","a":[1,"x y"]}"#)),
        // Members of the item keep their place.
        (r#"{"a":1,"kind":"X","apiVersion":"y"}"#, Ok(r#"{"a":1,"kind":"X","apiVersion":"y"}"#)),
        (r#"{"a":"<","kind":"X"}"#, Ok(r#"{"apiVersion":"v1","a":"\u003c","kind":"X"}"#)),
        // The last value counts; null and the empty string set nothing.
        (r#"{"kind":null,"a":1}"#, Ok(r#"{"apiVersion":"v1","kind":"Pod","a":1}"#)),
        (r#"{"kind":"X","kind":"Y","kind":null}"#, Ok(r#"{"apiVersion":"v1","kind":"Y"}"#)),
        (r#"{"kind":"","apiVersion":null}"#, Ok(r#"{"kind":"Pod","apiVersion":"v1"}"#)),
        (r#"{"\u006bind":"X"}"#, Ok(r#"{"apiVersion":"v1","kind":"X"}"#)),
        // Other values and malformed objects are errors.
        ("null", Err("a value of the wrong type in the object")),
        (r#"{"kind":7}"#, Err("a value of the wrong type in kind")),
        (r#"{"a":[tru]}"#, Err("invalid JSON in the object")),
        (r#"{"a":{]}}"#, Err("invalid JSON in the object")),
    ] {
        let body = format!(r#"{head}"items":[{item}]}}"#);
        let mut decoder = ListDecoder::new().accept_json();
        let mut rest = body.as_bytes();
        let mut out = b"before".to_vec();
        while let Ok(Some(event)) = decoder.decode(&mut rest) {
            let Event::Item(found) = event else { continue };
            let result = found.to_json(&mut out).map_err(|error| error.to_string());
            assert_eq!(result.as_ref().err().map(String::as_str), expected.err(), "{item}");
            assert_eq!(str::from_utf8(&out), Ok(&*format!("before{}", expected.unwrap_or_default())), "{item}");
        }
    }
    let nameless = r#"{"items":[{"kind":"X"}],"kind":"XList","apiVersion":"v1"}"#;
    let mut decoder = ListDecoder::new().accept_json();
    let mut rest = nameless.as_bytes();
    let Some(Event::Item(item)) = decoder.decode(&mut rest).unwrap() else { panic!("the first event is not an item") };
    assert_eq!(item.to_json(&mut Vec::new()).unwrap_err().to_string(), "no value in apiVersion");
}

#[test]
fn a_known_name_may_be_written_in_escapes() {
    let name = "apiVersion".bytes().map(|byte| format!("\\u{byte:04x}")).collect::<Vec<_>>().concat();
    let body = format!(r#"{{"{name}":"v1","kind":"ConfigMapList","metadata":{{}},"items":[]}}"#);
    let (mut decoder, mut rest) = (ListDecoder::new().accept_json(), body.as_bytes());
    while decoder.decode(&mut rest).unwrap().is_some() {}
    decoder.finish().unwrap();
    assert_eq!(decoder.type_meta().api_version, "v1");
}
