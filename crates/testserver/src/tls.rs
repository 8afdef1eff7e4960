//! TLS with a certificate authority that is made at start.

use std::error::Error;
use std::io;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, version::TLS13};

type Authority = CertifiedIssuer<'static, KeyPair>;

pub(crate) struct Tls {
    pub acceptor: TlsAcceptor,
    pub ca_pem: String,
    /// Certificate and key of a client, in PEM, if clients must have them.
    pub client_identity: Option<(String, String)>,
}

impl Tls {
    /// Accepts any client.
    pub(crate) fn new(alpn: &[&[u8]]) -> io::Result<Self> {
        Self::prepare(alpn, false).map_err(io::Error::other)
    }

    /// Accepts clients that present a certificate of the authority.
    pub(crate) fn mutual(alpn: &[&[u8]]) -> io::Result<Self> {
        Self::prepare(alpn, true).map_err(io::Error::other)
    }

    fn prepare(alpn: &[&[u8]], mutual: bool) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let provider = Arc::new(ring::default_provider());
        let authority = authority()?;
        let (verifier, client_identity) = if mutual {
            let mut roots = RootCertStore::empty();
            roots.add(authority.der().clone())?;
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider)).build()?;
            let (certificate, key) = certify(&authority, &[], ExtendedKeyUsagePurpose::ClientAuth)?;
            (verifier, Some((certificate.pem(), key.serialize_pem())))
        } else {
            (WebPkiClientVerifier::no_client_auth(), None)
        };
        let (certificate, key) = certify(&authority, &["127.0.0.1", "localhost"], ExtendedKeyUsagePurpose::ServerAuth)?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![certificate.der().clone()], PrivatePkcs8KeyDer::from(key.serialize_der()).into())?;
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), ca_pem: authority.pem(), client_identity })
    }
}

fn authority() -> Result<Authority, rcgen::Error> {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    CertifiedIssuer::self_signed(authority, KeyPair::generate()?)
}

/// Makes a key and its certificate, signed by the authority.
fn certify(
    authority: &Authority,
    names: &[&str],
    usage: ExtendedKeyUsagePurpose,
) -> Result<(Certificate, KeyPair), rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut certificate = CertificateParams::new(names.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    certificate.use_authority_key_identifier_extension = true;
    certificate.extended_key_usages = vec![usage];
    Ok((certificate.signed_by(&key, authority)?, key))
}
