//! While a prompt skill with `allowed-tools` is active, only these skills run [S1 Frontmatter Fields].

use super::{CallPolicy, Candidate};
use crate::{
    event::{Action, CallVerdict, Refusal},
    skill::called_script,
    turn::calls::REFUSED,
};

pub(super) struct AllowedTools;

impl CallPolicy for AllowedTools {
    fn judge(&self, at: &Candidate<'_>) -> Option<CallVerdict> {
        let confined = at.run.confined.as_ref()?;
        let what = match &at.call.action {
            Action::Skill(planned) if confined.allows_call(&planned.skill, &planned.arguments) => None,
            Action::Skill(planned) => Some(match called_script(&planned.arguments) {
                Some(script) if planned.skill == confined.skill => format!("{script} of {}", planned.skill),
                Some(_) | None => planned.skill.clone(),
            }),
            Action::Dispatch(spec) => spec.skills.iter().find(|skill| !confined.allows(skill)).cloned(),
            Action::Answer { .. }
            | Action::Collect { .. }
            | Action::ControlAgent { .. }
            | Action::Alternatives(_)
            | Action::Caller => None,
        }?;
        let text = format!(
            "{REFUSED} The skill {} is active and allows only: {}. {what} was not run. Work with these, or tell the user.",
            confined.skill,
            confined.tools.join(", ")
        );
        Some(CallVerdict::Refuse { why: Refusal::NotAllowed, text })
    }
}
