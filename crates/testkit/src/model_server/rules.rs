//! What Anthropic's Messages refuses, in its own wording: a request that passes here is accepted by the provider.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Reply, Seen, messages::signature};

/// The fields that a request may have.
const FIELDS: [&str; 15] = [
    "model",
    "messages",
    "max_tokens",
    "system",
    "tools",
    "tool_choice",
    "temperature",
    "top_p",
    "top_k",
    "stop_sequences",
    "stream",
    "thinking",
    "metadata",
    "service_tier",
    "output_config",
];
/// The most cache breakpoints in one request.
const BREAKPOINTS_MAX: usize = 4;

/// The refusal of a request to `/messages`, if it breaks a rule.
pub(super) fn refusal(seen: &Seen) -> Option<Reply> {
    if seen.header("x-api-key").is_none() {
        return Some(Reply::error(401, "x-api-key header is required"));
    }
    if seen.header("anthropic-version") != Some("2023-06-01") {
        return Some(Reply::error(400, "anthropic-version: header is required"));
    }
    refusal_of_messages(&seen.json()).map(|why| Reply::error(400, &why))
}

/// Why Anthropic refuses this body; `None` if it accepts it.
#[must_use]
pub fn refusal_of_messages(body: &Value) -> Option<String> {
    check(body).err()
}

fn check(body: &Value) -> Result<(), String> {
    let fields = body.as_object().ok_or("the body is no object")?;
    if let Some(field) = fields.keys().find(|field| !FIELDS.contains(&field.as_str())) {
        return Err(format!("{field}: Extra inputs are not permitted"));
    }
    require(body["model"].is_string(), "model: Field required")?;
    let max_tokens = body["max_tokens"].as_u64().unwrap_or(0);
    require(max_tokens >= 1, "max_tokens: Field required")?;
    if !body["temperature"].is_null() {
        let is_in_range = body["temperature"].as_f64().is_some_and(|t| (0.0..=1.0).contains(&t));
        require(is_in_range, "temperature: range: 0..1")?;
    }
    for stop in list(&body["stop_sequences"]) {
        let is_filled = stop.as_str().is_some_and(|stop| !stop.trim().is_empty());
        require(is_filled, "stop_sequences: each stop sequence must contain non-whitespace")?;
    }
    for part in list(&body["system"]) {
        check_text(part, "system")?;
    }
    check_tools(body)?;
    check_messages(body)?;
    check_thinking(body, max_tokens)?;
    check_breakpoints(body)
}

fn require(holds: bool, what: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn check_text(block: &Value, location: &str) -> Result<(), String> {
    let is_filled = block["text"].as_str().is_some_and(|text| !text.trim().is_empty());
    require(is_filled, &format!("{location}: text content blocks must contain non-whitespace text"))
}

fn is_name(text: &str, bytes_max: usize) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    !text.is_empty() && text.len() <= bytes_max && text.bytes().all(fits)
}

fn check_tools(body: &Value) -> Result<(), String> {
    let tools = list(&body["tools"]);
    let mut names = BTreeSet::new();
    for tool in tools {
        let name = tool["name"].as_str().unwrap_or_default();
        require(is_name(name, 128), "tools: name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'")?;
        require(names.insert(name), "tools: Tool names must be unique.")?;
        require(tool["input_schema"]["type"] == "object", "tools: input_schema.type: Field required")?;
    }
    let choice = &body["tool_choice"];
    if choice.is_null() {
        return Ok(());
    }
    require(!tools.is_empty(), "tool_choice may only be specified while providing tools.")?;
    let kind = choice["type"].as_str().unwrap_or_default();
    require(matches!(kind, "auto" | "any" | "tool" | "none"), "tool_choice: unknown type")?;
    require(
        kind != "tool" || names.contains(choice["name"].as_str().unwrap_or_default()),
        "tool_choice: no such tool",
    )?;
    let is_extra = kind == "none" && !choice["disable_parallel_tool_use"].is_null();
    require(!is_extra, "tool_choice.none.disable_parallel_tool_use: Extra inputs are not permitted")
}

fn check_messages(body: &Value) -> Result<(), String> {
    let messages = list(&body["messages"]);
    require(!messages.is_empty(), "messages: at least one message is required")?;
    let mut asked: Vec<&str> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let role = if at % 2 == 0 { "user" } else { "assistant" };
        require(message["role"] == role, &format!("messages.{at}: roles must alternate, the first is \"user\""))?;
        if let Some(text) = message["content"].as_str() {
            require(!text.trim().is_empty() && asked.is_empty(), &format!("messages.{at}: content"))?;
            continue;
        }
        let blocks = list(&message["content"]);
        require(!blocks.is_empty(), &format!("messages.{at}: all messages must have non-empty content"))?;
        asked = check_blocks(blocks, role, &asked).map_err(|why| format!("messages.{at}: {why}"))?;
        require(
            asked.is_empty() || !list(&body["tools"]).is_empty(),
            "Requests with tool_use blocks must define tools",
        )?;
    }
    require(asked.is_empty(), "messages: tool_use ids were found without tool_result blocks immediately after")?;
    let last = messages.last().and_then(|message| list(&message["content"]).last());
    let is_prefill = messages.last().is_some_and(|message| message["role"] == "assistant");
    let ends = last.and_then(|block| block["text"].as_str()).unwrap_or_default();
    let is_trimmed = ends.trim_end() == ends;
    require(!is_prefill || is_trimmed, "messages: final assistant content cannot end with trailing whitespace")
}

