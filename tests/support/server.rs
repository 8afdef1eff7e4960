//! Test servers over TCP, and their clients.

use std::sync::LazyLock;
use std::time::Duration;

use http::HeaderMap;
use listwatch::FromRef;
use listwatch::client::{Client, Config, Credentials, List, ListParams, Resource, Retry};
use listwatch::{ItemError, ItemRef};
use listwatch_testserver::{Answer, Body, RawAnswer, RawEnd, RawServer, RecordedRequest, Server, TOKEN};

use super::fixture;
use super::opening::{Http2, Opening};

/// Starts a server that sends this answer to every request.
pub async fn serve(answer: Answer) -> Server {
    serve_by(answer.always()).await
}

/// Starts a server that sends these answers in turn, and the last answer to every further request.
pub async fn serve_in_turn(answers: impl IntoIterator<Item = Answer>) -> Server {
    serve_by(Answer::in_turn(answers)).await
}

/// Starts a server that sends the answer that a closure chooses, by the request and the number of requests before it.
pub async fn serve_by(choose: impl Fn(&RecordedRequest, usize) -> Answer + Send + Sync + 'static) -> Server {
    Server::start(choose).await.unwrap()
}

/// 200 with a recorded body.
pub fn recorded(name: &str) -> Answer {
    Answer::ok(Body::replay(fixture(name)))
}

/// Retries without waiting.
pub fn quick() -> Retry {
    Retry::default().delay(Duration::from_nanos(1))
}

/// The certificate of an authority that no server of the tests uses. A client that trusts only this authority is fast
/// to create: it does not load the certificates of the platform.
pub fn authority() -> &'static str {
    static AUTHORITY: LazyLock<String> = LazyLock::new(|| {
        let certificate = std::thread::spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let server = runtime.block_on(RawServer::start_tls([RawAnswer::new("", RawEnd::Close)])).unwrap();
            server.ca_pem().unwrap().to_owned()
        });
        certificate.join().unwrap()
    });
    &AUTHORITY
}

/// A transport without credentials. Only a client of the caller's speaks HTTP/2.
pub fn anonymous(url: &str, http2: bool) -> Opening {
    if http2 {
        Opening::Caller(Http2 { url: url.to_owned(), headers: HeaderMap::new(), credentials: Credentials::default() })
    } else {
        Config::new(url).ca_pem(authority()).into()
    }
}

/// A transport that sends the token of the tests.
pub fn builder(url: &str, http2: bool) -> Opening {
    anonymous(url, http2).bearer_token(TOKEN)
}

/// A client that sends the token of the tests, and retries without waiting.
pub fn client(server: &Server, http2: bool) -> Client {
    client_of(builder(&server.url(), http2))
}

/// A client that retries without waiting.
pub fn client_of(opening: impl Into<Opening>) -> Client {
    Client::new(opening.into().open()).retry(quick())
}

/// A list of the bytes of pods.
pub type Pods = List<FromRef<[u8]>>;

/// A list of pods with default parameters.
pub fn pods(client: &Client) -> Pods {
    client.list::<[u8]>(&Resource::PODS, &ListParams::default())
}

/// A list of pods in pages of 50.
pub fn paged(client: &Client) -> Pods {
    client.list::<[u8]>(&Resource::PODS, &ListParams::default().page_size(50))
}

/// A list of pods, decoded by a closure.
pub fn pods_with<F, O, E: Into<ItemError>>(client: &Client, decode: F) -> List<F>
where
    F: FnMut(ItemRef<'_>) -> Result<O, E>,
{
    client.list_with(&Resource::PODS, &ListParams::default(), decode)
}
