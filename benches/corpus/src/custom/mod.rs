//! Synthesizes custom resources of three sizes as JSON, as an API server sends them.
//!
//! Keys of objects are sorted, and `<`, `>` and `&` are escaped: the API server encodes custom resources from maps of
//! Go. `metadata.managedFields` lists the fields that are set. Lists are atomic unless the CRD declares their keys.
//!
//! | kind | owner | size | what is random in each object |
//! |---|---|---:|---|
//! | `Certificate` of cert-manager | its own `Ingress`, or none | 2.4 kB | names, uids, versions, domains, times |
//! | `Revision` of Knative | a `Configuration` with 1 to 20 of them | 4.9 kB | uid, version, digest, times, some settings |
//! | `Application` of Argo CD | an `ApplicationSet` with 4 to 60 of them | 22 kB | uid, version, cluster, times, part of the history |
//!
//! None of the three has `metadata.generateName`: their controllers choose names. Objects of one owner share the text
//! of its template. The applications of a repository share its commits, because they were synced to the same ones.
//!
//! # Entropy
//!
//! The concatenated objects, in the order of their keys, compressed by `zstd -19 --long=27` (1.5).
//!
//! | kind | objects | encoded | compressed | ratio |
//! |---|---:|---:|---:|---:|
//! | `Certificate` | 50,000 | 2.4 kB an object | 128 bytes an object | 1/19 |
//! | `Revision` | 10,000 | 4.9 kB an object | 181 bytes an object | 1/27 |
//! | `Application` | 2,000 | 22.6 kB an object | 481 bytes an object | 1/47 |
//!
//! `cargo run --release -p listwatch-corpus -- 50000 certificate` writes such a list. The same number gives the same
//! bytes on each machine. Objects are ordered by key, and no two have the same key.

use std::collections::BTreeMap;

use fastrand::Rng;
use serde_json::{Map, Value, json};

use crate::text::{environment, hex, name, pick, skewed, uid, value, variable, word};

mod application;

const NOW: i64 = 1_790_000_000;
const DAY: i64 = 86_400;

/// A kind of custom resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CustomKind {
    /// A certificate of cert-manager, small.
    Certificate,
    /// A revision of Knative, of middle size.
    Revision,
    /// An application of Argo CD, large.
    Application,
}

/// One object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomResource {
    /// `metadata.namespace`
    pub namespace: String,
    /// `metadata.name`
    pub name: String,
    /// `metadata.resourceVersion`
    pub resource_version: u64,
    /// The whole object, with its kind.
    pub json: String,
}

impl CustomKind {
    /// All kinds, from small to large.
    pub const ALL: [Self; 3] = [Self::Certificate, Self::Revision, Self::Application];

    /// Returns the group, the version, the plural and the kind.
    #[must_use]
    pub const fn resource(self) -> [&'static str; 4] {
        match self {
            Self::Certificate => ["cert-manager.io", "v1", "certificates", "Certificate"],
            Self::Revision => ["serving.knative.dev", "v1", "revisions", "Revision"],
            Self::Application => ["argoproj.io", "v1alpha1", "applications", "Application"],
        }
    }

    /// Returns `group/version`.
    #[must_use]
    pub fn api_version(self) -> String {
        let [group, version, ..] = self.resource();
        format!("{group}/{version}")
    }

    /// Returns the kind of this name: `certificate`, `revision` or `application`.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|of| of.resource()[3].eq_ignore_ascii_case(name))
    }

    /// Makes this many objects, in the order of their keys.
    #[must_use]
    pub fn objects(self, count: u32) -> Vec<CustomResource> {
        let mut rng = Rng::with_seed(44);
        let mut cluster = Cluster::new(&mut rng, self, count);
        let mut objects = BTreeMap::new();
        while objects.len() < count as usize {
            let of_owner = match self {
                Self::Certificate => vec![certificate(&mut rng, &mut cluster)],
                Self::Revision => revisions(&mut rng, &mut cluster),
                Self::Application => application::applications(&mut rng, &mut cluster),
            };
            for object in of_owner {
                if objects.len() < count as usize {
                    objects.entry((object.namespace.clone(), object.name.clone())).or_insert(object);
                }
            }
        }
        objects.into_values().collect()
    }

    /// Returns the body of a list of these objects.
    #[must_use]
    pub fn list(self, objects: &[CustomResource]) -> String {
        let [head, tail] = self.list_envelope(LIST_VERSION, None);
        let items: Vec<_> = objects.iter().map(|object| &*object.json).collect();
        head + &items.join(",") + &tail
    }

    /// Returns the text before and the text after the items of a list. The token continues the list on the next page.
    #[must_use]
    pub fn list_envelope(self, version: u64, token: Option<&str>) -> [String; 2] {
        let [.., kind] = self.resource();
        let token = token.unwrap_or_default();
        let metadata = json!({"continue": token, "resourceVersion": version.to_string()});
        let head = format!(r#"{{"apiVersion":"{}","items":["#, self.api_version());
        [head, format!("],\"kind\":\"{kind}List\",\"metadata\":{metadata}}}\n")]
    }
}

