//! How each command ends: without stdout or stderr, on a full disk, and on signals.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::{FIXTURES, NAMES, fixture, listwatch, piped, signal, stderr};

/// A command that prints more than fits into a pipe and the buffer.
fn print_much() -> Command {
    listwatch(&["get", "pods", "-A", "-o", "jsonl", "--from", &format!("{FIXTURES}pods.pb")])
}

/// Starts the command, and waits until it prints.
fn printing(mut command: Command) -> Child {
    let mut child = command.spawn().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    child
}

/// Returns a pipe whose reader has left.
fn closed() -> Stdio {
    io::pipe().unwrap().1.into()
}

/// Commands that need no server, with their exit codes. Each prints to stdout, stderr or both.
fn offline(folder: &Path) -> Vec<(Command, i32)> {
    let page = format!("{FIXTURES}pods-page-1.pb");
    let commands = [
        (vec!["get", "pods", "-A", "--from", &page], 0),
        (vec!["get", "pods", "-A", "-o", "json", "--from", &page], 0),
        (vec!["get", "pods", "no", "-n", "none", "--from", &page], 1),
        (vec!["get", "pods", "--from", "/no/file"], 1),
        (vec!["get", "pods", "--limit", "0"], 2),
        (vec!["stats", "--from", &page], 0),
        (vec!["stats", "-o", "json", "--from", &page], 0),
        (vec!["completions", "bash"], 0),
        (vec!["--help"], 0),
        (vec!["--version"], 0),
        (vec!["no-command"], 2),
    ];
    let in_folder = |(args, code): (Vec<&str>, i32)| {
        let mut command = listwatch(&args);
        command.current_dir(folder);
        (command, code)
    };
    commands.into_iter().map(in_folder).collect()
}

#[test]
fn errors_of_files_are_in_the_words_of_users() {
    const FROM: [&str; 4] = ["--from", "none", "--write-kubeconfig", "none/kubeconfig"];
    const SERVER: [&str; 2] = ["--server", "https://127.0.0.1:1"];
    let mirror = ["mirror", "pods", "--listen", "127.0.0.1:0"];
    for (args, error) in [
        (&[&["stats", "--from", "none"][..]][..], "cannot read none"),
        (&[&["get", "pods", "--kubeconfig", "none"]], "kubeconfig: cannot read none"),
        (&[&["get", "pods", "--certificate-authority", "none"], &SERVER], "cannot read none"),
        (&[&["get", "pods", "--token-file", "none"], &SERVER], "no valid credentials: none"),
        (&[&["get", "pods"], &FROM[..2]], "none"),
        (&[&["record", "pods", "none/file"], &SERVER], "cannot write none/file"),
        (&[&["man", "none"]], "cannot write manual pages to none"),
        (&[&["etcd", "check", "none"]], "none: cannot read"),
        (&[&mirror, &FROM], "cannot write none/kubeconfig"),
        (&[&mirror, &SERVER, &["--settings", "none"]], "cannot read none"),
        (
            &[&["get", "pods", "-o", "jsonpath-file=none"]],
            "invalid value 'jsonpath-file=none' for '--output <FORMAT>': cannot read none",
        ),
    ] {
        let output = listwatch(&args.concat()).output().unwrap();
        let first = stderr(&output).lines().next().unwrap_or_default();
        assert_eq!(first, format!("error: {error}: no such file or directory"), "{args:?}");
    }
}

#[test]
fn keeps_its_exit_code_without_stderr() {
    let folder = tempfile::tempdir().unwrap();
    for (mut command, code) in offline(folder.path()) {
        let output = command.stderr(closed()).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{command:?}");
    }
}

