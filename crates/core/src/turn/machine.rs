//! The turn machine: routes every event to the concern that folds it, asks the concerns for decisions in their order, and lists
//! the directives that have no result yet. The concerns hold all rules (`turn/concern/`).

#![deny(clippy::wildcard_enum_match_arm)]

use super::{
    Decision,
    concern::{JobCommand, Lane, Now, missed_deadline, window_start},
    conversation::{Conversation, Turn},
    directive::Directive,
    report,
    run::{Ending, Phase},
};
use crate::{
    event::{Event, EventBody, Recorder},
    ids::{AgentId, Seq, TaskId},
    time::Micros,
};

impl Conversation {
    /// Folds an event of the log. An event that does not fit the state (late, repeated, of another turn) only advances the
    /// sequence number, because the log may contain late events.
    pub fn apply(&mut self, event: &Event) {
        self.seq = event.seq.max(self.seq);
        self.take(event.seq, event.at, event.task, &event.agent, &event.body);
    }

    /// Folds an event whose sequence number is not known yet, but is higher than all others. [`Self::set_last_seq`] sets it
    /// later.
    pub fn fold(&mut self, at: Micros, task: TaskId, agent: &AgentId, body: &EventBody) {
        self.take(Seq(self.seq.0.saturating_add(1)), at, task, agent, body);
    }

    fn take(&mut self, seq: Seq, at: Micros, task: TaskId, agent: &AgentId, body: &EventBody) {
        debug_assert!(
            agent.is_orchestrator() || is_about_an_agent(body),
            "{task}: {} is not about an agent, and names {agent}",
            body.kind()
        );
        if is_recorded_by_the_engine(agent, body) {
            self.at = at.max(self.at);
        }
        self.count_model_calls(at, task, agent, body);
        match body {
            EventBody::Received(inbound) => self.received(seq, at, task, inbound),
            EventBody::Joined { into } => self.join(task, *into),
            EventBody::TurnStarted { mode, facts, limits, route, .. } => self.begin(task, *mode, facts, limits, route),
            EventBody::CancelRequested { .. } => self.cancel(task),
            EventBody::Suspended { .. } => self.set_suspended(task, true),
            EventBody::Continued { .. } => self.set_suspended(task, false),
            EventBody::Reprioritised { priority, .. } => self.reprioritise(task, *priority),
            EventBody::Ordered { verb, targets, text } => self.resolve_job_command(task, *verb, targets, text),
            EventBody::DeadlinePassed { hard, dead_letters } => {
                self.deadline_passed(task, *hard, dead_letters.as_ref());
            }
            EventBody::Deferred { until, after_failure, .. } => self.defer(task, *until, *after_failure),
            EventBody::Retried { strategy, reason } => self.in_turn(task, |turn, now| {
                turn.retry(*strategy, reason, now.at);
            }),
            EventBody::InterfaceChanged { .. } => self.in_turn(task, |turn, now| {
                turn.switch_to_commands(now.window_used);
            }),
            EventBody::AgentStarted { calls_granted } => self.in_turn(task, |turn, now| {
                turn.agent_started(agent, *calls_granted, now.at);
            }),
            EventBody::AgentReported { report } => {
                self.in_turn_with_calls(task, |turn, now| turn.agent_reported(now.at, agent, report));
            }
            EventBody::AgentSteered { .. } | EventBody::AgentStopRequested { .. } => {
                self.in_turn(task, |turn, _| turn.controlled(agent, body));
            }
            EventBody::ApprovalRequested { .. } => self.approval_requested(task, agent, body),
            EventBody::ApprovalDecided { .. } => self.approval_decided(task, body),
            EventBody::ResultsGiven => self.in_turn(task, |turn, _| turn.give_results()),
            EventBody::Resumed { cause } => self.in_turn(task, |turn, now| turn.resumed(*cause, now.at)),
            EventBody::ModelReplied { .. }
            | EventBody::ModelFailed { .. }
            | EventBody::RoundBegan { .. }
            | EventBody::RoundNotBegun { .. }
            | EventBody::SkillStarted { .. }
            | EventBody::SkillFinished { .. }
            | EventBody::SteeringTaken { .. }
            | EventBody::Decided { hook: Some(_), .. } => {
                self.note_skill_change(task, agent, body);
                self.in_turn_with_calls(task, |turn, now| turn.fold_run(now, at, agent, body));
                self.show_summary_if_complete(task);
            }
            EventBody::Copied(copied) => self.begin_copy(task, copied),
            EventBody::Compacted(compacted) => self.compacted(task, compacted),
            EventBody::Decided { component, hook: None, .. } => self.decided_by(task, component),
            // Records for readers of the log, and facts about a task that has ended.
            EventBody::LoopDetected { .. } | EventBody::DeadLetterDue { .. } | EventBody::DeadLetterMoved { .. } => {}
            EventBody::Answered { .. } | EventBody::Failed { .. } | EventBody::Cancelled { .. } => {
                if let Some(end) = body.as_final() {
                    self.finish(task, end);
                }
            }
        }
        for turn in &mut self.turns {
            turn.update_steerable(self.at);
        }
    }

