//! What a store hands out: the bytes of an object, decoded when somebody wants it.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock, Weak};

#[cfg(feature = "zstd")]
use super::compress::Decompressor;
use super::entry::{Entry, Form, Identity};
use super::store::ObjectKey;
use crate::error::ItemError;
use crate::limits::Limits;
#[cfg(feature = "json")]
use crate::meta::TypeMeta;
#[cfg(feature = "json")]
use crate::object::Json;
use crate::object::{self, ItemRef, MetaView};
#[cfg(feature = "json")]
use crate::schema;
use crate::sync::{Mutex, lock};
use crate::wire::Encoding;

/// What a [`Store`](super::Store) can hold: any prost message, [`Json<T>`](crate::Json), and `[u8]` where nothing is to be
/// decoded.
///
/// prost drops fields that the message does not have: what such an object is encoded to is not all that it came with.
pub trait Stored: 'static {
    /// What an object is decoded to: `M`, `T`, and for `[u8]` a copy of its bytes.
    type Decoded: Send + Sync + 'static;

    /// Decodes an object.
    ///
    /// # Errors
    ///
    /// [`ItemError`] when the bytes cannot become one.
    fn decode(encoding: Encoding, bytes: &[u8]) -> Result<Self::Decoded, ItemError>;

    /// Encodes an object, in the encoding that it came in.
    ///
    /// # Errors
    ///
    /// [`ItemError`] when it cannot be encoded.
    fn encode(decoded: &Self::Decoded) -> Result<Vec<u8>, ItemError>;
}

impl<M: prost::Message + Default + 'static> Stored for M {
    type Decoded = M;

    fn decode(encoding: Encoding, bytes: &[u8]) -> Result<M, ItemError> {
        expect(Encoding::Protobuf, encoding)?;
        let mut message = M::default();
        object::merge(&mut message, bytes, Limits::DEFAULT_DECODED_SIZE)?;
        Ok(message)
    }

    fn encode(decoded: &M) -> Result<Vec<u8>, ItemError> {
        Ok(decoded.encode_to_vec())
    }
}

#[cfg(feature = "json")]
impl<T: serde::de::DeserializeOwned + serde::Serialize + Send + Sync + 'static> Stored for Json<T> {
    type Decoded = T;

    fn decode(encoding: Encoding, bytes: &[u8]) -> Result<T, ItemError> {
        expect(Encoding::Json, encoding)?;
        object::deserialize(bytes, Limits::DEFAULT_DECODED_SIZE)
    }

    fn encode(decoded: &T) -> Result<Vec<u8>, ItemError> {
        serde_json::to_vec(decoded).map_err(|error| ItemError::Json(error.into()))
    }
}

impl Stored for [u8] {
    type Decoded = Box<[u8]>;

    fn decode(_: Encoding, bytes: &[u8]) -> Result<Box<[u8]>, ItemError> {
        Ok(bytes.into())
    }

    fn encode(decoded: &Box<[u8]>) -> Result<Vec<u8>, ItemError> {
        Ok(decoded.to_vec())
    }
}

fn expect(expected: Encoding, found: Encoding) -> Result<(), ItemError> {
    if found == expected { Ok(()) } else { Err(ItemError::WrongEncoding { found, expected }) }
}

/// An object of a store, in the state that it had when it was read; or a changed copy of it.
///
/// It and its clones share what the store has: nothing is copied, and nothing else of the store is kept alive by it, but
/// for the dictionary of a compressed one. What is decoded is decoded once and shared for as long as anybody holds it.
pub struct Object<T: Stored + ?Sized> {
    entry: Arc<Entry<T::Decoded>>,
    codec: Arc<Codec<T>>,
    changed: Option<Arc<Changed<T::Decoded>>>,
}

struct Changed<D> {
    value: Arc<D>,
    encoded: OnceLock<Result<Vec<u8>, ItemError>>,
}

impl<T: Stored + ?Sized> Object<T> {
    pub(super) fn new(entry: &Arc<Entry<T::Decoded>>, codec: &Arc<Codec<T>>) -> Self {
        Self { entry: Arc::clone(entry), codec: Arc::clone(codec), changed: None }
    }

    pub(super) fn entry(&self) -> Arc<Entry<T::Decoded>> {
        Arc::clone(&self.entry)
    }

