//! Synthesizes a list of Pods as diverse as in a real cluster, to measure compression and stores.
//!
//! # How the Pods are made
//!
//! A cluster of N Pods has N / 40 nodes. One Pod in seven belongs to a `DaemonSet` or to a kubelet. The others belong
//! to Deployments, `StatefulSets`, Jobs, custom resources and users. Each workload has one of 47 shapes (`shapes.rs`):
//! services with and without a service mesh, databases, operators, workflows, training jobs, agents. A shape sets the
//! containers, the sidecars and the annotations, and the ranges of the numbers of Pods, init containers, environment
//! variables and volumes.
//!
//! A workload draws names, images, settings, probes, resources, affinity and annotations once; some annotations of
//! operators are large. All Pods of the workload share these values, like Pods of one template, and the name and uid of
//! their owner. Each Pod draws its own name, uid, resource version, times, node, addresses, container ids, restarts and
//! conditions. So the random values of a real cluster are random here, and the repeated ones repeat. The owner of a Pod
//! of a kubelet is its node. `metadata.managedFields` lists the fields that are set, for two or three managers.
//!
//! The same number of Pods gives the same bytes on each machine. Pods are ordered by key, as an API server lists them,
//! and no two have the same key.
//!
//! # Entropy
//!
//! The concatenated Pods, compressed by `zstd -19 --long=27` (1.5), give about the smallest size that a store could
//! reach.
//!
//! [`pods`] makes few Pods of each workload, 5 on average. [`pods_by_zipf`] makes many of a few workloads.
//!
//! | 5,000 Pods | encoded | compressed | ratio |
//! |---|---:|---:|---:|
//! | diverse, from [`pods`] | 12.1 kB a Pod | 518 bytes a Pod | 1/23 |
//! | diverse, from [`pods_by_zipf`] with 125 workloads | 10.6 kB a Pod | 254 bytes a Pod | 1/42 |
//! | uniform, from the test server: 120 recorded ones repeated | 8.5 kB a Pod | 22 bytes a Pod | 1/391 |
//!
//! The Pods are synthetic: words come from a short list, so free text compresses better than real text. The empty
//! strings that an API server writes are absent.
//!
//! [`custom`] makes custom resources in JSON.

#![expect(clippy::format_push_string, reason = "`write!` returns an error that cannot occur")]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "numbers of Pods are small"
)]
#![expect(clippy::too_many_lines, reason = "a Pod has many fields")]
#![expect(clippy::unnecessary_wraps, reason = "prost has optional fields")]

pub mod custom;
mod managed;
mod shapes;
pub mod text;

use std::collections::BTreeMap;

use fastrand::Rng;
use k8s_pb::api::core::v1::{
    Affinity, Capabilities, ConfigMapProjection, ConfigMapVolumeSource, Container, ContainerPort, ContainerState,
    ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus, EmptyDirVolumeSource,
    EnvVar, EnvVarSource, ExecAction, HostIp, HostPathVolumeSource, HttpGetAction, KeyToPath, LocalObjectReference,
    NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PersistentVolumeClaimVolumeSource, Pod,
    PodAffinityTerm, PodAntiAffinity, PodCondition, PodIp, PodList, PodSecurityContext, PodSpec, PodStatus, Probe,
    ProbeHandler, ProjectedVolumeSource, ResourceRequirements, SecretKeySelector, SecretVolumeSource, SecurityContext,
    ServiceAccountTokenProjection, Toleration, TopologySpreadConstraint, Volume, VolumeMount, VolumeProjection,
    VolumeSource, WeightedPodAffinityTerm,
};
use k8s_pb::apimachinery::pkg::api::resource::Quantity;
use k8s_pb::apimachinery::pkg::apis::meta::v1::{LabelSelector, ListMeta, ObjectMeta, OwnerReference, Time};
use k8s_pb::apimachinery::pkg::util::intstr::IntOrString;
use prost::Message as _;
use prost::encoding::{bytes, encode_varint};

use crate::shapes::{Note, Owner, SHAPES, Shape, Sidecar};
use crate::text::{
    between, hex, json, name, pick, secret, skewed, suffix, template, uid, value, variable, version, word,
};

/// Returns the protobuf body, with its envelope, of a list of this many Pods.
///
/// # Panics
///
/// Never: encoding into memory does not fail.
#[must_use]
pub fn pods(count: u32) -> Vec<u8> {
    list(cluster(count, None))
}

/// As [`pods`], but the Pods that belong to no node are of this many workloads, whose numbers of Pods follow Zipf's
/// law: the n-th workload has 1/n of the Pods of the first.
///
/// # Panics
///
/// Never, as [`pods`].
#[must_use]
pub fn pods_by_zipf(count: u32, workloads: u32) -> Vec<u8> {
    list(cluster(count, Some(workloads)))
}

/// Encoded Pods by namespace and name.
type Pods = BTreeMap<(String, String), Vec<u8>>;

fn list(pods: Pods) -> Vec<u8> {
    let metadata = Some(ListMeta { resource_version: some("1900000000"), ..ListMeta::default() });
    let list = PodList { metadata, items: Vec::new() }.encode_to_vec();
    let length = list.len() + pods.values().map(|pod| bytes::encoded_len(ITEMS, pod)).sum::<usize>();
    let mut body = b"k8s\0\x0a\x0d\x0a\x02v1\x12\x07PodList\x12".to_vec();
    encode_varint(length as u64, &mut body);
    body.reserve_exact(length + ENVELOPE_END.len());
    body.extend(list);
    for pod in pods.into_values() {
        bytes::encode(ITEMS, &pod, &mut body);
    }
    body.extend_from_slice(ENVELOPE_END);
    body
}

/// The field of a list that holds its items.
const ITEMS: u32 = 2;
const ENVELOPE_END: &[u8] = b"\x1a\0\x22\0";

