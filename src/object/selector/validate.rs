//! The check of a selector before it is sent.

use std::fmt;
use std::str::FromStr;

use crate::error::InvalidInput;

/// Refuses a selector that the server would refuse, or parse as another selector.
pub(super) fn check_reparsed<S: fmt::Display + FromStr<Err = InvalidInput> + PartialEq>(
    selector: &S,
) -> Result<(), InvalidInput> {
    let text = selector.to_string();
    if text.parse::<S>()? == *selector {
        return Ok(());
    }
    Err(InvalidInput::new(format!("the server would parse {text:?} as another selector"), &text))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Checks that the errors are those of apimachinery v0.36, which a program of its own printed.
    pub(in super::super) fn check_errors<S: FromStr<Err = InvalidInput> + fmt::Debug>(cases: &[(&str, String)]) {
        for (input, expected) in cases {
            let error = input.parse::<S>().expect_err(input);
            assert_eq!((error.text(), error.to_string()), (*input, expected.clone()));
        }
    }
}
