//! Compares the metadata that `MetaView` reads from an object's bytes with what `k8s-pb` or `serde_json` decodes.

use std::borrow::Cow;

use k8s_pb::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time as PbTime};
use listwatch::{Encoding, ItemError, ItemRef, ManagedFieldsEntry, MetaView, OwnerReference, Time};
use prost::Message as _;
use prost::encoding::{WireType, decode_key};
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::projection::{field, inner};
use super::support::members::Members;

/// Takes an object: JSON if it begins with `{`, otherwise protobuf.
pub fn run(object: &[u8]) {
    if object.starts_with(b"{") { compare_json(object) } else { compare_protobuf(object) }
}

/// All values of a view, owned.
#[derive(Debug, Default, PartialEq)]
struct Meta {
    texts: [String; 5],
    numbers: [Option<i64>; 2],
    times: [Option<Time>; 2],
    labels: Vec<(String, String)>,
    annotations: Vec<(String, String)>,
    owners: Vec<Owner>,
    finalizers: Vec<String>,
    managers: Vec<Manager>,
}

#[derive(Debug, PartialEq)]
struct Owner {
    /// apiVersion, kind, name, uid
    texts: [String; 4],
    controller: bool,
    block_owner_deletion: bool,
}

#[derive(Debug, PartialEq)]
struct Manager {
    /// manager, operation, apiVersion, fieldsType, subresource
    texts: [String; 5],
    time: Option<Time>,
    fields_v1: Vec<u8>,
}

fn read(view: &MetaView<'_>) -> Result<Meta, ItemError> {
    let own = |(key, value): (Cow<'_, str>, Cow<'_, str>)| (key.into_owned(), value.into_owned());
    let texts = [view.name(), view.generate_name(), view.namespace(), view.uid(), view.resource_version()];
    let meta = Meta {
        texts: texts.map(Cow::into_owned),
        numbers: [Some(view.generation()).filter(|number| *number != 0), view.deletion_grace_period_seconds()],
        times: [view.creation_timestamp()?, view.deletion_timestamp()?],
        labels: view.labels()?.map(own).collect(),
        annotations: view.annotations()?.map(own).collect(),
        owners: view.owner_references()?.map(owner).collect(),
        finalizers: view.finalizers()?.map(Cow::into_owned).collect(),
        managers: view.managed_fields()?.map(manager).collect(),
    };
    let is_exact = |(key, _): &&(String, String)| !key.contains(char::REPLACEMENT_CHARACTER);
    for (key, value) in meta.labels.iter().filter(is_exact) {
        assert_eq!(view.label(key)?, Some(value.as_str().into()));
    }
    for (key, value) in meta.annotations.iter().filter(is_exact) {
        assert_eq!(view.annotation(key)?, Some(value.as_str().into()));
    }
    let is_there = |all: &[(String, String)]| all.iter().any(|(key, _)| key == "absent");
    assert_eq!(view.label("absent")?.is_some(), is_there(&meta.labels));
    assert_eq!(view.annotation("absent")?.is_some(), is_there(&meta.annotations));
    Ok(meta)
}

fn owner(owner: OwnerReference<'_>) -> Owner {
    let OwnerReference { api_version, kind, name, uid, controller, block_owner_deletion, .. } = owner;
    Owner { texts: [api_version, kind, name, uid].map(Cow::into_owned), controller, block_owner_deletion }
}

fn manager(entry: ManagedFieldsEntry<'_>) -> Manager {
    let ManagedFieldsEntry { manager, operation, api_version, time, fields_type, fields_v1, subresource, .. } = entry;
    let texts = [manager, operation, api_version, fields_type, subresource].map(Cow::into_owned);
    Manager { texts, time, fields_v1: fields_v1.to_vec() }
}

#[derive(Clone, PartialEq, prost::Message)]
struct Object {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ObjectMeta>,
}

fn compare_protobuf(object: &[u8]) {
    let ours = ItemRef::new(Encoding::Protobuf, object).meta().and_then(|view| read(&view));
    match (ours, Object::decode(object)) {
        (Ok(ours), Ok(theirs)) => assert_eq!(ours, of_pb(theirs.metadata.unwrap_or_default())),
        (Err(_), Err(_)) => {}
        (Err(ours), Ok(_)) => assert!(has_map_of_wrong_type(object), "only the view refuses: {ours}"),
        (Ok(_), Err(theirs)) => {
            let theirs = theirs.to_string();
            // The view does not read `selfLink`, and replaces bytes that are not UTF-8. prost also counts the levels
            // around a group.
            let known = ["ObjectMeta.self_link", "UTF-8", "recursion limit reached"].map(|text| theirs.contains(text));
            let known = known.contains(&true);
            assert!(known, "only prost refuses: {theirs}");
        }
    }
}

