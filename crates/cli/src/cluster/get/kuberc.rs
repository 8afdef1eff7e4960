//! kubectl's kuberc, which is not read.

use std::path::PathBuf;
use std::{env, fs};

use crate::notices;

/// Says that kubectl has defaults or aliases for `get` that do not apply here, if its kuberc names any.
pub fn warn_of_defaults() {
    if env::var("KUBECTL_KUBERC").is_ok_and(|value| value == "false") {
        return;
    }
    let path = match env::var_os("KUBERC") {
        Some(path) if path == "off" => return,
        Some(path) => PathBuf::from(path),
        None => match env::home_dir() {
            Some(home) => home.join(".kube/kuberc"),
            None => return,
        },
    };
    let Ok(text) = fs::read_to_string(&path) else { return };
    let of_get = |line: &str| line.trim().trim_start_matches("- ") == "command: get";
    if text.lines().any(of_get) {
        let path = path.to_string_lossy();
        notices::warn(&format!("{path} has defaults or aliases of `kubectl get`, which this command does not read"));
    }
}
