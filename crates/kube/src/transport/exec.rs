//! Exec plugins: programs that issue credentials (`plugin/pkg/client/auth/exec` of client-go).

use std::io::{self, IsTerminal};
use std::process::Stdio;
use std::sync::Arc;

use jiff::Timestamp;
use kube::config::{ExecConfig, ExecInteractiveMode};
use listwatch::client::{Credentials, TransportError, TransportErrorKind};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::sync::Mutex;

use super::error::setup_error;

/// An exec plugin, and the credentials that it has issued last.
pub(super) struct ExecPlugin {
    config: ExecConfig,
    /// The name of the command in errors.
    command: String,
    /// Locked while the plugin runs, so that concurrent requests run it once: it may be interactive.
    issued: Mutex<Option<Arc<IssuedCredentials>>>,
}

/// The credentials that one run of a plugin has issued.
pub(super) struct IssuedCredentials {
    /// The token; none if the plugin returned only a certificate.
    pub(super) credentials: Credentials,
    /// Certificate and key of the client.
    pub(super) identity: Option<(String, SecretString)>,
    expires: Option<Timestamp>,
}

impl ExecPlugin {
    /// Creates a plugin, without running it.
    ///
    /// # Errors
    ///
    /// [`TransportErrorKind::Setup`] if the command is missing or the version of the API is not supported.
    pub(super) fn new(config: ExecConfig) -> Result<Self, TransportError> {
        let Some(command) = config.command.clone().filter(|command| !command.is_empty()) else {
            return Err(setup_error("the exec plugin has no command"));
        };
        let version = config.api_version.as_deref().unwrap_or_default();
        if !matches!(version, "client.authentication.k8s.io/v1" | "client.authentication.k8s.io/v1beta1") {
            return Err(setup_error(format!(
                "exec plugin {command}: apiVersion {version:?} is not supported, only \
                 client.authentication.k8s.io/v1 and v1beta1"
            )));
        }
        Ok(Self { config, command, issued: Mutex::new(None) })
    }

    /// Returns the current credentials. Runs the plugin if there are none, or if they have expired.
    ///
    /// # Errors
    ///
    /// [`TransportErrorKind::Credentials`] with the command, and how it failed. The next call runs it again.
    pub(super) async fn current_credentials(&self) -> Result<Arc<IssuedCredentials>, TransportError> {
        let mut issued = self.issued.lock().await;
        if let Some(current) = &*issued
            && current.expires.is_none_or(|expires| Timestamp::now() < expires)
        {
            return Ok(Arc::clone(current));
        }
        let fresh = self.run_command().await.map_err(|error| {
            TransportError::new(TransportErrorKind::Credentials, format!("exec plugin {}: {error}", self.command))
        })?;
        Ok(Arc::clone(issued.insert(Arc::new(fresh))))
    }

    /// Discards credentials that the server has refused, unless newer ones were issued.
    pub(super) async fn discard_credentials(&self, refused: &Arc<IssuedCredentials>) {
        let mut issued = self.issued.lock().await;
        if issued.as_ref().is_some_and(|current| Arc::ptr_eq(current, refused)) {
            *issued = None;
        }
    }

    /// Runs the command, and returns the credentials in its output.
    async fn run_command(&self) -> Result<IssuedCredentials, String> {
        let is_interactive = match (&self.config.interactive_mode, io::stdin().is_terminal()) {
            (Some(ExecInteractiveMode::Never), _) => false,
            (Some(ExecInteractiveMode::Always), false) => {
                return Err("it is interactive, and stdin is not a terminal".to_owned());
            }
            (_, is_terminal) => is_terminal,
        };
        let mut command = self.build_command(is_interactive);
        let child = command.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => match &self.config.install_hint {
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

    /// Returns the command with its arguments, environment and pipes.
    fn build_command(&self, is_interactive: bool) -> Command {
        let mut command = Command::new(&self.command);
        command.args(self.config.args.iter().flatten());
        for variable in self.config.env.iter().flatten() {
            if let (Some(name), Some(value)) = (variable.get("name"), variable.get("value")) {
                command.env(name, value);
            }
        }
        let spec = match &self.config.cluster {
            Some(cluster) if self.config.provide_cluster_info => {
                json!({ "interactive": is_interactive, "cluster": cluster })
            }
            _ => json!({ "interactive": is_interactive }),
        };
        let info = json!({ "kind": "ExecCredential", "apiVersion": self.config.api_version, "spec": spec });
        command.env("KUBERNETES_EXEC_INFO", info.to_string());
        for name in self.config.drop_env.iter().flatten() {
            command.env_remove(name);
        }
        command.stdin(if is_interactive { Stdio::inherit() } else { Stdio::null() });
        // A caller that no longer waits, after Ctrl-C for example, ends the plugin.
        command.stderr(Stdio::inherit()).stdout(Stdio::piped()).kill_on_drop(true);
        command
    }

    /// Returns the credentials in the output. Errors do not quote the output, which contains them.
    fn parse_output(&self, stdout: &[u8]) -> Result<IssuedCredentials, String> {
        let parsed = serde_json::from_slice(stdout).ok().or_else(|| serde_saphyr::from_slice(stdout).ok());
        let Some(credential @ Value::Object(_)) = parsed else {
            return Err("its output is not an ExecCredential in JSON or YAML".to_owned());
        };
        let expected = self.config.api_version.as_deref().unwrap_or_default();
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
            (Some(certificate), Some(key)) => Some((certificate.to_owned(), SecretString::from(key))),
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

impl IssuedCredentials {
    /// Returns the certificate and the key as base64 of PEM, as a kubeconfig has them.
    pub(super) fn identity_data(&self) -> Option<(String, SecretString)> {
        use base64::prelude::{BASE64_STANDARD, Engine};
        let (certificate, key) = self.identity.as_ref()?;
        Some((BASE64_STANDARD.encode(certificate), BASE64_STANDARD.encode(key.expose_secret()).into()))
    }
}
