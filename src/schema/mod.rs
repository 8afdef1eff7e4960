//! The names and types of the fields of Kubernetes objects, by their protobuf numbers.
//!
//! The table contains the built-in kinds, `CustomResourceDefinition`, `APIService` and the kinds of `metrics.k8s.io`,
//! with every field of Kubernetes 1.31 to 1.37. `e2e/apiserver/fields` in the repository generates it from the Go types
//! of these releases.

mod lookup;
pub(crate) mod rust_type;
#[rustfmt::skip]
mod table;
mod types;

pub(crate) use self::rust_type::check_type;
pub use self::types::{Field, Message};
pub(crate) use self::types::{Form, Omit, Shape, Type};
use self::types::{Kind, Name};
