//! Connections under a `kube::Client`: TCP, proxies, TLS.

use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper_rustls::{DefaultServerNameResolver, FixedServerNameResolver, HttpsConnector, ResolveServerName};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::legacy::connect::{Connect, Connection, HttpConnector};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioExecutor;
use kube::Config;
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use listwatch::client::{MAX_HEADERS, Redirects, TransportError, TransportErrorKind};
use listwatch::internal::{Authorities, crypto_provider, tls_config};
use rustls::ClientConfig;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName};
use secrecy::{ExposeSecret, SecretString};
use tower::{BoxError, Service, ServiceBuilder, service_fn};

use super::credentials::SentCredentials;
use super::error::setup_error;
use super::identity::identity_pem;
use super::unverified::Unverified;

/// The idle time before the first keepalive probe, and between probes. The kernel closes a connection once probes or
/// sent bytes are not acknowledged for `USER_TIMEOUT`. This takes 45 s at most, as in reqwest.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 2;
#[cfg(target_os = "linux")]
const USER_TIMEOUT: Duration = Duration::from_secs(30);

/// Builds a client as kube's `ClientBuilder` does. It adds keepalive and [`Authorities`], which kube does not support.
pub(super) fn build_client(config: &Config, sent: &Arc<SentCredentials>) -> Result<kube::Client, TransportError> {
    let tls = build_tls_config(config)?;
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(KEEPALIVE));
    tcp.set_keepalive_retries(Some(KEEPALIVE_PROBES));
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(USER_TIMEOUT));
    let Some(proxy) = &config.proxy_url else { return build_client_over(tcp, tls, config, sent) };
    let proxy =
        parse_proxy(proxy).ok_or_else(|| setup_error("the proxy is not the URL of an http, https or socks5 proxy"))?;
    // The tunnel's default port is 443, also for http.
    let mut config = config.clone();
    config.cluster_url = with_default_port(config.cluster_url, 80);
    if let Some("http" | "https") = proxy.uri().scheme_str() {
        let to_proxy =
            HttpsConnector::new(tcp, Arc::clone(&tls), false, Arc::new(DefaultServerNameResolver::default()));
        let mut tunnel = Tunnel::new(proxy.uri().clone(), to_proxy);
        if let Some(auth) = proxy.basic_auth() {
            tunnel = tunnel.with_auth(auth.clone());
        }
        return build_client_over(tunnel, tls, &config, sent);
    }
    // The proxy resolves names, as with Go.
    let mut socks = SocksV5::new(with_default_port(proxy.uri().clone(), 1080), tcp);
    if let Some((user, password)) = proxy.raw_auth() {
        socks = socks.with_auth(user.to_owned(), password.to_owned());
    }
    build_client_over(socks, tls, &config, sent)
}

/// Builds a client over this connector.
fn build_client_over<C>(
    connector: C,
    tls: Arc<ClientConfig>,
    config: &Config,
    sent: &Arc<SentCredentials>,
) -> Result<kube::Client, TransportError>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Connection + Read + Write + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError>,
{
    let names: Arc<dyn ResolveServerName + Send + Sync> = match &config.tls_server_name {
        None => Arc::new(DefaultServerNameResolver::default()),
        Some(name) => {
            let name = ServerName::try_from(name.clone());
            let name = name.map_err(|_| setup_error("the TLS server name is neither a host name nor an address"))?;
            Arc::new(FixedServerNameResolver::new(name))
        }
    };
    let mut connector = TimeoutConnector::new(HttpsConnector::new(connector, tls, false, names));
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_write_timeout(config.write_timeout);
    let client: legacy::Client<_, Body> =
        legacy::Client::builder(TokioExecutor::new()).http1_max_headers(MAX_HEADERS).build(connector);
    // Under kube's layers, which add the base URL and the credentials.
    let client = service_fn(move |request| send_within_origin(client.clone(), request));
    let sent = Arc::clone(sent);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().map_err(|error| auth_provider_error(config, &error))?)
        .layer(
            config
                .extra_headers_layer()
                .map_err(|error| TransportError::from_error(TransportErrorKind::Setup, &error))?,
        )
        .map_request(move |request: http::Request<Body>| {
            sent.remember(request.headers());
            request
        })
        .service(client);
    Ok(ClientBuilder::new(service, config.default_namespace.clone()).build())
}

