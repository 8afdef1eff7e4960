//! The help of the kubectl plugin, and of a build without the feature `cluster`.

use crate::support::{listwatch, stderr, stdout};

#[test]
#[cfg(unix)]
fn names_kubectl_in_the_help_of_a_plugin() {
    let directory = tempfile::tempdir().unwrap();
    let plugin = directory.path().join("kubectl-listwatch");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_listwatch"), &plugin).unwrap();
    let commands = [
        ("decode", "Usage: kubectl listwatch decode [OPTIONS] [FILE]", "  kubectl listwatch decode pods.pb  "),
        #[cfg(feature = "cluster")]
        ("list", "Usage: kubectl listwatch list [OPTIONS] <RESOURCE>", "  kubectl listwatch list pods -A  "),
    ];
    for (command, usage, example) in commands {
        let output = std::process::Command::new(&plugin).args([command, "--help"]).output().unwrap();
        assert!(stdout(&output).contains(usage), "{}", stdout(&output));
        assert!(stdout(&output).contains(example), "{}", stdout(&output));
    }
}

/// With the feature, the commands exist and the help has no such line.
#[test]
fn names_the_feature_of_missing_commands() {
    let is_missing = cfg!(not(feature = "cluster"));
    for args in [&["--help"][..], &["stats", "--help"]] {
        let output = listwatch(args).output().unwrap();
        assert_eq!(stdout(&output).contains("This build has no "), is_missing, "{args:?}: {}", stdout(&output));
        assert_eq!(stdout(&output).contains("feature `cluster` of listwatch-cli"), is_missing, "{args:?}");
    }
    for command in ["list", "watch", "mirror", "record"] {
        let output = listwatch(&[command]).output().unwrap();
        assert_eq!(stderr(&output).contains("unrecognized subcommand"), is_missing, "{}", stderr(&output));
        assert_eq!(output.status.code(), Some(2), "{command}");
    }
}
