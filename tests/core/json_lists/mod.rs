//! JSON lists: the decoder returns what `serde_json` reads from the full body, for every chunking.

mod faults;
mod items;
mod memory;
mod properties;
mod splits;

use listwatch::{Limits, ListMeta, TypeMeta};
use serde::de::Deserialize;
use serde_json::value::RawValue;

use crate::support::members::Members;
use crate::support::{List, cut, decode};

const LISTS: [&str; 3] = ["pods.json", "widgets-page-1.json", "widgets-negotiated.json"];

fn members(json: &str) -> Option<Vec<(String, &RawValue)>> {
    serde_json::from_str(json).ok().map(|Members(members)| members)
}

/// Sets a field, unless the value is `null`.
fn set<'a, T: Deserialize<'a>>(place: &mut T, value: &'a RawValue) -> Option<()> {
    if let Some(value) = serde_json::from_str(value.get()).ok()? {
        *place = value;
    }
    Some(())
}

/// The list that `serde_json` reads from the full body, with duplicates and nulls as Go reads them; `None` if it is not
/// a list.
fn reference(body: &[u8]) -> Option<List> {
    let (mut type_meta, mut list_meta, mut items) = (TypeMeta::default(), ListMeta::default(), None::<Vec<Vec<u8>>>);
    for (name, value) in members(str::from_utf8(body).ok()?)? {
        match name.as_str() {
            "apiVersion" => set(&mut type_meta.api_version, value)?,
            "kind" => {
                set(&mut type_meta.kind, value)?;
                // The decoder refuses this kind at once, although a later kind would replace it.
                if !type_meta.kind.is_empty() && !is_list(&type_meta.kind) {
                    return None;
                }
            }
            "metadata" if value.get() != "null" => {
                for (name, value) in members(value.get())? {
                    match name.as_str() {
                        "resourceVersion" => set(&mut list_meta.resource_version, value)?,
                        "continue" => set(&mut list_meta.continue_token, value)?,
                        "remainingItemCount" => {
                            list_meta.remaining_item_count = serde_json::from_str(value.get()).ok()?;
                        }
                        "shardInfo" if value.get() == "null" => list_meta.shard_info = None,
                        "shardInfo" => {
                            let shard_info = list_meta.shard_info.get_or_insert_default();
                            for (name, value) in members(value.get())? {
                                if name == "selector" {
                                    set(&mut shard_info.selector, value)?;
                                }
                            }
                        }
                        _ => {}
                    }
                }
            }
            "items" => {
                if items.is_some_and(|items| !items.is_empty()) {
                    return None;
                }
                let values: Vec<&RawValue> = serde_json::from_str::<Option<_>>(value.get()).ok()?.unwrap_or_default();
                if values.iter().any(|item| !item.get().starts_with('{') && item.get() != "null") {
                    return None;
                }
                items = Some(values.into_iter().map(|item| item.get().as_bytes().to_vec()).collect());
            }
            _ => {}
        }
    }
    let is_list = is_list(&type_meta.kind) && !type_meta.api_version.is_empty();
    is_list.then_some(List { type_meta, list_meta, items: items? })
}

/// Its items make a list, so only known kinds are no lists.
fn is_list(kind: &str) -> bool {
    !["", "Status", "APIResourceList", "APIGroupList"].contains(&kind)
}

#[track_caller]
fn check(name: &str, limits: Limits, body: &[u8], expected: Result<&[&str], &str>) {
    for chunk in [body.len(), 1, 3, 70] {
        let outcome = decode(limits, cut(body, &[chunk.max(1)])).map(|(list, _)| list.items);
        match (outcome, expected) {
            (Ok(items), Ok(expected)) => {
                let items: Vec<_> = items.iter().map(|item| str::from_utf8(item).unwrap()).collect();
                assert_eq!(items, expected, "{name}, in chunks of {chunk}");
            }
            (Err(error), Err(expected)) => assert_eq!(error.to_string(), expected, "{name}, in chunks of {chunk}"),
            (outcome, _) => panic!("{name}, in chunks of {chunk}: {outcome:?}, expected {expected:?}"),
        }
    }
}

/// A list of two items: the first begins at byte 80, and the closing bracket is byte 90.
const LIST: &str = r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[{"a":1},{}]}"#;
const ITEMS: &[&str] = &[r#"{"a":1}"#, "{}"];

/// Returns [`LIST`] with this text in place of its last bracket and brace.
fn ending(more: &str) -> String {
    format!("{}{more}", &LIST[..90])
}

/// Returns [`LIST`] with this text in place of its items, which begin at byte 80.
fn items(items: &str) -> String {
    format!("{}{items}]}}", &LIST[..80])
}
