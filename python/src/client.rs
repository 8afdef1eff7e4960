//! The client: its configuration, and the requests, which run on the runtime.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use listwatch::client::{Client as RustClient, Config, Kubeconfig, Resource};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::cache::{self, CacheOptions};
use crate::errors::{self, Failure};
use crate::event::Event;
use crate::fields::FieldSelection;
use crate::options::{self, Selected};
use crate::process::{PerProcess, runtime};
use crate::raw::GotObject;
use crate::rows::{Row, RowMaker};
use crate::stream::{self, Limited, Output, Stream};

/// The connections of one process.
#[derive(Clone)]
struct Connections {
    client: RustClient,
    /// The resources of names that were looked up.
    resources: Arc<Mutex<HashMap<String, Resource>>>,
}

impl Connections {
    async fn resolve(&self, typed: &str) -> Result<Resource, Failure> {
        let known = self.resources.lock().unwrap_or_else(PoisonError::into_inner).get(typed).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let found = self.client.resolve(typed).await?;
        self.resources.lock().unwrap_or_else(PoisonError::into_inner).insert(typed.to_owned(), found.clone());
        Ok(found)
    }
}

/// The client of one API server.
#[pyclass(frozen, module = "listwatch._listwatch")]
pub struct Client {
    config: Config,
    connections: PerProcess<Connections>,
}

/// The settings of a client that are not in a kubeconfig, or replace what it says.
#[derive(FromPyObject)]
struct Settings {
    #[pyo3(item)]
    kubeconfig: Option<std::path::PathBuf>,
    #[pyo3(item)]
    context: Option<String>,
    #[pyo3(item)]
    server: Option<String>,
    #[pyo3(item)]
    standalone: bool,
    #[pyo3(item)]
    token: Option<String>,
    #[pyo3(item)]
    token_file: Option<std::path::PathBuf>,
    #[pyo3(item)]
    ca: Option<String>,
    #[pyo3(item)]
    ca_pem: Option<Vec<u8>>,
    #[pyo3(item)]
    certificate: Option<(std::path::PathBuf, std::path::PathBuf)>,
    #[pyo3(item)]
    insecure: bool,
    #[pyo3(item)]
    tls_server_name: Option<String>,
    #[pyo3(item)]
    impersonate: Option<(String, Option<String>, Vec<String>)>,
    #[pyo3(item)]
    proxy: Option<String>,
    #[pyo3(item)]
    user_agent: Option<String>,
}

impl Settings {
    fn config(self) -> Result<Config, listwatch::client::TransportError> {
        let mut config = match (self.standalone, self.server) {
            (true, Some(server)) => Config::new(server),
            (_, server) => {
                Kubeconfig { file: self.kubeconfig, context: self.context, server, ..Kubeconfig::default() }.load()?
            }
        };
        if let Some(token) = self.token {
            config = config.bearer_token(token);
        }
        if let Some(file) = self.token_file {
            config = config.token_file(file);
        }
        if let Some(file) = self.ca {
            config = config.ca_file(file);
        }
        if let Some(pem) = self.ca_pem {
            config = config.ca_pem(pem);
        }
        if let Some((certificate, key)) = self.certificate {
            config = config.client_certificate_files(certificate, key);
        }
        if self.insecure {
            config = config.insecure_skip_tls_verify();
        }
        if let Some(name) = self.tls_server_name {
            config = config.tls_server_name(name);
        }
        if let Some(proxy) = self.proxy {
            config = config.proxy(proxy);
        }
        if let Some((user, uid, groups)) = self.impersonate {
            config = config.impersonate(user, uid, groups);
        }
        let agent =
            self.user_agent.unwrap_or_else(|| concat!("listwatch-python/", env!("CARGO_PKG_VERSION")).to_owned());
        Ok(config.user_agent(agent).on_caller_runtime())
    }
}

