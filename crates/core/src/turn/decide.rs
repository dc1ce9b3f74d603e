//! What follows from a conversation's state alone: the next event, if there is one that needs nothing from outside. The
//! caller stores it, applies it and asks again.

use super::{
    Decision,
    conversation::{Conversation, Turn},
    inbox::Pending,
    opening::window_note,
    report,
    run::Ending,
};
use crate::{
    event::{AgentReport, AnswerOutcome, EventBody, Inbound, Priority, ReportStatus, Retry},
    ids::AgentId,
    letter::{Letter, Strategy},
    message::{Finish, ModelError, ModelErrorKind, Usage},
    plan::{NOT_STARTED, Node, NodeState},
    receipt::Receipt,
    time::Micros,
};

/// Where a decision is made.
#[derive(Clone, Copy)]
struct Now {
    at: Micros,
    /// Skill calls of the conversation within its sliding window, and those set aside or under way in all its turns.
    window_used: u32,
}

impl Conversation {
    /// The next event that follows from the state, or nothing.
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
        if let Some((task, priority, by)) = self.lifted() {
            return main(task, EventBody::Reprioritised { priority, by: by.to_string() });
        }
        if let Some((task, body)) = self.inbox.iter().find_map(|p| Some((p.task, late(p, self.at)?))) {
            return main(task, body);
        }
        self.turns.iter().find_map(|turn| turn.decide(Now { at: self.at, window_used: self.window_used(&turn.limits) }))
    }
}

/// What becomes of a message that could not begin in time [S3 5.3.5]. Work that nobody waits for gets a second term.
fn late(pending: &Pending, now: Micros) -> Option<EventBody> {
    let class = pending.inbound.priority;
    let terms = if matches!(class, Priority::Normal | Priority::Low) { 2 } else { 1 };
    if pending.late < terms {
        return None;
    }
    let reason = "it could not begin in time".to_owned();
    // A stateless caller was told, and nobody would read the answer to a later try.
    let is_kept = !matches!(class, Priority::Realtime | Priority::Background)
        && !pending.inbound.stateless
        && pending.letters.keeps(class, pending.inbound.retry.is_some());
    let letter = is_kept.then(|| {
        let letter = letter_of(&pending.inbound, now, &[], &reason);
        let had_effects = pending.inbound.retry.as_ref().is_some_and(Retry::had_effects);
        Letter { retry_at: pending.letters.retry_at(class, letter.since, now).filter(|_| !had_effects), ..letter }
    });
    let text = match class {
        Priority::Realtime => report::TROUBLE.to_owned(),
        _ => report::with_letter("I could not get to this in time.", letter.as_ref(), now),
    };
    Some(EventBody::Failed { code: "deadline".to_owned(), text, detail: reason, letter })
}

/// A dead letter that is not tried again by itself. A retry's letter goes on from the one that it was made of.
fn letter_of(inbound: &Inbound, failing_since: Micros, tried: &[String], reason: &str) -> Letter {
    let (since, before) = match &inbound.retry {
        Some(retry) => (retry.since, retry.tried.as_slice()),
        None => (failing_since, [].as_slice()),
    };
    let tried = before.iter().chain(tried).cloned().chain([reason.to_owned()]).collect();
    Letter { tried, since, retry_at: None }
}

