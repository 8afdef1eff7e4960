//! A policy server: policies that look up objects of any kind, as Kubewarden's context-aware policies do.

pub mod with_kube;
pub mod with_listwatch;

use serde::Deserialize;
use serde_json::Value;

/// The object that a request wants to create, in JSON.
#[derive(Clone, Debug)]
pub struct Request {
    pub namespace: String,
    pub name: String,
    pub object: Value,
}

/// The objects that policies look up, each in JSON.
#[expect(async_fn_in_trait, reason = "the programs of the benchmark are the only callers")]
pub trait Lookup {
    /// Returns the object with this key.
    async fn get(&self, api_version: &str, kind: &str, key: (&str, &str)) -> anyhow::Result<Option<Vec<u8>>>;

    /// Returns the objects of a namespace, or of all, which have this label.
    async fn list(
        &self,
        api_version: &str,
        kind: &str,
        namespace: Option<&str>,
        label: Option<(&str, &str)>,
    ) -> anyhow::Result<Vec<Vec<u8>>>;
}

/// The fields that the policies read.
#[derive(Deserialize)]
struct Found {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    labels: std::collections::BTreeMap<String, String>,
}

/// Returns why the policies refuse the request; `None` if they allow it.
///
/// # Errors
/// If an object cannot be looked up.
pub async fn refusal(objects: &impl Lookup, request: &Request) -> anyhow::Result<Option<String>> {
    let Request { namespace, name, object } = request;
    // A namespace belongs to a team.
    let Some(owner) = objects.get("v1", "Namespace", ("", namespace)).await? else {
        return Ok(Some(format!("no namespace {namespace}")));
    };
    if !serde_json::from_slice::<Found>(&owner)?.metadata.labels.contains_key("team") {
        return Ok(Some(format!("the namespace {namespace} has no team")));
    }
    // A host belongs to one Service of the cluster.
    if let Some(host) = object["metadata"]["labels"]["host"].as_str() {
        for other in objects.list("v1", "Service", None, Some(("host", host))).await? {
            let other = serde_json::from_slice::<Found>(&other)?.metadata;
            if (&other.namespace, &other.name) != (namespace, name) {
                return Ok(Some(format!("{}/{} has the host {host}", other.namespace, other.name)));
            }
        }
    }
    // The ConfigMaps of a Deployment exist.
    let containers = object["spec"]["template"]["spec"]["containers"].as_array().into_iter().flatten();
    let sources = containers.flat_map(|container| container["envFrom"].as_array().into_iter().flatten());
    for config in sources.filter_map(|source| source["configMapRef"]["name"].as_str()) {
        if objects.get("v1", "ConfigMap", (namespace, config)).await?.is_none() {
            return Ok(Some(format!("no ConfigMap {config}")));
        }
    }
    // A namespace has at most a hundred Deployments.
    let deployments = objects.list("apps/v1", "Deployment", Some(namespace), None).await?;
    Ok((deployments.len() >= 100).then(|| format!("{namespace} has {} Deployments", deployments.len())))
}
