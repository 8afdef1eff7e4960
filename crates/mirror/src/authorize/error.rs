//! Why a review has no result.

use std::fmt;

use crate::fairness::PoolFull;

/// A review failed, so that nothing is known about the token or the right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ReviewError {
    /// Too many reviews wait.
    TooMany,
    /// The API server cannot be reached, does not answer in time, or is overloaded.
    Unanswered(String),
    /// The API server refuses the review, or its answer is none.
    Failed(String),
}

impl ReviewError {
    pub(super) fn unanswered(reason: impl Into<String>) -> Self {
        Self::Unanswered(reason.into())
    }

    pub(super) fn failed(reason: impl Into<String>) -> Self {
        Self::Failed(reason.into())
    }
}

impl fmt::Display for ReviewError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooMany => "too many reviews",
            Self::Unanswered(reason) | Self::Failed(reason) => reason,
        })
    }
}

impl From<PoolFull> for ReviewError {
    fn from(PoolFull: PoolFull) -> Self {
        Self::TooMany
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_tells_why_a_review_failed() {
        assert_eq!(ReviewError::from(PoolFull).to_string(), "too many reviews");
        assert_eq!(ReviewError::failed("no answer within 10 s").to_string(), "no answer within 10 s");
    }
}
