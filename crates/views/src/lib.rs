//! Typed views of Kubernetes objects, which read fields off the protobuf bytes that [`listwatch`] delivers and stores.
//!
//! There is a view for each message of the stable kinds that a server of Kubernetes 1.31 to 1.37 can list, with every
//! field of these releases. They include `CustomResourceDefinition` and `APIService`. Alpha and beta versions have
//! views only if their group has no stable version (`metrics.k8s.io`), and in `resource.k8s.io` (`v1beta1` and
//! `v1beta2`). A view is `Copy` and holds nothing but the bytes of its message, so it allocates nothing, and the fields
//! that nobody reads cost nothing.
//!
//! ```
//! use listwatch::{Event, ListDecoder};
//! use listwatch_views::core_v1::PodView;
//!
//! # let body = listwatch_testserver::recorded_pods();
//! # let mut body = &body[..];
//! let mut decoder = ListDecoder::new();
//! while let Some(event) = decoder.decode(&mut body)? {
//!     if let Event::Item(item) = event {
//!         let pod = item.view::<PodView>()?;
//!         for container in pod.spec().containers() {
//!             println!("{} {}: {}", pod.metadata().name(), pod.status().phase(), container.image());
//!         }
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Use a [`FieldPath`](listwatch::FieldPath) in a projection, for objects that may arrive as JSON, and for paths that
//! you know only at run time.
//!
//! # Presence
//!
//! Accessors follow the types of Go:
//!
//! | Go | view | absent |
//! |---|---|---|
//! | `string`, `[]byte`, a number, `bool` | `&str`, `&[u8]`, the number, `bool` | empty, 0, `false` |
//! | an enumeration | `&str` | empty |
//! | a message that is not a pointer | its view | a view of an empty message: `pod.spec().node_name()` needs no `?` |
//! | a pointer | `Option` | `None` |
//! | a slice | [`List`] | no values |
//! | a map | [`Map`] | no entries |
//! | `Time`, `MicroTime` | [`Time`] | the zero time |
//! | `Duration` | `jiff::SignedDuration` | 0 |
//! | `Quantity` | [`Quantity`], which parses to an [`Amount`] | `0` |
//! | `IntOrString` | [`IntOrString`] | the integer 0 |
//! | `RawExtension`, `FieldsV1`, `JSON` | [`RawJson`] | empty |
//!
//! The fields of a message that JSON inlines are methods of its parent, too: `volume.config_map()`. Names are the names
//! of JSON in snake case: `cluster_ips` for `clusterIPs`, with a `_` after a keyword, as in `type_`.
//!
//! # Checked once
//!
//! `view` of an [item](listwatch::ItemRef::view) or a [stored
//! object](https://docs.rs/listwatch-cache/latest/listwatch_cache/struct.Object.html#method.view) checks the whole
//! object first: the wire format, the types of all fields, the depth, that strings are UTF-8, and that the fields are
//! in the order in which API servers send them. A malformed object is an error, so that a malformed `deletionTimestamp`
//! never reads as absent. A store remembers the check of each object, and a view of another kind than the store's is
//! refused.
//!
//! Reads of a view cannot fail. This crate has no `unsafe` code, so a string is checked for UTF-8 again at each read;
//! if it were invalid, which the check excludes, it would read as empty.
//!
//! Objects in JSON have no views, because their fields have no types: decode them with serde.
//!
//! # Values that you keep
//!
//! A view borrows from the object. To keep a part, decode its `bytes` with prost. That takes some tens of
//! microseconds for a whole Pod, and 2 µs for its `metadata`:
//!
//! ```
//! use k8s_pb::api::core::v1::PodSpec;
//! use listwatch_views::core_v1::PodView;
//! use prost::Message as _;
//!
//! fn spec(pod: PodView<'_>) -> Result<PodSpec, prost::DecodeError> {
//!     PodSpec::decode(pod.spec().bytes())
//! }
//! ```
//!
//! Two views have the same value if their bytes are equal: `old.spec().bytes() == new.spec().bytes()` is a predicate
//! that ignores changes of metadata and status.

/// Compiles the example of the guide's chapter.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/views.md")]
mod guide {}

mod amount;
#[macro_use]
mod module;
#[rustfmt::skip]
#[allow(
    clippy::doc_markdown,
    clippy::elidable_lifetime_names,
    clippy::must_use_candidate,
    clippy::should_implement_trait,
    clippy::wildcard_imports,
    reason = "generated; `not` is a field of schemas"
)]
mod messages;
mod read;
mod value;

use std::fmt;

pub use self::amount::{Amount, ParseAmountError};
pub use self::messages::*;
pub use self::read::{Element, Entries, Iter, List, Map};
pub use self::value::{IntOrString, Quantity, RawJson, Time};

/// Shows the length of a message, but no bytes, which may be a Secret.
fn debug(name: &str, bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{name}({} bytes)", bytes.len())
}
