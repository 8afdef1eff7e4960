//! The limits on bodies.

pub(crate) mod estimate;

/// The limits of a [`ListDecoder`](crate::ListDecoder) or a [`WatchDecoder`](crate::WatchDecoder).
///
/// A body over a limit is an error; [`DecodeError::limit`](crate::DecodeError::limit) returns the limit and the sizes.
/// The decoder returns the error when the body declares the length, before it receives the bytes; in JSON, which
/// declares no lengths, at the first byte over the limit.
///
/// A watch has no end: only [`item_size`](Self::item_size), [`metadata_size`](Self::metadata_size) and
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

    /// The default of [`decoded_size`](Self::decoded_size): 64 MiB.
    pub const DEFAULT_DECODED_SIZE: u64 = 64 << 20;

    /// Sets the largest item, in bytes: [`DEFAULT_ITEM_SIZE`](Self::DEFAULT_ITEM_SIZE) unless set.
    ///
    /// In a watch it is the largest frame: an object with its enclosing event.
    ///
    /// It bounds the decoder's memory, because an item that is split over chunks is assembled in one buffer.
    #[must_use]
    pub const fn item_size(mut self, bytes: u64) -> Self {
        self.item_size = bytes;
        self
    }

    /// Sets the largest number of items, including skipped items: no limit unless set.
    ///
    /// It protects callers that keep the items: two bytes of a body are enough for an item.
    #[must_use]
    pub const fn items(mut self, items: u64) -> Self {
        self.items = items;
        self
    }

    /// Sets the largest body, in bytes after decompression: no limit unless set.
    ///
    /// It stops a gzip bomb.
    #[must_use]
    pub const fn bytes(mut self, bytes: u64) -> Self {
        self.bytes = bytes;
        self
    }

    /// Sets the longest string of the type meta and of the list meta (in JSON, all of the list's `metadata`), and the
    /// largest `Status`, also in a watch, in bytes: [`DEFAULT_METADATA_SIZE`](Self::DEFAULT_METADATA_SIZE) unless set.
    ///
    /// It bounds the memory that the decoder keeps for them.
    #[must_use]
    pub const fn metadata_size(mut self, bytes: u64) -> Self {
        self.metadata_size = bytes;
        self
    }

    /// Sets the most memory that an item may take when it is decoded, estimated in advance from its bytes:
    /// [`DEFAULT_DECODED_SIZE`](Self::DEFAULT_DECODED_SIZE) unless set. An item over it is
    /// [`ItemError::DecodedSize`](crate::ItemError::DecodedSize), which
    /// [`skip_item_errors`](crate::ListReader::skip_item_errors) skips. Stores use the default.
    ///
    /// It bounds the memory for an item with a few bytes per element: 1.4 MB of empty volumes would take 2.3 GB. Items
    /// of up to 16 KiB are not estimated. The estimate is 64 bytes for each string or message, 1 KiB more for a value
    /// whose bytes could be a message, 16 bytes for each number, and the length of strings; in JSON it is the length, 1
    /// KiB for each object or array and 64 bytes for each comma. k8s-pb may allocate up to five times the estimate.
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
