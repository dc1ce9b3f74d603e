//! The message `/help`, which the kernel answers without a model.

use annie_core::{
    event::Inbound,
    skill::{HELP_COMMAND, slash_commands},
    workflow::problems_with,
};

use crate::wiring::Wiring;

/// The list of commands, if the message asks for it. A program that requested a format or sends its own conversation gets the
/// answer of its model.
pub(crate) async fn help(wiring: &Wiring, inbound: &Inbound) -> Option<String> {
    let is_asked = inbound.text.trim() == HELP_COMMAND && inbound.outside_text().is_none();
    if !is_asked || inbound.thread().is_some() || inbound.format().is_some() {
        return None;
    }
    let skills = wiring.catalog.skills();
    let commands = slash_commands(&skills);
    let mut lines: Vec<String> = commands
        .iter()
        .map(|command| {
            let usage = format!("{} {}", command.name, command.argument_hint);
            format!("- {}: {}", usage.trim_end(), command.description)
        })
        .collect();
    let workflows = wiring.workflows.all().await.unwrap_or_default();
    let workflows = workflows.iter().filter_map(|file| Some((file.read.as_ref().ok()?, &file.description)));
    let workflows = workflows.filter(|(workflow, _)| problems_with(workflow, &skills).is_empty());
    lines.extend(workflows.map(|(workflow, what)| format!("- /{}: {what}", workflow.as_command().synopsis())));
    Some(format!("A message may begin with:\n\n{}", lines.join("\n")))
}
