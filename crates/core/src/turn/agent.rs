//! One agent of a turn as its loop sees it: the main agent or a sub-agent. The actor of either asks the same questions.

use super::{
    caller::resolve_main,
    calls::REFUSED,
    conversation::{Conversation, Turn},
    directive::Directive,
    opening::own_calls,
    policy::{self, CallBudget, CallPolicy},
    request,
    resolve::{resolve, resolve_steps},
    run::{AgentRun, OpenCall, Phase},
    sub::SubTurn,
};
use crate::{
    aloud::VoiceFormat,
    classify::Spoken,
    event::{Action, JudgedCalls, PlannedSkill, Priority, PromptFacts, ResolvedCall},
    guard::CallTimes,
    ids::{AgentId, ConversationId, TaskId, UserId},
    message::{ModelReply, ModelRequest},
    redact::Redaction,
    route::AgentModels,
    skill::SkillSet,
    spend::Spent,
    time::Micros,
};

/// What listeners see of the drafts of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shows {
    /// The whole text.
    All,
    /// The text without plans.
    AllButPlans,
    /// Nothing: the reply is for an agent.
    Nothing,
}

/// An agent of a turn.
#[derive(Debug, Clone, Copy)]
pub enum AgentView<'a> {
    /// The main agent of a turn.
    Main {
        /// The conversation.
        of: &'a Conversation,
        /// The turn.
        turn: &'a Turn,
    },
    /// A sub-agent.
    Sub(&'a SubTurn),
}

impl<'a> AgentView<'a> {
    /// The task of the turn.
    #[must_use]
    pub const fn task(self) -> TaskId {
        match self {
            Self::Main { turn, .. } => turn.task,
            Self::Sub(turn) => turn.task,
        }
    }

