//! The transport over `kube::Client`.

use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};
use std::{env, fs};

use bytes::Bytes;
use futures_core::Stream;
use http::{StatusCode, Uri};
use http_body_util::BodyDataStream;
use kube::client::{Body, ClientBuilder};
use listwatch::client::transport::{IoThread, Request, Response, ResponseFuture, is_loopback, redact_secret};
use listwatch::client::{Transport, TransportError, TransportErrorKind};
use secrecy::{ExposeSecret, SecretString};
use tokio::task::{JoinError, spawn_blocking};

/// A [`Transport`] over a [`kube::Client`], through which kubeconfig, exec plugins and impersonation come.
///
/// [`from_config`](Self::from_config) builds the client as lists need it. It speaks HTTP/1.1, and follows no redirects.
/// Connections that such a client opens are read on a thread of this transport, as by listwatch's `HttpTransport`,
/// and end with it.
///
/// OIDC, OAuth and proxies want cargo features of `kube`, which the caller's own dependency on it turns on. Two more
/// things are the caller's: `k8s-openapi`, which kube needs, has to be told a version of Kubernetes by a feature of its
/// own; and kube's feature `ring` must stay off, because two crypto providers for rustls make it panic.
pub struct KubeTransport {
    client: Mutex<kube::Client>,
    /// `None` with a client of the caller's, whose connections may outlive this.
    io: Option<IoThread>,
    /// What a client with fresh credentials is made from, where they can be had.
    renewable: Option<kube::Config>,
    /// Whether the server has refused the credentials of `client`.
    refused: AtomicBool,
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
    /// Over this client, on the caller's runtime: its connections may be shared, and outlive the transport.
    ///
    /// Build it with `default_retry` off and without a `read_timeout`, or kube sends requests again that [`Retry`]
    /// knows nothing of, and ends lists by itself. Of its credentials nothing is known here: where a server or a proxy
    /// echoes a token that does not look like one, it is not redacted.
    ///
    /// [`Retry`]: listwatch::client::Retry
    #[must_use]
    pub fn new(client: kube::Client) -> Self {
        Self {
            client: Mutex::new(client),
            io: None,
            renewable: None,
            refused: AtomicBool::new(false),
            near: false,
            secrets: Secrets::default(),
        }
    }

    /// Over a client of its own: with kube's retries and read timeout off, because [`Retry`] and
    /// [`read_idle_timeout`] are there for that. After a 401 an exec plugin is run again, and a token file read again.
    ///
    /// What an exec plugin returns is known to kube only: see [`new`](Self::new).
    ///
    /// # Errors
    ///
    /// [`TransportErrorKind::Setup`] or [`TransportErrorKind::Credentials`] when kube refuses the configuration.
    ///
    /// [`Retry`]: listwatch::client::Retry
    /// [`read_idle_timeout`]: listwatch::client::Client::read_idle_timeout
    pub fn from_config(mut config: kube::Config) -> Result<Self, TransportError> {
        config.default_retry = false;
        config.read_timeout = None;
        let near = is_near(&config.cluster_url);
        let user = &config.auth_info;
        let secrets = Secrets {
            values: [&user.token, &user.password].into_iter().flatten().cloned().collect(),
            token_file: user.token_file.as_ref().map(PathBuf::from),
        };
        let renews = user.exec.is_some() || user.token_file.is_some() || user.auth_provider.is_some();
        let renewable = renews.then(|| config.clone());
        let client = Mutex::new(build(config)?);
        Ok(Self { client, io: Some(IoThread::default()), renewable, refused: AtomicBool::new(false), near, secrets })
    }

    /// With fresh credentials, if the server has refused those that were.
    async fn client(&self) -> Result<kube::Client, TransportError> {
        let fresh = match &self.renewable {
            Some(config) if self.refused.swap(false, Ordering::Relaxed) => {
                let config = config.clone();
                // A plugin is a process that is waited for.
                let built = spawn_blocking(|| build(config)).await;
                let lost = |error: JoinError| TransportError::new(TransportErrorKind::Credentials, error.to_string());
                Some(built.map_err(lost)??)
            }
            _ => None,
        };
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(fresh) = fresh {
            *client = fresh;
        }
        Ok(client.clone())
    }

    async fn send(&self, request: Request) -> Result<Response, TransportError> {
        let mut get = http::Request::new(Body::empty());
        *get.uri_mut() = Uri::try_from(request.path_and_query)
            .map_err(|error| TransportError::new(TransportErrorKind::Setup, format!("the request's path: {error}")))?;
        *get.headers_mut() = request.headers;
        let client = self.client().await?;
        let send = async move {
            let response = client.send(get).await.map_err(|error| classify(&error))?;
            let (head, body) = response.into_parts();
            Ok(Response { status: head.status, headers: head.headers, body: Box::pin(Data(BodyDataStream::new(body))) })
        };
        let response = match &self.io {
            Some(thread) => thread.get(send).await?,
            None => send.await?,
        };
        if response.status == StatusCode::UNAUTHORIZED {
            self.refused.store(true, Ordering::Relaxed);
        }
        Ok(response)
    }
}

impl Transport for KubeTransport {
    fn get(&self, request: Request) -> ResponseFuture<'_> {
        Box::pin(self.send(request))
    }

    fn is_near(&self) -> bool {
        self.near
    }

    fn renews_credentials(&self) -> bool {
        self.renewable.is_some()
    }

    fn redact(&self, mut text: String) -> String {
        let file = self.secrets.token_file.as_ref().and_then(|path| fs::read_to_string(path).ok());
        let values = self.secrets.values.iter().map(ExposeSecret::expose_secret);
        for secret in values.chain(file.as_deref().map(str::trim)) {
            text = redact_secret(text, secret);
        }
        text
    }
}

impl fmt::Debug for KubeTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeTransport").field("near", &self.near).finish_non_exhaustive()
    }
}

fn build(config: kube::Config) -> Result<kube::Client, TransportError> {
    let builder = ClientBuilder::try_from(config).map_err(|error| match classify(&error) {
        error if error.kind() == TransportErrorKind::Credentials => error,
        _ => TransportError::from_error(TransportErrorKind::Setup, &error),
    })?;
    Ok(builder.build())
}

/// On the same host, or the API server of the cluster that this process runs in.
fn is_near(url: &Uri) -> bool {
    let host = url.host().unwrap_or_default();
    is_loopback(host)
        || env::var("KUBERNETES_SERVICE_HOST").is_ok_and(|of_cluster| of_cluster == host.trim_matches(['[', ']']))
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
    let kind = match error {
        kube::Error::Auth(_) => TransportErrorKind::Credentials,
        kube::Error::Service(error) => match error.downcast_ref::<hyper_util::client::legacy::Error>() {
            Some(error) if error.is_connect() => TransportErrorKind::Connect,
            _ => TransportErrorKind::Broken,
        },
        kube::Error::HyperError(_) | kube::Error::ReadEvents(_) => TransportErrorKind::Broken,
        _ => TransportErrorKind::Other,
    };
    TransportError::from_error(kind, error)
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
        assert!(transport("https://[::1]:6443").is_near());
        assert!(!transport("https://10.0.0.1").is_near());
    }

    #[tokio::test]
    async fn no_secret_shows() {
        let transport = transport("https://host");
        assert!(!format!("{transport:?}").contains("s3cret"));
        assert_eq!(transport.redact("a s3cret b".to_owned()), "a [redacted] b");
    }
}
