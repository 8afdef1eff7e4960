//! A clock that never goes back.

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};

/// A larger difference between two clocks is a step, and not drift.
const STEP: SignedDuration = SignedDuration::from_secs(1);

/// The wall clock, without its steps backwards.
///
/// Times of a history order its changes, so a clock that is set back must not reorder them. This clock then continues
/// by the monotonic clock until the wall clock has caught up. A step forwards is followed.
#[derive(Debug)]
pub struct SteadyClock {
    anchor: Timestamp,
    started: Instant,
    is_ahead: bool,
}

impl Default for SteadyClock {
    fn default() -> Self {
        Self { anchor: Timestamp::now(), started: Instant::now(), is_ahead: false }
    }
}

impl SteadyClock {
    /// Returns the time. A step of the wall clock is logged.
    pub fn now(&mut self) -> Timestamp {
        self.read(Timestamp::now(), self.started.elapsed())
    }

    fn read(&mut self, wall: Timestamp, elapsed: Duration) -> Timestamp {
        let steady = self.anchor.saturating_add(SignedDuration::try_from(elapsed).unwrap_or(SignedDuration::ZERO));
        let steady = steady.unwrap_or(wall);
        let difference = wall.duration_since(steady);
        if difference > STEP {
            tracing::warn!(name: "listwatch.history.clock", seconds = difference.as_secs(), "the clock was set forwards");
            self.anchor = self.anchor.saturating_add(difference).unwrap_or(self.anchor);
            return wall;
        }
        let is_ahead = difference < -STEP;
        if is_ahead && !self.is_ahead {
            let seconds = -difference.as_secs();
            tracing::warn!(name: "listwatch.history.clock", seconds, "the clock was set back: times stay ahead of it");
        }
        self.is_ahead = is_ahead;
        steady
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_the_wall_clock_do_not_reorder() {
        let start = Timestamp::from_second(1_000_000).unwrap();
        let mut clock = SteadyClock { anchor: start, started: Instant::now(), is_ahead: false };
        let second = |seconds: i64| Timestamp::from_second(1_000_000 + seconds).unwrap();
        // The monotonic time, the wall clock, and the time of the history.
        for (elapsed, wall, expected) in [
            (0, 0, 0),
            (10, 10, 10),
            // Set back by an hour, and again by a little.
            (20, 20 - 3600, 20),
            (30, 30 - 3605, 30),
            // It has caught up.
            (3630, 3630, 3630),
            // Set forwards.
            (3640, 9000, 9000),
            (3650, 9010, 9010),
            // And back to where it was.
            (3660, 3660, 9020),
        ] {
            assert_eq!(clock.read(second(wall), Duration::from_secs(elapsed)), second(expected), "{elapsed}");
        }
    }
}
