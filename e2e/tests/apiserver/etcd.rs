//! etcd's file. Each built-in resource that the API server accepts, custom resources, updated, deleted and encrypted
//! objects equal their last GET, in a snapshot of a running etcd and in its data file after a crash.
//!
//! The objects are Kubernetes' own test data of its storage, with one object for each resource in each version. Damaged
//! files end in an error, or in what bbolt reads from them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::process::{Command, Output};

use listwatch::{ItemRef, TypeMeta};
use listwatch_e2e::{Result, Server, bin};
use listwatch_etcd::{DataFile, EncryptionConfig, ErrorKind, StoredValue, storage_prefix};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::get::command;

const PORT: u16 = 17113;
const NAMESPACE: &str = "stored";

/// Every version is served. Custom resources are stored as JSON, as by default.
const FLAGS: [&str; 2] =
    ["--runtime-config=api/all=true", "--feature-gates=AllAlpha=true,AllBeta=true,CBORServingAndStorage=false"];

/// Each provider that a file of keys is enough for.
const ENCRYPTION: &str = r#"{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration", "resources": [
{"resources": ["secrets"], "providers": [{"aescbc": {"keys": [{"name": "a", "secret": "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="}]}}]},
{"resources": ["configmaps"], "providers": [{"aesgcm": {"keys": [{"name": "b", "secret": "QUJDREVGR0hJSktMTU5PUA=="}]}}]},
{"resources": ["podtemplates"], "providers": [{"secretbox": {"keys": [{"name": "c", "secret": "YWJjZGVmZ2hpamtsbW5vcGFiY2RlZmdoaWprbG1ub3A="}]}}]}
]}"#;

/// An object, and how the server returned it last.
struct Stored {
    key: String,
    /// As the command names it: `deployments.v1.apps`.
    resource: String,
    name: String,
    is_namespaced: bool,
    /// In the version in which it is stored, if the server serves it.
    json: Value,
    /// The bodies in protobuf and in JSON.
    bodies: [Vec<u8>; 2],
    is_served_as_stored: bool,
}

struct Api {
    http: reqwest::Client,
    url: String,
}

impl Api {
    async fn send(&self, method: &str, path: &str, content: &str, accept: &str, body: &str) -> Result<(u16, Vec<u8>)> {
        let request = self.http.request(method.parse()?, format!("{}{path}", self.url)).bearer_auth("admin");
        let request = request.header("Content-Type", content).header("Accept", accept).body(body.to_owned());
        let response = request.send().await?;
        Ok((response.status().as_u16(), response.bytes().await?.to_vec()))
    }

    async fn get(&self, path: &str, accept: &str) -> Result<Vec<u8>> {
        match self.send("GET", path, "application/json", accept, "").await? {
            (200, body) => Ok(body),
            (code, body) => Err(format!("GET {path}: {code} {}", String::from_utf8_lossy(&body)).into()),
        }
    }