    /// Which object it is, and which state of it; of a changed one that which was changed.
    #[must_use]
    pub fn identity(&self) -> Identity<'_> {
        self.entry.identity()
    }

    /// Its key, copied.
    #[must_use]
    pub fn key(&self) -> ObjectKey {
        ObjectKey::of(&self.identity())
    }

    /// How it is encoded: as it came.
    #[must_use]
    pub fn encoding(&self) -> Encoding {
        self.entry.encoding()
    }

    /// Its bytes: borrowed where they are held encoded, decompressed or encoded into a new allocation elsewhere. Those of
    /// a changed one are encoded once for all that share it.
    ///
    /// # Errors
    ///
    /// [`ItemError`] when it cannot be encoded.
    pub fn encoded(&self) -> Result<Cow<'_, [u8]>, ItemError> {
        let Some(changed) = &self.changed else { return self.codec.encoded(&self.entry) };
        match changed.encoded.get_or_init(|| T::encode(&changed.value)) {
            Ok(encoded) => Ok(encoded.into()),
            Err(error) => Err(error.clone()),
        }
    }

    /// Appends it to `out` as JSON on one line, as [`ItemRef::to_json`](crate::ItemRef::to_json) does with an item; `of` is the
    /// type meta of the object or of its list. Returns the number of fields that are left out, too.
    ///
    /// # Errors
    ///
    /// Those of [`encoded`](Self::encoded) and of that. `out` is then as it was.
    #[cfg(feature = "json")]
    pub fn to_json(&self, of: &TypeMeta, out: &mut Vec<u8>) -> Result<u64, ItemError> {
        let encoded = self.encoded()?;
        match self.encoding() {
            Encoding::Protobuf => schema::to_json(of, &encoded, out),
            Encoding::Json => schema::to_line(of, &encoded, out).map(|()| 0),
        }
    }

    /// What it decodes to. As long as anybody holds it, everybody gets the same.
    ///
    /// # Errors
    ///
    /// [`ItemError`] when its bytes cannot become one.
    pub fn decode(&self) -> Result<Arc<T::Decoded>, ItemError> {
        match &self.changed {
            Some(changed) => Ok(Arc::clone(&changed.value)),
            None => self.codec.decode(&self.entry),
        }
    }

    /// To change it. What others hold, and what the store has, stays as it is: it is cloned first if it is shared.
    ///
    /// # Errors
    ///
    /// As [`decode`](Self::decode).
    pub fn make_mut(&mut self) -> Result<&mut T::Decoded, ItemError>
    where
        T::Decoded: Clone,
    {
        let changed = match self.changed.take() {
            Some(changed) => changed,
            None => Arc::new(Changed { value: self.codec.decode(&self.entry)?, encoded: OnceLock::new() }),
        };
        let changed = Arc::make_mut(self.changed.insert(changed));
        changed.encoded = OnceLock::new();
        Ok(Arc::make_mut(&mut changed.value))
    }
}

impl<T: Stored + ?Sized> Clone for Object<T> {
    fn clone(&self) -> Self {
        let Self { entry, codec, changed } = self;
        Self { entry: Arc::clone(entry), codec: Arc::clone(codec), changed: changed.clone() }
    }
}

/// Says which object it is, not what is in it.
impl<T: Stored + ?Sized> fmt::Debug for Object<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Object").field(&self.identity()).finish()
    }
}

/// To be changed once more, so it is not encoded yet.
impl<D> Clone for Changed<D> {
    fn clone(&self) -> Self {
        Self { value: Arc::clone(&self.value), encoded: OnceLock::new() }
    }
}

/// An object, lent to the function of an index.
pub struct ObjectRef<'a, T: Stored + ?Sized> {
    identity: &'a Identity<'a>,
    encoding: Encoding,
    encoded: OnceCell<Cow<'a, [u8]>>,
    decoded: OnceCell<Arc<T::Decoded>>,
    /// Has what is not there yet.
    object: Option<&'a Object<T>>,
}

impl<'a, T: Stored + ?Sized> ObjectRef<'a, T> {
    /// What is being written. Decoded already, if it is to be held so.
    pub(super) fn lent(
        identity: &'a Identity<'a>,
        encoding: Encoding,
        bytes: &'a [u8],
        form: &Form<T::Decoded>,
    ) -> Self {
        let decoded = match form {
            Form::Decoded(_, decoded) => OnceCell::from(Arc::clone(decoded)),
            _ => OnceCell::new(),
        };
        Self { identity, encoding, encoded: OnceCell::from(Cow::from(bytes)), decoded, object: None }
    }

