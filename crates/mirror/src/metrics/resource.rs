//! The metrics of the mirrored resources, read from their caches at each scrape.

use std::time::Duration;

use listwatch::client::ErrorClass;
use listwatch_cache::{Memory, ReflectorStatus};
use prometheus_client::registry::Registry;

use super::labels::{LabelledCounter, LabelledGauge, LabelledSeconds};

/// What the metrics show of a mirrored resource.
pub(crate) struct ResourceMetrics {
    /// The label of the resource, as users type it.
    pub(crate) resource: String,
    pub(crate) objects: usize,
    pub(crate) is_ready: bool,
    pub(crate) paged_snapshots: usize,
    pub(crate) lag: Option<Duration>,
    pub(crate) log_age: Option<Duration>,
    pub(crate) memory: Memory,
    pub(crate) budget: Option<usize>,
    pub(crate) status: ReflectorStatus,
}

/// One family for each metric, with the samples of all resources: a parser refuses a second HELP or TYPE of the same
/// name.
#[derive(Default)]
struct ResourceFamilies {
    objects: LabelledGauge<1>,
    ready: LabelledGauge<1>,
    up_to_date: LabelledGauge<1>,
    paged: LabelledGauge<1>,
    lag: LabelledSeconds<1>,
    log_age: LabelledSeconds<1>,
    memory: LabelledGauge<2>,
    budget: LabelledGauge<1>,
    skipped: LabelledGauge<1>,
    syncs: LabelledCounter<1>,
    relists: LabelledCounter<1>,
    changes: LabelledCounter<1>,
    index_errors: LabelledCounter<1>,
    errors: LabelledCounter<2>,
}

/// What a page shows of the resources.
pub(crate) struct ShownResources {
    pub(crate) mirrored: Vec<ResourceMetrics>,
    /// The names of resources that the API server does not have yet.
    pub(crate) missing: Vec<String>,
    /// False if a stranger reads the page: then only their numbers are shown.
    pub(crate) are_named: bool,
}

impl ShownResources {
    /// Shows one resource.
    #[cfg(test)]
    pub(crate) fn of_one(resource: ResourceMetrics) -> Self {
        Self { mirrored: vec![resource], missing: Vec::new(), are_named: true }
    }

    /// Registers the numbers of resources.
    pub(super) fn register_totals(&self, registry: &mut Registry) {
        let totals = LabelledGauge::<1>::default();
        let count = |is: fn(&ResourceMetrics) -> bool| self.mirrored.iter().filter(|resource| is(resource)).count();
        for (state, count) in [
            ("all", self.mirrored.len() + self.missing.len()),
            ("ready", count(|resource| resource.is_ready)),
            ("up_to_date", count(|resource| resource.status.is_up_to_date)),
        ] {
            totals.get_or_create(&[("state", state.to_owned())]).set(to_i64(count));
        }
        registry.register("resources", "Mirrored resources, and those in a state", totals);
    }

    /// Registers the metrics of each resource.
    pub(super) fn register(self, registry: &mut Registry) {
        let families = ResourceFamilies::default();
        for name in self.missing {
            families.ready.get_or_create(&[("resource", name)]).set(0);
        }
        for resource in &self.mirrored {
            families.add_gauges(resource);
            families.add_counters(resource);
        }
        families.register(registry);
    }
}

impl ResourceFamilies {
    fn add_gauges(&self, of: &ResourceMetrics) {
        let labels = [("resource", of.resource.clone())];
        self.objects.get_or_create(&labels).set(to_i64(of.objects));
        self.ready.get_or_create(&labels).set(i64::from(of.is_ready));
        self.up_to_date.get_or_create(&labels).set(i64::from(of.status.is_up_to_date));
        self.paged.get_or_create(&labels).set(to_i64(of.paged_snapshots));
        self.skipped.get_or_create(&labels).set(to_i64(of.status.skipped));
        if let Some(lag) = of.lag {
            self.lag.get_or_create(&labels).set(lag.as_secs_f64());
        }
        if let Some(age) = of.log_age {
            self.log_age.get_or_create(&labels).set(age.as_secs_f64());
        }
        if let Some(budget) = of.budget {
            self.budget.get_or_create(&labels).set(to_i64(budget));
        }
        let [resource] = labels;
        for (part, bytes) in of.memory.parts() {
            self.memory.get_or_create(&[resource.clone(), ("part", part.to_owned())]).set(to_i64(bytes));
        }
    }

    fn add_counters(&self, of: &ResourceMetrics) {
        let ReflectorStatus { syncs, relists, changes, index_errors, errors_by_class, .. } = &of.status;
        let labels = [("resource", of.resource.clone())];
        for (family, count) in [
            (&self.syncs, syncs),
            (&self.relists, relists),
            (&self.changes, changes),
            (&self.index_errors, index_errors),
        ] {
            family.get_or_create(&labels).inc_by(*count);
        }
        let [resource] = labels;
        // Also the classes that have no error yet: otherwise a rate would not see the first one.
        for class in ErrorClass::ALL {
            let labels = [resource.clone(), ("class", class.as_str().to_owned())];
            let count = errors_by_class.get(class).copied().unwrap_or_default();
            self.errors.get_or_create(&labels).inc_by(count);
        }
    }

    fn register(self, registry: &mut Registry) {
        let Self {
            objects,
            ready,
            up_to_date,
            paged,
            lag,
            log_age,
            memory,
            budget,
            skipped,
            syncs,
            relists,
            changes,
            index_errors,
            errors,
        } = self;
        registry.register("objects", "Objects in the cache", objects);
        registry.register("ready", "1 if the cache has the whole collection", ready);
        registry.register("up_to_date", "1 if the cache follows the changes of the API server", up_to_date);
        registry.register("paged_snapshots", "Snapshots that are kept for lists in pages", paged);
        registry.register("lag_seconds", "Time since the cache was last known to be up to date", lag);
        registry.register("log_age_seconds", "Age of the oldest change that a reader can resume from", log_age);
        registry.register("memory_bytes", "Memory of the cache, its indexes and its change log, by part", memory);
        registry.register("budget_bytes", "Limit of the memory of the cache", budget);
        registry.register("skipped_objects", "Objects that the cache lacks because it could not hold them", skipped);
        registry.register("syncs", "Times that the API server has sent the whole collection", syncs);
        registry.register("relists", "Times that the collection was requested again", relists);
        registry.register("changes", "Changes that the watch has delivered since the cache was synced", changes);
        registry.register("index_errors", "Failures of index functions", index_errors);
        registry.register("upstream_errors", "Lists and watches that ended in an error, by class", errors);
    }
}

fn to_i64(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
