//! Watches.

use std::future::ready;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use listwatch::Encoding;
use listwatch::encode::EventType;
use listwatch_cache::{Changes, LoggedChange, ObjectKey};
use tokio::task::yield_now;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use super::freshness::{self, Freshness};
use super::list::{CHUNK, exact_snapshot};
use super::select::Candidates;
use super::{Request, whole};
use crate::auth::Granted;
use crate::body::{Body, BodyError};
use crate::metrics::{Metrics, Open};
use crate::shared::{ListPermit, Shared};
use crate::status::{self, Refusal};

/// Bookmarks are sent this far apart. The API server sends them about once a minute.
const BOOKMARKS: Duration = Duration::from_secs(55);

/// A watch without `timeoutSeconds` lasts this long, and up to twice as long, as on the API server (`--min-request-timeout`).
const TIMEOUT: u64 = 1800;

pub(super) async fn answer(shared: &Shared, request: Request, granted: Granted) -> Result<(Body, Freshness), Refusal> {
    let Request { mirrored, selector, read, .. } = &request;
    let params = &read.params;
    let version = &*params.resource_version;
    let freshness = match freshness::wait_of_watch(shared, mirrored, params).await {
        // As the API server, which sends this error after it has accepted the watch.
        Err(Refusal::Status(status)) => {
            let mut frame = Vec::new();
            request.encoder.error(&status, &mut frame);
            return Ok((frame.into(), Freshness::Confirmed));
        }
        freshness => freshness?,
    };
    let cache = &mirrored.cache;
    let has_initial = params.send_initial_events == Some(true);
    let (initial, changes) = if has_initial || matches!(version, "" | "0") {
        // It waits before the snapshot, so that the log still has the changes since.
        let permit = if has_initial { Some(shared.list_permit().await?) } else { None };
        let snapshot = exact_snapshot(mirrored)?;
        let changes = cache.changes_after(snapshot.resource_version());
        let due = Instant::now() + shared.limits.list_timeout;
        let initial = permit.map(|permit| {
            let candidates = Candidates::new(mirrored, selector, snapshot);
            Initial { candidates, last: None, due, _permit: permit }
        });
        (initial, changes)
    } else {
        (None, cache.changes_after(version))
    };
    let too_old = || format!("too old resource version: {version} ({})", cache.resource_version());
    let Ok(changes) = changes else {
        shared.metrics.expired(&request.mirrored);
        let mut frame = Vec::new();
        request.encoder.error(&status::expired(too_old()), &mut frame);
        return Ok((frame.into(), freshness));
    };
    let lasts = match params.timeout_seconds {
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds.unsigned_abs()),
        _ => Duration::from_secs(TIMEOUT + fastrand::u64(..TIMEOUT)),
    };
    let watch = Watch {
        form: usize::from(request.form.encoding == Encoding::Json) + 2 * usize::from(request.form.metadata_only),
        // The API server sends this bookmark to each watch with bookmarks that begins with the initial state.
        bookmarks_initial_end: params.allow_watch_bookmarks,
        initial,
        changes,
        bookmark: Box::pin(sleep(BOOKMARKS)),
        withdrawn: Box::pin(granted.withdrawn()),
        // An unreasonable timeout is cut to one that the clock can add.
        ends: Box::pin(sleep_until(Instant::now() + lasts.min(Duration::from_secs(365 * 24 * 3600)))),
        shutdown: Box::pin(shared.shutdown()),
        metrics: shared.metrics.clone(),
        _open: shared.metrics.watching(&request.mirrored),
        request,
        has_ended: false,
    };
    let frames = stream::unfold(Box::new(watch), |mut watch| async {
        let frame = watch.next().await?;
        Some((frame, watch))
    });
    Ok((Body::endless(frames), freshness))
}

/// The objects of the initial state that are left to send.
struct Initial {
    candidates: Candidates,
    last: Option<ObjectKey>,
    /// The time at which the reader must have accepted all of it.
    due: Instant,
    _permit: ListPermit,
}

struct Watch {
    request: Request,
    /// The number of the form of its frames in the change log.
    form: usize,
    initial: Option<Initial>,
    bookmarks_initial_end: bool,
    changes: Changes<[u8]>,
    bookmark: Pin<Box<Sleep>>,
    /// Completes when the reader may not read any more.
    withdrawn: Pin<Box<dyn Future<Output = ()> + Send>>,
    ends: Pin<Box<Sleep>>,
    shutdown: Pin<Box<dyn Future<Output = ()> + Send>>,
    metrics: Metrics,
    _open: Open,
    has_ended: bool,
}