/// Returns true if labels or annotations have the wrong wire type, which prost does not check.
fn has_map_of_wrong_type(mut object: &[u8]) -> bool {
    while let Some((number, wire_type, value)) = field(&mut object) {
        let mut metadata = inner(wire_type, value).filter(|_| number == 1).unwrap_or_default();
        // Their values may be missing.
        while let Ok((number, wire_type)) = decode_key(&mut &*metadata) {
            if matches!(number, 11 | 12) && wire_type != WireType::LengthDelimited {
                return true;
            }
            if field(&mut metadata).is_none() {
                break;
            }
        }
    }
    false
}

fn of_pb(meta: ObjectMeta) -> Meta {
    let text = Option::unwrap_or_default;
    // Go writes its zero time as an empty message: it is no time.
    let time = |time: Option<PbTime>| {
        let PbTime { seconds, nanos } = time?;
        let is_empty = seconds.is_none() && nanos.is_none();
        (!is_empty).then(|| Time { seconds: seconds.unwrap_or_default(), nanos: nanos.unwrap_or_default() })
    };
    let owners = meta.owner_references.into_iter().map(|owner| Owner {
        texts: [owner.api_version, owner.kind, owner.name, owner.uid].map(text),
        controller: owner.controller.unwrap_or_default(),
        block_owner_deletion: owner.block_owner_deletion.unwrap_or_default(),
    });
    let managers = meta.managed_fields.into_iter().map(|entry| Manager {
        texts: [entry.manager, entry.operation, entry.api_version, entry.fields_type, entry.subresource].map(text),
        time: time(entry.time),
        fields_v1: entry.fields_v1.and_then(|fields| fields.raw).unwrap_or_default(),
    });
    Meta {
        texts: [meta.name, meta.generate_name, meta.namespace, meta.uid, meta.resource_version].map(text),
        numbers: [meta.generation.filter(|number| *number != 0), meta.deletion_grace_period_seconds],
        times: [time(meta.creation_timestamp), time(meta.deletion_timestamp)],
        labels: meta.labels.into_iter().collect(),
        annotations: meta.annotations.into_iter().collect(),
        owners: owners.collect(),
        finalizers: meta.finalizers,
        managers: managers.collect(),
    }
}

fn compare_json(object: &[u8]) {
    let ours = ItemRef::new(Encoding::Json, object).meta().and_then(|view| read(&view));
    let theirs = of_json(object);
    match (ours, theirs) {
        (Ok(mut ours), Ok(theirs)) => {
            // Only the presence of times is compared: serde_json does not parse them.
            let times = ours.times.iter_mut().chain(ours.managers.iter_mut().map(|manager| &mut manager.time));
            times.flatten().for_each(|time| *time = Time::default());
            assert_eq!(ours, theirs);
        }
        // The view only finds the end of values that it does not read. serde_json does not check ignored values for
        // UTF-8.
        (Ok(_), Err(Unread::Malformed(what)))
            if str::from_utf8(object).is_ok_and(|json| serde_json::from_str::<IgnoredAny>(json).is_ok()) =>
        {
            panic!("only serde_json refuses: {what}")
        }
        (Err(ours), Ok(theirs)) => {
            let times = theirs.times.iter().chain(theirs.managers.iter().map(|manager| &manager.time));
            assert!(times.flatten().next().is_some(), "only the view refuses: {ours}");
        }
        (_, Err(_)) => {}
    }
}

enum Unread {
    Malformed(String),
    /// A name occurs twice. The view merges such members as Go does, and this reference does not.
    Twice,
    /// `serde_json::Value` cannot represent the value: it is nested deeper than 128 levels, or has half a surrogate
    /// pair or a number over the range of f64. The view may not even read it.
    NotRead,
}

