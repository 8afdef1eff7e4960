//! Who may read what.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use listwatch::Status;
use listwatch::client::Transport;
use listwatch::internal::WarningLimit;
use secrecy::SecretString;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout_at};

use super::error::ReviewError;
use super::reviewer::{Reviewer, UserInfo};
use crate::accept::Reader;
use crate::fairness::{Holder, Peer};
use crate::metrics::MirrorMetrics;
use crate::request::Attributes;
use crate::response::status::group_resource;
use crate::response::{Refusal, status};
use crate::settings::{Access, MirrorSettings};

/// The time between two reviews of a long watch.
const REVIEW_INTERVAL: Duration = Duration::from_secs(60);

/// How long a watch retries reviews that fail.
const RETRY_FOR: Duration = Duration::from_secs(30);
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// Authorizes requests.
pub(crate) struct Authorizer {
    /// `None` on loopback, where all readers share the rights of the mirror.
    reviewer: Option<Arc<Reviewer>>,
    metrics: MirrorMetrics,
    warnings: WarningLimit,
}

impl Authorizer {
    pub(crate) fn new(settings: &MirrorSettings, transport: Arc<dyn Transport>, metrics: MirrorMetrics) -> Self {
        let reviewer = match settings.access {
            Access::Loopback => None,
            Access::Reviewed => Some(Arc::new(Reviewer::new(transport, settings, metrics.clone()))),
        };
        Self { reviewer, metrics, warnings: WarningLimit::default() }
    }

    /// Authenticates a reader by its token, and authorizes its request. Sets `holder` once the user is known, also if
    /// the request is denied.
    ///
    /// # Errors
    ///
    /// 401, 403, 429 if too many reviews wait, and 503 if a review fails.
    pub(crate) async fn authorize_request(
        &self,
        headers: &HeaderMap,
        reader: &Reader,
        attributes: &Attributes,
        holder: &mut Option<Holder>,
    ) -> Result<Grant, Refusal> {
        let Some(reviewer) = &self.reviewer else { return Ok(Grant::on_loopback(reader)) };
        let (denied, status) = match bearer_token(headers) {
            None => ("no_token", status::unauthorized()),
            Some(token) => {
                let (peer, attributes) = (reader.peer, attributes.clone());
                let request = ReviewedRequest { reviewer: Arc::clone(reviewer), token, peer, attributes };
                match request.review_rights().await {
                    Ok(user) => {
                        *holder = Some(user.holder());
                        return Ok(Grant { holder: user.holder(), request: Some(Arc::new(request)) });
                    }
                    Err(denial) => {
                        if let ReviewDenial::Forbidden(user, _) = &denial {
                            *holder = Some(user.holder());
                        }
                        self.denied_status(denial, &request.attributes)
                    }
                }
            }
        };
        self.metrics.count_denied(denied);
        Err(status.into())
    }

    /// Reviews a right of the reader itself, as `kubectl auth can-i` requests it. Takes the `spec` of a
    /// `SelfSubjectAccessReview`, and returns its status.
    ///
    /// # Errors
    ///
    /// 401, 405 on loopback, where readers have no rights of their own, 429 if too many reviews wait, and 503 if a
    /// review fails.
    pub(crate) async fn review_self(
        &self,
        headers: &HeaderMap,
        reader: &Reader,
        spec: &Value,
    ) -> Result<Value, Refusal> {
        let Some(reviewer) = &self.reviewer else { return Err(status::method_not_allowed().into()) };
        let review = async {
            let token = bearer_token(headers).ok_or(ReviewDenial::Unknown)?;
            let user = reviewer.review_token(&token, reader.peer).await.map_err(ReviewDenial::Failed)?;
            let user = user.ok_or(ReviewDenial::Unknown)?;
            let access = reviewer.review_spec(&user, spec).await.map_err(ReviewDenial::Failed)?;
            serde_json::to_value(access).map_err(|error| ReviewDenial::Failed(ReviewError::failed(error.to_string())))
        };
        review.await.map_err(|denial| {
            let (denied, status) = self.denied_status(denial, &Attributes::Path { verb: "post", path: String::new() });
            self.metrics.count_denied(denied);
            status.into()
        })
    }

