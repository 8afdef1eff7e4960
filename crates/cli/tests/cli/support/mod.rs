//! Runs the command, and reads its output.

pub mod api;
pub mod protobuf;

use std::io::Write;
#[cfg(unix)]
use std::process::Child;
use std::process::{Command, Output, Stdio};

use k8s_pb::api::core::v1::{Pod, PodList};
use k8s_pb::apimachinery::pkg::runtime::Unknown;
use listwatch_testserver::leak;
use prost::Message;

pub const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/");

/// The format of `get` that prints NAMESPACE/NAME of whole objects, as they were recorded. `-o keys` requests metadata.
pub const NAMES: &str = "jsonpath={range .items[*]}{.metadata.namespace}/{.metadata.name}{\"\\n\"}{end}";

pub fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(format!("{FIXTURES}{name}")).expect(name)
}

/// Returns the list in a protobuf body, decoded by prost.
pub fn list<M: Message + Default>(body: &[u8]) -> M {
    let envelope = Unknown::decode(body.strip_prefix(b"k8s\0").unwrap()).unwrap();
    M::decode(envelope.raw.unwrap().as_slice()).unwrap()
}

/// Returns the Pods in a protobuf body, decoded by prost.
pub fn pods(body: &[u8]) -> Vec<Pod> {
    list::<PodList>(body).items
}

/// Returns the output of `-o name` for Pods.
pub fn names(pods: &[Pod]) -> String {
    let metas = pods.iter().map(|pod| pod.metadata.clone().unwrap());
    metas.map(|meta| format!("{}/{}\n", meta.namespace.unwrap(), meta.name.unwrap())).collect::<Vec<_>>().concat()
}

/// Returns the command with these arguments, without stdin and without a kubeconfig. Its output is piped.
pub fn listwatch(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_listwatch"));
    let nowhere = concat!(env!("CARGO_MANIFEST_DIR"), "/no/kubeconfig");
    command.args(args).env("KUBECONFIG", nowhere).env_remove("KUBERNETES_SERVICE_HOST");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Returns the same command, with a pipe for its stdin.
pub fn piped(args: &[&str]) -> Command {
    let mut command = listwatch(args);
    command.stdin(Stdio::piped());
    command
}

/// Runs the command with a body on stdin.
pub fn with_stdin(args: &[&str], body: &[u8]) -> Output {
    let mut child = piped(args).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        // Fails if the command exits before it has read the whole body, as it does on an error.
        scope.spawn(move || _ = stdin.write_all(body));
        child.wait_with_output().unwrap()
    })
}

/// Sends a signal, such as `-INT`.
#[cfg(unix)]
pub fn signal(child: &Child, signal: &str) {
    assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
}

/// Returns stdout as text. Fails if stdout or stderr contains the token.
pub fn stdout(output: &Output) -> &str {
    searched(output);
    str::from_utf8(&output.stdout).unwrap()
}

/// Returns stderr as text. Fails if stdout or stderr contains the token.
pub fn stderr(output: &Output) -> &str {
    searched(output);
    str::from_utf8(&output.stderr).unwrap()
}

#[track_caller]
fn searched(output: &Output) {
    assert_eq!((leak(&output.stdout), leak(&output.stderr)), (None, None));
}
