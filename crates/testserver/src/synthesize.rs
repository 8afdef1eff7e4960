//! Lists of any length, made from a short recorded list while they are read.

use std::io::{self, Read};
use std::sync::Arc;

use crate::wire::{self, Malformed, put_field, put_header};

const MAGIC: &[u8] = b"k8s\0";
/// The end of every envelope: an empty content encoding and an empty content type.
const ENVELOPE_END: &[u8] = &[0x1a, 0, 0x22, 0];
/// The length of a uid such as `c669ee5d-f1b1-46c6-8d42-4c89db26f301`.
const UID_LENGTH: usize = 36;
/// Item `i` has the resource version `FIRST_VERSION + i`, which has the same number of digits for every `i`.
const FIRST_VERSION: u64 = 1_000_000_000;
const VERSION_DIGITS: usize = 10;
/// A name and a uid hold `i` in this many hexadecimal digits.
const HEX_DIGITS: usize = 8;

/// A protobuf list body of N items, made from a recorded list.
///
/// The recorded items are repeated in turn. Each copy has its own name, uid and resource version (the name is the
/// recorded name, `-`, and the item's index in 8 hexadecimal digits); all other fields stay as recorded. The list meta
/// keeps its resource version, and loses its continue token and its remaining item count. A synthesized list compresses
/// better than a list of a real cluster, whose items differ in more fields.
///
/// All copies of a recorded item have the same length, so the length of the body is known in advance. Items are made
/// while the body is read, which takes the memory of one item at a time. A clone shares the recorded items.
#[derive(Clone, Debug)]
pub struct Synthesizer {
    shared: Arc<Prepared>,
    items: u32,
    length: u64,
}

/// Why a list cannot be synthesized from a recorded body.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SynthesizeError {
    /// It does not start with `k8s\0`.
    #[error("not a Kubernetes protobuf body: it does not start with \"k8s\\0\"")]
    NoMagic,
    /// It is not a well-formed protobuf message of a list.
    #[error("malformed protobuf in {0}")]
    Malformed(&'static str),
    /// Its kind does not end in `List`.
    #[error("kind {0:?} is not a list")]
    NotAList(String),
    /// It is a list with its items in another field than usual (`PartialObjectMetadataList` of `meta.k8s.io/v1beta1`).
    #[error("lists of {0} have another layout")]
    OtherLayout(&'static str),
    /// Its content encoding or its content type is not empty.
    #[error("the content of the envelope is encoded")]
    Encoded,
    /// It has no item to repeat.
    #[error("the recorded list has no items")]
    NoItems,
    /// An item lacks a field that each copy has its own value of, or its uid is not of the usual form.
    #[error("item {item} has no usable {field}")]
    MissingField {
        /// The index of the item in the recorded list.
        item: usize,
        /// `metadata.name`, `metadata.uid` or `metadata.resourceVersion`.
        field: &'static str,
    },
}

/// The parts of the recorded list, which all clones and readers share.
#[derive(Debug)]
struct Prepared {
    /// The envelope up to the length of `raw`. That length depends on the number of items.
    type_meta: Vec<u8>,
    list_meta: Vec<u8>,
    templates: Vec<Template>,
}

/// A recorded item, with its tag and length in the list, and the offsets at which its copies differ.
#[derive(Debug)]
struct Template {
    bytes: Vec<u8>,
    name_suffix: usize,
    uid: usize,
    version: usize,
}

impl Synthesizer {
    /// Prepares the body of a list of `items` items.
    ///
    /// # Errors
    /// When `recorded` is not the complete protobuf body of a list, or an item has no name, no uid of the usual form or
    /// no resource version; when it has no items, and `items` is not 0.
    pub fn new(recorded: &[u8], items: u32) -> Result<Self, SynthesizeError> {
        let prepared = Prepared::new(recorded)?;
        if prepared.templates.is_empty() && items > 0 {
            return Err(SynthesizeError::NoItems);
        }
        let mut synthesizer = Self { shared: Arc::new(prepared), items, length: 0 };
        synthesizer.length = synthesizer.head().len() as u64 + synthesizer.items_length() + ENVELOPE_END.len() as u64;
        Ok(synthesizer)
    }

    /// Returns how many items the list has.
    #[must_use]
    pub fn items(&self) -> u32 {
        self.items
    }

    /// Returns how many bytes the body has.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "every body has an envelope, so none is empty")]
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Returns a reader of the body, from its start.
    #[must_use]
    pub fn reader(&self) -> SynthesizerReader {
        SynthesizerReader { synthesizer: self.clone(), piece: self.head(), read: 0, next: Next::Item(0) }
    }

    /// Returns the whole body.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut reader = self.reader();
        let mut body = Vec::with_capacity(usize::try_from(self.length).unwrap_or(0));
        loop {
            body.extend_from_slice(&reader.piece);
            if !reader.advance() {
                return body;
            }
        }
    }

    /// The bytes before the first item.
    fn head(&self) -> Vec<u8> {
        let Prepared { type_meta, list_meta, .. } = &*self.shared;
        let mut head = type_meta.clone();
        put_header(&mut head, 2, list_meta.len() as u64 + self.items_length());
        head.extend_from_slice(list_meta);
        head
    }

    fn items_length(&self) -> u64 {
        let lengths = || self.shared.templates.iter().map(|template| template.bytes.len() as u64);
        let count = (self.shared.templates.len() as u64).max(1);
        let rounds = u64::from(self.items) / count;
        let rest = u64::from(self.items) % count;
        rounds * lengths().sum::<u64>() + lengths().zip(0..rest).map(|(length, _)| length).sum::<u64>()
    }
}

