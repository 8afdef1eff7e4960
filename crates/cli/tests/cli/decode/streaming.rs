//! Output while the body arrives, closed pipes and interrupts.

use std::io::{Read, Write};

use crate::support::{fixture, names, piped, pods, stderr};

#[test]
fn exits_quietly_with_0_on_a_closed_pipe() {
    let mut child = piped(&["decode"]).spawn().unwrap();
    drop(child.stdout.take());
    let mut stdin = child.stdin.take().unwrap();
    _ = stdin.write_all(&fixture("pods.pb"));
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert_eq!((stderr(&output), output.status.code()), ("", Some(0)));
}

#[test]
fn prints_names_before_the_body_ends() {
    let body = fixture("pods.pb");
    let expected = names(&pods(&body)[..58]);
    let mut child = piped(&["decode"]).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&body[..500_000]).unwrap();
    let mut names = vec![0; expected.len()];
    child.stdout.take().unwrap().read_exact(&mut names).unwrap();
    assert_eq!(str::from_utf8(&names).unwrap(), expected);
    drop(stdin);
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

#[cfg(unix)]
#[test]
fn exits_with_130_on_an_interrupt() {
    let mut child = piped(&["decode"]).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&fixture("pods.pb")[..9000]).unwrap();
    // The command handles signals before it prints the first name.
    let mut first = [0; 10];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    crate::support::signal(&child, "-INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(stderr(&output), "interrupted: at byte 9000, 1 item delivered\n");
    assert_eq!(output.status.code(), Some(130));
    drop(stdin);
}
