//! The settings of one backend, as they stand in the configuration file, and the profiles: what is known about the
//! servers that speak this protocol, each a little differently (reference/interfaces 1.1-1.5).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{error::LlmError, secret::Secret};

/// The longest that a look whether an endpoint is there may take, in milliseconds; the backend's actor waits no longer.
const CHECK_MS_MOST: u64 = 60_000;

/// Which kind of server it is.
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
    /// Ollama: drops old messages silently when the context is full, so a warning is due.
    Ollama,
    /// Anything else: only what every server understands.
    #[default]
    Generic,
}

impl Profile {
    /// The word of the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OpenRouter => "openrouter",
            Self::OpenAi => "openai",
            Self::Vllm => "vllm",
            Self::LlamaCpp => "llamacpp",
            Self::Ollama => "ollama",
            Self::Generic => "generic",
        }
    }

    /// Whether text parts are understood, which carry cache breakpoints and keep volatile context apart.
    pub(crate) const fn takes_parts(self) -> bool {
        matches!(self, Self::OpenRouter | Self::OpenAi)
    }

    /// Whether a stream's usage must be asked for.
    pub(crate) const fn wants_usage_option(self) -> bool {
        !matches!(self, Self::OpenRouter)
    }

    /// Where to ask whether the server is there, below the base URL. OpenRouter's model list is large and public; its key
    /// page is small and knows the key.
    pub(crate) const fn check_path(self) -> &'static str {
        match self {
            Self::OpenRouter => "key",
            _ => "models",
        }
    }
}