    /// Returns the label of a denial in the metrics, and the error for the reader.
    fn denied_status(&self, denial: ReviewDenial, attributes: &Attributes) -> (&'static str, Status) {
        match denial {
            ReviewDenial::Unknown => ("wrong_token", status::unauthorized()),
            ReviewDenial::Forbidden(user, reason) => ("forbidden", forbidden_status(&user, attributes, &reason)),
            ReviewDenial::Failed(ReviewError::TooMany) => {
                let message = "too many readers wait for a review, please try again later";
                ("too_many", status::too_many_requests(message, 1))
            }
            ReviewDenial::Failed(error) => {
                if let Some(left_out) = self.warnings.admit(error.to_string()) {
                    tracing::warn!(name: "listwatch.mirror.review", %error, left_out, "cannot review a reader");
                }
                let message = "the mirror cannot review the reader's rights: the API server did not answer";
                ("review_failed", status::unavailable(message, 1))
            }
        }
    }
}

/// The right to a request. A watch keeps it, to notice when the right is withdrawn.
#[derive(Clone)]
pub(crate) struct Grant {
    /// Who holds what the request takes.
    holder: Holder,
    /// `None` on loopback.
    request: Option<Arc<ReviewedRequest>>,
}

/// What a review is repeated with.
struct ReviewedRequest {
    reviewer: Arc<Reviewer>,
    token: SecretString,
    peer: Peer,
    attributes: Attributes,
}

impl ReviewedRequest {
    async fn review_rights(&self) -> Result<Arc<UserInfo>, ReviewDenial> {
        let user = self.reviewer.review_token(&self.token, self.peer).await.map_err(ReviewDenial::Failed)?;
        let user = user.ok_or(ReviewDenial::Unknown)?;
        let access = self.reviewer.review_access(&user, &self.attributes).await.map_err(ReviewDenial::Failed)?;
        if access.allowed { Ok(user) } else { Err(ReviewDenial::Forbidden(user, access.reason)) }
    }
}

impl Grant {
    /// Returns true if the reader has this right itself, and does not share the mirror's.
    pub(crate) fn is_reviewed(&self) -> bool {
        self.request.is_some()
    }

    fn on_loopback(reader: &Reader) -> Self {
        Self { holder: Holder::Connection(reader.connection.number()), request: None }
    }

    pub(crate) fn holder(&self) -> &Holder {
        &self.holder
    }

    /// Repeats the review. Returns false if the reader may not read any more: its watch must end.
    ///
    /// Failed reviews are retried for 30 s, and then count as a denial: the reader connects again, and gets a 503.
    async fn repeat_review(&self) -> bool {
        let Some(request) = &self.request else { return true };
        let retry = async {
            loop {
                match request.review_rights().await {
                    Ok(_) => return true,
                    Err(ReviewDenial::Failed(_)) => sleep(RETRY_AFTER).await,
                    Err(ReviewDenial::Unknown | ReviewDenial::Forbidden(..)) => return false,
                }
            }
        };
        timeout_at(Instant::now() + RETRY_FOR, retry).await.unwrap_or(false)
    }

    /// Waits until a repeated review denies the right. It never completes for a reader on loopback.
    pub(crate) async fn withdrawn(self) {
        if self.request.is_none() {
            return std::future::pending().await;
        }
        loop {
            sleep(REVIEW_INTERVAL).await;
            if !self.repeat_review().await {
                return;
            }
        }
    }
}

/// Why a review grants nothing.
enum ReviewDenial {
    /// The token has no user.
    Unknown,
    /// The user does not have the right, for this reason.
    Forbidden(Arc<UserInfo>, String),
    /// A review failed.
    Failed(ReviewError),
}

/// Returns the token of the only `Authorization` header.
fn bearer_token(headers: &HeaderMap) -> Option<SecretString> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (value, None) = (values.next()?, values.next()) else { return None };
    let (scheme, token) = value.to_str().ok()?.trim().split_once(' ')?;
    let token = token.trim();
    let is_token = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    (scheme.eq_ignore_ascii_case("bearer") && is_token).then(|| token.into())
}

