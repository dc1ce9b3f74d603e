//! Reads what the usual model servers say of themselves: llama.cpp, vLLM, Ollama, LM Studio, and whoever else tells its
//! window in the list of models. A field that is missing or makes no sense is left out.

use annie_core::ports::ServerFacts;
use serde_json::Value;

use crate::config::Profile;

/// No prompt fits into less: a smaller window is a mistake, and not believed. In tokens.
const WINDOW_TOKENS_MIN: u32 = 512;
/// No server works on more requests at a time; more is a mistake.
const SLOTS_MOST: u32 = 1_024;
/// What Ollama and LM Studio load a model with unless they are told otherwise, in tokens. What is beyond it they drop.
const LOADED_TOKENS_USUAL: u32 = 4_096;
/// The longest name or version that is kept, in characters.
const WORD_CHARS_MAX: usize = 80;

/// A kind of server that says more of itself than the protocol asks for.
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

    /// The word for it in a name.
    pub const fn word(self) -> &'static str {
        match self {
            Self::LlamaCpp => "llamacpp",
            Self::Vllm => "vllm",
            Self::Ollama => "ollama",
            Self::LmStudio => "lmstudio",
        }
    }

    /// The settings for it.
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

    /// Notes that the server is of this kind.
    pub fn name_in(self, facts: &mut ServerFacts) {
        facts.server = Some(self.name().to_owned());
    }
}

/// `GET /v1/models`: the kind of server, and what it says of this model.
pub(crate) fn models(body: &Value, model: &str, facts: &mut ServerFacts) -> Option<Kind> {
    let list = body["data"].as_array()?;
    let entry = the_model(list, "id", model);
    let owner = entry.or(list.first()).and_then(|e| word(&e["owned_by"]));
    let kind = owner.as_deref().and_then(Kind::of_owner);
    facts.server = kind.map(|kind| kind.name().to_owned()).or(owner);
    if let Some(entry) = entry {
        let said = ["max_model_len", "context_window", "context_length", "max_context_length"];
        facts.context_tokens_max = said.iter().find_map(|key| tokens(&entry[key])).or(tokens(&entry["meta"]["n_ctx"]));
        facts.trained_tokens_max = tokens(&entry["meta"]["n_ctx_train"]);
        facts.parameters = entry["meta"]["n_params"].as_u64();
    }
    kind
}

/// llama.cpp's `GET /props`; false if it is none.
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

/// `GET /version` of vLLM, `GET /api/version` of Ollama; false if it is none.
pub(crate) fn version(body: &Value, facts: &mut ServerFacts) -> bool {
    facts.version = word(&body["version"]);
    facts.version.is_some()
}

/// Ollama's `POST /api/show` and `GET /api/ps`. The window of the model file is not that of the server: a loaded model has its
/// own, and one that is not loaded will get the model file's `num_ctx`, or an environment's that the server does not tell. False if this is not Ollama.
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

/// LM Studio's `GET /api/v0/models`.
pub(crate) fn lm_studio(body: &Value, model: &str, facts: &mut ServerFacts) {
    let Some(entry) = body["data"].as_array().and_then(|list| the_model(list, "id", model)) else { return };
    facts.trained_tokens_max = tokens(&entry["max_context_length"]);
    window(tokens(&entry["loaded_context_length"]), facts);
    // It offers tools to every model, only some are trained for them.
    let has_tools = |list: &Vec<Value>| list.iter().any(|word| word == "tool_use");
    facts.tools = entry["capabilities"].as_array().filter(|list| has_tools(list)).map(|_| true);
}

/// Notes the window of a model that is loaded, or what a model that is not will probably get.
fn window(said: Option<u32>, facts: &mut ServerFacts) {
    let fitted = |tokens: u32| tokens.min(facts.trained_tokens_max.unwrap_or(tokens));
    (facts.context_tokens_max, facts.assumed_tokens_max) = match said {
        Some(said) => (Some(fitted(said)), None),
        None => (None, Some(fitted(LOADED_TOKENS_USUAL))),
    };
}

