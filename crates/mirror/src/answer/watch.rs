//! Watches: the initial state, then the changes of the log.
//!
//! A watch is a cursor in the change log of its cache. It keeps no change and has no task: the connection polls it, and
//! [`WatchStream::next_frames`] encodes the next frames. A thousand watches cost a thousand cursors, and those with
//! selectors wake only for changes that they select (`watch_hub.rs`).
//!
//! # Before you change this file
//!
//! - The order in [`find_start`] matters: first the permit, then the snapshot, then the cursor at its version. A
//!   snapshot from before the wait may be older than the log, and the watch would begin with a 410.
//! - The select is `biased`. A withdrawn right, the timeout and the shutdown come before frames: a reader that always
//!   accepts bytes would otherwise outrun them. The initial state once ignored all three.
//! - The initial state has a deadline of its own. The connection bounds the time of bodies that end, and a watch does
//!   not.
//! - Within the initial state a watch ends without a bookmark. Its reader has a part of the objects, so there is no
//!   version from which it could resume.
//! - A chunk visits at most [`INITIAL_STEP`] objects: a selector may select none of them. The watch then yields.
//! - Without a selector, and for an object that matches before and after, all watches of a representation share the
//!   frame in the log. `frame_form` is the number of the representation there.
//! - With a selector, a change may be an `ADDED` or a `DELETED` for the reader. These frames depend on the selector, so
//!   they are not shared. The `DELETED` has the old object at the new version, as the API server sends it.
//! - A relist ends the watch with a 410.
//! - JSON lacks fields that the mirror does not know. A watch that would send such an object is forwarded as a whole
//!   ([`meets_unknown_fields`]). If the object comes later, the watch ends without a bookmark, as after its timeout.
//!   Its reader resumes before the change, and the API server answers: with a 410, it would list each time.
//! - Changes may share a version. A reader that resumes at this version gets all of them but the first, perhaps again.
//!
//! # What was left out
//!
//! - A queue for each watch. A slow reader would hold objects, or lose changes. The log drops changes, and the slow
//!   reader gets a 410.
//! - Gzip, as on the API server: the encoder would hold back events.

use std::future::{Future, ready};
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use listwatch::EventType;
use listwatch_cache::{ChangeCursor, LoggedChange, ObjectKey};
use tokio::task::yield_now;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use super::cache_read::{CHUNK, CacheRead};
use super::freshness::FreshnessGate;
use super::read_pool::ReadShare;
use super::select::Candidates;
use super::watch_hub::{WatchChanges, WatchHubs};
use crate::authorize::Grant;
use crate::fairness::PoolPermit;
use crate::metrics::{GaugeGuard, MirrorMetrics};
use crate::negotiate::{Form, Representation};
use crate::response::{BodyError, ForwardReason, Refusal, ResponseBody, status};
use crate::shutdown::Shutdown;

/// Bookmarks are sent this far apart. The API server sends them about once a minute.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(55);

/// A watch without `timeoutSeconds` lasts this long, and up to twice as long, as on the API server
/// (`--min-request-timeout`).
const MIN_TIMEOUT_SECONDS: u64 = 1800;

/// An unreasonable timeout is cut to one that the clock can add.
const MAX_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);

/// The objects that are selected for one chunk of the initial state before other futures of the watch are polled.
const INITIAL_STEP: usize = 1024;

/// The most objects with unknown fields among which a watch selects. With more of them, it is forwarded.
const MAX_SELECTED: usize = 1000;

