//! Projections, which copy the bytes of an object without some of its fields.

use std::fmt;

use super::field_path::FieldPath;
use super::item::Item;
use crate::encoding::item_ref::ItemRef;
use crate::encoding::paths::{PathTrees, ProjectionRules};
use crate::encoding::with_codec;
use crate::error::ItemError;

/// Which fields a copy of an object keeps or drops.
///
/// [`ItemRef::project`] removes fields from the encoded bytes, in protobuf and in JSON. Unknown fields stay, and a
/// message that loses all its fields stays as an empty message. Only the messages on the paths are walked, so fields
/// that are dropped or kept whole are not checked. An object in JSON keeps its `apiVersion` and `kind` unless they are
/// dropped by name.
///
/// ```
/// use listwatch::path::{meta, pod};
/// use listwatch::{ItemError, ListReader, Projection};
///
/// # let file = &include_bytes!("../../fixtures/pods.pb")[..];
/// let slim = Projection::new().drop(&meta::MANAGED_FIELDS).drop(&meta::LAST_APPLIED).drop(&pod::STATUS);
/// let pods = ListReader::with(file, |item| item.project(&slim));
/// # let mut sizes = 0;
/// for pod in pods {
///     println!("{} bytes", pod?.len());
/// #   sizes += 1;
/// }
/// # assert_eq!(sizes, 120);
/// # Ok::<(), listwatch::ListError<std::io::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Projection {
    /// `None` keeps everything.
    keep: Option<Paths>,
    drop: Paths,
}

#[derive(Clone, Debug, Default)]
struct Paths {
    all: Vec<FieldPath>,
    trees: PathTrees,
}

impl Paths {
    fn add(&mut self, path: &FieldPath) {
        if path.is_empty() {
            return;
        }
        self.all.push(path.clone());
        self.trees.add(path.steps());
    }
}

impl Projection {
    /// Creates a projection that keeps everything.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Drops the field at this path, in each element of a repeated field on the path.
    ///
    /// A path with a key drops that entry of the map, and a path that leads nowhere drops nothing. The path must lead
    /// through messages, because protobuf cannot tell a string on the path from a message.
    #[must_use]
    pub fn drop(mut self, path: &FieldPath) -> Self {
        self.drop.add(path);
        self
    }

    /// Keeps only the fields at this path and at the paths of further calls.
    ///
    /// [`drop`](Self::drop) still drops fields within them. A path that leads nowhere changes nothing.
    #[must_use]
    pub fn keep(mut self, path: &FieldPath) -> Self {
        if !path.is_empty() {
            self.keep.get_or_insert_default().add(path);
        }
        self
    }

    /// Appends the copy of an object. After an error, a part of the copy may have been appended.
    fn append(&self, item: ItemRef<'_>, copy: &mut Vec<u8>) -> Result<(), ItemError> {
        self.keep
            .iter()
            .chain([&self.drop])
            .flat_map(|paths| &paths.all)
            .try_for_each(|path| path.leads_through(item.encoding))?;
        let rules = ProjectionRules { keep: self.keep.as_ref().map(|keep| &keep.trees), drop: &self.drop.trees };
        with_codec!(item.encoding, C => C::project(&item, rules, copy)).map_err(ItemError::Projection)
    }

    /// Decodes the item without the dropped fields, by [`Item::from_ref`] on a temporary copy.
    ///
    /// ```
    /// use k8s_pb::api::core::v1::Pod;
    /// use listwatch::path::pod;
    /// use listwatch::{ListReader, Projection};
    ///
    /// # let file = &include_bytes!("../../fixtures/pods.pb")[..];
    /// let phases = Projection::new().keep(&pod::PHASE);
    /// for pod in ListReader::with(file, |item| phases.decode::<Pod>(item)) {
    ///     let pod: Box<Pod> = pod?;
    ///     assert!(pod.metadata.is_none() && pod.status.is_some());
    /// }
    /// # Ok::<(), listwatch::ListError<std::io::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`ItemRef::project`] and [`Item::from_ref`].
    pub fn decode<T: Item + ?Sized>(&self, item: ItemRef<'_>) -> Result<T::Owned, ItemError> {
        T::from_ref(item.with_bytes(&item.project(self)?))
    }
}

