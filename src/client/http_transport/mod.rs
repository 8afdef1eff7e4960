//! The transport over hyper and rustls.
//!
//! `config` contains [`Config`], and `transport` contains [`HttpTransport`], which sends a request with its credentials
//! and renews them. `connect` opens connections. `exec` and `oidc` issue credentials that are valid for a time, and
//! `issuer` keeps them.
//!
//! | module | holds |
//! |---|---|
//! | `connect` | TCP, proxies and TLS; the pool of connections |
//! | `tls`, `identity`, `certificate` | TLS settings; client certificates; fields of certificates |
//! | `authorities`, `unverified` | verification of the server, and none |
//! | `impersonation` | the headers that impersonate a user |
//! | `exec`, `oidc` | exec plugins, and the auth provider `oidc`: what issues credentials for a time |
//! | `issuer` | the credentials that one of them has issued |
//! | `config` | [`Config`] |
//! | `transport` | [`HttpTransport`]: a request with its credentials, and their renewal |

mod authorities;
mod certificate;
mod config;
mod connect;
mod exec;
mod identity;
mod impersonation;
mod issuer;
mod oidc;
mod tls;
mod transport;
mod unverified;

pub use self::config::Config;
pub(in crate::client) use self::config::Login;
pub(in crate::client) use self::connect::Authority;
pub(in crate::client) use self::exec::{ExecConfig, InteractiveMode};
pub(in crate::client) use self::identity::{Identity, Pem};
pub(in crate::client) use self::impersonation::Impersonation;
pub(in crate::client) use self::oidc::ProviderConfig;
pub use self::transport::HttpTransport;