/// Prices in US dollars per million tokens, for servers that do not say what a call cost.
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
    /// The name by which people and routes call this backend.
    pub name: String,
    /// Which kind of server it is.
    pub profile: Profile,
    /// Whether the operator chose `generic`: then the server's own word does not count.
    #[serde(skip)]
    pub is_profile_set: bool,
    /// Its base URL with the version: `https://openrouter.ai/api/v1`.
    pub base_url: String,
    /// The model to ask for, unless a request names another.
    pub model: String,
    /// The model for `/v1/embeddings`; absent means that this backend makes none.
    pub embeddings: Option<String>,
    /// The key, sent as a bearer token.
    pub api_key: Option<Secret>,
    /// Streams replies; without it a whole reply comes at once, and nobody sees drafts.
    pub stream: bool,
    /// The longest time to connect.
    pub connect_ms_max: u64,
    /// The longest wait for a stream's first token.
    pub first_token_ms_max: u64,
    /// The longest silence in the middle of a stream.
    pub idle_ms_max: u64,
    /// The longest time that a whole call may take, retries included; a reply that is not streamed has only this limit.
    pub call_ms_max: u64,
    /// The longest time that a reachability check may take.
    pub check_ms_max: u64,
    /// The largest reply (text, reasoning and tool arguments together), in bytes.
    pub reply_bytes_max: usize,
    /// How often a call is repeated after a failure that came before the first token.
    pub retries_max: u32,
    /// The first wait before a repetition; each further one is twice as long.
    pub retry_wait_ms_min: u64,
    /// The longest wait before a repetition. A server that asks for more gets its error passed on instead, with the hint.
    pub retry_wait_ms_max: u64,
    /// The sampling temperature; absent leaves it to the server.
    pub temperature: Option<f32>,
    /// Sends the scheduling class as vLLM's `priority` (needs `--scheduling-policy priority` there).
    pub send_priority: bool,
    /// Marks cache breakpoints where the profile knows them.
    pub cache_breakpoints: bool,
    /// Who asks, for OpenRouter's rankings: an URL, sent as `HTTP-Referer`. Without it no title is sent either.
    pub app_url: Option<String>,
    /// Who asks, in words.
    pub app_title: String,
    /// A proxy for this backend. The environment's proxy settings are never read.
    pub proxy: Option<Secret>,
    /// Prices, where the server does not say what a call cost.
    pub price: Option<Price>,
    /// More headers; their values are secrets.
    pub headers: BTreeMap<String, Secret>,
    /// More fields of the request's body: `provider`, `reasoning`, `chat_template_kwargs` …
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
    /// Fields of the body that the client writes itself.
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

    /// Checks what can be checked without the network.
    ///
    /// # Errors
    /// Names the first setting that does not fit.
    pub fn validate(&self) -> Result<(), LlmError> {
        let fail = |what: String| Err(LlmError::Config { name: self.name.clone(), what });
        let url = match reqwest::Url::parse(&self.base_url) {
            Ok(url) => url,
            Err(error) => return fail(format!("base_url {:?} is not an URL: {error}", shortened(&self.base_url))),
        };
        if !matches!(url.scheme(), "http" | "https") {
            return fail(format!("base_url must begin with http:// or https://, not {}:", url.scheme()));
        }
        if !url.username().is_empty() || url.password().is_some() || url.query().is_some() || url.fragment().is_some() {
            return fail("base_url must not carry a user, a password, a query or a fragment; use api_key".to_owned());
        }
        if self.model.trim().is_empty() {
            return fail("model is empty".to_owned());
        }
        if let Some(field) = self.body.keys().find(|k| Self::OWN_FIELDS.contains(&k.as_str())) {
            return fail(format!("body.{field} is set by Annie itself"));
        }
        for (setting, value) in [
            ("connect_ms_max", self.connect_ms_max),
            ("first_token_ms_max", self.first_token_ms_max),
            ("idle_ms_max", self.idle_ms_max),
            ("call_ms_max", self.call_ms_max),
            ("check_ms_max", self.check_ms_max),
            ("reply_bytes_max", self.reply_bytes_max as u64),
        ] {
            if value == 0 {
                return fail(format!("{setting} must be at least 1"));
            }
        }
        if self.check_ms_max > CHECK_MS_MOST {
            return fail(format!("check_ms_max is {}, at most {CHECK_MS_MOST} is possible", self.check_ms_max));
        }
        if self.retry_wait_ms_min > self.retry_wait_ms_max {
            return fail("retry_wait_ms_min is larger than retry_wait_ms_max".to_owned());
        }
        Ok(())
    }

    /// Whether the server's own word for what it is counts.
    pub(crate) fn learns_profile(&self) -> bool {
        self.profile == Profile::Generic && !self.is_profile_set
    }

    /// A text of a server or a library with every secret of this backend masked.
    pub(crate) fn scrub(&self, text: &str) -> String {
        let secrets = self.api_key.iter().chain(self.proxy.iter()).chain(self.headers.values());
        secrets.fold(text.to_owned(), |text, secret| secret.scrub(&text))
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
    fn a_config_needs_only_what_has_no_default() {
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
    fn a_setting_that_does_not_fit_is_named() {
        let with = |change: &dyn Fn(&mut ModelConfig)| {
            let mut config = good();
            change(&mut config);
            config.validate().unwrap_err().to_string()
        };
        assert!(with(&|c| c.base_url = "nonsense".into()).contains("base_url"));
        assert!(with(&|c| c.base_url = "ftp://x/".into()).contains("http://"));
        let told = with(&|c| c.base_url = "https://ann:hunter2@x/v1".into());
        assert!(told.contains("api_key") && !told.contains("hunter2"), "{told}");
        assert!(with(&|c| c.model = " ".into()).contains("model"));
        assert!(with(&|c| drop(c.body.insert("stream".into(), true.into()))).contains("body.stream"));
        assert!(with(&|c| c.idle_ms_max = 0).contains("idle_ms_max"));
        assert!(with(&|c| c.check_ms_max = 60_001).contains("check_ms_max"));
        assert!(with(&|c| c.retry_wait_ms_min = 9_000).contains("retry_wait_ms_min"));
        assert!(serde_json::from_str::<ModelConfig>(r#"{"modle": "m"}"#).is_err());
        good().validate().unwrap();
    }
}
