//! What real servers report about themselves, path by path.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Reply;

/// The answers of one kind of server about itself. Every other `GET` is answered with 404.
#[derive(Debug, Clone, Default)]
pub struct Description {
    answers: BTreeMap<String, Value>,
}

impl Description {
    fn of(answers: impl IntoIterator<Item = (&'static str, Value)>) -> Self {
        Self { answers: answers.into_iter().map(|(path, answer)| (path.to_owned(), answer)).collect() }
    }

    /// llama.cpp's server with this window for each of its slots, and a template that supports tools.
    #[must_use]
    pub fn llama_cpp(model: &str, context_tokens: u32, slots: u32) -> Self {
        let meta = json!({"vocab_type": 2, "n_vocab": 151_936, "n_ctx_train": 32_768, "n_embd": 1536,
            "n_params": 1_777_088_000_u64, "size": 1_111_370_240});
        Self::of([
            (
                "/v1/models",
                json!({"models": [{"name": model, "capabilities": ["completion"]}], "object": "list",
                    "data": [{"id": model, "object": "model", "created": 1, "owned_by": "llamacpp", "meta": meta}]}),
            ),
            (
                "/props",
                json!({"default_generation_settings": {"id": 0, "n_ctx": context_tokens, "params": {"temperature": 0.8}},
                    "total_slots": slots, "model_path": model, "build_info": "b5200-0123abc",
                    "chat_template": "{%- if tools %}<tools>{% endif %}",
                    "chat_template_caps": {"supports_tools": true, "supports_tool_calls": true}}),
            ),
        ])
    }

    /// vLLM with this window.
    #[must_use]
    pub fn vllm(model: &str, context_tokens: u32) -> Self {
        Self::of([
            (
                "/v1/models",
                json!({"object": "list", "data": [{"id": model, "object": "model", "created": 1, "owned_by": "vllm",
                    "root": model, "parent": null, "max_model_len": context_tokens}]}),
            ),
            ("/version", json!({"version": "0.33.0"})),
        ])
    }

    /// Ollama, which has loaded the model with this window. Without `tools` the model reports no tool support.
    #[must_use]
    pub fn ollama(model: &str, context_tokens: u32, tools: bool) -> Self {
        let capabilities = if tools { json!(["completion", "tools"]) } else { json!(["completion"]) };
        Self::of([
            (
                "/v1/models",
                json!({"object": "list",
                    "data": [{"id": model, "object": "model", "created": 1, "owned_by": "library"}]}),
            ),
            ("/api/version", json!({"version": "0.40.12"})),
            ("/api/ps", json!({"models": [{"name": model, "model": model, "context_length": context_tokens}]})),
            (
                "/api/show",
                json!({"parameters": "stop \"<|im_end|>\"", "capabilities": capabilities,
                    "details": {"family": "qwen2", "parameter_size": "7.6B"},
                    "model_info": {"general.architecture": "qwen2", "general.parameter_count": 7_615_616_512_u64,
                        "qwen2.context_length": 32_768}}),
            ),
        ])
    }

    /// LM Studio, which has loaded the model with this window.
    #[must_use]
    pub fn lm_studio(model: &str, context_tokens: u32) -> Self {
        Self::of([
            (
                "/v1/models",
                json!({"object": "list", "data": [{"id": model, "object": "model", "owned_by": "organization_owner"}]}),
            ),
            (
                "/api/v0/models",
                json!({"object": "list", "data": [{"id": model, "object": "model", "type": "llm", "publisher": "qwen",
                    "arch": "qwen2", "state": "loaded", "max_context_length": 32_768,
                    "loaded_context_length": context_tokens, "capabilities": ["tool_use"]}]}),
            ),
        ])
    }

    /// Removes the answer at this path.
    #[must_use]
    pub fn without(mut self, path: &str) -> Self {
        self.answers.remove(path);
        self
    }

    /// Adds this to the model's entry in the list of models.
    #[must_use]
    pub fn entry(mut self, key: &str, value: Value) -> Self {
        if let Some(list) = self.answers.get_mut("/v1/models") {
            list["data"][0][key] = value;
        }
        self
    }

    /// Adds this to llama.cpp's `/props`.
    #[must_use]
    pub fn prop(mut self, key: &str, value: Value) -> Self {
        if let Some(props) = self.answers.get_mut("/props") {
            props[key] = value;
        }
        self
    }

    /// The answer to a request about the server; `None` if the path is not one of these.
    pub(super) fn answer(&self, path: &str, is_get: bool) -> Option<Reply> {
        match self.answers.get(path) {
            Some(answer) => Some(Reply::body(200, answer.to_string())),
            None => is_get.then(|| Reply::error(404, "File Not Found")),
        }
    }
}
