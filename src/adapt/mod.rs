//! Adapters: they move bytes into a [`ListDecoder`](crate::ListDecoder) and return items, one at a time.
//!
//! All of them end in one of two ways: with [`ListEnd`](crate::ListEnd), which `end()` returns once the last item is out,
//! or with an error. None ends silently on a list that is not complete.

#[cfg(feature = "async")]
mod codec;
mod read;
mod source;
#[cfg(feature = "async")]
mod stream;

#[cfg(feature = "async")]
pub use codec::ListCodec;
pub use read::ListReader;
pub use source::{FromRef, ListError};
#[cfg(feature = "async")]
pub use stream::ListStream;
