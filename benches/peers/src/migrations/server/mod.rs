//! An API server that programs read and write: lists, pages, watches, patches, subresources and finalizers.
//!
//! It sends JSON over plain HTTP/1.1, with a thread for each connection. It checks no types and no owners. A write that
//! changes nothing keeps the resource version, as on a real server: `apiserver/pkg/registry/rest/update.go`.

mod http;
mod store;

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;

use serde_json::Value;

use self::store::{Refusal, Served};

/// A kind that the server has.
pub struct ServedKind {
    pub group: &'static str,
    pub version: &'static str,
    pub plural: &'static str,
    pub kind: &'static str,
    pub is_namespaced: bool,
}

/// The kinds that the server has.
pub const KINDS: [ServedKind; 6] = [
    kind("", "configmaps", "ConfigMap"),
    kind("", "pods", "Pod"),
    kind("", "services", "Service"),
    kind("apps", "deployments", "Deployment"),
    kind("example.com", "webapps", "WebApp"),
    ServedKind { is_namespaced: false, ..kind("", "namespaces", "Namespace") },
];

const fn kind(group: &'static str, plural: &'static str, kind: &'static str) -> ServedKind {
    ServedKind { group, version: "v1", plural, kind, is_namespaced: true }
}

impl ServedKind {
    /// Returns `version` or `group/version`.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.into() } else { format!("{}/{}", self.group, self.version) }
    }
}

/// A running server. It runs until the process ends.
pub struct ApiServer {
    served: Arc<Served>,
    pub url: String,
}

impl ApiServer {
    /// Starts a server without objects.
    ///
    /// # Errors
    /// If no port is free.
    pub fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let url = format!("http://{}", listener.local_addr()?);
        let served = Arc::<Served>::default();
        let accepting = Arc::clone(&served);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let served = Arc::clone(&accepting);
                // A client that ends breaks its connection.
                thread::spawn(move || _ = http::serve(&served, stream));
            }
        });
        Ok(Self { served, url })
    }

    /// Creates or replaces an object of this plural, also its status.
    ///
    /// # Panics
    /// If the server does not have the kind, or the object has no name.
    pub fn put(&self, plural: &str, object: Value) {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let key = (place(plural), text("namespace"), text("name"));
        self.served.write(key, |_| Ok(Some(object))).unwrap_or_else(|refusal| panic!("{refusal:?}"));
    }

    /// Changes an object that exists.
    ///
    /// # Panics
    /// If the server does not have the object.
    pub fn modify(&self, plural: &str, namespace: &str, name: &str, change: impl FnOnce(&mut Value)) {
        let written = self.served.write((place(plural), namespace.into(), name.into()), |object| {
            let mut object = object.ok_or(Refusal::NotFound)?;
            change(&mut object);
            Ok(Some(object))
        });
        written.unwrap_or_else(|refusal| panic!("{plural} {namespace}/{name}: {refusal:?}"));
    }

    /// Deletes an object, or marks it as deleted if it has finalizers.
    ///
    /// # Panics
    /// If the server does not have the object.
    pub fn delete(&self, plural: &str, namespace: &str, name: &str) {
        let deleted = self.served.delete((place(plural), namespace.into(), name.into()));
        deleted.unwrap_or_else(|refusal| panic!("{plural} {namespace}/{name}: {refusal:?}"));
    }

    /// Returns the namespaces and names of all objects of this plural, in order.
    ///
    /// # Panics
    /// If the server does not have the kind.
    #[must_use]
    pub fn keys(&self, plural: &str) -> Vec<(String, String)> {
        let (objects, _) = self.served.snapshot(place(plural));
        objects.iter().map(|object| (object.key.1.clone(), object.key.2.clone())).collect()
    }

    /// Returns all objects of this plural, in the order of their keys.
    ///
    /// # Panics
    /// If the server does not have the kind.
    pub fn list(&self, plural: &str) -> impl Iterator<Item = Value> + use<> {
        let (objects, _) = self.served.snapshot(place(plural));
        objects.into_iter().map(|object| object.value())
    }
}

fn place(plural: &str) -> usize {
    KINDS.iter().position(|kind| kind.plural == plural).unwrap_or_else(|| panic!("no kind {plural}"))
}
