//! Decisions: events that follow from a conversation's state alone. The caller stores the event, applies it and asks for the
//! next one.

use super::{
    Decision,
    conversation::{Conversation, Now, Turn},
    inbox::Pending,
    opening::window_note,
    report,
    run::Ending,
};
use crate::{
    dead_letter::{DeadLetter, Strategy},
    event::{AgentReport, AnswerOutcome, EventBody, Inbound, Priority, ReportStatus, Retry},
    ids::AgentId,
    message::{Finish, ModelError, ModelErrorKind, Usage},
    plan::{NOT_STARTED, Node, NodeState},
    receipt::Receipt,
    time::Micros,
};

impl Conversation {
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
        if let Some((task, into)) = self.joining() {
            return main(task, EventBody::Joined { into });
        }
        if let Some((task, priority, by)) = self.priority_lift() {
            return main(task, EventBody::Reprioritised { priority, by: by.to_string() });
        }
        if let Some((task, body)) = self.inbox.iter().find_map(|p| Some((p.task, missed_deadline(p, self.at)?))) {
            return main(task, body);
        }
        self.turns.iter().find_map(|turn| turn.decide(Now { at: self.at, window_used: self.window_used(&turn.limits) }))
    }
}

/// The failure of a message whose turn could not begin before its hard deadline [S3 5.3.5]. NORMAL and LOW messages, whose
/// users do not wait for the answer, get a second deadline first.
fn missed_deadline(pending: &Pending, now: Micros) -> Option<EventBody> {
    let class = pending.inbound.priority;
    let terms = if matches!(class, Priority::Normal | Priority::Low) { 2 } else { 1 };
    if pending.late < terms {
        return None;
    }
    let reason = "it could not begin in time".to_owned();
    // A stateless caller receives this failure, and no client would read the answer to a later retry.
    let is_kept = !matches!(class, Priority::Realtime | Priority::Background)
        && !pending.inbound.stateless
        && pending.dead_letters.keeps(class, pending.inbound.retry.is_some());
    let dead_letter = is_kept.then(|| {
        let dead_letter = dead_letter_of(&pending.inbound, now, &[], &reason);
        let had_effects = pending.inbound.retry.as_ref().is_some_and(Retry::had_effects);
        DeadLetter {
            retry_at: pending.dead_letters.retry_at(class, dead_letter.since, now).filter(|_| !had_effects),
            ..dead_letter
        }
    });
    let text = match class {
        Priority::Realtime => report::TROUBLE.to_owned(),
        _ => report::with_dead_letter("I could not get to this in time.", dead_letter.as_ref(), now),
    };
    Some(EventBody::Failed { code: "deadline".to_owned(), text, detail: reason, dead_letter })
}

/// Creates a dead letter without an automatic retry. The dead letter of a retry continues the history of the dead letter
/// that was retried.
fn dead_letter_of(inbound: &Inbound, failing_since: Micros, tried: &[String], reason: &str) -> DeadLetter {
    let (since, before) = match &inbound.retry {
        Some(retry) => (retry.since, retry.tried.as_slice()),
        None => (failing_since, [].as_slice()),
    };
    let tried = before.iter().chain(tried).cloned().chain([reason.to_owned()]).collect();
    DeadLetter { tried, since, retry_at: None }
}

/// Whether the same request may succeed on another backend or at a later time.
const fn may_succeed_on_retry(error: &ModelError) -> bool {
    !matches!(
        error.kind,
        ModelErrorKind::Content
            | ModelErrorKind::InvalidRequest
            | ModelErrorKind::ToolsUnsupported
            | ModelErrorKind::Overflow
            | ModelErrorKind::InDoubt
    )
}

impl Turn {
    fn main(&self, body: EventBody) -> Decision {
        Decision { task: self.task, agent: AgentId::orchestrator(), body }
    }

    /// The final failure of the turn. If `is_retryable` is false, the work would fail again in the same way, and its dead letter
    /// is not retried automatically.
    fn failed(&self, now: Now, code: &str, text: &str, detail: String, is_retryable: bool) -> Decision {
        let dead_letter = dead_letter_of(&self.inbound, self.failing_since.unwrap_or(now.at), &self.tried, &detail);
        let retry_at = self.limits.dead_letters.retry_at(self.inbound.priority, dead_letter.since, now.at);
        let retry_at = retry_at.filter(|_| is_retryable);
        // A model that is asked again may phrase the same effect differently. No receipt would match then, and the effect would
        // happen twice.
        let needs_manual_retry = retry_at.is_some() && self.had_effects();
        let dead_letter = DeadLetter { retry_at: retry_at.filter(|_| !needs_manual_retry), ..dead_letter };
        // A stateless caller receives this failure and decides about a retry. No client would read the answer to a later one.
        let is_kept = self.limits.dead_letters.keeps(self.inbound.priority, self.inbound.retry.is_some());
        let dead_letter = Some(dead_letter).filter(|_| is_kept && !self.inbound.stateless);
        let mut text = report::with_dead_letter(&report::with_progress(text, self), dead_letter.as_ref(), now.at);
        if needs_manual_retry && dead_letter.is_some() {
            text.push_str(report::NEEDS_MANUAL_RETRY);
        }
        self.main(EventBody::Failed { code: code.to_owned(), text, detail, dead_letter })
    }

