//! Errors as the API server sends them: `Status` objects.

use std::fmt::Display;

use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use serde_json::{Map, Value, json};

use crate::body::Body;

/// Why a request is not answered from a cache.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The API server answers it: the mirror forwards it.
    Forward,
    /// It is answered with an error.
    Status(Box<Status>),
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self::Status(Box::new(status))
    }
}

/// An error as the API server sends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) code: StatusCode,
    /// The machine-readable reason, such as `Expired`; empty if there is none.
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) details: Details,
    /// `metadata.continue`: a fresh token for a list whose token has expired.
    pub(crate) continue_token: Option<String>,
}

/// The details of a [`Status`]. Empty fields are omitted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Details {
    pub(crate) name: String,
    pub(crate) group: String,
    /// The plural name of the resource, or the kind of an invalid object.
    pub(crate) kind: String,
    pub(crate) causes: Vec<Cause>,
    /// 0 if the reader must not retry.
    pub(crate) retry_after_seconds: u32,
}

/// A cause in [`Details`]. Empty fields are omitted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cause {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) field: String,
}

impl Status {
    pub(crate) fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: Details::default(), continue_token: None }
    }

    /// 400.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// 401, without the cause, as the API server.
    pub(crate) fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    /// 403 of the mirror itself; [`crate::auth`] has the API server's message.
    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message)
    }

    /// 404 of a path.
    pub(crate) fn no_such_path() -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", "the server could not find the requested resource")
    }

    /// 404 of an object.
    pub(crate) fn not_found(group: &str, plural: &str, name: &str) -> Self {
        let resource = qualified(group, plural);
        let mut status = Self::new(StatusCode::NOT_FOUND, "NotFound", format!("{resource} {name:?} not found"));
        status.details = Details { name: name.into(), group: group.into(), kind: plural.into(), ..Details::default() };
        status
    }

    /// 405.
    pub(crate) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message)
    }

    /// 406.
    pub(crate) fn not_acceptable(accepted: &str) -> Self {
        let message = format!("only the following media types are accepted: {accepted}");
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    /// 410: the version of a watch or of a list, or a continue token, is too old. `continue_token` resumes at the latest version.
    pub(crate) fn expired(message: impl Into<String>, continue_token: Option<String>) -> Self {
        Self { continue_token, ..Self::new(StatusCode::GONE, "Expired", message) }
    }

    /// 422 with the causes, whose messages are also in the message.
    pub(crate) fn invalid_list_options(causes: Vec<Cause>) -> Self {
        let mut texts: Vec<String> = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        let texts = if texts.len() == 1 { texts.remove(0) } else { format!("[{}]", texts.join(", ")) };
        let message = format!("ListOptions.meta.k8s.io \"\" is invalid: {texts}");
        let mut status = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message);
        status.details =
            Details { group: "meta.k8s.io".into(), kind: "ListOptions".into(), causes, ..Details::default() };
        status
    }

    /// 429.
    pub(crate) fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message).retry_after(retry_after_seconds)
    }

    /// 500.
    pub(crate) fn internal_error(message: impl Display) -> Self {
        let mut status = Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalError",
            format!("Internal error occurred: {message}"),
        );
        status.details.causes = vec![Cause { message: message.to_string(), ..Cause::default() }];
        status
    }

    /// 502: the API server sent no response.
    pub(crate) fn bad_gateway(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_GATEWAY, "InternalError", message)
    }

    /// 503.
    pub(crate) fn unavailable(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message).retry_after(retry_after_seconds)
    }

    /// 504: the API server did not answer in time.
    pub(crate) fn timeout(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message)
    }

    /// 504: the version of the request is newer than the cache.
    pub(crate) fn version_too_large(requested: &str, current: &str) -> Self {
        let message = format!("Too large resource version: {requested}, current: {current}");
        let mut status =
            Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", format!("Timeout: {message}")).retry_after(1);
        let message = "Too large resource version".into();
        status.details.causes = vec![Cause { reason: "ResourceVersionTooLarge", message, field: String::new() }];
        status
    }

    /// Sets `retryAfterSeconds`, and with it the header `Retry-After`.
    pub(crate) fn retry_after(mut self, seconds: u32) -> Self {
        self.details.retry_after_seconds = seconds;
        self
    }

    /// Returns the response. Its body is JSON, whatever the reader accepts: clients look at the content type of errors.
    pub(crate) fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::from(self.to_json()));
        *response.status_mut() = self.code;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if self.details.retry_after_seconds > 0 {
            headers.insert(RETRY_AFTER, self.details.retry_after_seconds.into());
        }
        if self.code == StatusCode::METHOD_NOT_ALLOWED {
            headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        }
        response
    }

    /// Returns the `Status` object as JSON, for bodies and for ERROR events of watches.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        let mut metadata = Map::new();
        if let Some(token) = &self.continue_token {
            metadata.insert("continue".into(), token.as_str().into());
        }
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata,
            "status": "Failure",
            "message": self.message,
            "code": self.code.as_u16(),
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if self.details != Details::default() {
            status["details"] = self.details.to_json();
        }
        let mut json = status.to_string().into_bytes();
        json.push(b'\n');
        json
    }
}

impl Details {
    fn to_json(&self) -> Value {
        let mut details = Map::new();
        put(&mut details, "name", &self.name);
        put(&mut details, "group", &self.group);
        put(&mut details, "kind", &self.kind);
        if !self.causes.is_empty() {
            let causes = self.causes.iter().map(|cause| {
                let mut json = Map::new();
                put(&mut json, "reason", cause.reason);
                put(&mut json, "message", &cause.message);
                put(&mut json, "field", &cause.field);
                Value::Object(json)
            });
            details.insert("causes".into(), causes.collect());
        }
        if self.retry_after_seconds > 0 {
            details.insert("retryAfterSeconds".into(), self.retry_after_seconds.into());
        }
        Value::Object(details)
    }
}

fn put(map: &mut Map<String, Value>, name: &str, value: &str) {
    if !value.is_empty() {
        map.insert(name.into(), value.into());
    }
}

/// Returns `plural` in the core group, else `plural.group`.
pub(crate) fn qualified(group: &str, plural: &str) -> String {
    if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") }
}
