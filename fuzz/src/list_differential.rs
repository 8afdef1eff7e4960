//! Compares a generated list, changed in a few places, with prost's decode of the full buffer: both return the same
//! items and metadata, or both refuse the list.
//!
//! [`is_stricter`] names each case that prost allows and the decoder does not.

use arbitrary::{Arbitrary, Unstructured};
use listwatch::{DecodeError, DecodeErrorKind, Fault, Limits, TypeMeta};
use prost::Message as _;
use prost::encoding::{DecodeContext, decode_key, skip_field};

use super::support::reference::{RawList, RawListItemsFirst, RuntimeTypeMeta};
use super::support::{List, cut, decode, len_field, tag, varint};

pub fn run(data: &[u8]) {
    let Ok(Input { list, edits, chunk, .. }) = Input::arbitrary_take_rest(Unstructured::new(data)) else { return };
    let mut body = list.encode();
    for edit in edits.iter().take(8) {
        edit.apply(&mut body);
    }
    compare(&body, 1 + usize::from(chunk));
}

pub(super) fn compare(body: &[u8], chunk: usize) {
    let ours = decode(Limits::default(), cut(body, &[chunk]));
    let theirs = by_prost(body);
    match (ours, theirs) {
        (Ok((list, _)), Ok((_, theirs))) => assert_eq!(list, theirs),
        (Err(_), Err(_)) => {}
        (Err(ours), Ok((envelope, _))) => {
            assert!(is_stricter(&ours, body, &envelope), "only the decoder refuses: {ours}: {}", body.escape_ascii());
        }
        // prost counts the messages around a group, and the fields in it, towards its limit of 100 levels.
        (Ok(_), Err(theirs)) => assert!(
            theirs.contains("recursion limit reached"),
            "only prost refuses the list: {theirs}: {}",
            body.escape_ascii()
        ),
    }
}

/// `runtime.Unknown` with every value of a field that occurs more than once.
#[derive(Clone, PartialEq, prost::Message)]
struct Envelope {
    #[prost(message, optional, tag = "1")]
    type_meta: Option<RuntimeTypeMeta>,
    #[prost(bytes = "vec", repeated, tag = "2")]
    raws: Vec<Vec<u8>>,
    #[prost(string, repeated, tag = "3")]
    content_encodings: Vec<String>,
    #[prost(string, repeated, tag = "4")]
    content_types: Vec<String>,
}

fn by_prost(body: &[u8]) -> Result<(Envelope, List), String> {
    let envelope = body.strip_prefix(b"k8s\0").ok_or("no magic")?;
    let envelope = Envelope::decode(envelope).map_err(|error| error.to_string())?;
    let RuntimeTypeMeta { api_version, kind } = envelope.type_meta.clone().unwrap_or_default();
    let raw = envelope.raws.last().map(Vec::as_slice).unwrap_or_default();
    let list = if (&*api_version, &*kind) == ("meta.k8s.io/v1beta1", "PartialObjectMetadataList") {
        RawListItemsFirst::decode(raw).map(|RawListItemsFirst { metadata, items }| RawList { metadata, items })
    } else {
        RawList::decode(raw)
    };
    let RawList { metadata, items } = list.map_err(|error| error.to_string())?;
    let mut type_meta = TypeMeta::default();
    (type_meta.api_version, type_meta.kind) = (api_version, kind);
    Ok((envelope, List { type_meta, list_meta: metadata.unwrap_or_default(), items }))
}

/// Returns true if the error is about something that protobuf allows and a list must not contain.
fn is_stricter(error: &DecodeError, body: &[u8], envelope: &Envelope) -> bool {
    let Envelope { raws, content_encodings, content_types, .. } = envelope;
    // prost reads only the last `raw`, whereas the decoder has returned the items of the first by then. Only a type
    // meta before `raw` says what it contains.
    if raws.len() > 1 || !is_in_order(body) {
        return true;
    }
    let is_not_a_list =
        |kind: &str| !kind.ends_with("List") || ["List", "APIResourceList", "APIGroupList"].contains(&kind);
    match error.kind() {
        // Every list has a list meta, so its `raw` is not missing or empty.
        DecodeErrorKind::Incomplete => raws.is_empty(),
        DecodeErrorKind::Malformed { field: "raw", fault: Fault::Empty } => raws[0].is_empty(),
        // With an encoding or a content type, `raw` is not a protobuf list.
        DecodeErrorKind::Malformed { fault: Fault::NotEmpty, .. } => {
            content_encodings.iter().chain(content_types).any(|text| !text.is_empty())
        }
        DecodeErrorKind::UnexpectedKind { kind, .. } => is_not_a_list(kind),
        DecodeErrorKind::Api(_) | DecodeErrorKind::Malformed { field: "raw", fault: Fault::Status } => {
            body.windows(6).any(|text| text == b"Status")
        }
        _ => false,
    }
}

