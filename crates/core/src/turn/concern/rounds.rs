//! Rounds and calls of the main agent, and the events of its sub-agents' rounds and calls.

use super::Now;
use crate::{
    event::{Action, EventBody},
    ids::{AgentId, TaskId},
    message::{ModelError, ModelErrorKind},
    plan::{NodeState, first_line},
    time::Micros,
    turn::{
        conversation::{Conversation, Turn},
        directive::Directive,
        opening, report,
        run::{Ending, Phase, Reply},
    },
};

impl Conversation {
    /// Records that a round of this turn's main agent may have begun on an agentic backend. No decision follows from it, but if
    /// the turn ends before the round, its final event says that the work may have taken effect. Returns true if this was not
    /// recorded yet.
    pub fn round_acts(&mut self, task: TaskId, round: u32) -> bool {
        self.turns.iter_mut().find(|t| t.task == task).is_some_and(|turn| turn.main.round_acts(round))
    }

    /// Turns the state of a replay into that of the Engine whose round runs on an agentic backend. The Engine does not fold the mark of
    /// that round, which tells only its next incarnation that the round was interrupted.
    pub(crate) fn round_is_under_way(&mut self, task: TaskId, round: u32) {
        let turn = self.turns.iter_mut().find(|t| t.task == task && t.main.awaits(round));
        if let Some(turn) = turn {
            (turn.main.began, turn.main.acts_in) = (None, Some(round));
        }
    }

    /// Records that no round of this turn's main agent runs on an agentic backend: the round did not begin there.
    pub fn round_does_not_act(&mut self, task: TaskId) {
        if let Some(turn) = self.turns.iter_mut().find(|t| t.task == task) {
            turn.main.acts_in = None;
        }
    }
}

impl Turn {
    /// Folds an event of one of its agents' rounds or calls; `event_at` is the event's timestamp. Returns how many skill calls
    /// the event adds to the conversation's window. An event that does not fit the state changes nothing.
    pub(in crate::turn) fn fold_run(&mut self, now: Now, event_at: Micros, agent: &AgentId, body: &EventBody) -> u32 {
        if !agent.is_orchestrator() {
            // A live Engine receives its sub-agents' calls only with their reports, so a replay also counts them there.
            let steering = self.agents.plan.node(agent).map(|node| node.steering.as_slice()).unwrap_or_default();
            match (self.agents.runs.get_mut(agent), body) {
                (Some(run), EventBody::SteeringTaken { count }) => run.take_steering(steering, *count),
                (Some(run), body) => drop(run.fold(event_at, body)),
                (None, _) => {}
            }
            return 0;
        }
        if let Some(end) = body.round_end() {
            self.credit_wait(now.at, end);
            self.restart_clock_after_dependencies(end.round, now.at);
        }
        if let Some(reply) = Reply::of(body) {
            self.main_replied(&reply, now);
            return 0;
        }
        let mut is_result = false;
        if let EventBody::ModelFailed { round, error, .. } = body
            && self.cannot_shrink(*round, error)
        {
            // Messages that the caller sent are never shortened silently.
            self.main.failed_for_good(error);
        } else {
            is_result = self.main.fold(event_at, body);
            self.judge_ready();
        }
        if body.round_end().is_some() {
            // A cut answer without its continuation is still an answer, and waits for its agents like any other.
            self.note_owed_results();
        }
        self.settle();
        u32::from(is_result)
    }

    /// Whether this failure says that the messages of a caller do not fit.
    fn cannot_shrink(&self, round: u32, error: &ModelError) -> bool {
        error.kind == ModelErrorKind::Overflow && self.inbound.thread().is_some() && self.main.awaits(round)
    }