/// Checks one message's blocks against the calls before it; returns the message's own calls.
fn check_blocks<'a>(blocks: &'a [Value], role: &str, asked: &[&str]) -> Result<Vec<&'a str>, String> {
    let results: BTreeSet<&str> = blocks.iter().filter_map(|block| block["tool_use_id"].as_str()).collect();
    let unanswered: Vec<&&str> = asked.iter().filter(|id| !results.contains(**id)).collect();
    require(
        unanswered.is_empty(),
        &format!("`tool_use` ids were found without `tool_result` blocks immediately after: {unanswered:?}"),
    )?;
    let mut calls = Vec::new();
    let mut has_text = false;
    for block in blocks {
        match (block["type"].as_str().unwrap_or_default(), role) {
            ("text", _) => {
                check_text(block, "content")?;
                has_text = true;
            }
            ("tool_result", "user") => {
                let id = block["tool_use_id"].as_str().unwrap_or_default();
                require(asked.contains(&id), &format!("unexpected `tool_use_id` found in `tool_result` blocks: {id}"))?;
                require(!has_text, "`tool_result` blocks must come first")?;
            }
            ("tool_use", "assistant") => {
                let id = block["id"].as_str().unwrap_or_default();
                require(is_name(id, 512), "tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")?;
                require(!calls.contains(&id), "`tool_use` ids must be unique")?;
                require(block["input"].is_object(), "tool_use.input: Input should be a valid dictionary")?;
                require(is_name(block["name"].as_str().unwrap_or_default(), 200), "tool_use.name")?;
                calls.push(id);
            }
            ("thinking", "assistant") => {
                let thought = block["thinking"].as_str().unwrap_or_default();
                require(block["signature"] == signature(thought).as_str(), "Invalid `signature` in `thinking` block")?;
            }
            ("redacted_thinking", "assistant") => require(block["data"].is_string(), "redacted_thinking.data")?,
            (other, _) => return Err(format!("a block of type {other:?} is not expected from the {role}")),
        }
    }
    Ok(calls)
}

fn check_thinking(body: &Value, max_tokens: u64) -> Result<(), String> {
    let thinking = &body["thinking"];
    if thinking.is_null() || thinking["type"] == "disabled" {
        return Ok(());
    }
    let is_forced = matches!(body["tool_choice"]["type"].as_str(), Some("any" | "tool"));
    require(!is_forced, "Thinking may not be enabled when tool_choice forces tool use.")?;
    let is_hot = body["temperature"].as_f64().is_some_and(|t| t < 1.0);
    require(!is_hot, "`temperature` may only be set to 1 when thinking is enabled.")?;
    if thinking["type"] != "enabled" {
        return Ok(());
    }
    let budget = thinking["budget_tokens"].as_u64().unwrap_or(0);
    require(budget >= 1_024, "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")?;
    require(budget < max_tokens, "`max_tokens` must be greater than `thinking.budget_tokens`.")?;
    // Checks only the calls that are being answered.
    let [.., before, last] = list(&body["messages"]) else { return Ok(()) };
    let is_answer = list(&last["content"]).iter().any(|block| block["type"] == "tool_result");
    let first = list(&before["content"]).first().map_or("", |block| block["type"].as_str().unwrap_or_default());
    require(
        !is_answer || matches!(first, "thinking" | "redacted_thinking"),
        "Expected `thinking` or `redacted_thinking`, but found something else: a final `assistant` message must start \
         with a thinking block",
    )
}

fn check_breakpoints(body: &Value) -> Result<(), String> {
    let messages = list(&body["messages"]).iter().flat_map(|message| list(&message["content"]));
    let blocks = list(&body["tools"]).iter().chain(list(&body["system"])).chain(messages);
    let marks: Vec<&Value> = blocks.map(|block| &block["cache_control"]).filter(|mark| !mark.is_null()).collect();
    require(marks.len() <= BREAKPOINTS_MAX, "A maximum of 4 blocks with cache_control may be provided.")?;
    require(marks.iter().all(|mark| mark["type"] == "ephemeral"), "cache_control.type")?;
    let is_hour: Vec<bool> = marks.iter().map(|mark| mark["ttl"] == "1h").collect();
    require(
        is_hour.is_sorted_by(|before, after| *before || !*after),
        "cache_control: a ttl='1h' block must not come after a ttl='5m' cache_control block",
    )
}
