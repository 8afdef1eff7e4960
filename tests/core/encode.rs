//! The encoder writes the bytes that a real API server sent for the same objects, and the decoders read what it writes.

use listwatch::EventType;
use listwatch::encode::{Encoder, status};
use listwatch::schema::Message;
use listwatch::{
    Encoding, ItemError, ItemRef, Limits, ListMeta, ListReader, ShardInfo, Status, StatusCause, StatusDetails, TypeMeta,
};
use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message as _;

use crate::json_form::{expected, frames};
use crate::random::randomized;
use crate::support::watch::{Seen, watch};
use crate::support::{List, Unknown, body_of, config_map, decode, each_item, event_frame, fixture, len_field, lists};

const JSON_LISTS: [&str; 3] = ["pods.json", "widgets-negotiated.json", "widgets-page-1.json"];

const WATCHES: [&str; 10] = [
    "watch-configmaps-metadata.pb",
    "watch-configmaps.json",
    "watch-configmaps.pb",
    "watch-expired.json",
    "watch-expired.pb",
    "watch-initial-events-pods.pb",
    "watch-initial-events.json",
    "watch-initial-events.pb",
    "watch-quiet-bookmarks.pb",
    "watch-widgets-negotiated.json",
];

fn recorded(name: &str) -> List {
    decode(Limits::default(), [&fixture(name)[..]]).unwrap().0
}

fn encoding_of(name: &str) -> Encoding {
    if name.rsplit_once('.').is_some_and(|(_, extension)| extension == "json") {
        Encoding::Json
    } else {
        Encoding::Protobuf
    }
}

/// Returns an encoder for lists of this type meta.
fn encoder(encoding: Encoding, list: &TypeMeta) -> Encoder {
    Encoder::new(encoding, TypeMeta::new(list.api_version.as_str(), list.item_kind()), list.kind.as_str())
}

/// Writes a list of stored items.
fn write(encoder: &Encoder, stored: Encoding, items: &[Vec<u8>], list_meta: &ListMeta) -> Vec<u8> {
    let items: Vec<_> = items.iter().map(|bytes| ItemRef::new(stored, bytes)).collect();
    let len = items.iter().map(|item| encoder.item_len(item).unwrap()).sum();
    let mut out = Vec::new();
    let mut body = encoder.list_head(list_meta, len, &mut out);
    for item in &items {
        assert_eq!(encoder.item(&mut body, item, &mut out).unwrap(), 0);
    }
    encoder.list_tail(body, list_meta, &mut out);
    out
}

#[track_caller]
fn assert_same(written: &[u8], recorded: &[u8], name: &str) {
    let at = written.iter().zip(recorded).take_while(|(a, b)| a == b).count();
    let part = |bytes: &[u8]| bytes[at.saturating_sub(80)..(at + 80).min(bytes.len())].escape_ascii().to_string();
    assert!(written == recorded, "{name} differs from byte {at}:\n{}\nrecorded:\n{}", part(written), part(recorded));
}

#[test]
fn recorded_lists_are_written_byte_for_byte() {
    let lists = lists().into_iter().chain(JSON_LISTS.map(|name| (name.to_owned(), fixture(name))));
    for (name, body) in lists {
        let List { type_meta, list_meta, items } = decode(Limits::default(), [&body[..]]).unwrap().0;
        let encoding = encoding_of(&name);
        assert_same(&write(&encoder(encoding, &type_meta), encoding, &items, &list_meta), &body, &name);
    }
}

/// The recorded page in JSON has the first 30 Pods of the recorded list in protobuf.
#[test]
fn protobuf_items_are_written_as_the_recorded_json_list() {
    let page = recorded("pods.json");
    let pods = recorded("pods.pb");
    let encoder = encoder(Encoding::Json, &pods.type_meta);
    let written = write(&encoder, Encoding::Protobuf, &pods.items[..30], &page.list_meta);
    assert_same(&written, &fixture("pods.json"), "pods.json");
}

