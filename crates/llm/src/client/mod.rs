//! The client: one HTTP call per round, retried only if no part of the answer was shown yet. Every wait and every size has
//! a limit. Dropping the future closes the connection, which stops the server's work.

mod backoff;
mod describe;
mod embed;
mod learned;
mod read;
mod thinking;

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

pub use describe::Offer;

use annie_core::{
    message::{ModelError, ModelErrorKind, ModelReply, ModelRequest},
    ports::{DraftSink, Entropy, Fut, Model, ServerFacts},
};
use reqwest::{
    Client, Proxy, Response,
    header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
    redirect,
};
use tokio::time::Instant;

use self::{
    learned::{Known, Learned},
    thinking::Drafts,
};
use crate::{
    config::{ModelConfig, Profile},
    error::LlmError,
    repair::Names,
    transport::http_client,
    wire::{
        self,
        assemble::Assembler,
        failure::{self, Failure, Hints},
        quirks::Quirks,
        usage::looks_truncated,
    },
};

/// A model behind a model server, independent of the protocol.
pub struct OpenAiModel {
    config: ModelConfig,
    learned: Learned,
    http: Client,
    chat_url: String,
    check_url: String,
    headers: HeaderMap,
    entropy: Arc<dyn Entropy>,
    /// Requested parameters that the protocol does not have. Each is logged once.
    left_out: Mutex<BTreeSet<&'static str>>,
}

impl OpenAiModel {
    /// Creates a client for one configured backend. `entropy` supplies the retry jitter and the ids that servers leave out.
    /// Does not access the network.
    ///
    /// # Errors
    /// Fails if a setting is invalid or TLS cannot be set up.
    pub fn new(config: ModelConfig, entropy: Arc<dyn Entropy>) -> Result<Self, LlmError> {
        config.validate()?;
        let headers = headers(&config)?;
        let chat_url = config.url(wire::of(config.profile).path());
        let check_url = config.check_url();
        let http = http(&config)?;
        Ok(Self {
            learned: Learned::new(&config),
            config,
            http,
            chat_url,
            check_url,
            headers,
            entropy,
            left_out: Mutex::default(),
        })
    }

    /// The effective settings: those for the kind of server that was found.
    #[must_use]
    pub fn config(&self) -> Arc<ModelConfig> {
        self.learned.known().config
    }

    async fn attempt(
        &self,
        known: &Known,
        request: &ModelRequest,
        body: &[u8],
        drafts: &DraftSink,
        by: Instant,
    ) -> Result<ModelReply, Failure> {
        let names = Names::of(request);
        let mut assembler = Assembler::new(&known.config, &names, known.begins_thinking, drafts);
        let outcome = match tokio::time::timeout_at(by, self.exchange(body, &mut assembler)).await {
            Ok(outcome) => outcome,
            Err(_) if assembler.is_whole() => Ok(()),
            Err(_) => {
                let detail = format!("no whole reply within {} ms", self.config.call_ms_max);
                Err(Failure::new(ModelErrorKind::Timeout, detail, false))
            }
        };
        let has_shown = assembler.has_shown();
        let asked_for = request.model.as_deref().unwrap_or(&self.config.model);
        let assembled = outcome.and_then(|()| assembler.finish(asked_for, &*self.entropy)).map_err(|mut failure| {
            // Unfinished tool calls were not shown. `Drafts` does not show repeated thinking again.
            failure.error.after_first_token = has_shown;
            failure.may_retry &= !has_shown;
            failure
        })?;
        // One reply with a stray end-of-thinking mark must not disable streaming permanently.
        if assembled.ended_without_begin || assembled.withheld_needlessly {
            self.learned.keep(known, |known| known.begins_thinking = assembled.ended_without_begin);
        }
        Ok(assembled.reply)
    }

    /// Sends the request and reads the response into the assembler.
    async fn exchange(&self, body: &[u8], assembler: &mut Assembler<'_>) -> Result<(), Failure> {
        let first_token_by = Instant::now() + Duration::from_millis(self.config.first_token_ms_max);
        let mut request =
            self.http.post(&self.chat_url).headers(self.headers.clone()).header(CONTENT_TYPE, "application/json");
        if self.config.stream {
            // Compression would delay tokens.
            request = request.header(ACCEPT, "text/event-stream").header(ACCEPT_ENCODING, "identity");
        }
        let sending = request.body(body.to_vec()).send();
        let response = if self.config.stream {
            tokio::time::timeout_at(first_token_by, sending).await.map_err(|_| self.no_first_token())?
        } else {
            sending.await
        }
        .map_err(|error| self.transport(&error))?;
        if !response.status().is_success() {
            return Err(self.refused(response).await);
        }
        let mut response = response;
        let kind = response.headers().get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
        let is_stream = kind.starts_with("text/event-stream");
        // Some servers label their event stream as plain text, so the first bytes decide.
        let begun = if is_stream {
            Vec::new()
        } else if self.config.stream {
            let beginning = read::beginning(self, &mut response);
            tokio::time::timeout_at(first_token_by, beginning).await.map_err(|_| self.no_first_token())??
        } else {
            read::beginning(self, &mut response).await?
        };
        if is_stream || read::is_event_stream(&begun) {
            read::events(self, begun, response, first_token_by, assembler).await
        } else {
            // JSON may write every byte of the text as `\u00xx`, and adds a frame around it.
            let bytes_max = self.config.reply_bytes_max.saturating_mul(8).max(64 * 1024);
            let whole = read::whole(self, begun, response, bytes_max).await?;
            assembler.whole(read::without_mark(&whole))
        }
    }

