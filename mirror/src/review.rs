//! Reviews of tokens and of access by the API server, with a cache of their results.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
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
use tokio::sync::Semaphore;
use tokio::time::timeout;

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
/// Reviews that run at the same time: readers with random tokens must not flood the API server.
const CONCURRENT: usize = 64;
/// How long a review may take, including its wait for others.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The largest accepted review, in bytes.
const LARGEST: usize = 1 << 20;

/// Reviews tokens and access. Concurrent equal reviews share one request.
pub(crate) struct Reviewer {
    api: Arc<Api>,
    /// By the SHA-256 of the token. `None` if the token is of no user.
    tokens: Ttl<[u8; 32], Option<Arc<User>>>,
    access: Ttl<(Arc<User>, Attributes), Access>,
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
pub(crate) struct ReviewFailed(pub(crate) String);

impl fmt::Display for ReviewFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Reviewer {
    pub(crate) fn new(transport: Arc<dyn Transport>) -> Self {
        let api = Arc::new(Api { transport, running: Semaphore::new(CONCURRENT) });
        Self { api, tokens: Ttl::new(MOST, TIMEOUT), access: Ttl::new(MOST, TIMEOUT) }
    }

    /// Returns the user of a token; `None` if it has none.
    pub(crate) async fn user(&self, token: &SecretString) -> Result<Option<Arc<User>>, ReviewFailed> {
        let (api, token) = (Arc::clone(&self.api), token.clone());
        let mut key = [0; 32];
        key.copy_from_slice(digest(&SHA256, token.expose_secret().as_bytes()).as_ref());
        let review = async move {
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
            let Status { authenticated, user } = api.review(TOKENS, &body).await?;
            let user = (authenticated && !user.username.is_empty()).then(|| Arc::new(user));
            Ok(Kept { expendable: user.is_none(), value: user, lifetime: TOKEN_FOR })
        };
        self.tokens.get(key, review).await
    }

    /// Returns whether a user has a right.
    pub(crate) async fn access(&self, user: &Arc<User>, attributes: &Attributes) -> Result<Access, ReviewFailed> {
        let (api, key) = (Arc::clone(&self.api), (Arc::clone(user), attributes.clone()));
        let (user, attributes) = key.clone();
        let review = async move {
            let mut spec = serde_json::to_value(&*user).map_err(|error| ReviewFailed(error.to_string()))?;
            match &attributes {
                Attributes::Resource(of) => spec["resourceAttributes"] = to_json(of),
                Attributes::Path(path) => spec["nonResourceAttributes"] = json!({ "path": path, "verb": "get" }),
            }
            let body = json!({
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": spec,
            });
            let access: Access = api.review(ACCESS, &body).await?;
            let lifetime = if access.allowed { ALLOWED_FOR } else { DENIED_FOR };
            Ok(Kept { expendable: !access.allowed, value: access, lifetime })
        };
        self.access.get(key, review).await
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
    fields
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| (name.to_owned(), Value::from(value)))
        .collect()
}

struct Api {
    transport: Arc<dyn Transport>,
    running: Semaphore,
}

impl Api {
    /// Sends a review, and returns its `status`.
    async fn review<S: DeserializeOwned>(&self, path: &str, body: &Value) -> Result<S, ReviewFailed> {
        let sent = async {
            let Ok(_running) = self.running.acquire().await else {
                return Err(ReviewFailed("the mirror shuts down".to_owned()));
            };
            self.send(path, body).await
        };
        timeout(TIMEOUT, sent)
            .await
            .unwrap_or_else(|_| Err(ReviewFailed(format!("no answer within {} s", TIMEOUT.as_secs()))))
    }

    async fn send<S: DeserializeOwned>(&self, path: &str, body: &Value) -> Result<S, ReviewFailed> {
        #[derive(Deserialize)]
        struct Review<S> {
            status: S,
        }

        let json = HeaderValue::from_static("application/json");
        let headers = HeaderMap::from_iter([(ACCEPT, json.clone()), (CONTENT_TYPE, json)]);
        let request = Request::new(path.to_owned(), headers);
        let failed = |error: listwatch::client::TransportError| ReviewFailed(self.transport.redact(error.to_string()));
        let response = self.transport.post(request, Bytes::from(body.to_string())).await.map_err(failed)?;
        if !response.status.is_success() {
            return Err(ReviewFailed(format!("the API server answered {} to a review", response.status)));
        }
        let mut chunks = response.body;
        let mut answer = Vec::new();
        while let Some(chunk) = chunks.try_next().await.map_err(failed)? {
            if answer.len() + chunk.len() > LARGEST {
                return Err(ReviewFailed(format!("the review is over the limit of {LARGEST} bytes")));
            }
            answer.extend_from_slice(&chunk);
        }
        // The parser's error might quote the token.
        let review = serde_json::from_slice::<Review<S>>(&answer);
        review.map(|review| review.status).map_err(|_| ReviewFailed("the answer is not a review".to_owned()))
    }
}
