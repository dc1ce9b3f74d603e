//! Deadlines: from when they count, what moves them, and what follows once they have passed [S3 5.3.5].

use serde::{Deserialize, Serialize};

use super::{Lane, Now, Pending, retry::dead_letter_of};
use crate::{
    dead_letter::{DeadLetter, DeadLetterLimits},
    event::{AnswerOutcome, EventBody, Priority, Retry, RoundEnd},
    ids::TaskId,
    limits::{Deadline, Deadlines},
    message::Finish,
    time::Micros,
    turn::{
        Decision,
        conversation::{Conversation, Turn},
        report,
        run::Ending,
    },
};

/// The state of a task's deadlines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// The time from which the deadlines count.
    pub from: Micros,
    /// The soft deadline has passed.
    pub soft_passed: bool,
    /// The hard deadline has passed.
    pub hard_passed: bool,
    /// The model was asked to finish.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hinted: bool,
    /// How far waits of sub-agents since the main agent's last reply have moved [`Self::from`], in milliseconds. Agents wait at
    /// the same time, so the longest wait counts and not the sum.
    #[serde(default, skip_serializing_if = "crate::event::is_zero")]
    pub agents_waited_ms: u64,
    /// How far waits for permits have moved [`Self::from`], in milliseconds.
    #[serde(default, skip_serializing_if = "crate::event::is_zero")]
    pub waited_ms: u64,
    /// How long models processed their prompts before their first tokens, in milliseconds. The soft deadline is later by this.
    #[serde(default, skip_serializing_if = "crate::event::is_zero")]
    pub prefill_ms: u64,
    /// The sub-agents' part of `prefill_ms` since the main agent's last reply, in milliseconds: the longest, not the sum.
    #[serde(default, skip_serializing_if = "crate::event::is_zero")]
    pub agents_prefill_ms: u64,
    /// Since when the turn waits for a person. That time is not the turn's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_since: Option<Micros>,
}

impl Clock {
    /// Deadlines that count from this time on.
    #[must_use]
    pub const fn starting(from: Micros) -> Self {
        Self {
            from,
            soft_passed: false,
            hard_passed: false,
            hinted: false,
            agents_waited_ms: 0,
            waited_ms: 0,
            prefill_ms: 0,
            agents_prefill_ms: 0,
            approval_since: None,
        }
    }

    /// Moves the deadlines by the time for which the turn waited for a person.
    pub(in crate::turn) fn end_approval_wait(&mut self, now: Micros) {
        if let Some(since) = self.approval_since.take() {
            self.from = self.from.later_ms(now.since_ms(since.max(self.from)));
        }
    }

    /// Credits the time that a model processed its prompt before its first token. Time before [`Self::from`] does not count.
    pub(in crate::turn) fn credit_prefill(&mut self, prefill_ms: u64, now: Micros) {
        let prefill_ms = prefill_ms.min(now.since_ms(self.from));
        self.prefill_ms = self.prefill_ms.saturating_add(prefill_ms);
    }

    /// Credits the time that rounds waited for their permits, which is not the turn's time. Waits before [`Self::from`], for
    /// example while the turn was suspended, do not move the deadlines.
    pub(in crate::turn) fn credit(&mut self, waited_ms: u64, now: Micros) {
        let waited_ms = waited_ms.min(now.since_ms(self.from));
        self.from = self.from.later_ms(waited_ms);
        self.waited_ms = self.waited_ms.saturating_add(waited_ms);
    }
}

impl Clock {
    /// The soft deadline in milliseconds. The time that a model processes its prompt before its first token does not count.
    fn soft_ms(self, deadline: Deadline) -> u64 {
        deadline.soft_ms.saturating_add(self.prefill_ms)
    }

    /// The time `ms` after the clock began. Waits for permits beyond `permit_ms_max` count as the turn's time.
    fn after(self, ms: u64, permit_ms_max: u64) -> Micros {
        let beyond_ms = self.waited_ms.saturating_sub(permit_ms_max);
        self.from.later_ms(ms).plus_ms(-i64::try_from(beyond_ms).unwrap_or(i64::MAX))
    }

