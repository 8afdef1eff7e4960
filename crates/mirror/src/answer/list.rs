//! Lists: a plan before the first byte, then one chunk at a time.
//!
//! A protobuf list starts with its length, and each list with `continue` and `remainingItemCount`. So a list walks over
//! a snapshot twice: [`PlanWalk`] finds what the list contains, and [`ListChunks`] encodes it. Both walks see the same
//! objects, because a snapshot does not change. The second walk selects nothing: it has the selected objects as bits.
//!
//! # Before you change this file
//!
//! - The first walk also finds objects with fields that JSON would lack: the whole list is then one forwarded request.
//! - An error in the first walk or in the first chunk is forwarded. A later one resets the connection or the stream, so
//!   that no reader takes a part for the whole.
//! - A list acquires its permit after the snapshot, and holds it until its body is dropped. A waiting list keeps its
//!   snapshot, which costs the objects that change in the meantime.
//! - A chunk is encoded when the connection has sent the one before. A list of any size needs one chunk of memory.
//! - The walk yields after [`PLAN_STEP`] objects. A list of millions of objects would otherwise stop all other readers.
//! - Continue tokens have the API server's format. It continues a list whose snapshot the mirror no longer keeps.

use std::sync::Arc;

use bytes::Bytes;
use fixedbitset::FixedBitSet;
use futures::stream;
use listwatch::ListMeta;
use listwatch_cache::{ObjectKey, Snapshot};
use tokio::task::yield_now;

use super::cache_read::{CHUNK, CacheRead};
use super::continue_token::ContinueToken;
use super::freshness::{FreshnessGate, IfOlder};
use super::read_encoder::OpenList;
use super::read_pool::ReadShare;
use super::select::Candidates;
use crate::fairness::PoolPermit;
use crate::negotiate::Form;
use crate::request::ResourceVersionMatch;
use crate::resource::IncompleteObjects;
use crate::response::{BodyError, ForwardReason, Refusal, ResponseBody, status};

/// The objects that are planned before other tasks run.
const PLAN_STEP: usize = 64;

/// A list whose objects have fewer bytes is forwarded rather than confirmed. kube-apiserver writes 70 MB in a second of
/// CPU time, and a confirmation costs it about ten small watches.
const SMALL_LIST: usize = 512 << 10;

pub(super) async fn answer_list(
    freshness: &FreshnessGate,
    share: &ReadShare<'_>,
    read: CacheRead,
) -> Result<ResponseBody, Refusal> {
    let options = &read.request.options;
    let (snapshot, after) = if options.continue_token.is_empty() {
        (find_snapshot(freshness, &read).await?, None)
    } else {
        let namespace = read.selector.namespace.as_deref();
        let is_namespaced = read.mirrored.resource.is_namespaced();
        // The API server continues lists of other versions, or refuses them with a fresh token.
        let token = ContinueToken::decode(&options.continue_token, namespace, is_namespaced);
        let token = token.ok_or(Refusal::Forward(ForwardReason::Version))?;
        if !matches!(&*options.resource_version, "" | "0") {
            return Err(status::bad_request("specifying resource version is not allowed when using continue").into());
        }
        let snapshot = read.mirrored.paged_at(&token.resource_version);
        let snapshot = snapshot.ok_or(Refusal::Forward(ForwardReason::Version))?;
        (snapshot, Some(token.after))
    };
    let permit = share.acquire_permit().await?;
    let plan =
        ListPlan::new(&read, snapshot, after).await.map_err(|_| Refusal::Forward(ForwardReason::UnknownFields))?;
    let chunks = ListChunks::new(read, plan, permit)?;
    Ok(ResponseBody::from_stream(stream::iter(chunks)))
}

