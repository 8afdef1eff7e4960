//! Who is told of what is written to a store.

use std::any::Any;
use std::collections::hash_map::Entry as Slot;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
#[cfg(feature = "async")]
use std::pin::Pin;
use std::sync::{Arc, Weak};
#[cfg(feature = "async")]
use std::task::Context;
use std::task::{Poll, Waker};
#[cfg(feature = "client")]
use std::time::Duration;

use fixedbitset::FixedBitSet;
#[cfg(feature = "async")]
use futures_core::Stream;

use super::entry::Entry;
use super::object::{Codec, Object, ObjectRef, Stored};
#[cfg(feature = "client")]
use super::resync::Resync;
use super::store::{Inner, Store, Tombstone};
#[cfg(feature = "client")]
use crate::object::LabelSelector;
use crate::sync::{Mutex, lock};

/// So many objects are looked at at once, for a subscriber that wants what is there.
pub(super) const LOOK_AHEAD: u32 = 64;

/// Queues that were longer are given back when they are empty.
const KEPT_QUEUE: usize = 64;

/// A subscriber to a [`Store`], yet to be registered: see [`Store::subscribe`].
#[must_use = "it is registered by start"]
pub struct Subscribe<T: Stored + ?Sized> {
    store: Store<T>,
    with_initial_state: bool,
    route: Option<Box<dyn Route<T>>>,
    namespace: Option<String>,
    filters: Vec<Filter<T>>,
    #[cfg(feature = "client")]
    resync: Option<Resync>,
}

/// Finds the subscribers to a part of the objects, so that a write of others need not look at them.
pub(super) trait Route<T: Stored + ?Sized>: Send + Sync {
    /// Has the subscriber told of the part from now on. All who write wait.
    fn add(&self, subscription: &Arc<Subscription<T>>);
    /// Whether the object in the slot is of the part.
    fn has(&self, slot: u32) -> bool;
    /// The slots of the objects that are of the part.
    fn slots(&self) -> Vec<u32>;
}

