//! The cells of objects in many states, as the server prints them.

use jiff::Timestamp;

use listwatch::{Encoding, ItemError, ItemRef, ListReader, TypeMeta};
use listwatch_tables::{Printer, Row};
use serde_json::{Value, json};

const NOW: &str = "2026-11-25T12:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn row(api_version: &str, kind: &str, object: &Value) -> Row {
    let printer = Printer::for_kind(&TypeMeta::new(api_version, kind)).unwrap();
    let row = printer.row(&ItemRef::new(Encoding::Json, object.to_string().as_bytes()), now()).unwrap();
    assert_eq!(row.cells.len(), printer.columns().len(), "{object}");
    row
}

/// Returns the cells as the server writes them, separated by `|`.
fn cells(api_version: &str, kind: &str, object: &Value) -> String {
    let row = row(api_version, kind, object);
    let json = serde_json::to_value(&row.cells).unwrap();
    let texts = json.as_array().unwrap().iter().map(|cell| match cell {
        Value::String(text) => text.clone(),
        other => format!("={other}"),
    });
    texts.collect::<Vec<_>>().join("|")
}

fn meta() -> Value {
    json!({"name": "a", "namespace": "web", "creationTimestamp": "2026-11-25T10:00:00Z"})
}

#[expect(clippy::too_many_lines, reason = "one table of states")]
#[test]
fn prints_pods() {
    let two = json!([{"name": "x"}, {"name": "y"}]);
    let running =
        |restarts: i32| json!({"name": "x", "ready": true, "restartCount": restarts, "state": {"running": {}}});
    let ended = |code: i32, reason: &str| json!({"name": "y", "restartCount": 0, "state": {"terminated": {"exitCode": code, "reason": reason}}});
    let waiting = |reason: &str| {
        json!({"name": "x", "restartCount": 2, "state": {"waiting": {"reason": reason}},
        "lastState": {"terminated": {"exitCode": 1, "finishedAt": "2026-11-25T11:55:00Z"}}})
    };
    let ready = json!([{"type": "Ready", "status": "True"}]);
    for (name, spec, status, expected) in [
        ("pending", json!({"containers": two}), json!({"phase": "Pending"}), "0/2|Pending|0"),
        ("no status", json!({"containers": two}), json!({}), "0/2||0"),
        (
            "gated",
            json!({"containers": two}),
            json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}),
            "0/2|SchedulingGated|0",
        ),
        ("evicted", json!({"containers": two}), json!({"phase": "Failed", "reason": "Evicted"}), "0/2|Evicted|0"),
        (
            "running, restarted without a date",
            json!({"containers": two}),
            json!({"phase": "Running", "containerStatuses": [running(3)]}),
            "1/2|Running|3",
        ),
        (
            "crashing",
            json!({"containers": two}),
            json!({"phase": "Running", "containerStatuses": [waiting("CrashLoopBackOff")]}),
            "0/2|CrashLoopBackOff|2 (5m ago)",
        ),
        (
            "one of two completed, ready",
            json!({"containers": two}),
            json!({"phase": "Running", "conditions": ready, "containerStatuses": [ended(0, "Completed"), running(0)]}),
            "1/2|Running|0",
        ),
        (
            "one of two completed, not ready",
            json!({"containers": two}),
            json!({"phase": "Running", "containerStatuses": [ended(0, "Completed"), running(0)]}),
            "1/2|NotReady|0",
        ),
        (
            "one completed, one failed",
            json!({"containers": two}),
            json!({"phase": "Failed", "containerStatuses": [ended(0, "Completed"), ended(1, "Error")]}),
            "0/2|Error|0",
        ),
        (
            "killed by a signal",
            json!({"containers": two}),
            json!({"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 137, "signal": 9}}}]}),
            "0/2|Signal:9|0",
        ),
        (
            "ended with a code",
            json!({"containers": two}),
            json!({"phase": "Failed", "containerStatuses": [ended(3, "")]}),
            "0/2|ExitCode:3|0",
        ),
        (
            "first of two init containers",
            json!({"containers": two, "initContainers": [{"name": "i"}, {"name": "j"}]}),
            json!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "restartCount": 1,
                "state": {"running": {}}}], "containerStatuses": [waiting("PodInitializing")]}),
            "0/2|Init:0/2|1",
        ),
        (
            "second, waiting",
            json!({"containers": two, "initContainers": [{"name": "i"}, {"name": "j"}]}),
            json!({"phase": "Pending", "initContainerStatuses": [
                {"name": "i", "state": {"terminated": {"exitCode": 0}}},
                {"name": "j", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]}),
            "0/2|Init:ImagePullBackOff|0",
        ),
        (
            "init container failed",
            json!({"containers": two, "initContainers": [{"name": "i"}]}),
            json!({"phase": "Pending", "initContainerStatuses": [{"name": "i",
                "state": {"terminated": {"exitCode": 2}}}]}),
            "0/2|Init:ExitCode:2|0",
        ),
        (
            "init container failed with a reason",
            json!({"containers": two, "initContainers": [{"name": "i"}]}),
            json!({"phase": "Pending", "initContainerStatuses": [{"name": "i",
                "state": {"terminated": {"exitCode": 2, "reason": "OOMKilled"}}}]}),
            "0/2|Init:OOMKilled|0",
        ),
        (
            "a sidecar counts, before and after the initialization",
            json!({"containers": two, "initContainers": [{"name": "s", "restartPolicy": "Always"}, {"name": "j"}]}),
            json!({"phase": "Pending", "initContainerStatuses": [
                {"name": "s", "started": true, "ready": true, "restartCount": 4, "state": {"running": {}}},
                {"name": "j", "restartCount": 1, "state": {"running": {}}}]}),
            "1/3|Init:1/2|5",
        ),
        (
            "a sidecar and a running container",
            json!({"containers": two, "initContainers": [{"name": "s", "restartPolicy": "Always"}, {"name": "j"}]}),
            json!({"phase": "Running", "initContainerStatuses": [
                {"name": "s", "started": true, "ready": true, "restartCount": 4, "state": {"running": {}}},
                {"name": "j", "restartCount": 1, "state": {"terminated": {"exitCode": 0}}}],
                "containerStatuses": [running(1)]}),
            "2/3|Running|5",
        ),
        (
            "initialized, though an init container restarts",
            json!({"containers": two, "initContainers": [{"name": "i"}]}),
            json!({"phase": "Running", "conditions": [{"type": "Initialized", "status": "True"}],
                "initContainerStatuses": [{"name": "i", "restartCount": 7, "state": {"running": {}}}],
                "containerStatuses": [running(1)]}),
            "1/2|Init:0/1|1",
        ),
        ("null lists", json!({"containers": null}), json!({"phase": "Pending", "conditions": null}), "0/0|Pending|0"),
    ] {
        let pod = json!({"metadata": meta(), "spec": spec, "status": status});
        let printed = cells("v1", "Pod", &pod);
        assert_eq!(printed, format!("a|{expected}|120m|<none>|<none>|<none>|<none>"), "{name}");
    }
}

