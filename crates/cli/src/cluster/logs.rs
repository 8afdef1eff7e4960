//! The library's logs: warnings become notices on stderr, and `--verbose` prints the rest as well. A mirror, which runs
//! unattended, prints all warnings.

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::sync::Mutex;

use listwatch::internal::WarningLimit;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

use crate::notices::{print_labelled, warn};

/// Shows the library's warnings from now on, and its debug logs with `-v`, its traces with `-vv`.
///
/// Without `all_warnings` these are the warnings that the command does not report itself.
pub fn install_logs(verbose: u8, all_warnings: bool) {
    let others = all_warnings.then(WarningLimit::default);
    let warnings = WarningLayer { warned: Mutex::default(), others }.with_filter(library_targets(Level::WARN));
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
struct WarningLayer {
    /// The warnings that were printed. The server repeats them for each request of a watch.
    warned: Mutex<HashSet<String>>,
    /// The limit of warnings that are none of those below and that no limit of the library applies to; `None` to leave
    /// out such warnings.
    others: Option<WarningLimit>,
}

impl<S: Subscriber> Layer<S> for WarningLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = EventFields::default();
        event.record(&mut fields);
        let limited = fields.left_out.is_some();
        let other = self.others.as_ref().map(|limit| (limit, fields.describe()));
        let EventFields { message, error, seconds, path, warning, resource, .. } = fields;
        match event.metadata().name() {
            "listwatch.retry" => print_labelled(&format!("retrying in {seconds:.1} s:"), &error),
            "listwatch.discovery" if error.is_empty() => warn(&format!("{path}: {message}")),
            "listwatch.discovery" => warn(&format!("{path}: {message}: {error}")),
            "listwatch.plain_http" => warn(&message),
            "listwatch.outage" => warn(&format!("{resource}: {message}: {error}")),
            "listwatch.outage_ended" => warn(&format!("{resource}: {message}")),
            "listwatch.server_warning" => self.warn_once(&warning),
            // The status of a mirror shows these objects.
            "listwatch.skipped" => {}
            _ => {
                if let Some((limit, text)) = other
                    && (limited || limit.admit(&text).is_some())
                {
                    warn(&text);
                }
            }
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
    /// How many identical warnings the library has left out. It counts those that a peer can repeat.
    left_out: Option<u64>,
    /// The texts that are none of these.
    others: Vec<String>,
}

impl EventFields {
    /// Returns all texts of the event, on one line. Messages contain the numbers that matter.
    fn describe(&self) -> String {
        let Self { message, error, path, resource, left_out, others, .. } = self;
        let parts = [resource, path, message, error].into_iter().filter(|part| !part.is_empty());
        let mut text = parts.map(String::as_str).collect::<Vec<_>>().join(": ");
        let repeated = left_out.filter(|count| *count > 0).map(|count| format!("repeated {count} times"));
        let details: Vec<_> = others.iter().chain(&repeated).map(String::as_str).collect();
        if !details.is_empty() {
            text = format!("{text} ({})", details.join(", "));
        }
        text
    }
}

impl Visit for EventFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            "error" => self.error = format!("{value:?}"),
            "resource" => self.resource = format!("{value:?}"),
            name => self.others.push(format!("{name}: {value:?}")),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "path" => value.clone_into(&mut self.path),
            "error" => value.clone_into(&mut self.error),
            "resource" => value.clone_into(&mut self.resource),
            "warning" => value.clone_into(&mut self.warning),
            name => self.others.push(format!("{name}: {value}")),
        }
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        if field.name() == "seconds" {
            self.seconds = value;
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "left_out" {
            self.left_out = Some(value);
        }
    }
}
