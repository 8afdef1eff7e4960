//! What the API server stores as a value, and the object in it.

use listwatch::{Encoding, TypeMeta};
use serde_json::value::RawValue;

use crate::key_value::{Field, field, write_bytes};

/// The form of a stored value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoredValue<'a> {
    /// An object of a built-in resource, in the envelope `runtime.Unknown` after `k8s\0`.
    Protobuf {
        /// The version and kind in which it is stored.
        type_meta: TypeMeta,
        /// The object in this version.
        object: &'a [u8],
    },
    /// A custom resource, or any object of a server that stores JSON.
    Json(&'a [u8]),
    /// An object of a server that stores YAML (`--storage-media-type=application/yaml`). The caller parses it, and
    /// passes the JSON to [`Json`](Self::Json).
    Yaml(&'a [u8]),
    /// CBOR, which the API server can store for custom resources since 1.32. It is not read.
    Cbor,
    /// An object that the API server has encrypted (`k8s:enc:PROVIDER:v1:KEY:`).
    Encrypted {
        /// The provider: `aescbc`, `aesgcm`, `secretbox` or `kms`.
        provider: &'a str,
        /// The name of the provider's key, or of the plugin if the provider is `kms`.
        key_name: &'a str,
    },
    /// Something else, such as the text of a key of the API server itself.
    Other,
}

/// The first bytes of a value in protobuf (`apimachinery/pkg/runtime/serializer/protobuf`).
const PROTOBUF: &[u8] = b"k8s\0";
/// The first bytes of an encrypted value (`apiserver/pkg/storage/value/encrypt`).
const ENCRYPTED: &[u8] = b"k8s:enc:";
/// CBOR's own tag, with which the API server begins (RFC 8949, section 3.4.6).
const CBOR: &[u8] = &[0xD9, 0xD9, 0xF7];

impl<'a> StoredValue<'a> {
    /// Recognizes a value. It costs no copy, except of the version and kind. A value in protobuf whose envelope is
    /// damaged is [`Other`](Self::Other).
    #[must_use]
    pub fn of(value: &'a [u8]) -> Self {
        if let Some(envelope) = value.strip_prefix(PROTOBUF) {
            return unknown(envelope).unwrap_or(Self::Other);
        }
        if let Some(rest) = value.strip_prefix(ENCRYPTED) {
            let mut parts =
                rest.splitn(4, |byte| *byte == b':').map(|part| std::str::from_utf8(part).unwrap_or_default());
            let (provider, _version, key_name) = (parts.next(), parts.next(), parts.next());
            return Self::Encrypted { provider: provider.unwrap_or_default(), key_name: key_name.unwrap_or_default() };
        }
        if value.starts_with(CBOR) {
            return Self::Cbor;
        }
        // Go writes the members in alphabetical order.
        if value.starts_with(b"apiVersion:") || value.starts_with(b"kind:") {
            return Self::Yaml(value);
        }
        if value.trim_ascii_start().starts_with(b"{") { Self::Json(value) } else { Self::Other }
    }

    /// Returns the object with its version, as the API server returns it: the server stores objects without
    /// `metadata.resourceVersion` and inserts the revision when it reads them. Returns nothing for forms that are not
    /// read and for damaged objects. It allocates the object anew.
    #[must_use]
    pub fn object(&self, revision: i64) -> Option<(Encoding, Vec<u8>)> {
        match self {
            Self::Protobuf { object, .. } => Some((Encoding::Protobuf, protobuf_object(object, revision)?)),
            Self::Json(object) => Some((Encoding::Json, json_object(object, revision)?)),
            _ => None,
        }
    }
}

/// Reads `runtime.Unknown`: the type meta in field 1, the object in field 2.
fn unknown(mut message: &[u8]) -> Option<StoredValue<'_>> {
    let (mut type_meta, mut object) = (TypeMeta::new("", ""), &b""[..]);
    while !message.is_empty() {
        let (this, rest) = field(message)?;
        message = rest;
        match this {
            (1, Field::Bytes(bytes)) => type_meta = read_type_meta(bytes)?,
            (2, Field::Bytes(raw)) => object = raw,
            // A content encoding, which the API server does not use.
            (3, Field::Bytes(encoding)) if !encoding.is_empty() => return None,
            _ => {}
        }
    }
    Some(StoredValue::Protobuf { type_meta, object })
}

