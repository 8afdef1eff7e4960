//! Subscribers, which deliver changes to their consumers.

use std::future::poll_fn;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::{fmt, mem};

use futures_core::Stream;
use listwatch::StoreType;

use crate::handles::CountedHandle;
use crate::key::ObjectKey;
use crate::state::object::{Codec, Object};
use crate::subscribe::change::Change;
use crate::subscribe::delay::DelayedDeletions;
use crate::subscribe::queue::{Delivery, PendingDeletion, WALK_STEP};
use crate::subscribe::registry::SubscriberHost;
use crate::subscribe::resync::Resync;
use crate::subscribe::subscription::Subscription;
use crate::sync::lock;

/// Receives each [`Change`] of a store, whoever wrote it, as a `Stream`.
///
/// A subscriber never blocks writers. It queues one entry for each object that changed, so if the consumer is slow,
/// changes of one object are coalesced to the latest state. An object that was added and deleted in the meantime is not
/// delivered at all. One that was deleted and created again is first delivered as [`Deleted`](Change::Deleted).
///
/// The stream ends when the last reflector of the store ends, and its last change is [`Change::Ended`], which says why.
/// A subscriber that is registered later still receives the initial state, if it requested one, and then ends in the
/// same way. Without a reflector, the stream ends when the last handle of the store is dropped.
///
/// A stream of the objects that were added, modified or deleted, like kube's `touched_objects`, is a `filter_map`:
///
/// ```
/// use futures::{StreamExt as _, future::ready};
/// use k8s_pb::api::core::v1::Pod;
/// use listwatch_cache::{CacheWriter, Change};
///
/// # let writer = CacheWriter::<Pod>::of();
/// # let bytes = b"\x0a\x03\x0a\x01n";
/// # futures::executor::block_on(async {
/// # let pods = writer.cache();
/// let mut touched = pods.subscribe().with_initial_state().start().filter_map(|change| {
///     ready(match change {
///         Change::Applied { new, .. } => Some(new),
///         Change::Deleted { last, .. } => Some(last),
///         _ => None,
///     })
/// });
/// # writer.apply(listwatch::Encoding::Protobuf, bytes)?;
/// let object = touched.next().await.ok_or("the reflector ended")?;
/// println!("{} has the status {:?}", object.key(), object.decode()?.status);
/// # writer.delete(("", "n"))?;
/// # assert_eq!(touched.next().await.ok_or("the reflector ended")?.name(), "n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// If one of its functions panics, the subscriber's own next call resumes the panic. Writers and other subscribers are
/// not affected.
///
/// # Memory
///
/// A pending change takes about 110 bytes. Until it is delivered, it keeps two states of the object: the one that the
/// subscriber received before, and the latest, which the store also keeps unless the object was deleted.
/// [`lag`](Self::lag) counts the pending changes. Besides that, a subscriber takes one bit for each object.
pub struct Subscriber<T: StoreType + ?Sized> {
    subscription: Arc<Subscription<T>>,
    host: Weak<dyn SubscriberHost<T>>,
    _handle: CountedHandle,
    codec: Arc<Codec<T>>,
    /// How many changes were delivered since the last step of the walk.
    delivered: u32,
    resync: Option<Resync>,
    delayed: Option<DelayedDeletions>,
}

impl<T: StoreType + ?Sized> Subscriber<T> {
    pub(super) fn new(
        subscription: Arc<Subscription<T>>,
        host: &Arc<dyn SubscriberHost<T>>,
        handle: CountedHandle,
        resync: Option<Resync>,
        delayed: Option<DelayedDeletions>,
    ) -> Self {
        let codec = Arc::clone(&host.objects().codec);
        Self { subscription, host: Arc::downgrade(host), _handle: handle, codec, delivered: 0, resync, delayed }
    }

    /// Returns the next change, or `None` after the end.
    ///
    /// This is `next` of `StreamExt`. While its filters skip objects of the initial state, it yields to other tasks
    /// after every 64.
    ///
    /// # Panics
    ///
    /// The same as [`try_next`](Self::try_next).
    pub async fn next(&mut self) -> Option<Change<T>> {
        poll_fn(|cx| self.advance(Some(cx.waker()))).await
    }

    /// Returns the next change, if there is one.
    ///
    /// During the initial state, one call may run the filters over all objects.
    ///
    /// # Panics
    ///
    /// Panics if a filter or the [inspecting](crate::SubscriberBuilder::inspect) function panicked, by resuming that
    /// panic.
    pub fn try_next(&mut self) -> Option<Change<T>> {
        match self.advance(None) {
            Poll::Ready(change) => change,
            Poll::Pending => None,
        }
    }

