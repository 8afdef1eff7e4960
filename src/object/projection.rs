//! Projections: copies of an object's bytes without some fields, before the object is decoded or kept.

use std::borrow::Borrow;
use std::fmt;

use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};

use super::Item;
use super::ItemRef;
use super::path::{FieldPath, key_of};
use crate::error::{Fault, ItemError};
use crate::wire::Encoding;
use crate::wire::json::Reader;
use crate::wire::protobuf::{Fields, WireField};

/// The fields of an object that a copy keeps or drops.
///
/// A projection removes the fields from the encoded bytes: unknown fields stay, and a message that loses all its fields stays as an
/// empty message. Only the messages on the paths are walked; fields that are dropped or kept whole are not checked.
///
/// [`ItemRef::project`] applies it to protobuf and JSON. An object in JSON keeps its `apiVersion` and `kind` unless they are
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

/// The same paths in both encodings.
#[derive(Clone, Debug, Default)]
struct Paths {
    all: Vec<FieldPath>,
    numbers: Node<u32>,
    names: Node<Box<str>>,
}

impl Paths {
    fn add(&mut self, path: &FieldPath) {
        if path.is_empty() {
            return;
        }
        self.all.push(path.clone());
        self.numbers.add(path.numbers().iter().copied(), path.map_key());
        self.names.add(path.names().map(Box::from), None);
    }
}

impl Projection {
    /// Creates a projection that keeps everything.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Drops all values of the field at this path, in each element of a repeated field on the path. With a key, drops the entry of
    /// the map. A path that leads nowhere drops nothing.
    ///
    /// The path must lead through messages: in protobuf, a string on the path would be parsed as a message.
    #[must_use]
    pub fn drop(mut self, path: &FieldPath) -> Self {
        self.drop.add(path);
        self
    }

    /// Keeps only the field at this path, or at the paths of several calls. [`drop`](Self::drop) still drops fields within them. A
    /// path that leads nowhere changes nothing.
    #[must_use]
    pub fn keep(mut self, path: &FieldPath) -> Self {
        if !path.is_empty() {
            self.keep.get_or_insert_default().add(path);
        }
        self
    }

    /// Appends the copy of an object: see [`ItemRef::project_into`]. After an error, a part of the copy is appended.
    fn append(&self, item: ItemRef<'_>, copy: &mut Vec<u8>) -> Result<(), ItemError> {
        let (encoding, object) = (item.encoding, item.bytes);
        self.keep
            .iter()
            .chain([&self.drop])
            .flat_map(|paths| &paths.all)
            .try_for_each(|path| path.leads_through(encoding))?;
        let appended = match encoding {
            Encoding::Protobuf => {
                let rules =
                    Rules { keep: self.keep.as_ref().map(|keep| &keep.numbers), drop: Some(&self.drop.numbers) };
                let mut sizes = Sizes::default();
                measure(object, rules, &mut sizes).and_then(|size| {
                    copy.reserve_exact(size);
                    sizes.next = 0;
                    write(object, rules, &mut sizes, copy)
                })
            }
            Encoding::Json => {
                let rules = Rules { keep: self.keep.as_ref().map(|keep| &keep.names), drop: Some(&self.drop.names) };
                copy.reserve_exact(object.len());
                json::append(Reader::with_ends(object, item.ends), rules, copy)
            }
        };
        appended.map_err(ItemError::Projection)
    }

    /// Decodes the item without the dropped fields, by [`Item::from_ref`]. It copies the projected bytes, and drops the copy before it
    /// returns.
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
    /// As [`ItemRef::project`] and [`Item::from_ref`].
    pub fn decode<T: Item + ?Sized>(&self, item: ItemRef<'_>) -> Result<T::Owned, ItemError> {
        T::from_ref(item.with_bytes(&item.project(self)?))
    }
}

impl ItemRef<'_> {
    /// Copies the bytes without the fields that the projection drops.
    ///
    /// The copy of an item in protobuf is one allocation of exactly its size; it needs two walks over the item. The copy of an item
    /// in JSON is allocated at the size of the item, and then shrunk.
    ///
    /// # Errors
    ///
    /// [`ItemError::Projection`] when the item, or a message on a path, is malformed. [`ItemError::WrongEncoding`] when a path does
    /// not lead through objects in this encoding: a path of only numbers through JSON, or of only names through protobuf.
    pub fn project(&self, projection: &Projection) -> Result<Box<[u8]>, ItemError> {
        let mut copy = Vec::new();
        projection.append(*self, &mut copy)?;
        Ok(copy.into())
    }

    /// As [`project`](Self::project), but appends the copy to `out`, so that one buffer serves many items.
    ///
    /// # Errors
    ///
    /// As [`project`](Self::project). `out` is unchanged after an error.
    pub fn project_into(&self, projection: &Projection, out: &mut Vec<u8>) -> Result<(), ItemError> {
        let before = out.len();
        let appended = projection.append(*self, out);
        if appended.is_err() {
            out.truncate(before);
        }
        appended
    }
}

