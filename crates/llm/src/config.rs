//! The settings of one backend, as written in the configuration file, and the profiles: how the known servers differ in
//! their use of the protocol.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Secret, error::LlmError};

/// Upper limit of `check_ms_max`, in milliseconds; the backend's actor waits no longer for a reachability check.
const CHECK_MS_MOST: u64 = 60_000;

/// Parts of the names of models that reason before they answer.
const REASONING_NAMES: [&str; 8] =
    ["reason", "thinking", "deepseek-r1", "qwq", "magistral", "-r1-", "gpt-oss", "deepthink"];
/// Beginnings of the names of such models.
const REASONING_FAMILIES: [&str; 8] = ["o1", "o3", "o4-", "gpt-5", "gemini-2.5", "gemini-3", "grok-4", "minimax-m"];

/// The kind of server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// OpenRouter: text parts with cache breakpoints, sticky sessions, cost in the usage.
    OpenRouter,
    /// OpenAI itself: `max_completion_tokens`, `prompt_cache_key`.
    OpenAi,
    /// vLLM: an optional `priority` per request.
    Vllm,
    /// llama.cpp's server: parallel tool calls must be asked for.
    LlamaCpp,
    /// Ollama: drops old messages silently when the context is full, so the client logs a warning.
    Ollama,
    /// Anthropic itself: the Messages protocol.
    Anthropic,
    /// Azure OpenAI: the address of a deployment, or of a resource's `/openai/v1`.
    Azure,
    /// Any other server: only features that every server understands are used.
    #[default]
    Generic,
}

impl Profile {
    /// The value in the configuration file.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OpenRouter => "openrouter",
            Self::OpenAi => "openai",
            Self::Vllm => "vllm",
            Self::LlamaCpp => "llamacpp",
            Self::Ollama => "ollama",
            Self::Anthropic => "anthropic",
            Self::Azure => "azure",
            Self::Generic => "generic",
        }
    }

    /// Whether text parts are understood, which carry cache breakpoints and keep volatile context separate.
    pub(crate) const fn takes_parts(self) -> bool {
        matches!(self, Self::OpenRouter | Self::OpenAi | Self::Azure)
    }

    /// Whether the output limit is called `max_completion_tokens`.
    pub(crate) const fn wants_completion_tokens(self) -> bool {
        matches!(self, Self::OpenAi | Self::Azure)
    }

    /// Whether the profile stands for a provider's hosted models, whose context windows are large.
    #[must_use]
    pub const fn is_hosted(self) -> bool {
        matches!(self, Self::OpenRouter | Self::OpenAi | Self::Anthropic | Self::Azure)
    }

    /// Whether a stream's usage must be requested.
    pub(crate) const fn wants_usage_option(self) -> bool {
        !matches!(self, Self::OpenRouter)
    }

    /// The default base URL of a profile that stands for one server.
    const fn usual_base(self) -> &'static str {
        match self {
            Self::Anthropic => "https://api.anthropic.com/v1",
            _ => "",
        }
    }

    /// The path of the reachability check, below the base URL. OpenRouter's model list is large and public; its key page is
    /// small and verifies the key.
    pub(crate) const fn check_path(self) -> &'static str {
        match self {
            Self::OpenRouter => "key",
            _ => "models",
        }
    }
}

/// Prices in US dollars per million tokens, for servers that do not report what a call cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Price {
    /// For input that was not cached.
    pub input: f64,
    /// For input read from the cache; absent means the price of input.
    pub cached_input: Option<f64>,
    /// For input written to the cache; absent means the price of input.
    pub cache_write: Option<f64>,
    /// For output, reasoning included.
    pub output: f64,
}

