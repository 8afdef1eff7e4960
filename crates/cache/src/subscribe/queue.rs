//! The pending changes of one subscriber, with one entry for each object.
//!
//! A slow subscriber must neither delay writers nor keep all states of an object. Changes of one object are therefore
//! coalesced: an entry contains the state that the subscriber received, and the latest state. The number of objects
//! bounds the memory.
//!
//! - A change has a ticket, which orders it among the changes of all objects. A later change of the object keeps the
//!   ticket, so an object that changes often is not delayed.
//! - An entry of the order is void once its change was delivered or withdrawn. Void entries are removed in bulk,
//!   because searching for each of them would cost more.
//! - A slot may receive another object while the deletion of the first is pending. The two then have separate tickets,
//!   and the deletion is delivered first.
//! - An object that was added and deleted before it was delivered leaves no change, because only announced objects are
//!   deleted.
//! - The waker is taken under the lock of the queue, and woken after all locks were released.

use std::any::Any;
use std::collections::hash_map::Entry as Slot;
use std::collections::{HashMap, VecDeque};
use std::mem;
use std::task::Waker;

use fixedbitset::FixedBitSet;

use crate::error::EndReason;
use crate::state::entry::Entry;

/// How many objects of the initial state a subscriber reads in one step.
pub(crate) const WALK_STEP: u32 = 64;

/// A longer queue is freed once it is empty.
const KEPT_QUEUE: usize = 64;

pub(crate) struct ChangeQueue {
    /// The pending changes in the order of their tickets. Some entries are void.
    order: VecDeque<(Ticket, QueuedItem)>,
    /// By slot.
    pending: HashMap<u32, PendingChange>,
    /// The number of changes in `pending`.
    pub(crate) lag: usize,
    tickets: Ticket,
    /// The slots of the objects that the subscriber has received, or that were stored when it was registered.
    announced: FixedBitSet,
    /// The walk over the objects that were stored when the subscriber was registered; `None` when it is over.
    pub(crate) walk: Option<InitialWalk>,
    pub(crate) waker: Option<Waker>,
    /// True if the waker must be woken.
    pub(crate) has_news: bool,
    pub(crate) is_closed: bool,
    /// Why the queue was closed, until the subscriber learns it.
    pub(crate) reason: Option<EndReason>,
    pub(crate) has_panicked: bool,
    /// The panic of a filter, until the subscriber resumes it.
    pub(crate) panic: Option<Box<dyn Any + Send>>,
}

/// A walk over the stored objects. The filters run while others write.
pub(crate) struct InitialWalk {
    /// The slots of the objects that may pass; `None` for all slots.
    pub(crate) slots: Option<Vec<u32>>,
    pub(crate) at: u32,
    /// True if the walk delivers objects that pass; otherwise it only marks them as announced.
    pub(crate) delivers: bool,
    /// In a walk that does not deliver, the slots that were written before the walk reached them.
    pub(crate) written: FixedBitSet,
}

impl InitialWalk {
    pub(crate) fn new(slots: Option<Vec<u32>>, delivers: bool) -> Self {
        Self { slots, at: 0, delivers, written: FixedBitSet::new() }
    }

    /// Returns true if the walk has yet to reach the object that was in the slot when the subscriber was registered.
    fn is_before(&self, slot: u32) -> bool {
        match &self.slots {
            Some(slots) => slots.iter().skip(self.at as usize).any(|other| *other == slot),
            None => slot >= self.at,
        }
    }
}

/// The place of a change in the order. Each value is used once.
type Ticket = u64;

#[derive(Clone, Copy, PartialEq, Eq)]
enum QueuedItem {
    Slot(u32),
    Synced,
}

/// The deletion of an announced object, and the current state of the slot. A re-created object may get another slot,
/// and a new object may reuse this one, so the two have separate tickets, and the deletion is delivered first.
struct PendingChange {
    deletion: Option<(Ticket, PendingDeletion)>,
    update: Option<(Ticket, PendingUpdate)>,
}

pub(crate) struct PendingDeletion {
    /// The state that the subscriber has received.
    pub(crate) old: Entry,
    pub(crate) last: Entry,
    pub(crate) final_state_unknown: bool,
}

