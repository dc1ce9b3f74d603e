//! A server that accepts loopback connections over TLS only, with certificates made for it.
#![allow(clippy::panic, clippy::expect_used, reason = "a test says what went wrong by panicking, in its helpers too")]

use std::{
    fs::OpenOptions,
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt, chown},
    path::PathBuf,
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};

use super::{Server, blocking, files::Files};

/// The host name of the server's certificate. The IP address is not in it.
const HOST: &str = "localhost";
/// Accepted connections: local ones through the socket, and loopback with TLS and a password.
const ACCEPTED_CONNECTIONS: &str = "local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256\n";

/// Files with root certificates.
#[derive(Debug, Clone)]
pub struct Roots {
    /// The root that signed the server's certificate.
    pub right: PathBuf,
    /// A root with the same name and another key.
    pub wrong: PathBuf,
}

impl Server {
    /// From now on the server accepts loopback connections over TLS only. It is restarted, with a certificate for `localhost`.
    ///
    /// # Panics
    /// If its files cannot be written, or if it does not start.
    pub async fn want_tls(self: &std::sync::Arc<Self>) -> Roots {
        let server = self.clone();
        blocking(move || {
            let roots = prepare(&server.files).unwrap_or_else(|e| panic!("{}: {e}", server.files.folder.display()));
            server.stop_fast();
            server.start_again();
            roots
        })
        .await
    }

    /// The address of a database over TLS, by the server's host name, without further parameters.
    #[must_use]
    pub fn tls(&self, url: &str) -> String {
        self.tcp(url).replacen("@127.0.0.1:", &format!("@{HOST}:"), 1)
    }
}

/// PostgreSQL finds the certificate and its key by their names.
fn prepare(files: &Files) -> io::Result<Roots> {
    let root = root();
    let key = new_key();
    let certificate = CertificateParams::new([HOST.to_owned()]).and_then(|params| params.signed_by(&key, &root));
    let certificate = certificate.expect("a certificate for a plain name");
    write(files, &files.data().join("server.key"), 0o600, &key.serialize_pem())?;
    write(files, &files.certificate(), 0o644, &certificate.pem())?;
    write(files, &files.data().join("pg_hba.conf"), 0o600, ACCEPTED_CONNECTIONS)?;
    let [right, wrong] = ["root.pem", "wrong.pem"].map(|name| files.folder.join(name));
    write(files, &right, 0o644, &root.pem())?;
    write(files, &wrong, 0o644, &self::root().pem())?;
    Ok(Roots { right, wrong })
}

fn new_key() -> KeyPair {
    KeyPair::generate().expect("enough randomness for a key")
}

fn root() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.distinguished_name.push(DnType::CommonName, "the root of a test");
    CertifiedIssuer::self_signed(params, new_key()).expect("a certificate for a plain name")
}

/// Writes a file that belongs to the server's user.
fn write(files: &Files, path: &std::path::Path, mode: u32, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(mode).open(path)?;
    file.write_all(text.as_bytes())?;
    match files.run_as {
        Some((user, group)) => chown(path, Some(user), Some(group)),
        None => Ok(()),
    }
}
