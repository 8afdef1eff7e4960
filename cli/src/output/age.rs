//! Ages of objects, as kubectl prints them.

use std::time::{Duration, SystemTime};

use listwatch::Time;

/// What kubectl prints in place of an age that is negative.
pub const INVALID_AGE: &str = "<invalid>";

/// The seconds of Go's zero time, the first of January of the year 1.
const ZERO_TIME: i64 = -62_135_596_800;

/// Returns the time since `created` as kubectl prints it: `translateTimestampSince` in
/// `k8s.io/kubernetes/pkg/printers`.
pub fn age_since(created: Option<Time>) -> String {
    age_at(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default(), created)
}

/// Returns the age at a time since 1970.
fn age_at(now: Duration, created: Option<Time>) -> String {
    let Some(created) = created.filter(|created| *created != Time { seconds: ZERO_TIME, nanos: 0 }) else {
        return "<unknown>".to_owned();
    };
    let created = i128::from(created.seconds) * 1_000_000_000 + i128::from(created.nanos);
    let nanos = i128::try_from(now.as_nanos()).unwrap_or(i128::MAX) - created;
    // A duration of Go ends at 292 years.
    let nanos = i64::try_from(nanos).unwrap_or(if nanos < 0 { i64::MIN } else { i64::MAX });
    human_duration(nanos / 1_000_000_000)
}

/// Returns a number of seconds as `HumanDuration` in `k8s.io/apimachinery/pkg/util/duration` prints it.
fn human_duration(seconds: i64) -> String {
    let two = |large: i64, large_unit: &str, small: i64, small_unit: &str| match small {
        0 => format!("{large}{large_unit}"),
        small => format!("{large}{large_unit}{small}{small_unit}"),
    };
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        // The server's clock may be a second ahead.
        ..-1 => INVALID_AGE.to_owned(),
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
    use std::time::Duration;

    use listwatch::Time;

    #[test]
    fn prints_ages_relative_to_the_clock_as_kubectl_does() {
        let now = Duration::new(1_800_000_000, 700_000_000);
        let time = |seconds, nanos| Some(Time { seconds, nanos });
        for (created, expected) in [
            (None, "<unknown>"),
            (time(super::ZERO_TIME, 0), "<unknown>"),
            (time(1_800_000_000, 0), "0s"),
            (time(1_799_999_999, 0), "1s"),
            (time(1_799_999_999, 800_000_000), "0s"),
            // The clock of the server is ahead, by less than two seconds or more.
            (time(1_800_000_002, 0), "0s"),
            (time(1_800_000_002, 600_000_000), "0s"),
            (time(1_800_000_002, 700_000_000), "<invalid>"),
            (time(1_800_000_003, 0), "<invalid>"),
            (time(253_402_300_799, 0), "<invalid>"),
            (time(i64::MAX, 999_999_999), "<invalid>"),
            (time(-14_182_940, 0), "57y"),
            (time(super::ZERO_TIME + 1, 0), "292y"),
            (time(i64::MIN, 0), "292y"),
        ] {
            assert_eq!(super::age_at(now, created), expected, "{created:?}");
        }
    }

    #[test]
    fn prints_ages_as_kubectl_does() {
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
            assert_eq!(super::human_duration(seconds), expected, "{seconds}");
        }
    }
}
