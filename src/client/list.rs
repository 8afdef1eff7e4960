//! One list: which pages it takes, when it is asked for again, and how it ended.
//!
//! [`Items`] is driven by its consumer's polls and owns all it needs, so that dropping it drops the connection's body.
//! `Run` decides what comes next and knows nothing of the items' types; `Page` reads one response.

mod parallel;

use std::collections::BTreeSet;
use std::fmt;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::mem;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use crc32fast::Hasher;
use futures_core::Stream;
use tokio::time::{Instant, sleep};
use tracing::{Instrument, Span, field};

pub use self::parallel::{Order, ParallelItems, ParallelList};
use super::body;
use super::error::{Error, ErrorKind, Incomplete};
use super::options::{DEFAULT_REQUEST_TIMEOUT, ListOptions, OptionWarning, Shard};
use super::progress::{Counters, Progress};
use super::resource::Resource;
use super::retry::Tries;
use super::served_from::{is_inconsistent, served_from};
use super::transport::{TransportError, TransportErrorKind};
use super::{Answer, Client, accept_header, within};
use crate::adapt::{FromRef, for_each, try_for_each};
use crate::decode::{Event, ListDecoder, ListEnd};
use crate::error::{DecodeError, DecodeErrorKind, Fault, ItemError, Limit};
use crate::limits::{Limits, OnItemError};
use crate::meta::{ListMeta, TypeMeta};
use crate::object::Item;
use crate::object::ItemRef;
use crate::sync::lock;
use crate::wire::Encoding;

/// How often a list is begun again when its pages expire, where that was chosen.
const MAX_RESTARTS: u32 = 3;

/// How many different warnings of a server are kept.
const MAX_WARNINGS: usize = 100;

/// What to list, and how; see [`Client::list`].
///
/// Without more it is one request for the whole collection, whose items are handed over while they arrive.
/// [`pages`](Self::pages) is for servers that need longer for it than their request timeout, 60 s by default, allows, and
/// for lists that come from etcd ([`served_from`] tells).
#[must_use = "nothing is sent until for_each, try_for_each, into_vec or a poll of stream"]
pub struct List<T: Item + ?Sized, F = FromRef<T>> {
    plan: Plan,
    on_expired: OnExpired,
    own: F,
    item: PhantomData<fn() -> T::Owned>,
}

/// What is the same for all requests of a list.
struct Plan {
    client: Client,
    resource: Resource,
    options: ListOptions,
    /// `None` among them is all namespaces, or the cluster.
    namespaces: Vec<Option<String>>,
    paged: bool,
    limits: Limits,
    on_item_error: OnItemError,
    deadline: Option<Duration>,
    counters: Arc<Counters>,
}

enum OnExpired {
    Fail,
    StartOver(Box<dyn FnMut(Restart) + Send>),
    GoOn,
}

/// A list that was begun again, because its next page had expired.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Restart {
    /// The namespace, if one was named.
    pub namespace: Option<String>,
    /// How many items of the abandoned snapshot were delivered. All that come next, up to the next namespace, are of
    /// another one.
    pub items: u64,
}

/// How a complete list ended.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ListSummary {
    /// The type meta of the list: `v1` and `PodList`.
    pub type_meta: TypeMeta,
    /// The list meta of the last response: the version, and the continue token where a limit cut the list.
    pub list_meta: ListMeta,
    /// The list meta of each namespace, where namespaces were named. They are snapshots of their own.
    pub namespaces: Vec<(String, ListMeta)>,
    /// Whether each list is one snapshot. `false` when one went on at the latest version after its token had expired.
    pub consistent: bool,
    /// Items delivered, those of abandoned snapshots not counted.
    pub items: u64,
    /// Items left out because the caller chose [`OnItemError::Skip`].
    pub skipped: u64,
    /// Items of other shards than the one that was asked for, left out here because the server does not know shards.
    pub other_shards: u64,
    /// Responses that the list is made of.
    pub pages: u64,
    /// Requests sent.
    pub attempts: u64,
    /// How often a list was begun again because its pages had expired.
    pub restarts: u32,
    /// Bytes of bodies over the network, those of failed attempts included.
    pub wire_bytes: u64,
    /// Bytes of the bodies that the list is made of, after decompression.
    pub bytes: u64,
    /// From the first request to the first item.
    pub time_to_first_item: Option<Duration>,
    /// From the first request to the end.
    pub elapsed: Duration,
    /// The id of the last request in the server's audit log.
    pub audit_id: Option<String>,
    /// The texts of the server's `Warning` headers, each once, at most 100.
    pub warnings: Vec<String>,
    /// What of the options the server ignored, or may have.
    pub option_warnings: Vec<OptionWarning>,
}

