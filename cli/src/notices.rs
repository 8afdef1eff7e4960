//! Lines on stderr, above the progress bar.

use std::sync::OnceLock;

use console::style;
use indicatif::ProgressBar;

use crate::output::printable;

/// The progress bar of this process, suspended while a line is printed.
static BAR: OnceLock<ProgressBar> = OnceLock::new();

/// Prints later lines above this bar.
pub fn show_above(bar: &ProgressBar) {
    // A second bar is ignored.
    let _ = BAR.set(bar.clone());
}

/// Prints a warning on one line.
pub fn warn(text: &str) {
    print("warning:", text);
}

/// Warns of fields that were left out of JSON, if there are any.
pub fn unknown_fields(count: u64) {
    if count > 0 {
        let fields = if count == 1 { "field" } else { "fields" };
        warn(&format!("left out {count} {fields} that this version does not know; JSON from the server has them"));
    }
}

/// Prints one line that begins with this word.
pub fn print(word: &str, text: &str) {
    let line = || eprintln!("{} {}", style(word).for_stderr().yellow().bold(), printable(text));
    match BAR.get() {
        Some(bar) => bar.suspend(line),
        None => line(),
    }
}
