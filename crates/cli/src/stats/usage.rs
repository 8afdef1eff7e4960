//! `listwatch stats --from FILE` of an etcd file: what takes its space.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use indicatif::HumanCount;
use listwatch_etcd::{DataFile, KeyUsage, Usage, UsedKey};
use maud::html;
use serde_json::{Value, json};

use super::html::{date, page_of, render_table};
use super::report::{format_size, table};
use crate::escape::escape_controls;

/// The bytes of keys that are kept in memory while they are counted.
const SORT_MEMORY: usize = 64 << 20;

pub struct UsageReport {
    file: String,
    size: u64,
    revision: i64,
    usage: Usage,
    /// The number of rows for each table.
    top: usize,
}

impl UsageReport {
    /// Reads the pages of the file, without the values.
    pub fn read(path: &Path, top: usize) -> Result<Self, String> {
        let file = DataFile::open(path).map_err(|error| error.to_string())?;
        let usage = file.usage(top, SORT_MEMORY).map_err(|error| error.to_string())?;
        let name = path.to_string_lossy().into_owned();
        Ok(Self { file: name, size: file.size(), revision: file.newest_revision(), usage, top })
    }

    fn title(&self) -> String {
        format!("{} at revision {}", escape_controls(&self.file), self.revision)
    }

    /// Returns the numbers about the whole file, each with its name.
    fn facts(&self) -> Vec<(&'static str, String)> {
        let Usage { page_size, pages, free_pages, total, .. } = &self.usage;
        let KeyUsage { keys, bytes, deleted_keys, old_revisions, old_bytes, .. } = total;
        let count = |number: &u64| HumanCount(*number).to_string();
        vec![
            ("file", format_size(self.size)),
            ("allocated pages", format_size(pages * page_size)),
            ("free pages, which a defragmentation gives back", format_size(free_pages * page_size)),
            ("keys", format!("{} in {}", count(keys), format_size(*bytes))),
            ("deleted keys, not compacted", count(deleted_keys)),
            (
                "old revisions, which a compaction frees",
                format!("{} in {}", count(old_revisions), format_size(*old_bytes)),
            ),
        ]
    }

    /// Returns the rows of groups, the largest first, and the rest as `others`.
    fn rows(&self, groups: &BTreeMap<String, KeyUsage>) -> Vec<(String, KeyUsage)> {
        let mut rows: Vec<_> = groups.iter().map(|(name, usage)| (label(name), *usage)).collect();
        rows.sort_by_key(|(_, usage)| std::cmp::Reverse(usage.bytes + usage.old_bytes));
        let rest = rows.split_off(self.top.min(rows.len()));
        if !rest.is_empty() {
            let mut others = KeyUsage::default();
            for (_, usage) in &rest {
                others.keys += usage.keys;
                others.bytes += usage.bytes;
                others.deleted_keys += usage.deleted_keys;
                others.old_revisions += usage.old_revisions;
                others.old_bytes += usage.old_bytes;
            }
            rows.push((format!("{} others", rest.len()), others));
        }
        rows
    }