fn read_type_meta(mut message: &[u8]) -> Option<TypeMeta> {
    let (mut api_version, mut kind) = ("", "");
    while !message.is_empty() {
        let (this, rest) = field(message)?;
        message = rest;
        match this {
            (1, Field::Bytes(bytes)) => api_version = std::str::from_utf8(bytes).ok()?,
            (2, Field::Bytes(bytes)) => kind = std::str::from_utf8(bytes).ok()?,
            _ => {}
        }
    }
    Some(TypeMeta::new(api_version, kind))
}

/// Copies an object with another version: field 6 of the metadata, which is field 1 of every object. Fields are in the
/// order in which Go writes them, so the bytes equal those of a response.
fn protobuf_object(mut object: &[u8], revision: i64) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(object.len() + 24);
    let mut has_metadata = false;
    while !object.is_empty() {
        let (this, rest) = field(object)?;
        let raw = object.get(..object.len() - rest.len())?;
        object = rest;
        match this {
            (1, Field::Bytes(metadata)) if !has_metadata => {
                has_metadata = true;
                write_bytes(1, &protobuf_metadata(metadata, revision)?, &mut out);
            }
            _ => out.extend_from_slice(raw),
        }
    }
    has_metadata.then_some(out)
}

fn protobuf_metadata(mut metadata: &[u8], revision: i64) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(metadata.len() + 24);
    let revision = revision.to_string();
    let mut is_written = false;
    while !metadata.is_empty() {
        let (this, rest) = field(metadata)?;
        let raw = metadata.get(..metadata.len() - rest.len())?;
        metadata = rest;
        if this.0 >= 6 && !is_written {
            is_written = true;
            write_bytes(6, revision.as_bytes(), &mut out);
        }
        if this.0 != 6 {
            out.extend_from_slice(raw);
        }
    }
    if !is_written {
        write_bytes(6, revision.as_bytes(), &mut out);
    }
    Some(out)
}

/// Copies an object with another version, which stands where Go would write it: keys are sorted.
fn json_object(object: &[u8], revision: i64) -> Option<Vec<u8>> {
    let members: Members<'_> = serde_json::from_slice(object).ok()?;
    let mut out = Vec::with_capacity(object.len() + 40);
    let mut has_metadata = false;
    out.push(b'{');
    for (index, (name, value)) in members.0.iter().enumerate() {
        write_name(index > 0, name, &mut out)?;
        if name == "metadata" && !has_metadata {
            has_metadata = true;
            json_metadata(value.get(), revision, &mut out)?;
        } else {
            out.extend_from_slice(value.get().as_bytes());
        }
    }
    out.push(b'}');
    has_metadata.then_some(out)
}

fn json_metadata(metadata: &str, revision: i64, out: &mut Vec<u8>) -> Option<()> {
    const NAME: &str = "resourceVersion";
    let members: Members<'_> = serde_json::from_str(metadata).ok()?;
    let value = format!("\"{revision}\"");
    let at = members.0.iter().position(|(name, _)| name.as_str() >= NAME).unwrap_or(members.0.len());
    let (before, after) = members.0.split_at(at);
    let after = after.iter().filter(|(name, _)| name != NAME);
    let before = before.iter().map(|(name, value)| (name.as_str(), value.get()));
    let own = std::iter::once((NAME, value.as_str()));
    out.push(b'{');
    let all = before.chain(own).chain(after.map(|(name, value)| (name.as_str(), value.get())));
    for (index, (name, value)) in all.enumerate() {
        write_name(index > 0, name, out)?;
        out.extend_from_slice(value.as_bytes());
    }
    out.push(b'}');
    Some(())
}

