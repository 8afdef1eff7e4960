//! The auth provider `oidc` of kubeconfigs (`plugin/pkg/client/auth/oidc` of client-go).
//!
//! It sends an ID token, and refreshes it with the refresh token once it has expired or the server has refused it.
//! Unlike client-go, it does not write the new tokens to the kubeconfig. If the issuer accepts a refresh token only
//! once, the user must therefore log in again after this process has used it. No error quotes a response, which may
//! contain tokens.

use std::collections::HashMap;

use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD, Engine};
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use http::{Method, StatusCode, Uri};
use http_body_util::Full;
use jiff::{SignedDuration, Timestamp};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use tokio::sync::OnceCell;

use super::connect::{Authority, ConnectionSettings, HttpClient, setup};
use super::exec::IssuedCredentials;
use crate::client::credentials::Credentials;
use crate::client::proxy::environment_proxy;
use crate::client::transport::{Response, TransportError};
use crate::sync::{Mutex, lock};

/// How long before its expiry a token counts as expired, as in client-go.
const EARLY: SignedDuration = SignedDuration::from_secs(10);
const MAX_RESPONSE: usize = 1 << 20;

/// An auth provider with its settings, as in a kubeconfig.
#[derive(Clone, Default)]
pub(in crate::client) struct ProviderConfig {
    pub(in crate::client) name: String,
    pub(in crate::client) settings: HashMap<String, SecretString>,
}

pub(super) struct OidcProvider {
    issuer: Uri,
    client_id: SecretString,
    client_secret: Option<SecretString>,
    connection: ConnectionSettings,
    client: OnceCell<HttpClient>,
    tokens: Mutex<Tokens>,
}

#[derive(Clone)]
struct Tokens {
    /// Either not sent yet, or impossible to refresh.
    id_token: Option<SecretString>,
    refresh_token: Option<SecretString>,
}

impl OidcProvider {
    /// Creates a provider, without a request.
    ///
    /// # Errors
    ///
    /// [`TransportErrorKind::Setup`](crate::client::TransportErrorKind::Setup) for a provider that Kubernetes has
    /// removed or never had, and for settings that are missing or malformed.
    pub(super) fn new(config: &ProviderConfig) -> Result<Self, TransportError> {
        let name = &config.name;
        let fail = |error: &str| setup(format!("auth provider {name:?}: {error}"));
        match &**name {
            "oidc" => {}
            "gcp" => return Err(fail("Kubernetes has removed it: use the exec plugin gke-gcloud-auth-plugin")),
            "azure" => return Err(fail("Kubernetes has removed it: use the exec plugin kubelogin")),
            _ => return Err(fail("it does not exist: only oidc does")),
        }
        let secret = |key: &str| config.settings.get(key).filter(|value| !value.expose_secret().is_empty()).cloned();
        let text = |key: &str| secret(key).map(|value| value.expose_secret().to_owned());
        let issuer = text("idp-issuer-url").ok_or_else(|| fail("idp-issuer-url is missing"))?;
        let client_id = secret("client-id").ok_or_else(|| fail("client-id is missing"))?;
        let issuer: Option<Uri> = issuer.trim_end_matches('/').parse().ok();
        let issuer = issuer.filter(|url| matches!(url.scheme_str(), Some("http" | "https")));
        let issuer = issuer.ok_or_else(|| fail("idp-issuer-url is not an http or https URL"))?;
        let authority = match (text("idp-certificate-authority-data"), text("idp-certificate-authority")) {
            (Some(data), _) => {
                let data: String = data.split_ascii_whitespace().collect();
                let pem = BASE64_STANDARD.decode(data);
                Authority::Pem(pem.map_err(|_| fail("idp-certificate-authority-data is not base64"))?)
            }
            (None, Some(path)) => Authority::File(path.into()),
            (None, None) => Authority::Platform,
        };
        let proxy = environment_proxy(&issuer).map(SecretString::from);
        Ok(Self {
            connection: ConnectionSettings { authority, proxy, ..ConnectionSettings::default() },
            client: OnceCell::new(),
            issuer,
            client_id,
            client_secret: secret("client-secret"),
            tokens: Mutex::new(Tokens { id_token: secret("id-token"), refresh_token: secret("refresh-token") }),
        })
    }

    /// Returns an ID token that has not expired, which is the kubeconfig's or a new one.
    pub(super) async fn issue(&self) -> Result<IssuedCredentials, String> {
        self.id_token().await.map_err(|error| format!("auth provider \"oidc\": {error}"))
    }