/// Returns the objects of the version that the read requests.
async fn find_snapshot(freshness: &FreshnessGate, read: &CacheRead) -> Result<Arc<Snapshot<[u8]>>, Refusal> {
    let CacheRead { mirrored, request, .. } = read;
    let options = &request.options;
    let version = &*options.resource_version;
    let is_exact = options.resource_version_match == ResourceVersionMatch::Exact
        // As before `resourceVersionMatch`.
        || options.resource_version_match == ResourceVersionMatch::Unset
            && options.limit > 0
            && !matches!(version, "" | "0");
    if is_exact {
        // The cache may reach the version in a moment.
        freshness.wait_for_read(mirrored, version, IfOlder::Forward).await?;
        let current = mirrored.cache.exact_snapshot().filter(|snapshot| snapshot.resource_version() == version);
        let known = current.map(Arc::new).or_else(|| mirrored.paged_at(version));
        // The API server has the states of the last minutes.
        return known.ok_or(Refusal::Forward(ForwardReason::Version));
    }
    let waits = freshness.needs_no_wait(version) || !is_small(read)?;
    freshness.wait_for_read(mirrored, version, if waits { IfOlder::Wait } else { IfOlder::Forward }).await?;
    read.exact_snapshot()
}

/// Returns true if the objects among which a list selects have few bytes, whatever its limit: a reader requests all
/// pages from whom it gets the first.
fn is_small(read: &CacheRead) -> Result<bool, Refusal> {
    let candidates = Candidates::new(&read.mirrored, &read.selector, read.exact_snapshot()?);
    let mut bytes = 0;
    Ok(candidates.iter_after(read.selector.namespace.as_deref(), None).all(|object| {
        bytes += object.encoded_len();
        bytes < SMALL_LIST
    }))
}

/// What a list contains, which is known before its first byte is written.
struct ListPlan {
    candidates: Candidates,
    after: Option<ObjectKey>,
    walk: PlanWalk,
    list_meta: ListMeta,
}

/// The first walk over the objects of a list.
struct PlanWalk {
    /// The key of the last object.
    last: Option<ObjectKey>,
    /// The number of objects that were walked over.
    walked: usize,
    /// Those of them that are selected; `None` for all.
    selected: Option<FixedBitSet>,
    /// The number of those that are selected.
    count: usize,
    /// The length of all items in protobuf.
    items_len: u64,
    /// True if `limit` ended the walk before the last object.
    has_more: bool,
}

impl ListPlan {
    /// # Errors
    ///
    /// An object of the list cannot be read, or would lack fields.
    async fn new(read: &CacheRead, snapshot: Arc<Snapshot<[u8]>>, after: Option<ObjectKey>) -> Result<Self, BodyError> {
        let CacheRead { mirrored, selector, request, .. } = read;
        // The API server's watch cache ignores limits at version 0.
        let is_whole = request.options.resource_version == "0" && after.is_none();
        let limit = if is_whole { 0 } else { usize::try_from(request.options.limit).unwrap_or_default() };
        let candidates = Candidates::new(mirrored, selector, snapshot);
        let selected = (!selector.is_empty()).then(FixedBitSet::new);
        let mut walk = PlanWalk { last: after.clone(), walked: 0, selected, count: 0, items_len: 0, has_more: false };
        let incomplete = read.incomplete_objects();
        while walk.walk_step(read, &candidates, limit, incomplete.as_ref())? {
            yield_now().await;
        }
        let list_meta = walk.list_meta(read, &candidates.snapshot);
        if walk.has_more {
            mirrored.keep_paged(&candidates.snapshot);
        }
        Ok(Self { candidates, after, walk, list_meta })
    }
}

