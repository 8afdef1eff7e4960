//! Collects the statistics of a list while it streams, in constant memory.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use hdrhistogram::Histogram;
use listwatch::schema::Message;
use listwatch::{Encoding, ItemError, ItemRef, ListMeta, TypeMeta};

use super::report::{FieldRow, ItemSizes, NamespaceRow, ObjectRow, SizeBin, StatsReport};
use super::savings::DropSavings;
use super::walk::{FieldNode, FieldSizes, MAX_NAMES, truncate_name};
use crate::failure::Failure;

/// The largest size that the histogram distinguishes. No item can be that large.
const MAX_SIZE: u64 = 1 << 32;
const BINS: u32 = 24;

pub struct ListStats {
    top: usize,
    encoding: Option<Encoding>,
    bytes: u64,
    sizes: Histogram<u64>,
    smallest: u64,
    largest: BinaryHeap<Reverse<ObjectRow>>,
    namespaces: HashMap<Box<str>, ObjectCount>,
    /// The sum of the namespaces over [`MAX_NAMES`].
    other_namespaces: ObjectCount,
    fields: FieldSizes,
    savings: DropSavings,
}

#[derive(Clone, Copy, Default)]
struct ObjectCount {
    items: u64,
    bytes: u64,
}

impl ObjectCount {
    fn add(&mut self, bytes: u64) {
        self.items += 1;
        self.bytes += bytes;
    }
}

impl ListStats {
    /// `top` is the number of objects, of namespaces and of fields per field that the report names.
    pub fn new(top: usize, depth: usize, drop: Vec<String>) -> Self {
        Self {
            top,
            encoding: None,
            bytes: 0,
            sizes: Histogram::new_with_max(MAX_SIZE, 3).expect("the bounds are valid"),
            smallest: u64::MAX,
            largest: BinaryHeap::with_capacity(top + 1),
            namespaces: HashMap::new(),
            other_namespaces: ObjectCount::default(),
            fields: FieldSizes::new(depth),
            savings: DropSavings::new(drop),
        }
    }

    pub fn add_item(&mut self, item: &ItemRef<'_>) -> Result<(), ItemError> {
        let meta = item.meta()?;
        self.fields.add_item(item, object_schema(item.type_meta()))?;
        self.savings.add_item(item)?;
        self.encoding = Some(item.encoding());

        let bytes = item.bytes().len() as u64;
        self.bytes += bytes;
        self.sizes.saturating_record(bytes);
        self.smallest = self.smallest.min(bytes);
        let namespace = meta.namespace();
        let namespace = truncate_name(&namespace);
        if let Some(count) = self.namespaces.get_mut(&*namespace) {
            count.add(bytes);
        } else if self.namespaces.len() < MAX_NAMES {
            self.namespaces.insert(namespace.as_ref().into(), ObjectCount { items: 1, bytes });
        } else {
            self.other_namespaces.add(bytes);
        }
        if self.largest.len() < self.top || self.largest.peek().is_some_and(|Reverse(least)| bytes > least.bytes) {
            let name = truncate_name(&meta.name()).into_owned();
            self.largest.push(Reverse(ObjectRow { bytes, namespace: namespace.into_owned(), name }));
            if self.largest.len() > self.top {
                self.largest.pop();
            }
        }
        Ok(())
    }

    /// Returns the failure of a list. A path in `--drop` that the objects do not have is a usage error.
    pub fn failure(&self, error: String) -> Failure {
        self.savings.unknown_path().map_or(Failure::Error(error), |unknown| Failure::Usage(unknown.to_owned()))
    }

    /// Returns the report of a complete list.
    pub fn report(self, type_meta: &TypeMeta, list_meta: &ListMeta, body_bytes: u64) -> StatsReport {
        let encoding = self.encoding;
        let mut fields = Vec::new();
        let kind = object_schema(type_meta);
        let object =
            FieldPlace { node: self.fields.root(), kind, is_map: false, name: String::new(), path: String::new() };
        add_fields(&mut fields, &object, 0, self.top);
        StatsReport {
            api_version: type_meta.api_version.clone(),
            kind: type_meta.kind.clone(),
            resource_version: list_meta.resource_version.clone(),
            remaining_item_count: list_meta.remaining_item_count,
            encoding: encoding.map(|encoding| encoding.to_string()),
            items: self.sizes.len(),
            of_items: None,
            bytes: self.bytes,
            body_bytes,
            sizes: (!self.sizes.is_empty()).then(|| self.sizes()),
            fields,
            namespaces: self.namespaces(),
            drop: self.savings.report(),
            largest: self.largest.into_sorted_vec().into_iter().map(|Reverse(object)| object).collect(),
        }
    }

    fn sizes(&self) -> ItemSizes {
        let quantile = |quantile| self.sizes.value_at_quantile(quantile).min(self.max());
        ItemSizes {
            mean: self.bytes / self.sizes.len(),
            smallest: self.smallest,
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            largest: self.max(),
            histogram: self.histogram(),
        }
    }

