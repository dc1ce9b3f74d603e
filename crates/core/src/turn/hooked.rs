//! Calls that wait for hooks outside the kernel, and the verdicts for which they wait.

use super::{
    calls::{DONE_ALREADY, IN_DOUBT, REFUSED, REPEATED, guarded, refused_by_hook, with_warning},
    policy,
    run::{AgentRun, OpenCall},
};
use crate::{
    approval::APPROVAL,
    event::{Action, HookAnswer, HookDecision, PlannedSkill},
    loop_guard::Seen,
    skill::Effect,
};

/// The kind of the failure of a call that a hook refused.
const REFUSED_KIND: &str = "refused";

impl AgentRun {
    /// The planned runs that wait for a hook, each with the hook to ask next.
    pub(super) fn wanted_hooks(&self) -> impl Iterator<Item = (&PlannedSkill, &str)> {
        self.awaited_skills().filter_map(|(open, planned)| Some((planned, open.hooks.first()?.as_str())))
    }

    /// The result with which a call is not made although a hook has let it through with other arguments.
    pub(super) fn refusal_of_replaced(&self, planned: &PlannedSkill) -> Option<String> {
        let is_same = |open: &OpenCall| {
            open.result.is_none()
                && open.planned().is_some_and(|other| {
                    other.intent != planned.intent
                        && other.skill == planned.skill
                        && other.arguments == planned.arguments
                })
        };
        let is_requested = planned.effect != Effect::Read && self.open_calls().iter().any(is_same);
        policy::repeated_effect(self, planned).or_else(|| is_requested.then(|| REPEATED.to_owned()))
    }

    /// Folds the verdict of a hook outside the kernel. A late or repeated verdict changes nothing.
    pub(super) fn hook_decided(&mut self, decision: &HookDecision) {
        let HookDecision { hook, intent, verdict } = decision;
        let Some(open) = self.awaited(*intent).filter(|open| open.hooks.first() == Some(hook)) else { return };
        open.hooks.remove(0);
        match verdict {
            HookAnswer::Continue => {}
            HookAnswer::Replace { arguments } => {
                if let Action::Skill(planned) = &mut open.call.action {
                    planned.arguments = arguments.clone();
                }
                let note = match hook.as_str() {
                    APPROVAL => format!("[changed] The person who approved this changed the arguments to {arguments}."),
                    _ => format!("[changed] The rule {hook:?} changed the arguments to {arguments}."),
                };
                open.warning = Some(with_warning(note, open.warning.as_deref()));
            }
            HookAnswer::Refuse { text } => {
                open.result = Some(text.clone());
                let (name, arguments) = guarded(&open.call);
                self.guard.record_result(&name, &arguments, &Seen::error(text, REFUSED_KIND));
                self.undone.extend(refused_by_hook(text));
                self.found_done |= text.starts_with(DONE_ALREADY);
                // The agent is not reminded to act if the kernel blocked its action.
                self.reminded_to_act |= text.starts_with(REFUSED) || text.starts_with(IN_DOUBT);
                // The call was not made and does not count as used.
                self.calls_used = self.calls_used.saturating_sub(1);
                // An equal later command runs instead of this one.
                if self.is_cmd() && !text.starts_with(DONE_ALREADY) && text != REPEATED {
                    self.skip_the_rest();
                }
            }
        }
    }
}
