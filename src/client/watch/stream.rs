//! [`Watch`]: its settings, and the stream over its connections.

use std::collections::BTreeSet;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;

use super::connections::Connections;
use super::events::{WatchEvent, WatchEvents};
use super::merge::Merged;
use super::plan::WatchPlan;
use super::resume::{Disconnect, WatchRun};
use crate::adapt::FromRef;
use crate::client::api_client::Client;
use crate::client::error::Error;
use crate::client::params::{WatchParams, WatchStart};
use crate::client::resource::{Kind, Resource};
use crate::client::runtime::LONGEST;
use crate::error::{InvalidInput, ItemError};
use crate::limits::Limits;
use crate::meta::EventType;
use crate::object::{Item, ItemRef};
use crate::sync::Mutex;

/// A stream of the changes of a collection, over consecutive connections; see [`Client::watch`].
///
/// Nothing is sent before the first poll, so set everything up before. [`open`](Self::open) uses a single connection
/// instead, which the server ends after some minutes.
///
/// From [`WatchParams::from_version`](crate::client::WatchParams::from_version) and
/// [`WatchParams::from_now`](crate::client::WatchParams::from_now), the watch delivers changes. From
/// [`WatchParams::with_initial_state`](crate::client::WatchParams::with_initial_state), it delivers the collection
/// first: each object as [`WatchEvent::Added`], then [`WatchEvent::Synced`], then changes.
///
/// The watch requests the collection as initial events. If the server refuses them, interrupts them twice or [does not
/// end them](Self::initial_events_timeout), the watch lists the collection instead. Once a list has succeeded after
/// refused or endless initial events, the [`Client`] and its clones list this resource for an hour. If the initial
/// state is interrupted or its version expires, the stream starts over with [`WatchEvent::Reset`]. If the server's
/// request timeout interrupted a list, the next list uses pages of 500.
///
/// From then on, changes are neither lost nor repeated nor reordered, whatever happens to connections:
///
/// | the server, or the connection | the watch |
/// |---|---|
/// | ends the watch, breaks, or [is dead](Self::idle_timeout) | resumes |
/// | 408, 429, 5xx | resumes |
/// | 401, 403, 404, unreadable credentials, a proxy's page or its 410 | warns and retries, because a role or a resource may be created later; [`fail_fast`](Self::fail_fast) ends it |
/// | the version has expired | ends in an error that [is expired](Error::is_expired), or [starts over](Self::start_over) |
/// | 3 connections in a row end within 1 s without an event | the same: some servers do not report an expired version ([`ErrorKind::NoProgress`](crate::client::ErrorKind::NoProgress)) |
/// | 8 connections in a row fail with a Status of code 500 or 504, or break within 1 s | the same |
/// | 400, 422, a malformed or oversized frame, an object that cannot be decoded | ends in an error; [`resource_version`](Self::resource_version) is before the event that failed |
///
/// The watch resumes from the version of the last bookmark or from the version before the last event, because further
/// events may have the version of that event. It drops the events that the server then repeats. For this it remembers
/// hashes of the events of one version, up to 65,536; if a version has more, events may be repeated. If the server has
/// forgotten the version before the last event, and that event was not a deletion, the watch resumes from the last
/// event.
///
/// The number of retries is not limited. Retries back off exponentially, from the
/// [`delay`](crate::client::Retry::delay) of the client's [`Retry`](crate::client::Retry) to 30 s, which jitter at most
/// doubles, and they wait at least as long as the server's `Retry-After` says. A connection that lived for 10 s resets
/// the backoff. A list in place of initial events is requested at once.
///
/// If the server ended a watch after the requested timeout, or after 2 s and an event or a bookmark, the next one
/// follows within 0.2 s. If it ended the watch sooner, the next one follows after 0.8 to 1.6 s. Only while nothing is
/// delivered do these waits grow, to 30 s (60 s with jitter), or to the time that the watch lived if that was at least
/// 2 s.
///
/// Failures are logged: see [`client`](crate::client).
///
/// An event may have an older version than earlier events, and a deletion may have none. Such an event is delivered but
/// does not change the version to resume from. A bookmark without a version, or with version 0, is ignored.
///
/// ```no_run
/// use k8s_pb::api::core::v1::Pod;
/// use listwatch::client::{Client, WatchEvent, Resource, WatchParams};
///
/// # async fn run(client: Client) -> Result<(), listwatch::client::Error> {
/// let mut pods = client.watch::<Pod>(&Resource::PODS, &WatchParams::with_initial_state());
/// while let Some(event) = pods.next().await {
///     match event? {
///         WatchEvent::Added(pod) | WatchEvent::Modified(pod) => println!("{:?} exists", pod.metadata),
///         WatchEvent::Deleted(pod) => println!("{:?} was deleted", pod.metadata),
///         WatchEvent::Synced { resource_version } => println!("the initial state is complete at {resource_version}"),
///         WatchEvent::Reset => println!("discard all objects: the stream starts over"),
///         _ => {}
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is sent until it is polled"]
pub struct Watch<F> {
    /// The connections, or the settings for the connections of each namespace.
    connections: Connections,
    /// The namespaces, unless the watch is of one or of all.
    namespaces: Option<Vec<String>>,
    /// The watches of the namespaces, after the first poll.
    merged: Option<Merged>,
    decode: F,
}