/// Adds a Pod, unless it has drawn the name of another.
fn add(pods: &mut Pods, pod: &Pod) {
    let meta = pod.metadata.as_ref().expect("a Pod has metadata");
    pods.entry((meta.namespace().to_owned(), meta.name().to_owned())).or_insert_with(|| pod.encode_to_vec());
}

fn cluster(count: u32, workloads: Option<u32>) -> Pods {
    let mut rng = Rng::with_seed(40);
    let mut cluster = Cluster::new(&mut rng, count);
    let mut pods = Pods::new();
    let daemons: Vec<_> = SHAPES.iter().filter(|shape| shape.weight == 0).collect();
    for shape in daemons {
        let workload = Workload::new(&mut rng, shape, &cluster);
        for node in 0..cluster.nodes.len().min(count as usize / 48) {
            add(&mut pods, &workload.pod(&mut rng, &mut cluster, Some(node)));
        }
    }
    let weights: u32 = SHAPES.iter().map(|shape| shape.weight).sum();
    let first = workloads.map(|workloads| {
        let left = f64::from(count) - pods.len() as f64;
        left / (1..=workloads).map(|rank| 1.0 / f64::from(rank)).sum::<f64>()
    });
    let mut rank = 0;
    while pods.len() < count as usize {
        let mut left = rng.u32(..weights);
        let shape = SHAPES.iter().find(|shape| {
            let is_it = left < shape.weight;
            left = left.saturating_sub(shape.weight);
            is_it
        });
        let shape = shape.expect("the number is below the sum of the weights");
        let workload = Workload::new(&mut rng, shape, &cluster);
        rank += 1;
        let replicas = match first {
            Some(first) => (first / f64::from(rank)).ceil() as u32,
            None => skewed(&mut rng, shape.replicas),
        };
        for _ in 0..replicas {
            if pods.len() < count as usize {
                add(&mut pods, &workload.pod(&mut rng, &mut cluster, None));
            }
        }
    }
    pods
}

struct Node {
    name: String,
    uid: String,
    ip: String,
    /// The first three numbers of its Pods' addresses.
    subnet: String,
}

struct Cluster {
    nodes: Vec<Node>,
    namespaces: Vec<String>,
    registry: String,
    /// The resource version of the last Pod made; the next one adds a random gap.
    version: u64,
}

impl Cluster {
    fn new(rng: &mut Rng, pods: u32) -> Self {
        let node = |rng: &mut Rng| {
            let [a, b, c] = [rng.u8(..), rng.u8(..), rng.u8(2..254)];
            let zone = pick(rng, &["eu-central-1", "eu-west-1", "us-east-1"]);
            Node {
                uid: uid(rng),
                name: format!("ip-10-{a}-{b}-{c}.{zone}.compute.internal"),
                ip: format!("10.{a}.{b}.{c}"),
                subnet: format!("100.{}.{}", rng.u8(64..128), rng.u8(..)),
            }
        };
        let teams = (pods / 50).clamp(4, 400);
        Self {
            nodes: (0..pods.div_ceil(40)).map(|_| node(rng)).collect(),
            namespaces: (0..teams).map(|_| format!("{}-{}", word(rng), text::environment(rng))).collect(),
            registry: format!("{}.dkr.ecr.eu-central-1.amazonaws.com", rng.u64(100_000_000_000..1_000_000_000_000)),
            version: 1_000_000_000,
        }
    }
}

/// The values that all Pods of a workload share.
struct Workload {
    shape: &'static Shape,
    name: String,
    /// A Pod without the values that each Pod draws itself.
    template: Pod,
    /// The time of the template's last change, in seconds since 1970.
    changed: i64,
    owner_uid: String,
    template_hash: String,
    /// The number in the name of its Job.
    job: u32,
    is_young: bool,
}

const NOW: i64 = 1_790_000_000;

impl Workload {
    fn new(rng: &mut Rng, shape: &'static Shape, cluster: &Cluster) -> Self {
        let is_system = matches!(shape.owner, Owner::DaemonSet | Owner::Static);
        let name = if is_system { shape.name.to_owned() } else { name(rng) };
        let namespace = if is_system {
            "kube-system".to_owned()
        } else {
            cluster.namespaces[rng.usize(..cluster.namespaces.len())].clone()
        };
        let template_hash = suffix(rng, 10);
        let labels = labels(rng, shape, &name, &template_hash);
        let spec = spec(rng, shape, &name, &namespace, &labels, cluster);
        let mut annotations = BTreeMap::new();
        for note in shape.notes {
            annotate(rng, *note, &name, &mut annotations);
        }
        let metadata = ObjectMeta {
            namespace: Some(namespace),
            labels,
            annotations,
            generation: Some(1),
            ..ObjectMeta::default()
        };
        Self {
            shape,
            name,
            template: Pod { metadata: Some(metadata), spec: Some(spec), status: None },
            changed: NOW - i64::from(skewed(rng, (60, 300 * 86_400))),
            owner_uid: uid(rng),
            template_hash,
            job: rng.u32(29_000_000..30_000_000),
            is_young: rng.u8(..20) == 0,
        }
    }

