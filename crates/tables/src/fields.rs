//! The fields that several printers read.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

/// What the server prints in place of a text that is absent.
pub(crate) const NONE: &str = "<none>";

/// What newer printers of the server print in place of a value that is absent.
pub(crate) const UNSET: &str = "<unset>";

#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Metadata {
    pub(crate) name: String,
    pub(crate) creation_timestamp: Option<Timestamp>,
    pub(crate) deletion_timestamp: Option<Timestamp>,
    #[serde(deserialize_with = "null_is_default")]
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "null_is_default")]
    pub(crate) annotations: BTreeMap<String, String>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Condition {
    pub(crate) r#type: String,
    pub(crate) status: String,
    pub(crate) reason: String,
}

/// The status of the first condition of this type is `True`.
pub(crate) fn is_true(conditions: &[Condition], r#type: &str) -> bool {
    conditions.iter().find(|condition| condition.r#type == r#type).is_some_and(|condition| condition.status == "True")
}

/// A label selector of the API.
#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Selector {
    #[serde(deserialize_with = "null_is_default")]
    match_labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "null_is_default")]
    match_expressions: Vec<Expression>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct Expression {
    key: String,
    operator: String,
    #[serde(deserialize_with = "null_is_default")]
    values: Vec<String>,
}

impl Selector {
    /// Returns the selector as `labels.Selector` of apimachinery prints it, by key; `None` if it is invalid.
    pub(crate) fn text(&self) -> Option<String> {
        let labels = self.match_labels.iter().map(|(key, value)| Some((key.as_str(), format!("{key}={value}"))));
        let expressions = self.match_expressions.iter().map(Expression::text);
        let mut requirements = labels.chain(expressions).collect::<Option<Vec<_>>>()?;
        requirements.sort_by(|a, b| a.0.cmp(b.0));
        Some(requirements.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(","))
    }

    /// Returns the text as `FormatLabelSelector` of apimachinery does.
    pub(crate) fn text_or_none(selector: Option<&Self>) -> String {
        match selector.map_or_else(|| Some(String::new()), Self::text) {
            None => "<error>".to_owned(),
            Some(text) if text.is_empty() => NONE.to_owned(),
            Some(text) => text,
        }
    }
}

impl Expression {
    /// Returns the key, and the text of the requirement.
    fn text(&self) -> Option<(&str, String)> {
        let Self { key, operator, values } = self;
        let mut values = values.clone();
        values.sort();
        let values = values.join(",");
        let text = match (&**operator, self.values.is_empty()) {
            ("In", false) => format!("{key} in ({values})"),
            ("NotIn", false) => format!("{key} notin ({values})"),
            ("Exists", true) => key.clone(),
            ("DoesNotExist", true) => format!("!{key}"),
            _ => return None,
        };
        Some((key, text))
    }
}

/// The status of a load balancer, of a Service or an Ingress.
#[derive(Default, serde::Deserialize)]
#[serde(default)]
pub(crate) struct LoadBalancer {
    #[serde(deserialize_with = "null_is_default")]
    ingress: Vec<LoadBalancerIngress>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct LoadBalancerIngress {
    ip: String,
    hostname: String,
}

impl LoadBalancer {
    /// Returns the addresses in order, each once.
    pub(crate) fn addresses(&self) -> Vec<&str> {
        let addresses = self.ingress.iter().map(|ingress| match &*ingress.ip {
            "" => &*ingress.hostname,
            ip => ip,
        });
        addresses.filter(|address| !address.is_empty()).collect::<BTreeSet<_>>().into_iter().collect()
    }
}

/// The containers of a template: their names, and their images.
#[derive(Default, serde::Deserialize)]
#[serde(default)]
pub(crate) struct Template {
    spec: TemplateSpec,
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct TemplateSpec {
    #[serde(deserialize_with = "null_is_default")]
    containers: Vec<TemplateContainer>,
    #[serde(rename = "nodeSelector", deserialize_with = "null_is_default")]
    node_selector: BTreeMap<String, String>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct TemplateContainer {
    name: String,
    image: String,
}

impl Template {
    pub(crate) fn names(&self) -> String {
        self.join(|container| &container.name)
    }

    pub(crate) fn images(&self) -> String {
        self.join(|container| &container.image)
    }

    pub(crate) fn node_selector(&self) -> &BTreeMap<String, String> {
        &self.spec.node_selector
    }

    fn join(&self, text: impl Fn(&TemplateContainer) -> &str) -> String {
        self.spec.containers.iter().map(text).collect::<Vec<_>>().join(",")
    }
}

/// Returns labels as `FormatLabels` of apimachinery does.
pub(crate) fn labels_or_none(labels: &BTreeMap<String, String>) -> String {
    let mut pairs: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    pairs.sort();
    or_none(&pairs.join(","))
}

/// Returns the text, or `<none>` for an empty one.
pub(crate) fn or_none(text: &str) -> String {
    if text.is_empty() { NONE.to_owned() } else { text.to_owned() }
}

/// Reads `null`, which Go writes for an empty list or map in some places, as an empty one.
pub(crate) fn null_is_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// The number of entries of a map, which are not kept.
#[derive(Clone, Copy, Default)]
pub(crate) struct EntryCount(pub(crate) i64);

impl<'de> Deserialize<'de> for EntryCount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Counter;

        impl<'de> Visitor<'de> for Counter {
            type Value = EntryCount;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_unit<E>(self) -> Result<EntryCount, E> {
                Ok(EntryCount(0))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<EntryCount, A::Error> {
                let mut count = 0;
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
                    count += 1;
                }
                Ok(EntryCount(count))
            }
        }

        deserializer.deserialize_any(Counter)
    }
}