type Filter<T> = Box<dyn Fn(&ObjectRef<'_, T>) -> bool + Send + Sync>;

/// What changed in a store, for one subscriber.
#[derive(Debug)]
pub enum Change<T: Stored + ?Sized> {
    /// The object is there, in this state: it was added, or changed.
    Applied(Object<T>),
    /// The object is gone, or does not pass the subscriber's filter any more: this is the last state that did.
    Deleted(Tombstone<T>),
    /// A list is complete, and all changes that it made were told before. A subscriber that began with what was there is
    /// told so behind that too, if the store had a version.
    Synced,
}

/// Is told of all that changes in a store, whoever writes it. It is a `Stream` with the feature `async`, and ends with the
/// last handle of the store, a cache's among them; where a reflector writes the store, also when that has ended. One that is
/// registered later gets what is there, if it wants it, and ends then.
///
/// Nobody waits for it. What it has not taken yet is kept as one entry for each object, so changes of the same object become
/// one: to the latest state. An object that it never saw and that is gone again is not told at all; one that was deleted and
/// created anew is [`Deleted`](Change::Deleted) first. An entry takes about 100 bytes beside the object, which is the store's
/// own; of a deleted one, it is the last state.
///
/// Dropped, it is forgotten. When its filter panics, its own next call panics with that, and nothing else.
pub struct Subscriber<T: Stored + ?Sized> {
    subscription: Arc<Subscription<T>>,
    store: Weak<Inner<T>>,
    codec: Arc<Codec<T>>,
    /// Changes told since it last looked at what is there.
    told: u32,
    #[cfg(feature = "client")]
    resync: Option<Resync>,
}

impl<T: Stored + ?Sized> Subscribe<T> {
    pub(super) fn new(store: Store<T>) -> Self {
        Self {
            store,
            with_initial_state: false,
            route: None,
            namespace: None,
            filters: Vec::new(),
            #[cfg(feature = "client")]
            resync: None,
        }
    }

    /// Tells of each object that is there too. It looks at 64 at a time, so nothing is kept for it, and others may write while the
    /// filter looks at them.
    pub fn with_initial_state(mut self) -> Self {
        self.with_initial_state = true;
        self
    }

    /// Only objects for which this is true, by their state, and for all other filters. It is called for each write of an object of
    /// the subscriber's [namespace](Self::namespace) and [value](super::Index::subscribe), before
    /// anything is copied, while others who write wait. It may [`get`](Store::get) from the store, and must do nothing else
    /// with it.
    pub fn filter(mut self, filter: impl Fn(&ObjectRef<'_, T>) -> bool + Send + Sync + 'static) -> Self {
        self.filters.push(Box::new(filter));
        self
    }

    /// Only objects of this namespace. Writes of other objects cost it nothing.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    pub(super) fn route(mut self, route: Box<dyn Route<T>>) -> Self {
        self.route = Some(route);
        self
    }

    /// Only objects that this selects. One whose labels cannot be read does not pass.
    ///
    /// For those that have a value in an index there is [`Index::subscribe`](super::Index::subscribe).
    #[cfg(feature = "client")]
    pub fn labels(self, selector: LabelSelector) -> Self {
        self.filter(move |object| object.meta().and_then(|meta| selector.matches(&meta)).unwrap_or(false))
    }

    /// Tells of each object again once in this time, though nothing changed, as the resync period of an informer has it: as
    /// [`Applied`](Change::Applied), in its latest state. They are spread over the time, 64 at once at the most; who takes
    /// them late has them later, never twice.
    ///
    /// A period of zero is no resync, as in client-go. The shortest is a millisecond.
    ///
    /// As a `Stream` it waits by the clock of tokio.
    ///
    /// # Panics
    ///
    /// As a `Stream` that is polled outside of a tokio runtime with its time enabled.
    #[cfg(feature = "client")]
    pub fn resync(mut self, period: Duration) -> Self {
        self.resync = Resync::new(period);
        self
    }

    /// Registers it: it is told of all that is written from now on, the deletion of what was there among it.
    ///
    /// With a filter, and without [`with_initial_state`](Self::with_initial_state), it goes through all objects, and those who write wait.
    #[must_use = "it is forgotten when it is dropped"]
    pub fn start(self) -> Subscriber<T> {
        let queue = Queue { looked_at: self.with_initial_state.then_some(0), ..Queue::default() };
        let Self { route, namespace, filters, .. } = self;
        let subscription = Arc::new(Subscription { route, namespace, filters, queue: Mutex::new(queue) });
        self.store.register(&subscription);
        Subscriber {
            subscription,
            store: self.store.downgrade(),
            codec: self.store.codec(),
            told: 0,
            #[cfg(feature = "client")]
            resync: self.resync,
        }
    }
}

impl<T: Stored + ?Sized> Subscriber<T> {
    /// The next change, if there is one.
    ///
    /// # Panics
    ///
    /// When the filter did.
    pub fn try_next(&mut self) -> Option<Change<T>> {
        match self.advance(None) {
            Poll::Ready(change) => change,
            Poll::Pending => None,
        }
    }

    /// How many changes it was not told yet: the lag of its consumer. Of what was there when it was registered, no more
    /// than 64 objects count.
    #[must_use]
    pub fn lag(&self) -> usize {
        lock(&self.subscription.queue).lag
    }

    /// Tells of the next few objects once more, if it is time to.
    #[cfg(feature = "client")]
    fn tell_again_if_due(&mut self) {
        if let Some(resync) = &mut self.resync
            && let Some(store) = Store::upgrade(&self.store)
            && let Some(slots) = resync.due(store.state().slots())
        {
            store.tell_again(&self.subscription, slots);
        }
    }

    fn advance(&mut self, waker: Option<&Waker>) -> Poll<Option<Change<T>>> {
        loop {
            #[cfg(feature = "client")]
            self.tell_again_if_due();
            let mut queue = lock(&self.subscription.queue);
            if let Some(panic) = queue.panic.take() {
                drop(queue);
                resume_unwind(panic);
            }
            let looks = queue.looked_at.is_some();
            if !(looks && self.told >= LOOK_AHEAD)
                && let Some(told) = queue.next()
            {
                self.told += 1;
                return Poll::Ready(Some(self.change(told)));
            }
            if looks {
                self.told = 0;
                match Store::upgrade(&self.store) {
                    Some(store) => {
                        drop(queue);
                        store.look_ahead(&self.subscription);
                    }
                    None => queue.looked_at = None,
                }
            } else if queue.is_closed {
                return Poll::Ready(None);
            } else {
                let known = waker.and_then(|waker| queue.waker.replace(waker.clone()));
                queue.has_news = false;
                drop(queue);
                drop(known);
                #[cfg(feature = "client")]
                if let (Some(resync), Some(waker)) = (&mut self.resync, waker)
                    && resync.poll(&mut Context::from_waker(waker)).is_ready()
                {
                    continue;
                }
                return Poll::Pending;
            }
        }
    }

    fn change(&self, told: Told<T::Decoded>) -> Change<T> {
        match told {
            Told::Applied(entry) => Change::Applied(Object::new(&entry, &self.codec)),
            Told::Deleted(Gone { last, final_state_unknown }) => {
                Change::Deleted(Tombstone { object: Object::new(&last, &self.codec), final_state_unknown })
            }
            Told::Synced => Change::Synced,
        }
    }
}

/// It ends when the last handle of the store is dropped.
#[cfg(feature = "async")]
impl<T: Stored + ?Sized> Stream for Subscriber<T> {
    type Item = Change<T>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Change<T>>> {
        self.advance(Some(cx.waker()))
    }
}

impl<T: Stored + ?Sized> Clone for Change<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Applied(object) => Self::Applied(object.clone()),
            Self::Deleted(tombstone) => Self::Deleted(tombstone.clone()),
            Self::Synced => Self::Synced,
        }
    }
}