impl Client {
    /// Returns the connections of this process: the child of a fork makes its own.
    fn connections(&self, py: Python<'_>) -> PyResult<Connections> {
        let made = self.connections.get_or_try_init(|| {
            let runtime = runtime()?;
            let config = self.config.clone();
            py.detach(|| {
                let _runtime = runtime.enter();
                RustClient::try_from(config)
            })
            .map(|client| Connections { client, resources: Arc::default() })
            .map_err(|error| Failure::Client(error.into()).into_py(py))
        });
        made.cloned()
    }
}

fn fields(py: Python<'_>, paths: Option<Vec<String>>) -> PyResult<Option<Arc<FieldSelection>>> {
    let parsed = paths.map(|paths| FieldSelection::parse(&paths).map(Arc::new)).transpose();
    parsed.map_err(|error| errors::invalid(py, error))
}

/// Checks the names of the fields, once the kind is known.
fn check(fields: Option<&Arc<FieldSelection>>, type_meta: &listwatch::TypeMeta) -> Result<(), Failure> {
    let checked = fields.map_or(Ok(()), |fields| fields.check(&type_meta.api_version, &type_meta.kind));
    checked.map_err(Failure::Input)
}

#[allow(clippy::too_many_arguments, reason = "the arguments of Python")]
#[pymethods]
impl Client {
    #[new]
    fn new(py: Python<'_>, settings: Settings) -> PyResult<Self> {
        let config = py.detach(|| settings.config());
        let config = config.map_err(|error| Failure::Client(error.into()).into_py(py))?;
        let client = Self { config, connections: PerProcess::new() };
        client.connections(py)?;
        Ok(client)
    }

    #[getter]
    fn server(&self) -> &str {
        self.config.server()
    }

    #[getter]
    fn default_namespace(&self) -> &str {
        self.config.default_namespace()
    }

    fn list(
        &self,
        py: Python<'_>,
        resource: String,
        selected: Selected,
        page_size: Option<u32>,
        limit: Option<u64>,
        continue_token: Option<String>,
        resource_version: Option<String>,
        timeout: Option<f64>,
        paths: Option<Vec<String>>,
    ) -> PyResult<Stream> {
        let (connections, selection, fields) = (self.connections(py)?, selected.selection(py)?, fields(py, paths)?);
        let timeout = timeout.map(|seconds| options::duration(py, "timeout", seconds)).transpose()?;
        let of_page = limit.map(|limit| u32::try_from(limit.max(1)).unwrap_or(u32::MAX));
        let page_size = of_page.into_iter().chain(page_size).min();
        stream::start("list", |queue| async move {
            let resource = connections.resolve(&resource).await?;
            let type_meta = selection.type_meta(&resource);
            check(fields.as_ref(), &type_meta)?;
            let params = options::list_params(selection, options::version(resource_version), page_size);
            let mut rows = RowMaker::new(fields, type_meta);
            let mut list =
                connections.client.list_with(&resource, &params, move |item| rows.row(item).map(Output::Row));
            if let Some(namespaces) = selected.namespaces {
                list = list.namespaces(namespaces);
            }
            if let Some(timeout) = timeout {
                list = list.deadline(timeout);
            }
            if limit.is_some() || continue_token.is_some() {
                list = list.single_page(continue_token);
            }
            match limit {
                Some(left) => queue.fill(Limited { stream: &mut list, left }).await?,
                None => queue.fill(&mut list).await?,
            }
            Ok(list.summary().cloned().map(Arc::new))
        })
    }

