//! `printEvent` of the server, for both versions of the type.

use jiff::Timestamp;
use serde::Deserialize;

use crate::age::age_at;
use crate::cell::{Cell, Row};
use crate::fields::Metadata;

/// An Event of `v1`; the aliases are the names in `events.k8s.io/v1`.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Event {
    metadata: Metadata,
    r#type: String,
    reason: String,
    #[serde(alias = "note")]
    message: String,
    #[serde(alias = "regarding")]
    involved_object: Target,
    #[serde(alias = "deprecatedSource")]
    source: Source,
    #[serde(alias = "reportingController")]
    reporting_component: String,
    reporting_instance: String,
    #[serde(alias = "deprecatedFirstTimestamp")]
    first_timestamp: Option<Timestamp>,
    #[serde(alias = "deprecatedLastTimestamp")]
    last_timestamp: Option<Timestamp>,
    event_time: Option<Timestamp>,
    #[serde(alias = "deprecatedCount")]
    count: i32,
    series: Option<Series>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Target {
    kind: String,
    name: String,
    field_path: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Source {
    component: String,
    host: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Series {
    count: i32,
    last_observed_time: Option<Timestamp>,
}

impl Event {
    pub(crate) fn row(&self, now: Timestamp) -> Row {
        let Target { kind, name, field_path } = &self.involved_object;
        let kind = kind.to_lowercase();
        let first = age_at(now, self.first_timestamp.or(self.event_time));
        let (last, count) = match &self.series {
            Some(series) => (age_at(now, series.last_observed_time), series.count),
            // The newer version counts no single event.
            None => (
                self.last_timestamp.map_or_else(|| first.clone(), |last| age_at(now, Some(last))),
                if self.count == 0 { 1 } else { self.count },
            ),
        };
        let cells = vec![
            Cell::Text(last),
            Cell::text(&self.r#type),
            Cell::text(&self.reason),
            Cell::Text(if name.is_empty() { kind } else { format!("{kind}/{name}") }),
            Cell::text(field_path),
            Cell::Text(self.source()),
            Cell::text(self.message.trim()),
            Cell::Text(first),
            Cell::Integer(count.into()),
            Cell::text(&self.metadata.name),
        ];
        Row { cells, conditions: &[] }
    }

    fn source(&self) -> String {
        let or = |first: &String, second: &String| if first.is_empty() { second.clone() } else { first.clone() };
        let component = or(&self.source.component, &self.reporting_component);
        let instance = or(&self.source.host, &self.reporting_instance);
        if instance.is_empty() { component } else { format!("{component}, {instance}") }
    }
}
