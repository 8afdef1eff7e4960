//! `printDeployment`, `printReplicaSet`, `printStatefulSet`, `printDaemonSet`, `printJob` and `printCronJob` of the
//! server.

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::age::{age_at, human_duration};
use crate::cell::{Cell, Row};
use crate::fields::{Condition, Metadata, NONE, Selector, Template, UNSET, is_true, labels_or_none, null_is_default};

/// A Deployment, a `ReplicaSet` or a `StatefulSet`.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Replicated {
    metadata: Metadata,
    spec: ReplicatedSpec,
    status: ReplicatedStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ReplicatedSpec {
    replicas: Option<i32>,
    selector: Option<Selector>,
    template: Template,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ReplicatedStatus {
    replicas: i32,
    ready_replicas: i32,
    updated_replicas: i32,
    available_replicas: i32,
}

impl Replicated {
    /// Returns the desired number, which the server sets.
    fn desired(&self) -> i32 {
        self.spec.replicas.unwrap_or(1)
    }

    pub(crate) fn deployment_row(&self, now: Timestamp) -> Row {
        let Self { metadata, spec, status } = self;
        let selector = spec.selector.as_ref().map_or_else(|| Some(String::new()), Selector::text);
        let cells = vec![
            Cell::text(&metadata.name),
            Cell::Text(format!("{}/{}", status.ready_replicas, self.desired())),
            Cell::Integer(status.updated_replicas.into()),
            Cell::Integer(status.available_replicas.into()),
            Cell::Text(age_at(now, metadata.creation_timestamp)),
            Cell::Text(spec.template.names()),
            Cell::Text(spec.template.images()),
            Cell::Text(selector.unwrap_or_else(|| "<invalid>".to_owned())),
        ];
        Row { cells, conditions: &[] }
    }

    pub(crate) fn replica_set_row(&self, now: Timestamp) -> Row {
        let Self { metadata, spec, status } = self;
        let cells = vec![
            Cell::text(&metadata.name),
            Cell::Integer(self.desired().into()),
            Cell::Integer(status.replicas.into()),
            Cell::Integer(status.ready_replicas.into()),
            Cell::Text(age_at(now, metadata.creation_timestamp)),
            Cell::Text(spec.template.names()),
            Cell::Text(spec.template.images()),
            Cell::Text(Selector::text_or_none(spec.selector.as_ref())),
        ];
        Row { cells, conditions: &[] }
    }

    pub(crate) fn stateful_set_row(&self, now: Timestamp) -> Row {
        let Self { metadata, spec, status } = self;
        Row::texts([
            metadata.name.clone(),
            format!("{}/{}", status.ready_replicas, self.desired()),
            age_at(now, metadata.creation_timestamp),
            spec.template.names(),
            spec.template.images(),
        ])
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct DaemonSet {
    metadata: Metadata,
    spec: DaemonSetSpec,
    status: DaemonSetStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DaemonSetSpec {
    selector: Option<Selector>,
    template: Template,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct DaemonSetStatus {
    current_number_scheduled: i64,
    desired_number_scheduled: i64,
    number_available: i64,
    number_ready: i64,
    updated_number_scheduled: i64,
}

impl DaemonSet {
    pub(crate) fn row(&self, now: Timestamp) -> Row {
        let Self { metadata, spec, status } = self;
        let cells = vec![
            Cell::text(&metadata.name),
            Cell::Integer(status.desired_number_scheduled),
            Cell::Integer(status.current_number_scheduled),
            Cell::Integer(status.number_ready),
            Cell::Integer(status.updated_number_scheduled),
            Cell::Integer(status.number_available),
            Cell::Text(labels_or_none(spec.template.node_selector())),
            Cell::Text(age_at(now, metadata.creation_timestamp)),
            Cell::Text(spec.template.names()),
            Cell::Text(spec.template.images()),
            Cell::Text(Selector::text_or_none(spec.selector.as_ref())),
        ];
        Row { cells, conditions: &[] }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Job {
    metadata: Metadata,
    spec: JobSpec,
    status: JobStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct JobSpec {
    completions: Option<i32>,
    parallelism: Option<i32>,
    selector: Option<Selector>,
    template: Template,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct JobStatus {
    succeeded: i32,
    start_time: Option<Timestamp>,
    completion_time: Option<Timestamp>,
    #[serde(deserialize_with = "null_is_default")]
    conditions: Vec<Condition>,
}

impl Job {
    pub(crate) fn row(&self, now: Timestamp) -> Row {
        let Self { metadata, spec, status } = self;
        let succeeded = status.succeeded;
        let completions = match (spec.completions, spec.parallelism.unwrap_or(0)) {
            (Some(completions), _) => format!("{succeeded}/{completions}"),
            (None, parallelism) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
            (None, _) => format!("{succeeded}/1"),
        };
        let duration = status.start_time.map(|start| status.completion_time.unwrap_or(now).duration_since(start));
        Row::texts([
            metadata.name.clone(),
            self.state().to_owned(),
            completions,
            duration.map(|duration| human_duration(duration.as_secs())).unwrap_or_default(),
            age_at(now, metadata.creation_timestamp),
            spec.template.names(),
            spec.template.images(),
            Selector::text_or_none(spec.selector.as_ref()),
        ])
    }

    fn state(&self) -> &'static str {
        let has = |condition| is_true(&self.status.conditions, condition);
        match () {
            () if has("Complete") => "Complete",
            () if has("Failed") => "Failed",
            () if self.metadata.deletion_timestamp.is_some() => "Terminating",
            () if has("Suspended") => "Suspended",
            () if has("FailureTarget") => "FailureTarget",
            () if has("SuccessCriteriaMet") => "SuccessCriteriaMet",
            () => "Running",
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct CronJob {
    metadata: Metadata,
    spec: CronJobSpec,
    status: CronJobStatus,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct CronJobSpec {
    job_template: JobTemplate,
    schedule: String,
    suspend: Option<bool>,
    time_zone: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct JobTemplate {
    spec: JobSpec,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct CronJobStatus {
    #[serde(deserialize_with = "null_is_default")]
    active: Vec<IgnoredAny>,
    last_schedule_time: Option<Timestamp>,
}

impl CronJob {
    pub(crate) fn row(&self, now: Timestamp) -> Row {
        let Self { metadata, spec, status } = self;
        let JobSpec { template, selector, .. } = &spec.job_template.spec;
        let suspend = match spec.suspend {
            None => UNSET,
            Some(true) => "True",
            Some(false) => "False",
        };
        let cells = vec![
            Cell::text(&metadata.name),
            Cell::text(&spec.schedule),
            Cell::text(spec.time_zone.as_deref().unwrap_or(NONE)),
            Cell::text(suspend),
            Cell::Integer(status.active.len().try_into().unwrap_or(i64::MAX)),
            Cell::Text(status.last_schedule_time.map_or_else(|| NONE.to_owned(), |last| age_at(now, Some(last)))),
            Cell::Text(age_at(now, metadata.creation_timestamp)),
            Cell::Text(template.names()),
            Cell::Text(template.images()),
            Cell::Text(Selector::text_or_none(selector.as_ref())),
        ];
        Row { cells, conditions: &[] }
    }
}