    fn get(
        &self,
        py: Python<'_>,
        resource: String,
        name: String,
        namespace: Option<String>,
        metadata_only: bool,
        resource_version: Option<String>,
        timeout: Option<f64>,
    ) -> PyResult<Stream> {
        let connections = self.connections(py)?;
        let timeout = timeout.map(|seconds| options::duration(py, "timeout", seconds)).transpose()?;
        let default_namespace = self.config.default_namespace().to_owned();
        stream::start_call("get", async move {
            let resource = connections.resolve(&resource).await?;
            let namespace = namespace.or_else(|| resource.is_namespaced().then_some(default_namespace));
            let mut get = connections.client.get::<GotObject>(&resource, namespace.as_deref(), &name);
            if metadata_only {
                get = get.metadata_only();
            }
            if let Some(version) = resource_version {
                get = get.at_least(version);
            }
            if let Some(timeout) = timeout {
                get = get.deadline(timeout);
            }
            Ok(Output::Row(Row::Object(get.await?)))
        })
    }

    fn watch(
        &self,
        py: Python<'_>,
        resource: String,
        selected: Selected,
        initial_state: bool,
        resource_version: Option<String>,
        start_over: bool,
        fail_fast: bool,
        paths: Option<Vec<String>>,
    ) -> PyResult<Stream> {
        let (connections, selection, fields) = (self.connections(py)?, selected.selection(py)?, fields(py, paths)?);
        stream::start("watch", |queue| async move {
            let resource = connections.resolve(&resource).await?;
            let type_meta = selection.type_meta(&resource);
            check(fields.as_ref(), &type_meta)?;
            let params = options::watch_params(selection, initial_state, resource_version);
            let mut rows = RowMaker::new(fields, type_meta);
            let mut watch = connections.client.watch_with(&resource, &params, move |item| rows.row(item));
            if let Some(namespaces) = selected.namespaces {
                watch = watch.namespaces(namespaces);
            }
            if start_over {
                watch = watch.start_over();
            }
            if fail_fast {
                watch = watch.fail_fast();
            }
            queue.fill(Events(watch)).await?;
            Ok(None)
        })
    }

    fn cache(&self, py: Python<'_>, resource: String, selected: Selected, options: CacheOptions) -> PyResult<Stream> {
        let (connections, selection) = (self.connections(py)?, selected.selection(py)?);
        let prepared = options.check(py)?;
        stream::start_call("cache", async move {
            let resource = connections.resolve(&resource).await?;
            cache::start(&connections.client, &resource, selection, selected.namespaces, prepared).await
        })
    }

    fn count(&self, py: Python<'_>, resource: String, selected: Selected) -> PyResult<Stream> {
        let (connections, selection) = (self.connections(py)?, selected.selection(py)?);
        stream::start_call("count", async move {
            let resource = connections.resolve(&resource).await?;
            let namespace = selected.namespaces.and_then(|namespaces| namespaces.into_iter().next());
            let count = connections.client.count(&resource, &selection, namespace.as_deref()).await?;
            Ok(Output::of(move |py| {
                let dict = PyDict::new(py);
                dict.set_item("objects", count.objects)?;
                dict.set_item("resource_version", count.resource_version)?;
                dict.set_item("is_exact", count.is_exact)?;
                Ok(dict.into_any())
            }))
        })
    }

    fn resolve(&self, py: Python<'_>, resource: String) -> PyResult<Stream> {
        let connections = self.connections(py)?;
        stream::start_call("look-up", async move {
            let resource = connections.resolve(&resource).await?;
            Ok(Output::of(move |py| {
                let dict = PyDict::new(py);
                dict.set_item("group", resource.group())?;
                dict.set_item("version", resource.version())?;
                dict.set_item("plural", resource.plural())?;
                dict.set_item("kind", resource.kind())?;
                dict.set_item("namespaced", resource.is_namespaced())?;
                Ok(dict.into_any())
            }))
        })
    }
}

/// The events of a watch, as outputs.
struct Events<S>(S);

impl<S, E> futures_core::Stream for Events<S>
where
    S: futures_core::Stream<Item = Result<listwatch::client::WatchEvent<Row>, E>> + Unpin,
{
    type Item = Result<Output, E>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        let next = std::pin::Pin::new(&mut self.0).poll_next(cx);
        next.map(|next| next.map(|event| event.map(|event| Output::Event(Event::of(event)))))
    }
}
