//! Approvals: the requests of a turn to a person, their verdicts, and what a verdict means for later calls.
//!
//! A call that needs an approval waits for the hook [`APPROVAL`] like a call that waits for a program. The Engine keeps the
//! requests of all agents of a turn and answers the hook. The deadlines of a turn with an open request stand still. Such a
//! turn does not block its lane, and no message steers it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    approval::{APPROVAL, ApprovalMode, ApprovalVerdict, clear_word},
    event::{EventBody, HookAnswer, Inbound, PlannedSkill},
    ids::{AgentId, IntentId, TaskId},
    plan::NodeState,
    schedule::SCHEDULE,
    time::Micros,
    turn::{
        Decision,
        conversation::{Conversation, Turn},
        run::Phase,
    },
};

/// The most skills that a conversation remembers as approved. Beyond that the oldest one is asked about again.
const APPROVED_MAX: usize = 64;
/// Who decided when the whole conversation has an approval of the skill.
const BY_CONVERSATION: &str = "the approval for this conversation";
/// Who withdraws requests.
const BY_KERNEL: &str = "the kernel";

/// A request for an approval of one call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Approval {
    /// The number of the request in its turn, from 1.
    pub number: u32,
    /// The agent that made the call.
    pub agent: AgentId,
    /// The intent of the call.
    pub intent: IntentId,
    /// The skill.
    pub skill: String,
    /// The arguments with which the skill would run.
    pub arguments: Value,
    /// Why the call waits.
    pub mode: ApprovalMode,
    /// The time of the request.
    pub requested_at: Micros,
    /// When the request counts as denied.
    pub expires_at: Micros,
    /// The verdict. Absent while the request is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<ApprovalVerdict>,
    /// Who decided. Empty while the request is open.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
}

impl Approval {
    /// The event of a verdict about this request. `message` decided by a clear yes or no.
    #[must_use]
    pub fn decided(&self, verdict: ApprovalVerdict, by: &str, message: Option<TaskId>) -> EventBody {
        EventBody::ApprovalDecided { number: self.number, intent: self.intent, verdict, by: by.to_owned(), message }
    }

    /// The message to the user about a verdict.
    fn confirmation(&self, verdict: &ApprovalVerdict) -> String {
        match verdict {
            ApprovalVerdict::Approve { .. } => format!("Approved: {} {}.", self.skill, self.arguments),
            ApprovalVerdict::Deny { .. } | ApprovalVerdict::Expire | ApprovalVerdict::Withdraw => {
                format!("Not approved: {}. I will not do it.", self.skill)
            }
        }
    }
}

/// A skill of which a call was approved in a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovedSkill {
    /// The skill.
    pub skill: String,
    /// The approval was for the whole conversation.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub for_conversation: bool,
}

/// What becomes of a call that asks for its approval.
#[derive(Debug, Clone, PartialEq)]
pub enum ApprovalStep {
    /// The call has its answer.
    Answered(HookAnswer),
    /// The request is open.
    Waits,
    /// The request must be recorded by this event.
    Request(EventBody),
}

impl Conversation {
    /// What becomes of a call of a turn that waits for its approval in this mode; `None` if the turn is over. A new request
    /// expires at `expires_at`.
    #[must_use]
    pub fn approval_step(
        &self,
        task: TaskId,
        planned: &PlannedSkill,
        mode: ApprovalMode,
        expires_at: Micros,
    ) -> Option<ApprovalStep> {
        let turn = self.turn(task)?;
        if let Some(approval) = turn.approvals.iter().find(|approval| approval.intent == planned.intent) {
            let answer = approval.verdict.as_ref().map(ApprovalVerdict::answer);
            return Some(answer.map_or(ApprovalStep::Waits, ApprovalStep::Answered));
        }
        if !self.needs_approval(&planned.skill, mode) {
            return Some(ApprovalStep::Answered(HookAnswer::Continue));
        }
        Some(ApprovalStep::Request(EventBody::ApprovalRequested {
            number: u32::try_from(turn.approvals.len()).unwrap_or(u32::MAX).saturating_add(1),
            intent: planned.intent,
            skill: planned.skill.clone(),
            arguments: planned.arguments.clone(),
            mode,
            expires_at,
        }))
    }