/// A reader that leaves early is no error. Errors keep their exit code.
#[test]
fn exits_without_a_panic_if_stdout_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    for (mut command, code) in offline(folder.path()) {
        let output = command.stdout(closed()).output().unwrap();
        assert!([Some(code), Some(0)].contains(&output.status.code()), "{command:?}: {}", stderr(&output));
        assert!(!stderr(&output).contains("panicked"), "{command:?}: {}", stderr(&output));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn reports_a_full_disk() {
    let folder = tempfile::tempdir().unwrap();
    let full = || File::options().write(true).open("/dev/full").unwrap();
    for (mut command, code) in offline(folder.path()) {
        let name = format!("{command:?}");
        // clap ignores errors of its own output.
        let by_clap = name.contains("--help") || name.contains("--version");
        let output = command.stdout(full()).output().unwrap();
        let expected = if by_clap || code != 0 { code } else { 1 };
        assert_eq!(output.status.code(), Some(expected), "{name}: {}", stderr(&output));
        if expected == 1 && code == 0 {
            assert!(stderr(&output).contains("error: cannot write to stdout: no space left"), "{}", stderr(&output));
        }
    }
    for (mut command, code) in offline(folder.path()) {
        let output = command.stderr(full()).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{command:?}");
    }
}

#[cfg(unix)]
mod signals {
    use std::io::Write;

    use super::*;

    /// The reader of stdout does not read.
    #[test]
    fn end_a_command_whose_output_is_blocked() {
        for sent in ["-INT", "-TERM", "-HUP"] {
            let child = printing(print_much());
            let mut child = Unread::new(child);
            signal(&child.child, sent);
            let (code, text) = child.end();
            assert_eq!(text, "interrupted: the output is blocked, so its end is missing\n", "{sent}");
            assert_eq!(code, Some(130), "{sent}");
        }
    }

    #[test]
    fn end_a_blocked_command_at_once_if_there_are_two() {
        let mut child = Unread::new(printing(print_much()));
        signal(&child.child, "-INT");
        signal(&child.child, "-TERM");
        assert_eq!(child.end(), (Some(130), String::new()));
    }

    #[test]
    fn decide_the_exit_code_if_the_reader_leaves_meanwhile() {
        let mut child = printing(print_much());
        signal(&child, "-INT");
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    }

    #[test]
    fn end_a_command_that_waits_for_its_input() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let child = listwatch(&["stats", "--from", fifo.to_str().unwrap()]).spawn().unwrap();
        // Returns when the command has opened it.
        let _writer = File::options().write(true).open(&fifo).unwrap();
        signal(&child, "-TERM");
        let output = child.wait_with_output().unwrap();
        assert_eq!((stderr(&output), output.status.code()), ("interrupted: nothing was read yet\n", Some(130)));
    }

    /// As `nohup` starts it.
    #[cfg(target_os = "linux")]
    #[test]
    fn stay_ignored_if_they_are_ignored_at_the_start() {
        let read = piped(&["stats", "--from", "-"]);
        let mut shell = Command::new("sh");
        shell.args(["-c", "trap '' HUP INT; exec \"$0\" \"$@\""]).arg(read.get_program()).args(read.get_args());
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = shell.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let body = fixture("pods.pb");
        stdin.write_all(&body[..9000]).unwrap();
        signal(&child, "-HUP");
        signal(&child, "-INT");
        stdin.write_all(&body[9000..]).unwrap();
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        assert_eq!((stderr(&output), output.status.code()), ("", Some(0)));
    }

    /// A process whose stdout stays open and is not read.
    struct Unread {
        child: Child,
        #[allow(dead_code, reason = "it is only kept open without the feature `cluster`")]
        stdout: std::process::ChildStdout,
    }

    impl Unread {
        fn new(mut child: Child) -> Self {
            let stdout = child.stdout.take().unwrap();
            Self { child, stdout }
        }

        /// Returns the exit code and stderr.
        fn end(&mut self) -> (Option<i32>, String) {
            let mut text = String::new();
            self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
            (self.child.wait().unwrap().code(), text)
        }
    }

    mod with_a_server {
        use std::io::{BufRead, BufReader};
        use std::net::TcpStream;

        use listwatch_testserver::{Answer, Body};

        use super::*;
        use crate::support::api::{Api, event, initial_end, status};

        /// An interrupted watch is a success, also when its output is blocked or its reader has left.
        #[test]
        fn end_a_watch_with_0() {
            let many: String = (0..20_000).map(|n| event("ADDED", &format!("object-{n}"), n, "")).collect();
            for leaves in [false, true] {
                let list =
                    r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}"#;
                let api = Api::new([Answer::ok(Body::replay(list)), Answer::ok(Body::replay(many.clone()))]);
                let mut child = Unread::new(printing(api.command(&["watch", "cm", "-n", "web", "-o", "json"])));
                signal(&child.child, "-TERM");
                if leaves {
                    let Unread { mut child, stdout } = child;
                    drop(stdout);
                    assert_eq!(child.wait().unwrap().code(), Some(0));
                } else {
                    // A part of the output is lost.
                    assert_eq!(child.end().0, Some(130));
                }
            }
        }

        #[test]
        fn delete_the_partial_file_of_a_recording() {
            for signals in [&["-HUP"][..], &["-INT", "-TERM"]] {
                let folder = tempfile::tempdir().unwrap();
                let file = folder.path().join("pods.pb");
                let stalled = Answer::ok(Body::replay(fixture("pods.pb")).stall_at(100_000));
                let api = Api::new([status(503, "ServiceUnavailable", "soon"), stalled]);
                let mut child = api.command(&["record", "pods", "-A", file.to_str().unwrap()]).spawn().unwrap();
                // The file is created before the first request, which is retried.
                child.stderr.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
                assert_eq!(folder.path().read_dir().unwrap().count(), 1);
                for sent in signals {
                    signal(&child, sent);
                }
                assert_eq!(child.wait_with_output().unwrap().status.code(), Some(130));
                assert_eq!(folder.path().read_dir().unwrap().count(), 0);
            }
        }

        /// A mirror waits for open requests, until the second signal.
        #[test]
        fn end_a_mirror_at_once_if_there_are_two() {
            let initial = initial_end(9);
            let api = Api::by(move |request, _| match &*request.path {
                path if path.contains("watch=") => {
                    Answer::ok(Body::replay(initial.clone()).stall_at(initial.len() as u64))
                }
                _ => Answer::ok(Body::replay("{}{}").stall_at(2)).content_type("application/json"),
            });
            let mut child = api.command(&["mirror", "cm", "--listen", "127.0.0.1:0"]).spawn().unwrap();
            let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
            let address = lines.find_map(|line| line.strip_prefix("serving: http://").map(str::to_owned)).unwrap();
            // The API server does not end its answer to this request, which is forwarded.
            let mut reader = TcpStream::connect(&address).unwrap();
            write!(reader, "GET /version HTTP/1.0\r\nHost: {address}\r\n\r\n").unwrap();
            reader.read_exact(&mut [0; 8]).unwrap();
            signal(&child, "-INT");
            signal(&child, "-TERM");
            assert_eq!(child.wait().unwrap().code(), Some(130));
        }
    }
}

