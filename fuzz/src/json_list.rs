//! Compares JSON lists with `serde_json`: both return the same item bytes and the same metadata, or both refuse the
//! list.
//!
//! The decoder only finds the end of items, unknown members and over-long names. [`without_unread`] removes them from a
//! body that `serde_json` refuses, because they may be malformed inside.

use std::mem;

use listwatch::{Limits, ListMeta, TypeMeta};
use serde_json::Value;
use serde_json::value::RawValue;

use super::support::members::Members;
use super::support::{List, cut};

/// The last byte sets the chunk length of the body before it.
pub fn run(data: &[u8]) {
    let Some((chunk, body)) = data.split_last() else { return };
    if !body.starts_with(b"{") {
        return;
    }
    let ours = decode_json(body, 1 + usize::from(*chunk));
    // Texts that are not Unicode are read with U+FFFD.
    let is_unicode = str::from_utf8(body).is_ok() && !body.windows(3).any(|text| text.eq_ignore_ascii_case(br"\ud"));
    if ours.is_ok() && !is_unicode {
        return;
    }
    let theirs = match serde_json::from_slice(body) {
        Ok(members) => by_serde(&members),
        Err(error) if ours.is_ok() => {
            let read = without_unread(body);
            let reparsed = serde_json::from_slice::<&RawValue>(&read);
            assert!(reparsed.is_ok(), "only serde_json refuses: {error}: {}", String::from_utf8_lossy(&read));
            return;
        }
        Err(_) => return,
    };
    match (ours, theirs) {
        (Ok(ours), Ok(theirs)) => assert_eq!(ours, theirs),
        (Err(_), Err(_)) => {}
        (Ok(_), Err(theirs)) => panic!("only serde_json refuses: {theirs}"),
        (Err(ours), Ok(_)) => panic!("only the decoder refuses: {ours}"),
    }
}

/// Does not check the order of events: the type meta may come after the items, and more than once.
fn decode_json(body: &[u8], chunk: usize) -> Result<List, String> {
    let mut decoder = listwatch::ListDecoder::with_limits(Limits::default()).accept_json();
    let mut items = Vec::new();
    for mut chunk in cut(body, &[chunk]) {
        while let Some(event) = decoder.decode(&mut chunk).map_err(|error| error.to_string())? {
            if let listwatch::Event::Item(item) = event {
                items.push(item.bytes().to_vec());
                let mut line = Vec::new();
                match item.to_json(&mut line) {
                    Ok(_) => check_line(&line),
                    Err(_) => assert!(line.is_empty(), "an error after {}", String::from_utf8_lossy(&line)),
                }
            }
        }
    }
    let end = decoder.finish().map_err(|error| error.to_string())?;
    Ok(List { type_meta: end.type_meta, list_meta: end.list_meta, items })
}

/// Panics unless the line is a single-line JSON object with exactly one kind and one API version.
fn check_line(line: &[u8]) {
    let text = str::from_utf8(line).unwrap();
    let Members(members) = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    for expected in ["kind", "apiVersion"] {
        let values: Vec<_> =
            members.iter().filter(|(name, _)| name == expected).map(|(_, value)| value.get()).collect();
        let [value] = values[..] else { panic!("{} values of {expected}: {text}", values.len()) };
        assert!(serde_json::from_str::<String>(value).is_ok_and(|value| !value.is_empty()), "{expected}: {text}");
    }
    assert!(!text.contains('\n'), "{text}");
}

