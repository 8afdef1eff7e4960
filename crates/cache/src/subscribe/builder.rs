//! Subscribers that are not registered yet.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use listwatch::{LabelSelector, StoreType};

use crate::handles::CountedHandle;
use crate::state::object::Object;
use crate::subscribe::change::Written;
use crate::subscribe::delay::DelayedDeletions;
use crate::subscribe::predicate::Predicate;
use crate::subscribe::queue::ChangeQueue;
use crate::subscribe::registry::SubscriberHost;
use crate::subscribe::resync::Resync;
use crate::subscribe::subscriber::Subscriber;
use crate::subscribe::subscription::{Filter, Inspect, Route, Subscription};
use crate::sync::Mutex;

/// Builds a subscriber: see [`StoreReader::subscribe`](crate::StoreReader::subscribe).
#[must_use = "start registers it"]
pub struct SubscriberBuilder<T: StoreType + ?Sized> {
    host: Arc<dyn SubscriberHost<T>>,
    handle: CountedHandle,
    with_initial_state: bool,
    route: Option<Box<dyn Route<T>>>,
    namespace: Option<String>,
    filters: Vec<Filter<T>>,
    predicate: Option<Predicate>,
    inspect: Option<Inspect<T>>,
    resync: Option<Resync>,
    delayed: Option<DelayedDeletions>,
}

impl<T: StoreType + ?Sized> SubscriberBuilder<T> {
    pub(crate) fn new(host: Arc<dyn SubscriberHost<T>>, handle: CountedHandle) -> Self {
        Self {
            host,
            handle,
            with_initial_state: false,
            route: None,
            namespace: None,
            filters: Vec::new(),
            predicate: None,
            inspect: None,
            resync: None,
            delayed: None,
        }
    }

    /// Delivers the stored objects first.
    ///
    /// The subscriber reads them 64 at a time, so at most 64 are queued, and others may write while its filters run.
    pub fn with_initial_state(mut self) -> Self {
        self.with_initial_state = true;
        self
    }

    /// Delivers only objects for which this function and all other filters return true.
    ///
    /// The function is called for each write of an object of the subscriber's [namespace](Self::namespace) and
    /// [value](crate::Index::subscribe), while other writers wait. It may read the store. In it, a method panics if it
    /// writes or waits for writers, as [`memory`](crate::StoreReader::memory), [`index`](crate::StoreReader::index) and
    /// [`start`](Self::start) do, and the panic then ends the subscriber. All filters and indexes together decompress
    /// and decode an object once.
    pub fn filter(mut self, filter: impl Fn(&Object<T>) -> bool + Send + Sync + 'static) -> Self {
        self.filters.push(Box::new(filter));
        self
    }

    /// Delivers a modification only if it passes the predicate. A second call replaces the first.
    ///
    /// The predicate compares the two states of each write, including the writes of a relist, and a coalesced change is
    /// delivered if any of its writes passes. Additions, deletions, the initial state and a [resync](Self::resync)
    /// always pass. So do an object that starts or stops passing the filters, and a state that cannot be read.
    ///
    /// [`old`](crate::Change::Applied::old) is the state before the first write that passed. It may be newer than the
    /// state that the subscriber received.
    ///
    /// Nothing is kept for an object. Each property of metadata adds 1 to 2 µs of CPU to a write of a Pod of 8.5 kB. In
    /// a compressed store, the write also decompresses the replaced state, which takes about 12 µs for all subscribers
    /// together.
    pub fn predicate_filter(mut self, predicate: impl Into<Option<Predicate>>) -> Self {
        self.predicate = predicate.into();
        self
    }

