//! `listwatch demo`, with few Pods.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

#[test]
fn shows_a_table_and_writes_a_plot() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_listwatch"))
        .args(["demo", "--pods", "2000", "--svg", "memory.svg"])
        .current_dir(&folder)
        .output()
        .unwrap();
    let (stdout, stderr) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(0), "{stderr}");

    let row = |name: &str| {
        let line = stdout.lines().find(|line| line.trim_start().starts_with(name));
        line.unwrap_or_else(|| panic!("no {name} in {stdout}")).trim_start().trim_start_matches(name).trim()
    };
    let last_three = |name: &str| row(name).split_whitespace().rev().take(3).collect::<Vec<_>>();
    assert_eq!(last_three("full buffer")[..2], ["1.00", "1.00"]);
    assert_eq!(last_three("listwatch, drop")[2], "-");
    assert_eq!(last_three("listwatch, Box<Pod>")[2], "kB");
    // Of resident memory the kernel may take back what it likes: the two only stand in proportion.
    let held = |name: &str| -> f64 {
        let held = row(name).split(" kB").next().unwrap().split_whitespace().next_back().unwrap();
        held.parse().unwrap_or_else(|_| panic!("{held} in {stdout}"))
    };
    let (bytes, decoded) = (held("listwatch, Box<[u8]>"), held("listwatch, Box<Pod>"));
    assert!(bytes > 0.0 && bytes < decoded / 2.0, "{bytes} and {decoded}");
    assert!(stdout.contains("2,000 Pods, 17.0 MB of protobuf: 120 recorded Pods"), "{stdout}");
    assert!(stdout.ends_with("Memory over time: memory.svg\n"), "{stdout}");

    let svg = std::fs::read_to_string(folder.path().join("memory.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    assert!(["D55E00", "0072B2", "009E73", "CC79A7"].iter().all(|color| svg.contains(&format!("stroke=\"#{color}\""))));
    assert!(svg.contains("2,000 Pods"));
}

#[test]
fn a_plot_that_cannot_be_written_is_an_error_before_any_work() {
    let output = Command::new(env!("CARGO_BIN_EXE_listwatch"))
        .args(["demo", "--svg", "no/such/folder/memory.svg"])
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(stderr, "error: cannot write no/such/folder/memory.svg: No such file or directory (os error 2)\n");
    assert_eq!(output.status.code(), Some(1));
}

/// The clients count: a list of another length is not what they were asked to list.
#[test]
fn a_client_that_saw_too_few_pods_fails() {
    let start = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_listwatch"));
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut server = start(&["demo-server", "10"]);
    let mut url = String::new();
    BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut url).unwrap();
    for way in ["full-buffer", "drop", "keep-pods", "keep-bytes"] {
        let mut client = start(&["demo-client", way, url.trim().trim_matches('"'), "11"]);
        // Its end would end the client.
        let mut stdin = client.stdin.take().unwrap();
        stdin.write_all(b"\n").unwrap();
        let output = client.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((&*stderr, output.status.code()), ("error: 10 Pods came, not 11\n", Some(1)), "{way}");
    }
    // No child outlives its parent.
    assert_eq!(server.wait_with_output().unwrap().status.code(), Some(0));
}