    /// The failure of a turn that has no answer in the requested format.
    fn format_failure(&self, now: Now, why: &str) -> Decision {
        let text = format!("{} {why}", report::WRONG_FORMAT);
        let detail = format!("no answer in the form that was asked for: {why}");
        self.failed(now, "answer_format", &text, detail, false)
    }

    fn reported(&self, now: Now, node: &Node, status: ReportStatus, result: String) -> Decision {
        let agent = node.spec.agent.clone();
        let since = if let NodeState::Running { since, .. } = node.state { since } else { now.at };
        // The progress of a live agent is newer than the state that the Engine read from the log when it started.
        let report = match (self.progress.get(&agent), self.runs.get(&agent)) {
            (Some(progress), _) => {
                AgentReport { status, result, duration_ms: now.at.since_ms(since), ..progress.clone() }
            }
            (None, Some(run)) => run.report(status, result, since, now.at),
            (None, None) => AgentReport { duration_ms: now.at.since_ms(since), ..AgentReport::bare(status, result) },
        };
        Decision { task: self.task, agent, body: EventBody::AgentReported { report } }
    }

    fn usage(&self) -> Usage {
        let mut usage = self.main.usage;
        usage.add(&self.plan.usage());
        usage
    }

    /// The receipts of this turn's own effects.
    pub(super) fn own_receipts(&self) -> impl Iterator<Item = &Receipt> {
        self.main.receipts.iter().chain(self.plan.own_receipts())
    }

    /// Effects of this turn, and of the turn that it continues, that may have happened.
    pub(super) fn doubts(&self) -> Vec<(String, serde_json::Value)> {
        let mut doubts = self.main.in_doubt.clone();
        for doubt in self.plan.in_doubt() {
            if !doubts.contains(doubt) {
                doubts.push(doubt.clone());
            }
        }
        doubts
    }

    /// The skills that ran in this turn, as [`AgentReport::skills_run`] lists them.
    pub(super) fn skills_run(&self) -> impl Iterator<Item = &str> {
        let by_agents = self.plan.nodes().iter().skip(self.plan.before()).filter_map(Node::report);
        let by_agents = by_agents.flat_map(|report| &report.skills_run);
        self.main.ran.iter().chain(by_agents).map(String::as_str)
    }

    /// Whether any skill ran in this turn.
    pub(super) fn has_run(&self) -> bool {
        self.skills_run().next().is_some()
    }

    /// Whether this turn, or a turn that it continues, had effects or may have had them. Only a person may retry such a turn.
    fn had_effects(&self) -> bool {
        let main = &self.main;
        let own = !main.known.is_empty() || !main.receipts.is_empty() || !main.doubts().is_empty();
        let by_agent =
            |report: &AgentReport| !report.receipts.is_empty() || !report.in_doubt.is_empty() || report.programs_ran;
        own || main.programs_ran || main.acts() || self.plan.reports().any(by_agent)
    }

    /// The receipts of the turns that this turn continues.
    pub(super) fn known_receipts(&self) -> impl Iterator<Item = &Receipt> {
        let known = self.main.known.iter();
        let of_agents = self.plan.nodes().iter().take(self.plan.before()).filter_map(Node::report);
        known.chain(of_agents.flat_map(|report| &report.receipts).filter(|receipt| !self.main.known.contains(receipt)))
    }

    /// Whether this turn, or the turn that it continues, may have changed anything.
    pub(super) fn may_have_changed(&self) -> bool {
        let main = &self.main;
        let own = !main.receipts.is_empty() || !main.known.is_empty() || !main.in_doubt.is_empty();
        let by_agent = |report: &AgentReport| !report.receipts.is_empty() || !report.in_doubt.is_empty();
        own || self.plan.reports().any(by_agent) || self.has_unseen_work()
    }

    /// Whether work was done that no receipt shows: the work of an agentic backend. However an agent ended, its report contains
    /// its receipts and its in-doubt effects. If the turn ended the agent, every call without a result is in doubt. Reports of
    /// older versions have no in-doubt effects.
    pub(super) fn has_unseen_work(&self) -> bool {
        let by_agent =
            |report: &AgentReport| report.programs_ran || report.skills_run.iter().any(|run| run.contains("(unknown)"));
        self.main.programs_ran || self.plan.reports().any(by_agent)
    }

