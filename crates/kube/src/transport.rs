//! The transport over a `kube::Client`.

use std::fmt;

use bytes::Bytes;
use kube::client::{AuthError, Body};
use listwatch::client::{Request, ResponseFuture, ServiceTransport, Transport, TransportError, TransportErrorKind};
use listwatch::internal::chain;

/// A [`Transport`] over a `kube::Client`, for programs whose client has layers or credentials of their own.
///
/// Other programs need none: [`Client::try_default`](listwatch::client::Client::try_default) reads the same kubeconfig as
/// kube's. It renews credentials, and detects dead connections, as lists and watches need it.
pub struct KubeTransport(ServiceTransport);

impl KubeTransport {
    /// Creates a transport over this client, on the caller's runtime. It is a [`ServiceTransport`], with the kinds of
    /// kube's errors, and requests no compression either unless told.
    ///
    /// The client's connections may be shared, and outlive the transport. Build the client with `default_retry` off and
    /// without a `read_timeout`: otherwise kube retries in addition to [`Retry`], and interrupts lists. kube enables no
    /// keepalive, so only the [idle timeout] of a watch or of a list detects a dead connection.
    ///
    /// The transport does not know the client's credentials, so it cannot renew them. If a server or a proxy echoes a
    /// token that does not look like a token, the transport cannot redact it.
    ///
    /// [idle timeout]: listwatch::client::Watch::idle_timeout
    /// [`Retry`]: listwatch::client::Retry
    #[must_use]
    pub fn new(client: kube::Client) -> Self {
        Self(ServiceTransport::new(move |request: http::Request<Body>| {
            let client = client.clone();
            async move { client.send(request).await.map_err(|error| transport_error(&error)) }
        }))
    }
}

impl Transport for KubeTransport {
    fn get(&self, request: Request) -> ResponseFuture<'_> {
        self.0.get(request)
    }

    fn post(&self, request: Request, body: Bytes) -> ResponseFuture<'_> {
        self.0.post(request, body)
    }

    fn is_near(&self) -> bool {
        self.0.is_near()
    }

    fn redact(&self, text: String) -> String {
        self.0.redact(text)
    }
}

impl fmt::Debug for KubeTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeTransport").finish_non_exhaustive()
    }
}

/// Converts an error of kube, with the kind that decides about retries.
fn transport_error(error: &kube::Error) -> TransportError {
    match error {
        kube::Error::Auth(_) => TransportError::new(TransportErrorKind::Credentials, chain(error)),
        // The request passed through a layer of kube that adds a provider's token.
        kube::Error::Service(cause) if cause.is::<AuthError>() => {
            TransportError::new(TransportErrorKind::Credentials, chain(error))
        }
        error => TransportError::from_error(TransportErrorKind::Broken, error),
    }
}

#[cfg(test)]
mod tests {
    use listwatch::client::{Client, ListParams, Resource, Selection};
    use listwatch_testserver::{Answer, Body, RecordedRequest, Server, recorded_pods};

    use super::*;

    #[tokio::test]
    async fn redirects_carry_no_impersonation_and_no_token() {
        let elsewhere = Server::start(|_: &RecordedRequest, _| Answer::ok(Body::replay(""))).await.unwrap();
        for code in [301, 302, 303, 307, 308] {
            let location = format!("{}/api/v1/pods", elsewhere.url());
            let answer = Answer::ok(Body::replay("")).status(code).header("location", &location);
            let server = Server::start(move |_: &RecordedRequest, _| answer.clone()).await.unwrap();
            let mut config = kube::Config::new(server.url().parse().unwrap());
            config.auth_info.token = Some("s3cret".into());
            config.auth_info.impersonate = Some("admin".to_owned());
            config.auth_info.impersonate_groups = Some(vec!["system:masters".to_owned()]);
            let transport = KubeTransport::new(kube::Client::try_from(config).unwrap());
            let list = Client::new(transport).list::<[u8]>(&Resource::PODS, &ListParams::new(Selection::all()));
            let error = list.into_vec().await.unwrap_err();
            assert!(error.to_string().contains("redirect"), "{error}");
            let [request] = &server.requests()[..] else { panic!("one request: {:?}", server.requests()) };
            for (name, value) in [
                ("impersonate-user", "admin"),
                ("impersonate-group", "system:masters"),
                ("authorization", "Bearer s3cret"),
            ] {
                assert_eq!(request.headers[name], value, "{code}");
            }
        }
        assert!(elsewhere.requests().is_empty());
    }

    #[tokio::test]
    async fn lists_with_the_credentials_of_the_client() {
        let server = Server::start(Answer::ok(Body::replay(recorded_pods())).always()).await.unwrap();
        let mut config = kube::Config::new(server.url().parse().unwrap());
        config.auth_info.token = Some("s3cret".into());
        let client = Client::new(KubeTransport::new(kube::Client::try_from(config).unwrap()));
        let list = client.list::<[u8]>(&Resource::PODS, &ListParams::default());
        assert_eq!(list.into_vec().await.unwrap().0.len(), 120);
        assert_eq!(server.requests()[0].headers["authorization"], "Bearer s3cret");
    }
}
