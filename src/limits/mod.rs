//! What a body may ask of the decoder before it is refused.

pub(crate) mod estimate;

/// The caps of a [`ListDecoder`](crate::ListDecoder) or a [`WatchDecoder`](crate::WatchDecoder).
///
/// A body over a cap ends in [`DecodeErrorKind::Limit`](crate::DecodeErrorKind::Limit), which names the cap and the
/// setter here that raises it. The error comes when the length is declared, before its bytes are; in JSON, which declares
/// none, with the first byte over the cap.
///
/// For a watch, which has no end, only [`item_size`](Self::item_size) and [`metadata_size`](Self::metadata_size) count.
///
/// ```
/// use listwatch::{Limits, OnItemError};
///
/// let limits = Limits::default().item_size(2 << 20).items(1_000_000).on_oversized(OnItemError::Skip);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub(crate) item_size: u64,
    pub(crate) items: u64,
    pub(crate) bytes: u64,
    pub(crate) metadata_size: u64,
    pub(crate) decoded_size: u64,
    pub(crate) on_oversized: OnItemError,
}

/// What happens on an item that cannot be handed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnItemError {
    /// The list ends in an error that names the item.
    #[default]
    Fail,
    /// The item is left out and counted in [`ListEnd::skipped`](crate::ListEnd::skipped).
    Skip,
}

impl Limits {
    /// The default of [`item_size`](Self::item_size): 16 MiB, which is also client-go's for a frame of a watch. etcd refuses
    /// objects above 1.5 MiB by default, but aggregated API servers have stores of their own.
    pub const DEFAULT_ITEM_SIZE: u64 = 16 << 20;

    /// The default of [`metadata_size`](Self::metadata_size): 1 MiB.
    pub const DEFAULT_METADATA_SIZE: u64 = 1 << 20;

    /// The default of [`decoded_size`](Self::decoded_size): 64 MiB.
    pub const DEFAULT_DECODED_SIZE: u64 = 64 << 20;

    /// The largest item, in bytes: [`DEFAULT_ITEM_SIZE`](Self::DEFAULT_ITEM_SIZE) unless set.
    ///
    /// In a watch it is the largest frame: an object with its event around it.
    ///
    /// It bounds the decoder's memory, for an item that is split over chunks is put together in one buffer.
    #[must_use]
    pub const fn item_size(mut self, bytes: u64) -> Self {
        self.item_size = bytes;
        self
    }

    /// The largest number of items, skipped ones included: no limit unless set.
    ///
    /// It is for callers that keep the items: two bytes of a body are enough for one.
    #[must_use]
    pub const fn items(mut self, items: u64) -> Self {
        self.items = items;
        self
    }

    /// The largest body, in bytes after decompression: no limit unless set.
    ///
    /// It is what stops a gzip bomb.
    #[must_use]
    pub const fn bytes(mut self, bytes: u64) -> Self {
        self.bytes = bytes;
        self
    }

    /// The longest string of the type meta and of the list meta (in JSON, all of the list's `metadata`), and the largest
    /// `Status`, also in a watch, in bytes: [`DEFAULT_METADATA_SIZE`](Self::DEFAULT_METADATA_SIZE) unless set.
    #[must_use]
    pub const fn metadata_size(mut self, bytes: u64) -> Self {
        self.metadata_size = bytes;
        self
    }

    /// The most memory that an item may take decoded, as estimated from its bytes before it is:
    /// [`DEFAULT_DECODED_SIZE`](Self::DEFAULT_DECODED_SIZE) unless set. An item over it is
    /// [`ItemError::DecodedSize`](crate::ItemError::DecodedSize), which [`OnItemError`] may skip. Stores decode with the default.
    ///
    /// It bounds what an item of a few bytes per element may allocate: 1.4 MB of empty volumes would take 2.3 GB. Items of up to
    /// 16 KiB are not estimated. The estimate is 64 bytes for each string or message, 1 KiB more for what could be a message by
    /// its bytes, 16 bytes for each number, and the length of strings; in JSON it is the length, 1 KiB for each object or array
    /// and 64 bytes for each comma. What k8s-pb allocates may be up to five times that.
    #[must_use]
    pub const fn decoded_size(mut self, bytes: u64) -> Self {
        self.decoded_size = bytes;
        self
    }

    /// What happens on an item over [`item_size`](Self::item_size): [`OnItemError::Fail`] unless set.
    ///
    /// An item that claims more than 2³¹-1 bytes, which protobuf does not allow, is an error in either case; so is a frame
    /// of a watch, which would go on without a change.
    #[must_use]
    pub const fn on_oversized(mut self, what: OnItemError) -> Self {
        self.on_oversized = what;
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
            on_oversized: OnItemError::Fail,
        }
    }
}
