//! The objects that a store returns, and how they are decoded.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use listwatch::internal::{self as view, Checked};
use listwatch::view::View;
use listwatch::{Encoding, ItemError, ItemRef, LabelSelector, Limits, MetaView, StoreType, TypeMeta};

use crate::compress::decoder::Decoder;
use crate::contain::{Contained, contain};
use crate::key::{Identity, ObjectKey};
use crate::state::decode_errors::DecodeErrors;
use crate::state::entry::Entry;

/// One state of an object of a store, which never changes because a write replaces the stored state by another.
///
/// Clones and the store share this state. It keeps no other object alive, but a compressed state keeps its dictionary
/// and its reference.
pub struct Object<T: StoreType + ?Sized> {
    encoded: Encoded<T>,
    /// The texts of uid and resource version, if they were needed and the entry contains them as numbers.
    uid: OnceLock<Box<str>>,
    resource_version: OnceLock<Box<str>>,
    /// The decoded object, for the next function of an index or filter.
    decoded: Option<OnceLock<Contained<Arc<T::Decoded>>>>,
}

impl<T: StoreType + ?Sized> Object<T> {
    pub(crate) fn new(entry: &Entry, codec: &Arc<Codec<T>>) -> Self {
        let (entry, codec) = (entry.clone(), Arc::clone(codec));
        let encoded = Encoded { entry, codec, bytes: OnceLock::new(), checked: OnceLock::new() };
        Self { encoded, uid: OnceLock::new(), resource_version: OnceLock::new(), decoded: None }
    }

    /// Creates an object for the functions of indexes and filters, which is decompressed and decoded once for all of
    /// them.
    pub(crate) fn for_functions(entry: &Entry, codec: &Arc<Codec<T>>) -> Self {
        Self { decoded: Some(OnceLock::new()), ..Self::new(entry, codec) }
    }

    /// Creates an object of the same store, [for functions](Self::for_functions).
    pub(crate) fn other_state(&self, entry: &Entry) -> Self {
        Self::for_functions(entry, &self.encoded.codec)
    }

    /// Adds the encoded bytes, unless the entry contains them.
    pub(crate) fn with_bytes(self, bytes: &[u8]) -> Self {
        if self.entry().as_encoded().is_none() {
            _ = self.encoded.bytes.set(bytes.into());
        }
        self
    }

    pub(crate) fn entry(&self) -> &Entry {
        &self.encoded.entry
    }

    /// Returns the namespace, which is empty for a cluster-scoped object.
    #[must_use]
    pub fn namespace(&self) -> &str {
        let (namespace, _) = self.entry().key();
        namespace
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        let (_, name) = self.entry().key();
        name
    }

    /// Returns the uid.
    #[must_use]
    pub fn uid(&self) -> &str {
        keep(self.entry().uid(), &self.uid)
    }

    /// Returns the resource version, which identifies this state of the object.
    #[must_use]
    pub fn resource_version(&self) -> &str {
        keep(self.entry().resource_version(), &self.resource_version)
    }

    /// Returns a copy of namespace and name.
    #[must_use]
    pub fn key(&self) -> ObjectKey {
        self.entry().identity().key()
    }

    /// Returns the encoding of the bytes, which is the one in which the object arrived.
    #[must_use]
    pub fn encoding(&self) -> Encoding {
        self.entry().encoding()
    }

    /// Returns the bytes of the object, which dereference to `[u8]`.
    ///
    /// If the object is compressed, the first call decompresses it, and this handle keeps the bytes until you drop it.
    ///
    /// # Errors
    ///
    /// [`ItemError`] when the object cannot be decompressed.
    pub fn encoded(&self) -> Result<&Encoded<T>, ItemError> {
        let encoded = &self.encoded;
        if encoded.known().is_none() {
            let bytes = encoded.codec.bytes_of(&encoded.entry)?;
            encoded.bytes.get_or_init(|| bytes.into());
        }
        Ok(encoded)
    }