impl Watch {
    /// Returns the next frames; `None` after the last.
    async fn next(&mut self) -> Option<Result<Bytes, BodyError>> {
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
                () = &mut self.ends => return self.end(),
                () = &mut self.shutdown => return self.end(),
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
                    Some(Ok(change)) => match self.frame(&change) {
                        Ok(None) => {}
                        Ok(Some(frame)) => return Some(Ok(frame)),
                        // The reader lists again, and the API server answers.
                        Err(_) => return Some(Ok(self.expired("the change cannot be encoded"))),
                    },
                    Some(Err(_)) | None => return Some(Ok(self.expired("the mirror was relisted, or the reader is too slow"))),
                },
                () = &mut self.bookmark => {
                    self.bookmark.as_mut().reset(Instant::now() + BOOKMARKS);
                    if self.request.read.params.allow_watch_bookmarks {
                        return Some(Ok(self.bookmark_frame(false)));
                    }
                }
            }
        }
    }

    /// Ends the watch with a bookmark, from which the reader resumes. Within the initial state there is no such
    /// version.
    fn end(&mut self) -> Option<Result<Bytes, BodyError>> {
        self.has_ended = true;
        let has_bookmark = self.request.read.params.allow_watch_bookmarks && self.initial.is_none();
        has_bookmark.then(|| Ok(self.bookmark_frame(false)))
    }

    fn expired(&mut self, reason: &str) -> Bytes {
        self.has_ended = true;
        self.metrics.expired(&self.request.mirrored);
        let mut frame = Vec::new();
        self.request.encoder.error(&status::expired(format!("too old resource version: {reason}")), &mut frame);
        frame.into()
    }

    fn bookmark_frame(&mut self, ends_initial_events: bool) -> Bytes {
        let mut frame = Vec::new();
        self.request.encoder.bookmark(self.changes.resource_version(), ends_initial_events, &mut frame);
        frame.into()
    }

    /// Returns the frames of some objects of the initial state, and after the last the bookmark.
    fn initial_frames(&mut self) -> Result<Bytes, BodyError> {
        let Some(Initial { candidates, last, .. }) = &mut self.initial else { return Ok(Bytes::new()) };
        let Request { mirrored, encoder, selector, .. } = &self.request;
        let mut frames = Vec::with_capacity(CHUNK);
        let mut next = None;
        for object in candidates.after(selector.namespace.as_deref(), last.as_ref()).take(1024) {
            if selector.selects(mirrored, &object)? {
                whole(encoder.event(EventType::Added, &object.item()?, None, &mut frames)?)?;
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
                encoder.bookmark(candidates.snapshot.resource_version(), true, &mut frames);
            }
            self.initial = None;
        }
        Ok(frames.into())
    }

    /// Returns the frame of a change; `None` if the reader does not select the object.
    fn frame(&self, change: &LoggedChange<[u8]>) -> Result<Option<Bytes>, BodyError> {
        let Request { mirrored, encoder, selector, .. } = &self.request;
        let object = change.object();
        if !selector.has_namespace(object.namespace()) {
            return Ok(None);
        }
        let shared = |change: &LoggedChange<[u8]>| {
            change.frame(self.form, |change| {
                let mut frame = Vec::new();
                // The API server sends the deleted object at the version of the deletion.
                let version = (change.kind() == EventType::Deleted).then(|| change.resource_version());
                let object = change.object();
                whole(encoder.event(change.kind(), &object.item()?, version, &mut frame)?)?;
                frame.shrink_to_fit();
                Ok::<_, BodyError>(frame)
            })
        };
        if selector.is_empty() {
            return shared(change).map(Some);
        }
        let had = match change.old() {
            Some(old) => selector.selects(mirrored, &old)?,
            None => false,
        };
        let has = change.kind() != EventType::Deleted && selector.selects(mirrored, &object)?;
        let mut frame = Vec::new();
        match (had, has, change.old()) {
            (true, true, _) => return shared(change).map(Some),
            (false, true, _) => whole(encoder.event(EventType::Added, &object.item()?, None, &mut frame)?)?,
            // An object that no longer matches is sent in its old state, at the new version.
            (true, false, Some(old)) => {
                let version = Some(change.resource_version());
                let state = if change.kind() == EventType::Deleted { &object } else { &old };
                whole(encoder.event(EventType::Deleted, &state.item()?, version, &mut frame)?)?;
            }
            (false, false, _) | (true, false, None) => return Ok(None),
        }
        Ok(Some(frame.into()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};

    use allocation_counter::measure;
    use futures::FutureExt as _;
    use http::header::{AUTHORIZATION, HOST};
    use http_body::Body as _;
    use http_body_util::{BodyExt as _, Empty};
    use tokio::time::advance;

    use super::*;
    use crate::answer::answer;
    use crate::mirror::{Access, Limits};
    use crate::testing::Api;

    /// Reads all frames that the bodies have, and returns their number.
    fn read(bodies: &mut [Body]) -> usize {
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
    async fn watch(shared: &Arc<Shared>, query: &str) -> http::Response<Body> {
        let request = http::Request::builder().uri(format!("/api/v1/configmaps?watch=1{query}"));
        let request = request.header(HOST, "localhost").header(AUTHORIZATION, "Bearer t0ken");
        answer(shared, request.body(Empty::<Bytes>::new()).unwrap(), true).await
    }

    /// A reader that accepts a chunk now and then must not hold a snapshot for hours, nor keep a right that was
    /// withdrawn.
    #[tokio::test(start_paused = true)]
    async fn the_initial_state_ends_like_the_watch() {
        type Act = fn(&Api, &Shared);
        let cases: [(&str, &str, Act, (u64, bool)); 5] = [
            ("the reader is slow", "", |_, _| {}, (300, true)),
            ("timeoutSeconds", "&timeoutSeconds=100", |_, _| {}, (100, false)),
            ("shutdown", "", |_, shared| shared.start_shutdown(), (20, false)),
            ("the right is withdrawn", "", |api, _| api.withdraw(), (60, false)),
            ("a WatchList", "&sendInitialEvents=1&resourceVersionMatch=NotOlderThan", |_, _| {}, (300, true)),
        ];
        for (case, query, act, expected) in cases {
            let api = Api::new(500, 10_000);
            let shared = api.mirror_for(Access::Reviewed, Limits::default()).await;
            let mut body = watch(&shared, &format!("&allowWatchBookmarks=1{query}")).await.into_body();
            let started = Instant::now();
            body.frame().await.unwrap().unwrap();
            act(&api, &shared);
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
        let limits = Limits { lists: 1, waiting_lists: 1, ..Limits::default() };
        let shared = Api::new(50, 10_000).mirror(limits).await;
        let mut first = watch(&shared, "").await.into_body();
        let mut second = Box::pin(watch(&shared, ""));
        assert!(second.as_mut().now_or_never().is_none());
        assert_eq!(watch(&shared, "").await.status(), 429);
        assert_eq!(watch(&shared, "&resourceVersion=1000").await.status(), 200, "it has no initial state");
        // The whole state is sent, and the watch goes on.
        assert!(read(std::slice::from_mut(&mut first)) > 5);
        assert_eq!(second.await.status(), 200);
    }

    #[tokio::test]
    async fn sends_a_change_to_many_readers_without_an_allocation_for_each() {
        const READERS: usize = 1000;

        let api = Api::new(2, 100);
        let shared = api.mirror(Limits::default()).await;
        let mut bodies = Vec::new();
        for _ in 0..READERS {
            let request = http::Request::builder().uri("/api/v1/configmaps?watch=1&resourceVersion=1000");
            let request = request.header(HOST, "localhost").body(Empty::<Bytes>::new()).unwrap();
            let response = answer(&shared, request, true).await;
            assert!(response.status().is_success());
            bodies.push(response.into_body());
        }
        assert_eq!(read(&mut bodies), 0);
        for version in 1001..1010 {
            api.change(version);
            shared.resources[0].cache.wait_for_resource_version(&version.to_string()).await.unwrap();
            let mut frames = 0;
            let allocations = measure(|| frames = read(&mut bodies)).count_total;
            assert_eq!(frames, READERS);
            // The frame is encoded once, and the list of wakers grows.
            assert!(version == 1001 || allocations < 30, "{allocations} allocations");
        }
    }
}
