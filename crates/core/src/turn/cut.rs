//! Results that are too long for a prompt: the model reads the beginning, with a handle to read the rest. The kernel itself answers
//! such a request from the state of the run, so it costs no run of a skill, and an agent reads only its own results.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::run::AgentRun;
use crate::{ids::AgentId, outcome::floor_char_boundary, skill::CallStyle};

/// The name by which a model requests the rest of a result. No skill has it, so lists of skills do not show it.
pub(super) const READ_RESULT: &str = "system.read_result";
/// How many cut results a run keeps. The oldest is forgotten first. None is longer than the outcome of a skill may be.
const KEPT_MAX: usize = 4;
/// Space for the notice and the heading, in bytes.
const NOTICE_BYTES: usize = 256;

/// The cut results of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CutResults {
    /// How many there were.
    count: u32,
    /// The last ones, oldest first: handle and whole text.
    kept: VecDeque<(String, String)>,
}

impl CutResults {
    /// Whether there were none.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// A part of a text, with a notice if it is not the last part.
fn part(text: &str, from: usize, bytes_max: usize, (id, style): (&str, CallStyle)) -> String {
    let rest = &text[from..];
    if rest.len() <= bytes_max {
        return rest.to_owned();
    }
    let end = from + floor_char_boundary(rest, bytes_max.saturating_sub(NOTICE_BYTES));
    let (shown, all) = (text[..end].chars().count(), text.chars().count());
    let call = match style {
        CallStyle::Cmd => format!("`{READ_RESULT} --id {id} --offset {shown}`"),
        CallStyle::UseSkill | CallStyle::Direct => {
            format!("use_skill {{\"skill\":\"{READ_RESULT}\",\"arguments\":{{\"id\":\"{id}\",\"offset\":{shown}}}}}")
        }
    };
    format!("{}\n[cut: {shown} of {all} characters; read the rest with {call}]", &text[from..end])
}

impl AgentRun {
    /// The beginning of a result that is too long for a prompt, and the result with its handle, to be kept. `None` if it is short
    /// enough, or if the agent cannot request the rest: in `direct` mode each tool is one skill.
    pub(super) fn cut_result(&self, text: &str) -> Option<(String, (String, String))> {
        if text.len() <= self.result_bytes_max || self.style() == CallStyle::Direct {
            return None;
        }
        let number = self.cut_results.count.saturating_add(1);
        // A report may mention a handle, so the handles of different agents differ.
        let id = if self.agent == AgentId::orchestrator() {
            format!("r{number}")
        } else {
            format!("{}-r{number}", self.agent)
        };
        let shown = part(text, 0, self.result_bytes_max, (&id, self.style()));
        Some((shown, (id, text.to_owned())))
    }

    /// Keeps a result that was cut.
    pub(super) fn keep_cut(&mut self, cut: (String, String)) {
        self.cut_results.count = self.cut_results.count.saturating_add(1);
        self.cut_results.kept.push_back(cut);
        if self.cut_results.kept.len() > KEPT_MAX {
            self.cut_results.kept.pop_front();
        }
    }

    /// The answer to a request for the rest of a result, or the error.
    pub(super) fn rest_of_result(&self, arguments: &Map<String, Value>) -> Result<String, String> {
        let id = arguments.get("id").and_then(Value::as_str).unwrap_or_default();
        let Some((id, text)) = self.cut_results.kept.iter().find(|(known, _)| known == id) else {
            let known: Vec<&str> = self.cut_results.kept.iter().map(|(id, _)| id.as_str()).collect();
            return Err(format!("{READ_RESULT}: there is no cut result {id:?}; there are: {}.", known.join(", ")));
        };
        let offset = arguments.get("offset").map_or(Some(0), |offset| {
            offset.as_u64().or_else(|| offset.as_str()?.trim().replace(',', "").parse().ok())
        });
        let Some(offset) = offset.and_then(|offset| usize::try_from(offset).ok()) else {
            return Err(format!("{READ_RESULT}: offset must be a number of characters."));
        };
        let Some((from, _)) = text.char_indices().nth(offset) else {
            let all = text.chars().count();
            return Err(format!("{READ_RESULT}: {id} has {all} characters, so nothing is at {offset}."));
        };
        let bytes_max = self.result_bytes_max.saturating_sub(NOTICE_BYTES / 2);
        Ok(format!("{id} from character {offset} on:\n{}", part(text, from, bytes_max, (id, self.style()))))
    }
}

/// The arguments of a command that requests the rest of a result; `None` for other commands.
pub(super) fn read_result_command(line: &str) -> Option<Map<String, Value>> {
    let mut words = line.split_whitespace().skip_while(|word| matches!(*word, "$" | "cmd")).peekable();
    if words.next()? != READ_RESULT {
        return None;
    }
    let mut arguments = Map::new();
    while let Some(word) = words.next() {
        let Some(flag) = word.strip_prefix("--") else { continue };
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name, value),
            None => (flag, words.next_if(|next| !next.starts_with("--")).unwrap_or_default()),
        };
        arguments.insert(name.to_owned(), value.trim_matches(['"', '\'']).into());
    }
    Some(arguments)
}
