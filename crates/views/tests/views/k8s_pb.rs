//! Every accessor reads the value that k8s-pb decodes, for the fields that k8s-pb has; and an object that is rewritten
//! into its canonical form decodes to the same value.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use fastrand::Rng;
use listwatch::schema::{Field, Message};
use listwatch::{Encoding, ItemRef, ListReader, TypeMeta};
use proptest::prelude::*;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, encode_key, encode_varint};

use crate::generated::{canonical, walk};
use crate::json::bodies;
use crate::pb::{self, KINDS};

pub type Objects = HashMap<(String, String), Vec<Vec<u8>>>;

pub fn objects() -> Objects {
    let mut objects = Objects::new();
    for body in [bodies("filled"), bodies("releases")].concat() {
        for item in ListReader::with(&body[..], |item| {
            let TypeMeta { api_version, .. } = item.type_meta();
            Ok::<_, listwatch::ItemError>((
                (api_version.clone(), item.type_meta().item_kind().to_owned()),
                item.bytes().to_vec(),
            ))
        }) {
            let (kind, object) = item.unwrap();
            objects.entry(kind).or_default().push(object);
        }
    }
    objects
}

/// Compares all values of a view with the values that k8s-pb decodes.
fn compare(api_version: &str, kind: &str, object: &[u8]) {
    let node = walk(api_version, kind, ItemRef::new(Encoding::Protobuf, object)).unwrap().unwrap();
    pb::compare(&node, &pb::decode(api_version, kind, object).unwrap().unwrap(), kind);
}

#[test]
fn objects_of_every_kind_equal_the_decoded_ones() {
    let objects = objects();
    let mut kinds = HashSet::new();
    for (api_version, kind) in KINDS {
        for object in objects.get(&(api_version.to_string(), kind.to_string())).into_iter().flatten() {
            compare(api_version, kind, object);
            kinds.insert((api_version, kind));
        }
        compare(api_version, kind, b"");
    }
    assert!(kinds.len() * 10 > KINDS.len() * 9, "{} of {}", kinds.len(), KINDS.len());
}

/// Encodes the same object differently, or another object: fields in another order, messages in pieces, fields and
/// entries of maps twice, unknown fields, packed numbers, long varints.
struct Mutation {
    rng: Rng,
    unknown: Vec<Vec<u8>>,
}

impl Mutation {
    fn chance(&mut self, one_in: u32) -> bool {
        self.rng.u32(..one_in) == 0
    }

    fn message(&mut self, message: Option<&Message>, mut bytes: &[u8]) -> Vec<u8> {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let whole = bytes;
            let (number, wire_type) = decode_key(&mut bytes).unwrap();
            let field = message.and_then(|message| message.field(number));
            match wire_type {
                WireType::Varint => {
                    let value = decode_varint(&mut bytes).unwrap();
                    fields.push(if self.chance(8) {
                        // An overlong varint.
                        let mut field = Vec::new();
                        encode_key(number, wire_type, &mut field);
                        (0..9).for_each(|place| field.push((value >> (7 * place)).to_le_bytes()[0] | 0x80));
                        field.push((value >> 63).to_le_bytes()[0]);
                        field
                    } else {
                        whole[..whole.len() - bytes.len()].to_vec()
                    });
                }
                WireType::LengthDelimited => {
                    let len = usize::try_from(decode_varint(&mut bytes).unwrap()).unwrap();
                    let (value, rest) = bytes.split_at(len);
                    bytes = rest;
                    let inner = field.and_then(Field::message);
                    let is_map = field.is_some_and(Field::is_map);
                    let value = if inner.is_some() || is_map { self.message(inner, value) } else { value.to_vec() };
                    let mut pieces = vec![value.clone()];
                    if (inner.is_some() || is_map) && self.chance(6) {
                        // Any field boundary, or the whole twice.
                        let (mut rest, mut ends) = (&value[..], vec![]);
                        while !rest.is_empty() {
                            let (number, wire_type) = decode_key(&mut rest).unwrap();
                            prost::encoding::skip_field(wire_type, number, &mut rest, DecodeContext::default())
                                .unwrap();
                            ends.push(value.len() - rest.len());
                        }
                        let at = ends.get(self.rng.usize(..=ends.len())).copied().unwrap_or_default();
                        pieces =
                            if is_map { vec![value.clone(); 2] } else { vec![value[..at].into(), value[at..].into()] };
                    }
                    for piece in pieces {
                        let mut field = Vec::new();
                        encode_key(number, wire_type, &mut field);
                        encode_varint(piece.len() as u64, &mut field);
                        field.extend(piece);
                        fields.push(field);
                    }
                }
                WireType::SixtyFourBit => {
                    bytes = &bytes[8..];
                    fields.push(whole[..whole.len() - bytes.len()].to_vec());
                }
                wire_type => panic!("{wire_type:?}"),
            }
            if self.chance(20) {
                fields.push(fields[self.rng.usize(..fields.len())].clone());
            }
        }
        if message.is_some() && self.chance(4) {
            let mut unknown = Vec::new();
            encode_key(self.rng.u32(3000..4000), WireType::LengthDelimited, &mut unknown);
            unknown.push(8);
            unknown.extend(self.rng.u64(..).to_le_bytes());
            self.unknown.push(unknown.clone());
            fields.push(unknown);
        }
        if self.chance(2) {
            self.rng.shuffle(&mut fields);
        }
        fields.concat()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None,
        max_shrink_iters: 0, ..ProptestConfig::with_cases(if std::env::var_os("LISTWATCH_THOROUGH").is_some() { 100 } else { 4 }) })]

    /// prost decodes the same value from an object and from its canonical form, and the view of that reads the same.
    #[test]
    fn a_rewritten_object_decodes_to_the_same_value(seed: u64) {
        static OBJECTS: LazyLock<Objects> = LazyLock::new(objects);
        let mut rewritten = 0;
        for (api_version, kind) in KINDS {
            let message = Message::of(api_version, kind);
            let mut mutation = Mutation { rng: Rng::with_seed(seed), unknown: Vec::new() };
            let Some(objects) = OBJECTS.get(&(api_version.to_string(), kind.to_string())) else { continue };
            let object = &objects[mutation.rng.usize(..objects.len())];
            let object = mutation.message(message, object);
            let item = ItemRef::new(Encoding::Protobuf, &object);
            let bytes = canonical(api_version, kind, item).unwrap().unwrap();
            let is_same = bytes == object;
            rewritten += usize::from(!is_same);
            let [before, after] = [&object[..], &bytes].map(|bytes| {
                format!("{:?}", pb::decode(api_version, kind, bytes).unwrap().unwrap())
            });
            assert_eq!(before, after, "{kind}, seed {seed}");
            compare(api_version, kind, &bytes);
            for unknown in mutation.unknown {
                assert!(bytes.windows(unknown.len()).any(|window| window == unknown), "{kind}, seed {seed}");
            }
            // An object is rewritten only if it cannot be viewed.
            let view = walk(api_version, kind, ItemRef::new(Encoding::Protobuf, &object)).unwrap();
            assert_eq!(view.is_ok(), is_same);
        }
        assert!(rewritten * 2 > KINDS.len(), "{rewritten}");
    }
}
