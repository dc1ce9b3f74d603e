//! Reads the descriptions that model servers give of themselves: llama.cpp, vLLM, Ollama, LM Studio, and any other server
//! that states its context window in the model list. A missing or implausible field is left out.

use annie_core::ports::ServerFacts;
use serde_json::Value;

use crate::config::Profile;

/// A smaller context window, in tokens, is taken for an error and ignored: no prompt would fit into it.
const WINDOW_TOKENS_MIN: u32 = 512;
/// More slots than this are taken for an error and ignored: no server runs so many requests at a time.
const SLOTS_MOST: u32 = 1_024;
/// The window with which Ollama and LM Studio load a model by default, in tokens. They drop the part of a prompt beyond it.
const LOADED_TOKENS_USUAL: u32 = 4_096;
/// Length limit for a name or version that is kept, in characters.
const WORD_CHARS_MAX: usize = 80;

/// A kind of server that describes itself beyond what the protocol requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    LlamaCpp,
    Vllm,
    Ollama,
    LmStudio,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::LlamaCpp => "llama.cpp",
            Self::Vllm => "vLLM",
            Self::Ollama => "Ollama",
            Self::LmStudio => "LM Studio",
        }
    }

    /// The kind as a lower-case identifier.
    pub const fn word(self) -> &'static str {
        match self {
            Self::LlamaCpp => "llamacpp",
            Self::Vllm => "vllm",
            Self::Ollama => "ollama",
            Self::LmStudio => "lmstudio",
        }
    }

    /// The profile with the settings for this kind.
    pub const fn profile(self) -> Profile {
        match self {
            Self::LlamaCpp => Profile::LlamaCpp,
            Self::Vllm => Profile::Vllm,
            Self::Ollama => Profile::Ollama,
            Self::LmStudio => Profile::Generic,
        }
    }

    pub const fn of_profile(profile: Profile) -> Option<Self> {
        match profile {
            Profile::LlamaCpp => Some(Self::LlamaCpp),
            Profile::Vllm => Some(Self::Vllm),
            Profile::Ollama => Some(Self::Ollama),
            _ => None,
        }
    }

    pub fn of_owner(owner: &str) -> Option<Self> {
        match owner.replace('-', "_").as_str() {
            "llamacpp" => Some(Self::LlamaCpp),
            "vllm" => Some(Self::Vllm),
            "library" | "ollama" => Some(Self::Ollama),
            "organization_owner" => Some(Self::LmStudio),
            _ => None,
        }
    }

    /// Records this kind as the server's name.
    pub fn name_in(self, facts: &mut ServerFacts) {
        facts.server = Some(self.name().to_owned());
    }
}

/// Reads `GET /v1/models`: the kind of server, and the facts about this model.
pub(crate) fn models(body: &Value, model: &str, facts: &mut ServerFacts) -> Option<Kind> {
    let list = body["data"].as_array()?;
    let entry = the_model(list, "id", model);
    let owner = entry.or(list.first()).and_then(|e| word(&e["owned_by"]));
    let kind = owner.as_deref().and_then(Kind::of_owner);
    facts.server = kind.map(|kind| kind.name().to_owned()).or(owner);
    if let Some(entry) = entry {
        let window_keys = ["max_model_len", "context_window", "context_length", "max_context_length"];
        facts.context_tokens_max =
            window_keys.iter().find_map(|key| tokens(&entry[key])).or(tokens(&entry["meta"]["n_ctx"]));
        facts.trained_tokens_max = tokens(&entry["meta"]["n_ctx_train"]);
        facts.parameters = entry["meta"]["n_params"].as_u64();
    }
    kind
}

/// Reads llama.cpp's `GET /props`; false if the body is none.
pub(crate) fn llama_cpp(props: &Value, facts: &mut ServerFacts) -> bool {
    let window = tokens(&props["default_generation_settings"]["n_ctx"]);
    let slots = count(&props["total_slots"]);
    if window.is_none() && slots.is_none() {
        return false;
    }
    facts.context_tokens_max = window.or(facts.context_tokens_max);
    facts.slots = slots;
    facts.version = word(&props["build_info"]);
    let by_template = || props["chat_template"].as_str().filter(|t| !t.is_empty()).map(|t| t.contains("tools"));
    facts.tools = props["chat_template_caps"]["supports_tools"].as_bool().or_else(by_template);
    true
}

/// Reads vLLM's `GET /version` or Ollama's `GET /api/version`; false if the body is none.
pub(crate) fn version(body: &Value, facts: &mut ServerFacts) -> bool {
    facts.version = word(&body["version"]);
    facts.version.is_some()
}