    /// The next deadline, and whether it is the hard one. Of the waits for permits, `permit_ms_max` does not count as the turn's
    /// time; longer waits do.
    fn next(self, deadline: Deadline, permit_ms_max: u64) -> Option<(Micros, bool)> {
        let after = |ms: u64| self.after(ms, permit_ms_max);
        match (self.soft_passed, self.hard_passed) {
            (_, true) => None,
            (true, false) => Some((after(deadline.hard_ms), true)),
            (false, false) if self.soft_ms(deadline) < deadline.hard_ms => Some((after(self.soft_ms(deadline)), false)),
            (false, false) => Some((after(deadline.hard_ms), true)),
        }
    }
}

impl Conversation {
    /// Records that a deadline of a turn, or of a message whose turn has not begun, has passed.
    pub(in crate::turn) fn deadline_passed(
        &mut self,
        task: TaskId,
        is_hard: bool,
        dead_letters: Option<&DeadLetterLimits>,
    ) {
        if !(is_hard && self.note_missed_deadline(task, dead_letters)) {
            self.in_turn(task, |turn, _| turn.deadline_passed(is_hard));
        }
    }

    /// Records that a pending message missed its hard deadline; a suspended message has no deadlines. Returns false if the task
    /// is not a pending message.
    fn note_missed_deadline(&mut self, task: TaskId, dead_letters: Option<&DeadLetterLimits>) -> bool {
        let at = self.at;
        let Some(pending) = self.inbox.iter_mut().find(|p| p.task == task) else { return false };
        if !pending.is_suspended {
            pending.late = pending.late.saturating_add(1);
            pending.dead_letters = dead_letters.cloned().unwrap_or_default();
            pending.at = at;
        }
        true
    }

    /// The next deadline: its time, its task, and whether it is the hard one. Suspended tasks have no deadlines.
    #[must_use]
    pub fn next_deadline(&self, deadlines: &Deadlines) -> Option<(Micros, TaskId, bool)> {
        self.next_deadline_adjusted(deadlines, |_, at, _| at)
    }

    /// Like [`Self::next_deadline`], for a caller that knows of waits that are not recorded yet. `moved` moves a turn's deadline
    /// by these waits; its last argument says whether the deadline is the hard one.
    #[must_use]
    pub fn next_deadline_adjusted(
        &self,
        deadlines: &Deadlines,
        moved: impl Fn(&Turn, Micros, bool) -> Micros,
    ) -> Option<(Micros, TaskId, bool)> {
        let turns = self
            .turns
            .iter()
            .filter(|t| !t.control.is_suspended && !t.control.is_cancelled && !t.may_wait_for_others())
            .filter(|t| !t.awaits_approval())
            .filter_map(|t| {
                let (deadline, permit_ms_max) = (t.deadline(deadlines), deadlines.permit_ms_max(t.inbound.priority));
                let (at, is_hard) = t.clock.next(deadline, permit_ms_max)?;
                // A moved soft deadline does not delay the hard one.
                let hard = moved(t, t.clock.after(deadline.hard_ms, permit_ms_max), true);
                let soft = (!is_hard).then(|| moved(t, at, false)).filter(|soft| *soft < hard);
                Some(soft.map_or((hard, t.task, true), |soft| (soft, t.task, false)))
            });
        // A message behind a turn of its own lane has no deadline: the deadlines of that turn count.
        let pending = Lane::ALL.into_iter().flat_map(|lane| self.ready_in(lane)).map(|p| {
            let hard_ms = deadlines.of(p.inbound.priority).hard_ms;
            (p.at.later_ms(hard_ms), p.task, true)
        });
        turns.chain(pending).min()
    }
}

