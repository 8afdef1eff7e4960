//! The values that k8s-pb decodes, and their comparison with a view.
//!
//! A decoded object is read off its `Debug` output, which names all fields, so that one comparison serves all kinds.

use std::fmt::Debug;

use prost::Message;

use super::node::Node;

/// A value of k8s-pb.
#[derive(Debug)]
pub enum Pb {
    None,
    Some(Box<Pb>),
    Struct(Vec<(String, Pb)>),
    List(Vec<Pb>),
    Map(Vec<(String, Pb)>),
    Text(String),
    /// A number or a boolean.
    Word(String),
}

macro_rules! kinds {
    ($($api_version:literal $kind:literal $path:path,)*) => {
        /// The kinds of the table that k8s-pb has.
        pub const KINDS: &[(&str, &str)] = &[$(($api_version, $kind)),*];

        /// Decodes an object; `None` if k8s-pb does not have the kind.
        pub fn decode(api_version: &str, kind: &str, object: &[u8]) -> Option<Result<Pb, prost::DecodeError>> {
            fn of<M: Message + Default + Debug>(object: &[u8]) -> Result<Pb, prost::DecodeError> {
                M::decode(object).map(|decoded| read(&decoded))
            }
            #[allow(clippy::wildcard_imports)]
            use ::k8s_pb::*;
            Some(match (api_version, kind) {
                $(($api_version, $kind) => of::<$path>(object),)*
                _ => return None,
            })
        }
    };
}

