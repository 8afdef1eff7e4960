//! TLS under a certificate authority made at start.

use std::io;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, KeyUsagePurpose};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
use tokio_rustls::rustls::{ServerConfig, version::TLS13};

pub(crate) struct Tls {
    pub acceptor: TlsAcceptor,
    pub ca_pem: String,
}

impl Tls {
    pub(crate) fn new(alpn: &[&[u8]]) -> io::Result<Self> {
        let (ca_pem, certificate, key) = certify().map_err(io::Error::other)?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&TLS13])
            .map_err(io::Error::other)?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], PrivatePkcs8KeyDer::from(key.serialize_der()).into())
            .map_err(io::Error::other)?;
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), ca_pem })
    }
}

/// Makes an authority, and a certificate of the server under it.
fn certify() -> Result<(String, rcgen::Certificate, KeyPair), rcgen::Error> {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;

    let key = KeyPair::generate()?;
    let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
    let mut certificate = CertificateParams::new(names)?;
    certificate.use_authority_key_identifier_extension = true;
    let certificate = certificate.signed_by(&key, &authority)?;
    Ok((authority.pem(), certificate, key))
}