impl Turn {
    /// Records that a deadline has passed. A suspended turn has no deadlines.
    pub(in crate::turn) const fn deadline_passed(&mut self, is_hard: bool) {
        if self.control.is_suspended {
            return;
        }
        if is_hard {
            self.clock.hard_passed = true;
        } else {
            self.clock.soft_passed = true;
        }
    }

    /// Credits the time that a round waited for its permits, however the round ended: it does not count for the task's deadlines.
    pub(in crate::turn) fn credit_wait(&mut self, at: Micros, end: RoundEnd) {
        if self.main.awaits(end.round) {
            self.clock.credit(end.waited_ms, at);
            self.clock.credit_prefill(end.prefill_ms, at);
            (self.clock.agents_waited_ms, self.clock.agents_prefill_ms) = (0, 0);
        }
    }

    /// Restarts the deadlines at the end of the first round of a turn that waited for other tasks: that time does not count.
    pub(in crate::turn) fn restart_clock_after_dependencies(&mut self, round: u32, at: Micros) {
        if round == 1 && !self.inbound.after.is_empty() {
            self.restart_clock(at);
        }
    }

    /// The part of a wait for permits that does not count as this turn's time, in milliseconds. `waited_ms` is not recorded in
    /// the log yet.
    #[must_use]
    pub fn permit_credit_ms(&self, deadlines: &Deadlines, waited_ms: u64) -> u64 {
        let most_ms = deadlines.permit_ms_max(self.inbound.priority);
        waited_ms.min(most_ms.saturating_sub(self.clock.waited_ms))
    }

    /// A spoken request has the deadline of its kind [S2 4]; all others have the deadline of their class.
    pub(in crate::turn) fn deadline(&self, deadlines: &Deadlines) -> Deadline {
        match self.facts.spoken_as {
            Some(kind) if self.inbound.priority == Priority::Realtime => deadlines.voice(kind),
            _ => deadlines.of(self.inbound.priority),
        }
    }

    /// Restarts the deadlines. They do not count before the end of a deferral.
    pub(in crate::turn) fn restart_clock(&mut self, at: Micros) {
        let approval_since = self.awaits_approval().then_some(at);
        self.clock = Clock { approval_since, ..Clock::starting(self.deferral.until.map_or(at, |until| until.max(at))) };
    }

    /// Whether the turn may still wait for the tasks that it depends on, as far as the state shows: its first round has no
    /// result yet.
    pub(in crate::turn) fn may_wait_for_others(&self) -> bool {
        !self.inbound.after.is_empty() && self.main.awaits(1)
    }

    /// The event that follows once the hard deadline has passed [S3 5.3.5].
    pub(in crate::turn) fn overdue(&self, now: Now) -> Option<Decision> {
        const LATE: &str = "It took longer than it may.";
        // A finished answer is delivered even after the deadline.
        let is_answered = match self.main.ending() {
            Some(Ending::Output(_)) => !self.agents.owes_results,
            ending => matches!(ending, Some(Ending::Ready(_))),
        };
        if !self.clock.hard_passed || is_answered {
            return None;
        }
        let class = self.inbound.priority;
        if matches!(class, Priority::Normal | Priority::Low) && self.deferral.count == 0 {
            let reason = "its hard deadline passed; it continues later";
            return Some(self.main(self.defer(now, self.limits.defer_ms, reason, false)));
        }
        if let Some(agent) = self.end_agents(now, "The turn's time was up.") {
            return Some(agent);
        }
        let detail = format!("the hard deadline of class {} passed", class.as_str());
        Some(match class {
            // A model would continue what the steps began.
            Priority::High if self.main.workflow.is_some() => self.failed(now, "deadline", LATE, detail, true),
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
                    redacted: Vec::new(),
                    spoken: Vec::new(),
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
}

/// The failure of a message whose turn could not begin before its hard deadline [S3 5.3.5]. NORMAL and LOW messages, whose
/// users do not wait for the answer, get a second deadline first.
pub(in crate::turn) fn missed_deadline(pending: &Pending, now: Micros) -> Option<EventBody> {
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
