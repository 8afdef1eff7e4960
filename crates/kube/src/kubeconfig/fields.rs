//! Typed access to the fields of a kubeconfig.

use std::collections::HashMap;
use std::path::{self, Path, PathBuf};

use base64::prelude::{BASE64_STANDARD, Engine};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Map, Value};

use super::error::{Result, invalid};

/// The fields of one part of a kubeconfig: a document, a context, a cluster, a user, or a mapping in them.
///
/// Null and the empty string mean unset. Errors name the field, and do not quote its value.
#[derive(Clone, Default)]
pub(super) struct KubeconfigFields {
    /// Which part this is.
    pub(super) what: String,
    /// The folder of the file, to which paths are relative.
    pub(super) folder: PathBuf,
    pub(super) values: Map<String, Value>,
}

impl KubeconfigFields {
    pub(super) fn new(what: String, folder: &Path, values: Map<String, Value>) -> Self {
        Self { what, folder: folder.to_owned(), values }
    }

    /// Returns the kind and name of this part; `otherwise` if the kubeconfig has no such part.
    pub(super) fn what<'a>(&'a self, otherwise: &'a str) -> &'a str {
        if self.what.is_empty() { otherwise } else { &self.what }
    }

    fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key).filter(|value| !value.is_null())
    }

    /// Returns the error of a value that is not of the expected type.
    fn type_error<T>(&self, key: &str, expected: &str) -> Result<T> {
        let of = if self.what.is_empty() { String::new() } else { format!("{}: ", self.what) };
        invalid(format!("{of}{key} is not {expected}"))
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<String>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone()).filter(|text| !text.is_empty())),
            Some(_) => self.type_error(key, "a string"),
        }
    }

    pub(super) fn flag(&self, key: &str) -> Result<bool> {
        match self.get(key) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            // The booleans of YAML 1.1, which kubectl reads.
            Some(Value::String(text)) if matches!(&*text.to_ascii_lowercase(), "yes" | "on") => Ok(true),
            Some(Value::String(text)) if matches!(&*text.to_ascii_lowercase(), "no" | "off" | "") => Ok(false),
            Some(_) => self.type_error(key, "true or false"),
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
    pub(super) fn base64_text(&self, key: &str) -> Result<Option<String>> {
        let text = self.text(key)?.map(|text| text.split_ascii_whitespace().collect::<String>());
        Ok(text.filter(|text| !text.is_empty()))
    }

    pub(super) fn decoded_base64(&self, key: &str) -> Result<Option<Vec<u8>>> {
        match self.base64_text(key)?.map(|text| BASE64_STANDARD.decode(text)) {
            None => Ok(None),
            Some(Ok(bytes)) => Ok(Some(bytes)),
            Some(Err(_)) => self.type_error(key, "base64"),
        }
    }

    /// Returns the certificates in the PEM text of `certificate-authority-data`.
    pub(super) fn certificates(&self, pem: &[u8]) -> Result<Vec<Vec<u8>>> {
        let found = CertificateDer::pem_slice_iter(pem).filter_map(std::result::Result::ok);
        let found: Vec<_> = found.map(|certificate| certificate.to_vec()).collect();
        if found.is_empty() {
            self.type_error("certificate-authority-data", "a certificate as PEM in base64")
        } else {
            Ok(found)
        }
    }

    pub(super) fn list(&self, key: &str) -> Result<&[Value]> {
        match self.get(key) {
            None => Ok(&[]),
            Some(Value::Array(list)) => Ok(list),
            Some(_) => self.type_error(key, "a list"),
        }
    }

    pub(super) fn texts(&self, key: &str) -> Result<Vec<String>> {
        let texts = self.list(key)?.iter().map(|text| text.as_str().map(str::to_owned));
        texts.collect::<Option<_>>().map_or_else(|| self.type_error(key, "a list of strings"), Ok)
    }

    pub(super) fn fields(&self, key: &str) -> Result<Option<Self>> {
        let what = if self.what.is_empty() { key.to_owned() } else { format!("{}: {key}", self.what) };
        match self.get(key) {
            None => Ok(None),
            Some(Value::Object(values)) => Ok(Some(Self::new(what, &self.folder, values.clone()))),
            Some(_) => self.type_error(key, "a mapping"),
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
            let Value::Object(values) = entry else { return self.type_error(key, "a list of names and values") };
            let entry = Self::new(format!("{}: {key}", self.what), &self.folder, values.clone());
            let Some(name) = entry.text("name")? else { return self.type_error(key, "a list of names and values") };
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
