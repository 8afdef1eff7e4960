//! What a release installs next to the command: manual pages, the completion of the kubectl plugin, and manifests.

use std::ffi::OsString;
use std::fs;
use std::process::Command;

use crate::support::{listwatch, stderr, stdout};

#[test]
fn writes_a_manual_page_for_each_command_of_the_help() {
    let directory = tempfile::tempdir().unwrap();
    let output = listwatch(&["man", directory.path().to_str().unwrap()]).output().unwrap();
    assert_eq!((stdout(&output), stderr(&output), output.status.code()), ("", "", Some(0)));
    let mut pages: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    pages.sort();
    let mut expected = pages_of(&[]);
    expected.push("listwatch.1".into());
    expected.sort();
    assert_eq!(pages, expected);
    let page = fs::read_to_string(directory.path().join("listwatch-get.1")).unwrap();
    assert!(page.contains(r"\fBlistwatch get\fR") && page.contains("Examples:"), "{page}");
}

/// Returns the pages of the commands that this command's help lists, and of theirs.
fn pages_of(command: &[&str]) -> Vec<OsString> {
    let help = listwatch(&[command, &["--help"]].concat()).output().unwrap();
    let Some((_, commands)) = stdout(&help).split_once("Commands:\n") else { return Vec::new() };
    let commands = commands.split("\n\n").next().unwrap().lines();
    let names = commands.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
    let paths = names.map(|name| [command, &[name]].concat());
    paths.flat_map(|path| [vec![format!("listwatch-{}.1", path.join("-")).into()], pages_of(&path)].concat()).collect()
}

#[test]
fn reports_a_directory_without_manual_pages() {
    let output = listwatch(&["man", "/no/directory"]).output().unwrap();
    assert!(stderr(&output).contains("cannot write manual pages to /no/directory: "), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(1));
}

/// kubectl reads a candidate from each line, and a directive from the last one.
#[test]
#[cfg(unix)]
fn completes_the_words_of_the_plugin_for_kubectl() {
    let directory = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_listwatch"), directory.path().join("kubectl-listwatch")).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/kubectl/kubectl_complete-listwatch");
    let path = format!("{}:{}", directory.path().to_str().unwrap(), std::env::var("PATH").unwrap());
    let complete = |words: &[&str]| {
        let output = Command::new(script).args(words).env("PATH", &path).output().unwrap();
        assert_eq!((stderr(&output), output.status.code()), ("", Some(0)));
        stdout(&output).to_owned()
    };
    assert_eq!(complete(&["cou"]), "count\n:4\n");
    assert_eq!(complete(&["get", "--skip"]), "--skip-encrypted\n:4\n");
    assert!(complete(&["get", "-"]).lines().any(|line| line == "--output"));
    // A file: the shell completes it.
    assert_eq!(complete(&["stats", "--from", "nothing-of-this-name"]), ":0\n");
    assert_eq!(complete(&["get", "deploym"]), "deployments\n:4\n");
}

/// Only the files of the certificate are missing: they are read once the arguments are valid.
#[test]
fn accepts_the_arguments_of_the_manifests() {
    let manifests = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/manifests.yaml")).unwrap();
    let args = manifests.split("- mirror\n").nth(1).unwrap();
    let args: Vec<_> = args.lines().map_while(|line| line.trim().strip_prefix("- ")).collect();
    assert!(args.contains(&"deployments.apps") && args.contains(&"--listen=0.0.0.0:8443"), "{args:?}");
    let args = args.into_iter().map(|arg| if arg.starts_with("--listen=") { "--listen=0.0.0.0:0" } else { arg });
    let args: Vec<_> = ["mirror"].into_iter().chain(args).chain(["--server", "http://127.0.0.1:1"]).collect();
    let output = listwatch(&args).output().unwrap();
    let error = stderr(&output);
    assert!(error.contains("/tls/tls.crt") && !error.contains("Usage"), "{error}");
    assert_eq!(output.status.code(), Some(1));
}
