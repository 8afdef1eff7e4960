//! What all adapters share: a decoder, and the function that converts each item.

use std::fmt;

use crate::decode::{Event, ListDecoder, ListEnd};
use crate::error::{DecodeError, ItemError, SkipHook};
use crate::meta::TypeMeta;
use crate::object::Item;
use crate::object::ItemRef;
use crate::wire::Encoding;

/// The error of an adapter that could not read a list to its end.
///
/// ```
/// use listwatch::{ListError, ListReader};
///
/// let truncated = &include_bytes!("../../fixtures/configmaps.pb")[..2000];
/// let mut items = ListReader::new::<[u8]>(truncated);
/// let error = items.find_map(Result::err).expect("the list is truncated");
/// assert_eq!(
///     error.to_string(),
///     "incomplete: the body ended before the list did in item 5, at byte 2000, 5 items delivered"
/// );
/// assert!(items.end().is_none());
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListError<E> {
    /// The source of the bytes failed. The items that were returned before are correct.
    #[error("cannot read the body: {0}")]
    Transport(E),
    /// The bytes are not a complete list.
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

impl From<std::io::Error> for ListError<std::io::Error> {
    fn from(error: std::io::Error) -> Self {
        Self::Transport(error)
    }
}

/// The closure of an adapter that decodes `T`: the type of [`Item::from_ref`].
pub type FromRef<T> = fn(ItemRef<'_>) -> Result<<T as Item>::Owned, ItemError>;

pub(super) struct Source<F> {
    pub(super) decoder: ListDecoder,
    pub(super) skips_item_errors: bool,
    pub(super) on_skip: Option<SkipHook>,
    pub(super) end: Option<ListEnd>,
    check_kind: fn(&TypeMeta) -> Result<(), ItemError>,
    convert: F,
}

enum Found<T> {
    Item(T),
    WrongKind(ItemError),
    Nothing,
}

impl<F> Source<F> {
    pub(super) fn with(convert: F) -> Self {
        let (decoder, check_kind) = (ListDecoder::new(), (|_: &TypeMeta| Ok(())) as fn(&TypeMeta) -> _);
        Self { decoder, skips_item_errors: false, on_skip: None, end: None, check_kind, convert }
    }

    /// Returns the next item in `chunk`, or `None` when all of it is consumed.
    pub(super) fn next<T, E>(&mut self, chunk: &mut &[u8]) -> Result<Option<T>, DecodeError>
    where
        F: FnMut(ItemRef<'_>) -> Result<T, E>,
        E: Into<ItemError>,
    {
        let Self { decoder, skips_item_errors, on_skip, check_kind, convert, .. } = self;
        let mut report = |error: &DecodeError| on_skip.iter_mut().for_each(|on_skip| on_skip(error));
        loop {
            let on_event = |event: Event<'_>| match event {
                // A list of custom resources has its kind after the items, which have their own.
                Event::Item(item) if item.index() == 0 && item.type_meta().kind.is_empty() => {
                    match item.own_type_meta().ok().flatten().map_or(Ok(()), |own| check_kind(&own)) {
                        Ok(()) => Found::Item(convert(item)),
                        Err(error) => Found::WrongKind(error),
                    }
                }
                Event::Item(item) => Found::Item(convert(item)),
                Event::TypeMeta(found) => check_kind(found).map_or_else(Found::WrongKind, |()| Found::Nothing),
                Event::Skipped(error) => {
                    report(error);
                    Found::Nothing
                }
                Event::ListMeta(_) => Found::Nothing,
            };
            match decoder.decode_with(chunk, on_event)? {
                None => return Ok(None),
                Some(Found::Nothing) => {}
                Some(Found::Item(Ok(value))) => return Ok(Some(value)),
                Some(Found::Item(Err(error))) => report(&decoder.refuse_item(error.into(), *skips_item_errors)?),
                Some(Found::WrongKind(error)) => return Err(decoder.refuse_kind(error)),
            }
        }
    }

    pub(super) fn finish(&mut self) -> Result<(), DecodeError> {
        self.end = Some(self.decoder.finish()?);
        Ok(())
    }
}

/// Returns a source that decodes `T`. It accepts JSON only if `T` is decoded from JSON.
pub(super) fn source_of<T: Item + ?Sized>() -> Source<FromRef<T>> {
    let source = Source { check_kind: T::check_kind, ..Source::with(T::from_ref as FromRef<T>) };
    match T::ENCODING {
        None | Some(Encoding::Protobuf) => source,
        Some(Encoding::Json) => Source { decoder: source.decoder.accept_json(), ..source },
    }
}

impl<F> fmt::Debug for Source<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { decoder, skips_item_errors, end, on_skip: _, check_kind: _, convert: _ } = self;
        f.debug_struct("Source")
            .field("decoder", decoder)
            .field("skips_item_errors", skips_item_errors)
            .field("end", end)
            .finish_non_exhaustive()
    }
}

/// The methods that every adapter has in addition to `new` and `with`.
macro_rules! adapter_methods {
    () => {
        /// Sets the limits on the body.
        #[must_use]
        pub fn limits(mut self, limits: crate::Limits) -> Self {
            self.source.decoder.set_limits(limits);
            self
        }

        /// Accepts lists in JSON in addition to protobuf. API servers send custom resources only in JSON.
        ///
        /// A type that is decoded from JSON, such as [`Json`](crate::Json) in `new::<Json<T>>`, needs no such call.
        /// Otherwise a body in JSON is
        /// [`DecodeErrorKind::UnexpectedEncoding`](crate::DecodeErrorKind::UnexpectedEncoding), whatever cargo features
        /// are enabled.
        #[must_use]
        pub fn accept_json(mut self) -> Self {
            self.source.decoder = self.source.decoder.accept_json();
            self
        }

        /// Sets whether to skip items that cannot be read, instead of ending the list in an error.
        ///
        /// This applies to an item that the type or the closure refuses, and to an item over
        /// [`Limits::item_size`](crate::Limits::item_size). Skipped items are counted in
        /// [`ListEnd::skipped`](crate::ListEnd::skipped). By default, the list ends in an error that names the item.
        #[must_use]
        pub fn skip_item_errors(mut self, skip: bool) -> Self {
            self.source.skips_item_errors = skip;
            self.source.decoder.set_skips(skip);
            self
        }

        /// Calls `hook` with the error of each skipped item: see [`skip_item_errors`](Self::skip_item_errors).
        #[must_use]
        pub fn on_skip(mut self, hook: impl FnMut(&crate::DecodeError) + Send + 'static) -> Self {
            self.source.on_skip = Some(Box::new(hook));
            self
        }

        /// Returns the metadata and the counts of the list once it is complete; `None` before that and after an error.
        #[must_use]
        pub fn end(&self) -> Option<&crate::ListEnd> {
            self.source.end.as_ref()
        }

        /// Returns the decoder, which knows the position and the counts so far.
        #[must_use]
        pub fn decoder(&self) -> &crate::ListDecoder {
            &self.source.decoder
        }
    };
}
pub(super) use adapter_methods;