kinds! {
    "apiregistration.k8s.io/v1" "APIService" kube_aggregator::pkg::apis::apiregistration::v1::APIService,
    "storage.k8s.io/v1" "CSIDriver" api::storage::v1::CSIDriver,
    "storage.k8s.io/v1" "CSINode" api::storage::v1::CSINode,
    "storage.k8s.io/v1" "CSIStorageCapacity" api::storage::v1::CSIStorageCapacity,
    "certificates.k8s.io/v1" "CertificateSigningRequest" api::certificates::v1::CertificateSigningRequest,
    "rbac.authorization.k8s.io/v1" "ClusterRole" api::rbac::v1::ClusterRole,
    "rbac.authorization.k8s.io/v1" "ClusterRoleBinding" api::rbac::v1::ClusterRoleBinding,
    "v1" "ComponentStatus" api::core::v1::ComponentStatus,
    "v1" "ConfigMap" api::core::v1::ConfigMap,
    "apps/v1" "ControllerRevision" api::apps::v1::ControllerRevision,
    "batch/v1" "CronJob" api::batch::v1::CronJob,
    "apiextensions.k8s.io/v1" "CustomResourceDefinition" apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    "apps/v1" "DaemonSet" api::apps::v1::DaemonSet,
    "apps/v1" "Deployment" api::apps::v1::Deployment,
    "resource.k8s.io/v1" "DeviceClass" api::resource::v1::DeviceClass,
    "resource.k8s.io/v1beta1" "DeviceClass" api::resource::v1beta1::DeviceClass,
    "resource.k8s.io/v1beta2" "DeviceClass" api::resource::v1beta2::DeviceClass,
    "discovery.k8s.io/v1" "EndpointSlice" api::discovery::v1::EndpointSlice,
    "v1" "Endpoints" api::core::v1::Endpoints,
    "events.k8s.io/v1" "Event" api::events::v1::Event,
    "v1" "Event" api::core::v1::Event,
    "flowcontrol.apiserver.k8s.io/v1" "FlowSchema" api::flowcontrol::v1::FlowSchema,
    "autoscaling/v1" "HorizontalPodAutoscaler" api::autoscaling::v1::HorizontalPodAutoscaler,
    "autoscaling/v2" "HorizontalPodAutoscaler" api::autoscaling::v2::HorizontalPodAutoscaler,
    "networking.k8s.io/v1" "IPAddress" api::networking::v1::IPAddress,
    "networking.k8s.io/v1" "Ingress" api::networking::v1::Ingress,
    "networking.k8s.io/v1" "IngressClass" api::networking::v1::IngressClass,
    "batch/v1" "Job" api::batch::v1::Job,
    "coordination.k8s.io/v1" "Lease" api::coordination::v1::Lease,
    "v1" "LimitRange" api::core::v1::LimitRange,
    "admissionregistration.k8s.io/v1" "MutatingWebhookConfiguration" api::admissionregistration::v1::MutatingWebhookConfiguration,
    "v1" "Namespace" api::core::v1::Namespace,
    "networking.k8s.io/v1" "NetworkPolicy" api::networking::v1::NetworkPolicy,
    "v1" "Node" api::core::v1::Node,
    "metrics.k8s.io/v1beta1" "NodeMetrics" metrics::pkg::apis::metrics::v1beta1::NodeMetrics,
    "meta.k8s.io/v1" "PartialObjectMetadata" apimachinery::pkg::apis::meta::v1::PartialObjectMetadata,
    "meta.k8s.io/v1beta1" "PartialObjectMetadata" apimachinery::pkg::apis::meta::v1::PartialObjectMetadata,
    "v1" "PersistentVolume" api::core::v1::PersistentVolume,
    "v1" "PersistentVolumeClaim" api::core::v1::PersistentVolumeClaim,
    "v1" "Pod" api::core::v1::Pod,
    "policy/v1" "PodDisruptionBudget" api::policy::v1::PodDisruptionBudget,
    "metrics.k8s.io/v1beta1" "PodMetrics" metrics::pkg::apis::metrics::v1beta1::PodMetrics,
    "v1" "PodTemplate" api::core::v1::PodTemplate,
    "scheduling.k8s.io/v1" "PriorityClass" api::scheduling::v1::PriorityClass,
    "flowcontrol.apiserver.k8s.io/v1" "PriorityLevelConfiguration" api::flowcontrol::v1::PriorityLevelConfiguration,
    "apps/v1" "ReplicaSet" api::apps::v1::ReplicaSet,
    "v1" "ReplicationController" api::core::v1::ReplicationController,
    "resource.k8s.io/v1" "ResourceClaim" api::resource::v1::ResourceClaim,
    "resource.k8s.io/v1beta1" "ResourceClaim" api::resource::v1beta1::ResourceClaim,
    "resource.k8s.io/v1beta2" "ResourceClaim" api::resource::v1beta2::ResourceClaim,
    "resource.k8s.io/v1" "ResourceClaimTemplate" api::resource::v1::ResourceClaimTemplate,
    "resource.k8s.io/v1beta1" "ResourceClaimTemplate" api::resource::v1beta1::ResourceClaimTemplate,
    "resource.k8s.io/v1beta2" "ResourceClaimTemplate" api::resource::v1beta2::ResourceClaimTemplate,
    "v1" "ResourceQuota" api::core::v1::ResourceQuota,
    "resource.k8s.io/v1" "ResourceSlice" api::resource::v1::ResourceSlice,
    "resource.k8s.io/v1beta1" "ResourceSlice" api::resource::v1beta1::ResourceSlice,
    "resource.k8s.io/v1beta2" "ResourceSlice" api::resource::v1beta2::ResourceSlice,
    "rbac.authorization.k8s.io/v1" "Role" api::rbac::v1::Role,
    "rbac.authorization.k8s.io/v1" "RoleBinding" api::rbac::v1::RoleBinding,
    "node.k8s.io/v1" "RuntimeClass" api::node::v1::RuntimeClass,
    "v1" "Secret" api::core::v1::Secret,
    "v1" "Service" api::core::v1::Service,
    "v1" "ServiceAccount" api::core::v1::ServiceAccount,
    "networking.k8s.io/v1" "ServiceCIDR" api::networking::v1::ServiceCIDR,
    "apps/v1" "StatefulSet" api::apps::v1::StatefulSet,
    "v1" "Status" apimachinery::pkg::apis::meta::v1::Status,
    "storage.k8s.io/v1" "StorageClass" api::storage::v1::StorageClass,
    "internal.apiserver.k8s.io/v1alpha1" "StorageVersion" api::apiserverinternal::v1alpha1::StorageVersion,
    "admissionregistration.k8s.io/v1" "ValidatingAdmissionPolicy" api::admissionregistration::v1::ValidatingAdmissionPolicy,
    "admissionregistration.k8s.io/v1" "ValidatingAdmissionPolicyBinding" api::admissionregistration::v1::ValidatingAdmissionPolicyBinding,
    "admissionregistration.k8s.io/v1" "ValidatingWebhookConfiguration" api::admissionregistration::v1::ValidatingWebhookConfiguration,
    "storage.k8s.io/v1" "VolumeAttachment" api::storage::v1::VolumeAttachment,
    "storage.k8s.io/v1" "VolumeAttributesClass" api::storage::v1::VolumeAttributesClass,
}