/// No field is pinned.
impl<F> Unpin for Watch<F> {}

impl Client {
    /// Returns a watch of the resource, in all namespaces unless the [`Watch`] names some. Nothing is sent yet.
    ///
    /// Objects are decoded as `T`: see [`Item`]. If `T` is known to read another kind than the resource's, the watch
    /// ends in an error before it sends anything.
    pub fn watch<T: Item + ?Sized>(&self, resource: &Resource, params: &WatchParams) -> Watch<FromRef<T>> {
        let mut params = params.clone();
        params.selection = params.selection.encoded_as(T::ENCODING);
        let mut watch = Watch::new(self, resource, params, T::from_ref as FromRef<T>);
        watch.plan().wrong_kind = resource.check_type::<T>().err();
        watch
    }

    /// Returns a watch of the resource of `T`, as [`watch`](Self::watch) does.
    pub fn watch_of<T: Item + Kind + ?Sized>(&self, params: &WatchParams) -> Watch<FromRef<T>> {
        self.watch::<T>(&T::resource(), params)
    }

    /// Returns a watch that passes each object to a closure, for projections, filters and tuples.
    pub fn watch_with<O, E, F>(&self, resource: &Resource, params: &WatchParams, decode: F) -> Watch<F>
    where
        F: FnMut(ItemRef<'_>) -> Result<O, E>,
        E: Into<ItemError>,
    {
        Watch::new(self, resource, params.clone(), decode)
    }
}

impl<F> Watch<F> {
    fn new(client: &Client, resource: &Resource, params: WatchParams, decode: F) -> Self {
        let connections = Connections::new(WatchPlan::new(client, resource, params));
        Self { connections, namespaces: None, merged: None, decode }
    }

    fn plan(&mut self) -> &mut WatchPlan {
        &mut self.connections.run.plan
    }

    /// Watches only this namespace.
    pub fn namespace(self, namespace: impl Into<String>) -> Self {
        self.namespaces([namespace])
    }

    /// Watches these namespaces as one stream, for roles that allow only some namespaces.
    ///
    /// Each namespace has its own connection, which retries and resumes on its own. Events of one object are in order,
    /// but events of different namespaces may not be. Without any namespace, the watch ends in an error.
    ///
    /// - [`WatchEvent::Synced`] follows the initial state of the last namespace. Changes of the other namespaces may
    ///   precede it.
    /// - Its version, and [`resource_version`](Self::resource_version), is the oldest version of any namespace. A watch
    ///   that resumes from it repeats changes of the other namespaces and loses none.
    /// - [`WatchEvent::Reset`] applies to all namespaces: if one starts over, the collections of all are delivered
    ///   again.
    /// - An error that ends one namespace ends the stream and [names the namespace](Error::namespace).
    ///
    /// Each event costs a poll of the connections of all namespaces, so for more than some dozens, watch all
    /// namespaces.
    pub fn namespaces(mut self, namespaces: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let mut seen = BTreeSet::new();
        let mut all: Vec<String> = namespaces.into_iter().map(Into::into).collect();
        all.retain(|name| seen.insert(name.clone()));
        self.plan().namespace = all.pop_if(|_| seen.len() == 1);
        self.namespaces = (seen.len() != 1).then_some(all);
        self
    }

    /// Sets the limits on the body, where [`Limits::item_size`] applies to a frame.
    ///
    /// The default is the limits of the [`Client`](crate::client::Client::limits).
    pub fn limits(mut self, limits: Limits) -> Self {
        self.plan().limits = limits;
        self
    }

    /// Sets after how long without a byte the connection counts as dead.
    ///
    /// [One connection](Self::open) then ends in [`ReadIdle`](crate::client::TransportErrorKind::ReadIdle). The time
    /// that the consumer takes does not count.
    ///
    /// The default is 2.5 times the longest time between two bookmarks of the server, and at least 90 s. In any case,
    /// and before the second bookmark, the connection is dead 30 s after the server should have ended the watch,
    /// because some resources, such as events, have no periodic bookmarks.
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.plan().idle_timeout = Some(timeout.min(LONGEST));
        self
    }

    /// Sets whether to request bookmarks, which is the default.
    ///
    /// Without them, [`idle_timeout`](Self::idle_timeout) cannot tell a quiet collection from a dead connection, and
    /// the version to resume from may expire while nothing changes. A watch [with the initial
    /// state](WatchParams::with_initial_state) always requests them, because the initial state ends in one.
    pub fn bookmarks(mut self, bookmarks: bool) -> Self {
        self.plan().bookmarks = bookmarks;
        self
    }

