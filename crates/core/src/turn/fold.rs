//! Folding events into an open turn.

use super::{
    conversation::{Clock, Deferral, Now, Turn},
    directive::Directive,
    inbox::Pending,
    interface::USER_ADDS,
    opening, report,
    run::{Ending, Phase, Reply},
    sub, truth,
};
use crate::{
    classify::spoken,
    context::{clip, escape},
    dead_letter::Strategy,
    event::{Action, AgentReport, DispatchSpec, EventBody, ResumeCause, RoundEnd},
    ids::AgentId,
    message::{ModelError, ModelErrorKind},
    plan::{Node, first_line},
    time::Micros,
};

impl Turn {
    /// Folds an event of one of its agents' rounds or calls; `event_at` is the event's timestamp. Returns how many skill calls
    /// the event adds to the conversation's window. An event that does not fit the state changes nothing.
    pub(super) fn fold_run(&mut self, now: Now, event_at: Micros, agent: &AgentId, body: &EventBody) -> u32 {
        if !agent.is_orchestrator() {
            // A live Engine receives its sub-agents' calls only with their reports, so a replay also counts them there.
            if let Some(run) = self.runs.get_mut(agent) {
                run.fold(event_at, body);
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

    /// Credits the time that a round waited for its permits, however the round ended: it does not count for the task's deadlines.
    fn credit_wait(&mut self, at: Micros, end: RoundEnd) {
        if self.main.awaits(end.round) {
            self.clock.credit(end.waited_ms, at);
            self.clock.credit_prefill(end.prefill_ms, at);
            (self.clock.agents_waited_ms, self.clock.agents_prefill_ms) = (0, 0);
        }
    }

    /// Skill calls that are reserved for the sub-agents, plus those that the main agent has running.
    pub(super) fn calls_under_way(&self) -> u32 {
        let own = u32::try_from(self.main.wanted_skills().count()).unwrap_or(u32::MAX);
        self.plan.calls_granted().saturating_add(own)
    }

    /// Before a new round, adds the steering messages and the kernel's notes to the model's context.
    pub(super) fn deliver_notes(&mut self) {
        for Pending { task, inbound, .. } in std::mem::take(&mut self.heard) {
            // Later turns see these words with the message. A retry reads the original message from the log.
            self.inbound.text.push_str("\n\n");
            self.inbound.text.push_str(&inbound.text);
            self.main.add_user_message(&format!("{USER_ADDS}, while you work on this:]\n{}", inbound.text));
            self.main.provenance.add_user_text(&inbound.text);
            // The addition may request a change where the first message only asked a question.
            self.facts.spoken_as = self.facts.spoken_as.map(|kind| kind.max(spoken(&inbound.text)));
            self.main.is_asked &= truth::asks_what_was(&inbound.text);
            self.main.asks_only &= spoken(&inbound.text).reads_only();
            self.told.push(task);
        }
        // Without results the model has nothing to answer with, so a slow first round is no reason to finish early.
        if self.clock.soft_passed && self.has_results() && !std::mem::replace(&mut self.clock.hinted, true) {
            self.notes.push(report::WRAP_UP.to_owned());
        }
        for note in std::mem::take(&mut self.notes) {
            self.main.note(&note);
        }
    }

    /// Records that a deadline has passed. A suspended turn has no deadlines.
    pub(super) const fn deadline_passed(&mut self, is_hard: bool) {
        if self.suspended {
            return;
        }
        if is_hard {
            self.clock.hard_passed = true;
        } else {
            self.clock.soft_passed = true;
        }
    }

    /// Defers the turn. Returns false if it was deferred until this time already.
    pub(super) fn defer_until(&mut self, until: Micros, after_failure: bool, at: Micros) -> bool {
        if self.deferral.until == Some(until) {
            return false;
        }
        let count = self.deferral.count.saturating_add(u32::from(until > at));
        self.deferral = Deferral { until: Some(until), count, is_due: false, is_lifted: false, after_failure };
        self.clock = Clock::starting(until);
        self.aside = true;
        true
    }

    /// Records that a new incarnation of the Engine resumed the turn.
    pub(super) fn resumed(&mut self, cause: ResumeCause, at: Micros) {
        // A suspended or deferred turn was not running, so it did not cause the end of the Engine or the process.
        if self.is_at_rest() || self.deferral.until.is_some_and(|until| until > at) {
            return;
        }
        match cause {
            ResumeCause::Bystander => {}
            ResumeCause::Crash => self.crashes = self.crashes.saturating_add(1),
            // A turn that may still wait for other tasks did not cause it either. It may wait through any number of restarts. The
            // log records only for agentic backends that the first round was running, and those rounds count.
            ResumeCause::Restart if self.may_wait_for_others() && self.main.interrupted().is_none() => {}
            ResumeCause::Restart => {
                self.restarts = self.restarts.saturating_add(1);
                // While the process was down, the turn could not run. `restarts_max` bounds how often its deadlines restart.
                self.restart_clock(at);
            }
        }
    }

    /// Restarts the deadlines at the end of the first round of a turn that waited for other tasks: that time does not count.
    fn restart_clock_after_dependencies(&mut self, round: u32, at: Micros) {
        if round == 1 && !self.inbound.after.is_empty() {
            self.restart_clock(at);
        }
    }

    /// Whether its model has seen the result of a skill or of an agent.
    fn has_results(&self) -> bool {
        !self.main.ran.is_empty() || self.plan.nodes().iter().skip(self.plan.before()).any(|node| node.collected)
    }

    /// Begins another attempt after the model failed. The context so far is kept.
    pub(super) fn retry(&mut self, strategy: Strategy, reason: &str, at: Micros) {
        if !matches!(self.main.phase, Phase::Ended(Ending::ModelFailed(_))) || self.strategies.contains(&strategy) {
            return;
        }
        self.strategies.push(strategy);
        self.tried.push(reason.to_owned());
        self.failing_since.get_or_insert(at);
        match strategy {
            // The failed backend moves to the end of the route, if there is another one.
            Strategy::OtherBackend if self.route.len() > 1 => self.route.rotate_left(1),
            Strategy::OtherBackend => {}
            Strategy::Later => self.deferral.is_due = true,
        }
        self.main.again();
    }

    fn main_replied(&mut self, reply: &Reply<'_>, now: Now) {
        if !self.main.awaits(reply.round) {
            return;
        }
        // Other turns may have used calls of the window meanwhile.
        (self.main.calls_max, self.main.calls_note) =
            opening::own_calls(self.mode, &self.limits, self.main.calls_used, now.window_used);
        self.waited_for.clear();
        if self.accept_cut_reply(reply) {
            return;
        }
        if self.main.acts() && reply.calls.is_empty() {
            // Only the text of the agentic backend says what it did.
            self.main.done.push(format!("a program's work: {}", first_line(reply.text)));
        }
        self.main.replied(reply);
        self.dispatch();
        let has_rounds = self.main.round < self.main.rounds_max;
        if matches!(self.main.phase, Phase::Ended(Ending::Said(_))) && !self.heard.is_empty() && has_rounds {
            // The model has not seen the user's additions yet, so its answer waits for one more round.
            self.waited_for.clone_from(&self.heard);
            self.main.next_round();
        }
        self.note_owed_results();
        self.settle();
    }

    /// Updates whether the answer must wait for agents whose results the model has not seen.
    fn note_owed_results(&mut self) {
        self.owes_results = matches!(self.main.phase, Phase::Ended(Ending::Said(_))) && self.plan.has_uncollected();
    }

    /// Moves steering messages back to the unseen ones if the turn was answered without the round that its answer waited for,
    /// because its time was up. The model never saw these messages, so they get turns of their own.
    pub(super) fn requeue_unseen_steering(&mut self) {
        for unseen in std::mem::take(&mut self.waited_for).into_iter().rev() {
            if let Some(at) = self.told.iter().position(|task| *task == unseen.task) {
                self.told.remove(at);
                let text = self.inbound.text.strip_suffix(&unseen.inbound.text).and_then(|t| t.strip_suffix("\n\n"));
                self.inbound.text = text.unwrap_or(&self.inbound.text).to_owned();
                self.heard.insert(0, unseen);
            }
        }
    }

    /// Adds all dispatches of the reply to the plan at once, because they may depend on each other.
    fn dispatch(&mut self) {
        let (ids, specs): (Vec<String>, Vec<DispatchSpec>) = self
            .main
            .open_calls()
            .iter()
            .filter(|o| o.result.is_none())
            .filter_map(|o| match &o.call.action {
                Action::Dispatch(spec) => Some((o.call.id.clone(), spec.clone())),
                _ => None,
            })
            .unzip();
        let verdicts = self.plan.add(&specs, self.limits.agents_max);
        for ((call_id, spec), verdict) in ids.into_iter().zip(&specs).zip(verdicts) {
            let text = match verdict {
                Ok(()) => serde_json::json!({"agent_id": spec.agent, "status": "accepted"}).to_string(),
                Err(why) => format!("Error: {why}"),
            };
            self.main.answer(&call_id, text);
        }
    }

    pub(super) fn agent_started(&mut self, agent: &AgentId, calls_granted: u32, at: Micros) {
        if self.plan.started(agent, calls_granted, at)
            && let Some(node) = self.plan.node(agent)
        {
            let run = sub::first_run(&node.spec, self, calls_granted);
            self.runs.insert(agent.clone(), run);
        }
    }

    pub(super) fn agent_reported(&mut self, at: Micros, agent: &AgentId, report: &AgentReport) -> u32 {
        let shown =
            AgentReport { result: clip(&report.result, self.limits.result_bytes_max()).into_owned(), ..report.clone() };
        if !self.plan.reported(agent, shown) {
            return 0;
        }
        self.runs.remove(agent);
        self.progress.remove(agent);
        let more_ms = report.waited_ms.saturating_sub(self.clock.agents_waited_ms);
        self.clock.credit(more_ms, at);
        self.clock.agents_waited_ms += more_ms;
        let more_ms = report.prefill_ms.saturating_sub(self.clock.agents_prefill_ms);
        self.clock.credit_prefill(more_ms, at);
        self.clock.agents_prefill_ms += more_ms;
        self.main.provenance.add_ids(report.ids.iter().copied());
        self.main.provenance.reported(report);
        self.settle();
        self.plan.node(agent).map_or(0, Node::charged)
    }

    /// Gives the orchestrator, which answered before it saw its agents' results, these results and another round.
    pub(super) fn give_results(&mut self) {
        if !self.owes_results || self.plan.unreported().next().is_some() {
            return;
        }
        self.owes_results = false;
        let results = escape(&self.plan.collect(&[])).into_owned();
        self.main.note(&format!("[Agent results]\n{results}\n[Answer the user from these.]"));
        self.main.next_round();
    }

    /// Answers `get_agent_results` calls whose agents have all reported, and starts the next round once all calls have results.
    fn settle(&mut self) {
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
        for (call_id, agents) in waiting {
            if let Some(unknown) = agents.iter().find(|a| self.plan.node(a).is_none()) {
                self.main.answer(&call_id, format!("Error: no agent {unknown} was dispatched in this turn."));
            } else if !self.plan.is_waiting_for(&agents) {
                let results = self.plan.collect(&agents);
                self.main.answer(&call_id, results);
            }
        }
        self.main.settle();
        self.check_format();
    }

    /// Whether the turn is suspended and has no running work left.
    pub(super) fn is_at_rest(&self) -> bool {
        let acts = self.plan.running().next().is_some() || self.main.wanted_skills().next().is_some();
        self.suspended && !self.cancelled && !acts
    }

    /// The directives that have no result yet.
    pub(super) fn outstanding(&self) -> Vec<Directive> {
        let mut wanted = Vec::new();
        if self.cancelled {
            return wanted;
        }
        if self.main.phase == Phase::Thinking {
            let agent = AgentId::orchestrator();
            wanted.push(Directive::CallModel { task: self.task, agent, round: self.main.round });
        }
        wanted.extend(self.main.wanted_skills().map(|(open, skill)| Directive::CallSkill {
            task: self.task,
            agent: AgentId::orchestrator(),
            call_id: open.call.id.clone(),
            skill: skill.clone(),
            started_before: open.started,
        }));
        let running = self.plan.running().map(|n| n.spec.agent.clone());
        wanted.extend(running.map(|agent| Directive::RunAgent { task: self.task, agent }));
        wanted
    }
}