struct PendingUpdate {
    /// The state that the subscriber has received.
    old: Option<Entry>,
    new: Entry,
}

/// A change, with the entries of the objects.
pub(crate) enum Delivery {
    Applied { old: Option<Entry>, new: Entry },
    Deleted(PendingDeletion),
    Synced,
}

impl ChangeQueue {
    pub(crate) fn new() -> Self {
        Self {
            order: VecDeque::new(),
            pending: HashMap::new(),
            lag: 0,
            tickets: 0,
            announced: FixedBitSet::new(),
            walk: None,
            waker: None,
            has_news: false,
            is_closed: false,
            reason: None,
            has_panicked: false,
            panic: None,
        }
    }

    /// Notes that the store replaced `old` with a state that passes the filters.
    ///
    /// A change that `is_dropped` by the predicate adds no pending change of an announced object, but still replaces
    /// the latest state in one.
    pub(crate) fn put(&mut self, slot: u32, old: Option<&Entry>, new: &Entry, is_dropped: bool) {
        let is_announced = self.announced.contains(slot as usize);
        if let Some((_, update)) = self.pending.get_mut(&slot).and_then(|pending| pending.update.as_mut()) {
            update.new = new.clone();
        } else if !(is_announced && is_dropped) {
            let update = PendingUpdate { old: old.filter(|_| is_announced).cloned(), new: new.clone() };
            let pending = self.pending.entry(slot).or_insert(PendingChange { deletion: None, update: None });
            pending.update = Some((self.tickets, update));
            self.push(slot);
        }
    }

    /// Notes that the store keeps its current state in another form.
    pub(crate) fn change_form(&mut self, slot: u32, old: &Entry, new: &Entry) {
        if let Some((_, update)) = self.pending.get_mut(&slot).and_then(|pending| pending.update.as_mut())
            && update.new.is_same(old)
        {
            update.new = new.clone();
        }
    }

    /// Notes that the store replaced `old` with a state that does not pass the filters.
    pub(crate) fn remove_rejected(&mut self, slot: u32, old: &Entry) {
        let update = self.pending.get(&slot).and_then(|pending| pending.update.as_ref());
        let last = update.map_or(old, |(_, update)| &update.new).clone();
        self.remove(slot, old, &last, false);
    }

    /// Notes that the store removed `old`. The last state may be a newer one.
    pub(crate) fn remove(&mut self, slot: u32, old: &Entry, last: &Entry, final_state_unknown: bool) {
        let mut received = None;
        if let Slot::Occupied(mut found) = self.pending.entry(slot)
            && let Some((_, update)) = found.get_mut().update.take()
        {
            self.lag -= 1;
            received = update.old;
            if found.get().deletion.is_none() {
                found.remove();
            }
        }
        if self.announced.contains(slot as usize) {
            self.announced.remove(slot as usize);
            let old = received.unwrap_or_else(|| old.clone());
            let deletion = PendingDeletion { old, last: last.clone(), final_state_unknown };
            self.pending.insert(slot, PendingChange { deletion: Some((self.tickets, deletion)), update: None });
            self.push(slot);
        }
    }

    fn push(&mut self, slot: u32) {
        self.order.push_back((self.tickets, QueuedItem::Slot(slot)));
        self.tickets += 1;
        self.lag += 1;
        if self.order.len() > 2 * self.lag + KEPT_QUEUE {
            let pending = &self.pending;
            let is_valid = |ticket, slot| pending.get(&slot).is_some_and(|pending: &PendingChange| pending.has(ticket));
            let mut last = None;
            self.order.retain(|&(ticket, queued)| {
                let stays = match queued {
                    QueuedItem::Slot(slot) => is_valid(ticket, slot),
                    QueuedItem::Synced => last != Some(QueuedItem::Synced),
                };
                last = if stays { Some(queued) } else { last };
                stays
            });
        }
        self.has_news = true;
    }