    async fn id_token(&self) -> Result<IssuedCredentials, String> {
        let Tokens { id_token, refresh_token } = lock(&self.tokens).clone();
        if let Some(token) = id_token {
            let issued = issued(&token)?;
            if issued.expires.is_none_or(|expires| Timestamp::now() < expires) {
                if refresh_token.is_some() {
                    // If the server refuses this token, it is refreshed.
                    lock(&self.tokens).id_token = None;
                }
                return Ok(issued);
            }
        }
        let Some(refresh_token) = refresh_token else {
            return Err("the ID token has expired, and there is no refresh token: log in again".to_owned());
        };
        let client = self.client.get_or_try_init(async || HttpClient::new(&self.connection, None)).await;
        let client = client.map_err(|error| error.to_string())?;
        let endpoint = self.token_endpoint(client).await?;
        let answer = self.refresh(client, &endpoint, &refresh_token).await?;
        let text = |key| answer.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        let token = text("id_token").ok_or(
            "the issuer returned no id_token: log in with the scope openid, or the issuer does not refresh ID tokens",
        )?;
        if let Some(refresh_token) = text("refresh_token") {
            lock(&self.tokens).refresh_token = Some(refresh_token.into());
        }
        issued(&token.into())
    }

    async fn token_endpoint(&self, client: &HttpClient) -> Result<Uri, String> {
        let url = format!("{}/.well-known/openid-configuration", self.issuer.to_string().trim_end_matches('/'));
        let mut request = http::Request::new(Full::default());
        *request.uri_mut() = url.parse().map_err(|_| "idp-issuer-url is malformed")?;
        let (status, document) = self.send(client, request).await?;
        if status != StatusCode::OK {
            return Err(format!("the issuer returned {status} for {url}"));
        }
        let endpoint = document.get("token_endpoint").and_then(Value::as_str).unwrap_or_default();
        let endpoint = endpoint.parse().ok().filter(|url: &Uri| url.host().is_some());
        endpoint.ok_or_else(|| format!("{url} names no token_endpoint"))
    }

    /// Requests new tokens. As in Go, the client authenticates by a header, or in the body if the issuer refuses that.
    async fn refresh(&self, client: &HttpClient, endpoint: &Uri, token: &SecretString) -> Result<Value, String> {
        let mut refused = StatusCode::OK;
        for by_header in [true, false] {
            let request = self.refresh_request(endpoint, token, by_header)?;
            let (status, answer) = self.send(client, request).await?;
            if status.is_success() {
                return Ok(answer);
            }
            refused = status;
        }
        Err(format!("the issuer returned {refused} and no new token: log in again"))
    }

    fn refresh_request(
        &self,
        endpoint: &Uri,
        token: &SecretString,
        by_header: bool,
    ) -> Result<http::Request<Full<Bytes>>, String> {
        let encoded = |text: &SecretString| utf8_percent_encode(text.expose_secret(), NON_ALPHANUMERIC).to_string();
        let secret = self.client_secret.as_ref().map(encoded);
        let mut form = format!("grant_type=refresh_token&refresh_token={}", encoded(token));
        if !by_header {
            form = format!("{form}&client_id={}", encoded(&self.client_id));
            if let Some(secret) = &secret {
                form = format!("{form}&client_secret={secret}");
            }
        }
        let mut request = http::Request::new(Full::from(form));
        (*request.method_mut(), *request.uri_mut()) = (Method::POST, endpoint.clone());
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if by_header {
            let user = format!("{}:{}", encoded(&self.client_id), secret.unwrap_or_default());
            let value = HeaderValue::try_from(format!("Basic {}", BASE64_STANDARD.encode(user)));
            let mut value = value.map_err(|_| "client-id cannot be a header")?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        Ok(request)
    }

    /// Sends a request, and returns the JSON of the response, or null if it is not JSON.
    async fn send(
        &self,
        client: &HttpClient,
        request: http::Request<Full<Bytes>>,
    ) -> Result<(StatusCode, Value), String> {
        let Response { status, mut body, .. } = client.send(request).await.map_err(|error| error.to_string())?;
        let mut bytes = Vec::new();
        while let Some(chunk) = std::future::poll_fn(|cx| body.as_mut().poll_next(cx)).await {
            bytes.extend_from_slice(&chunk.map_err(|error| error.to_string())?);
            if bytes.len() > MAX_RESPONSE {
                return Err(format!("the issuer's response is longer than {MAX_RESPONSE} bytes"));
            }
        }
        Ok((status, serde_json::from_slice(&bytes).unwrap_or_default()))
    }
}

/// Returns a token as credentials that expire with it.
fn issued(token: &SecretString) -> Result<IssuedCredentials, String> {
    let mut parts = token.expose_secret().trim().split('.');
    let (Some(_), Some(claims), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return Err("the ID token is not a JSON web token".to_owned());
    };
    let claims = BASE64_URL_SAFE_NO_PAD.decode(claims.trim_end_matches('=')).ok();
    let claims: Option<Value> = claims.and_then(|claims| serde_json::from_slice(&claims).ok());
    let expiry = claims.ok_or("the claims of the ID token are malformed")?.get("exp").and_then(Value::as_f64);
    #[expect(clippy::cast_possible_truncation, reason = "times beyond the range are refused")]
    let expires = Timestamp::from_second(expiry.unwrap_or_default() as i64);
    let expires = expires.and_then(|at| at.checked_sub(EARLY)).map_err(|_| "the ID token expires at no valid time")?;
    let credentials = Credentials::bearer(token.expose_secret());
    credentials.check().map_err(|error| error.to_string())?;
    Ok(IssuedCredentials { credentials, identity: None, expires: Some(expires) })
}