fn read(decoded: &impl Debug) -> Pb {
    let text = format!("{decoded:?}");
    let mut reader = Reader(&text);
    let value = reader.value();
    assert_eq!(reader.0, "");
    value
}

/// Reads `Debug` output.
struct Reader<'a>(&'a str);

impl Reader<'_> {
    fn take(&mut self, prefix: &str) -> bool {
        self.0 = self.0.trim_start();
        let rest = self.0.strip_prefix(prefix);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn word(&mut self) -> String {
        self.0 = self.0.trim_start();
        let end = self.0.find(|c: char| !(c.is_alphanumeric() || "_#-+.".contains(c))).unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at(end);
        self.0 = rest;
        word.into()
    }

    fn value(&mut self) -> Pb {
        if self.take("None") {
            Pb::None
        } else if self.take("Some(") {
            let value = self.value();
            assert!(self.take(")"));
            Pb::Some(value.into())
        } else if self.take("[") {
            Pb::List(self.until("]", Self::value))
        } else if self.take("{") {
            Pb::Map(self.until("}", |reader| {
                let key = reader.text();
                assert!(reader.take(":"));
                (key, reader.value())
            }))
        } else if self.0.trim_start().starts_with('"') {
            Pb::Text(self.text())
        } else {
            let word = self.word();
            if self.take("{") {
                Pb::Struct(self.until("}", |reader| {
                    let name = reader.word();
                    assert!(reader.take(":"), "{name} {}", reader.0);
                    (name, reader.value())
                }))
            } else if word.starts_with(|c: char| c.is_ascii_uppercase()) {
                // A message without fields.
                Pb::Struct(Vec::new())
            } else {
                Pb::Word(word)
            }
        }
    }

    fn until<T>(&mut self, end: &str, mut read: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let mut all = Vec::new();
        while !self.take(end) {
            all.push(read(self));
            _ = self.take(",");
        }
        all
    }

    fn text(&mut self) -> String {
        assert!(self.take("\""), "{}", self.0);
        let mut text = String::new();
        let mut chars = self.0.chars();
        loop {
            match chars.next().unwrap() {
                '"' => break,
                '\\' => match chars.next().unwrap() {
                    'n' => text.push('\n'),
                    'r' => text.push('\r'),
                    't' => text.push('\t'),
                    '0' => text.push('\0'),
                    'u' => {
                        let (code, rest) = chars.as_str().strip_prefix('{').unwrap().split_once('}').unwrap();
                        text.push(char::from_u32(u32::from_str_radix(code, 16).unwrap()).unwrap());
                        chars = rest.chars();
                    }
                    c => text.push(c),
                },
                c => text.push(c),
            }
        }
        self.0 = chars.as_str();
        text
    }
}

/// Returns a name without its case, underscores and prefixes: the names in JSON and in Rust have the same letters.
fn letters(name: &str) -> String {
    let letters = name.trim_start_matches("r#").chars().filter(char::is_ascii_alphanumeric);
    letters.map(|c| c.to_ascii_lowercase()).collect()
}

