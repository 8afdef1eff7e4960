//! Caches that a reflector keeps synced, and their changes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use listwatch::client::{Client, Resource, Selection};
use listwatch::{LabelSelector, TypeMeta};
use listwatch_cache::{
    Cache as RustCache, Change as RustChange, EndReason, FileError, Index, Object as CachedObject, Reflector,
    StorageFormat, Store, SyncError,
};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::change::Change;
use crate::errors::{self, Failure};
use crate::fields::Path;
use crate::object::Object;
use crate::options;
use crate::process::{OfProcess, runtime};
use crate::raw::Root;
use crate::stream::{self, Output, Stream};

/// The options of a cache.
#[derive(FromPyObject)]
pub struct CacheOptions {
    #[pyo3(item)]
    index: Vec<(String, String)>,
    #[pyo3(item)]
    compressed: bool,
    #[pyo3(item)]
    budget: Option<usize>,
    #[pyo3(item)]
    load: Option<PathBuf>,
    #[pyo3(item)]
    fail_fast: bool,
}

/// Options that were checked.
pub struct CheckedOptions {
    index: Vec<(String, Path)>,
    format: StorageFormat,
    budget: Option<usize>,
    load: Option<PathBuf>,
    fail_fast: bool,
}

impl CacheOptions {
    pub fn check(self, py: Python<'_>) -> PyResult<CheckedOptions> {
        let parse = |(name, path): (String, String)| Ok((name, Path::parse(&path)?));
        let index = self.index.into_iter().map(parse).collect::<Result<_, String>>();
        let index = index.map_err(|error| errors::invalid(py, error))?;
        let format = if self.compressed { StorageFormat::Compressed } else { StorageFormat::Encoded };
        Ok(CheckedOptions { index, format, budget: self.budget, load: self.load, fail_fast: self.fail_fast })
    }
}

/// What one process has of a cache.
struct Running {
    cache: RustCache<[u8]>,
    indexes: BTreeMap<String, Index<[u8], String>>,
    type_meta: Arc<TypeMeta>,
    /// True once the user closed it.
    is_closed: Mutex<bool>,
}

/// The garbage collector may drop a cache while an iterator over its changes is alive, which then ends too.
impl Drop for Running {
    fn drop(&mut self) {
        self.cache.stop();
    }
}

/// A whole collection in memory, which a watch keeps up to date.
#[pyclass(frozen, subclass, module = "listwatch._listwatch")]
pub struct Cache {
    running: Arc<OfProcess<Running>>,
}

const CACHE: &str = "cache";

/// Starts a cache.
pub async fn start(
    client: &Client,
    resource: &Resource,
    selection: Selection,
    namespaces: Option<Vec<String>>,
    options: CheckedOptions,
) -> Result<Output, Failure> {
    let type_meta = Arc::new(selection.type_meta(resource));
    let store = Store::new(options.format);
    store.set_budget(options.budget);
    let mut reflector = Reflector::<[u8]>::new(client, resource).selection(selection).store(store);
    match namespaces.as_deref() {
        None => {}
        Some([namespace]) => reflector = reflector.namespace(namespace),
        Some(_) => return Err(Failure::Input("a cache is of one namespace or of all".to_owned())),
    }
    if options.fail_fast {
        reflector = reflector.fail_fast();
    }
    let mut prepared = reflector.prepare();
    let cache = prepared.cache();
    let mut indexes = BTreeMap::new();
    for (name, path) in options.index {
        let kind = Arc::clone(&type_meta);
        let index = cache.index(&name, move |object| path.texts(&object.item()?.with_type_meta(&kind)));
        indexes.insert(name, index);
    }
    if let Some(file) = options.load {
        match prepared.load(&file).await {
            Ok(()) => {}
            // Nothing was saved yet, or the file is of another state of the cluster: the cache starts with a list.
            Err(FileError::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(target: "listwatch", file = %file.display(), %error, "the saved cache is not used");
            }
        }
    }
    let cache = prepared.spawn();
    let running = Running { cache, indexes, type_meta, is_closed: Mutex::new(false) };
    let cache = Cache { running: Arc::new(OfProcess::new(running)) };
    Ok(Output::of(move |py| Ok(cache.into_pyobject(py)?.into_any())))
}

impl Cache {
    /// Returns the cache, unless it has ended.
    fn running(&self, py: Python<'_>) -> PyResult<&Running> {
        let running = self.running.get(CACHE)?;
        if *running.is_closed.lock().unwrap_or_else(PoisonError::into_inner) {
            return Err(errors::closed(py, CACHE));
        }
        if !running.cache.is_running()
            && let Some(reason) = running.cache.status().ended_by
        {
            return Err(errors::ended(py, &reason));
        }
        Ok(running)
    }
}