    pub(super) fn kept(identity: &'a Identity<'a>, object: &'a Object<T>) -> Self {
        let (encoded, decoded) = (OnceCell::new(), OnceCell::new());
        Self { identity, encoding: object.encoding(), encoded, decoded, object: Some(object) }
    }

    /// Which object it is, and which state of it.
    #[must_use]
    pub fn identity(&self) -> &Identity<'_> {
        self.identity
    }

    /// How it is encoded.
    #[must_use]
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Its bytes.
    ///
    /// # Errors
    ///
    /// [`ItemError`] when it is held decoded and cannot be encoded.
    pub fn encoded(&self) -> Result<&[u8], ItemError> {
        if let (None, Some(object)) = (self.encoded.get(), self.object) {
            _ = self.encoded.set(object.encoded()?);
        }
        Ok(self.encoded.get().map_or(&[], |encoded| encoded))
    }

    /// Returns the object as an item, for a [`FieldPath`](crate::FieldPath) or a [`Projection`](crate::Projection).
    ///
    /// # Errors
    ///
    /// Those of [`encoded`](Self::encoded).
    pub fn item(&self) -> Result<ItemRef<'_>, ItemError> {
        Ok(ItemRef::new(self.encoding, self.encoded()?))
    }

    /// Its metadata.
    ///
    /// # Errors
    ///
    /// [`ItemError::Metadata`] when they cannot be read.
    pub fn meta(&self) -> Result<MetaView<'_>, ItemError> {
        self.item()?.meta()
    }

    /// What it decodes to, decoded once for all indexes.
    ///
    /// # Errors
    ///
    /// [`ItemError`] when its bytes cannot become one.
    pub fn decode(&self) -> Result<&Arc<T::Decoded>, ItemError> {
        let decoded = match (self.decoded.get(), self.object) {
            (Some(decoded), _) => return Ok(decoded),
            (None, Some(object)) => object.decode()?,
            (None, None) => Arc::new(T::decode(self.encoding, self.encoded()?)?),
        };
        Ok(self.decoded.get_or_init(|| decoded))
    }
}

/// What the objects of a store have in common to be decoded. They keep it alive, and not the store.
pub(super) struct Codec<T: Stored + ?Sized> {
    #[cfg(feature = "zstd")]
    pub(super) decompressor: Decompressor,
    /// By the address of the entry, in parts with a lock each.
    decoded: [Mutex<Shared<T::Decoded>>; PARTS],
    hot: Option<Hot<T::Decoded>>,
}

const PARTS: usize = 16;

/// What is decoded just now, and some of what was.
struct Shared<D> {
    /// Memory that a weak reference has is not given to another entry, so that an address names one.
    known: HashMap<usize, (Weak<Entry<D>>, Weak<D>)>,
    /// When `known` is this long, it is time to look who was dropped: twice what was alive the last time.
    full: usize,
}

impl<D> Default for Shared<D> {
    fn default() -> Self {
        Self { known: HashMap::new(), full: 16 }
    }
}

impl<D> Shared<D> {
    fn get(&self, address: usize) -> Option<Arc<D>> {
        self.known.get(&address).and_then(|(_, decoded)| decoded.upgrade())
    }

    /// Returns what another thread has inserted before; else inserts `decoded`.
    fn get_or_insert(&mut self, address: usize, entry: &Arc<Entry<D>>, decoded: &Arc<D>) -> Option<Arc<D>> {
        let known = self.get(address);
        if known.is_none() {
            if self.known.len() >= self.full {
                self.forget_dropped();
            }
            self.known.insert(address, (Arc::downgrade(entry), Arc::downgrade(decoded)));
        }
        known
    }

    fn forget_dropped(&mut self) {
        self.known.retain(|_, (_, decoded)| decoded.strong_count() > 0);
        self.full = (2 * self.known.len()).max(16);
        self.known.shrink_to(self.full);
    }
}

type Hot<D> = quick_cache::sync::Cache<usize, (Arc<D>, u32), Weight<D>>;

impl<T: Stored + ?Sized> Codec<T> {
    pub(super) fn new(hot_bytes: u64) -> Self {
        let hot = (hot_bytes > 0).then(|| {
            let objects = usize::try_from(hot_bytes / (64 << 10)).unwrap_or(usize::MAX).clamp(16, 1 << 20);
            Hot::with_weighter(objects, hot_bytes, Weight(PhantomData))
        });
        Self {
            #[cfg(feature = "zstd")]
            decompressor: Decompressor::default(),
            decoded: Default::default(),
            hot,
        }
    }