/// Whether the same request may come out differently elsewhere or later.
const fn another_try_may_help(error: &ModelError) -> bool {
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

    /// The visible failure. What would fail again in the same way is not tried again by itself.
    fn failed(&self, now: Now, code: &str, text: &str, detail: String, may_help: bool) -> Decision {
        let letter = letter_of(&self.inbound, self.failing_since.unwrap_or(now.at), &self.tried, &detail);
        let retry_at = self.limits.letters.retry_at(self.inbound.priority, letter.since, now.at);
        let retry_at = retry_at.filter(|_| may_help);
        // A model that is asked again may word the same effect otherwise, and then no receipt would keep it from a second one.
        let waits_for_a_person = retry_at.is_some() && self.had_effects();
        let letter = Letter { retry_at: retry_at.filter(|_| !waits_for_a_person), ..letter };
        // A stateless caller was told and decides; nobody would read the answer to a later try.
        let is_kept = self.limits.letters.keeps(self.inbound.priority, self.inbound.retry.is_some());
        let letter = Some(letter).filter(|_| is_kept && !self.inbound.stateless);
        let mut text = report::with_letter(&report::with_progress(text, self), letter.as_ref(), now.at);
        if waits_for_a_person && letter.is_some() {
            text.push_str(report::WAITS_FOR_A_PERSON);
        }
        self.main(EventBody::Failed { code: code.to_owned(), text, detail, letter })
    }

    /// There is no answer in the form that was asked for.
    fn formless(&self, now: Now, why: &str) -> Decision {
        let text = format!("{} {why}", report::FORMLESS);
        let detail = format!("no answer in the form that was asked for: {why}");
        self.failed(now, "answer_format", &text, detail, false)
    }

    fn reported(&self, now: Now, node: &Node, status: ReportStatus, result: String) -> Decision {
        let agent = node.spec.agent.clone();
        let since = if let NodeState::Running { since, .. } = node.state { since } else { now.at };
        // A live agent knows more than the log told when the Engine began.
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

    /// Effects of this turn, and of the one that it continues, that may have happened.
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

    /// Whether this turn, or one that it goes on from, had effects or may have had: nobody but a person tries it again.
    fn had_effects(&self) -> bool {
        let main = &self.main;
        let own = !main.known.is_empty() || !main.receipts.is_empty() || !main.doubts().is_empty();
        let by_agent =
            |report: &AgentReport| !report.receipts.is_empty() || !report.in_doubt.is_empty() || report.programs_ran;
        own || main.programs_ran || main.acts() || self.plan.reports().any(by_agent)
    }

    /// The receipts of the turns that this one goes on from.
    pub(super) fn known_receipts(&self) -> impl Iterator<Item = &Receipt> {
        let known = self.main.known.iter();
        let of_agents = self.plan.nodes().iter().take(self.plan.before()).filter_map(Node::report);
        known.chain(of_agents.flat_map(|report| &report.receipts).filter(|receipt| !self.main.known.contains(receipt)))
    }

    /// Whether anything may have been changed in this turn, or in the one that it continues.
    pub(super) fn may_have_changed(&self) -> bool {
        let main = &self.main;
        let own = !main.receipts.is_empty() || !main.known.is_empty() || !main.in_doubt.is_empty();
        let by_agent = |report: &AgentReport| !report.receipts.is_empty() || !report.in_doubt.is_empty();
        own || self.plan.reports().any(by_agent) || self.has_unseen_work()
    }

    /// Whether work was done of which no receipt tells: a program's. However an agent ended, its report has its receipts and
    /// what is in doubt; of one that lived until its turn ended it that is
    /// every call without a result. Reports of older versions have no doubts.
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
            return Some(self.main(self.defer(now, "its model failed, and later it may work", true)));
        }
        if self.deferral.is_lifted {
            let reason = "it was let go on before its time".to_owned();
            return Some(self.main(EventBody::Deferred { until: now.at, reason, after_failure: false }));
        }
        // A turn that is being given up starts nobody, and neither does one that is held back.
        let starts_nobody = self.suspended
            || matches!(self.main.ending(), Some(Ending::GaveUp(_) | Ending::Silent(_) | Ending::ModelFailed(_)));
        self.poisoned(now)
            .or_else(|| self.overdue(now))
            .or_else(|| if starts_nobody { None } else { self.decide_agents(now) })
            .or_else(|| self.decide_ending(now))
    }

    /// A message that its Engine cannot survive is taken out of the way, so that the conversation goes on.
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

    /// Its hard deadline has passed [S3 5.3.5].
    fn overdue(&self, now: Now) -> Option<Decision> {
        const LATE: &str = "It took longer than it may.";
        // An answer that is there is given, however late.
        let is_answered = matches!(self.main.ending(), Some(Ending::Said(_))) && !self.owes_results;
        if !self.clock.hard_passed || is_answered {
            return None;
        }
        let class = self.inbound.priority;
        if matches!(class, Priority::Normal | Priority::Low) && self.deferral.count == 0 {
            return Some(self.main(self.defer(now, "its time was up; it goes on later from where it is", false)));
        }
        if let Some(agent) = self.end_agents(now, "The turn's time was up.") {
            return Some(agent);
        }
        let detail = format!("the hard deadline of class {} passed", class.as_str());
        Some(match class {
            Priority::High if self.format().is_some() => self.formless(now, "My time for it was up."),
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
                self.main(EventBody::Failed { code: "deadline".to_owned(), text, detail, letter: None })
            }
        })
    }

    /// How a failed turn is tried again: only work that nobody waits for, and only what another try may mend.
    fn another_way(&self, error: &ModelError) -> Option<Strategy> {
        let nobody_waits = self.inbound.priority >= self.limits.letters.retry_from;
        if !nobody_waits || !another_try_may_help(error) {
            return None;
        }
        [Strategy::OtherBackend, Strategy::Later].into_iter().find(|s| !self.strategies.contains(s))
    }

    /// A report for an agent that has none, before the turn may end.
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
            // What is set aside for running agents comes back with their reports; only if none runs is it final.
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
                // Words beside what a program waits for would be taken for a broken answer. What
                // its JSON claims is not held against the receipts.
                if self.inbound.is_for_a_program() || (self.inbound.sets_length() && text.is_empty()) {
                    let outcome = if self.main.declined { AnswerOutcome::Declined } else { AnswerOutcome::Done };
                    return Some(self.main(answered(text.clone(), false, outcome)));
                }
                let (text, outcome) = report::last_words(self, text);
                if let Some(text) = report::kept_back(self, &text) {
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
            // Words in place of the JSON that a program waits for would be taken for a broken answer.
            Ending::Unfit(why) => Some(self.formless(now, why)),
            Ending::Tripped(why) | Ending::GaveUp(why) | Ending::Silent(why) if self.format().is_some() => {
                Some(self.end_agents(now, "The turn was given up.").unwrap_or_else(|| self.formless(now, why)))
            }
            Ending::Silent(_) if !all_reported => self.end_agents(now, "The turn was given up."),
            Ending::Silent(why) => {
                let (text, outcome) = report::silent(self, why);
                Some(self.main(answered(text, false, outcome)))
            }
            // What was dispatched may finish: its results belong into the report.
            Ending::Tripped(why) => {
                all_reported.then(|| self.main(answered(report::paused(self, why), true, AnswerOutcome::Done)))
            }
            Ending::GaveUp(why) => Some(
                self.end_agents(now, "The turn was given up.")
                    .unwrap_or_else(|| self.main(answered(report::gave_up(self, why), false, AnswerOutcome::GaveUp))),
            ),
            Ending::ModelFailed(error) => {
                if let Some(strategy) = self.another_way(error) {
                    return Some(self.main(EventBody::Retried { strategy, reason: error.to_string() }));
                }
                Some(self.end_agents(now, "The orchestrator's model failed.").unwrap_or_else(|| {
                    let (code, text) = report::model_failed(error);
                    self.failed(now, code, &text, error.to_string(), another_try_may_help(error))
                }))
            }
        }
    }
}
