//! The command against a server.

use std::process::{Command, Output, Stdio};

use listwatch_testserver::{Answer, Body, RecordedRequest, Server};
use tokio::runtime::Runtime;

pub fn status(code: u16, reason: &str, message: &str) -> Answer {
    let status = format!(
        r#"{{"kind":"Status","apiVersion":"v1","status":"Failure","message":"{message}","reason":"{reason}","code":{code}}}"#
    );
    Answer::ok(Body::replay(status)).status(code).content_type("application/json")
}

/// A server, on a runtime that lives as long.
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

pub fn listwatch(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_listwatch"));
    let nowhere = concat!(env!("CARGO_MANIFEST_DIR"), "/no/kubeconfig");
    command.args(args).env("KUBECONFIG", nowhere).env_remove("KUBERNETES_SERVICE_HOST");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}
