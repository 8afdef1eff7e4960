//! The library's logs: warnings become notices on stderr, and `--verbose` prints the rest as well.

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::sync::Mutex;
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

use crate::notices::{tell, warn};

/// Shows the library's warnings from now on, and its debug logs with `-v`, its traces with `-vv`.
pub fn show(verbose: u8) {
    let warnings = Warnings::default().with_filter(of_library(Level::WARN));
    let level = if verbose > 1 { Level::TRACE } else { Level::DEBUG };
    let logs = (verbose > 0).then(|| {
        let format = tracing_subscriber::fmt::layer().with_writer(io::stderr).with_ansi(false).with_target(false);
        format.with_filter(of_library(level))
    });
    // A second call fails and changes nothing.
    let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry().with(warnings).with(logs));
}

/// Other crates may log credentials.
fn of_library(level: Level) -> Targets {
    Targets::new().with_target("listwatch", level)
}

/// At most this many different warnings of a server are printed, as many as a list keeps.
const MAX_WARNINGS: usize = 100;

#[derive(Default)]
struct Warnings {
    /// The warnings that were printed. The server repeats them for each request of a watch.
    warned: Mutex<HashSet<String>>,
}

impl<S: Subscriber> Layer<S> for Warnings {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut said = Said::default();
        event.record(&mut said);
        match said {
            Said { error: Some(error), wait: Some(wait), .. } => {
                tell("retry:", &format!("{error}, again in {:.1} s", wait.as_secs_f64()));
            }
            Said { message, group: Some(group), error, .. } => {
                let error = error.map(|error| format!(": {error}")).unwrap_or_default();
                warn(&format!("{group}: {message}{error}"));
            }
            Said { warning: Some(warning), .. } => self.warn_once(&warning),
            Said { .. } => {}
        }
    }
}

impl Warnings {
    fn warn_once(&self, warning: &str) {
        let is_new = {
            let mut warned = self.warned.lock().expect("nothing panics while it is locked");
            warned.len() < MAX_WARNINGS && warned.insert(warning.to_owned())
        };
        if is_new {
            warn(warning);
        }
    }
}

/// What an event says. Only requests that are sent again have a time to wait.
#[derive(Default)]
struct Said {
    message: String,
    error: Option<String>,
    wait: Option<Duration>,
    group: Option<String>,
    /// Of the server.
    warning: Option<String>,
}

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            "error" => self.error = Some(format!("{value:?}")),
            _ => {}
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "group" => self.group = Some(value.to_owned()),
            "server_warning" => self.warning = Some(value.to_owned()),
            _ => {}
        }
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        if field.name() == "wait_ms" {
            self.wait = Duration::try_from_secs_f64(value / 1000.0).ok();
        }
    }
}
