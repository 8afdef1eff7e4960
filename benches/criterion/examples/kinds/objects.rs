//! Makes objects of each kind, one owner's at a time.
//!
//! Uids, resource versions, times, addresses and digests are random in each object. Objects of one owner share the text
//! of their template. `metadata.managedFields` lists the fields that are set.

#![expect(clippy::needless_update, reason = "`message!` also makes messages of which all fields are set")]

use std::collections::BTreeMap;

use fastrand::Rng;
use k8s_pb::api::apps::v1::{ReplicaSet, ReplicaSetSpec, ReplicaSetStatus};
use k8s_pb::api::coordination::v1::{Lease, LeaseSpec};
use k8s_pb::api::core::v1::{
    AttachedVolume, ConfigMap, Container, ContainerImage, ContainerPort, EnvVar, Event, EventSource, Node, NodeAddress,
    NodeCondition, NodeSpec, NodeStatus, NodeSystemInfo, ObjectReference, PodSpec, PodTemplateSpec,
};
use k8s_pb::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_pb::apimachinery::pkg::api::resource::Quantity;
use k8s_pb::apimachinery::pkg::apis::meta::v1::{
    FieldsV1, LabelSelector, ManagedFieldsEntry, MicroTime, ObjectMeta, OwnerReference, Time,
};
use listwatch_corpus::text::{hex, name, pick, skewed, suffix, uid, value, variable, version, word};
use serde_json::{Value, json};

use crate::Object;

const NOW: i64 = 1_790_000_000;

/// Makes a message: fields before the semicolon are optional ones, fields after it are lists and maps.
macro_rules! message {
    ($message:ident { $($field:ident: $value:expr),* $(; $($list:ident: $values:expr),*)? }) => {
        $message { $($field: Some($value.into()),)* $($($list: $values.into(),)*)? ..Default::default() }
    };
}

