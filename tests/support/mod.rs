//! What the test programs share: an independent decode of a full body, chunks of a body, recorded and made bodies.
#![allow(dead_code, missing_docs, reason = "each test program uses a part of it")]

pub mod config_maps;
pub mod members;
pub mod memory;
pub mod process;
pub mod reference;
pub mod seeds;
pub mod store;
pub mod watch;

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use listwatch::{
    DecodeError, DecodeErrorKind, Encoding, Event, ItemRef, Limit, Limits, ListDecoder, ListEnd, ListMeta, TypeMeta,
    WatchDecoder,
};
use prost::Message as _;

#[allow(unused_imports, reason = "each test program uses a part of it")]
pub use self::reference::{List, Unknown, reference};

/// The error and its sources, as the CLI prints them.
pub fn chain(error: &dyn Error) -> String {
    let source = error.source().map(|source| format!(": {}", chain(source))).unwrap_or_default();
    format!("{error}{source}")
}

/// The number of cases of a randomized test: `thorough` if `LISTWATCH_THOROUGH` is set, as the nightly CI does, else
/// `quick`.
pub fn cases(quick: u64, thorough: u64) -> u64 {
    if std::env::var_os("LISTWATCH_THOROUGH").is_some() { thorough } else { quick }
}

/// A decoder of lists in every encoding.
pub fn list_decoder(limits: Limits) -> ListDecoder {
    ListDecoder::with_limits(limits).accept_json()
}

/// A decoder of watches in every encoding.
pub fn watch_decoder(limits: Limits) -> WatchDecoder {
    WatchDecoder::with_limits(limits).accept_json()
}

/// The list that the decoder returns, in either encoding, with its events checked against each other.
pub fn decode<'a>(limits: Limits, chunks: impl IntoIterator<Item = &'a [u8]>) -> Result<(List, ListEnd), DecodeError> {
    decode_by(list_decoder(limits), chunks)
}

/// The list that this decoder returns.
pub fn decode_by<'a>(
    mut decoder: ListDecoder,
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> Result<(List, ListEnd), DecodeError> {
    let mut list = List { type_meta: TypeMeta::default(), list_meta: ListMeta::default(), items: Vec::new() };
    let (mut received, mut encoding) = (0, None);
    for mut chunk in chunks {
        received += chunk.len() as u64;
        let first = chunk.iter().find(|byte| !byte.is_ascii_whitespace());
        let first = first.map(|byte| if *byte == b'{' { Encoding::Json } else { Encoding::Protobuf });
        encoding = encoding.or(first);
        while let Some(event) = decoder.decode(&mut chunk)? {
            match event {
                Event::TypeMeta(type_meta) => {
                    // A JSON list may have its kind after its items, and more than once.
                    if encoding == Some(Encoding::Protobuf) {
                        assert_eq!((list.items.len(), &list.type_meta), (0, &TypeMeta::default()));
                    }
                    list.type_meta = type_meta.clone();
                }
                Event::ListMeta(list_meta) => list.list_meta = list_meta.clone(),
                Event::Item(item) => {
                    assert_eq!(Some(item.encoding()), encoding);
                    if encoding == Some(Encoding::Protobuf) {
                        assert_eq!(item.type_meta(), &list.type_meta);
                    }
                    assert!(item.index() >= list.items.len() as u64, "skipped items count");
                    list.items.push(item.bytes().to_vec());
                }
                Event::Skipped(error) => {
                    let DecodeErrorKind::Limit { limit, size, max } = *error.kind() else { panic!("{error}") };
                    assert!(limit == Limit::ItemSize && error.limit() == Some(limit) && size > max, "{error}");
                    assert!(
                        error.items() == list.items.len() as u64 && error.index() >= Some(error.items()),
                        "{error}"
                    );
                }
                _ => unreachable!("no other events"),
            }
        }
        assert!(chunk.is_empty());
        assert_eq!(decoder.position(), received);
    }
    let end = decoder.finish()?;
    assert_eq!((&end.type_meta, &end.list_meta), (&list.type_meta, &list.list_meta));
    assert_eq!((end.items, end.bytes), (list.items.len() as u64, received));
    Ok((list, end))
}

