//! Signed POST requests to a URL of the operator. A request has two headers beside its JSON body: `annie-timestamp` is the time of
//! the attempt in seconds since 1970, and `annie-signature` is `v1=` and the HMAC-SHA256, in hex, of the timestamp, a dot and the
//! body.

use std::{sync::Arc, time::Duration};

use annie_core::{ports::Clock, time::Micros};
use hmac::{Hmac, Mac};
use reqwest::{Client, ClientBuilder, RequestBuilder, Url, header::CONTENT_TYPE};
use sha2::Sha256;

/// Time limit for the connection, in milliseconds.
const CONNECT_MS_MAX: u64 = 10_000;
/// The shortest secret, in bytes: a shorter one can be found by trying.
const SECRET_BYTES_MIN: usize = 16;

/// The target of signed requests.
pub struct Signed {
    url: Url,
    key: Hmac<Sha256>,
    client: Client,
    clock: Arc<dyn Clock>,
}

impl Signed {
    /// Builds the target. `client` brings the TLS provider. A request takes at most `ms_max` milliseconds.
    ///
    /// # Errors
    /// If the URL is no HTTP URL, the secret is too short, or the client cannot be built. The text has neither the URL nor the
    /// secret.
    pub fn new(
        url: &str,
        secret: &str,
        client: ClientBuilder,
        clock: Arc<dyn Clock>,
        ms_max: u64,
    ) -> Result<Self, String> {
        let url = Url::parse(url).map_err(|error| format!("its url is no URL: {error}"))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err("its url must begin with http:// or https:// and name a host".to_owned());
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("its url has a user or a password: the receiver checks the signature instead".to_owned());
        }
        if secret.len() < SECRET_BYTES_MIN {
            return Err(format!(
                "its secret is shorter than {SECRET_BYTES_MIN} bytes: make one with `openssl rand -hex 32`"
            ));
        }
        let key = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).map_err(|error| error.to_string())?;
        let mut client = client
            .user_agent(concat!("annie/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(Duration::from_millis(CONNECT_MS_MAX.min(ms_max)))
            .timeout(Duration::from_millis(ms_max))
            // A request on a connection that the receiver is closing would be in doubt.
            .pool_max_idle_per_host(0)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy();
        if url.scheme() == "http" {
            // Plain HTTP needs no certificates, and must work on machines where none are installed.
            client = client.tls_certs_only([]);
        }
        let client = client.build().map_err(|error| error.without_url().to_string())?;
        Ok(Self { url, key, client, clock })
    }

    /// A request with this JSON body, signed now.
    pub fn post(&self, body: String) -> RequestBuilder {
        let timestamp = seconds(self.clock.now());
        let signature = self.signature(&timestamp, &body);
        self.client
            .post(self.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header("annie-timestamp", &timestamp)
            .header("annie-signature", signature)
            .body(body)
    }

    /// The signature of a body at a time.
    fn signature(&self, timestamp: &str, body: &str) -> String {
        let mut mac = self.key.clone();
        for part in [timestamp, ".", body] {
            mac.update(part.as_bytes());
        }
        let digest: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("v1={digest}")
    }
}

pub fn seconds(at: Micros) -> String {
    at.0.div_euclid(1_000_000).to_string()
}

/// A failed request in words. The URL, which may contain a token, is left out.
pub fn words(error: reqwest::Error) -> String {
    let error = error.without_url();
    // The outer error says only that sending failed.
    let mut why = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        why = format!("{why}: {cause}");
        source = cause.source();
    }
    why
}