impl PlanWalk {
    /// Walks over some objects. Returns false after the last.
    fn walk_step(
        &mut self,
        read: &CacheRead,
        candidates: &Candidates,
        limit: usize,
        incomplete: Option<&IncompleteObjects>,
    ) -> Result<bool, BodyError> {
        let CacheRead { mirrored, encoder, selector, representation, .. } = read;
        let needs_lens = encoder.needs_items_len();
        let mut next = None;
        let mut steps = 0;
        for object in candidates.iter_after(selector.namespace.as_deref(), self.last.as_ref()).take(PLAN_STEP) {
            if limit > 0 && self.count == limit {
                self.has_more = true;
                break;
            }
            let is_selected = self.selected.is_none() || selector.selects(mirrored, &object)?;
            if is_selected {
                if incomplete.is_some_and(|incomplete| incomplete.contains(&object.key())) {
                    return Err("the list would lack fields".into());
                }
                self.count += 1;
                if needs_lens {
                    self.items_len += if representation.form == Form::Metadata {
                        encoder.item_len(&object.item()?)?
                    } else {
                        encoder.whole_item_len(object.encoded_len())
                    };
                }
            }
            if let Some(selected) = &mut self.selected {
                selected.grow(self.walked + 1);
                selected.set(self.walked, is_selected);
            }
            self.walked += 1;
            steps += 1;
            next = Some(object);
        }
        let Some(next) = next else { return Ok(false) };
        self.last = Some(next.key());
        Ok(!self.has_more && steps == PLAN_STEP)
    }

    /// Returns the list meta, with a continue token if there are more objects.
    fn list_meta(&self, read: &CacheRead, snapshot: &Snapshot<[u8]>) -> ListMeta {
        let mut list_meta = ListMeta::default();
        snapshot.resource_version().clone_into(&mut list_meta.resource_version);
        if let Some(last) = self.last.as_ref().filter(|_| self.has_more) {
            let key = last.into();
            let namespace = read.selector.namespace.as_deref();
            let token = ContinueToken::encode(snapshot.resource_version(), namespace, key);
            list_meta.continue_token = token.unwrap_or_default();
            // Nobody knows how many of the rest a selector selects.
            let left = || i64::try_from(snapshot.range_len(namespace, Some(key))).unwrap_or(i64::MAX);
            list_meta.remaining_item_count = self.selected.is_none().then(left);
        }
        list_meta
    }
}

/// The chunks of a list. Each is written when the connection has sent the one before.
struct ListChunks {
    read: CacheRead,
    plan: ListPlan,
    /// `None` before the first chunk and after the last.
    list: Option<OpenList>,
    first: Bytes,
    /// The key of the object before the next chunk.
    last: Option<ObjectKey>,
    walked: usize,
    has_ended: bool,
    _permit: PoolPermit,
}

impl ListChunks {
    /// Encodes the first chunk, so that an error before it can still be answered.
    fn new(read: CacheRead, plan: ListPlan, permit: PoolPermit) -> Result<Self, Refusal> {
        let mut chunks = Self {
            read,
            list: None,
            first: Bytes::new(),
            last: plan.after.clone(),
            plan,
            walked: 0,
            has_ended: false,
            _permit: permit,
        };
        let mut first = Vec::with_capacity(CHUNK + CHUNK / 4);
        let ListPlan { list_meta, walk, .. } = &chunks.plan;
        let list = chunks.read.encoder.list_head(list_meta, walk.items_len, &mut first);
        chunks.list = Some(list.map_err(|_| Refusal::Forward(ForwardReason::UnknownFields))?);
        chunks.append_objects(&mut first).map_err(|_| Refusal::Forward(ForwardReason::UnknownFields))?;
        chunks.first = first.into();
        Ok(chunks)
    }

    /// Appends the objects of a chunk, and the end of the list after the last.
    fn append_objects(&mut self, out: &mut Vec<u8>) -> Result<(), BodyError> {
        let Self { read: CacheRead { encoder, selector, .. }, plan, list, last, walked, .. } = self;
        let Some(mut body) = list.take() else { return Ok(()) };
        let ListPlan { candidates, walk, list_meta, .. } = plan;
        let mut next = None;
        let left = candidates.iter_after(selector.namespace.as_deref(), last.as_ref()).take(walk.walked - *walked);
        for object in left {
            if walk.selected.as_ref().is_none_or(|selected| selected.contains(*walked)) {
                encoder.item(&mut body, &object.item()?, out)?;
            }
            *walked += 1;
            let is_full = out.len() >= CHUNK;
            next = Some(object);
            if is_full {
                break;
            }
        }
        if *walked == walk.walked || next.is_none() {
            encoder.list_tail(body, list_meta, out);
            self.has_ended = true;
        } else {
            *last = next.map(|next| next.key());
            *list = Some(body);
        }
        Ok(())
    }
}

