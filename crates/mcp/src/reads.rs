//! What a server offers beside its tools: resources and prompts. Annie offers the methods of the protocol that read them as tools of
//! the server, if the server says that it has any. Their definitions are Annie's own, so none is approved. A prompt is text of
//! the server, which is shown as a result: it is no instruction of the user.

use serde_json::{Map, Value, json};

use crate::text::one_line;

/// Length limit of one line of a list, in bytes.
const LINE_BYTES_MAX: usize = 400;

/// A method of the protocol behind a skill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    /// A tool of the server.
    CallTool,
    ListResources,
    ReadResource,
    ListPrompts,
    GetPrompt,
}

impl Method {
    /// The methods that read what a server has.
    pub(crate) fn offered(capabilities: &Value) -> Vec<Self> {
        let has = |what: &str| capabilities[what].is_object();
        let resources = [Self::ListResources, Self::ReadResource].into_iter().filter(|_| has("resources"));
        resources.chain([Self::ListPrompts, Self::GetPrompt].into_iter().filter(|_| has("prompts"))).collect()
    }

    /// The name on the wire.
    pub(crate) const fn wire(self) -> &'static str {
        match self {
            Self::CallTool => "tools/call",
            Self::ListResources => "resources/list",
            Self::ReadResource => "resources/read",
            Self::ListPrompts => "prompts/list",
            Self::GetPrompt => "prompts/get",
        }
    }

    /// The definition as a tool; nothing for a tool of the server, which has its own.
    pub(crate) fn definition(self) -> Value {
        let text = |about: &str| json!({"type": "string", "description": about});
        let cursor = || json!({"cursor": text("Continue a list: the cursor at its end.")});
        let (name, about, properties, required) = match self {
            Self::CallTool => return Value::Null,
            Self::ListResources => ("list_resources", "List the resources of the server.", cursor(), json!([])),
            Self::ReadResource => (
                "read_resource",
                "Read a resource of the server by its URI, as list_resources shows it.",
                json!({"uri": text("The URI.")}),
                json!(["uri"]),
            ),
            Self::ListPrompts => {
                ("list_prompts", "List the prompts of the server with their arguments.", cursor(), json!([]))
            }
            Self::GetPrompt => (
                "get_prompt",
                "Read a prompt of the server, filled with arguments, as list_prompts shows them.",
                json!({"name": text("The name."), "arguments": {"type": "object", "description": "Texts by name."}}),
                json!(["name"]),
            ),
        };
        let schema = json!({"type": "object", "properties": properties, "required": required});
        json!({"name": name, "description": about, "inputSchema": schema})
    }

    /// The parameters of a request. `name` is the server's name of a tool.
    pub(crate) fn params(self, name: &str, arguments: Value) -> Value {
        match self {
            Self::CallTool => json!({"name": name, "arguments": arguments}),
            Self::ListResources | Self::ReadResource | Self::ListPrompts => arguments,
            Self::GetPrompt => {
                // The arguments of a prompt are texts.
                let given = arguments["arguments"].as_object().cloned().unwrap_or_default();
                let texts: Map<String, Value> = given
                    .into_iter()
                    .map(|(key, value)| (key, value.as_str().map_or_else(|| value.to_string(), str::to_owned).into()))
                    .collect();
                json!({"name": arguments["name"], "arguments": texts})
            }
        }
    }

    /// A result in the form of that of a tool.
    pub(crate) fn result(self, result: Value) -> Value {
        if result["resultType"] == "input_required" {
            return result;
        }
        let content = match self {
            Self::CallTool => return result,
            Self::ListResources => vec![text(&resources(&result))],
            Self::ListPrompts => vec![text(&prompts(&result))],
            Self::ReadResource => {
                let contents = result["contents"].as_array().into_iter().flatten();
                contents.map(|resource| json!({"type": "resource", "resource": resource})).collect()
            }
            Self::GetPrompt => {
                let messages = result["messages"].as_array().into_iter().flatten();
                messages.flat_map(|message| [text(&role(&message["role"])), message["content"].clone()]).collect()
            }
        };
        json!({"content": content})
    }
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn role(role: &Value) -> String {
    format!("[{}]", one_line(role.as_str().unwrap_or("user"), LINE_BYTES_MAX))
}

fn line(text: &str) -> String {
    format!("- {}", one_line(text, LINE_BYTES_MAX))
}