/// One backend.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelConfig {
    /// The name of this backend for people and routes.
    pub name: String,
    /// The kind of server.
    pub profile: Profile,
    /// Whether the operator explicitly chose `generic`; then the server's description of itself does not change the
    /// profile.
    #[serde(skip)]
    pub is_profile_set: bool,
    /// The base URL with the version: `https://openrouter.ai/api/v1`. Empty means the profile's default, if it has one.
    pub base_url: String,
    /// The model to use, unless a request names another.
    pub model: String,
    /// The model for `/v1/embeddings`; without it this backend makes no embeddings.
    pub embeddings: Option<String>,
    /// The version of Azure's interface, sent as `api-version`; deployment addresses need one.
    pub api_version: Option<String>,
    /// The most output tokens to request, reasoning included. Unset means the tokens that a turn reserves for its answer,
    /// and more for models that are known to reason, if their window is known or a service runs them.
    pub output_tokens_max: Option<u32>,
    /// The API key, sent in the form that the profile's server expects.
    pub api_key: Option<Secret>,
    /// Streams replies; without it a whole reply comes at once, and clients see no drafts.
    pub stream: bool,
    /// Time limit for connecting, in milliseconds.
    pub connect_ms_max: u64,
    /// Time limit for a stream's first token, in milliseconds.
    pub first_token_ms_max: u64,
    /// Time limit for silence in the middle of a stream, in milliseconds.
    pub idle_ms_max: u64,
    /// Time limit for a whole call with its retries, in milliseconds; the only limit for a reply that is not streamed.
    pub call_ms_max: u64,
    /// Time limit for a reachability check, in milliseconds.
    pub check_ms_max: u64,
    /// Size limit for a reply (text, reasoning and tool arguments together), in bytes.
    pub reply_bytes_max: usize,
    /// How many times a call is repeated after a failure that came before any part of the answer was shown.
    pub retries_max: u32,
    /// The wait before the first repetition, in milliseconds; each further wait is twice as long.
    pub retry_wait_ms_min: u64,
    /// The longest wait before a repetition, in milliseconds. If a server asks for more, its error is returned with the
    /// hint.
    pub retry_wait_ms_max: u64,
    /// The sampling temperature; unset means the server's default.
    pub temperature: Option<f32>,
    /// Sends the scheduling class as vLLM's `priority` (needs `--scheduling-policy priority` there).
    pub send_priority: bool,
    /// Sets cache breakpoints where the profile has them.
    pub cache_breakpoints: bool,
    /// The app's URL for OpenRouter's rankings, sent as `HTTP-Referer`. Without it no title is sent either.
    pub app_url: Option<String>,
    /// The app's title for OpenRouter's rankings.
    pub app_title: String,
    /// A proxy for this backend. The environment's proxy settings are never read.
    pub proxy: Option<Secret>,
    /// Prices, for servers that do not report what a call cost.
    pub price: Option<Price>,
    /// Further headers; their values are secrets.
    pub headers: BTreeMap<String, Secret>,
    /// Further fields of the request body: `provider`, `reasoning`, `chat_template_kwargs` …
    pub body: BTreeMap<String, Value>,
}

impl Default for ModelConfig {
    fn default() -> Self {
        Self {
            name: "default".to_owned(),
            profile: Profile::default(),
            is_profile_set: false,
            base_url: String::new(),
            model: String::new(),
            embeddings: None,
            api_version: None,
            output_tokens_max: None,
            api_key: None,
            stream: true,
            connect_ms_max: 5_000,
            first_token_ms_max: 60_000,
            idle_ms_max: 30_000,
            call_ms_max: 600_000,
            check_ms_max: 5_000,
            reply_bytes_max: 4 * 1024 * 1024,
            retries_max: 2,
            retry_wait_ms_min: 500,
            retry_wait_ms_max: 8_000,
            temperature: None,
            send_priority: false,
            cache_breakpoints: true,
            app_url: None,
            app_title: "Annie".to_owned(),
            proxy: None,
            price: None,
            headers: BTreeMap::new(),
            body: BTreeMap::new(),
        }
    }
}

impl ModelConfig {
    /// Fields of the body that the client sets itself.
    const OWN_FIELDS: [&'static str; 13] = [
        "max_completion_tokens",
        "max_tokens",
        "messages",
        "model",
        "n",
        "parallel_tool_calls",
        "priority",
        "prompt_cache_key",
        "session_id",
        "stream",
        "stream_options",
        "temperature",
        "tools",
    ];

    /// The effective base URL, without a slash at its end.
    #[must_use]
    pub fn base(&self) -> &str {
        let written = self.base_url.trim_end_matches('/');
        if written.is_empty() { self.profile.usual_base() } else { written }
    }

    /// The URL of a path below the base URL.
    pub(crate) fn url(&self, below: &str) -> String {
        with_version(self.base(), below, self.api_version.as_deref())
    }

    /// The URL of the reachability check.
    pub(crate) fn check_url(&self) -> String {
        let base = self.base();
        // A deployment has no model list; its resource has one.
        let above = if self.profile == Profile::Azure { base.split("/deployments/").next() } else { None };
        with_version(above.unwrap_or(base), self.profile.check_path(), self.api_version.as_deref())
    }

    /// Whether the model reasons before it answers, by the settings or by the model's name.
    #[must_use]
    pub fn reasons(&self) -> bool {
        let is_asked = |field: &str| self.body.get(field).is_some_and(|value| value["type"] != "disabled");
        let model = self.model.to_lowercase();
        let last = model.rsplit('/').next().unwrap_or_default();
        let is_one_of = |names: &[&str]| names.iter().any(|name| last.starts_with(name));
        ["reasoning", "reasoning_effort", "thinking"].into_iter().any(is_asked)
            || REASONING_NAMES.iter().any(|name| last.contains(name))
            || is_one_of(&REASONING_FAMILIES)
    }