pub(super) async fn answer_watch(
    freshness: &FreshnessGate,
    share: &ReadShare<'_>,
    hubs: &WatchHubs,
    metrics: &MirrorMetrics,
    shutdown: &Shutdown,
    read: CacheRead,
    grant: Grant,
) -> Result<ResponseBody, Refusal> {
    match freshness.wait_for_watch(&read.mirrored, &read.request.options).await {
        // As the API server, which sends this error after it has accepted the watch.
        Err(Refusal::Status(status)) if status::is_version_too_large(&status) => {
            let mut frame = Vec::new();
            read.encoder.error(&status, &mut frame);
            return Ok(frame.into());
        }
        waited => waited?,
    }
    if meets_unknown_fields(&read) {
        return Err(Refusal::Forward(ForwardReason::UnknownFields));
    }
    let start = find_start(share, &read).await?;
    let Some((initial, changes)) = start else {
        metrics.count_expired(&read.mirrored.resource);
        let (version, current) = (&read.request.options.resource_version, read.mirrored.cache.resource_version());
        let status = status::expired(format!("too old resource version: {version} ({current})"));
        let mut frame = Vec::new();
        read.encoder.error(&status, &mut frame);
        return Ok(frame.into());
    };
    let options = &read.request.options;
    let watch = WatchStream {
        frame_form: frame_form(read.representation),
        // The API server sends this bookmark to each watch with bookmarks that begins with the initial state.
        bookmarks_initial_end: options.allow_watch_bookmarks,
        initial,
        changes: hubs.follow(&read.mirrored, &read.selector, changes),
        bookmark: Box::pin(sleep(BOOKMARK_INTERVAL)),
        withdrawn: Box::pin(grant.withdrawn()),
        ends: Box::pin(sleep_until(Instant::now() + choose_timeout(options.timeout_seconds))),
        shutdown: Box::pin(shutdown.started()),
        metrics: metrics.clone(),
        _open: metrics.open_watch(&read.mirrored.resource),
        read,
        has_ended: false,
    };
    let frames = stream::unfold(Box::new(watch), |mut watch| async {
        let frame = watch.next_frames().await?;
        Some((frame, watch))
    });
    Ok(ResponseBody::endless(frames))
}

/// Returns true if the watch would send an object without some of its fields.
fn meets_unknown_fields(read: &CacheRead) -> bool {
    let CacheRead { mirrored, selector, representation, request, .. } = read;
    if !representation.encoding.is_self_describing() {
        return false;
    }
    let version = &*request.options.resource_version;
    if !matches!(version, "" | "0") && mirrored.has_incomplete_change_after(version) {
        return true;
    }
    let Some(incomplete) = read.incomplete_objects() else { return false };
    let Some(mut keys) = incomplete.keys(MAX_SELECTED) else { return true };
    keys.any(|key| {
        let object = mirrored.cache.get(key);
        object.is_some_and(|object| selector.selects(mirrored, &object).unwrap_or(true))
    })
}

/// Returns where the watch begins: its initial state, if it has one, and the changes after that. `None` if the change
/// log does not reach back to its version.
async fn find_start(
    share: &ReadShare<'_>,
    read: &CacheRead,
) -> Result<Option<(Option<InitialEvents>, ChangeCursor<[u8]>)>, Refusal> {
    let CacheRead { mirrored, selector, request, .. } = read;
    let (cache, options) = (&mirrored.cache, &request.options);
    let has_initial = options.send_initial_events == Some(true);
    let version = &*options.resource_version;
    if !has_initial && !matches!(version, "" | "0") {
        return Ok(cache.changes_after(version).ok().map(|changes| (None, changes)));
    }
    // It waits before the snapshot, so that the log still has the changes since.
    let permit = if has_initial { Some(share.acquire_permit().await?) } else { None };
    let snapshot = read.exact_snapshot()?;
    let changes = cache.changes_after(snapshot.resource_version());
    let due = Instant::now() + share.list_timeout();
    let initial = permit.map(|permit| {
        let candidates = Candidates::new(mirrored, selector, snapshot);
        InitialEvents { candidates, last: None, due, _permit: permit }
    });
    Ok(changes.ok().map(|changes| (initial, changes)))
}

/// Returns how long a watch lasts.
fn choose_timeout(timeout_seconds: Option<i64>) -> Duration {
    let timeout = match timeout_seconds {
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds.unsigned_abs()),
        _ => Duration::from_secs(MIN_TIMEOUT_SECONDS + fastrand::u64(..MIN_TIMEOUT_SECONDS)),
    };
    timeout.min(MAX_TIMEOUT)
}

/// Returns the number by which the change log keeps the frames of a representation. It keeps no Tables: the first of a
/// watch differs from the others, and rows have ages.
fn frame_form(representation: Representation) -> usize {
    let number = 2 * usize::from(representation.encoding.number());
    match representation.form {
        Form::Whole => number,
        Form::Metadata => number + 1,
        Form::Row => usize::MAX,
    }
}

