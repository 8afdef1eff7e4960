//! Answers from the caches.

pub(crate) mod freshness;
mod get;
mod list;
mod select;
mod token;
mod watch;

use std::sync::Arc;

use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Response};
use listwatch::Encoding;
use listwatch::encode::Encoder;

use self::freshness::Freshness;
use self::select::Selector;
use crate::accept::Form;
use crate::auth::Granted;
use crate::body::{Body, BodyError};
use crate::mirrored::Mirrored;
use crate::request::{Read, ReadKind};
use crate::shared::Shared;
use crate::status::{self, Refusal};

/// The seconds since the cache was last known to be up to date.
pub(crate) const LAG: HeaderName = HeaderName::from_static("listwatch-lag-seconds");

/// Set if the cache could not confirm that it has the version that the API server had when the watch began.
pub(crate) const UNCONFIRMED: HeaderName = HeaderName::from_static("listwatch-unconfirmed");

/// Answers a read from the cache of its resource.
pub(crate) async fn answer(
    shared: &Shared,
    mirrored: &Arc<Mirrored>,
    read: Read,
    form: Form,
    granted: Granted,
) -> Result<Response<Body>, Refusal> {
    let is_namespaced = mirrored.resource.is_namespaced();
    // The API server answers with the error.
    let has_no_such_path = read.namespace.is_some() && !is_namespaced
        || read.kind == ReadKind::Get && read.namespace.is_none() && is_namespaced;
    let params = &read.params;
    if has_no_such_path || params.pretty || !params.shard_selector.is_empty() {
        return Err(Refusal::Forward);
    }
    if form.encoding == Encoding::Protobuf && !mirrored.has_protobuf() || mirrored.lacks_fields_in(form) {
        return Err(Refusal::Forward);
    }
    let status = mirrored.status();
    if let Some(reason) = status.reason {
        return Err(status::unavailable(format!("{}: {reason}", status.name), 1).into());
    }
    let request = Request {
        mirrored: Arc::clone(mirrored),
        encoder: encoder(mirrored, form),
        selector: Selector::parse(mirrored, &read)?,
        form,
        read,
    };
    let kind = request.read.kind;
    let (body, freshness) = match kind {
        ReadKind::Get => (get::answer(shared, &request).await?, Freshness::Confirmed),
        ReadKind::List => (list::answer(shared, request).await?, Freshness::Confirmed),
        ReadKind::Watch => watch::answer(shared, request, granted).await?,
    };
    let mut response = Response::new(body);
    let is_watch = kind == ReadKind::Watch;
    let content_type = if is_watch { form.watch_content_type() } else { form.content_type() };
    response.extensions_mut().insert(shared.metrics.bytes(Some(mirrored)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, content_type);
    if freshness == Freshness::Unconfirmed {
        headers.insert(UNCONFIRMED, HeaderValue::from_static("true"));
    }
    if let Some(lag) = mirrored.status().lag {
        let lag = HeaderValue::try_from(format!("{:.3}", lag.as_secs_f64()));
        headers.extend(lag.ok().map(|lag| (LAG, lag)));
    }
    Ok(response)
}

/// A read of a resource that can be answered from its cache.
struct Request {
    mirrored: Arc<Mirrored>,
    encoder: Encoder,
    selector: Selector,
    form: Form,
    read: Read,
}

/// Refuses an object that was written without some of its fields.
fn whole(unknown_fields: u64) -> Result<(), BodyError> {
    if unknown_fields == 0 { Ok(()) } else { Err("an object has fields that the mirror does not know".into()) }
}

fn encoder(mirrored: &Mirrored, form: Form) -> Encoder {
    let list_kind = format!("{}List", mirrored.type_meta.kind);
    let encoder = Encoder::new(form.encoding, mirrored.type_meta.clone(), list_kind);
    if form.metadata_only { encoder.metadata_only() } else { encoder }
}
