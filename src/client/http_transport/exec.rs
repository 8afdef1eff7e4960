//! Exec plugins: programs that issue credentials (`plugin/pkg/client/auth/exec` of client-go).

#[cfg(any(windows, test))]
use std::ffi::OsStr;
use std::ffi::OsString;
use std::io::{self, IsTerminal};
#[cfg(any(windows, test))]
use std::path::{Path, PathBuf};
use std::process::Stdio;

use jiff::Timestamp;
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::process::Command;

use super::connect::setup;
use super::identity::joined;
use crate::client::credentials::Credentials;
use crate::client::transport::TransportError;
use crate::client::yaml::parse_yaml;

#[derive(Clone, Default)]
pub(in crate::client) struct ExecConfig {
    /// A path, or the name of a program in `PATH`.
    pub(in crate::client) command: String,
    pub(in crate::client) args: Vec<String>,
    pub(in crate::client) env: Vec<(String, String)>,
    pub(in crate::client) api_version: String,
    pub(in crate::client) install_hint: Option<String>,
    pub(in crate::client) interactive_mode: InteractiveMode,
    /// What the plugin learns about the cluster, if it wants to.
    pub(in crate::client) cluster: Option<Value>,
}

/// When a plugin may read the terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::client) enum InteractiveMode {
    Never,
    #[default]
    IfAvailable,
    Always,
}

pub(super) struct ExecPlugin(ExecConfig);

/// Credentials that are valid for a time.
pub(super) struct IssuedCredentials {
    /// The token; `None` if a plugin returned only a certificate.
    pub(super) credentials: Credentials,
    /// The client's certificate and key, in PEM.
    pub(super) identity: Option<SecretString>,
    pub(super) expires: Option<Timestamp>,
}

impl ExecPlugin {
    /// Creates a plugin, without running it.
    ///
    /// # Errors
    ///
    /// [`TransportErrorKind::Setup`](crate::client::TransportErrorKind::Setup) when the version of the API is not
    /// supported.
    pub(super) fn new(config: ExecConfig) -> Result<Self, TransportError> {
        let (command, version) = (&config.command, &config.api_version);
        if !matches!(&**version, "client.authentication.k8s.io/v1" | "client.authentication.k8s.io/v1beta1") {
            return Err(setup(format!(
                "exec plugin {command}: apiVersion {version:?} is not supported, only \
                 client.authentication.k8s.io/v1 and v1beta1"
            )));
        }
        Ok(Self(config))
    }

    /// Runs the plugin.
    ///
    /// # Errors
    ///
    /// The command, and how it failed.
    pub(super) async fn issue(&self) -> Result<IssuedCredentials, String> {
        self.run_command().await.map_err(|error| format!("exec plugin {}: {error}", self.0.command))
    }

