//! The verification of servers by certificate authorities, as in Go's crypto/x509.
//!
//! webpki builds and verifies the chain. Read this before a change.
//!
//! - Unlike webpki, Go also checks the dates, basic constraints and usages of a trusted certificate. A certificate with
//!   a [reason](Certificate::why_no_issuer) against it is therefore not an issuer here.
//! - Go accepts a server whose own certificate is trusted, byte for byte, whoever signed it.
//! - Go accepts a server's certificate that is a CA, which webpki refuses: see [`Trusted::verify_chain`].
//! - The platform's certificates are loaded when the first handshake needs them, because images without any are common,
//!   and most clusters have an authority of their own.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, fs};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{
    AlgorithmIdentifier, CertificateDer, InvalidSignature, ServerName, SignatureVerificationAlgorithm, UnixTime,
};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme};
use rustls_platform_verifier::Verifier;

use super::certificate::{Certificate, MIN_RSA_BITS};
use crate::client::transport::{TransportError, TransportErrorKind};
use crate::error::without_os_numbers;
use crate::sync::{Mutex, lock};

/// Certificate authorities that verify a server.
///
/// They accept a server as Go's crypto/x509, and so kubectl, does. This includes a server whose own certificate is
/// among them, byte for byte, and a server whose certificate is a CA. The name, the dates and the signature of the
/// handshake are always verified, and RSA keys need 2,048 bits.
pub struct Authorities {
    source: Source,
    provider: Arc<CryptoProvider>,
}

enum Source {
    Chosen {
        /// The file that each handshake reads again.
        file: Option<PathBuf>,
        trusted: Mutex<Arc<Trusted>>,
    },
    /// The platform's verifier, from the first handshake on.
    Platform(Mutex<Option<Arc<Verifier>>>),
}

struct Trusted {
    certificates: Vec<CertificateDer<'static>>,
}

impl Authorities {
    /// Trusts these certificates in DER.
    ///
    /// # Errors
    ///
    /// [`TransportErrorKind::Setup`] when none of them is a certificate.
    pub fn from_der(
        certificates: Vec<CertificateDer<'static>>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, TransportError> {
        let trusted = Mutex::new(Arc::new(Trusted::new(certificates).map_err(setup)?));
        Ok(Self { source: Source::Chosen { file: None, trusted }, provider })
    }

    /// Trusts the certificates in a PEM text. Other sections and malformed certificates are ignored.
    ///
    /// # Errors
    ///
    /// [`TransportErrorKind::Setup`] when the text contains no certificate.
    pub fn from_pem(pem: &[u8], provider: Arc<CryptoProvider>) -> Result<Self, TransportError> {
        Self::from_der(certificates(pem), provider)
    }

    /// Trusts the certificates in this PEM file, which each TLS handshake reads again.
    ///
    /// A rotated authority is therefore trusted at once. While the file cannot be read, the previous certificates are
    /// trusted.
    ///
    /// # Errors
    ///
    /// [`TransportErrorKind::Setup`] when the file cannot be read or contains no certificate.
    pub fn from_file(path: impl Into<PathBuf>, provider: Arc<CryptoProvider>) -> Result<Self, TransportError> {
        let path = path.into();
        let trusted = Mutex::new(Arc::new(Trusted::read(&path).map_err(setup)?));
        Ok(Self { source: Source::Chosen { file: Some(path), trusted }, provider })
    }

    /// Trusts what the platform's own verifier trusts.
    ///
    /// The first TLS handshake loads its certificate authorities. If the platform has none, handshakes fail with an
    /// error that says so.
    #[must_use]
    pub fn of_platform(provider: Arc<CryptoProvider>) -> Self {
        Self { source: Source::Platform(Mutex::new(None)), provider }
    }

    fn algorithms(&self) -> &WebPkiSupportedAlgorithms {
        &self.provider.signature_verification_algorithms
    }
}

fn current(file: Option<&PathBuf>, trusted: &Mutex<Arc<Trusted>>) -> Arc<Trusted> {
    if let Some(path) = file {
        match Trusted::read(path) {
            Ok(read) => *lock(trusted) = Arc::new(read),
            Err(error) => {
                tracing::warn!(name: "listwatch.credentials", %error, "cannot reload the certificate authorities");
            }
        }
    }
    Arc::clone(&lock(trusted))
}

