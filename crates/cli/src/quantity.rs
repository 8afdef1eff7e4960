//! Quantities of Kubernetes, such as `1500m` and `2Gi`, and their exact sums.
//!
//! The source is `k8s.io/apimachinery/pkg/api/resource`: what is a quantity, how it is rounded, and how a sum is
//! written. A recorded table of Go's sums pins it.

use std::cmp::Ordering;
use std::fmt;

/// The smallest fraction that a quantity keeps.
const NANOS: i128 = 1_000_000_000;

/// The largest quantity with a binary suffix. Kubernetes caps larger ones.
const MAX_BINARY: i128 = i64::MAX as i128 * NANOS;

/// An amount, exact to the billionth, and the suffixes with which it is written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantity {
    nanos: i128,
    form: Form,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    /// `m`, `k`, `M`
    Decimal,
    /// `Ki`, `Mi`
    Binary,
    /// `e3`
    Exponent,
}

impl Quantity {
    pub const ZERO: Self = Self { nanos: 0, form: Form::Decimal };

    /// Parses a quantity. As in Kubernetes, a fraction of a billionth is rounded away from zero.
    ///
    /// `None` if it is not one, or not below about 10²⁹, which Kubernetes allows.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let end = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (whole, rest) = unsigned.split_at_checked(end(unsigned))?;
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => rest.split_at_checked(end(rest))?,
            None => ("", rest),
        };
        if text.is_empty()
            || (suffix.is_empty() && whole.is_empty() && fraction.is_empty() && rest != "." && !rest.is_empty())
        {
            return None;
        }
        let (factor, exponent, form) = interpret(suffix)?;
        let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
        let digits = format!("{whole}{fraction}");
        let digits: i128 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
        let exponent = exponent.checked_sub(i64::try_from(fraction.len()).ok()?)?.checked_add(9)?;
        let nanos = match digits.checked_mul(factor).and_then(|amount| scale(amount, exponent)) {
            Some(nanos) if form == Form::Binary => nanos.min(MAX_BINARY),
            Some(nanos) => nanos,
            None if form == Form::Binary && fraction.is_empty() => MAX_BINARY,
            None => return None,
        };
        // Kubernetes does so, too, for what cannot be written with a binary suffix.
        let form = if form == Form::Binary && (1..NANOS).contains(&nanos) { Form::Decimal } else { form };
        Some(Self { nanos: if text.starts_with('-') { -nanos } else { nanos }, form })
    }

    /// Adds another quantity, and takes its suffixes if the sum was zero. `None` if the sum is too large.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        let form = if self.nanos == 0 { other.form } else { self.form };
        Some(Self { nanos: self.nanos.checked_add(other.nanos)?, form })
    }

    /// Returns the amount as a decimal number, without a suffix.
    pub fn to_number(self) -> String {
        let sign = if self.nanos < 0 { "-" } else { "" };
        let (whole, fraction) =
            (self.nanos.unsigned_abs() / NANOS.unsigned_abs(), self.nanos.unsigned_abs() % NANOS.unsigned_abs());
        if fraction == 0 {
            return format!("{sign}{whole}");
        }
        format!("{sign}{whole}.{fraction:09}").trim_end_matches('0').to_owned()
    }
}

/// Compares the amounts.
impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.nanos.partial_cmp(&other.nanos)
    }
}

/// Writes the canonical form: the largest suffix that leaves a whole number.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
        const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
        let Self { nanos, form } = *self;
        if nanos == 0 {
            return f.write_str("0");
        }
        let divide = |mut amount: i128, by: i128, most: usize| {
            let mut times = 0;
            while times < most && amount % by == 0 {
                amount /= by;
                times += 1;
            }
            (amount, times)
        };
        let is_binary = form == Form::Binary && nanos % NANOS == 0 && nanos.abs() >= 1024 * NANOS;
        if is_binary {
            let (amount, times) = divide(nanos / NANOS, 1024, BINARY.len() - 1);
            return write!(f, "{amount}{}", BINARY.get(times).unwrap_or(&""));
        }
        if form == Form::Exponent {
            let (amount, thousands) = divide(nanos, 1000, usize::MAX);
            return match i64::try_from(thousands).unwrap_or(0) * 3 - 9 {
                0 => write!(f, "{amount}"),
                exponent => write!(f, "{amount}e{exponent}"),
            };
        }
        let (amount, times) = divide(nanos, 1000, DECIMAL.len() - 1);
        write!(f, "{amount}{}", DECIMAL.get(times).unwrap_or(&""))
    }
}

/// Returns the factor and the decimal exponent of a suffix, and its form.
fn interpret(suffix: &str) -> Option<(i128, i64, Form)> {
    let binary = |bits: u32| Some((1 << bits, 0, Form::Binary));
    let decimal = |exponent| Some((1, exponent, Form::Decimal));
    match suffix {
        "" => decimal(0),
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => Some((1, suffix.strip_prefix(['e', 'E'])?.parse().ok()?, Form::Exponent)),
    }
}

/// Returns the amount times a power of ten, rounded up; `None` if it is too large.
fn scale(amount: i128, exponent: i64) -> Option<i128> {
    let power = u32::try_from(exponent.unsigned_abs()).ok().and_then(|exponent| 10_i128.checked_pow(exponent));
    match power {
        _ if amount == 0 => Some(0),
        Some(power) if exponent >= 0 => amount.checked_mul(power),
        Some(power) => Some(amount / power + i128::from(amount % power != 0)),
        None if exponent >= 0 => None,
        None => Some(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Go's sums of quantities, or null if a term is no quantity. `e2e/apiserver/fields/quantities.go` writes them.
    const SUMS: &str = include_str!("quantity_sums.json");

    #[test]
    fn adds_as_kubernetes() {
        let cases: Vec<(Vec<String>, Option<String>)> = serde_json::from_str(SUMS).unwrap();
        assert!(cases.len() > 500);
        for (terms, expected) in cases {
            let sum = terms.iter().try_fold(Quantity::ZERO, |sum, term| sum.checked_add(Quantity::parse(term)?));
            assert_eq!(sum.map(|sum| sum.to_string()), expected, "{terms:?}");
        }
    }

    #[test]
    fn writes_numbers_without_suffixes() {
        for (text, number) in
            [("2k", "2000"), ("1500m", "1.5"), ("-1n", "-0.000000001"), ("1Ki", "1024"), ("0", "0"), ("1e3", "1000")]
        {
            assert_eq!(Quantity::parse(text).unwrap().to_number(), number);
        }
    }

    #[test]
    fn refuses_what_is_too_large_to_add_exactly() {
        for text in ["1e30", "1e1000000000000", "1e99999999999999999999", "-1e30", &"9".repeat(100_000)] {
            assert_eq!(Quantity::parse(text), None, "{text:.20}");
        }
        assert_eq!(Quantity::parse("1e-1000000000000").map(Quantity::to_number).as_deref(), Some("0.000000001"));
        let large = Quantity::parse("1e29").unwrap();
        assert_eq!(large.checked_add(large), None);
    }
}
