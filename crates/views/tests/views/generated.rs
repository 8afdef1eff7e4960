//! Reads objects through all accessors, by the lines from which the crate makes its views.
//!
//! The programs that include this file have a module `node` beside it.

macro_rules! modules {
    ($($(#[$doc:meta])* $module:ident;)*) => {
        use std::borrow::Cow;

        use listwatch::{ItemError, ItemRef};

        use super::super::node::Node;

        $(mod $module;)*

        /// Reads an object through every accessor of its view; `None` if the kind has no view.
        pub fn walk(api_version: &str, kind: &str, item: ItemRef<'_>) -> Option<Result<Node, ItemError>> {
            None$(.or_else(|| $module::walk(api_version, kind, item)))*
        }

        /// Returns the canonical form of an object; `None` if the kind has no view.
        pub fn canonical<'a>(api_version: &str, kind: &str, item: ItemRef<'a>) -> Option<Result<Cow<'a, [u8]>, ItemError>> {
            None$(.or_else(|| $module::canonical(api_version, kind, item)))*
        }
    };
}

macro_rules! views {
    ($module:ident; $(= $other:ident { $($shared:ident,)* })* $($form:ident $view:ident $message:literal $api_versions:tt {
        $($field:ident($($how:tt)*) -> $value:ty;)*
    })*) => {
        use std::borrow::Cow;

        use listwatch::{ItemError, ItemRef};
        use listwatch_views::$module::*;

        use super::super::super::node::{self, Node, Walk};

        $(
            impl Walk for $view<'_> {
                fn walk(self) -> Node {
                    node::$form([$((json!($($how)*), self.$field().walk())),*])
                }
            }
        )*

        pub fn walk(api_version: &str, kind: &str, item: ItemRef<'_>) -> Option<Result<Node, ItemError>> {
            $(if kind == $message && <[&str]>::contains(&$api_versions, &api_version) {
                return walk_kind!($view $api_versions item);
            })*
            None
        }

        pub fn canonical<'a>(api_version: &str, kind: &str, item: ItemRef<'a>) -> Option<Result<Cow<'a, [u8]>, ItemError>> {
            $(if kind == $message && <[&str]>::contains(&$api_versions, &api_version) {
                return canonical_kind!($view $api_versions item);
            })*
            None
        }
    };
}

/// The name of a field in JSON; empty for the message that JSON inlines.
macro_rules! json {
    (inline $number:literal) => {
        ""
    };
    ($how:ident $place:tt $json:literal) => {
        $json
    };
}

macro_rules! walk_kind {
    ($view:ident [] $item:ident) => {
        None
    };
    ($view:ident $api_versions:tt $item:ident) => {
        Some($item.view::<$view>().map(Walk::walk))
    };
}

macro_rules! canonical_kind {
    ($view:ident [] $item:ident) => {
        None
    };
    ($view:ident $api_versions:tt $item:ident) => {
        Some($item.canonical::<$view>())
    };
}

#[path = "../../src/messages/mod.rs"]
#[rustfmt::skip]
mod messages;

#[allow(unused_imports, reason = "the benches do not write the canonical form")]
pub use messages::{canonical, walk};
