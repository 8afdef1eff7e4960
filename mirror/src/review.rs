//! Reviews of tokens and of access by the API server, with a cache of their results.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use bytes::Bytes;
use futures::TryStreamExt as _;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use listwatch::client::{Request, Transport};
use secrecy::{ExposeSecret as _, SecretString};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::queue::{Full, Queue};
use crate::request::{Attributes, ResourceAttributes};
use crate::ttl::{Kept, Ttl};

const TOKENS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// How long the result of a token review is used, whatever it is.
const TOKEN_FOR: Duration = Duration::from_secs(10);
/// How long a right is used after it was granted.
const ALLOWED_FOR: Duration = Duration::from_secs(10);
/// How long a denial is used.
const DENIED_FOR: Duration = Duration::from_secs(5);

/// Results that are cached, of each kind.
const MOST: usize = 10_000;
/// Reviews of known readers that run and that wait at the same time. Readers are known by a token whose last review
/// found a user.
const KNOWN: (usize, usize) = (48, 1000);
/// Reviews of all other tokens. Readers with random tokens flood neither the API server nor the reviews of known
/// readers.
const UNKNOWN: (usize, usize) = (16, 1000);
/// Those of them that are of one peer, so that a flood from one address leaves turns for others.
const OF_PEER: (usize, usize) = (8, 200);
/// How long a review may take, including its wait for others.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The largest accepted review, in bytes.
const LARGEST: usize = 1 << 20;

/// Reviews tokens and access. Concurrent equal reviews share one request.
pub(crate) struct Reviewer {
    api: Arc<Api>,
    /// By the digest of the token. `None` if the token is of no user.
    tokens: Ttl<Digest, Option<Arc<User>>>,
    /// By the digest of the review, because a user chooses the length of its attributes.
    access: Ttl<Digest, Access>,
}

/// A user, as a TokenReview returns it and a SubjectAccessReview expects it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct User {
    #[serde(rename(serialize = "user"))]
    pub(crate) username: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

/// The result of a SubjectAccessReview.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Access {
    pub(crate) allowed: bool,
    /// The authorizer's reason, for the message of a 403.
    pub(crate) reason: String,
}

/// A review failed, so that nothing is known about the token or the right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReviewFailed {
    /// Too many reviews wait.
    TooMany,
    Failed(String),
}

impl fmt::Display for ReviewFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooMany => "too many reviews",
            Self::Failed(reason) => reason,
        })
    }
}

impl From<Full> for ReviewFailed {
    fn from(Full: Full) -> Self {
        Self::TooMany
    }
}

fn failed(reason: impl Into<String>) -> ReviewFailed {
    ReviewFailed::Failed(reason.into())
}

/// The address of a reader's connection, which may be a proxy's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Peer(IpAddr);

impl Peer {
    /// A host has a whole /64 of IPv6 addresses.
    pub(crate) fn new(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
            address @ IpAddr::V4(_) => address,
        })
    }
}

/// The SHA-256 of a text.
type Digest = [u8; 32];

fn digest_of(text: &str) -> Digest {
    let mut copy = [0; 32];
    copy.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
    copy
}

impl Reviewer {
    pub(crate) fn new(transport: Arc<dyn Transport>) -> Self {
        let [known, unknown] = [KNOWN, UNKNOWN].map(|(turns, places)| Queue::new(turns, places));
        let api = Arc::new(Api { transport, known, unknown, peers: Mutex::default() });
        Self { api, tokens: Ttl::new(MOST), access: Ttl::new(MOST) }
    }

    /// Returns the user of a token, which this peer has sent; `None` if it has none.
    pub(crate) async fn user(&self, token: &SecretString, peer: Peer) -> Result<Option<Arc<User>>, ReviewFailed> {
        let key = digest_of(token.expose_secret());
        let review = |is_known| {
            let (api, token) = (Arc::clone(&self.api), token.clone());
            let turn_of = if is_known { None } else { Some(peer) };
            async move { api.user(&token, turn_of).await }
        };
        self.tokens.get(key, review).await
    }

