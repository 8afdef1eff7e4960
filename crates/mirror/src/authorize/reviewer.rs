//! Reviews of tokens and of access, with a cache of their results.
//!
//! While the API server answers no reviews, the last review of a reader counts for some time. Only a review that found
//! a user or allowed the request is used in this way: nobody gains a right by an outage. Any answer replaces it, also a
//! denial. A review that the API server refuses is no outage.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use listwatch::client::Transport;
use listwatch::internal::WarningLimit;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::error::ReviewError;
use super::review_cache::{CachedReview, ReviewCache};
use super::review_client::{ReviewClient, TOKEN_REVIEWS};
use crate::fairness::{Holder, Peer};
use crate::metrics::MirrorMetrics;
use crate::request::{Attributes, ResourceAttributes};
use crate::settings::MirrorSettings;

const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// How long the result of a token review is used, whatever it is.
const TOKEN_LIFETIME: Duration = Duration::from_secs(10);
/// How long a right is used after it was granted.
const ALLOWED_LIFETIME: Duration = Duration::from_secs(10);
/// How long a denial is used.
const DENIED_LIFETIME: Duration = Duration::from_secs(5);

/// How long a reader with an older review waits for a new one.
const PATIENCE: Duration = Duration::from_secs(2);

/// Results that are cached, of each kind.
const MAX_RESULTS: usize = 10_000;

/// Reviews tokens and access. Concurrent equal reviews share one request.
pub(super) struct Reviewer {
    client: Arc<ReviewClient>,
    /// The accepted audiences of a token. If there are none, the API server's own audiences apply.
    audiences: Arc<[String]>,
    /// By the digest of the token. `None` if the token is of no user.
    tokens: ReviewCache<Digest, Option<Arc<UserInfo>>>,
    /// By the digest of the review, because a user chooses the length of its attributes.
    access: ReviewCache<Digest, AccessDecision>,
    /// How long the last review of a reader is used while the API server answers none.
    stale_reviews: Duration,
    metrics: MirrorMetrics,
    warnings: WarningLimit,
}

/// A user, as a TokenReview returns it and a SubjectAccessReview expects it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct UserInfo {
    #[serde(rename(serialize = "user"))]
    pub(super) username: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

/// The result of a SubjectAccessReview.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct AccessDecision {
    pub(super) allowed: bool,
    #[serde(skip_serializing_if = "is_false")]
    denied: bool,
    /// The authorizer's reason, for the message of a 403.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    evaluation_error: String,
}

impl UserInfo {
    /// Returns who holds what the user's requests take.
    pub(super) fn holder(&self) -> Holder {
        Holder::User(self.username.as_str().into())
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

/// The SHA-256 of a text.
type Digest = [u8; 32];

fn digest_of(text: &str) -> Digest {
    let mut copy = [0; 32];
    copy.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
    copy
}

impl Reviewer {
    pub(super) fn new(transport: Arc<dyn Transport>, settings: &MirrorSettings, metrics: MirrorMetrics) -> Self {
        Self {
            client: Arc::new(ReviewClient::new(transport, &settings.limits, metrics.clone())),
            audiences: settings.audiences.clone().into(),
            tokens: ReviewCache::new(MAX_RESULTS),
            access: ReviewCache::new(MAX_RESULTS),
            stale_reviews: settings.stale_reviews,
            metrics,
            warnings: WarningLimit::default(),
        }
    }

    /// Returns the user of a token, which this peer has sent; `None` if it has none.
    pub(super) async fn review_token(
        &self,
        token: &SecretString,
        peer: Peer,
    ) -> Result<Option<Arc<UserInfo>>, ReviewError> {
        let key = digest_of(token.expose_secret());
        let review = |last: Option<&Option<Arc<UserInfo>>>| {
            let (client, token, audiences) = (Arc::clone(&self.client), token.clone(), Arc::clone(&self.audiences));
            let holder = last.and_then(Option::as_ref).map_or(Holder::Address(peer), |user| user.holder());
            async move { send_token_review(&client, &token, &audiences, &holder).await }
        };
        self.review_or_last(&self.tokens, key, self.tokens.get_or_review(key, review)).await
    }

    /// Returns whether a user has a right.
    pub(super) async fn review_access(
        &self,
        user: &UserInfo,
        attributes: &Attributes,
    ) -> Result<AccessDecision, ReviewError> {
        let spec = match attributes {
            Attributes::Resource(of) => json!({ "resourceAttributes": to_json(of) }),
            Attributes::Path { path, verb } => json!({ "nonResourceAttributes": { "path": path, "verb": verb } }),
        };
        self.review_spec(user, &spec).await
    }

    /// Returns whether a user has the right that these attributes describe.
    pub(super) async fn review_spec(&self, user: &UserInfo, attributes: &Value) -> Result<AccessDecision, ReviewError> {
        let mut spec = serde_json::to_value(user).map_err(|error| ReviewError::failed(error.to_string()))?;
        for name in ["resourceAttributes", "nonResourceAttributes"] {
            if let Some(attributes) = attributes.get(name).filter(|attributes| attributes.is_object()) {
                spec[name] = attributes.clone();
            }
        }
        let body = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": spec,
        });
        let body = body.to_string();
        let review = |_: Option<&AccessDecision>| {
            let (client, body, holder) = (Arc::clone(&self.client), body.clone(), user.holder());
            async move {
                let access: AccessDecision = client.send_review(ACCESS_REVIEWS, body, &holder).await?;
                let lifetime = if access.allowed { ALLOWED_LIFETIME } else { DENIED_LIFETIME };
                Ok(CachedReview { expendable: !access.allowed, value: access, lifetime })
            }
        };
        let key = digest_of(&body);
        self.review_or_last(&self.access, key, self.access.get_or_review(key, review)).await
    }

