//! What a program that uses the kernel as a model asks of one answer (OpenAI's request parameters): how it is sampled, which
//! form it has, and the program's own tools. It is stored with the message, so that a replay asks a model the same.

use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

use crate::{
    json_schema,
    message::{Message, ToolDef},
};

/// How a model chooses its words. Numbers are kept as they were written, so that they come back the same from JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sampling {
    /// 0 to 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<Number>,
    /// 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<Number>,
    /// -2 to 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub presence_penalty: Option<Number>,
    /// -2 to 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frequency_penalty: Option<Number>,
    /// For samples that can be repeated, where the backend can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// Texts that end the answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// The longest reply, in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens_max: Option<u32>,
}

/// Which form an answer has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AnswerFormat {
    /// Any JSON object.
    JsonObject,
    /// JSON that fits a schema.
    JsonSchema {
        /// The schema's name.
        name: String,
        /// What the answer is for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<String>,
        /// The schema.
        schema: Value,
        /// Whether the backend is asked to follow it to the letter. The kernel validates in any case.
        #[serde(default)]
        strict: bool,
    },
}

impl AnswerFormat {
    /// The answer as the JSON that was asked for. A code fence around it, which models like to write, is taken away.
    ///
    /// # Errors
    /// Why it does not fit.
    pub fn check(&self, text: &str) -> Result<String, Vec<String>> {
        let text = unfenced(text);
        let value: Value = serde_json::from_str(text).map_err(|e| vec![format!("it is not valid JSON: {e}")])?;
        match self {
            Self::JsonObject if value.is_object() => Ok(text.to_owned()),
            Self::JsonObject => Err(vec!["it must be a JSON object".to_owned()]),
            Self::JsonSchema { schema, .. } => json_schema::validate(schema, &value).map(|()| text.to_owned()),
        }
    }

    /// What the model is told of it, for backends that cannot be told otherwise.
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

/// The inside of a text that is one fenced block.
fn unfenced(text: &str) -> &str {
    let text = text.trim();
    let inside = text.strip_prefix("```").and_then(|t| t.strip_suffix("```"));
    let Some(inside) = inside else { return text };
    inside.strip_prefix("json").or_else(|| inside.strip_prefix("JSON")).unwrap_or(inside).trim()
}

/// Whether a model must call, and what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    /// As it likes.
    Auto,
    /// It must not.
    None,
    /// It must call something.
    Required,
    /// It must call this tool.
    Tool(String),
}

/// What goes to the backend beside prompts, messages and tools.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CallOptions {
    /// How it is sampled.
    pub sampling: Sampling,
    /// The answer's form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<AnswerFormat>,
    /// Whether it must call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
    /// Whether one reply may have several calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_tool_calls: Option<bool>,
    /// The messages and tools of the round are the caller's, not Annie's.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_thread: bool,
    /// A reply to this request was cut off at the usual length: this one may be longer, where the backend allows it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub has_more_output: bool,
}

impl CallOptions {
    /// Whether nothing is asked for.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A conversation that the caller keeps: every request brings all of it, and the turn runs on nothing else.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// The system messages among the caller's messages, in place of Annie's own instructions. They belong to the conversation
    /// and go on with it; [`CallerRequest::instructions`] belong to one request.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub system: String,
    /// The messages, oldest first; the last is the user's or a tool's result.
    pub messages: Vec<Message>,
    /// The caller's tools. A call of one ends the turn, and the caller's next request brings its result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolDef>,
    /// Annie's skills are offered beside them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub with_skills: bool,
}

impl Thread {
    /// The caller's tool of this name.
    #[must_use]
    pub fn tool(&self, name: &str) -> Option<&ToolDef> {
        self.tools.iter().find(|t| t.name == name)
    }

    /// How many bytes of text it carries.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        let tool = |t: &ToolDef| t.name.len() + t.description.len() + t.parameters.to_string().len();
        let messages: usize = self.messages.iter().map(Message::len_bytes).sum();
        self.system.len() + messages + self.tools.iter().map(tool).sum::<usize>()
    }
}

/// What a program asks beside its message's text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallerRequest {
    /// What goes to the backend with the rounds of the agent that answers.
    #[serde(default, skip_serializing_if = "CallOptions::is_default")]
    pub options: CallOptions,
    /// Instructions for this turn, behind Annie's own or before those of the thread.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub instructions: String,
    /// The conversation, where the caller keeps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<Thread>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_is_the_json_that_was_asked_for_with_or_without_a_fence() {
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
    fn a_request_survives_its_own_json_and_is_empty_where_nothing_was_asked() {
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
            },
            instructions: "Be brief.".into(),
            thread: Some(Thread { messages: vec![Message::user("hi")], ..Thread::default() }),
        };
        let text = serde_json::to_string(&request).unwrap();
        assert_eq!(serde_json::from_str::<CallerRequest>(&text).unwrap(), request);
        assert_eq!(serde_json::to_string(&CallerRequest::default()).unwrap(), "{}");
    }
}