/// As above, the first 30.
#[test]
fn protobuf_items_are_written_as_the_recorded_metadata_list() {
    let pods = recorded("pods.pb");
    let encoder = encoder(Encoding::Protobuf, &pods.type_meta).metadata_only();
    let written = write(&encoder, Encoding::Protobuf, &pods.items[..30], &recorded("pods-metadata.pb").list_meta);
    assert_same(&written, &fixture("pods-metadata.pb"), "pods-metadata.pb");
}

/// The recorded metadata of custom resources are in protobuf; their JSON form is Go's.
#[test]
fn metadata_of_custom_resources_have_the_order_of_structs() {
    let (metadata, widgets) = (recorded("widgets-metadata.pb"), recorded("widgets-negotiated.json"));
    assert_eq!(metadata.items.len(), widgets.items.len());
    let from_protobuf = encoder(Encoding::Json, &metadata.type_meta);
    let from_json = encoder(Encoding::Json, &widgets.type_meta).metadata_only();
    let expected = write(&from_protobuf, Encoding::Protobuf, &metadata.items, &metadata.list_meta);
    let written = write(&from_json, Encoding::Json, &widgets.items, &metadata.list_meta);
    assert_same(&written, &expected, "widgets-metadata.pb");
    assert!(expected.starts_with(br#"{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"#));
    let item = br#""items":[{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"#;
    assert!(expected.windows(item.len()).any(|window| window == item));
}

/// Of built-in kinds, both ways to the metadata in JSON give the same bytes.
#[test]
fn metadata_of_json_and_protobuf_items_are_the_same() {
    let (pods, page) = (recorded("pods.pb"), recorded("pods.json"));
    let encoder = encoder(Encoding::Json, &pods.type_meta).metadata_only();
    let from_protobuf = write(&encoder, Encoding::Protobuf, &pods.items[..30], &page.list_meta);
    assert_same(&write(&encoder, Encoding::Json, &page.items, &page.list_meta), &from_protobuf, "pods.json");
    for (object, expected) in [
        ("{}", "{}"),
        (r#"{"metadata":null}"#, "{}"),
        (r#"{"metadata":{"name":"a"},"metadata":{"name":"b"}}"#, r#"{"name":"b"}"#),
        (
            r#"{"metadata":{"labels":{},"generation":0,"finalizers":[],"name":"","unknown":1,"creationTimestamp":null}}"#,
            "{}",
        ),
        (
            r#"{ "metadata" : { "labels" : { "b" : "<" , "a" : "1" }, "deletionGracePeriodSeconds":0, "name":"n" } }"#,
            r#"{"name":"n","deletionGracePeriodSeconds":0,"labels":{"a":"1","b":"\u003c"}}"#,
        ),
        (
            r#"{"metadata":{"ownerReferences":[{"uid":"u","name":"n","controller":false},{"kind":"K"}]}}"#,
            r#"{"ownerReferences":[{"apiVersion":"","kind":"","name":"n","uid":"u","controller":false},{"apiVersion":"","kind":"K","name":"","uid":""}]}"#,
        ),
    ] {
        let mut out = Vec::new();
        encoder.object(&ItemRef::new(Encoding::Json, object.as_bytes()), &mut out).unwrap();
        let expected = format!(
            "{{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":{expected}}}\n"
        );
        assert_eq!(String::from_utf8(out).unwrap(), expected, "{object}");
    }
}

#[test]
fn empty_lists_end_as_on_a_server() {
    let list_meta = recorded("pods-empty.pb").list_meta;
    let body = |api_version, kind, metadata_only| {
        let encoder = encoder(Encoding::Json, &TypeMeta::new(api_version, kind));
        let encoder = if metadata_only { encoder.metadata_only() } else { encoder };
        String::from_utf8(write(&encoder, Encoding::Json, &[], &list_meta)).unwrap()
    };
    let version = &list_meta.resource_version;
    assert_eq!(
        body("v1", "PodList", false),
        format!(
            r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"{version}"}},"items":[]}}{}"#,
            '\n'
        )
    );
    assert_eq!(
        body("example.com/v1", "WidgetList", false),
        format!(
            r#"{{"apiVersion":"example.com/v1","items":[],"kind":"WidgetList","metadata":{{"continue":"","resourceVersion":"{version}"}}}}{}"#,
            '\n'
        )
    );
    assert_eq!(
        body("example.com/v1", "WidgetList", true),
        format!(
            r#"{{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{{"resourceVersion":"{version}"}},"items":null}}{}"#,
            '\n'
        )
    );
}