    /// Returns the number of pending changes, which shows how late the consumer is.
    ///
    /// It includes [delayed](crate::SubscriberBuilder::delay_deletions) deletions, and at most 64 objects of the
    /// initial state. Each pending change keeps up to two states of its object in memory, which
    /// [`Memory`](crate::Memory) leaves out.
    #[must_use]
    pub fn lag(&self) -> usize {
        lock(&self.subscription.queue).lag + self.delayed.as_ref().map_or(0, DelayedDeletions::len)
    }

    /// Returns the last state of a deleted object until its delayed deletion is delivered.
    ///
    /// Without a [delay](crate::SubscriberBuilder::delay_deletions), it returns `None`.
    /// `cache.get(key).or_else(|| subscriber.get_deleted(key))` reads an object of the cache, or one that was deleted a
    /// short time ago. A deletion reaches the subscriber a moment after the cache, and a call in between finds neither.
    ///
    /// The key is an [`&ObjectKey`](crate::ObjectKey) or a pair of namespace and name. A deletion that the consumer has
    /// not reached costs a search of all [pending changes](Self::lag), while writers wait.
    pub fn get_deleted<'k>(&self, key: impl Into<(&'k str, &'k str)>) -> Option<Object<T>> {
        let delayed = self.delayed.as_ref()?;
        let (namespace, name) = key.into();
        let key = ObjectKey { namespace: namespace.to_owned(), name: name.to_owned() };
        let held = delayed.get(&key).map(|deletion| deletion.last.clone());
        let last = held.or_else(|| lock(&self.subscription.queue).find_deleted((namespace, name)).cloned())?;
        Some(Object::new(&last, &self.codec))
    }

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
        // Counts objects that were filtered, and deletions that were held, without a change to deliver.
        let mut work = 0;
        loop {
            if work >= WALK_STEP
                && let Some(waker) = waker
            {
                waker.wake_by_ref();
                return Poll::Pending;
            }
            self.requeue_if_due();
            if let Some(deletion) = self.delayed.as_mut().and_then(DelayedDeletions::pop_due) {
                return Poll::Ready(Some(self.change(deletion)));
            }
            let mut queue = lock(&self.subscription.queue);
            if let Some(panic) = queue.panic.take() {
                drop(queue);
                resume_unwind(panic);
            }
            let walks = queue.walk.is_some();
            if !(walks && self.delivered >= WALK_STEP)
                && let Some(delivery) = queue.pop()
            {
                drop(queue);
                self.delivered += 1;
                if let Some(delivery) = self.hold_deletion(delivery) {
                    return Poll::Ready(Some(self.change(delivery)));
                }
                work += 1;
                continue;
            }
            if walks {
                self.delivered = 0;
                work += WALK_STEP;
                match self.host.upgrade() {
                    Some(host) => {
                        drop(queue);
                        self.subscription.advance_walk(&*host);
                    }
                    None => queue.walk = None,
                }
            } else if queue.is_closed {
                if let Some(deletion) = self.delayed.as_mut().and_then(DelayedDeletions::pop) {
                    drop(queue);
                    return Poll::Ready(Some(self.change(deletion)));
                }
                return Poll::Ready(queue.reason.take().map(Change::Ended));
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
                match waker {
                    Some(waker) if self.poll_timers(&mut Context::from_waker(waker)).is_ready() => {}
                    _ => return Poll::Pending,
                }
            }
        }
    }

    /// Waits for the next objects of the resync, or the next delayed deletion.
    fn poll_timers(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let resync = self.resync.as_mut().is_some_and(|resync| resync.poll(cx).is_ready());
        let deletion = self.delayed.as_mut().is_some_and(|delayed| delayed.poll(cx).is_ready());
        if resync || deletion { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Holds a deletion that is to be delivered later, and returns any other change.
    fn hold_deletion(&mut self, delivery: Delivery) -> Option<Delivery> {
        match &mut self.delayed {
            Some(delayed) => delayed.hold_deletion(delivery),
            None => Some(delivery),
        }
    }

    fn change(&self, delivery: Delivery) -> Change<T> {
        let object = |entry| Object::new(&entry, &self.codec);
        match delivery {
            Delivery::Applied { old, new } => Change::Applied { old: old.map(object), new: object(new) },
            Delivery::Deleted(PendingDeletion { old, last, final_state_unknown }) => {
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