/// Reads the list as Go does: members in their order, the last of equal names wins, and `null` sets nothing.
fn by_serde(body: &Members<'_>) -> Result<List, String> {
    let mut list = List { type_meta: TypeMeta::default(), list_meta: ListMeta::default(), items: Vec::new() };
    let (mut has_items, mut may_be_status) = (false, true);
    for (name, value) in &body.0 {
        let (value, is_null) = (value.get(), value.get() == "null");
        match name.as_str() {
            "apiVersion" | "kind" | "metadata" if is_null => {}
            "apiVersion" | "kind" => {
                let text = text(value)?;
                let TypeMeta { api_version, kind, .. } = &mut list.type_meta;
                *(if name == "kind" { &mut *kind } else { &mut *api_version }) = text;
                let is_status = may_be_status && kind == "Status" && matches!(api_version.as_str(), "" | "v1");
                if !api_version.is_empty() && !kind.is_empty() && !is_status {
                    check_kind(&list.type_meta)?;
                    may_be_status = false;
                }
            }
            "metadata" => merge_list_meta(&mut list.list_meta, value)?,
            // The decoder has already returned the first items.
            "items" if !list.items.is_empty() => return Err("items twice".to_owned()),
            "items" if is_null => has_items = true,
            "items" => {
                let items: Vec<&RawValue> = serde_json::from_str(value).map_err(|error| error.to_string())?;
                if !list.type_meta.kind.is_empty() {
                    check_kind(&list.type_meta)?;
                }
                (has_items, may_be_status) = (true, false);
                for item in items {
                    // The server writes its error in place of an item that it cannot encode.
                    let is_status = item.get().starts_with(r#"{"kind":"Status","apiVersion":"v1""#);
                    if is_status || !item.get().starts_with(['{', 'n']) {
                        return Err(format!("an item {item}"));
                    }
                    list.items.push(item.get().into());
                }
            }
            // An event of a watch.
            "object" if list.type_meta.kind.is_empty() && value.starts_with('{') => return Err("a watch".to_owned()),
            _ => {}
        }
    }
    check_kind(&list.type_meta)?;
    if list.type_meta.api_version.is_empty() || !has_items {
        return Err("no version, or no items".to_owned());
    }
    Ok(list)
}

fn text(json: &str) -> Result<String, String> {
    serde_json::from_str(json).map_err(|error| error.to_string())
}

fn check_kind(TypeMeta { api_version, kind, .. }: &TypeMeta) -> Result<(), String> {
    let is_table = kind == "Table" && api_version.starts_with("meta.k8s.io/");
    let is_list = !is_table && !["", "Status", "APIResourceList", "APIGroupList"].contains(&kind.as_str());
    if is_list { Ok(()) } else { Err(format!("a {kind:?}")) }
}

fn merge_list_meta(list_meta: &mut ListMeta, json: &str) -> Result<(), String> {
    let Members(members) = serde_json::from_str(json).map_err(|error| error.to_string())?;
    for (name, value) in members {
        let value = value.get();
        match name.as_str() {
            // `null` resets a field that is a pointer in Go.
            "remainingItemCount" => {
                list_meta.remaining_item_count = match serde_json::from_str(value) {
                    Ok(Value::Null) => None,
                    Ok(Value::Number(number)) if number.is_i64() => number.as_i64(),
                    _ => return Err(format!("a remainingItemCount of {value}")),
                };
            }
            "shardInfo" if value == "null" => list_meta.shard_info = None,
            "shardInfo" => {
                let shard_info = list_meta.shard_info.get_or_insert_default();
                let Members(members) = serde_json::from_str(value).map_err(|error| error.to_string())?;
                for (name, value) in members {
                    if name == "selector" && value.get() != "null" {
                        shard_info.selector = text(value.get())?;
                    }
                }
            }
            "resourceVersion" if value != "null" => list_meta.resource_version = text(value)?,
            "continue" if value != "null" => list_meta.continue_token = text(value)?,
            _ => {}
        }
    }
    Ok(())
}

/// Returns the body without the values that the decoder skips.
fn without_unread(body: &[u8]) -> Vec<u8> {
    let mut read = Vec::new();
    // The decoder does not read a name over 64 bytes.
    copy_members(body, of_list, 64, &mut read);
    read
}

/// The part of a member that the decoder reads.
enum Part {
    Whole,
    Members(fn(&str) -> Part),
    Items,
    Unread,
}

fn of_list(name: &str) -> Part {
    match name {
        "apiVersion" | "kind" => Part::Whole,
        "metadata" => Part::Members(of_list_meta),
        "items" => Part::Items,
        _ => Part::Unread,
    }
}

fn of_list_meta(name: &str) -> Part {
    match name {
        "resourceVersion" | "continue" | "remainingItemCount" => Part::Whole,
        "shardInfo" => Part::Members(of_shard_info),
        _ => Part::Unread,
    }
}

fn of_shard_info(name: &str) -> Part {
    if name == "selector" { Part::Whole } else { Part::Unread }
}

fn copy_members(object: &[u8], part_of: fn(&str) -> Part, longest_name: usize, read: &mut Vec<u8>) {
    let mut rest = copy_until(object, b"{", read);
    // The loop ends at the first byte that begins no member. The rest is copied, so that serde_json refuses it.
    while let Some(b'"') = rest.first() {
        let (name, after) = value(rest);
        let is_read = name.len() <= longest_name;
        let part = match serde_json::from_slice::<String>(name) {
            _ if !is_read => Part::Unread,
            Ok(name) => part_of(&name),
            Err(_) => Part::Whole,
        };
        read.extend_from_slice(if is_read { name } else { b"\"\"" });
        rest = copy_until(after, b":", read);
        let (whole, after) = value(rest);
        match part {
            Part::Unread => read.extend_from_slice(b"null"),
            Part::Items if whole.starts_with(b"[") => without_items(whole, read),
            Part::Members(part_of) if whole.starts_with(b"{") => copy_members(whole, part_of, usize::MAX, read),
            _ => read.extend_from_slice(whole),
        }
        rest = copy_until(after, b",", read);
    }
    read.extend_from_slice(rest);
}

fn without_items(items: &[u8], read: &mut Vec<u8>) {
    let mut rest = copy_until(items, b"[", read);
    while rest.starts_with(b"{") {
        read.extend_from_slice(b"{}");
        rest = copy_until(value(rest).1, b",", read);
    }
    read.extend_from_slice(rest);
}

/// Copies the wanted byte, if it is next, and the whitespace around it. Returns the rest.
fn copy_until<'a>(bytes: &'a [u8], wanted: &[u8], copy: &mut Vec<u8>) -> &'a [u8] {
    let rest = bytes.trim_ascii_start();
    let rest = rest.strip_prefix(wanted).unwrap_or(rest).trim_ascii_start();
    copy.extend_from_slice(&bytes[..bytes.len() - rest.len()]);
    rest
}

/// Splits off the first value, whose end it finds by brackets and quotes. Returns the value and the rest.
fn value(bytes: &[u8]) -> (&[u8], &[u8]) {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    let is_scalar = !matches!(bytes.first(), Some(b'"' | b'{' | b'['));
    for (at, &byte) in bytes.iter().enumerate() {
        // Outside of a string, where it is malformed, a backslash escapes a quote, but no bracket.
        let was_escaped = mem::take(&mut escaped);
        match byte {
            b',' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n' if is_scalar => return bytes.split_at(at),
            _ if is_scalar => {}
            b'\\' => escaped = !was_escaped,
            b'"' if was_escaped => continue,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => depth += 1,
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        let ends = matches!(byte, b'"' | b'}' | b']') && depth == 0 && !in_string;
        if !is_scalar && ends {
            return bytes.split_at(at + 1);
        }
    }
    (bytes, b"")
}
