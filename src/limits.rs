//! Limits on the size of bodies and items.

/// Limits on what a [`ListDecoder`](crate::ListDecoder) or a [`WatchDecoder`](crate::WatchDecoder) accepts.
///
/// A body that exceeds a limit ends in an error, and [`DecodeError::limit`](crate::DecodeError::limit) says which limit
/// it was. A protobuf body fails as soon as it declares such a length, before the decoder has received those bytes.
/// JSON declares no lengths, so there the first byte beyond the limit fails.
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
    /// The default of [`item_size`](Self::item_size): 16 MiB, which is also client-go's limit for a frame of a watch.
    ///
    /// etcd refuses objects above 1.5 MiB by default, but aggregated API servers may use other storage.
    pub const DEFAULT_ITEM_SIZE: u64 = 16 << 20;

    /// The default of [`metadata_size`](Self::metadata_size): 1 MiB.
    pub const DEFAULT_METADATA_SIZE: u64 = 1 << 20;

    /// The default of [`decoded_size`](Self::decoded_size): 256 MiB.
    ///
    /// Real objects do not come near this limit, because etcd allows only 1.5 MiB of encoded bytes.
    pub const DEFAULT_DECODED_SIZE: u64 = 256 << 20;

    /// Sets the largest item in bytes, or in a watch the largest frame, which is an object and its event around it.
    ///
    /// An item that is split over chunks is assembled in one buffer, so this limit also bounds the memory of the
    /// decoder. The default is [`DEFAULT_ITEM_SIZE`](Self::DEFAULT_ITEM_SIZE).
    #[must_use]
    pub const fn item_size(mut self, bytes: u64) -> Self {
        self.item_size = bytes;
        self
    }

    /// Sets the largest number of items, including skipped ones. There is no limit by default.
    ///
    /// This limit protects callers that keep the items, because an item may take as little as two bytes of the body.
    #[must_use]
    pub const fn items(mut self, items: u64) -> Self {
        self.items = items;
        self
    }

    /// Sets the largest body in bytes, counted after decompression. There is no limit by default.
    ///
    /// This limit stops gzip bombs.
    #[must_use]
    pub const fn bytes(mut self, bytes: u64) -> Self {
        self.bytes = bytes;
        self
    }

    /// Sets the largest metadata of a list, and the largest `Status`, in bytes.
    ///
    /// The limit applies to each string of the type meta and of the list meta; in JSON it applies to the list's whole
    /// `metadata`. It bounds the memory that the decoder keeps for them. The default is
    /// [`DEFAULT_METADATA_SIZE`](Self::DEFAULT_METADATA_SIZE).
    #[must_use]
    pub const fn metadata_size(mut self, bytes: u64) -> Self {
        self.metadata_size = bytes;
        self
    }

    /// Sets the most memory that decoding an item may take, as estimated from its bytes before it is decoded.
    ///
    /// This limit stops an item whose elements take only a few bytes each: 1.4 MB of empty volumes would decode to 2.3
    /// GB. An item beyond the limit is [`ItemError::DecodedSize`](crate::ItemError::DecodedSize), which
    /// [`skip_item_errors`](crate::ListReader::skip_item_errors) can skip.
    /// [`ItemRef::with_decoded_size`](crate::ItemRef::with_decoded_size) sets the limit of a single item, and
    /// `set_decoded_size` of a store sets it for the objects of the store. The default is
    /// [`DEFAULT_DECODED_SIZE`](Self::DEFAULT_DECODED_SIZE).
    ///
    /// Items of up to 16 KiB are not estimated. The estimate of a larger item depends on what is known about it:
    ///
    /// - A kind in the [table of fields](crate::schema): the length of all strings, plus 16 to 48 bytes for each field
    ///   of each message, whether present or absent, and three or four times as much inside a list or map. This is more
    ///   than the types of k8s-pb take.
    /// - Any other kind in protobuf: 64 bytes for each string or message, and 1 KiB more for each value whose bytes
    ///   could be a message.
    /// - JSON: its length, plus 1 KiB for each object, 160 bytes for each array and 112 bytes for each comma. A type
    ///   with large structs may take more than that.
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