    /// Returns whether a user has a right.
    pub(crate) async fn access(&self, user: &User, attributes: &Attributes) -> Result<Access, ReviewFailed> {
        let mut spec = serde_json::to_value(user).map_err(|error| failed(error.to_string()))?;
        match attributes {
            Attributes::Resource(of) => spec["resourceAttributes"] = to_json(of),
            Attributes::Path { path, verb } => spec["nonResourceAttributes"] = json!({ "path": path, "verb": verb }),
        }
        let body = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": spec,
        });
        let body = body.to_string();
        let review = |_| {
            let (api, body) = (Arc::clone(&self.api), body.clone());
            async move {
                let access: Access = api.review(ACCESS, body, None).await?;
                let lifetime = if access.allowed { ALLOWED_FOR } else { DENIED_FOR };
                Ok(Kept { expendable: !access.allowed, value: access, lifetime })
            }
        };
        self.access.get(digest_of(&body), review).await
    }
}

fn to_json(of: &ResourceAttributes) -> Value {
    let fields = [
        ("verb", of.verb),
        ("group", &*of.group),
        ("version", &*of.version),
        ("resource", &*of.resource),
        ("subresource", &*of.subresource),
        ("namespace", &*of.namespace),
        ("name", &*of.name),
    ];
    let mut attributes: Value = fields
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| (name.to_owned(), Value::from(value)))
        .collect();
    // The API server parses them as it parses those of a request, so that it decides about what it would serve. A
    // server before 1.31 ignores them.
    for (name, selector) in [("fieldSelector", &of.field_selector), ("labelSelector", &of.label_selector)] {
        if !selector.is_empty() {
            attributes[name] = json!({ "rawSelector": selector });
        }
    }
    attributes
}

struct Api {
    transport: Arc<dyn Transport>,
    known: Queue,
    unknown: Queue,
    /// The queues of peers that have reviews of unknown tokens.
    peers: Mutex<HashMap<Peer, Weak<Queue>>>,
}

impl Api {
    async fn user(&self, token: &SecretString, turn_of: Option<Peer>) -> Result<Kept<Option<Arc<User>>>, ReviewFailed> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Status {
            authenticated: bool,
            user: User,
        }

        let body = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": { "token": token.expose_secret() },
        });
        let Status { authenticated, user } = self.review(TOKENS, body.to_string(), turn_of).await?;
        let user = (authenticated && !user.username.is_empty()).then(|| Arc::new(user));
        Ok(Kept { expendable: user.is_none(), value: user, lifetime: TOKEN_FOR })
    }

    /// Sends a review, and returns its `status`. A review of an unknown token waits in the queue of its peer first.
    async fn review<S: DeserializeOwned>(
        &self,
        path: &str,
        body: String,
        turn_of: Option<Peer>,
    ) -> Result<S, ReviewFailed> {
        let sent = async {
            let of_peer = turn_of.map(|peer| self.queue_of(peer));
            let _turns = match &of_peer {
                Some(of_peer) => (Some(of_peer.turn().await?), self.unknown.turn().await?),
                None => (None, self.known.turn().await?),
            };
            self.send(path, body).await
        };
        timeout(TIMEOUT, sent)
            .await
            .unwrap_or_else(|_| Err(failed(format!("no answer within {} s", TIMEOUT.as_secs()))))
    }

    fn queue_of(&self, peer: Peer) -> Arc<Queue> {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = peers.get(&peer).and_then(Weak::upgrade) {
            return queue;
        }
        peers.retain(|_, queue| queue.strong_count() > 0);
        let queue = Arc::new(Queue::new(OF_PEER.0, OF_PEER.1));
        peers.insert(peer, Arc::downgrade(&queue));
        queue
    }

    async fn send<S: DeserializeOwned>(&self, path: &str, body: String) -> Result<S, ReviewFailed> {
        #[derive(Deserialize)]
        struct Review<S> {
            status: S,
        }

        let json = HeaderValue::from_static("application/json");
        let headers = HeaderMap::from_iter([(ACCEPT, json.clone()), (CONTENT_TYPE, json)]);
        let request = Request::new(path.to_owned(), headers);
        let broken = |error: listwatch::client::TransportError| failed(self.transport.redact(error.to_string()));
        let response = self.transport.post(request, Bytes::from(body)).await.map_err(broken)?;
        if !response.status.is_success() {
            return Err(failed(format!("the API server answered {} to a review", response.status)));
        }
        let mut chunks = response.body;
        let mut answer = Vec::new();
        while let Some(chunk) = chunks.try_next().await.map_err(broken)? {
            if answer.len() + chunk.len() > LARGEST {
                return Err(failed(format!("the review is over the limit of {LARGEST} bytes")));
            }
            answer.extend_from_slice(&chunk);
        }
        // The parser's error might quote the token.
        let review = serde_json::from_slice::<Review<S>>(&answer);
        review.map(|review| review.status).map_err(|_| failed("the answer is not a review"))
    }
}
