//! Who may read what.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use http::header::{AUTHORIZATION, HOST, ORIGIN};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Uri};
use listwatch::client::is_loopback;
use secrecy::SecretString;
use tokio::time::{Instant, sleep, timeout_at};

use crate::mirror::Access;
use crate::request::Attributes;
use crate::review::{Peer, ReviewFailed, Reviewer, User};
use crate::shared::Shared;
use crate::status::{self, Refusal, qualified};

/// How long a recheck retries reviews that fail.
const RETRY_FOR: Duration = Duration::from_secs(30);
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// A granted request. A watch keeps it, to notice when the right is withdrawn.
#[derive(Clone)]
pub(crate) struct Granted(Option<Arc<Reviewed>>);

struct Reviewed {
    reviewer: Arc<Reviewer>,
    token: SecretString,
    peer: Peer,
    attributes: Attributes,
}

impl Reviewed {
    async fn review(&self) -> Result<(), Denied> {
        let user = self.reviewer.user(&self.token, self.peer).await.map_err(Denied::Failed)?.ok_or(Denied::Unknown)?;
        let access = self.reviewer.access(&user, &self.attributes).await.map_err(Denied::Failed)?;
        if access.allowed { Ok(()) } else { Err(Denied::Forbidden(user, access.reason)) }
    }
}

impl Granted {
    /// The time between two checks of a long watch.
    pub(crate) const RECHECK_EVERY: Duration = Duration::from_secs(60);

    /// Grants a request of a reader on this host.
    pub(crate) fn local() -> Self {
        Self(None)
    }

    /// Repeats the review. Returns false if the reader may not read any more: its watch must end.
    ///
    /// Failed reviews are retried for 30 s, and then count as a denial: the reader connects again, and gets a 503.
    pub(crate) async fn recheck(&self) -> bool {
        let Some(reviewed) = &self.0 else { return true };
        let retry = async {
            loop {
                match reviewed.review().await {
                    Ok(()) => return true,
                    Err(Denied::Failed(_)) => sleep(RETRY_AFTER).await,
                    Err(Denied::Unknown | Denied::Forbidden(..)) => return false,
                }
            }
        };
        timeout_at(Instant::now() + RETRY_FOR, retry).await.unwrap_or(false)
    }

    /// Waits until a recheck fails. It never completes for a reader on this host.
    pub(crate) async fn withdrawn(self) {
        if self.0.is_none() {
            return std::future::pending().await;
        }
        loop {
            sleep(Self::RECHECK_EVERY).await;
            if !self.recheck().await {
                return;
            }
        }
    }
}

/// Refuses requests that the mirror answers to nobody, and on loopback the requests of web pages.
pub(crate) fn check(shared: &Shared, uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
    if headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
        return Err(deny(shared, "impersonation", "the mirror does not impersonate users"));
    }
    if shared.access != Access::Loopback {
        return Ok(());
    }
    let is_of_page = |value: &[u8]| !matches!(value, b"none" | b"same-origin");
    let fetched_by = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    if headers.contains_key(ORIGIN) || fetched_by.is_some_and(is_of_page) {
        return Err(deny(shared, "origin", "the mirror does not answer web pages"));
    }
    // Prevents DNS rebinding: a browser sends the host name of the web page, even if it resolves to this machine.
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next().map(HeaderValue::as_bytes);
    let is_allowed = |authority: &Authority| {
        is_loopback(authority.host())
            && authority.port_u16().unwrap_or(shared.default_port()) == shared.port
            && !authority.as_str().contains('@')
    };
    let host = host.map(|host| Authority::try_from(host).is_ok_and(|host| is_allowed(&host)));
    let authority = uri.authority().map(is_allowed);
    let is_local = host.unwrap_or(true) && authority.unwrap_or(true) && (host.is_some() || authority.is_some());
    if !is_local || hosts.next().is_some() {
        return Err(deny(shared, "host", "the host of the request is not loopback, with the port of the mirror"));
    }
    Ok(())
}

fn deny(shared: &Shared, reason: &'static str, message: &str) -> Refusal {
    shared.metrics.denied(reason);
    status::forbidden(message).into()
}

