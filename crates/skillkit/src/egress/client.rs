//! Sends a request, follows its redirects, and reads the response within the limits.

use std::{error::Error, sync::Arc, time::Duration};

use annie_core::{
    ids::UserId,
    outcome::OutboundRequest,
    ports::{Egress, EgressError, EgressMethod, EgressReply, EgressRequest, Exchange, Fut, SecretHeader, Secrets},
};
use reqwest::{
    Client, ClientBuilder, Method, Response, Url,
    header::{ACCEPT, ACCEPT_LANGUAGE, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION},
    redirect,
};
use tokio::time::Instant;

use super::{
    resolve::{Checked, Lookup, NotPublic},
    rules::{EgressRules, Target},
};

/// The name that sites see.
const USER_AGENT: &str = concat!("annie/", env!("CARGO_PKG_VERSION"));

/// What the client is made of.
pub struct EgressParts {
    /// The rules.
    pub rules: EgressRules,
    /// Gives a builder with the program's TLS provider.
    pub client: fn() -> ClientBuilder,
    /// Resolves names.
    pub lookup: Arc<dyn Lookup>,
    /// Opens the secrets that the rules name as credentials.
    pub secrets: Option<Arc<dyn Secrets>>,
}

/// The client of all requests that skills send.
pub struct HttpEgress {
    rules: EgressRules,
    /// Connects to public addresses only.
    public: Client,
    /// Connects to the addresses that the operator listed.
    private: Client,
    secrets: Option<Arc<dyn Secrets>>,
}

impl HttpEgress {
    /// Creates the client. Does not access the network.
    ///
    /// # Errors
    /// If TLS cannot be set up.
    pub fn new(parts: EgressParts) -> Result<Self, EgressError> {
        let client = |allows_private| {
            let connect = Duration::from_millis(parts.rules.limits.connect_ms_max);
            (parts.client)()
                .no_proxy()
                .redirect(redirect::Policy::none())
                .referer(false)
                .connect_timeout(connect)
                .dns_resolver(Checked { lookup: parts.lookup.clone(), allows_private })
                // Each request resolves and checks its name again.
                .pool_max_idle_per_host(0)
                .user_agent(USER_AGENT)
                .build()
                .map_err(|error| EgressError::Setup(innermost(&error)))
        };
        let (public, private) = (client(false)?, client(true)?);
        Ok(Self { public, private, rules: parts.rules, secrets: parts.secrets })
    }

    async fn follow(&self, request: &EgressRequest, sent: &mut Sent) -> Result<EgressReply, EgressError> {
        let mut headers = header_map(&request.headers)?;
        let mut target = self.rules.target(&request.url)?;
        // Only the address that the skill named gets a credential. A redirect to another address loses it below, also if that
        // address has a credential of its own: a page must not cause requests with the user's rights.
        let user = request.user.as_ref();
        match self.rules.credential(&target).filter(|_| request.secret_headers.is_empty()) {
            Some(name) => drop(headers.insert(AUTHORIZATION, self.secret_value(user, name, ["Bearer ", ""]).await?)),
            None => self.add_secrets(&mut headers, request, &target).await?,
        }
        let redirects_max = self.rules.limits.redirects_max;
        for hop in 0..=redirects_max {
            let response = self.exchange(request, &target, headers.clone(), sent).await;
            let response = response.map_err(|why| if hop == 0 { why } else { behind_redirect(why) })?;
            let Some(url) = redirected(request.method, &target.url, &response)? else {
                return self.read(request, response, sent).await;
            };
            let next = self.rules.checked(url).map_err(of_redirect)?;
            if !next.is_same_origin(&target) {
                headers = harmless(&headers);
            }
            target = next;
        }
        Err(EgressError::Redirects { redirects_max })
    }

