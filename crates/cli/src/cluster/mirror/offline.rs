//! A mirror of a file: its readers need a token that is generated for them, and a certificate.

use std::io;

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};
use listwatch::client::Resource;
use rcgen::{CertificateParams, KeyPair};
use tempfile::TempDir;

use super::args::MirrorArgs;
use super::lookup::Lookup;
use crate::failure::{Failure, read_blocking};
use crate::source::{Readers, SourceTransport};

/// A source that is mirrored.
pub struct OfflineSource {
    pub transport: SourceTransport,
    pub token: String,
    /// The generated certificate, and its folder, which is deleted with it.
    pub certificate: Option<GeneratedCertificate>,
}

pub struct GeneratedCertificate {
    folder: TempDir,
    pub pem: String,
}

impl OfflineSource {
    /// Opens the file of `--from`, if one is given.
    pub fn open(args: &MirrorArgs) -> Result<Option<Self>, Failure> {
        let mut random = [0; 24];
        let cannot = |error: String| Failure::Error(format!("cannot generate a token and a certificate: {error}"));
        getrandom::fill(&mut random).map_err(|error| cannot(error.to_string()))?;
        let token = BASE64_URL_SAFE_NO_PAD.encode(random);
        let readers = Readers::Others { token: token.clone(), with_secrets: args.with_secrets };
        let Some(transport) = args.connection.open_source(readers)? else { return Ok(None) };
        if args.write_kubeconfig.is_none() {
            let fault = "with --from, name a file by --write-kubeconfig: it gets the token that readers need";
            return Err(Failure::Usage(fault.to_owned()));
        }
        let certificate = match &args.tls_cert {
            Some(_) => None,
            None => Some(GeneratedCertificate::new(args).map_err(|error| cannot(error.to_string()))?),
        };
        Ok(Some(Self { transport, token, certificate }))
    }

    /// Finds the resources whose objects the file contains, for a command line that names no resource.
    pub async fn lookup(&self) -> Result<Lookup, Failure> {
        let transport = self.transport.clone();
        let found = read_blocking(move || transport.resources_with_objects().map_err(Failure::Error)).await?;
        if found.is_empty() {
            return Err(Failure::Error("the file has no objects to serve".to_owned()));
        }
        // Events have two groups, and the core's is enough.
        let resources = found.into_iter().map(|listed| listed.resource);
        let resources = resources.filter(|resource| *resource != Resource::EVENTS_K8S_IO);
        let found = resources.map(|resource| (resource.plural().to_owned(), resource)).collect();
        Ok(Lookup { found, missing: Vec::new() })
    }
}

impl GeneratedCertificate {
    /// Writes a certificate for this host and its key into a new folder, which only its owner can read.
    fn new(args: &MirrorArgs) -> io::Result<Self> {
        let names =
            vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned(), args.listen.ip().to_string()];
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let params = CertificateParams::new(names).map_err(io::Error::other)?;
        let pem = params.self_signed(&key).map_err(io::Error::other)?.pem();
        let folder = tempfile::Builder::new().prefix("listwatch-").tempdir()?;
        let own = Self { folder, pem };
        std::fs::write(own.certificate(), &own.pem)?;
        std::fs::write(own.key(), key.serialize_pem())?;
        Ok(own)
    }

    pub fn certificate(&self) -> std::path::PathBuf {
        self.folder.path().join("tls.crt")
    }

    pub fn key(&self) -> std::path::PathBuf {
        self.folder.path().join("tls.key")
    }
}