    /// Returns the length of the [bytes](Self::encoded), without decompressing them.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        self.entry().wire_len() as usize
    }

    /// Returns a typed view, such as `PodView` of the crate `listwatch-views`, whose reads cannot fail.
    ///
    /// The first view of an object checks the whole object, which takes about 3 µs for a Pod of 8.5 kB, and the store
    /// remembers the check for all readers. An object that is valid but not [canonical](listwatch::view::Canonical) is
    /// rewritten. This handle keeps the rewritten bytes until you drop it, while the store keeps the bytes that
    /// arrived.
    ///
    /// If the [type meta](crate::Store::set_type_meta) of the store is known, as in a reflector's store, the view must
    /// be of its kind.
    ///
    /// # Errors
    ///
    /// The errors of [`encoded`](Self::encoded) and [`ItemRef::canonical`]. [`ItemError::NotCanonical`] occurs only if
    /// the same handle is viewed as a second kind.
    pub fn view<'a, V: View<'a>>(&'a self) -> Result<V, ItemError> {
        self.encoded()?.view()
    }

    /// Returns the metadata, read from the [bytes](Self::encoded) without decoding the rest.
    ///
    /// # Errors
    ///
    /// The errors of [`encoded`](Self::encoded), and [`ItemError::Metadata`] when the metadata cannot be read.
    pub fn meta(&self) -> Result<MetaView<'_>, ItemError> {
        self.item()?.meta().inspect_err(|error| self.encoded.count_error(error))
    }

    /// Returns the object as an item, for field paths and projections.
    ///
    /// Its type meta is the [store's](crate::Store::set_type_meta). If that is empty, set it with
    /// [`ItemRef::with_type_meta`] before you use a field selector or the JSON form, which need the kind.
    ///
    /// # Errors
    ///
    /// The same as [`encoded`](Self::encoded).
    pub fn item(&self) -> Result<ItemRef<'_>, ItemError> {
        Ok(self.encoded()?.item())
    }

    /// Returns the object in JSON, as the API server would send it: see [`ItemRef::to_json`].
    ///
    /// That method also returns the number of unknown fields that are left out.
    ///
    /// # Errors
    ///
    /// The errors of [`encoded`](Self::encoded) and [`ItemRef::to_json`].
    pub fn to_json(&self) -> Result<Vec<u8>, ItemError> {
        let mut json = Vec::new();
        self.item()?.to_json(&mut json)?;
        Ok(json)
    }

    /// Returns true if the selector matches the labels, and false if they cannot be read.
    pub(crate) fn matches(&self, selector: &LabelSelector) -> bool {
        let matches = |meta| selector.matches(&meta).inspect_err(|error| self.encoded.count_error(error));
        self.meta().and_then(matches).unwrap_or(false)
    }

    /// Decodes the object at every call, because nothing else keeps the value.
    ///
    /// Share the [`Arc`] between those who need it. Only the functions of indexes and filters that run for the same
    /// write share one value.
    ///
    /// # Errors
    ///
    /// [`ItemError`] when the bytes cannot be decoded or decoding panics, which
    /// [`StoreReader::decode_errors`](crate::StoreReader::decode_errors) counts.
    pub fn decode(&self) -> Result<Arc<T::Decoded>, ItemError> {
        if let Some(decoded) = self.decoded.as_ref().and_then(OnceLock::get).and_then(Contained::get) {
            return Ok(Arc::clone(decoded));
        }
        let Encoded { entry, codec, .. } = &self.encoded;
        // No lock is held, because this may run the caller's code.
        let decoded = match self.encoded.known() {
            Some(bytes) => codec.decode(self.encoding(), bytes),
            None => codec.bytes_of(entry).and_then(|bytes| codec.decode(self.encoding(), &bytes)),
        };
        let decoded = decoded.inspect_err(|error| self.encoded.count_error(error))?;
        if let Some(kept) = &self.decoded {
            _ = kept.set(Contained::new(Arc::clone(&decoded)));
        }
        Ok(decoded)
    }
}

/// Returns a text of an entry, and keeps it if the entry does not contain it as text.
fn keep<'a>(text: Cow<'a, str>, kept: &'a OnceLock<Box<str>>) -> &'a str {
    match text {
        Cow::Borrowed(text) => text,
        Cow::Owned(text) => kept.get_or_init(|| text.into()),
    }
}

impl<T: StoreType + ?Sized> Clone for Object<T> {
    fn clone(&self) -> Self {
        Self::new(&self.encoded.entry, &self.encoded.codec)
    }
}