/// The version of a list, which is newer than its objects.
pub const LIST_VERSION: u64 = 1_900_000_000;

struct Cluster {
    kind: CustomKind,
    namespaces: Vec<String>,
    domains: Vec<String>,
    registry: String,
    /// The resource version of the last object made; the next one adds a random gap.
    version: u64,
}

impl Cluster {
    fn new(rng: &mut Rng, kind: CustomKind, count: u32) -> Self {
        let teams = (count / 50).clamp(4, 400);
        Self {
            kind,
            namespaces: (0..teams).map(|_| format!("{}-{}", word(rng), environment(rng))).collect(),
            domains: (0..6).map(|_| format!("{}-{}.com", word(rng), word(rng))).collect(),
            registry: format!("{}.dkr.ecr.eu-central-1.amazonaws.com", rng.u64(100_000_000_000..1_000_000_000_000)),
            version: 1_000_000_000,
        }
    }

    fn namespace(&self, rng: &mut Rng) -> String {
        self.namespaces[rng.usize(..self.namespaces.len())].clone()
    }

    /// Completes an object that has the metadata of its owner: adds its uid, version and managers, and encodes it.
    fn finish(&mut self, rng: &mut Rng, created: i64, mut object: Value, managers: &[Manager]) -> CustomResource {
        self.version += rng.u64(1..400);
        let [.., kind] = self.kind.resource();
        object["apiVersion"] = self.kind.api_version().into();
        object["kind"] = kind.into();
        let entries: Vec<_> = managers.iter().map(|manager| manager.entry(&object)).collect();
        let metadata = &mut object["metadata"];
        metadata["creationTimestamp"] = time(created).into();
        metadata["managedFields"] = entries.into();
        metadata["resourceVersion"] = self.version.to_string().into();
        metadata["uid"] = uid(rng).into();
        let text = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
        let (namespace, name) = (text("namespace"), text("name"));
        let json = object.to_string().replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e");
        CustomResource { namespace, name, resource_version: self.version, json }
    }
}

/// An entry of `metadata.managedFields`.
struct Manager {
    name: &'static str,
    seconds: i64,
    /// The fields that it has set, as paths of keys. `/metadata` stands for labels, annotations, finalizers and owners.
    paths: &'static [&'static str],
    subresource: bool,
}

impl Manager {
    fn entry(&self, object: &Value) -> Value {
        let mut set = Map::new();
        for path in self.paths {
            let Some(value) = object.pointer(path) else { continue };
            let Some((of, field)) = path[1..].split_once('/') else {
                _ = set.insert(format!("f:{}", &path[1..]), owned(path, value));
                continue;
            };
            let set = set.entry(format!("f:{of}")).or_insert_with(|| json!({}));
            if of == "status" {
                set["."] = json!({});
            }
            set[format!("f:{field}")] = owned(path, value);
        }
        let mut entry = json!({
            "apiVersion": object["apiVersion"], "fieldsType": "FieldsV1", "fieldsV1": set, "manager": self.name,
            "operation": "Update", "time": time(self.seconds),
        });
        if self.subresource {
            entry["subresource"] = "status".into();
        }
        entry
    }
}