    /// Adds the headers with secrets that the skill asks for. Each secret is sent only where the operator said.
    async fn add_secrets(
        &self,
        headers: &mut HeaderMap,
        request: &EgressRequest,
        target: &Target,
    ) -> Result<(), EgressError> {
        for SecretHeader { header, before, secret, after } in &request.secret_headers {
            if !self.rules.is_granted(target, secret) {
                let host = target.authority();
                return Err(EgressError::Credential(format!(
                    "the secret {secret:?} may not be sent to {host}; the operator can allow it over https with \"{host}\" = \
                     {secret:?} in egress.credentials"
                )));
            }
            let key = HeaderName::from_bytes(header.as_bytes());
            let key = key.map_err(|_| EgressError::Invalid(format!("the header {header:?} is not valid")))?;
            headers.insert(key, self.secret_value(request.user.as_ref(), secret, [before, after]).await?);
        }
        Ok(())
    }

    /// The value of a header that sends a secret between these texts.
    async fn secret_value(
        &self,
        user: Option<&UserId>,
        name: &str,
        [before, after]: [&str; 2],
    ) -> Result<HeaderValue, EgressError> {
        let unusable = EgressError::Credential;
        let missing =
            || unusable(format!("the secret {name:?} is not stored; the operator can run annie secret set {name}"));
        let secrets = self.secrets.as_ref().ok_or_else(missing)?;
        let secret = secrets.secret(user.cloned(), name.to_owned()).await.map_err(|why| unusable(why.to_string()))?;
        let header = HeaderValue::from_str(&format!("{before}{}{after}", secret.ok_or_else(missing)?.expose()));
        let mut header = header.map_err(|_| unusable(format!("the secret {name:?} cannot be sent in a header")))?;
        header.set_sensitive(true);
        Ok(header)
    }

    /// Sends one request, without following a redirect.
    async fn exchange(
        &self,
        request: &EgressRequest,
        target: &Target,
        headers: HeaderMap,
        sent: &mut Sent,
    ) -> Result<Response, EgressError> {
        let client = if target.is_private { &self.private } else { &self.public };
        let begun = |method| client.request(method, target.url.clone());
        let begun = match request.method {
            EgressMethod::Get => begun(Method::GET),
            EgressMethod::Post => begun(Method::POST).body(request.body.clone()),
            EgressMethod::Put => begun(Method::PUT).body(request.body.clone()),
            EgressMethod::Patch => begun(Method::PATCH).body(request.body.clone()),
            EgressMethod::Delete => begun(Method::DELETE).body(request.body.clone()),
        };
        sent.begin(target.authority(), request.method);
        let response = begun.headers(headers).send().await.map_err(|error| failure(target, &error))?;
        sent.answered(response.status().as_u16());
        Ok(response)
    }

    async fn read(
        &self,
        request: &EgressRequest,
        mut response: Response,
        sent: &mut Sent,
    ) -> Result<EgressReply, EgressError> {
        let bytes_max = self.rules.limits.reply_bytes_max.min(request.reply_bytes_max.unwrap_or(usize::MAX));
        let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let content_type = content_type.unwrap_or_default().trim().to_ascii_lowercase();
        let is_usable = request.content_types.is_empty()
            || request.content_types.iter().any(|usable| content_type.starts_with(usable));
        if response.status().is_success() && !content_type.is_empty() && !is_usable {
            return Err(EgressError::ContentType(content_type));
        }
        if response.content_length().is_some_and(|bytes| bytes > bytes_max as u64) {
            return Err(EgressError::TooLarge { bytes_max });
        }
        let mut body = Vec::new();
        loop {
            let broke_off =
                |error: reqwest::Error| EgressError::Network(format!("the response broke off: {}", innermost(&error)));
            let Some(chunk) = response.chunk().await.map_err(broke_off)? else { break };
            sent.received(chunk.len());
            if body.len() + chunk.len() > bytes_max {
                return Err(EgressError::TooLarge { bytes_max });
            }
            body.extend_from_slice(&chunk);
        }
        let headers = response.headers().iter();
        let headers =
            headers.filter_map(|(name, value)| Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned())));
        Ok(EgressReply {
            status: response.status().as_u16(),
            content_type,
            headers: headers.collect(),
            body,
            url: response.url().to_string(),
        })
    }
}

