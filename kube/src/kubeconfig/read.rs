//! Files of kubeconfigs: YAML or JSON, merged, with typed access to their fields.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::{fs, io, path};

use base64::prelude::{BASE64_STANDARD, Engine};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Map, Value};
use serde_saphyr::{DuplicateKeyPolicy, options};

use super::{KubeconfigError, Result, invalid};

/// The files of a kubeconfig. The first value and the first entry of a name win.
pub(super) struct Merged {
    pub(super) current_context: Option<String>,
    pub(super) contexts: Entries,
    pub(super) clusters: Entries,
    pub(super) users: Entries,
}

/// The named entries of one kind, in the order of files.
pub(super) struct Entries {
    kind: &'static str,
    entries: Vec<Entry>,
}

struct Entry {
    name: String,
    /// The number of its document.
    document: usize,
    fields: Fields,
}

impl Merged {
    /// Reads these files. One that does not exist is an error if it is `required`, else it is skipped.
    pub(super) fn read(files: &[PathBuf], required: bool) -> Result<Self> {
        let entries = |kind| Entries { kind, entries: Vec::new() };
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
            for document in documents(&bytes).map_err(|error| error.at(file))? {
                count += 1;
                merged.add(&Fields::new(String::new(), folder, document), count).map_err(|error| error.at(file))?;
            }
        }
        Ok(merged)
    }

    fn add(&mut self, document: &Fields, number: usize) -> Result<()> {
        for (key, expected) in [("kind", "Config"), ("apiVersion", "v1")] {
            if let Some(found) = document.text(key)?.filter(|found| found != expected) {
                return invalid(format!("not a kubeconfig: {key} is {found:?}, not {expected:?}"));
            }
        }
        if self.current_context.is_none() {
            self.current_context = document.text("current-context")?;
        }
        self.contexts.add(document, "contexts", number)?;
        self.clusters.add(document, "clusters", number)?;
        self.users.add(document, "users", number)
    }
}

impl Entries {
    fn add(&mut self, document: &Fields, key: &str, number: usize) -> Result<()> {
        for entry in document.list(key)? {
            let Value::Object(values) = entry else { return invalid(format!("an entry of {key} is not a mapping")) };
            let entry = Fields::new(key.to_owned(), &document.folder, values.clone());
            let name = entry.text("name")?.unwrap_or_default();
            let mut fields = entry.fields(self.kind)?.unwrap_or_default();
            fields.folder.clone_from(&document.folder);
            fields.what = format!("{} {name:?}", self.kind);
            self.entries.push(Entry { name, document: number, fields });
        }
        Ok(())
    }

    /// Returns the entry with this name. client-go refuses two in one file.
    pub(super) fn get(&self, name: &str) -> Result<Option<Fields>> {
        let mut found = self.entries.iter().filter(|entry| entry.name == name);
        let Some(first) = found.next() else { return Ok(None) };
        if found.any(|other| other.document == first.document) {
            return invalid(format!("two of the {}s have the name {name:?}", self.kind));
        }
        Ok(Some(first.fields.clone()))
    }
}

impl KubeconfigError {
    fn at(self, file: &Path) -> Self {
        Self(format!("{}: {}", file.display(), self.0))
    }
}

/// The fields of a part of a kubeconfig. Null and the empty string mean unset. Errors name the field, and do not quote
/// its value.
#[derive(Clone, Default)]
pub(super) struct Fields {
    /// Which part this is.
    what: String,
    /// The folder of the file, to which paths are relative.
    folder: PathBuf,
    values: Map<String, Value>,
}

impl Fields {
    fn new(what: String, folder: &Path, values: Map<String, Value>) -> Self {
        Self { what, folder: folder.to_owned(), values }
    }

    /// Returns the kind and name of this part; `otherwise` if the kubeconfig has no such part.
    pub(super) fn what<'a>(&'a self, otherwise: &'a str) -> &'a str {
        if self.what.is_empty() { otherwise } else { &self.what }
    }

    fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key).filter(|value| !value.is_null())
    }

    fn not<T>(&self, key: &str, expected: &str) -> Result<T> {
        let of = if self.what.is_empty() { String::new() } else { format!("{}: ", self.what) };
        invalid(format!("{of}{key} is not {expected}"))
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<String>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone()).filter(|text| !text.is_empty())),
            Some(_) => self.not(key, "a string"),
        }
    }

    pub(super) fn flag(&self, key: &str) -> Result<bool> {
        match self.get(key) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            // The booleans of YAML 1.1, which kubectl reads.
            Some(Value::String(text)) if matches!(&*text.to_ascii_lowercase(), "yes" | "on") => Ok(true),
            Some(Value::String(text)) if matches!(&*text.to_ascii_lowercase(), "no" | "off" | "") => Ok(false),
            Some(_) => self.not(key, "true or false"),
        }
    }

    /// Returns a path as an absolute one.
    pub(super) fn path(&self, key: &str) -> Result<Option<String>> {
        Ok(self.text(key)?.map(|path| self.folder.join(path).to_string_lossy().into_owned()))
    }

    /// Returns a command: a path, or the name of a program in `PATH`.
    pub(super) fn command(&self, key: &str) -> Result<Option<String>> {
        match self.text(key)? {
            Some(command) if command.contains(path::MAIN_SEPARATOR) => self.path(key),
            command => Ok(command),
        }
    }

    /// Returns base64 without line breaks and other white space.
    pub(super) fn wrapped(&self, key: &str) -> Result<Option<String>> {
        let text = self.text(key)?.map(|text| text.split_ascii_whitespace().collect::<String>());
        Ok(text.filter(|text| !text.is_empty()))
    }

    pub(super) fn base64(&self, key: &str) -> Result<Option<Vec<u8>>> {
        match self.wrapped(key)?.map(|text| BASE64_STANDARD.decode(text)) {
            None => Ok(None),
            Some(Ok(bytes)) => Ok(Some(bytes)),
            Some(Err(_)) => self.not(key, "base64"),
        }
    }

    /// Returns the certificates in the PEM text of `certificate-authority-data`.
    pub(super) fn certificates(&self, pem: &[u8]) -> Result<Vec<Vec<u8>>> {
        let found = CertificateDer::pem_slice_iter(pem).filter_map(std::result::Result::ok);
        let found: Vec<_> = found.map(|certificate| certificate.to_vec()).collect();
        if found.is_empty() {
            self.not("certificate-authority-data", "a certificate as PEM in base64")
        } else {
            Ok(found)
        }
    }

    fn list(&self, key: &str) -> Result<&[Value]> {
        match self.get(key) {
            None => Ok(&[]),
            Some(Value::Array(list)) => Ok(list),
            Some(_) => self.not(key, "a list"),
        }
    }

    pub(super) fn texts(&self, key: &str) -> Result<Vec<String>> {
        let texts = self.list(key)?.iter().map(|text| text.as_str().map(str::to_owned));
        texts.collect::<Option<_>>().map_or_else(|| self.not(key, "a list of strings"), Ok)
    }

    pub(super) fn fields(&self, key: &str) -> Result<Option<Self>> {
        let what = if self.what.is_empty() { key.to_owned() } else { format!("{}: {key}", self.what) };
        match self.get(key) {
            None => Ok(None),
            Some(Value::Object(values)) => Ok(Some(Self::new(what, &self.folder, values.clone()))),
            Some(_) => self.not(key, "a mapping"),
        }
    }

    /// Returns a mapping from names to lists of strings; `None` if it is empty.
    pub(super) fn text_lists(&self, key: &str) -> Result<Option<HashMap<String, Vec<String>>>> {
        let Some(fields) = self.fields(key)?.filter(|fields| !fields.values.is_empty()) else { return Ok(None) };
        let lists = fields.values.keys().map(|name| Ok((name.clone(), fields.texts(name)?)));
        lists.collect::<Result<_>>().map(Some)
    }

    /// Returns all fields, which must be strings.
    pub(super) fn all_texts(&self) -> Result<HashMap<String, String>> {
        let texts = self.values.keys().map(|key| Ok((key.clone(), self.text(key)?.unwrap_or_default())));
        texts.collect()
    }

    /// Returns environment variables, each with a name and a value, which may be empty.
    pub(super) fn variables(&self, key: &str) -> Result<Vec<HashMap<String, String>>> {
        let variable = |entry: &Value| {
            let Value::Object(values) = entry else { return self.not(key, "a list of names and values") };
            let entry = Self::new(format!("{}: {key}", self.what), &self.folder, values.clone());
            let Some(name) = entry.text("name")? else { return self.not(key, "a list of names and values") };
            let value = entry.text("value")?.unwrap_or_default();
            Ok([("name".to_owned(), name), ("value".to_owned(), value)].into())
        };
        self.list(key)?.iter().map(variable).collect()
    }

    /// Returns the extension with this name.
    pub(super) fn extension(&self, name: &str) -> Result<Option<Value>> {
        let named = |entry: &&Value| entry.get("name").and_then(Value::as_str) == Some(name);
        Ok(self.list("extensions")?.iter().find(named).and_then(|entry| entry.get("extension")).cloned())
    }
}

/// Parses the documents of a file: YAML, of which JSON is a part. An empty one is left out.
fn documents(bytes: &[u8]) -> Result<Vec<Map<String, Value>>> {
    let Some(text) = decode(bytes) else { return invalid("not a kubeconfig: not UTF-8 text") };
    // JSON may be indented by tabs, YAML may not.
    let parsed = if let Ok(document) = serde_json::from_str(&text) {
        vec![document]
    } else {
        let options = options! {
            duplicate_keys: DuplicateKeyPolicy::LastWins,
            // Else a context could not have the name `y` or `on`.
            strict_booleans: true,
            with_snippet: false,
        };
        serde_saphyr::from_multiple_with_options::<Value>(&text, options).map_err(|error| {
            // The parser's own text may contain a token.
            let at = error.location().map(|at| format!(" at line {}, column {}", at.line(), at.column()));
            KubeconfigError(format!("not a kubeconfig: malformed YAML{}", at.unwrap_or_default()))
        })?
    };
    let mapping = |document| match document {
        Value::Object(values) => Some(Ok(values)),
        Value::Null => None,
        _ => Some(invalid("not a kubeconfig: not a mapping")),
    };
    parsed.into_iter().filter_map(mapping).collect()
}

/// Decodes UTF-8, or UTF-16 with a byte order mark, as Windows tools write it.
fn decode(bytes: &[u8]) -> Option<String> {
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