    fn decide(&self, now: Now) -> Option<Decision> {
        if self.cancelled {
            return Some(self.end_agents(now, "The turn was cancelled.").unwrap_or_else(|| {
                self.main(EventBody::Cancelled { text: report::with_progress(report::CANCELLED, self) })
            }));
        }
        if let Some(body) = self.main.interrupted() {
            return Some(self.main(body));
        }
        if let Some(body) = self.change_of_interface() {
            return Some(self.main(body));
        }
        if self.deferral.is_due {
            return Some(self.main(self.defer(now, "its model failed; it is retried later", true)));
        }
        if self.deferral.is_lifted {
            let reason = "it was resumed before its time".to_owned();
            return Some(self.main(EventBody::Deferred { until: now.at, reason, after_failure: false }));
        }
        // A turn that is being given up, or that is suspended, starts no agents.
        let starts_no_agents = self.suspended
            || matches!(self.main.ending(), Some(Ending::GaveUp(_) | Ending::Silent(_) | Ending::ModelFailed(_)));
        self.poisoned(now)
            .or_else(|| self.overdue(now))
            .or_else(|| if starts_no_agents { None } else { self.decide_agents(now) })
            .or_else(|| self.decide_ending(now))
    }

    /// Fails a turn during which the Engine or the process died too often, so that the conversation can continue.
    fn poisoned(&self, now: Now) -> Option<Decision> {
        let (code, text, detail) = if self.crashes >= self.limits.crashes_max.max(1) {
            (
                "engine_crashed",
                "Something in Annie broke down repeatedly over this message, so I have set it aside.",
                format!("the engine died {} times in this turn", self.crashes),
            )
        } else if self.restarts >= self.limits.restarts_max.max(1) {
            (
                "process_restarted",
                "Annie was restarted too often over this message, so I have set it aside.",
                format!("the process ended {} times in this turn", self.restarts),
            )
        } else {
            return None;
        };
        Some(
            self.end_agents(now, "The turn was given up.")
                .unwrap_or_else(|| self.failed(now, code, text, detail, false)),
        )
    }

    fn defer(&self, now: Now, reason: &str, after_failure: bool) -> EventBody {
        let until = now.at.later_ms(self.limits.defer_ms);
        EventBody::Deferred { until, reason: reason.to_owned(), after_failure }
    }

    /// The event that follows once the hard deadline has passed [S3 5.3.5].
    fn overdue(&self, now: Now) -> Option<Decision> {
        const LATE: &str = "It took longer than it may.";
        // A finished answer is delivered even after the deadline.
        let is_answered = matches!(self.main.ending(), Some(Ending::Said(_))) && !self.owes_results;
        if !self.clock.hard_passed || is_answered {
            return None;
        }
        let class = self.inbound.priority;
        if matches!(class, Priority::Normal | Priority::Low) && self.deferral.count == 0 {
            return Some(self.main(self.defer(now, "its hard deadline passed; it continues later", false)));
        }
        if let Some(agent) = self.end_agents(now, "The turn's time was up.") {
            return Some(agent);
        }
        let detail = format!("the hard deadline of class {} passed", class.as_str());
        Some(match class {
            Priority::High if self.format().is_some() => self.format_failure(now, "My time for it was up."),
            Priority::High => {
                let text = report::paused(self, "My time for it was up.");
                let (outcome, finish) = (AnswerOutcome::Done, Finish::Stop);
                self.main(EventBody::Answered {
                    text,
                    paused: true,
                    usage: self.usage(),
                    outcome,
                    finish,
                    calls: Vec::new(),
                })
            }
            Priority::Normal | Priority::Low => self.failed(now, "deadline", LATE, detail, true),
            Priority::Realtime | Priority::Background => {
                let text = if class == Priority::Realtime { report::TROUBLE } else { LATE };
                let text = report::with_progress(text, self);
                self.main(EventBody::Failed { code: "deadline".to_owned(), text, detail, dead_letter: None })
            }
        })
    }

    /// The next strategy for retrying a failed turn. Only classes that are not more urgent than `retry_from` are retried, and
    /// only after errors that another attempt may avoid.
    fn next_strategy(&self, error: &ModelError) -> Option<Strategy> {
        let is_background = self.inbound.priority >= self.limits.dead_letters.retry_from;
        if !is_background || !may_succeed_on_retry(error) {
            return None;
        }
        [Strategy::OtherBackend, Strategy::Later].into_iter().find(|s| !self.strategies.contains(s))
    }