    /// Counts the model calls of an event. The rounds of a sub-agent are counted with its report, because a live Engine does not
    /// receive them.
    fn count_model_calls(&mut self, at: Micros, task: TaskId, agent: &AgentId, body: &EventBody) {
        // A repeated event is counted once.
        let Some(turn) = self.turn(task) else { return };
        if let EventBody::AgentReported { report } = body {
            if turn.agents.plan.unreported().any(|node| node.spec.agent == *agent) {
                self.model_calls.count(at, report.model_calls);
            }
        } else if agent.is_orchestrator()
            && body.is_model_call()
            && body.round_end().is_some_and(|end| turn.main.awaits(end.round))
        {
            self.model_calls.count(at, 1);
        }
    }

    /// Folds an event into the open turn of a task, if there is one.
    pub(in crate::turn) fn in_turn(&mut self, task: TaskId, fold: impl FnOnce(&mut Turn, Now)) {
        self.in_turn_with_calls(task, |turn, now| {
            fold(turn, now);
            0
        });
    }

    /// Folds an event into the open turn of a task, if there is one. `fold` returns how many skill calls the event adds to the
    /// conversation's window.
    fn in_turn_with_calls(&mut self, task: TaskId, fold: impl FnOnce(&mut Turn, Now) -> u32) {
        let at = self.at;
        let Some(window_used) = self.turn(task).map(|t| self.window_used(&t.limits)) else { return };
        let Some(turn) = self.turns.iter_mut().find(|t| t.task == task) else { return };
        let round = turn.main.round;
        let calls = fold(turn, Now { at, window_used });
        if turn.main.phase == Phase::Thinking && turn.main.round != round && !turn.main.is_advising() {
            turn.deliver_notes();
            turn.begin_step(at);
        }
        debug_assert!(!turn.main.awaits_nothing(), "{}: the next round begins once all calls have results", turn.task);
        debug_assert!(turn.agents.are_in_plan(), "{}: the runs are those of the running agents", turn.task);
        if calls > 0 {
            let from = window_start(at, &turn.limits);
            self.window.retain(|t| *t >= from);
            self.window.extend(std::iter::repeat_n(at, calls as usize));
        }
    }

    /// Sets the sequence number of the last folded event.
    pub fn set_last_seq(&mut self, seq: Seq) {
        self.seq = seq.max(self.seq);
    }

    /// The next event that follows from the state, or `None`.
    #[must_use]
    pub fn decide(&self) -> Option<Decision> {
        let main = |task, body| Some(Decision { task, agent: AgentId::orchestrator(), body });
        if let Some((task, body)) = self.owed.front() {
            return main(*task, body.clone());
        }
        if let Some(task) = self.cancelled.first() {
            return main(*task, EventBody::Cancelled { text: report::CANCELLED.to_owned() });
        }
        if let Some(decision) = self.decide_approval() {
            return Some(decision);
        }
        if let Some(decision) = self.decide_compaction() {
            return Some(decision);
        }
        if let Some((task, into)) = self.joining() {
            return main(task, EventBody::Joined { into });
        }
        if let Some((task, priority, by)) = self.priority_lift() {
            return main(task, EventBody::Reprioritised { priority, by: by.to_string() });
        }
        if let Some((task, body)) = self.inbox.iter().find_map(|p| Some((p.task, missed_deadline(p, self.at)?))) {
            return main(task, body);
        }
        self.turns.iter().find_map(|turn| {
            let now = Now { at: self.at, window_used: self.window_used(&turn.limits) };
            turn.decide(now).map(|decision| turn.after_withdrawals(decision))
        })
    }

