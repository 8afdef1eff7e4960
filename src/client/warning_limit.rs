//! The limit on warnings that a server or a reader can repeat at will.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::time::Duration;

use tokio::time::Instant;

use crate::sync::{Mutex, lock};

/// Within this time, an identical warning is logged only once.
const PERIOD: Duration = Duration::from_secs(60);

/// How many different warnings are logged within that time.
const MOST: usize = 100;

/// Limits the warnings that a peer can repeat: each text is logged at most once a minute, and at most 100 texts are.
///
/// It keeps only a hash of each text.
#[derive(Debug, Default)]
pub struct WarningLimit {
    hasher: RandomState,
    logged: Mutex<HashMap<u64, LoggedWarning>>,
}

#[derive(Debug)]
struct LoggedWarning {
    at: Instant,
    /// How many identical warnings followed since then.
    left_out: u64,
}

impl WarningLimit {
    /// Returns how many identical warnings were left out since the last one was logged; `None` to leave this one out
    /// too.
    #[must_use]
    pub fn admit(&self, warning: impl Hash) -> Option<u64> {
        let (key, now) = (self.hasher.hash_one(warning), Instant::now());
        let mut logged = lock(&self.logged);
        if let Some(known) = logged.get_mut(&key) {
            if now.duration_since(known.at) < PERIOD {
                known.left_out += 1;
                return None;
            }
            let LoggedWarning { left_out, .. } = std::mem::replace(known, LoggedWarning { at: now, left_out: 0 });
            return Some(left_out);
        }
        if logged.len() >= MOST {
            logged.retain(|_, known| now.duration_since(known.at) < PERIOD);
        }
        if logged.len() >= MOST {
            return None;
        }
        logged.insert(key, LoggedWarning { at: now, left_out: 0 });
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn admits_an_identical_warning_once_a_minute_and_a_hundred_texts() {
        let limit = WarningLimit::default();
        let admit = |text: &str| limit.admit(("server_warning", text));
        assert_eq!([admit("a"), admit("a"), admit("b"), admit("a")], [Some(0), None, Some(0), None]);
        advance(PERIOD).await;
        assert_eq!([admit("a"), admit("b"), admit("a")], [Some(2), Some(0), None]);
        let others = || (0..1000).filter(|n| admit(&n.to_string()).is_some()).count();
        assert_eq!((others(), others()), (MOST - 2, 0));
        advance(PERIOD).await;
        assert_eq!(others(), MOST);
    }
}