    /// Calls this function for each write of an object, even if the change is coalesced with another one.
    ///
    /// A second call replaces the first. Work queues need this, because a state that an object had only for a moment
    /// can name other objects to process, such as an owner. The function is called once the write is visible to readers
    /// and before the consumer is woken, but not for the initial state. It does not depend on the filters, has the same
    /// limits as a [`filter`](Self::filter), and is not called for writes that the [predicate](Self::predicate_filter)
    /// drops.
    pub fn inspect(mut self, inspect: impl Fn(Written<'_, T>) + Send + Sync + 'static) -> Self {
        self.inspect = Some(Box::new(inspect));
        self
    }

    /// Delivers only objects of this namespace. Writes of other objects cost the subscriber nothing.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    pub(crate) fn route(mut self, route: Box<dyn Route<T>>) -> Self {
        self.route = Some(route);
        self
    }

    /// Delivers only objects that the selector matches. An object whose labels cannot be read does not pass.
    ///
    /// If each of many subscribers selects the objects of one value, [`Index::subscribe`](crate::Index::subscribe)
    /// costs less.
    pub fn labels(self, selector: LabelSelector) -> Self {
        self.filter(move |object| object.matches(&selector))
    }

    /// Delivers each object again once per period, like the resync period of an informer.
    ///
    /// The object is delivered as [`Applied`](crate::Change::Applied) in its latest state, with `old` equal to `new`.
    /// The objects are spread over the period, at most 64 at once. A consumer that is late receives each object once,
    /// not once per missed period. A period of zero means no resync, as in client-go, and the shortest period is a
    /// millisecond. The stream uses tokio's clock, so outside of a tokio runtime it delivers nothing again.
    ///
    /// # Panics
    ///
    /// The stream panics when it is polled on a tokio runtime without time.
    pub fn resync(mut self, period: Duration) -> Self {
        self.resync = Resync::new(period);
        self
    }

    /// Delivers each deletion this long after the consumer would have received it.
    ///
    /// The deleted object stays usable for that time: [`Subscriber::get_deleted`] reads the object meanwhile. Zero, the
    /// default, means no delay.
    ///
    /// A delayed deletion never hides a new object. If the object is created again in the meantime, the consumer
    /// receives one [`Applied`](crate::Change::Applied) and no deletion, and `old` is the deleted object, with another
    /// uid. The same happens when an object passes the filters again.
    ///
    /// [`Synced`](crate::Change::Synced) does not wait for delayed deletions, and a stream that ends delivers them
    /// first. Each takes about 250 bytes and two states of the object, and counts in [`lag`](Subscriber::lag). Outside
    /// of a tokio runtime, no deletion becomes due while the stream waits.
    ///
    /// # Panics
    ///
    /// The same as [`resync`](Self::resync).
    pub fn delay_deletions(mut self, delay: Duration) -> Self {
        self.delayed = DelayedDeletions::new(delay);
        self
    }

    /// Registers the subscriber, which receives all changes from now on, including deletions of stored objects.
    ///
    /// Without [`with_initial_state`](Self::with_initial_state), this call runs the filters over all objects before it
    /// returns, 64 at a time. Others may write meanwhile, and such a write also runs the filters on the state that it
    /// replaces. A task that must not block starts the subscriber before the store contains many objects, in
    /// [`spawn_blocking`](tokio::task::spawn_blocking), or with the initial state. With a [namespace](Self::namespace),
    /// the call also looks up the objects of the namespace, about 0.1 µs each, while writers wait.
    #[must_use = "a subscriber that is dropped gets nothing"]
    pub fn start(self) -> Subscriber<T> {
        let Self { host, handle, with_initial_state, route, namespace, filters, predicate, inspect, .. } = self;
        let (codec, queue) = (Arc::clone(&host.objects().codec), Mutex::new(ChangeQueue::new()));
        let subscription = Arc::new(Subscription { route, namespace, filters, predicate, inspect, codec, queue });
        subscription.register(&*host, with_initial_state);
        if !with_initial_state {
            while subscription.advance_walk(&*host) {}
        }
        Subscriber::new(subscription, &host, handle, self.resync, self.delayed)
    }
}

impl<T: StoreType + ?Sized> fmt::Debug for SubscriberBuilder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubscriberBuilder")
            .field("with_initial_state", &self.with_initial_state)
            .finish_non_exhaustive()
    }
}
