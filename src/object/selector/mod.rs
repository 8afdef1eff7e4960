//! Label and field selectors: built or parsed, checked, printed and evaluated as on an API server.
//!
//! The texts of errors are the API server's; the tests contain what a program over apimachinery v0.36 printed.

mod field;
mod field_text;
#[cfg(feature = "k8s-pb")]
mod k8s_pb_types;
mod label;
mod label_rules;
mod label_text;

use std::fmt;
use std::str::FromStr;

pub use self::field::FieldSelector;
pub use self::label::LabelSelector;
use crate::error::InvalidInput;

/// Refuses a selector that the server would refuse, or parse as another selector.
fn check_reparsed<S: fmt::Display + FromStr<Err = InvalidInput> + PartialEq>(selector: &S) -> Result<(), InvalidInput> {
    let text = selector.to_string();
    if text.parse::<S>()? == *selector {
        return Ok(());
    }
    Err(InvalidInput::new(format!("the server would parse {text:?} as another selector"), &text))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that the errors are those of apimachinery v0.36, which a program of its own printed.
    pub(super) fn check_errors<S: FromStr<Err = InvalidInput> + fmt::Debug>(cases: &[(&str, String)]) {
        for (input, expected) in cases {
            let error = input.parse::<S>().expect_err(input);
            assert_eq!((error.text(), error.to_string()), (*input, expected.clone()));
        }
    }
}
