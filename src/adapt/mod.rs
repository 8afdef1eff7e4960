//! Adapters that move bytes into a [`ListDecoder`](crate::ListDecoder) and return items, one at a time.
//!
//! An adapter ends in one of two ways: with a [`ListEnd`](crate::ListEnd), which `end()` returns after the last item,
//! or with an error. An incomplete list always ends in an error.

mod read;
mod source;
#[cfg(feature = "async")]
mod stream;

pub use read::ListReader;
pub use source::{FromRef, ListError};
#[cfg(feature = "async")]
pub use stream::ListStream;