impl<T: Stored + ?Sized> fmt::Debug for Subscribe<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscribe").field("with_initial_state", &self.with_initial_state).finish_non_exhaustive()
    }
}

impl<T: Stored + ?Sized> fmt::Debug for Subscriber<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriber").field("lag", &self.lag()).finish_non_exhaustive()
    }
}

/// What a subscriber and a store share. The store changes it under its writer's lock.
pub(super) struct Subscription<T: Stored + ?Sized> {
    route: Option<Box<dyn Route<T>>>,
    namespace: Option<String>,
    filters: Vec<Filter<T>>,
    queue: Mutex<Queue<T::Decoded>>,
}

/// What one is yet to be told.
struct Queue<D> {
    /// What is pending, in the order in which it came; some of it is void since.
    order: VecDeque<(Ticket, What)>,
    /// By slot.
    pending: HashMap<u32, Pending<D>>,
    /// How much of `pending` there is.
    lag: usize,
    tickets: Ticket,
    /// Slots of what the subscriber was told to be there.
    announced: FixedBitSet,
    /// How far what was there is looked at; `None` behind it.
    looked_at: Option<u32>,
    waker: Option<Waker>,
    /// The waker is to be woken.
    has_news: bool,
    is_closed: bool,
    has_panicked: bool,
    /// Of the filter.
    panic: Option<Box<dyn Any + Send>>,
}

/// Which place in the order is whose. Each is given once.
type Ticket = u64;

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Slot(u32),
    Synced,
}

/// What was told to be there and is gone, and what is there. An object that is created anew may have another slot, so both
/// have places of their own: the old one's end is told first.
struct Pending<D> {
    gone: Option<(Ticket, Gone<D>)>,
    there: Option<(Ticket, Arc<Entry<D>>)>,
}

struct Gone<D> {
    last: Arc<Entry<D>>,
    final_state_unknown: bool,
}

enum Told<D> {
    Applied(Arc<Entry<D>>),
    Deleted(Gone<D>),
    Synced,
}

impl<T: Stored + ?Sized> Subscription<T> {
    /// Whether the filter passes the object, which the slot has already. After it panicked, none does.
    fn wants(&self, slot: u32, object: &ObjectRef<'_, T>) -> bool {
        if self.namespace.as_ref().is_some_and(|namespace| object.identity().namespace != *namespace) {
            return false;
        }
        if self.filters.is_empty() && self.route.is_none() {
            return true;
        }
        if lock(&self.queue).has_panicked {
            return false;
        }
        let passes = || {
            self.route.as_ref().is_none_or(|route| route.has(slot)) && self.filters.iter().all(|filter| filter(object))
        };
        catch_unwind(AssertUnwindSafe(passes)).unwrap_or_else(|panic| {
            let mut queue = lock(&self.queue);
            queue.panic = Some(panic);
            queue.has_panicked = true;
            queue.close();
            false
        })
    }