    /// The answer to the call with this intent, once its request is decided.
    #[must_use]
    pub fn approval_answer(&self, task: TaskId, intent: IntentId) -> Option<HookAnswer> {
        let approval = self.turn(task)?.approvals.iter().find(|approval| approval.intent == intent)?;
        approval.verdict.as_ref().map(ApprovalVerdict::answer)
    }

    fn needs_approval(&self, skill: &str, mode: ApprovalMode) -> bool {
        let mut approved = self.approved.iter().filter(|approved| approved.skill == skill);
        match mode {
            ApprovalMode::Off => false,
            ApprovalMode::AskFirstTime => approved.next().is_none(),
            ApprovalMode::Ask => !approved.any(|approved| approved.for_conversation),
            ApprovalMode::Always => true,
        }
    }

    /// The open requests, each with the task of its turn.
    pub fn open_approvals(&self) -> impl Iterator<Item = (TaskId, &Approval)> {
        self.turns.iter().flat_map(|turn| turn.open_approvals().map(move |approval| (turn.task, approval)))
    }

    /// When the first open request expires.
    #[must_use]
    pub fn next_approval_expiry(&self) -> Option<Micros> {
        self.open_approvals().map(|(_, approval)| approval.expires_at).min()
    }

    /// The event of a request that has expired, if there is one.
    #[must_use]
    pub fn expired_approval(&self, now: Micros) -> Option<Decision> {
        let (task, approval) = self.open_approvals().find(|(_, approval)| approval.expires_at <= now)?;
        let body = approval.decided(ApprovalVerdict::Expire, BY_KERNEL, None);
        Some(Decision { task, agent: approval.agent.clone(), body })
    }

    /// Folds a request. A repeated one changes nothing.
    pub(in crate::turn) fn approval_requested(&mut self, task: TaskId, agent: &AgentId, body: &EventBody) {
        let EventBody::ApprovalRequested { number, intent, skill, arguments, mode, expires_at } = body else { return };
        let at = self.at;
        let Some(turn) = self.turns.iter_mut().find(|turn| turn.task == task) else { return };
        if turn.approvals.iter().any(|approval| approval.intent == *intent) {
            return;
        }
        turn.approvals.push(Approval {
            number: *number,
            agent: agent.clone(),
            intent: *intent,
            skill: skill.clone(),
            arguments: arguments.clone(),
            mode: *mode,
            requested_at: at,
            expires_at: *expires_at,
            verdict: None,
            by: String::new(),
        });
        turn.clock.approval_since.get_or_insert(at);
        self.approvals_at = at;
        // A person may take a day, so other messages of the conversation are answered meanwhile.
        turn.control.is_detached = true;
        self.return_unseen_steering(task);
        self.start_clocks();
    }

    /// Folds a verdict. Of several verdicts about one request the first one holds.
    pub(in crate::turn) fn approval_decided(&mut self, task: TaskId, body: &EventBody) {
        let EventBody::ApprovalDecided { intent, verdict, by, message, .. } = body else { return };
        let at = self.at;
        let open = |approval: &&mut Approval| approval.intent == *intent && approval.verdict.is_none();
        let turn = self.turns.iter_mut().find(|turn| turn.task == task);
        let Some(turn) = turn else { return };
        let Some(approval) = turn.approvals.iter_mut().find(open) else { return };
        (approval.verdict, approval.by) = (Some(verdict.clone()), by.clone());
        let (skill, mode, text) = (approval.skill.clone(), approval.mode, approval.confirmation(verdict));
        if !turn.awaits_approval() {
            turn.clock.end_approval_wait(at);
        }
        self.approvals_at = at;
        if let ApprovalVerdict::Approve { for_conversation, .. } = verdict
            && mode != ApprovalMode::Always
        {
            self.remember_approved(skill, *for_conversation);
        }
        if let Some(message) = message.filter(|message| self.inbox.iter().any(|p| p.task == *message)) {
            self.take_out(message);
            self.owed.push_back((message, EventBody::answered(text)));
        }
    }

    fn remember_approved(&mut self, skill: String, for_conversation: bool) {
        let known =
            self.approved.iter().position(|approved| approved.skill == skill).map(|at| self.approved.remove(at));
        let for_conversation = for_conversation || known.is_some_and(|known| known.for_conversation);
        self.approved.push(ApprovedSkill { skill, for_conversation });
        let too_many = self.approved.len().saturating_sub(APPROVED_MAX);
        self.approved.drain(..too_many);
    }

