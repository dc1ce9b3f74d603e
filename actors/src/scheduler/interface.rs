//! Whether turns on a backend begin with commands, because its model cannot use tools. An observation holds for a limited time;
//! the server's own report about its model holds as long as the server repeats it.

use std::collections::VecDeque;

use annie_core::time::Micros;
use serde_json::{Value, json};

/// How long a backend counts as one whose model cannot use tools, in milliseconds. Its server may have been restarted with
/// another model or another template meanwhile: one turn an hour tries tools again.
const BY_COMMANDS_MS: i64 = 3_600_000;
/// Number of turns within that time that must have changed to commands before the other turns of the backend begin with them: a
/// single odd turn affects only its own user.
const UNUSABLE_TURNS_MAX: usize = 3;
/// Stored length of a reason, in characters.
const WHY_CHARS_MAX: usize = 300;

/// The interface of one backend.
#[derive(Debug, Default)]
pub(super) struct Interface {
    /// Since when its turns are run by commands, and why.
    by_commands: Option<(Micros, String)>,
    /// When turns had to change to commands because their calls did not have the form of calls, oldest first.
    unusable_turns: VecDeque<Micros>,
}

impl Interface {
    /// Whether turns begin with commands.
    pub fn is_by_commands(&self, now: Micros) -> bool {
        self.by_commands.as_ref().is_some_and(|(since, _)| since.plus_ms(BY_COMMANDS_MS) > now)
    }

    /// Turns begin with commands from now on; true if they did not before.
    pub fn use_commands(&mut self, why: &str, now: Micros) -> bool {
        let is_new = !self.is_by_commands(now);
        if is_new {
            self.by_commands = Some((now, why.chars().take(WHY_CHARS_MAX).collect()));
            self.unusable_turns.clear();
        }
        is_new
    }

    /// A turn had to change to commands because its calls did not have the form of calls; true if there were enough such turns.
    pub fn note_unusable_turn(&mut self, now: Micros) -> bool {
        self.unusable_turns.retain(|at| at.plus_ms(BY_COMMANDS_MS) > now);
        self.unusable_turns.push_back(now);
        let beyond = self.unusable_turns.len().saturating_sub(UNUSABLE_TURNS_MAX);
        self.unusable_turns.drain(..beyond);
        self.unusable_turns.len() >= UNUSABLE_TURNS_MAX
    }

    /// The state as shown to operators.
    pub fn view(&self, now: Micros) -> Value {
        let shown = |(since, why): &(Micros, String)| json!({"since": since.to_string(), "until": since.plus_ms(BY_COMMANDS_MS).to_string(), "why": why});
        self.by_commands.as_ref().filter(|_| self.is_by_commands(now)).map_or(Value::Null, shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backend_that_was_found_to_refuse_tools_is_tried_with_tools_again_after_an_hour() {
        let mut interface = Interface::default();
        let at = |ms| Micros(0).plus_ms(ms);
        assert!(interface.use_commands("no tools", at(0)) && !interface.use_commands("no tools", at(1)));
        assert!(interface.is_by_commands(at(BY_COMMANDS_MS - 1)));
        assert_eq!(interface.view(at(1))["why"], "no tools");
        assert!(!interface.is_by_commands(at(BY_COMMANDS_MS)) && interface.view(at(BY_COMMANDS_MS)).is_null());
        assert!(interface.use_commands("no tools", at(BY_COMMANDS_MS)), "it is told again");
    }

    #[test]
    fn backend_changes_to_commands_after_three_unusable_turns_of_an_hour() {
        let mut interface = Interface::default();
        let at = |ms| Micros(0).plus_ms(ms);
        assert!(!interface.note_unusable_turn(at(0)) && !interface.note_unusable_turn(at(1)));
        assert!(!interface.note_unusable_turn(at(BY_COMMANDS_MS)), "the first is forgotten");
        assert!(interface.note_unusable_turn(at(BY_COMMANDS_MS)));
    }
}
