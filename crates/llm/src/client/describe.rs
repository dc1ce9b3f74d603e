//! Queries a model server for its identity and its abilities. Each query is short, and the server may leave it unanswered.

use std::time::Duration;

use annie_core::{
    message::{ModelError, ModelErrorKind},
    ports::{Origin, ServerFacts},
};
use reqwest::{Method, header::CONTENT_TYPE};
use serde_json::{Value, json};

use super::{OpenAiModel, read};
use crate::{
    config::Profile,
    server_facts::{self, Kind},
};

/// Time limit for one query, in milliseconds.
const QUESTION_MS_MAX: u64 = 3_000;
/// Size limit for one answer, in bytes. An answer may hold a chat template, or a list of hundreds of models.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// The models that a server offers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Offer {
    /// Model names, in the server's order.
    pub models: Vec<String>,
    /// The `owned_by` value of the first model.
    pub owner: Option<String>,
}

impl Offer {
    /// The kind of server that `owner` stands for: `llamacpp`, `vllm`, `ollama`, `lmstudio`; `None` for any other value.
    #[must_use]
    pub fn kind(&self) -> Option<&'static str> {
        self.owner.as_deref().and_then(Kind::of_owner).map(Kind::word)
    }
}

/// Result of the queries, beside the facts.
#[derive(Debug, Default)]
struct Asked {
    /// The kind of server, as stated by the server or concluded from its answers.
    kind: Option<Kind>,
    is_answered: bool,
    /// The model's chat template opens a thinking block itself.
    opens_thinking: bool,
}

impl OpenAiModel {
    /// Lists the models that the server offers.
    ///
    /// # Errors
    /// Fails if the server is unreachable, refuses the request, or does not answer with a list of models.
    pub async fn offer(&self) -> Result<Offer, ModelError> {
        let asking = async {
            let request = self.http.get(self.below_base("models")).headers(self.headers.clone());
            let response = request.send().await.map_err(|error| self.transport(&error).error)?;
            if !response.status().is_success() {
                return Err(self.refused(response).await.error);
            }
            read::whole(self, Vec::new(), response, ANSWER_BYTES_MAX).await.map_err(|failure| failure.error)
        };
        let limit = Duration::from_millis(self.config.check_ms_max);
        let late =
            || ModelError::new(ModelErrorKind::Timeout, format!("no answer within {} ms", self.config.check_ms_max));
        let body = tokio::time::timeout(limit, asking).await.map_err(|_| late())??;
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let Some(list) = body["data"].as_array() else {
            return Err(ModelError::new(ModelErrorKind::Protocol, "its answer is no list of models"));
        };
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let models = list.iter().filter_map(|entry| text(&entry["id"])).collect();
        Ok(Offer { models, owner: list.first().and_then(|entry| text(&entry["owned_by"])) })
    }

    /// Queries the server's description of itself. The kind of server found applies to later requests, unless one is
    /// configured.
    pub(super) async fn facts(&self) -> ServerFacts {
        let mut facts = ServerFacts::default();
        let asked = if self.is_known_service() { Asked::default() } else { self.ask_server(&mut facts).await };
        if asked.is_answered {
            let found = asked.kind.map_or(Profile::Generic, Kind::profile);
            let profile = if self.config.learns_profile() { found } else { self.config.profile };
            self.learned.described(profile, &facts, asked.opens_thinking);
        }
        let profile = self.config().profile;
        facts.profile_from = match profile {
            _ if !self.config.learns_profile() => Origin::Configured,
            Profile::Generic => Origin::Default,
            _ => Origin::Server,
        };
        facts.profile = profile.as_str().to_owned();
        facts
    }

    /// True for a hosted service: its list of models is long and contains nothing that is not known already.
    const fn is_known_service(&self) -> bool {
        self.config.profile.is_hosted()
    }