    /// Sends a write, which must succeed.
    async fn write(&self, method: &str, path: &str, content: &str, body: &Value) -> Result<()> {
        match self.send(method, path, content, "application/json", &body.to_string()).await? {
            (200..=201, _) => Ok(()),
            (code, body) => Err(format!("{method} {path}: {code} {}", String::from_utf8_lossy(&body)).into()),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_in_etcd_files_equal_their_last_get() -> Result<()> {
    let dir = TempDir::with_prefix("listwatch-")?;
    let keys = dir.path().join("encryption.yaml");
    std::fs::write(&keys, ENCRYPTION)?;
    let encryption = format!("--encryption-provider-config={}", keys.to_str().ok_or("no path")?);
    let mut server = Server::start_in(dir, PORT, &[&FLAGS[..], &[&encryption]].concat())?;
    let http = reqwest::Client::builder().danger_accept_invalid_certs(true).build()?;
    let api = Api { http, url: server.url.clone() };
    let discovered = discovered(&api).await?;
    assert_eq!(
        discovered.join("\n") + "\n",
        include_str!("../../../crates/cli/src/source/built_in.txt"),
        "built_in.txt has other resources than the server lists, which are left and right"
    );
    let (stubs, before) = write_objects(&server, &api).await?;
    let snapshot = server.dir().join("snapshot.db");
    let objects = save_snapshot(&api, &stubs, &snapshot).await?;
    let data = server.dir().join("etcd/member/snap/db");
    let in_use = DataFile::open(&data).expect_err("etcd runs");
    assert!(matches!(in_use.kind(), ErrorKind::InUse) && in_use.to_string().contains("etcdctl snapshot save"));
    assert!(DataFile::open(&snapshot)?.check()?.has_hash);
    let mut wrong = compare_bytes(&snapshot, &objects)?;
    wrong.extend(compare_commands(&snapshot, &keys, &objects)?);
    assert!(wrong.is_empty(), "in a snapshot, {} differ:\n{}", wrong.len(), wrong.join("\n"));
    check_selection(&snapshot, &keys, before)?;
    check_encrypted(&snapshot)?;

    // The last writes are in the log at least; etcd writes them to its file ten times a second.
    server.kill();
    let wrong = compare_bytes(&data, &objects)?;
    assert!(wrong.is_empty(), "after a crash, {} differ:\n{}", wrong.len(), wrong.join("\n"));
    DataFile::open(&data)?.check()?;
    Ok(())
}

/// Returns a line for each built-in resource, as `built_in.txt` has them.
async fn discovered(api: &Api) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for root in ["/api", "/apis"] {
        let document = api.get(root, "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList").await?;
        let document: Value = serde_json::from_slice(&document)?;
        for group in array(&document["items"]) {
            for version in array(&group["versions"]) {
                for resource in array(&version["resources"]) {
                    let verbs = array(&resource["verbs"]);
                    if !["list", "watch"].iter().all(|verb| verbs.contains(&json!(verb))) {
                        continue;
                    }
                    let names = |names: &Value| {
                        array(names).iter().map(|name| text(name).to_owned()).collect::<Vec<_>>().join(",")
                    };
                    let parts = [
                        text(&group["metadata"]["name"]),
                        text(&version["version"]),
                        text(&resource["resource"]),
                        text(&resource["responseKind"]["kind"]),
                        text(&resource["singularResource"]),
                        text(&resource["scope"]),
                        &names(&resource["shortNames"]),
                        &names(&resource["categories"]),
                    ];
                    lines.push(parts.join("|"));
                }
            }
        }
    }
    Ok(lines)
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Creates, changes and deletes objects. Returns those that are left, and a version before the changes.
async fn write_objects(server: &Server, api: &Api) -> Result<(Vec<Value>, String)> {
    server.kubectl(&["create", "namespace", NAMESPACE])?;
    let stubs = Command::new(bin("storage")).args(["stubs", NAMESPACE]).output()?.stdout;
    let stubs = stubs.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let stubs: Vec<Value> = stubs.map(serde_json::from_slice).collect::<std::result::Result<_, _>>()?;
    let (definitions, stubs): (Vec<_>, Vec<_>) = stubs.iter().partition(|stub| stub["definition"].is_object());
    for definition in definitions {
        let definition = &definition["definition"];
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        api.write("POST", path, "application/json", definition).await?;
        let name = format!("crd/{}", text(&definition["metadata"]["name"]));
        server.kubectl(&["wait", "--for=condition=Established", &name])?;
    }
    for stub in &stubs {
        let (collection, _) = paths(stub, &api_version(stub));
        api.write("POST", &collection, "application/json", &stub["object"]).await?;
    }
    let accounts = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts");
    api.write("POST", &accounts, "application/json", &json!({"metadata": {"name": "gone"}})).await?;
    let list: Value = serde_json::from_slice(&api.get(&accounts, "application/json").await?)?;
    let before = text(&list["metadata"]["resourceVersion"]).to_owned();
    for stub in &stubs {
        let (_, path) = paths(stub, &api_version(stub));
        let patch = json!({"metadata": {"labels": {"changed": "yes"}}});
        api.write("PATCH", &path, "application/merge-patch+json", &patch).await?;
    }
    api.write("DELETE", &format!("{accounts}/gone"), "application/json", &json!({})).await?;
    Ok((stubs.into_iter().cloned().collect(), before))
}

/// Returns the paths of a stub's collection and of its object, in a version such as `apps/v1`.
fn paths(stub: &Value, api_version: &str) -> (String, String) {
    let (resource, key) = (text(&stub["resource"]), text(&stub["key"]));
    let root = if api_version.contains('/') { format!("/apis/{api_version}") } else { format!("/api/{api_version}") };
    let namespace = if is_namespaced(key) { format!("/namespaces/{NAMESPACE}") } else { String::new() };
    let collection = format!("{root}{namespace}/{resource}");
    let object = format!("{collection}/{}", name(key).replace(':', "%3A"));
    (collection, object)
}

fn api_version(stub: &Value) -> String {
    let (group, version) = (text(&stub["group"]), text(&stub["version"]));
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

fn is_namespaced(key: &str) -> bool {
    key.contains(&format!("/{NAMESPACE}/"))
}

fn name(key: &str) -> &str {
    key.rsplit('/').next().unwrap_or_default()
}

/// Saves a snapshot, and returns the objects as they were then: controllers of the server change a few once more.
async fn save_snapshot(api: &Api, stubs: &[Value], snapshot: &Path) -> Result<Vec<Stored>> {
    let mut before = read_objects(api, stubs).await?;
    loop {
        let etcd = format!("http://127.0.0.1:{}", PORT + 1);
        let saved = Command::new(bin("storage")).args(["snapshot", &etcd]).arg(snapshot).output()?;
        assert!(saved.status.success(), "{}", String::from_utf8_lossy(&saved.stderr));
        let after = read_objects(api, stubs).await?;
        if before.iter().zip(&after).all(|(before, after)| before.bodies == after.bodies) {
            return Ok(after);
        }
        before = after;
    }
}

async fn read_objects(api: &Api, stubs: &[Value]) -> Result<Vec<Stored>> {
    let mut objects = Vec::new();
    for stub in stubs {
        objects.push(read_object(api, stub).await?);
    }
    Ok(objects)
}

async fn read_object(api: &Api, stub: &Value) -> Result<Stored> {
    let (group, version, key) = (text(&stub["group"]), text(&stub["version"]), text(&stub["key"]));
    let own = api_version(stub);
    let stored = stub["stored"].as_str().unwrap_or(&own);
    let (_, as_stored) = paths(stub, stored);
    let (_, as_written) = paths(stub, &own);
    let is_served = api.get(&as_stored, "application/json").await.is_ok();
    let path = if is_served { as_stored } else { as_written };
    let json = api.get(&path, "application/json").await?;
    let protobuf = api.get(&path, "application/vnd.kubernetes.protobuf,application/json").await?;
    let resource = text(&stub["resource"]);
    let resource = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{version}.{group}") };
    Ok(Stored {
        key: key.to_owned(),
        resource,
        name: name(key).to_owned(),
        is_namespaced: is_namespaced(key),
        json: serde_json::from_slice(&json)?,
        bodies: [protobuf, json],
        is_served_as_stored: is_served,
    })
}

/// Compares what the library reads with the bodies of the server, byte for byte. Returns what differs.
fn compare_bytes(path: &Path, objects: &[Stored]) -> Result<Vec<String>> {
    let keys = EncryptionConfig::from_json(ENCRYPTION.as_bytes())?;
    let file = DataFile::open(path)?;
    let mut state = file.state(b"/registry/", None, 1 << 20)?;
    let mut found = BTreeMap::new();
    while let Some(entry) = state.next()? {
        let value = keys.decrypt(entry.key, entry.value)?.unwrap_or_else(|| entry.value.to_vec());
        found.insert(String::from_utf8(entry.key.to_vec())?, (entry.mod_revision, value));
    }
    let gone = storage_prefix("/registry", "", "serviceaccounts", Some(NAMESPACE)) + "gone";
    assert!(!found.contains_key(&gone));
    let mut wrong = Vec::new();
    for Stored { key, json, bodies, is_served_as_stored, .. } in objects {
        let Some((revision, value)) = found.get(key) else {
            wrong.push(format!("{key} is missing"));
            continue;
        };
        let value = StoredValue::of(value);
        let (encoding, object) = value.object(*revision).ok_or_else(|| format!("{key}: {value:?}"))?;
        let (type_meta, sent) = match (&value, StoredValue::of(&bodies[0])) {
            (StoredValue::Protobuf { type_meta, .. }, StoredValue::Protobuf { object, .. }) => {
                (type_meta.clone(), object)
            }
            // Custom resources, definitions and API services.
            _ => (TypeMeta::default(), bodies[1].trim_ascii_end()),
        };
        if *is_served_as_stored && object == sent {
            continue;
        }
        let mut read = Vec::new();
        ItemRef::new(encoding, &object).with_type_meta(&type_meta).to_json(&mut read)?;
        wrong.extend(difference(key, serde_json::from_slice(&read)?, json));
    }
    Ok(wrong)
}

/// Compares two objects as JSON, after the differences that docs/etcd.md describes.
fn difference(key: &str, mut read: Value, sent: &Value) -> Option<String> {
    match text(&read["kind"]) {
        // The server adds the default on reading.
        "PersistentVolumeClaim" => read["status"]["phase"] = json!("Pending"),
        // Older releases do not have the field, so it is left out in place of null.
        "PodCertificateRequest" => {
            let spec = read["spec"].as_object_mut()?;
            spec.entry("stubPKCS10Request").or_insert(Value::Null);
        }
        // It is stored in a version that is not served any more.
        "CustomResourceDefinition" => {
            assert_eq!(
                (&read["apiVersion"], &sent["apiVersion"]),
                (&json!("apiextensions.k8s.io/v1beta1"), &json!("apiextensions.k8s.io/v1"))
            );
            let same = ["group", "names", "scope"].iter().all(|name| read["spec"][name] == sent["spec"][name]);
            return (!same || read["metadata"] != sent["metadata"]).then(|| format!("{key}: {read}"));
        }
        _ => {}
    }
    (read != *sent).then(|| format!("{key}: {read} instead of {sent}"))
}

/// Compares what the command prints for each resource and name with what the server sent.
fn compare_commands(path: &Path, keys: &Path, objects: &[Stored]) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for Stored { resource, name, is_namespaced, json, .. } in objects {
        let object = format!("{resource}/{name}");
        let namespace: &[&str] = if *is_namespaced { &["-n", NAMESPACE] } else { &[] };
        let got =
            from(path, &[&["get", &object, "-o", "json", "--show-managed-fields"], namespace].concat(), Some(keys))?;
        if got.status.success() {
            wrong.extend(difference(&object, serde_json::from_slice(&got.stdout)?, json));
        } else {
            wrong.push(format!("{object}: {}", String::from_utf8_lossy(&got.stderr)));
        }
    }
    Ok(wrong)
}

/// Runs the command with a source.
fn from(path: &Path, args: &[&str], keys: Option<&Path>) -> Result<Output> {
    let mut command = Command::new(command()?);
    command.args(args).arg("--from").arg(path);
    if let Some(keys) = keys {
        command.arg("--encryption-config").arg(keys);
    }
    Ok(command.output()?)
}

/// Selectors, an older state and a deleted object.
fn check_selection(path: &Path, keys: &Path, before: String) -> Result<()> {
    let cm = ["get", "cm", "-n", NAMESPACE, "-o", "name"];
    for (args, code, stdout, stderr) in [
        (&["-l", "changed=yes"][..], 0, "configmap/cm1\n", ""),
        (&["-l", "changed=yes", "--at-version", &before], 0, "", "that the selector selects"),
        (&["--at-version", &before], 0, "configmap/cm1\n", "whose newest is"),
        (&["--field-selector", "metadata.name!=cm1"], 0, "", "that the selector selects"),
        (&["gone"], 1, "", "configmaps \"gone\" not found"),
        (&["--at-version", "9000000"], 1, "", "is newer than the file"),
    ] {
        let got = from(path, &[&cm[..], args].concat(), Some(keys))?;
        let (out, err) = (String::from_utf8(got.stdout)?, String::from_utf8(got.stderr)?);
        assert!(got.status.code() == Some(code) && out == stdout && err.contains(stderr), "{args:?}: {out}{err}");
    }
    let gone = from(path, &["get", "sa", "-n", NAMESPACE, "-o", "name"], None)?;
    assert_eq!(String::from_utf8(gone.stdout)?, "serviceaccount/sa1name\n");
    let gone = from(path, &["get", "sa/gone", "-n", NAMESPACE, "-o", "name", "--at-version", &before], None)?;
    assert_eq!(String::from_utf8(gone.stdout)?, "serviceaccount/gone\n");
    Ok(())
}

/// Without keys, encrypted objects are an error that names their provider and key, unless they are skipped.
fn check_encrypted(path: &Path) -> Result<()> {
    for (resource, provider, key) in
        [("secrets", "aescbc", "a"), ("configmaps", "aesgcm", "b"), ("podtemplates", "secretbox", "c")]
    {
        let args = ["get", resource, "-n", NAMESPACE, "-o", "name"];
        let refused = from(path, &args, None)?;
        let err = String::from_utf8(refused.stderr)?;
        let named = format!("1 object not decrypted: encrypted by {provider} \"{key}\"");
        assert!(refused.status.code() == Some(1) && refused.stdout.is_empty() && err.contains(&named), "{err}");
        let skipped = from(path, &[&args[..], &["--skip-encrypted"]].concat(), None)?;
        let err = String::from_utf8(skipped.stderr)?;
        assert!(skipped.status.success() && err.contains("skipped 1 encrypted object"), "{err}");
    }
    Ok(())
}

/// Damages each byte of two small files in turn. `boltdiff` decodes every revision, so it also fails at damage of former
/// revisions, which change no state.
#[test]
fn damaged_files_end_in_an_error_or_in_what_bbolt_reads() -> Result<()> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/etcd/tests");
    for name in ["small.db", "branches.db"] {
        let (path, dir) = (tests.join(name), TempDir::with_prefix("listwatch-")?);
        let theirs = Command::new(bin("boltdiff")).arg(&path).arg(dir.path().join("theirs")).output()?;
        let theirs = String::from_utf8(theirs.stdout)?;
        let (whole, copy) = (std::fs::read(&path)?, dir.path().join("ours"));
        let mut file = std::fs::File::create(&copy)?;
        file.write_all(&whole)?;
        let undamaged = hash_of_state(&path)?;
        let (mut both_read, mut wrong) = (0, Vec::new());
        let mut lines = theirs.lines();
        for (at, byte) in whole.iter().enumerate() {
            let mut write = |byte: u8| file.seek(SeekFrom::Start(at as u64)).and_then(|_| file.write_all(&[byte]));
            write(byte ^ [0x01, 0x80, 0xFF][at % 3])?;
            let theirs = lines.next().and_then(|line| line.split_once(' ')).ok_or("boltdiff ended early")?;
            assert_eq!(theirs.0, at.to_string());
            match hash_of_state(&copy) {
                Ok(ours) if ours == theirs.1 => both_read += 1,
                Ok(ours) if theirs.1 == "error" && ours == undamaged => {}
                Ok(ours) => wrong.push(format!("{name}, byte {at}: {ours} instead of {}", theirs.1)),
                Err(_) => {}
            }
            write(*byte)?;
        }
        assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
        assert!(both_read > whole.len() / 2, "{name}: {both_read} read");
    }
    Ok(())
}

/// Returns the hash of all keys and values, as `boltdiff` computes it.
fn hash_of_state(path: &Path) -> std::result::Result<String, listwatch_etcd::Error> {
    let file = DataFile::open(path)?;
    let mut state = file.state(b"", None, 1 << 20)?;
    let mut hash = Sha256::new();
    while let Some(entry) = state.next()? {
        for part in [entry.key, entry.value] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        for number in [entry.create_revision, entry.mod_revision, entry.version, entry.lease] {
            hash.update(number.to_le_bytes());
        }
    }
    Ok(hash.finalize().iter().fold(String::new(), |mut hex, byte| {
        _ = write!(hex, "{byte:02x}");
        hex
    }))
}
