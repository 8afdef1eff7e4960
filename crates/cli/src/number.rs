//! Parses the numbers of options.

use std::num::IntErrorKind;
use std::ops::RangeInclusive;

/// Returns a parser of numbers in this range.
pub fn number_in<N>(range: RangeInclusive<N>) -> impl Fn(&str) -> Result<N, String> + Clone
where
    N: Copy + TryFrom<u64>,
    u64: From<N>,
{
    let (least, most) = (u64::from(*range.start()), u64::from(*range.end()));
    move |text| match text.parse::<u64>() {
        Ok(number) if number < least => Err(format!("it must be at least {least}")),
        Err(error) if *error.kind() != IntErrorKind::PosOverflow => Err("it is not a number".to_owned()),
        parsed => {
            let number = parsed.ok().filter(|number| *number <= most).and_then(|number| N::try_from(number).ok());
            number.ok_or_else(|| format!("it must be at most {most}"))
        }
    }
}