/// Compares the values of a view with the values that k8s-pb decodes, for all fields that k8s-pb has.
pub fn compare(node: &Node, pb: &Pb, path: &str) {
    let field = |name: &str| match pb {
        Pb::Struct(fields) => fields.iter().find(|(known, _)| letters(known) == letters(name)).map(|(_, value)| value),
        _ => panic!("{path}: {pb:?}"),
    };
    let int = |name: &str| match field(name) {
        Some(Pb::Some(value)) => match &**value {
            Pb::Word(word) => word.parse::<i64>().unwrap(),
            value => panic!("{path}.{name}: {value:?}"),
        },
        _ => 0,
    };
    let text = |name: &str, absent: &str| match field(name) {
        Some(Pb::Some(value)) => match &**value {
            Pb::Text(text) => text.clone(),
            value => panic!("{path}.{name}: {value:?}"),
        },
        _ => absent.into(),
    };
    match (node, pb) {
        (Node::Absent, Pb::None) => {}
        (Node::Present(node), Pb::Some(value)) => compare(node, value, path),
        (Node::Absent | Node::Present(_), _) => panic!("{path}: {node:?} {pb:?}"),
        (node, Pb::None) => assert!(node.is_empty(), "{path}: {node:?}"),
        (node, Pb::Some(value)) => compare(node, value, path),
        (Node::Message(nodes) | Node::Or(nodes), Pb::Struct(fields)) => {
            for (name, value) in fields {
                match (nodes.iter().find(|(known, _)| letters(known) == letters(name)), value) {
                    (Some((_, node)), value) => compare(node, value, &format!("{path}.{name}")),
                    // An inlined message.
                    (None, Pb::Some(inlined)) => compare(node, inlined, path),
                    (None, Pb::None) => {}
                    (None, value) => panic!("{path}.{name} has no accessor: {value:?}"),
                }
            }
        }
        (Node::List(nodes), Pb::List(values)) => {
            assert_eq!(nodes.len(), values.len(), "{path}");
            nodes.iter().zip(values).for_each(|(node, value)| compare(node, value, path));
        }
        // A list in a map.
        (Node::List(_), Pb::Struct(_)) => compare(node, field("items").unwrap(), path),
        (Node::Map(nodes), Pb::Map(values)) => {
            assert_eq!(nodes.len(), values.len(), "{path}");
            for ((key, node), (known, value)) in nodes.iter().zip(values) {
                assert_eq!(key, known, "{path}");
                compare(node, value, &format!("{path}[{key}]"));
            }
        }
        (Node::Text(text), Pb::Text(value)) => assert_eq!(text, value, "{path}"),
        (Node::Bytes(bytes), Pb::List(values)) => assert_eq!(*bytes, bytes_of(values), "{path}"),
        (Node::Bool(value), Pb::Word(word)) => assert_eq!(value.to_string(), *word, "{path}"),
        (Node::Int(value), Pb::Word(word)) => assert_eq!(value.to_string(), *word, "{path}"),
        (Node::Double(value), Pb::Word(word)) => assert_eq!(format!("{value:?}"), *word, "{path}"),
        (Node::Time(time), Pb::Struct(_)) => {
            assert_eq!((time.seconds(), i64::from(time.nanos())), (int("seconds"), int("nanos")), "{path}");
        }
        (Node::Duration(duration), Pb::Struct(_)) => {
            assert_eq!(duration.as_nanos(), int("duration").into(), "{path}");
        }
        (Node::Quantity(quantity), Pb::Struct(_)) => assert_eq!(*quantity, text("string", "0"), "{path}"),
        (Node::IntOrString(_, found, true), Pb::Struct(_)) => {
            assert_eq!((int("type") != 0, found), (true, &text("strVal", "")), "{path}");
        }
        (Node::IntOrString(found, ..), Pb::Struct(_)) => {
            assert_eq!((int("type"), i64::from(*found)), (0, int("intVal")), "{path}");
        }
        (Node::Json(bytes), Pb::Struct(_)) => match field("raw") {
            Some(Pb::Some(raw)) => match &**raw {
                Pb::List(values) => assert_eq!(*bytes, bytes_of(values), "{path}"),
                raw => panic!("{path}: {raw:?}"),
            },
            _ => assert!(bytes.is_empty(), "{path}"),
        },
        (node, pb) => panic!("{path}: {node:?} {pb:?}"),
    }
}

fn bytes_of(values: &[Pb]) -> Vec<u8> {
    let byte = |value: &Pb| if let Pb::Word(word) = value { word.parse().unwrap() } else { panic!("{value:?}") };
    values.iter().map(byte).collect()
}
