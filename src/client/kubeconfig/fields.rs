//! Typed access to the fields of a kubeconfig.

use std::collections::HashMap;
use std::path::{self, Path, PathBuf};

use base64::prelude::{BASE64_STANDARD, Engine};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use secrecy::SecretString;
use serde_json::{Map, Value};

use crate::client::http_transport::Pem;

/// The error is a text that quotes no value, because a value may be a credential.
pub(super) type Result<T> = std::result::Result<T, String>;

pub(super) fn invalid<T>(message: impl Into<String>) -> Result<T> {
    Err(message.into())
}

/// The fields of one part of a kubeconfig: a document, a context, a cluster, a user, or a mapping in them.
///
/// Null and the empty string mean unset. Errors name the field without quoting its value.
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

    /// Returns the kind and name of this part, or `otherwise` if the kubeconfig has no such part.
    pub(super) fn what<'a>(&'a self, otherwise: &'a str) -> &'a str {
        if self.what.is_empty() { otherwise } else { &self.what }
    }

    fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key).filter(|value| !value.is_null())
    }

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

    pub(super) fn path(&self, key: &str) -> Result<Option<PathBuf>> {
        Ok(self.text(key)?.map(|path| self.folder.join(path)))
    }

    /// Returns a command: a path, or the name of a program in `PATH`.
    pub(super) fn command(&self, key: &str) -> Result<Option<String>> {
        match self.text(key)? {
            Some(command) if command.contains(path::MAIN_SEPARATOR) => {
                Ok(Some(self.folder.join(command).to_string_lossy().into_owned()))
            }
            command => Ok(command),
        }
    }

    /// Decodes base64 that may contain line breaks and other white space.
    pub(super) fn decoded_base64(&self, key: &str) -> Result<Option<Vec<u8>>> {
        let text = self.text(key)?.map(|text| text.split_ascii_whitespace().collect::<String>());
        match text.filter(|text| !text.is_empty()).map(|text| BASE64_STANDARD.decode(text)) {
            None => Ok(None),
            Some(Ok(bytes)) => Ok(Some(bytes)),
            Some(Err(_)) => self.type_error(key, "base64"),
        }
    }

    /// Returns a certificate or a key, from PEM in base64 or else from a file, as in client-go.
    pub(super) fn pem(&self, data: &str, file: &str) -> Result<Option<Pem>> {
        match self.decoded_base64(data)?.map(String::from_utf8) {
            Some(Ok(text)) => Ok(Some(Pem::Text(text.into()))),
            Some(Err(_)) => self.type_error(data, "PEM in base64"),
            None => Ok(self.path(file)?.map(Pem::File)),
        }
    }

    pub(super) fn certificates(&self) -> Result<Option<Vec<u8>>> {
        const KEY: &str = "certificate-authority-data";
        let Some(pem) = self.decoded_base64(KEY)? else { return Ok(None) };
        if CertificateDer::pem_slice_iter(&pem).any(|found| found.is_ok()) {
            return Ok(Some(pem));
        }
        self.type_error(KEY, "a certificate as PEM in base64")
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

    pub(super) fn text_lists(&self, key: &str) -> Result<Vec<(String, Vec<String>)>> {
        let Some(fields) = self.fields(key)? else { return Ok(Vec::new()) };
        fields.values.keys().map(|name| Ok((name.clone(), fields.texts(name)?))).collect()
    }

    pub(super) fn all_texts(&self) -> Result<HashMap<String, SecretString>> {
        self.values.keys().map(|key| Ok((key.clone(), self.text(key)?.unwrap_or_default().into()))).collect()
    }

    /// Returns environment variables, each with a name and a value, which may be empty.
    pub(super) fn variables(&self, key: &str) -> Result<Vec<(String, String)>> {
        let variable = |entry: &Value| {
            let Value::Object(values) = entry else { return self.type_error(key, "a list of names and values") };
            let entry = Self::new(format!("{}: {key}", self.what), &self.folder, values.clone());
            let Some(name) = entry.text("name")? else { return self.type_error(key, "a list of names and values") };
            Ok((name, entry.text("value")?.unwrap_or_default()))
        };
        self.list(key)?.iter().map(variable).collect()
    }

    pub(super) fn extension(&self, name: &str) -> Result<Option<Value>> {
        let named = |entry: &&Value| entry.get("name").and_then(Value::as_str) == Some(name);
        Ok(self.list("extensions")?.iter().find(named).and_then(|entry| entry.get("extension")).cloned())
    }
}
