//! The status of the caches, shown on stderr.

use std::collections::VecDeque;
use std::sync::Arc;

use indicatif::{DecimalBytes, HumanCount, ProgressBar, ProgressStyle};
use listwatch::internal::chain;
use listwatch_cache::ReflectorStatus;
use tokio::time::Instant;

use super::collection::MirroredCollection;
use crate::notices;

/// Shows a status line for each collection at the bottom of a terminal.
///
/// It also prints a line for each sync, error and skipped object.
pub struct StatusDisplay {
    bar: ProgressBar,
    shown: Vec<CollectionStatus>,
}

/// What is known about a collection.
struct CollectionStatus {
    collection: Arc<MirroredCollection>,
    /// These four fields are the status that was already printed.
    is_synced: bool,
    syncs: u64,
    errors: u64,
    skipped: usize,
    /// The number of events at each recent tick.
    events: VecDeque<(Instant, u64)>,
}

/// The number of ticks over which the rate of events is measured: two seconds.
const RATE_TICKS: usize = 8;

impl StatusDisplay {
    pub fn new() -> Self {
        let style = ProgressStyle::with_template("{msg}").expect("the template is valid");
        let bar = ProgressBar::no_length().with_style(style);
        notices::show_above(&bar);
        Self { bar, shown: Vec::new() }
    }

    /// Shows this collection, too.
    pub fn add(&mut self, collection: &Arc<MirroredCollection>) {
        self.shown.push(CollectionStatus {
            collection: Arc::clone(collection),
            is_synced: false,
            syncs: 0,
            errors: 0,
            skipped: 0,
            events: VecDeque::new(),
        });
    }

    /// Updates the status lines, and prints what changed since the last call.
    pub fn update(&mut self) {
        if !self.bar.is_hidden() {
            let lines: Vec<_> = self.shown.iter_mut().map(CollectionStatus::status_line).collect();
            self.bar.set_message(lines.join("\n"));
        }
        self.shown.iter_mut().for_each(CollectionStatus::print_news);
    }

    /// Removes the status lines, and prints the totals.
    pub fn end(&self) {
        self.bar.finish_and_clear();
        for CollectionStatus { collection, .. } in &self.shown {
            let MirroredCollection { resource, cache, .. } = &**collection;
            let status = cache.status();
            let [objects, events] = [to_u64(cache.len()), status.events].map(HumanCount);
            let memory = DecimalBytes(to_u64(cache.memory().total()));
            notices::print_line(format_args!(
                "{resource}: {objects} objects {}, {memory}, {events} events, {}",
                version_text(&status),
                errors_text(&status)
            ));
        }
    }
}

impl CollectionStatus {
    fn print_news(&mut self) {
        let MirroredCollection { resource, cache, .. } = &*self.collection;
        let status = cache.status();
        // The library's log reports failures; an expired version is none.
        let new_error = status.last_error.as_ref().filter(|_| status.errors > self.errors);
        if let Some(error) = new_error.filter(|error| error.is_expired()) {
            notices::print_labelled("retrying:", &format!("{resource}: {}", chain(error)));
        }
        if let Some(skipped) = status.last_skipped.as_ref().filter(|_| status.skipped > self.skipped) {
            notices::print_labelled("skipped:", &format!("{resource}: {}", chain(skipped)));
        }
        // A loaded cache is complete without a sync.
        let is_news = status.syncs > self.syncs || !self.is_synced;
        if let Some(version) = status.resource_version.as_ref().filter(|_| is_news) {
            self.is_synced = true;
            let objects = HumanCount(to_u64(cache.len()));
            notices::print_labelled("synced:", &format!("{resource}: {objects} objects at version {version}"));
        }
        (self.syncs, self.errors, self.skipped) = (status.syncs, status.errors, status.skipped);
    }

    /// Returns the events per second, given their number until now.
    fn update_rate(&mut self, events: u64) -> f64 {
        let now = Instant::now();
        self.events.push_back((now, events));
        if self.events.len() > RATE_TICKS + 1 {
            self.events.pop_front();
        }
        let (since, before) = self.events[0];
        #[expect(clippy::cast_precision_loss, reason = "it is shown without decimals")]
        let more = (events - before) as f64;
        more / (now - since).as_secs_f64().max(0.1)
    }

    fn status_line(&mut self) -> String {
        let status = self.collection.cache.status();
        let rate = self.update_rate(status.events);
        let MirroredCollection { resource, namespace, cache, .. } = &*self.collection;
        let of = namespace.as_ref().map(|namespace| format!(" in {namespace}")).unwrap_or_default();
        let lag = status.last_synced_at.map(|at| format!(", lag {:.1} s", at.elapsed().as_secs_f64()));
        let memory = cache.memory();
        let held = memory.parts().filter(|(_, bytes)| *bytes > 0);
        let held = held.map(|(part, bytes)| format!("{} {part}", DecimalBytes(to_u64(bytes)))).collect::<Vec<_>>();
        let held = if held.is_empty() { String::new() } else { format!(" ({})", held.join(", ")) };
        format!(
            "{resource}{of} {}{}, {}, {rate:.0} events/s, {} objects in {}{held}",
            version_text(&status),
            lag.unwrap_or_default(),
            errors_text(&status),
            HumanCount(to_u64(cache.len())),
            DecimalBytes(to_u64(memory.total())),
        )
    }
}

fn version_text(status: &ReflectorStatus) -> String {
    match (&status.resource_version, status.strategy) {
        (Some(version), _) => format!("at version {version}"),
        (None, Some(strategy)) => format!("not synced yet ({strategy})"),
        (None, None) => "not synced yet".to_owned(),
    }
}

fn errors_text(status: &ReflectorStatus) -> String {
    let [relists, errors] = [status.relists, status.errors].map(|count| (HumanCount(count), plural_suffix(count)));
    format!("{} relist{}, {} error{}", relists.0, relists.1, errors.0, errors.1)
}

fn plural_suffix(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}

fn to_u64(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
