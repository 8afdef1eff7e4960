//! The files of a kubeconfig: YAML or JSON, merged.

use std::path::{self, Path, PathBuf};
use std::{fs, io};

use serde_json::{Map, Value};

use super::fields::{KubeconfigFields, Result, invalid};
use crate::client::yaml::parse_yaml;

/// The files of a kubeconfig. The first value, and the first entry of a name, wins.
pub(super) struct MergedFiles {
    pub(super) current_context: Option<String>,
    pub(super) contexts: NamedEntries,
    pub(super) clusters: NamedEntries,
    pub(super) users: NamedEntries,
}

/// The named entries of one kind, in the order of files.
pub(super) struct NamedEntries {
    kind: &'static str,
    entries: Vec<NamedEntry>,
}

struct NamedEntry {
    name: String,
    /// The number of its document.
    document: usize,
    fields: KubeconfigFields,
}

impl MergedFiles {
    /// Reads these files. A file that does not exist is an error if it is `required`, and is skipped otherwise.
    pub(super) fn read(files: &[PathBuf], required: bool) -> Result<Self> {
        let entries = |kind| NamedEntries { kind, entries: Vec::new() };
        let mut merged = Self {
            current_context: None,
            contexts: entries("context"),
            clusters: entries("cluster"),
            users: entries("user"),
        };
        let mut count = 0;
        for (at, file) in files.iter().enumerate() {
            if files.iter().take(at).any(|earlier| earlier == file) {
                continue;
            }
            let bytes = match fs::read(file) {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::NotFound && !required => {
                    tracing::debug!(file = %file.display(), "a kubeconfig does not exist");
                    continue;
                }
                Err(error) => return invalid(format!("cannot read {}: {error}", file.display())),
            };
            let folder = path::absolute(file).ok();
            let folder = folder.as_deref().and_then(Path::parent).unwrap_or(Path::new("."));
            for document in parse_documents(&bytes).map_err(|error| format!("{}: {error}", file.display()))? {
                count += 1;
                merged
                    .add_document(&KubeconfigFields::new(String::new(), folder, document), count)
                    .map_err(|error| format!("{}: {error}", file.display()))?;
            }
        }
        Ok(merged)
    }

    fn add_document(&mut self, document: &KubeconfigFields, number: usize) -> Result<()> {
        for (key, expected) in [("kind", "Config"), ("apiVersion", "v1")] {
            if let Some(found) = document.text(key)?.filter(|found| found != expected) {
                return invalid(format!("not a kubeconfig: {key} is {found:?}, not {expected:?}"));
            }
        }
        if self.current_context.is_none() {
            self.current_context = document.text("current-context")?;
        }
        self.contexts.add_entries(document, "contexts", number)?;
        self.clusters.add_entries(document, "clusters", number)?;
        self.users.add_entries(document, "users", number)
    }
}

impl NamedEntries {
    fn add_entries(&mut self, document: &KubeconfigFields, key: &str, number: usize) -> Result<()> {
        for entry in document.list(key)? {
            let Value::Object(values) = entry else { return invalid(format!("an entry of {key} is not a mapping")) };
            let entry = KubeconfigFields::new(key.to_owned(), &document.folder, values.clone());
            let name = entry.text("name")?.unwrap_or_default();
            let mut fields = entry.fields(self.kind)?.unwrap_or_default();
            fields.folder.clone_from(&document.folder);
            fields.what = format!("{} {name:?}", self.kind);
            self.entries.push(NamedEntry { name, document: number, fields });
        }
        Ok(())
    }

    /// Returns the first entry with this name. As in client-go, two of them in one file are an error.
    pub(super) fn get(&self, name: &str) -> Result<Option<KubeconfigFields>> {
        let mut found = self.entries.iter().filter(|entry| entry.name == name);
        let Some(first) = found.next() else { return Ok(None) };
        if found.any(|other| other.document == first.document) {
            return invalid(format!("two of the {}s have the name {name:?}", self.kind));
        }
        Ok(Some(first.fields.clone()))
    }
}

/// Parses the documents of a file in YAML or JSON, without empty documents.
fn parse_documents(bytes: &[u8]) -> Result<Vec<Map<String, Value>>> {
    let Some(text) = decode_text(bytes) else { return invalid("not a kubeconfig: not UTF-8 text") };
    // JSON may be indented by tabs, but YAML may not.
    let parsed = if let Ok(document) = serde_json::from_str(&text) {
        vec![document]
    } else {
        // The parser's own text may contain a token.
        parse_yaml(&text)
            .map_err(|at| format!("not a kubeconfig: malformed YAML at line {}, column {}", at.line, at.column))?
    };
    let mapping = |document| match document {
        Value::Object(values) => Some(Ok(values)),
        Value::Null => None,
        _ => Some(invalid("not a kubeconfig: not a mapping")),
    };
    parsed.into_iter().filter_map(mapping).collect()
}

/// Decodes UTF-8, or UTF-16 with a byte order mark, as Windows tools write it.
fn decode_text(bytes: &[u8]) -> Option<String> {
    let utf16 = |bytes: &[u8], unit: fn([u8; 2]) -> u16| {
        let units = bytes.chunks_exact(2).filter_map(|pair| pair.try_into().ok()).map(unit);
        char::decode_utf16(units).collect::<std::result::Result<String, _>>().ok()
    };
    match bytes {
        [0xff, 0xfe, text @ ..] => utf16(text, u16::from_le_bytes),
        [0xfe, 0xff, text @ ..] => utf16(text, u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, text @ ..] | text => String::from_utf8(text.to_vec()).ok(),
    }
}
