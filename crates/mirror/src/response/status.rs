//! Errors as the API server sends them: `Status` objects.

use std::fmt::Display;

use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use listwatch::{Encoding, Status, StatusCause, StatusDetails, encode};

use super::body::ResponseBody;

/// Why a request is not answered from a cache.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The API server answers it, for this reason: the mirror forwards it.
    Forward(ForwardReason),
    /// It is answered with an error.
    Status(Box<Status>),
}

/// Why the API server answers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForwardReason {
    /// Another resource, version, subresource or path, or a parameter that the mirror does not know.
    Other,
    /// A representation that the mirror does not write.
    Form,
    /// A field selector that only the API server knows.
    Selector,
    /// A resource version that the cache does not have, or that has no order.
    Version,
    /// The read costs the API server less than its confirmation.
    Small,
    /// The cache could not be confirmed in time.
    Unconfirmed,
    /// An object has fields that the mirror does not know, and JSON would lack them.
    UnknownFields,
}

impl ForwardReason {
    /// Returns the label in the metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Other => "other",
            Self::Form => "form",
            Self::Selector => "selector",
            Self::Version => "version",
            Self::Small => "small",
            Self::Unconfirmed => "unconfirmed",
            Self::UnknownFields => "unknown_fields",
        }
    }
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self::Status(Box::new(status))
    }
}

/// The cause of a version that is newer than the cache.
const TOO_LARGE: &str = "ResourceVersionTooLarge";

/// Creates an error with a machine-readable reason, such as `Expired`.
pub(crate) fn failure(code: StatusCode, reason: &str, message: impl Into<String>) -> Status {
    let mut status = Status::default();
    (status.status, status.reason, status.code) = ("Failure".to_owned(), reason.to_owned(), code.as_u16().into());
    status.message = message.into();
    status
}

/// 400.
pub(crate) fn bad_request(message: impl Into<String>) -> Status {
    failure(StatusCode::BAD_REQUEST, "BadRequest", message)
}

/// 401, without the cause, as the API server.
pub(crate) fn unauthorized() -> Status {
    failure(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
}

/// 403 with a message of the mirror. A denied right has the API server's message, which the step `authorize` writes.
pub(crate) fn forbidden(message: impl Into<String>) -> Status {
    failure(StatusCode::FORBIDDEN, "Forbidden", message)
}

/// 404 of a path.
pub(crate) fn no_such_path() -> Status {
    failure(StatusCode::NOT_FOUND, "NotFound", "the server could not find the requested resource")
}

/// 404 of an object.
pub(crate) fn not_found(group: &str, plural: &str, name: &str) -> Status {
    let message = format!("{} {name:?} not found", group_resource(group, plural));
    let mut status = failure(StatusCode::NOT_FOUND, "NotFound", message);
    status.details = Some(details(group, plural, name));
    status
}

/// 405.
pub(crate) fn method_not_allowed() -> Status {
    let message = "the server does not allow this method on the requested resource";
    failure(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message)
}

/// 406.
pub(crate) fn not_acceptable(accepted: &str) -> Status {
    let message = format!("only the following media types are accepted: {accepted}");
    failure(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
}

/// 410: the version of a watch or of a list is too old.
pub(crate) fn expired(message: impl Into<String>) -> Status {
    failure(StatusCode::GONE, "Expired", message)
}

/// 415.
pub(crate) fn unsupported_media_type(message: impl Into<String>) -> Status {
    failure(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
}

/// 422 with the causes, whose messages are also in the message.
pub(crate) fn invalid_list_options(causes: Vec<StatusCause>) -> Status {
    let mut texts: Vec<String> = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
    let texts = if texts.len() == 1 { texts.remove(0) } else { format!("[{}]", texts.join(", ")) };
    let message = format!("ListOptions.meta.k8s.io \"\" is invalid: {texts}");
    let mut status = failure(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message);
    let mut details = details("meta.k8s.io", "ListOptions", "");
    details.causes = causes;
    status.details = Some(details);
    status
}

/// 429.
pub(crate) fn too_many_requests(message: impl Into<String>, retry_after_seconds: i32) -> Status {
    retry_after(failure(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message), retry_after_seconds)
}

/// 500.
pub(crate) fn internal_error(message: impl Display) -> Status {
    let text = format!("Internal error occurred: {message}");
    let mut status = failure(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", text);
    status.details.get_or_insert_default().causes = vec![cause("", message.to_string(), "")];
    status
}

/// 502: the API server sent no response.
pub(crate) fn bad_gateway(message: impl Into<String>) -> Status {
    failure(StatusCode::BAD_GATEWAY, "InternalError", message)
}

/// 503.
pub(crate) fn unavailable(message: impl Into<String>, retry_after_seconds: i32) -> Status {
    retry_after(failure(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message), retry_after_seconds)
}

/// 504: the API server did not answer in time.
pub(crate) fn timeout(message: impl Into<String>) -> Status {
    failure(StatusCode::GATEWAY_TIMEOUT, "Timeout", message)
}

/// 504: the version of the request is newer than the cache.
pub(crate) fn version_too_large(requested: &str, current: &str) -> Status {
    let message = format!("Timeout: Too large resource version: {requested}, current: {current}");
    let mut status = retry_after(timeout(message), 1);
    let cause = cause(TOO_LARGE, "Too large resource version", "");
    status.details.get_or_insert_default().causes = vec![cause];
    status
}

/// Returns true for [`version_too_large`].
pub(crate) fn is_version_too_large(status: &Status) -> bool {
    status.details.iter().flat_map(|details| &details.causes).any(|cause| cause.reason == TOO_LARGE)
}

/// Sets `retryAfterSeconds`, and with it the header `Retry-After`.
fn retry_after(mut status: Status, seconds: i32) -> Status {
    status.details.get_or_insert_default().retry_after_seconds = seconds;
    status
}

pub(crate) fn details(group: &str, kind: &str, name: &str) -> StatusDetails {
    let mut details = StatusDetails::default();
    (details.group, details.kind, details.name) = (group.to_owned(), kind.to_owned(), name.to_owned());
    details
}

pub(crate) fn cause(reason: &str, message: impl Into<String>, field: &str) -> StatusCause {
    let mut cause = StatusCause::default();
    (cause.reason, cause.message, cause.field) = (reason.to_owned(), message.into(), field.to_owned());
    cause
}

/// Returns the response, in this encoding.
pub(crate) fn to_response(status: &Status, encoding: Encoding) -> Response<ResponseBody> {
    let mut body = Vec::new();
    encode::status(encoding, status, &mut body);
    let mut response = Response::new(ResponseBody::from(body));
    let code = u16::try_from(status.code).ok().and_then(|code| StatusCode::from_u16(code).ok());
    *response.status_mut() = code.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(encoding.media_type()));
    let retry_after = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    if retry_after > 0 {
        headers.insert(RETRY_AFTER, retry_after.into());
    }
    if code == Some(StatusCode::METHOD_NOT_ALLOWED) {
        headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}

/// Returns `plural` in the core group, else `plural.group`.
pub(crate) fn group_resource(group: &str, plural: &str) -> String {
    if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") }
}
