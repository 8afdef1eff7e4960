//! The serving certificate, whose files may be replaced while the mirror runs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use listwatch::internal::crypto_provider;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use x509_parser::parse_x509_certificate;

use crate::settings::invalid_input;

/// The paths of a certificate with its intermediates and of its key, both in PEM.
pub(crate) struct CertificateFiles {
    pub(crate) certificates: PathBuf,
    pub(crate) key: PathBuf,
}

/// The certificate that new connections get.
pub(crate) struct ServingCertificate {
    files: CertificateFiles,
    /// The contents of the files when they were last read.
    pem: [Vec<u8>; 2],
    serving: Serving,
}

/// What the files contained when they could last be used.
struct Serving {
    acceptor: TlsAcceptor,
    /// Seconds since 1970; `None` if it cannot be read.
    expiry: Option<i64>,
}

impl ServingCertificate {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for files that cannot be read or used.
    pub(crate) fn open(files: CertificateFiles) -> io::Result<Self> {
        let pem = files.read_files()?;
        let serving = Serving::new(&pem)?;
        Ok(Self { files, pem, serving })
    }

    pub(crate) fn acceptor(&self) -> &TlsAcceptor {
        &self.serving.acceptor
    }

    /// Returns when the certificate expires, without its intermediates, in seconds since 1970.
    pub(crate) fn expiry(&self) -> Option<i64> {
        self.serving.expiry
    }

    /// Reads the files again. Keeps the certificate if they have not changed, or cannot be used.
    pub(crate) fn reload_files(&mut self) {
        let reloaded = self.files.read_files().and_then(|pem| {
            if pem != self.pem {
                self.serving = Serving::new(&pem)?;
                self.pem = pem;
                tracing::info!(name: "listwatch.mirror.certificate", "the certificate was reloaded");
            }
            Ok(())
        });
        if let Err(error) = reloaded {
            tracing::warn!(name: "listwatch.mirror.certificate", %error, "cannot reload the certificate");
        }
    }
}

impl CertificateFiles {
    fn read_files(&self) -> io::Result<[Vec<u8>; 2]> {
        let read = |path: &Path| {
            fs::read(path).map_err(|error| invalid_input(format!("cannot read {}: {error}", path.to_string_lossy())))
        };
        Ok([read(&self.certificates)?, read(&self.key)?])
    }
}

impl Serving {
    fn new([certificates, key]: &[Vec<u8>; 2]) -> io::Result<Self> {
        let certificates: Vec<_> = CertificateDer::pem_slice_iter(certificates)
            .collect::<Result<_, _>>()
            .map_err(|error| invalid_input(format!("the certificate: {error}")))?;
        let expiry = certificates.first().and_then(|certificate| {
            let (_, certificate) = parse_x509_certificate(certificate).ok()?;
            Some(certificate.validity().not_after.timestamp())
        });
        Ok(Self { acceptor: create_acceptor(certificates, key)?, expiry })
    }
}

fn create_acceptor(certificates: Vec<CertificateDer<'static>>, key: &[u8]) -> io::Result<TlsAcceptor> {
    // The parser's error is not quoted: it might contain a part of the key.
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| invalid_input("the key: no private key in the PEM"))?;
    let mut config = ServerConfig::builder_with_provider(crypto_provider().map_err(io::Error::other)?)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .map_err(|error| invalid_input(format!("the certificate and key: {error}")))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, CertifiedKey, KeyPair, date_time_ymd};

    use super::*;

    /// Returns a certificate that expires at the end of this year.
    fn expiring(year: i32) -> CertifiedKey<KeyPair> {
        let signing_key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.not_after = date_time_ymd(year, 12, 31);
        CertifiedKey { cert: params.self_signed(&signing_key).unwrap(), signing_key }
    }

    #[test]
    fn reloads_files_that_can_be_used() {
        let folder = tempfile::tempdir().unwrap();
        let [certificates, key] = ["tls.crt", "tls.key"].map(|name| folder.path().join(name));
        let (first, second) = (expiring(2049), expiring(2050));
        let write = |certificate: &str, private: &str| {
            fs::write(&certificates, certificate).unwrap();
            fs::write(&key, private).unwrap();
        };
        write(&first.cert.pem(), &first.signing_key.serialize_pem());
        let mut tls =
            ServingCertificate::open(CertificateFiles { certificates: certificates.clone(), key: key.clone() })
                .unwrap();
        let config = |tls: &ServingCertificate| Arc::as_ptr(tls.acceptor().config());
        let initial = config(&tls);
        tls.reload_files();
        assert_eq!(config(&tls), initial, "the files have not changed");
        assert_eq!(tls.expiry(), Some(2_524_521_600), "2049-12-31");

        // The key of the new certificate is not yet there.
        write(&second.cert.pem(), &first.signing_key.serialize_pem());
        tls.reload_files();
        assert_eq!(config(&tls), initial);
        write("no PEM", "no PEM");
        tls.reload_files();
        assert_eq!(config(&tls), initial);
        fs::remove_file(&key).unwrap();
        let missing = format!("cannot read {}: no such file or directory", key.display());
        assert_eq!(tls.files.read_files().unwrap_err().to_string(), missing);
        tls.reload_files();
        assert_eq!((config(&tls), tls.expiry()), (initial, Some(2_524_521_600)));

        write(&second.cert.pem(), &second.signing_key.serialize_pem());
        tls.reload_files();
        assert_ne!(config(&tls), initial);
        assert_eq!(tls.expiry(), Some(2_556_057_600), "2050-12-31");
        assert_eq!(tls.pem[0], second.cert.pem().into_bytes());
    }
}