    /// Makes a Pod: on the node `on`, if given, otherwise on a random one.
    fn pod(&self, rng: &mut Rng, cluster: &mut Cluster, on: Option<usize>) -> Pod {
        let node = &cluster.nodes[on.unwrap_or_else(|| rng.usize(..cluster.nodes.len()))];
        cluster.version += rng.u64(1..400);
        let created =
            self.changed + i64::from(rng.u32(..).min(u32::try_from(NOW - self.changed).unwrap_or(u32::MAX)) / 3);
        let mut pod = self.template.clone();

        let meta = pod.metadata.get_or_insert_default();
        let (owner_kind, owner_name, api_version, generate) = self.owner(node);
        meta.name = Some(match self.shape.owner {
            Owner::StatefulSet => format!("{}-{}", self.name, rng.u32(..100_000)),
            Owner::Static => format!("{}-{}", self.name, node.name),
            Owner::Nothing => format!("{}-{}", self.name, suffix(rng, 4)),
            _ => format!("{generate}{}", suffix(rng, 5)),
        });
        if !matches!(self.shape.owner, Owner::Static | Owner::Nothing) {
            meta.generate_name = Some(generate);
        }
        meta.uid = Some(uid(rng));
        meta.resource_version = Some(cluster.version.to_string());
        meta.creation_timestamp = Some(time(created));
        if let Some(kind) = owner_kind {
            meta.owner_references = vec![OwnerReference {
                api_version: some(api_version),
                kind: some(kind),
                name: Some(owner_name),
                uid: Some(if kind == "Node" { node.uid.clone() } else { self.owner_uid.clone() }),
                controller: Some(true),
                block_owner_deletion: (kind != "Node").then_some(true),
            }];
        }
        let spec = pod.spec.get_or_insert_default();
        spec.node_name = Some(node.name.clone());
        let token = format!("kube-api-access-{}", suffix(rng, 5));
        spec.volumes.push(service_account_volume(&token));
        for container in spec.containers.iter_mut().chain(&mut spec.init_containers) {
            container.volume_mounts.push(mount(&token, "/var/run/secrets/kubernetes.io/serviceaccount", true));
        }
        let created_fields = managed::creator(&pod);

        let pod_ip = if pod.spec.as_ref().is_some_and(|spec| spec.host_network == Some(true)) {
            node.ip.clone()
        } else {
            format!("{}.{}", node.subnet, rng.u8(..))
        };
        let inherited: Vec<_> = pod.metadata.iter().flat_map(|meta| meta.annotations.keys().cloned()).collect();
        let meta = pod.metadata.get_or_insert_default();
        for note in self.shape.notes {
            annotate_pod(rng, *note, &pod_ip, &mut meta.annotations);
        }
        let added: Vec<_> = meta.annotations.keys().filter(|key| !inherited.contains(key)).cloned().collect();
        pod.status = Some(self.status(rng, &pod, node, pod_ip, created));

        let manager = match self.shape.owner {
            Owner::Operator(_, _, manager) => manager,
            Owner::Static => "kubelet",
            Owner::Nothing => "kubectl-client-side-apply",
            _ => "kube-controller-manager",
        };
        let mut entries = vec![managed::entry(manager, None, created, created_fields)];
        if !added.is_empty() {
            let plugin = if added.iter().any(|key| key.contains("multus") || key.contains("cncf")) {
                "multus"
            } else {
                "calico"
            };
            entries.push(managed::entry(plugin, Some("status"), created + 2, managed::annotations(added.iter())));
        }
        entries.push(managed::entry("kubelet", Some("status"), created + rng.i64(5..90), managed::kubelet(&pod)));
        if let Some(meta) = &mut pod.metadata {
            meta.managed_fields = entries;
        }
        pod
    }

    /// Returns the owner's kind, name and `apiVersion`, and the prefix of its Pods' names.
    fn owner(&self, node: &Node) -> (Option<&'static str>, String, &'static str, String) {
        let Self { name, template_hash, job, .. } = self;
        match self.shape.owner {
            Owner::Deployment => {
                let replica_set = format!("{name}-{template_hash}");
                (Some("ReplicaSet"), replica_set.clone(), "apps/v1", format!("{replica_set}-"))
            }
            Owner::StatefulSet => (Some("StatefulSet"), name.clone(), "apps/v1", format!("{name}-")),
            Owner::DaemonSet => (Some("DaemonSet"), name.clone(), "apps/v1", format!("{name}-")),
            Owner::Job => {
                let job = format!("{name}-{job}");
                (Some("Job"), job.clone(), "batch/v1", format!("{job}-"))
            }
            Owner::Operator(api_version, kind, _) => (Some(kind), name.clone(), api_version, format!("{name}-")),
            Owner::Static => (Some("Node"), node.name.clone(), "v1", String::new()),
            Owner::Nothing => (None, String::new(), "", String::new()),
        }
    }