/// Writes its paths in alphabetical order: `only metadata, status.phase, without metadata.managedFields`.
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

/// The rules of the paths for a field and the fields in it, by number or by name.
#[derive(Clone, Debug)]
struct Node<K> {
    /// True if a path ends here and so applies to the whole field.
    whole: bool,
    /// The keys of a map to which paths apply. In a tree of names, keys are fields.
    keys: Vec<Box<str>>,
    fields: Vec<(K, Node<K>)>,
}

impl<K> Default for Node<K> {
    fn default() -> Self {
        Self { whole: false, keys: Vec::new(), fields: Vec::new() }
    }
}

impl<K: PartialEq> Node<K> {
    fn add(&mut self, steps: impl IntoIterator<Item = K>, key: Option<&str>) {
        let mut node = self;
        for step in steps {
            let at = node.fields.iter().position(|(known, _)| *known == step).unwrap_or(node.fields.len());
            if at == node.fields.len() {
                node.fields.push((step, Self::default()));
            }
            let Some((_, child)) = node.fields.get_mut(at) else { return };
            node = child;
        }
        match key {
            Some(key) => node.keys.push(key.into()),
            None => node.whole = true,
        }
    }

    fn field<Q: PartialEq + ?Sized>(&self, step: &Q) -> Option<&Self>
    where
        K: Borrow<Q>,
    {
        self.fields.iter().find(|(known, _)| known.borrow() == step).map(|(_, node)| node)
    }

    fn has_key(&self, key: &[u8]) -> bool {
        self.keys.iter().any(|known| known.as_bytes() == key)
    }
}

/// The rules of the paths for the fields of one message.
#[derive(Debug)]
struct Rules<'p, K> {
    /// `None` keeps all.
    keep: Option<&'p Node<K>>,
    /// `None` drops nothing.
    drop: Option<&'p Node<K>>,
}

impl<K> Clone for Rules<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Rules<'_, K> {}

enum Action<'p, K> {
    Drop,
    Keep,
    /// Applies these rules to the fields of the message.
    Project(Rules<'p, K>),
}

impl<'p, K: PartialEq> Rules<'p, K> {
    /// Returns the action for a field, apart from keys of maps.
    fn action<Q: PartialEq + ?Sized>(self, step: &Q) -> Action<'p, K>
    where
        K: Borrow<Q>,
    {
        let keep = match self.keep {
            None => None,
            Some(node) => match node.field(step) {
                None => return Action::Drop,
                Some(node) => (!node.whole).then_some(node),
            },
        };
        let drop = self.drop.and_then(|node| node.field(step));
        match (keep, drop) {
            (_, Some(Node { whole: true, .. })) => Action::Drop,
            (None, None) => Action::Keep,
            _ => Action::Project(Self { keep, drop }),
        }
    }

    /// Returns the action for an entry of a map.
    fn of_key(self, key: &[u8]) -> Action<'p, K> {
        if self.drop.is_some_and(|node| node.has_key(key)) {
            return Action::Drop;
        }
        let keep = self.keep.filter(|node| !node.has_key(key));
        let drop = self.drop.filter(|node| !node.fields.is_empty());
        match (keep, drop) {
            (Some(keep), _) if keep.fields.is_empty() => Action::Drop,
            (None, None) => Action::Keep,
            _ => Action::Project(Self { keep, drop }),
        }
    }

    fn has_keys(self) -> bool {
        [self.keep, self.drop].into_iter().flatten().any(|node| !node.keys.is_empty())
    }
}

/// Returns the action for a field of protobuf, and the message that it contains if that is projected.
fn action<'a, 'p>(rules: Rules<'p, u32>, field: &WireField<'a>) -> Result<(Action<'p, u32>, &'a [u8]), Fault> {
    let action = rules.action(&field.number);
    let Action::Project(inner) = action else { return Ok((action, &[])) };
    let message = field.value.bytes()?;
    let action = if inner.has_keys() { inner.of_key(key_of(message)?) } else { action };
    Ok((action, message))
}

