//! Columns and rows of Tables, as kube-apiserver 1.37 prints them (`pkg/printers/internalversion/printers.go`).

use std::collections::BTreeMap;

use jiff::Timestamp;
use listwatch::{ItemRef, TypeMeta};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::response::{BodyError, write_go_json};

/// Prints the rows of one kind.
#[derive(Clone, Debug)]
pub(crate) struct TablePrinter {
    kind: PrintedKind,
    type_meta: TypeMeta,
}

#[derive(Clone, Copy, Debug)]
enum PrintedKind {
    ConfigMap,
    Namespace,
    Secret,
}

/// A column, in the order of Go's `TableColumnDefinition`.
#[derive(Debug, Serialize)]
pub(crate) struct Column {
    name: &'static str,
    #[serde(rename = "type")]
    column_type: &'static str,
    format: &'static str,
    description: &'static str,
    priority: i32,
}

/// A cell of a row.
#[derive(Debug, PartialEq, Serialize)]
#[serde(untagged)]
enum Cell {
    Text(String),
    Integer(i64),
}

/// The fields that rows need.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PrintedObject<'a> {
    metadata: PrintedMetadata,
    #[serde(rename = "type")]
    secret_type: Option<String>,
    #[serde(borrow)]
    data: Option<BTreeMap<String, &'a RawValue>>,
    #[serde(borrow)]
    binary_data: Option<BTreeMap<String, &'a RawValue>>,
    status: PrintedStatus,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PrintedMetadata {
    name: Option<String>,
    creation_timestamp: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PrintedStatus {
    phase: Option<String>,
}

impl TablePrinter {
    /// Returns the printer of a kind; `None` if the mirror does not print it.
    pub(super) fn for_kind(type_meta: &TypeMeta) -> Option<Self> {
        let kind = match (&*type_meta.api_version, &*type_meta.kind) {
            ("v1", "ConfigMap") => PrintedKind::ConfigMap,
            ("v1", "Namespace") => PrintedKind::Namespace,
            ("v1", "Secret") => PrintedKind::Secret,
            _ => return None,
        };
        Some(Self { kind, type_meta: type_meta.clone() })
    }

    pub(crate) fn columns(&self) -> &'static [Column] {
        match self.kind {
            PrintedKind::ConfigMap => const { &[NAME, text("Data", CONFIG_MAP_DATA), AGE] },
            PrintedKind::Namespace => const { &[NAME, text("Status", "The status of the namespace"), AGE] },
            PrintedKind::Secret => const { &[NAME, text("Type", SECRET_TYPE), text("Data", SECRET_DATA), AGE] },
        }
    }

    /// Appends the beginning of a row, up to its object: the cells of an object, with ages at this time.
    ///
    /// # Errors
    ///
    /// An object that is malformed.
    pub(crate) fn write_cells(&self, item: &ItemRef<'_>, now: Timestamp, out: &mut Vec<u8>) -> Result<(), BodyError> {
        let mut object = Vec::new();
        item.with_type_meta(&self.type_meta).to_json(&mut object)?;
        let cells = self.cells(serde_json::from_slice(&object)?, now)?;
        out.extend_from_slice(br#"{"cells":"#);
        write_go_json(&cells, out)?;
        Ok(())
    }

    fn cells(&self, object: PrintedObject<'_>, now: Timestamp) -> Result<Vec<Cell>, BodyError> {
        let PrintedObject { metadata, secret_type, data, binary_data, status } = object;
        let len = |data: Option<BTreeMap<String, &RawValue>>| data.map_or(0, |data| data.len());
        let count = |count: usize| Cell::Integer(i64::try_from(count).unwrap_or(i64::MAX));
        let mut cells = vec![Cell::Text(metadata.name.unwrap_or_default())];
        match self.kind {
            PrintedKind::ConfigMap => cells.push(count(len(data) + len(binary_data))),
            PrintedKind::Namespace => cells.push(Cell::Text(status.phase.unwrap_or_default())),
            PrintedKind::Secret => {
                cells.extend([Cell::Text(secret_type.unwrap_or_default()), count(len(data))]);
            }
        }
        let age = match &metadata.creation_timestamp {
            None => "<unknown>".to_owned(),
            Some(created) => format_age(now.duration_since(created.parse()?).as_secs()),
        };
        cells.push(Cell::Text(age));
        Ok(cells)
    }
}

/// Formats a duration as `HumanDuration` of apimachinery does.
fn format_age(seconds: i64) -> String {
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let days = hours / 24;
    let both = |large: i64, unit: &str, small: i64, small_unit: &str| {
        if small == 0 { format!("{large}{unit}") } else { format!("{large}{unit}{small}{small_unit}") }
    };
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => both(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => both(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if days < 8 => both(days, "d", hours % 24, "h"),
        _ if days < 365 * 2 => format!("{days}d"),
        _ if days < 365 * 8 => both(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

const fn text(name: &'static str, description: &'static str) -> Column {
    Column { name, column_type: "string", format: "", description, priority: 0 }
}

const NAME: Column = Column { format: "name", ..text("Name", NAME_DESCRIPTION) };
const AGE: Column = text("Age", AGE_DESCRIPTION);

const NAME_DESCRIPTION: &str = "Name must be unique within a namespace. Is required when creating resources, although \
    some resources may allow a client to request the generation of an appropriate name automatically. Name is \
    primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: \
    https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";

const AGE_DESCRIPTION: &str = "CreationTimestamp is a timestamp representing the server time when this object was \
    created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set \
    this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for \
    lists. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

const CONFIG_MAP_DATA: &str = "Data contains the configuration data. Each key must consist of alphanumeric \
    characters, '-', '_' or '.'. Values with non-UTF-8 byte sequences must use the BinaryData field. The keys stored \
    in Data must not overlap with the keys in the BinaryData field, this is enforced during validation process.";

const SECRET_TYPE: &str = "Used to facilitate programmatic handling of secret data. More info: \
    https://kubernetes.io/docs/concepts/configuration/secret/#secret-types";

const SECRET_DATA: &str = "Data contains the secret data. Each key must consist of alphanumeric characters, '-', '_' \
    or '.'. The serialized form of the secret data is a base64 encoded string, representing the arbitrary (possibly \
    non-string) data value here. Described in https://tools.ietf.org/html/rfc4648#section-4";

#[cfg(test)]
mod tests {
    use listwatch::Encoding;

    use super::*;

    #[test]
    fn formats_ages_as_kubectl() {
        const DAY: i64 = 86_400;
        for (seconds, expected) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (121, "2m1s"),
            (600, "10m"),
            (3 * 3600 - 1, "179m"),
            (3 * 3600, "3h"),
            (3 * 3600 + 60, "3h1m"),
            (8 * 3600, "8h"),
            (2 * DAY - 1, "47h"),
            (2 * DAY, "2d"),
            (2 * DAY + 3600, "2d1h"),
            (8 * DAY, "8d"),
            (729 * DAY, "729d"),
            (730 * DAY, "2y"),
            (731 * DAY, "2y1d"),
            (2920 * DAY, "8y"),
        ] {
            assert_eq!(format_age(seconds), expected, "{seconds}");
        }
    }

    #[test]
    fn prints_the_cells_of_the_server() {
        let now = "2026-01-01T00:00:10Z".parse().unwrap();
        let created = r#""creationTimestamp":"2026-01-01T00:00:00Z""#;
        for (kind, object, expected) in [
            ("ConfigMap", r#"{"data":{"a":"","b":""},"binaryData":{"c":""}}"#, r#"["",3,"\u003cunknown\u003e"]"#),
            ("Namespace", r#"{"metadata":{"name":"a",TIME},"status":{"phase":"Active"}}"#, r#"["a","Active","10s"]"#),
            ("Secret", r#"{"metadata":{"name":"s",TIME},"type":"Opaque","data":null}"#, r#"["s","Opaque",0,"10s"]"#),
        ] {
            let object = object.replace("TIME", created);
            let printer = TablePrinter::for_kind(&TypeMeta::new("v1", kind)).unwrap();
            let mut out = Vec::new();
            printer.write_cells(&ItemRef::new(Encoding::Json, object.as_bytes()), now, &mut out).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), format!("{{\"cells\":{expected}"));
        }
        let printer = TablePrinter::for_kind(&TypeMeta::new("v1", "Secret")).unwrap();
        for malformed in ["7", "{", r#"{"data":7}"#, r#"{"metadata":{"creationTimestamp":"x"}}"#] {
            let item = ItemRef::new(Encoding::Json, malformed.as_bytes());
            assert!(printer.write_cells(&item, now, &mut Vec::new()).is_err(), "{malformed}");
        }
        assert!(TablePrinter::for_kind(&TypeMeta::new("v1", "Pod")).is_none());
    }
}