    /// Opens a single connection, and returns its events and bookmarks, for callers that resume it themselves.
    ///
    /// It returns once the server has sent the head of its response.
    ///
    /// # Errors
    ///
    /// [`Error`] when the parameters cannot be sent, the server cannot be reached or refuses the watch, or [several
    /// namespaces](Self::namespaces) are set, which one connection cannot watch.
    pub async fn open(self) -> Result<WatchEvents<F>, Error> {
        let Self { connections: Connections { run: WatchRun { plan, .. }, .. }, namespaces, decode, .. } = self;
        if let Some(namespaces) = namespaces {
            let reason = format!("{} namespaces: one connection watches one namespace, or all", namespaces.len());
            return Err(InvalidInput::new(reason, "").into());
        }
        plan.validate()?;
        let located;
        let start = match &plan.params.start {
            WatchStart::Now => {
                located = WatchStart::Version(plan.locate(&plan.client).await?);
                &located
            }
            start => start,
        };
        let connection = plan.open(start, None)?.await?;
        Ok(WatchEvents { plan, decode, connection: Some(Box::new(connection)), delivered: 0 })
    }

    /// Sets how long to wait for the initial events before the collection is listed instead. The default is 30 s.
    ///
    /// The timeout covers the wait for each object, for the bookmark after them, and for all of them together, but each
    /// MiB that the server sends adds another timeout. A huge collection therefore gets the time that it needs, while
    /// single objects cannot keep deferring the timeout. After the first change, objects add no more time, because the
    /// server has sent the whole collection by then. The time that the consumer takes does not count.
    ///
    /// The timeout exists because some servers and proxies never send that bookmark, and then deliver only objects that
    /// are created later. After the bookmark, [`idle_timeout`](Self::idle_timeout) applies.
    pub fn initial_events_timeout(mut self, timeout: Duration) -> Self {
        self.connections.run.initial_events_timeout = timeout.min(LONGEST);
        self
    }

    /// Ends the stream on 401, 403, 404, unreadable credentials and a proxy's page, instead of retrying.
    pub fn fail_fast(mut self) -> Self {
        self.connections.run.fails_fast = true;
        self
    }

    /// Starts over with the collection when the server has forgotten the version (410), instead of ending in an error.
    ///
    /// The stream then delivers [`WatchEvent::Reset`] and the collection. Changes in between are lost: an object that
    /// was deleted is missing from the collection, but no [`WatchEvent::Deleted`] says so.
    pub fn start_over(mut self) -> Self {
        self.connections.run.starts_over = true;
        self
    }

    /// Sets a function that is called after a connection ended or failed, before the wait for the next one.
    pub fn on_disconnect(mut self, on_disconnect: impl FnMut(&Disconnect) + Send + 'static) -> Self {
        self.connections.run.on_disconnect = Some(Arc::new(Mutex::new(on_disconnect)));
        self
    }

    /// Returns the version up to which all events were delivered, from which another watch can resume.
    ///
    /// It is `None` before the initial state is complete, and before a watch from now has learned its version. Because
    /// several events may have the same version, it is the version before the last event until an event of a newer
    /// version or a bookmark arrives. With [several namespaces](Self::namespaces), it is the oldest version of any.
    #[must_use]
    pub fn resource_version(&self) -> Option<&str> {
        match &self.merged {
            Some(merged) => merged.resource_version(),
            None => self.connections.resource_version(),
        }
    }

    /// Returns the connections without a decoder.
    #[doc(hidden)]
    pub fn into_connections(self) -> Connections {
        self.connections
    }
}

impl<F, O, E> Watch<F>
where
    F: FnMut(ItemRef<'_>) -> Result<O, E>,
    E: Into<ItemError>,
{
    /// Returns the next event, or `None` after an error.
    ///
    /// This is `next` of `StreamExt`. Dropping the future loses no event.
    ///
    /// # Errors
    ///
    /// [`Error`] when the watch cannot resume.
    pub async fn next(&mut self) -> Option<Result<WatchEvent<O>, Error>> {
        poll_fn(|cx| self.advance(cx)).await.transpose()
    }

    fn advance(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<WatchEvent<O>>, Error>> {
        let Self { connections, namespaces, merged, decode } = self;
        let mut decode = |_: EventType, item: ItemRef<'_>| decode(item);
        let Some(namespaces) = namespaces else { return connections.advance(cx, &mut decode) };
        merged.get_or_insert_with(|| Merged::new(connections, namespaces)).advance(cx, &mut decode)
    }
}

impl<F, O, E> Stream for Watch<F>
where
    F: FnMut(ItemRef<'_>) -> Result<O, E>,
    E: Into<ItemError>,
{
    type Item = Result<WatchEvent<O>, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.advance(cx).map(Result::transpose)
    }
}

impl<F> fmt::Debug for Watch<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let run = &self.connections.run;
        f.debug_struct("Watch")
            .field("resource", &run.plan.resource)
            .field("resource_version", &self.resource_version())
            .field("delivered", &self.merged.as_ref().map_or(run.delivered.events, Merged::delivered))
            .finish_non_exhaustive()
    }
}
