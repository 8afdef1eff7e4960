//! Lists.

use std::sync::Arc;

use bytes::Bytes;
use fixedbitset::FixedBitSet;
use futures::stream;
use listwatch::encode::ListBody;
use listwatch::{Encoding, ItemError, ListMeta};
use listwatch_cache::{ObjectKey, Snapshot};
use tokio::task::yield_now;

use super::select::Candidates;
use super::token::Token;
use super::{Request, freshness, whole};
use crate::body::{Body, BodyError};
use crate::mirrored::Mirrored;
use crate::params::Match;
use crate::shared::{ListPermit, Shared};
use crate::status::{self, Refusal};

/// A body is written in chunks of about this size.
pub(super) const CHUNK: usize = 64 << 10;

/// The objects that are planned before other tasks run.
const STEP: usize = 64;

pub(super) async fn answer(shared: &Shared, request: Request) -> Result<Body, Refusal> {
    let params = &request.read.params;
    let (snapshot, after) = if params.continue_token.is_empty() {
        (current(shared, &request).await?, None)
    } else {
        let namespace = request.selector.namespace.as_deref();
        let is_namespaced = request.mirrored.resource.is_namespaced();
        // The API server continues lists of other versions, or refuses them with a fresh token.
        let token = Token::decode(&params.continue_token, namespace, is_namespaced).ok_or(Refusal::Forward)?;
        if !matches!(&*params.resource_version, "" | "0") {
            return Err(status::bad_request("specifying resource version is not allowed when using continue").into());
        }
        let snapshot = request.mirrored.paged_at(&token.resource_version).ok_or(Refusal::Forward)?;
        (snapshot, Some(token.after))
    };
    let permit = shared.list_permit().await?;
    let plan = Plan::new(&request, snapshot, after).await.map_err(|_| Refusal::Forward)?;
    let body = Written::new(request, plan, permit)?;
    Ok(Body::from_stream(stream::iter(body)))
}

/// Returns the objects of the version that the read asks for.
async fn current(shared: &Shared, request: &Request) -> Result<Arc<Snapshot<[u8]>>, Refusal> {
    let Request { mirrored, read, .. } = request;
    let params = &read.params;
    let version = &*params.resource_version;
    let is_exact = params.resource_version_match == Match::Exact
        // As before `resourceVersionMatch`.
        || params.resource_version_match == Match::Unset && params.limit > 0 && !matches!(version, "" | "0");
    if is_exact {
        freshness::at_least(shared, mirrored, version).await?;
        let current = mirrored.cache.exact_snapshot().filter(|snapshot| snapshot.resource_version() == version);
        let known = current.map(Arc::new).or_else(|| mirrored.paged_at(version));
        let gone = || status::expired(format!("The provided resource version {version} is not the mirror's."));
        return known.ok_or_else(|| gone().into());
    }
    freshness::wait(shared, mirrored, version).await?;
    exact_snapshot(mirrored)
}

pub(super) fn exact_snapshot(mirrored: &Mirrored) -> Result<Arc<Snapshot<[u8]>>, Refusal> {
    let snapshot = mirrored.cache.exact_snapshot();
    snapshot.map(Arc::new).ok_or_else(|| status::unavailable("the cache is being relisted", 1).into())
}

/// What a list contains, which is known before its first byte is written.
struct Plan {
    candidates: Candidates,
    after: Option<ObjectKey>,
    /// The number of objects to walk over.
    walked: usize,
    /// Those of them that are selected; `None` for all.
    selected: Option<FixedBitSet>,
    items_len: u64,
    list_meta: ListMeta,
}

