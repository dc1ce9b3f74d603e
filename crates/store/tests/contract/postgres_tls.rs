//! A database over TLS: which servers are trusted, and which are refused.

use std::{sync::Arc, time::Duration};

use annie_core::ports::{Store, StoreError, StoreErrorKind};
use annie_store::{PostgresOptions, PostgresStore};
use annie_testkit::postgres::{Options, Roots, Server, database};
use tokio::time::timeout;

use crate::{
    make::*,
    postgres_only::{beside, message},
};

/// Longer than anything in a test takes.
const LONG: Duration = Duration::from_secs(60);

/// A server that requires TLS, a database of it, and the root certificates.
async fn over_tls() -> Option<(Arc<Server>, String, Roots)> {
    let server = Server::start(Options::default()).await?;
    let roots = server.want_tls().await;
    let url = server.database().await;
    Some((server, url, roots))
}

/// Opens a store at an address as users write it.
async fn open(address: &str) -> Result<PostgresStore, StoreError> {
    let options = PostgresOptions { connect_ms_max: 5_000, ..PostgresOptions::default() };
    PostgresStore::open(&address.parse().unwrap(), options).await
}

async fn refused(address: &str) -> String {
    let Err(error) = open(address).await else { panic!("{address} is taken") };
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
    assert!(!format!("{error} {error:?}").contains("the-password-of-the-test"), "{error}");
    error.to_string()
}

#[tokio::test]
async fn postgres_store_writes_and_listens_over_tls() {
    let Some((server, url, roots)) = over_tls().await else { return };
    let verified = |mode: &str| format!("{}?sslmode={mode}&sslrootcert={}", server.tls(&url), roots.right.display());
    let full = open(&verified("verify-full")).await.unwrap();
    // By its IP address the server has no name, but its chain of certificates is still checked.
    let chain = open(&verified("verify-ca").replace("@localhost:", "@127.0.0.1:")).await.unwrap();
    for store in [&full, &chain] {
        timeout(LONG, store.woken()).await.unwrap();
    }
    commit(&full, inbox(conversation(1), "ann", vec![message(1)])).await.unwrap();
    timeout(LONG, chain.woken()).await.unwrap();
    assert_eq!(length(&chain, conversation(1)).await, 1);
    let secret = "SELECT count(*), count(*) FILTER (WHERE ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
        WHERE application_name = 'annie'";
    let (all, secret): (i64, i64) = sqlx::query_as(secret).fetch_one(&mut beside(&url).await).await.unwrap();
    assert!(all >= 4 && secret == all, "{secret} of {all}: each of them writes and listens");
    for store in [full, chain] {
        store.close().await;
    }
}

#[tokio::test]
async fn postgres_store_refuses_an_untrusted_server_and_the_server_refuses_plain_connections() {
    let Some((server, url, roots)) = over_tls().await else { return };
    let tls = server.tls(&url);
    let (right, wrong) = (roots.right.display(), roots.wrong.display());
    let by_number = server.tcp(&url);
    for (address, sent) in [
        (format!("{tls}?sslmode=verify-full&sslrootcert={wrong}"), "invalid peer certificate"),
        (format!("{tls}?sslmode=verify-ca&sslrootcert={wrong}"), "invalid peer certificate"),
        (format!("{tls}?sslmode=verify-full"), "invalid peer certificate"),
        (format!("{by_number}?sslmode=verify-full&sslrootcert={right}"), "not valid for name"),
        (
            format!("{tls}?sslmode=verify-full&sslrootcert=/no/such.pem"),
            "a certificate or a socket that the address names",
        ),
        (format!("{tls}?sslmode=disable"), "no encryption"),
    ] {
        let error = refused(&address).await;
        assert!(error.contains(sent), "{address}: {error}");
    }
    // A client that does not verify the server may connect, and so may one that only requires encryption.
    for mode in ["prefer", "require"] {
        open(&format!("{tls}?sslmode={mode}")).await.unwrap().close().await;
    }
}

#[tokio::test]
async fn postgres_store_that_requires_tls_refuses_a_server_without_it() {
    let Some(database) = database().await else { return };
    for mode in ["require", "verify-ca", "verify-full"] {
        let error = refused(&format!("{}?sslmode={mode}", database.url_tcp)).await;
        assert!(error.contains("does not support TLS"), "{error}");
    }
}
