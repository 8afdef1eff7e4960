//! A line of JSON for each request.

use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderValue, StatusCode};
use jiff::Timestamp;
use serde::{Serialize, Serializer};

use crate::fairness::Holder;
use crate::request::{Attributes, RequestInfo};

/// The longest text of a reader in a line, in bytes.
const MAX_TEXT: usize = 256;

/// Writes a line for each request, if a program wants them.
#[derive(Clone, Default)]
pub(crate) struct AccessLog(Option<Arc<LineWriter>>);

type LineWriter = dyn Fn(&str) + Send + Sync;

/// Who has answered a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum AnswerSource {
    /// The mirror, with an error.
    #[default]
    Refused,
    Memory,
    Forwarded,
    /// The mirror, about itself.
    Own,
}

/// What the steps of a request note for its line.
#[derive(Debug, Default)]
pub(crate) struct AccessNotes {
    pub(crate) source: AnswerSource,
    /// The user, once it is known.
    pub(crate) holder: Option<Holder>,
}

/// A text of a reader, which is cut.
struct Cut<'a>(&'a str);

impl Serialize for Cut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.len() <= MAX_TEXT {
            return serializer.serialize_str(self.0);
        }
        // Within a character there is no text.
        let cut = (0..=MAX_TEXT).rev().find_map(|end| self.0.get(..end)).unwrap_or_default();
        serializer.collect_str(&format_args!("{cut}..."))
    }
}

#[derive(Serialize)]
struct Line<'a> {
    time: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<Cut<'a>>,
    verb: Cut<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<Cut<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<Cut<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<Cut<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subresource: Option<Cut<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<Cut<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<Cut<'a>>,
    code: u16,
    source: AnswerSource,
    seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_agent: Option<Cut<'a>>,
}

impl AccessLog {
    pub(crate) fn new(write: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(write)))
    }

    /// Writes the line of a request whose response begins. `info` is `None` if the request could not be read.
    pub(crate) fn write_line(
        &self,
        head: &Parts,
        info: Option<&RequestInfo>,
        notes: &AccessNotes,
        code: StatusCode,
        time: Duration,
    ) {
        let Some(write) = &self.0 else { return };
        let text = |text| Some(text).filter(|text: &&str| !text.is_empty()).map(Cut);
        let mut line = Line {
            time: Timestamp::now(),
            user: match &notes.holder {
                Some(Holder::User(user)) => Some(Cut(user)),
                _ => None,
            },
            verb: Cut(head.method.as_str()),
            path: None,
            group: None,
            resource: None,
            subresource: None,
            namespace: None,
            name: None,
            code: code.as_u16(),
            source: notes.source,
            seconds: time.as_secs_f64(),
            user_agent: head
                .headers
                .get(http::header::USER_AGENT)
                .map(HeaderValue::to_str)
                .and_then(Result::ok)
                .map(Cut),
        };
        match info.map(|info| &info.attributes) {
            Some(Attributes::Resource(of)) => {
                line.verb = Cut(of.verb);
                (line.group, line.resource, line.subresource) =
                    (text(&of.group), text(&of.resource), text(&of.subresource));
                (line.namespace, line.name) = (text(&of.namespace), text(&of.name));
            }
            Some(Attributes::Path { verb, path }) => (line.verb, line.path) = (Cut(verb), text(path)),
            None => line.path = text(head.uri.path()),
        }
        // All of it can be written.
        if let Ok(line) = serde_json::to_string(&line) {
            write(&line);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use http::header::{HOST, USER_AGENT};
    use http::{Method, Request};
    use serde_json::Value;

    use super::*;
    use crate::settings::{Access, Limits};
    use crate::testing::{FakeApiServer, local_reader};

    /// Sends a request, and returns the lines that the log gets.
    async fn lines(access: Access, method: Method, path: &str, token: &str, agent: &str) -> Vec<Value> {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let written = Arc::clone(&lines);
        let mirror = FakeApiServer::new(1, 10).mirror_for(access, Limits::default()).await;
        let mut mirror = Arc::into_inner(mirror).unwrap();
        mirror.access_log = AccessLog::new(move |line| written.lock().unwrap().push(line.to_owned()));
        let request = Request::builder().method(method).uri(path).header(HOST, "localhost").header(USER_AGENT, agent);
        let request =
            request.header(http::header::AUTHORIZATION, token).body(http_body_util::Empty::<bytes::Bytes>::new());
        mirror.respond(request.unwrap(), local_reader()).await;
        let lines = lines.lock().unwrap();
        lines
            .iter()
            .map(|line| {
                assert!(!line.contains('\n') && !line.contains("t0ken"), "{line}");
                serde_json::from_str(line).unwrap()
            })
            .collect()
    }

    #[tokio::test]
    async fn names_the_user_the_request_and_who_has_answered() {
        const LIST: &str = "/api/v1/namespaces/web/configmaps?resourceVersion=0";
        let reviewed = Access::Reviewed;
        for (access, method, path, token, expected) in [
            (reviewed, Method::GET, LIST, "Bearer t0ken", ["jane", "list", "configmaps", "200", "memory"]),
            (reviewed, Method::GET, LIST, "", ["", "list", "configmaps", "401", "refused"]),
            (Access::Loopback, Method::GET, LIST, "", ["", "list", "configmaps", "200", "memory"]),
            (Access::Loopback, Method::GET, "/api/v1/pods/a/log", "", ["", "get", "", "404", "refused"]),
            (reviewed, Method::GET, "/api/v1/nodes/a", "Bearer t0ken", ["jane", "get", "nodes", "200", "forwarded"]),
            (reviewed, Method::GET, "/livez", "", ["", "get", "", "200", "own"]),
            (reviewed, Method::POST, "/api/v1/pods", "Bearer t0ken", ["", "POST", "", "405", "refused"]),
        ] {
            let lines = lines(access, method, path, token, "agent").await;
            let [line] = &lines[..] else { panic!("{path}: {lines:?}") };
            let found = ["user", "verb", "resource", "code", "source"].map(|field| match &line[field] {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                _ => String::new(),
            });
            // Which paths of Pods exist is not the concern of this test.
            assert!(found == expected || path.ends_with("/log"), "{path}: {line}");
            assert!(line["time"].is_string() && line["seconds"].is_number() && line["user_agent"] == "agent");
        }
    }

    #[tokio::test]
    async fn escapes_and_cuts_the_texts_of_readers() {
        let name = format!("/api/v1/nodes/%22%0A%7F{}", "x".repeat(1000));
        let lines = lines(Access::Loopback, Method::GET, &name, "", &"a\"b".repeat(200)).await;
        let cut = lines[0]["name"].as_str().unwrap_or_else(|| lines[0]["path"].as_str().unwrap());
        assert!(cut.len() == MAX_TEXT + 3 && cut.ends_with("x..."), "{cut}");
        assert_eq!(lines[0]["user_agent"].as_str().unwrap().len(), MAX_TEXT + 3);
    }
}
