//! Lines on stderr, above the progress bar. A stderr that is closed or full loses them, and changes nothing else.

use std::fmt::Display;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use console::style;
use indicatif::ProgressBar;
use listwatch::internal::without_os_numbers;

use crate::escape::escape_controls;

/// The progress bar of this process, suspended while a line is printed.
static BAR: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Prints later lines above this bar, in place of an earlier one.
pub fn show_above(bar: &ProgressBar) {
    *BAR.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.clone());
}

/// Prints a warning on one line.
pub fn warn(text: &str) {
    print_labelled("warning:", text);
}

/// Warns of fields that were left out of JSON, if there are any.
pub fn warn_of_unknown_fields(count: u64) {
    if count > 0 {
        let fields = if count == 1 { "field" } else { "fields" };
        warn(&format!("left out {count} {fields} that this version does not know; JSON from the server has them"));
    }
}

/// Prints one line that begins with this word.
pub fn print_labelled(word: &str, text: &str) {
    print_line(format_args!("{} {}", style(word).for_stderr().yellow().bold(), for_users(text)));
}

/// Prints why the command ends early.
pub fn print_interrupted(text: &str) {
    print_end("interrupted:", text);
}

/// Prints the error that ends the command.
pub fn print_error(text: &str) {
    print_end("error:", text);
}

fn print_end(word: &str, text: &str) {
    print_line(format_args!("{} {}", style(word).for_stderr().red().bold(), for_users(text)));
}

fn for_users(text: &str) -> String {
    escape_controls(&without_os_numbers(text)).into_owned()
}

/// Prints one line.
pub fn print_line(text: impl Display) {
    // One write, so that lines of other processes do not mix with it.
    let text = format!("{text}\n");
    let print = || _ = io::stderr().write_all(text.as_bytes());
    let bar = BAR.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match bar {
        Some(bar) => bar.suspend(print),
        None => print(),
    }
}
