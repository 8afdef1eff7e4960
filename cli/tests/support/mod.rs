//! The command and what it prints.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod api;

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output};

use listwatch_testserver::leak;

pub const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/");

pub fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(PathBuf::from(FIXTURES).join(name)).expect(name)
}

/// Runs a command, whose streams are piped, with a body on stdin.
pub fn with_stdin(mut command: Command, body: &[u8]) -> Output {
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        // Fails when the command ends before it has read all, as it does on an error.
        scope.spawn(move || _ = stdin.write_all(body));
        child.wait_with_output().unwrap()
    })
}

/// Both streams are searched for the token, whichever is asked for.
pub fn stdout(output: &Output) -> &str {
    searched(output);
    str::from_utf8(&output.stdout).unwrap()
}

/// As [`stdout`].
pub fn stderr(output: &Output) -> &str {
    searched(output);
    str::from_utf8(&output.stderr).unwrap()
}

#[track_caller]
fn searched(output: &Output) {
    assert_eq!((leak(&output.stdout), leak(&output.stderr)), (None, None));
}