impl ListSummary {
    /// All items that came, delivered or not.
    fn seen(&self) -> u64 {
        self.items + self.skipped + self.other_shards
    }
}

impl<T: Item + ?Sized> List<T> {
    pub(super) fn new(client: Client, resource: Resource, options: ListOptions) -> Self {
        let options = if T::ENCODING == Some(Encoding::Json) { options.json() } else { options };
        let plan = Plan {
            client,
            resource,
            options,
            namespaces: vec![None],
            paged: false,
            limits: Limits::default(),
            on_item_error: OnItemError::default(),
            deadline: None,
            counters: Arc::default(),
        };
        Self { plan, on_expired: OnExpired::Fail, own: T::from_ref, item: PhantomData }
    }
}

impl<T: Item + ?Sized, F> List<T, F> {
    /// Only this namespace.
    pub fn namespace(self, namespace: impl Into<String>) -> Self {
        self.namespaces([namespace])
    }

    /// These namespaces one after the other, each once. Of no namespace it is an empty list, and nothing is sent.
    pub fn namespaces(mut self, namespaces: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let mut seen = BTreeSet::new();
        let namespaces = namespaces.into_iter().map(Into::into);
        self.plan.namespaces = namespaces.filter(|name: &String| seen.insert(name.clone())).map(Some).collect();
        self
    }

    /// In pages of so many items, which take the place of a [`limit`](ListOptions::limit) in the options.
    pub fn pages(mut self, items: u32) -> Self {
        self.plan.options = self.plan.options.limit(items);
        self.plan.paged = true;
        self
    }

    /// When a page has expired (410), begins again from the start, at most three times; without this the list ends in an
    /// error that [is expired](Error::is_expired).
    ///
    /// `on_restart` is called before any item of the second snapshot: what was delivered of the first is void then.
    /// [`into_vec`](Self::into_vec) throws it away by itself.
    pub fn start_over(mut self, on_restart: impl FnMut(Restart) + Send + 'static) -> Self {
        self.on_expired = OnExpired::StartOver(Box::new(on_restart));
        self
    }

    /// When a page has expired (410), goes on at the latest version if the server offers a token for that. The list is
    /// then no snapshot, and [`ListSummary::consistent`] says so: objects that were written meanwhile may be missing, or be
    /// newer than others.
    pub fn go_on_inconsistently(mut self) -> Self {
        self.on_expired = OnExpired::GoOn;
        self
    }

    /// The caps on what bodies may claim; those of items and bytes count for all pages together.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.plan.limits = limits;
        self
    }

    /// What happens on an item that cannot become what was asked for: [`OnItemError::Fail`] unless set.
    pub fn on_item_error(mut self, what: OnItemError) -> Self {
        self.plan.on_item_error = what;
        self
    }

    /// The whole call ends in an error after this time, however far it is: no deadline unless set.
    pub fn deadline(mut self, time: Duration) -> Self {
        self.plan.deadline = Some(time);
        self
    }

    /// Gives each item to a closure in place of [`Item::from_ref`]: for projections, filters and tuples.
    pub fn map_item<O, E, G>(self, own: G) -> List<T, G>
    where
        G: FnMut(ItemRef<'_>) -> Result<O, E>,
        E: Into<ItemError>,
    {
        let Self { plan, on_expired, own: _, item } = self;
        List { plan, on_expired, own, item }
    }

    /// How far the list is, to be read while it is under way.
    pub fn progress(&self) -> Progress {
        Progress(Arc::clone(&self.plan.counters))
    }

    /// What of the options a server ignores, or may; [`ListSummary::option_warnings`] has them too.
    pub fn option_warnings(&self) -> Vec<OptionWarning> {
        self.plan.options.warnings()
    }

    /// The items as a stream. Nothing is sent before it is polled.
    pub fn stream(self) -> Items<T, F> {
        let Self { plan, on_expired, own, item } = self;
        Items { pages: Pages::new(plan, on_expired), own, item }
    }

    /// The same without what becomes of the items.
    pub(crate) fn into_pages(self) -> Pages {
        Pages::new(self.plan, self.on_expired)
    }
}

