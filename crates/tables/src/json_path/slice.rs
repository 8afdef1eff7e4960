//! Parses and applies `[start:end:step]`.

use super::JsonPathError;
use super::ast::{Slice, SliceEnd};

pub(super) fn parse(text: &str, position: usize) -> Result<Slice, JsonPathError> {
    let invalid = || JsonPathError::syntax(position, format!("invalid array index {text}"));
    if text == "*" {
        return Ok(Slice { start: None, end: SliceEnd::Length, step: None });
    }
    let mut parts = text.split(':');
    let mut part = || -> Result<Option<Option<i64>>, JsonPathError> {
        match parts.next() {
            None => Ok(None),
            Some("") => Ok(Some(None)),
            Some(number) if number.starts_with('+') => Err(invalid()),
            Some(number) => number.parse().map(|number| Some(Some(number))).map_err(|_| invalid()),
        }
    };
    let (start, end, step, more) = (part()?.flatten(), part()?, part()?.flatten(), part()?);
    if text.is_empty() || more.is_some() {
        return Err(invalid());
    }
    let end = match end {
        None => SliceEnd::AfterStart,
        Some(None) => SliceEnd::Length,
        Some(Some(end)) => SliceEnd::At(end),
    };
    Ok(Slice { start, end, step })
}

impl Slice {
    /// Returns the first index, the index after the last, and the step, for an array of `length` elements.
    ///
    /// # Errors
    ///
    /// An index is out of bounds, the end is before the start, or the step is not positive.
    pub(super) fn bounds(self, length: usize) -> Result<(usize, usize, usize), JsonPathError> {
        let length = i64::try_from(length).unwrap_or(i64::MAX);
        let first = self.start.unwrap_or(0);
        let from_end = |index: i64| if index < 0 { index.saturating_add(length) } else { index };
        let start = from_end(first);
        let end = match self.end {
            SliceEnd::Length => length,
            SliceEnd::At(end) => from_end(end),
            // The last element: the index after -1 is the length.
            SliceEnd::AfterStart if first == -1 => length,
            SliceEnd::AfterStart => from_end(first.saturating_add(1)),
        };
        let out_of_bounds = |index: i64| {
            Err(JsonPathError::value(format!("array index out of bounds: index {index}, length {length}")))
        };
        if start == end {
            return Ok((0, 0, 1));
        }
        if start < 0 || start >= length {
            return out_of_bounds(start);
        }
        if end < 0 || end > length {
            return out_of_bounds(end - 1);
        }
        if start > end {
            let message = format!("starting index {start} is greater than ending index {end}");
            return Err(JsonPathError::value(message));
        }
        let step = usize::try_from(self.step.unwrap_or(1)).ok().filter(|step| *step > 0);
        let step = step.ok_or_else(|| JsonPathError::value("step must be > 0"))?;
        let index = |index: i64| usize::try_from(index).map_err(|_| JsonPathError::value("step must be > 0"));
        Ok((index(start)?, index(end)?, step))
    }
}
