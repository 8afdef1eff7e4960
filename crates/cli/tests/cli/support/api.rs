//! The command against a test server, and the server's responses.

use std::process::{Command, Output};

use listwatch_testserver::{Answer, Body, RecordedRequest, Server};
use tokio::runtime::Runtime;

use super::protobuf::{envelope, field};
use super::{fixture, listwatch};

/// A test server, and its runtime.
pub struct Api {
    pub server: Server,
    _runtime: Runtime,
}

impl Api {
    pub fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self::by(Answer::in_turn(answers))
    }

    pub fn by(handler: impl Fn(&RecordedRequest, usize) -> Answer + Send + Sync + 'static) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let server = runtime.block_on(Server::start(handler)).unwrap();
        Self { server, _runtime: runtime }
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = listwatch(args);
        command.args(["--server", &self.server.url()]);
        command
    }

    pub fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    pub fn paths(&self) -> Vec<String> {
        self.server.requests().into_iter().map(|request| request.path).collect()
    }
}

/// A recorded body.
pub fn ok(fixture_name: &str) -> Answer {
    Answer::ok(Body::replay(fixture(fixture_name)))
}

/// An API error.
pub fn status(code: u16, reason: &str, message: &str) -> Answer {
    let status = format!(
        r#"{{"kind":"Status","apiVersion":"v1","status":"Failure","message":"{message}","reason":"{reason}","code":{code}}}"#
    );
    Answer::ok(Body::replay(status)).status(code).content_type("application/json")
}

/// A ConfigMap in namespace `web`, as JSON. `rest` follows its metadata.
pub fn config_map(name: &str, version: u32, rest: &str) -> String {
    format!(
        r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"web","uid":"{name}","resourceVersion":"{version}"}}{rest}}}"#
    )
}

/// A watch event of such a ConfigMap.
pub fn event(kind: &str, name: &str, version: u32, rest: &str) -> String {
    format!(r#"{{"type":"{kind}","object":{}}}"#, config_map(name, version, rest)) + "\n"
}

/// A watch event in protobuf.
pub fn frame(kind: &str, object: &[u8]) -> Vec<u8> {
    let event = [field(1, kind.as_bytes()), field(2, &field(1, &envelope("ConfigMap", object)))].concat();
    [&u32::try_from(event.len()).unwrap().to_be_bytes(), &event[..]].concat()
}

/// The bookmark that ends the initial events of ConfigMaps.
pub fn initial_end(version: u32) -> String {
    let metadata = format!(r#"{{"resourceVersion":"{version}","annotations":{{"k8s.io/initial-events-end":"true"}}}}"#);
    format!(r#"{{"type":"BOOKMARK","object":{{"kind":"ConfigMap","apiVersion":"v1","metadata":{metadata}}}}}"#) + "\n"
}

/// The watch event of a resource version that the server has compacted.
pub fn expired() -> String {
    let status =
        r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","message":"too old","code":410}"#;
    format!(r#"{{"type":"ERROR","object":{status}}}"#) + "\n"
}
