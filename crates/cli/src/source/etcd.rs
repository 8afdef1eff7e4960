//! An etcd data file or snapshot as a source.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use listwatch::client::Resource;
use listwatch::{Encoding, ItemRef};
use listwatch_etcd::{DataFile, EncryptionConfig, KeyValue, State, StorageKey, StoredValue, storage_prefix};

use super::definitions::resources_of;
use super::objects::{Cursor, ListedResource, Object, ObjectSource};
use super::yaml::yaml_to_json;
use crate::notices;

/// The bytes of keys that are kept in memory while they are sorted.
const SORT_MEMORY: usize = 64 << 20;

pub struct EtcdSource {
    file: DataFile,
    root: String,
    revision: i64,
    reading: Arc<Reading>,
}

/// How values are read.
struct Reading {
    encryption: Option<EncryptionConfig>,
    skips_encrypted: bool,
}

pub struct EtcdOptions<'a> {
    pub revision: Option<i64>,
    pub encryption_config: Option<&'a Path>,
    pub skips_encrypted: bool,
}

impl EtcdSource {
    /// Opens the file, and says on stderr what state it has.
    pub fn open(path: &Path, options: &EtcdOptions<'_>) -> Result<Self, String> {
        let encryption = options.encryption_config.map(read_encryption_config).transpose()?;
        let file = DataFile::open(path).map_err(|error| error.to_string())?;
        let root = file.find_root().map_err(|error| error.to_string())?.unwrap_or_else(|| "/registry".to_owned());
        let revision = options.revision.unwrap_or(file.newest_revision());
        let newest = file.newest_revision();
        let of_older = if revision == newest { String::new() } else { format!(" whose newest is {newest}") };
        let index = file.consistent_index().map(|index| format!(", at index {index} of the log")).unwrap_or_default();
        let missing = match file.missing_log_entries() {
            Ok(Some(count @ 1..)) => format!("; {count} later entries are only in the write-ahead log, and not read"),
            Ok(_) => String::new(),
            Err(error) => format!("; the write-ahead log was not read: {error}"),
        };
        let text = format!("revision {revision} of an etcd file{of_older}{index}{missing}");
        notices::print_labelled("reading:", &text);
        // A revision that the file does not have is an error at once.
        if let Some(revision) = options.revision {
            file.check_revision(revision).map_err(|error| error.to_string())?;
        }
        let reading = Arc::new(Reading { encryption, skips_encrypted: options.skips_encrypted });
        Ok(Self { file, root, revision, reading })
    }

    fn state(&self, prefix: &str) -> Result<State, String> {
        self.file.state(prefix.as_bytes(), Some(self.revision), SORT_MEMORY).map_err(|error| error.to_string())
    }
}

fn read_encryption_config(path: &Path) -> Result<EncryptionConfig, String> {
    let of_file = |error: String| format!("{}: {error}", path.to_string_lossy());
    let text = fs::read_to_string(path).map_err(|error| of_file(error.to_string()))?;
    // An error of the parser could quote a secret.
    let json = yaml_to_json(&text).map_err(|_| of_file("it is not YAML".to_owned()))?;
    EncryptionConfig::from_json(&json).map_err(|error| of_file(error.to_string()))
}

impl ObjectSource for EtcdSource {
    fn version(&self) -> String {
        self.revision.to_string()
    }

    fn objects(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        name: Option<&str>,
    ) -> Result<Box<dyn Cursor>, String> {
        let mut prefix = storage_prefix(&self.root, resource.group(), resource.plural(), namespace);
        if let Some(name) = name.filter(|_| namespace.is_some() || !resource.is_namespaced()) {
            prefix.push_str(name);
        }
        let state = self.state(&prefix)?;
        Ok(Box::new(EtcdCursor {
            state,
            reading: Arc::clone(&self.reading),
            unread: BTreeMap::new(),
            has_ended: false,
        }))
    }

    fn custom_resources(&self) -> Result<Vec<ListedResource>, String> {
        let mut definitions = self.objects(&Resource::CUSTOM_RESOURCE_DEFINITIONS, None, None)?;
        let mut resources = Vec::new();
        while let Some(definition) = definitions.next()? {
            resources.extend(resources_of(&definition.json()?));
        }
        Ok(resources)
    }

