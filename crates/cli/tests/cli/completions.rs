//! `listwatch completions`: scripts that know the options of the commands.

use crate::support::{listwatch, stderr, stdout};

#[test]
fn completes_options_in_each_shell() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let output = listwatch(&["completions", shell]).output().unwrap();
        assert!(stdout(&output).contains("skip-encrypted"), "{shell}");
        // The generators for the other shells complete options only.
        let completes_values = matches!(shell, "bash" | "zsh");
        assert_eq!(stdout(&output).contains("persistentvolumeclaims"), completes_values, "{shell}");
        assert!(stdout(&output).contains("field-selector"), "{shell}");
        assert_eq!((stderr(&output), output.status.code()), ("", Some(0)), "{shell}");
    }
}
