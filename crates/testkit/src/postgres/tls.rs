//! A server that is spoken to over TLS only, with certificates that are made for it.
#![allow(clippy::panic, clippy::expect_used, reason = "a test says what went wrong by panicking, in its helpers too")]

use std::{
    fs::OpenOptions,
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt, chown},
    path::PathBuf,
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};

use super::{Server, blocking, place::Place};

/// Whom the server's certificate is for. Its address in numbers is not in it.
const HOST: &str = "localhost";
/// Who may come: whoever is on this machine by the socket, and by loopback with TLS and a password.
const WHO_MAY: &str = "local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256\n";

/// Files with root certificates.
#[derive(Debug, Clone)]
pub struct Roots {
    /// The one that the server's certificate is signed with.
    pub right: PathBuf,
    /// One with the same name and another key.
    pub wrong: PathBuf,
}

impl Server {
    /// From now on it takes connections on loopback over TLS only. It is started again, with a certificate for `localhost`.
    ///
    /// # Panics
    /// If its files cannot be written, or if it does not start.
    pub async fn want_tls(self: &std::sync::Arc<Self>) -> Roots {
        let server = self.clone();
        blocking(move || {
            let roots = prepare(&server.place).unwrap_or_else(|e| panic!("{}: {e}", server.place.folder.display()));
            server.stop_fast();
            server.start_again();
            roots
        })
        .await
    }

    /// The address of a database over TLS, by the server's name, without the rest of its parameters.
    #[must_use]
    pub fn tls(&self, url: &str) -> String {
        self.tcp(url).replacen("@127.0.0.1:", &format!("@{HOST}:"), 1)
    }
}

/// PostgreSQL finds the certificate and its key by their names.
fn prepare(place: &Place) -> io::Result<Roots> {
    let root = root();
    let key = new_key();
    let certificate = CertificateParams::new([HOST.to_owned()]).and_then(|params| params.signed_by(&key, &root));
    let certificate = certificate.expect("a certificate for a plain name");
    write(place, &place.data().join("server.key"), 0o600, &key.serialize_pem())?;
    write(place, &place.certificate(), 0o644, &certificate.pem())?;
    write(place, &place.data().join("pg_hba.conf"), 0o600, WHO_MAY)?;
    let [right, wrong] = ["root.pem", "wrong.pem"].map(|name| place.folder.join(name));
    write(place, &right, 0o644, &root.pem())?;
    write(place, &wrong, 0o644, &self::root().pem())?;
    Ok(Roots { right, wrong })
}

fn new_key() -> KeyPair {
    KeyPair::generate().expect("there is chance enough for a key")
}

fn root() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.distinguished_name.push(DnType::CommonName, "the root of a test");
    CertifiedIssuer::self_signed(params, new_key()).expect("a certificate for a plain name")
}

/// Writes a file that belongs to whom the server runs as.
fn write(place: &Place, path: &std::path::Path, mode: u32, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(mode).open(path)?;
    file.write_all(text.as_bytes())?;
    match place.run_as {
        Some((user, group)) => chown(path, Some(user), Some(group)),
        None => Ok(()),
    }
}