    /// Checks the settings without accessing the network.
    ///
    /// # Errors
    /// Returns the first invalid setting.
    pub fn validate(&self) -> Result<(), LlmError> {
        let first = self.problems().into_iter().next();
        first.map_or(Ok(()), |what| Err(LlmError::Config { name: self.name.clone(), what }))
    }

    /// Every invalid setting, as far as that can be determined without the network. Each text begins with its key.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let mut found = Vec::new();
        found.extend(self.wrong_base());
        if self.model.trim().is_empty() {
            found.push("model is empty".to_owned());
        }
        if let Some(field) = self.body.keys().find(|k| Self::OWN_FIELDS.contains(&k.as_str())) {
            found.push(format!("body.{field} is set by Annie itself"));
        }
        found.extend(self.validate_for_profile().err());
        for (setting, value) in [
            ("connect_ms_max", self.connect_ms_max),
            ("first_token_ms_max", self.first_token_ms_max),
            ("idle_ms_max", self.idle_ms_max),
            ("call_ms_max", self.call_ms_max),
            ("check_ms_max", self.check_ms_max),
            ("reply_bytes_max", self.reply_bytes_max as u64),
        ] {
            if value == 0 {
                found.push(format!("{setting} must be at least 1"));
            }
        }
        if self.check_ms_max > CHECK_MS_MOST {
            found.push(format!("check_ms_max is {}, at most {CHECK_MS_MOST} is possible", self.check_ms_max));
        }
        if self.retry_wait_ms_min > self.retry_wait_ms_max {
            found.push("retry_wait_ms_min is larger than retry_wait_ms_max".to_owned());
        }
        found
    }

    fn wrong_base(&self) -> Option<String> {
        let url = match reqwest::Url::parse(self.base()) {
            Ok(url) => url,
            Err(_) if self.base_url.trim().is_empty() => {
                return Some("base_url is missing: write it as http://127.0.0.1:8080/v1".to_owned());
            }
            Err(error) => return Some(format!("base_url {:?} is not a URL: {error}", shortened(&self.base_url))),
        };
        if !matches!(url.scheme(), "http" | "https") {
            return Some(format!("base_url must begin with http:// or https://, not {}:", url.scheme()));
        }
        let has_more =
            !url.username().is_empty() || url.password().is_some() || url.query().is_some() || url.fragment().is_some();
        has_more.then(|| "base_url must not carry a user, a password, a query or a fragment; use api_key".to_owned())
    }

    /// Whether the server's description of itself may set the profile.
    pub(crate) fn learns_profile(&self) -> bool {
        self.profile == Profile::Generic && !self.is_profile_set
    }

    /// Whether the base URL is an Azure deployment, which serves one model.
    fn is_deployment(&self) -> bool {
        self.profile == Profile::Azure && self.base().contains("/deployments/")
    }

    /// Checks the settings that depend on the profile.
    fn validate_for_profile(&self) -> Result<(), String> {
        /// Fields of the Messages protocol that the client sets itself, beside those of every protocol.
        const MESSAGES_FIELDS: [&str; 2] = ["system", "tool_choice"];
        let is_plain = |version: &str| version.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b));
        match &self.api_version {
            Some(_) if self.profile != Profile::Azure => return Err("api_version is for profile azure".to_owned()),
            Some(version) if version.is_empty() || !is_plain(version) => {
                return Err(format!("api_version {version:?} is no version, such as 2024-10-21"));
            }
            None if self.is_deployment() => {
                return Err(
                    "api_version is missing: the address of a deployment needs one, such as 2024-10-21".to_owned()
                );
            }
            Some(_) | None => {}
        }
        if self.is_deployment() && self.embeddings.is_some() {
            return Err("embeddings needs a base_url that ends with /openai/v1, not a deployment's".to_owned());
        }
        if self.output_tokens_max == Some(0) {
            return Err("output_tokens_max must be at least 1".to_owned());
        }
        if self.profile != Profile::Anthropic {
            return Ok(());
        }
        if self.embeddings.is_some() {
            return Err("embeddings cannot be made by profile anthropic".to_owned());
        }
        if self.temperature.is_some_and(|t| t > 1.0) {
            return Err("temperature is at most 1 with profile anthropic".to_owned());
        }
        match self.body.keys().find(|k| MESSAGES_FIELDS.contains(&k.as_str())) {
            Some(field) => Err(format!("body.{field} is set by Annie itself")),
            None => Ok(()),
        }
    }

    /// Masks every secret of this backend in a text of a server or a library.
    pub(crate) fn scrub(&self, text: &str) -> String {
        let secrets = self.api_key.iter().chain(self.proxy.iter()).chain(self.headers.values());
        secrets.fold(text.to_owned(), |text, secret| secret.scrub(&text))
    }
}