#[test]
fn prints_deleted_and_placed_pods() {
    let mut deleted = meta();
    deleted["deletionTimestamp"] = NOW.into();
    for (metadata, status, expected) in [
        (&deleted, json!({"phase": "Running"}), "Terminating"),
        (&deleted, json!({"phase": "Succeeded"}), "Succeeded"),
        (&deleted, json!({"phase": "Running", "reason": "NodeLost"}), "Unknown"),
        (&meta(), json!({"phase": "Running", "reason": "NodeLost"}), "NodeLost"),
    ] {
        let printed = cells("v1", "Pod", &json!({"metadata": metadata, "status": status}));
        assert_eq!(printed.split('|').nth(2), Some(expected));
    }
    let pod = json!({"metadata": meta(), "spec": {"nodeName": "n", "readinessGates": [{"conditionType": "g"},
        {"conditionType": "h"}]}, "status": {"podIP": "1.2.3.4", "podIPs": [{"ip": "1.2.3.4"}, {"ip": "::1"}],
        "nominatedNodeName": "m", "conditions": [{"type": "g", "status": "True"}]}});
    assert_eq!(cells("v1", "Pod", &pod), "a|0/0||0|120m|1.2.3.4|n|m|1/2");
    for (phase, reason) in [("Succeeded", Some("Succeeded")), ("Failed", Some("Failed")), ("Running", None)] {
        let conditions = row("v1", "Pod", &json!({"status": {"phase": phase}})).conditions;
        assert_eq!(conditions.first().map(|condition| condition.reason), reason);
    }
}

