//! What the client and the server warn of, shown on stderr: retries, API groups without an answer, warnings of the server.

use std::collections::HashSet;
use std::fmt;
use std::sync::Mutex;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

use crate::notices::{tell, warn};

/// Shows the warnings of this process from now on.
pub fn show() {
    // A second call fails and changes nothing.
    let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry().with(Warnings::default()));
}

/// How many different warnings of a server are told: as many as a list keeps.
const MAX_WARNINGS: usize = 100;

#[derive(Default)]
struct Warnings {
    /// What the server warned of: a watch that goes on is warned again at each request.
    warned: Mutex<HashSet<String>>,
}

impl<S: Subscriber> Layer<S> for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>, _: Context<'_, S>) -> bool {
        *metadata.level() == Level::WARN && metadata.target().starts_with("listwatch")
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut said = Said::default();
        event.record(&mut said);
        let Said { message, error, seconds, group, warning } = said;
        match event.metadata().name() {
            "listwatch.retry" => tell("retry:", &format!("{error}, again in {seconds:.1} s")),
            "listwatch.discovery" if error.is_empty() => warn(&format!("{group}: {message}")),
            "listwatch.discovery" => warn(&format!("{group}: {message}: {error}")),
            "listwatch.server_warning" => self.warn_once(&warning),
            _ => {}
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

/// The fields of an event, as the documentation of `listwatch::client` has them.
#[derive(Default)]
struct Said {
    message: String,
    error: String,
    seconds: f64,
    group: String,
    warning: String,
}

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            "error" => self.error = format!("{value:?}"),
            _ => {}
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "group" => value.clone_into(&mut self.group),
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
