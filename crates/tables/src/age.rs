//! Ages and durations, as kubectl prints them.

use jiff::Timestamp;

/// What the server prints in place of an age that is not known.
pub(crate) const UNKNOWN: &str = "<unknown>";

/// The seconds of Go's zero time, the first of January of the year 1.
const ZERO_TIME: i64 = -62_135_596_800;

/// The seconds of Go's longest duration, 292 years.
const LONGEST: i64 = i64::MAX / 1_000_000_000;

/// Returns the time from `since` to `now`, as `translateTimestampSince` of `k8s.io/kubernetes/pkg/printers` prints it.
///
/// `None` and Go's zero time are `<unknown>`. A time that is more than a second ahead is `<invalid>`.
#[must_use]
pub fn age_at(now: Timestamp, since: Option<Timestamp>) -> String {
    match since {
        Some(since) if since.as_second() != ZERO_TIME => {
            human_duration(now.duration_since(since).as_secs().clamp(-LONGEST, LONGEST))
        }
        _ => UNKNOWN.to_owned(),
    }
}

/// Returns a number of seconds as kubectl prints it: `5m30s`, `2d4h`. The rules are those of `HumanDuration` in
/// `k8s.io/apimachinery/pkg/util/duration`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_ages_as_kubectl() {
        let time = |seconds, nanos| Timestamp::new(seconds, nanos).ok();
        let now = Timestamp::new(1_800_000_000, 700_000_000).unwrap();
        for (created, expected) in [
            (None, "<unknown>"),
            (time(ZERO_TIME, 0), "<unknown>"),
            (time(1_800_000_000, 0), "0s"),
            (time(1_799_999_999, 0), "1s"),
            (time(1_799_999_999, 800_000_000), "0s"),
            // The clock of the server is ahead, by less than two seconds or more.
            (time(1_800_000_002, 0), "0s"),
            (time(1_800_000_002, 600_000_000), "0s"),
            (time(1_800_000_002, 700_000_000), "<invalid>"),
            (time(1_800_000_003, 0), "<invalid>"),
            (Some(Timestamp::MAX), "<invalid>"),
            (time(-14_182_940, 0), "57y"),
            (time(ZERO_TIME + 1, 0), "292y"),
            (Some(Timestamp::MIN), "292y"),
        ] {
            assert_eq!(age_at(now, created), expected, "{created:?}");
        }
    }

    #[test]
    fn prints_durations_as_kubectl() {
        for (seconds, expected) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (10_860, "3h1m"),
            (28_800, "8h"),
            (172_799, "47h"),
            (172_800, "2d"),
            (180_000, "2d2h"),
            (691_200, "8d"),
            (63_071_999, "729d"),
            (63_072_000, "2y"),
            (63_158_400, "2y1d"),
            (252_288_000, "8y"),
        ] {
            assert_eq!(human_duration(seconds), expected, "{seconds}");
        }
    }
}