    #[cfg_attr(not(feature = "zstd"), expect(clippy::unused_self))]
    fn encoded<'e>(&self, entry: &'e Entry<T::Decoded>) -> Result<Cow<'e, [u8]>, ItemError> {
        match entry.form() {
            Form::Encoded(_) | Form::EncodedBeside(_) => Ok(entry.body().into()),
            #[cfg(feature = "zstd")]
            Form::Compressed(_, dictionary) => {
                let bytes = self.decompressor.decompress(entry.body(), entry.wire_len(), dictionary.as_deref());
                bytes.map(Cow::from).ok_or_else(|| {
                    let error: Box<dyn std::error::Error + Send + Sync> = "zstd refuses what it compressed".into();
                    ItemError::Other(error.into())
                })
            }
            Form::Decoded(_, value) => T::encode(value).map(Cow::from),
        }
    }

    fn decode(&self, entry: &Arc<Entry<T::Decoded>>) -> Result<Arc<T::Decoded>, ItemError> {
        if let Form::Decoded(_, value) = entry.form() {
            return Ok(Arc::clone(value));
        }
        let address = Arc::as_ptr(entry).addr();
        let known = lock(self.part(entry)).get(address);
        let decoded = if let Some(decoded) = known {
            decoded
        } else {
            // Without the lock, as it may run the user's code. What another thread has decoded meanwhile is shared.
            let decoded = Arc::new(T::decode(entry.encoding(), &self.encoded(entry)?)?);
            let known = lock(self.part(entry)).get_or_insert(address, entry, &decoded);
            known.unwrap_or(decoded)
        };
        if let Some(hot) = &self.hot
            && hot.get(&address).is_none_or(|(held, _)| !Arc::ptr_eq(&held, &decoded))
        {
            hot.insert(address, (Arc::clone(&decoded), entry.wire_len()));
        }
        Ok(decoded)
    }

    /// Bytes of the decoded objects that are kept, estimated.
    pub(super) fn hot_bytes(&self) -> u64 {
        self.hot.as_ref().map_or(0, Hot::weight)
    }

    /// Has one entry take the place of another one of the same state.
    #[cfg(feature = "zstd")]
    pub(super) fn share(&self, old: &Arc<Entry<T::Decoded>>, new: &Arc<Entry<T::Decoded>>) {
        let known = match old.form() {
            Form::Decoded(_, value) => Some(Arc::downgrade(value)),
            _ => lock(self.part(old)).known.get(&Arc::as_ptr(old).addr()).map(|(_, decoded)| decoded.clone()),
        };
        if let Some(decoded) = known {
            lock(self.part(new)).known.insert(Arc::as_ptr(new).addr(), (Arc::downgrade(new), decoded));
        }
    }

    fn part(&self, entry: &Arc<Entry<T::Decoded>>) -> &Mutex<Shared<T::Decoded>> {
        #[expect(clippy::indexing_slicing, reason = "a remainder is in range")]
        &self.decoded[Arc::as_ptr(entry).addr() / 16 % PARTS]
    }

    /// Frees what weak references keep of decoded objects that nobody holds.
    pub(super) fn forget_dropped(&self) {
        self.decoded.iter().for_each(|part| lock(part).forget_dropped());
    }

    /// Bytes of what knows the decoded ones.
    pub(super) fn shared_bytes(&self) -> usize {
        let entry = size_of::<(usize, (Weak<Entry<T::Decoded>>, Weak<T::Decoded>))>() + 1;
        self.decoded.iter().map(|part| lock(part).known.capacity() * 8 / 7 * entry).sum()
    }
}

/// About how many bytes an object takes when it is decoded, for each that it has encoded. Pods of k8s-pb were seen to take
/// 6 to 10.
pub(super) const DECODED_FACTOR: u64 = 8;

struct Weight<D>(PhantomData<fn() -> D>);

impl<D> Clone for Weight<D> {
    fn clone(&self) -> Self {
        Self(PhantomData)
    }
}

impl<D> quick_cache::Weighter<usize, (Arc<D>, u32)> for Weight<D> {
    fn weight(&self, _: &usize, (_, wire_len): &(Arc<D>, u32)) -> u64 {
        size_of::<D>() as u64 + DECODED_FACTOR * u64::from(*wire_len)
    }
}
