//! `listwatch get` prints what kubectl of the same release prints: the same bytes and the same exit code, for each
//! resource, in each format, and for selections, missing objects and several resources.

use std::path::PathBuf;
use std::process::{Command, Output};

use listwatch_e2e::{Result, Server, bin};

const PORT: u16 = 17093;
const CLEAN_PORT: u16 = 17113;

const JOB: &str = r#"
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: "job:1"}]}}}
"#;

/// How often a case is repeated: an age may change between the two commands.
const TRIES: usize = 5;

/// Objects with texts that JSON escapes, columns of each type, and two kinds of custom resources.
const OBJECTS: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: special, labels: {app: x, example.com/tier: web}}
data: {html: "<a href=\"x\">&amp;</a>", tab: "a\tb", nl: "line1\nline2\n", unicode: "é\u2028\u007f", control: "\u0001\u0008\u000c"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: empty}
---
apiVersion: v1
kind: Service
metadata: {name: web, labels: {app: web}}
spec: {ports: [{port: 80}], selector: {app: web}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop, labels: {app: shop}}
spec:
  replicas: 3
  selector: {matchLabels: {app: shop}}
  template: {metadata: {labels: {app: shop}}, spec: {containers: [{name: a, image: "shop:1"}, {name: bb, image: "side:2"}]}}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec: {schedule: "0 1 * * *", jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: "job:1"}]}}}}}
---
apiVersion: v1
kind: Pod
metadata: {name: lonely, labels: {app: lonely}}
spec: {containers: [{name: a, image: "x:1"}]}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: gadgets, singular: gadget, kind: Gadget, shortNames: [gd]}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
    additionalPrinterColumns:
    - {name: Count, type: integer, jsonPath: .spec.count}
    - {name: Ready, type: boolean, jsonPath: .spec.ready}
    - {name: Ratio, type: number, jsonPath: .spec.ratio}
    - {name: Text, type: string, jsonPath: .spec.text}
    - {name: Long Text, type: string, jsonPath: .spec.long, priority: 1}
    - {name: Born, type: date, jsonPath: .metadata.creationTimestamp}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: globes.example.com}
spec:
  group: example.com
  scope: Cluster
  names: {plural: globes, singular: globe, kind: Globe}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
"#;

const CUSTOM_OBJECTS: &str = r#"
apiVersion: example.com/v1
kind: Gadget
metadata: {name: one, labels: {app: x}}
spec: {count: 1, ready: true, ratio: 0.5, text: plain, long: a long text that is wider than others}
---
apiVersion: example.com/v1
kind: Gadget
metadata: {name: two-with-a-longer-name}
spec: {count: 123456789, ready: false, ratio: 100000000, text: "line1\nline2", floats: [1.0, 1e21, 1e-7, 100000000.0, 0.1]}
---
apiVersion: example.com/v1
kind: Gadget
metadata: {name: three}
spec: {count: 3, ratio: 1234567.25, text: "tab\there é \e[31m red"}
---
apiVersion: example.com/v1
kind: Globe
metadata: {name: earth}
"#;

