//! The schedule by which a subscriber gets objects again.

use std::ops::Range;
use std::task::{Context, Poll};
use std::time::Duration;

use listwatch::internal::Timer;
use tokio::time::Instant;

use crate::subscribe::queue::WALK_STEP;

/// The resolution of tokio's timers.
const SHORTEST: Duration = Duration::from_millis(1);

/// An `Instant` cannot hold the end of much longer periods.
pub(super) const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Walks through all slots once per period.
pub(crate) struct Resync {
    period: Duration,
    /// When this round began.
    began: Instant,
    /// The next slot of this round.
    next: u32,
    /// The number of slots at the last call of `due`.
    slots: u32,
    timer: Timer,
}

impl Resync {
    /// Returns `None` for a period of zero.
    pub(crate) fn new(period: Duration) -> Option<Self> {
        let period = (!period.is_zero()).then_some(period.clamp(SHORTEST, LONGEST))?;
        Some(Self { period, began: Instant::now(), next: 0, slots: 0, timer: Timer::default() })
    }

    /// Returns the slots that are due, of `slots` in total: at most [`WALK_STEP`].
    pub(crate) fn due(&mut self, slots: u32) -> Option<Range<u32>> {
        self.slots = slots;
        let at = self.next_at();
        let now = Instant::now();
        if now < at {
            return None;
        }
        let due = self.next..self.up_to();
        self.next = due.end;
        if self.next >= slots {
            // Rounds that the consumer missed are left out.
            self.began = if now < at + self.period { at } else { now };
            self.next = 0;
        }
        Some(due)
    }

    /// Waits until the next slots are due.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.timer.poll(self.next_at(), cx)
    }

    fn up_to(&self) -> u32 {
        self.next.saturating_add(WALK_STEP).min(self.slots).max(self.next)
    }

    fn next_at(&self) -> Instant {
        let part = if self.slots == 0 { 1.0 } else { f64::from(self.up_to()) / f64::from(self.slots) };
        self.began + self.period.mul_f64(part)
    }
}
