//! The verification of servers by certificate authorities that the caller chose.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, fs};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::transport::{TransportError, TransportErrorKind};
use crate::sync::{Mutex, lock};

/// Certificate authorities that verify a server, for implementations of [`Transport`](super::Transport).
///
/// As in Go's crypto/x509, a server is accepted too if its own certificate is among them, byte for byte: a self-signed
/// certificate, or a leaf. Its name, its dates, and the signature of the handshake are verified in both cases.
pub struct Authorities {
    /// The file that each handshake reads again.
    file: Option<PathBuf>,
    provider: Arc<CryptoProvider>,
    trusted: Mutex<Arc<Trusted>>,
}

struct Trusted {
    certificates: Vec<CertificateDer<'static>>,
    verifier: Arc<WebPkiServerVerifier>,
}

impl Authorities {
    /// Trusts these certificates (DER).
    ///
    /// # Errors
    ///
    /// [`TransportErrorKind::Setup`] if none of them is a certificate.
    pub fn from_der(
        certificates: Vec<CertificateDer<'static>>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, TransportError> {
        let trusted = Mutex::new(Arc::new(Trusted::new(certificates, &provider).map_err(setup)?));
        Ok(Self { file: None, provider, trusted })
    }

    /// Trusts the certificates in a PEM text. Other sections and malformed certificates are ignored.
    ///
    /// # Errors
    ///
    /// [`TransportErrorKind::Setup`] if the text contains no certificate.
    pub fn from_pem(pem: &[u8], provider: Arc<CryptoProvider>) -> Result<Self, TransportError> {
        Self::from_der(certificates(pem), provider)
    }

    /// Trusts the certificates in this file (PEM). Each TLS handshake reads it again, so a rotated authority is trusted
    /// at once. While it cannot be read, the previous certificates are trusted.
    ///
    /// # Errors
    ///
    /// [`TransportErrorKind::Setup`] if the file cannot be read, or contains no certificate.
    pub fn from_file(path: impl Into<PathBuf>, provider: Arc<CryptoProvider>) -> Result<Self, TransportError> {
        let path = path.into();
        let trusted = Mutex::new(Arc::new(Trusted::read(&path, &provider).map_err(setup)?));
        Ok(Self { file: Some(path), provider, trusted })
    }

    fn current(&self) -> Arc<Trusted> {
        if let Some(path) = &self.file {
            match Trusted::read(path, &self.provider) {
                Ok(trusted) => *lock(&self.trusted) = Arc::new(trusted),
                Err(error) => {
                    tracing::warn!(name: "listwatch.credentials", %error, "cannot reload the certificate authorities");
                }
            }
        }
        self.verified()
    }

    fn verified(&self) -> Arc<Trusted> {
        Arc::clone(&lock(&self.trusted))
    }
}

impl Trusted {
    fn new(certificates: Vec<CertificateDer<'static>>, provider: &Arc<CryptoProvider>) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        if roots.add_parsable_certificates(certificates.iter().cloned()).0 == 0 {
            return Err("the CA: no certificate in the PEM".to_owned());
        }
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
        let verifier = verifier.build().map_err(|error| format!("the CA: {error}"))?;
        Ok(Self { certificates, verifier })
    }

    fn read(path: &Path, provider: &Arc<CryptoProvider>) -> Result<Self, String> {
        let pem = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Self::new(certificates(&pem), provider).map_err(|error| format!("{}: {error}", path.display()))
    }
}

impl ServerCertVerifier for Authorities {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let trusted = self.current();
        let verified = trusted.verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            Err(error) if trusted.certificates.contains(end_entity) => {
                // The intermediates do not matter then, for example if one has expired.
                let alone = trusted.verifier.verify_server_cert(end_entity, &[], server_name, ocsp_response, now);
                if alone.is_err_and(|alone| !says_only_who_signed(&alone)) {
                    return Err(error);
                }
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verified().verifier.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verified().verifier.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verified().verifier.supported_verify_schemes()
    }
}

impl fmt::Debug for Authorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authorities").field("file", &self.file).finish_non_exhaustive()
    }
}

/// Returns true if webpki refused a certificate for its issuer, or because it is a CA. Both checks come after the check
/// of the dates (`check_issuer_independent_properties` in webpki).
fn says_only_who_signed(error: &rustls::Error) -> bool {
    match error {
        // The issuer may have the name of an authority with another key.
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => true,
        // webpki's own error, which rustls does not export.
        rustls::Error::InvalidCertificate(CertificateError::Other(other)) => {
            other.to_string().contains("CaUsedAsEndEntity")
        }
        _ => false,
    }
}

fn certificates(pem: &[u8]) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem).filter_map(Result::ok).collect()
}

fn setup(message: String) -> TransportError {
    TransportError::new(TransportErrorKind::Setup, message)
}

