//! The progress of a list, as a bar on stderr and as text.

use std::io::{self, IsTerminal};

use indicatif::{HumanCount, ProgressBar, ProgressStyle};

use crate::notices;

/// The progress of a list.
pub struct ListProgress {
    pub bytes: u64,
    pub items: u64,
    pub expected_bytes: Option<u64>,
    pub expected_items: Option<u64>,
}

impl ListProgress {
    /// Returns the progress in the words of the library's errors.
    pub fn text(&self) -> String {
        let Self { bytes, items, .. } = self;
        format!("at byte {bytes}, {items} item{} delivered", if *items == 1 { "" } else { "s" })
    }
}

/// A progress bar on stderr. Hidden if stderr is not a terminal, or if the rows are printed to a terminal.
pub struct ListProgressBar {
    bar: ProgressBar,
}

impl ListProgressBar {
    pub fn new(prints_items: bool) -> Self {
        if prints_items && io::stdout().is_terminal() {
            return Self { bar: ProgressBar::hidden() };
        }
        let style = ProgressStyle::with_template("{decimal_bytes}, {msg}").expect("the template is valid");
        let bar = ProgressBar::no_length().with_style(style);
        notices::show_above(&bar);
        Self { bar }
    }

    /// Shows the progress.
    pub fn show(&self, progress: impl FnOnce() -> ListProgress) {
        if self.bar.is_hidden() {
            return;
        }
        let ListProgress { bytes, items, expected_bytes, expected_items } = progress();
        // `expected_bytes` ends with the current page, so the length of all pages is estimated from their items.
        let length = match expected_items {
            Some(expected) if items > 0 => Some(estimate_length(bytes, expected, items)),
            _ => expected_bytes,
        };
        if let Some(length) = length {
            if self.bar.length().is_none() {
                let template = "{percent:>3}% {wide_bar} {decimal_bytes} of {decimal_total_bytes}, {msg}";
                self.bar.set_style(ProgressStyle::with_template(template).expect("the template is valid"));
            }
            self.bar.set_length(length);
        }
        let millis = u64::try_from(self.bar.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
        let per_second = items.saturating_mul(1000) / millis;
        self.bar.set_message(format!("{} items ({}/s)", HumanCount(items), HumanCount(per_second)));
        self.bar.set_position(bytes);
    }
}

/// `notices` keeps the bar, so its own drop comes too late to clear it.
impl Drop for ListProgressBar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Returns the estimated length of all pages.
fn estimate_length(bytes: u64, expected: u64, items: u64) -> u64 {
    u64::try_from(u128::from(bytes) * u128::from(expected) / u128::from(items)).unwrap_or(u64::MAX)
}