/// Arguments of both commands.
const CASES: &[&str] = &[
    "pods",
    "pods -A",
    "pods -A -o wide --show-labels",
    "pods -A --no-headers -L app,app.kubernetes.io/name",
    "pods -A -o json",
    "pods -A --chunk-size 0",
    "pods -A --chunk-size 100",
    "cm,pods -A --chunk-size 150",
    "pods -A -o json --chunk-size 300",
    "pods -A -o name --chunk-size 0",
    "pods -A -o name",
    "pods -n none",
    "pods -n none -n default",
    "pods -A -l app=lonely --show-kind",
    "pods -A -l app.kubernetes.io/name=ledger",
    "pods -A --field-selector metadata.name=lonely -o json",
    "pods,svc -A",
    "pods,svc,po",
    "svc,deploy,cj,cm,gd,globes",
    "svc,deploy,cj,cm,gd,globes --no-headers",
    "svc,deploy,cj,cm,gd,globes -o json",
    "svc,deploy,cj,cm,gd,globes -o name",
    "deploy shop -o wide",
    "deploy shop -o json",
    "deploy/shop svc/web deploy/shop",
    "deploy/shop svc/web -o json",
    "deploy/none svc/web",
    "deploy/none svc/web -o json",
    "deploy none",
    "deploy none -o json",
    "deploy none -o name",
    "deploy none --ignore-not-found",
    "deploy none --ignore-not-found -o json",
    "deploy none other --ignore-not-found -o json",
    "deploy none shop --ignore-not-found -o json",
    "cm special -o json --show-managed-fields",
    "cm -n none -o json",
    "cm -n none -o json --ignore-not-found",
    "ns,pods -n team-01",
    "ns default -n team-01",
    "gadgets -o wide",
    "gadgets.v1.example.com --no-headers",
    "gd -o json",
    "globes earth -A",
    "pods lonely -A",
    "no-such-resource",
    "pod/lonely other",
    "pods/",
    "pods lonely -l app=x",
    "pods -o no-such-format",
    "pods -A -o yaml",
    "pods -A -o yaml --show-managed-fields",
    "deploy shop -o yaml",
    "deploy/shop svc/web -o yaml",
    "deploy none -o yaml",
    "deploy none --ignore-not-found -o yaml",
    "cm -n none -o yaml",
    "cm empty -o yaml",
    "gd -o yaml",
    "crd -o yaml",
    "svc,deploy,cj,gd,globes -o yaml",
    "nodes -o yaml",
    "clusterroles -o yaml",
    "pods -A -o custom-columns=NAME:.metadata.name",
    "pods -A -o custom-columns=NAME:.metadata.name,NODE:.spec.nodeName,IP:.status.podIP",
    "pods -A -o custom-columns=NAME:.metadata.name,L:.metadata.labels,C:.spec.containers[*].name --no-headers",
    "cm -o custom-columns=A:.metadata.name,D:.data",
    "cm special -o custom-columns=A:.data,D:.metadata.name,E:.data.nl,F:.data.tab,G:.metadata.name",
    "gd -o custom-columns=N:.metadata.name,T:.spec.text,R:.spec.ratio,F:.spec.floats,M:.spec.missing",
    "cm -n none -o custom-columns=A:.metadata.name,B:.x",
    "cm -n none -o custom-columns=A:.metadata.name,B:.x --no-headers",
    "cm none -o custom-columns=A:.metadata.name",
    "cm none -o custom-columns=A:.metadata.name --ignore-not-found",
    "pods -A -o custom-columns=A",
    "pods -A -o jsonpath='{.items[*].metadata.name}'",
    "pods -A -o jsonpath='{range .items[*]}{.metadata.namespace}/{.metadata.name}{\"\\n\"}{end}'",
    "pods -A -o jsonpath='{.items[0].metadata.name}'",
    "pods -A -o jsonpath='{.items[-1:].metadata.name}'",
    "pods -A -o jsonpath='{.items[-1].metadata.name}'",
    "pods -A -o jsonpath='{.items[2:9:3].metadata.name}'",
    "pods -A -o jsonpath='{.items[:3].metadata.name} {.items[1090:].metadata.name}'",
    "pods -A -o jsonpath='{.items[-3:-1].metadata.name}'",
    "pods -A -o jsonpath='{.items[:-1090].metadata.name}'",
    "pods -A -o jsonpath=\"{.items[*]['metadata.name','status.phase']}\"",
    "pods -A -o jsonpath=\"{.items[*]['metadata.name','status.phase']} x {.kind} {.apiVersion} {.metadata.resourceVersion} {.items[3].kind}\"",
    "pods -A -o jsonpath='{range .items[*]}{.metadata.name}{\"\\t\"}{.status.startTime}{\"\\n\"}{end}{range .items[?(@.status.phase==\"Running\")]}{.metadata.name}{\"\\n\"}{end}'",
    "pods -A -o jsonpath='{.items[?(@.metadata.name==\"lonely\")].spec}'",
    "deploy -o jsonpath='{.items}'",
    "deploy -o jsonpath='{}'",
    "deploy -o jsonpath='{$}'",
    "deploy -o jsonpath='{@}{\"\\n\"}'",
    "deploy shop -o jsonpath='{}'",
    "deploy shop -o jsonpath='{.spec.template.spec.containers[*].image}{\"\\n\"}'",
    "deploy shop -o jsonpath='{.spec.replicas}'",
    "deploy shop -o jsonpath-as-json='{.spec.template.spec.containers[*].image}{.metadata.labels}'",
    "deploy -o jsonpath-as-json='{.items[*].metadata.name}'",
    "pods -A -o jsonpath-as-json='{.items[*].metadata.name}{\"x\"}{.items[*].spec.containers}'",
    "pods -A -o jsonpath-as-json='{range .items[*]}{.metadata.name}{.spec.nodeName}{end}'",
    "pods -n none -o jsonpath-as-json='{.items[*].metadata.name}'",
    "pods -n none -o jsonpath='{.items[*].metadata.name}'",
    "pods -n none -o jsonpath='{.items}'",
    "pods -n none -o jsonpath='{.items[0].metadata.name}'",
    "pods -n none -o jsonpath='{.items[-1:].metadata.name}'",
    "pods -n none -o jsonpath='{.items[0:2].metadata.name}'",
    "pods -A -o jsonpath='{.items[5000].metadata.name}'",
    "pods -A -o jsonpath='{.items[*].metadata.annotations.a\\.b/c}x'",
    "pods -A -o jsonpath='{.items.metadata.name}x'",
    "pods -A -o jsonpath='{.foo.bar}'",
    "pods -A -o jsonpath=''",
    "pods -A -o jsonpath",
    "pods -A -o jsonpath='{.items[*'",
    "gd -o jsonpath='{range .items[*]}{.spec.ratio} {.spec.floats} {.spec.count} {.spec.text}|{end}'",
    "cm special -o jsonpath='{.data}'",
    "cm special -o jsonpath='{.data.nl}{.data.control}'",
    "pod/lonely svc/web -o jsonpath='{.items[*].metadata.name}'",
    "pod/lonely pod/none -o jsonpath='{.items[*].metadata.name}'",
    "pods -A -o name --sort-by .metadata.uid",
    "pods -A -o custom-columns=N:.metadata.name,U:.metadata.uid --sort-by .metadata.uid",
    "pods -A -o custom-columns=N:.metadata.name,U:.metadata.uid --sort-by '{.metadata.name}' --no-headers",
    "pods,svc,deploy -A -o name --sort-by .metadata.uid",
    "gd -o name --sort-by .spec.count",
    "gd -o json --sort-by .spec.count",
    "gd -o yaml --sort-by .spec.text",
    "pods -A -o name --sort-by .spec.nope",
    "pods -n none -o name --sort-by .spec.nope",
    "deploy shop -o name --sort-by .spec.nope",
    "pods -A -o jsonpath='{.items[-3:].metadata.name}' --sort-by metadata.uid",
    "cm -A -A -o name -o json",
    "all",
    "all -A",
    "all -n team-01 -o name",
    "all -o yaml",
    "all,cm -o json",
    "all shop",
    "all -l app=lonely -o wide",
    "all -n none",
    "pods -A --sort-by .metadata.uid",
    "pods -A --sort-by .metadata.uid --no-headers",
    "pods -A --sort-by .metadata.uid -o wide -L app --show-labels",
    "pods -A --sort-by '{.metadata.name}' --show-kind",
    "pods -A --sort-by metadata.uid --chunk-size 50",
    "gd --sort-by .spec.count",
    "gd --sort-by .spec.text -o wide",
    "cm -n none --sort-by .metadata.name",
    "deploy shop --sort-by .spec.nope",
    "globes --sort-by .metadata.name",
    "pods -A --server-print=false",
    "pods -A --server-print=false --no-headers",
    "pods,cm,globes --server-print=false",
    "deploy shop --server-print=false -o wide --show-labels -L app",
    "gd --server-print=false --show-kind",
    "pods -n none --server-print=false",
    "pods -A --server-print=false -o name",
    "deploy shop --subresource status",
    "deploy shop --subresource scale",
    "deploy shop --subresource scale -o json",
    "deploy shop --subresource scale -o yaml",
    "deploy/shop --subresource scale -o name",
    "deploy/shop --subresource=scale -o jsonpath='{.spec.replicas}'",
    "deploy/shop svc/web --subresource status",
    "deploy/shop svc/web --subresource status -o json",
    "deploy --subresource status",
    "deploy shop --subresource nosuch",
    "--raw /api/v1/namespaces/default",
    "--raw /version",
    "--raw /healthz",
    "--raw /nosuch",
    "--raw nosuch",
    "--raw /version pods",
    "--raw /version -o json",
    "--raw '/api/v1/pods?limit=3'",
    "-f {dir}/one.yaml",
    "-f {dir}/one.yaml -o json",
    "-f {dir}/one.yaml -o name",
    "-f {dir}/one.yaml -o jsonpath='{.metadata.name}'",
    "-f {dir}/two.yaml",
    "-f {dir}/two.yaml -o json",
    "-f {dir}/two.yaml -o wide --show-labels",
    "-f {dir}/list.json",
    "-f {dir}/one.yaml -f {dir}/list.json",
    "-f {dir}/one.yaml,{dir}/list.json -o name",
    "-f {dir}",
    "-f {dir} -o json",
    "-f {dir}/custom.yaml",
    "-f {dir}/folder",
    "-f {dir}/folder -R",
    "-f {dir}/folder -R -o name",
    "-f {dir}/missing.yaml",
    "-f {dir}/gone.yaml",
    "-f {dir}/gone.yaml --ignore-not-found",
    "-f {dir}/gone.yaml -o json --ignore-not-found",
    "-f {dir}/two.yaml -n team-01",
    "-f {dir}/list.json -n team-01",
    "-f {dir}/one.yaml cm",
    "-f {dir}/one.yaml -A",
    "cm --no-headers=false",
    "cm --no-headers=true -A=false",
    "cm --ignore-not-found=true --show-labels=1 --show-kind=T",
    "cm --label-columns=app,example.com/tier",
    "cm -L app -L example.com/tier",
    "cm -oname",
    "cm -o=name",
    "cm -o name -o json -o name",
    "cm --output-watch-events",
    "cm --show-labels -o json",
    "cm -L app -o custom-columns=A:.metadata.name",
    "cm -L app -o name",
    "cm --request-timeout=10s",
    "cm --request-timeout 10",
    "cm --request-timeout=x",
    "pods -A --chunk-size 1 -l app=lonely",
    "cm,svc -w",
    "cm empty special -w -o no-such-format",
    "nosuch -w",
    "cm nosuch -w",
    "cm nosuch -w --ignore-not-found",
    "cm nosuch -w -o json",
    "pods,svc",
    "pods,svc -A -o wide -L app --show-labels",
    "pod/lonely deploy/shop",
    "pod/lonely deploy/shop -o wide",
    "pod/lonely deploy/none -o name",
    "pods nosuch",
    "pods lonely nosuch -o yaml",
    "pods -o json --field-selector metadata.name=lonely",
    "events -A",
    "cm -o jsonpath='{.items[*].data.unicode}'",
    "cm -o ''",
    "cm -l ''",
    "deployments.v1.apps/shop -o name",
    "gadgets.example.com/one gadgets/three",
    "pods -l '!app' -o name",
    "clusterroles --field-selector metadata.name=view",
    "cm --field-selector nope=x",
    "ns/default cm/empty -A",
    "pods -A -o jsonpath='{.metadata.resourceVersion}'",
    "cm -o jsonpath-file={dir}/template",
    "cm -o custom-columns-file={dir}/columns",
    "cm,",
    "all/x",
    "pods/status",
    "tokenreviews",
    "cm --context nope",
];