    fn put(
        &self,
        slot: u32,
        old: Option<&Arc<Entry<T::Decoded>>>,
        new: &Arc<Entry<T::Decoded>>,
        object: &ObjectRef<'_, T>,
    ) -> Option<Waker> {
        let wants = self.wants(slot, object);
        let mut queue = lock(&self.queue);
        match old {
            _ if queue.is_closed => {}
            _ if wants => queue.put(slot, new),
            Some(old) => queue.leave(slot, old),
            None => {}
        }
        queue.due_waker()
    }

    fn remove(&self, slot: u32, last: &Arc<Entry<T::Decoded>>, final_state_unknown: bool) -> Option<Waker> {
        let mut queue = lock(&self.queue);
        if !queue.is_closed {
            queue.remove(slot, last, final_state_unknown);
        }
        queue.due_waker()
    }

    fn close(&self) -> Option<Waker> {
        let mut queue = lock(&self.queue);
        queue.close();
        queue.due_waker()
    }

    fn resynced(&self) -> Option<Waker> {
        let mut queue = lock(&self.queue);
        queue.resynced();
        queue.due_waker()
    }

    /// One that does not begin with what is there knows it.
    pub(super) fn is_known(&self, slot: u32, object: &Object<T>) {
        if self.wants_object(slot, object) {
            lock(&self.queue).announced.grow_and_insert(slot as usize);
        }
    }

    /// Returns the slots of the objects that may pass its filters, out of `slots` slots.
    pub(super) fn slots(&self, slots: u32) -> Box<dyn Iterator<Item = u32>> {
        match &self.route {
            Some(route) => Box::new(route.slots().into_iter()),
            None => Box::new(0..slots),
        }
    }

    pub(super) fn looked_at(&self) -> Option<u32> {
        lock(&self.queue).looked_at
    }

    pub(super) fn wants_object(&self, slot: u32, object: &Object<T>) -> bool {
        self.wants(slot, &ObjectRef::kept(&object.identity(), object))
    }

    /// Tells of an object that is there, unless that is done. Whether it is wanted may be known.
    pub(super) fn look_at(&self, slot: u32, object: &Object<T>, wanted: Option<bool>) {
        if lock(&self.queue).knows(slot) || !wanted.unwrap_or_else(|| self.wants_object(slot, object)) {
            return;
        }
        lock(&self.queue).put(slot, &object.entry());
    }

    /// Tells once more of an object that it was told of, unless there is news of it anyway.
    #[cfg(feature = "client")]
    pub(super) fn tell_again(&self, slot: u32, object: &Object<T>) {
        let mut queue = lock(&self.queue);
        if queue.announced.contains(slot as usize) && !queue.pending.contains_key(&slot) {
            queue.put(slot, &object.entry());
        }
    }

    pub(super) fn looked_up_to(&self, slot: Option<u32>, is_synced: bool) {
        let mut queue = lock(&self.queue);
        queue.looked_at = slot;
        if is_synced {
            queue.resynced();
        }
    }
}

impl<D> Queue<D> {
    fn put(&mut self, slot: u32, entry: &Arc<Entry<D>>) {
        let pending = self.pending.entry(slot).or_insert(Pending { gone: None, there: None });
        match &mut pending.there {
            Some((_, there)) => *there = Arc::clone(entry),
            none => {
                *none = Some((self.tickets, Arc::clone(entry)));
                self.queue(slot);
            }
        }
    }

    /// Its state does not pass the filter any more.
    fn leave(&mut self, slot: u32, old: &Arc<Entry<D>>) {
        let there = self.pending.get(&slot).and_then(|pending| pending.there.as_ref());
        let last = Arc::clone(there.map_or(old, |(_, there)| there));
        self.remove(slot, &last, false);
    }

