//! The status of the caches, shown on stderr.

use std::collections::VecDeque;

use indicatif::{DecimalBytes, HumanCount, ProgressBar, ProgressStyle};
use listwatch_cache::{Memory, ReflectorStatus};
use tokio::time::Instant;

use super::collection::Collection;
use crate::failure::chain;
use crate::notices;

/// Shows a status line for each collection at the bottom of a terminal, and prints a line for each sync, error and skipped object.
pub struct Live<'a> {
    bar: ProgressBar,
    shown: Vec<Shown<'a>>,
}

/// What is known about a collection.
struct Shown<'a> {
    collection: &'a Collection,
    /// These four fields are the status that was already printed.
    is_synced: bool,
    syncs: u64,
    errors: u64,
    skipped: usize,
    /// The number of events at each recent tick.
    events: VecDeque<(Instant, u64)>,
}

/// The number of ticks over which the rate of events is measured: two seconds.
const RECENT: usize = 8;

impl<'a> Live<'a> {
    pub fn new(collections: &'a [Collection]) -> Self {
        let style = ProgressStyle::with_template("{msg}").expect("the template is valid");
        let bar = ProgressBar::no_length().with_style(style);
        notices::show_above(&bar);
        let shown = |collection| Shown {
            collection,
            is_synced: false,
            syncs: 0,
            errors: 0,
            skipped: 0,
            events: VecDeque::new(),
        };
        Self { bar, shown: collections.iter().map(shown).collect() }
    }

    /// Updates the status lines, and prints what changed since the last call.
    pub fn update(&mut self) {
        if !self.bar.is_hidden() {
            let lines: Vec<_> = self.shown.iter_mut().map(Shown::line).collect();
            self.bar.set_message(lines.join("\n"));
        }
        self.shown.iter_mut().for_each(Shown::print_news);
    }

    /// Removes the status lines, and prints the totals.
    pub fn end(&self) {
        self.bar.finish_and_clear();
        for Shown { collection: Collection { resource, cache, .. }, .. } in &self.shown {
            let status = cache.status();
            let [objects, events] = [count(cache.len()), status.events].map(HumanCount);
            let memory = DecimalBytes(count(cache.memory().total()));
            notices::line(format_args!(
                "{resource}: {objects} objects {}, {memory}, {events} events, {}",
                at(&status),
                troubles(&status)
            ));
        }
    }
}

impl Shown<'_> {
    fn print_news(&mut self) {
        let Collection { resource, cache, .. } = self.collection;
        let status = cache.status();
        if let Some(error) = status.last_error.as_ref().filter(|_| status.errors > self.errors) {
            notices::print("retrying:", &format!("{resource}: {}", chain(error)));
        }
        if let Some(skipped) = status.last_skipped.as_ref().filter(|_| status.skipped > self.skipped) {
            notices::print("skipped:", &format!("{resource}: {}", chain(skipped)));
        }
        // A loaded cache is complete without a sync.
        let is_news = status.syncs > self.syncs || !self.is_synced;
        if let Some(version) = status.resource_version.as_ref().filter(|_| is_news) {
            self.is_synced = true;
            let objects = HumanCount(count(cache.len()));
            notices::print("synced:", &format!("{resource}: {objects} objects at version {version}"));
        }
        (self.syncs, self.errors, self.skipped) = (status.syncs, status.errors, status.skipped);
    }

    /// Returns the events per second, given their number until now.
    fn rate(&mut self, events: u64) -> f64 {
        let now = Instant::now();
        self.events.push_back((now, events));
        if self.events.len() > RECENT + 1 {
            self.events.pop_front();
        }
        let (since, before) = self.events[0];
        #[expect(clippy::cast_precision_loss, reason = "it is shown without decimals")]
        let more = (events - before) as f64;
        more / (now - since).as_secs_f64().max(0.1)
    }

    fn line(&mut self) -> String {
        let Collection { resource, namespace, cache, .. } = self.collection;
        let status = cache.status();
        let rate = self.rate(status.events);
        let of = namespace.as_ref().map(|namespace| format!(" in {namespace}")).unwrap_or_default();
        let lag = status.last_synced_at.map(|at| format!(", lag {:.1} s", at.elapsed().as_secs_f64()));
        let memory = cache.memory();
        let held = parts(&memory).into_iter().filter(|(_, bytes)| *bytes > 0);
        let held = held.map(|(part, bytes)| format!("{} {part}", DecimalBytes(count(bytes)))).collect::<Vec<_>>();
        let held = if held.is_empty() { String::new() } else { format!(" ({})", held.join(", ")) };
        format!(
            "{resource}{of} {}{}, {}, {rate:.0} events/s, {} objects in {}{held}",
            at(&status),
            lag.unwrap_or_default(),
            troubles(&status),
            HumanCount(count(cache.len())),
            DecimalBytes(count(memory.total())),
        )
    }
}

fn at(status: &ReflectorStatus) -> String {
    match (&status.resource_version, status.strategy) {
        (Some(version), _) => format!("at version {version}"),
        (None, Some(strategy)) => format!("not synced yet ({strategy})"),
        (None, None) => "not synced yet".to_owned(),
    }
}

fn troubles(status: &ReflectorStatus) -> String {
    let [relists, errors] = [relists(status), status.errors].map(|count| (HumanCount(count), plural(count)));
    format!("{} relist{}, {} error{}", relists.0, relists.1, errors.0, errors.1)
}

/// Returns how often the whole collection was received again.
fn relists(status: &ReflectorStatus) -> u64 {
    status.syncs.saturating_sub(1)
}

/// Returns the parts of a cache's memory, in bytes.
fn parts(memory: &Memory) -> [(&'static str, usize); 7] {
    [
        ("compressed", memory.compressed),
        ("encoded", memory.encoded),
        ("table", memory.table),
        ("indexes", memory.indexes),
        ("log", memory.log),
        ("replace", memory.replace),
        ("zstd", memory.zstd),
    ]
}

fn plural(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
