//! The result of a call as the outcome of a run.

use annie_core::{outcome::Outcome, skill::Effect};
use serde_json::{Value, json};

use crate::{
    McpError,
    text::{lines, one_line},
};

/// Length limit of the text of a result, in bytes. The kernel cuts it again, with a notice.
const TEXT_BYTES_MAX: usize = 2 * Outcome::DATA_BYTES_MAX;
/// Length limit of names and addresses within a result, in bytes.
const NAME_BYTES_MAX: usize = 200;

/// The outcome of a call that the server has answered.
pub(crate) fn answered(server: &str, result: &Value) -> Outcome {
    if result["resultType"] == "input_required" {
        let text = format!(
            "The MCP server {server} asks for further input, which Annie does not give. The call is not complete."
        );
        return Outcome::permanent("mcp_input_required", text);
    }
    let text = text_of(result);
    if result["isError"] == Value::Bool(true) {
        let text = if text.is_empty() { "The tool failed and gave no reason.".to_owned() } else { text };
        return Outcome::permanent("tool_error", text);
    }
    Outcome::success(if text.is_empty() { "Done. The tool returned no text.".to_owned() } else { text })
}

/// The outcome of a call without an answer. A tool that may have run is never called again silently.
pub(crate) fn failed(server: &str, tool: &str, effect: Effect, why: &McpError) -> Outcome {
    let text = format!("The MCP server {server} did not carry out {tool}: {why}.");
    if effect != Effect::Read && !why.is_without_effect() {
        let text = format!("It is not known whether the MCP server {server} carried out {tool}: {why}.");
        return Outcome::unknown(text, json!({"server": server, "tool": tool, "broke_off": why.code()}));
    }
    match why {
        McpError::Refused { code: -32_602, .. } => Outcome::permanent("invalid_arguments", text),
        why if why.is_transient() => Outcome::transient(why.code(), text),
        why => Outcome::permanent(why.code(), text),
    }
}

/// The content of a result as text, or its structured content if there is no other.
fn text_of(result: &Value) -> String {
    let parts: Vec<String> = result["content"].as_array().into_iter().flatten().map(part).collect();
    let mut text = parts.join("\n");
    if text.trim().is_empty() && result["structuredContent"].is_object() {
        text = result["structuredContent"].to_string();
    }
    lines(&text, TEXT_BYTES_MAX).trim().to_owned()
}

fn part(content: &Value) -> String {
    let text = |value: &Value| one_line(value.as_str().unwrap_or_default(), NAME_BYTES_MAX);
    let encoded = |data: &Value| data.as_str().unwrap_or_default().len() / 4 * 3;
    match content["type"].as_str().unwrap_or_default() {
        "text" => content["text"].as_str().unwrap_or_default().to_owned(),
        kind @ ("image" | "audio") => {
            format!("[{kind} {}, about {} bytes]", text(&content["mimeType"]), encoded(&content["data"]))
        }
        "resource" => {
            let resource = &content["resource"];
            match resource["text"].as_str() {
                Some(text) => text.to_owned(),
                None => format!("[resource {}, about {} bytes]", text(&resource["uri"]), encoded(&resource["blob"])),
            }
        }
        "resource_link" => format!("[resource {}: {}]", text(&content["uri"]), text(&content["name"])),
        _ => "[content of an unknown kind]".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use annie_core::outcome::Status;

    use super::*;

    #[test]
    fn result_of_a_tool_is_its_text_or_its_error() {
        let outcome = |result: Value| answered("fake", &result);
        let image = json!({"type": "image", "mimeType": "image/png", "data": "AAAA"});
        let text = json!({"content": [{"type": "text", "text": "one"}, image]});
        assert_eq!(outcome(text).data, "one\n[image image/png, about 3 bytes]");
        assert_eq!(outcome(json!({"content": [], "structuredContent": {"sum": 3}})).data, "{\"sum\":3}");
        assert_eq!(outcome(json!({})).data, "Done. The tool returned no text.");
        let failed = outcome(json!({"isError": true, "content": [{"type": "text", "text": "no such city"}]}));
        assert_eq!(
            (failed.status, failed.error_type.as_deref(), failed.data.as_str()),
            (Status::ErrorPermanent, Some("tool_error"), "no such city")
        );
        assert!(!failed.counts_against_the_skill());
        assert_eq!(outcome(json!({"resultType": "input_required"})).error_type.as_deref(), Some("mcp_input_required"));
    }

    #[test]
    fn call_without_an_answer_is_in_doubt_unless_it_reads_or_was_not_sent() {
        let of = |effect, why: McpError| failed("fake", "put", effect, &why).status;
        let ended = || McpError::Ended("it died".to_owned());
        assert_eq!(of(Effect::Once, ended()), Status::Unknown);
        assert_eq!(of(Effect::Idempotent, McpError::Timeout { ms_max: 1 }), Status::Unknown);
        assert_eq!(of(Effect::Once, McpError::TooLarge { bytes_max: 1 }), Status::Unknown);
        assert_eq!(of(Effect::Once, McpError::Http(500)), Status::Unknown);
        assert_eq!(of(Effect::Read, ended()), Status::ErrorTransient);
        assert_eq!(of(Effect::Once, McpError::Away("no".to_owned())), Status::ErrorTransient);
        assert_eq!(
            of(Effect::Once, McpError::Refused { code: -32_602, message: String::new() }),
            Status::ErrorPermanent
        );
        assert_eq!(of(Effect::Once, McpError::Refused { code: -32_603, message: String::new() }), Status::Unknown);
    }
}
