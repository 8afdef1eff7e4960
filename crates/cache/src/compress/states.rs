//! Compression of the successive states of an object outside of a store: each as the delta to another state.

use std::fmt;
use std::sync::Arc;

use crate::compress::decoder::{read_delta, read_whole};
use crate::compress::dictionary::{Dictionary, NamespaceDictionary, StoredWhole};
use crate::compress::elide::{ElidedObject, ElidedTexts, longest_elided};
use crate::compress::encoder::Encoder;
use crate::compress::pack::{self, PackedObject};
use crate::compress::pool::DecoderContext;
use crate::key::Identity;

/// The longest state that is compressed, which bounds what reading a forged body allocates.
const MAX_LEN: usize = 16 << 20;
/// A longer state is no delta, as a longer object of a store has no delta group.
const MAX_DELTA_LEN: u32 = 1 << 20;

/// The texts of a state that are stored beside its body, and therefore left out of the body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateNames<'a> {
    /// The namespace; empty for a cluster-scoped object.
    pub namespace: &'a str,
    /// The name.
    pub name: &'a str,
    /// The uid.
    pub uid: &'a str,
    /// The resource version of the state.
    pub resource_version: &'a str,
}

impl<'a> StateNames<'a> {
    fn identity(&self) -> Identity<'a> {
        Identity {
            namespace: self.namespace.into(),
            name: self.name.into(),
            uid: self.uid.into(),
            resource_version: self.resource_version.into(),
        }
    }
}

/// A state in the form to which other states are deltas.
#[derive(Clone, Default)]
pub struct PackedState {
    packed: PackedObject,
    /// The length of the state itself.
    len: u32,
}

impl PackedState {
    /// Returns the length of the state that this one unpacks to.
    #[must_use]
    pub fn state_len(&self) -> u32 {
        self.len
    }

    /// Returns a checksum of the packed bytes, to check that a delta meets the reference it was made for.
    #[must_use]
    pub fn checksum(&self) -> u32 {
        crc32fast::hash(&self.packed.bytes)
    }

    /// Returns the memory of the packed bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.packed.bytes.len()
    }
}

impl fmt::Debug for PackedState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PackedState").field("len", &self.len).finish_non_exhaustive()
    }
}

/// Compresses states of objects, and reads them again, for formats that keep many states of the same objects.
///
/// A body contains neither its [names](StateNames) nor its length nor its reference; the format keeps them beside it. A
/// delta of two states of a Pod takes about a hundredth of the Pod. The bodies of one release are those of the
/// [saved](crate::Store::save) file of that release.
///
/// ```
/// use listwatch_cache::{StateCodec, StateNames};
///
/// let names = |resource_version| StateNames { namespace: "shop", name: "web", uid: "", resource_version };
/// let text = |version, replicas| format!(r#"{{"metadata":{{"name":"web","namespace":"shop","resourceVersion":"{version}",
///     "labels":{{"app":"web","tier":"front"}}}},"spec":{{"replicas":{replicas},"paused":false}}}}"#);
/// let (first, second) = (text("71", 3), text("84", 5));
///
/// let mut codec = StateCodec::new(None);
/// let old = codec.pack(&names("71"), first.as_bytes()).unwrap();
/// let new = codec.pack(&names("84"), second.as_bytes()).unwrap();
/// let body = codec.compress_delta(&new, &old).unwrap().to_vec();
/// assert!(body.len() < second.len() / 2);
///
/// let read = codec.read_delta(&body, new.state_len(), &old).unwrap();
/// assert_eq!(codec.unpack(&read, &names("84")).unwrap(), second.as_bytes());
/// ```
pub struct StateCodec {
    encoder: Encoder,
    context: DecoderContext,
    shared: Arc<NamespaceDictionary>,
}

impl StateCodec {
    /// Creates a codec with a dictionary that [`train`](Self::train) returned, or without one.
    ///
    /// A dictionary that zstd refuses is ignored; bodies that need it cannot be read then.
    #[must_use]
    pub fn new(dictionary: Option<&[u8]>) -> Self {
        let mut encoder = Encoder::new();
        let dictionary = dictionary.and_then(Dictionary::new).map(Arc::new);
        if let Some(dictionary) = &dictionary {
            encoder.adopt(Arc::clone(dictionary));
        }
        let shared = Arc::new(NamespaceDictionary { namespace: "".into(), dictionary });
        Self { encoder, context: DecoderContext::default(), shared }
    }

