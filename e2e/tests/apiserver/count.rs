//! `listwatch count` counts and sums what kubectl prints of the same objects.

use std::collections::BTreeMap;
use std::process::Command;

use listwatch_e2e::{Result, Server};
use serde_json::Value;

use crate::get::command;

const PORT: u16 = 17103;

/// Pods with several containers, and quantities in several forms.
const PODS: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: two, labels: {app: "x", app.kubernetes.io/name: shop}}
spec:
  containers:
  - {name: a, image: "x:1", resources: {requests: {memory: 1536Mi, cpu: 1500m}, limits: {memory: 2Gi}}}
  - {name: b, image: "y:1", resources: {requests: {memory: "128974848", cpu: "2"}}}
---
apiVersion: v1
kind: Pod
metadata: {name: none}
spec: {containers: [{name: a, image: "x:1"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: exponent}
spec: {containers: [{name: a, image: "x:1", resources: {requests: {memory: 1e9, cpu: 0.25}}}]}
"#;

const BY: [&str; 8] = [
    ".status.phase",
    ".metadata.namespace",
    ".spec.containers[*].image",
    ".metadata.labels.app",
    r".metadata.labels.app\.kubernetes\.io/name",
    ".metadata.ownerReferences[*].kind",
    ".spec.containers[*].resources.requests",
    ".kind",
];

#[test]
fn counts_what_kubectl_prints() -> Result<()> {
    let server = Server::start(PORT, &[])?;
    server.load(600)?;
    server.apply(PODS)?;
    for by in BY {
        let cells = server.kubectl(&["get", "pods", "-A", "--no-headers", "-o", &format!("custom-columns=A:{by}")])?;
        let mut expected = BTreeMap::<_, u64>::new();
        for cell in cells.lines() {
            *expected.entry(cell.trim_end().to_owned()).or_default() += 1;
        }
        let groups = count(&server, &["-A", "--by", by])?;
        let counted: BTreeMap<_, _> = groups
            .iter()
            .map(|group| (group[by].as_str().unwrap_or("<none>").to_owned(), number(&group["count"])))
            .collect();
        assert_eq!(counted, expected, "{by}");
    }
    let all = server.kubectl(&["get", "pods", "-A", "-o", "name"])?.lines().count();
    assert_eq!(number(&count(&server, &["-A"])?[0]["count"]), all as u64);
    assert_eq!(number(&count(&server, &["-n", "default,team-01"])?[0]["count"]), {
        let of = |namespace| server.kubectl(&["get", "pods", "-n", namespace, "-o", "name"]);
        (of("default")?.lines().count() + of("team-01")?.lines().count()) as u64
    });
    assert_eq!(number(&count(&server, &["-l", "app=x"])?[0]["count"]), 1);
    let (memory, cpu) = (".spec.containers[*].resources.requests.memory", ".spec.containers[*].resources.requests.cpu");
    let sums = &count(&server, &["--sum", memory, "--sum", cpu, "-n", "default"])?[0];
    // The first Pod by name has 1G, so the sum has decimal suffixes, none of which leaves a whole number.
    assert_eq!(
        (&sums[format!("sum({memory})")], &sums[format!("sum({cpu})")]),
        (&"2739587584".into(), &"3750m".into())
    );
    Ok(())
}

fn count(server: &Server, args: &[&str]) -> Result<Vec<Value>> {
    let mut command = Command::new(command()?);
    command.args(["count", "pods", "-o", "json"]).args(args).arg("--kubeconfig").arg(server.dir().join("kubeconfig"));
    Ok(serde_json::from_slice(&command.output()?.stdout)?)
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}