/// The objects of the initial state that are left to send.
struct InitialEvents {
    candidates: Candidates,
    last: Option<ObjectKey>,
    /// The time at which the reader must have accepted all of it.
    due: Instant,
    _permit: PoolPermit,
}

struct WatchStream {
    read: CacheRead,
    /// The number of its frames in the change log.
    frame_form: usize,
    /// `None` before the initial state was sent completely, or if the watch has none.
    initial: Option<InitialEvents>,
    bookmarks_initial_end: bool,
    changes: WatchChanges,
    bookmark: Pin<Box<Sleep>>,
    /// Completes when the reader may not read any more.
    withdrawn: Pin<Box<dyn Future<Output = ()> + Send>>,
    ends: Pin<Box<Sleep>>,
    shutdown: Pin<Box<dyn Future<Output = ()> + Send>>,
    metrics: MirrorMetrics,
    _open: GaugeGuard,
    has_ended: bool,
}

impl WatchStream {
    /// Returns the next frames; `None` after the last.
    async fn next_frames(&mut self) -> Option<Result<Bytes, BodyError>> {
        if self.has_ended {
            return None;
        }
        loop {
            let due = self.initial.as_ref().map(|initial| initial.due);
            tokio::select! {
                biased;
                () = &mut self.withdrawn => {
                    self.has_ended = true;
                    return None;
                }
                () = &mut self.ends => return self.end_with_bookmark(),
                () = &mut self.shutdown => return self.end_with_bookmark(),
                () = ready(()), if due.is_some() => {
                    if due.is_some_and(|due| due <= Instant::now()) {
                        self.has_ended = true;
                        return Some(Err("the reader has not accepted the initial state in time".into()));
                    }
                    match self.initial_frames() {
                        // The reader selects none of these objects.
                        Ok(frames) if frames.is_empty() => yield_now().await,
                        frames => return Some(frames),
                    }
                }
                change = self.changes.next() => match change {
                    Some(Ok(change)) => match self.change_frame(&change) {
                        Ok(None) => {}
                        Ok(Some(frame)) => return Some(Ok(frame)),
                        // The reader resumes before the change, and the API server answers.
                        Err(_) => {
                            self.read.mirrored.record_incomplete_change(change.resource_version());
                            self.has_ended = true;
                            return None;
                        }
                    },
                    Some(Err(_)) | None => return Some(Ok(self.end_expired("the mirror was relisted, or the reader is too slow"))),
                },
                () = &mut self.bookmark => {
                    self.bookmark.as_mut().reset(Instant::now() + BOOKMARK_INTERVAL);
                    if self.read.request.options.allow_watch_bookmarks {
                        return Some(self.bookmark_frame());
                    }
                }
            }
        }
    }

    /// Ends the watch with a bookmark, from which the reader resumes. Within the initial state there is no such
    /// version.
    fn end_with_bookmark(&mut self) -> Option<Result<Bytes, BodyError>> {
        self.has_ended = true;
        let has_bookmark = self.read.request.options.allow_watch_bookmarks && self.initial.is_none();
        has_bookmark.then(|| self.bookmark_frame())
    }

    fn end_expired(&mut self, reason: &str) -> Bytes {
        self.has_ended = true;
        self.metrics.count_expired(&self.read.mirrored.resource);
        let mut frame = Vec::new();
        self.read.encoder.error(&status::expired(format!("too old resource version: {reason}")), &mut frame);
        frame.into()
    }

    fn bookmark_frame(&mut self) -> Result<Bytes, BodyError> {
        let mut frame = Vec::new();
        self.read.encoder.bookmark(self.changes.resource_version(), false, &mut frame)?;
        Ok(frame.into())
    }

    /// Returns the frames of some objects of the initial state, and after the last the bookmark.
    fn initial_frames(&mut self) -> Result<Bytes, BodyError> {
        let Some(InitialEvents { candidates, last, .. }) = &mut self.initial else { return Ok(Bytes::new()) };
        let CacheRead { mirrored, encoder, selector, .. } = &mut self.read;
        let mut frames = Vec::with_capacity(CHUNK);
        let mut next = None;
        for object in candidates.iter_after(selector.namespace.as_deref(), last.as_ref()).take(INITIAL_STEP) {
            if selector.selects(mirrored, &object)? {
                encoder.event(EventType::Added, &object.item()?, None, &mut frames)?;
            }
            next = Some(object);
            if frames.len() >= CHUNK {
                break;
            }
        }
        if let Some(next) = next {
            *last = Some(next.key());
        } else {
            if self.bookmarks_initial_end {
                encoder.bookmark(candidates.snapshot.resource_version(), true, &mut frames)?;
            }
            self.initial = None;
        }
        Ok(frames.into())
    }