/// Shows the identity of the object, but not its contents.
impl<T: StoreType + ?Sized> fmt::Debug for Object<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Identity { namespace, name, uid, resource_version } = self.entry().identity();
        f.debug_struct("Object")
            .field("namespace", &namespace)
            .field("name", &name)
            .field("uid", &uid)
            .field("resource_version", &resource_version)
            .finish_non_exhaustive()
    }
}

/// The bytes of an [`Object`], which dereference to `[u8]` and live as long as the object.
pub struct Encoded<T: StoreType + ?Sized> {
    entry: Entry,
    codec: Arc<Codec<T>>,
    /// The bytes of the object, if they were needed and the entry does not contain them.
    bytes: OnceLock<Box<[u8]>>,
    /// The result of a check that the entry cannot remember.
    checked: OnceLock<Checked>,
}

impl<T: StoreType + ?Sized> Encoded<T> {
    fn known(&self) -> Option<&[u8]> {
        self.entry.as_encoded().or(self.bytes.get().map(AsRef::as_ref))
    }

    fn item(&self) -> ItemRef<'_> {
        self.codec.item(self.entry.encoding(), self)
    }

    #[cold]
    fn count_error(&self, error: &ItemError) {
        self.codec.errors.count(&self.entry, error);
    }

    /// Returns a typed view: see [`Object::view`].
    ///
    /// # Errors
    ///
    /// The same as [`Object::view`].
    pub fn view<'a, V: View<'a>>(&'a self) -> Result<V, ItemError> {
        // A check that was remembered before the kind of the collection was known may be of another kind.
        if let Some(type_meta) = self.codec.type_meta.get() {
            V::kind().expect(type_meta)?;
        }
        let number = view::number(V::kind());
        if number != 0 && self.entry.checked() == number {
            return Ok(view::trusted(self));
        }
        let checked = match self.checked.get() {
            Some(checked) if checked.number == number => checked,
            _ => {
                let checked = view::check(V::kind(), &self.item()).inspect_err(|error| self.count_error(error))?;
                if checked.rewritten.is_none() && self.entry.remember_checked(number) {
                    return Ok(view::trusted(self));
                }
                self.checked.get_or_init(|| checked)
            }
        };
        match &checked.rewritten {
            _ if checked.number != number => Err(ItemError::NotCanonical),
            Some(rewritten) => Ok(view::trusted(rewritten)),
            None => Ok(view::trusted(self)),
        }
    }
}

impl<T: StoreType + ?Sized> Deref for Encoded<T> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // `Object::encoded` returns it only once the bytes are known.
        self.known().unwrap_or_default()
    }
}

impl<T: StoreType + ?Sized> AsRef<[u8]> for Encoded<T> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// Shows the length but no bytes, which may be a Secret.
impl<T: StoreType + ?Sized> fmt::Debug for Encoded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoded").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// Decodes the objects of a store. The objects keep it alive, but not the store.
pub(crate) struct Codec<T: StoreType + ?Sized> {
    /// Objects are decoded as `T`, but none is kept here.
    kind: PhantomData<fn(&T)>,
    pub(crate) decoder: Decoder,
    /// The type meta of the objects, or of their list, once it is known.
    pub(crate) type_meta: OnceLock<TypeMeta>,
    /// The error of every object, if `T` reads another kind than that.
    wrong_kind: OnceLock<ItemError>,
    pub(crate) errors: DecodeErrors,
    /// [`Limits::decoded_size`]
    pub(crate) decoded_size: AtomicU64,
}

impl<T: StoreType + ?Sized> Codec<T> {
    pub(crate) fn new() -> Self {
        Self {
            kind: PhantomData,
            decoder: Decoder::default(),
            type_meta: OnceLock::new(),
            wrong_kind: OnceLock::new(),
            errors: DecodeErrors::default(),
            decoded_size: AtomicU64::new(Limits::DEFAULT_DECODED_SIZE),
        }
    }

    pub(crate) fn set_type_meta(&self, type_meta: TypeMeta) {
        self.type_meta.get_or_init(|| {
            if let Err(error) = T::check_kind(&type_meta) {
                self.wrong_kind.get_or_init(|| error);
            }
            type_meta
        });
    }