    /// The agent.
    #[must_use]
    pub const fn agent(self) -> &'a AgentId {
        match self {
            Self::Main { turn, .. } => &turn.main.agent,
            Self::Sub(turn) => &turn.spec.agent,
        }
    }

    /// The user that the turn runs for.
    #[must_use]
    pub const fn user(self) -> &'a UserId {
        match self {
            Self::Main { of, .. } => &of.user,
            Self::Sub(turn) => &turn.user,
        }
    }

    /// What is redacted in the drafts that listeners see, and the user's own words, which are not. Nothing for a sub-agent,
    /// whose drafts are not shown.
    #[must_use]
    pub fn redaction(self) -> (Vec<Redaction>, String) {
        match self {
            Self::Main { turn, .. } => (turn.limits.redact.clone(), turn.inbound.text.clone()),
            Self::Sub(_) => (Vec::new(), String::new()),
        }
    }

    /// What listeners see of the drafts of the current round.
    #[must_use]
    pub fn shows(self) -> Shows {
        match self {
            _ if self.advisors().is_some() => Shows::Nothing,
            Self::Main { .. } if self.plans() => Shows::AllButPlans,
            Self::Main { .. } => Shows::All,
            Self::Sub(_) => Shows::Nothing,
        }
    }

    /// Whether drafts contain a plan, which listeners do not see.
    #[must_use]
    pub const fn plans(self) -> bool {
        match self {
            Self::Main { turn, .. } => turn.main.plans,
            Self::Sub(_) => false,
        }
    }

    /// The form of the drafts that listeners see, if the answer is read aloud.
    #[must_use]
    pub fn voice(self) -> Option<VoiceFormat> {
        match self {
            Self::Main { turn, .. } => turn.voice(),
            Self::Sub(_) => None,
        }
    }

    /// The conversation.
    #[must_use]
    pub const fn conversation(self) -> ConversationId {
        match self {
            Self::Main { of, .. } => of.id,
            Self::Sub(turn) => turn.conversation,
        }
    }

    /// The channels of the messages of the turn: of the one with which it began, and of those that steered it.
    #[must_use]
    pub fn channels(self) -> Vec<String> {
        match self {
            Self::Main { turn, .. } => turn.channels(),
            Self::Sub(turn) => turn.channels.clone(),
        }
    }

    /// Whether a call would be answered without a run, because its effect has a receipt or may have happened. `earlier` is the number
    /// of equal calls before it in the same reply.
    #[must_use]
    pub fn is_answered_without_run(self, planned: &PlannedSkill, earlier: usize) -> bool {
        match self {
            Self::Main { turn, .. } => turn.main.is_answered_without_run(planned, earlier),
            Self::Sub(turn) => turn.run.is_answered_without_run(planned, earlier),
        }
    }

    /// The result with which a call is not made after a hook replaced its arguments, because an equal effect of this agent has a
    /// receipt, may have happened, or is requested by another call that is open.
    #[must_use]
    pub fn refusal_of_replaced(self, planned: &PlannedSkill) -> Option<String> {
        match self {
            Self::Main { turn, .. } => turn.main.refusal_of_replaced(planned),
            Self::Sub(turn) => turn.run.refusal_of_replaced(planned),
        }
    }

    /// The facts that the prompts are built from.
    #[must_use]
    pub const fn facts(self) -> &'a PromptFacts {
        match self {
            Self::Main { turn, .. } => &turn.facts,
            Self::Sub(turn) => &turn.facts,
        }
    }

    /// The class of the turn.
    #[must_use]
    pub const fn priority(self) -> Priority {
        match self {
            Self::Main { turn, .. } => turn.inbound.priority,
            Self::Sub(turn) => turn.priority,
        }
    }

    /// The backends that may run the rounds, the preferred one first.
    #[must_use]
    pub fn route(self) -> &'a [String] {
        match self {
            Self::Main { turn, .. } => &turn.route,
            Self::Sub(turn) => &turn.route,
        }
    }

    /// The tasks that must end before the first round may start.
    #[must_use]
    pub fn after(self) -> &'a [TaskId] {
        match self {
            Self::Main { turn, .. } => &turn.inbound.after,
            // The main agent has had a round.
            Self::Sub(_) => &[],
        }
    }

    /// How much earlier or later in the queue the rounds stand because of how the message was spoken, in milliseconds.
    #[must_use]
    pub fn shift_ms(self) -> i64 {
        match self {
            Self::Main { turn, .. } => turn.inbound.mood.map_or(0, |mood| mood.shift_ms()),
            Self::Sub(turn) => turn.shift_ms,
        }
    }

    /// The number of the current round and of all that the turn may have, for clients that watch the turn.
    #[must_use]
    pub const fn progress(self) -> Option<(u32, u32)> {
        match self {
            Self::Main { turn, .. } => Some((turn.main.round, turn.main.rounds_max)),
            Self::Sub(_) => None,
        }
    }

    /// What the turn has spent according to the log, as far as this agent knows: a sub-agent knows its own rounds only.
    #[must_use]
    pub fn spent(self) -> Spent {
        match self {
            Self::Main { turn, .. } => Spent::of(&turn.usage()),
            Self::Sub(turn) => Spent::of(&turn.run.usage),
        }
    }

    /// The model calls of the conversation according to the log. A sub-agent does not know them.
    #[must_use]
    pub fn call_times(self) -> Option<&'a CallTimes> {
        match self {
            Self::Main { of, .. } => Some(&of.model_calls),
            Self::Sub(_) => None,
        }
    }

    /// Whether this is the first round of its conversation, so that nothing was spent on the conversation before.
    #[must_use]
    pub fn is_first_round(self) -> bool {
        match self {
            Self::Main { of, turn } => {
                turn.main.round == 1 && of.turns.len() == 1 && of.finished.is_empty() && of.history.is_empty()
            }
            Self::Sub(_) => false,
        }
    }

    /// The origins of what the agent has read and the user did not write, least recently read first.
    #[must_use]
    pub fn origins(self) -> &'a [String] {
        match self {
            Self::Main { turn, .. } => turn.main.provenance.origins(),
            Self::Sub(turn) => turn.run.provenance.origins(),
        }
    }

    /// The reply of the current round, if it comes from a workflow and no model is called.
    #[must_use]
    pub fn workflow_reply(self) -> Option<ModelReply> {
        match self {
            Self::Main { turn, .. } => turn.main.workflow_reply(),
            Self::Sub(_) => None,
        }
    }

    /// The model request of the current round.
    #[must_use]
    pub fn request(self, skills: &SkillSet) -> ModelRequest {
        if let Some(request) = self.advice_prompt(skills) {
            return request;
        }
        match self {
            Self::Main { of, turn } => request::main(of.id, turn, skills),
            Self::Sub(turn) => request::sub(turn),
        }
    }

    /// Whether a reply to this request of the current round may be that of an earlier equal request: the model cannot do anything
    /// but answer, because it has neither tools nor skills.
    #[must_use]
    pub fn may_reuse(self, request: &ModelRequest) -> bool {
        match self {
            Self::Main { turn, .. } => {
                let has_skills = !request.options.is_thread && !request::is_small_talk(turn);
                !has_skills && request.tools.is_empty() && !turn.main.is_cmd() && !turn.inbound.private
            }
            Self::Sub(_) => false,
        }
    }

    /// Whether the turn is local only.
    #[must_use]
    pub const fn is_private(self) -> bool {
        match self {
            Self::Main { turn, .. } => turn.inbound.private,
            Self::Sub(turn) => turn.is_private,
        }
    }

    /// The calls of a reply, each with what becomes of it. An agent may use the skills that it was granted; the main agent of
    /// a spoken request that asks for no change may use those that only read. No agent of a private turn may use skills that
    /// reach other machines.
    #[must_use]
    pub fn resolve(self, reply: &ModelReply, skills: &SkillSet) -> Vec<ResolvedCall> {
        self.resolve_with(reply, skills, AgentModels::default())
    }

    /// Like [`Self::resolve`]; dispatches may name these models.
    #[must_use]
    pub fn resolve_with(self, reply: &ModelReply, skills: &SkillSet, models: AgentModels<'_>) -> Vec<ResolvedCall> {
        if let Some(advice) = self.read_advice(reply, skills) {
            return advice;
        }
        let mut calls = self.resolve_any(reply, skills, models);
        self.prepare_requests(&mut calls, skills, models);
        if self.is_private() {
            refuse_external(&mut calls);
        }
        calls
    }

    fn resolve_any(self, reply: &ModelReply, skills: &SkillSet, models: AgentModels<'_>) -> Vec<ResolvedCall> {
        match self {
            Self::Main { turn, .. } if turn.main.workflow.is_some() => {
                let models = (models, turn.route.as_slice());
                resolve_steps(reply, turn.task, &turn.main, skills, &turn.limits, models)
            }
            Self::Main { turn, .. } if turn.facts.spoken_as.is_some_and(Spoken::reads_only) => {
                resolve_main(reply, turn, &skills.reading(), models)
            }
            Self::Main { turn, .. } => resolve_main(reply, turn, skills, models),
            Self::Sub(turn) => {
                let (granted, models) = (Some(turn.spec.skills.as_slice()), (models, turn.route.as_slice()));
                resolve(reply, turn.task, &turn.run, granted, skills, &turn.limits, models)
            }
        }
    }
}