/// Returns the verifier of the platform, and loads the certificates unless an earlier call did.
fn platform_verifier(
    loaded: &Mutex<Option<Arc<Verifier>>>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<Verifier>, rustls::Error> {
    if let Some(verifier) = &*lock(loaded) {
        return Ok(Arc::clone(verifier));
    }
    let verifier = Verifier::new(Arc::clone(provider)).map_err(|error| {
        refused(format!(
            "the platform has no certificate authorities, and none was configured for the server: install the \
             platform's (ca-certificates), or configure the server's ({error})"
        ))
    })?;
    Ok(Arc::clone(lock(loaded).insert(Arc::new(verifier))))
}

impl Trusted {
    fn new(certificates: Vec<CertificateDer<'static>>) -> Result<Self, String> {
        if RootCertStore::empty().add_parsable_certificates(certificates.iter().cloned()).0 == 0 {
            return Err("the CA: no certificate in the PEM".to_owned());
        }
        Ok(Self { certificates })
    }

    fn read(path: &Path) -> Result<Self, String> {
        let unreadable = |error| without_os_numbers(format_args!("{}: {error}", path.display()));
        let pem = fs::read(path).map_err(unreadable)?;
        Self::new(certificates(&pem)).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Verifies a server's certificate, but not its name.
    fn verify(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
        algorithms: &WebPkiSupportedAlgorithms,
    ) -> Result<(), rustls::Error> {
        for certificate in [end_entity].into_iter().chain(intermediates) {
            if Certificate::parse(certificate).is_some_and(|certificate| certificate.has_negative_serial()) {
                return Err(refused("a certificate of the server has a negative serial number"));
            }
        }
        let verified = self.verify_chain(end_entity, intermediates, now, algorithms.all);
        match verified {
            // In that case the intermediates do not matter, even if one has expired.
            Err(_) if self.certificates.contains(end_entity) && is_valid_alone(end_entity, now, algorithms) => Ok(()),
            Err(error) => Err(self.explain(error, end_entity, intermediates, now)),
            verified => verified,
        }
    }

    /// Verifies the chain up to a trusted certificate.
    ///
    /// webpki refuses the certificate of a CA as the certificate of a server. It then verifies a copy that differs only
    /// in the flag that makes it a CA, while the issuer's signature is verified over the original.
    fn verify_chain(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
        algorithms: &[&dyn SignatureVerificationAlgorithm],
    ) -> Result<(), rustls::Error> {
        let parsed = ParsedCertificate::try_from(end_entity)?;
        let verified = self.verify_parsed(&parsed, intermediates, now, algorithms);
        if !verified.as_ref().is_err_and(is_ca_error) {
            return verified;
        }
        let original = Certificate::parse(end_entity);
        let copy = original.as_ref().and_then(Certificate::without_ca_flag).map(CertificateDer::from);
        let signed = |der| Certificate::parse(der).and_then(|certificate| certificate.signed_bytes());
        let Some(copy) = &copy else { return verified };
        let (Some(copied), Some(original)) = (signed(copy), signed(end_entity)) else { return verified };
        let algorithms: Vec<_> = algorithms.iter().map(|&inner| OverOriginal { inner, copied, original }).collect();
        let algorithms: Vec<_> = algorithms.iter().map(|one| one as &dyn SignatureVerificationAlgorithm).collect();
        self.verify_parsed(&ParsedCertificate::try_from(copy)?, intermediates, now, &algorithms)
    }

    fn verify_parsed(
        &self,
        end_entity: &ParsedCertificate<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
        algorithms: &[&dyn SignatureVerificationAlgorithm],
    ) -> Result<(), rustls::Error> {
        let is_issuer = |der: &CertificateDer<'_>| {
            Certificate::parse(der).is_some_and(|certificate| certificate.why_no_issuer(now).is_none())
        };
        let signs_only_leaves =
            |der: &CertificateDer<'_>| Certificate::parse(der).is_some_and(|found| found.signs_only_leaves());
        let (mut all, mut with_intermediates) = (RootCertStore::empty(), RootCertStore::empty());
        for root in self.certificates.iter().filter(|root| is_issuer(root)) {
            // What webpki cannot parse is not trusted.
            _ = all.add(root.clone());
            if !signs_only_leaves(root) {
                _ = with_intermediates.add(root.clone());
            }
        }
        let intermediates: Vec<_> = intermediates.iter().filter(|one| is_issuer(one)).cloned().collect();
        let verify = |roots: &_, intermediates: &[_]| {
            verify_server_cert_signed_by_trust_anchor(end_entity, roots, intermediates, now, algorithms)
        };
        let direct = verify(&all, &[]);
        if direct.is_ok() || intermediates.is_empty() {
            return direct;
        }
        verify(&with_intermediates, &intermediates)
    }

    /// Replaces an error by a better one if the issuer is known but cannot be trusted.
    fn explain(
        &self,
        error: rustls::Error,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> rustls::Error {
        if !is_issuer_error(&error) {
            return error;
        }
        let presented = [end_entity].into_iter().chain(intermediates).filter_map(|der| Certificate::parse(der));
        let issuers: Vec<_> = presented.map(|certificate| certificate.issuer).collect();
        let known = self.certificates.iter().chain(intermediates).filter_map(|der| Certificate::parse(der));
        for issuer in known.filter(|certificate| issuers.contains(&certificate.subject)) {
            if let Some(reason) = issuer.why_no_issuer(now) {
                return refused(format!("the issuer of the server's certificate {reason}"));
            }
            if let Some(error) = small_key("the issuer of the server's certificate", &issuer) {
                return error;
            }
        }
        error
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
        match &self.source {
            Source::Platform(loaded) => {
                let verifier = platform_verifier(loaded, &self.provider)?;
                verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            }
            Source::Chosen { file, trusted } => {
                current(file.as_ref(), trusted).verify(end_entity, intermediates, now, self.algorithms())?;
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, self.algorithms())
            .map_err(|error| explain_key(error, certificate))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, self.algorithms())
            .map_err(|error| explain_key(error, certificate))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms().supported_schemes()
    }
}

impl fmt::Debug for Authorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = match &self.source {
            Source::Chosen { file, .. } => file.as_ref(),
            Source::Platform(_) => None,
        };
        f.debug_struct("Authorities").field("file", &file).finish_non_exhaustive()
    }
}

