//! `printPod` of the server.

use jiff::Timestamp;
use serde::Deserialize;

use crate::age::age_at;
use crate::cell::{Cell, Row, RowCondition};
use crate::fields::{Condition, Metadata, is_true, null_is_default, or_none};

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Pod {
    metadata: Metadata,
    spec: PodSpec,
    status: PodStatus,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodSpec {
    #[serde(deserialize_with = "null_is_default")]
    containers: Vec<serde::de::IgnoredAny>,
    init_containers: Vec<InitContainer>,
    node_name: String,
    readiness_gates: Vec<ReadinessGate>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct InitContainer {
    name: String,
    restart_policy: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ReadinessGate {
    condition_type: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodStatus {
    phase: String,
    reason: String,
    #[serde(deserialize_with = "null_is_default")]
    conditions: Vec<Condition>,
    init_container_statuses: Vec<ContainerStatus>,
    container_statuses: Vec<ContainerStatus>,
    nominated_node_name: String,
    #[serde(rename = "podIP")]
    pod_ip: String,
    #[serde(rename = "podIPs")]
    pod_ips: Vec<PodIp>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PodIp {
    ip: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ContainerStatus {
    name: String,
    ready: bool,
    started: Option<bool>,
    restart_count: i32,
    state: ContainerState,
    last_state: ContainerState,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ContainerState {
    waiting: Option<Waiting>,
    running: Option<serde::de::IgnoredAny>,
    terminated: Option<Terminated>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Waiting {
    reason: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Terminated {
    reason: String,
    exit_code: i32,
    signal: i32,
    finished_at: Option<Timestamp>,
}

impl Terminated {
    /// Returns the reason, or else the signal or the exit code.
    fn text(&self) -> String {
        match (self.reason.is_empty(), self.signal) {
            (false, _) => self.reason.clone(),
            (true, 0) => format!("ExitCode:{}", self.exit_code),
            (true, signal) => format!("Signal:{signal}"),
        }
    }
}

/// The restarts of containers, and when the last of them ended.
#[derive(Clone, Copy, Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, container: &ContainerStatus) {
        self.count += i64::from(container.restart_count);
        self.last = self.last.max(container.last_state.terminated.as_ref().and_then(|ended| ended.finished_at));
    }
}

/// What the containers of a Pod are doing.
struct Summary {
    reason: String,
    ready: usize,
    restarts: Restarts,
}

impl Pod {
    pub(crate) fn row(&self, now: Timestamp) -> Row {
        let Self { metadata, spec, status } = self;
        let sidecars = spec.init_containers.iter().filter(|container| container.restart_policy == "Always").count();
        let total = spec.containers.len() + sidecars;
        let Summary { mut reason, ready, restarts } = self.summarize();
        let is_terminal = matches!(&*status.phase, "Succeeded" | "Failed");
        if metadata.deletion_timestamp.is_some() && status.reason == "NodeLost" {
            "Unknown".clone_into(&mut reason);
        } else if metadata.deletion_timestamp.is_some() && !is_terminal {
            "Terminating".clone_into(&mut reason);
        }
        let restarts = match restarts {
            Restarts { count, last: Some(last) } if count != 0 => format!("{count} ({} ago)", age_at(now, Some(last))),
            Restarts { count, .. } => count.to_string(),
        };
        let pod_ip = status.pod_ips.first().map_or(&status.pod_ip, |pod_ip| &pod_ip.ip);
        let cells = [
            metadata.name.clone(),
            format!("{ready}/{total}"),
            reason,
            restarts,
            age_at(now, metadata.creation_timestamp),
            or_none(pod_ip),
            or_none(&spec.node_name),
            or_none(&status.nominated_node_name),
            self.readiness_gates(),
        ];
        let conditions = match &*status.phase {
            "Succeeded" => SUCCEEDED,
            "Failed" => FAILED,
            _ => &[],
        };
        Row { cells: cells.into_iter().map(Cell::Text).collect(), conditions }
    }

    fn summarize(&self) -> Summary {
        let Self { spec, status, .. } = self;
        let is_gated =
            |condition: &&Condition| condition.r#type == "PodScheduled" && condition.reason == "SchedulingGated";
        let mut reason = if status.reason.is_empty() { &status.phase } else { &status.reason }.clone();
        if let Some(gated) = status.conditions.iter().find(is_gated) {
            reason.clone_from(&gated.reason);
        }
        let (mut all, mut of_sidecars) = (Restarts::default(), Restarts::default());
        let mut ready = 0;
        let mut is_initializing = false;
        for (at, container) in status.init_container_statuses.iter().enumerate() {
            // The last definition of a name counts, as in a map.
            let definition = spec.init_containers.iter().rfind(|definition| definition.name == container.name);
            let is_sidecar = definition.is_some_and(|definition| definition.restart_policy == "Always");
            all.add(container);
            if is_sidecar {
                of_sidecars.add(container);
            }
            let ended = container.state.terminated.as_ref();
            if ended.is_some_and(|ended| ended.exit_code == 0) {
                continue;
            }
            if is_sidecar && container.started == Some(true) {
                ready += usize::from(container.ready);
                continue;
            }
            let waiting = container.state.waiting.as_ref().map_or("", |waiting| &waiting.reason);
            reason = match (ended, waiting) {
                (Some(ended), _) => format!("Init:{}", ended.text()),
                (None, "" | "PodInitializing") => format!("Init:{at}/{}", spec.init_containers.len()),
                (None, waiting) => format!("Init:{waiting}"),
            };
            is_initializing = true;
            break;
        }
        if is_initializing && !is_true(&status.conditions, "Initialized") {
            return Summary { reason, ready, restarts: all };
        }
        self.summarize_main(Summary { reason, ready, restarts: of_sidecars })
    }

    /// Adds the containers that run after the initialization.
    fn summarize_main(&self, before: Summary) -> Summary {
        let Summary { mut reason, mut ready, mut restarts } = before;
        let (mut has_running, mut failure) = (false, None);
        for container in self.status.container_statuses.iter().rev() {
            restarts.add(container);
            let ContainerState { waiting, running, terminated } = &container.state;
            if let Some(waiting) = waiting.as_ref().filter(|waiting| !waiting.reason.is_empty()) {
                reason.clone_from(&waiting.reason);
            } else if let Some(ended) = terminated {
                reason = ended.text();
                if ended.exit_code != 0 {
                    failure = Some(reason.clone());
                }
            } else if container.ready && running.is_some() {
                has_running = true;
                ready += 1;
            }
        }
        if reason == "Completed" {
            // Of the `Ready` conditions, any that is true counts.
            let is_ready = |condition: &Condition| condition.r#type == "Ready" && condition.status == "True";
            if has_running && self.status.conditions.iter().any(is_ready) {
                "Running".clone_into(&mut reason);
            } else if let Some(failure) = failure {
                reason = failure;
            } else if has_running {
                "NotReady".clone_into(&mut reason);
            }
        }
        Summary { reason, ready, restarts }
    }

    fn readiness_gates(&self) -> String {
        let gates = &self.spec.readiness_gates;
        let open = gates.iter().filter(|gate| is_true(&self.status.conditions, &gate.condition_type)).count();
        if gates.is_empty() { or_none("") } else { format!("{open}/{}", gates.len()) }
    }
}

static SUCCEEDED: &[RowCondition] = &[RowCondition {
    r#type: "Completed",
    status: "True",
    reason: "Succeeded",
    message: "The pod has completed successfully.",
}];

static FAILED: &[RowCondition] =
    &[RowCondition { r#type: "Completed", status: "True", reason: "Failed", message: "The pod failed." }];