    /// Trains a dictionary for states that are compressed whole; `None` if there are too few samples.
    ///
    /// Training takes about 0.1 s and a copy of the samples. A few hundred samples suffice.
    pub fn train<'a>(samples: impl Iterator<Item = (StateNames<'a>, &'a [u8])>) -> Option<Vec<u8>> {
        let elided = samples.filter_map(|(names, bytes)| ElidedObject::of(&names.identity(), bytes));
        Encoder::trained_on(elided).dictionary().map(|dictionary| dictionary.bytes())
    }

    /// Packs a state, so that it can be compressed as a delta, or be the reference of one.
    ///
    /// The result is `None` for a state over 16 MiB, and for one that would grow because it is mostly binary.
    pub fn pack(&mut self, names: &StateNames<'_>, bytes: &[u8]) -> Option<PackedState> {
        if bytes.len() > MAX_LEN {
            return None;
        }
        Some(self.pack_elided(&ElidedObject::of(&names.identity(), bytes)?))
    }

    fn pack_elided(&mut self, elided: &ElidedObject) -> PackedState {
        self.encoder.pack(elided, true);
        let mut state = PackedState { packed: PackedObject::default(), len: elided.wire_len };
        state.packed.copy_from(self.encoder.packed_mut(elided.wire_len));
        state
    }

    /// Compresses a state as the delta to a reference. The result is `None` if the state is over 1 MiB, or if zstd does
    /// not shorten it.
    pub fn compress_delta(&mut self, state: &PackedState, reference: &PackedState) -> Option<&[u8]> {
        if state.len > MAX_DELTA_LEN || reference.len > MAX_DELTA_LEN {
            return None;
        }
        self.encoder.packed_mut(state.len).copy_from(&state.packed);
        self.encoder.compress_delta(&reference.packed.bytes)?;
        Some(self.encoder.last_delta())
    }

    /// Compresses a state by itself, with the dictionary. The result is `None` where [`pack`](Self::pack) returns
    /// `None`, and if zstd does not shorten the state.
    pub fn compress_whole(&mut self, names: &StateNames<'_>, bytes: &[u8]) -> Option<&[u8]> {
        if bytes.len() > MAX_LEN {
            return None;
        }
        let elided = ElidedObject::of(&names.identity(), bytes)?;
        Some(self.encoder.compress_alone(&elided)?.body)
    }

    /// Reads a body that [`compress_delta`](Self::compress_delta) returned, with the length of the state and the same
    /// reference. The result is `None` if the body is damaged.
    pub fn read_delta(&mut self, body: &[u8], len: u32, reference: &PackedState) -> Option<PackedState> {
        if len > MAX_DELTA_LEN {
            return None;
        }
        read_delta(&mut self.context, len, body, &reference.packed.bytes)?;
        let mut state = PackedState { packed: PackedObject::default(), len };
        state.packed.copy_from(&self.context.packed);
        Some(state)
    }

    /// Reads a body that [`compress_whole`](Self::compress_whole) returned, with the length of the state and the same
    /// dictionary. The result is `None` if the body is damaged.
    pub fn read_whole(&mut self, body: &[u8], len: u32) -> Option<PackedState> {
        if len as usize > MAX_LEN {
            return None;
        }
        read_whole(&mut self.context, StoredWhole { shared: &self.shared, body, wire_len: len })?;
        let mut bytes = Vec::new();
        pack::unpack(&self.context.packed, longest_elided(len as usize), &mut bytes)?;
        Some(self.pack_elided(&ElidedObject { bytes, wire_len: len }))
    }

    /// Returns the bytes of a state, or `None` if it was packed with other names.
    pub fn unpack(&mut self, state: &PackedState, names: &StateNames<'_>) -> Option<Vec<u8>> {
        let elided = &mut self.context.elided;
        pack::unpack(&state.packed, longest_elided(state.len as usize), elided)?;
        ElidedTexts::of(&names.identity()).restore(elided, state.len as usize)
    }
}

impl fmt::Debug for StateCodec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateCodec").field("has_dictionary", &self.shared.dictionary.is_some()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(name: &str, version: u32, random: &mut fastrand::Rng) -> String {
        format!(
            r#"{{"metadata":{{"namespace":"shop","name":"{name}","uid":"{:032x}","resourceVersion":"{version}"}},
            "spec":{{"image":"registry/shop@sha256:{:064x}","nodeName":"node-{}","phase":"Running"}}}}"#,
            7,
            random.u128(..),
            random.u8(..),
        )
    }

    fn names(resource_version: &str) -> StateNames<'_> {
        StateNames { namespace: "shop", name: "web-1", uid: "", resource_version }
    }

    #[test]
    fn each_state_is_read_from_a_chain_of_deltas() {
        let mut random = fastrand::Rng::with_seed(7);
        let samples: Vec<_> = (0..400).map(|number| json(&format!("web-{number}"), number, &mut random)).collect();
        let dictionary = StateCodec::train(samples.iter().map(|sample| (StateNames::default(), sample.as_bytes())));
        for dictionary in [None, dictionary] {
            let (mut writer, mut reader) =
                (StateCodec::new(dictionary.as_deref()), StateCodec::new(dictionary.as_deref()));
            let version = |number: u32| number.to_string();
            let first = json("web-1", 1, &mut random);
            let body = writer.compress_whole(&names("1"), first.as_bytes()).unwrap().to_vec();
            let mut read = reader.read_whole(&body, first.len().try_into().unwrap()).unwrap();
            let mut written = writer.pack(&names("1"), first.as_bytes()).unwrap();
            assert_eq!(read.checksum(), written.checksum());
            for number in 2..40 {
                let (version, state) = (version(number), json("web-1", number, &mut random));
                let names = names(&version);
                let next = writer.pack(&names, state.as_bytes()).unwrap();
                let body = writer.compress_delta(&next, &written).unwrap().to_vec();
                assert!(body.len() < 100, "{} bytes", body.len());
                read = reader.read_delta(&body, next.state_len(), &read).unwrap();
                assert_eq!(reader.unpack(&read, &names).unwrap(), state.as_bytes());
                written = next;
            }
        }
    }

    #[test]
    fn damaged_bodies_are_no_panic() {
        let mut random = fastrand::Rng::with_seed(8);
        let (old, new) = (json("web-1", 1, &mut random), json("web-1", 2, &mut random));
        let mut codec = StateCodec::new(None);
        let names = StateNames::default();
        let [old, new] = [old, new].map(|state| codec.pack(&names, state.as_bytes()).unwrap());
        let body = codec.compress_delta(&new, &old).unwrap().to_vec();
        for at in 0..body.len() {
            let mut damaged = body.clone();
            damaged[at] ^= 1 << random.u8(..8);
            if let Some(read) = codec.read_delta(&damaged, new.state_len(), &old) {
                _ = codec.unpack(&read, &names);
            }
            _ = codec.read_delta(&body[..at], new.state_len(), &old);
            _ = codec.read_whole(&damaged, 1 << 20);
        }
        assert!(codec.read_delta(&body, u32::MAX, &old).is_none());
    }
}