    /// The directives that have no result yet. A message that is not due has none. Job commands are carried out one at a time,
    /// because "pause that" and "go on" in the wrong order would mean the opposite.
    #[must_use]
    pub fn outstanding(&self, now: Micros) -> Vec<Directive> {
        let turns = self.turns.iter().flat_map(Turn::outstanding);
        let begins = Lane::ALL.into_iter().filter_map(|lane| self.next_in(lane, now));
        let begins = begins.map(|p| Directive::BeginTurn { task: p.task });
        let of_conversation =
            self.job_commands.first().map(JobCommand::directive).into_iter().chain(self.due_compaction());
        turns.chain(begins).chain(of_conversation).collect()
    }
}

impl Turn {
    fn decide(&self, now: Now) -> Option<Decision> {
        if self.control.is_cancelled {
            return Some(self.end_agents(now, "The turn was cancelled.").unwrap_or_else(|| {
                self.main(EventBody::Cancelled { text: report::with_progress(report::CANCELLED, self) })
            }));
        }
        if let Some(report) = self.end_stopped_agent(now) {
            return Some(report);
        }
        if let Some(body) = self.main.interrupted() {
            return Some(self.main(body));
        }
        if let Some(body) = self.change_of_interface() {
            return Some(self.main(body));
        }
        if self.deferral.is_due {
            let reason = "its model failed; it is retried later";
            return Some(self.main(self.defer(now, self.retry_wait_ms(), reason, true)));
        }
        if self.deferral.is_lifted {
            let reason = "it was resumed before its time".to_owned();
            return Some(self.main(EventBody::Deferred { until: now.at, reason, after_failure: false }));
        }
        // A turn that is being given up, or that is suspended, starts no agents.
        let starts_no_agents = self.control.is_suspended
            || matches!(
                self.main.ending(),
                Some(Ending::GaveUp(_) | Ending::Silent(_) | Ending::ModelFailed(_) | Ending::StepFailed(_))
            );
        self.poisoned(now)
            .or_else(|| self.overdue(now))
            .or_else(|| if starts_no_agents { None } else { self.decide_agents(now) })
            .or_else(|| self.decide_ending(now))
    }

    pub(in crate::turn) fn main(&self, body: EventBody) -> Decision {
        let body = match self.voice() {
            Some(voice) => body.read_aloud(voice),
            None => body,
        };
        let body = body.redacted(&self.limits.redact, &self.inbound.text);
        Decision { task: self.task, agent: AgentId::orchestrator(), body }
    }
}

/// Whether an event of this kind may name a sub-agent.
fn is_about_an_agent(body: &EventBody) -> bool {
    matches!(body.recorder(), Recorder::Agent | Recorder::Round | Recorder::Breaker | Recorder::Several)
        || matches!(body, EventBody::AgentStarted { .. } | EventBody::AgentReported { .. })
        || matches!(body, EventBody::AgentSteered { .. } | EventBody::AgentStopRequested { .. })
        || matches!(body, EventBody::ApprovalRequested { .. } | EventBody::ApprovalDecided { .. })
}

/// Whether the Engine recorded this event, so that the event's timestamp advances the conversation's time. Front ends,
/// background workers, rounds, breakers and agents append events of their own, which a live Engine receives later or never.
/// If the timestamps of those advanced the time, a replay would reach states that no live Engine had.
fn is_recorded_by_the_engine(agent: &AgentId, body: &EventBody) -> bool {
    match body.recorder() {
        Recorder::Engine => true,
        Recorder::Agent => agent.is_orchestrator(),
        Recorder::FrontEnd | Recorder::Round | Recorder::Breaker | Recorder::DeadLetters | Recorder::Several => false,
    }
}