impl<T, F, O, E> List<T, F>
where
    T: Item + ?Sized,
    F: FnMut(ItemRef<'_>) -> Result<O, E>,
    E: Into<ItemError>,
{
    /// Calls `on_item` for each item. `Continue` with how the list ended, unless `on_item` broke it off.
    ///
    /// # Errors
    ///
    /// [`Error`] when the list is not complete.
    pub async fn for_each<B>(
        self,
        on_item: impl FnMut(O) -> ControlFlow<B>,
    ) -> Result<ControlFlow<B, ListSummary>, Error> {
        let mut items = self.stream();
        let flow = for_each(|cx| items.advance(cx), on_item).await?;
        Ok(flow.map_continue(|()| items.pages.run.summary))
    }

    /// Calls `on_item` for each item until it fails.
    ///
    /// # Errors
    ///
    /// The first error of `on_item`, or [`Error`] turned into it when the list is not complete.
    pub async fn try_for_each<X: From<Error>>(self, on_item: impl FnMut(O) -> Result<(), X>) -> Result<ListSummary, X> {
        let mut items = self.stream();
        try_for_each(|cx| items.advance(cx), on_item).await?;
        Ok(items.pages.run.summary)
    }

    /// All items, and how the list ended.
    ///
    /// # Errors
    ///
    /// [`Error`] when the list is not complete; the items are then lost.
    pub async fn into_vec(self) -> Result<(Vec<O>, ListSummary), Error> {
        let mut items = self.stream();
        let mut all = Vec::new();
        loop {
            let item = poll_fn(|cx| items.advance(cx)).await?;
            let abandoned = usize::try_from(mem::take(&mut items.pages.run.abandoned)).unwrap_or(usize::MAX);
            all.truncate(all.len().saturating_sub(abandoned));
            match item {
                Some(item) => all.push(item),
                None => return Ok((all, items.pages.run.summary)),
            }
        }
    }
}

/// The items of a list, as a stream that ends after the last one or after an error.
///
/// Of a body, what the transport has read ahead waits for the consumer: up to three pieces of about 256 KiB by those of this crate.
/// Dropping it closes the connection, or resets the stream.
#[must_use = "nothing is sent until it is polled"]
pub struct Items<T: Item + ?Sized, F = FromRef<T>> {
    pages: Pages,
    own: F,
    item: PhantomData<fn() -> T::Owned>,
}

/// Nothing in it is pinned by itself.
impl<T: Item + ?Sized, F> Unpin for Items<T, F> {}

/// The pages of a list, whatever becomes of its items.
pub(crate) struct Pages {
    run: Run,
    state: State,
}

enum State {
    Start,
    Opening(Pin<Box<dyn Future<Output = Result<Answer, Error>> + Send>>),
    Reading(Box<Page>),
    Complete,
    Failed,
}

impl<T: Item + ?Sized, F> Items<T, F> {
    /// How the list ended; `None` until the last item is out, and for ever after an error.
    #[must_use]
    pub fn summary(&self) -> Option<&ListSummary> {
        self.pages.summary()
    }

    /// How far the list is.
    #[must_use]
    pub fn progress(&self) -> Progress {
        Progress(Arc::clone(&self.pages.run.plan.counters))
    }
}

impl<T, F, O, E> Items<T, F>
where
    T: Item + ?Sized,
    F: FnMut(ItemRef<'_>) -> Result<O, E>,
    E: Into<ItemError>,
{
    fn advance(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<O>, Error>> {
        self.pages.advance(cx, &mut self.own)
    }
}

impl Pages {
    fn new(plan: Plan, on_expired: OnExpired) -> Self {
        Self { run: Run::new(plan, on_expired), state: State::Start }
    }

    /// How the list ended, once it is complete.
    fn summary(&self) -> Option<&ListSummary> {
        matches!(self.state, State::Complete).then_some(&self.run.summary)
    }

    /// The version of the complete list, for a watch to begin with.
    pub(crate) fn version(&self) -> Result<String, Error> {
        let version = self.summary().map_or("", |summary| &*summary.list_meta.resource_version);
        if version.is_empty() {
            let kind = DecodeErrorKind::Malformed { field: "metadata.resourceVersion", fault: Fault::Missing };
            let (bytes, items) = self.summary().map_or((0, 0), |summary| (summary.bytes, summary.items));
            return Err(ErrorKind::Decode(DecodeError::new(kind, bytes, None, items)).into());
        }
        Ok(version.to_owned())
    }

    /// The next item, made by `own`.
    pub(crate) fn advance<O, E: Into<ItemError>>(
        &mut self,
        cx: &mut Context<'_>,
        own: &mut impl FnMut(ItemRef<'_>) -> Result<O, E>,
    ) -> Poll<Result<Option<O>, Error>> {
        loop {
            let next = match &mut self.state {
                State::Start => self.run.start(),
                State::Opening(opening) => match ready!(opening.as_mut().poll(cx)) {
                    Ok(answer) => Ok(State::Reading(Box::new(self.run.page(answer)))),
                    Err(error) => self.run.after(error, None),
                },
                State::Reading(page) => match page.next(own, &mut self.run) {
                    Ok(Some(item)) => return Poll::Ready(Ok(Some(item))),
                    Ok(None) => match ready!(page.answer.chunks.as_mut().poll_next(cx)) {
                        Some(Ok(chunk)) => {
                            page.chunk = chunk;
                            continue;
                        }
                        Some(Err(error)) => {
                            let error = page.broken(error, &self.run);
                            self.run.after(error, Some(page))
                        }
                        None => match page.decoder.finish() {
                            Ok(_) if page.repeat.is_under_way() => {
                                self.run.after(ErrorKind::PageChanged.into(), Some(page))
                            }
                            Ok(end) => self.run.end_page(end, page),
                            Err(error) => {
                                let error = page.decode_error(error, &self.run);
                                self.run.after(error, Some(page))
                            }
                        },
                    },
                    Err(error) => self.run.after(error, Some(page)),
                },
                State::Complete | State::Failed => return Poll::Ready(Ok(None)),
            };
            match next {
                Ok(state) => self.state = state,
                Err(error) => {
                    self.state = State::Failed;
                    return Poll::Ready(Err(error));
                }
            }
        }
    }
}

impl<T, F, O, E> Stream for Items<T, F>
where
    T: Item + ?Sized,
    F: FnMut(ItemRef<'_>) -> Result<O, E>,
    E: Into<ItemError>,
{
    type Item = Result<O, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.advance(cx).map(Result::transpose)
    }
}

impl<T: Item + ?Sized, F> fmt::Debug for List<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("List").field("resource", &self.plan.resource).finish_non_exhaustive()
    }
}

impl<T: Item + ?Sized, F> fmt::Debug for Items<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Run { plan, summary, .. } = &self.pages.run;
        f.debug_struct("Items").field("resource", &plan.resource).field("items", &summary.items).finish_non_exhaustive()
    }
}

