//! Posts requests to the collector, and reads from its answers what becomes of the spans.

use std::{sync::Arc, time::Duration};

use annie_core::ports::Secrets;
use reqwest::{
    Client, ClientBuilder, Response, StatusCode, Url,
    header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER},
};
use serde_json::Value as Json;

/// The path of traces behind the address of a collector.
const TRACES: &str = "v1/traces";
/// Time limit for the connection, in milliseconds.
const CONNECT_MS_MAX: u64 = 5_000;
/// How long a connection is kept for the next request, in milliseconds: shorter than collectors keep it.
const IDLE_MS_MAX: u64 = 10_000;
/// How much of an answer is read, in bytes: it says how many spans were refused.
const REPLY_BYTES_MAX: usize = 64 * 1024;
/// The longest text of a collector that is logged, in bytes.
const WORDS_BYTES_MAX: usize = 200;

/// A collector that cannot be used. The text has no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TelemetryError {
    /// The address is not valid.
    #[error("telemetry.otlp_endpoint: {0}: write it as http://127.0.0.1:4318")]
    Endpoint(String),
    /// The name of a header is not valid.
    #[error("telemetry.otlp_headers: {0:?} cannot be the name of a header")]
    Header(String),
    /// The client cannot be built.
    #[error("telemetry: cannot set up the client: {0}")]
    Client(String),
}

/// A receiver of OTLP over HTTP.
pub struct Collector {
    url: Url,
    client: Client,
    /// Headers, each with the name of the secret that is its value.
    headers: Vec<(HeaderName, String)>,
    secrets: Arc<dyn Secrets>,
}

/// What became of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Posted {
    /// The collector has the spans, without this many that it refused, and says why.
    Taken { refused_spans: u64, why: String },
    /// The collector refused the request. The same request would be refused again.
    Refused(String),
    /// The same request may be taken later: not before this time, in milliseconds.
    Later { after_ms: u64, why: String },
}

impl Collector {
    /// The collector at an address, to which `/v1/traces` is added. `client` brings the TLS provider. A request takes at most
    /// `timeout_ms` milliseconds.
    ///
    /// # Errors
    /// If the address or the name of a header is not valid, or the client cannot be built.
    pub fn new(
        endpoint: &str,
        headers: &[(String, String)],
        client: ClientBuilder,
        secrets: Arc<dyn Secrets>,
        timeout_ms: u64,
    ) -> Result<Self, TelemetryError> {
        let url = url_of(endpoint).map_err(TelemetryError::Endpoint)?;
        let header = |(name, secret): &(String, String)| {
            let parsed = HeaderName::from_bytes(name.as_bytes());
            parsed.map(|parsed| (parsed, secret.clone())).map_err(|_| TelemetryError::Header(name.clone()))
        };
        let headers = headers.iter().map(header).collect::<Result<_, _>>()?;
        let mut client = client
            .user_agent(concat!("annie/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(Duration::from_millis(CONNECT_MS_MAX.min(timeout_ms)))
            .timeout(Duration::from_millis(timeout_ms))
            .pool_idle_timeout(Duration::from_millis(IDLE_MS_MAX))
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy();
        if url.scheme() == "http" {
            // Plain HTTP needs no certificates, and must work on machines where none are installed.
            client = client.tls_certs_only([]);
        }
        let client = client.build().map_err(|error| TelemetryError::Client(error.without_url().to_string()))?;
        Ok(Self { url, client, headers, secrets })
    }

    /// Posts a request.
    pub async fn post(&self, body: Vec<u8>) -> Posted {
        let later = |why: String| Posted::Later { after_ms: 0, why };
        let mut request = self.client.post(self.url.clone()).header(CONTENT_TYPE, "application/json").body(body);
        for (name, secret) in &self.headers {
            match self.opened(secret).await {
                Ok(value) => request = request.header(name, value),
                Err(why) => return later(why),
            }
        }
        match request.send().await {
            Ok(response) => self.judge(response).await,
            Err(error) => later(words(error)),
        }
    }

    /// The value of a header.
    async fn opened(&self, name: &str) -> Result<HeaderValue, String> {
        let secret = self.secrets.secret(None, name.to_owned()).await.map_err(|error| error.to_string())?;
        let secret = secret.ok_or_else(|| format!("the secret {name:?} is not stored: run annie secret set {name}"))?;
        let mut value = HeaderValue::from_str(secret.expose())
            .map_err(|_| format!("the secret {name:?} cannot be sent in a header"))?;
        value.set_sensitive(true);
        Ok(value)
    }

    async fn judge(&self, response: Response) -> Posted {
        let status = response.status();
        if status.is_success() {
            return self.taken(response).await;
        }
        let why = format!("the collector answered {status}");
        // The four statuses after which the protocol allows a repetition.
        match status {
            StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => {
                let after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
                Posted::Later { after_ms: after.map_or(0, |s: u64| s.saturating_mul(1_000)), why }
            }
            _ => Posted::Refused(why),
        }
    }

    /// Reads the answer of a collector that has the request: it may have refused some spans.
    async fn taken(&self, mut response: Response) -> Posted {
        let mut body = Vec::new();
        while let Ok(Some(chunk)) = response.chunk().await {
            if body.len() + chunk.len() > REPLY_BYTES_MAX {
                break;
            }
            body.extend_from_slice(&chunk);
        }
        let reply: Json = serde_json::from_slice(&body).unwrap_or_default();
        let partial = &reply["partialSuccess"];
        // A 64-bit number is a text in this JSON, and some collectors write a number.
        let refused = &partial["rejectedSpans"];
        let refused_spans = refused.as_u64().or_else(|| refused.as_str()?.parse().ok()).unwrap_or(0);
        let why = self.secrets.scrubbed(partial["errorMessage"].as_str().unwrap_or_default());
        Posted::Taken { refused_spans, why: why[..why.floor_char_boundary(WORDS_BYTES_MAX)].to_owned() }
    }
}

/// Checks the address of a collector.
///
/// # Errors
/// What is wrong, without the address, which may contain a password.
pub fn check_endpoint(endpoint: &str) -> Result<(), String> {
    url_of(endpoint).map(drop)
}

/// The URL of traces.
fn url_of(endpoint: &str) -> Result<Url, String> {
    let url = Url::parse(endpoint).map_err(|error| format!("it is no URL: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err("it does not begin with http:// or https:// and a host".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("it has a user or a password, which belong into otlp_headers".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("it has a query or a fragment".to_owned());
    }
    Url::parse(&format!("{}/{TRACES}", endpoint.trim_end_matches('/'))).map_err(|error| error.to_string())
}

/// A failed request in words, without its URL.
fn words(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut innermost: &dyn std::error::Error = &error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    if error.is_timeout() { format!("no answer in time: {innermost}") } else { innermost.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collector_address_gets_the_path_of_traces() {
        for (endpoint, url) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("http://127.0.0.1:4318/", "http://127.0.0.1:4318/v1/traces"),
            ("https://cloud.test/api/public/otel", "https://cloud.test/api/public/otel/v1/traces"),
        ] {
            assert_eq!(url_of(endpoint).unwrap().as_str(), url);
        }
        for endpoint in ["", "127.0.0.1:4318", "grpc://127.0.0.1:4317", "http://u:p@a.test", "http://a.test/?x=1"] {
            assert!(url_of(endpoint).is_err(), "{endpoint}");
        }
    }
}
