//! Helpers of tests that run one test of their own program in a child process.

use std::process::Output;

/// Returns the name of a test as `--exact` takes it, with the module path but without the crate.
///
/// The first argument is `module_path!()` where the test is.
pub fn test_name(module_path: &str, test: &str) -> String {
    match module_path.split_once("::") {
        Some((_, module)) => format!("{module}::{test}"),
        None => test.to_owned(),
    }
}

/// Returns what a child process wrote to stdout and stderr.
pub fn printed(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
