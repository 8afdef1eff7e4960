//! What all adapters share: a decoder, and what becomes of each item.

use crate::decode::{Event, ListDecoder, ListEnd};
use crate::error::{DecodeError, ItemError};
use crate::limits::OnItemError;
use crate::object::Item;
use crate::object::ItemRef;
#[cfg(feature = "json")]
use crate::wire::Encoding;

/// Why an adapter did not reach the end of a list.
///
/// ```
/// use listwatch::{ListError, ListReader};
///
/// let cut = &include_bytes!("../../fixtures/configmaps.pb")[..2000];
/// let mut items = ListReader::<_, [u8]>::new(cut);
/// let error = items.find_map(Result::err).expect("the list is cut");
/// assert_eq!(
///     error.to_string(),
///     "incomplete: the body ended before the list did in item 5, at byte 2000, 5 items delivered"
/// );
/// assert!(items.end().is_none());
/// ```
#[derive(Clone, Debug, thiserror::Error)]
pub enum ListError<E> {
    /// The source of the bytes failed. Items delivered before are exact.
    #[error("transport: {0}")]
    Transport(#[source] E),
    /// The bytes are not a complete list.
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

impl From<std::io::Error> for ListError<std::io::Error> {
    fn from(error: std::io::Error) -> Self {
        Self::Transport(error)
    }
}

/// [`Item::from_ref`] of `T`, as a value.
pub type FromRef<T> = fn(ItemRef<'_>) -> Result<<T as Item>::Owned, ItemError>;

pub(super) struct Source<F> {
    pub(super) decoder: ListDecoder,
    pub(super) on_item_error: OnItemError,
    pub(super) end: Option<ListEnd>,
    own: F,
}

/// Accepts the encoding that `T` is made from; protobuf where any will do.
pub(super) fn source<T: Item + ?Sized>() -> Source<FromRef<T>> {
    let decoder = ListDecoder::new();
    #[cfg(feature = "json")]
    let decoder = if T::ENCODING == Some(Encoding::Json) { decoder.accept_json() } else { decoder };
    Source { decoder, on_item_error: OnItemError::default(), end: None, own: T::from_ref }
}

impl<F> Source<F> {
    pub(super) fn map_item<G>(self, own: G) -> Source<G> {
        let Self { decoder, on_item_error, end, own: _ } = self;
        Source { decoder, on_item_error, end, own }
    }

    /// The next item in `chunk`; `None` when all of it is taken.
    pub(super) fn next<T, E>(&mut self, chunk: &mut &[u8]) -> Result<Option<T>, DecodeError>
    where
        F: FnMut(ItemRef<'_>) -> Result<T, E>,
        E: Into<ItemError>,
    {
        let own = &mut self.own;
        let mut on_event = |event: Event<'_>| match event {
            Event::Item(item) => Some(own(item)),
            _ => None,
        };
        while let Some(event) = self.decoder.decode_with(chunk, &mut on_event)? {
            match event {
                None => {}
                Some(Ok(owned)) => return Ok(Some(owned)),
                Some(Err(error)) => self.decoder.refuse_item(error.into(), self.on_item_error)?,
            }
        }
        Ok(None)
    }

    /// The body has ended.
    pub(super) fn finish(&mut self) -> Result<(), DecodeError> {
        self.end = Some(self.decoder.finish()?);
        Ok(())
    }
}

/// The methods that every adapter has beside `new` and `map_item`.
macro_rules! adapter_methods {
    () => {
        /// Sets the limits on what the body may claim.
        #[must_use]
        pub fn limits(mut self, limits: crate::Limits) -> Self {
            self.source.decoder.set_limits(limits);
            self
        }

        /// Accepts lists in JSON in addition to protobuf, as API servers send them for custom resources.
        ///
        /// A `T` that is made from JSON, like [`Json`](crate::Json), accepts JSON without it. Otherwise a body in JSON is
        /// [`DecodeErrorKind::UnexpectedEncoding`](crate::DecodeErrorKind::UnexpectedEncoding), whatever cargo features are on.
        #[cfg(feature = "json")]
        #[must_use]
        pub fn accept_json(mut self) -> Self {
            self.source.decoder = self.source.decoder.accept_json();
            self
        }

        /// Sets what happens on an item that cannot become what was asked for: [`OnItemError::Fail`] unless set.
        ///
        /// [`OnItemError::Fail`]: crate::OnItemError::Fail
        #[must_use]
        pub fn on_item_error(mut self, what: crate::OnItemError) -> Self {
            self.source.on_item_error = what;
            self
        }

        /// How the list ended; `None` until the last item is out, and for ever after an error.
        #[must_use]
        pub fn end(&self) -> Option<&crate::ListEnd> {
            self.source.end.as_ref()
        }

        /// The decoder inside, which knows how far it is.
        #[must_use]
        pub fn decoder(&self) -> &crate::ListDecoder {
            &self.source.decoder
        }
    };
}
pub(super) use adapter_methods;