#[test]
fn a_recorded_object_is_written_byte_for_byte() {
    let body = fixture("single-configmap.pb");
    let object = Unknown::decode(&body[4..]).unwrap().raw;
    let config_maps = |encoding| encoder(encoding, &TypeMeta::new("v1", "ConfigMapList"));
    let item = ItemRef::new(Encoding::Protobuf, &object);
    let mut out = Vec::new();
    config_maps(Encoding::Protobuf).object(&item, &mut out).unwrap();
    assert_same(&out, &body, "single-configmap.pb");

    // The first event of the recorded watch has the same object in JSON.
    let mut out = br#"{"type":"ADDED","object":"#.to_vec();
    config_maps(Encoding::Json).object(&item, &mut out).unwrap();
    assert_eq!(out.pop(), Some(b'\n'));
    out.extend_from_slice(b"}\n");
    assert!(fixture("watch-initial-events.json").starts_with(&out));
}

fn event_type(name: &str) -> EventType {
    [EventType::Added, EventType::Modified, EventType::Deleted].into_iter().find(|event| event.name() == name).unwrap()
}

/// Writes the events of a watch. `encoder` gets the type meta of the object, or `None` for a bookmark and an error.
fn rewrite(seen: &[Seen], encoder: impl Fn(Option<&TypeMeta>) -> Encoder) -> Vec<Vec<u8>> {
    let write = |seen: &Seen| {
        let mut out = Vec::new();
        match seen {
            Seen::Changed { event, encoding, type_meta, object, .. } => {
                let item = ItemRef::new(*encoding, object);
                encoder(Some(type_meta)).event(event_type(event), &item, None, &mut out).unwrap();
            }
            Seen::Bookmark { version, ends_initial_events } => {
                encoder(None).bookmark(version, *ends_initial_events, &mut out);
            }
            Seen::Error(status) => encoder(None).error(status, &mut out),
        }
        out
    };
    seen.iter().map(write).collect()
}

#[test]
fn recorded_watches_are_written_byte_for_byte() {
    for name in WATCHES {
        let body = fixture(name);
        let (seen, end) = watch(Limits::default(), [&body[..]]);
        end.unwrap();
        // The kind of a stream without changes.
        let pods = ["watch-quiet-bookmarks.pb", "watch-initial-events-pods.pb"].contains(&name);
        let other = TypeMeta::new("v1", if pods { "Pod" } else { "ConfigMap" });
        let frames = rewrite(&seen, |type_meta| {
            let TypeMeta { api_version, kind, .. } = type_meta.unwrap_or(&other).clone();
            let list_kind = format!("{kind}List");
            Encoder::new(encoding_of(name), TypeMeta::new(api_version, kind), list_kind)
        });
        assert_same(&frames.concat(), &body, name);
    }
}

/// The three streams begin with the same 13 config maps. Each recording has its own object after them, so the rest, and
/// `watch-configmaps.pb`, cannot be compared.
#[test]
fn events_are_converted_to_the_recorded_json_and_metadata() {
    let config_maps = TypeMeta::new("v1", "ConfigMapList");
    let (mut seen, _) = watch(Limits::default(), [&fixture("watch-initial-events.pb")[..]]);
    seen.truncate(13);
    let frames = rewrite(&seen, |_| encoder(Encoding::Protobuf, &config_maps).metadata_only());
    let recorded = fixture("watch-configmaps-metadata.pb");
    let frames = frames.concat();
    assert_same(&frames, &recorded[..frames.len()], "watch-configmaps-metadata.pb");

    seen.push(Seen::Bookmark { version: "605".to_owned(), ends_initial_events: true });
    let lines = rewrite(&seen, |_| encoder(Encoding::Json, &config_maps));
    assert_same(&lines.concat(), &fixture("watch-initial-events.json"), "watch-initial-events.json");
}

