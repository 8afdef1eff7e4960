//! What the client does by itself while it lists, told on stderr: the retries.

use std::fmt;
use std::time::Duration;

use console::style;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

use crate::output::printable;

/// From now on.
pub fn show() {
    // Fails only when it is done twice.
    let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry().with(Notices));
}

struct Notices;

impl<S: Subscriber> Layer<S> for Notices {
    fn enabled(&self, metadata: &tracing::Metadata<'_>, _: Context<'_, S>) -> bool {
        *metadata.level() == Level::WARN && metadata.target().starts_with("listwatch")
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut retry = Retry::default();
        event.record(&mut retry);
        if let Retry { error: Some(error), wait: Some(wait) } = retry {
            let wait = format!("again in {:.1} s", wait.as_secs_f64());
            eprintln!("{} {}, {wait}", style("retry:").for_stderr().yellow().bold(), printable(&error));
        }
    }
}

/// What an event says of a request that is sent again. Others have no time to wait.
#[derive(Default)]
struct Retry {
    error: Option<String>,
    wait: Option<Duration>,
}

impl Visit for Retry {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "error" {
            self.error = Some(format!("{value:?}"));
        }
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        if field.name() == "wait_ms" {
            self.wait = Duration::try_from_secs_f64(value / 1000.0).ok();
        }
    }
}