/// Calls back for each item of a whole list.
pub fn each_item(mut body: &[u8], mut on_item: impl FnMut(ItemRef<'_>)) {
    let mut decoder = list_decoder(Limits::default());
    while let Some(event) = decoder.decode(&mut body).unwrap() {
        if let Event::Item(item) = event {
            on_item(item);
        }
    }
    decoder.finish().unwrap();
}

/// The texts of an error and of its sources, as `Display` and as `Debug`.
pub fn said(error: &dyn Error) -> String {
    let mut said = format!("{error}\n{error:?}\n{error:#?}");
    let mut source = error.source();
    while let Some(cause) = source {
        write!(said, "\n{cause}\n{cause:?}").unwrap();
        source = cause.source();
    }
    said
}

/// The recorded body of this name.
pub fn fixture(name: &str) -> Vec<u8> {
    fs::read(fixtures().join(name)).unwrap()
}

/// Names and bodies of all recorded protobuf lists.
pub fn lists() -> Vec<(String, Vec<u8>)> {
    let mut lists = Vec::new();
    for entry in fs::read_dir(fixtures()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let is_protobuf = name.rsplit_once('.').is_some_and(|(_, extension)| extension == "pb");
        if is_protobuf && !["error-", "watch-", "single-"].iter().any(|prefix| name.starts_with(prefix)) {
            let body = fixture(&name);
            lists.push((name, body));
        }
    }
    assert_eq!(lists.len(), 20, "all lists of fixtures/");
    lists
}

fn fixtures() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().map(|folder| folder.join("fixtures")).find(|fixtures| fixtures.is_dir()).unwrap()
}

/// Splits a body into chunks of these lengths, used in turn.
pub fn cut<'a>(body: &'a [u8], lengths: &'a [usize]) -> impl Iterator<Item = &'a [u8]> {
    let mut lengths = lengths.iter().cycle();
    let mut rest = body;
    std::iter::from_fn(move || {
        let (chunk, after) = rest.split_at((*lengths.next()?).clamp(1, rest.len().max(1)).min(rest.len()));
        rest = after;
        (!chunk.is_empty()).then_some(chunk)
    })
}

/// A field of wire type 2: bytes, a string or a message.
pub fn len_field(number: u32, value: &[u8]) -> Vec<u8> {
    let mut field = tag(number, 2);
    varint(value.len() as u64, &mut field);
    field.extend_from_slice(value);
    field
}

pub fn tag(number: u32, wire_type: u32) -> Vec<u8> {
    let mut tag = Vec::new();
    varint(u64::from(number << 3 | wire_type), &mut tag);
    tag
}

pub fn varint(value: u64, buffer: &mut Vec<u8>) {
    prost::encoding::encode_varint(value, buffer);
}

/// A body in its envelope: `k8s\0`, a type meta, `raw`, an empty content encoding and an empty content type.
pub fn body_of(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let type_meta = [len_field(1, api_version.as_bytes()), len_field(2, kind.as_bytes())].concat();
    [b"k8s\0", &len_field(1, &type_meta)[..], &len_field(2, raw), b"\x1a\0\x22\0"].concat()
}

/// A frame of a watch: its length, then its bytes.
pub fn framed(frame: &[u8]) -> Vec<u8> {
    [&u32::try_from(frame.len()).unwrap().to_be_bytes()[..], frame].concat()
}

/// A frame of a watch with this event and an object, which is in its envelope.
pub fn event_frame(event: &str, object: &[u8]) -> Vec<u8> {
    framed(&[len_field(1, event.as_bytes()), len_field(2, &len_field(1, object))].concat())
}

/// A ConfigMap of namespace `default`, without its envelope.
pub fn config_map(name: &str, uid: &str, version: &str) -> Vec<u8> {
    let fields = [(1, name), (3, "default"), (5, uid), (6, version)];
    len_field(1, &fields.map(|(number, text)| len_field(number, text.as_bytes())).concat())
}

/// The Status of a failure, without its envelope.
pub fn status(code: u16) -> Vec<u8> {
    let mut status = listwatch::Status::default();
    (status.status, status.code) = ("Failure".into(), i32::from(code));
    status.encode_to_vec()
}