/// The first objects of the first three have a value: a duration, or a field that the table requires. The last two
/// have a status in newer releases only, which the table cannot tell.
const EXCEPTIONS: [&str; 5] = ["NodeMetrics", "PodMetrics", "PodCertificateRequest", "DeviceTaintRule", "CSINode"];

/// Go's zero object of each kind is the first object of the generated file.
#[test]
fn bookmarks_of_every_kind_are_gos_zero_objects() {
    let bodies = expected("filled.pb");
    let mut kinds = 0;
    for body in frames(&bodies) {
        let mut zero = None;
        let mut type_meta = TypeMeta::default();
        each_item(body, |item| {
            type_meta = item.type_meta().clone();
            zero.get_or_insert_with(|| item.to_box());
        });
        let (api_version, kind) = (type_meta.api_version.as_str(), type_meta.item_kind());
        let message = Message::of(api_version, kind).unwrap();
        if message.path("metadata.name").is_none() {
            continue; // not an object of a collection
        }
        let mut out = Vec::new();
        encoder(Encoding::Protobuf, &type_meta).bookmark("", false, &mut out);
        let expected = event_frame("BOOKMARK", &body_of(api_version, kind, &zero.unwrap()));
        if !EXCEPTIONS.contains(&kind) {
            assert_same(&out, &expected, &format!("{api_version} {kind}"));
        }
        out.clear();
        encoder(Encoding::Json, &type_meta).bookmark("7", true, &mut out);
        let head = format!(
            r#"{{"type":"BOOKMARK","object":{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{{"resourceVersion":"7","annotations":{{"k8s.io/initial-events-end":"true"}}}}"#
        );
        assert!(out.starts_with(head.as_bytes()), "{}", out.escape_ascii());
        kinds += 1;
    }
    assert!(kinds > 100, "{kinds}");
}

#[test]
fn bookmarks_of_other_kinds_have_only_metadata() {
    let widgets = |encoding| encoder(encoding, &TypeMeta::new("example.com/v1", "WidgetList"));
    let json = |ends| {
        let mut out = Vec::new();
        widgets(Encoding::Json).bookmark("7", ends, &mut out);
        String::from_utf8(out).unwrap()
    };
    let head = r#"{"type":"BOOKMARK","object":{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"#;
    assert_eq!(json(false), format!("{head}\"resourceVersion\":\"7\"}}}}}}\n"));
    let annotations = r#""annotations":{"k8s.io/initial-events-end":"true"},"#;
    assert_eq!(json(true), format!("{head}{annotations}\"resourceVersion\":\"7\"}}}}}}\n"));

    let metadata = b"\x0a\x13\x0a\0\x12\0\x1a\0\x22\0\x2a\0\x32\x03604\x38\0\x42\0";
    for (encoder, api_version, kind) in [
        (widgets(Encoding::Protobuf), "example.com/v1", "Widget"),
        (widgets(Encoding::Protobuf).metadata_only(), "meta.k8s.io/v1", "PartialObjectMetadata"),
    ] {
        let mut out = Vec::new();
        encoder.bookmark("604", false, &mut out);
        assert_same(&out, &event_frame("BOOKMARK", &body_of(api_version, kind, metadata)), kind);
    }
}

fn recorded_errors() -> Vec<(String, Vec<u8>)> {
    let names = [
        "400-continue-with-version.pb",
        "400-field-selector.pb",
        "401.pb",
        "403.pb",
        "404-no-such-object.pb",
        "404-no-such-resource.body",
        "406-custom-resource.pb",
        "410-continue.pb",
        "410-exact.pb",
        "422-exact-zero.pb",
        "422-match-alone.pb",
        "504-version-too-large.pb",
    ];
    let names = names.map(|name| format!("error-{name}")).into_iter().chain(["watch-406.pb".to_owned()]);
    names.map(|name| (name.clone(), fixture(&name))).collect()
}