mod with_a_server {
    use listwatch_testserver::{Answer, Body};

    use super::*;
    use crate::support::api::{Api, event, ok, status};

    fn json(text: impl Into<String>) -> Answer {
        Answer::ok(Body::replay(text.into()))
    }

    /// A server's answers, the arguments of a command, its exit code, and its exit code if the reader of stdout has
    /// left.
    fn commands(folder: &Path) -> Vec<(Vec<Answer>, Vec<String>, i32, i32)> {
        let busy = || status(503, "ServiceUnavailable", "soon").header("warning", "299 - \"slow\"");
        let forbidden = || status(403, "Forbidden", "no");
        let empty =
            || json(r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}"#);
        let file = folder.join("pods.pb.gz").to_string_lossy().into_owned();
        let commands = [
            (vec![busy(), ok("pods.pb")], vec!["get", "pods", "-A", "-o", NAMES, "-vv"], 0, 0),
            (vec![empty()], vec!["get", "cm", "-n", "web", "-o", "jsonl"], 0, 0),
            (vec![forbidden()], vec!["get", "cm", "-n", "web"], 1, 1),
            (vec![empty(), json(event("ADDED", "a", 8, "")), forbidden()], vec!["watch", "cm", "-n", "web"], 1, 0),
            (vec![busy(), ok("pods.pb")], vec!["stats", "pods", "-A"], 0, 0),
            (vec![busy(), ok("pods.pb")], vec!["record", "pods", "-A", &file], 0, 0),
            (vec![forbidden()], vec!["mirror", "cm", "--listen", "127.0.0.1:0", "-v"], 1, 1),
        ];
        let owned = |args: Vec<&str>| args.into_iter().map(str::to_owned).collect();
        commands.map(|(answers, args, code, closed)| (answers, owned(args), code, closed)).into()
    }

    #[test]
    fn keeps_its_exit_code_without_stderr_or_stdout() {
        let folder = tempfile::tempdir().unwrap();
        for without_stderr in [true, false] {
            for (answers, args, code, if_closed) in commands(folder.path()) {
                let api = Api::new(answers);
                let mut command = api.command(&args.iter().map(String::as_str).collect::<Vec<_>>());
                if without_stderr {
                    let output = command.stderr(closed()).output().unwrap();
                    assert_eq!(output.status.code(), Some(code), "{args:?} without stderr");
                } else {
                    let output = command.stdout(closed()).output().unwrap();
                    assert!(!stderr(&output).contains("panicked"), "{args:?}: {}", stderr(&output));
                    assert_eq!(output.status.code(), Some(if_closed), "{args:?}: {}", stderr(&output));
                }
            }
        }
    }
}
