//! `listwatch stats` of a list from an API server: the report is the same as for the saved body.

use std::io::Read;

use listwatch_testserver::{Answer, Body};
use serde_json::Value;

use super::report;
use crate::support::api::{Api, ok};
use crate::support::{fixture, signal, stderr, stdout};

#[test]
fn counts_a_live_list_like_a_saved_one() {
    let mut saved = report(&["--depth", "3"], &fixture("pods.pb"));
    let pages = ["pods-page-1.pb", "pods-page-2.pb", "pods-page-3.pb"];
    for (args, answers) in [(&[][..], vec![ok("pods.pb")]), (&["--chunk-size", "50"], pages.map(ok).to_vec())] {
        let args = [&["stats", "pods", "-A", "-o", "json", "--top", "60000", "--depth", "3"], args].concat();
        let output = Api::new(answers).run(&args);
        assert_eq!((stderr(&output), output.status.code()), ("", Some(0)), "{args:?}");
        let mut found: Value = serde_json::from_slice(&output.stdout).unwrap();
        // Three pages have three envelopes.
        saved["bodyBytes"] = found["bodyBytes"].take();
        found["bodyBytes"] = saved["bodyBytes"].clone();
        assert_eq!(found, saved, "{args:?}");
    }
    for (args, answer, expected, code) in [
        (&[][..], Answer::ok(Body::replay(fixture("pods.pb")).cut_at(100_000)), "error: incomplete: ", 1),
        (
            &["--drop", "spec.x"],
            ok("pods.pb"),
            "error: --drop: invalid field path \"spec.x\": Pod has no such field\n",
            2,
        ),
    ] {
        let output = Api::new([answer]).run(&[&["stats", "pods", "-A"], args].concat());
        assert!(stderr(&output).starts_with(expected), "{}", stderr(&output));
        assert_eq!((stdout(&output), output.status.code()), ("", Some(code)), "{expected}");
    }
}

#[cfg(unix)]
#[test]
fn exits_with_130_on_an_interrupt() {
    let stalled = Answer::ok(Body::replay(fixture("pods.pb")).stall_at(100_000));
    // The command handles signals before it reports the retry.
    let busy = Answer::ok(Body::replay("")).status(503);
    let api = Api::new([busy, stalled]);
    let mut child = api.command(&["stats", "pods", "-A"]).spawn().unwrap();
    child.stderr.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
    signal(&child, "-INT");
    let output = child.wait_with_output().unwrap();
    assert!(stderr(&output).contains("interrupted: at byte "), "{}", stderr(&output));
    assert_eq!((stdout(&output), output.status.code()), ("", Some(130)));
}
