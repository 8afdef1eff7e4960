//! Lines on stderr, printed above the progress bar if there is one.

use std::sync::OnceLock;

use console::style;
use indicatif::ProgressBar;

use crate::output::printable;

/// The progress bar of this process, which is in the way of other lines.
static BAR: OnceLock<ProgressBar> = OnceLock::new();

/// From now on above this bar.
pub fn show_above(bar: &ProgressBar) {
    // A second bar is ignored.
    let _ = BAR.set(bar.clone());
}

/// On stderr, on one line.
pub fn warn(text: &str) {
    tell("warning:", text);
}

/// Warns of fields that were left out of JSON, if there are any.
pub fn unknown_fields(count: u64) {
    if count > 0 {
        let fields = if count == 1 { "field" } else { "fields" };
        warn(&format!("left out {count} {fields} that this version does not know; JSON from the server has them"));
    }
}

/// The same, under another word.
pub fn tell(word: &str, text: &str) {
    let print = || eprintln!("{} {}", style(word).for_stderr().yellow().bold(), printable(text));
    match BAR.get() {
        Some(bar) => bar.suspend(print),
        None => print(),
    }
}