fn write_name(comma: bool, name: &str, out: &mut Vec<u8>) -> Option<()> {
    if comma {
        out.push(b',');
    }
    serde_json::to_writer(&mut *out, name).ok()?;
    out.push(b':');
    Some(())
}

/// The members of an object, in their order, with their values as text.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> serde::Deserialize<'de> for Members<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognizes_values() {
        let envelope = b"k8s\0\x0a\x09\x0a\x02v1\x12\x03Pod\x12\x03\x0a\x01x\x1a\0\x22\0";
        assert_eq!(
            StoredValue::of(envelope),
            StoredValue::Protobuf { type_meta: TypeMeta::new("v1", "Pod"), object: b"\x0a\x01x" }
        );
        for (value, expected) in [
            (&br#"{"kind":"Widget"}"#[..], StoredValue::Json(br#"{"kind":"Widget"}"#)),
            (b"\xd9\xd9\xf7\xa0", StoredValue::Cbor),
            (b"k8s:enc:aescbc:v1:key1:\x01\x02", StoredValue::Encrypted { provider: "aescbc", key_name: "key1" }),
            (b"k8s:enc:", StoredValue::Encrypted { provider: "", key_name: "" }),
            (b"k8s\0\x0a\x09", StoredValue::Other),
            (b"apiVersion: v1\nkind: Pod", StoredValue::Yaml(b"apiVersion: v1\nkind: Pod")),
            (b"kinds", StoredValue::Other),
            (b"", StoredValue::Other),
        ] {
            assert_eq!(StoredValue::of(value), expected, "{value:?}");
        }
    }

    #[test]
    fn inserts_the_version_where_the_server_writes_it() {
        let protobuf =
            |metadata: &[u8]| [&[0x0A, u8::try_from(metadata.len()).unwrap()], metadata, b"\x12\x01s"].concat();
        let object = |object: &[u8]| {
            let value = StoredValue::Protobuf { type_meta: TypeMeta::new("v1", "Pod"), object };
            value.object(42).map(|(_, bytes)| bytes)
        };
        // The name, an empty version, the generation; without a version; with another one; as the last field.
        let expected = protobuf(b"\x0a\x01n\x32\x0242\x38\x01");
        for stored in [&b"\x0a\x01n\x32\x00\x38\x01"[..], b"\x0a\x01n\x38\x01", b"\x0a\x01n\x32\x017\x38\x01"] {
            assert_eq!(object(&protobuf(stored)).as_deref(), Some(&*expected), "{stored:?}");
        }
        assert_eq!(object(&protobuf(b"\x0a\x01n")), Some(protobuf(b"\x0a\x01n\x32\x0242")));
        assert_eq!(object(b"\x12\x01s"), None);
        assert_eq!(object(b"\x0a\x05n"), None);

        let json = |text: &str| {
            StoredValue::of(text.as_bytes()).object(42).map(|(_, bytes)| String::from_utf8(bytes).unwrap())
        };
        for (stored, expected) in [
            (
                r#"{"kind":"W","metadata":{"name":"a","uid":"u"}}"#,
                r#"{"kind":"W","metadata":{"name":"a","resourceVersion":"42","uid":"u"}}"#,
            ),
            (
                r#"{"metadata":{"name":"a","resourceVersion":"7"},"spec":[1, 2]}"#,
                r#"{"metadata":{"name":"a","resourceVersion":"42"},"spec":[1, 2]}"#,
            ),
            (r#"{"metadata":{}}"#, r#"{"metadata":{"resourceVersion":"42"}}"#),
        ] {
            assert_eq!(json(stored).as_deref(), Some(expected));
        }
        for bad in [r#"{"spec":{}}"#, r#"{"metadata":[]}"#, r#"{"metadata":{"name":"#] {
            assert_eq!(json(bad), None, "{bad}");
        }
    }
}
