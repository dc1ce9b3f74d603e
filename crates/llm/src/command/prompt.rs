//! A request as the text that a program is given, and the arguments around it.

use std::ffi::OsString;

use annie_core::message::{Message, ModelRequest};

/// What stands in the arguments for the prompt.
pub(super) const PROMPT: &str = "{prompt}";

/// The request as one text: the system prompt, then the message; where there are several, who said what. Tools are left
/// out: the program has its own. `core::route::hand_over` makes requests that read well so.
pub(super) fn text_of(request: &ModelRequest) -> String {
    let mut parts: Vec<String> = request.system.iter().map(|p| p.text.trim().to_owned()).collect();
    let is_talk = request.messages.len() > 1;
    for message in &request.messages {
        let (who, context, text) = match message {
            Message::User { context, text } => ("User: ", context.as_deref().unwrap_or_default(), text),
            Message::Assistant { text, .. } => ("Assistant: ", "", text),
            Message::Tool { text, .. } => ("Result: ", "", text),
            Message::Note { text } => ("", "", text),
        };
        parts.push(context.trim().to_owned());
        parts.push(if is_talk && !text.is_empty() { format!("{who}{text}") } else { text.clone() });
    }
    parts.retain(|part| !part.is_empty());
    parts.join("\n\n")
}

/// The arguments with the prompt in its place, byte for byte, with two exceptions. No argument can hold a NUL. And an
/// argument that is the prompt alone must not be taken for an option: one that begins with a dash gets a space before it,
/// unless `--` has ended the options.
pub(super) fn fill(args: &[String], prompt: &str) -> Vec<OsString> {
    let prompt = prompt.replace('\0', "\u{fffd}");
    let mut after_options = false;
    let mut filled = Vec::with_capacity(args.len());
    for arg in args {
        let is_option_like = arg.starts_with(PROMPT) && prompt.starts_with('-') && !after_options;
        let space = if is_option_like { " " } else { "" };
        filled.push(format!("{space}{}", arg.replacen(PROMPT, &prompt, 1)).into());
        after_options |= arg == "--";
    }
    filled
}
