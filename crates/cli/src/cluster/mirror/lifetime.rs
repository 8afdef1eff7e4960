//! Times in options, such as `10m`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A time that is a number of seconds, minutes or hours.
#[derive(Clone, Copy)]
pub struct LifetimeArg(pub Duration);

/// The units, and their seconds.
const UNITS: [(char, u64); 3] = [('h', 3600), ('m', 60), ('s', 1)];

impl FromStr for LifetimeArg {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = UNITS.iter().find_map(|(unit, seconds)| {
            let number: u32 = text.strip_suffix(*unit)?.parse().ok()?;
            Some(Duration::from_secs(u64::from(number) * seconds))
        });
        parsed.map(Self).ok_or("expected a number with a unit, such as 90s, 10m or 1h")
    }
}

impl fmt::Display for LifetimeArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let (unit, of_unit) =
            UNITS.into_iter().find(|(_, of_unit)| seconds.is_multiple_of(*of_unit)).unwrap_or(('s', 1));
        write!(f, "{}{unit}", seconds / of_unit)
    }
}
