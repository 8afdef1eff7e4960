//! Errors of listwatch as kube's watcher reports them.

use std::io;

use kube::api::ListMeta;
use kube::core::request;
use kube::core::response::{Status, StatusCause, StatusDetails, StatusSummary};
use kube::runtime::watcher::Error as WatcherError;
use listwatch::client::{Error, ErrorKind, TransportErrorKind};
use listwatch::{DecodeErrorKind, Fault};

/// Returns the error of an interrupted watch, or `None` if kube's watcher would resume without an error.
pub(super) fn interruption_error(error: Error) -> Option<WatcherError> {
    match error.kind() {
        ErrorKind::Api { code, status, .. } => {
            return Some(WatcherError::WatchError(Box::new(kube_status(*code, status))));
        }
        ErrorKind::Transport(error)
            if error.io_error_kind() == Some(io::ErrorKind::UnexpectedEof)
                || error.kind() == TransportErrorKind::ReadIdle =>
        {
            return None;
        }
        ErrorKind::Decode(error) if error.is_incomplete() => return None,
        ErrorKind::Decode(error)
            if matches!(
                error.kind(),
                DecodeErrorKind::Malformed { field: "metadata.resourceVersion", fault: Fault::Missing }
            ) =>
        {
            return Some(WatcherError::NoResourceVersion);
        }
        _ => {}
    }
    Some(WatcherError::WatchFailed(kube_error(error)))
}

/// Returns the error of an object of a watch that cannot be decoded.
pub(super) fn undecodable_object_error(error: serde_json::Error) -> WatcherError {
    WatcherError::WatchFailed(kube::Error::SerdeError(error))
}

/// Returns the error of a request that cannot be built.
#[expect(clippy::needless_pass_by_value, reason = "it is what `map_err` gives")]
pub(super) fn build_request_error(reason: impl ToString) -> kube::Error {
    kube::Error::BuildRequest(request::Error::Validation(reason.to_string()))
}

/// Returns the error of a request, as kube's client returns it.
pub(super) fn kube_error(error: Error) -> kube::Error {
    match error.kind() {
        ErrorKind::Api { code, status, .. } => kube::Error::Api(Box::new(kube_status(*code, status))),
        ErrorKind::Params(_) => build_request_error(error),
        _ => kube::Error::Service(Box::new(error)),
    }
}

/// Converts the Status of a server.
fn kube_status(code: u16, status: &listwatch::Status) -> Status {
    let listwatch::Status { metadata, status, message, reason, details, .. } = status.clone();
    let metadata = metadata.map(|meta| ListMeta {
        continue_: Some(meta.continue_token).filter(|token| !token.is_empty()),
        remaining_item_count: meta.remaining_item_count,
        resource_version: Some(meta.resource_version).filter(|version| !version.is_empty()),
        ..ListMeta::default()
    });
    let details = details.map(|details| StatusDetails {
        name: details.name,
        group: details.group,
        kind: details.kind,
        uid: details.uid,
        causes: details.causes.into_iter().map(kube_cause).collect(),
        retry_after_seconds: details.retry_after_seconds.try_into().unwrap_or_default(),
    });
    let status = match &*status {
        "Success" => Some(StatusSummary::Success),
        "Failure" => Some(StatusSummary::Failure),
        _ => None,
    };
    Status { status, code, message, metadata, reason, details }
}

fn kube_cause(cause: listwatch::StatusCause) -> StatusCause {
    StatusCause { reason: cause.reason, message: cause.message, field: cause.field }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::stream;
    use listwatch::Json;
    use listwatch::client::{
        Client, Request, Resource, Response, ResponseFuture, Retry, Transport, TransportError, WatchParams,
    };
    use serde_json::Value;

    use super::*;

    /// Responds with one chunk, or with an error in the body.
    struct Answers(Result<&'static str, TransportError>);

    impl Transport for Answers {
        fn get(&self, _: Request) -> ResponseFuture<'_> {
            let chunk = self.0.clone().map(Bytes::from);
            let (status, headers) = (http::StatusCode::OK, http::HeaderMap::new());
            let body = Box::pin(stream::iter([chunk]));
            Box::pin(async move { Ok(Response::new(status, headers, body)) })
        }
    }

    /// Like kube's watcher, it does not report that the connection was closed or idle, but any other error of a watch.
    #[tokio::test]
    async fn reports_the_same_interruptions_as_kube() {
        let eof = io::Error::from(io::ErrorKind::UnexpectedEof);
        let broken = |kind| Err(TransportError::new(kind, ""));
        for (answer, expected) in [
            (Err(TransportError::from_error(TransportErrorKind::Broken, &eof)), "None"),
            (broken(TransportErrorKind::Broken), "Some(WatchFailed(Service("),
            (broken(TransportErrorKind::ReadIdle), "None"),
            (Ok(r#"{"type":"ADDED","object":{"kind""#), "None"),
            (Ok("{\"type\":\"ADDED\"]}\n"), "Some(WatchFailed(Service("),
            (Ok("{\"type\":\"ADDED\",\"object\":{\"metadata\":{}}}\n"), "Some(NoResourceVersion"),
        ] {
            let client = Client::new(Answers(answer.clone())).retry(Retry::never());
            let watch = client.watch::<Json<Value>>(&Resource::CONFIG_MAPS, &WatchParams::from_version("1"));
            let error = match watch.open().await {
                Ok(mut events) => events.next().await.expect("an item").expect_err("an error"),
                Err(error) => error,
            };
            let error = interruption_error(error);
            assert!(format!("{error:?}").starts_with(expected), "{error:?}, not {expected}, for {answer:?}");
        }
    }
}
