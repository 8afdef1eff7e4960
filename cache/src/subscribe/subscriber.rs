//! Subscribers, which deliver changes to their consumers.

use std::future::poll_fn;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::{fmt, mem};

use futures_core::Stream;

use crate::StoreType;
use crate::state::object::{Codec, Object};
use crate::subscribe::change::Change;
use crate::subscribe::host::SubscriberHost;
use crate::subscribe::queue::{Delivery, WALK_STEP};
use crate::subscribe::resync::Resync;
use crate::subscribe::subscription::Subscription;
use crate::sync::lock;

/// Gets each [`Change`] of a store, by any writer. It is a `Stream`.
///
/// It blocks no writer. Its pending changes are kept as one entry for each object, so changes of one object are
/// coalesced to the latest state. An object that was added and deleted before the subscriber received it is left out;
/// an object that was deleted and created again is delivered as [`Deleted`](Change::Deleted) first.
///
/// It ends when the last handle of the store is dropped, or when the last reflector of the store ends. If that
/// reflector ended with an error, [`Change::Ended`] is the last change. A subscriber that is registered afterwards gets
/// the initial state, if it requested that, and ends.
///
/// If one of its functions panics, its own next call resumes the panic; writers and other subscribers are not affected.
///
/// # Memory
///
/// A pending change takes about 110 bytes, and keeps two states of the object until it is delivered: the state that the
/// subscriber received before, and the latest state, which the store also keeps unless the object was deleted.
/// [`lag`](Self::lag) is the number of pending changes. A subscriber takes one bit for each object.
pub struct Subscriber<T: StoreType + ?Sized> {
    subscription: Arc<Subscription<T>>,
    host: Weak<dyn SubscriberHost<T>>,
    codec: Arc<Codec<T>>,
    /// Changes delivered since the last step of the walk.
    delivered: u32,
    resync: Option<Resync>,
}

impl<T: StoreType + ?Sized> Subscriber<T> {
    pub(super) fn new(
        subscription: Arc<Subscription<T>>,
        host: &Arc<dyn SubscriberHost<T>>,
        resync: Option<Resync>,
    ) -> Self {
        let codec = Arc::clone(&host.objects().codec);
        Self { subscription, host: Arc::downgrade(host), codec, delivered: 0, resync }
    }

    /// Waits for the next change, as `next` of `StreamExt` does; `None` after the end.
    ///
    /// # Panics
    ///
    /// As [`try_next`](Self::try_next).
    pub async fn next(&mut self) -> Option<Change<T>> {
        poll_fn(|cx| self.advance(Some(cx.waker()))).await
    }

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

    /// Returns the number of pending changes, which shows how late the consumer is. At most 64 objects of the initial
    /// state count.
    ///
    /// Each pending change keeps up to two states of its object in memory, which [`Memory`](crate::Memory) leaves out.
    #[must_use]
    pub fn lag(&self) -> usize {
        lock(&self.subscription.queue).lag
    }

    /// Queues the next objects of the resync, if they are due.
    fn requeue_if_due(&mut self) {
        if let Some(resync) = &mut self.resync
            && let Some(host) = self.host.upgrade()
            && let Some(slots) = resync.due(host.objects().state().slots())
        {
            self.subscription.requeue(&*host, slots);
        }
    }

    fn advance(&mut self, waker: Option<&Waker>) -> Poll<Option<Change<T>>> {
        // Cloned without the lock of the queue.
        let mut own_waker = None;
        loop {
            self.requeue_if_due();
            let mut queue = lock(&self.subscription.queue);
            if let Some(panic) = queue.panic.take() {
                drop(queue);
                resume_unwind(panic);
            }
            let walks = queue.walk.is_some();
            if !(walks && self.delivered >= WALK_STEP)
                && let Some(delivery) = queue.pop()
            {
                self.delivered += 1;
                return Poll::Ready(Some(self.change(delivery)));
            }
            if walks {
                self.delivered = 0;
                match self.host.upgrade() {
                    Some(host) => {
                        drop(queue);
                        self.subscription.advance_walk(&*host);
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

impl<T: StoreType + ?Sized> fmt::Debug for Subscriber<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriber").field("lag", &self.lag()).finish_non_exhaustive()
    }
}
