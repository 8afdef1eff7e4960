//! Ages and durations, as kubectl prints them.

use jiff::Timestamp;

/// What the server prints in place of an age that is not known.
pub(crate) const UNKNOWN: &str = "<unknown>";

/// The seconds of Go's zero time, the first of January of the year 1.
const ZERO_TIME: i64 = -62_135_596_800;

/// Returns the time from `since` to `now`, as `translateTimestampSince` of `k8s.io/kubernetes/pkg/printers` prints it.
///
/// `None` and Go's zero time are `<unknown>`. A time that is more than a second ahead is `<invalid>`.
#[must_use]
pub fn age_at(now: Timestamp, since: Option<Timestamp>) -> String {
    match since {
        Some(since) if since.as_second() != ZERO_TIME => human_duration(now.duration_since(since).as_secs()),
        _ => UNKNOWN.to_owned(),
    }
}

/// Returns a number of seconds as `HumanDuration` of `k8s.io/apimachinery/pkg/util/duration` prints it: `5m30s`, `2d4h`.
#[must_use]
pub fn human_duration(seconds: i64) -> String {
    let two = |large: i64, large_unit: &str, small: i64, small_unit: &str| match small {
        0 => format!("{large}{large_unit}"),
        small => format!("{large}{large_unit}{small}{small_unit}"),
    };
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        // The clocks of two machines may differ by a second.
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, "d", hours % 24, "h"),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => two(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}