#[test]
fn prints_nodes() {
    let info = json!({"kubeletVersion": "v1.37.2", "osImage": "Debian", "kernelVersion": "6.1", "architecture": "amd64",
        "containerRuntimeVersion": "containerd://2"});
    let addresses = json!([{"type": "Hostname", "address": "n"}, {"type": "InternalIP", "address": "10.0.0.1"}]);
    for (labels, spec, status, expected) in [
        (
            json!({"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/": "", "kubernetes.io/role": "b"}),
            json!({"unschedulable": true}),
            json!({"conditions": [{"type": "Ready", "status": "False"}, {"type": "Ready", "status": "True"}],
                "nodeInfo": info, "addresses": addresses}),
            "a|Ready,SchedulingDisabled|b,worker|120m|v1.37.2|10.0.0.1|<none>|Debian|6.1 (amd64)|containerd://2",
        ),
        (
            json!({}),
            json!({}),
            json!({"conditions": [{"type": "Ready", "status": "Unknown"}]}),
            "a|NotReady|<none>|120m||<none>|<none>|<unknown>|<unknown>|<unknown>",
        ),
        (
            json!(null),
            json!({}),
            json!({"conditions": []}),
            "a|Unknown|<none>|120m||<none>|<none>|<unknown>|<unknown>|<unknown>",
        ),
    ] {
        let mut metadata = meta();
        metadata["labels"] = labels;
        assert_eq!(cells("v1", "Node", &json!({"metadata": metadata, "spec": spec, "status": status})), expected);
    }
}

#[test]
fn prints_workloads() {
    let template = json!({"spec": {"containers": [{"name": "x", "image": "i:1"}, {"name": "y", "image": "j"}]}});
    let selector = json!({"matchLabels": {"b": "1", "a": "2"}, "matchExpressions": [
        {"key": "c", "operator": "In", "values": ["z", "y"]}, {"key": "d", "operator": "NotIn", "values": ["w"]},
        {"key": "e", "operator": "Exists"}, {"key": "f", "operator": "DoesNotExist"}]});
    let text = "a=2,b=1,c in (y,z),d notin (w),e,!f";
    let spec = json!({"replicas": 3, "selector": selector, "template": template});
    let status = json!({"replicas": 4, "readyReplicas": 2, "updatedReplicas": 1, "availableReplicas": 5});
    let object = json!({"metadata": meta(), "spec": spec, "status": status});
    assert_eq!(cells("apps/v1", "Deployment", &object), format!("a|2/3|=1|=5|120m|x,y|i:1,j|{text}"));
    assert_eq!(cells("apps/v1", "ReplicaSet", &object), format!("a|=3|=4|=2|120m|x,y|i:1,j|{text}"));
    let invalid = json!({"matchExpressions": [{"key": "c", "operator": "In"}]});
    for (selector, deployment, replica_set) in [
        (json!({}), "", "<none>"),
        (invalid, "<invalid>", "<error>"),
        (json!({"matchLabels": null, "matchExpressions": null}), "", "<none>"),
    ] {
        let object = json!({"metadata": meta(), "spec": {"replicas": 0, "selector": selector}});
        assert_eq!(cells("apps/v1", "Deployment", &object), format!("a|0/0|=0|=0|120m|||{deployment}"));
        assert_eq!(cells("apps/v1", "ReplicaSet", &object), format!("a|=0|=0|=0|120m|||{replica_set}"));
    }
    let mut deleted = meta();
    deleted["deletionTimestamp"] = NOW.into();
    let condition = |name: &str| json!([{"type": name, "status": "True"}]);
    for (metadata, spec, status, expected) in [
        (&meta(), json!({"completions": 5}), json!({"succeeded": 2}), "Running|2/5|"),
        (&meta(), json!({"parallelism": 3}), json!({}), "Running|0/1 of 3|"),
        (&meta(), json!({"parallelism": 1}), json!({"startTime": "2026-11-25T11:59:00Z"}), "Running|0/1|60s"),
        (
            &meta(),
            json!({"completions": 1}),
            json!({"succeeded": 1, "conditions": condition("Complete"), "startTime": "2026-11-25T10:00:00Z",
                "completionTime": "2026-11-25T10:02:05Z"}),
            "Complete|1/1|2m5s",
        ),
        (&deleted, json!({}), json!({"conditions": condition("Failed")}), "Failed|0/1|"),
        (&deleted, json!({}), json!({"conditions": condition("Suspended")}), "Terminating|0/1|"),
        (&meta(), json!({}), json!({"conditions": condition("Suspended")}), "Suspended|0/1|"),
        (&meta(), json!({}), json!({"conditions": condition("FailureTarget")}), "FailureTarget|0/1|"),
        (&meta(), json!({}), json!({"conditions": condition("SuccessCriteriaMet")}), "SuccessCriteriaMet|0/1|"),
    ] {
        let printed = cells("batch/v1", "Job", &json!({"metadata": metadata, "spec": spec, "status": status}));
        assert_eq!(printed, format!("a|{expected}|120m|||<none>"));
    }
}