/// Sends a request, and follows redirects within its origin.
async fn send_within_origin<C>(
    client: legacy::Client<C, Body>,
    request: http::Request<Body>,
) -> Result<http::Response<Incoming>, BoxError>
where
    C: Connect + Clone + Send + Sync + 'static,
{
    let mut redirects = Redirects::new(request.method(), request.uri().clone());
    let (mut head, mut body) = request.into_parts();
    loop {
        let response = client.request(http::Request::from_parts(head.clone(), body)).await?;
        let Some(next) = redirects.next_url(response.status(), response.headers())? else { return Ok(response) };
        // Only a GET is redirected.
        (head.uri, body) = (next, Body::empty());
    }
}

/// Returns the TLS settings of a configuration of kube, with [`Authorities`], which kube does not support.
fn build_tls_config(config: &Config) -> Result<Arc<ClientConfig>, TransportError> {
    let provider = crypto_provider()?;
    // Other clients of kube in this process ask rustls for the default, which panics if it has two providers and none
    // is installed. The call fails if there is one.
    drop(CryptoProvider::clone(&provider).install_default());
    let verifier: Arc<dyn ServerCertVerifier> = match (&config.root_cert_file, &config.root_cert) {
        _ if config.accept_invalid_certs => Arc::new(Unverified(Arc::clone(&provider))),
        (Some(file), _) => Arc::new(Authorities::from_file(file, Arc::clone(&provider))?),
        (None, Some(certificates)) => {
            let certificates = certificates.iter().map(|der| CertificateDer::from(der.clone())).collect();
            Arc::new(Authorities::from_der(certificates, Arc::clone(&provider))?)
        }
        (None, None) => Arc::new(Authorities::of_platform(Arc::clone(&provider))),
    };
    let identity = identity_pem(&config.auth_info)?;
    let identity = identity.as_ref().map(SecretString::expose_secret);
    tls_config(&provider, verifier, identity).map(Arc::new)
}

/// Returns the error of an auth provider, with what replaces the providers that Kubernetes has removed.
fn auth_provider_error(config: &Config, error: &kube::Error) -> TransportError {
    let error = TransportError::from_error(TransportErrorKind::Credentials, error);
    let name = config.auth_info.auth_provider.as_ref().map(|provider| provider.name.as_str()).unwrap_or_default();
    let replacement = match name {
        "gcp" => "; Kubernetes has removed this provider: use the exec plugin gke-gcloud-auth-plugin",
        "azure" => "; Kubernetes has removed this provider: use the exec plugin kubelogin",
        _ => "",
    };
    let error = error.to_string();
    let error = error.strip_prefix("credentials: auth error: ").unwrap_or(&error);
    TransportError::new(TransportErrorKind::Credentials, format!("auth provider {name:?}: {error}{replacement}"))
}

/// Parses the URL of a proxy, and the user in it. Without a scheme it is `http`.
fn parse_proxy(proxy: &Uri) -> Option<Intercept> {
    let found = Matcher::builder().all(proxy.to_string()).build().intercept(&Uri::from_static("https://server"))?;
    matches!(found.uri().scheme_str(), Some("http" | "https" | "socks5" | "socks5h")).then_some(found)
}

/// Returns the password in the URL of a proxy.
pub(super) fn proxy_password(proxy: Option<&Uri>) -> Option<SecretString> {
    let (user, _) = proxy?.authority()?.as_str().rsplit_once('@')?;
    let (_, password) = user.split_once(':')?;
    Some((&*percent_encoding::percent_decode_str(password).decode_utf8_lossy()).into())
}

/// Adds this port to a URL that is not `https` and has no port.
fn with_default_port(url: Uri, port: u16) -> Uri {
    let host = url.host().map(str::to_owned);
    let (Some(host), None, false) = (host, url.port(), url.scheme_str() == Some("https")) else { return url };
    let mut parts = url.clone().into_parts();
    parts.authority = format!("{host}:{port}").parse().ok();
    Uri::from_parts(parts).unwrap_or(url)
}