    async fn ask_server(&self, facts: &mut ServerFacts) -> Asked {
        let model = &self.config.model;
        let list = self.ask(Method::GET, &self.below_base("models"), None).await;
        let stated_kind = list.as_ref().and_then(|list| server_facts::models(list, model, facts));
        let mut asked = Asked { kind: stated_kind, is_answered: list.is_some(), opens_thinking: false };
        // True if the server answered its own specific route, not only a route that several servers share.
        let is_its_own = match stated_kind.or_else(|| Kind::of_profile(self.config.profile)) {
            Some(Kind::LlamaCpp) => self.ask_llama_cpp(facts, &mut asked).await,
            Some(Kind::Vllm) => {
                let version = self.ask(Method::GET, &self.at_root("/version"), None).await.unwrap_or_default();
                server_facts::version(&version, facts) && facts.server.is_none()
            }
            Some(Kind::Ollama) => {
                let version = self.ask(Method::GET, &self.at_root("/api/version"), None).await.unwrap_or_default();
                server_facts::version(&version, facts);
                self.ask_ollama(facts).await
            }
            Some(Kind::LmStudio) => {
                let list = self.ask(Method::GET, &self.at_root("/api/v0/models"), None).await;
                server_facts::lm_studio(&list.unwrap_or_default(), model, facts);
                false
            }
            None => {
                asked.kind = self.guess(facts, &mut asked).await;
                false
            }
        };
        if is_its_own {
            asked.kind = asked.kind.or_else(|| Kind::of_profile(self.config.profile));
        }
        asked.is_answered |= asked.kind.is_some();
        if let Some(kind) = asked.kind {
            kind.name_in(facts);
        }
        asked
    }

    /// Identifies a server that does not name itself by routes that only one kind answers. Servers behind TLS are not
    /// probed.
    async fn guess(&self, facts: &mut ServerFacts, asked: &mut Asked) -> Option<Kind> {
        if !self.config.base_url.starts_with("http://") {
            return None;
        }
        let version = self.ask(Method::GET, &self.at_root("/api/version"), None).await;
        if version.is_some_and(|version| server_facts::version(&version, facts)) {
            // Other servers have this route as well; only Ollama answers the next ones.
            return self.ask_ollama(facts).await.then_some(Kind::Ollama);
        }
        self.ask_llama_cpp(facts, asked).await.then_some(Kind::LlamaCpp)
    }

    /// Whether the server answered as llama.cpp does.
    async fn ask_llama_cpp(&self, facts: &mut ServerFacts, asked: &mut Asked) -> bool {
        let props = self.ask(Method::GET, &self.at_root("/props"), None).await.unwrap_or_default();
        asked.opens_thinking = server_facts::opens_thinking(&props);
        server_facts::llama_cpp(&props, facts)
    }

    /// Whether the server answered as Ollama does.
    async fn ask_ollama(&self, facts: &mut ServerFacts) -> bool {
        let model = &self.config.model;
        let loaded = self.ask(Method::GET, &self.at_root("/api/ps"), None).await.unwrap_or_default();
        let show = self.ask(Method::POST, &self.at_root("/api/show"), Some(json!({"model": model}))).await;
        server_facts::ollama(&show.unwrap_or_default(), &loaded, model, facts)
    }

    fn below_base(&self, path: &str) -> String {
        format!("{}/{path}", self.config.base_url.trim_end_matches('/'))
    }

    /// The URL of a route outside the protocol's version prefix: the server's own routes are beside `/v1`.
    fn at_root(&self, path: &str) -> String {
        let base = self.config.base_url.trim_end_matches('/');
        format!("{}{path}", base.strip_suffix("/v1").unwrap_or(base))
    }

    /// Sends one query. Returns `None` if it is refused, takes too long, or the answer is not JSON or is too large.
    async fn ask(&self, method: Method, url: &str, body: Option<Value>) -> Option<Value> {
        let mut request = self.http.request(method, url).headers(self.headers.clone());
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, "application/json").body(body.to_string());
        }
        let answer = async {
            let response = request.send().await.ok().filter(|response| response.status().is_success())?;
            read::whole(self, Vec::new(), response, ANSWER_BYTES_MAX).await.ok()
        };
        let limit = Duration::from_millis(self.config.check_ms_max.min(QUESTION_MS_MAX));
        let answer = tokio::time::timeout(limit, answer).await.ok()??;
        serde_json::from_slice(&answer).ok()
    }
}