impl Running {
    fn object(&self, object: CachedObject<[u8]>) -> Object {
        Object::new(Root::Cached { object: OfProcess::new(object), type_meta: Arc::clone(&self.type_meta) })
    }

    fn objects(&self, objects: Vec<CachedObject<[u8]>>) -> Vec<Object> {
        objects.into_iter().map(|object| self.object(object)).collect()
    }

    fn index(&self, name: &str) -> PyResult<&Index<[u8], String>> {
        self.indexes.get(name).ok_or_else(|| PyKeyError::new_err(format!("the cache has no index {name:?}")))
    }
}

#[pymethods]
impl Cache {
    /// Creates another handle of the same cache, for subclasses.
    #[new]
    fn new(cache: PyRef<'_, Self>) -> Self {
        Self { running: Arc::clone(&cache.running) }
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.running(py)?.cache.len())
    }

    /// Returns the object, or `None`. A cluster-scoped object is found by its name alone.
    #[pyo3(signature = (namespace, name = None))]
    fn get(&self, py: Python<'_>, namespace: &str, name: Option<&str>) -> PyResult<Option<Object>> {
        let running = self.running(py)?;
        let key = name.map_or(("", namespace), |name| (namespace, name));
        Ok(running.cache.get(key).map(|object| running.object(object)))
    }

    /// Returns the objects with this value of an index.
    fn by(&self, py: Python<'_>, index: &str, value: &str) -> PyResult<Vec<Object>> {
        let running = self.running(py)?;
        let found = running.index(index)?.get(value);
        Ok(running.objects(found))
    }

    /// Returns the values of an index.
    fn index_values(&self, py: Python<'_>, index: &str) -> PyResult<Vec<String>> {
        Ok(self.running(py)?.index(index)?.values())
    }

    /// Counts the objects with this value of an index.
    fn count(&self, py: Python<'_>, index: &str, value: &str) -> PyResult<usize> {
        Ok(self.running(py)?.index(index)?.count(value))
    }

    /// Returns the objects of the collection, or of a namespace, or those that a selector matches.
    #[pyo3(signature = (namespace = None, label_selector = None))]
    fn select(
        &self,
        py: Python<'_>,
        namespace: Option<String>,
        label_selector: Option<String>,
    ) -> PyResult<Vec<Object>> {
        let running = self.running(py)?;
        let selector = label_selector.map(|text| text.parse::<LabelSelector>()).transpose();
        let selector = selector.map_err(|error| errors::invalid(py, error.to_string()))?;
        let found = py.detach(|| match (namespace, selector) {
            (namespace, Some(selector)) => running.cache.list_labels(namespace.as_deref(), &selector),
            (Some(namespace), None) => running.cache.list_namespace(&namespace),
            (None, None) => running.cache.snapshot().iter().collect(),
        });
        Ok(running.objects(found))
    }

    #[getter]
    fn resource_version(&self, py: Python<'_>) -> PyResult<Option<String>> {
        Ok(self.running(py)?.cache.status().resource_version)
    }

    /// Waits until the cache has held the whole collection, or has seen a version.
    fn synced(&self, py: Python<'_>, timeout: Option<f64>, resource_version: Option<String>) -> PyResult<Stream> {
        let cache = self.running(py)?.cache.clone();
        let timeout = timeout.map(|seconds| options::duration(py, "timeout", seconds)).transpose()?;
        stream::start_call("wait", async move {
            let wait = async {
                match resource_version {
                    Some(version) => cache.wait_for_resource_version(&version).await.map(|()| version),
                    None => cache.synced().await,
                }
            };
            let waited: Result<String, SyncError> = match timeout {
                None => wait.await,
                Some(timeout) => match tokio::time::timeout(timeout, wait).await {
                    Ok(waited) => waited,
                    Err(_) => return Err(unsynced(&cache, timeout)),
                },
            };
            let version = waited?;
            Ok(Output::of(move |py| Ok(version.into_pyobject(py)?.into_any())))
        })
    }

    /// Saves the collection.
    #[pyo3(name = "_save")]
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<Stream> {
        let cache = self.running(py)?.cache.clone();
        stream::start_call("save", async move {
            let saved = tokio::task::spawn_blocking(move || cache.save(path)).await;
            saved.map_err(|error| Failure::Other(error.to_string()))??;
            Ok(Output::of(|py| Ok(py.None().into_bound(py))))
        })
    }

    /// Returns the changes from now on, and with the initial state each object first.
    #[pyo3(name = "_changes")]
    fn changes(
        &self,
        py: Python<'_>,
        initial_state: bool,
        namespace: Option<String>,
        label_selector: Option<String>,
    ) -> PyResult<Stream> {
        let running = self.running(py)?;
        let selector = label_selector.map(|text| text.parse::<LabelSelector>()).transpose();
        let selector = selector.map_err(|error| errors::invalid(py, error.to_string()))?;
        let mut builder = running.cache.subscribe();
        if initial_state {
            builder = builder.with_initial_state();
        }
        if let Some(namespace) = namespace {
            builder = builder.namespace(namespace);
        }
        if let Some(selector) = selector {
            builder =
                builder.filter(move |object| object.meta().and_then(|meta| selector.matches(&meta)).unwrap_or(false));
        }
        let subscriber = py.detach(|| -> PyResult<_> {
            let _runtime = runtime()?.enter();
            Ok(builder.start())
        })?;
        let type_meta = Arc::clone(&running.type_meta);
        stream::start("changes", |queue| async move {
            let ended = Arc::new(Mutex::new(None));
            let changes = Changes { subscriber, type_meta, ended: Arc::clone(&ended) };
            queue.fill(changes).await?;
            let reason = ended.lock().unwrap_or_else(PoisonError::into_inner).take();
            match reason {
                Some(EndReason::Stopped) | None => Ok(None),
                Some(reason) => Err(Failure::Sync(SyncError::Ended(reason))),
            }
        })
    }

    /// Returns the state of the cache.
    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let cache = &self.running.get(CACHE)?.cache;
        let status = cache.status();
        let dict = PyDict::new(py);
        dict.set_item("objects", cache.len())?;
        dict.set_item("is_synced", cache.is_synced())?;
        dict.set_item("is_up_to_date", status.is_up_to_date)?;
        dict.set_item("is_running", cache.is_running())?;
        dict.set_item("resource_version", &status.resource_version)?;
        dict.set_item("seconds_since_synced", status.last_synced_at.map(|at| at.elapsed().as_secs_f64()))?;
        dict.set_item("syncs", status.syncs)?;
        dict.set_item("relists", status.relists)?;
        dict.set_item("events", status.events)?;
        dict.set_item("changes", status.changes)?;
        dict.set_item("errors", status.errors)?;
        dict.set_item("last_error", status.last_error.as_ref().map(ToString::to_string))?;
        dict.set_item("skipped", status.skipped)?;
        dict.set_item("last_skipped", status.last_skipped.as_ref().map(ToString::to_string))?;
        dict.set_item("index_errors", status.index_errors)?;
        dict.set_item("last_index_error", status.last_index_error.as_ref().map(ToString::to_string))?;
        dict.set_item("ended_by", status.ended_by.as_ref().map(ToString::to_string))?;
        Ok(dict)
    }

    /// Returns the memory of the cache in bytes, by parts.
    fn memory<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let running = self.running(py)?;
        let memory = py.detach(|| running.cache.memory());
        let dict = PyDict::new(py);
        for (name, bytes) in memory.parts() {
            dict.set_item(name, bytes)?;
        }
        dict.set_item("total", memory.total())?;
        Ok(dict)
    }

    /// Ends the watch. Each later call raises.
    fn close(&self) -> PyResult<()> {
        let running = self.running.get(CACHE)?;
        *running.is_closed.lock().unwrap_or_else(PoisonError::into_inner) = true;
        running.cache.stop();
        Ok(())
    }
}