/// Makes a node of one of 25 groups, which differ in their machines, versions and images.
pub fn node(rng: &mut Rng) -> Vec<Object> {
    let (ip, zone, id) = (ip(rng), pick(rng, &["a", "b", "c"]), hex(rng, 16));
    let group = &mut Rng::with_seed(rng.u64(..25));
    let (cpus, minor, kubelet) = (1 << group.u8(2..7), group.u8(1..12), hex(group, 7));
    let mut meta = meta(rng, "", &node_name(&ip));
    meta.labels = map(&format!(
        "beta.kubernetes.io/arch=amd64 beta.kubernetes.io/os=linux eks.amazonaws.com/nodegroup={} \
         eks.amazonaws.com/nodegroup-image=ami-0{} kubernetes.io/arch=amd64 kubernetes.io/hostname={} \
         kubernetes.io/os=linux node.kubernetes.io/instance-type={}.{}xlarge \
         topology.kubernetes.io/region=eu-central-1 topology.kubernetes.io/zone=eu-central-1{zone}",
        name(group),
        hex(group, 16),
        meta.name(),
        pick(group, &["m6i", "m7g", "c7i", "r7g"]),
        cpus / 4,
    ));
    meta.annotations = map(&format!(
        "alpha.kubernetes.io/provided-node-ip={ip} node.alpha.kubernetes.io/ttl=0 \
         csi.volume.kubernetes.io/nodeid={{\"ebs.csi.aws.com\":\"i-0{id}\"}} \
         volumes.kubernetes.io/controller-managed-attach-detach=true"
    ));
    manage(&mut meta, "kubelet", "v1", NOW - rng.i64(0..9_000_000), json!({"f:spec": fields("providerID")}));
    let heartbeat = NOW - rng.i64(0..300);
    let status = json!({
        "f:allocatable": fields("cpu ephemeral-storage memory"), "f:capacity": fields("ephemeral-storage memory"),
        "f:conditions": keyed("type", &["DiskPressure", "MemoryPressure", "PIDPressure", "Ready"]),
        "f:images": {}, "f:nodeInfo": fields("bootID kernelVersion kubeletVersion osImage"),
        "f:volumesInUse": {},
    });
    manage(&mut meta, "kubelet", "v1", heartbeat, json!({ "f:status": status }));

    let created = meta.creation_timestamp.unwrap_or_default();
    let conditions = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"].map(|of| {
        let (status, reason, message) = match of {
            "Ready" => ("True", "KubeletReady".to_owned(), "kubelet is posting ready status".to_owned()),
            _ => ("False", format!("KubeletHasNo{of}"), format!("kubelet has no {of}")),
        };
        message! { NodeCondition {
            r#type: of, status: status, last_heartbeat_time: time(heartbeat), last_transition_time: created,
            reason: reason, message: message
        } }
    });
    let kib = cpus * 4_194_304 - rng.i32(600_000..700_000);
    let resources = |reserved: i32| {
        let (cpu, memory) = (format!("{}m", cpus * 1000 - reserved / 10_000), format!("{}Ki", kib - reserved));
        let quantity = |amount: &str| message! { Quantity { string: amount } };
        [("cpu", cpu), ("ephemeral-storage", "104845292Ki".into()), ("memory", memory), ("pods", "110".into())]
            .map(|(of, amount)| (of.to_owned(), quantity(&amount)))
    };
    let mut images: Vec<_> = (0..5).map(|_| image(group)).collect();
    images.extend((0..rng.u8(2..7)).map(|_| image(rng)));
    let images = images.into_iter().map(|(repository, tag, digest)| {
        let size = i64::from_str_radix(&digest[..7], 16).unwrap_or_default();
        let names = [format!("{repository}@sha256:{digest}"), format!("{repository}:{tag}")];
        message! { ContainerImage { size_bytes: size; names: names } }
    });
    let addresses = [("InternalIP", &*ip), ("Hostname", meta.name()), ("InternalDNS", meta.name())];
    let addresses = addresses.map(|(of, address)| message! { NodeAddress { r#type: of, address: address } });
    let volumes: Vec<_> =
        (0..rng.u8(..8)).map(|_| format!("kubernetes.io/csi/ebs.csi.aws.com^vol-0{}", hex(rng, 16))).collect();
    let attached = volumes.iter().map(|volume| message! { AttachedVolume { name: &**volume, device_path: "" } });
    let info = message! { NodeSystemInfo {
        machine_id: hex(rng, 32), system_uuid: uid(rng), boot_id: uid(rng), os_image: "Amazon Linux 2023.9",
        kernel_version: format!("6.12.{minor}-amzn2023.x86_64"), operating_system: "linux", architecture: "amd64",
        container_runtime_version: format!("containerd://2.1.{minor}"),
        kubelet_version: format!("v1.34.{minor}-eks-{kubelet}")
    } };
    let status = message! { NodeStatus {
        node_info: info;
        capacity: resources(0), allocatable: resources(1_200_000), conditions: conditions, addresses: addresses,
        images: images.collect::<Vec<_>>(), volumes_attached: attached.collect::<Vec<_>>(), volumes_in_use: volumes
    } };
    let spec = message! { NodeSpec { provider_id: format!("aws:///eu-central-1{zone}/i-0{id}") } };
    vec![Object::protobuf(message! { Node { metadata: meta, spec: spec, status: status } })]
}

/// Makes the slices of a Service: mostly one.
pub fn endpoint_slices(rng: &mut Rng) -> Vec<Object> {
    let (namespace, service, service_uid, port) = (namespace(rng), name(rng), uid(rng), rng.i32(3000..10_000));
    let (replica_set, count) = (format!("{service}-{}", suffix(rng, 10)), pick(rng, &[1, 1, 1, 1, 1, 1, 2, 3]));
    let slice = |_| {
        let slice = format!("{service}-{}", suffix(rng, 5));
        let mut meta = meta(rng, &namespace, &slice);
        meta.generate_name = Some(format!("{service}-"));
        meta.labels = map(&format!(
            "app.kubernetes.io/name={service} kubernetes.io/service-name={service} \
             endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io"
        ));
        meta.owner_references = vec![owner("v1", "Service", &service, &service_uid)];
        let (updated, set) = (NOW - rng.i64(0..500_000), fields("addressType endpoints ports"));
        manage(&mut meta, "kube-controller-manager", "discovery.k8s.io/v1", updated, set);
        let endpoints = (0..skewed(rng, (1, 62))).map(|_| {
            let pod = format!("{replica_set}-{}", suffix(rng, 5));
            let zone = format!("eu-central-1{}", pick(rng, &["a", "b", "c"]));
            message! { Endpoint {
                conditions: message! { EndpointConditions { ready: true, serving: true, terminating: false } },
                target_ref: reference(rng, &namespace, &pod), node_name: some_node(rng), zone: zone;
                addresses: [ip(rng)]
            } }
        });
        let endpoints: Vec<_> = endpoints.collect();
        let port = message! { EndpointPort { name: "http", protocol: "TCP", port: port } };
        message! { EndpointSlice { metadata: meta, address_type: "IPv4"; endpoints: endpoints, ports: [port] } }
    };
    (0..count).map(slice).map(Object::protobuf).collect()
}

/// Makes a file of settings that Helm has installed.
pub fn config_map(rng: &mut Rng) -> Vec<Object> {
    let (namespace, app) = (namespace(rng), name(rng));
    let name = format!("{app}-{}", word(rng));
    let mut meta = meta(rng, &namespace, &name);
    meta.labels = map(&format!(
        "app.kubernetes.io/instance={app} app.kubernetes.io/managed-by=Helm helm.sh/chart={app}-{}.{}.0",
        rng.u8(..4),
        rng.u8(..60),
    ));
    meta.annotations = map(&format!("meta.helm.sh/release-name={app} meta.helm.sh/release-namespace={namespace}"));
    let file = pick(rng, &["application.properties", "config.env", "settings.ini"]);
    manage(&mut meta, "helm", "v1", NOW - rng.i64(0..9_000_000), json!({"f:data": fields(file)}));
    let settings = (0..skewed(rng, (3, 34))).map(|_| {
        let field = pick(rng, &["url", "host", "port", "enabled", "size", "timeout", "retries", "mode"]);
        format!("{}.{}.{field}={}\n", word(rng), word(rng), value(rng))
    });
    let data = [(file.to_owned(), settings.collect::<String>())];
    vec![Object::protobuf(message! { ConfigMap { metadata: meta; data: data } })]
}

/// Makes the lease of a node, which owns it but does not control it.
pub fn lease(rng: &mut Rng) -> Vec<Object> {
    let (node, renewed, nanos) = (node_name(&ip(rng)), NOW - rng.i64(0..10), rng.i32(0..1_000_000) * 1000);
    let mut meta = meta(rng, "kube-node-lease", &node);
    let owner = owner("v1", "Node", &node, &uid(rng));
    meta.owner_references = vec![OwnerReference { controller: None, block_owner_deletion: None, ..owner }];
    let set = json!({"f:spec": fields("holderIdentity leaseDurationSeconds renewTime")});
    manage(&mut meta, "kubelet", "coordination.k8s.io/v1", renewed, set);
    let renewed = message! { MicroTime { seconds: renewed, nanos: nanos } };
    let spec = message! { LeaseSpec { holder_identity: node, lease_duration_seconds: 40, renew_time: renewed } };
    vec![Object::protobuf(message! { Lease { metadata: meta, spec: spec } })]
}

/// Makes the revisions of a Deployment, which differ in the image; some also change a setting.
pub fn replica_sets(rng: &mut Rng) -> Vec<Object> {
    let (namespace, app, deployment_uid, port) = (namespace(rng), name(rng), uid(rng), rng.i32(3000..10_000));
    let ((repository, ..), count, mut settings) = (image(rng), rng.u8(1..=11), settings(rng));
    let replica_set = |revision| {
        let (hash, tag) = (suffix(rng, 10), hex(rng, 12));
        if rng.u8(..4) == 0 {
            settings[0].1 = value(rng);
        }
        let mut meta = meta(rng, &namespace, &format!("{app}-{hash}"));
        let labels = map(&format!("app={app} pod-template-hash={hash}"));
        meta.labels.clone_from(&labels);
        meta.annotations = map(&format!(
            "deployment.kubernetes.io/desired-replicas=3 deployment.kubernetes.io/max-replicas=4 \
             deployment.kubernetes.io/revision={revision}"
        ));
        meta.owner_references = vec![owner("apps/v1", "Deployment", &app, &deployment_uid)];
        let (created, set) = (NOW - rng.i64(0..9_000_000), json!({"f:spec": fields("replicas selector template")}));
        manage(&mut meta, "kube-controller-manager", "apps/v1", created, set);
        let env = settings.iter().map(|(name, value)| message! { EnvVar { name: &**name, value: &**value } });
        let container = message! { Container {
            name: &*app, image: format!("{repository}:{tag}"), termination_message_path: "/dev/termination-log";
            env: env.collect::<Vec<_>>(),
            ports: [message! { ContainerPort { container_port: port, protocol: "TCP" } }]
        } };
        let pod = message! { PodSpec { restart_policy: "Always"; containers: [container] } };
        let pod_meta = ObjectMeta { labels: labels.clone(), ..ObjectMeta::default() };
        let replicas = if revision == count { 3 } else { 0 };
        message! { ReplicaSet {
            metadata: meta,
            spec: message! { ReplicaSetSpec {
                replicas: replicas, template: message! { PodTemplateSpec { metadata: pod_meta, spec: pod } },
                selector: LabelSelector { match_labels: labels, ..LabelSelector::default() }
            } },
            status: message! { ReplicaSetStatus { replicas: replicas, observed_generation: rng.i64(1..9) } }
        } }
    };
    (1..=count).map(replica_set).map(Object::protobuf).collect()
}

/// Makes an event of a Pod.
pub fn event(rng: &mut Rng) -> Vec<Object> {
    let (namespace, app, node, seen) = (namespace(rng), name(rng), some_node(rng), NOW - rng.i64(0..3600));
    let (pod, (image, tag, _)) = (format!("{app}-{}-{}", suffix(rng, 10), suffix(rng, 5)), image(rng));
    let (of, by, reason, message) = match rng.u8(..5) {
        0 => ("Normal", "default-scheduler", "Scheduled", format!("Successfully assigned {namespace}/{pod} to {node}")),
        1 => ("Normal", "kubelet", "Pulled", format!("Container image \"{image}:{tag}\" already present on machine")),
        2 => ("Warning", "kubelet", "Unhealthy", format!("Readiness probe failed: dial tcp {}:8080: refused", ip(rng))),
        3 => ("Warning", "kubelet", "BackOff", format!("Back-off restarting failed container {app} in pod {pod}")),
        _ => ("Normal", "kubelet", "Started", format!("Started container {app}")),
    };
    let event = format!("{pod}.{}", hex(rng, 16));
    let mut meta = meta(rng, &namespace, &event);
    let set = fields("count firstTimestamp involvedObject lastTimestamp message reason source type");
    manage(&mut meta, by, "v1", seen, set);
    vec![Object::protobuf(message! { Event {
        metadata: meta, involved_object: reference(rng, &namespace, &pod), reason: reason, message: message,
        source: message! { EventSource { component: by, host: node } }, first_timestamp: time(seen - rng.i64(0..600)),
        last_timestamp: time(seen), count: rng.i32(1..50), r#type: of, reporting_component: by
    } })]
}

/// Makes the Revisions of a Configuration of Knative, which differ in the image; some also change a setting.
pub fn revisions(rng: &mut Rng) -> Vec<Object> {
    let (namespace, app, owner_uid, (repository, ..)) = (namespace(rng), name(rng), uid(rng), image(rng));
    let (mut settings, timeout, port) = (settings(rng), rng.u16(10..600), rng.u16(3000..10_000));
    let revision = |number: u8| {
        if rng.u8(..4) == 0 {
            settings[0].1 = value(rng);
        }
        let env: Vec<_> = settings.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        let (created, ready, image) = (rfc3339(rng), rfc3339(rng), format!("{repository}@sha256:{}", hex(rng, 64)));
        json!({
            "apiVersion": "serving.knative.dev/v1",
            "kind": "Revision",
            "metadata": {
                "creationTimestamp": created, "generation": 1, "name": format!("{app}-{number:05}"),
                "labels": {"serving.knative.dev/configuration": app},
                "managedFields": [{
                    "apiVersion": "serving.knative.dev/v1", "fieldsType": "FieldsV1", "manager": "controller",
                    "fieldsV1": {"f:spec": fields("containers timeoutSeconds")},
                    "operation": "Update", "time": created,
                }],
                "namespace": namespace, "resourceVersion": resource_version(rng), "uid": uid(rng),
                "ownerReferences": [{
                    "apiVersion": "serving.knative.dev/v1", "blockOwnerDeletion": true, "controller": true,
                    "kind": "Configuration", "name": app, "uid": owner_uid,
                }],
            },
            "spec": {
                "containers": [{"env": env, "image": image, "name": "user", "ports": [{"containerPort": port}]}],
                "timeoutSeconds": timeout,
            },
            "status": {"conditions": [{"lastTransitionTime": ready, "status": "True", "type": "Ready"}]},
        })
    };
    (1..=10).map(revision).map(|object| Object::json(&object)).collect()
}

fn meta(rng: &mut Rng, namespace: &str, name: &str) -> ObjectMeta {
    let created = time(NOW - rng.i64(10_000_000..30_000_000));
    let meta = message! { ObjectMeta {
        name: name, uid: uid(rng), resource_version: resource_version(rng), creation_timestamp: created
    } };
    ObjectMeta { namespace: (!namespace.is_empty()).then(|| namespace.to_owned()), ..meta }
}

fn owner(api_version: &str, kind: &str, name: &str, uid: &str) -> OwnerReference {
    message! { OwnerReference {
        api_version: api_version, kind: kind, name: name, uid: uid, controller: true, block_owner_deletion: true
    } }
}

fn reference(rng: &mut Rng, namespace: &str, pod: &str) -> ObjectReference {
    message! { ObjectReference { kind: "Pod", namespace: namespace, name: pod, uid: uid(rng) } }
}

/// Adds the entry of a manager that has set these fields. The first manager has also set the metadata.
fn manage(meta: &mut ObjectMeta, manager: &str, api_version: &str, seconds: i64, mut set: Value) {
    if meta.managed_fields.is_empty() {
        let keys = |map: &BTreeMap<String, String>| map.keys().flat_map(|key| [key, " "]).collect::<String>();
        let owners: Vec<_> = meta.owner_references.iter().map(OwnerReference::uid).collect();
        let (annotations, labels) = (fields(&keys(&meta.annotations)), fields(&keys(&meta.labels)));
        let sets = [("f:annotations", annotations), ("f:labels", labels), ("f:ownerReferences", keyed("uid", &owners))];
        set["f:metadata"] = sets.into_iter().filter(|(_, set)| *set != json!({})).collect();
    }
    meta.managed_fields.push(message! { ManagedFieldsEntry {
        manager: manager, operation: "Update", api_version: api_version, time: time(seconds), fields_type: "FieldsV1",
        fields_v1: message! { FieldsV1 { raw: set.to_string() } }
    } });
}

/// Returns the set of these fields, which spaces separate.
fn fields(names: &str) -> Value {
    names.split_whitespace().map(|name| (format!("f:{name}"), json!({}))).collect()
}

/// Returns the set of the elements of a list that have these values of a key.
fn keyed(key: &str, values: &[&str]) -> Value {
    values.iter().map(|value| (format!(r#"k:{{"{key}":"{value}"}}"#), json!({}))).collect()
}

/// Returns the map of these `KEY=VALUE`, which spaces separate.
fn map(pairs: &str) -> BTreeMap<String, String> {
    pairs.split_whitespace().filter_map(|pair| pair.split_once('=')).map(|(k, v)| (k.into(), v.into())).collect()
}

fn settings(rng: &mut Rng) -> [(String, String); 5] {
    [(); 5].map(|()| (variable(rng), value(rng)))
}

fn namespace(rng: &mut Rng) -> String {
    name(&mut Rng::with_seed(rng.u64(..60)))
}

/// Returns the repository, the tag and the digest of one of 2,000 images. Some images are more frequent than others.
fn image(rng: &mut Rng) -> (String, String, String) {
    let rng = &mut Rng::with_seed(skewed(rng, (0, 1999)).into());
    (format!("registry.example.com/{}/{}", word(rng), name(rng)), version(rng), hex(rng, 64))
}

/// Returns the name of one of 500 nodes.
fn some_node(rng: &mut Rng) -> String {
    node_name(&ip(&mut Rng::with_seed(rng.u64(..500))))
}

fn node_name(ip: &str) -> String {
    format!("ip-{}.eu-central-1.compute.internal", ip.replace('.', "-"))
}

fn ip(rng: &mut Rng) -> String {
    format!("10.{}.{}.{}", rng.u8(..), rng.u8(..), rng.u8(..))
}

fn resource_version(rng: &mut Rng) -> String {
    rng.u64(1_400_000_000..1_900_000_000).to_string()
}

fn rfc3339(rng: &mut Rng) -> String {
    let [month, day, hour, minute, second] = [1..10, 1..29, 0..24, 0..60, 0..60].map(|range| rng.u8(range));
    format!("2026-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

fn time(seconds: i64) -> Time {
    message! { Time { seconds: seconds, nanos: 0 } }
}
