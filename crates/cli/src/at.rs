//! Times of the past in options: `--at`, `--since`, `--to`.

use std::fmt;

use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, Zoned};
use listwatch_history::Point;

/// The units of a time before now, and their seconds.
const UNITS: [(char, i64); 4] = [('s', 1), ('m', 60), ('h', 3600), ('d', 86_400)];

const EXPECTED: &str = "expected a time such as 14:03, 2026-11-27T14:03Z, -15m or now";

/// Parses a point in a history as the user typed it.
pub fn parse_point(text: &str) -> Result<Point, String> {
    Ok(parse_time(text, &Zoned::now())?.map_or(Point::Newest, Point::Time))
}

/// Returns the time of a text; `None` for `now`.
fn parse_time(text: &str, now: &Zoned) -> Result<Option<Timestamp>, String> {
    if text == "now" {
        return Ok(None);
    }
    if let Some(before) = text.strip_prefix('-') {
        let unit = before.chars().last().and_then(|last| UNITS.iter().find(|(unit, _)| *unit == last));
        let (unit, seconds) = unit.ok_or_else(|| format!("{EXPECTED}; the units are s, m, h and d"))?;
        let number: u32 = before.trim_end_matches(*unit).parse().map_err(|_| EXPECTED.to_owned())?;
        let time = now.timestamp().saturating_sub(SignedDuration::from_secs(i64::from(number) * seconds));
        return time.map(Some).map_err(|error| error.to_string());
    }
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(Some(time));
    }
    let zone = now.time_zone();
    if let Ok(time) = text.parse::<Time>()
        && !text.contains('-')
    {
        // The last time that it was this time of day.
        let today = local(now.date().to_datetime(time), zone)?;
        if today <= now.timestamp() {
            return Ok(Some(today));
        }
        let yesterday = now.date().yesterday().map_err(|error| error.to_string())?;
        return local(yesterday.to_datetime(time), zone).map(Some);
    }
    let time: DateTime = text.parse().map_err(|_| EXPECTED.to_owned())?;
    local(time, zone).map(Some)
}

/// Returns the time of a local clock, unless the clock showed it twice or never.
fn local(time: DateTime, zone: &TimeZone) -> Result<Timestamp, String> {
    zone.to_ambiguous_timestamp(time).unambiguous().map_err(|_| {
        let name = zone.iana_name().unwrap_or("the local time zone");
        format!("{time} is ambiguous in {name}, because its clocks changed then: add an offset, as in {time}Z")
    })
}

/// Writes a time in the local zone, with the offset of the zone.
pub fn zoned(time: Timestamp) -> impl fmt::Display {
    time.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S%.3f %:z").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_times_of_the_past() {
        let berlin =
            |text: &str| text.parse::<DateTime>().unwrap().to_zoned(TimeZone::get("Europe/Berlin").unwrap()).unwrap();
        let now = berlin("2026-11-27T14:30:00");
        for (text, expected) in [
            ("now", None),
            ("14:03", Some("2026-11-27T13:03:00Z")),
            ("14:03:05", Some("2026-11-27T13:03:05Z")),
            // Yesterday.
            ("14:31", Some("2026-11-26T13:31:00Z")),
            ("2026-11-27T14:03Z", Some("2026-11-27T14:03:00Z")),
            ("2026-11-27T14:03:00+05:30", Some("2026-11-27T08:33:00Z")),
            ("2026-07-01T12:00", Some("2026-07-01T10:00:00Z")),
            ("2026-07-01 12:00:00.5", Some("2026-07-01T10:00:00.5Z")),
            ("2026-07-01", Some("2026-06-30T22:00:00Z")),
            ("-2h", Some("2026-11-27T11:30:00Z")),
            ("-90s", Some("2026-11-27T13:28:30Z")),
            ("-3d", Some("2026-11-24T13:30:00Z")),
            ("-15m", Some("2026-11-27T13:15:00Z")),
        ] {
            let expected = expected.map(|time| time.parse::<Timestamp>().unwrap());
            assert_eq!(parse_time(text, &now), Ok(expected), "{text}");
        }
        for (text, reason) in [
            // The clocks were set back from 3:00 to 2:00, and forwards from 2:00 to 3:00.
            ("2026-10-25T02:30", "2026-10-25T02:30:00 is ambiguous in Europe/Berlin"),
            ("2026-03-29T02:30", "2026-03-29T02:30:00 is ambiguous in Europe/Berlin"),
            ("", "expected a time such as"),
            ("yesterday", "expected a time such as"),
            ("-2", "the units are s, m, h and d"),
            ("-h", "expected a time such as"),
            ("-2w", "the units are s, m, h and d"),
            ("25:00", "expected a time such as"),
        ] {
            let refused = parse_time(text, &now).unwrap_err();
            assert!(refused.contains(reason), "{text}: {refused}");
        }
        let ambiguous = parse_time("2:30", &berlin("2026-10-25T14:00:00"));
        assert!(ambiguous.is_err() || ambiguous == parse_time("02:30", &berlin("2026-10-25T14:00:00")));
    }
}