    fn status(&self, rng: &mut Rng, pod: &Pod, node: &Node, pod_ip: String, created: i64) -> PodStatus {
        let is_done = matches!(self.shape.owner, Owner::Job) || matches!(self.shape.name, "workflow" | "pipeline");
        let is_done = is_done && rng.u8(..10) < 8;
        let is_broken = !is_done && self.is_young && rng.bool();
        let started = created + rng.i64(1..40);
        let spec = pod.spec.as_ref().expect("a Pod has a spec");
        let state = |rng: &mut Rng| match (is_done, is_broken) {
            (true, _) => ContainerState {
                terminated: Some(ContainerStateTerminated {
                    exit_code: Some(0),
                    reason: some("Completed"),
                    started_at: Some(time(started)),
                    finished_at: Some(time(started + rng.i64(2..4000))),
                    container_id: Some(format!("containerd://{}", hex(rng, 64))),
                    ..ContainerStateTerminated::default()
                }),
                ..ContainerState::default()
            },
            (_, true) => ContainerState {
                waiting: Some(ContainerStateWaiting {
                    reason: some("CrashLoopBackOff"),
                    message: Some(format!(
                        "back-off 5m0s restarting failed container={} pod={}_{}({})",
                        self.name,
                        pod.metadata.as_ref().map(ObjectMeta::name).unwrap_or_default(),
                        pod.metadata.as_ref().map(ObjectMeta::namespace).unwrap_or_default(),
                        pod.metadata.as_ref().map(ObjectMeta::uid).unwrap_or_default(),
                    )),
                }),
                ..ContainerState::default()
            },
            _ => ContainerState {
                running: Some(ContainerStateRunning { started_at: Some(time(started + rng.i64(0..20))) }),
                ..ContainerState::default()
            },
        };
        let mut statuses = |containers: &[Container], is_init: bool| -> Vec<ContainerStatus> {
            let status = |container: &Container| {
                let image = container.image().to_owned();
                let repository = image.rsplit_once(':').map_or(&*image, |(repository, _)| repository).to_owned();
                let restarts = if is_broken { rng.i32(3..400) } else { rng.i32(0..12).max(8) - 8 };
                ContainerStatus {
                    name: container.name.clone(),
                    state: Some(if is_init && !is_done {
                        ContainerState {
                            terminated: Some(ContainerStateTerminated {
                                exit_code: Some(0),
                                reason: some("Completed"),
                                started_at: Some(time(started)),
                                finished_at: Some(time(started + rng.i64(1..30))),
                                container_id: Some(format!("containerd://{}", hex(rng, 64))),
                                ..ContainerStateTerminated::default()
                            }),
                            ..ContainerState::default()
                        }
                    } else {
                        state(rng)
                    }),
                    last_state: Some(ContainerState::default()),
                    ready: Some(!is_done && !is_broken),
                    restart_count: Some(restarts),
                    image_id: Some(format!("{repository}@sha256:{}", hex(&mut Rng::with_seed(seed(&image)), 64))),
                    image: Some(image),
                    container_id: Some(format!("containerd://{}", hex(rng, 64))),
                    started: Some(!is_done && !is_init),
                    ..ContainerStatus::default()
                }
            };
            containers.iter().map(status).collect()
        };
        let (container_statuses, init_container_statuses) =
            (statuses(&spec.containers, false), statuses(&spec.init_containers, true));
        let phase = if is_done { "Succeeded" } else { "Running" };
        let condition = |of: &str, is_true: bool, reason: &str, seconds: i64| PodCondition {
            r#type: some(of),
            status: some(if is_true { "True" } else { "False" }),
            last_transition_time: Some(time(seconds)),
            reason: (!is_true || is_done).then(|| reason.to_owned()),
            message: (!is_true && is_broken).then(|| format!("containers with unready status: [{}]", self.name)),
            observed_generation: Some(1),
            ..PodCondition::default()
        };
        let ready = !is_done && !is_broken;
        PodStatus {
            phase: some(phase),
            conditions: vec![
                condition("PodReadyToStartContainers", true, "PodCompleted", started),
                condition("Initialized", true, "PodCompleted", started + 3),
                condition(
                    "Ready",
                    ready,
                    if is_done { "PodCompleted" } else { "ContainersNotReady" },
                    started + rng.i64(5..60),
                ),
                condition(
                    "ContainersReady",
                    ready,
                    if is_done { "PodCompleted" } else { "ContainersNotReady" },
                    started + rng.i64(5..60),
                ),
                condition("PodScheduled", true, "PodCompleted", created),
            ],
            host_ip: Some(node.ip.clone()),
            host_ips: vec![HostIp { ip: Some(node.ip.clone()) }],
            pod_ips: vec![PodIp { ip: Some(pod_ip.clone()) }],
            pod_ip: Some(pod_ip),
            start_time: Some(time(created)),
            container_statuses,
            init_container_statuses,
            qos_class: some(pick(rng, &["Burstable", "Burstable", "Guaranteed", "BestEffort"])),
            observed_generation: Some(1),
            ..PodStatus::default()
        }
    }
}

/// FNV-1a. Seeds a generator with a text, so that equal images have equal digests.
fn seed(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn time(seconds: i64) -> Time {
    Time { seconds: Some(seconds), nanos: Some(0) }
}

fn labels(rng: &mut Rng, shape: &Shape, name: &str, hash: &str) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    let mut set = |key: &str, value: String| labels.insert(key.to_owned(), value);
    match if shape.is_plain { 0 } else { rng.u8(..3) } {
        0 => _ = set("app", name.to_owned()),
        1 => {
            set("app.kubernetes.io/name", name.to_owned());
            set("app.kubernetes.io/instance", format!("{name}-{}", text::environment(rng)));
            set("app.kubernetes.io/version", version(rng));
            set("app.kubernetes.io/managed-by", "Helm".to_owned());
            set("helm.sh/chart", format!("{}-{}.{}.{}", shape.name, rng.u8(..9), rng.u8(..30), rng.u8(..20)));
        }
        _ => {
            set("app", name.to_owned());
            set("team", word(rng).to_owned());
            set("tier", pick(rng, &["frontend", "backend", "data", "infra"]).to_owned());
        }
    }
    for _ in 0..if shape.is_plain { 0 } else { rng.u8(..4) } {
        let key = format!("{}.example.com/{}", word(rng), word(rng));
        set(&key, if rng.bool() { word(rng).to_owned() } else { text::name(rng) });
    }
    match shape.owner {
        Owner::Deployment => _ = set("pod-template-hash", hash.to_owned()),
        Owner::StatefulSet | Owner::DaemonSet => _ = set("controller-revision-hash", format!("{name}-{hash}")),
        Owner::Job => _ = set("batch.kubernetes.io/job-name", name.to_owned()),
        Owner::Operator(_, kind, manager) => {
            set(&format!("{manager}.example.com/cluster"), name.to_owned());
            set(&format!("{manager}.example.com/kind"), kind.to_owned());
        }
        Owner::Static => _ = set("tier", "control-plane".to_owned()),
        Owner::Nothing => {}
    }
    if shape.notes.iter().any(|note| matches!(note, Note::Istio)) {
        set("security.istio.io/tlsMode", "istio".to_owned());
        set("service.istio.io/canonical-name", name.to_owned());
        set("service.istio.io/canonical-revision", "latest".to_owned());
    }
    labels
}