    /// Converts a response with an error status into a failure.
    async fn refused(&self, response: Response) -> Failure {
        const BODY_BYTES_MAX: usize = 64 * 1024;
        let status = response.status().as_u16();
        let hints = hints(response.headers());
        let reading = read::whole(self, Vec::new(), response, BODY_BYTES_MAX);
        let patience = Duration::from_millis(self.config.idle_ms_max);
        let body = tokio::time::timeout(patience, reading).await.ok().and_then(Result::ok).unwrap_or_default();
        if (300..400).contains(&status) {
            let detail = format!("HTTP {status}: the server redirects; set base_url to where it points");
            return Failure::new(ModelErrorKind::InvalidRequest, detail, false);
        }
        failure::by_status(&self.config, status, &hints, &body)
    }

    fn no_first_token(&self) -> Failure {
        let detail = format!("no first token within {} ms", self.config.first_token_ms_max);
        // Not repeated: the caller has already waited its full limit.
        Failure::new(ModelErrorKind::Timeout, detail, false)
    }

    /// Converts a failure below HTTP.
    fn transport(&self, error: &reqwest::Error) -> Failure {
        let mut detail = if error.is_connect() { "cannot connect" } else { "the connection failed" }.to_owned();
        let mut source = std::error::Error::source(error);
        while let Some(cause) = source {
            detail.push_str(": ");
            detail.push_str(&cause.to_string());
            source = cause.source();
        }
        let kind = if error.is_timeout() && !error.is_connect() {
            ModelErrorKind::Timeout
        } else {
            ModelErrorKind::Unavailable
        };
        Failure::new(kind, self.config.scrub(&detail), true)
    }

    async fn run(&self, request: &ModelRequest, drafts: &DraftSink) -> Result<ModelReply, ModelError> {
        self.notice_left_out(request);
        // `lasting` holds the parameters to leave out for later calls as well; it is stored when a request without them
        // succeeds.
        let known = self.learned.known();
        let (mut quirks, mut refused, mut lasting) = (known.quirks, known.refused, known.refused);
        let mut body = self.body(&known, &refused.strip(request), quirks)?;
        let by = Instant::now() + Duration::from_millis(self.config.call_ms_max);
        let drafts = Drafts::new(drafts);
        let mut attempt = 0;
        loop {
            let mut failure = match self.attempt(&known, request, &body, drafts.of_next_attempt(), by).await {
                Ok(reply) => {
                    self.notice(&known, &reply, body.len());
                    if (quirks, lasting) != (known.quirks, known.refused) {
                        self.learned.keep(&known, |known| {
                            known.quirks = known.quirks.with(quirks);
                            known.refused = known.refused.with(lasting);
                        });
                    }
                    return Ok(reply);
                }
                Err(failure) => failure,
            };
            // Text that was shown must not be shown again, even if the request is written differently.
            let may_repeat = !failure.error.after_first_token;
            if let Some(lesson) = refused.learned(&failure.error, request).filter(|_| may_repeat) {
                let (parameter, is_value) = (lesson.parameter, lesson.is_value);
                tracing::info!(model = %self.config.name, parameter, is_value, "parameter left out: the server refuses it");
                refused = lesson.refused;
                body = self.body(&known, &refused.strip(request), quirks)?;
                if !is_value {
                    lasting.add(parameter);
                }
                continue;
            }
            if let Some(learned) = quirks.learned(&failure.error, &known.config, request).filter(|_| may_repeat) {
                tracing::info!(model = %self.config.name, ?learned, "request format changed: the server refuses the former one");
                quirks = learned;
                body = self.body(&known, &refused.strip(request), quirks)?;
                continue;
            }
            if quirks.is_refusal_of_tools(&failure.error, request) {
                failure.error.kind = ModelErrorKind::ToolsUnsupported;
            }
            let wait_ms = backoff::wait_ms(&self.config, &failure, attempt, self.entropy.next_u64());
            let Some(wait_ms) = wait_ms.filter(|ms| Instant::now() + Duration::from_millis(*ms) < by) else {
                return Err(failure.error);
            };
            tracing::debug!(model = %self.config.name, kind = failure.error.kind.as_str(), attempt, wait_ms, "retrying");
            tokio::time::sleep(Duration::from_millis(wait_ms)).await;
            attempt += 1;
        }
    }