impl Plan {
    async fn new(
        request: &Request,
        snapshot: Arc<Snapshot<[u8]>>,
        after: Option<ObjectKey>,
    ) -> Result<Self, ItemError> {
        let Request { mirrored, encoder, selector, form, read } = request;
        // The API server's watch cache ignores limits at version 0.
        let limit = if read.params.resource_version == "0" && after.is_none() { 0 } else { read.params.limit };
        let limit = usize::try_from(limit).unwrap_or_default();
        let needs_lens = form.encoding == Encoding::Protobuf;
        let candidates = Candidates::new(mirrored, selector, snapshot);
        let mut selected = (!selector.is_empty()).then(FixedBitSet::new);
        let (mut walked, mut count, mut items_len) = (0, 0, 0);
        let (mut last, mut has_more) = (after.clone(), false);
        loop {
            let mut next = None;
            let mut steps = 0;
            for object in candidates.after(selector.namespace.as_deref(), last.as_ref()).take(STEP) {
                if limit > 0 && count == limit {
                    has_more = true;
                    break;
                }
                let is_selected = selected.is_none() || selector.selects(mirrored, &object)?;
                if is_selected {
                    count += 1;
                    if needs_lens {
                        items_len += if form.metadata_only {
                            encoder.item_len(&object.item()?)?
                        } else {
                            encoder.whole_item_len(object.encoded_len()?)
                        };
                    }
                }
                if let Some(selected) = &mut selected {
                    selected.grow(walked + 1);
                    selected.set(walked, is_selected);
                }
                walked += 1;
                steps += 1;
                next = Some(object);
            }
            match next {
                Some(next) => last = Some(next.key()),
                None => break,
            }
            if has_more || steps < STEP {
                break;
            }
            yield_now().await;
        }
        let snapshot = &candidates.snapshot;
        let mut list_meta = ListMeta::default();
        snapshot.resource_version().clone_into(&mut list_meta.resource_version);
        if let Some(last) = last.filter(|_| has_more) {
            let key = (&last).into();
            let namespace = selector.namespace.as_deref();
            list_meta.continue_token = Token::encode(snapshot.resource_version(), namespace, key).unwrap_or_default();
            let left = || i64::try_from(snapshot.range_len(namespace, Some(key))).unwrap_or(i64::MAX);
            list_meta.remaining_item_count = selected.is_none().then(left);
            mirrored.keep_paged(snapshot);
        }
        Ok(Self { candidates, after, walked, selected, items_len, list_meta })
    }
}

/// The chunks of a list. Each is written when the connection has sent the one before.
struct Written {
    request: Request,
    plan: Plan,
    /// `None` before the first chunk and after the last.
    list: Option<ListBody>,
    first: Bytes,
    /// The key of the object before the next chunk.
    last: Option<ObjectKey>,
    walked: usize,
    has_ended: bool,
    _permit: ListPermit,
}

impl Written {
    /// Encodes the first chunk, so that an error before it can still be answered.
    fn new(request: Request, plan: Plan, permit: ListPermit) -> Result<Self, Refusal> {
        let mut written = Self {
            request,
            list: None,
            first: Bytes::new(),
            last: plan.after.clone(),
            plan,
            walked: 0,
            has_ended: false,
            _permit: permit,
        };
        let mut first = Vec::with_capacity(CHUNK + CHUNK / 4);
        let Plan { list_meta, items_len, .. } = &written.plan;
        written.list = Some(written.request.encoder.list_head(list_meta, *items_len, &mut first));
        written.fill(&mut first).map_err(|_| Refusal::Forward)?;
        written.first = first.into();
        Ok(written)
    }

    /// Appends objects, and the end of the list after the last.
    fn fill(&mut self, out: &mut Vec<u8>) -> Result<(), BodyError> {
        let Self { request: Request { encoder, selector, .. }, plan, list, last, walked, .. } = self;
        let Some(mut body) = list.take() else { return Ok(()) };
        let mut next = None;
        let left = plan.candidates.after(selector.namespace.as_deref(), last.as_ref()).take(plan.walked - *walked);
        for object in left {
            if plan.selected.as_ref().is_none_or(|selected| selected.contains(*walked)) {
                whole(encoder.item(&mut body, &object.item()?, out)?)?;
            }
            *walked += 1;
            let is_full = out.len() >= CHUNK;
            next = Some(object);
            if is_full {
                break;
            }
        }
        if *walked == plan.walked || next.is_none() {
            encoder.list_tail(body, &plan.list_meta, out);
            self.has_ended = true;
        } else {
            *last = next.map(|next| next.key());
            *list = Some(body);
        }
        Ok(())
    }
}

impl Iterator for Written {
    type Item = Result<Bytes, BodyError>;