/// The measured sizes of the first projected messages, in their order. The sizes of later messages are measured again, so the
/// memory does not grow with an item.
#[derive(Default)]
struct Sizes {
    known: [usize; 16],
    next: usize,
}

impl Sizes {
    fn take(&mut self) -> usize {
        self.next += 1;
        self.next - 1
    }
}

/// Returns the size of the copy that [`write`] makes. The recursion is no deeper than the paths.
fn measure(message: &[u8], rules: Rules<'_, u32>, sizes: &mut Sizes) -> Result<usize, Fault> {
    let mut size = 0;
    for field in Fields::new(message) {
        let field = field?;
        let (action, inner) = action(rules, &field)?;
        size += match action {
            Action::Drop => 0,
            Action::Keep => field.bytes.len(),
            Action::Project(rules) => {
                let index = sizes.take();
                let left = measure(inner, rules, sizes)?;
                if let Some(known) = sizes.known.get_mut(index) {
                    *known = left;
                }
                if left == inner.len() {
                    // `write` copies the message whole, and does not use the sizes of messages within it.
                    sizes.next = index + 1;
                    field.bytes.len()
                } else {
                    key_len(field.number) + encoded_len_varint(left as u64) + left
                }
            }
        };
    }
    Ok(size)
}

fn write(message: &[u8], rules: Rules<'_, u32>, sizes: &mut Sizes, copy: &mut Vec<u8>) -> Result<(), Fault> {
    for field in Fields::new(message) {
        let field = field?;
        let (action, inner) = action(rules, &field)?;
        match action {
            Action::Drop => {}
            Action::Keep => copy.extend_from_slice(field.bytes),
            Action::Project(rules) => {
                let index = sizes.take();
                let left = match sizes.known.get(index) {
                    Some(known) => *known,
                    None => measure(inner, rules, &mut Sizes::default())?,
                };
                // An equal size means that nothing in it is dropped.
                if left == inner.len() {
                    copy.extend_from_slice(field.bytes);
                } else {
                    encode_key(field.number, WireType::LengthDelimited, copy);
                    encode_varint(left as u64, copy);
                    write(inner, rules, sizes, copy)?;
                }
            }
        }
    }
    Ok(())
}

/// Projections of JSON.
mod json {
    use super::{Action, Fault, Rules};
    use crate::wire::json::Reader;

    type ByName<'p> = Rules<'p, Box<str>>;

    pub(super) fn append(mut json: Reader<'_>, rules: ByName<'_>, copy: &mut Vec<u8>) -> Result<(), Fault> {
        write(&mut json, rules, true, copy)?;
        json.end()
    }

    /// Writes a projected value. It recurs at most once for each name of a path, and once more for an array at each name.
    fn write(json: &mut Reader<'_>, rules: ByName<'_>, is_whole: bool, copy: &mut Vec<u8>) -> Result<(), Fault> {
        match json.peek() {
            Some(b'{') => write_object(json, rules, is_whole, copy),
            Some(b'[') => {
                copy.push(b'[');
                let mut elements = json.array()?;
                while elements.next(json)? {
                    separate(b'[', copy);
                    match json.peek() {
                        Some(b'{') => write_object(json, rules, false, copy)?,
                        _ => copy.extend_from_slice(json.value()?),
                    }
                }
                copy.push(b']');
                Ok(())
            }
            _ => {
                copy.extend_from_slice(json.value()?);
                Ok(())
            }
        }
    }

    fn write_object(json: &mut Reader<'_>, rules: ByName<'_>, is_whole: bool, copy: &mut Vec<u8>) -> Result<(), Fault> {
        copy.push(b'{');
        let mut members = json.object()?;
        while let Some(name) = members.next(json)? {
            let rules = match &*name {
                // `keep` does not apply to them: in protobuf they are outside of the object.
                "apiVersion" | "kind" if is_whole => Rules { keep: None, ..rules },
                _ => rules,
            };
            let action = rules.action(&*name);
            if let Action::Drop = action {
                json.value()?;
                continue;
            }
            separate(b'{', copy);
            serde_json::to_writer(&mut *copy, &name).map_err(|_| Fault::Syntax)?;
            copy.push(b':');
            match action {
                Action::Project(rules) => write(json, rules, false, copy)?,
                _ => copy.extend_from_slice(json.value()?),
            }
        }
        copy.push(b'}');
        Ok(())
    }

    fn separate(bracket: u8, copy: &mut Vec<u8>) {
        if copy.last() != Some(&bracket) {
            copy.push(b',');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::TypeMeta;

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
