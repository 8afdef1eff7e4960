//! Fields dropped on the wire, before anything is decoded or kept.

use std::fmt;

use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};

use super::Item;
use super::path::{FieldPath, key_of};
use crate::decode::ItemRef;
use crate::decode::wire::{Field, Fields};
use crate::error::{Fault, ItemError};

/// Which fields of an object are kept, and which are dropped while it is copied.
///
/// What comes out is the message that decoding, clearing those fields and encoding again would give, but for the order of
/// fields: unknown ones stay, a message of which every field is dropped stays as an empty one. Only the messages on the
/// paths are walked inside; what is dropped or kept whole is not looked at. The copy is one allocation of exactly its
/// size, for which they are walked twice: to measure and to write.
///
/// ```
/// use listwatch::item::path::{meta, pod};
/// use listwatch::{ItemError, ListReader, Projection};
///
/// # let file = &include_bytes!("../../fixtures/pods.pb")[..];
/// let slim = Projection::new().drop(&meta::MANAGED_FIELDS).drop(&meta::LAST_APPLIED).drop(&pod::STATUS);
/// let pods = ListReader::<_, [u8]>::new(file).map_item(|item| item.project(&slim));
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
    /// `None`: everything.
    keep: Option<Node>,
    drop: Node,
}

impl Projection {
    /// One that keeps everything.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Drops the field at this path: in each message that a repeated field on the way has, and all values of it. Of a map
    /// with a key, the entry is dropped.
    ///
    /// The path must lead through messages: a string on the way would be taken for one.
    #[must_use]
    pub fn drop(mut self, path: &FieldPath) -> Self {
        self.drop.add(path);
        self
    }

    /// Keeps only what is at this path, or at one of several; what is dropped beneath is dropped all the same.
    #[must_use]
    pub fn keep(mut self, path: &FieldPath) -> Self {
        self.keep.get_or_insert_default().add(path);
        self
    }

    /// Copies the protobuf bytes of an object. Of an [`ItemRef`], take [`ItemRef::project`].
    ///
    /// # Errors
    ///
    /// [`ItemError::Projection`] when the object, or a message on a path, is malformed.
    pub fn apply(&self, object: &[u8]) -> Result<Box<[u8]>, ItemError> {
        let rules = Rules { keep: self.keep.as_ref(), drop: Some(&self.drop) };
        let mut sizes = Sizes::default();
        let size = measure(object, rules, &mut sizes).map_err(ItemError::Projection)?;
        let mut copy = Vec::with_capacity(size);
        sizes.next = 0;
        write(object, rules, &mut sizes, &mut copy).map_err(ItemError::Projection)?;
        Ok(copy.into())
    }

    /// What [`Item::own`] makes of the item without the dropped fields, for `map_item` of the adapters. The projected
    /// bytes are a copy that lives no longer than the call.
    ///
    /// ```
    /// use k8s_pb::api::core::v1::Pod;
    /// use listwatch::item::path::pod;
    /// use listwatch::{ListReader, Projection};
    ///
    /// # let file = &include_bytes!("../../fixtures/pods.pb")[..];
    /// let phases = Projection::new().keep(&pod::PHASE);
    /// for pod in ListReader::<_, [u8]>::new(file).map_item(|item| phases.own::<Pod>(item)) {
    ///     let pod: Box<Pod> = pod?;
    ///     assert!(pod.metadata.is_none() && pod.status.is_some());
    /// }
    /// # Ok::<(), listwatch::ListError<std::io::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`apply`](Self::apply) and of [`Item::own`].
    pub fn own<T: Item + ?Sized>(&self, item: ItemRef<'_>) -> Result<T::Owned, ItemError> {
        T::own(item.with_bytes(&item.project(self)?))
    }
}

/// Its paths in numbers, as [`FieldPath`] shows them: `only 1, 2.3, without 1.17`.
impl fmt::Display for Projection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for (word, node) in [("only", self.keep.as_ref()), ("without", Some(&self.drop))] {
            let mut paths = Vec::new();
            if let Some(node) = node {
                node.paths("", &mut paths);
            }
            if !paths.is_empty() {
                write!(f, "{between}{word} {}", paths.join(", "))?;
                between = ", ";
            }
        }
        Ok(())
    }
}