impl Egress for HttpEgress {
    fn send(&self, request: EgressRequest) -> Fut<'_, Exchange> {
        Box::pin(async move {
            let ms_max = self.rules.limits.total_ms_max;
            let mut sent = Sent { requests: Vec::new(), since: Instant::now() };
            let result =
                match tokio::time::timeout(Duration::from_millis(ms_max), self.follow(&request, &mut sent)).await {
                    Ok(result) => result,
                    Err(_) => Err(EgressError::Timeout { ms_max }),
                };
            sent.clock();
            for OutboundRequest { host, method, status, bytes, ms } in &sent.requests {
                tracing::info!(host, method, status, bytes, ms, "outbound request");
            }
            if let Err(why) = &result {
                tracing::info!(%why, "outbound request without a usable response");
            }
            Exchange { requests: sent.requests, result }
        })
    }
}

/// The requests that were sent, the last of which may be under way.
struct Sent {
    requests: Vec<OutboundRequest>,
    /// Start of the last one.
    since: Instant,
}

impl Sent {
    fn begin(&mut self, host: String, method: EgressMethod) {
        self.clock();
        self.since = Instant::now();
        self.requests.push(OutboundRequest { host, method: method.as_str().to_owned(), ..OutboundRequest::default() });
    }

    fn answered(&mut self, status: u16) {
        if let Some(last) = self.requests.last_mut() {
            last.status = Some(status);
        }
    }

    fn received(&mut self, bytes: usize) {
        if let Some(last) = self.requests.last_mut() {
            last.bytes = last.bytes.saturating_add(bytes as u64);
        }
    }

    /// Records how long the last request has taken.
    fn clock(&mut self) {
        let ms = self.since.elapsed().as_millis();
        if let Some(last) = self.requests.last_mut() {
            last.ms = u64::try_from(ms).unwrap_or(u64::MAX);
        }
    }
}

/// The address of a redirect that is to be followed.
fn redirected(method: EgressMethod, from: &Url, response: &Response) -> Result<Option<Url>, EgressError> {
    let is_redirect = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let Some(location) = response.headers().get(LOCATION).filter(|_| is_redirect && method == EgressMethod::Get) else {
        return Ok(None);
    };
    let to = location.to_str().ok().and_then(|location| from.join(location).ok());
    let to =
        to.ok_or_else(|| EgressError::Network("the response redirects to an address that is not valid".to_owned()))?;
    Ok(Some(to))
}

/// Says that the refused address is not the requested one.
fn of_redirect(why: EgressError) -> EgressError {
    match why {
        EgressError::Denied(why) => EgressError::Denied(format!("the response redirects, and {why}")),
        other => other,
    }
}

/// The failure to reach the target of a redirect. The first request was sent, so it may have had its effect.
fn behind_redirect(why: EgressError) -> EgressError {
    match why {
        EgressError::Unreached(why) => EgressError::Network(format!("the response redirects, and {why}")),
        other => other,
    }
}

/// The headers that are sent to another origin after a redirect. All others may be credentials.
fn harmless(headers: &HeaderMap) -> HeaderMap {
    let mut kept = HeaderMap::new();
    for name in [ACCEPT, ACCEPT_LANGUAGE] {
        if let Some(value) = headers.get(&name) {
            kept.insert(name, value.clone());
        }
    }
    kept
}

fn header_map(headers: &[(String, String)]) -> Result<HeaderMap, EgressError> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        // The value may be a secret, so the error names the header only.
        let wrong = || EgressError::Invalid(format!("the header {name:?} is not valid"));
        let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
        map.append(key, HeaderValue::from_str(value).map_err(|_| wrong())?);
    }
    Ok(map)
}

/// The failure of a request to this target.
fn failure(target: &Target, error: &reqwest::Error) -> EgressError {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(refused) = error.downcast_ref::<NotPublic>() {
            return EgressError::Denied(refused.to_string());
        }
        cause = error.source();
    }
    let what = if error.is_dns() { "cannot be found" } else { "cannot be reached" };
    let text = format!("{} {what}: {}", target.authority(), innermost(error));
    // A request is written only after its connection is established, and no connection is used twice.
    if error.is_connect() { EgressError::Unreached(text) } else { EgressError::Network(text) }
}

/// The first cause. The texts around it name the URL, which may contain secrets.
fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    if innermost.is::<reqwest::Error>() { "the client failed".to_owned() } else { innermost.to_string() }
}
