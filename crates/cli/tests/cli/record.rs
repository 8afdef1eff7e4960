//! `listwatch record` against a server: the file is the body that the server sent.

use listwatch_testserver::{Answer, Body};

use crate::support::api::{Api, ok, status};
use crate::support::{fixture, stderr, stdout};

#[test]
fn writes_the_body_byte_for_byte() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pods.pb");
    let path = file.to_str().unwrap();
    let body = fixture("pods.pb");

    let truncated = Answer::ok(Body::replay(body.clone()).cut_at(100_000));
    let output = Api::new([truncated]).run(&["record", "pods", "-A", path]);
    assert!(stderr(&output).starts_with("error: incomplete: "), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(directory.path().read_dir().unwrap().count(), 0, "no file is left");

    // The file contains nothing from a failed attempt.
    let api = Api::new([status(503, "ServiceUnavailable", "soon"), ok("pods.pb")]);
    let output = api.run(&["record", "pods", "-A", path]);
    let last = stderr(&output).lines().last().unwrap();
    assert!(last.starts_with("recorded: "), "{}", stderr(&output));
    assert_eq!((stdout(&output), output.status.code()), ("", Some(0)));
    assert!(std::fs::read(&file).unwrap() == body);
    assert_eq!(api.server.requests()[1].headers["accept-encoding"], "identity");
    assert_eq!(directory.path().read_dir().unwrap().count(), 1, "no other file is left");

    let gz = directory.path().join("pods.pb.gz");
    let output = Api::new([ok("pods.pb")]).run(&["record", "pods", "-A", gz.to_str().unwrap()]);
    let warning = format!("warning: {}: the body is saved as it arrived, uncompressed\n", gz.display());
    assert!(stderr(&output).starts_with(&warning), "{}", stderr(&output));
    assert!(std::fs::read(&gz).unwrap() == body);

    let output = Api::new([ok("pods.pb")]).run(&["record", "pods", "/no/directory/pods.pb"]);
    assert!(stderr(&output).starts_with("error: cannot write /no/directory/pods.pb: "), "{}", stderr(&output));
}

#[test]
fn rejects_a_missing_file_name_before_any_request() {
    let api = Api::new([ok("pods.pb")]);
    let output = api.run(&["record", "pods"]);
    assert!(stderr(&output).contains("<FILE>"), "{}", stderr(&output));
    assert_eq!((output.status.code(), api.paths()), (Some(2), vec![]));
}

/// FILE has one body, which must be the whole collection.
#[test]
fn a_page_that_was_not_requested_is_not_recorded() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pods.pb");
    let api = Api::new([ok("pods-page-1.pb")]);
    let output = api.run(&["record", "pods", "-A", file.to_str().unwrap()]);
    let expected = "error: the server sent only a page of 50 items, and a continue token: nothing was recorded";
    assert!(stderr(&output).starts_with(expected), "{}", stderr(&output));
    assert_eq!((output.status.code(), api.paths().len()), (Some(1), 1));
    assert_eq!(directory.path().read_dir().unwrap().count(), 0, "no file is left");
}