/// Returns true if a kind precedes `raw` and no type meta follows it.
fn is_in_order(body: &[u8]) -> bool {
    let mut rest = &body[4..];
    let (mut type_meta, mut has_raw) = (RuntimeTypeMeta::default(), false);
    while !rest.is_empty() {
        let (number, wire_type) = decode_key(&mut rest).unwrap();
        let value = rest;
        skip_field(wire_type, number, &mut rest, DecodeContext::default()).unwrap();
        match number {
            1 if has_raw => return false,
            1 => type_meta.merge_length_delimited(value).unwrap(),
            2 if type_meta.kind.is_empty() => return false,
            2 => has_raw = true,
            _ => {}
        }
    }
    true
}

#[derive(Arbitrary)]
struct Input {
    edits: Vec<Edit>,
    chunk: u8,
    list: Body,
}

#[derive(Arbitrary)]
struct Body {
    kind: Kind,
    before: Vec<EnvelopeField>,
    between: Vec<EnvelopeField>,
    raw: Vec<ListField>,
    after: Vec<EnvelopeField>,
}

#[derive(Arbitrary)]
enum Kind {
    Pods,
    Widgets,
    /// A list whose items have field number 1, and its list meta 2.
    OldMetadata,
    Status,
    Pod,
    List,
    Other(String, String),
}

#[derive(Arbitrary)]
enum EnvelopeField {
    TypeMeta(Kind),
    PieceOfTypeMeta(Vec<TypeMetaField>),
    Raw(Vec<ListField>),
    Content(bool, String),
    Unknown(Unknown),
}

#[derive(Arbitrary)]
enum TypeMetaField {
    ApiVersion(String),
    Kind(String),
    Unknown(Unknown),
}

#[derive(Arbitrary)]
enum ListField {
    Item(Vec<u8>),
    EmptyItem,
    ListMeta(Vec<ListMetaField>),
    Unknown(Unknown),
}

#[derive(Arbitrary)]
enum ListMetaField {
    Text(u8, String),
    RemainingItemCount(i64),
    ShardInfo(Vec<ShardInfoField>),
    Unknown(Unknown),
}

#[derive(Arbitrary)]
enum ShardInfoField {
    Selector(String),
    Unknown(Unknown),
}

/// Any field. Its number may be the number of a known field of another type.
#[derive(Arbitrary)]
enum Unknown {
    Varint(u8, u64),
    Fixed64(u8, [u8; 8]),
    Len(u8, Vec<u8>),
    Fixed32(u8, [u8; 4]),
    Group(u8, Vec<Unknown>),
    /// This many nested groups.
    Groups(u8, u8),
    /// A group with number 13, whose tag is `k`, that begins with a field 7, whose tag is `8`: together they begin like
    /// `k8s\0`.
    LikeTheMagic(u64, Vec<Unknown>),
}

#[derive(Arbitrary)]
struct Edit {
    place: u16,
    byte: u8,
    what: What,
}

#[derive(Arbitrary)]
enum What {
    Change,
    Insert,
    Remove,
    CutHere,
    AppendStatus,
}

impl Edit {
    fn apply(&self, body: &mut Vec<u8>) {
        let place = usize::from(self.place) % body.len().max(1);
        match self.what {
            What::Insert => body.insert(place.min(body.len()), self.byte),
            What::AppendStatus => body.extend_from_slice(b"k8s\0\x0a\x0c\x0a\x02v1\x12\x06Status\x12\x03\x30\xf4\x03"),
            _ if body.is_empty() => {}
            What::Change => body[place] = self.byte,
            What::Remove => drop(body.remove(place)),
            What::CutHere => body.truncate(place),
        }
    }
}

impl Body {
    fn encode(&self) -> Vec<u8> {
        let Self { kind, before, between, raw, after } = self;
        let around = |fields: &[EnvelopeField]| concat(fields, |field| field.encode(kind));
        let raw = len_field(2, &concat(raw, |field| field.encode(kind)));
        let type_meta = len_field(1, &kind.encode());
        [&b"k8s\0"[..], &around(before), &type_meta, &around(between), &raw, &around(after)].concat()
    }
}

