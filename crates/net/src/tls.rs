//! Keys and certificates.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use penstock_engine::{Error, Kind, Result};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use serde::{Deserialize, Serialize};

/// The files with the keys of a server or a user.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyFiles {
    /// The certificate of the authority that signs all others.
    pub authority: PathBuf,
    /// The own certificate.
    pub certificate: PathBuf,
    /// The own key.
    pub key: PathBuf,
}

/// Keys, read and ready for use.
#[derive(Debug, Clone)]
pub struct Keys {
    pub(crate) server: Arc<ServerConfig>,
    pub(crate) client: Arc<ClientConfig>,
}

impl KeyFiles {
    /// The files that `penstock keys` puts into a directory for a holder.
    pub fn within(directory: &Path, holder: &str) -> Self {
        Self {
            authority: directory.join("authority.pem"),
            certificate: directory.join(format!("{holder}.pem")),
            key: directory.join(format!("{holder}.key")),
        }
    }

    /// The files of a holder who is named with the directory: `DIR/NAME`.
    pub fn of_holder(named: &Path) -> Self {
        let holder = named.file_name().and_then(|name| name.to_str());
        let directory = named.parent().unwrap_or(Path::new("."));
        Self::within(directory, holder.unwrap_or_default())
    }

    /// Reads the files.
    ///
    /// # Errors
    /// [`Kind::Missing`], [`Kind::Damaged`].
    pub fn read(&self) -> Result<Keys> {
        let damaged = |path: &Path, cause: &dyn std::fmt::Display| {
            Error::new(Kind::Damaged, "reading keys", cause).at(path)
        };
        let certificates = |path: &Path| -> Result<Vec<CertificateDer<'static>>> {
            let bytes = std::fs::read(path)
                .map_err(|error| Error::new(Kind::Missing, "reading keys", error).at(path))?;
            let read: std::result::Result<Vec<_>, _> =
                CertificateDer::pem_slice_iter(&bytes).collect();
            let read = read.map_err(|error| damaged(path, &error))?;
            match read.is_empty() {
                true => Err(damaged(path, &"it has no certificate")),
                false => Ok(read),
            }
        };
        let mut roots = RootCertStore::empty();
        for authority in certificates(&self.authority)? {
            roots
                .add(authority)
                .map_err(|error| damaged(&self.authority, &error))?;
        }
        let roots = Arc::new(roots);
        let own = certificates(&self.certificate)?;
        let key = PrivateKeyDer::from_pem_file(&self.key);
        let key = key.map_err(|error| damaged(&self.key, &error))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone()).build();
        let verifier = verifier.map_err(|error| damaged(&self.authority, &error))?;
        let server = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .and_then(|builder| {
                let builder = builder.with_client_cert_verifier(verifier);
                builder.with_single_cert(own.clone(), key.clone_key())
            });
        let mut server = server.map_err(|error| damaged(&self.certificate, &error))?;
        // Sessions are not taken up again: each connection shows its certificates.
        server.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| {
                let builder = builder.with_root_certificates(roots);
                builder.with_client_auth_cert(own, key)
            });
        let mut client = client.map_err(|error| damaged(&self.certificate, &error))?;
        client.resumption = rustls::client::Resumption::disabled();
        Ok(Keys {
            server: Arc::new(server),
            client: Arc::new(client),
        })
    }
}