    /// Returns the result of a review, or the last one of this key if the API server does not answer.
    async fn review_or_last<V: Clone + Send + Sync + 'static>(
        &self,
        cache: &ReviewCache<Digest, V>,
        key: Digest,
        review: impl Future<Output = Result<V, ReviewError>>,
    ) -> Result<V, ReviewError> {
        let Some(last) = cache.last_result(&key, self.stale_reviews) else { return review.await };
        if !self.client.is_failing() {
            let error = match timeout(PATIENCE, review).await {
                Ok(Err(ReviewError::Unanswered(error))) => error,
                Ok(reviewed) => return reviewed,
                Err(_) => {
                    self.client.record_answer(false);
                    format!("no answer within {} s", PATIENCE.as_secs())
                }
            };
            if let Some(left_out) = self.warnings.admit(error.clone()) {
                tracing::warn!(
                    name: "listwatch.mirror.stale_review",
                    %error,
                    left_out,
                    "cannot review readers, and uses their last reviews for a while"
                );
            }
        }
        self.metrics.count_stale_review();
        Ok(last)
    }
}

async fn send_token_review(
    client: &ReviewClient,
    token: &SecretString,
    audiences: &[String],
    holder: &Holder,
) -> Result<CachedReview<Option<Arc<UserInfo>>>, ReviewError> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct TokenReviewStatus {
        authenticated: bool,
        user: UserInfo,
        audiences: Vec<String>,
    }

    let mut spec = json!({ "token": token.expose_secret() });
    if !audiences.is_empty() {
        spec["audiences"] = audiences.into();
    }
    let body = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec });
    let status: TokenReviewStatus = client.send_review(TOKEN_REVIEWS, body.to_string(), holder).await?;
    // A server that ignores audiences returns none, and has accepted a token of its own.
    let is_for_mirror = audiences.is_empty() || status.audiences.iter().any(|of_token| audiences.contains(of_token));
    let is_user = status.authenticated && is_for_mirror && !status.user.username.is_empty();
    let user = is_user.then(|| Arc::new(status.user));
    Ok(CachedReview { expendable: user.is_none(), value: user, lifetime: TOKEN_LIFETIME })
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use bytes::Bytes;
    use futures::{FutureExt as _, StreamExt as _, stream};
    use http::{HeaderMap, StatusCode};
    use listwatch::client::{Request, Response, ResponseFuture};
    use tokio::time::{Instant, advance};

    use super::*;
    use crate::settings::Access;

    /// What the API server does with a review: it answers with this code, and grants everything, or does not answer.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Answer {
        Granted,
        Denied,
        Unknown,
        Code(u16),
        Never,
    }

    struct ReviewServer(Mutex<Answer>);

    impl Transport for ReviewServer {
        fn get(&self, _: Request) -> ResponseFuture<'_> {
            std::future::pending().boxed()
        }

        fn post(&self, _: Request, _: Bytes) -> ResponseFuture<'_> {
            let (code, status) = match *self.0.lock().unwrap() {
                Answer::Never => return std::future::pending().boxed(),
                Answer::Granted => (201, r#"{"authenticated": true, "user": {"username": "jane"}, "allowed": true}"#),
                Answer::Denied => (201, r#"{"authenticated": true, "user": {"username": "jane"}}"#),
                Answer::Unknown => (201, "{}"),
                Answer::Code(code) => (code, "{}"),
            };
            let body = stream::iter([Ok(Bytes::from(format!(r#"{{"status": {status}}}"#)))]).boxed();
            std::future::ready(Ok(Response::new(StatusCode::from_u16(code).unwrap(), HeaderMap::new(), body))).boxed()
        }
    }

    fn reviewer() -> (Arc<ReviewServer>, Reviewer) {
        let api = Arc::new(ReviewServer(Mutex::new(Answer::Granted)));
        let settings = MirrorSettings { access: Access::Reviewed, ..MirrorSettings::default() };
        (Arc::clone(&api), Reviewer::new(api, &settings, MirrorMetrics::default()))
    }

    /// Returns `allowed`, `denied`, `unknown` or `failed`, and after how many seconds.
    async fn review(reviewer: &Reviewer, token: &str) -> (&'static str, u64) {
        let started = Instant::now();
        let path = Attributes::Path { verb: "get", path: "/version".to_owned() };
        let result = match reviewer.review_token(&token.into(), Peer::new([10, 0, 0, 1].into())).await {
            Ok(Some(user)) => match reviewer.review_access(&user, &path).await {
                Ok(access) if access.allowed => "allowed",
                Ok(_) => "denied",
                Err(_) => "failed",
            },
            Ok(None) => "unknown",
            Err(_) => "failed",
        };
        (result, started.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_keeps_its_right_while_the_api_server_answers_no_reviews() {
        for (outage, late, (first, of_stranger)) in [
            (Answer::Code(500), "failed", (("allowed", 0), ("failed", 0))),
            (Answer::Code(429), "failed", (("allowed", 0), ("failed", 0))),
            // The second review does not wait.
            (Answer::Never, "failed", (("allowed", 2), ("failed", 10))),
            // It answers.
            (Answer::Code(403), "failed", (("failed", 0), ("failed", 0))),
            (Answer::Denied, "denied", (("denied", 0), ("denied", 0))),
            (Answer::Unknown, "unknown", (("unknown", 0), ("unknown", 0))),
        ] {
            let (api, reviewer) = reviewer();
            assert_eq!(review(&reviewer, "t0ken").await, ("allowed", 0));
            *api.0.lock().unwrap() = outage;
            assert_eq!(review(&reviewer, "t0ken").await, ("allowed", 0), "{outage:?}: the review is new");
            advance(Duration::from_secs(11)).await;
            assert_eq!(review(&reviewer, "t0ken").await, first, "{outage:?}");
            if first.0 == "allowed" {
                assert_eq!(review(&reviewer, "t0ken").await, ("allowed", 0), "{outage:?}");
            }
            assert_eq!(review(&reviewer, "other").await, of_stranger, "{outage:?}");
            advance(Duration::from_secs(270)).await;
            assert_eq!(review(&reviewer, "t0ken").await.0, first.0, "{outage:?}");
            advance(Duration::from_secs(20)).await;
            assert_eq!(review(&reviewer, "t0ken").await.0, late, "{outage:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_restores_no_right_that_was_withdrawn() {
        for (withdrawn, expected) in [(Answer::Denied, "denied"), (Answer::Unknown, "unknown")] {
            let (api, reviewer) = reviewer();
            assert_eq!(review(&reviewer, "t0ken").await.0, "allowed");
            *api.0.lock().unwrap() = withdrawn;
            advance(Duration::from_secs(11)).await;
            assert_eq!(review(&reviewer, "t0ken").await.0, expected);
            *api.0.lock().unwrap() = Answer::Code(503);
            advance(Duration::from_secs(11)).await;
            assert_eq!(review(&reviewer, "t0ken").await.0, "failed", "{withdrawn:?}");
        }
    }

    #[test]
    fn a_reader_receives_the_decision_as_the_api_server_made_it() {
        for decision in [
            r#"{"allowed":true}"#,
            r#"{"allowed":false}"#,
            r#"{"allowed":false,"denied":true,"reason":"no role","evaluationError":"too late"}"#,
        ] {
            let read: AccessDecision = serde_json::from_str(decision).unwrap();
            assert_eq!(serde_json::to_string(&read).unwrap(), decision);
        }
    }
}