/// Returns the error of a cache that has not synced in time, with what it waits for.
fn unsynced(cache: &RustCache<[u8]>, timeout: Duration) -> Failure {
    let last = cache.status().last_error;
    let last = last.map_or(String::new(), |error| format!(": {error}"));
    Failure::TimedOut(format!("the cache has not synced in {} s{last}", timeout.as_secs_f64()))
}

/// The changes of a subscriber, as outputs.
struct Changes {
    subscriber: listwatch_cache::Subscriber<[u8]>,
    type_meta: Arc<TypeMeta>,
    ended: Arc<Mutex<Option<EndReason>>>,
}

impl futures_core::Stream for Changes {
    type Item = Result<Output, Failure>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        let next = std::task::ready!(std::pin::Pin::new(&mut self.subscriber).poll_next(cx));
        let root = |object| Root::Cached { object: OfProcess::new(object), type_meta: Arc::clone(&self.type_meta) };
        let change = match next {
            None => return std::task::Poll::Ready(None),
            Some(RustChange::Applied { old: None, new, .. }) => Change::new("ADDED", Some(root(new)), None),
            Some(RustChange::Applied { old: Some(old), new, .. }) => {
                Change::new("MODIFIED", Some(root(new)), Some(root(old)))
            }
            Some(RustChange::Deleted { old, last, final_state_unknown, .. }) => {
                Change::new("DELETED", Some(root(last)), Some(root(old))).missed(final_state_unknown)
            }
            Some(RustChange::Ended(reason)) => {
                *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
                return std::task::Poll::Ready(None);
            }
            Some(_) => Change::new("SYNCED", None, None),
        };
        std::task::Poll::Ready(Some(Ok(Output::Change(change))))
    }
}