fn spec(
    rng: &mut Rng,
    shape: &Shape,
    name: &str,
    namespace: &str,
    labels: &BTreeMap<String, String>,
    cluster: &Cluster,
) -> PodSpec {
    let on_node = matches!(shape.owner, Owner::DaemonSet | Owner::Static);
    let volumes: Vec<_> = (0..between(rng, shape.volumes)).map(|_| volume(rng, on_node, name)).collect();
    let own: Vec<_> = shape
        .containers
        .iter()
        .map(|of| {
            let name = if matches!(*of, "app" | "api" | "server" | "worker" | "job") && rng.bool() { name } else { of };
            container(rng, shape, name, name, namespace, &volumes, cluster)
        })
        .collect();
    let mut containers = own;
    containers.extend(shape.sidecars.iter().map(|of| sidecar(rng, *of, name)));
    let init_containers = (0..rng.u32(shape.inits / 2..=shape.inits))
        .map(|_| {
            let name =
                format!("{}-{}", pick(rng, &["init", "wait-for", "migrate", "copy", "fix", "install"]), word(rng));
            let few = Shape { env: (0, shape.env.0 / 4 + 1), ..*shape };
            container(rng, &few, &name, &name, namespace, &volumes, cluster)
        })
        .collect();
    let selector = LabelSelector {
        match_labels: labels.iter().take(1).map(|(key, value)| (key.clone(), value.clone())).collect(),
        ..LabelSelector::default()
    };
    let seconds = |key: &str| Toleration {
        key: some(key),
        operator: some("Exists"),
        effect: some("NoExecute"),
        toleration_seconds: (!on_node).then_some(300),
        ..Toleration::default()
    };
    let mut tolerations = vec![seconds("node.kubernetes.io/not-ready"), seconds("node.kubernetes.io/unreachable")];
    if on_node {
        for key in ["disk-pressure", "memory-pressure", "pid-pressure", "unschedulable", "network-unavailable"] {
            tolerations
                .push(Toleration { effect: some("NoSchedule"), ..seconds(&format!("node.kubernetes.io/{key}")) });
        }
    }
    let affinity = (rng.u8(..3) == 0 && !shape.is_plain || on_node).then(|| Affinity {
        node_affinity: Some(NodeAffinity {
            required_during_scheduling_ignored_during_execution: Some(NodeSelector {
                node_selector_terms: vec![NodeSelectorTerm {
                    match_expressions: vec![NodeSelectorRequirement {
                        key: some("node.kubernetes.io/instance-type"),
                        operator: some("In"),
                        values: (0..rng.u8(1..5))
                            .map(|_| {
                                format!("{}.{}xlarge", pick(rng, &["m6i", "c7g", "r6a", "p4d", "m7g"]), rng.u8(1..24))
                            })
                            .collect(),
                    }],
                    ..NodeSelectorTerm::default()
                }],
            }),
            ..NodeAffinity::default()
        }),
        pod_anti_affinity: (!on_node).then(|| PodAntiAffinity {
            preferred_during_scheduling_ignored_during_execution: vec![WeightedPodAffinityTerm {
                weight: Some(100),
                pod_affinity_term: Some(PodAffinityTerm {
                    label_selector: Some(selector.clone()),
                    topology_key: some("kubernetes.io/hostname"),
                    ..PodAffinityTerm::default()
                }),
            }],
            ..PodAntiAffinity::default()
        }),
        ..Affinity::default()
    });
    PodSpec {
        volumes,
        init_containers,
        containers,
        restart_policy: some(if shape.owner == Owner::Job { "Never" } else { "Always" }),
        termination_grace_period_seconds: Some(pick(rng, &[30, 30, 30, 60, 120, 600])),
        dns_policy: some(if on_node { "ClusterFirstWithHostNet" } else { "ClusterFirst" }),
        node_selector: (rng.u8(..4) == 0).then(|| ("node-pool".to_owned(), word(rng).to_owned())).into_iter().collect(),
        service_account_name: some(name),
        service_account: some(name),
        host_network: on_node.then_some(true),
        security_context: Some(if rng.bool() {
            PodSecurityContext {
                fs_group: Some(rng.i64(1000..70_000)),
                run_as_non_root: Some(true),
                ..Default::default()
            }
        } else {
            PodSecurityContext::default()
        }),
        image_pull_secrets: (rng.u8(..3) == 0)
            .then(|| LocalObjectReference { name: some("registry-credentials") })
            .into_iter()
            .collect(),
        affinity,
        scheduler_name: some("default-scheduler"),
        tolerations,
        priority_class_name: on_node.then(|| "system-node-critical".to_owned()),
        priority: Some(if on_node { 2_000_001_000 } else { 0 }),
        enable_service_links: Some(rng.u8(..4) != 0),
        preemption_policy: some("PreemptLowerPriority"),
        topology_spread_constraints: (rng.u8(..3) == 0 && !shape.is_plain)
            .then(|| TopologySpreadConstraint {
                max_skew: Some(1),
                topology_key: some("topology.kubernetes.io/zone"),
                when_unsatisfiable: some("ScheduleAnyway"),
                label_selector: Some(selector),
                ..TopologySpreadConstraint::default()
            })
            .into_iter()
            .collect(),
        ..PodSpec::default()
    }
}