    fn found(&self) -> Result<Vec<String>, String> {
        let mut state = self.state("")?;
        let mut found = BTreeMap::new();
        while let Some(key) = state.next_key().map_err(|error| error.to_string())? {
            if let Some(StorageKey { group, resource, .. }) = StorageKey::parse(key, &self.root) {
                let name = group.map_or_else(|| resource.to_owned(), |group| format!("{resource}.{group}"));
                found.entry(name).or_insert(());
            } else if let Some(root) = other_root(key, &self.root) {
                found.entry(format!("keys under {root}, which are not read")).or_insert(());
            }
        }
        Ok(found.into_keys().collect())
    }

    fn hint(&self, resource: &Resource) -> Option<&'static str> {
        (resource.plural() == "events")
            .then_some("the API server may keep events in another etcd (--etcd-servers-overrides)")
    }
}

/// Returns the first part of a key under another folder.
fn other_root<'a>(key: &'a [u8], root: &str) -> Option<&'a str> {
    let key = std::str::from_utf8(key).ok().filter(|key| key.starts_with('/') && !key.starts_with(root))?;
    key.get(1..)?.find('/').and_then(|end| key.get(..=end))
}

struct EtcdCursor {
    state: State,
    reading: Arc<Reading>,
    /// Why values were not read, and how many.
    unread: BTreeMap<Unread, u64>,
    has_ended: bool,
}

/// Why a value was not read.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Unread {
    Encrypted(String),
    Other(String),
}

impl Cursor for EtcdCursor {
    fn next(&mut self) -> Result<Option<Object>, String> {
        if self.has_ended {
            return Ok(None);
        }
        while let Some(entry) = self.state.next().map_err(|error| error.to_string())? {
            match read_value(&self.reading, &entry) {
                Ok(object) => return Ok(Some(object)),
                Err(reason) => match self.unread.entry(reason) {
                    Entry::Vacant(vacant) => drop(vacant.insert(1)),
                    Entry::Occupied(mut count) => *count.get_mut() += 1,
                },
            }
        }
        self.has_ended = true;
        self.report_unread().map(|()| None)
    }
}

impl EtcdCursor {
    /// Objects that were not read are an error after the last object, unless encrypted ones are skipped.
    fn report_unread(&mut self) -> Result<(), String> {
        let unread = std::mem::take(&mut self.unread);
        let mut faults = Vec::new();
        for (reason, count) in unread {
            let objects = if count == 1 { "object" } else { "objects" };
            match reason {
                Unread::Encrypted(how) if self.reading.skips_encrypted => {
                    notices::warn(&format!("skipped {count} encrypted {objects}: {how}"));
                }
                Unread::Encrypted(how) => {
                    faults.push(format!(
                        "{count} {objects} not decrypted: {how}; --skip-encrypted leaves such objects out"
                    ));
                }
                Unread::Other(how) => faults.push(format!("{count} {objects} not read: {how}")),
            }
        }
        if faults.is_empty() { Ok(()) } else { Err(faults.join("; ")) }
    }
}

fn read_value(reading: &Reading, entry: &KeyValue<'_>) -> Result<Object, Unread> {
    let decrypted = match &reading.encryption {
        Some(config) => config.decrypt(entry.key, entry.value).map_err(|error| Unread::Encrypted(error.to_string()))?,
        None => None,
    };
    let value = StoredValue::of(decrypted.as_deref().unwrap_or(entry.value));
    let damaged = || Unread::Other(format!("{} is malformed", String::from_utf8_lossy(entry.key)));
    let yaml;
    let value = match value {
        StoredValue::Encrypted { provider, key_name } => {
            let remedy = if provider == "kms" {
                "which has the key, so only the API server can read it"
            } else {
                "whose key is in the API server's --encryption-config"
            };
            return Err(Unread::Encrypted(format!("encrypted by {provider} {key_name:?}, {remedy}")));
        }
        StoredValue::Cbor => return Err(Unread::Other("stored as CBOR, which this release does not read".to_owned())),
        StoredValue::Yaml(text) => {
            let text = std::str::from_utf8(text).map_err(|_| damaged())?;
            yaml = yaml_to_json(text).map_err(|_| damaged())?;
            StoredValue::Json(&yaml)
        }
        value => value,
    };
    let (encoding, bytes) = value.object(entry.mod_revision).ok_or_else(damaged)?;
    let type_meta = match value {
        StoredValue::Protobuf { type_meta, .. } => type_meta,
        _ => ItemRef::new(Encoding::Json, &bytes).own_type_meta().ok().flatten().ok_or_else(damaged)?,
    };
    Ok(Object { encoding, type_meta, bytes })
}