/// Returns the JSON that Go writes for a Status in protobuf.
fn json_of(object: &[u8]) -> String {
    let type_meta = TypeMeta::new("v1", "Status");
    let mut json = Vec::new();
    ItemRef::new(Encoding::Protobuf, object).with_type_meta(&type_meta).to_json(&mut json).unwrap();
    String::from_utf8(json).unwrap() + "\n"
}

#[test]
fn recorded_errors_are_written_byte_for_byte() {
    for (name, body) in recorded_errors() {
        let error = decode(Limits::default(), [&body[..]]).unwrap_err();
        let found = error.status().unwrap();
        let mut out = Vec::new();
        status(Encoding::Protobuf, found, &mut out);
        assert_same(&out, &body, &name);
        out.clear();
        status(Encoding::Json, found, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), json_of(&Unknown::decode(&body[4..]).unwrap().raw), "{name}");
    }
}

#[test]
fn a_full_status_has_the_members_of_gos_struct() {
    let mut full = Status::default();
    (full.status, full.message, full.reason, full.code) = ("Failure".into(), "<\"\n".into(), "Expired".into(), 410);
    let mut metadata = ListMeta::default();
    (metadata.resource_version, metadata.continue_token) = ("7".into(), "token".into());
    metadata.remaining_item_count = Some(0);
    metadata.shard_info = Some(ShardInfo::default());
    full.metadata = Some(metadata);
    let mut details = StatusDetails::default();
    (details.name, details.group, details.kind) = ("n".into(), "g".into(), "pods".into());
    (details.uid, details.retry_after_seconds) = ("u".into(), -3);
    let mut cause = StatusCause::default();
    (cause.reason, cause.message, cause.field) = ("R".into(), "m".into(), "f".into());
    details.causes = vec![cause, StatusCause::default()];
    full.details = Some(details);
    let mut empty_details = Status::default();
    empty_details.details = Some(StatusDetails::default());
    for given in [full, empty_details, Status::default()] {
        let mut protobuf = Vec::new();
        status(Encoding::Protobuf, &given, &mut protobuf);
        let object = Unknown::decode(&protobuf[4..]).unwrap().raw;
        let mut read = Status::decode(&object[..]).unwrap();
        // Go always writes the metadata.
        read.metadata = read.metadata.filter(|_| given.metadata.is_some());
        assert_eq!(read, given);
        let mut json = Vec::new();
        status(Encoding::Json, &given, &mut json);
        assert_eq!(String::from_utf8(json).unwrap(), json_of(&object));
    }
}