    /// The verdict that follows from the state: a clear yes or no of the user, the approval of the skill for the conversation, or
    /// the end of the agent that made the call.
    pub(in crate::turn) fn decide_approval(&self) -> Option<Decision> {
        let of = |task, approval: &Approval, body| Some(Decision { task, agent: approval.agent.clone(), body });
        let is_unwanted = |task: TaskId, approval: &Approval| self.turn(task).is_none_or(|turn| !turn.asks(approval));
        if let Some((task, approval)) = self.open_approvals().find(|&(task, approval)| is_unwanted(task, approval)) {
            return of(task, approval, approval.decided(ApprovalVerdict::Withdraw, BY_KERNEL, None));
        }
        let is_approved = |approval: &Approval| {
            approval.mode != ApprovalMode::Always
                && self.approved.iter().any(|approved| approved.for_conversation && approved.skill == approval.skill)
        };
        if let Some((task, approval)) = self.open_approvals().find(|&(_, approval)| is_approved(approval)) {
            return of(task, approval, approval.decided(ApprovalVerdict::once(), BY_CONVERSATION, None));
        }
        // With several open requests a bare word is ambiguous.
        let (task, approval) = self.open_approvals().next().filter(|_| self.open_approvals().nth(1).is_none())?;
        self.inbox.iter().find_map(|pending| {
            let is_yes = clear_word(&pending.inbound.text).filter(|_| is_plain(&pending.inbound))?;
            // What a word meant is decided by the requests that were open when it was accepted.
            if pending.is_suspended || pending.accepted_at < self.approvals_at {
                return None;
            }
            let reason = "The user said no.".to_owned();
            let verdict = if is_yes { ApprovalVerdict::once() } else { ApprovalVerdict::Deny { reason } };
            of(task, approval, approval.decided(verdict, self.user.as_str(), Some(pending.task)))
        })
    }
}

impl Turn {
    fn open_approvals(&self) -> impl Iterator<Item = &Approval> {
        self.approvals.iter().filter(|approval| approval.verdict.is_none())
    }

    /// Whether a call of the turn waits for a person.
    #[must_use]
    pub fn awaits_approval(&self) -> bool {
        self.open_approvals().next().is_some()
    }

    /// Whether nothing of the turn runs, because all its agents wait for a person.
    pub(in crate::turn) fn only_awaits_approval(&self) -> bool {
        let waits = |agent: &AgentId| self.open_approvals().any(|approval| approval.agent == *agent);
        let is_main_quiet = self.main.phase != Phase::Thinking && self.main.wanted_skills().next().is_none();
        self.awaits_approval() && is_main_quiet && self.agents.plan.running().all(|node| waits(&node.spec.agent))
    }

    /// Whether the agent that made the call still waits for the verdict, as far as the state shows.
    fn asks(&self, approval: &Approval) -> bool {
        if !approval.agent.is_orchestrator() {
            let node = self.agents.plan.node(&approval.agent);
            return node.is_some_and(|node| matches!(node.state, NodeState::Running { .. }));
        }
        self.main.wanted_hooks().any(|(planned, hook)| hook == APPROVAL && planned.intent == approval.intent)
    }

    /// The decision, unless it ends the turn while a request is open: then the request is withdrawn first.
    pub(in crate::turn) fn after_withdrawals(&self, decision: Decision) -> Decision {
        let open = self.open_approvals().next().filter(|_| decision.task == self.task && decision.body.is_final());
        match open {
            Some(approval) => Decision {
                task: self.task,
                agent: approval.agent.clone(),
                body: approval.decided(ApprovalVerdict::Withdraw, BY_KERNEL, None),
            },
            None => decision,
        }
    }
}

/// Whether a message can be nothing but the words of a person.
fn is_plain(inbound: &Inbound) -> bool {
    let is_request = inbound.stateless || inbound.request.is_some() || inbound.outside_text().is_some();
    let is_later = inbound.not_before.is_some() || !inbound.after.is_empty();
    // An agent may have written the text of a schedule, of a forked task or of a reminder.
    let is_of_kernel = inbound.source == SCHEDULE || inbound.is_forked() || inbound.is_reminder();
    if is_of_kernel || !inbound.origins.is_empty() {
        return false;
    }
    !is_request && !is_later && inbound.retry.is_none() && inbound.resumes.is_none()
}