    /// Returns the frame of a change; `None` if the reader does not select the object.
    fn change_frame(&mut self, change: &LoggedChange<[u8]>) -> Result<Option<Bytes>, BodyError> {
        let CacheRead { mirrored, encoder, selector, .. } = &mut self.read;
        let object = change.object();
        if !selector.has_namespace(object.namespace()) {
            return Ok(None);
        }
        if selector.is_empty() {
            return self.shared_frame(change).map(Some);
        }
        let had = match change.old() {
            Some(old) => selector.selects(mirrored, &old)?,
            None => false,
        };
        let has = change.kind() != EventType::Deleted && selector.selects(mirrored, &object)?;
        let mut frame = Vec::new();
        match (had, has, change.old()) {
            (true, true, _) => return self.shared_frame(change).map(Some),
            (false, true, _) => {
                encoder.event(EventType::Added, &object.item()?, None, &mut frame)?;
            }
            // An object that no longer matches is sent in its old state, at the new version.
            (true, false, Some(old)) => {
                let version = Some(change.resource_version());
                let state = if change.kind() == EventType::Deleted { &object } else { &old };
                encoder.event(EventType::Deleted, &state.item()?, version, &mut frame)?;
            }
            (false, false, _) | (true, false, None) => return Ok(None),
        }
        Ok(Some(frame.into()))
    }

