//! Facts as llama.cpp, Ollama, vLLM and other servers report them.

use serde_json::json;

use super::*;

#[test]
fn llama_cpp_props_give_window_slots_tools_and_version() {
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
fn template_that_opens_thinking_is_recognised_by_end_of_prompt() {
    for (template, wanted) in [
        ("{% if add_generation_prompt and not ns.is_tool %}{{'<｜Assistant｜><think>\\n'}}{% endif %}", true),
        ("{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n<think>\\n' }}{%- endif %}", true),
        (
            "{%- if add_generation_prompt %}{%- if enable_thinking is false %}{{- '<think>\\n\\n</think>' }}{%- endif %}",
            false,
        ),
        ("{{ '<think>' + thought + '</think>' }}{% if add_generation_prompt %}{{ '<|im_start|>' }}{% endif %}", false),
        ("{{ messages }}", false),
        ("", false),
    ] {
        assert_eq!(opens_thinking(&json!({"chat_template": template})), wanted, "{template}");
    }
    assert!(!opens_thinking(&Value::Null));
}

#[test]
fn vllm_list_gives_window_of_requested_model_only() {
    let list = json!({"data": [{"id": "a", "owned_by": "vllm", "max_model_len": 2048},
        {"id": "b", "owned_by": "vllm", "max_model_len": 40960}]});
    let mut facts = ServerFacts::default();
    assert_eq!(models(&list, "b", &mut facts), Some(Kind::Vllm));
    assert_eq!((facts.context_tokens_max, facts.server.as_deref()), (Some(40_960), Some("vLLM")));
    assert_eq!(models(&list, "c", &mut ServerFacts::default()), Some(Kind::Vllm));
    let mut other = ServerFacts::default();
    models(&list, "c", &mut other);
    assert_eq!(other.context_tokens_max, None, "the requested model is not in the list");
    assert!(version(&json!({"version": "0.33.0"}), &mut facts) && facts.version.as_deref() == Some("0.33.0"));
    assert!(!version(&list, &mut facts));
}

#[test]
fn ollama_window_is_taken_from_loaded_model_before_its_file() {
    let show = |parameters: &str| {
        json!({"parameters": parameters, "capabilities": ["completion", "tools"], "model_info":
            {"general.parameter_count": 7_615_616_512_u64, "qwen2.context_length": 32768, "qwen2.block_count": 28}})
    };
    let facts_of = |show: &Value, loaded: &Value| {
        let mut facts = ServerFacts::default();
        ollama(show, loaded, "qwen2.5", &mut facts);
        facts
    };
    let unloaded = facts_of(&show("stop \"<|im_end|>\""), &json!({"models": []}));
    assert_eq!((unloaded.context_tokens_max, unloaded.trained_tokens_max), (None, Some(32_768)));
    assert_eq!(unloaded.assumed_tokens_max, Some(4_096), "the default is an assumption, not stated by the server");
    let silent = facts_of(&Value::Null, &json!({"models": []}));
    assert_eq!((silent.context_tokens_max, silent.assumed_tokens_max), (None, Some(4_096)));
    assert_eq!((unloaded.tools, unloaded.parameters), (Some(true), Some(7_615_616_512)));
    assert_eq!(facts_of(&show("num_ctx 16384\nstop x"), &Value::Null).context_tokens_max, Some(16_384));
    assert_eq!(
        facts_of(&show("num_ctx 65536"), &Value::Null).context_tokens_max,
        Some(32_768),
        "limited to the trained window"
    );
    assert_eq!(facts_of(&show("num_ctx 16384"), &Value::Null).assumed_tokens_max, None);
    let loaded = json!({"models": [{"model": "other:1b", "context_length": 2048},
        {"model": "qwen2.5:latest", "context_length": 8192}]});
    assert_eq!(facts_of(&show("num_ctx 16384"), &loaded).context_tokens_max, Some(8_192));
    let others = json!({"models": [{"model": "other:1b", "context_length": 2048}]});
    assert_eq!(facts_of(&show("num_ctx 16384"), &others).context_tokens_max, Some(16_384), "another model's window");
    assert_eq!(facts_of(&json!({"capabilities": ["completion"], "model_info": {}}), &Value::Null).tools, Some(false));
    assert_eq!(
        facts_of(&json!({"version": "1"}), &json!({"data": []})),
        ServerFacts::default(),
        "another kind of server"
    );
}

#[test]
fn lm_studio_window_is_taken_from_loaded_model() {
    let list = json!({"data": [
        {"id": "qwen2.5-7b", "state": "loaded", "max_context_length": 32768, "loaded_context_length": 6000,
         "capabilities": ["tool_use"]},
        {"id": "gemma", "state": "not-loaded", "max_context_length": 8192}]});
    let facts_of = |model: &str| {
        let mut facts = ServerFacts::default();
        lm_studio(&list, model, &mut facts);
        (facts.context_tokens_max, facts.assumed_tokens_max, facts.trained_tokens_max, facts.tools)
    };
    assert_eq!(facts_of("qwen2.5-7b"), (Some(6_000), None, Some(32_768), Some(true)));
    assert_eq!(facts_of("gemma"), (None, Some(4_096), Some(8_192), None));
    assert_eq!(facts_of("unknown"), (None, None, None, None));
    let openai = json!({"data": [{"id": "gemma", "owned_by": "organization_owner"}]});
    assert_eq!(models(&openai, "gemma", &mut ServerFacts::default()), Some(Kind::LmStudio));
}

#[test]
fn server_facts_ignore_implausible_values() {
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
