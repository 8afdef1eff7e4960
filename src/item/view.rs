//! The metadata of an object, read off its bytes without decoding the rest.

use crate::decode::wire::LenFields;
use crate::error::{Fault, ItemError};

/// Name, namespace, uid and resource version of an object, borrowed from its bytes.
///
/// Reading them costs no allocation and touches only the tags of the fields on the way. They are `metadata` (field 1 of
/// every object) and in it `name`, `namespace`, `uid` and `resourceVersion` (1, 3, 5, 6: `ObjectMeta` in
/// `k8s.io/apimachinery/pkg/apis/meta/v1/generated.proto`); a field that comes twice counts as last seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetaView<'a> {
    name: &'a str,
    namespace: &'a str,
    uid: &'a str,
    resource_version: &'a str,
}

impl<'a> MetaView<'a> {
    /// Reads them off the protobuf bytes of an object.
    ///
    /// # Errors
    ///
    /// [`ItemError::Metadata`] when the bytes are no protobuf, down to the fields of the metadata, or one of the four is
    /// not UTF-8.
    pub fn new(object: &'a [u8]) -> Result<Self, ItemError> {
        let mut view = Self::default();
        for field in LenFields::new(object) {
            if let (1, metadata) = field.map_err(at("the object"))? {
                view.merge(metadata)?;
            }
        }
        Ok(view)
    }

    fn merge(&mut self, metadata: &'a [u8]) -> Result<(), ItemError> {
        for field in LenFields::new(metadata) {
            let (number, value) = field.map_err(at("metadata"))?;
            let (place, name) = match number {
                1 => (&mut self.name, "metadata.name"),
                3 => (&mut self.namespace, "metadata.namespace"),
                5 => (&mut self.uid, "metadata.uid"),
                6 => (&mut self.resource_version, "metadata.resourceVersion"),
                _ => continue,
            };
            *place = str::from_utf8(value).map_err(|_| at(name)(Fault::Utf8))?;
        }
        Ok(())
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// The namespace; empty for an object without one.
    #[must_use]
    pub fn namespace(&self) -> &'a str {
        self.namespace
    }

    /// The uid.
    #[must_use]
    pub fn uid(&self) -> &'a str {
        self.uid
    }

    /// The version of the object.
    #[must_use]
    pub fn resource_version(&self) -> &'a str {
        self.resource_version
    }
}

fn at(field: &'static str) -> impl Fn(Fault) -> ItemError {
    move |fault| ItemError::Metadata { field, fault }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_is_there() {
        let view = |name, namespace, uid, resource_version| Some(MetaView { name, namespace, uid, resource_version });
        for (object, expected) in [
            (&b""[..], view("", "", "", "")),
            (b"\x0a\x03\x0a\x01n", view("n", "", "", "")),
            // All four, with generateName between them and spec behind.
            (b"\x0a\x0f\x0a\x01n\x12\x01g\x1a\x01s\x2a\x01u\x32\x01v\x12\x02??", view("n", "s", "u", "v")),
            // Metadata behind spec, and in two pieces.
            (b"\x12\x01?\x0a\x03\x0a\x01n\x0a\x06\x0a\x01m\x1a\x01s", view("m", "s", "", "")),
            // Not UTF-8, cut, of the wrong wire type.
            (b"\x0a\x03\x0a\x01\xff", None),
            (b"\x0a\x03\x0a\x02n", None),
            (b"\x0a\x05\x0a\x01n", None),
            (b"\x08\x05", view("", "", "", "")),
        ] {
            assert_eq!(MetaView::new(object).ok(), expected, "{object:x?}");
        }
    }
}
