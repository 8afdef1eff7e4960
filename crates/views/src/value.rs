//! Values that JSON does not write as objects: times, quantities, an integer or text, embedded JSON.

use std::fmt;

use jiff::{SignedDuration, Timestamp};

use crate::amount::Amount;
use crate::read::{Element, Raw};

/// A time: `Time` or `MicroTime` of Kubernetes.
///
/// The zero time of Go is an empty message in protobuf, and `null` in JSON. It is not the beginning of the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time(Option<(i64, i32)>);

impl Time {
    /// Returns true for Go's zero time, as an absent time has.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.0.is_none()
    }

    /// Returns the seconds since the Unix epoch; 0 for the zero time.
    #[must_use]
    pub fn seconds(self) -> i64 {
        self.0.map_or(0, |(seconds, _)| seconds)
    }

    /// Returns the nanoseconds after the second, as the server sent them.
    ///
    /// API servers send 0 in a `Time` and whole microseconds in a `MicroTime`. Go ignores the nanoseconds of a `Time`.
    #[must_use]
    pub fn nanos(self) -> i32 {
        self.0.map_or(0, |(_, nanos)| nanos)
    }

    /// Converts it; `None` for the zero time. A time in the last 26 hours of the year 9999 becomes [`Timestamp::MAX`].
    /// The check of the object refuses later times, and times before the year 0.
    #[must_use]
    pub fn timestamp(self) -> Option<Timestamp> {
        self.0.map(|(seconds, nanos)| Timestamp::new(seconds, nanos).unwrap_or(Timestamp::MAX))
    }
}

impl<'a> Element<'a> for Time {
    type Wire = &'a [u8];

    fn read(bytes: &'a [u8]) -> Self {
        let message = Raw::read(bytes);
        Self((!message.bytes().is_empty()).then(|| (message.get(1), message.get(2))))
    }
}

impl<'a> Element<'a> for SignedDuration {
    type Wire = &'a [u8];

    fn read(bytes: &'a [u8]) -> Self {
        Self::from_nanos(Raw::read(bytes).get(1))
    }
}

/// An integer or a text, such as the port of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntOrString<'a> {
    /// An integer.
    Int(i32),
    /// A text.
    String(&'a str),
}

impl<'a> IntOrString<'a> {
    /// Returns the integer; `None` for a text, even of digits.
    #[must_use]
    pub fn int(self) -> Option<i32> {
        if let Self::Int(int) = self { Some(int) } else { None }
    }

    /// Returns the text; `None` for an integer.
    #[must_use]
    pub fn text(self) -> Option<&'a str> {
        if let Self::String(text) = self { Some(text) } else { None }
    }

    /// Returns the integer of `total` that this is: itself, or this percentage (`25%`) of it, rounded up or down.
    /// `None` for any other text.
    ///
    /// As `GetScaledValueFromIntOrPercent` of `k8s.io/apimachinery/pkg/util/intstr`.
    #[must_use]
    pub fn scaled(self, total: i32, round_up: bool) -> Option<i32> {
        let percent: i32 = match self {
            Self::Int(int) => return Some(int),
            Self::String(text) => text.strip_suffix('%')?.parse().ok()?,
        };
        let product = i64::from(percent) * i64::from(total);
        let (floor, is_exact) = (product.div_euclid(100), product.rem_euclid(100) == 0);
        i32::try_from(if round_up && !is_exact { floor + 1 } else { floor }).ok()
    }
}

impl Default for IntOrString<'_> {
    fn default() -> Self {
        Self::Int(0)
    }
}

impl fmt::Display for IntOrString<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(int) => int.fmt(f),
            Self::String(text) => text.fmt(f),
        }
    }
}

impl<'a> Element<'a> for IntOrString<'a> {
    type Wire = &'a [u8];

    fn read(bytes: &'a [u8]) -> Self {
        let message = Raw::read(bytes);
        match message.get::<i64>(1) {
            0 => Self::Int(message.get(2)),
            _ => Self::String(message.get(3)),
        }
    }
}

/// Embedded JSON: a `RawExtension`, `FieldsV1`, or a value in a schema. The check of a view does not parse it.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct RawJson<'a>(&'a [u8]);

impl<'a> RawJson<'a> {
    /// Returns the text; empty where Go has no value.
    #[must_use]
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }
}

impl<'a> Element<'a> for RawJson<'a> {
    type Wire = &'a [u8];

    #[inline]
    fn read(bytes: &'a [u8]) -> Self {
        Self(Raw::read(bytes).get(1))
    }
}

/// Shows the length, but no text, which may be of a Secret.
impl fmt::Debug for RawJson<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawJson({} bytes)", self.0.len())
    }
}

/// A quantity of a resource as the server sent it: `500m`, `1.5Gi`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantity<'a>(&'a str);

impl<'a> Quantity<'a> {
    /// Returns the text; `0` if the server sent none.
    #[must_use]
    pub fn as_str(self) -> &'a str {
        self.0
    }

    /// Parses it; `None` if it is not a quantity, or over 1.7·10²⁹.
    ///
    /// ```
    /// use listwatch_views::Amount;
    ///
    /// let amount = |text: &str| text.parse::<Amount>().ok();
    /// assert_eq!(amount("1.5Gi").map(Amount::value), Some(3 << 29));
    /// assert_eq!(amount("0.1"), amount("100m"));
    /// ```
    #[must_use]
    pub fn amount(self) -> Option<Amount> {
        self.0.parse().ok()
    }
}

impl Default for Quantity<'_> {
    fn default() -> Self {
        Self("0")
    }
}

impl fmt::Display for Quantity<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'a> Element<'a> for Quantity<'a> {
    type Wire = &'a [u8];

    #[inline]
    fn read(bytes: &'a [u8]) -> Self {
        Self(Raw::read(bytes).opt(1).unwrap_or("0"))
    }
}