#[test]
fn prints_services() {
    let ports = json!([{"port": 80, "protocol": "TCP"}, {"port": 53, "nodePort": 30053, "protocol": "UDP"}]);
    let balancer =
        json!({"loadBalancer": {"ingress": [{"ip": "9.9.9.9"}, {"hostname": "lb.example.com"}, {"ip": "1.1.1.1"}]}});
    for (spec, status, expected) in [
        (
            json!({"type": "ClusterIP", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1", "::1"], "ports": ports,
                "selector": {"b": "1", "a": "2"}}),
            json!({}),
            "ClusterIP|10.0.0.1|<none>|80/TCP,53:30053/UDP|120m|a=2,b=1",
        ),
        (
            json!({"type": "ClusterIP", "clusterIP": "None", "externalIPs": ["1.2.3.4", "5.6.7.8"]}),
            json!({}),
            "ClusterIP|None|1.2.3.4,5.6.7.8|<none>|120m|<none>",
        ),
        (
            json!({"type": "LoadBalancer", "externalIPs": ["1.2.3.4"]}),
            balancer.clone(),
            "LoadBalancer|<none>|1.1.1.1,9.9.9.9,lb.example.com,1.2.3.4|<none>|120m|<none>",
        ),
        (
            json!({"type": "LoadBalancer"}),
            json!({"loadBalancer": {}}),
            "LoadBalancer|<none>|<pending>|<none>|120m|<none>",
        ),
        (
            json!({"type": "ExternalName", "externalName": "db.example.com"}),
            json!({}),
            "ExternalName|<none>|db.example.com|<none>|120m|<none>",
        ),
        (json!({}), json!({}), "|<none>|<unknown>|<none>|120m|<none>"),
    ] {
        let service = json!({"metadata": meta(), "spec": spec, "status": status});
        assert_eq!(cells("v1", "Service", &service), format!("a|{expected}"));
    }
}

#[test]
fn prints_events() {
    let old = json!({"metadata": meta(), "type": "Normal", "reason": "Pulled", "message": " two\nlines ", "count": 4,
        "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "spec.containers{x}"},
        "source": {"component": "kubelet", "host": "n"}, "eventTime": null,
        "firstTimestamp": "2026-11-25T11:00:00Z", "lastTimestamp": "2026-11-25T11:59:30Z"});
    let new = json!({"metadata": meta(), "type": "Warning", "reason": "X", "note": "m", "regarding": {"kind": "Node"},
        "reportingController": "c", "eventTime": "2026-11-25T11:58:00.123456Z"});
    let mut series = new.clone();
    series["series"] = json!({"count": 9, "lastObservedTime": "2026-11-25T11:59:59.000000Z"});
    for (api_version, event, expected) in [
        ("v1", old, "30s|Normal|Pulled|pod/p|spec.containers{x}|kubelet, n|two\nlines|60m|=4|a"),
        ("events.k8s.io/v1", new, "119s|Warning|X|node||c|m|119s|=1|a"),
        ("events.k8s.io/v1", series, "1s|Warning|X|node||c|m|119s|=9|a"),
        ("v1", json!({"metadata": {"name": "a"}}), "<unknown>||||||||<unknown>|=1|a"),
    ] {
        let expected = expected.replacen("||||||||", "|||||||", usize::from(expected.starts_with("<unknown>")));
        assert_eq!(cells(api_version, "Event", &event), expected);
    }
}