/// Manifests, some of which name objects that do not exist.
const MANIFESTS: &[(&str, &str)] = &[
    ("one.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: empty}\n"),
    (
        "two.yaml",
        "# two documents\n---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: empty\n---\napiVersion: v1\nkind: \
         Service\nmetadata:\n  name: web\n",
    ),
    (
        "list.json",
        r#"{"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "special", "namespace": "default"}},
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}]}"#,
    ),
    ("custom.yaml", "apiVersion: example.com/v1\nkind: Gadget\nmetadata: {name: one}\n"),
    ("gone.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: gone}\n"),
    ("template", "{.items[*].metadata.name}"),
    ("columns", "NAME   D\n.metadata.name .data.tab\n"),
    ("notes.txt", "kind: of\n"),
    ("folder/one.yml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: empty}\n"),
    ("folder/below/two.json", r#"{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}"#),
];

#[test]
fn prints_what_kubectl_prints() -> Result<()> {
    let server = Server::start(PORT, &[])?;
    // More than a page of kubectl, and more than a page of its aligned columns.
    server.load(1_100)?;
    server.apply(OBJECTS)?;
    for definition in ["crd/gadgets.example.com", "crd/globes.example.com"] {
        server.kubectl(&["wait", "--for=condition=Established", definition])?;
    }
    server.apply(CUSTOM_OBJECTS)?;
    for (name, manifest) in MANIFESTS {
        let path = manifests(&server).join(name);
        std::fs::create_dir_all(path.parent().ok_or("no folder")?)?;
        std::fs::write(path, manifest)?;
    }
    let resources = server.kubectl(&["api-resources", "--verbs=list", "-o", "name"])?;
    // The server lists component statuses in a random order.
    let resources = resources.lines().filter(|resource| *resource != "componentstatuses");
    let of_resource = |resource: &str| {
        ["", " -A -o wide", " -A -o json", " -A -o yaml", " -o name"].map(|args| format!("{resource}{args}"))
    };
    // kubectl cannot print control characters in YAML.
    let fails = |case: &String| case == "configmaps -A -o yaml";
    let cases =
        CASES.iter().map(|case| (*case).to_owned()).chain(resources.flat_map(of_resource)).filter(|case| !fails(case));
    let wrong: Vec<_> = cases.filter_map(|case| compare(&server, &case).err()).map(|error| error.to_string()).collect();
    assert!(wrong.is_empty(), "{} cases differ:\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}

fn manifests(server: &Server) -> PathBuf {
    server.dir().join("manifests")
}

/// What `--clean` prints can be applied again, here and as new objects.
#[test]
fn prints_what_can_be_applied_again() -> Result<()> {
    let server = Server::start(CLEAN_PORT, &[])?;
    server.apply(OBJECTS)?;
    server.apply(JOB)?;
    server.kubectl(&["create", "namespace", "copy"])?;
    for resources in ["cm,svc,deploy,cj,jobs,sa", "pods"] {
        let output = Command::new(command()?)
            .args(["get", resources, "-n", "default", "-o", "yaml", "--clean", "--kubeconfig"])
            .arg(server.dir().join("kubeconfig"))
            .output()?;
        let printed = String::from_utf8(output.stdout)?;
        assert!(output.status.success() && !printed.contains("uid:"), "{printed}");
        // As new objects, the server assigns its fields again.
        let copied = printed.replace("namespace: default", "namespace: copy");
        server.apply(&copied)?;
        let names = |namespace| server.kubectl(&["get", resources, "-n", namespace, "-o", "name"]);
        let (old, new) = (names("default")?, names("copy")?);
        // The API server itself creates the Service `kubernetes`, and Pods of a Job have no controller here.
        assert_eq!(old, new, "{resources}");
        server.kubectl(&[
            "apply",
            "--dry-run=server",
            "-f",
            server.dir().join("applied").to_str().ok_or("no path")?,
        ])?;
    }
    Ok(())
}

/// Runs both commands with these arguments.
fn compare(server: &Server, case: &str) -> Result<()> {
    let (mut kubectl, mut listwatch) = (Vec::new(), Vec::new());
    for _ in 0..TRIES {
        kubectl = run(server, bin("kubectl"), case)?;
        listwatch = run(server, command()?, case)?;
        if kubectl == listwatch {
            return Ok(());
        }
    }
    let lines = kubectl.iter().zip(&listwatch).find(|(expected, printed)| expected != printed);
    Err(format!("get {case}: {} and {} lines, first {lines:?}", kubectl.len(), listwatch.len()).into())
}

/// Returns the exit code, and the lines of stdout. All ages are equal.
fn run(server: &Server, program: PathBuf, case: &str) -> Result<Vec<String>> {
    let mut command = Command::new(program);
    let case = case.replace("{dir}", manifests(server).to_str().ok_or("no path")?);
    command.arg("get").args(words(&case)).arg("--kubeconfig").arg(server.dir().join("kubeconfig"));
    let Output { status, stdout, .. } = command.output()?;
    // Only usage errors differ: kubectl has 1 for them too.
    let code = status.code().map(|code| if code == 2 { 1 } else { code });
    let lines = String::from_utf8(stdout)?;
    let is_table = !["-o json", "-o yaml", "-o name", "-o custom"].iter().any(|format| case.contains(format));
    let lines = lines.lines().map(|line| if is_table { mask_ages(line) } else { line.to_owned() });
    Ok([format!("exit code {code:?}")].into_iter().chain(lines).collect())
}

/// Splits a case at spaces, except inside of quotes.
pub fn words(case: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for character in case.chars() {
        match (quote, character) {
            (None, ' ') => words.push(String::new()),
            (None, '\'' | '"') => quote = Some(character),
            (Some(open), character) if open == character => quote = None,
            (_, character) => words.last_mut().expect("never empty").push(character),
        }
    }
    words
}

/// Replaces words such as `4m31s`, and drops the spaces after them and after their header: a younger age is narrower.
pub fn mask_ages(line: &str) -> String {
    let is_age = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_digit())
            && word.ends_with(['s', 'm', 'h', 'd'])
            && word.chars().all(|c| c.is_ascii_digit() || "smhd".contains(c))
    };
    let mut masked = String::new();
    let mut after_age = false;
    for word in line.split(' ') {
        if after_age && word.is_empty() {
            continue;
        }
        after_age = word == "AGE" || is_age(word);
        masked.push_str(if is_age(word) { "<age>" } else { word });
        masked.push(' ');
    }
    masked
}

/// Returns the path of the command, which is built beside this test.
pub fn command() -> Result<PathBuf> {
    let test = std::env::current_exe()?;
    let command = test.ancestors().nth(2).ok_or("no target directory")?.join("listwatch");
    if command.exists() { Ok(command) } else { Err("build the command first: cargo build -p listwatch-cli".into()) }
}
