//! `printHorizontalPodAutoscaler` of the server.

use jiff::Timestamp;
use serde::Deserialize;

use crate::age::{UNKNOWN, age_at};
use crate::cell::{Cell, Row};
use crate::fields::{Metadata, NONE, UNSET, null_is_default};

/// The most metrics that are printed.
const MOST: usize = 2;

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct HorizontalPodAutoscaler {
    metadata: Metadata,
    spec: AutoscalerSpec,
    status: AutoscalerStatus,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct AutoscalerSpec {
    max_replicas: i32,
    #[serde(deserialize_with = "null_is_default")]
    metrics: Vec<Metric>,
    min_replicas: Option<i32>,
    scale_target_ref: ScaleTarget,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ScaleTarget {
    kind: String,
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct AutoscalerStatus {
    #[serde(deserialize_with = "null_is_default")]
    current_metrics: Vec<Metric>,
    current_replicas: i32,
}

/// A metric of the spec, or its state: the field of its type has a target or the current value.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metric {
    r#type: String,
    container_resource: Option<MetricValue>,
    external: Option<MetricValue>,
    object: Option<MetricValue>,
    pods: Option<MetricValue>,
    resource: Option<MetricValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct MetricValue {
    /// The name of a resource.
    name: String,
    target: Value,
    current: Value,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Value {
    average_utilization: Option<i32>,
    average_value: Option<String>,
    value: Option<String>,
}

impl HorizontalPodAutoscaler {
    pub(crate) fn row(&self, now: Timestamp) -> Row {
        let Self { metadata, spec, status } = self;
        let cells = vec![
            Cell::text(&metadata.name),
            Cell::Text(format!("{}/{}", spec.scale_target_ref.kind, spec.scale_target_ref.name)),
            Cell::Text(self.metrics()),
            Cell::Text(spec.min_replicas.map_or_else(|| UNSET.to_owned(), |replicas| replicas.to_string())),
            Cell::Integer(spec.max_replicas.into()),
            Cell::Integer(status.current_replicas.into()),
            Cell::Text(age_at(now, metadata.creation_timestamp)),
        ];
        Row { cells, conditions: &[] }
    }

    /// Returns the current value and the target of the first metrics.
    fn metrics(&self) -> String {
        let metrics = &self.spec.metrics;
        let text = |(at, metric): (usize, &Metric)| metric.text(self.status.current_metrics.get(at));
        let first = metrics.iter().enumerate().take(MOST).map(text).collect::<Vec<_>>().join(", ");
        match metrics.len() {
            0 => NONE.to_owned(),
            count if count > MOST => format!("{first} + {} more...", count - MOST),
            _ => first,
        }
    }
}

impl Metric {
    fn text(&self, state: Option<&Self>) -> String {
        let Some(MetricValue { name, target, .. }) = self.value_of(&self.r#type) else {
            return "<unknown type>".to_owned();
        };
        let current = state.and_then(|state| state.value_of(&self.r#type)).map(|value| &value.current);
        // As Go prints an absent quantity.
        let quantity = |value: &Option<String>| value.clone().unwrap_or_else(|| "<nil>".to_owned());
        let unknown = || UNKNOWN.to_owned();
        let average = |current: &Value| quantity(&current.average_value);
        match (&*self.r#type, &target.average_value) {
            ("External" | "Object", Some(target)) => {
                let current = current.and_then(|current| current.average_value.clone());
                format!("{}/{target} (avg)", current.unwrap_or_else(unknown))
            }
            ("External" | "Object", None) => {
                let current = current.map_or_else(unknown, |current| quantity(&current.value));
                format!("{current}/{}", quantity(&target.value))
            }
            ("Pods", target) => format!("{}/{}", current.map_or_else(unknown, average), quantity(target)),
            (_, Some(target)) => format!("{name}: {}/{target}", current.map_or_else(unknown, average)),
            (_, None) => {
                let percent = |value: &Value| value.average_utilization.map(|percent| format!("{percent}%"));
                let current = current.and_then(percent).unwrap_or_else(unknown);
                format!("{name}: {current}/{}", percent(target).unwrap_or_else(|| "<auto>".to_owned()))
            }
        }
    }

    fn value_of(&self, r#type: &str) -> Option<&MetricValue> {
        match r#type {
            "ContainerResource" => self.container_resource.as_ref(),
            "External" => self.external.as_ref(),
            "Object" => self.object.as_ref(),
            "Pods" => self.pods.as_ref(),
            "Resource" => self.resource.as_ref(),
            _ => None,
        }
    }
}
