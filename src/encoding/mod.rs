//! The code that differs between protobuf and JSON, in a folder for each.
//!
//! - [`codec`] contains the traits that a folder implements: [`Codec`](codec::Codec) for objects and bodies, while
//!   [`writer`] contains the trait for the encoder. A new encoding begins with a variant of `wire::Encoding`.
//! - [`with_codec`] is the `match` by which the rest of the crate calls a folder. No `match` on an
//!   encoding has an arm `_`, so that the compiler lists the places that a new encoding needs. Some code compares
//!   encodings instead: requests (`client/params/selection.rs`), what a body may contain (`body_state.rs`), and the
//!   callers of `Encoding::is_self_describing`.
//! - The dispatch is static: a `match` with one arm for each encoding, without an allocation.
//! - A folder imports the files here, `wire`, `meta`, `error` and `schema`. `protobuf` imports `json`, because it
//!   writes the JSON form, but `json` never imports `protobuf`.

pub(crate) mod body_state;
pub(crate) mod by_encoding;
pub(crate) mod codec;
pub(crate) mod frame;
pub(crate) mod item_ref;
pub(crate) mod json;
pub(crate) mod meta_parts;
pub(crate) mod paths;
pub(crate) mod protobuf;
pub(crate) mod utf8;
pub(crate) mod value;
pub(crate) mod writer;

use self::by_encoding::ByEncoding;
use self::json::list::JsonList;
use self::json::metadata::JsonMetadata;
use self::json::path::JsonValue;
use self::json::watch::JsonWatch;
use self::protobuf::list::ProtobufList;
use self::protobuf::metadata::ProtobufMetadata;
use self::protobuf::watch::ProtobufWatch;
use self::protobuf::wire::Value;

/// Evaluates an expression in which a name is the [`Codec`] of an encoding.
macro_rules! with_codec {
    ($encoding:expr, $codec:ident => $result:expr) => {
        match $encoding {
            $crate::wire::Encoding::Protobuf => {
                #[allow(unused_imports)]
                use $crate::encoding::codec::Codec as _;
                #[allow(unused_imports)]
                use $crate::encoding::writer::Writer as _;
                type $codec = $crate::encoding::protobuf::Protobuf;
                $result
            }
            $crate::wire::Encoding::Json => {
                #[allow(unused_imports)]
                use $crate::encoding::codec::Codec as _;
                #[allow(unused_imports)]
                use $crate::encoding::writer::Writer as _;
                type $codec = $crate::encoding::json::Json;
                $result
            }
        }
    };
}

/// Like [`with_codec`], but wraps the result in [`ByEncoding`].
macro_rules! map_codec {
    ($encoding:expr, $codec:ident => $result:expr) => {
        match $encoding {
            $crate::wire::Encoding::Protobuf => {
                #[allow(unused_imports)]
                use $crate::encoding::codec::Codec as _;
                #[allow(unused_imports)]
                use $crate::encoding::writer::Writer as _;
                type $codec = $crate::encoding::protobuf::Protobuf;
                $crate::encoding::by_encoding::ByEncoding::Protobuf($result)
            }
            $crate::wire::Encoding::Json => {
                #[allow(unused_imports)]
                use $crate::encoding::codec::Codec as _;
                #[allow(unused_imports)]
                use $crate::encoding::writer::Writer as _;
                type $codec = $crate::encoding::json::Json;
                $crate::encoding::by_encoding::ByEncoding::Json($result)
            }
        }
    };
}

pub(crate) use map_codec;
pub(crate) use with_codec;

/// The times, maps and lists of an object's metadata. The type names no associated types, so that it is covariant.
pub(crate) type AnyMetadata<'a> = ByEncoding<ProtobufMetadata<'a>, JsonMetadata<'a>>;

pub(crate) type AnyValue<'a> = ByEncoding<Value<'a>, JsonValue<'a>>;

pub(crate) type AnyList = ByEncoding<ProtobufList, JsonList>;

pub(crate) type AnyWatch = ByEncoding<ProtobufWatch, JsonWatch>;