#[test]
fn prints_small_kinds() {
    for (kind, object, expected) in [
        ("Namespace", json!({"metadata": meta(), "status": {"phase": "Active"}}), "a|Active|120m"),
        ("ConfigMap", json!({"metadata": meta(), "data": {"a": "1", "b": "2"}, "binaryData": {"c": ""}}), "a|=3|120m"),
        ("ConfigMap", json!({"metadata": meta(), "data": null}), "a|=0|120m"),
        ("Secret", json!({"metadata": meta(), "type": "Opaque", "data": {"a": "MQ=="}}), "a|Opaque|=1|120m"),
        ("Secret", json!({"metadata": {"name": "a", "creationTimestamp": null}}), "a||=0|<unknown>"),
    ] {
        assert_eq!(cells("v1", kind, &object), expected);
    }
}

/// The end-to-end test compares more states with the server.
#[test]
fn prints_objects_without_spec_and_status() {
    for (api_version, kind, expected) in [
        ("apps/v1", "DaemonSet", "a|=0|=0|=0|=0|=0|<none>|120m|||<none>"),
        ("apps/v1", "StatefulSet", "a|0/1|120m||"),
        ("autoscaling/v2", "HorizontalPodAutoscaler", "a|/|<none>|<unset>|=0|=0|120m"),
        ("batch/v1", "CronJob", "a||<none>|<unset>|=0|<none>|120m|||<none>"),
        ("coordination.k8s.io/v1", "Lease", "a||120m"),
        ("discovery.k8s.io/v1", "EndpointSlice", "a||<unset>|<unset>|120m"),
        ("networking.k8s.io/v1", "Ingress", "a|<none>|*||80|120m"),
        ("networking.k8s.io/v1", "NetworkPolicy", "a|<none>|120m"),
        ("policy/v1", "PodDisruptionBudget", "a|N/A|N/A|=0|120m"),
        ("v1", "Endpoints", "a|<none>|120m"),
        ("v1", "PersistentVolume", "a|0||||||<unset>||120m|<unset>"),
        ("v1", "PersistentVolumeClaim", "a||||||<unset>|120m|<unset>"),
        ("v1", "ServiceAccount", "a|120m"),
    ] {
        assert_eq!(cells(api_version, kind, &json!({"metadata": meta()})), expected, "{kind}");
    }
}

#[test]
fn prints_volumes_that_are_deleted_or_have_an_annotation() {
    let mut meta = meta();
    meta["deletionTimestamp"] = NOW.into();
    meta["annotations"] = json!({"volume.beta.kubernetes.io/storage-class": "old"});
    let object = json!({"metadata": meta, "spec": {"storageClassName": "new"}, "status": {"phase": "Bound"}});
    assert_eq!(cells("v1", "PersistentVolume", &object), "a|0|||Terminating||old|<unset>||120m|<unset>");
    assert_eq!(cells("v1", "PersistentVolumeClaim", &object), "a|Terminating||||old|<unset>|120m|<unset>");
}