    fn max(&self) -> u64 {
        // Not from the histogram, which rounds.
        self.largest.iter().map(|Reverse(object)| object.bytes).max().unwrap_or_default()
    }

    /// Returns bins from the smallest to the largest size, on a logarithmic scale.
    fn histogram(&self) -> Vec<SizeBin> {
        let (smallest, end) = (self.smallest.max(1), self.max().max(1) + 1);
        #[expect(clippy::cast_precision_loss, reason = "the edge of a bin is arbitrary")]
        let ratio = end as f64 / smallest as f64;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "as above"
        )]
        let edge = |bin: u32| (smallest as f64 * ratio.powf(f64::from(bin) / f64::from(BINS))).round() as u64;
        let mut edges: Vec<u64> = (0..BINS).map(edge).chain([end]).collect();
        edges.dedup();
        let mut bins: Vec<_> =
            edges.windows(2).map(|edge| SizeBin { from: edge[0], to: edge[1] - 1, items: 0 }).collect();
        for step in self.sizes.iter_recorded() {
            let size = step.value_iterated_to().min(self.max());
            let at = bins.partition_point(|bin| bin.to < size);
            bins[at].items += step.count_at_value();
        }
        bins
    }

    fn namespaces(&self) -> Vec<NamespaceRow> {
        let of = |name: &str, count: ObjectCount| NamespaceRow {
            namespace: name.to_owned(),
            others: false,
            items: count.items,
            bytes: count.bytes,
        };
        let mut all: Vec<_> = self.namespaces.iter().map(|(name, count)| of(name, *count)).collect();
        all.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.namespace.cmp(&b.namespace)));
        let mut others = NamespaceRow { others: true, ..of("", self.other_namespaces) };
        for namespace in all.drain(self.top.min(all.len())..) {
            others.items += namespace.items;
            others.bytes += namespace.bytes;
        }
        if others.items > 0 {
            all.push(others);
        }
        all
    }
}

/// Returns the schema of the objects in a list of this kind. For an unknown kind it has only the metadata.
fn object_schema(list: &TypeMeta) -> Option<&'static Message> {
    let kind = list.kind.strip_suffix("List").unwrap_or(&list.kind);
    Message::of(&list.api_version, kind).or_else(|| Message::of("meta.k8s.io/v1", "PartialObjectMetadata"))
}

/// A field, and its place in the objects.
struct FieldPlace<'a> {
    node: &'a FieldNode,
    kind: Option<&'static Message>,
    is_map: bool,
    name: String,
    path: String,
}

fn add_fields(fields: &mut Vec<FieldRow>, parent: &FieldPlace<'_>, depth: usize, top: usize) {
    let mut inside = Vec::new();
    collect_places(parent, parent.node, parent.kind, &mut inside);
    inside.sort_by(|a, b| b.node.bytes.cmp(&a.node.bytes).then_with(|| a.name.cmp(&b.name)));
    let (named, rest) = inside.split_at(top.min(inside.len()));
    for place in named {
        let FieldPlace { node, name, path, .. } = place;
        let (bytes, items) = (node.bytes, Some(node.items));
        fields.push(FieldRow { path: path.clone(), name: name.clone(), others: false, depth, bytes, items });
        add_fields(fields, place, depth + 1, top);
    }
    let bytes = parent.node.others + rest.iter().map(|place| place.node.bytes).sum::<u64>();
    if bytes > 0 {
        let (path, name) = (parent.path.clone(), "others".to_owned());
        fields.push(FieldRow { path, name, others: true, depth, bytes, items: None });
    }
}

/// Adds the fields of a node to `inside`. A message that JSON inlines is replaced by its fields.
fn collect_places<'a>(
    parent: &FieldPlace<'_>,
    node: &'a FieldNode,
    kind: Option<&'static Message>,
    inside: &mut Vec<FieldPlace<'a>>,
) {
    let place = |node, name: String| {
        let dot = if parent.path.is_empty() || name.starts_with('[') { "" } else { "." };
        let path = format!("{}{dot}{name}", parent.path);
        FieldPlace { node, kind: None, is_map: false, name, path }
    };
    for (number, node) in &node.numbers {
        let Some(field) = kind.and_then(|kind| kind.field(*number)) else {
            inside.push(place(node, number.to_string()));
            continue;
        };
        match field.name() {
            "" => collect_places(parent, node, field.message(), inside),
            name => {
                let place = place(node, name.to_owned());
                inside.push(FieldPlace { kind: field.message(), is_map: field.is_map(), ..place });
            }
        }
    }
    // In JSON, only the path distinguishes a map from an object.
    let is_map = parent.is_map || matches!(&*parent.path, "metadata.annotations" | "metadata.labels");
    for (name, node) in &node.names {
        let is_plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        inside.push(place(node, if is_plain && !is_map { name.to_string() } else { format!("[\"{name}\"]") }));
    }
}