/// Where a list is in its namespaces, pages and tries.
struct Run {
    plan: Plan,
    on_expired: OnExpired,
    /// What the type meta must be.
    expected: TypeMeta,
    /// Which of the plan's namespaces.
    namespace: usize,
    /// The options of the next request.
    options: ListOptions,
    /// The first page of this namespace is read.
    later_page: bool,
    /// What `summary` held when this namespace began: items, skipped, of other shards, pages, bytes.
    before: [u64; 5],
    /// Items of abandoned snapshots that the consumer does not know of yet.
    abandoned: u64,
    tries: Tries,
    /// What earlier attempts brought of the page that is requested.
    seen: Seen,
    started: Instant,
    deadline: Option<Instant>,
    /// Filled while the list goes on. Items and skipped are those of finished pages.
    summary: ListSummary,
    span: Span,
}

impl Run {
    fn new(plan: Plan, on_expired: OnExpired) -> Self {
        let text = str::to_owned;
        let expected = if plan.options.metadata_only {
            TypeMeta { api_version: text("meta.k8s.io/v1"), kind: text("PartialObjectMetadataList") }
        } else {
            TypeMeta { api_version: plan.resource.api_version(), kind: plan.resource.list_kind() }
        };
        let span = tracing::info_span!(
            "list",
            resource = %plan.resource,
            version = ?plan.options.resource_version,
            served_from = lock(&plan.client.server_version).map(|version| field::debug(served_from(&plan.options, version))),
            paged = plan.paged,
            items = field::Empty,
            bytes = field::Empty,
            first_item_ms = field::Empty,
        );
        Self {
            expected,
            namespace: 0,
            options: plan.options.clone(),
            later_page: false,
            before: [0; 5],
            abandoned: 0,
            tries: Tries::new(plan.client.retry),
            seen: Seen::default(),
            started: Instant::now(),
            deadline: None,
            summary: ListSummary { consistent: true, option_warnings: plan.options.warnings(), ..Default::default() },
            span,
            plan,
            on_expired,
        }
    }

