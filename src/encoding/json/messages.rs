//! The JSON form of the list's metadata, the type meta and the Status.
//!
//! Members are read as Go's `encoding/json` reads them: the last value of a repeated member counts, `null` sets
//! nothing. Source of the names: `ListMeta` and `Status` in `k8s.io/apimachinery/pkg/apis/meta/v1/types.go`.

use std::borrow::Cow;

use serde::Deserialize;

use crate::encoding::json::reader::Reader;
use crate::meta::{ListMeta, MAX_CAUSES, ShardInfo, Status, StatusCause, StatusDetails, TypeMeta};
use crate::wire::{FieldFault, at};

/// Reads an object, or `null`. `on_member` gets the name of each member, and must consume its value.
pub(crate) fn members<'a>(
    field: &'static str,
    json: &mut Reader<'a>,
    mut on_member: impl FnMut(&str, &mut Reader<'a>) -> Result<(), FieldFault>,
) -> Result<(), FieldFault> {
    let mut members = json.object().map_err(at(field))?;
    while let Some(name) = members.next(json).map_err(at(field))? {
        on_member(&name, json)?;
    }
    Ok(())
}

pub(crate) fn skip(field: &'static str, json: &mut Reader<'_>) -> Result<(), FieldFault> {
    json.value().map(drop).map_err(at(field))
}

/// Reads JSON that is an object or `null`, as [`members`] does, and checks that it ends there.
pub(crate) fn whole<'a>(
    field: &'static str,
    mut json: Reader<'a>,
    on_member: impl FnMut(&str, &mut Reader<'a>) -> Result<(), FieldFault>,
) -> Result<(), FieldFault> {
    members(field, &mut json, on_member)?;
    json.end().map_err(at(field))
}

/// Merges the `metadata` of a list into the list meta read so far.
pub(crate) fn merge_list_meta(list_meta: &mut ListMeta, metadata: &[u8]) -> Result<(), FieldFault> {
    read_list_meta(list_meta, &mut Reader::new(metadata, 1))
}

fn read_list_meta(list_meta: &mut ListMeta, json: &mut Reader<'_>) -> Result<(), FieldFault> {
    members("metadata", json, |name, json| match name {
        "resourceVersion" => set_exact(&mut list_meta.resource_version, "metadata.resourceVersion", json),
        "continue" => set_exact(&mut list_meta.continue_token, "metadata.continue", json),
        "remainingItemCount" => {
            list_meta.remaining_item_count = json.parse().map_err(at("metadata.remainingItemCount"))?;
            Ok(())
        }
        "shardInfo" if json.peek() == Some(b'n') => {
            list_meta.shard_info = None;
            skip("metadata", json)
        }
        "shardInfo" => {
            let ShardInfo { selector } = list_meta.shard_info.get_or_insert_default();
            members("metadata.shardInfo", json, |name, json| match name {
                "selector" => set_string(selector, "metadata.shardInfo.selector", json),
                _ => skip("metadata.shardInfo", json),
            })
        }
        _ => skip("metadata", json),
    })
}

/// Returns the `apiVersion` and `kind` of an object; empty if it has none.
pub(crate) fn type_meta(object: &[u8]) -> Result<TypeMeta, FieldFault> {
    let mut type_meta = TypeMeta::default();
    whole("the object", Reader::new(object, 0), |name, json| match name {
        "apiVersion" => set_string(&mut type_meta.api_version, "apiVersion", json),
        "kind" => set_string(&mut type_meta.kind, "kind", json),
        _ => skip("the object", json),
    })?;
    Ok(type_meta)
}

pub(crate) fn status(json: &[u8]) -> Option<Status> {
    let mut status = Status::default();
    whole("the body", Reader::new(json, 0), |name, json| match name {
        "metadata" => read_list_meta(status.metadata.get_or_insert_default(), json),
        "status" => set_string(&mut status.status, "status", json),
        "message" => set_string(&mut status.message, "message", json),
        "reason" => set_string(&mut status.reason, "reason", json),
        "details" => read_details(status.details.get_or_insert_default(), json),
        "code" => set(&mut status.code, "code", json),
        _ => skip("the body", json),
    })
    .ok()?;
    Some(status)
}

fn read_details(details: &mut StatusDetails, json: &mut Reader<'_>) -> Result<(), FieldFault> {
    members("details", json, |name, json| match name {
        "name" => set_string(&mut details.name, "details.name", json),
        "group" => set_string(&mut details.group, "details.group", json),
        "kind" => set_string(&mut details.kind, "details.kind", json),
        "uid" => set_string(&mut details.uid, "details.uid", json),
        "retryAfterSeconds" => set(&mut details.retry_after_seconds, "details.retryAfterSeconds", json),
        "causes" => {
            details.causes.clear();
            let mut causes = json.array().map_err(at("details.causes"))?;
            while causes.next(json).map_err(at("details.causes"))? {
                let cause = cause(json)?;
                if details.causes.len() < MAX_CAUSES {
                    details.causes.push(cause);
                }
            }
            Ok(())
        }
        _ => skip("details", json),
    })
}

fn cause(json: &mut Reader<'_>) -> Result<StatusCause, FieldFault> {
    let mut cause = StatusCause::default();
    members("details.causes", json, |name, json| match name {
        "reason" => set_string(&mut cause.reason, "details.causes.reason", json),
        "message" => set_string(&mut cause.message, "details.causes.message", json),
        "field" => set_string(&mut cause.field, "details.causes.field", json),
        _ => skip("details.causes", json),
    })?;
    Ok(cause)
}

/// Sets a field, unless the value is `null`.
pub(crate) fn set<'a, T: Deserialize<'a>>(
    place: &mut T,
    field: &'static str,
    json: &mut Reader<'a>,
) -> Result<(), FieldFault> {
    if let Some(value) = json.parse().map_err(at(field))? {
        *place = value;
    }
    Ok(())
}

pub(crate) fn set_text<'a>(
    place: &mut Cow<'a, str>,
    field: &'static str,
    json: &mut Reader<'a>,
) -> Result<(), FieldFault> {
    if let Some(text) = json.text().map_err(at(field))? {
        *place = text;
    }
    Ok(())
}

fn set_exact(place: &mut String, field: &'static str, json: &mut Reader<'_>) -> Result<(), FieldFault> {
    if let Some(text) = json.exact_text().map_err(at(field))? {
        *place = text.into_owned();
    }
    Ok(())
}

fn set_string(place: &mut String, field: &'static str, json: &mut Reader<'_>) -> Result<(), FieldFault> {
    if let Some(text) = json.text().map_err(at(field))? {
        *place = text.into_owned();
    }
    Ok(())
}
