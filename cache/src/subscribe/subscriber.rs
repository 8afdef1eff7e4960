//! Subscribers, which deliver changes to their consumers.

use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::Context;
use std::task::{Poll, Waker};
use std::time::Duration;
use std::{fmt, mem};

use futures_core::Stream;

use crate::StoreType;
use crate::state::object::{Codec, Object};
use crate::subscribe::change::Change;
use crate::subscribe::queue::{Delivery, LOOK_AHEAD, Queue};
use crate::subscribe::resync::Resync;
use crate::subscribe::subscription::{Filter, Inspect, Route, Subscription};
use crate::sync::{Mutex, lock};
use crate::write::writer::Inner;
use listwatch::LabelSelector;

/// A subscriber that is not registered yet: see [`StoreReader::subscribe`](crate::StoreReader::subscribe).
#[must_use = "start registers it"]
pub struct Subscribe<T: StoreType + ?Sized> {
    inner: Arc<Inner<T>>,
    with_initial_state: bool,
    route: Option<Box<dyn Route<T>>>,
    namespace: Option<String>,
    filters: Vec<Filter<T>>,
    inspect: Option<Inspect<T>>,
    resync: Option<Resync>,
}

/// Gets each [`Change`] of a store, by any writer. With the feature `async` it is a `Stream`.
///
/// It blocks no writer. Its pending changes are kept as one entry for each object, so changes of one object are coalesced to the
/// latest state. An object that was added and deleted before the subscriber received it is left out; an object that was deleted
/// and created again is delivered as [`Deleted`](Change::Deleted) first.
///
/// It ends when the last handle of the store is dropped, or when the last reflector of the store ends. If that reflector ended
/// with an error, [`Change::Ended`] is the last change. A subscriber that is registered afterwards gets the initial state, if it
/// requested that, and ends.
///
/// If one of its functions panics, its own next call resumes the panic; writers and other subscribers are not affected.
///
/// # Memory
///
/// A pending change takes about 110 bytes, and keeps two states of the object until it is delivered: the state that the subscriber
/// received before, and the latest state, which the store also keeps unless the object was deleted. [`lag`](Self::lag) is the number
/// of pending changes. A subscriber takes one bit for each object.
pub struct Subscriber<T: StoreType + ?Sized> {
    subscription: Arc<Subscription<T>>,
    inner: Weak<Inner<T>>,
    codec: Arc<Codec<T>>,
    /// Changes delivered since the last step of the walk.
    delivered: u32,
    resync: Option<Resync>,
}

impl<T: StoreType + ?Sized> Subscribe<T> {
    pub(crate) fn new(inner: Arc<Inner<T>>) -> Self {
        Self {
            inner,
            with_initial_state: false,
            route: None,
            namespace: None,
            filters: Vec::new(),
            inspect: None,
            resync: None,
        }
    }

    /// Delivers the stored objects first. The subscriber reads 64 objects at a time, so no more of them are queued, and others may
    /// write while its filters run.
    pub fn with_initial_state(mut self) -> Self {
        self.with_initial_state = true;
        self
    }

    /// Delivers only objects for which this function and all other filters return true.
    ///
    /// The function is called for each write of an object of the subscriber's [namespace](Self::namespace) and
    /// [value](crate::Index::subscribe), while other writers wait. It may read the store. A method that writes, or that waits for
    /// writers as [`memory`](crate::StoreReader::memory), [`index`](crate::StoreReader::index) and [`start`](Self::start) do, panics in
    /// it: the subscriber then ends with that panic. All filters and indexes together decompress and decode an object once.
    pub fn filter(mut self, filter: impl Fn(&Object<T>) -> bool + Send + Sync + 'static) -> Self {
        self.filters.push(Box::new(filter));
        self
    }