/// Verifies a signature of the original where webpki verifies its copy: see [`Trusted::verify_chain`].
#[derive(Debug)]
struct OverOriginal<'a> {
    inner: &'a dyn SignatureVerificationAlgorithm,
    copied: &'a [u8],
    original: &'a [u8],
}

impl SignatureVerificationAlgorithm for OverOriginal<'_> {
    fn verify_signature(&self, public_key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), InvalidSignature> {
        let message = if message == self.copied { self.original } else { message };
        self.inner.verify_signature(public_key, message, signature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        self.inner.public_key_alg_id()
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.inner.signature_alg_id()
    }

    fn fips(&self) -> bool {
        self.inner.fips()
    }
}

/// Returns true if a trusted certificate may be a server's, whoever signed it, because its dates and purposes fit.
fn is_valid_alone(certificate: &CertificateDer<'_>, now: UnixTime, algorithms: &WebPkiSupportedAlgorithms) -> bool {
    let none = Trusted { certificates: Vec::new() };
    let alone = none.verify_chain(certificate, &[], now, algorithms.all);
    alone.is_err_and(|alone| is_issuer_error(&alone))
}

/// Returns true if webpki found no issuer, or one with the same name and another key.
fn is_issuer_error(error: &rustls::Error) -> bool {
    use CertificateError::{BadSignature, UnknownIssuer};
    matches!(error, rustls::Error::InvalidCertificate(UnknownIssuer | BadSignature))
}

/// Returns true if webpki refused a server's certificate because it is a CA.
fn is_ca_error(error: &rustls::Error) -> bool {
    match error {
        // webpki's own error, which rustls does not export.
        rustls::Error::InvalidCertificate(CertificateError::Other(other)) => {
            other.to_string().contains("CaUsedAsEndEntity")
        }
        _ => false,
    }
}

/// Returns the error of a handshake's signature, whose key may be one that no provider verifies.
fn explain_key(error: rustls::Error, certificate: &CertificateDer<'_>) -> rustls::Error {
    let small = Certificate::parse(certificate).and_then(|found| small_key("the server's certificate", &found));
    small.unwrap_or(error)
}

fn small_key(what: &str, certificate: &Certificate<'_>) -> Option<rustls::Error> {
    let bits = certificate.rsa_bits().filter(|bits| *bits < MIN_RSA_BITS)?;
    Some(refused(format!("{what} has an RSA key of {bits} bits, and at least {MIN_RSA_BITS} are required")))
}

/// Returns an error with our own text, which [`TransportError::from_error`] finds.
fn refused(message: impl AsRef<str>) -> rustls::Error {
    rustls::Error::Other(OtherError(Arc::new(TransportError::new(TransportErrorKind::Tls, message))))
}

fn certificates(pem: &[u8]) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem).filter_map(Result::ok).collect()
}

fn setup(message: String) -> TransportError {
    TransportError::new(TransportErrorKind::Setup, message)
}

