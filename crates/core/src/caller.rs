//! Request parameters of a program that uses the kernel as a model (OpenAI's API): sampling, answer format, and the
//! program's own tools. They are stored with the message, so that a replay sends the same request to the model.

use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

use crate::{
    effort::Effort,
    json_schema,
    message::{Message, ToolDef},
};

/// Sampling parameters. Numbers are kept as they were written, so that a JSON round trip does not change them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sampling {
    /// From 0 to 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<Number>,
    /// From 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<Number>,
    /// From -2 to 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub presence_penalty: Option<Number>,
    /// From -2 to 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frequency_penalty: Option<Number>,
    /// Makes sampling repeatable on backends that support a seed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// Stop sequences: texts that end the answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// Maximum length of a reply, in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens_max: Option<u32>,
}

/// The format that the answer must have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AnswerFormat {
    /// Any JSON object.
    JsonObject,
    /// JSON that conforms to a schema.
    JsonSchema {
        /// The schema's name.
        name: String,
        /// Description of the answer's purpose, sent to the backend.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<String>,
        /// The schema.
        schema: Value,
        /// Whether the backend is asked to enforce the schema strictly. The kernel validates the answer in any case.
        #[serde(default)]
        strict: bool,
    },
}

impl AnswerFormat {
    /// Extracts the requested JSON from the answer. Removes a code fence around it, which models often add.
    ///
    /// # Errors
    /// The reasons why the answer does not conform.
    pub fn check(&self, text: &str) -> Result<String, Vec<String>> {
        let text = unfenced(text);
        let value: Value = serde_json::from_str(text).map_err(|e| vec![format!("it is not valid JSON: {e}")])?;
        match self {
            Self::JsonObject if value.is_object() => Ok(text.to_owned()),
            Self::JsonObject => Err(vec!["it must be a JSON object".to_owned()]),
            Self::JsonSchema { schema, .. } => json_schema::validate(schema, &value).map(|()| text.to_owned()),
        }
    }

    /// The instruction to the model about the format, for backends that have no parameter for it.
    #[must_use]
    pub fn instruction(&self) -> String {
        match self {
            Self::JsonObject => {
                "Your final answer must be one JSON object and nothing else: no words around it.".to_owned()
            }
            Self::JsonSchema { schema, .. } => format!(
                "Your final answer must be JSON that fits this JSON Schema, and nothing else: no words around it.\n{schema}"
            ),
        }
    }
}

/// Returns the content of a text that is one fenced block.
fn unfenced(text: &str) -> &str {
    let text = text.trim();
    let inside = text.strip_prefix("```").and_then(|t| t.strip_suffix("```"));
    let Some(inside) = inside else { return text };
    inside.strip_prefix("json").or_else(|| inside.strip_prefix("JSON")).unwrap_or(inside).trim()
}

/// Whether a model must call a tool, and which.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    /// The model decides.
    Auto,
    /// The model must not call a tool.
    None,
    /// The model must call some tool.
    Required,
    /// The model must call this tool.
    Tool(String),
}

/// Parameters sent to the backend in addition to prompts, messages and tools.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CallOptions {
    /// Sampling parameters.
    pub sampling: Sampling,
    /// The format of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<AnswerFormat>,
    /// Whether the model must call a tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
    /// Whether one reply may contain several calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_tool_calls: Option<bool>,
    /// The round's messages and tools come from the caller, not from Annie.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_thread: bool,
    /// A reply to this request was truncated at the usual length. The next one may be longer, if the backend allows it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub has_more_output: bool,
    /// How hard the model should think.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<Effort>,
}

impl CallOptions {
    /// Whether no parameter is set.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A conversation whose history the caller keeps. Every request carries the whole history, and the turn uses nothing else.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// The system messages among the caller's messages, in place of Annie's own instructions. They belong to the
    /// conversation and stay in force for its later turns; [`CallerRequest::instructions`] belong to one request.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub system: String,
    /// The messages, oldest first. The last one is from the user or is the result of a tool.
    pub messages: Vec<Message>,
    /// The caller's tools. A call of one of them ends the turn; the caller's next request carries the result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolDef>,
    /// Whether Annie's skills are offered in addition.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub with_skills: bool,
}

impl Thread {
    /// The caller's tool of this name.
    #[must_use]
    pub fn tool(&self, name: &str) -> Option<&ToolDef> {
        self.tools.iter().find(|t| t.name == name)
    }

    /// Size of all its text, in bytes.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        let tool = |t: &ToolDef| t.name.len() + t.description.len() + t.parameters.to_string().len();
        let messages: usize = self.messages.iter().map(Message::len_bytes).sum();
        self.system.len() + messages + self.tools.iter().map(tool).sum::<usize>()
    }
}

/// Everything a program requests in addition to the message's text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallerRequest {
    /// Parameters for the rounds of the agent that answers.
    #[serde(default, skip_serializing_if = "CallOptions::is_default")]
    pub options: CallOptions,
    /// Instructions for this turn, placed after Annie's own or before those of the thread.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub instructions: String,
    /// The conversation, if the caller keeps its history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<Thread>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn answer_format_check_accepts_requested_json_with_or_without_fence() {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
        let format = AnswerFormat::JsonSchema { name: "n".into(), description: None, schema, strict: true };
        for text in ["{\"n\": 1}", " {\"n\": 1}\n", "```json\n{\"n\": 1}\n```", "```\n{\"n\": 1}```"] {
            assert_eq!(format.check(text), Ok("{\"n\": 1}".to_owned()), "{text}");
        }
        for text in ["", "Here: {\"n\": 1}", "{\"n\": \"1\"}", "{}", "```json\n{\"n\": 1}"] {
            assert!(format.check(text).is_err(), "{text}");
        }
        assert!(AnswerFormat::JsonObject.check("{}").is_ok() && AnswerFormat::JsonObject.check("[]").is_err());
    }

    #[test]
    fn caller_request_round_trips_through_json_and_omits_defaults() {
        let request = CallerRequest {
            options: CallOptions {
                sampling: Sampling {
                    temperature: serde_json::from_str("0.1").ok(),
                    stop: vec!["END".into()],
                    ..Sampling::default()
                },
                format: Some(AnswerFormat::JsonObject),
                tool_choice: Some(ToolChoice::Tool("add".into())),
                parallel_tool_calls: Some(false),
                is_thread: false,
                has_more_output: false,
                effort: Some(Effort::High),
            },
            instructions: "Be brief.".into(),
            thread: Some(Thread { messages: vec![Message::user("hi")], ..Thread::default() }),
        };
        let text = serde_json::to_string(&request).unwrap();
        assert_eq!(serde_json::from_str::<CallerRequest>(&text).unwrap(), request);
        assert_eq!(serde_json::to_string(&CallerRequest::default()).unwrap(), "{}");
    }
}
