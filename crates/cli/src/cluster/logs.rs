//! The library's logs: warnings become notices on stderr, and `--verbose` prints the rest as well.

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::sync::Mutex;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

use crate::notices::{print_labelled, warn};

/// Shows the library's warnings from now on, and its debug logs with `-v`, its traces with `-vv`.
pub fn install_logs(verbose: u8) {
    let warnings = WarningLayer::default().with_filter(library_targets(Level::WARN));
    let level = if verbose > 1 { Level::TRACE } else { Level::DEBUG };
    let logs = (verbose > 0).then(|| {
        let format = tracing_subscriber::fmt::layer().with_writer(io::stderr).with_ansi(false).with_target(false);
        // A closed stderr must not end the command: the message of an internal error would panic.
        format.log_internal_errors(false).with_filter(library_targets(level))
    });
    // A second call fails and changes nothing.
    let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry().with(warnings).with(logs));
}

/// Returns the filter of logs: only the library's, because other crates may log credentials.
fn library_targets(level: Level) -> Targets {
    Targets::new().with_target("listwatch", level)
}

/// The maximum number of distinct server warnings that are printed. A list keeps as many.
const MAX_WARNINGS: usize = 100;

/// A layer that prints warnings as notices.
#[derive(Default)]
struct WarningLayer {
    /// The warnings that were printed. The server repeats them for each request of a watch.
    warned: Mutex<HashSet<String>>,
}

impl<S: Subscriber> Layer<S> for WarningLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = EventFields::default();
        event.record(&mut fields);
        let EventFields { message, error, seconds, path, warning, resource } = fields;
        match event.metadata().name() {
            "listwatch.retry" => print_labelled(&format!("retrying in {seconds:.1} s:"), &error),
            "listwatch.discovery" if error.is_empty() => warn(&format!("{path}: {message}")),
            "listwatch.discovery" => warn(&format!("{path}: {message}: {error}")),
            "listwatch.plain_http" => warn(&message),
            "listwatch.outage" => warn(&format!("{resource}: {message}: {error}")),
            "listwatch.outage_ended" => warn(&format!("{resource}: {message}")),
            name if name.starts_with("listwatch.mirror.") && !error.is_empty() => warn(&format!("{message}: {error}")),
            "listwatch.server_warning" => self.warn_once(&warning),
            _ => {}
        }
    }
}

impl WarningLayer {
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

/// The fields of an event, as documented in `listwatch::client`.
#[derive(Default)]
struct EventFields {
    message: String,
    error: String,
    seconds: f64,
    path: String,
    warning: String,
    resource: String,
}

impl Visit for EventFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            "error" => self.error = format!("{value:?}"),
            _ => {}
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "path" => value.clone_into(&mut self.path),
            "error" => value.clone_into(&mut self.error),
            "resource" => value.clone_into(&mut self.resource),
            "warning" => value.clone_into(&mut self.warning),
            _ => {}
        }
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        if field.name() == "seconds" {
            self.seconds = value;
        }
    }
}