fn with_version(base: &str, below: &str, version: Option<&str>) -> String {
    match version {
        Some(version) => format!("{base}/{below}?api-version={version}"),
        None => format!("{base}/{below}"),
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> ModelConfig {
        ModelConfig {
            base_url: "https://example.invalid/v1".to_owned(),
            model: "m".to_owned(),
            ..ModelConfig::default()
        }
    }

    #[test]
    fn config_requires_only_settings_without_default() {
        let config: ModelConfig = serde_json::from_str(
            r#"{"name": "cloud", "profile": "openrouter", "base_url": "https://x/v1", "model": "m", "api_key": "sk-abcdef"}"#,
        )
        .unwrap();
        config.validate().unwrap();
        assert_eq!((config.connect_ms_max, config.first_token_ms_max, config.idle_ms_max), (5_000, 60_000, 30_000));
        assert!(!format!("{config:?}").contains("sk-abcdef"));
        assert!(!serde_json::to_string(&config).unwrap().contains("sk-abcdef"));
    }

    #[test]
    fn config_refuses_setting_of_another_profile() {
        let with = |profile: Profile, change: &dyn Fn(&mut ModelConfig)| {
            let mut config = ModelConfig { profile, ..good() };
            change(&mut config);
            config.validate().map_err(|error| error.to_string())
        };
        let refused = |profile, change: &dyn Fn(&mut ModelConfig)| with(profile, change).unwrap_err();
        with(Profile::Anthropic, &|c| c.base_url = String::new()).unwrap();
        assert!(refused(Profile::Anthropic, &|c| c.embeddings = Some("e".into())).contains("embeddings"));
        assert!(refused(Profile::Anthropic, &|c| c.temperature = Some(1.5)).contains("temperature"));
        assert!(
            refused(Profile::Anthropic, &|c| drop(c.body.insert("system".into(), 1.into()))).contains("body.system")
        );
        assert!(refused(Profile::OpenAi, &|c| c.api_version = Some("2024-10-21".into())).contains("profile azure"));
        let deployment = |c: &mut ModelConfig| c.base_url = "https://x.openai.azure.com/openai/deployments/d".into();
        assert!(refused(Profile::Azure, &deployment).contains("api_version is missing"));
        let versioned = |c: &mut ModelConfig| {
            deployment(c);
            c.api_version = Some("2024-10-21".into());
        };
        with(Profile::Azure, &versioned).unwrap();
        assert!(refused(Profile::Azure, &|c| c.api_version = Some("v&x=1".into())).contains("no version"));
        with(Profile::Azure, &|c| c.base_url = "https://x.openai.azure.com/openai/v1/".into()).unwrap();
        assert!(refused(Profile::Generic, &|c| c.output_tokens_max = Some(0)).contains("output_tokens_max"));
    }

    #[test]
    fn config_recognises_reasoning_model_by_name_or_settings() {
        let reasons = |model: &str| ModelConfig { model: model.into(), ..good() }.reasons();
        for model in ["o3-mini", "openai/gpt-5", "deepseek-reasoner", "Qwen/QwQ-32B", "google/gemini-2.5-pro"] {
            assert!(reasons(model), "{model}");
        }
        for model in ["gpt-4o", "claude-sonnet-4-5", "openrouter/auto", "qwen2.5-coder", "llama-3.1-70b", "olmo"] {
            assert!(!reasons(model), "{model}");
        }
        let mut thinking = good();
        thinking.body.insert("thinking".into(), serde_json::json!({"type": "enabled", "budget_tokens": 2_000}));
        assert!(thinking.reasons());
    }

    #[test]
    fn config_names_the_invalid_setting() {
        let with = |change: &dyn Fn(&mut ModelConfig)| {
            let mut config = good();
            change(&mut config);
            config.validate().unwrap_err().to_string()
        };
        assert!(with(&|c| c.base_url = "nonsense".into()).contains("base_url"));
        assert!(with(&|c| c.base_url = "ftp://x/".into()).contains("http://"));
        let problem = with(&|c| c.base_url = "https://ann:hunter2@x/v1".into());
        assert!(problem.contains("api_key") && !problem.contains("hunter2"), "{problem}");
        assert!(with(&|c| c.model = " ".into()).contains("model"));
        assert!(with(&|c| drop(c.body.insert("stream".into(), true.into()))).contains("body.stream"));
        assert!(with(&|c| c.idle_ms_max = 0).contains("idle_ms_max"));
        assert!(with(&|c| c.check_ms_max = 60_001).contains("check_ms_max"));
        assert!(with(&|c| c.retry_wait_ms_min = 9_000).contains("retry_wait_ms_min"));
        assert!(serde_json::from_str::<ModelConfig>(r#"{"modle": "m"}"#).is_err());
        good().validate().unwrap();
    }
}