/// What paths say of a field and of those in it.
#[derive(Clone, Debug, Default)]
struct Node {
    /// A path ends here: the whole field is meant.
    whole: bool,
    /// The keys that are meant of a map.
    keys: Vec<Box<str>>,
    fields: Vec<(u32, Node)>,
}

impl Node {
    fn add(&mut self, path: &FieldPath) {
        let mut node = self;
        for &number in path.numbers() {
            let at = node.fields.partition_point(|(known, _)| *known < number);
            if node.fields.get(at).is_none_or(|(known, _)| *known != number) {
                node.fields.insert(at, (number, Self::default()));
            }
            let Some((_, child)) = node.fields.get_mut(at) else { return };
            node = child;
        }
        match path.map_key() {
            Some(key) => node.keys.push(key.into()),
            None => node.whole = true,
        }
    }

    /// In order, whatever the order in which they were added.
    fn paths(&self, to: &str, paths: &mut Vec<String>) {
        if self.whole {
            paths.push(to.to_owned());
        }
        let mut keys: Vec<_> = self.keys.iter().map(|key| format!("{to}[\"{key}\"]")).collect();
        keys.sort();
        paths.append(&mut keys);
        for (number, node) in &self.fields {
            let dot = if to.is_empty() { "" } else { "." };
            node.paths(&format!("{to}{dot}{number}"), paths);
        }
    }

    fn field(&self, number: u32) -> Option<&Self> {
        self.fields.iter().find(|(known, _)| *known == number).map(|(_, node)| node)
    }

    fn has_key(&self, key: &[u8]) -> bool {
        self.keys.iter().any(|known| known.as_bytes() == key)
    }
}

/// What the paths say of the fields of one message.
#[derive(Clone, Copy)]
struct Rules<'p> {
    /// `None`: keep all.
    keep: Option<&'p Node>,
    /// `None`: drop nothing.
    drop: Option<&'p Node>,
}

enum Fate<'a, 'p> {
    Dropped,
    Kept,
    /// The message in the field is taken apart.
    Partly(&'a [u8], Rules<'p>),
}

impl<'p> Rules<'p> {
    fn fate<'a>(self, field: &Field<'a>) -> Result<Fate<'a, 'p>, Fault> {
        let mut keep = match self.keep {
            None => None,
            Some(node) => match node.field(field.number) {
                None => return Ok(Fate::Dropped),
                Some(node) => (!node.whole).then_some(node),
            },
        };
        let mut drop = self.drop.and_then(|node| node.field(field.number));
        if drop.is_some_and(|node| node.whole) {
            return Ok(Fate::Dropped);
        }
        if keep.is_none() && drop.is_none() {
            return Ok(Fate::Kept);
        }
        let message = field.value.bytes()?;
        if [keep, drop].into_iter().flatten().any(|node| !node.keys.is_empty()) {
            let key = key_of(message)?;
            if drop.is_some_and(|node| node.has_key(key)) {
                return Ok(Fate::Dropped);
            }
            keep = keep.filter(|node| !node.has_key(key));
            drop = drop.filter(|node| !node.fields.is_empty());
            match (keep, drop) {
                (Some(keep), _) if keep.fields.is_empty() => return Ok(Fate::Dropped),
                (None, None) => return Ok(Fate::Kept),
                _ => {}
            }
        }
        Ok(Fate::Partly(message, Self { keep, drop }))
    }
}

/// What was measured of the first messages that are taken apart, in their order; later ones are measured again. So it
/// takes no memory that grows with an item.
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

