//! The TLS settings of transports, with the certificate of the client.

use std::sync::Arc;

use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, ConfigBuilder, client::WantsClientCert};

use super::certificate::{Certificate, MIN_RSA_BITS};
use crate::client::transport::{TransportError, TransportErrorKind};

/// Returns the TLS settings of a client that verifies servers with this verifier.
///
/// With an identity, the client authenticates itself. An identity is a certificate with its intermediates, followed or
/// preceded by its key, all in PEM. The certificate is sent as it is, even if it is of X.509 version 1, because as in
/// Go it is for the server to verify.
///
/// # Errors
///
/// [`TransportErrorKind::Setup`] when the certificate or the key is missing, malformed, encrypted or too small, or when
/// the two do not belong together. The error shows no part of the key.
pub fn tls_config(
    provider: &Arc<CryptoProvider>,
    verifier: Arc<dyn ServerCertVerifier>,
    identity_pem: Option<&str>,
) -> Result<ClientConfig, TransportError> {
    let builder = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| setup(format!("TLS: {error}")))?;
    let builder: ConfigBuilder<_, WantsClientCert> = builder.dangerous().with_custom_certificate_verifier(verifier);
    Ok(match identity_pem {
        None => builder.with_no_client_auth(),
        Some(pem) => {
            let certified = certified_key(provider, pem.as_bytes())?;
            builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(certified)))
        }
    })
}

/// Reads a certificate and its key. rustls would parse the certificate, and refuse version 1.
fn certified_key(provider: &CryptoProvider, pem: &[u8]) -> Result<CertifiedKey, TransportError> {
    const MISSING: &str = "the client certificate and key: not one of each as PEM";
    let chain: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|_| setup(MISSING))?;
    let certificate = chain.first().ok_or_else(|| setup(MISSING))?;
    let malformed = || setup("the client certificate is malformed");
    let certificate = Certificate::parse(certificate).ok_or_else(malformed)?;
    if pem.windows(9).any(|text| text == b"ENCRYPTED") {
        return Err(setup("the key of the client certificate is encrypted: decrypt it first"));
    }
    if let Some(bits) = certificate.rsa_bits().filter(|bits| *bits < MIN_RSA_BITS) {
        let error =
            format!("the client certificate has an RSA key of {bits} bits, and at least {MIN_RSA_BITS} are required");
        return Err(setup(error));
    }
    // The parser's errors are not quoted, because they might contain a part of the key.
    let key = PrivateKeyDer::from_pem_slice(pem).map_err(|_| setup(MISSING))?;
    let key = provider.key_provider.load_private_key(key);
    let key = key.map_err(|_| setup("the key of the client certificate is malformed, or not RSA, ECDSA or Ed25519"))?;
    if key.public_key().is_some_and(|public| public.as_ref() != certificate.public_key) {
        return Err(setup("the client certificate and key do not belong together"));
    }
    Ok(CertifiedKey::new(chain, key))
}

fn setup(message: impl AsRef<str>) -> TransportError {
    TransportError::new(TransportErrorKind::Setup, message)
}

#[cfg(all(test, any(feature = "aws-lc-rs", feature = "ring")))]
mod tests {
    use super::*;
    use crate::client::crypto::crypto_provider;
    use crate::client::http_transport::authorities::Authorities;

    const VERSION_1: &str = include_str!("../../../tests/support/certificates/version-1.pem");
    const RSA_1024: &str = include_str!("../../../tests/support/certificates/rsa-1024.pem");

    fn config(identity: Option<&str>) -> Result<ClientConfig, String> {
        let provider = crypto_provider().unwrap();
        let authorities = Authorities::of_platform(Arc::clone(&provider));
        tls_config(&provider, Arc::new(authorities), identity).map_err(|error| error.to_string())
    }

    fn key_of(pem: &str) -> &str {
        &pem[pem.find("-----BEGIN PRIVATE KEY").unwrap()..]
    }

    fn certificate_of(pem: &str) -> &str {
        &pem[..pem.find("-----BEGIN PRIVATE KEY").unwrap()]
    }

    #[test]
    fn sends_a_client_certificate_unparsed() {
        let v3 = rcgen::generate_simple_self_signed(["client".to_owned()]).unwrap();
        let v3_key = v3.signing_key.serialize_pem();
        let key_first = format!("{v3_key}{}", v3.cert.pem());
        for (identity, expected) in [(None, false), (Some(VERSION_1), true), (Some(&*key_first), true)] {
            let config = config(identity).unwrap();
            assert_eq!(config.client_auth_cert_resolver.has_certs(), expected);
        }
        let sent = certified_key(&crypto_provider().unwrap(), VERSION_1.as_bytes()).unwrap();
        assert_eq!(sent.cert, [CertificateDer::from_pem_slice(VERSION_1.as_bytes()).unwrap()]);
    }

    #[test]
    fn refuses_a_client_certificate_that_cannot_be_used_and_says_why() {
        let missing = "the client certificate and key: not one of each as PEM";
        let v3 = rcgen::generate_simple_self_signed(["client".to_owned()]).unwrap();
        let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nczNjcmV0\n-----END ENCRYPTED PRIVATE KEY-----\n";
        let malformed = "-----BEGIN PRIVATE KEY-----\nczNjcmV0\n-----END PRIVATE KEY-----\n";
        let no_certificate = "-----BEGIN CERTIFICATE-----\nczNjcmV0\n-----END CERTIFICATE-----\n";
        for (identity, expected) in [
            (String::new(), missing),
            (certificate_of(VERSION_1).to_owned(), missing),
            (key_of(VERSION_1).to_owned(), missing),
            (format!("{no_certificate}{}", key_of(VERSION_1)), "the client certificate is malformed"),
            (
                format!("{}{encrypted}", certificate_of(VERSION_1)),
                "the key of the client certificate is encrypted: decrypt it first",
            ),
            (
                format!("{}{malformed}", certificate_of(VERSION_1)),
                "the key of the client certificate is malformed, or not RSA, ECDSA or Ed25519",
            ),
            (
                format!("{}{}", certificate_of(VERSION_1), v3.signing_key.serialize_pem()),
                "the client certificate and key do not belong together",
            ),
            (
                format!("{}{}", v3.cert.pem(), key_of(VERSION_1)),
                "the client certificate and key do not belong together",
            ),
            (RSA_1024.to_owned(), "the client certificate has an RSA key of 1024 bits, and at least 2048 are required"),
        ] {
            let error = config(Some(&identity)).unwrap_err();
            assert_eq!(error, expected);
        }
    }
}
