//! The help of the kubectl plugin.

use crate::support::stdout;

#[test]
#[cfg(unix)]
fn names_kubectl_in_the_help_of_a_plugin() {
    let directory = tempfile::tempdir().unwrap();
    let plugin = directory.path().join("kubectl-listwatch");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_listwatch"), &plugin).unwrap();
    let commands = [
        ("count", "Usage: kubectl listwatch count [OPTIONS] <RESOURCE>", "  kubectl listwatch count pods -A  "),
        ("get", "Usage: kubectl listwatch get [OPTIONS] [RESOURCE] [NAME]...", "  kubectl listwatch get pods  "),
    ];
    for (command, usage, example) in commands {
        let output = std::process::Command::new(&plugin).args([command, "--help"]).output().unwrap();
        assert!(stdout(&output).contains(usage), "{}", stdout(&output));
        assert!(stdout(&output).contains(example), "{}", stdout(&output));
    }
}