/// A reader that makes the body of a [`Synthesizer`] while it is read. Reading never fails.
#[derive(Clone, Debug)]
pub struct SynthesizerReader {
    synthesizer: Synthesizer,
    /// The current part of the body: head, item or end.
    piece: Vec<u8>,
    /// How many bytes of `piece` were read; at most its length.
    read: usize,
    next: Next,
}

/// What follows the current piece.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// The item of this index, or the end of the envelope after the last item.
    Item(u32),
    Nothing,
}

impl SynthesizerReader {
    /// Makes the next piece; returns false when there is none.
    fn advance(&mut self) -> bool {
        self.piece.clear();
        self.read = 0;
        match self.next {
            Next::Item(index) if index < self.synthesizer.items => {
                let templates = &self.synthesizer.shared.templates;
                templates[index as usize % templates.len()].instantiate(index, &mut self.piece);
                self.next = Next::Item(index + 1);
            }
            Next::Item(_) => {
                self.piece.extend_from_slice(ENVELOPE_END);
                self.next = Next::Nothing;
            }
            Next::Nothing => return false,
        }
        true
    }
}

impl Read for SynthesizerReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.read == self.piece.len() && !self.advance() {
            return Ok(0);
        }
        let length = out.len().min(self.piece.len() - self.read);
        out[..length].copy_from_slice(&self.piece[self.read..][..length]);
        self.read += length;
        Ok(length)
    }
}

impl Prepared {
    fn new(recorded: &[u8]) -> Result<Self, SynthesizeError> {
        let envelope = recorded.strip_prefix(MAGIC).ok_or(SynthesizeError::NoMagic)?;
        let mut type_meta = &[][..];
        let mut raw = None;
        for field in wire::fields(envelope) {
            let field = field.map_err(in_message("the envelope"))?;
            match field.number {
                1 => type_meta = field.content,
                2 => raw = Some(field.content),
                3 | 4 if !field.content.is_empty() => return Err(SynthesizeError::Encoded),
                _ => {}
            }
        }
        check_kind(type_meta)?;
        let raw = raw.ok_or(SynthesizeError::Malformed("the envelope"))?;

        let mut list_meta = Vec::new();
        let mut templates = Vec::new();
        for field in wire::fields(raw) {
            let field = field.map_err(in_message("the list"))?;
            match field.number {
                1 => put_list_meta(&mut list_meta, field.content)?,
                2 => templates.push(Template::new(field.content, templates.len())?),
                _ => {}
            }
        }
        let mut envelope_start = MAGIC.to_vec();
        put_field(&mut envelope_start, 1, type_meta);
        let mut list_meta_field = Vec::new();
        put_field(&mut list_meta_field, 1, &list_meta);
        Ok(Self { type_meta: envelope_start, list_meta: list_meta_field, templates })
    }
}

fn check_kind(type_meta: &[u8]) -> Result<(), SynthesizeError> {
    let (mut api_version, mut kind) = (&[][..], &[][..]);
    for field in wire::fields(type_meta) {
        let field = field.map_err(in_message("the type meta"))?;
        match field.number {
            1 => api_version = field.content,
            2 => kind = field.content,
            _ => {}
        }
    }
    if !kind.ends_with(b"List") {
        return Err(SynthesizeError::NotAList(String::from_utf8_lossy(kind).into_owned()));
    }
    if kind == b"PartialObjectMetadataList" && api_version == b"meta.k8s.io/v1beta1" {
        return Err(SynthesizeError::OtherLayout("meta.k8s.io/v1beta1"));
    }
    Ok(())
}

