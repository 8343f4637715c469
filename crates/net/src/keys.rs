//! Making keys: an authority, and what it signs.
//!
//! | file | what it holds |
//! |---|---|
//! | `authority.pem`, `authority.key` | the certificate that everybody trusts, and the key that signs; only who makes keys needs the key |
//! | `server-N.pem`, `server-N.key` | the certificate and the key of server N |
//! | `NAME.pem`, `NAME.key` | those of a user |

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use penstock_engine::{Error, Kind, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};

use crate::peer::Peer;
use crate::tls::KeyFiles;

/// How long before now a certificate begins: clocks of hosts differ.
const BEFORE: Duration = Duration::from_secs(3600);

/// The name of the files of an authority.
const AUTHORITY: &str = "authority";

fn failed(cause: impl std::fmt::Display) -> Error {
    Error::new(Kind::Io, "making keys", cause)
}

/// Makes an authority in a directory.
///
/// # Errors
/// [`Kind::Exists`] when there is one: nobody would trust what the old one has signed.
pub fn make_authority(directory: &Path, valid: Duration) -> Result<()> {
    let mut params = params("Penstock authority", valid)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = params.self_signed(&key).map_err(failed)?;
    write(directory, AUTHORITY, &certificate.pem(), &key)
}

/// Makes the keys of a server or a user, signed by the authority of the directory. `hosts` are the
/// names and numbers of a server's host, as clients call it.
///
/// # Errors
/// [`Kind::Missing`] without an authority; [`Kind::Exists`] when the holder has keys.
pub fn make(
    directory: &Path,
    holder: &str,
    peer: &Peer,
    hosts: &[String],
    valid: Duration,
) -> Result<()> {
    let files = KeyFiles::within(directory, AUTHORITY);
    let read = |path: &Path| {
        std::fs::read_to_string(path)
            .map_err(|error| Error::new(Kind::Missing, "reading the authority", error).at(path))
    };
    let key = KeyPair::from_pem(&read(&files.key)?).map_err(failed)?;
    let authority = Issuer::from_ca_cert_pem(&read(&files.certificate)?, key).map_err(failed)?;
    let mut params = params(holder, valid)?;
    let uri = peer.uri().try_into().map_err(failed)?;
    params.subject_alt_names.push(SanType::URI(uri));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    if let Peer::Server(_) = peer {
        let server = ExtendedKeyUsagePurpose::ServerAuth;
        params.extended_key_usages.push(server);
        for host in hosts {
            params.subject_alt_names.push(match host.parse() {
                Ok(number) => SanType::IpAddress(number),
                Err(_) => SanType::DnsName(host.clone().try_into().map_err(failed)?),
            });
        }
    }
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = params.signed_by(&key, &authority).map_err(failed)?;
    write(directory, holder, &certificate.pem(), &key)
}

fn params(holder: &str, valid: Duration) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(Vec::new()).map_err(failed)?;
    params.distinguished_name.push(DnType::CommonName, holder);
    let now = SystemTime::now();
    params.not_before = (now - BEFORE).into();
    params.not_after = (now + valid).into();
    Ok(params)
}

fn write(directory: &Path, holder: &str, certificate: &str, key: &KeyPair) -> Result<()> {
    let files = KeyFiles::within(directory, holder);
    let put = |path: &Path, mode: u32, text: &str| -> Result<()> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(path);
        let written = file.and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        });
        written.map_err(|error| {
            let kind = match error.kind() {
                std::io::ErrorKind::AlreadyExists => Kind::Exists,
                std::io::ErrorKind::NotFound => Kind::Missing,
                _ => Kind::Io,
            };
            Error::new(kind, "making keys", error).at(path)
        })
    };
    put(&files.key, 0o600, &key.serialize_pem())?;
    put(&files.certificate, 0o644, certificate)
}