// The feature brings the crypto provider.
#[cfg(all(test, feature = "reqwest"))]
mod tests {
    use std::time::Duration;

    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, KeyUsagePurpose, date_time_ymd};

    use super::*;

    fn provider() -> Arc<CryptoProvider> {
        Arc::new(rustls::crypto::aws_lc_rs::default_provider())
    }

    /// Parameters of a certificate for these names, valid in 2020 and 2021.
    fn params(names: &[&str], is_ca: bool) -> CertificateParams {
        let mut params = CertificateParams::new(names.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2022, 1, 1));
        if is_ca {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        }
        params
    }

    fn verify(authorities: &Authorities, der: &[u8], name: &'static str, year: u64) -> String {
        verify_with(authorities, der, &[], name, year)
    }

    fn verify_with(
        authorities: &Authorities,
        der: &[u8],
        intermediates: &[CertificateDer<'_>],
        name: &'static str,
        year: u64,
    ) -> String {
        let now = UnixTime::since_unix_epoch(Duration::from_secs((year - 1970) * 31_557_600 + 100));
        let name = ServerName::try_from(name).unwrap();
        let verified = authorities.verify_server_cert(&CertificateDer::from(der), intermediates, &name, &[], now);
        verified.map_or_else(|error| error.to_string(), |_| "accepted".to_owned())
    }

    /// As Go's `x509.Certificate.Verify` does for a certificate in its pool of roots.
    #[test]
    fn accepts_a_certificate_that_is_itself_trusted() {
        let key = || KeyPair::generate().unwrap();
        let authority = CertifiedIssuer::self_signed(params(&["host"], true), key()).unwrap();
        let leaf = params(&["host", "10.0.0.1"], false).signed_by(&key(), &authority).unwrap();
        let sibling = params(&["host"], false).signed_by(&key(), &authority).unwrap();
        let lone = params(&["host"], false).self_signed(&key()).unwrap();
        let nameless = params(&[], false).self_signed(&key()).unwrap();
        let (of_authority, of_leaf, of_lone) = (authority.pem(), leaf.pem(), lone.pem());
        for (case, trusted, der, name, year, expected) in [
            ("a leaf of the authority", &of_authority, leaf.der(), "host", 2021, "accepted"),
            ("a server with the authority's certificate", &of_authority, authority.der(), "host", 2021, "accepted"),
            ("only the leaf is trusted", &of_leaf, leaf.der(), "host", 2021, "accepted"),
            ("an address", &of_leaf, leaf.der(), "10.0.0.1", 2021, "accepted"),
            ("self-signed", &of_lone, lone.der(), "host", 2021, "accepted"),
            ("another leaf", &of_leaf, sibling.der(), "host", 2021, "BadSignature"),
            ("the authority of a trusted leaf", &of_leaf, authority.der(), "host", 2021, "CaUsedAsEndEntity"),
            ("another name", &of_leaf, leaf.der(), "other", 2021, "not valid for name \"other\""),
            ("another name of a CA", &of_authority, authority.der(), "other", 2021, "not valid for name \"other\""),
            ("expired", &of_leaf, leaf.der(), "host", 2023, "certificate expired"),
            ("expired CA", &of_authority, authority.der(), "host", 2023, "certificate expired"),
            ("not valid yet", &of_lone, lone.der(), "host", 2019, "certificate not valid yet"),
            ("no names", &nameless.pem(), nameless.der(), "host", 2021, "not valid for any names"),
        ] {
            let authorities = Authorities::from_pem(trusted.as_bytes(), provider()).unwrap();
            let verified = verify(&authorities, der, name, year);
            assert!(verified.contains(expected), "{case}: {verified}");
        }
    }

    #[test]
    fn ignores_the_intermediates_of_a_trusted_certificate() {
        let mut expired = params(&["host"], true);
        expired.not_after = date_time_ymd(2021, 1, 1);
        let authority = CertifiedIssuer::self_signed(expired, KeyPair::generate().unwrap()).unwrap();
        let leaf = params(&["host"], false).signed_by(&KeyPair::generate().unwrap(), &authority).unwrap();
        let authorities = Authorities::from_pem(leaf.pem().as_bytes(), provider()).unwrap();
        for (year, expected) in [(2020, "accepted"), (2021, "accepted"), (2023, "expired")] {
            let verified = verify_with(&authorities, leaf.der(), &[authority.der().clone()], "host", year);
            assert!(verified.contains(expected), "{year}: {verified}");
        }
    }

    #[test]
    fn reads_a_rotated_file_and_keeps_the_last_certificates() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let make = || params(&["host"], false).self_signed(&KeyPair::generate().unwrap()).unwrap();
        let (old, new) = (make(), make());
        fs::write(file.path(), "no certificate").unwrap();
        let error = Authorities::from_file(file.path(), provider()).unwrap_err().to_string();
        assert_eq!(error, format!("setup: {}: the CA: no certificate in the PEM", file.path().display()));
        let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        fs::write(file.path(), format!("{garbage}{}", old.pem())).unwrap();
        let authorities = Authorities::from_file(file.path(), provider()).unwrap();
        assert_eq!(verify(&authorities, old.der(), "host", 2021), "accepted");
        fs::write(file.path(), new.pem()).unwrap();
        assert_eq!(verify(&authorities, new.der(), "host", 2021), "accepted");
        // Both have the same subject.
        assert!(verify(&authorities, old.der(), "host", 2021).contains("BadSignature"));
        fs::write(file.path(), "").unwrap();
        assert_eq!(verify(&authorities, new.der(), "host", 2021), "accepted");
    }
}