/// Appends the fields of a list meta, with an empty continue token and without the remaining item count.
fn put_list_meta(out: &mut Vec<u8>, recorded: &[u8]) -> Result<(), SynthesizeError> {
    for field in wire::fields(recorded) {
        let field = field.map_err(in_message("the list meta"))?;
        match field.number {
            3 => put_field(out, 3, &[]),
            4 => {}
            _ => out.extend_from_slice(field.whole),
        }
    }
    Ok(())
}

impl Template {
    /// Prepares the recorded item of this index.
    fn new(item: &[u8], index: usize) -> Result<Self, SynthesizeError> {
        let mut content = Vec::new();
        // The last occurrence of a field counts, as everywhere in protobuf.
        let mut places = [None; 3];
        for field in wire::fields(item) {
            let field = field.map_err(in_message("an item"))?;
            if field.number == 1 {
                let (metadata, found) = prepare_metadata(field.content)?;
                put_header(&mut content, 1, metadata.len() as u64);
                for (place, found) in places.iter_mut().zip(found) {
                    *place = found.map(|offset| content.len() + offset).or(*place);
                }
                content.extend_from_slice(&metadata);
            } else {
                content.extend_from_slice(field.whole);
            }
        }
        let mut bytes = Vec::new();
        put_header(&mut bytes, 2, content.len() as u64);
        let place = |place: Option<usize>, field| {
            let offset = place.ok_or(SynthesizeError::MissingField { item: index, field })?;
            Ok(bytes.len() + offset)
        };
        let [name_suffix, uid, version] = places;
        let name_suffix = place(name_suffix, "metadata.name")?;
        let uid = place(uid, "metadata.uid")?;
        let version = place(version, "metadata.resourceVersion")?;
        bytes.extend_from_slice(&content);
        Ok(Self { bytes, name_suffix, uid, version })
    }

    /// Appends the item of this index in the synthesized list.
    fn instantiate(&self, index: u32, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        let item = &mut out[start..];
        put_hex(&mut item[self.name_suffix..][..HEX_DIGITS], index);
        // Multiplying by an odd factor permutes the u32s: the result is as unique as the index, and spread as uids are.
        put_hex(&mut item[self.uid..][..HEX_DIGITS], index.wrapping_mul(0x9e37_79b1));
        put_decimal(&mut item[self.version..][..VERSION_DIGITS], FIRST_VERSION + u64::from(index));
    }
}

/// Makes room for name, uid and resource version, and returns their offsets.
fn prepare_metadata(recorded: &[u8]) -> Result<(Vec<u8>, [Option<usize>; 3]), SynthesizeError> {
    let mut out = Vec::new();
    let mut places = [None; 3];
    for field in wire::fields(recorded) {
        let field = field.map_err(in_message("an item's metadata"))?;
        match field.number {
            1 if !field.content.is_empty() => {
                let name = [field.content, b"-", &[b'0'; HEX_DIGITS]].concat();
                put_field(&mut out, 1, &name);
                places[0] = Some(out.len() - HEX_DIGITS);
            }
            5 if is_uid(field.content) => {
                put_field(&mut out, 5, field.content);
                places[1] = Some(out.len() - UID_LENGTH);
            }
            6 if !field.content.is_empty() => {
                put_field(&mut out, 6, &[b'0'; VERSION_DIGITS]);
                places[2] = Some(out.len() - VERSION_DIGITS);
            }
            _ => out.extend_from_slice(field.whole),
        }
    }
    Ok((out, places))
}

fn is_uid(text: &[u8]) -> bool {
    text.len() == UID_LENGTH
        && text.iter().enumerate().all(|(i, byte)| match i {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

fn put_hex(out: &mut [u8], value: u32) {
    for (digit, byte) in out.iter_mut().zip(value.to_be_bytes().iter().flat_map(|byte| [byte >> 4, byte & 15])) {
        *digit = b"0123456789abcdef"[usize::from(byte)];
    }
}

fn put_decimal(out: &mut [u8], mut value: u64) {
    for digit in out.iter_mut().rev() {
        *digit = b'0' + (value % 10).to_le_bytes()[0];
        value /= 10;
    }
}

fn in_message(name: &'static str) -> impl Fn(Malformed) -> SynthesizeError {
    move |Malformed| SynthesizeError::Malformed(name)
}