fn volume(rng: &mut Rng, on_node: bool, owner: &str) -> Volume {
    let name = format!("{}-{}", word(rng), word(rng));
    let mut source = VolumeSource::default();
    match rng.u8(..if on_node { 10 } else { 6 }) {
        0 | 1 => {
            source.config_map = Some(ConfigMapVolumeSource {
                local_object_reference: Some(LocalObjectReference { name: Some(format!("{owner}-{name}")) }),
                default_mode: Some(420),
                ..ConfigMapVolumeSource::default()
            });
        }
        2 => {
            let secret_name = Some(format!("{owner}-{name}"));
            source.secret = Some(SecretVolumeSource { secret_name, default_mode: Some(420), ..Default::default() });
        }
        3 | 4 => source.empty_dir = Some(EmptyDirVolumeSource::default()),
        5 => {
            let claim_name = Some(format!("{name}-{owner}"));
            source.persistent_volume_claim =
                Some(PersistentVolumeClaimVolumeSource { claim_name, ..Default::default() });
        }
        _ => {
            let path = Some(format!("/var/lib/{}", name.replace('-', "/")));
            source.host_path = Some(HostPathVolumeSource { path, r#type: some("DirectoryOrCreate") });
        }
    }
    Volume { name: Some(name), volume_source: Some(source) }
}

fn service_account_volume(name: &str) -> Volume {
    let token = ServiceAccountTokenProjection { expiration_seconds: Some(3607), path: some("token"), audience: None };
    let ca = ConfigMapProjection {
        local_object_reference: Some(LocalObjectReference { name: some("kube-root-ca.crt") }),
        items: vec![KeyToPath { key: some("ca.crt"), path: some("ca.crt"), mode: None }],
        optional: None,
    };
    let sources = vec![
        VolumeProjection { service_account_token: Some(token), ..VolumeProjection::default() },
        VolumeProjection { config_map: Some(ca), ..VolumeProjection::default() },
    ];
    let projected = Some(ProjectedVolumeSource { sources, default_mode: Some(420) });
    Volume { name: some(name), volume_source: Some(VolumeSource { projected, ..VolumeSource::default() }) }
}

fn mount(name: &str, path: &str, is_read_only: bool) -> VolumeMount {
    let read_only = is_read_only.then_some(true);
    VolumeMount { name: some(name), mount_path: some(path), read_only, ..VolumeMount::default() }
}

fn container(
    rng: &mut Rng,
    shape: &Shape,
    name: &str,
    image: &str,
    namespace: &str,
    volumes: &[Volume],
    cluster: &Cluster,
) -> Container {
    let image = format!("{}/{namespace}/{image}:{}", cluster.registry, version(rng));
    let env = (0..between(rng, shape.env)).map(|_| variable_of(rng, name)).collect();
    let port = 8000 + rng.i32(0..2000);
    let probes = rng.u8(..3);
    let probe = |rng: &mut Rng, path: &str| Probe {
        handler: Some(if probes == 1 {
            let command = ["sh", "-c", &format!("/opt/{name}/bin/check --{path} --timeout={}", rng.u8(1..20))];
            let exec = Some(ExecAction { command: command.map(str::to_owned).into() });
            ProbeHandler { exec, ..ProbeHandler::default() }
        } else {
            let port = Some(IntOrString { r#type: Some(0), int_val: Some(port), str_val: None });
            let (path, scheme) = (Some(format!("/{path}")), some("HTTP"));
            let http_get = Some(HttpGetAction { path, port, scheme, ..HttpGetAction::default() });
            ProbeHandler { http_get, ..ProbeHandler::default() }
        }),
        initial_delay_seconds: Some(rng.i32(0..60)),
        timeout_seconds: Some(rng.i32(1..10)),
        period_seconds: Some(pick(rng, &[5, 10, 15, 30])),
        success_threshold: Some(1),
        failure_threshold: Some(pick(rng, &[3, 3, 5, 30])),
        termination_grace_period_seconds: None,
    };
    let quantities = |cpu: u32, memory: u32| {
        let quantity = |text: String| Quantity { string: Some(text) };
        BTreeMap::from([
            ("cpu".to_owned(), quantity(format!("{cpu}m"))),
            ("memory".to_owned(), quantity(format!("{memory}Mi"))),
        ])
    };
    let (cpu, memory) =
        (pick(rng, &[50, 100, 250, 500, 1000, 2000, 4000]), pick(rng, &[64, 128, 256, 512, 1024, 4096, 16384]));
    let mut container = base(name, image);
    if shape.is_plain {
        container.env = env;
        return container;
    }
    container.args = (0..rng.u8(..10)).map(|_| format!("--{}-{}={}", word(rng), word(rng), value(rng))).collect();
    if rng.u8(..4) == 0 {
        container.command = vec![format!("/usr/local/bin/{name}"), word(rng).to_owned()];
    }
    if rng.u8(..4) != 0 {
        container.ports = vec![ContainerPort {
            name: some(pick(rng, &["http", "grpc", "metrics", "web"])),
            container_port: Some(port),
            protocol: some("TCP"),
            ..ContainerPort::default()
        }];
    }
    container.env = env;
    container.resources = Some(ResourceRequirements {
        limits: quantities(cpu * 2, memory),
        requests: quantities(cpu, memory),
        ..ResourceRequirements::default()
    });
    container.volume_mounts = volumes
        .iter()
        .filter_map(|volume| {
            let path = format!("/mnt/{}", volume.name().replace('-', "/"));
            (rng.u8(..4) != 0).then(|| mount(volume.name(), &path, rng.bool()))
        })
        .collect();
    if probes > 0 && !name.starts_with("init") {
        let path = pick(rng, &["healthz", "live", "actuator/health/liveness"]);
        container.liveness_probe = Some(probe(rng, path));
        let path = pick(rng, &["readyz", "ready", "actuator/health/readiness"]);
        container.readiness_probe = Some(probe(rng, path));
    }
    container.security_context = rng.bool().then(|| SecurityContext {
        run_as_non_root: Some(true),
        run_as_user: Some(rng.i64(1000..70_000)),
        allow_privilege_escalation: Some(false),
        read_only_root_filesystem: Some(rng.bool()),
        capabilities: Some(Capabilities { drop: vec!["ALL".to_owned()], add: Vec::new() }),
        ..SecurityContext::default()
    });
    container
}

fn base(name: &str, image: String) -> Container {
    Container {
        name: some(name),
        image: Some(image),
        resources: Some(ResourceRequirements::default()),
        termination_message_path: some("/dev/termination-log"),
        termination_message_policy: some("File"),
        image_pull_policy: some("IfNotPresent"),
        ..Container::default()
    }
}

fn variable_of(rng: &mut Rng, owner: &str) -> EnvVar {
    let name = Some(variable(rng));
    if rng.u8(..5) > 0 {
        return EnvVar { name, value: Some(value(rng)), value_from: None };
    }
    let secret_key_ref = Some(SecretKeySelector {
        local_object_reference: Some(LocalObjectReference { name: Some(format!("{owner}-{}", word(rng))) }),
        key: some(word(rng)),
        optional: None,
    });
    EnvVar { name, value: None, value_from: Some(EnvVarSource { secret_key_ref, ..EnvVarSource::default() }) }
}

fn sidecar(rng: &mut Rng, of: Sidecar, owner: &str) -> Container {
    let (name, image, variables, arguments) = match of {
        Sidecar::Istio => ("istio-proxy", "docker.io/istio/proxyv2", 28, 14),
        Sidecar::Linkerd => ("linkerd-proxy", "cr.l5d.io/linkerd/proxy", 40, 0),
        Sidecar::Vault => ("vault-agent", "docker.io/hashicorp/vault", 8, 2),
        Sidecar::CloudSql => ("cloud-sql-proxy", "gcr.io/cloud-sql-connectors/cloud-sql-proxy", 2, 6),
        Sidecar::Exporter => ("exporter", "quay.io/prometheus/exporter", 5, 8),
        Sidecar::Logs => ("log-shipper", "docker.io/fluent/fluent-bit", 6, 2),
        Sidecar::Otel => ("otel-collector", "docker.io/otel/opentelemetry-collector", 5, 3),
        Sidecar::OauthProxy => ("oauth2-proxy", "quay.io/oauth2-proxy/oauth2-proxy", 3, 14),
        Sidecar::KubeRbacProxy => ("kube-rbac-proxy", "quay.io/brancz/kube-rbac-proxy", 0, 5),
        Sidecar::ConfigReloader => ("config-reloader", "quay.io/prometheus-operator/prometheus-config-reloader", 3, 7),
    };
    // A cluster runs a few versions of a sidecar at once.
    let mut container = base(name, format!("{image}:v1.{}.{}", rng.u8(18..21), rng.u8(..4)));
    // All instances of a sidecar have the same names of settings, and some equal values.
    let mut names = Rng::with_seed(seed(name));
    container.env = (0..variables)
        .map(|index| {
            let name = Some(variable(&mut names));
            let common = value(&mut names);
            let value = match index % 4 {
                0 => value(rng),
                1 => format!("{owner}-{common}"),
                _ => common,
            };
            EnvVar { name, value: Some(value), value_from: None }
        })
        .collect();
    container.args = (0..arguments)
        .map(|index| {
            let option = format!("--{}-{}", word(&mut names), word(&mut names));
            let common = value(&mut names);
            if index % 4 == 0 { format!("{option}={}", value(rng)) } else { format!("{option}={common}") }
        })
        .collect();
    container
}

/// Adds the annotations that all Pods of a workload share.
fn annotate(rng: &mut Rng, note: Note, name: &str, annotations: &mut BTreeMap<String, String>) {
    let mut set = |key: &str, value: String| _ = annotations.insert(key.to_owned(), value);
    match note {
        Note::Prometheus => {
            set("prometheus.io/scrape", "true".to_owned());
            set("prometheus.io/port", rng.u16(2000..).to_string());
            set("prometheus.io/path", pick(rng, &["/metrics", "/actuator/prometheus", "/stats/prometheus"]).to_owned());
        }
        Note::Checksums => {
            for of in ["config", "secrets"].iter().take(rng.usize(1..3)) {
                set(&format!("checksum/{of}"), hex(rng, 64));
            }
        }
        Note::Restarted => set(
            "kubectl.kubernetes.io/restartedAt",
            format!("2026-{:02}-{:02}T09:41:{:02}Z", rng.u8(1..13), rng.u8(1..29), rng.u8(..60)),
        ),
        Note::Istio => {
            set(
                "sidecar.istio.io/status",
                format!(
                    r#"{{"initContainers":["istio-init"],"containers":["istio-proxy"],"volumes":["workload-socket","credential-socket","workload-certs","istio-envoy","istio-data","istio-podinfo","istio-token","istiod-ca-cert"],"imagePullSecrets":null,"revision":"1-{}-{}"}}"#,
                    rng.u8(18..24),
                    rng.u8(..6),
                ),
            );
            set("istio.io/rev", "default".to_owned());
            set("proxy.istio.io/config", json(rng, 220));
        }
        Note::Linkerd => {
            set("linkerd.io/inject", "enabled".to_owned());
            set("linkerd.io/proxy-version", format!("edge-25.{}.{}", rng.u8(1..13), rng.u8(1..5)));
            set("linkerd.io/trust-root-sha256", hex(&mut Rng::with_seed(7), 64));
        }
        Note::Vault => {
            set("vault.hashicorp.com/agent-inject", "true".to_owned());
            set("vault.hashicorp.com/agent-inject-status", "injected".to_owned());
            set("vault.hashicorp.com/role", name.to_owned());
            for _ in 0..rng.u8(1..4) {
                let file = word(rng);
                set(&format!("vault.hashicorp.com/agent-inject-secret-{file}"), format!("secret/data/{name}/{file}"));
                let size = skewed(rng, (300, 2000)) as usize;
                set(&format!("vault.hashicorp.com/agent-inject-template-{file}"), template(rng, size));
            }
        }
        Note::Datadog => set(&format!("ad.datadoghq.com/{name}.checks"), json(rng, 400)),
        Note::SafeToEvict => set("cluster-autoscaler.kubernetes.io/safe-to-evict", rng.bool().to_string()),
        Note::Workflow => {
            let size = skewed(rng, (4_000, 24_000)) as usize;
            set("workflows.argoproj.io/template", json(rng, size));
            set("workflows.argoproj.io/node-name", format!("{name}.{}", text::name(rng)));
        }
        Note::Pipeline => {
            let size = skewed(rng, (2_000, 10_000)) as usize;
            set("pipeline.tekton.dev/affinity-assistant", format!("affinity-assistant-{}", hex(rng, 10)));
            set("results.tekton.dev/record", json(rng, size));
            set("tekton.dev/signature", secret(rng, 344));
        }
        Note::Config => {
            let size = skewed(rng, (2_000, 12_000)) as usize;
            set(&format!("{name}.example.com/config"), json(rng, size));
        }
        Note::LastApplied => {
            let size = skewed(rng, (2_000, 8_000)) as usize;
            set("kubectl.kubernetes.io/last-applied-configuration", json(rng, size) + "\n");
        }
        Note::StaticHash => {
            set("kubernetes.io/config.source", "file".to_owned());
            set("kubernetes.io/config.hash", hex(rng, 32));
        }
        Note::Cni | Note::Multus => {}
    }
}

/// Adds the annotations that differ between Pods.
fn annotate_pod(rng: &mut Rng, note: Note, pod_ip: &str, annotations: &mut BTreeMap<String, String>) {
    let mut set = |key: &str, value: String| _ = annotations.insert(key.to_owned(), value);
    match note {
        Note::Cni => {
            set("cni.projectcalico.org/containerID", hex(rng, 64));
            set("cni.projectcalico.org/podIP", format!("{pod_ip}/32"));
            set("cni.projectcalico.org/podIPs", format!("{pod_ip}/32"));
        }
        Note::Multus => {
            let mac = [(); 5].map(|()| hex(rng, 2)).join(":");
            let status = format!(
                "[{{\n    \"name\": \"aws-cni\",\n    \"interface\": \"eth0\",\n    \"ips\": [\n        \"{pod_ip}\"\n    ],\n    \
                 \"mac\": \"02:{mac}\",\n    \"default\": true,\n    \"dns\": {{}}\n}}]"
            );
            set("k8s.v1.cni.cncf.io/network-status", status);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use k8s_pb::apimachinery::pkg::runtime::Unknown;

    use super::*;

    /// Returns the size of the concatenated Pods, compressed by zstd with a long window.
    fn compressed(pods: &[u8]) -> usize {
        let mut zstd = zstd_safe::CCtx::create();
        for parameter in [
            zstd_safe::CParameter::CompressionLevel(3),
            zstd_safe::CParameter::WindowLog(27),
            zstd_safe::CParameter::EnableLongDistanceMatching(true),
        ] {
            zstd.set_parameter(parameter).unwrap();
        }
        let mut out = Vec::with_capacity(zstd_safe::compress_bound(pods.len()));
        zstd.compress2(&mut out, pods).unwrap()
    }

    fn metas(body: &[u8]) -> Vec<ObjectMeta> {
        let unknown = Unknown::decode(&body[b"k8s\0".len()..]).unwrap();
        let list = PodList::decode(unknown.raw()).unwrap();
        list.items.into_iter().map(|pod| pod.metadata.unwrap()).collect()
    }

    #[test]
    fn pods_are_reproducible_and_ordered_by_key() {
        let body = pods(300);
        assert_eq!(body, pods(300));
        let metas = metas(&body);
        let key = |meta: &ObjectMeta| (meta.namespace().to_owned(), meta.name().to_owned());
        assert!(metas.is_sorted_by_key(key));
        let uids: HashSet<_> = metas.iter().map(ObjectMeta::uid).collect();
        assert_eq!((metas.len(), uids.len()), (300, 300));
    }

    /// Two of the first 5,000 Pods of these workloads draw the same name.
    #[test]
    fn keys_differ() {
        let metas = metas(&pods_by_zipf(5000, 125));
        let keys: HashSet<_> = metas.iter().map(|meta| (meta.namespace(), meta.name())).collect();
        assert_eq!((metas.len(), keys.len()), (5000, 5000));
    }

    #[test]
    fn sizes_are_as_in_a_real_cluster() {
        let mut sizes: Vec<_> = cluster(2000, None).values().map(Vec::len).collect();
        sizes.sort_unstable();
        let at = |percent: usize| sizes[(sizes.len() - 1) * percent / 100];
        assert!((2_000..3_500).contains(&at(0)), "{}", at(0));
        assert!((6_000..12_000).contains(&at(50)), "{}", at(50));
        assert!((15_000..30_000).contains(&at(90)), "{}", at(90));
        assert!((40_000..66_000).contains(&at(100)), "{}", at(100));
    }

    /// The Pods of the test server differ only in name, uid and version.
    #[test]
    fn pods_compress_less_than_uniform_pods() {
        let diverse = pods(2000);
        let recorded = listwatch_testserver::recorded_pods();
        let uniform = listwatch_testserver::Synthesizer::new(&recorded, 2000).unwrap().to_vec();
        let [diverse, uniform] = [diverse, uniform].map(|pods| pods.len() / compressed(&pods));
        assert!((10..25).contains(&diverse), "{diverse}");
        assert!(uniform > 3 * diverse, "{uniform} and {diverse}");
    }
}