    fn remove(&mut self, slot: u32, last: &Arc<Entry<D>>, final_state_unknown: bool) {
        if let Slot::Occupied(mut found) = self.pending.entry(slot)
            && found.get_mut().there.take().is_some()
        {
            self.lag -= 1;
            if found.get().gone.is_none() {
                found.remove();
            }
        }
        if self.announced.contains(slot as usize) {
            self.announced.remove(slot as usize);
            let gone = Gone { last: Arc::clone(last), final_state_unknown };
            self.pending.insert(slot, Pending { gone: Some((self.tickets, gone)), there: None });
            self.queue(slot);
        }
    }

    fn queue(&mut self, slot: u32) {
        self.order.push_back((self.tickets, What::Slot(slot)));
        self.tickets += 1;
        self.lag += 1;
        if self.order.len() > 2 * self.lag + KEPT_QUEUE {
            let pending = &self.pending;
            let is_valid = |ticket, slot| pending.get(&slot).is_some_and(|pending: &Pending<D>| pending.has(ticket));
            let mut last = None;
            self.order.retain(|&(ticket, what)| {
                let stays = match what {
                    What::Slot(slot) => is_valid(ticket, slot),
                    What::Synced => last != Some(What::Synced),
                };
                last = if stays { Some(what) } else { last };
                stays
            });
        }
        self.has_news = true;
    }

    fn resynced(&mut self) {
        // Those who are not through with what is there are told then.
        if self.looked_at.is_none() && self.order.back().is_none_or(|(_, what)| *what != What::Synced) {
            self.order.push_back((self.tickets, What::Synced));
            self.has_news = true;
        }
    }

    fn knows(&self, slot: u32) -> bool {
        self.announced.contains(slot as usize) || self.pending.get(&slot).is_some_and(|pending| pending.there.is_some())
    }

    fn next(&mut self) -> Option<Told<D>> {
        while let Some((ticket, what)) = self.order.pop_front() {
            let What::Slot(slot) = what else { return Some(Told::Synced) };
            let Slot::Occupied(mut found) = self.pending.entry(slot) else { continue };
            if !found.get().has(ticket) {
                continue;
            }
            self.lag -= 1;
            let told = match found.get_mut().gone.take() {
                Some((_, gone)) => Told::Deleted(gone),
                None => match found.get_mut().there.take() {
                    Some((_, entry)) => {
                        self.announced.grow_and_insert(slot as usize);
                        Told::Applied(entry)
                    }
                    None => continue,
                },
            };
            if found.get().there.is_none() {
                found.remove();
            }
            return Some(told);
        }
        if self.pending.capacity() > KEPT_QUEUE {
            (self.order, self.pending) = Default::default();
        }
        None
    }

    /// The waker, if there is news for it: to be woken when nothing is locked.
    fn due_waker(&mut self) -> Option<Waker> {
        self.waker.take_if(|_| self.has_news)
    }

    fn close(&mut self) {
        self.is_closed = true;
        self.has_news = true;
    }
}

impl<D> Pending<D> {
    fn has(&self, ticket: Ticket) -> bool {
        self.gone.as_ref().is_some_and(|(gone, _)| *gone == ticket)
            || self.there.as_ref().is_some_and(|(there, _)| *there == ticket)
    }
}

impl<D> Default for Queue<D> {
    fn default() -> Self {
        Self {
            order: VecDeque::new(),
            pending: HashMap::new(),
            lag: 0,
            tickets: 0,
            announced: FixedBitSet::new(),
            looked_at: None,
            waker: None,
            has_news: false,
            is_closed: false,
            has_panicked: false,
            panic: None,
        }
    }
}

/// All subscribers of a store.
pub(super) struct Subscribers<T: Stored + ?Sized> {
    all: Vec<Weak<Subscription<T>>>,
    /// The number of subscriptions at which dropped ones are removed.
    full: usize,
    /// Subscriptions that every write notifies.
    unrouted: Vec<Weak<Subscription<T>>>,
    by_namespace: HashMap<String, Vec<Weak<Subscription<T>>>>,
    /// Nothing will be written any more.
    are_closed: bool,
    /// To be woken once nothing is locked any more.
    wakers: Vec<Waker>,
}