    async fn run_command(&self) -> Result<IssuedCredentials, String> {
        let is_interactive = match (self.0.interactive_mode, io::stdin().is_terminal()) {
            (InteractiveMode::Never, _) => false,
            (InteractiveMode::Always, false) => {
                return Err("it is interactive, and stdin is not a terminal".to_owned());
            }
            (_, is_terminal) => is_terminal,
        };
        let mut command = self.build_command(is_interactive);
        let child = command.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => match &self.0.install_hint {
                Some(hint) => format!("not found: {}", hint.trim()),
                None => "not found: install it, or set its path in the kubeconfig".to_owned(),
            },
            _ => error.to_string(),
        })?;
        // `Command::output` would capture stderr.
        let output = child.wait_with_output().await.map_err(|error| error.to_string())?;
        if !output.status.success() {
            return Err(match output.status.code() {
                Some(code) => format!("failed with exit status {code}"),
                None => format!("failed: {}", output.status),
            });
        }
        self.parse_output(&output.stdout)
    }

    fn build_command(&self, is_interactive: bool) -> Command {
        let mut command = Command::new(find_program(&self.0.command));
        command.args(&self.0.args).envs(self.0.env.iter().map(|(name, value)| (name, value)));
        let mut spec = json!({ "interactive": is_interactive });
        if let (Some(cluster), Some(spec)) = (&self.0.cluster, spec.as_object_mut()) {
            spec.insert("cluster".to_owned(), cluster.clone());
        }
        let info = json!({ "kind": "ExecCredential", "apiVersion": self.0.api_version, "spec": spec });
        command.env("KUBERNETES_EXEC_INFO", info.to_string());
        command.stdin(if is_interactive { Stdio::inherit() } else { Stdio::null() });
        // The plugin ends when the caller stops waiting, for example after Ctrl-C.
        command.stderr(Stdio::inherit()).stdout(Stdio::piped()).kill_on_drop(true);
        command
    }

    /// Returns the credentials in the output. Errors do not quote the output, which contains them.
    fn parse_output(&self, stdout: &[u8]) -> Result<IssuedCredentials, String> {
        let of_yaml = || parse_yaml(str::from_utf8(stdout).ok()?).ok()?.into_iter().next();
        let parsed = serde_json::from_slice(stdout).ok().or_else(of_yaml);
        let Some(credential @ Value::Object(_)) = parsed else {
            return Err("its output is not an ExecCredential in JSON or YAML".to_owned());
        };
        let expected = &*self.0.api_version;
        let version = credential.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        let kind = credential.get("kind").and_then(Value::as_str).unwrap_or_default();
        if (kind, version) != ("ExecCredential", expected) {
            return Err(format!("it returned {kind:?} of {version:?} instead of an ExecCredential of {expected:?}"));
        }
        let Some(status) = credential.get("status").filter(|status| status.is_object()) else {
            return Err("it returned no status".to_owned());
        };
        let text = |key| status.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        let identity = match (text("clientCertificateData"), text("clientKeyData")) {
            (Some(certificate), Some(key)) => Some(joined(certificate, key)),
            (None, None) => None,
            _ => return Err("it returned only one of certificate and key".to_owned()),
        };
        let token = text("token");
        if token.is_none() && identity.is_none() {
            return Err("it returned neither a token nor a certificate".to_owned());
        }
        let expires = text("expirationTimestamp").map(str::parse).transpose();
        let expires = expires.map_err(|_| "its expirationTimestamp is not a time".to_owned())?;
        let credentials = token.map(Credentials::bearer).unwrap_or_default();
        credentials.check().map_err(|error| error.to_string())?;
        Ok(IssuedCredentials { credentials, identity, expires })
    }
}

#[cfg(not(windows))]
fn find_program(command: &str) -> OsString {
    command.into()
}

/// Returns the program to run, which may have another extension than `.exe`, the only one that Rust adds.
#[cfg(windows)]
fn find_program(command: &str) -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let extensions = std::env::var("PATHEXT").unwrap_or_default();
    find_with_extension(command, &path, &extensions).unwrap_or_else(|| command.into())
}

/// Finds a program as Go's `exec.LookPath` does on Windows: by the extensions in `PATHEXT`, in the folders of `PATH`.
#[cfg(any(windows, test))]
fn find_with_extension(command: &str, path: &OsStr, extensions: &str) -> Option<OsString> {
    let extensions = if extensions.is_empty() { ".com;.exe;.bat;.cmd" } else { extensions };
    let extensions = extensions.split(';').filter(|extension| !extension.is_empty()).map(str::to_lowercase);
    let extensions = extensions.map(|extension| format!(".{}", extension.trim_start_matches('.')));
    let has_extension = Path::new(command).extension().is_some();
    let names: Vec<_> = has_extension.then(String::new).into_iter().chain(extensions).collect();
    let folders: Vec<_> = if command.contains([':', '\\', '/']) {
        vec![PathBuf::new()]
    } else {
        std::env::split_paths(path).filter(|folder| folder.is_absolute()).collect()
    };
    let files = folders.iter().flat_map(|folder| names.iter().map(|name| folder.join(format!("{command}{name}"))));
    files.into_iter().find(|file| file.is_file()).map(PathBuf::into_os_string)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn finds_programs_of_windows_by_their_extensions() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for file in [first.path().join("aws.cmd"), second.path().join("aws.exe"), second.path().join("az.bat")] {
            fs::write(file, "").unwrap();
        }
        let path = std::env::join_paths([Path::new("relative"), first.path(), second.path()]).unwrap();
        let whole = second.path().join("az").to_string_lossy().into_owned();
        for (command, extensions, expected) in [
            ("aws", "", Some(first.path().join("aws.cmd"))),
            ("aws", ".EXE;bat;;", Some(second.path().join("aws.exe"))),
            ("aws.exe", ".CMD", Some(second.path().join("aws.exe"))),
            ("az", "", Some(second.path().join("az.bat"))),
            ("az", ".exe", None),
            (&whole, "", Some(second.path().join("az.bat"))),
            ("./az", "", None),
        ] {
            let found = find_with_extension(command, &path, extensions);
            assert_eq!(found, expected.map(PathBuf::into_os_string), "{command} with {extensions:?}");
        }
    }
}