    fn start(&mut self) -> Result<State, Error> {
        self.plan.options.validate()?;
        for namespace in &self.plan.namespaces {
            self.plan.resource.list_path(namespace.as_deref())?;
        }
        self.started = Instant::now();
        self.deadline = self.plan.deadline.map(|time| self.started + time);
        for warning in &self.summary.option_warnings {
            self.span.in_scope(|| tracing::warn!(%warning, "an option that the server ignores, or may"));
        }
        self.next_namespace()
    }

    fn next_namespace(&mut self) -> Result<State, Error> {
        if self.namespace >= self.plan.namespaces.len() {
            return Ok(self.complete());
        }
        let ListSummary { items, skipped, other_shards, pages, bytes, .. } = self.summary;
        self.before = [items, skipped, other_shards, pages, bytes];
        self.options = self.plan.options.clone();
        self.later_page = false;
        self.ask()
    }

    /// Asks for the next page, with tries of its own.
    fn ask(&mut self) -> Result<State, Error> {
        self.tries = Tries::new(self.plan.client.retry);
        self.seen = Seen::default();
        self.open(Duration::ZERO)
    }

    fn open(&mut self, wait: Duration) -> Result<State, Error> {
        let Plan { client, resource, namespaces, counters, .. } = &self.plan;
        let mut path = resource.list_path(namespaces.get(self.namespace).and_then(|name| name.as_deref()))?;
        let query = self.options.query();
        if !query.is_empty() {
            path.push('?');
            path.push_str(&query);
        }
        let accept = accept_header(self.options.accept())?;
        let (client, counters, deadline) = (client.clone(), Arc::clone(counters), self.deadline);
        let attempt = counters.requests() + 1;
        let opening = async move {
            if !wait.is_zero() {
                within(deadline, async {
                    sleep(wait).await;
                    Ok(())
                })
                .await?;
            }
            tracing::debug!(attempt, path, "asking");
            let answer = client.send(path, accept, deadline, &counters).await?;
            // What is no list by its first byte needs more of it to be told what it is.
            match answer.first.first() {
                None | Some(b'k' | b'{') => Ok(answer),
                Some(_) => {
                    let Answer { headers, first, mut chunks, audit_id, .. } = answer;
                    let beginning = body::beginning(first, &mut chunks).await;
                    Err(Error::new(client.unexpected(&beginning, &headers)).with_audit_id(audit_id))
                }
            }
        };
        Ok(State::Opening(Box::pin(opening.instrument(self.span.clone()))))
    }

    fn page(&mut self, mut answer: Answer) -> Page {
        self.summary.audit_id = answer.audit_id.take();
        for warning in mem::take(&mut answer.warnings) {
            if self.summary.warnings.len() < MAX_WARNINGS && !self.summary.warnings.contains(&warning) {
                self.summary.warnings.push(warning);
            }
        }
        let mut limits = self.plan.limits;
        limits.items = limits.items.saturating_sub(self.summary.seen());
        limits.bytes = limits.bytes.saturating_sub(self.summary.bytes);
        Page {
            decoder: ListDecoder::with_limits(limits).accept_json(),
            chunk: mem::take(&mut answer.first),
            answer,
            shard: self.options.shard,
            other_shards: self.seen.other_shards,
            repeat: Repeat { seen: self.seen.clone(), count: 0, checksum: self.is_repeatable().then(Hasher::new) },
        }
    }

    /// Whether the same request brings the same page: a continue token names its version and its first item.
    fn is_repeatable(&self) -> bool {
        self.plan.paged && self.options.continue_token.as_ref().is_some_and(|token| !is_inconsistent(token))
    }