/// Returns the 403 of the API server.
fn forbidden_status(user: &UserInfo, attributes: &Attributes, reason: &str) -> Status {
    let user = &user.username;
    let colon = if reason.is_empty() { "" } else { ": " };
    let Attributes::Resource(of) = attributes else {
        let Attributes::Path { path, verb } = attributes else { return status::forbidden("forbidden") };
        return status::forbidden(format!("forbidden: User {user:?} cannot {verb} path {path:?}{colon}{reason}"));
    };
    let subresource =
        if of.subresource.is_empty() { of.resource.clone() } else { format!("{}/{}", of.resource, of.subresource) };
    let scope = match &*of.namespace {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace {namespace:?}"),
    };
    let name = if of.name.is_empty() { String::new() } else { format!(" {:?}", of.name) };
    let resource = group_resource(&of.group, &of.resource);
    let mut status = status::forbidden(format!(
        "{resource}{name} is forbidden: User {user:?} cannot {} resource {subresource:?} in API group {:?} {scope}{colon}{reason}",
        of.verb, of.group,
    ));
    status.details = Some(status::details(&of.group, &of.resource, &of.name));
    status
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bytes::Bytes;
    use futures::{FutureExt as _, StreamExt as _, stream};
    use http::StatusCode;
    use listwatch::client::{Request, Response, ResponseFuture};

    use super::*;

    /// Answers both kinds of review with this status and this body.
    struct ReviewServer(Mutex<(StatusCode, &'static str)>);

    const GRANTED: (StatusCode, &str) =
        (StatusCode::CREATED, r#"{"status": {"authenticated": true, "user": {"username": "jane"}, "allowed": true}}"#);

    impl Transport for ReviewServer {
        fn get(&self, _: Request) -> ResponseFuture<'_> {
            std::future::pending().boxed()
        }

        fn post(&self, _: Request, _: Bytes) -> ResponseFuture<'_> {
            let (status, body) = *self.0.lock().unwrap();
            let body = stream::iter([Ok(Bytes::from(body))]).boxed();
            std::future::ready(Ok(Response::new(status, HeaderMap::new(), body))).boxed()
        }
    }

    fn version() -> Attributes {
        Attributes::Path { verb: "get", path: "/version".to_owned() }
    }

    fn headers(token: &str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, format!("Bearer {token}").parse().unwrap())])
    }

    fn reader(host: u8) -> Reader {
        Reader::of_test(false, [10, 0, 0, host])
    }

    fn authorizer(transport: Arc<dyn Transport>) -> Authorizer {
        let (access, stale_reviews) = (Access::Reviewed, Duration::ZERO);
        let settings = MirrorSettings { access, stale_reviews, ..MirrorSettings::default() };
        Authorizer::new(&settings, transport, MirrorMetrics::default())
    }

    async fn granted() -> (Arc<ReviewServer>, Grant) {
        let api = Arc::new(ReviewServer(Mutex::new(GRANTED)));
        let transport = Arc::clone(&api) as Arc<dyn Transport>;
        let granted =
            authorizer(transport).authorize_request(&headers("t0ken"), &reader(1), &version(), &mut None).await;
        (api, granted.unwrap_or_else(|_| panic!("the request is granted")))
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_ends_once_its_right_is_withdrawn() {
        for withdrawn in [
            r#"{"status": {"authenticated": false}}"#,
            r#"{"status": {"authenticated": true, "user": {"username": "jane"}}}"#,
        ] {
            let (api, granted) = granted().await;
            let started = Instant::now();
            let mut ended = Box::pin(granted.withdrawn());
            timeout_at(started + Duration::from_secs(600), &mut ended).await.unwrap_err();
            api.0.lock().unwrap().1 = withdrawn;
            ended.await;
            assert!(started.elapsed() <= Duration::from_secs(660));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_survives_a_short_failure_of_reviews() {
        let (api, granted) = granted().await;
        *api.0.lock().unwrap() = (StatusCode::SERVICE_UNAVAILABLE, "");
        let started = Instant::now();
        let mut ended = Box::pin(granted.clone().withdrawn());
        timeout_at(started + Duration::from_secs(80), &mut ended).await.unwrap_err();
        *api.0.lock().unwrap() = GRANTED;
        timeout_at(started + Duration::from_secs(600), &mut ended).await.unwrap_err();
        *api.0.lock().unwrap() = (StatusCode::SERVICE_UNAVAILABLE, "");
        ended.await;
        assert!(started.elapsed() <= Duration::from_secs(660 + 30));
        assert!(!granted.repeat_review().await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_local_reader_keeps_its_right() {
        assert!(Grant::on_loopback(&reader(1)).repeat_review().await);
        assert!(Grant::on_loopback(&reader(1)).withdrawn().now_or_never().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_review_has_at_most_a_mebibyte() {
        for (bytes, is_granted) in [(1 << 20, true), ((1 << 20) + 1, false)] {
            let body: &str = (GRANTED.1.to_owned() + &" ".repeat(bytes - GRANTED.1.len())).leak();
            let transport = Arc::new(ReviewServer(Mutex::new((GRANTED.0, body))));
            let granted =
                authorizer(transport).authorize_request(&headers("t0ken"), &reader(1), &version(), &mut None).await;
            assert_eq!(granted.is_ok(), is_granted, "{bytes} bytes");
        }
    }

    /// Grants the path `/version` and no other.
    #[derive(Default)]
    struct StrictServer {
        reviews: AtomicUsize,
    }

    impl Transport for StrictServer {
        fn get(&self, _: Request) -> ResponseFuture<'_> {
            std::future::pending().boxed()
        }

        fn post(&self, request: Request, body: Bytes) -> ResponseFuture<'_> {
            self.reviews.fetch_add(1, Ordering::Relaxed);
            let is_granted =
                request.path_and_query.ends_with("tokenreviews") || body.windows(10).any(|at| at == b"\"/version\"");
            let body = if is_granted { GRANTED.1 } else { r#"{"status": {"allowed": false}}"# };
            let body = stream::iter([Ok(Bytes::from(body))]).boxed();
            std::future::ready(Ok(Response::new(GRANTED.0, HeaderMap::new(), body))).boxed()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_denied_requests_evicts_no_right() {
        let server = Arc::new(StrictServer::default());
        let authorizer = authorizer(Arc::clone(&server) as Arc<dyn Transport>);
        let authorize = async |path: String| {
            let path = Attributes::Path { verb: "get", path };
            authorizer.authorize_request(&headers("t0ken"), &reader(1), &path, &mut None).await.is_ok()
        };
        assert!(authorize("/version".to_owned()).await);
        for n in 0..10_010 {
            assert!(!authorize(format!("/{n}")).await);
        }
        let reviews = server.reviews.load(Ordering::Relaxed);
        assert!(authorize("/version".to_owned()).await);
        assert_eq!(server.reviews.load(Ordering::Relaxed), reviews, "the right is still known");
    }

    /// Answers reviews of `t0ken` and of rights at once, and those of other tokens never.
    struct FloodedServer;

    impl Transport for FloodedServer {
        fn get(&self, _: Request) -> ResponseFuture<'_> {
            std::future::pending().boxed()
        }

        fn post(&self, request: Request, body: Bytes) -> ResponseFuture<'_> {
            let is_unknown =
                request.path_and_query.ends_with("tokenreviews") && !body.windows(5).any(|at| at == b"t0ken");
            if is_unknown {
                return std::future::pending().boxed();
            }
            let body = stream::iter([Ok(Bytes::from(GRANTED.1))]).boxed();
            std::future::ready(Ok(Response::new(GRANTED.0, HeaderMap::new(), body))).boxed()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_unknown_tokens_delays_no_other_reader() {
        let transport = Arc::new(FloodedServer) as Arc<dyn Transport>;
        let authorizer = &authorizer(transport);
        let authorize = async |token: &str, host: u8| {
            authorizer.authorize_request(&headers(token), &reader(host), &version(), &mut None).await
        };
        assert!(authorize("t0ken", 1).await.is_ok());
        tokio::time::advance(Duration::from_secs(3600)).await;

        let mut flood: Vec<_> = (0..1000)
            .map(|n| {
                Box::pin(async move {
                    authorizer
                        .authorize_request(&headers(&format!("random{n}")), &reader(1), &version(), &mut None)
                        .await
                })
            })
            .collect();
        let mut refused = 0;
        flood.retain_mut(|request| match request.now_or_never() {
            None => true,
            Some(Err(Refusal::Status(status))) => {
                assert_eq!((status.code, status.details.unwrap().retry_after_seconds), (429, 1));
                refused += 1;
                false
            }
            Some(_) => panic!("the token is unknown"),
        });
        assert_eq!((flood.len(), refused), (798, 202), "an address gets three quarters: 48 reviews run, and 750 wait");
        // Its address is the flood's, and its review is over.
        let started = Instant::now();
        assert!(authorize("t0ken", 1).await.is_ok());
        // A reader that is not known yet, from elsewhere.
        assert!(authorize("another-t0ken", 2).await.is_ok());
        assert_eq!(started.elapsed(), Duration::ZERO);
        // Requests that are gone have no place.
        drop(flood);
        assert!(authorize("third-t0ken", 1).await.is_ok());
        assert_eq!(started.elapsed(), Duration::ZERO);
    }
}
