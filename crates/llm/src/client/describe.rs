//! Asks a server what it is and what it can. Each question is short and may stay without an answer.

use std::time::Duration;

use annie_core::{
    message::{ModelError, ModelErrorKind},
    ports::{Origin, ServerFacts},
};
use reqwest::{Method, header::CONTENT_TYPE};
use serde_json::{Value, json};

use super::{OpenAiModel, read};
use crate::{
    config::{ModelConfig, Profile},
    server_facts::{self, Kind},
};

/// The longest that one question may take, in milliseconds.
const QUESTION_MS_MAX: u64 = 3_000;
/// The largest answer that is read, in bytes: it may hold a chat template, or a list of hundreds of models.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// The models that a server offers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Offer {
    /// Their names, in the server's order.
    pub models: Vec<String>,
    /// Whose they are, in the server's word.
    pub owner: Option<String>,
}

impl Offer {
    /// The kind of server that the owner's word means: `llamacpp`, `vllm`, `ollama`, `lmstudio`; nothing for another.
    #[must_use]
    pub fn kind(&self) -> Option<&'static str> {
        self.owner.as_deref().and_then(Kind::of_owner).map(Kind::word)
    }
}

impl OpenAiModel {
    /// Asks which models there are.
    ///
    /// # Errors
    /// If the server is not there, refuses, or its answer is no list of models.
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

    /// What the server says of itself. The kind of server that is learned here counts from then on, unless one is configured.
    pub(super) async fn facts(&self) -> ServerFacts {
        let mut facts = ServerFacts::default();
        let kind = if self.is_known_service() { None } else { self.ask_server(&mut facts).await };
        let (profile, from) = match kind.map(Kind::profile) {
            _ if !self.config.learns_profile() => (self.config.profile, Origin::Configured),
            Some(Profile::Generic) | None => (Profile::Generic, Origin::Default),
            Some(profile) => (self.learn(profile), Origin::Server),
        };
        facts.profile = profile.as_str().to_owned();
        facts.profile_from = from;
        facts
    }

    /// A service whose list of models is long and says nothing that is not known.
    const fn is_known_service(&self) -> bool {
        self.config.profile.is_hosted()
    }

    /// The first that is learned stays: another kind of server at the same address needs a restart.
    fn learn(&self, profile: Profile) -> Profile {
        self.learned.get_or_init(|| ModelConfig { profile, ..self.config.clone() }).profile
    }

    async fn ask_server(&self, facts: &mut ServerFacts) -> Option<Kind> {
        let model = &self.config.model;
        let list = self.ask(Method::GET, &self.below_base("models"), None).await;
        let told = list.as_ref().and_then(|list| server_facts::models(list, model, facts));
        let kind = told.or_else(|| Kind::of_profile(self.config.profile));
        match kind {
            Some(Kind::LlamaCpp) => {
                let props = self.ask(Method::GET, &self.at_root("/props"), None).await.unwrap_or_default();
                server_facts::llama_cpp(&props, facts);
            }
            Some(Kind::Vllm) => {
                let version = self.ask(Method::GET, &self.at_root("/version"), None).await.unwrap_or_default();
                server_facts::version(&version, facts);
            }
            Some(Kind::Ollama) => {
                let version = self.ask(Method::GET, &self.at_root("/api/version"), None).await.unwrap_or_default();
                server_facts::version(&version, facts);
                self.ask_ollama(facts).await;
            }
            Some(Kind::LmStudio) => {
                let list = self.ask(Method::GET, &self.at_root("/api/v0/models"), None).await;
                server_facts::lm_studio(&list.unwrap_or_default(), model, facts);
            }
            None => return self.guess(facts).await,
        }
        if let Some(kind) = kind {
            kind.name_in(facts);
        }
        kind
    }

    /// A server that does not name itself, and answers what only one kind does. Services behind TLS are not guessed at.
    async fn guess(&self, facts: &mut ServerFacts) -> Option<Kind> {
        if !self.config.base_url.starts_with("http://") {
            return None;
        }
        let version = self.ask(Method::GET, &self.at_root("/api/version"), None).await;
        let kind = if version.is_some_and(|version| server_facts::version(&version, facts)) {
            // Others have a version there, too: only Ollama knows the rest.
            self.ask_ollama(facts).await.then_some(Kind::Ollama)?
        } else {
            let props = self.ask(Method::GET, &self.at_root("/props"), None).await;
            props.is_some_and(|props| server_facts::llama_cpp(&props, facts)).then_some(Kind::LlamaCpp)?
        };
        kind.name_in(facts);
        Some(kind)
    }

    /// Whether it answered as Ollama does.
    async fn ask_ollama(&self, facts: &mut ServerFacts) -> bool {
        let model = &self.config.model;
        let loaded = self.ask(Method::GET, &self.at_root("/api/ps"), None).await.unwrap_or_default();
        let show = self.ask(Method::POST, &self.at_root("/api/show"), Some(json!({"model": model}))).await;
        server_facts::ollama(&show.unwrap_or_default(), &loaded, model, facts)
    }

    fn below_base(&self, path: &str) -> String {
        format!("{}/{path}", self.config.base_url.trim_end_matches('/'))
    }

    /// The server's own routes stand beside the protocol's version.
    fn at_root(&self, path: &str) -> String {
        let base = self.config.base_url.trim_end_matches('/');
        format!("{}{path}", base.strip_suffix("/v1").unwrap_or(base))
    }

    /// One question; nothing if it is refused, takes too long, or its answer is no JSON or too large.
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