impl Iterator for ListChunks {
    type Item = Result<Bytes, BodyError>;

    fn next(&mut self) -> Option<Self::Item> {
        if !self.first.is_empty() {
            return Some(Ok(std::mem::take(&mut self.first)));
        }
        if self.has_ended {
            return None;
        }
        let mut chunk = Vec::with_capacity(CHUNK + CHUNK / 4);
        let appended = self.append_objects(&mut chunk);
        // An error resets the connection, so that the reader sees that the list is incomplete.
        self.has_ended |= appended.is_err();
        Some(appended.map(|()| chunk.into()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http_body_util::BodyExt as _;
    use listwatch_cache::ChangeLogLimits;
    use serde_json::Value;
    use tokio::time::sleep;

    use crate::settings::{Limits, MirrorSettings};
    use crate::testing::{FakeApiServer, LAG, get, json};

    fn names(list: &Value) -> Vec<&str> {
        list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
    }

    #[tokio::test]
    async fn pages_have_the_limit_and_the_number_of_items_that_remain() {
        let mirror = FakeApiServer::new(5, 100).mirror(Limits::default()).await;
        for path in ["/api/v1/configmaps", "/api/v1/namespaces/web/configmaps"] {
            let page = json(&mirror, &format!("{path}?limit=2")).await;
            assert_eq!((names(&page), &page["metadata"]["remainingItemCount"]), (vec!["000000", "000001"], &3.into()));
            let token = page["metadata"]["continue"].as_str().unwrap();
            // Version 0 is allowed with a token, and does not change the page.
            for version in ["", "&resourceVersion=0", "&resourceVersion="] {
                let page = json(&mirror, &format!("{path}?limit=2&continue={token}{version}")).await;
                let expected = (vec!["000002", "000003"], &Value::from(1));
                assert_eq!((names(&page), &page["metadata"]["remainingItemCount"]), expected, "{version}");
            }
            for rest in ["", "&limit=3", "&limit=-1"] {
                let page = json(&mirror, &format!("{path}?continue={token}{rest}")).await;
                assert_eq!(names(&page), ["000002", "000003", "000004"]);
                assert_eq!(page["metadata"]["remainingItemCount"], Value::Null);
            }
            // Other tokens are the API server's.
            for (token, expected) in [(token, 400), ("x", 200)] {
                let versioned = format!("{path}?limit=2&continue={token}&resourceVersion=1000");
                assert_eq!(get(&mirror, &versioned, "*/*").await.status(), expected);
            }
            let whole = json(&mirror, &format!("{path}?limit=2&resourceVersion=0")).await;
            assert_eq!(names(&whole).len(), 5);
        }
        // Nobody knows how many of the rest a selector selects.
        let page = json(&mirror, "/api/v1/configmaps?limit=2&labelSelector=!a").await;
        assert!(page["metadata"]["continue"].is_string() && page["metadata"]["remainingItemCount"].is_null());
    }

    #[tokio::test]
    async fn pages_continue_in_a_namespace_that_a_field_selector_names() {
        let mirror = FakeApiServer::new(3, 100).mirror(Limits::default()).await;
        let query = "/api/v1/configmaps?limit=2&fieldSelector=metadata.namespace%3Dweb";
        let page = json(&mirror, query).await;
        let token = page["metadata"]["continue"].as_str().unwrap();
        assert_eq!(names(&json(&mirror, &format!("{query}&continue={token}")).await), ["000002"]);
        // The API server reads only the namespace (`ListPredicate` in apiserver `registry/generic/registry/store.go`).
        let of_path = json(&mirror, "/api/v1/namespaces/web/configmaps?limit=2").await;
        assert_eq!(of_path["metadata"]["continue"], token);
    }

    #[tokio::test]
    async fn tables_have_columns_cells_and_the_requested_objects() {
        const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        const ONE: &str = "/api/v1/namespaces/web/configmaps/000001";
        const LIST: &str = "/api/v1/configmaps?limit=2";

        let mirror = FakeApiServer::new(3, 100).mirror(Limits::default()).await;
        for (path, rows, kind) in [
            (LIST, 2, "PartialObjectMetadata"),
            ("/api/v1/configmaps?limit=2&includeObject=Metadata", 2, "PartialObjectMetadata"),
            ("/api/v1/configmaps?limit=2&includeObject=Object", 2, "ConfigMap"),
            ("/api/v1/configmaps?limit=2&includeObject=None", 2, ""),
            ("/api/v1/configmaps?labelSelector=a", 0, ""),
            (ONE, 1, "PartialObjectMetadata"),
        ] {
            let response = get(&mirror, path, TABLE).await;
            assert!(response.headers().contains_key(LAG), "{path}");
            let table = response.into_body().collect().await.unwrap().to_bytes();
            let head = br#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":""#;
            assert!(table.starts_with(head) && table.ends_with(b"]}\n"), "{table:?}");
            let table: Value = serde_json::from_slice(&table).unwrap();
            assert_eq!(table["columnDefinitions"][1]["name"], "Data", "{path}");
            assert_eq!(table["rows"].as_array().unwrap().len(), rows, "{path}");
            assert_eq!(table["metadata"]["continue"].is_string(), rows == 2, "{path}");
            for row in table["rows"].as_array().unwrap() {
                assert_eq!((&row["cells"][1], &row["cells"][2]), (&1.into(), &"<unknown>".into()), "{path}");
                assert_eq!(row["object"]["kind"].as_str().unwrap_or_default(), kind, "{path}");
                assert_eq!(row["object"].is_null(), kind.is_empty(), "{path}");
            }
        }
        let response = get(&mirror, "/api/v1/configmaps?includeObject=x", TABLE).await;
        assert!(!response.headers().contains_key(LAG), "the API server refuses the value");
    }

    /// Nobody has to read a page for it.
    #[tokio::test(start_paused = true)]
    async fn drops_the_snapshots_of_pages() {
        const FIRST: &str = "/api/v1/configmaps?limit=1";

        let api = FakeApiServer::new(2, 100);
        // The log keeps the newest change only.
        let mut log = ChangeLogLimits::default();
        log.bytes = 1;
        let settings = MirrorSettings { stale_reads: true, ..MirrorSettings::default() };
        let mirror = api.mirror_with(settings, log, |own| own).await;
        let mirrored = mirror.first_resource();
        let page = json(&mirror, FIRST).await;
        let next = format!("{FIRST}&continue={}", page["metadata"]["continue"].as_str().unwrap());
        assert_eq!(mirrored.paged_snapshots(), 1);
        sleep(Duration::from_secs(59)).await;
        assert_eq!(names(&json(&mirror, &next).await), ["000001"]);
        sleep(Duration::from_secs(2)).await;
        assert_eq!(mirrored.paged_snapshots(), 0);
        let response = get(&mirror, &next, "*/*").await;
        assert!(!response.headers().contains_key(LAG), "the API server continues the list");
        drop(response.into_body().collect().await);

        json(&mirror, FIRST).await;
        for version in [1001, 1002, 1003] {
            api.change(version);
            mirrored.cache.wait_for_resource_version(&version.to_string()).await.unwrap();
        }
        assert_eq!(mirrored.paged_snapshots(), 1);
        sleep(Duration::from_secs(2)).await;
        assert_eq!(mirrored.paged_snapshots(), 0, "the log no longer has the states that the snapshot keeps");
    }
}
