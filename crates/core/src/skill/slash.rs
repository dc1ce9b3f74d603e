//! What a message may begin with [S1 Triggering]: the commands of the kernel, and the prompt skills that users may invoke.

use super::{SkillFormat, SkillSet};

/// A command at the beginning of a message, for completion and help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlashCommand {
    /// The command with its slash.
    pub name: String,
    /// What the command does.
    pub description: String,
    /// What may follow the command. Empty if the skill does not say.
    pub argument_hint: String,
}

/// The message that lists the commands.
pub const HELP_COMMAND: &str = "/help";
/// The message that ends the active skill.
pub const DONE_COMMAND: &str = "/done";

/// Whether the kernel itself answers this command.
#[must_use]
pub fn is_kernel_command(command: &str) -> bool {
    [HELP_COMMAND, DONE_COMMAND].contains(&command)
}

/// The commands: those of the kernel first, then the skills by name. A skill with the name of a kernel's command replaces it.
#[must_use]
pub fn slash_commands(skills: &SkillSet) -> Vec<SlashCommand> {
    let of_skills: Vec<SlashCommand> = skills
        .iter()
        .filter_map(|skill| {
            let SkillFormat::Prompt { user_invocable: true, argument_hint, .. } = &skill.format else { return None };
            Some(SlashCommand {
                name: format!("/{}", skill.name),
                description: skill.description.clone(),
                argument_hint: argument_hint.clone().unwrap_or_default(),
            })
        })
        .collect();
    let own = [(HELP_COMMAND, "List these commands."), (DONE_COMMAND, "End the active skill.")];
    let own = own.into_iter().filter(|(name, _)| of_skills.iter().all(|skill| skill.name != *name));
    let own: Vec<SlashCommand> = own
        .map(|(name, about)| SlashCommand {
            name: name.to_owned(),
            description: about.to_owned(),
            argument_hint: String::new(),
        })
        .collect();
    own.into_iter().chain(of_skills).collect()
}
