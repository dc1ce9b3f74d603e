//! Four well-known environment variables that replace a `[[backend]]` table, for a first try without a file.
//!
//! Only `ANNIE_MODEL` enables them: a key that is in the environment for other programs must not make Annie send messages
//! anywhere. With `ANNIE_MODEL`, the backend is selected by `OPENAI_BASE_URL` (any compatible server, `OPENAI_API_KEY`
//! optional), else `OPENROUTER_API_KEY`, else `OPENAI_API_KEY`. If backends are configured, `ANNIE_MODEL` only replaces the
//! model of the first one.

use annie_llm::Profile;
use toml::Value;

use super::{
    backend::host_of,
    environment::Environment,
    error::{ConfigError, Location},
};

/// Names the model, and enables the other variables.
pub const MODEL: &str = "ANNIE_MODEL";
const BASE_URL: &str = "OPENAI_BASE_URL";
const OPENAI_KEY: &str = "OPENAI_API_KEY";
const OPENROUTER_KEY: &str = "OPENROUTER_API_KEY";

/// Settings as (path, value, variable).
pub type Settings = Vec<(Vec<String>, Value, String)>;

/// The backend that the variables describe; empty without [`MODEL`].
pub fn backend(environment: &Environment) -> Result<Settings, ConfigError> {
    let Some(model) = environment.get(MODEL) else { return Ok(Vec::new()) };
    let has = |name: &str| environment.get(name).is_some();
    let (name, profile, base_url, source, key) = if let Some(url) = environment.get(BASE_URL) {
        let profile = profile_of(url).map(Profile::as_str);
        (profile.unwrap_or("generic"), profile, url, BASE_URL, Some(OPENAI_KEY).filter(|k| has(k)))
    } else if has(OPENROUTER_KEY) {
        ("openrouter", Some("openrouter"), "https://openrouter.ai/api/v1", OPENROUTER_KEY, Some(OPENROUTER_KEY))
    } else if has(OPENAI_KEY) {
        ("openai", Some("openai"), "https://api.openai.com/v1", OPENAI_KEY, Some(OPENAI_KEY))
    } else {
        return Err(ConfigError::new(
            Location::Environment(MODEL.to_owned()),
            "a model is named, but not where it is",
            format!("set {BASE_URL}, {OPENROUTER_KEY} or {OPENAI_KEY} too, or configure a [[backend]]"),
        ));
    };
    let mut settings: Settings = Vec::new();
    let mut set = |key: &str, value: &str, by: &str| {
        settings.push((["backend", "0", key].map(str::to_owned).to_vec(), value.into(), by.to_owned()));
    };
    set("name", name, MODEL);
    if let Some(profile) = profile {
        set("profile", profile, source);
    }
    set("base_url", base_url, source);
    set("model", model, MODEL);
    if let Some(key) = key {
        set("api_key_env", key, key);
    }
    Ok(settings)
}

/// The profile that follows from an address. If there is none, the server is asked.
fn profile_of(url: &str) -> Option<Profile> {
    let authority = url.split("://").nth(1).unwrap_or(url).split('/').next().unwrap_or_default();
    service_of(url).or_else(|| authority.ends_with(":11434").then_some(Profile::Ollama))
}

/// The service at a well-known address. Services do not report what they are, so the profile is never learned from them.
pub(crate) fn service_of(url: &str) -> Option<Profile> {
    match host_of(url)?.as_str() {
        "openrouter.ai" => Some(Profile::OpenRouter),
        "api.openai.com" => Some(Profile::OpenAi),
        "api.anthropic.com" => Some(Profile::Anthropic),
        host if host.ends_with(".openai.azure.com") => Some(Profile::Azure),
        _ => None,
    }
}

/// Variables that would be used if `ANNIE_MODEL` were set, for the banner.
#[must_use]
pub fn idle_keys(environment: &Environment) -> Vec<&'static str> {
    if environment.get(MODEL).is_some() {
        return Vec::new();
    }
    [BASE_URL, OPENROUTER_KEY, OPENAI_KEY].into_iter().filter(|name| environment.get(name).is_some()).collect()
}