impl Kind {
    fn encode(&self) -> Vec<u8> {
        let (api_version, kind) = match self {
            Self::Pods => ("v1", "PodList"),
            Self::Widgets => ("example.com/v1", "WidgetList"),
            Self::OldMetadata => ("meta.k8s.io/v1beta1", "PartialObjectMetadataList"),
            Self::Status => ("v1", "Status"),
            Self::Pod => ("v1", "Pod"),
            Self::List => ("v1", "List"),
            Self::Other(api_version, kind) => (&**api_version, &**kind),
        };
        [len_field(1, api_version.as_bytes()), len_field(2, kind.as_bytes())].concat()
    }
}

impl EnvelopeField {
    fn encode(&self, kind: &Kind) -> Vec<u8> {
        match self {
            Self::TypeMeta(kind) => len_field(1, &kind.encode()),
            Self::PieceOfTypeMeta(fields) => len_field(1, &concat(fields, TypeMetaField::encode)),
            Self::Raw(fields) => len_field(2, &concat(fields, |field| field.encode(kind))),
            Self::Content(of_type, text) => len_field(3 + u32::from(*of_type), text.as_bytes()),
            Self::Unknown(field) => field.encode(),
        }
    }
}

impl TypeMetaField {
    fn encode(&self) -> Vec<u8> {
        match self {
            Self::ApiVersion(text) => len_field(1, text.as_bytes()),
            Self::Kind(text) => len_field(2, text.as_bytes()),
            Self::Unknown(field) => field.encode(),
        }
    }
}

impl ListField {
    fn encode(&self, kind: &Kind) -> Vec<u8> {
        let (metadata, items) = if matches!(kind, Kind::OldMetadata) { (2, 1) } else { (1, 2) };
        match self {
            Self::Item(bytes) => len_field(items, bytes),
            Self::EmptyItem => len_field(items, b""),
            Self::ListMeta(fields) => len_field(metadata, &concat(fields, ListMetaField::encode)),
            Self::Unknown(field) => field.encode(),
        }
    }
}

impl ListMetaField {
    fn encode(&self) -> Vec<u8> {
        match self {
            // selfLink, resourceVersion, continue
            Self::Text(number, text) => len_field(1 + u32::from(number % 3), text.as_bytes()),
            Self::RemainingItemCount(count) => {
                let mut field = tag(4, 0);
                varint(count.cast_unsigned(), &mut field);
                field
            }
            Self::ShardInfo(fields) => len_field(5, &concat(fields, ShardInfoField::encode)),
            Self::Unknown(field) => field.encode(),
        }
    }
}

impl ShardInfoField {
    fn encode(&self) -> Vec<u8> {
        match self {
            Self::Selector(text) => len_field(1, text.as_bytes()),
            Self::Unknown(field) => field.encode(),
        }
    }
}

impl Unknown {
    fn encode(&self) -> Vec<u8> {
        // Zero is no valid number; `u8::MAX` stands for the largest valid number.
        let number = |number: u8| if number == u8::MAX { (1 << 29) - 1 } else { u32::from(number % 32) };
        match self {
            Self::Varint(at, value) => {
                let mut field = tag(number(*at), 0);
                varint(*value, &mut field);
                field
            }
            Self::Fixed64(at, bytes) => [tag(number(*at), 1), bytes.to_vec()].concat(),
            Self::Len(at, bytes) => len_field(number(*at), bytes),
            Self::Fixed32(at, bytes) => [tag(number(*at), 5), bytes.to_vec()].concat(),
            Self::Group(at, fields) => {
                [tag(number(*at), 3), concat(fields, Self::encode), tag(number(*at), 4)].concat()
            }
            Self::Groups(at, depth) => {
                let depth = usize::from(*depth);
                [tag(number(*at), 3).repeat(depth), tag(number(*at), 4).repeat(depth)].concat()
            }
            Self::LikeTheMagic(value, fields) => {
                let mut field = b"k8".to_vec();
                varint(*value, &mut field);
                [field, concat(fields, Self::encode), tag(13, 4)].concat()
            }
        }
    }
}

fn concat<T>(fields: &[T], encode: impl Fn(&T) -> Vec<u8>) -> Vec<u8> {
    fields.iter().flat_map(encode).collect()
}