fn word<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn resources(result: &Value) -> String {
    let one = |resource: &Value, uri: &str| {
        let about = word(resource, "description");
        let about = if about.is_empty() { String::new() } else { format!(": {about}") };
        line(&format!("{} ({}){about}", word(resource, uri), word(resource, "name")))
    };
    let mut lines: Vec<String> =
        result["resources"].as_array().into_iter().flatten().map(|resource| one(resource, "uri")).collect();
    if lines.is_empty() {
        lines.push("The server lists no resources.".to_owned());
    }
    let templates = result["resourceTemplates"].as_array().filter(|templates| !templates.is_empty());
    if let Some(templates) = templates {
        lines.push("Patterns of further URIs:".to_owned());
        lines.extend(templates.iter().map(|template| one(template, "uriTemplate")));
    }
    with_cursor(lines, result)
}

fn prompts(result: &Value) -> String {
    let argument = |argument: &Value| {
        let needed = if argument["required"] == true { ", required" } else { "" };
        format!("{}{needed}", word(argument, "name"))
    };
    let one = |prompt: &Value| {
        let arguments: Vec<String> = prompt["arguments"].as_array().into_iter().flatten().map(argument).collect();
        let arguments =
            if arguments.is_empty() { String::new() } else { format!(" (arguments: {})", arguments.join("; ")) };
        line(&format!("{}{arguments}: {}", word(prompt, "name"), word(prompt, "description")))
    };
    let mut lines: Vec<String> = result["prompts"].as_array().into_iter().flatten().map(one).collect();
    if lines.is_empty() {
        lines.push("The server lists no prompts.".to_owned());
    }
    with_cursor(lines, result)
}

fn with_cursor(mut lines: Vec<String>, result: &Value) -> String {
    if let Some(cursor) = result["nextCursor"].as_str().filter(|cursor| !cursor.is_empty()) {
        lines.push(format!("There are more: cursor {}", one_line(cursor, LINE_BYTES_MAX)));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_that_read_are_offered_for_what_the_server_has() {
        assert_eq!(Method::offered(&json!({"tools": {}})), []);
        let resources = Method::offered(&json!({"resources": {"subscribe": true}}));
        assert_eq!(resources, [Method::ListResources, Method::ReadResource]);
        assert_eq!(Method::offered(&json!({"resources": {}, "prompts": {}})).len(), 4);
    }

    #[test]
    fn results_of_methods_that_read_are_texts() {
        let texts = |method: Method, result: Value| {
            let content = method.result(result)["content"].as_array().cloned().unwrap();
            let text =
                |part: &Value| part["text"].as_str().or_else(|| part["resource"]["text"].as_str()).unwrap().to_owned();
            content.iter().map(text).collect::<Vec<_>>().join("\n")
        };
        let listed = json!({
            "resources": [{"uri": "a://1", "name": "One", "description": "The\n<b>first</b>"}],
            "resourceTemplates": [{"uriTemplate": "a://{n}", "name": "All"}],
            "nextCursor": "p2",
        });
        assert_eq!(
            texts(Method::ListResources, listed),
            "- a://1 (One): The \u{2039}b\u{203a}first\u{2039}/b\u{203a}\nPatterns of further URIs:\n- a://{n} (All)\n\
             There are more: cursor p2"
        );
        assert_eq!(texts(Method::ListResources, json!({"resources": []})), "The server lists no resources.");
        let prompts = json!({"prompts": [{"name": "greet", "description": "Greets.", "arguments": [{"name": "who", "required": true}]}]});
        assert_eq!(texts(Method::ListPrompts, prompts), "- greet (arguments: who, required): Greets.");
        assert_eq!(texts(Method::ReadResource, json!({"contents": [{"uri": "a://1", "text": "body"}]})), "body");
        let prompt = json!({"messages": [{"role": "user", "content": {"type": "text", "text": "Say hi to Bob."}}]});
        assert_eq!(texts(Method::GetPrompt, prompt), "[user]\nSay hi to Bob.");
    }

    #[test]
    fn arguments_of_a_prompt_are_texts() {
        let given = json!({"name": "greet", "arguments": {"who": "Bob", "times": 2}});
        let wanted = json!({"name": "greet", "arguments": {"who": "Bob", "times": "2"}});
        assert_eq!(Method::GetPrompt.params("get_prompt", given), wanted);
        assert_eq!(Method::GetPrompt.params("x", json!({"name": "greet"})), json!({"name": "greet", "arguments": {}}));
    }
}