impl AgentView<'_> {
    /// The verdicts of the kernel's own policies about the calls of a reply that is recorded at this time. `None` if it has no
    /// calls.
    #[must_use]
    pub fn judge(self, calls: &[ResolvedCall], at: Micros) -> Option<JudgedCalls> {
        if self.advisors().is_some() {
            return None;
        }
        match self {
            Self::Main { turn, .. } if turn.main.workflow.is_some() => self.judge_by(&policy::BEFORE_STEP, calls, at),
            Self::Main { .. } | Self::Sub(_) => self.judge_by(&policy::BEFORE_SKILL, calls, at),
        }
    }

    /// The verdicts of these policies.
    pub(super) fn judge_by(
        self,
        policies: &[&dyn CallPolicy],
        calls: &[ResolvedCall],
        at: Micros,
    ) -> Option<JudgedCalls> {
        if calls.is_empty() {
            return None;
        }
        Some(match self {
            Self::Main { of, turn } => {
                // Other turns may have used calls of the window since the last round.
                let window_used = of.window_used_at(at, &turn.limits);
                let (calls_max, note) = own_calls(turn.mode, &turn.limits, turn.main.calls_used, window_used);
                policy::judge_calls(policies, &turn.main, CallBudget { calls_max, note: &note }, calls)
            }
            Self::Sub(turn) => policy::judge_calls(policies, &turn.run, CallBudget::of(&turn.run), calls),
        })
    }
}

/// Refuses the calls that would send data of a private turn to other machines (invariant 18).
fn refuse_external(calls: &mut [ResolvedCall]) {
    for call in calls {
        let Action::Skill(planned) = &call.action else { continue };
        if planned.external {
            let text = format!(
                "{REFUSED} {} reaches other machines, and that is not done for a private request here: it stays local. Do not \
                 try it again; tell the user.",
                planned.skill
            );
            call.action = Action::Answer { text, is_error: true, is_unknown: false, is_malformed: false };
        }
    }
}

impl Turn {
    /// The channels of its messages.
    pub(super) fn channels(&self) -> Vec<String> {
        let mut channels = vec![self.inbound.channel().to_owned()];
        channels.extend(self.steering.channels.iter().filter(|steered| *steered != self.inbound.channel()).cloned());
        channels
    }
}

impl Conversation {
    /// The main agent of the turn of a task.
    #[must_use]
    pub fn main_agent(&self, task: TaskId) -> Option<AgentView<'_>> {
        self.turn(task).map(|turn| AgentView::Main { of: self, turn })
    }
}

impl SubTurn {
    /// The sub-agent.
    #[must_use]
    pub const fn view(&self) -> AgentView<'_> {
        AgentView::Sub(self)
    }
}

impl AgentRun {
    /// The rounds, skill runs and questions to hooks that have no result yet.
    pub(super) fn outstanding(&self, task: TaskId) -> Vec<Directive> {
        if self.phase == Phase::Thinking {
            return vec![Directive::CallModel { task, agent: self.agent.clone(), round: self.round }];
        }
        let skill = |(open, skill): (&OpenCall, &PlannedSkill)| Directive::CallSkill {
            task,
            agent: self.agent.clone(),
            call_id: open.call.id.clone(),
            skill: skill.clone(),
            started_before: open.started,
        };
        let hooks = self.wanted_hooks().map(|(skill, hook)| Directive::RunHook {
            task,
            agent: self.agent.clone(),
            hook: hook.to_owned(),
            skill: skill.clone(),
        });
        self.wanted_skills().map(skill).chain(hooks).collect()
    }
}
