//! Label and field selectors: built or parsed, checked, printed and evaluated as on an API server.
//!
//! | file | holds |
//! |---|---|
//! | `label` | [`LabelSelector`]: how it is built, and which objects it selects |
//! | `label_rules` | which keys and values an API server accepts, and the text of its errors |
//! | `lex` | the tokens of a label selector's text |
//! | `label_text` | parses and prints label selectors |
//! | `field` | [`FieldSelector`]: how it is built, and which objects it selects |
//! | `field_text` | parses and prints field selectors |
//! | `validate` | refuses a selector that the server would parse as another one |
//! | `k8s_pb_types` | converts `LabelSelector` of k8s-pb |
//!
//! The texts of errors are the API server's. A program over apimachinery v0.36 printed those in the tests.
//! A file imports only files above it in the table, except that both texts import `validate`.

mod field;
mod field_text;
#[cfg(feature = "k8s-pb")]
mod k8s_pb_types;
mod label;
mod label_rules;
mod label_text;
mod lex;
mod validate;

pub use self::field::FieldSelector;
pub use self::label::LabelSelector;