    /// Logs once for each parameter that the protocol does not have.
    fn notice_left_out(&self, request: &ModelRequest) {
        for parameter in wire::of(self.config.profile).left_out(request) {
            if self.left_out.lock().unwrap_or_else(PoisonError::into_inner).insert(parameter) {
                tracing::info!(model = %self.config.name, parameter, "parameter left out: the protocol does not have it");
            }
        }
    }

    fn body(&self, known: &Known, request: &ModelRequest, quirks: Quirks) -> Result<Vec<u8>, ModelError> {
        wire::of(known.config.profile)
            .body(&known.config, request, quirks)
            .map_err(|error| ModelError::new(ModelErrorKind::InvalidRequest, error.to_string()))
    }

    fn notice(&self, known: &Known, reply: &ModelReply, prompt_bytes: usize) {
        if known.config.profile == Profile::Ollama && looks_truncated(prompt_bytes, &reply.usage) {
            tracing::warn!(
                model = %self.config.name,
                prompt_bytes,
                counted_tokens = reply.usage.input_tokens,
                "Ollama has very likely dropped part of the prompt: raise OLLAMA_CONTEXT_LENGTH or num_ctx"
            );
        }
    }
}

impl fmt::Debug for OpenAiModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenAiModel").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Model for OpenAiModel {
    fn id(&self) -> &str {
        &self.config.model
    }

    fn about(&self) -> String {
        format!("a language model: `{}` on the backend `{}`", self.config.model, self.config.name)
    }

    fn call<'a>(&'a self, request: &'a ModelRequest, drafts: DraftSink) -> Fut<'a, Result<ModelReply, ModelError>> {
        Box::pin(async move { self.run(request, &drafts).await })
    }

    fn embeds(&self) -> Option<&str> {
        self.config.embeddings.as_deref()
    }

    fn embed(
        &self,
        request: serde_json::Map<String, serde_json::Value>,
    ) -> Fut<'_, Result<serde_json::Value, ModelError>> {
        Box::pin(self.vectors(request))
    }

    fn describe(&self) -> Fut<'_, Option<ServerFacts>> {
        Box::pin(async move { Some(self.facts().await) })
    }

    fn check(&self) -> Fut<'_, Result<(), ModelError>> {
        Box::pin(async move {
            let limit = Duration::from_millis(self.config.check_ms_max);
            let asking = self.http.get(&self.check_url).headers(self.headers.clone()).send();
            match tokio::time::timeout(limit, asking).await {
                Err(_) => {
                    let detail = format!("no answer within {} ms", self.config.check_ms_max);
                    Err(ModelError::new(ModelErrorKind::Timeout, detail))
                }
                Ok(Err(error)) => Err(self.transport(&error).error),
                Ok(Ok(response)) if response.status().is_success() => Ok(()),
                Ok(Ok(response)) => Err(self.refused(response).await.error),
            }
        })
    }
}

fn hints(headers: &HeaderMap) -> Hints {
    Hints::read(|name| headers.get(name).and_then(|v| v.to_str().ok()).map(str::to_owned))
}

fn http(config: &ModelConfig) -> Result<Client, LlmError> {
    let fail = |source| LlmError::Client { name: config.name.clone(), source };
    let mut builder = http_client()
        .user_agent(concat!("annie/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(Duration::from_millis(config.connect_ms_max))
        // A redirect would carry the key to its target.
        .redirect(redirect::Policy::none())
        .retry(reqwest::retry::never())
        .no_proxy();
    if let Some(proxy) = &config.proxy {
        builder = builder.proxy(Proxy::all(proxy.expose()).map_err(|e| fail(e.without_url()))?);
    }
    if config.base_url.starts_with("http://") && config.proxy.is_none() {
        // A plain HTTP endpoint needs no certificates, and must work on machines where none are installed.
        builder = builder.tls_certs_only([]);
    }
    builder.build().map_err(|e| fail(e.without_url()))
}

fn headers(config: &ModelConfig) -> Result<HeaderMap, LlmError> {
    let fail = |what: String| LlmError::Config { name: config.name.clone(), what };
    let mut headers = HeaderMap::new();
    let mut put = |name: HeaderName, value: &str, setting: &str, secret: bool| {
        let mut value = HeaderValue::from_str(value).map_err(|_| fail(format!("{setting} is no header value")))?;
        value.set_sensitive(secret);
        headers.insert(name, value);
        Ok::<(), LlmError>(())
    };
    for (name, value, is_secret) in wire::of(config.profile).headers(config) {
        let setting = if is_secret { "api_key" } else { name };
        put(HeaderName::from_static(name), &value, setting, is_secret)?;
    }
    for (name, value) in &config.headers {
        let parsed = name.parse::<HeaderName>().map_err(|_| fail(format!("headers.{name:?} is no header name")))?;
        put(parsed, value.expose(), &format!("headers.{name}"), true)?;
    }
    Ok(headers)
}

#[cfg(test)]
mod tests;
