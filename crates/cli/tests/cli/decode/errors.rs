//! Errors of bodies, files and options, and what is skipped.

use prost::Message;

use super::*;
use crate::support::{fixture, listwatch, stderr, stdout};

#[test]
fn reports_each_error_on_one_line_and_exits_with_1() {
    let pods = fixture("pods.pb");
    let truncated = |at: usize| pods[..at].to_vec();
    let gzipped = fixture("pods-gzip.pb.gz");
    let mut bad_checksum = gzipped.clone();
    *bad_checksum.iter_mut().nth_back(7).unwrap() ^= 1;
    for (what, args, body, error, items) in [
        ("an empty body", &[][..], vec![], " is empty: expected the body of a list", 0),
        (
            "truncated in item 58",
            &[],
            truncated(500_000),
            ": incomplete: the body ended before the list did in item 58, at byte 500000, 58 items delivered",
            58,
        ),
        (
            "truncated in item 1",
            &[],
            truncated(9000),
            ": incomplete: the body ended before the list did in item 1, at byte 9000, 1 item delivered",
            1,
        ),
        (
            "a single object",
            &[],
            fixture("single-configmap.pb"),
            r#": not a list: the body has the kind "ConfigMap" of "v1", at byte 21, 0 items delivered; the file has single objects: to save a list, use `record`"#,
            0,
        ),
        (
            "an API error",
            &[],
            fixture("error-403.pb"),
            r#": API error: 403 Forbidden: pods is forbidden: User "nobody" cannot list resource "pods" in API group "" at the cluster scope, at byte 0, 0 items delivered"#,
            0,
        ),
        (
            "a table",
            &[],
            fixture("pods-table.json"),
            r#": not a list: the body has the kind "Table" of "meta.k8s.io/v1", at byte 16, 0 items delivered; request the list without as=Table"#,
            0,
        ),
        (
            "a watch",
            &[],
            fixture("watch-expired.pb"),
            ": unexpected encoding: the body looks like a watch stream, not like a list, at byte 0, 0 items delivered",
            0,
        ),
        (
            "text that controls the terminal",
            &[],
            b"no\x1b[31m\nlist".to_vec(),
            ": unexpected encoding: the body looks like text, not like a list, at byte 0, 0 items delivered",
            0,
        ),
        (
            "an item over the limit",
            &["--max-item-size", "8600B"],
            pods.clone(),
            ": item 1 is 8700 bytes, over the limit of 8600 bytes, at byte 8501, 1 item delivered; --max-item-size raises the limit",
            1,
        ),
        (
            "too many items",
            &["--max-items", "3"],
            pods.clone(),
            ": the list has at least 4 items, over the limit of 3, at byte 25553, 3 items delivered; --max-items raises the limit",
            3,
        ),
        (
            "a gzip bomb",
            &["--max-bytes", "1kB"],
            gzipped.clone(),
            ": the body is at least 1019268 bytes, over the limit of 1000 bytes, at byte 19, 0 items delivered; --max-bytes raises the limit",
            0,
        ),
        (
            "truncated gzip",
            &[],
            gzipped[..50_000].to_vec(),
            ": cannot read the body: unexpected end of file, at byte 397313, 46 items delivered",
            46,
        ),
        (
            "gzip with a bad checksum",
            &[],
            bad_checksum,
            ": cannot read the body: CRC computed does not match, at byte 1019272, 120 items delivered",
            120,
        ),
    ] {
        let output = decode(args, &body);
        assert_eq!(stderr(&output), format!("error: stdin{error}\n"), "{what}");
        assert_eq!((stdout(&output).lines().count(), output.status.code()), (items, Some(1)), "{what}");
        // The items before the error are the first of the list. Only a complete list has a summary.
        let names = decode(&[], &pods);
        assert!(stdout(&names).starts_with(stdout(&output)), "{what}");
        assert_eq!(stdout(&decode(&[args, &["-o", "summary"]].concat(), &body)), "", "{what}");
    }
}

#[test]
fn refuses_items_that_are_not_objects() {
    let null = "cannot read item 0, at byte 45, 0 items delivered: a value of the wrong type in the object";
    let other = "malformed: a value of the wrong type in items in item 0, at byte 45, 0 items delivered";
    for (item, error) in [("null", null), ("7", other), ("\"pod\"", other), ("[]", other), ("true", other)] {
        let body = format!(r#"{{"kind":"PodList","apiVersion":"v1","items":[{item}]}}"#);
        for format in ["name", "table", "wide", "json", "yaml"] {
            let output = decode(&["-o", format], body.as_bytes());
            let error = format!("error: stdin: {error}\n");
            assert_eq!((stderr(&output), output.status.code()), (&*error, Some(1)), "{item} with -o {format}");
        }
    }
}

#[test]
fn reports_an_expired_token_on_one_line() {
    let output = decode(&[], &fixture("error-410-continue.pb"));
    let error = stderr(&output);
    assert!(
        error.starts_with("error: stdin: API error: 410 Expired: The provided continue parameter is too old"),
        "{error}"
    );
    assert!(error.ends_with(", at byte 0, 0 items delivered\n"), "{error}");
    assert_eq!((error.lines().count(), output.status.code()), (1, Some(1)));
}

#[test]
fn names_the_file_that_it_cannot_read() {
    let output = listwatch(&["decode", "no/such/file"]).output().unwrap();
    assert_eq!(stderr(&output), "error: cannot read no/such/file: no such file or directory\n");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn skips_and_counts_bad_items() {
    let pods = fixture("pods.pb");
    let small = crate::support::pods(&pods).iter().filter(|pod| pod.encoded_len() <= 8600).count();
    let output = decode(&["--skip-bad-items", "--max-item-size", "8600B"], &pods);
    assert_eq!((stdout(&output).lines().count(), output.status.code()), (small, Some(0)));
    assert_eq!(stderr(&output), format!("skipped: {} bad items\n", 120 - small));
}

#[test]
fn escapes_control_characters_in_names() {
    // Two items without namespaces, the second with a name that is not UTF-8.
    let body = b"k8s\0\x0a\x0d\x0a\x02v1\x12\x07PodList\x12\x15\x0a\0\x12\x08\x0a\x06\x0a\x04a\n\x1bb\x12\x07\x0a\x05\x0a\x03\xff\xff\xff";
    let output = decode(&[], body);
    assert_eq!((stdout(&output), stderr(&output)), ("a\\n\\u{1b}b\n\u{fffd}\u{fffd}\u{fffd}\n", ""));
}

#[test]
fn exits_with_2_on_wrong_usage() {
    for (args, expected) in [
        (&["-o", "xml"][..], "invalid value 'xml'"),
        (&["--no-such-option"], "unexpected argument '--no-such-option'"),
        (&["--max-item-size", "much"], "invalid value 'much'"),
        (&["--max-items", "much"], "invalid value 'much' for '--max-items <N>': it is not a number\n"),
        (&["--limit", "0"], "invalid value '0' for '--limit <N>': it must be at least 1\n"),
        (&["--limit", "99999999999999999999"], "': it must be at most 18446744073709551615\n"),
    ] {
        let output = decode(args, b"");
        assert!(stderr(&output).contains(expected), "{args:?}: {}", stderr(&output));
        assert_eq!(output.status.code(), Some(2), "{args:?}");
    }
}
