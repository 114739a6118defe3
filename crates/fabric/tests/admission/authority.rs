//! Certificates made for a test, and a folder for them.

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, IsCa, Issuer, KeyIdMethod, KeyPair,
    KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Names of a node that listens on loopback.
pub const NODE: &[&str] = &["127.0.0.1", "localhost"];

/// When a certificate may be used.
#[derive(Debug, Clone, Copy)]
pub enum Validity {
    Good,
    Past,
    Future,
    /// Until this second, counted from the beginning of 1970.
    Until(u64),
}

/// A folder that is removed with the test.
pub struct Folder(PathBuf);

static NEXT: AtomicU64 = AtomicU64::new(1);

fn next() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Folder {
    pub fn new() -> Self {
        let path = std::env::temp_dir().join(format!("forebay-admission-{}-{}", std::process::id(), next()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file that its owner alone may open.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        self.set_mode(&path, 0o600);
        path
    }

    pub fn copy(&self, from: &Path, name: &str) -> PathBuf {
        self.write(name, &std::fs::read_to_string(from).unwrap())
    }

    pub fn set_mode(&self, path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Who signs certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    name: &'static str,
}

impl Authority {
    pub fn new(name: &'static str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem, name }
    }

    /// Its certificate.
    pub fn file(&self, folder: &Folder) -> PathBuf {
        folder.write(&format!("{}.pem", self.name), &self.pem)
    }

    /// A new certificate for these names, and its key.
    pub fn issue(&self, folder: &Folder, names: &[&str], validity: Validity) -> (PathBuf, PathBuf) {
        self.issue_numbered(folder, names, validity, next())
    }

    /// As [`Authority::issue`], with this serial number.
    pub fn issue_numbered(
        &self,
        folder: &Folder,
        names: &[&str],
        validity: Validity,
        number: u64,
    ) -> (PathBuf, PathBuf) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.serial_number = Some(SerialNumber::from(number));
        (params.not_before, params.not_after) = match validity {
            Validity::Good => (date_time_ymd(2020, 1, 1), date_time_ymd(4000, 1, 1)),
            Validity::Past => (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1)),
            Validity::Future => (date_time_ymd(3990, 1, 1), date_time_ymd(4000, 1, 1)),
            Validity::Until(second) => {
                (date_time_ymd(1970, 1, 1), date_time_ymd(1970, 1, 1) + std::time::Duration::from_secs(second))
            }
        };
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let file = next();
        (
            folder.write(&format!("{file}.pem"), &certificate.pem()),
            folder.write(&format!("{file}.key"), &key.serialize_pem()),
        )
    }

    /// A list of certificates that it has revoked, as PEM.
    pub fn revocations(&self, numbers: &[u64]) -> String {
        let revoked = |number: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*number),
            revocation_time: date_time_ymd(2021, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2021, 1, 1),
            next_update: date_time_ymd(4000, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: numbers.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).unwrap().pem().unwrap()
    }
}