#[test]
fn prints_columns_of_custom_resources() {
    let column = |name: &str, r#type: &str, path: &str| json!({"name": name, "type": r#type, "jsonPath": path});
    let definition = json!({"spec": {"versions": [
    {"name": "v1beta1"},
    {"name": "v1", "additionalPrinterColumns": [
        column("Text", "string", ".spec.text"),
        column("Map", "string", ".spec.map"),
        column("Count", "integer", ".spec.count"),
        column("Ratio", "number", ".spec.ratio"),
        column("On", "boolean", ".spec.on"),
        column("Since", "date", ".spec.since"),
        column("Ready", "string", r#".status.conditions[?(@.type=="Ready")].status"#),
        column("Key", "string", r".metadata.annotations.example\.com/key"),
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp", "description": "d", "priority": 1,
            "format": "f"},
    ]}]}});
    let definition = definition.to_string();
    let printer = Printer::for_custom_resource(definition.as_bytes(), "v1").unwrap();
    let columns = serde_json::to_value(printer.columns()).unwrap();
    assert_eq!(columns[1]["description"], "Custom resource definition column (in JSONPath format): .spec.text");
    assert_eq!(columns[9], json!({"name": "Age", "type": "date", "format": "f", "description": "d", "priority": 1}));
    let cells = |object: Value| {
        let row = printer.row(&ItemRef::new(Encoding::Json, object.to_string().as_bytes()), now()).unwrap();
        serde_json::to_value(row.cells).unwrap()
    };
    let metadata =
        json!({"name": "a", "creationTimestamp": "2026-11-25T10:00:00Z", "annotations": {"example.com/key": "k"}});
    let spec = json!({"text": "t", "map": {"b": "<", "a": [true]}, "count": 3, "ratio": 2, "on": false, "since": NOW});
    let status = json!({"conditions": [{"type": "Synced", "status": "False"}, {"type": "Ready", "status": "True"}]});
    assert_eq!(
        cells(json!({"metadata": metadata, "spec": spec, "status": status})),
        json!(["a", "t", r#"{"a":[true],"b":"\u003c"}"#, 3, 2.0, false, "0s", "True", "k", "120m"])
    );
    // Absent values, and values of other types.
    let none = Value::Null;
    assert_eq!(
        cells(json!({"metadata": {"name": "a"}})),
        json!(["a", none, none, none, none, none, none, none, none, none])
    );
    let spec = json!({"text": 7, "count": 3.9, "ratio": "x", "on": "true", "since": "yesterday"});
    assert_eq!(
        cells(json!({"metadata": {"name": "a"}, "spec": spec})),
        json!(["a", "7", none, 3, none, none, "<invalid>", none, none, none])
    );
    let default = Printer::for_custom_resource(definition.as_bytes(), "v1beta1").unwrap();
    assert_eq!(default.columns().iter().map(|column| &*column.name).collect::<Vec<_>>(), ["Name", "Age"]);
    for (definition, version, expected) in [
        (&*definition, "v2", "the definition has no version \"v2\""),
        ("{}", "v1", "the definition cannot be read: missing field `spec`"),
        (
            r#"{"spec":{"versions":[{"name":"v1","additionalPrinterColumns":[{"name":"X","jsonPath":".a["}]}]}}"#,
            "v1",
            "column \"X\": ",
        ),
    ] {
        let error = Printer::for_custom_resource(definition.as_bytes(), version).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

/// The recorded Pods, in protobuf and as the JSON that they are converted to.
#[test]
fn both_encodings_have_the_same_cells() {
    let body = std::fs::File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/pods.pb")).unwrap();
    let printer = Printer::for_kind(&TypeMeta::new("v1", "Pod")).unwrap();
    let rows = ListReader::with(body, |item| {
        let mut json = Vec::new();
        item.to_json(&mut json)?;
        let row = printer.row(&item, now())?;
        assert_eq!(row, printer.row(&ItemRef::new(Encoding::Json, &json), now())?);
        assert_eq!(row.cells[0].to_string(), item.meta()?.name());
        Ok::<_, ItemError>(())
    });
    assert_eq!(rows.map(Result::unwrap).count(), 120);
}

#[test]
fn malformed_objects_are_errors() {
    for kind in ["ConfigMap", "Event", "Namespace", "Node", "Pod", "Secret", "Service"] {
        let printer = Printer::for_kind(&TypeMeta::new("v1", kind)).unwrap();
        for (encoding, object) in [
            (Encoding::Json, &b"{"[..]),
            (Encoding::Json, br#"{"metadata":{"creationTimestamp":"yesterday"}}"#),
            (Encoding::Json, br#"{"metadata":1}"#),
            (Encoding::Protobuf, b"\x0a\xff"),
        ] {
            assert!(printer.row(&ItemRef::new(encoding, object), now()).is_err(), "{kind}: {object:?}");
        }
    }
    assert!(Printer::for_kind(&TypeMeta::new("v1", "PodTemplate")).is_none());
    assert!(Printer::for_kind(&TypeMeta::new("autoscaling/v1", "HorizontalPodAutoscaler")).is_none());
    assert!(Printer::for_kind(&TypeMeta::new("extensions/v1beta1", "Deployment")).is_none());
}
