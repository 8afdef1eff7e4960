//! In a process with a small address space, a declared size reserves nothing.

use std::process::Command;

use listwatch::Limits;
use listwatch_testserver::{Answer, Body};

use crate::support::process::{printed, test_name};
use crate::support::{len_field, tag, varint};
use crate::{INCOMPLETE, Whole, alone, client, gzip, list, list_within, serve};

/// Runs itself in a process with 256 MB of address space: nothing is reserved for a size that a body declares.
#[test]
fn declared_sizes_reserve_nothing() {
    const CHILD: &str = "LISTWATCH_CHAOS_CHILD";

    if std::env::var_os(CHILD).is_some() {
        return claims();
    }
    let test = std::env::current_exe().unwrap();
    let name = test_name(module_path!(), "declared_sizes_reserve_nothing");
    let mut child = Command::new("sh");
    child.args(["-c", "ulimit -v 262144; exec \"$0\" --exact \"$1\" --nocapture"]).arg(test).arg(name);
    let output = child.env(CHILD, "1").env("MALLOC_ARENA_MAX", "1").output().unwrap();
    let shown = printed(&output);
    assert!(output.status.success(), "{}: {shown}", output.status);
    assert!(shown.contains("1 passed"), "{shown}");
}

fn claims() {
    assert!(Vec::<u8>::new().try_reserve_exact(256 << 20).is_err(), "the address space is not capped");
    let envelope = [b"k8s\0", &len_field(1, &[len_field(1, b"v1"), len_field(2, b"PodList")].concat())[..]].concat();
    let claim = |fields: &[(u32, u64)]| {
        let mut body = envelope.clone();
        for (number, length) in fields {
            body.extend_from_slice(&tag(*number, 2));
            varint(*length, &mut body);
        }
        body.resize(body.len() + (1 << 20), b'x');
        body
    };
    let json =
        |item: &str| format!(r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{}},"items":[{item}"#).into_bytes();
    let patient = Limits::default().item_size(u64::MAX).metadata_size(u64::MAX);
    let limits = Limits::default();
    alone(async {
        let whole = Whole { body: Vec::new(), items: Vec::new() };
        for (case, body, limits) in [
            ("an item of 2^31-1", claim(&[(2, 1 << 40), (2, (1 << 31) - 1)]), limits),
            ("an item of 2^31-1, allowed", claim(&[(2, 1 << 40), (2, (1 << 31) - 1)]), patient),
            ("an item of 2^31", claim(&[(2, 1 << 40), (2, 1 << 31)]), patient),
            ("raw of 2^62", claim(&[(2, 1 << 62)]), limits),
            ("a list meta of 2^61", claim(&[(2, 1 << 62), (1, 1 << 61)]), patient),
            ("a version of 2^60", claim(&[(2, 1 << 62), (1, 1 << 61), (2, 1 << 60)]), patient),
            ("a version of 2^60, not allowed", claim(&[(2, 1 << 62), (1, 1 << 61), (2, 1 << 60)]), limits),
            ("an unknown field of 2^61", claim(&[(2, 1 << 62), (9, 1 << 61)]), limits),
            ("a type meta of 2^62", claim(&[(1, 1 << 62)]), limits),
            ("JSON, deep", json(&"[".repeat(32 << 20)), limits),
            ("JSON, deep in an item", json(&"{\"a\":".repeat(1 << 20)), limits),
            ("JSON, a long string", json(&format!("{{\"a\":\"{}", "x".repeat(32 << 20))), limits),
        ] {
            let server = serve(Answer::ok(Body::replay(body))).await;
            let ending = list_within(case, client(&server.url(), false), &whole, limits).await;
            ending.expect(case, &["item 0 is ", "the body is ", "the metadata is ", "malformed: ", INCOMPLETE]);
        }
        let bomb = [gzip(&json("{\"a\":\"")), gzip(&vec![b'x'; 1 << 20]).repeat(300)].concat();
        let server = serve(Answer::ok(Body::replay(bomb)).header("content-encoding", "gzip")).await;
        list("a gzip bomb", client(&server.url(), false), &whole).await.expect("a gzip bomb", &["item 0 is "]);
    });
}
