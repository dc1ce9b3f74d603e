//! Errors about arguments, in the words of the agent's interface. Errors of skills name flags. For an agent that calls skills
//! with JSON the flags are replaced by argument names, and its own call is added so that it can correct it.

use super::{ResultPolicy, ResultVerdict, SkillResult};
use crate::{outcome::Outcome, skill::CallStyle};

pub(super) struct Arguments;

impl ResultPolicy for Arguments {
    fn judge(&self, at: &SkillResult<'_>) -> Option<ResultVerdict> {
        let planned = at.open.planned().filter(|_| at.outcome.error_type.as_deref() == Some("invalid_arguments"));
        let planned = planned.filter(|_| at.style != CallStyle::Cmd)?;
        let error_text = at.outcome.data.split("\nUsage: ").next().unwrap_or_default();
        let names = error_text.split(' ').map(|word| match word.strip_prefix("--") {
            Some(flag) => {
                let name = flag.trim_end_matches([',', '.', ':', ';']);
                format!("\"{name}\"{}", &flag[name.len()..])
            }
            None => word.to_owned(),
        });
        let error_text = names.collect::<Vec<_>>().join(" ");
        let (skill, arguments) = (&planned.skill, &planned.arguments);
        let call = at.style.json_call(skill, arguments);
        let outcome = Outcome {
            data: format!("{error_text}\nYour call was: {call}\nCorrect it and send it again."),
            ..at.outcome.clone()
        };
        Some(ResultVerdict::Replace(outcome.to_llm_string()))
    }
}
