//! An operator whose `WebApp` owns a Deployment and a Service, as the operators of Kanidm and of Restate own theirs.

pub mod with_kube;
pub mod with_listwatch;

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{
    Container, ContainerPort, EnvVar, PodSpec, PodTemplateSpec, Service, ServicePort, ServiceSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{NamespaceResourceScope, ObjectMeta};
use kube::{Resource, ResourceExt};
use serde::{Deserialize, Serialize};

pub const MANAGER: &str = "webapp-operator";
pub const FINALIZER: &str = "example.com/webapp";
/// The label of everything that the operator creates.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", MANAGER);

/// What `kube::CustomResource` derives, without the crates that the derive needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WebApp {
    pub metadata: ObjectMeta,
    pub spec: WebAppSpec,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<WebAppStatus>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WebAppSpec {
    pub image: String,
    pub replicas: i32,
    pub port: i32,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WebAppStatus {
    pub observed_generation: i64,
    pub ready_replicas: i32,
    pub is_available: bool,
}

impl Resource for WebApp {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "WebApp".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "example.com".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "webapps".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl WebApp {
    /// Returns the Deployment that the app needs.
    #[must_use]
    pub fn deployment(&self) -> Deployment {
        let env = self.spec.env.iter();
        let env = env.map(|(name, value)| EnvVar { name: name.clone(), value: Some(value.clone()), value_from: None });
        let container = Container {
            name: "app".to_owned(),
            image: Some(self.spec.image.clone()),
            ports: Some(vec![ContainerPort { container_port: self.spec.port, ..ContainerPort::default() }]),
            env: Some(env.collect()),
            ..Container::default()
        };
        let pod = PodSpec { containers: vec![container], ..PodSpec::default() };
        let labels = Some(self.selector());
        let spec = DeploymentSpec {
            replicas: Some(self.spec.replicas),
            selector: LabelSelector { match_labels: labels.clone(), ..LabelSelector::default() },
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta { labels, ..ObjectMeta::default() }),
                spec: Some(pod),
            },
            ..DeploymentSpec::default()
        };
        Deployment { metadata: self.owned(), spec, status: None }
    }

    /// Returns the Service that the app needs.
    #[must_use]
    pub fn service(&self) -> Service {
        let port = ServicePort { port: self.spec.port, ..ServicePort::default() };
        let spec = ServiceSpec { selector: Some(self.selector()), ports: Some(vec![port]), ..ServiceSpec::default() };
        Service { metadata: self.owned(), spec: Some(spec), status: None }
    }

    /// Returns the status of the app, whose Deployment is this one.
    #[must_use]
    pub fn status_with(&self, deployment: &Deployment) -> WebAppStatus {
        let ready = deployment.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0);
        WebAppStatus {
            observed_generation: self.metadata.generation.unwrap_or(0),
            ready_replicas: ready,
            is_available: ready >= self.spec.replicas,
        }
    }

    fn selector(&self) -> BTreeMap<String, String> {
        [("app.kubernetes.io/name".to_owned(), self.name_any())].into()
    }

    fn owned(&self) -> ObjectMeta {
        let (label, value) = MANAGED_BY;
        let mut labels = self.selector();
        labels.insert(label.to_owned(), value.to_owned());
        ObjectMeta {
            name: Some(self.name_any()),
            namespace: self.namespace(),
            labels: Some(labels),
            owner_references: self.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        }
    }
}
