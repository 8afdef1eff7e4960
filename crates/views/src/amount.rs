//! The numbers of quantities.

use std::error::Error;
use std::fmt;
use std::str::FromStr;

/// The exact number of a [`Quantity`](crate::Quantity), a multiple of 10⁻⁹.
///
/// A smaller part is rounded up, away from 0, as in Kubernetes. Amounts compare by their value: `0.1` equals `100m`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount {
    nanos: i128,
}

impl Amount {
    /// Returns the number, rounded up, away from 0, as Go's `Value`.
    #[must_use]
    pub fn value(self) -> i128 {
        away_from_zero(self.nanos, 1_000_000_000)
    }

    /// Returns the number of thousandths, rounded as [`value`](Self::value), as Go's `MilliValue`.
    #[must_use]
    pub fn milli_value(self) -> i128 {
        away_from_zero(self.nanos, 1_000_000)
    }

    /// Returns the exact number of billionths.
    #[must_use]
    pub fn nanos(self) -> i128 {
        self.nanos
    }

    /// Returns the number nearest to it, with an error of a few units in the last place.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "documented")]
    pub fn to_f64(self) -> f64 {
        self.nanos as f64 / 1e9
    }
}

fn away_from_zero(nanos: i128, unit: i128) -> i128 {
    nanos / unit + if nanos % unit == 0 { 0 } else { nanos.signum() }
}

/// The error of a text that is not a quantity, or is over the range of an [`Amount`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ParseAmountError;

impl fmt::Display for ParseAmountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a quantity: expected a decimal number with a suffix of Kubernetes, as in 500m and 1.5Gi")
    }
}

impl Error for ParseAmountError {}

/// Parses a quantity, in the grammar of `k8s.io/apimachinery/pkg/api/resource`.
impl FromStr for Amount {
    type Err = ParseAmountError;

    fn from_str(text: &str) -> Result<Self, ParseAmountError> {
        parse(text).map(|nanos| Self { nanos }).ok_or(ParseAmountError)
    }
}

fn parse(text: &str) -> Option<i128> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at_checked(end)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let (factor, exponent) = suffix_of(suffix)?;
    // The number is `digits` times `factor` times ten to the power of `exponent`.
    let mut digits = 0_i128;
    let fraction = fraction.trim_end_matches('0');
    for digit in whole.bytes().chain(fraction.bytes()) {
        digits = digits.checked_mul(10)?.checked_add((digit - b'0').into())?;
    }
    digits = digits.checked_mul(factor)?;
    let exponent = exponent.checked_sub(i32::try_from(fraction.len()).ok()?)?.checked_add(9)?;
    let nanos = if digits == 0 {
        0
    } else if exponent >= 0 {
        digits.checked_mul(10_i128.checked_pow(exponent.unsigned_abs())?)?
    } else {
        match 10_i128.checked_pow(exponent.unsigned_abs()) {
            Some(unit) => away_from_zero(digits, unit),
            // Rounded up to the smallest number.
            None => 1,
        }
    };
    Some(if text.starts_with('-') { -nanos } else { nanos })
}

/// Returns the factor and the power of ten of a suffix.
fn suffix_of(suffix: &str) -> Option<(i128, i32)> {
    Some(match suffix {
        "" => (1, 0),
        "n" => (1, -9),
        "u" => (1, -6),
        "m" => (1, -3),
        "k" => (1, 3),
        "M" => (1, 6),
        "G" => (1, 9),
        "T" => (1, 12),
        "P" => (1, 15),
        "E" => (1, 18),
        "Ki" => (1 << 10, 0),
        "Mi" => (1 << 20, 0),
        "Gi" => (1 << 30, 0),
        "Ti" => (1 << 40, 0),
        "Pi" => (1 << 50, 0),
        "Ei" => (1 << 60, 0),
        _ => (1, suffix.strip_prefix(['e', 'E'])?.parse().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_quantities_exactly() {
        for (text, nanos) in [
            ("0", Some(0)),
            ("1", Some(1_000_000_000)),
            ("-1", Some(-1_000_000_000)),
            ("+1.", Some(1_000_000_000)),
            (".5", Some(500_000_000)),
            ("100m", Some(100_000_000)),
            ("0.1", Some(100_000_000)),
            ("0.10", Some(100_000_000)),
            ("1n", Some(1)),
            ("7u", Some(7000)),
            ("0.1n", Some(1)),
            ("-0.1n", Some(-1)),
            ("1e-9", Some(1)),
            ("1e-60", Some(1)),
            ("0e99", Some(0)),
            ("1k", Some(1_000_000_000_000)),
            ("1e3", Some(1_000_000_000_000)),
            ("1E3", Some(1_000_000_000_000)),
            ("1E", Some(1_000_000_000_000_000_000_000_000_000)),
            ("1Ki", Some(1_024_000_000_000)),
            ("1.5Gi", Some(1_610_612_736_000_000_000)),
            ("12345678901234567890", Some(12_345_678_901_234_567_890_000_000_000)),
            ("1e30", None),
            ("", None),
            ("-", None),
            (".", None),
            ("1.2.3", None),
            ("1 ", None),
            ("1ki", None),
            ("1K", None),
            ("1e", None),
            ("1e1.5", None),
            ("e3", None),
            ("é", None),
            ("99999999999999999999999999999999999999999", None),
        ] {
            assert_eq!(text.parse::<Amount>().ok().map(Amount::nanos), nanos, "{text}");
        }
    }

    #[test]
    fn rounds_away_from_zero() {
        for (text, value, milli) in
            [("1", 1, 1000), ("1500m", 2, 1500), ("-1500m", -2, -1500), ("1n", 1, 1), ("-1n", -1, -1), ("0", 0, 0)]
        {
            let amount: Amount = text.parse().unwrap();
            assert_eq!((amount.value(), amount.milli_value()), (value, milli), "{text}");
        }
        assert!("0.1".parse::<Amount>().unwrap() < "101m".parse().unwrap());
        assert!(("1.5".parse::<Amount>().unwrap().to_f64() - 1.5).abs() < 1e-12);
    }
}
