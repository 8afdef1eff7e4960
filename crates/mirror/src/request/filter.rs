//! Refuses requests that the mirror answers to nobody, and on loopback the requests of web pages.

use http::header::{HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Uri};
use listwatch::client::is_loopback;

use crate::metrics::MirrorMetrics;
use crate::response::{Refusal, status};

/// The port of the listener.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListenerPort {
    pub(crate) port: u16,
    pub(crate) is_tls: bool,
}

impl ListenerPort {
    /// Returns the port that a URL without a port means.
    fn default_port(self) -> u16 {
        if self.is_tls { 443 } else { 80 }
    }
}

/// Refuses requests that the mirror answers to nobody.
pub(crate) struct RequestFilter {
    /// The port of a mirror on loopback, which answers no web page; `None` for a mirror that reviews its readers.
    loopback: Option<ListenerPort>,
    metrics: MirrorMetrics,
}

impl RequestFilter {
    pub(crate) fn new(loopback: Option<ListenerPort>, metrics: MirrorMetrics) -> Self {
        Self { loopback, metrics }
    }

    /// Refuses impersonation, and on loopback the requests of web pages.
    ///
    /// # Errors
    ///
    /// 403.
    pub(crate) fn check_headers(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
        if headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
            return Err(self.deny("impersonation", "the mirror does not impersonate users"));
        }
        let Some(listener) = self.loopback else { return Ok(()) };
        let is_of_page = |value: &[u8]| !matches!(value, b"none" | b"same-origin");
        let fetched_by = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
        if headers.contains_key(ORIGIN) || fetched_by.is_some_and(is_of_page) {
            return Err(self.deny("origin", "the mirror does not answer web pages"));
        }
        if !names_listener(uri, headers, listener) {
            let message = "the host of the request is not loopback, with the port of the mirror";
            return Err(self.deny("host", message));
        }
        Ok(())
    }

    fn deny(&self, reason: &'static str, message: &str) -> Refusal {
        self.metrics.count_denied(reason);
        status::forbidden(message).into()
    }
}

/// Returns true if `Host` and the authority of the URI name loopback with the port of the listener. One of them must be
/// there, and only one `Host`.
///
/// It prevents DNS rebinding: a browser sends the host name of the web page, even if it resolves to this machine.
fn names_listener(uri: &Uri, headers: &HeaderMap, listener: ListenerPort) -> bool {
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next().map(HeaderValue::as_bytes);
    let is_allowed = |authority: &Authority| {
        is_loopback(authority.host())
            && authority.port_u16().unwrap_or(listener.default_port()) == listener.port
            && !authority.as_str().contains('@')
    };
    let host = host.map(|host| Authority::try_from(host).is_ok_and(|host| is_allowed(&host)));
    let authority = uri.authority().map(is_allowed);
    let is_named = host.is_some() || authority.is_some();
    is_named && host.unwrap_or(true) && authority.unwrap_or(true) && hosts.next().is_none()
}