    pub(crate) fn push_synced(&mut self) {
        // A subscriber that has not received the whole initial state receives `Synced` after it.
        let delivers = self.walk.as_ref().is_some_and(|walk| walk.delivers);
        if !delivers && self.order.back().is_none_or(|(_, queued)| *queued != QueuedItem::Synced) {
            self.order.push_back((self.tickets, QueuedItem::Synced));
            self.has_news = true;
        }
    }

    /// Records an object of the walk that passes the filters.
    pub(crate) fn add_walked(&mut self, slot: u32, entry: &Entry) {
        if self.walk.as_ref().is_some_and(|walk| walk.delivers) {
            self.put(slot, None, entry, false);
        } else {
            self.announced.grow_and_insert(slot as usize);
        }
    }

    /// Returns true if the slot is written for the first time, before a walk that does not deliver has reached it, so
    /// that it is unknown whether the subscriber knows the replaced object.
    pub(crate) fn is_first_write(&mut self, slot: u32) -> bool {
        let Some(walk) = self.walk.as_mut().filter(|walk| !walk.delivers) else { return false };
        let is_first = walk.is_before(slot) && !walk.written.contains(slot as usize);
        if is_first {
            walk.written.grow_and_insert(slot as usize);
        }
        is_first
    }

    /// Queues an announced object again, unless it has a pending change.
    pub(crate) fn requeue(&mut self, slot: u32, entry: &Entry) {
        if self.announced.contains(slot as usize) && !self.pending.contains_key(&slot) {
            self.put(slot, Some(entry), entry, false);
        }
    }

    /// Returns true if the walk may skip a slot.
    pub(crate) fn knows_object(&self, slot: u32) -> bool {
        let delivers = self.walk.as_ref().is_some_and(|walk| walk.delivers);
        let is_written = || self.walk.as_ref().is_some_and(|walk| walk.written.contains(slot as usize));
        let has_update = || self.pending.get(&slot).is_some_and(|pending| pending.update.is_some());
        self.announced.contains(slot as usize) || is_written() || delivers && has_update()
    }

    pub(crate) fn pop(&mut self) -> Option<Delivery> {
        while let Some((ticket, queued)) = self.order.pop_front() {
            let QueuedItem::Slot(slot) = queued else { return Some(Delivery::Synced) };
            let Slot::Occupied(mut found) = self.pending.entry(slot) else { continue };
            if !found.get().has(ticket) {
                continue;
            }
            self.lag -= 1;
            let pending = found.get_mut();
            let delivery = match (pending.deletion.take(), &mut pending.update) {
                (Some((_, deletion)), _) => Delivery::Deleted(deletion),
                (None, update) => match update.take() {
                    Some((_, PendingUpdate { old, new })) => {
                        self.announced.grow_and_insert(slot as usize);
                        Delivery::Applied { old, new }
                    }
                    None => continue,
                },
            };
            if found.get().update.is_none() {
                found.remove();
            }
            return Some(delivery);
        }
        if self.pending.capacity() > KEPT_QUEUE {
            (self.order, self.pending) = Default::default();
        }
        None
    }

    /// Returns the last state of an object whose deletion is pending. It looks through all pending changes.
    pub(crate) fn find_deleted(&self, key: (&str, &str)) -> Option<&Entry> {
        let deletions = self.pending.values().filter_map(|pending| pending.deletion.as_ref());
        deletions.map(|(_, deletion)| &deletion.last).find(|last| {
            let identity = last.identity();
            (&*identity.namespace, &*identity.name) == key
        })
    }

    /// Takes the waker if there is news. The caller wakes it after releasing all locks.
    pub(crate) fn due_waker(&mut self) -> Option<Waker> {
        self.waker.take_if(|_| self.has_news)
    }

    pub(crate) fn close(&mut self, reason: Option<EndReason>) {
        // The first reason stays.
        if !mem::replace(&mut self.is_closed, true) {
            self.reason = reason;
        }
        self.has_news = true;
    }
}

impl PendingChange {
    fn has(&self, ticket: Ticket) -> bool {
        self.deletion.as_ref().is_some_and(|(own, _)| *own == ticket)
            || self.update.as_ref().is_some_and(|(own, _)| *own == ticket)
    }
}
