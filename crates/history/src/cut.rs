//! Points in a history: versions, times, and what is known between them.

use std::error::Error;
use std::fmt;

use jiff::Timestamp;
use listwatch::compare_resource_versions;

/// A point in a history.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Point {
    /// The collection at a resource version, as a list with `resourceVersionMatch=Exact` returns it.
    Version(String),
    /// The changes that were received up to this time.
    Time(Timestamp),
    /// The newest recorded state.
    Newest,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => write!(f, "version {version}"),
            Self::Time(time) => f.write_str(&utc(*time)),
            Self::Newest => f.write_str("now"),
        }
    }
}

/// A span of a collection in which the history knows each version and each moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Span {
    /// The number of the first change, or of the next one if there is none.
    pub(crate) first_seq: u64,
    /// The version at which the span begins.
    pub first_version: String,
    /// When the span begins.
    pub first_time: Timestamp,
    /// The version up to which all changes are known.
    pub last_version: String,
    /// The version from which a watch resumes, which may be older.
    pub(crate) resume_version: String,
    /// When the last event or bookmark was received. Nothing is known after it.
    pub last_time: Timestamp,
}

impl Span {
    pub(crate) fn has_version(&self, version: &str) -> bool {
        is_at_most(&self.first_version, version) && is_at_most(version, &self.last_version)
    }

    pub(crate) fn has_time(&self, time: Timestamp) -> bool {
        self.first_time <= time && time <= self.last_time
    }
}

/// Returns true if the first version is not newer. Versions without an order are equal to themselves only.
pub(crate) fn is_at_most(first: &str, second: &str) -> bool {
    first == second || compare_resource_versions(first, second).is_some_and(std::cmp::Ordering::is_le)
}

/// Why the state at a point is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    pub(crate) collection: String,
    pub(crate) point: Point,
    /// The end of the last span before the point.
    pub(crate) before: Option<(String, Timestamp)>,
    /// The beginning of the first span after the point.
    pub(crate) after: Option<(String, Timestamp)>,
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { collection, point, before, after } = self;
        write!(f, "the state of {collection} at {point} is unknown: ")?;
        let known = |(version, time): &(String, Timestamp)| format!("version {version} at {}", utc(*time));
        match (before, after) {
            (Some(before), Some(after)) => {
                write!(f, "nothing was recorded between {} and {}", known(before), known(after))
            }
            (Some(before), None) => write!(f, "the last that was recorded is {}", known(before)),
            (None, Some(after)) => write!(f, "the first that was recorded is {}", known(after)),
            (None, None) => f.write_str("nothing was recorded"),
        }
    }
}

impl Error for Unknown {}

/// Returns a time in UTC, to the millisecond.
fn utc(time: Timestamp) -> String {
    format!("{time:.3}")
}