    fn next(&mut self) -> Option<Self::Item> {
        if !self.first.is_empty() {
            return Some(Ok(std::mem::take(&mut self.first)));
        }
        if self.has_ended {
            return None;
        }
        let mut chunk = Vec::with_capacity(CHUNK + CHUNK / 4);
        let filled = self.fill(&mut chunk);
        // An error resets the connection, so that the reader sees that the list is incomplete.
        self.has_ended |= filled.is_err();
        Some(filled.map(|()| chunk.into()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http_body_util::BodyExt as _;
    use listwatch_cache::ChangeLogLimits;
    use serde_json::Value;
    use tokio::time::sleep;

    use crate::mirror::{Access, Limits};
    use crate::reads::LAG;
    use crate::testing::{Api, get, json};

    fn names(list: &Value) -> Vec<&str> {
        list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
    }

    #[tokio::test]
    async fn pages_have_the_limit_and_the_number_of_items_that_remain() {
        let shared = Api::new(5, 100).mirror(Limits::default()).await;
        for path in ["/api/v1/configmaps", "/api/v1/namespaces/web/configmaps"] {
            let page = json(&shared, &format!("{path}?limit=2")).await;
            assert_eq!((names(&page), &page["metadata"]["remainingItemCount"]), (vec!["000000", "000001"], &3.into()));
            let token = page["metadata"]["continue"].as_str().unwrap();
            // Version 0 is allowed with a token, and does not change the page.
            for version in ["", "&resourceVersion=0", "&resourceVersion="] {
                let page = json(&shared, &format!("{path}?limit=2&continue={token}{version}")).await;
                let expected = (vec!["000002", "000003"], &Value::from(1));
                assert_eq!((names(&page), &page["metadata"]["remainingItemCount"]), expected, "{version}");
            }
            for rest in ["", "&limit=3", "&limit=-1"] {
                let page = json(&shared, &format!("{path}?continue={token}{rest}")).await;
                assert_eq!(names(&page), ["000002", "000003", "000004"]);
                assert_eq!(page["metadata"]["remainingItemCount"], Value::Null);
            }
            // Other tokens are the API server's.
            for (token, expected) in [(token, 400), ("x", 200)] {
                let versioned = format!("{path}?limit=2&continue={token}&resourceVersion=1000");
                assert_eq!(get(&shared, &versioned, "*/*").await.status(), expected);
            }
            let whole = json(&shared, &format!("{path}?limit=2&resourceVersion=0")).await;
            assert_eq!(names(&whole).len(), 5);
        }
        // Nobody knows how many of the rest a selector selects.
        let page = json(&shared, "/api/v1/configmaps?limit=2&labelSelector=!a").await;
        assert!(page["metadata"]["continue"].is_string() && page["metadata"]["remainingItemCount"].is_null());
    }

    #[tokio::test]
    async fn pages_continue_in_a_namespace_that_a_field_selector_names() {
        let shared = Api::new(3, 100).mirror(Limits::default()).await;
        let query = "/api/v1/configmaps?limit=2&fieldSelector=metadata.namespace%3Dweb";
        let page = json(&shared, query).await;
        let token = page["metadata"]["continue"].as_str().unwrap();
        assert_eq!(names(&json(&shared, &format!("{query}&continue={token}")).await), ["000002"]);
        // The API server reads only the namespace (`ListPredicate` in apiserver `registry/generic/registry/store.go`).
        let of_path = json(&shared, "/api/v1/namespaces/web/configmaps?limit=2").await;
        assert_eq!(of_path["metadata"]["continue"], token);
    }

    /// Nobody has to read a page for it.
    #[tokio::test(start_paused = true)]
    async fn drops_the_snapshots_of_pages() {
        const FIRST: &str = "/api/v1/configmaps?limit=1";

        let api = Api::new(2, 100);
        // The log keeps the newest change only.
        let mut log = ChangeLogLimits::default();
        log.bytes = 1;
        let shared = api.mirror_with(Access::Loopback, Limits::default(), true, log, |own| own).await;
        let mirrored = &shared.resources[0];
        let page = json(&shared, FIRST).await;
        let next = format!("{FIRST}&continue={}", page["metadata"]["continue"].as_str().unwrap());
        assert_eq!(mirrored.paged_snapshots(), 1);
        sleep(Duration::from_secs(59)).await;
        assert_eq!(names(&json(&shared, &next).await), ["000001"]);
        sleep(Duration::from_secs(2)).await;
        assert_eq!(mirrored.paged_snapshots(), 0);
        let response = get(&shared, &next, "*/*").await;
        assert!(!response.headers().contains_key(LAG), "the API server continues the list");
        drop(response.into_body().collect().await);

        json(&shared, FIRST).await;
        for version in [1001, 1002, 1003] {
            api.change(version);
            mirrored.cache.wait_for_resource_version(&version.to_string()).await.unwrap();
        }
        assert_eq!(mirrored.paged_snapshots(), 1);
        sleep(Duration::from_secs(2)).await;
        assert_eq!(mirrored.paged_snapshots(), 0, "the log no longer has the states that the snapshot keeps");
    }
}