    /// Calls this function for each state that a write replaces or stores, and for the last states of a deleted object, also if the
    /// subscriber does not receive the state because changes are coalesced. A second call replaces the first.
    ///
    /// Work queues need it: the state that an object had for a moment can name other objects to process, for example an owner.
    /// The function is called once the write is visible to readers, before the consumer is woken, and not for the initial state. It
    /// does not depend on the filters, and has the same limits as a [`filter`](Self::filter).
    pub fn inspect(mut self, inspect: impl Fn(&Object<T>) + Send + Sync + 'static) -> Self {
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
    /// [`Index::subscribe`](crate::Index::subscribe) costs less where each of many subscribers selects the objects of one value.
    pub fn labels(self, selector: LabelSelector) -> Self {
        self.filter(move |object| object.matches(&selector))
    }

    /// Delivers each object again once per period, like the resync period of an informer: as [`Applied`](Change::Applied), in its
    /// latest state, with `old` equal to `new`.
    ///
    /// The objects are spread over the period, at most 64 at once. A late consumer gets each object once, not once per missed period.
    /// A period of zero means no resync, as in client-go; the shortest period is a millisecond. The stream uses tokio's clock.
    ///
    /// # Panics
    ///
    /// The stream panics when it is polled outside of a tokio runtime with time enabled.
    pub fn resync(mut self, period: Duration) -> Self {
        self.resync = Resync::new(period);
        self
    }

    /// Registers the subscriber. It gets all changes from now on, including deletions of objects that the store already has.
    ///
    /// Without [`with_initial_state`](Self::with_initial_state) this call runs the filters over all objects, 64 at a time. Others may
    /// write meanwhile: such a write calls the filters with the state before it, too.
    #[must_use = "a subscriber that is dropped gets nothing"]
    pub fn start(self) -> Subscriber<T> {
        let Self { inner, with_initial_state, route, namespace, filters, inspect, .. } = self;
        let (codec, queue) = (Arc::clone(&inner.codec), Mutex::new(Queue::new()));
        let subscription = Arc::new(Subscription { route, namespace, filters, inspect, codec, queue });
        inner.register(&subscription, with_initial_state);
        if !with_initial_state {
            while inner.look_ahead(&subscription) {}
        }
        Subscriber {
            subscription,
            inner: Arc::downgrade(&inner),
            codec: Arc::clone(&inner.codec),
            delivered: 0,
            resync: self.resync,
        }
    }
}

impl<T: StoreType + ?Sized> Subscriber<T> {
    /// Returns the next change, if there is one.
    ///
    /// # Panics
    ///
    /// Panics if a filter or the function that inspects all states panicked: it resumes that panic.
    pub fn try_next(&mut self) -> Option<Change<T>> {
        match self.advance(None) {
            Poll::Ready(change) => change,
            Poll::Pending => None,
        }
    }

    /// Returns the number of pending changes, which shows how late the consumer is. At most 64 objects of the initial state count.
    ///
    /// Each pending change keeps up to two states of its object in memory, which [`Memory`](crate::Memory) leaves out.
    #[must_use]
    pub fn lag(&self) -> usize {
        lock(&self.subscription.queue).lag
    }

    /// Queues the next objects of the resync, if they are due.
    fn repeat_if_due(&mut self) {
        if let Some(resync) = &mut self.resync
            && let Some(inner) = self.inner.upgrade()
            && let Some(slots) = resync.due(inner.state().slots())
        {
            inner.repeat(&self.subscription, slots);
        }
    }

    fn advance(&mut self, waker: Option<&Waker>) -> Poll<Option<Change<T>>> {
        // Cloned without the lock of the queue.
        let mut own_waker = None;
        loop {
            self.repeat_if_due();
            let mut queue = lock(&self.subscription.queue);
            if let Some(panic) = queue.panic.take() {
                drop(queue);
                resume_unwind(panic);
            }
            let looks = queue.walk.is_some();
            if !(looks && self.delivered >= LOOK_AHEAD)
                && let Some(delivery) = queue.next()
            {
                self.delivered += 1;
                return Poll::Ready(Some(self.change(delivery)));
            }
            if looks {
                self.delivered = 0;
                match self.inner.upgrade() {
                    Some(inner) => {
                        drop(queue);
                        inner.look_ahead(&self.subscription);
                    }
                    None => queue.walk = None,
                }
            } else if queue.is_closed {
                return Poll::Ready(queue.cause.take().map(Change::Ended));
            } else {
                let is_known = |waker: &&Waker| queue.waker.as_ref().is_some_and(|known| known.will_wake(waker));
                let mut replaced = None;
                if let Some(waker) = waker.filter(|waker| !is_known(waker)) {
                    if own_waker.is_none() {
                        drop(queue);
                        own_waker = Some(waker.clone());
                        continue;
                    }
                    replaced = mem::replace(&mut queue.waker, own_waker.take());
                }
                queue.has_news = false;
                drop(queue);
                drop(replaced);
                if let (Some(resync), Some(waker)) = (&mut self.resync, waker)
                    && resync.poll(&mut Context::from_waker(waker)).is_ready()
                {
                    continue;
                }
                return Poll::Pending;
            }
        }
    }

    fn change(&self, delivery: Delivery<T::Decoded>) -> Change<T> {
        let object = |entry| Object::new(&entry, &self.codec);
        match delivery {
            Delivery::Applied { old, new } => Change::Applied { old: old.map(object), new: object(new) },
            Delivery::Deleted { old, last, final_state_unknown } => {
                Change::Deleted { old: object(old), last: object(last), final_state_unknown }
            }
            Delivery::Synced => Change::Synced,
        }
    }
}

impl<T: StoreType + ?Sized> Stream for Subscriber<T> {
    type Item = Change<T>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Change<T>>> {
        self.advance(Some(cx.waker()))
    }
}

impl<T: StoreType + ?Sized> fmt::Debug for Subscribe<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscribe").field("with_initial_state", &self.with_initial_state).finish_non_exhaustive()
    }
}

impl<T: StoreType + ?Sized> fmt::Debug for Subscriber<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriber").field("lag", &self.lag()).finish_non_exhaustive()
    }
}
