//! One object's bytes: borrowed items, and how to read, copy, filter and decode them.

mod field_path;
mod item;
pub(crate) mod item_ref;
pub(crate) mod meta_view;
pub mod path;
mod projection;
mod selector;
pub(crate) mod shard;
mod tolerant;
pub mod value;
pub(crate) mod version;
pub mod view;

pub use self::field_path::FieldPath;
pub use self::item::{Item, Json, StoreType};
pub use self::meta_view::MetaView;
pub use self::projection::Projection;
pub use self::selector::{FieldSelector, LabelSelector};
pub use self::shard::Shard;
pub use self::tolerant::{Tolerant, UndecodableObject};
pub use self::version::compare_resource_versions;
pub use crate::encoding::item_ref::ItemRef;
pub use crate::encoding::meta_parts::{ManagedFieldsEntry, OwnerReference, Time};
