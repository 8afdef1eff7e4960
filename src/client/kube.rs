//! The transport over `kube::Client`.

use std::error::Error as _;
use std::fmt::{self, Write};
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::{env, fs};

use bytes::Bytes;
use futures_core::Stream;
use http::Uri;
use http_body_util::BodyDataStream;
use kube::client::{Body, ClientBuilder};
use secrecy::{ExposeSecret, SecretString};

use super::transport::{Request, Response, ResponseFuture, Transport, TransportError, TransportErrorKind};

/// A [`Transport`] over a [`kube::Client`], through which kubeconfig, exec plugins and impersonation come.
///
/// [`from_config`](Self::from_config) builds the client as lists need it. It speaks HTTP/1.1, and follows no redirects.
///
/// OIDC, OAuth and proxies want cargo features of `kube`, which the caller's own dependency on it turns on. Two more
/// things are the caller's: `k8s-openapi`, which kube needs, has to be told a version of Kubernetes by a feature of its
/// own; and kube's feature `ring` must stay off, because two crypto providers for rustls make it panic.
pub struct KubeTransport {
    client: kube::Client,
    near: bool,
    secrets: Secrets,
}

/// What is known of the credentials, to be redacted.
#[derive(Default)]
struct Secrets {
    values: Vec<SecretString>,
    token_file: Option<PathBuf>,
}

impl KubeTransport {
    /// Over this client.
    ///
    /// Build it with `default_retry` off and without a `read_timeout`, or kube sends requests again that [`Retry`]
    /// knows nothing of, and ends lists by itself. Of its credentials nothing is known here: where a server or a proxy
    /// echoes a token that does not look like one, it is not redacted.
    ///
    /// [`Retry`]: super::Retry
    #[must_use]
    pub fn new(client: kube::Client) -> Self {
        Self { client, near: false, secrets: Secrets::default() }
    }

    /// Over a client of its own: with kube's retries and read timeout off, because [`Retry`] and
    /// [`read_idle_timeout`] are there for that.
    ///
    /// What an exec plugin returns is known to kube only: see [`new`](Self::new).
    ///
    /// # Errors
    ///
    /// [`TransportErrorKind::Setup`] or [`TransportErrorKind::Credentials`] when kube refuses the configuration.
    ///
    /// [`Retry`]: super::Retry
    /// [`read_idle_timeout`]: super::Client::read_idle_timeout
    pub fn from_config(mut config: kube::Config) -> Result<Self, TransportError> {
        config.default_retry = false;
        config.read_timeout = None;
        let near = is_near(&config.cluster_url);
        let user = &config.auth_info;
        let secrets = Secrets {
            values: [&user.token, &user.password].into_iter().flatten().cloned().collect(),
            token_file: user.token_file.as_ref().map(PathBuf::from),
        };
        let builder = ClientBuilder::try_from(config).map_err(|error| match classify(&error) {
            error if error.kind() == TransportErrorKind::Credentials => error,
            _ => TransportError::new(TransportErrorKind::Setup, chain(&error)),
        })?;
        Ok(Self { client: builder.build(), near, secrets })
    }

    async fn send(&self, request: Request) -> Result<Response, TransportError> {
        let mut get = http::Request::new(Body::empty());
        *get.uri_mut() = Uri::try_from(request.path_and_query)
            .map_err(|error| TransportError::new(TransportErrorKind::Setup, format!("the request's path: {error}")))?;
        *get.headers_mut() = request.headers;
        let response = self.client.send(get).await.map_err(|error| classify(&error))?;
        let (head, body) = response.into_parts();
        Ok(Response { status: head.status, headers: head.headers, body: Box::pin(Data(BodyDataStream::new(body))) })
    }
}

impl Transport for KubeTransport {
    fn get(&self, request: Request) -> ResponseFuture<'_> {
        Box::pin(self.send(request))
    }

    fn is_near(&self) -> bool {
        self.near
    }

    fn redact(&self, mut text: String) -> String {
        let file = self.secrets.token_file.as_ref().and_then(|path| fs::read_to_string(path).ok());
        let values = self.secrets.values.iter().map(ExposeSecret::expose_secret);
        for secret in values.chain(file.as_deref().map(str::trim)).filter(|secret| !secret.is_empty()) {
            text = text.replace(secret, "[redacted]");
        }
        text
    }
}

impl fmt::Debug for KubeTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeTransport").field("near", &self.near).finish_non_exhaustive()
    }
}

/// On the same host, or the API server of the cluster that this process runs in.
fn is_near(url: &Uri) -> bool {
    let host = url.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let address = host.parse::<std::net::IpAddr>();
    host == "localhost"
        || address.is_ok_and(|address| address.is_loopback())
        || env::var("KUBERNETES_SERVICE_HOST").is_ok_and(|of_cluster| of_cluster == host)
}

/// The body of a response, with kube's errors made ours.
struct Data(BodyDataStream<Body>);

impl Stream for Data {
    type Item = Result<Bytes, TransportError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.0).poll_next(cx).map_err(|error| classify(&error))
    }
}

fn classify(error: &kube::Error) -> TransportError {
    let message = chain(error);
    // As with reqwest: rustls says either of these.
    let kind = if message.contains("certificate") || message.contains("fatal alert") {
        TransportErrorKind::Tls
    } else {
        match error {
            kube::Error::Auth(_) => TransportErrorKind::Credentials,
            kube::Error::Service(error) => match error.downcast_ref::<hyper_util::client::legacy::Error>() {
                Some(error) if error.is_connect() => TransportErrorKind::Connect,
                _ => TransportErrorKind::Broken,
            },
            kube::Error::HyperError(_) | kube::Error::ReadEvents(_) => TransportErrorKind::Broken,
            _ => TransportErrorKind::Other,
        }
    };
    TransportError::new(kind, message)
}

/// What kube says, and all that is behind it, each thing once.
fn chain(error: &kube::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.ends_with(&more) {
            // Writing to a String cannot fail.
            let _ = write!(text, ": {more}");
        }
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transport(url: &'static str) -> KubeTransport {
        let mut config = kube::Config::new(Uri::from_static(url));
        config.auth_info.token = Some("s3cret".into());
        KubeTransport::from_config(config).unwrap()
    }

    #[tokio::test]
    async fn near_and_far() {
        for (url, near) in [
            ("http://127.0.0.1:8001", true),
            ("http://localhost:8001", true),
            ("https://[::1]:6443", true),
            ("https://10.0.0.1", false),
            ("https://localhost.example.com", false),
        ] {
            assert_eq!(transport(url).is_near(), near, "{url}");
        }
    }

    #[tokio::test]
    async fn no_secret_shows() {
        let transport = transport("https://host");
        assert!(!format!("{transport:?}").contains("s3cret"));
        assert_eq!(transport.redact("a s3cret b".to_owned()), "a [redacted] b");
    }
}