    /// Reports an agent without a report as cancelled. A turn ends only after all its agents have reports.
    fn end_agents(&self, now: Now, why: &str) -> Option<Decision> {
        let node = self.plan.unreported().next()?;
        let result = match node.state {
            NodeState::Running { .. } => format!("{why} What it had done until then may have taken effect."),
            NodeState::Pending | NodeState::Reported(_) => format!("{why} It had not started."),
        };
        Some(self.reported(now, node, ReportStatus::Cancelled, result))
    }

    fn decide_agents(&self, now: Now) -> Option<Decision> {
        let turn_left = self.limits.skill_calls_max.saturating_sub(self.plan.calls_committed());
        let window_left = self.limits.window_calls_max.saturating_sub(now.window_used);
        for (agent, verdict) in self.plan.decidable() {
            let Some(node) = self.plan.node(&agent) else { continue };
            if let Err(why) = verdict {
                return Some(self.reported(now, node, ReportStatus::Skipped, why));
            }
            let granted = node.spec.max_tool_calls.min(turn_left).min(window_left);
            if granted > 0 {
                let body = EventBody::AgentStarted { calls_granted: granted };
                return Some(Decision { task: self.task, agent, body });
            }
            // Running agents return their unused calls with their reports, so a used-up limit is final only if no agent runs.
            if self.plan.running().next().is_none() {
                let why = if turn_left == 0 {
                    format!("{NOT_STARTED}the {} skill calls of this turn are used up.", self.limits.skill_calls_max)
                } else {
                    format!("{NOT_STARTED}{}", window_note(&self.limits))
                };
                return Some(self.reported(now, node, ReportStatus::Skipped, why));
            }
        }
        None
    }

    fn decide_ending(&self, now: Now) -> Option<Decision> {
        let answered = |text: String, paused: bool, outcome: AnswerOutcome| {
            let is_own = matches!(self.main.ending(), Some(Ending::Said(_) | Ending::Silent(_)));
            let finish = if is_own { self.main.finish } else { Finish::Stop };
            EventBody::Answered { text, paused, usage: self.usage(), outcome, finish, calls: Vec::new() }
        };
        let all_reported = self.plan.unreported().next().is_none();
        match self.main.ending()? {
            Ending::Said(_) if self.owes_results => all_reported.then(|| self.main(EventBody::ResultsGiven)),
            Ending::Said(text) => {
                // A program would take additional text for a malformed answer. Claims in its JSON are not checked against the
                // receipts.
                if self.inbound.is_for_a_program() || (self.inbound.sets_length() && text.is_empty()) {
                    let outcome = if self.main.declined { AnswerOutcome::Declined } else { AnswerOutcome::Done };
                    return Some(self.main(answered(text.clone(), false, outcome)));
                }
                let (text, outcome) = report::final_answer(self, text);
                if let Some(text) = report::missions_not_started(self, &text) {
                    return Some(self.main(answered(text, true, outcome)));
                }
                Some(self.main(answered(report::with_suggestion(&text, &self.facts.suggestion), false, outcome)))
            }
            Ending::Called(text, calls) => {
                let mut body = EventBody::answered(report::with_progress(text, self).trim());
                if let EventBody::Answered { usage, finish, calls: handed_over, .. } = &mut body {
                    (*usage, *finish) = (self.usage(), Finish::ToolCalls);
                    handed_over.clone_from(calls);
                }
                Some(self.main(body))
            }
            // A program would take prose in place of the requested JSON for a malformed answer.
            Ending::Unfit(why) => Some(self.format_failure(now, why)),
            Ending::Tripped(why) | Ending::GaveUp(why) | Ending::Silent(why) if self.format().is_some() => {
                Some(self.end_agents(now, "The turn was given up.").unwrap_or_else(|| self.format_failure(now, why)))
            }
            Ending::Silent(_) if !all_reported => self.end_agents(now, "The turn was given up."),
            Ending::Silent(why) => {
                let (text, outcome) = report::no_answer(self, why);
                Some(self.main(answered(text, false, outcome)))
            }
            // Dispatched agents may finish first, because their results belong in the report.
            Ending::Tripped(why) => {
                all_reported.then(|| self.main(answered(report::paused(self, why), true, AnswerOutcome::Done)))
            }
            Ending::GaveUp(why) => Some(
                self.end_agents(now, "The turn was given up.")
                    .unwrap_or_else(|| self.main(answered(report::gave_up(self, why), false, AnswerOutcome::GaveUp))),
            ),
            Ending::ModelFailed(error) => {
                if let Some(strategy) = self.next_strategy(error) {
                    return Some(self.main(EventBody::Retried { strategy, reason: error.to_string() }));
                }
                Some(self.end_agents(now, "The orchestrator's model failed.").unwrap_or_else(|| {
                    let (code, text) = report::model_failed(error);
                    self.failed(now, code, &text, error.to_string(), may_succeed_on_retry(error))
                }))
            }
        }
    }
}