/// Whether llama.cpp's `GET /props` shows a template that opens thinking itself: its replies begin inside it then, if the
/// server does not tell thinking apart.
pub(crate) fn opens_thinking(props: &Value) -> bool {
    let template = props["chat_template"].as_str().unwrap_or_default();
    let prompt = template.rsplit_once("add_generation_prompt").map(|(_, prompt)| prompt);
    // Templates that can do without thinking close it at once in that case.
    prompt.is_some_and(|prompt| prompt.contains("<think>") && !prompt.contains("</think>"))
}

/// The entry of a model, or the only one: servers of one model do not mind what it is called.
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
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn llama_cpp_props_tell_window_slots_tools_and_version() {
        let list = json!({"object": "list", "data": [{"id": "/m/qwen.gguf", "owned_by": "llamacpp",
            "meta": {"n_ctx": 8192, "n_ctx_train": 32768, "n_params": 1_777_088_000_u64}}]});
        let mut facts = ServerFacts::default();
        assert_eq!(models(&list, "whatever", &mut facts), Some(Kind::LlamaCpp));
        assert_eq!((facts.context_tokens_max, facts.trained_tokens_max), (Some(8_192), Some(32_768)));
        let props = json!({"default_generation_settings": {"n_ctx": 4096, "params": {}}, "total_slots": 2,
            "build_info": "b5200-abc", "chat_template": "no such word",
            "chat_template_caps": {"supports_tools": true}});
        assert!(llama_cpp(&props, &mut facts));
        assert_eq!((facts.context_tokens_max, facts.slots, facts.tools), (Some(4_096), Some(2), Some(true)));
        assert_eq!((facts.version.as_deref(), facts.parameters), (Some("b5200-abc"), Some(1_777_088_000)));
        let by_template = |template: &str| {
            let mut facts = ServerFacts::default();
            let props = json!({"total_slots": 1, "chat_template": template});
            assert!(llama_cpp(&props, &mut facts));
            facts.tools
        };
        assert_eq!(
            (by_template("{% if tools %}"), by_template("{{ text }}"), by_template("")),
            (Some(true), Some(false), None)
        );
        assert!(!llama_cpp(&list, &mut facts), "a list of models is no /props");
    }

    #[test]
    fn template_that_opens_thinking_is_known_by_the_end_of_its_prompt() {
        for (template, wanted) in [
            ("{% if add_generation_prompt and not ns.is_tool %}{{'<｜Assistant｜><think>\\n'}}{% endif %}", true),
            ("{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n<think>\\n' }}{%- endif %}", true),
            (
                "{%- if add_generation_prompt %}{%- if enable_thinking is false %}{{- '<think>\\n\\n</think>' }}{%- endif %}",
                false,
            ),
            (
                "{{ '<think>' + thought + '</think>' }}{% if add_generation_prompt %}{{ '<|im_start|>' }}{% endif %}",
                false,
            ),
            ("{{ messages }}", false),
            ("", false),
        ] {
            assert_eq!(opens_thinking(&json!({"chat_template": template})), wanted, "{template}");
        }
        assert!(!opens_thinking(&Value::Null));
    }

    #[test]
    fn vllm_list_tells_the_window_of_the_asked_model_only() {
        let list = json!({"data": [{"id": "a", "owned_by": "vllm", "max_model_len": 2048},
            {"id": "b", "owned_by": "vllm", "max_model_len": 40960}]});
        let mut facts = ServerFacts::default();
        assert_eq!(models(&list, "b", &mut facts), Some(Kind::Vllm));
        assert_eq!((facts.context_tokens_max, facts.server.as_deref()), (Some(40_960), Some("vLLM")));
        assert_eq!(models(&list, "c", &mut ServerFacts::default()), Some(Kind::Vllm));
        let mut other = ServerFacts::default();
        models(&list, "c", &mut other);
        assert_eq!(other.context_tokens_max, None, "nobody knows which one is meant");
        assert!(version(&json!({"version": "0.33.0"}), &mut facts) && facts.version.as_deref() == Some("0.33.0"));
        assert!(!version(&list, &mut facts));
    }

    #[test]
    fn ollama_window_is_that_of_the_loaded_model_and_not_of_its_file() {
        let show = |parameters: &str| {
            json!({"parameters": parameters, "capabilities": ["completion", "tools"], "model_info":
                {"general.parameter_count": 7_615_616_512_u64, "qwen2.context_length": 32768, "qwen2.block_count": 28}})
        };
        let told = |show: &Value, loaded: &Value| {
            let mut facts = ServerFacts::default();
            ollama(show, loaded, "qwen2.5", &mut facts);
            facts
        };
        let unloaded = told(&show("stop \"<|im_end|>\""), &json!({"models": []}));
        assert_eq!((unloaded.context_tokens_max, unloaded.trained_tokens_max), (None, Some(32_768)));
        assert_eq!(unloaded.assumed_tokens_max, Some(4_096), "a guess is no word of the server");
        let silent = told(&Value::Null, &json!({"models": []}));
        assert_eq!((silent.context_tokens_max, silent.assumed_tokens_max), (None, Some(4_096)));
        assert_eq!((unloaded.tools, unloaded.parameters), (Some(true), Some(7_615_616_512)));
        assert_eq!(told(&show("num_ctx 16384\nstop x"), &Value::Null).context_tokens_max, Some(16_384));
        assert_eq!(told(&show("num_ctx 65536"), &Value::Null).context_tokens_max, Some(32_768), "the model ends there");
        assert_eq!(told(&show("num_ctx 16384"), &Value::Null).assumed_tokens_max, None);
        let loaded = json!({"models": [{"model": "other:1b", "context_length": 2048},
            {"model": "qwen2.5:latest", "context_length": 8192}]});
        assert_eq!(told(&show("num_ctx 16384"), &loaded).context_tokens_max, Some(8_192));
        let others = json!({"models": [{"model": "other:1b", "context_length": 2048}]});
        assert_eq!(told(&show("num_ctx 16384"), &others).context_tokens_max, Some(16_384), "another model's window");
        assert_eq!(told(&json!({"capabilities": ["completion"], "model_info": {}}), &Value::Null).tools, Some(false));
        assert_eq!(
            told(&json!({"version": "1"}), &json!({"data": []})),
            ServerFacts::default(),
            "another kind of server"
        );
    }

    #[test]
    fn lm_studio_window_is_the_loaded_one() {
        let list = json!({"data": [
            {"id": "qwen2.5-7b", "state": "loaded", "max_context_length": 32768, "loaded_context_length": 6000,
             "capabilities": ["tool_use"]},
            {"id": "gemma", "state": "not-loaded", "max_context_length": 8192}]});
        let told = |model: &str| {
            let mut facts = ServerFacts::default();
            lm_studio(&list, model, &mut facts);
            (facts.context_tokens_max, facts.assumed_tokens_max, facts.trained_tokens_max, facts.tools)
        };
        assert_eq!(told("qwen2.5-7b"), (Some(6_000), None, Some(32_768), Some(true)));
        assert_eq!(told("gemma"), (None, Some(4_096), Some(8_192), None));
        assert_eq!(told("unknown"), (None, None, None, None));
        let openai = json!({"data": [{"id": "gemma", "owned_by": "organization_owner"}]});
        assert_eq!(models(&openai, "gemma", &mut ServerFacts::default()), Some(Kind::LmStudio));
    }

    #[test]
    fn values_that_make_no_sense_are_left_out() {
        let list = json!({"data": [{"id": "m", "owned_by": "x\u{1b}[2J", "max_model_len": 7}]});
        let mut facts = ServerFacts::default();
        assert_eq!(models(&list, "m", &mut facts), None);
        assert_eq!((facts.context_tokens_max, facts.server.as_deref()), (None, Some("x[2J")));
        let props = json!({"default_generation_settings": {"n_ctx": "8192"}, "total_slots": 0});
        assert!(!llama_cpp(&props, &mut facts) && facts.slots.is_none());
        for nonsense in [json!(null), json!([]), json!({"data": {}}), json!({"data": [1]})] {
            let mut facts = ServerFacts::default();
            assert_eq!(models(&nonsense, "m", &mut facts), None);
            assert_eq!(facts, ServerFacts::default(), "{nonsense}");
        }
    }
}