/// Returns the set of the fields of a value at this path.
///
/// `f:` is a field, `k:` an element by its key, and `.` the value itself.
fn owned(path: &str, value: &Value) -> Value {
    let mut set = Map::new();
    match value {
        Value::Object(fields) => {
            if !matches!(path, "/metadata" | "/operation") && !fields.is_empty() {
                set.insert(".".to_owned(), json!({}));
            }
            for (name, field) in fields {
                if path != "/metadata" || !matches!(&**name, "name" | "namespace" | "generation") {
                    set.insert(format!("f:{name}"), owned(&format!("{path}/{name}"), field));
                }
            }
        }
        // The lists whose elements have a declared key.
        Value::Array(elements) if path.ends_with("/ownerReferences") || path == "/status/conditions" => {
            set.insert(".".to_owned(), json!({}));
            let is_owner = path.ends_with("/ownerReferences");
            let key = if is_owner { "uid" } else { "type" };
            for element in elements {
                let fields = if is_owner { json!({}) } else { owned("", element) };
                set.insert(format!("k:{{\"{key}\":{}}}", element[key]), fields);
            }
        }
        _ => {}
    }
    set.into()
}

fn owner(api_version: &str, kind: &str, name: &str, uid: &str) -> Value {
    json!([{
        "apiVersion": api_version, "blockOwnerDeletion": true, "controller": true, "kind": kind, "name": name, "uid": uid,
    }])
}

/// Formats seconds since 1970 as RFC 3339.
fn time(seconds: i64) -> String {
    let (days, second) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY));
    // Howard Hinnant's `civil_from_days`, for years from 1970.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

/// Makes a certificate: of an ingress, of a Helm release, or applied by a user.
fn certificate(rng: &mut Rng, cluster: &mut Cluster) -> CustomResource {
    let (namespace, app) = (cluster.namespace(rng), name(rng));
    let created = NOW - i64::from(skewed(rng, (3600, 700 * 86_400)));
    let revision = (NOW - created) / (60 * DAY) + 1;
    let issued = created.max(NOW - rng.i64(0..60 * DAY));
    let domain = cluster.domains[rng.usize(..cluster.domains.len())].clone();
    let names: Vec<_> = (0..pick(rng, &[1, 1, 1, 2, 2, 3])).map(|_| format!("{}.{app}.{domain}", word(rng))).collect();
    let cluster_issuer = pick(rng, &["letsencrypt-prod", "letsencrypt-prod", "letsencrypt-dns", "internal-ca"]);
    let secret = format!("{app}-tls");
    let mut metadata = json!({"generation": 1 + i64::from(rng.u8(..5) == 0), "name": secret, "namespace": namespace});
    let creator = match rng.u8(..10) {
        0..7 => {
            let chart = format!("{app}-{}.{}.{}", rng.u8(..3), rng.u8(..30), rng.u8(..10));
            metadata["labels"] = json!({
                "app.kubernetes.io/instance": app, "app.kubernetes.io/managed-by": "Helm",
                "app.kubernetes.io/name": app, "helm.sh/chart": chart,
            });
            metadata["ownerReferences"] = owner("networking.k8s.io/v1", "Ingress", &app, &uid(rng));
            "cert-manager-ingresses"
        }
        7..9 => {
            metadata["annotations"] =
                json!({"meta.helm.sh/release-name": app, "meta.helm.sh/release-namespace": namespace});
            metadata["labels"] = json!({"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/name": app});
            "helm"
        }
        _ => {
            let applied = json!({
                "apiVersion": "cert-manager.io/v1", "kind": "Certificate",
                "metadata": {"annotations": {}, "name": secret, "namespace": namespace},
                "spec": {"dnsNames": names, "issuerRef": {"kind": "ClusterIssuer", "name": cluster_issuer}, "secretName": secret},
            });
            let applied = applied.to_string() + "\n";
            metadata["annotations"] = json!({"kubectl.kubernetes.io/last-applied-configuration": applied});
            "kubectl-client-side-apply"
        }
    };
    let is_ready = rng.u8(..30) > 0;
    let (status, reason, message) = if is_ready {
        ("True", "Ready", "Certificate is up to date and has not expired".to_owned())
    } else {
        let exists = format!("Issuing certificate as Secret does not exist: secrets \"{secret}\" not found");
        ("False", "DoesNotExist", exists)
    };
    let object = json!({
        "metadata": metadata,
        "spec": {
            "dnsNames": names,
            "issuerRef": {"group": "cert-manager.io", "kind": "ClusterIssuer", "name": cluster_issuer},
            "secretName": secret, "usages": ["digital signature", "key encipherment"],
        },
        "status": {
            "conditions": [{
                "lastTransitionTime": time(created + rng.i64(20..400)), "message": message, "observedGeneration": 1,
                "reason": reason, "status": status, "type": "Ready",
            }],
            "notAfter": time(issued + 90 * DAY), "notBefore": time(issued), "renewalTime": time(issued + 60 * DAY),
            "revision": revision,
        },
    });
    let manager = |name, seconds, paths, subresource| Manager { name, seconds, paths, subresource };
    let status = issued + rng.i64(30..90);
    let readiness: &[_] = &["/status/conditions", "/status/notAfter", "/status/notBefore", "/status/renewalTime"];
    let managers = [
        manager(creator, created, &["/metadata", "/spec"], false),
        manager("cert-manager-certificates-issuing", status, &["/status/revision"], true),
        manager("cert-manager-certificates-readiness", status, readiness, true),
    ];
    cluster.finish(rng, created, object, &managers)
}

