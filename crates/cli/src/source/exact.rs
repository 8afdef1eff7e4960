//! A server, of whose lists at exact versions a history answers those that it knows.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use listwatch::client::{Request, ResponseFuture, Transport};
use percent_encoding::percent_decode_str;
use tokio::task::spawn_blocking;

use super::history::HistorySource;
use super::request::{ResourcePath, Route};
use super::transport::{Readers, SourceTransport, is_page_token};

/// The versions that stay open, because readers may request their next pages.
const MOST_OPEN: usize = 16;

/// Answers a list at an exact version from a history, and passes every other request to the server.
///
/// The server forgets versions after some minutes. What the history does not know is the server's to answer.
pub struct ExactFromHistory {
    server: Arc<dyn Transport>,
    dir: PathBuf,
    opened: Arc<Mutex<VecDeque<(String, SourceTransport)>>>,
}

impl ExactFromHistory {
    pub fn new(server: Arc<dyn Transport>, dir: PathBuf) -> Self {
        Self { server, dir, opened: Arc::default() }
    }
}

/// What of the history a request may be about.
enum PastRequest {
    Version(ResourcePath, String),
    /// The next page of a list.
    Page,
}

fn parse(path_and_query: &str) -> Option<PastRequest> {
    let (path, query) = path_and_query.split_once('?')?;
    let Route::Resource(resource) = Route::parse(path) else { return None };
    let value = |name: &str| {
        let mut values = query.split('&').filter_map(|pair| pair.split_once('='));
        let (_, value) = values.find(|(own, _)| *own == name)?;
        Some(percent_decode_str(value).decode_utf8_lossy().into_owned())
    };
    if let Some(token) = value("continue").filter(|token| !token.is_empty()) {
        return is_page_token(&token).then_some(PastRequest::Page);
    }
    let is_list = resource.name.is_none() && value("watch").is_none();
    let is_exact = value("resourceVersionMatch").as_deref() == Some("Exact");
    (is_list && is_exact)
        .then(|| value("resourceVersion"))
        .flatten()
        .map(|version| PastRequest::Version(resource, version))
}

impl Transport for ExactFromHistory {
    fn get(&self, request: Request) -> ResponseFuture<'_> {
        Box::pin(async move {
            let Some(past) = parse(&request.path_and_query) else { return self.server.get(request).await };
            match past {
                PastRequest::Page => {
                    let opened: Vec<_> = {
                        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
                        opened.iter().map(|(_, source)| source.clone()).collect()
                    };
                    for source in opened {
                        let answer = source.get(request.clone()).await?;
                        // No two sources have the same tokens.
                        if answer.status != http::StatusCode::GONE {
                            return Ok(answer);
                        }
                    }
                }
                PastRequest::Version(path, version) => {
                    let (dir, opened) = (self.dir.clone(), Arc::clone(&self.opened));
                    let known = spawn_blocking(move || open(&dir, &opened, &path, version)).await;
                    if let Ok(Some(source)) = known {
                        return source.get(request).await;
                    }
                }
            }
            self.server.get(request).await
        })
    }

    fn post(&self, request: Request, body: Bytes) -> ResponseFuture<'_> {
        self.server.post(request, body)
    }

    fn is_near(&self) -> bool {
        self.server.is_near()
    }

    fn renews_credentials(&self) -> bool {
        self.server.renews_credentials()
    }

    fn redact(&self, text: String) -> String {
        self.server.redact(text)
    }

    fn server(&self) -> Option<String> {
        self.server.server()
    }
}

/// Returns the history at a version, if it knows the collection there.
fn open(
    dir: &Path,
    opened: &Mutex<VecDeque<(String, SourceTransport)>>,
    path: &ResourcePath,
    version: String,
) -> Option<SourceTransport> {
    let source = HistorySource::at_version(dir, version.clone()).ok()?;
    if !source.knows(&path.group, &path.plural) {
        return None;
    }
    let mut opened = opened.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, known)) = opened.iter().find(|(known, _)| *known == version) {
        return Some(known.clone());
    }
    if opened.len() == MOST_OPEN {
        opened.pop_front();
    }
    let name = dir.to_string_lossy().into_owned();
    let source = SourceTransport::new(Box::new(source), name, Readers::Own);
    opened.push_back((version, source.clone()));
    Some(source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lists_at_exact_versions_are_of_the_past() {
        for (request, version, is_page) in [
            ("/api/v1/pods?resourceVersion=7&resourceVersionMatch=Exact", Some("7"), false),
            ("/api/v1/namespaces/a/pods?limit=5&resourceVersionMatch=Exact&resourceVersion=7", Some("7"), false),
            ("/api/v1/pods?resourceVersion=7", None, false),
            ("/api/v1/pods?resourceVersion=7&resourceVersionMatch=NotOlderThan", None, false),
            ("/api/v1/pods?resourceVersion=7&resourceVersionMatch=Exact&watch=1", None, false),
            ("/api/v1/namespaces/a/pods/b?resourceVersion=7&resourceVersionMatch=Exact", None, false),
            ("/api/v1/pods?limit=5&continue=page-17", None, true),
            ("/api/v1/pods?limit=5&continue=eyJ2Ijoi", None, false),
            ("/version?resourceVersionMatch=Exact&resourceVersion=7", None, false),
        ] {
            let parsed = parse(request);
            let found = match &parsed {
                Some(PastRequest::Version(_, version)) => Some(&**version),
                _ => None,
            };
            assert_eq!((found, matches!(parsed, Some(PastRequest::Page))), (version, is_page), "{request}");
        }
    }
}