#[cfg(all(test, any(feature = "aws-lc-rs", feature = "ring")))]
mod tests {
    use std::time::Duration;

    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, KeyPair,
        KeyUsagePurpose, NameConstraints, SerialNumber, date_time_ymd,
    };

    use super::*;
    use crate::client::crypto::crypto_provider;
    use crate::client::transport::chain;

    fn provider() -> Arc<CryptoProvider> {
        crypto_provider().unwrap()
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
        verified.map_or_else(|error| chain(&error), |_| "accepted".to_owned())
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
            // The names of their issuers are equal.
            ("another leaf", &of_leaf, sibling.der(), "host", 2021, "is not a CA"),
            ("the authority of a trusted leaf", &of_leaf, authority.der(), "host", 2021, "is not a CA"),
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

    /// The cases in which Go and webpki decide differently, and the checks that must stay.
    #[test]
    fn verifies_servers_with_the_certificate_of_a_ca() {
        let key = || KeyPair::generate().unwrap();
        let named = |name: &str, mut params: CertificateParams| {
            params.distinguished_name.push(rcgen::DnType::CommonName, name);
            params
        };
        let server = |change: &dyn Fn(&mut CertificateParams)| {
            let mut params = named("server", params(&["host"], true));
            change(&mut params);
            params
        };
        let root = CertifiedIssuer::self_signed(named("root", params(&[], true)), key()).unwrap();
        let other = CertifiedIssuer::self_signed(named("root", params(&[], true)), key()).unwrap();
        let mut constrained = named("root", params(&[], true));
        constrained.name_constraints = Some(NameConstraints {
            permitted_subtrees: vec![GeneralSubtree::DnsName("elsewhere".to_owned())],
            excluded_subtrees: Vec::new(),
        });
        let constrained = CertifiedIssuer::self_signed(constrained, key()).unwrap();
        let pathless = |params: &mut CertificateParams| {
            params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        };
        let client = |params: &mut CertificateParams| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        };
        let none = |_: &mut CertificateParams| {};
        let certify = |params: CertificateParams, issuer: &CertifiedIssuer<'_, KeyPair>| {
            params.signed_by(&key(), issuer).unwrap()
        };
        for (case, issuer, change, name, year, expected) in [
            ("as Go", &root, &none as &dyn Fn(&mut _), "host", 2021, "accepted"),
            ("with a path length", &root, &pathless, "host", 2021, "accepted"),
            ("of another authority", &other, &none, "host", 2021, "BadSignature"),
            ("another name", &root, &none, "other", 2021, "not valid for name"),
            ("for clients", &root, &client, "host", 2021, "does not allow extended key usage"),
            ("expired", &root, &none, "host", 2023, "expired"),
            ("not valid yet", &root, &none, "host", 2019, "not valid yet"),
        ] {
            let authorities = Authorities::from_pem(root.pem().as_bytes(), provider()).unwrap();
            let certificate = certify(server(change), issuer);
            let verified = verify(&authorities, certificate.der(), name, year);
            assert!(verified.contains(expected), "{case}: {verified}");
            // A signature of the changed copy would not do.
            let copy = Certificate::parse(certificate.der()).unwrap().without_ca_flag().unwrap();
            assert!(!verify(&authorities, &copy, name, year).contains("accepted"), "{case}");
        }
        let authorities = Authorities::from_pem(constrained.pem().as_bytes(), provider()).unwrap();
        let verified = verify(&authorities, certify(server(&none), &constrained).der(), "host", 2021);
        assert!(verified.contains("NameConstraint"), "{verified}");
    }

    #[test]
    fn refuses_a_negative_serial_number() {
        let mut params = params(&["host"], false);
        params.serial_number = Some(SerialNumber::from_slice(b"serial"));
        let lone = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let mut der = lone.der().to_vec();
        let at = der.windows(6).position(|bytes| bytes == b"serial").unwrap();
        der[at] = 0x80;
        let authorities = Authorities::from_pem(lone.pem().as_bytes(), provider()).unwrap();
        let verified = verify(&authorities, &der, "host", 2021);
        assert!(verified.contains("negative serial number"), "{verified}");
    }

    #[test]
    fn refuses_issuers_that_go_refuses_and_says_why() {
        let key = || KeyPair::generate().unwrap();
        let named = |name: &str, change: &dyn Fn(&mut CertificateParams)| {
            let mut params = params(&[], true);
            params.not_after = date_time_ymd(2030, 1, 1);
            params.distinguished_name.push(rcgen::DnType::CommonName, name);
            change(&mut params);
            params
        };
        let none = |_: &mut CertificateParams| {};
        let expired = |params: &mut CertificateParams| params.not_after = date_time_ymd(2020, 6, 1);
        let future = |params: &mut CertificateParams| params.not_before = date_time_ymd(2025, 1, 1);
        let no_ca = |params: &mut CertificateParams| params.is_ca = IsCa::ExplicitNoCa;
        let no_constraints = |params: &mut CertificateParams| params.is_ca = IsCa::NoCa;
        let signs_nothing =
            |params: &mut CertificateParams| params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let any_usage = |params: &mut CertificateParams| params.key_usages = Vec::new();
        let pathless = |params: &mut CertificateParams| params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let for_clients = |params: &mut CertificateParams| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        };
        let for_servers = |params: &mut CertificateParams| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        };
        let for_all = |params: &mut CertificateParams| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::Any];
        let mut leaf = params(&["host"], false);
        leaf.not_after = date_time_ymd(2030, 1, 1);
        for (case, change, direct, through, as_intermediate) in [
            ("an authority", &none as &dyn Fn(&mut _), "accepted", "accepted", "accepted"),
            ("any usage", &any_usage, "accepted", "accepted", "accepted"),
            ("for servers", &for_servers, "accepted", "accepted", "accepted"),
            // Unlike Go, webpki does not accept this purpose.
            ("for all purposes", &for_all, "accepted", "accepted", "does not allow extended key usage"),
            ("no path", &pathless, "accepted", "UnknownIssuer", "accepted"),
            ("expired", &expired, "certificate has expired", "certificate has expired", "certificate has expired"),
            ("not valid yet", &future, "is not valid yet", "is not valid yet", "is not valid yet"),
            ("not a CA", &no_ca, "is not a CA", "is not a CA", "is not a CA"),
            (
                "no basic constraints",
                &no_constraints,
                "no basic constraints",
                "no basic constraints",
                "no basic constraints",
            ),
            ("another key usage", &signs_nothing, "must not sign", "must not sign", "must not sign"),
            ("for clients", &for_clients, "must not issue", "must not issue", "must not issue"),
        ] {
            let root = CertifiedIssuer::self_signed(named("root", change), key()).unwrap();
            let between = CertifiedIssuer::signed_by(named("between", &none), key(), &root).unwrap();
            let authorities = Authorities::from_pem(root.pem().as_bytes(), provider()).unwrap();
            let verified = verify(&authorities, leaf.signed_by(&key(), &root).unwrap().der(), "host", 2021);
            assert!(verified.contains(direct), "{case}: {verified}");
            let server = leaf.signed_by(&key(), &between).unwrap();
            let verified = verify_with(&authorities, server.der(), &[between.der().clone()], "host", 2021);
            assert!(verified.contains(through), "{case}: {verified}");
            // The same certificate as an intermediate.
            let root = CertifiedIssuer::self_signed(named("root", &none), key()).unwrap();
            let between = CertifiedIssuer::signed_by(named("between", change), key(), &root).unwrap();
            let authorities = Authorities::from_pem(root.pem().as_bytes(), provider()).unwrap();
            let server = leaf.signed_by(&key(), &between).unwrap();
            let verified = verify_with(&authorities, server.der(), &[between.der().clone()], "host", 2021);
            assert!(verified.contains(as_intermediate), "{case}: {verified}");
        }
    }

    #[test]
    fn names_the_size_of_a_key_that_is_too_small() {
        let pem = include_str!("../../../tests/support/certificates/rsa-1024.pem");
        let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        let error = explain_key(rustls::Error::DecryptError, &certificate);
        let found = TransportError::from_error(TransportErrorKind::Broken, &std::io::Error::other(error));
        let expected = "cannot connect to the server over TLS: the server's certificate has an RSA key of 1024 bits, and at least 2048 are required";
        assert_eq!(found.to_string(), expected);
        let lone = params(&["host"], false).self_signed(&KeyPair::generate().unwrap()).unwrap();
        assert_eq!(explain_key(rustls::Error::DecryptError, lone.der()), rustls::Error::DecryptError);
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
        assert_eq!(error, format!("{}: the CA: no certificate in the PEM", file.path().display()));
        let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        fs::write(file.path(), format!("{garbage}{}", old.pem())).unwrap();
        let authorities = Authorities::from_file(file.path(), provider()).unwrap();
        assert_eq!(verify(&authorities, old.der(), "host", 2021), "accepted");
        fs::write(file.path(), new.pem()).unwrap();
        assert_eq!(verify(&authorities, new.der(), "host", 2021), "accepted");
        // Both have the same subject.
        assert!(verify(&authorities, old.der(), "host", 2021).contains("is not a CA"));
        fs::write(file.path(), "").unwrap();
        assert_eq!(verify(&authorities, new.der(), "host", 2021), "accepted");
    }
}
