//! Answers reads from the caches.

use std::sync::Arc;

use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Response};
use listwatch::client::Transport;

use super::cache_read::CacheRead;
use super::freshness::FreshnessGate;
use super::get::answer_get;
use super::list::answer_list;
use super::read_pool::ReadPool;
use super::watch::answer_watch;
use super::watch_hub::WatchHubs;
use crate::authorize::Grant;
use crate::metrics::MirrorMetrics;
use crate::negotiate::{Form, Representation};
use crate::request::{IncludeObject, ReadRequest, ReadVerb};
use crate::resource::{Mirrored, ReadSource};
use crate::response::{ForwardReason, Refusal, ResponseBody, status};
use crate::settings::MirrorSettings;
use crate::shutdown::Shutdown;

/// The seconds since the cache was last known to be up to date.
pub(crate) const LAG: HeaderName = HeaderName::from_static("listwatch-lag-seconds");

/// Answers reads from the caches.
pub(crate) struct ReadHandler {
    freshness: FreshnessGate,
    reads: ReadPool,
    hubs: WatchHubs,
    metrics: MirrorMetrics,
    shutdown: Shutdown,
}

impl ReadHandler {
    pub(crate) fn new(
        transport: Arc<dyn Transport>,
        settings: &MirrorSettings,
        metrics: MirrorMetrics,
        shutdown: Shutdown,
    ) -> Self {
        let freshness = FreshnessGate::new(transport, settings.stale_reads, metrics.clone());
        let reads = ReadPool::new(&settings.limits, &metrics);
        Self { freshness, reads, hubs: WatchHubs::default(), metrics, shutdown }
    }

    /// Answers a read from the cache of its resource.
    ///
    /// # Errors
    ///
    /// [`Refusal::Forward`] for a read that only the API server can answer, [`Refusal::Status`] for errors.
    pub(crate) async fn answer_read(
        &self,
        mirrored: &Arc<Mirrored>,
        request: ReadRequest,
        representation: Representation,
        grant: Grant,
    ) -> Result<Response<ResponseBody>, Refusal> {
        check_support(mirrored, &request, representation)?;
        let status = mirrored.status();
        match status.source {
            ReadSource::Cache => {}
            ReadSource::ApiServer => return Err(Refusal::Forward(ForwardReason::Other)),
            ReadSource::Nobody(reason) => {
                return Err(status::unavailable(format!("{}: {reason}", status.name), 1).into());
            }
        }
        let verb = request.verb;
        let read = CacheRead::new(mirrored, request, representation)?;
        let holder = grant.holder().clone();
        let share = self.reads.share_of(&holder);
        let mut permit = None;
        let body = match verb {
            ReadVerb::Get => {
                let (body, of_body) = answer_get(&self.freshness, &share, &read).await?;
                permit = Some(of_body);
                body
            }
            ReadVerb::List => answer_list(&self.freshness, &share, read).await?,
            ReadVerb::Watch => {
                let Self { freshness, hubs, metrics, shutdown, .. } = self;
                answer_watch(freshness, &share, hubs, metrics, shutdown, read, grant).await?
            }
        };
        let mut response = Response::new(body);
        if let Some(permit) = permit {
            // The connection keeps it with the body.
            response.extensions_mut().insert(Arc::new(permit));
        }
        // The connection counts the bytes that it sends.
        response.extensions_mut().insert(self.metrics.sent_bytes(Some(&mirrored.resource)));
        let is_watch = verb == ReadVerb::Watch;
        let content_type = if is_watch { representation.watch_content_type() } else { representation.content_type() };
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, content_type);
        if let Some(lag) = mirrored.status().lag {
            let lag = HeaderValue::try_from(format!("{:.3}", lag.as_secs_f64()));
            headers.extend(lag.ok().map(|lag| (LAG, lag)));
        }
        Ok(response)
    }
}

/// Leaves reads to the API server that this crate does not support.
fn check_support(mirrored: &Mirrored, request: &ReadRequest, representation: Representation) -> Result<(), Refusal> {
    let is_namespaced = mirrored.resource.is_namespaced();
    // The API server answers with the error.
    let has_no_such_path = request.namespace.is_some() && !is_namespaced
        || request.verb == ReadVerb::Get && request.namespace.is_none() && is_namespaced;
    let options = &request.options;
    let has_other_form = options.pretty || !options.shard_selector.is_empty();
    let Representation { encoding, form } = representation;
    // The API server refuses the value.
    let has_other_form = has_other_form || form == Form::Row && options.include_object == IncludeObject::Invalid;
    let cannot_encode = !encoding.is_self_describing() && !mirrored.has_protobuf();
    if has_no_such_path || has_other_form || cannot_encode {
        return Err(Refusal::Forward(ForwardReason::Form));
    }
    Ok(())
}
