//! Applications of Argo CD: their resources, history and last operation.

use fastrand::Rng;
use serde_json::{Value, json};

use super::{Cluster, CustomResource, DAY, Manager, NOW, owner, time};
use crate::text::{environment, hex, name, pick, skewed, uid, value, word};

/// A resource that an application deploys: group, version, kind, the end of its name, and whether it reports its
/// health.
type Deployed = (&'static str, &'static str, &'static str, String, bool);

#[rustfmt::skip]
const KINDS: &[(&str, &str, &str, bool)] = &[
    ("", "v1", "ConfigMap", false), ("", "v1", "Service", true), ("", "v1", "ServiceAccount", false),
    ("", "v1", "PersistentVolumeClaim", true), ("apps", "v1", "Deployment", true), ("apps", "v1", "StatefulSet", true),
    ("autoscaling", "v2", "HorizontalPodAutoscaler", true), ("batch", "v1", "CronJob", false),
    ("external-secrets.io", "v1", "ExternalSecret", true), ("monitoring.coreos.com", "v1", "PrometheusRule", false),
    ("monitoring.coreos.com", "v1", "ServiceMonitor", false), ("networking.k8s.io", "v1", "Ingress", true),
    ("networking.k8s.io", "v1", "NetworkPolicy", false), ("policy", "v1", "PodDisruptionBudget", false),
    ("rbac.authorization.k8s.io", "v1", "Role", false), ("rbac.authorization.k8s.io", "v1", "RoleBinding", false),
];

/// The values that all applications of a set share.
struct ApplicationSet {
    name: String,
    uid: String,
    app: String,
    repository: String,
    path: String,
    /// The commits of the repository, from old to new, and their times.
    commits: Vec<(String, i64)>,
    resources: Vec<Deployed>,
    images: Vec<String>,
    values: Value,
}

impl ApplicationSet {
    fn new(rng: &mut Rng, cluster: &Cluster) -> Self {
        let (app, team) = (name(rng), word(rng));
        let mut at = NOW - rng.i64(100 * DAY..400 * DAY);
        let mut commits = Vec::new();
        for _ in 0..rng.u8(16..40) {
            at = NOW.min(at + i64::from(skewed(rng, (600, 20 * 86_400))));
            commits.push((hex(rng, 40), at));
        }
        let mut resources: Vec<_> = (0..rng.u8(8..36))
            .map(|_| {
                let (group, version, kind, has_health) = pick(rng, KINDS);
                (group, version, kind, format!("{app}-{}", word(rng)), has_health)
            })
            .collect();
        resources.sort();
        resources.dedup();
        let image = |rng: &mut Rng| {
            format!("{}/{team}/{}:v{}.{}.{}", cluster.registry, name(rng), rng.u8(..4), rng.u8(..60), rng.u8(..30))
        };
        let images = (0..rng.u8(1..6)).map(|_| image(rng)).collect();
        let values =
            (0..rng.u8(5..14)).map(|_| (format!("{}.{}", word(rng), word(rng)), Value::from(value(rng)))).collect();
        Self {
            name: format!("{team}-{app}"),
            uid: uid(rng),
            repository: format!("https://git.example.com/{team}/deploy.git"),
            path: format!("charts/{app}"),
            app,
            commits,
            resources,
            images,
            values,
        }
    }

    fn source(&self, cluster: &str) -> Value {
        json!({
            "helm": {
                "parameters": [{"name": "cluster", "value": cluster}],
                "releaseName": self.app, "valueFiles": ["values.yaml", format!("values-{cluster}.yaml")], "valuesObject": self.values,
            },
            "path": self.path, "repoURL": self.repository, "targetRevision": "main",
        })
    }

    /// Returns the history entry of a commit. `source` is the `spec.source` at that commit.
    fn history(&self, rng: &mut Rng, id: usize, source: &Value) -> Value {
        let (commit, at) = &self.commits[id];
        let began = at + rng.i64(60..900);
        // The history has the source without the values.
        let mut source = source.clone();
        source["helm"].as_object_mut().and_then(|helm| helm.remove("valuesObject"));
        json!({
            "deployStartedAt": time(began), "deployedAt": time(began + rng.i64(1..20)), "id": id,
            "initiatedBy": {"automated": true}, "revision": commit, "source": source,
        })
    }

    /// Returns the resources as in the status, and as in the result of the last operation.
    fn resources(&self, rng: &mut Rng, namespace: &str, is_healthy: bool) -> [Vec<Value>; 2] {
        let [mut resources, mut results] = [Vec::new(), Vec::new()];
        for (group, version, kind, name, has_health) in &self.resources {
            let mut resource =
                json!({"kind": kind, "name": name, "namespace": namespace, "status": "Synced", "version": version});
            if *has_health {
                let status = if is_healthy || rng.u8(..4) > 0 { "Healthy" } else { "Progressing" };
                resource["health"] = json!({"status": status});
            }
            let object = format!("{}{}{group}/{name}", kind.to_lowercase(), if group.is_empty() { "" } else { "." });
            let change =
                pick(rng, &["configured", "unchanged", "unchanged", "unchanged", "unchanged", "serverside-applied"]);
            let mut result = json!({
                "hookPhase": "Running", "kind": kind, "message": format!("{object} {change}"), "name": name, "namespace": namespace,
                "group": group, "status": "Synced", "syncPhase": "Sync", "version": version,
            });
            if group.is_empty() {
                result["group"] = "".into();
            } else {
                resource["group"] = (*group).into();
            }
            if *kind == "ServiceAccount" {
                resource["syncWave"] = (-1).into();
            }
            resources.push(resource);
            results.push(result);
        }
        [resources, results]
    }

    fn application(&self, rng: &mut Rng, target: &str, cluster: &mut Cluster) -> CustomResource {
        let namespace = format!("{}-{target}", self.app);
        let source = self.source(target);
        let last = self.commits.len() - 1 - usize::from(rng.u8(..10) == 0);
        let history: Vec<_> = (last - 9..=last).map(|id| self.history(rng, id, &source)).collect();
        let (commit, at) = self.commits[last].clone();
        let (began, created) = (at + rng.i64(60..900), self.commits[0].1 + rng.i64(0..3600));
        let (finished, reconciled) = (began + rng.i64(1..30), NOW - rng.i64(0..300));
        let is_healthy = rng.u8(..15) > 0;
        let [resources, results] = self.resources(rng, &namespace, is_healthy);
        let server = format!(
            "https://{}.gr7.eu-central-1.eks.amazonaws.com",
            hex(&mut Rng::with_seed(seed(target)), 32).to_uppercase()
        );
        let destination = json!({"namespace": namespace, "server": server});
        let object = json!({
            "metadata": {
                "annotations": {"argocd.argoproj.io/refresh-interval": "180s", "notifications.argoproj.io/subscribe.on-sync-failed.slack": self.app},
                "finalizers": ["resources-finalizer.argocd.argoproj.io"], "generation": rng.u32(100..200_000),
                "labels": {"app.kubernetes.io/name": self.app, "argocd.argoproj.io/application-set-name": self.name, "cluster": target},
                "name": format!("{}-{target}", self.name), "namespace": "argocd",
                "ownerReferences": owner("argoproj.io/v1alpha1", "ApplicationSet", &self.name, &self.uid),
            },
            "spec": {
                "destination": destination, "project": self.name, "source": source,
                "ignoreDifferences": [{"group": "apps", "jsonPointers": ["/spec/replicas"], "kind": "Deployment"}],
                "syncPolicy": {
                    "automated": {"prune": true, "selfHeal": true},
                    "retry": {"backoff": {"duration": "5s", "factor": 2, "maxDuration": "3m"}, "limit": 5},
                    "syncOptions": ["CreateNamespace=true", "ServerSideApply=true"],
                },
            },
            "status": {
                "controllerNamespace": "argocd",
                "health": {"lastTransitionTime": time(finished + rng.i64(5..200)), "status": if is_healthy { "Healthy" } else { "Progressing" }},
                "history": history,
                "operationState": {
                    "finishedAt": time(finished), "message": "successfully synced (all tasks run)",
                    "operation": {
                        "initiatedBy": {"automated": true}, "retry": {"limit": 5},
                        "sync": {"prune": true, "revision": commit, "syncOptions": ["CreateNamespace=true", "ServerSideApply=true"]},
                    },
                    "phase": "Succeeded", "startedAt": time(began),
                    "syncResult": {"resources": results, "revision": commit, "source": source},
                },
                "reconciledAt": time(reconciled), "resources": resources, "sourceHydrator": {}, "sourceType": "Helm",
                "summary": {"images": self.images},
                "sync": {"comparedTo": {"destination": destination, "source": source}, "revision": commit, "status": "Synced"},
            },
        });
        let set = Manager {
            name: "argocd-applicationset-controller",
            seconds: created,
            paths: &["/metadata", "/spec"],
            subresource: false,
        };
        let controller = Manager {
            name: "argocd-application-controller",
            seconds: reconciled,
            paths: &["/status"],
            subresource: false,
        };
        cluster.finish(rng, created, object, &[set, controller])
    }
}

/// Makes the applications of a set: one in each of many clusters.
pub fn applications(rng: &mut Rng, cluster: &mut Cluster) -> Vec<CustomResource> {
    let set = ApplicationSet::new(rng, cluster);
    let count = skewed(rng, (4, 60));
    let region = pick(rng, &["eu-central-1", "eu-west-1", "us-east-1"]);
    (0..count)
        .map(|number| {
            let target = format!("{}-{region}-{number:02}", environment(rng));
            set.application(rng, &target, cluster)
        })
        .collect()
}

/// Returns a number for the name of a cluster, so that all its applications have the same server.
fn seed(target: &str) -> u64 {
    target.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
