//! The demo with few Pods: its table, its plot, its processes.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use listwatch_testserver::{Answer, Body, Server, Synthesizer, recorded_pods};

fn demo(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_listwatch-demo"));
    command.args(args);
    command
}

fn stderr(output: &Output) -> &str {
    str::from_utf8(&output.stderr).unwrap()
}

#[test]
fn shows_a_table_and_writes_a_plot() {
    let folder = tempfile::tempdir().unwrap();
    let output = demo(&["--pods", "2000", "--svg", "memory.svg"]).current_dir(&folder).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let stdout = str::from_utf8(&output.stdout).unwrap();

    let row = |name: &str| {
        let line = stdout.lines().find(|line| line.trim_start().starts_with(name));
        line.unwrap_or_else(|| panic!("no {name} in {stdout}")).trim_start().trim_start_matches(name).trim()
    };
    let last_two = |name: &str| row(name).split_whitespace().rev().take(2).collect::<Vec<_>>();
    assert_eq!(last_two("full buffer")[0], "1.00");
    assert_eq!(last_two("listwatch, drop")[1], "-");
    assert_eq!(last_two("listwatch, Box<Pod>")[1], "kB");
    // Wall, user and system time, the first item, and two sizes: a number and a unit each.
    assert_eq!(row("full buffer").split_whitespace().count(), 2 * 6 + 1, "{stdout}");
    // The kernel may reclaim resident memory, so only the proportion is checked.
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
fn refuses_an_unwritable_plot_before_any_work() {
    let output = demo(&["--svg", "no/such/folder/memory.svg"]).output().unwrap();
    assert_eq!(stderr(&output), "error: cannot write no/such/folder/memory.svg: no such file or directory\n");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn client_fails_on_a_list_of_another_length() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let pods = Synthesizer::new(&recorded_pods(), 10).unwrap();
    let server = runtime.block_on(Server::start(Answer::ok(Body::synthesize(pods)).always())).unwrap();
    for way in ["full buffer", "listwatch, drop", "listwatch, Box<Pod>", "listwatch, Box<[u8]>"] {
        let mut client = demo(&["client", way, &server.addr().to_string(), "11"]);
        let mut client = client.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        // Closing stdin would end the client.
        let mut stdin = client.stdin.take().unwrap();
        stdin.write_all(b"\n").unwrap();
        let output = client.wait_with_output().unwrap();
        assert_eq!(
            (stderr(&output), output.status.code()),
            ("error: received 10 Pods, expected 11\n", Some(1)),
            "{way}"
        );
    }
}

#[test]
fn client_exits_with_its_parent() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let pods = Synthesizer::new(&recorded_pods(), 10).unwrap();
    let server = runtime.block_on(Server::start(Answer::ok(Body::synthesize(pods)).always())).unwrap();
    let mut client = demo(&["client", "listwatch, drop", &server.addr().to_string(), "10"]);
    let mut client = client.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    client.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    // Closes stdin.
    assert_eq!(client.wait().unwrap().code(), Some(0));
}
