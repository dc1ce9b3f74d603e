//! The only place in this program that creates HTTP clients.

use reqwest::{Client, ClientBuilder};

/// Returns a builder for HTTP clients that use ring for TLS.
///
/// reqwest is compiled without a TLS provider, because its default (aws-lc) takes over four times as long to compile as
/// ring, which the database client needs anyway. Without a provider every client, even one for plain HTTP, fails to build.
pub fn http_client() -> ClientBuilder {
    // An error means that an earlier call has already installed the provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    #[expect(clippy::disallowed_methods, reason = "this is the place that every other client comes from")]
    Client::builder()
}