const FEW: usize = 64;

impl<T: Stored + ?Sized> Subscribers<T> {
    pub(super) fn new() -> Self {
        Self {
            all: Vec::new(),
            full: FEW,
            unrouted: Vec::new(),
            by_namespace: HashMap::new(),
            are_closed: false,
            wakers: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, subscription: &Arc<Subscription<T>>) {
        if self.are_closed {
            self.wakers.extend(subscription.close());
            return;
        }
        if self.all.len() >= self.full {
            self.all.retain(|known| known.strong_count() > 0);
            self.full = (2 * self.all.len()).max(FEW);
            self.unrouted.retain(|known| known.strong_count() > 0);
            self.by_namespace.retain(|_, list| list.iter().any(|known| known.strong_count() > 0));
        }
        self.all.push(Arc::downgrade(subscription));
        let list = match (&subscription.route, &subscription.namespace) {
            (Some(route), _) => return route.add(subscription),
            (None, Some(namespace)) => self.by_namespace.entry(namespace.clone()).or_default(),
            (None, None) => &mut self.unrouted,
        };
        list.push(Arc::downgrade(subscription));
    }

    /// Ends all subscriptions, and those that are added later once they have delivered their initial state.
    pub(super) fn close(&mut self) {
        each(&mut self.all, &mut self.wakers, &mut Subscription::close);
        (self.all, self.unrouted) = Default::default();
        self.by_namespace.clear();
        self.are_closed = true;
    }

    /// Subscriptions that are added from now on are notified of writes again.
    #[cfg(feature = "client")]
    pub(super) fn reopen(&mut self) {
        self.are_closed = false;
    }

    /// `routed` are the subscribers to what an index has of the object, or had.
    pub(super) fn put(
        &mut self,
        slot: u32,
        old: Option<&Arc<Entry<T::Decoded>>>,
        new: &Arc<Entry<T::Decoded>>,
        object: &ObjectRef<'_, T>,
        routed: &[Arc<Subscription<T>>],
    ) {
        let namespace = &object.identity().namespace;
        self.tell(namespace, routed, |subscription| subscription.put(slot, old, new, object));
    }

    pub(super) fn remove(
        &mut self,
        slot: u32,
        last: &Arc<Entry<T::Decoded>>,
        final_state_unknown: bool,
        routed: &[Arc<Subscription<T>>],
    ) {
        let namespace = &last.identity().namespace;
        self.tell(namespace, routed, |subscription| subscription.remove(slot, last, final_state_unknown));
    }

    pub(super) fn resynced(&mut self) {
        each(&mut self.all, &mut self.wakers, &mut Subscription::resynced);
    }

    fn tell(
        &mut self,
        namespace: &str,
        routed: &[Arc<Subscription<T>>],
        mut tell: impl FnMut(&Subscription<T>) -> Option<Waker>,
    ) {
        each(&mut self.unrouted, &mut self.wakers, &mut tell);
        if let Some(list) = self.by_namespace.get_mut(namespace) {
            each(list, &mut self.wakers, &mut tell);
        }
        self.wakers.extend(routed.iter().filter_map(|subscription| tell(subscription)));
    }

    pub(super) fn take_wakers(&mut self) -> Wakers {
        Wakers(mem::take(&mut self.wakers))
    }
}

fn each<T: Stored + ?Sized>(
    list: &mut Vec<Weak<Subscription<T>>>,
    wakers: &mut Vec<Waker>,
    tell: &mut impl FnMut(&Subscription<T>) -> Option<Waker>,
) {
    list.retain(|subscription| {
        let subscription = subscription.upgrade();
        wakers.extend(subscription.as_ref().and_then(|subscription| tell(subscription)));
        subscription.is_some()
    });
}

impl<T: Stored + ?Sized> Drop for Subscribers<T> {
    fn drop(&mut self) {
        self.close();
        self.take_wakers();
    }
}

/// Woken when they are dropped.
#[derive(Default)]
pub(super) struct Wakers(Vec<Waker>);

impl Drop for Wakers {
    fn drop(&mut self) {
        self.0.drain(..).for_each(Waker::wake);
    }
}