    /// Returns the frame of a change as it is in the log: encoded once for all watches of the same representation, but
    /// for Tables.
    fn shared_frame(&mut self, change: &LoggedChange<[u8]>) -> Result<Bytes, BodyError> {
        let encoder = &mut self.read.encoder;
        change.frame(self.frame_form, |change| {
            let mut frame = Vec::new();
            // The API server sends the deleted object at the version of the deletion.
            let version = (change.kind() == EventType::Deleted).then(|| change.resource_version());
            let object = change.object();
            encoder.event(change.kind(), &object.item()?, version, &mut frame)?;
            frame.shrink_to_fit();
            Ok::<_, BodyError>(frame)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use allocation_counter::measure;
    use futures::FutureExt as _;
    use http::header::{AUTHORIZATION, HOST};
    use http_body::Body as _;
    use http_body_util::{BodyExt as _, Empty};
    use tokio::time::advance;

    use super::*;
    use crate::settings::{Access, Limits};
    use crate::testing::{FakeApiServer, Pipeline, local_reader};

    /// Reads all frames that the bodies have, and returns their number.
    fn read(bodies: &mut [ResponseBody]) -> usize {
        let mut cx = Context::from_waker(Waker::noop());
        let mut frames = 0;
        for body in bodies {
            while let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(&mut cx) {
                frame.expect("the watch goes on").unwrap();
                frames += 1;
            }
        }
        frames
    }

    /// Starts a watch with its initial state.
    async fn watch(mirror: &Pipeline, query: &str) -> http::Response<ResponseBody> {
        let request = http::Request::builder().uri(format!("/api/v1/configmaps?watch=1{query}"));
        let request = request.header(HOST, "localhost").header(AUTHORIZATION, "Bearer t0ken");
        mirror.respond(request.body(Empty::<Bytes>::new()).unwrap(), local_reader()).await
    }

    /// A reader that accepts a chunk now and then must not hold a snapshot for hours, nor keep a right that was
    /// withdrawn.
    #[tokio::test(start_paused = true)]
    async fn the_initial_state_ends_like_the_watch() {
        type Act = fn(&FakeApiServer, &Pipeline);
        let cases: [(&str, &str, Act, (u64, bool)); 5] = [
            ("the reader is slow", "", |_, _| {}, (300, true)),
            ("timeoutSeconds", "&timeoutSeconds=100", |_, _| {}, (100, false)),
            ("shutdown", "", |_, mirror| mirror.shutdown.start(), (20, false)),
            ("the right is withdrawn", "", |api, _| api.withdraw(), (60, false)),
            ("a WatchList", "&sendInitialEvents=1&resourceVersionMatch=NotOlderThan", |_, _| {}, (300, true)),
        ];
        for (case, query, act, expected) in cases {
            let api = FakeApiServer::new(500, 10_000);
            let mirror = api.mirror_for(Access::Reviewed, Limits::default()).await;
            let mut body = watch(&mirror, &format!("&allowWatchBookmarks=1{query}")).await.into_body();
            let started = Instant::now();
            body.frame().await.unwrap().unwrap();
            act(&api, &mirror);
            let ended = loop {
                advance(Duration::from_secs(20)).await;
                match body.frame().await {
                    Some(Ok(frame)) => assert!(!frame.data_ref().unwrap().ends_with(b"BOOKMARK"), "{case}"),
                    Some(Err(_)) => break true,
                    None => break false,
                }
            };
            assert!(started.elapsed() < Duration::from_secs(400), "{case}");
            assert_eq!((started.elapsed().as_secs(), ended), expected, "{case}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn bounds_initial_states_as_lists() {
        let limits = Limits { reads: 1, waiting: 1, ..Limits::default() };
        let mirror = FakeApiServer::new(50, 10_000).mirror(limits).await;
        let mut first = watch(&mirror, "").await.into_body();
        let mut second = Box::pin(watch(&mirror, ""));
        assert!(second.as_mut().now_or_never().is_none());
        assert_eq!(watch(&mirror, "").await.status(), 429);
        assert_eq!(watch(&mirror, "&resourceVersion=1000").await.status(), 200, "it has no initial state");
        // The whole state is sent, and the watch goes on.
        assert!(read(std::slice::from_mut(&mut first)) > 5);
        assert_eq!(second.await.status(), 200);
    }

    #[tokio::test]
    async fn sends_a_change_to_many_readers_without_an_allocation_for_each() {
        const READERS: usize = 1000;

        let api = FakeApiServer::new(2, 100);
        let mirror = api.mirror(Limits::default()).await;
        let mut bodies = Vec::new();
        for _ in 0..READERS {
            let request = http::Request::builder().uri("/api/v1/configmaps?watch=1&resourceVersion=1000");
            let request = request.header(HOST, "localhost").body(Empty::<Bytes>::new()).unwrap();
            let response = mirror.respond(request, local_reader()).await;
            assert!(response.status().is_success());
            bodies.push(response.into_body());
        }
        assert_eq!(read(&mut bodies), 0);
        for version in 1001..1010 {
            api.change(version);
            mirror.first_resource().cache.wait_for_resource_version(&version.to_string()).await.unwrap();
            let mut frames = 0;
            let allocations = measure(|| frames = read(&mut bodies)).count_total;
            assert_eq!(frames, READERS);
            // The frame is encoded once, and the list of wakers grows.
            assert!(version == 1001 || allocations < 30, "{allocations} allocations");
        }
    }

    #[tokio::test]
    async fn only_the_first_table_has_columns() {
        const PATH: &str = "/api/v1/configmaps?watch=1&allowWatchBookmarks=1&includeObject=None";

        let mirror = FakeApiServer::new(2, 100).mirror(Limits::default()).await;
        let response = crate::testing::get(&mirror, PATH, "application/json;as=Table;v=v1;g=meta.k8s.io").await;
        let mut body = response.into_body();
        let mut frames = Vec::new();
        // The bookmark follows the objects.
        for _ in 0..2 {
            let lines = body.frame().await.unwrap().unwrap().into_data().unwrap();
            let lines = lines.split_inclusive(|byte| *byte == b'\n');
            frames.extend(lines.map(|line| serde_json::from_slice::<serde_json::Value>(line).unwrap()));
        }
        let kinds: Vec<_> = frames.iter().map(|frame| frame["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["ADDED", "ADDED", "BOOKMARK"]);
        let has_columns: Vec<_> = frames.iter().map(|frame| frame["object"]["columnDefinitions"].is_array()).collect();
        assert_eq!(has_columns, [true, false, false]);
        assert!(frames[1]["object"]["rows"][0]["object"].is_null());
        // As on the API server, the last bookmark of the initial state has metadata.
        let annotations = &frames[2]["object"]["rows"][0]["object"]["metadata"]["annotations"];
        assert_eq!(annotations["k8s.io/initial-events-end"], "true");
    }
}