    fn end_page(&mut self, end: ListEnd, page: &Page) -> Result<State, Error> {
        let summary = &mut self.summary;
        summary.pages += 1;
        summary.items += end.items;
        summary.skipped += end.skipped - page.other_shards;
        summary.other_shards += page.other_shards;
        summary.bytes += end.bytes;
        summary.type_meta = end.type_meta;
        summary.list_meta = end.list_meta;
        self.plan.counters.at(summary.bytes, summary.items);
        let token = &summary.list_meta.continue_token;
        if self.plan.paged && !token.is_empty() {
            self.options = self.plan.options.next_page(token);
            self.later_page = true;
            return self.ask();
        }
        if let Some(Some(namespace)) = self.plan.namespaces.get(self.namespace) {
            summary.namespaces.push((namespace.clone(), summary.list_meta.clone()));
        }
        self.namespace += 1;
        self.next_namespace()
    }

    fn complete(&mut self) -> State {
        let summary = &mut self.summary;
        summary.wire_bytes = Progress(Arc::clone(&self.plan.counters)).wire_bytes();
        summary.attempts = self.plan.counters.requests();
        summary.elapsed = self.started.elapsed();
        self.span.record("items", summary.items);
        self.span.record("bytes", summary.bytes);
        if let Some(time) = summary.time_to_first_item {
            self.span.record("first_item_ms", time.as_secs_f64() * 1000.0);
        }
        if summary.other_shards > 0 {
            let left_out = summary.other_shards;
            self.span.in_scope(|| tracing::warn!(left_out, "the server does not know shards and sent everything"));
        }
        let ListSummary { items, bytes, wire_bytes, pages, attempts, .. } = *summary;
        self.span.in_scope(|| tracing::debug!(items, bytes, wire_bytes, pages, attempts, "complete"));
        State::Complete
    }

    /// After an error, in the head or in this page: what comes next, if not the error.
    fn after(&mut self, error: Error, page: Option<&Page>) -> Result<State, Error> {
        if let Some(page) = page {
            self.seen = page.seen();
        }
        let delivered = self.summary.items + self.seen.items;
        let mut error = error.redacted(&*self.plan.client.transport).with_items(delivered);
        if let Some(id) = page.and(self.summary.audit_id.clone()) {
            error = error.with_audit_id(Some(id));
        }
        let is_untouched = page.is_none_or(Page::is_untouched);
        if is_untouched
            && error.is_expired()
            && let Some(next) = self.after_expiry(&error)
        {
            return next;
        }
        if is_untouched || self.is_repeatable() {
            let class = self.plan.client.classify(&error);
            if let Some(wait) = self.span.in_scope(|| self.tries.again(&error, class)) {
                if !self.is_repeatable() {
                    self.seen = Seen::default();
                }
                return self.open(wait);
            }
        }
        self.span.in_scope(|| tracing::debug!(%error, "failed"));
        Err(error)
    }

    fn after_expiry(&mut self, error: &Error) -> Option<Result<State, Error>> {
        match &mut self.on_expired {
            OnExpired::StartOver(on_restart) if self.later_page && self.summary.restarts < MAX_RESTARTS => {
                let [items, skipped, other_shards, pages, bytes] = self.before;
                let abandoned = self.summary.items + self.seen.items - items;
                let namespace = self.plan.namespaces.get(self.namespace).cloned().flatten();
                tracing::warn!(%error, abandoned, "the next page has expired: from the start");
                on_restart(Restart { namespace, items: abandoned });
                self.abandoned += abandoned;
                let restarts = self.summary.restarts + 1;
                let rest = mem::take(&mut self.summary);
                self.summary = ListSummary { items, skipped, other_shards, pages, restarts, bytes, ..rest };
                self.options = self.plan.options.clone();
                self.later_page = false;
            }
            // After a part of the page, the token that is offered would bring its items again, and maybe others.
            OnExpired::GoOn if self.seen.all() == 0 => {
                let token = &error.api()?.status.metadata.as_ref()?.continue_token;
                // A token that was offered and has expired in turn: nothing would be won.
                if token.is_empty() || self.options.continue_token.as_ref() == Some(token) {
                    return None;
                }
                tracing::warn!(%error, "the next page has expired: on at the latest version");
                self.options = self.plan.options.next_page(token);
                self.summary.consistent = false;
            }
            _ => return None,
        }
        Some(self.ask())
    }
}

