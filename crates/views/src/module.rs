//! The macros that make views of the messages in `messages`, one line a field.

pub(crate) use jiff::SignedDuration;
pub(crate) use listwatch::view::{Canonical, View, ViewKind};

pub(crate) use crate::read::{Element, List, Map, Raw};
pub(crate) use crate::value::{IntOrString, Quantity, RawJson, Time};

/// Declares the modules of all messages.
macro_rules! modules {
    ($($(#[$doc:meta])* $module:ident;)*) => { $($(#[$doc])* pub mod $module;)* };
}

/// Declares the views of a module: `= OTHER_MODULE { VIEWS }` for those that it shares with another version, and
/// `message NAME_OF_VIEW NAME_IN_GO [API_VERSIONS_OF_A_KIND] { FIELDS }`. The tests have a macro of the same name,
/// which reads all fields.
macro_rules! views {
    ($module:ident; $(= $other:ident { $($shared:ident,)* })* $($form:ident $view:ident $message:literal [$($api_version:literal),*] {
        $($field:ident($($how:tt)*) -> $value:ty;)*
    })*) => {
        #[allow(unused_imports, reason = "most modules need a part of them")]
        use {super::*, crate::module::*};

        $(
            #[doc(inline)]
            pub use super::$other::{$($shared),*};
        )*

        $(
            #[doc = concat!("Reads the message `", $message, "`." $(, " A kind of `", $api_version, "`.")*)]
            #[derive(Clone, Copy, Default)]
            pub struct $view<'a>(Raw<'a>);

            impl<'a> $view<'a> {
                /// Returns the bytes of the message, to decode it with prost. No bytes are an empty message.
                #[inline]
                pub fn bytes(self) -> &'a [u8] {
                    self.0.bytes()
                }

                $(accessor!($field $value, $($how)*);)*
            }

            impl<'a> Element<'a> for $view<'a> {
                type Wire = &'a [u8];

                #[inline]
                fn read(bytes: &'a [u8]) -> Self {
                    Self(Raw::read(bytes))
                }
            }

            impl std::fmt::Debug for $view<'_> {
                #[inline]
                fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    $crate::debug(stringify!($view), self.bytes(), f)
                }
            }

            kind!($view $message $($api_version)*);
        )*
    };
}

/// Declares the method of a field.
macro_rules! accessor {
    ($field:ident $value:ty, in $inlined:ident $json:literal) => {
        #[doc = concat!("The field `", $json, "`, as in the message of [`", stringify!($inlined), "`](Self::", stringify!($inlined), ").")]
        #[inline]
        pub fn $field(self) -> $value {
            self.$inlined().$field()
        }
    };
    ($field:ident $value:ty, inline $number:literal) => {
        /// The message whose fields are in JSON fields of this message.
        #[inline]
        pub fn $field(self) -> $value {
            self.0.get($number)
        }
    };
    ($field:ident $value:ty, $read:ident $number:literal $json:literal) => {
        #[doc = concat!("The field `", $json, "`.")]
        #[inline]
        pub fn $field(self) -> $value {
            self.0.$read($number)
        }
    };
}

/// Declares the kind of a view, if its message is a kind.
macro_rules! kind {
    ($view:ident $kind:literal) => {};
    ($view:ident $kind:literal $($api_version:literal)+) => {
        impl<'a> View<'a> for $view<'a> {
            #[inline]
            fn kind() -> &'static ViewKind {
                static KIND: ViewKind = ViewKind::new(&[$($api_version),+], $kind);
                &KIND
            }

            #[inline]
            fn new(object: Canonical<'a>) -> Self {
                Self(Raw::of(object))
            }
        }
    };
}
