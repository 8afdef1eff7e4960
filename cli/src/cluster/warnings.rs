//! What the client and the server warn of, shown on stderr: retries, API groups without an answer, warnings of the server.

use std::collections::HashSet;
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

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