/// One response that is being read.
struct Page {
    decoder: ListDecoder,
    answer: Answer,
    /// What of the last chunk is not decoded yet.
    chunk: Bytes,
    /// What to restrict the list to here, as long as the server does not say that it did.
    shard: Option<Shard>,
    /// How many items that left out.
    other_shards: u64,
    repeat: Repeat,
}

/// What the attempts so far brought of a page.
#[derive(Clone, Default)]
struct Seen {
    items: u64,
    /// Items that were left out, those of other shards among them.
    skipped: u64,
    other_shards: u64,
    checksum: Option<Hasher>,
}

impl Seen {
    fn all(&self) -> u64 {
        self.items + self.skipped
    }
}

/// Compares the items of a page with what earlier attempts brought of it.
struct Repeat {
    seen: Seen,
    /// How many items of that have come again.
    count: u64,
    /// That of all items so far, where the page may be requested again.
    checksum: Option<Hasher>,
}

/// An item that an earlier attempt brought.
enum Repeated {
    Delivered,
    Skipped,
    /// The items up to it are not those of before.
    Changed,
}

impl Repeat {
    /// `None`: the item is new.
    fn next(&mut self, item: &ItemRef<'_>) -> Option<Repeated> {
        if let Some(checksum) = &mut self.checksum {
            checksum.update(&item.bytes().len().to_le_bytes());
            checksum.update(item.bytes());
        }
        if !self.is_under_way() {
            return None;
        }
        let finalize = |checksum: &Option<Hasher>| checksum.clone().map(Hasher::finalize);
        if self.count + 1 == self.seen.all() && finalize(&self.checksum) != finalize(&self.seen.checksum) {
            return Some(Repeated::Changed);
        }
        self.count += 1;
        // Which of them were skipped does not matter, only how many.
        Some(if self.count <= self.seen.skipped { Repeated::Skipped } else { Repeated::Delivered })
    }

    fn is_under_way(&self) -> bool {
        self.count < self.seen.all()
    }
}

/// What the decoder found in a chunk.
enum Found<T> {
    Item(T),
    Skipped,
    Changed,
    OtherKind(TypeMeta),
    OtherShard,
    NoShard(ItemError),
    ListMeta { remaining: Option<u64> },
    Nothing,
}

impl Page {
    /// The next item in the chunk; `None` when all of it is decoded.
    fn next<O, E: Into<ItemError>>(
        &mut self,
        own: &mut impl FnMut(ItemRef<'_>) -> Result<O, E>,
        run: &mut Run,
    ) -> Result<Option<O>, Error> {
        let (items, bytes) = (run.summary.items, run.summary.bytes);
        let (shard, repeat) = (&mut self.shard, &mut self.repeat);
        let mut on_event = |event: Event<'_>| match event {
            Event::Item(item) => match repeat.next(&item) {
                Some(Repeated::Delivered) => Found::Nothing,
                Some(Repeated::Skipped) => Found::Skipped,
                Some(Repeated::Changed) => Found::Changed,
                None => match shard.map(|shard| item.meta().map(|meta| shard.contains(&meta.uid()))) {
                    None | Some(Ok(true)) => Found::Item(own(item)),
                    Some(Ok(false)) => Found::OtherShard,
                    Some(Err(error)) => Found::NoShard(error),
                },
            },
            Event::TypeMeta(found) if !found.is_expected(&run.expected) => Found::OtherKind(found.clone()),
            Event::ListMeta(meta) => {
                let echoed = meta.shard_info.as_ref().map(|info| &*info.selector);
                *shard = shard.filter(|shard| !shard.complied(echoed));
                Found::ListMeta { remaining: meta.remaining_item_count.and_then(|count| u64::try_from(count).ok()) }
            }
            _ => Found::Nothing,
        };
        loop {
            let mut rest = &self.chunk[..];
            let event = self.decoder.decode_with(&mut rest, &mut on_event);
            let taken = self.chunk.len() - rest.len();
            self.chunk.advance(taken);
            let event = match event {
                Ok(event) => event,
                Err(error) => return Err(self.decode_error(error, run)),
            };
            match event {
                None => {
                    // A waiting list keeps no chunk alive.
                    self.chunk = Bytes::new();
                    return Ok(None);
                }
                Some(Found::Item(Ok(item))) => {
                    run.plan.counters.at(bytes + self.decoder.position(), items + self.decoder.items());
                    if run.summary.time_to_first_item.is_none() {
                        run.summary.time_to_first_item = Some(run.started.elapsed());
                    }
                    return Ok(Some(item));
                }
                Some(Found::Skipped) => self.decoder.skip_item(),
                Some(Found::Changed) => return Err(ErrorKind::PageChanged.into()),
                Some(Found::Item(Err(error))) => {
                    if let Err(error) = self.decoder.refuse_item(error.into(), run.plan.on_item_error) {
                        return Err(self.decode_error(error, run));
                    }
                }
                Some(Found::OtherKind(found)) => {
                    return Err(ErrorKind::OtherKind { expected: run.expected.clone(), found }.into());
                }
                Some(Found::OtherShard) => {
                    self.decoder.skip_item();
                    self.other_shards += 1;
                }
                Some(Found::NoShard(error)) => {
                    if let Err(error) = self.decoder.refuse_item(error, run.plan.on_item_error) {
                        return Err(self.decode_error(error, run));
                    }
                }
                Some(Found::ListMeta { remaining }) => {
                    run.plan.counters.expect_bytes(self.decoder.expected_bytes().map(|end| bytes + end));
                    let page = run.options.limit.map(u64::from);
                    run.plan
                        .counters
                        .expect_items(remaining.zip(page).map(|(remaining, page)| items + page + remaining));
                }
                Some(Found::Nothing) => {}
            }
        }
    }

