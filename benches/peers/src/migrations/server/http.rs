//! Requests and responses.

use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::{Arc, PoisonError};

use serde_json::{Value, json};

use super::store::{Key, Logged, Refusal, Served, Stored};
use super::{KINDS, ServedKind};
use crate::chunks::Chunks;

struct Request {
    method: String,
    /// The parts of the path.
    path: Vec<String>,
    query: Vec<(String, String)>,
    is_partial: bool,
    content_type: String,
    body: Vec<u8>,
}

/// The kind, the namespace, the name and the subresource.
type Target<'a> = (usize, Option<&'a str>, Option<&'a str>, Option<&'a str>);

/// The objects that a list or a watch selects.
struct Selected {
    kind: usize,
    namespace: Option<String>,
    labels: Vec<(String, String)>,
}

/// Serves the requests of a connection.
pub fn serve(served: &Served, stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut requests, mut out) = (BufReader::new(stream.try_clone()?), stream);
    while let Some(request) = Request::read(&mut requests)? {
        match request.target() {
            Some(target) => request.answer(served, target, &mut out)?,
            None => match request.document() {
                Some(document) => send(&mut out, 200, &document.to_string())?,
                None => refuse(&mut out, &Refusal::NotFound)?,
            },
        }
    }
    Ok(())
}

impl Request {
    fn read(from: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut line = String::new();
        if from.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut words = line.split(' ').map(str::to_owned);
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let query = pairs.map(|(name, value)| (name.to_owned(), decode(value))).collect();
        let path = path.split('/').filter(|part| !part.is_empty()).map(decode).collect();
        let (mut length, mut content_type, mut is_partial) = (0, String::new(), false);
        loop {
            let mut header = String::new();
            from.read_line(&mut header)?;
            let Some((name, value)) = header.trim_end().split_once(':') else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.trim().parse().map_err(io::Error::other)?,
                "content-type" => value.trim().clone_into(&mut content_type),
                "accept" => is_partial = value.contains("as=PartialObjectMetadata"),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        from.read_exact(&mut body)?;
        Ok(Some(Self { method, path, query, is_partial, content_type, body }))
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(of, _)| of == name).map(|(_, value)| &**value)
    }

    fn is_set(&self, name: &str) -> bool {
        matches!(self.get(name), Some("true" | "1"))
    }

    /// Returns the `apiVersion` and the kind of the objects in the response.
    fn type_meta(&self, kind: &ServedKind) -> (String, &'static str) {
        if self.is_partial {
            ("meta.k8s.io/v1".to_owned(), "PartialObjectMetadata")
        } else {
            (kind.api_version(), kind.kind)
        }
    }

