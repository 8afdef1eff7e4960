//! The bound of all times that a caller sets.

use std::time::Duration;

/// The longest time that is set: an `Instant` cannot hold the end of much longer times.
pub(super) const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