    fn groups(&self) -> [(&'static str, Vec<(String, KeyUsage)>); 2] {
        [("RESOURCE", self.rows(&self.usage.by_resource)), ("NAMESPACE", self.rows(&self.usage.by_namespace))]
    }

    pub fn print_tables(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{}", self.title())?;
        for (name, value) in self.facts() {
            writeln!(out, "  {name}: {value}")?;
        }
        for (name, rows) in self.groups() {
            let mut table = table([name, "KEYS", "BYTES", "DELETED", "OLD REVISIONS", "OLD BYTES"], 1);
            for (name, usage) in rows {
                table.add_row(group_cells(&name, &usage));
            }
            writeln!(out, "\n{table}")?;
        }
        let mut most = table(["MOST REVISIONS", "REVISIONS", "BYTES"], 1);
        for UsedKey { key, revisions, bytes, .. } in &self.usage.most_revisions {
            most.add_row([label(key), HumanCount(*revisions).to_string(), format_size(*bytes)]);
        }
        writeln!(out, "\n{most}")?;
        let mut largest = table(["LARGEST", "BYTES"], 1);
        for UsedKey { key, newest_bytes, .. } in &self.usage.largest {
            largest.add_row([label(key), format_size(*newest_bytes)]);
        }
        writeln!(out, "\n{largest}")
    }

    pub fn print_json(&self, out: &mut impl Write) -> io::Result<()> {
        let Usage { page_size, pages, free_pages, key_pages, total, by_resource, by_namespace, .. } = &self.usage;
        let groups = |groups: &BTreeMap<String, KeyUsage>| -> Value {
            groups.iter().map(|(name, usage)| (name.clone(), usage_json(usage))).collect()
        };
        let keys = |keys: &[UsedKey]| -> Value {
            let key = |UsedKey { key, revisions, bytes, newest_bytes, .. }: &UsedKey| json!({"key": key, "revisions": revisions, "bytes": bytes, "newestBytes": newest_bytes});
            keys.iter().map(key).collect()
        };
        let report = json!({
            "file": self.file, "size": self.size, "revision": self.revision, "pageSize": page_size, "pages": pages,
            "freePages": free_pages, "keyPages": key_pages, "total": usage_json(total),
            "resources": groups(by_resource), "namespaces": groups(by_namespace),
            "mostRevisions": keys(&self.usage.most_revisions), "largest": keys(&self.usage.largest),
        });
        serde_json::to_writer(&mut *out, &report)?;
        writeln!(out)
    }

    /// Returns the report as a page that loads nothing.
    pub fn render_page(&self) -> String {
        let contents = html! {
            dl { @for (name, value) in self.facts() { div { dt { (name) } dd { (value) } } } }
            @for (name, rows) in self.groups() {
                section {
                    h2 { "By " (name.to_lowercase()) }
                    (render_table(
                        "Keys and bytes of the newest revisions, and what a compaction would free.",
                        &[name.to_lowercase().as_str(), "Keys", "Bytes", "Deleted", "Old revisions", "Old bytes"],
                        rows.iter().map(|(name, usage)| group_cells(name, usage)),
                    ))
                }
            }
            @for (title, caption, keys) in [
                ("Most revisions", "The keys that are written most often.", &self.usage.most_revisions),
                ("Largest", "The keys with the largest values.", &self.usage.largest),
            ] {
                section {
                    h2 { (title) }
                    (render_table(caption, &["Key", "Revisions", "Newest", "All revisions"], keys.iter().map(key_cells)))
                }
            }
        };
        page_of(&format!("{}, read on {}", self.title(), date()), &contents)
    }
}

fn group_cells(name: &str, usage: &KeyUsage) -> Vec<String> {
    let KeyUsage { keys, bytes, deleted_keys, old_revisions, old_bytes, .. } = *usage;
    let [keys, deleted, old] = [keys, deleted_keys, old_revisions].map(|number| HumanCount(number).to_string());
    vec![name.to_owned(), keys, format_size(bytes), deleted, old, format_size(old_bytes)]
}

fn key_cells(UsedKey { key, revisions, bytes, newest_bytes, .. }: &UsedKey) -> Vec<String> {
    vec![label(key), HumanCount(*revisions).to_string(), format_size(*newest_bytes), format_size(*bytes)]
}

fn usage_json(usage: &KeyUsage) -> Value {
    let KeyUsage { keys, bytes, deleted_keys, old_revisions, old_bytes, .. } = usage;
    json!({"keys": keys, "bytes": bytes, "deletedKeys": deleted_keys, "oldRevisions": old_revisions, "oldBytes": old_bytes})
}

fn label(name: &str) -> String {
    if name.is_empty() { "(none)".to_owned() } else { escape_controls(name).into_owned() }
}