    /// Decodes the bytes of an object of the store.
    ///
    /// # Errors
    ///
    /// [`ItemError`], also when the code of the type panics. It is [`ItemError::WrongKind`] for every object if the
    /// type reads another kind than the store's.
    pub(crate) fn decode(&self, encoding: Encoding, bytes: &[u8]) -> Result<Arc<T::Decoded>, ItemError> {
        match self.wrong_kind.get() {
            Some(error) => Err(error.clone()),
            None => Ok(Arc::new(contain(|| T::decode(self.item(encoding, bytes)))??)),
        }
    }

    pub(crate) fn item<'a>(&'a self, encoding: Encoding, bytes: &'a [u8]) -> ItemRef<'a> {
        let item = ItemRef::new(encoding, bytes).with_decoded_size(self.decoded_size.load(Relaxed));
        self.type_meta.get().map_or(item, |type_meta| item.with_type_meta(type_meta))
    }

    /// Returns a copy of the bytes of an object, decompressed if needed.
    pub(crate) fn bytes_of(&self, entry: &Entry) -> Result<Vec<u8>, ItemError> {
        match entry.as_encoded() {
            Some(bytes) => Ok(bytes.into()),
            None => entry.compressed().and_then(|object| self.decoder.decode(&object)).ok_or_else(undecompressed),
        }
    }
}

fn undecompressed() -> ItemError {
    let error: Box<dyn std::error::Error + Send + Sync> = "zstd cannot decompress the object".into();
    ItemError::Other(error.into())
}

#[cfg(test)]
mod tests {
    use listwatch::view::{Canonical, ViewKind};

    use super::*;
    use crate::{StorageFormat, Store};

    #[derive(Clone, Copy)]
    struct PodBytes<'a>(&'a [u8]);

    impl<'a> View<'a> for PodBytes<'a> {
        fn kind() -> &'static ViewKind {
            static POD: ViewKind = ViewKind::new(&["v1"], "Pod");
            &POD
        }

        fn new(object: Canonical<'a>) -> Self {
            Self(object.bytes())
        }
    }

    #[test]
    fn a_store_remembers_the_check_of_bytes_that_it_keeps() {
        let canonical = b"\x0a\x09\x0a\x03web\x1a\x02ns";
        for (format, bytes, remembers) in [
            (StorageFormat::Encoded, &canonical[..], true),
            // Not canonical.
            (StorageFormat::Encoded, b"\x0a\x09\x1a\x02ns\x0a\x03web", false),
        ] {
            let store = Store::<[u8]>::new(format);
            drop(store.apply(Encoding::Protobuf, bytes).unwrap());
            let object = store.get(("ns", "web")).unwrap();
            assert_eq!(object.entry().checked(), 0);
            assert_eq!(object.view::<PodBytes<'_>>().unwrap().0, canonical);
            let number = view::number(PodBytes::kind());
            assert!(number > 0);
            assert_eq!(object.entry().checked(), if remembers { number } else { 0 }, "{format:?}");
            assert_eq!(store.get(("ns", "web")).unwrap().view::<PodBytes<'_>>().unwrap().0, canonical);
        }
    }

    #[test]
    fn compressing_an_object_keeps_the_check() {
        let store = Store::<[u8]>::new(StorageFormat::Compressed);
        for version in [b'1', b'2'] {
            let metadata = [&b"\x0a\x0bpod-0000000\x1a\x02ns\x32\x01"[..], &[version]].concat();
            let spec = [&b"\x12\x34\x52\x32"[..], &[b'n'; 50]].concat();
            let bytes = [&[0x0a, u8::try_from(metadata.len()).unwrap()], &metadata[..], &spec].concat();
            drop(store.apply(Encoding::Protobuf, &bytes).unwrap());
        }
        // A changed object is kept encoded for now.
        let object = store.get(("ns", "pod-0000000")).unwrap();
        assert!(object.entry().as_encoded().is_some());
        assert!(object.view::<PodBytes<'_>>().is_ok());
        assert_eq!(store.memory().encoded, 0);
        let object = store.get(("ns", "pod-0000000")).unwrap();
        assert!(object.entry().as_encoded().is_none());
        assert_eq!(object.entry().checked(), view::number(PodBytes::kind()));
        assert!(object.view::<PodBytes<'_>>().is_ok());
    }
}