/// The size of what [`write`] writes. It recurs no deeper than the paths lead.
fn measure(message: &[u8], rules: Rules<'_>, sizes: &mut Sizes) -> Result<usize, Fault> {
    let mut size = 0;
    for field in Fields::new(message) {
        let field = field?;
        size += match rules.fate(&field)? {
            Fate::Dropped => 0,
            Fate::Kept => field.bytes.len(),
            Fate::Partly(inner, rules) => {
                let index = sizes.take();
                let left = measure(inner, rules, sizes)?;
                if let Some(known) = sizes.known.get_mut(index) {
                    *known = left;
                }
                if left == inner.len() {
                    // It will be copied whole: nobody asks for what is in it.
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

fn write(message: &[u8], rules: Rules<'_>, sizes: &mut Sizes, copy: &mut Vec<u8>) -> Result<(), Fault> {
    for field in Fields::new(message) {
        let field = field?;
        match rules.fate(&field)? {
            Fate::Dropped => {}
            Fate::Kept => copy.extend_from_slice(field.bytes),
            Fate::Partly(inner, rules) => {
                let index = sizes.take();
                let left = match sizes.known.get(index) {
                    Some(known) => *known,
                    None => measure(inner, rules, &mut Sizes::default())?,
                };
                // Nothing in it was dropped: that can only make it shorter.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::TypeMeta;

    #[test]
    fn drops_and_keeps() {
        let path = |text| FieldPath::parse(text, &TypeMeta::default()).unwrap();
        let object = b"\x0a\x06\x0a\x01a\x12\x01b\x12\x03\x0a\x01c\x0a\x03\x0a\x01d\x18\x05";
        for (keep, drop, object, expected) in [
            (&[][..], &[][..], &object[..], Ok(&object[..])),
            (&[], &["1"], object, Ok(b"\x12\x03\x0a\x01c\x18\x05")),
            (&[], &["3"], object, Ok(b"\x0a\x06\x0a\x01a\x12\x01b\x12\x03\x0a\x01c\x0a\x03\x0a\x01d")),
            // In both pieces of the message, of which one is left empty.
            (&[], &["1.1"], object, Ok(b"\x0a\x03\x12\x01b\x12\x03\x0a\x01c\x0a\x00\x18\x05")),
            (&[], &["1.1", "1"], object, Ok(b"\x12\x03\x0a\x01c\x18\x05")),
            (&[], &["4", "2.2"], object, Ok(object)),
            (&["2"], &[], object, Ok(b"\x12\x03\x0a\x01c")),
            (&["1.2", "3"], &[], object, Ok(b"\x0a\x03\x12\x01b\x0a\x00\x18\x05")),
            (&["1", "1.2"], &["1.1"], object, Ok(b"\x0a\x03\x12\x01b\x0a\x00")),
            (&["4"], &[], object, Ok(b"")),
            // Keys: one that comes twice, an entry without key.
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
            // Groups and overlong tags and lengths survive where nothing within is dropped.
            (
                &[],
                &["1.9"],
                b"\x6b\x08\x01\x6c\x8a\x00\x83\x00\x0a\x01a",
                Ok(b"\x6b\x08\x01\x6c\x8a\x00\x83\x00\x0a\x01a"),
            ),
            (&[], &["1.1"], b"\x8a\x00\x83\x00\x0a\x01a", Ok(b"\x0a\x00")),
            // What is dropped or kept whole is not walked inside; what is taken apart is.
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
            let projected = projection.apply(object).map_err(|error| error.to_string());
            assert_eq!(projected, expected, "{object:x?} keep {keep:?} drop {drop:?}");
        }
    }
    /// More messages are taken apart than sizes are remembered, each in another one, every other without a loss.
    #[test]
    fn many_messages() {
        let projection = Projection::new().drop(&FieldPath::new(&[1, 1, 1])).drop(&FieldPath::new(&[1, 3]));
        let fields: [&[u8]; 3] =
            [b"\x0a\x08\x0a\x06\x0a\x01a\x12\x01b", b"\x0a\x05\x0a\x03\x12\x01b", b"\x0a\x02\x18\x01"];
        let left: [&[u8]; 3] = [b"\x0a\x05\x0a\x03\x12\x01b", b"\x0a\x05\x0a\x03\x12\x01b", b"\x0a\x00"];
        assert_eq!(*projection.apply(&fields.concat().repeat(20)).unwrap(), left.concat().repeat(20));
    }
}
