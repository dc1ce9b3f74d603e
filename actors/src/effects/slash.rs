//! The messages `/help`, and `/done` without an active skill, which the kernel answers without a model.

use annie_core::{
    event::Inbound,
    skill::{DONE_COMMAND, HELP_COMMAND, slash_commands},
    workflow::problems_with,
};

use crate::{agent::AnswerWithoutTurn, wiring::Wiring};

/// The list of commands, if the message asks for it. A program that requested a format or sends its own conversation gets the
/// answer of its model.
pub(crate) async fn help(wiring: &Wiring, inbound: &Inbound) -> Option<AnswerWithoutTurn> {
    if !is_command(inbound, HELP_COMMAND) {
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
    Some(AnswerWithoutTurn { text: format!("A message may begin with:\n\n{}", lines.join("\n")), is_done: true })
}

/// The answer to a message that ends the active skill if there is none.
pub(crate) fn nothing_to_end(inbound: &Inbound, has_active_skill: bool) -> Option<AnswerWithoutTurn> {
    let text = "No skill is active here, so there is nothing to end.".to_owned();
    (is_command(inbound, DONE_COMMAND) && !has_active_skill).then_some(AnswerWithoutTurn { text, is_done: true })
}

/// Whether a person sends this command of the kernel.
fn is_command(inbound: &Inbound, command: &str) -> bool {
    inbound.text.trim() == command
        && inbound.outside_text().is_none()
        && inbound.thread().is_none()
        && inbound.format().is_none()
}