/// Reads Ollama's `POST /api/show` and `GET /api/ps`; false if this is not Ollama. The model file's window is not the
/// server's:
/// a loaded model has its own window. A model that is not loaded will get the model file's `num_ctx`, or a default from the
/// server's environment, which the server does not report.
pub(crate) fn ollama(show: &Value, loaded: &Value, model: &str, facts: &mut ServerFacts) -> bool {
    if !loaded["models"].is_array() && !show["model_info"].is_object() {
        return false;
    }
    let info = show["model_info"].as_object();
    let ends = |end: &str| info?.iter().find(|(key, _)| key.ends_with(end)).map(|(_, value)| value);
    facts.trained_tokens_max = ends(".context_length").and_then(tokens);
    facts.parameters = ends("general.parameter_count").and_then(Value::as_u64);
    let of_loaded = loaded["models"].as_array().and_then(|list| {
        let found = the_model(list, "model", model).filter(|found| is_named(found, "model", model));
        found.and_then(|found| tokens(&found["context_length"]))
    });
    let of_file = || {
        let line = show["parameters"].as_str()?.lines().find_map(|line| line.trim().strip_prefix("num_ctx "))?;
        line.trim().parse::<u32>().ok().filter(|n| *n >= WINDOW_TOKENS_MIN)
    };
    window(of_loaded.or_else(of_file), facts);
    facts.tools = show["capabilities"].as_array().map(|list| list.iter().any(|word| word == "tools"));
    true
}

/// Reads LM Studio's `GET /api/v0/models`.
pub(crate) fn lm_studio(body: &Value, model: &str, facts: &mut ServerFacts) {
    let Some(entry) = body["data"].as_array().and_then(|list| the_model(list, "id", model)) else { return };
    facts.trained_tokens_max = tokens(&entry["max_context_length"]);
    window(tokens(&entry["loaded_context_length"]), facts);
    // LM Studio offers tools to every model, but only some models are trained for them.
    let has_tools = |list: &Vec<Value>| list.iter().any(|word| word == "tool_use");
    facts.tools = entry["capabilities"].as_array().filter(|list| has_tools(list)).map(|_| true);
}

/// Records the window of a loaded model, or the probable window of a model that is not loaded.
fn window(loaded: Option<u32>, facts: &mut ServerFacts) {
    let fitted = |tokens: u32| tokens.min(facts.trained_tokens_max.unwrap_or(tokens));
    (facts.context_tokens_max, facts.assumed_tokens_max) = match loaded {
        Some(loaded) => (Some(fitted(loaded)), None),
        None => (None, Some(fitted(LOADED_TOKENS_USUAL))),
    };
}

/// Whether llama.cpp's `GET /props` shows a chat template that opens a thinking block itself. Then replies begin inside the
/// block, unless the server separates thinking from text.
pub(crate) fn opens_thinking(props: &Value) -> bool {
    let template = props["chat_template"].as_str().unwrap_or_default();
    let prompt = template.rsplit_once("add_generation_prompt").map(|(_, prompt)| prompt);
    // Templates with optional thinking contain a closing tag here, for prompts without thinking.
    prompt.is_some_and(|prompt| prompt.contains("<think>") && !prompt.contains("</think>"))
}

/// The entry of the model, or the only entry: a server with one model accepts any model name.
pub(crate) fn the_model<'a>(list: &'a [Value], key: &str, model: &str) -> Option<&'a Value> {
    let named = list.iter().find(|entry| is_named(entry, key, model));
    named.or(list.first().filter(|_| list.len() == 1))
}

fn is_named(entry: &Value, key: &str, model: &str) -> bool {
    // Ollama adds the tag that people leave out.
    entry[key].as_str().is_some_and(|id| id == model || id.strip_suffix(":latest") == Some(model))
}

fn tokens(value: &Value) -> Option<u32> {
    let tokens = value.as_u64()?;
    u32::try_from(tokens).ok().filter(|tokens| *tokens >= WINDOW_TOKENS_MIN)
}

fn count(value: &Value) -> Option<u32> {
    u32::try_from(value.as_u64()?).ok().filter(|n| (1..=SLOTS_MOST).contains(n))
}

fn word(value: &Value) -> Option<String> {
    let word: String = value.as_str()?.chars().filter(|c| !c.is_control()).take(WORD_CHARS_MAX).collect();
    Some(word).filter(|word| !word.trim().is_empty())
}

#[cfg(test)]
mod tests;
