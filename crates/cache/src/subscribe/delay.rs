//! Deletions that a subscriber delivers later.
//!
//! The subscriber holds them rather than its queue, so writers never look at them and no lock protects them. A deletion
//! waits from the time at which the consumer would have received it.
//!
//! A late deletion must not hide a new object of the same key. An addition therefore takes the deletion that is held,
//! and becomes an update: to the consumer, which has not received the deletion, the object was never gone.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use listwatch::internal::Timer;
use tokio::time::Instant;

use crate::key::ObjectKey;
use crate::subscribe::queue::{Delivery, PendingDeletion};
use crate::subscribe::resync::LONGEST;

pub(crate) struct DelayedDeletions {
    delay: Duration,
    /// Each deletion, with the time at which it is due.
    held: HashMap<Arc<ObjectKey>, (Instant, PendingDeletion)>,
    /// The keys of `held`, by time.
    due: BTreeSet<(Instant, Arc<ObjectKey>)>,
    timer: Timer,
}

impl DelayedDeletions {
    /// Returns `None` for a delay of zero.
    pub(crate) fn new(delay: Duration) -> Option<Self> {
        let delay = (!delay.is_zero()).then_some(delay.min(LONGEST))?;
        Some(Self { delay, held: HashMap::new(), due: BTreeSet::new(), timer: Timer::default() })
    }

    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    pub(crate) fn get(&self, key: &ObjectKey) -> Option<&PendingDeletion> {
        self.held.get(key).map(|(_, deletion)| deletion)
    }

    /// Holds a deletion, and returns any other change.
    pub(crate) fn hold_deletion(&mut self, delivery: Delivery) -> Option<Delivery> {
        match delivery {
            Delivery::Deleted(deletion) => {
                let (key, at) = (Arc::new(deletion.last.identity().key()), Instant::now() + self.delay);
                self.due.insert((at, Arc::clone(&key)));
                self.held.insert(key, (at, deletion));
                None
            }
            Delivery::Applied { old: None, new } if !self.held.is_empty() => {
                let old = self.remove(&new.identity().key()).map(|deletion| deletion.old);
                Some(Delivery::Applied { old, new })
            }
            other => Some(other),
        }
    }

    fn remove(&mut self, key: &ObjectKey) -> Option<PendingDeletion> {
        let (key, (at, deletion)) = self.held.remove_entry(key)?;
        self.due.remove(&(at, key));
        Some(deletion)
    }

    /// Returns the next deletion that is due.
    pub(crate) fn pop_due(&mut self) -> Option<Delivery> {
        let (at, _) = self.due.first()?;
        (*at <= Instant::now()).then(|| self.pop())?
    }

    pub(crate) fn pop(&mut self) -> Option<Delivery> {
        let (_, key) = self.due.pop_first()?;
        let (_, deletion) = self.held.remove(&key)?;
        if self.held.is_empty() {
            self.held = HashMap::new();
        }
        Some(Delivery::Deleted(deletion))
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some((at, _)) = self.due.first() else { return Poll::Pending };
        self.timer.poll(*at, cx)
    }
}