#[test]
fn the_version_of_an_event_is_replaced() {
    let meta = |version: &str| {
        let fields = [len_field(1, b"a"), len_field(6, version.as_bytes()), b"\x38\0".to_vec(), len_field(8, b"")];
        [len_field(1, &fields.concat()), len_field(2, b"\x1a\0")].concat()
    };
    let long = "9".repeat(200);
    for version in ["8", "1234567", "", &long] {
        let encoder = encoder(Encoding::Protobuf, &TypeMeta::new("v1", "PodList"));
        let object = meta("777");
        let item = ItemRef::new(Encoding::Protobuf, &object);
        let mut out = Vec::new();
        encoder.event(EventType::Deleted, &item, Some(version), &mut out).unwrap();
        assert_same(&out, &event_frame("DELETED", &body_of("v1", "Pod", &meta(version))), version);
        // The metadata alone.
        out.clear();
        encoder.metadata_only().event(EventType::Deleted, &item, Some(version), &mut out).unwrap();
        let expected = &meta(version)[..meta(version).len() - 4];
        let expected = body_of("meta.k8s.io/v1", "PartialObjectMetadata", expected);
        assert_same(&out, &event_frame("DELETED", &expected), version);
    }

    let widget = |encoder: &Encoder, object: &str, version| {
        let mut out = Vec::new();
        let item = ItemRef::new(Encoding::Json, object.as_bytes());
        encoder.event(EventType::Deleted, &item, Some(version), &mut out).map_err(|error| error.to_string())?;
        let out = String::from_utf8(out).unwrap();
        Ok::<_, String>(out.strip_prefix(r#"{"type":"DELETED","object":"#).unwrap().strip_suffix("}\n").unwrap().into())
    };
    let widgets = encoder(Encoding::Json, &TypeMeta::new("example.com/v1", "WidgetList"));
    for (object, expected) in [
        (
            r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","resourceVersion":"7","uid":"u"},"spec":{"resourceVersion":"7"}}"#,
            r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","resourceVersion":"12","uid":"u"},"spec":{"resourceVersion":"7"}}"#,
        ),
        (
            r#"{"metadata" : { "resourceVersion" : "7" }}"#,
            r#"{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"resourceVersion":"12"}}"#,
        ),
    ] {
        let written: String = widget(&widgets, object, "12").unwrap();
        assert_eq!(written, expected);
    }
    let partial: String =
        widget(&widgets.clone().metadata_only(), r#"{"metadata":{"uid":"u","resourceVersion":"7"}}"#, "12").unwrap();
    assert_eq!(
        partial,
        r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"uid":"u","resourceVersion":"12"}}"#
    );
    for object in ["{}", r#"{"metadata":{"name":"a"}}"#, r#"{"metadata":null}"#] {
        let error = widget(&widgets, object, "12").map(|_: String| ()).unwrap_err();
        assert_eq!(error, "no value in metadata.resourceVersion", "{object}");
    }
    for object in [&b""[..], b"\x0a\0", b"\x12\0"] {
        let item = ItemRef::new(Encoding::Protobuf, object);
        let error = encoder(Encoding::Protobuf, &TypeMeta::new("v1", "PodList"))
            .event(EventType::Deleted, &item, Some("1"), &mut Vec::new())
            .unwrap_err();
        assert_eq!(error.to_string(), "no value in metadata.resourceVersion", "{object:?}");
    }
}

/// A protobuf object whose version is replaced is also converted to JSON.
#[test]
fn the_version_of_a_converted_event_is_replaced() {
    let object = config_map("a", "u", "7");
    let mut out = Vec::new();
    encoder(Encoding::Json, &TypeMeta::new("v1", "ConfigMapList"))
        .event(EventType::Deleted, &ItemRef::new(Encoding::Protobuf, &object), Some("8"), &mut out)
        .unwrap();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        r#"{"type":"DELETED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"default","uid":"u","resourceVersion":"8"}}}"#.to_owned() + "\n"
    );
}

#[test]
fn an_error_leaves_the_output_unchanged() {
    let (json, protobuf) = (Encoding::Json, Encoding::Protobuf);
    let pods = TypeMeta::new("v1", "PodList");
    let widgets = TypeMeta::new("example.com/v1", "WidgetList");
    let cut = len_field(2, b"\xfa\x7f\x05ab");
    let no_kind = "unknown fields: no table for the kind \"Widget\" of \"example.com/v1\"";
    let wrong = "unexpected encoding: the item is in JSON, expected protobuf";
    for (encoder, stored, object, expected) in [
        (encoder(protobuf, &widgets), json, &b"{}"[..], wrong),
        (encoder(protobuf, &widgets).metadata_only(), json, b"{}", wrong),
        (encoder(json, &widgets), protobuf, b"", no_kind),
        (encoder(json, &pods), protobuf, &cut, "a length past the end of its parent in field Pod.spec"),
        (encoder(json, &widgets).metadata_only(), json, b"[]", "a value of the wrong type in metadata"),
        (encoder(json, &widgets).metadata_only(), json, br#"{"metadata":{"name":}}"#, "invalid JSON in metadata"),
        (
            encoder(protobuf, &pods).metadata_only(),
            protobuf,
            b"\x0a",
            "a length past the end of its parent in the object",
        ),
        (encoder(protobuf, &pods).metadata_only(), protobuf, b"\x08\x01", "the wrong wire type in metadata"),
    ] {
        let item = ItemRef::new(stored, object);
        let mut out = Vec::new();
        let mut body = encoder.list_head(&ListMeta::default(), 0, &mut out);
        let before = out.clone();
        let errors = [
            encoder.item(&mut body, &item, &mut out).unwrap_err(),
            encoder.object(&item, &mut out).unwrap_err(),
            encoder.event(EventType::Added, &item, None, &mut out).unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.to_string(), expected);
        }
        assert_eq!(out, before);
        // The list continues without a comma too many.
        if encoder.encoding() == json && stored == json {
            for object in [&br#"{"a":1}"#[..], br#"{"a":2}"#] {
                encoder.item(&mut body, &ItemRef::new(json, object), &mut out).unwrap();
            }
            encoder.list_tail(body, &ListMeta::default(), &mut out);
            serde_json::from_slice::<serde::de::IgnoredAny>(&out).unwrap();
        }
    }
}

