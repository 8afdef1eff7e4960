//! The objects of the server, and the log of their changes.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use serde_json::{Value, json};

use super::KINDS;

/// The place of the kind in [`KINDS`], the namespace and the name.
pub type Key = (usize, String, String);

/// One state of an object.
pub struct Stored {
    pub key: Key,
    pub json: String,
    pub labels: BTreeMap<String, String>,
    partial: OnceLock<String>,
}

/// A change: the states before and after it. A deletion has only the state before.
pub struct Logged {
    pub version: u64,
    pub old: Option<Arc<Stored>>,
    pub new: Option<Arc<Stored>>,
}

pub struct State {
    /// Never 0, which means any version in a request.
    pub version: u64,
    pub objects: BTreeMap<Key, Arc<Stored>>,
    pub log: Vec<Arc<Logged>>,
}

impl Default for State {
    fn default() -> Self {
        Self { version: 1, objects: BTreeMap::new(), log: Vec::new() }
    }
}

/// What the connections share.
#[derive(Default)]
pub struct Served {
    state: Mutex<State>,
    pub changed: Condvar,
}

/// Why a write is refused.
#[derive(Debug)]
pub enum Refusal {
    NotFound,
    Conflict,
    Invalid(String),
}

impl Stored {
    pub fn new(key: Key, object: &Value) -> Self {
        let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
        let labels = labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect();
        Self { key, json: object.to_string(), labels, partial: OnceLock::new() }
    }

    pub fn value(&self) -> Value {
        serde_json::from_str(&self.json).unwrap_or_default()
    }

    /// Returns the JSON of the object, or of its metadata alone.
    pub fn json(&self, is_partial: bool) -> &str {
        if !is_partial {
            return &self.json;
        }
        self.partial.get_or_init(|| {
            let metadata = &self.value()["metadata"];
            json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata}).to_string()
        })
    }
}

impl Served {
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns all objects of a kind, and their version.
    pub fn snapshot(&self, kind: usize) -> (Vec<Arc<Stored>>, u64) {
        let state = self.state();
        let from = (kind, String::new(), String::new());
        let objects = state.objects.range(from..).take_while(|((of, ..), _)| *of == kind);
        (objects.map(|(_, object)| Arc::clone(object)).collect(), state.version)
    }

    pub fn get(&self, key: &Key) -> Option<Arc<Stored>> {
        self.state().objects.get(key).cloned()
    }

    /// Writes the object that `change` makes of the present one. Returns the object as stored.
    pub fn write(
        &self,
        key: Key,
        change: impl FnOnce(Option<Value>) -> Result<Option<Value>, Refusal>,
    ) -> Result<Arc<Stored>, Refusal> {
        let mut state = self.state();
        let old = state.objects.get(&key).cloned();
        let old_value = old.as_ref().map(|old| old.value());
        let Some(mut object) = change(old_value.clone())? else { return old.ok_or(Refusal::NotFound) };
        let next = state.version + 1;
        complete(&mut object, old_value.as_ref(), &key, next);
        if let (Some(old), true) = (&old, old_value.as_ref() == Some(&object)) {
            return Ok(Arc::clone(old));
        }
        object["metadata"]["resourceVersion"] = next.to_string().into();
        let stored = Arc::new(Stored::new(key.clone(), &object));
        let is_gone = is_deleting(&object) && !has_finalizers(&object);
        state.version = next;
        let new = (!is_gone).then(|| Arc::clone(&stored));
        match &new {
            Some(new) => state.objects.insert(key, Arc::clone(new)),
            None => state.objects.remove(&key),
        };
        state.log.push(Arc::new(Logged { version: next, old, new }));
        drop(state);
        self.changed.notify_all();
        Ok(stored)
    }

    pub fn delete(&self, key: Key) -> Result<Arc<Stored>, Refusal> {
        self.write(key, |object| {
            let mut object = object.ok_or(Refusal::NotFound)?;
            if !is_deleting(&object) {
                object["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z".into();
            }
            Ok(Some(object))
        })
    }
}

/// Sets the fields that the server sets.
fn complete(object: &mut Value, old: Option<&Value>, (kind, namespace, name): &Key, next: u64) {
    let new_spec = old.is_none_or(|old| old["spec"] != object["spec"]);
    object["apiVersion"] = KINDS[*kind].api_version().into();
    object["kind"] = KINDS[*kind].kind.into();
    let kept = |field: &str| old.map(|old| old["metadata"][field].clone());
    let metadata = &mut object["metadata"];
    metadata["name"] = name.clone().into();
    if KINDS[*kind].is_namespaced {
        metadata["namespace"] = namespace.clone().into();
    }
    metadata["uid"] = kept("uid").unwrap_or_else(|| format!("00000000-0000-4000-8000-{next:012x}").into());
    metadata["creationTimestamp"] = kept("creationTimestamp").unwrap_or_else(|| "2026-01-01T00:00:00Z".into());
    metadata["resourceVersion"] = kept("resourceVersion").unwrap_or_default();
    let generation = kept("generation").and_then(|generation| generation.as_u64()).unwrap_or(0);
    metadata["generation"] = (generation + u64::from(new_spec)).into();
}

fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

fn has_finalizers(object: &Value) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty())
}
