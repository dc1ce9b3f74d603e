//! Writes a request as one text for a program, and fills it into the arguments.

use std::ffi::OsString;

use annie_core::message::{Message, ModelRequest};

/// Placeholder for the prompt in the arguments.
pub(super) const PROMPT: &str = "{prompt}";

/// Writes the request as one text: the system prompt, then the message; several messages are marked with their speakers.
/// Tools are left out, because the program has its own. `core::route::hand_over` makes requests that are readable in this
/// form.
pub(super) fn text_of(request: &ModelRequest) -> String {
    let mut parts: Vec<String> = request.system.iter().map(|p| p.text.trim().to_owned()).collect();
    let has_several = request.messages.len() > 1;
    for message in &request.messages {
        let (speaker, context, text) = match message {
            Message::User { context, text } => ("User: ", context.as_deref().unwrap_or_default(), text),
            Message::Assistant { text, .. } => ("Assistant: ", "", text),
            Message::Tool { text, .. } => ("Result: ", "", text),
            Message::Note { text } => ("", "", text),
        };
        parts.push(context.trim().to_owned());
        parts.push(if has_several && !text.is_empty() { format!("{speaker}{text}") } else { text.clone() });
    }
    parts.retain(|part| !part.is_empty());
    parts.join("\n\n")
}

/// Replaces the placeholder by the prompt, byte for byte, with two exceptions. A NUL is replaced, because no argument can
/// hold one. An argument that begins with the prompt must not be taken for an option: if the prompt begins with a dash, a
/// space is put before it, unless `--` has ended the options.
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