#[test]
fn fields_that_json_leaves_out_are_counted() {
    let object = [config_map("a", "u", "7"), len_field(2047, b"x")].concat();
    let item = ItemRef::new(Encoding::Protobuf, &object);
    let config_maps = encoder(Encoding::Json, &TypeMeta::new("v1", "ConfigMapList"));
    for (encoder, expected) in [(config_maps.clone(), 1), (config_maps.metadata_only(), 0)] {
        let mut out = Vec::new();
        let mut body = encoder.list_head(&ListMeta::default(), 0, &mut out);
        assert_eq!(encoder.item(&mut body, &item, &mut out).unwrap(), expected);
        assert_eq!(encoder.object(&item, &mut out).unwrap(), expected);
        assert_eq!(encoder.event(EventType::Added, &item, None, &mut out).unwrap(), expected);
    }
}

/// Pods of many shapes, which prost encoded: without Go's empty fields.
#[test]
fn synthesized_pods_round_trip() {
    let corpus = listwatch_corpus::pods(200);
    let pods = decode(Limits::default(), [&corpus[..]]).unwrap().0;
    let protobuf =
        write(&encoder(Encoding::Protobuf, &pods.type_meta), Encoding::Protobuf, &pods.items, &pods.list_meta);
    assert_eq!(decode(Limits::default(), [&protobuf[..]]).unwrap().0, pods);

    let json = write(&encoder(Encoding::Json, &pods.type_meta), Encoding::Protobuf, &pods.items, &pods.list_meta);
    let read = decode(Limits::default(), [&json[..]]).unwrap().0;
    assert_eq!((&read.type_meta, &read.list_meta), (&pods.type_meta, &pods.list_meta));
    let mut objects = ListReader::with(&corpus[..], |item| {
        let mut json = Vec::new();
        item.to_json(&mut json).map(|_| json)
    });
    for item in read.items {
        // An item is the object without its type meta.
        let object = objects.next().unwrap().unwrap();
        let rest = object.strip_prefix(br#"{"kind":"Pod","apiVersion":"v1","#).unwrap();
        assert_same(item.strip_prefix(b"{").unwrap(), rest, "a pod");
    }
}

/// An object with a version and other fields.
fn object() -> impl Strategy<Value = (Vec<u8>, String)> {
    ("[a-z]{1,20}", "[1-9][0-9]{0,30}", vec(any::<u8>(), 0..300)).prop_map(|(name, version, more)| {
        ([config_map(&name, "u", &version), len_field(2, &len_field(1, &more))].concat(), version)
    })
}

fn list_meta() -> impl Strategy<Value = ListMeta> {
    (".{0,20}", ".{0,200}", any::<Option<i64>>(), any::<Option<String>>()).prop_map(|(version, token, count, shard)| {
        let mut list_meta = ListMeta::default();
        (list_meta.resource_version, list_meta.continue_token, list_meta.remaining_item_count) =
            (version, token, count);
        list_meta.shard_info = shard.map(|selector| {
            let mut shard_info = ShardInfo::default();
            shard_info.selector = selector;
            shard_info
        });
        list_meta
    })
}

proptest! {
    #![proptest_config(randomized(200, 5000))]

    #[test]
    fn lists_round_trip(objects in vec(object(), 0..8), list_meta in list_meta()) {
        let items: Vec<_> = objects.into_iter().map(|(object, _)| object).collect();
        let numbered: Vec<_> = (0..items.len()).map(|n| format!(r#"{{"n":{n}}}"#).into_bytes()).collect();
        // The type meta, and whether the server writes the shard of such a list in protobuf and in JSON.
        for (type_meta, in_protobuf, in_json) in [
            (TypeMeta::new("v1", "ConfigMapList"), true, true),
            (TypeMeta::new("meta.k8s.io/v1beta1", "PartialObjectMetadataList"), false, false),
            (TypeMeta::new("example.com/v1", "WidgetList"), true, false),
        ] {
            for (encoding, items, has_shard) in
                [(Encoding::Protobuf, &items, in_protobuf), (Encoding::Json, &numbered, in_json)]
            {
                let body = write(&encoder(encoding, &type_meta), encoding, items, &list_meta);
                let mut served = list_meta.clone();
                served.shard_info = served.shard_info.filter(|_| has_shard);
                let read = decode(Limits::default(), [&body[..]]).unwrap().0;
                let expected = List { type_meta: type_meta.clone(), list_meta: served, items: items.clone() };
                prop_assert_eq!(read, expected);
            }
        }
    }

    #[test]
    fn watches_round_trip(events in vec((object(), 0..3_usize, any::<Option<u32>>()), 0..8), at in "[1-9][0-9]{0,9}", ends in any::<bool>()) {
        let names = ["ADDED", "MODIFIED", "DELETED"];
        let encoder = encoder(Encoding::Protobuf, &TypeMeta::new("v1", "ConfigMapList"));
        let (mut body, mut expected) = (Vec::new(), Vec::new());
        for ((object, version), event, replaced) in events {
            let replaced = replaced.map(|version| version.to_string());
            let item = ItemRef::new(Encoding::Protobuf, &object);
            let kind = event_type(names[event]);
            encoder.event(kind, &item, replaced.as_deref(), &mut body).unwrap();
            expected.push((names[event], replaced.unwrap_or(version), item.meta().unwrap().name().to_string()));
        }
        encoder.bookmark(&at, ends, &mut body);
        let (mut seen, end) = watch(Limits::default(), [&body[..]]);
        end.unwrap();
        prop_assert_eq!(seen.pop(), Some(Seen::Bookmark { version: at, ends_initial_events: ends }));
        let seen: Vec<_> = seen.into_iter().map(|seen| match seen {
            Seen::Changed { event, object, version, .. } => {
                let name = ItemRef::new(Encoding::Protobuf, &object).meta().unwrap().name().to_string();
                (event, version, name)
            }
            seen => panic!("{seen:?}"),
        }).collect();
        prop_assert_eq!(seen, expected);
    }
}

/// The number of fields that JSON leaves out is over 0 if and only if the walk finds one.
#[test]
fn unknown_fields_are_found_in_entries_and_groups() -> Result<(), ItemError> {
    let type_meta = TypeMeta::new("v1", "ConfigMap");
    for (object, expected) in [
        (config_map("a", "u", "7"), false),
        (len_field(1, &len_field(99, b"")), true),
        (len_field(2, &len_field(3, b"")), true),
        (b"\x33\x08\x01\x10\x02\x34".to_vec(), true),
    ] {
        let item = ItemRef::new(Encoding::Protobuf, &object).with_type_meta(&type_meta);
        assert_eq!(item.has_unknown_fields()?, expected, "{object:x?}");
    }
    assert!(!ItemRef::new(Encoding::Json, br#"{"unknown":1}"#).has_unknown_fields()?);
    let no_kind = ItemRef::new(Encoding::Protobuf, b"").has_unknown_fields();
    assert!(matches!(no_kind, Err(ItemError::UnknownKind { .. })));
    Ok(())
}
