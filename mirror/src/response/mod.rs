//! What readers get: bodies, their compression, and errors.

mod body;
mod go_json;
pub(crate) mod gzip;
pub(crate) mod status;

pub(crate) use self::body::{BodyError, ResponseBody};
pub(crate) use self::go_json::write_go_json;
pub(crate) use self::status::Refusal;
