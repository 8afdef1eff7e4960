//! The limits on bodies.

/// The limits of a [`ListDecoder`](crate::ListDecoder) or a [`WatchDecoder`](crate::WatchDecoder).
///
/// A body that exceeds a limit is an error, whose [`DecodeError::limit`](crate::DecodeError::limit) names the limit.
/// The decoder returns it as soon as the body declares such a length, before it receives the bytes. JSON declares no
/// lengths, so there the error comes with the first byte over the limit.
///
/// A watch has no end, so only [`item_size`](Self::item_size), [`metadata_size`](Self::metadata_size) and
/// [`decoded_size`](Self::decoded_size) apply to it.
///
/// ```
/// use listwatch::Limits;
///
/// let limits = Limits::default().item_size(2 << 20).items(1_000_000);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub(crate) item_size: u64,
    pub(crate) items: u64,
    pub(crate) bytes: u64,
    pub(crate) metadata_size: u64,
    pub(crate) decoded_size: u64,
}

impl Limits {
    /// The default of [`item_size`](Self::item_size): 16 MiB, the same as client-go's limit for a frame of a watch.
    /// etcd refuses objects above 1.5 MiB by default, but aggregated API servers may use other storage.
    pub const DEFAULT_ITEM_SIZE: u64 = 16 << 20;

    /// The default of [`metadata_size`](Self::metadata_size): 1 MiB.
    pub const DEFAULT_METADATA_SIZE: u64 = 1 << 20;

    /// The default of [`decoded_size`](Self::decoded_size): 256 MiB, which real objects of the 1.5 MiB that etcd allows
    /// do not reach.
    pub const DEFAULT_DECODED_SIZE: u64 = 256 << 20;

    /// Sets the largest item, in bytes: [`DEFAULT_ITEM_SIZE`](Self::DEFAULT_ITEM_SIZE) unless set.
    ///
    /// In a watch, this bounds a frame: an object with its enclosing event.
    ///
    /// This limit bounds the decoder's memory, because an item that is split over chunks is assembled in one buffer.
    #[must_use]
    pub const fn item_size(mut self, bytes: u64) -> Self {
        self.item_size = bytes;
        self
    }

    /// Sets the largest number of items, including skipped items: no limit unless set.
    ///
    /// This limit protects callers that keep the items, because two bytes of a body are enough for an item.
    #[must_use]
    pub const fn items(mut self, items: u64) -> Self {
        self.items = items;
        self
    }

    /// Sets the largest body, in bytes after decompression: no limit unless set.
    ///
    /// This limit stops a gzip bomb.
    #[must_use]
    pub const fn bytes(mut self, bytes: u64) -> Self {
        self.bytes = bytes;
        self
    }

    /// Sets the longest string of the type meta and of the list meta (in JSON, all of the list's `metadata`), and the
    /// largest `Status`, also in a watch, in bytes: [`DEFAULT_METADATA_SIZE`](Self::DEFAULT_METADATA_SIZE) unless set.
    ///
    /// This limit bounds the memory that the decoder keeps for them.
    #[must_use]
    pub const fn metadata_size(mut self, bytes: u64) -> Self {
        self.metadata_size = bytes;
        self
    }

    /// Sets the most memory that an item may take when it is decoded, estimated in advance from its bytes:
    /// [`DEFAULT_DECODED_SIZE`](Self::DEFAULT_DECODED_SIZE) unless set. An item over it is
    /// [`ItemError::DecodedSize`](crate::ItemError::DecodedSize), which
    /// [`skip_item_errors`](crate::ListReader::skip_item_errors) skips.
    /// [`ItemRef::with_decoded_size`](crate::ItemRef::with_decoded_size) sets it for one item, and `set_decoded_size`
    /// of a store for its objects.
    ///
    /// This limit stops an item whose elements take only a few bytes each: 1.4 MB of empty volumes would decode to 2.3
    /// GB. Items of up to 16 KiB are not estimated. If the [table of fields](crate::schema) has the item's kind, the
    /// estimate is the length of all strings, and 16 to 48 bytes for each field of each message, present or absent;
    /// three or four times that in a list or map. That is more than the types of k8s-pb take. For another kind in
    /// protobuf it is 64 bytes for each string or message and 1 KiB more for a value whose bytes could be a message. In
    /// JSON it is the length, 1 KiB for each object, 160 bytes for each array and 112 bytes for each comma; large
    /// structs may take more.
    #[must_use]
    pub const fn decoded_size(mut self, bytes: u64) -> Self {
        self.decoded_size = bytes;
        self
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            item_size: Self::DEFAULT_ITEM_SIZE,
            items: u64::MAX,
            bytes: u64::MAX,
            metadata_size: Self::DEFAULT_METADATA_SIZE,
            decoded_size: Self::DEFAULT_DECODED_SIZE,
        }
    }
}