impl ItemRef<'_> {
    /// Copies the bytes without the fields that the projection drops.
    ///
    /// For protobuf, two walks over the item allow one allocation of exactly the right size. For JSON, the copy is
    /// allocated at the size of the item and then shrunk.
    ///
    /// # Errors
    ///
    /// [`ItemError::Projection`] when the item, or a message on a path, is malformed; [`ItemError::WrongEncoding`] when
    /// a path does not lead through objects in this encoding, because it consists only of numbers for JSON or only of
    /// names for protobuf.
    pub fn project(&self, projection: &Projection) -> Result<Box<[u8]>, ItemError> {
        let mut copy = Vec::new();
        projection.append(*self, &mut copy)?;
        Ok(copy.into())
    }

    /// Appends the copy of [`project`](Self::project) to `out`, so that one buffer serves many items.
    ///
    /// # Errors
    ///
    /// The errors of [`project`](Self::project), after which `out` is unchanged.
    pub fn project_into(&self, projection: &Projection, out: &mut Vec<u8>) -> Result<(), ItemError> {
        let before = out.len();
        let appended = projection.append(*self, out);
        if appended.is_err() {
            out.truncate(before);
        }
        appended
    }
}

/// Writes the paths in alphabetical order: `only metadata, status.phase, without metadata.managedFields`.
impl fmt::Display for Projection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for (word, paths) in [("only", self.keep.as_ref()), ("without", Some(&self.drop))] {
            let mut paths: Vec<_> = paths.iter().flat_map(|paths| &paths.all).map(FieldPath::to_string).collect();
            paths.sort();
            paths.dedup();
            if !paths.is_empty() {
                write!(f, "{between}{word} {}", paths.join(", "))?;
                between = ", ";
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Fault;
    use crate::meta::TypeMeta;
    use crate::wire::Encoding;

    #[test]
    fn drops_and_keeps_fields_of_protobuf() {
        let path = |text| FieldPath::parse(text, &TypeMeta::default()).unwrap();
        let object = b"\x0a\x06\x0a\x01a\x12\x01b\x12\x03\x0a\x01c\x0a\x03\x0a\x01d\x18\x05";
        for (keep, drop, object, expected) in [
            (&[][..], &[][..], &object[..], Ok(&object[..])),
            (&[], &["1"], object, Ok(b"\x12\x03\x0a\x01c\x18\x05")),
            (&[], &["3"], object, Ok(b"\x0a\x06\x0a\x01a\x12\x01b\x12\x03\x0a\x01c\x0a\x03\x0a\x01d")),
            // In both pieces of the message; one of them becomes empty.
            (&[], &["1.1"], object, Ok(b"\x0a\x03\x12\x01b\x12\x03\x0a\x01c\x0a\x00\x18\x05")),
            (&[], &["1.1", "1"], object, Ok(b"\x12\x03\x0a\x01c\x18\x05")),
            (&[], &["4", "2.2"], object, Ok(object)),
            (&["2"], &[], object, Ok(b"\x12\x03\x0a\x01c")),
            (&["1.2", "3"], &[], object, Ok(b"\x0a\x03\x12\x01b\x0a\x00\x18\x05")),
            (&["1", "1.2"], &["1.1"], object, Ok(b"\x0a\x03\x12\x01b\x0a\x00")),
            (&["4"], &[], object, Ok(b"")),
            // Keys: a repeated key, an entry without a key.
            (&[], &["1[\"k\"]"], b"\x0a\x06\x0a\x01k\x12\x01a\x0a\x00\x0a\x03\x0a\x01k", Ok(b"\x0a\x00")),
            (&[], &["1[\"\"]", "1[\"l\"]"], b"\x0a\x03\x0a\x01k\x0a\x00\x0a\x03\x0a\x01l", Ok(b"\x0a\x03\x0a\x01k")),
            (&["1[\"k\"]"], &[], b"\x0a\x03\x0a\x01k\x0a\x00\x0a\x03\x0a\x01l\x10\x05", Ok(b"\x0a\x03\x0a\x01k")),
            (&["1[\"k\"]"], &["1[\"k\"]"], b"\x0a\x03\x0a\x01k\x0a\x03\x0a\x01l", Ok(b"")),
            (&["1"], &["1[\"k\"]"], b"\x0a\x03\x0a\x01k\x0a\x03\x0a\x01l", Ok(b"\x0a\x03\x0a\x01l")),
            // A key and fields of all entries.
            (
                &["1[\"k\"]", "1.1"],
                &["1.2"],
                b"\x0a\x06\x0a\x01k\x12\x01a\x0a\x06\x0a\x01l\x12\x01a",
                Ok(b"\x0a\x03\x0a\x01k\x0a\x03\x0a\x01l"),
            ),
            // A message that is no map.
            (&[], &["1.2"], b"\x0a\x05\x08\x01\x12\x01a", Ok(b"\x0a\x02\x08\x01")),
            // Groups and overlong tags and lengths stay if nothing within them is dropped.
            (
                &[],
                &["1.9"],
                b"\x6b\x08\x01\x6c\x8a\x00\x83\x00\x0a\x01a",
                Ok(b"\x6b\x08\x01\x6c\x8a\x00\x83\x00\x0a\x01a"),
            ),
            (&[], &["1.1"], b"\x8a\x00\x83\x00\x0a\x01a", Ok(b"\x0a\x00")),
            // Fields that are dropped or kept whole are not walked; projected messages are.
            (&[], &["1"], b"\x0a\x01\xff\x12\x01\xff", Ok(b"\x12\x01\xff")),
            (&[], &["1.1"], b"\x0a\x01\xff", Err(Fault::PastParent)),
            (&[], &["1.1"], b"\x08\x01", Err(Fault::WireType)),
            (&[], &["1[\"k\"]"], b"\x0a\x02\x08\x01", Err(Fault::WireType)),
            (&[], &["1"], b"\x08\x01", Ok(b"")),
            (&[], &["1"], b"\x0a\x02a", Err(Fault::PastParent)),
        ] {
            let projection = keep.iter().fold(Projection::new(), |projection, text| projection.keep(&path(text)));
            let projection = drop.iter().fold(projection, |projection, text| projection.drop(&path(text)));
            let expected = expected.map(Box::from).map_err(|fault| ItemError::Projection(fault).to_string());
            let projected =
                ItemRef::new(Encoding::Protobuf, object).project(&projection).map_err(|error| error.to_string());
            assert_eq!(projected, expected, "{object:x?} keep {keep:?} drop {drop:?}");
        }
    }

    #[test]
    fn drops_and_keeps_members_of_json() {
        let path = |text| FieldPath::parse(text, &TypeMeta::default()).unwrap();
        let object = r#"{"apiVersion":"v1","kind":"W","metadata":{"name":"a","labels":{"a.b/c":"x","d":"y"}},"spec":{"parts":[{"name":"b","size":1},null,{"size":"<\u003c"}]}}"#;
        for (keep, drop, expected) in [
            (&[][..], &[][..], Ok(object)),
            (&[], &["none", "spec.none"], Ok(object)),
            (&[], &["metadata", "spec"], Ok(r#"{"apiVersion":"v1","kind":"W"}"#)),
            (&[], &["apiVersion", "metadata", "spec"], Ok(r#"{"kind":"W"}"#)),
            (
                &[],
                &["metadata.labels[\"a.b/c\"]", "spec"],
                Ok(r#"{"apiVersion":"v1","kind":"W","metadata":{"name":"a","labels":{"d":"y"}}}"#),
            ),
            (
                &[],
                &["metadata", "spec.parts.size"],
                Ok(r#"{"apiVersion":"v1","kind":"W","spec":{"parts":[{"name":"b"},null,{}]}}"#),
            ),
            (&["metadata.name"], &[], Ok(r#"{"apiVersion":"v1","kind":"W","metadata":{"name":"a"}}"#)),
            (
                &["spec", "metadata.labels[\"d\"]"],
                &["spec.parts.name"],
                Ok(
                    r#"{"apiVersion":"v1","kind":"W","metadata":{"labels":{"d":"y"}},"spec":{"parts":[{"size":1},null,{"size":"<\u003c"}]}}"#,
                ),
            ),
            (&["none"], &[], Ok(r#"{"apiVersion":"v1","kind":"W"}"#)),
            (&[], &["3.4"], Err("unexpected encoding: the item is in JSON, expected protobuf")),
        ] {
            let projection = keep.iter().fold(Projection::new(), |projection, text| projection.keep(&path(text)));
            let projection = drop.iter().fold(projection, |projection, text| projection.drop(&path(text)));
            let projected =
                ItemRef::new(Encoding::Json, object.as_bytes()).project(&projection).map_err(|error| error.to_string());
            let expected = expected.map(|json| json.as_bytes().into()).map_err(str::to_owned);
            assert_eq!(projected, expected, "keep {keep:?} drop {drop:?}");
        }
        let nested = br#"{"kind":"W","spec":{"kind":"V","apiVersion":"v1","size":1}}"#;
        let kept = ItemRef::new(Encoding::Json, nested).project(&Projection::new().keep(&path("spec.size")));
        assert_eq!(*kept.unwrap(), *br#"{"kind":"W","spec":{"size":1}}"#);
        let by_name = Projection::new().drop(&path("spec.size"));
        assert_eq!(
            ItemRef::new(Encoding::Protobuf, b"\x12\x00").project(&by_name).unwrap_err().to_string(),
            "unexpected encoding: the item is in protobuf, expected JSON"
        );
        assert_eq!(
            ItemRef::new(Encoding::Json, br#"{"spec":{"size":1}"#).project(&by_name).unwrap_err().to_string(),
            "invalid JSON in the projected fields"
        );
    }

    #[test]
    fn appends_a_copy_to_a_buffer_and_nothing_after_an_error() {
        let protobuf = Projection::new().drop(&FieldPath::new("", &[1, 1]));
        let mut cases =
            vec![(Encoding::Protobuf, protobuf, &b"\x12\x01b\x0a\x03\x0a\x01a"[..], &b"\x12\x01b\x0a\x00"[..])];
        let json = Projection::new().drop(&FieldPath::parse("a.b", &TypeMeta::default()).unwrap());
        cases.push((Encoding::Json, json, br#"{"c":1,"a":{"b":2}}"#, br#"{"c":1,"a":{}}"#));
        for (encoding, projection, object, projected) in cases {
            let mut out = b"before".to_vec();
            ItemRef::new(encoding, object).project_into(&projection, &mut out).unwrap();
            assert_eq!(out, [b"before", projected].concat());
            let truncated = &object[..object.len() - 1];
            let mut out = b"before".to_vec();
            ItemRef::new(encoding, truncated).project_into(&projection, &mut out).unwrap_err();
            assert_eq!(out, b"before", "{encoding}");
        }
    }

    #[test]
    fn a_path_that_leads_nowhere_changes_nothing() {
        let nowhere = FieldPath::new("", &[]);
        let projection = Projection::new().keep(&nowhere).drop(&nowhere);
        assert_eq!(
            *ItemRef::new(Encoding::Protobuf, b"\x0a\x00\x12\x00").project(&projection).unwrap(),
            *b"\x0a\x00\x12\x00"
        );
        assert_eq!(projection.to_string(), "");
    }

    #[test]
    fn is_displayed_as_its_paths_in_order() {
        let path = |text| FieldPath::parse(text, &TypeMeta::default()).unwrap();
        let kept = Projection::new().keep(&path("b.c")).keep(&path("a")).keep(&path("a"));
        for (projection, expected) in [
            (Projection::new(), ""),
            (Projection::new().drop(&path("2.10")), "without 2.10"),
            (kept.clone(), "only a, b.c"),
            (kept.drop(&path("a.b[\"k\"]")).drop(&path("a.a")), "only a, b.c, without a.a, a.b[\"k\"]"),
        ] {
            assert_eq!(projection.to_string(), expected);
        }
    }

    /// More messages are projected than `Sizes` remembers, nested ones, with and without dropped fields.
    #[test]
    fn projects_more_messages_than_it_remembers_sizes() {
        let projection = Projection::new().drop(&FieldPath::new("", &[1, 1, 1])).drop(&FieldPath::new("", &[1, 3]));
        let fields: [&[u8]; 3] =
            [b"\x0a\x08\x0a\x06\x0a\x01a\x12\x01b", b"\x0a\x05\x0a\x03\x12\x01b", b"\x0a\x02\x18\x01"];
        let left: [&[u8]; 3] = [b"\x0a\x05\x0a\x03\x12\x01b", b"\x0a\x05\x0a\x03\x12\x01b", b"\x0a\x00"];
        assert_eq!(
            *ItemRef::new(Encoding::Protobuf, &fields.concat().repeat(20)).project(&projection).unwrap(),
            left.concat().repeat(20)
        );
    }
}