/// Makes the revisions of a Configuration, which differ in the digest; some also change a setting.
fn revisions(rng: &mut Rng, cluster: &mut Cluster) -> Vec<CustomResource> {
    let (namespace, app) = (cluster.namespace(rng), name(rng));
    let (configuration, service) = (uid(rng), uid(rng));
    let mut env: Vec<_> = (0..skewed(rng, (3, 20))).map(|_| (variable(rng), value(rng))).collect();
    let (team, repository) = (word(rng), format!("{}/{}/{app}", cluster.registry, word(rng)));
    let (timeout, port, creator) = (rng.u16(10..600), rng.u16(3000..10_000), format!("{}@example.com", name(rng)));
    let [scale, target, memory] = [[1, 2, 3], [50, 80, 100], [256, 512, 1024]].map(|of| pick(rng, &of));
    let count = i64::from(skewed(rng, (1, 20)));
    let first = i64::from(skewed(rng, (1, 300)));
    let mut created = NOW - rng.i64(0..400 * DAY);
    let mut made = Vec::new();
    for generation in first..first + count {
        created = NOW.min(created + i64::from(skewed(rng, (600, 20 * 86_400))));
        if rng.u8(..4) == 0 {
            let changed = rng.usize(..env.len());
            env[changed].1 = value(rng);
        }
        let settings: Vec<_> = env.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        let is_active = generation + 1 == first + count || rng.u8(..12) == 0;
        let digest = format!("{repository}@sha256:{}", hex(rng, 64));
        let condition = |rng: &mut Rng, of: &str, status: &str| {
            let at = time(created + rng.i64(2..60));
            json!({"lastTransitionTime": at, "severity": "Info", "status": status, "type": of})
        };
        let mut active = condition(rng, "Active", if is_active { "True" } else { "False" });
        if !is_active {
            active["message"] = "The target is not receiving traffic.".into();
            active["reason"] = "NoTraffic".into();
        }
        let mut conditions = vec![active];
        for of in ["ContainerHealthy", "Ready", "ResourcesAvailable"] {
            let mut condition = condition(rng, of, "True");
            condition.as_object_mut().and_then(|fields| fields.remove("severity"));
            conditions.push(condition);
        }
        let state = if is_active { "active" } else { "reserve" };
        let mut annotations = json!({
            "autoscaling.knative.dev/max-scale": "30", "autoscaling.knative.dev/min-scale": scale.to_string(),
            "autoscaling.knative.dev/target": target.to_string(), "serving.knative.dev/creator": creator,
            "serving.knative.dev/routingStateModified": time(created + rng.i64(2..DAY)),
        });
        if is_active {
            annotations["serving.knative.dev/routes"] = app.clone().into();
        }
        let object = json!({
            "metadata": {
                "annotations": annotations, "generation": 1, "name": format!("{app}-{generation:05}"), "namespace": namespace,
                "labels": {
                    "app.kubernetes.io/name": app, "app.kubernetes.io/part-of": team,
                    "serving.knative.dev/configuration": app, "serving.knative.dev/configurationGeneration": generation.to_string(),
                    "serving.knative.dev/configurationUID": configuration, "serving.knative.dev/routingState": state,
                    "serving.knative.dev/service": app, "serving.knative.dev/serviceUID": service,
                },
                "ownerReferences": owner("serving.knative.dev/v1", "Configuration", &app, &configuration),
            },
            "spec": {
                "containerConcurrency": 0, "enableServiceLinks": false, "serviceAccountName": app, "timeoutSeconds": timeout,
                "containers": [{
                    "env": settings, "image": digest, "name": "user-container",
                    "ports": [{"containerPort": port, "name": "http1", "protocol": "TCP"}],
                    "readinessProbe": {
                        "failureThreshold": 3, "httpGet": {"path": "/healthz", "port": port, "scheme": "HTTP"},
                        "periodSeconds": 10, "successThreshold": 1, "timeoutSeconds": 1,
                    },
                    "resources": {
                        "limits": {"memory": format!("{memory}Mi")},
                        "requests": {"cpu": format!("{target}m"), "memory": format!("{memory}Mi")},
                    },
                    "securityContext": {
                        "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": true,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                }],
            },
            "status": {
                "actualReplicas": if is_active { scale } else { 0 }, "conditions": conditions,
                "containerStatuses": [{"imageDigest": digest, "name": "user-container"}],
                "desiredReplicas": if is_active { scale } else { 0 }, "observedGeneration": 1,
            },
        });
        let status: &[_] = &[
            "/status/actualReplicas",
            "/status/conditions",
            "/status/containerStatuses",
            "/status/desiredReplicas",
            "/status/observedGeneration",
        ];
        let managers = [
            Manager { name: "controller", seconds: created, paths: &["/metadata", "/spec"], subresource: false },
            Manager { name: "controller", seconds: created + rng.i64(5..DAY), paths: status, subresource: true },
        ];
        made.push(cluster.finish(rng, created, object, &managers));
    }
    made
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn custom_resources_are_reproducible_and_ordered_by_key() {
        for kind in CustomKind::ALL {
            let objects = kind.objects(500);
            assert_eq!(objects, kind.objects(500));
            let key = |object: &CustomResource| (object.namespace.clone(), object.name.clone());
            assert!(objects.is_sorted_by_key(key), "{kind:?}");
            let keys: HashSet<_> = objects.iter().map(key).collect();
            let versions: HashSet<_> = objects.iter().map(|object| object.resource_version).collect();
            assert_eq!((objects.len(), keys.len(), versions.len()), (500, 500, 500), "{kind:?}");
        }
    }

    #[test]
    fn custom_resources_are_encoded_as_by_an_api_server() {
        for kind in CustomKind::ALL {
            let objects = kind.objects(200);
            let list: Value = serde_json::from_str(&kind.list(&objects)).unwrap();
            assert_eq!(list["items"].as_array().unwrap().len(), 200);
            for object in objects {
                // A map of serde_json has sorted keys.
                let parsed: Value = serde_json::from_str(&object.json).unwrap();
                let escaped =
                    parsed.to_string().replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e");
                assert_eq!(escaped, object.json);
                assert_eq!(parsed["metadata"]["resourceVersion"], object.resource_version.to_string());
                let created = parsed["metadata"]["creationTimestamp"].as_str().unwrap();
                assert!(("2024".."2027").contains(&created), "{created}");
                assert!((2..=3).contains(&parsed["metadata"]["managedFields"].as_array().unwrap().len()));
            }
        }
    }

    #[test]
    fn custom_resources_have_the_sizes_of_real_ones() {
        for (kind, sizes) in CustomKind::ALL.into_iter().zip([1_500..2_600, 4_000..5_600, 16_000..24_000]) {
            let objects = kind.objects(1000);
            let mean = objects.iter().map(|object| object.json.len()).sum::<usize>() / objects.len();
            assert!(sizes.contains(&mean), "{kind:?}: {mean}");
        }
    }

    #[test]
    fn times_are_rfc_3339() {
        for (seconds, text) in
            [(0, "1970-01-01T00:00:00Z"), (951_826_154, "2000-02-29T12:09:14Z"), (NOW, "2026-09-21T14:13:20Z")]
        {
            assert_eq!(time(seconds), text);
        }
    }
}
