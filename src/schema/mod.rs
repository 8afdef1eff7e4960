//! The names and types of the fields of Kubernetes objects, by their numbers in protobuf.
//!
//! The table has the built-in kinds, `CustomResourceDefinition`, `APIService` and the kinds of `metrics.k8s.io`, with
//! every field of Kubernetes 1.31 to 1.37. `e2e/apiserver/fields` in the repository generates it from the Go types of
//! these releases.

mod canonical;
mod estimate;
mod json;
mod line;
mod lookup;
pub(crate) mod rust_type;
#[rustfmt::skip]
mod table;
mod text;
mod types;
mod unknown;
mod zero;

pub(crate) use self::canonical::{check, repaired, rewrite};
pub(crate) use self::estimate::check_decoded_size;
pub(crate) use self::json::{to_json, to_list_item};
pub(crate) use self::line::{to_line, to_partial_metadata};
pub(crate) use self::rust_type::check_type;
pub(crate) use self::text::{write_compact, write_name, write_str};
pub use self::types::{Field, Message};
use self::types::{Form, Kind, Name, Omit, Shape, Type};
pub(crate) use self::unknown::has_unknown_fields;
pub(crate) use self::zero::{ZeroMeta, zero_object};

/// The deepest nesting of messages below an object, as in prost. Only the schemas of a `CustomResourceDefinition` nest
/// without a limit.
const MAX_DEPTH: usize = 100;

/// The seconds since the Unix epoch of the times that have a JSON form, which is RFC 3339: the years 0 to 9999. Go
/// writes other years with a sign or five digits, and cannot parse them.
const SECONDS: std::ops::RangeInclusive<i64> = -62_167_219_200..=253_402_300_799;