/// Authenticates and authorizes a request.
pub(crate) async fn authorize(shared: &Shared, head: &Parts, attributes: &Attributes) -> Result<Granted, Refusal> {
    if shared.access == Access::Loopback {
        return Ok(Granted::local());
    }
    let (denied, status) = match bearer_token(&head.headers) {
        None => ("no_token", status::unauthorized()),
        Some(token) => {
            let peer = head.extensions.get().copied().unwrap_or_else(|| Peer::new(Ipv4Addr::UNSPECIFIED.into()));
            let attributes = attributes.clone();
            let reviewed = Reviewed { reviewer: Arc::clone(&shared.reviewer), token, peer, attributes };
            match reviewed.review().await {
                Ok(()) => return Ok(Granted(Some(Arc::new(reviewed)))),
                Err(Denied::Unknown) => ("wrong_token", status::unauthorized()),
                Err(Denied::Forbidden(user, reason)) => ("forbidden", forbidden(&user, &reviewed.attributes, &reason)),
                Err(Denied::Failed(ReviewFailed::TooMany)) => {
                    let message = "too many readers wait for a review, please try again later";
                    ("too_many", status::too_many_requests(message, 1))
                }
                Err(Denied::Failed(error)) => {
                    tracing::warn!(name: "listwatch.mirror.review", %error, "cannot review a reader");
                    let message = "the mirror cannot review the reader's rights: the API server did not answer";
                    ("review_failed", status::unavailable(message, 1))
                }
            }
        }
    };
    shared.metrics.denied(denied);
    Err(status.into())
}

/// Why a review grants nothing.
enum Denied {
    /// The token has no user.
    Unknown,
    /// The user does not have the right, for this reason.
    Forbidden(Arc<User>, String),
    /// A review failed.
    Failed(ReviewFailed),
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
fn forbidden(user: &User, attributes: &Attributes, reason: &str) -> listwatch::Status {
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
    let resource = qualified(&of.group, &of.resource);
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

    use bytes::Bytes;
    use futures::{FutureExt as _, StreamExt as _, stream};
    use http::StatusCode;
    use listwatch::client::{Request, Response, ResponseFuture, Transport};

    use super::*;
    use crate::mirror::Limits;

    /// Answers both kinds of review with this status and this body.
    struct Api(Mutex<(StatusCode, &'static str)>);

    const GRANTED: (StatusCode, &str) =
        (StatusCode::CREATED, r#"{"status": {"authenticated": true, "user": {"username": "jane"}, "allowed": true}}"#);

    impl Transport for Api {
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

    fn head(token: &str) -> Parts {
        http::Request::get("/version").header(AUTHORIZATION, format!("Bearer {token}")).body(()).unwrap().into_parts().0
    }

    async fn granted() -> (Arc<Api>, Granted) {
        let api = Arc::new(Api(Mutex::new(GRANTED)));
        let transport = Arc::clone(&api) as Arc<dyn Transport>;
        let shared = Shared::new(transport, Vec::new(), Access::Reviewed, false, Limits::default(), 443, true);
        let granted = authorize(&shared, &head("t0ken"), &version()).await;
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
        assert!(!granted.recheck().await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_local_reader_keeps_its_right() {
        assert!(Granted::local().recheck().await);
        assert!(Granted::local().withdrawn().now_or_never().is_none());
    }

    /// Answers reviews of `t0ken` and of rights at once, and those of other tokens never.
    struct Flooded;

    impl Transport for Flooded {
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
        let transport = Arc::new(Flooded) as Arc<dyn Transport>;
        let shared = Shared::new(transport, Vec::new(), Access::Reviewed, false, Limits::default(), 443, true);
        let from = |token: &str, host: u8| {
            let mut head = head(token);
            head.extensions.insert(Peer::new([10, 0, 0, host].into()));
            head
        };
        let reader = from("t0ken", 1);
        assert!(authorize(&shared, &reader, &version()).await.is_ok());
        tokio::time::advance(Duration::from_secs(3600)).await;

        let mut flood: Vec<_> = (0..300)
            .map(|n| {
                let (shared, head) = (&shared, from(&format!("random{n}"), 1));
                Box::pin(async move { authorize(shared, &head, &version()).await })
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
        assert_eq!((flood.len(), refused), (208, 92), "8 reviews of a peer run, and 200 wait");
        // Its address is the flood's, and its review is over.
        let started = Instant::now();
        assert!(authorize(&shared, &reader, &version()).await.is_ok());
        // A reader that is not known yet, from elsewhere.
        assert!(authorize(&shared, &from("another-t0ken", 2), &version()).await.is_ok());
        assert_eq!(started.elapsed(), Duration::ZERO);
        // Requests that are gone have no place.
        drop(flood);
        assert!(authorize(&shared, &from("third-t0ken", 1), &version()).await.is_ok());
        assert_eq!(started.elapsed(), Duration::ZERO);
    }
}
