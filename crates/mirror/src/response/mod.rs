//! What readers get: bodies, their compression, and errors.

mod body;
pub(crate) mod gzip;
pub(crate) mod status;

pub(crate) use self::body::{BodyError, ResponseBody};
pub(crate) use self::status::{ForwardReason, Refusal};