fn of_json(object: &[u8]) -> Result<Meta, Unread> {
    let mut meta = Meta::default();
    let Some(metadata) = members(object)?.remove("metadata") else { return Ok(meta) };
    if metadata == "null" {
        return Ok(meta);
    }
    let mut metadata = members(metadata.as_bytes())?;
    let mut get = |name| metadata.remove(name).map_or(Ok(Value::Null), value);
    for (place, name) in meta.texts.iter_mut().zip(["name", "generateName", "namespace", "uid", "resourceVersion"]) {
        *place = text_or_null(get(name)?)?;
    }
    for (place, name) in meta.numbers.iter_mut().zip(["generation", "deletionGracePeriodSeconds"]) {
        *place = match get(name)? {
            Value::Null => None,
            value => Some(value.as_i64().ok_or_else(|| malformed(&value))?),
        };
    }
    meta.numbers[0] = meta.numbers[0].filter(|number| *number != 0);
    for (place, name) in meta.times.iter_mut().zip(["creationTimestamp", "deletionTimestamp"]) {
        *place = time(get(name)?)?;
    }
    meta.labels = map(get("labels")?)?;
    meta.annotations = map(get("annotations")?)?;
    meta.finalizers = all(get("finalizers")?, text)?;
    // Entries of these lists are compared only if no name occurs twice in them.
    for (name, place) in [("ownerReferences", 0), ("managedFields", 1)] {
        let Some(json) = metadata.remove(name).filter(|json| *json != "null") else { continue };
        let entries: Vec<&serde_json::value::RawValue> = serde_json::from_str(json).map_err(|_| malformed(&json))?;
        for entry in entries {
            let mut entry = members(entry.get().as_bytes())?;
            if place == 0 {
                meta.owners.push(json_owner(&mut entry)?);
            } else {
                meta.managers.push(json_manager(&mut entry)?);
            }
        }
    }
    Ok(meta)
}

type Named<'a> = std::collections::BTreeMap<String, &'a str>;

fn json_owner(owner: &mut Named<'_>) -> Result<Owner, Unread> {
    let mut texts = <[String; 4]>::default();
    for (place, name) in texts.iter_mut().zip(["apiVersion", "kind", "name", "uid"]) {
        *place = owner.remove(name).map_or(Ok(String::new()), |json| text(value(json)?))?;
    }
    let mut flag = |name| match owner.remove(name).map_or(Ok(Value::Null), value)? {
        Value::Null => Ok(false),
        value => value.as_bool().ok_or_else(|| malformed(&value)),
    };
    Ok(Owner { texts, controller: flag("controller")?, block_owner_deletion: flag("blockOwnerDeletion")? })
}

fn json_manager(manager: &mut Named<'_>) -> Result<Manager, Unread> {
    let mut texts = <[String; 5]>::default();
    for (place, name) in texts.iter_mut().zip(["manager", "operation", "apiVersion", "fieldsType", "subresource"]) {
        *place = manager.remove(name).map_or(Ok(String::new()), |json| text(value(json)?))?;
    }
    let time = manager.remove("time").map_or(Ok(None), |json| time(value(json)?))?;
    let fields_v1 = manager.remove("fieldsV1").filter(|json| *json != "null").unwrap_or_default();
    Ok(Manager { texts, time, fields_v1: fields_v1.into() })
}

fn members(object: &[u8]) -> Result<Named<'_>, Unread> {
    let Members(members) = serde_json::from_slice(object).map_err(|error| malformed(&error))?;
    let len = members.len();
    let named: Named<'_> = members.into_iter().map(|(name, value)| (name, value.get())).collect();
    if named.len() == len { Ok(named) } else { Err(Unread::Twice) }
}

fn value(json: &str) -> Result<Value, Unread> {
    serde_json::from_str(json).map_err(|_| Unread::NotRead)
}

fn text(value: Value) -> Result<String, Unread> {
    if let Value::String(text) = value { Ok(text) } else { Err(malformed(&value)) }
}

fn text_or_null(value: Value) -> Result<String, Unread> {
    if value.is_null() { Ok(String::new()) } else { text(value) }
}

fn time(value: Value) -> Result<Option<Time>, Unread> {
    if value.is_null() { Ok(None) } else { text(value).map(|_| Some(Time::default())) }
}

fn all<T>(value: Value, read: impl Fn(Value) -> Result<T, Unread>) -> Result<Vec<T>, Unread> {
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Array(values) => values.into_iter().map(read).collect(),
        value => Err(malformed(&value)),
    }
}

fn map(value: Value) -> Result<Vec<(String, String)>, Unread> {
    let entries = match value {
        Value::Null => Map::new(),
        Value::Object(entries) => entries,
        value => return Err(malformed(&value)),
    };
    let mut all = entries.into_iter().map(|(key, value)| Ok((key, text(value)?))).collect::<Result<Vec<_>, _>>()?;
    all.sort();
    Ok(all)
}

fn malformed(what: &impl ToString) -> Unread {
    Unread::Malformed(what.to_string())
}
