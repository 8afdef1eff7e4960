//! What the generated modules use.

pub(crate) use jiff::SignedDuration;
pub(crate) use listwatch::view::{Canonical, View, ViewKind};

pub(crate) use crate::read::{Element, List, Map, Raw};
pub(crate) use crate::value::{IntOrString, Quantity, RawJson, Time};

/// Declares a view of a message.
macro_rules! view {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default)]
        pub struct $name<'a>(Raw<'a>);

        impl<'a> $name<'a> {
            /// Returns the bytes of the message, to decode it with prost. No bytes are an empty message.
            #[inline]
            pub fn bytes(self) -> &'a [u8] {
                self.0.bytes()
            }
        }

        impl<'a> Element<'a> for $name<'a> {
            type Wire = &'a [u8];

            #[inline]
            fn read(bytes: &'a [u8]) -> Self {
                Self(Raw::read(bytes))
            }
        }

        impl std::fmt::Debug for $name<'_> {
            #[inline]
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                $crate::debug(stringify!($name), self.bytes(), f)
            }
        }
    };
}

/// Declares the kind of a view.
macro_rules! kind {
    ($view:ident, $kind:literal, $api_versions:expr) => {
        impl<'a> View<'a> for $view<'a> {
            #[inline]
            fn kind() -> &'static ViewKind {
                static KIND: ViewKind = ViewKind::new(&$api_versions, $kind);
                &KIND
            }

            #[inline]
            fn new(object: Canonical<'a>) -> Self {
                Self(Raw::of(object))
            }
        }
    };
}

pub(crate) use {kind, view};
