//! The one way to begin an HTTP client in this program.

use reqwest::{Client, ClientBuilder};

/// A builder of HTTP clients whose TLS is ring's.
///
/// reqwest is compiled without a TLS provider, because its own choice (aws-lc) takes over four times as long to compile as
/// ring, which the database client needs anyway. Without a provider every client, even one for plain HTTP, fails to build.
pub fn http_client() -> ClientBuilder {
    // Fails where an earlier call installed it already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    #[expect(clippy::disallowed_methods, reason = "this is the place that every other client comes from")]
    Client::builder()
}