    /// Whether no item was seen, in any attempt, so that a retry shows none twice.
    fn is_untouched(&self) -> bool {
        let Seen { items, skipped, other_shards, .. } = self.seen();
        items + skipped == other_shards
    }

    /// What this attempt brought, or those before it, whichever is more.
    fn seen(&self) -> Seen {
        if self.repeat.is_under_way() {
            return self.repeat.seen.clone();
        }
        let (items, skipped) = (self.decoder.items(), self.decoder.skipped());
        Seen { items, skipped, other_shards: self.other_shards, checksum: self.repeat.checksum.clone() }
    }

    fn broken(&self, error: TransportError, run: &Run) -> Error {
        if !error.kind().is_break() {
            return error.into();
        }
        self.incomplete(Some(error), run)
    }

    fn incomplete(&self, cause: Option<TransportError>, run: &Run) -> Error {
        let elapsed = self.answer.started.elapsed();
        let timeout = run.options.timeout.unwrap_or(DEFAULT_REQUEST_TIMEOUT);
        // What we broke off ourselves, the server did not. What comes later than its timeout was on the way for a slow
        // consumer.
        let own = cause
            .as_ref()
            .is_some_and(|cause| matches!(cause.kind(), TransportErrorKind::Deadline | TransportErrorKind::ReadIdle));
        let request_timeout = (!own && elapsed >= timeout.mul_f32(0.9)).then_some(timeout);
        let bytes = self.decoder.position();
        ErrorKind::Incomplete(Box::new(Incomplete { cause, bytes, elapsed, request_timeout })).into()
    }

    fn decode_error(&self, error: DecodeError, run: &Run) -> Error {
        match error.kind() {
            DecodeErrorKind::Incomplete => self.incomplete(None, run),
            DecodeErrorKind::Api(status) => {
                ErrorKind::from(body::of_status(Clone::clone(status), 500, &self.answer.headers)).into()
            }
            // The caller's cap counts for all pages.
            &DecodeErrorKind::Limit { limit, size, .. } if matches!(limit, Limit::Items | Limit::Bytes) => {
                let Limits { items, bytes, .. } = run.plan.limits;
                let (before, max) = match limit {
                    Limit::Items => (run.summary.seen(), items),
                    _ => (run.summary.bytes, bytes),
                };
                let kind = DecodeErrorKind::Limit { limit, size: before.saturating_add(size), max };
                let error = DecodeError::new(kind, error.offset(), error.index(), error.items());
                ErrorKind::Decode(error).into()
            }
            _ => ErrorKind::Decode(error).into(),
        }
    }
}