    fn target(&self) -> Option<Target<'_>> {
        let (group, rest) = match &*self.path {
            [api, version, rest @ ..] if api == "api" && version == "v1" => ("", rest),
            [apis, group, version, rest @ ..] if apis == "apis" && version == "v1" => (&**group, rest),
            _ => return None,
        };
        let texts: Vec<_> = rest.iter().map(|part| &**part).collect();
        let (namespace, rest) = match &*texts {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() && rest[0] != "status" => (Some(*namespace), rest),
            rest => (None, rest),
        };
        let (plural, rest) = rest.split_first()?;
        let kind = KINDS.iter().position(|kind| kind.group == group && kind.plural == *plural)?;
        Some((kind, namespace, rest.first().copied(), rest.get(1).copied()))
    }

    /// Returns a document of the discovery.
    fn document(&self) -> Option<Value> {
        let texts: Vec<_> = self.path.iter().map(|part| &**part).collect();
        let resources = |of: &str| {
            let resource = |kind: &ServedKind| {
                json!({
                    "name": kind.plural, "singularName": kind.kind.to_lowercase(), "kind": kind.kind,
                    "namespaced": kind.is_namespaced, "verbs": ["get", "list", "watch", "patch", "delete"],
                })
            };
            let all = KINDS.iter().filter(|kind| kind.group == of);
            let version = if of.is_empty() { "v1".to_owned() } else { format!("{of}/v1") };
            let resources: Vec<_> = all.map(resource).collect();
            json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources})
        };
        Some(match *texts {
            ["api"] => json!({"kind": "APIVersions", "apiVersion": "v1", "versions": ["v1"]}),
            ["apis"] => {
                let groups = ["apps", "example.com"].map(|group| {
                    let version = json!({"groupVersion": format!("{group}/v1"), "version": "v1"});
                    json!({"name": group, "versions": [version], "preferredVersion": version})
                });
                json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
            }
            ["api", "v1"] => resources(""),
            ["apis", group, "v1"] => resources(group),
            _ => return None,
        })
    }

    fn answer(
        &self,
        served: &Served,
        (kind, namespace, name, subresource): Target<'_>,
        out: &mut TcpStream,
    ) -> io::Result<()> {
        let Some(name) = name else {
            let labels = self.get("labelSelector").into_iter().flat_map(|labels| labels.split(','));
            let labels = labels.filter_map(|label| label.split_once('='));
            let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
            let selected = Selected { kind, namespace: namespace.map(str::to_owned), labels };
            out.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")?;
            let mut body = Chunks::new(out);
            if self.is_set("watch") {
                return self.watch(served, &selected, &mut body);
            }
            self.list(served, &selected, &mut body)?;
            return body.finish();
        };
        let key: Key = (kind, namespace.unwrap_or_default().to_owned(), name.to_owned());
        let written = match self.method.as_str() {
            "GET" => served.get(&key).ok_or(Refusal::NotFound),
            "DELETE" => served.delete(key),
            "PATCH" => served.write(key, |object| self.patch(object, subresource)),
            method => Err(Refusal::Invalid(format!("{method} is not supported"))),
        };
        match written {
            Ok(object) => send(out, 200, object.json(self.is_partial)),
            Err(refusal) => refuse(out, &refusal),
        }
    }

    /// Applies the patch in the body. A patch of a subresource changes only it, and other patches leave the status.
    fn patch(&self, object: Option<Value>, subresource: Option<&str>) -> Result<Option<Value>, Refusal> {
        let invalid = |error: &dyn std::fmt::Display| Refusal::Invalid(error.to_string());
        let is_apply = self.content_type.contains("apply-patch");
        let old = if is_apply { object.unwrap_or_default() } else { object.ok_or(Refusal::NotFound)? };
        let mut new = old.clone();
        if self.content_type.contains("json-patch") {
            let mut patch: json_patch::Patch = serde_json::from_slice(&self.body).map_err(|error| invalid(&error))?;
            // The API server's library takes an absent field for null, as kube's finalizer expects.
            patch.0.retain(|operation| match operation {
                json_patch::PatchOperation::Test(test) => {
                    !(test.value.is_null() && old.pointer(test.path.as_str()).is_none())
                }
                _ => true,
            });
            // A failed test of a patch.
            json_patch::patch(&mut new, &patch).map_err(|_| Refusal::Conflict)?;
        } else {
            let patch: Value = serde_json::from_slice(&self.body).map_err(|error| invalid(&error))?;
            json_patch::merge(&mut new, &patch);
        }
        let status = new["status"].take();
        let mut result = if subresource == Some("status") { old.clone() } else { new };
        result["status"] = if subresource == Some("status") { status } else { old["status"].clone() };
        if let Some(fields) = result.as_object_mut() {
            fields.retain(|_, field| !field.is_null());
        }
        Ok(Some(result))
    }

    /// Sends a list, or a page of it. The token has the version of the first page, and the key of the last object.
    fn list(&self, served: &Served, selected: &Selected, body: &mut Chunks<'_>) -> io::Result<()> {
        let (objects, version) = served.snapshot(selected.kind);
        let token: Option<(u64, String, String)> =
            self.get("continue").and_then(|token| serde_json::from_str(token).ok());
        let (version, after) = match token {
            Some((version, namespace, name)) => (version, Some((selected.kind, namespace, name))),
            None => (version, None),
        };
        let limit = self.get("limit").and_then(|limit| limit.parse().ok()).filter(|limit| *limit > 0);
        let mut rest = objects.iter().filter(|object| selected.has(object));
        let mut next: Option<Key> = None;
        let kind = &KINDS[selected.kind];
        let (api_version, list) = self.type_meta(kind);
        body.write(format!(r#"{{"kind":"{list}List","apiVersion":"{api_version}","items":["#).as_bytes())?;
        let mut sent = 0_usize;
        for object in rest.by_ref().skip_while(|object| after.as_ref().is_some_and(|after| object.key <= *after)) {
            if limit.is_some_and(|limit: usize| sent == limit) {
                break;
            }
            if sent > 0 {
                body.write(b",")?;
            }
            body.write(object.json(self.is_partial).as_bytes())?;
            (sent, next) = (sent + 1, Some(object.key.clone()));
        }
        // A page that is full has a next one, which may be empty.
        let token = next.filter(|_| Some(sent) == limit).map(|(_, namespace, name)| (version, namespace, name));
        let token = token.map(|token| json!(token).to_string()).unwrap_or_default();
        let metadata = json!({"resourceVersion": version.to_string(), "continue": token});
        body.write(format!("],\"metadata\":{metadata}}}\n").as_bytes())
    }

    fn watch(&self, served: &Served, selected: &Selected, body: &mut Chunks<'_>) -> io::Result<()> {
        let mut next = if self.is_set("sendInitialEvents") {
            let ((objects, version), next) = {
                let snapshot = served.snapshot(selected.kind);
                let next = served.state().log.partition_point(|logged| logged.version <= snapshot.1);
                (snapshot, next)
            };
            for object in objects.iter().filter(|object| selected.has(object)) {
                self.event("ADDED", object, body)?;
            }
            let kind = &KINDS[selected.kind];
            let metadata = json!({
                "resourceVersion": version.to_string(), "creationTimestamp": null,
                "annotations": {"k8s.io/initial-events-end": "true"},
            });
            let (api_version, kind) = self.type_meta(kind);
            let object = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata});
            body.write(format!("{}\n", json!({"type": "BOOKMARK", "object": object})).as_bytes())?;
            next
        } else {
            let state = served.state();
            let from = self.get("resourceVersion").and_then(|version| version.parse::<u64>().ok());
            let from = from.filter(|from| *from > 0).unwrap_or(state.version);
            state.log.partition_point(|logged| logged.version <= from)
        };
        body.flush()?;
        loop {
            let mut state = served.state();
            while state.log.len() <= next {
                state = served.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            let changes: Vec<_> = state.log[next..].iter().map(Arc::clone).collect();
            drop(state);
            next += changes.len();
            for change in changes {
                self.change(&change, selected, body)?;
            }
            body.flush()?;
        }
    }

    /// Sends a change as the selectors see it.
    fn change(&self, change: &Logged, selected: &Selected, body: &mut Chunks<'_>) -> io::Result<()> {
        let seen = |object: &Option<Arc<Stored>>| object.as_ref().is_some_and(|object| selected.has(object));
        match (&change.old, &change.new) {
            (_, Some(new)) if seen(&change.new) => {
                self.event(if seen(&change.old) { "MODIFIED" } else { "ADDED" }, new, body)
            }
            (Some(old), _) if seen(&change.old) => {
                // A deletion has a version of its own.
                let mut object = old.value();
                object["metadata"]["resourceVersion"] = change.version.to_string().into();
                let deleted = Stored::new(old.key.clone(), &object);
                self.event("DELETED", &deleted, body)
            }
            _ => Ok(()),
        }
    }

    fn event(&self, event: &str, object: &Stored, body: &mut Chunks<'_>) -> io::Result<()> {
        body.write(format!(r#"{{"type":"{event}","object":"#).as_bytes())?;
        body.write(object.json(self.is_partial).as_bytes())?;
        body.write(b"}\n")
    }
}

impl Selected {
    fn has(&self, object: &Stored) -> bool {
        let (kind, namespace, _) = &object.key;
        *kind == self.kind
            && self.namespace.as_ref().is_none_or(|selected| selected == namespace)
            && self.labels.iter().all(|(key, value)| object.labels.get(key) == Some(value))
    }
}

fn send(out: &mut TcpStream, status: u16, body: &str) -> io::Result<()> {
    let head =
        format!("HTTP/1.1 {status} -\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
    out.write_all((head + body).as_bytes())
}

fn refuse(out: &mut TcpStream, refusal: &Refusal) -> io::Result<()> {
    let (code, reason, message) = match refusal {
        Refusal::NotFound => (404, "NotFound", "the server does not have it"),
        Refusal::Conflict => (409, "Conflict", "the object has changed"),
        Refusal::Invalid(message) => (422, "Invalid", &**message),
    };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code, "reason": reason,
        "message": message,
    });
    send(out, code, &status.to_string())
}

/// Decodes percent encoding and `+`.
fn decode(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.bytes());
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits: Vec<_> = rest.by_ref().take(2).collect();
                let digits = String::from_utf8_lossy(&digits);
                u8::from_str_radix(&digits, 16).unwrap_or(b'%')
            }
            byte => byte,
        });
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