    fn main_replied(&mut self, reply: &Reply<'_>, now: Now) {
        if !self.main.awaits(reply.round) {
            return;
        }
        if self.main.is_advising() {
            self.main.replied(reply);
            self.settle();
            return;
        }
        // Other turns may have used calls of the window meanwhile.
        (self.main.calls_max, self.main.calls_note) =
            opening::own_calls(self.mode, &self.limits, self.main.calls_used, now.window_used);
        self.steering.awaited.clear();
        if self.accept_cut_reply(reply) {
            return;
        }
        if self.main.acts() && reply.calls.is_empty() {
            // Only the text of the agentic backend says what it did.
            self.main.done.push(format!("a program's work: {}", first_line(reply.text)));
        }
        self.main.has_agents = !self.agents.plan.nodes().is_empty();
        self.main.replied(reply);
        self.dispatch();
        self.control_agents();
        let has_rounds = self.main.round < self.main.rounds_max;
        if matches!(self.main.phase, Phase::Ended(Ending::Output(_))) && !self.steering.unseen.is_empty() && has_rounds
        {
            // The model has not seen the user's additions yet, so its answer waits for one more round.
            self.steering.awaited.clone_from(&self.steering.unseen);
            self.main.next_round();
        }
        self.note_owed_results();
        self.settle();
    }

    /// Answers `get_agent_results` calls whose agents have all reported, and starts the next round once all calls have results.
    pub(in crate::turn) fn settle(&mut self) {
        let waiting: Vec<(String, Vec<AgentId>)> = self
            .main
            .open_calls()
            .iter()
            .filter(|o| o.result.is_none())
            .filter_map(|o| match &o.call.action {
                Action::Collect { agents } => Some((o.call.id.clone(), agents.clone())),
                _ => None,
            })
            .collect();
        for (call_id, mut agents) in waiting {
            let is_known = |agent: &AgentId| self.agents.plan.node(agent).is_some();
            if self.main.workflow.is_some() && agents.iter().any(is_known) {
                // A refused dispatch is the result of its own call. The other agents of the step are waited for.
                agents.retain(is_known);
            }
            if let Some(unknown) = agents.iter().find(|a| self.agents.plan.node(a).is_none()) {
                self.main.answer(&call_id, format!("Error: no agent {unknown} was dispatched in this turn."));
            } else if !self.agents.plan.is_waiting_for(&agents) {
                self.report_to_workflow(&agents);
                let results = self.agents.plan.collect(&agents);
                self.main.answer(&call_id, results);
            }
        }
        self.main.settle();
        self.judge_answer();
    }

    /// Hands the reports of these agents to the workflow of the turn, if it has one.
    fn report_to_workflow(&mut self, agents: &[AgentId]) {
        for agent in agents {
            if let Some(NodeState::Reported(report)) = self.agents.plan.node(agent).map(|node| &node.state) {
                self.main.step_reported(agent, report);
            }
        }
    }

    /// Whether its model has seen the result of a skill or of an agent.
    fn has_results(&self) -> bool {
        !self.main.ran.is_empty()
            || self.agents.plan.nodes().iter().skip(self.agents.plan.before()).any(|node| node.collected)
    }

    /// Before a new round, adds the steering messages and the kernel's notes to the model's context.
    pub(in crate::turn) fn deliver_notes(&mut self) {
        self.deliver_steering();
        // Without results the model has nothing to answer with, so a slow first round is no reason to finish early.
        if self.clock.soft_passed && self.has_results() && !std::mem::replace(&mut self.clock.hinted, true) {
            self.notes.push(report::WRAP_UP.to_owned());
        }
        for note in std::mem::take(&mut self.notes) {
            self.main.note(&note);
        }
    }

    /// The directives that have no result yet.
    pub(in crate::turn) fn outstanding(&self) -> Vec<Directive> {
        let mut wanted = Vec::new();
        if self.control.is_cancelled {
            return wanted;
        }
        // A suspended turn waits for its permit in the queue, and the steps of a workflow need none.
        let waits = self.control.is_suspended && self.main.workflow.is_some() && self.main.phase == Phase::Thinking;
        if !waits {
            wanted.extend(self.main.outstanding(self.task));
        }
        let running = self.agents.plan.running().map(|n| n.spec.agent.clone());
        wanted.extend(running.map(|agent| Directive::RunAgent { task: self.task, agent }));
        wanted
    }
}
