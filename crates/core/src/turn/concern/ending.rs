//! The end of a turn: its final event, and what later turns see of it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Basis, Lane, Now, Pending, steering::steering_final};
use crate::{
    aloud::{VoiceChange, VoiceFormat},
    context::{Exchange, Frames, VOICE},
    error_route::may_succeed_on_retry,
    event::{AnswerOutcome, EventBody, FinalEvent, Inbound},
    ids::TaskId,
    message::{Finish, Message, Usage},
    plan::Plan,
    receipt::Receipt,
    reminder,
    turn::{
        Decision,
        conversation::{Conversation, Turn},
        cut::CutResults,
        opening, policy,
        provenance::Provenance,
        report,
        run::{AgentRun, Ending},
    },
};

/// How many finished tasks are remembered, so that a message that is delivered again is not answered again.
const FINISHED_MAX: usize = 32;

/// How many effects of a turn a summary may mention.
const DONE_MAX: usize = 20;

/// How many receipts of finished turns are remembered, so that later answers may mention these effects.
const RECEIPTS_MAX: usize = 32;

/// A turn that stopped at a limit and may be continued [S0 5.2].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Paused {
    /// Its task; `None` in older snapshots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// The main agent's context at the pause.
    pub messages: Vec<Message>,
    /// How many leading messages are history.
    pub stable: usize,
    /// The channels of its messages and of the turns that it continued, for the rules about channels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub channels: Vec<String>,
    /// The sub-agents so far.
    pub plan: Plan,
    /// The turn may run on local backends only.
    pub private: bool,
    /// The sources of what its agents read. The turn that continues it sees the same texts again.
    #[serde(default, skip_serializing_if = "Provenance::is_empty")]
    pub provenance: Provenance,
    /// The receipts of its own effects and of the effects of the turns that it continued. The turn that continues it does
    /// not repeat these effects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub receipts: Vec<Receipt>,
    /// In-doubt effects of this turn and of the turns that it continued.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_doubt: Vec<(String, Value)>,
    /// An agentic backend worked on it. No receipt shows the effects of that work.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub programs_ran: bool,
    /// The results of which its context shows only the beginning, so that the turn that continues it can read the rest.
    #[serde(default, skip_serializing_if = "CutResults::is_empty")]
    pub(in crate::turn) cut_results: CutResults,
}

impl Paused {
    /// The receipts of its effects and of its agents' effects. Both lists may contain an effect of an earlier turn; the result
    /// contains each receipt once.
    pub(in crate::turn) fn all_receipts(&self) -> Vec<Receipt> {
        each_once(self.receipts.iter().chain(self.plan.receipts()))
    }

    /// The in-doubt effects of this turn and of its agents, each once.
    pub(in crate::turn) fn all_doubts(&self) -> Vec<(String, Value)> {
        each_once(self.in_doubt.iter().chain(self.plan.in_doubt()))
    }
}

fn each_once<'a, T: Clone + PartialEq + 'a>(all: impl Iterator<Item = &'a T>) -> Vec<T> {
    let mut once: Vec<T> = Vec::new();
    for one in all {
        if !once.contains(one) {
            once.push(one.clone());
        }
    }
    once
}

impl Conversation {
    pub(in crate::turn) fn finish(&mut self, task: TaskId, end: FinalEvent<'_>) {
        let text = end.text();
        let paused = matches!(end, FinalEvent::Answered { paused: true, .. });
        let turn = self.turns.iter().position(|t| t.task == task).map(|at| self.turns.remove(at));
        if self.turns.is_empty() {
            // A turn and a message in the inbox have kilobytes each, and most conversations are idle.
            self.turns.shrink_to_fit();
            self.inbox.shrink_to_fit();
        }
        if let Some(mut turn) = turn {
            if matches!(end, FinalEvent::Answered { .. }) {
                turn.requeue_unseen_steering();
            }
            self.known.remember(&turn.main.provenance);
            self.loop_guard.absorb(&turn.main.guard);
            if paused {
                self.loop_guard.pause(&turn.main.guard);
            }
            self.receipts.extend(turn.own_receipts().cloned());
            self.receipts.drain(..self.receipts.len().saturating_sub(RECEIPTS_MAX));
            let (private, channels) = (turn.inbound.private, turn.channels());
            let answer = report::history_text(&turn, end);
            // A paused turn is continued with its whole context or shown by its report, so its steps are not needed.
            let is_done = matches!(end, FinalEvent::Answered { paused: false, .. });
            let steps = if is_done { turn.main.steps() } else { Vec::new() };
            let done = turn.own_receipts().map(|receipt| receipt.summary().to_owned()).take(DONE_MAX).collect();
            let basis = Basis::of(&turn);
            self.history.push(Exchange { user: turn.inbound.text, answer, private, steps, done });
            self.compact_if_due(task, basis);
            if paused || turn.lane == Lane::Front {
                self.paused = paused.then(|| {
                    let in_doubt = turn.main.doubts();
                    let programs_ran = turn.main.programs_ran || turn.main.acts();
                    let AgentRun { mut messages, stable, receipts, mut known, provenance, cut_results, .. } =
                        turn.main.broken_off();
                    messages.push(Message::assistant(text));
                    known.extend(receipts);
                    Paused {
                        task: Some(task),
                        messages,
                        stable,
                        channels,
                        plan: turn.agents.plan.resumable(),
                        private,
                        provenance,
                        receipts: known,
                        in_doubt,
                        programs_ran,
                        cut_results,
                    }
                });
            }
            self.owed.extend(turn.steering.seen.into_iter().map(|task| (task, steering_final(end))));
            for unseen in turn.steering.unseen {
                self.return_to_inbox(unseen);
            }
        } else if !self.remove_without_turn(task, end) {
            return;
        }
        self.start_clocks();
        self.release_joined(task, end);
        self.cancelled.retain(|t| *t != task);
        debug_assert!(!self.is_open(task), "{task} has its final event and is still open");
        self.finished.push_back(task);
        if self.finished.len() > FINISHED_MAX {
            self.finished.pop_front();
        }
    }

    /// Removes a message that ends without a turn of its own. Returns false if there is no such message. A pending message that
    /// is answered without a turn stands in the history: a hook refused its turn.
    fn remove_without_turn(&mut self, task: TaskId, end: FinalEvent<'_>) -> bool {
        let text = end.text();
        if let Some(at) = self.inbox.iter().position(|p| p.task == task) {
            let removed = self.inbox.remove(at).filter(|_| matches!(end, FinalEvent::Answered { .. }));
            if let Some(Pending { inbound, is_flagged, .. }) = removed {
                self.known.answered_without_turn(&inbound, is_flagged);
                self.remember_refused(task, inbound, text);
            }
        } else if let Some(at) = self.job_commands.iter().position(|o| o.task == task) {
            let command = self.job_commands.remove(at);
            self.known.answered_without_turn(&command.inbound, false);
            let (carries, Inbound { text: words, private, .. }) = (command.inbound.carries_answer(), command.inbound);
            // The words of a reminder or a report are its answer.
            let user = if carries { reminder::parts(&words).0.to_owned() } else { words };
            self.history.push(Exchange::plain(user, text.to_owned(), private));
        } else if let Some(at) = self.joined.iter().position(|j| j.task == task) {
            self.joined.remove(at);
        } else if let Some(at) = self.owed.iter().position(|(owed, _)| *owed == task) {
            self.owed.remove(at);
        } else {
            return self.turns.iter_mut().any(|t| t.drop_steering(task));
        }
        true
    }

    /// Adds a message to the history whose turn a hook refused, as its turn would have added it.
    fn remember_refused(&mut self, task: TaskId, inbound: Inbound, text: &str) {
        let frames = Frames::of(task);
        if self.history.is_empty() {
            opening::seed_history(&mut self.history, &inbound.preamble, inbound.private, &frames);
        }
        self.known.preamble(&inbound.preamble);
        let (answer, private) = (report::refused_by_rule(text), inbound.private);
        let user = opening::outside_text(&inbound, &frames).unwrap_or(inbound.text);
        self.history.push(Exchange::plain(user, answer, private));
    }
}

impl Turn {
    pub(in crate::turn) fn decide_ending(&self, now: Now) -> Option<Decision> {
        let answered = |text: String, paused: bool, outcome: AnswerOutcome| {
            let is_own = matches!(self.main.ending(), Some(Ending::Output(_) | Ending::Silent(_)));
            let finish = if is_own { self.main.finish } else { Finish::Stop };
            EventBody::Answered {
                text,
                paused,
                usage: self.usage(),
                outcome,
                finish,
                calls: Vec::new(),
                redacted: Vec::new(),
                spoken: Vec::new(),
            }
        };
        let all_reported = self.agents.plan.unreported().next().is_none();
        match self.main.ending()? {
            Ending::Output(_) if self.agents.owes_results => all_reported.then(|| self.main(EventBody::ResultsGiven)),
            Ending::Output(text) => {
                // A program would take additional text for a malformed answer. Claims in its JSON are not checked against the
                // receipts.
                if self.inbound.is_for_a_program() || (self.inbound.sets_length() && text.is_empty()) {
                    let outcome = if self.main.declined { AnswerOutcome::Declined } else { AnswerOutcome::Done };
                    return Some(self.main(answered(text.clone(), false, outcome)));
                }
                // What the kernel adds to the model's words is never cut.
                let (text, spoken) = self.spoken(text);
                let (text, outcome) = report::final_answer(self, &text);
                let (text, is_paused) = match report::missions_not_started(self, &text) {
                    Some(text) => (text, true),
                    None => (report::with_suggestion(&text, &self.facts.suggestion), false),
                };
                Some(self.main(answered(text, is_paused, outcome).with_spoken(spoken)))
            }
            Ending::Ready(text) => Some(self.show_ready(text)),
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
            Ending::StepFailed(why) => Some(self.end_agents(now, "The workflow failed.").unwrap_or_else(|| {
                let text = format!("The workflow could not be finished. {why}");
                self.failed(now, "workflow_failed", &text, why.clone(), false)
            })),
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
            Ending::GaveUp(why) => Some(self.end_agents(now, "The turn was given up.").unwrap_or_else(|| {
                let (text, outcome) = report::gave_up(self, why);
                self.main(answered(text, false, outcome))
            })),
            Ending::ModelFailed(error) => {
                if let Some(strategy) = policy::judge_model_error(self, error) {
                    return Some(self.main(EventBody::Retried { strategy, reason: error.to_string() }));
                }
                Some(self.end_agents(now, "The orchestrator's model failed.").unwrap_or_else(|| {
                    let (code, text) = report::model_failed(error);
                    self.failed(now, code, &text, error.to_string(), may_succeed_on_retry(error))
                }))
            }
        }
    }

    /// The failure of a turn that has no answer in the requested format.
    pub(in crate::turn) fn format_failure(&self, now: Now, why: &str) -> Decision {
        let text = format!("{} {}", report::WRONG_FORMAT, report::capital(why));
        let detail = format!("no answer in the form that was asked for: {why}");
        self.failed(now, "answer_format", &text, detail, false)
    }

    /// The form of the answer, if it is read aloud. A program reads its answer itself.
    pub(in crate::turn) fn voice(&self) -> Option<VoiceFormat> {
        let is_voice = self.facts.spoken_as.is_some() || self.facts.channel == VOICE;
        Some(self.limits.voice).filter(|voice| is_voice && voice.is_on() && !self.inbound.is_for_a_program())
    }

    /// The words of the model as they are spoken, and what was changed.
    fn spoken(&self, text: &str) -> (String, Vec<VoiceChange>) {
        self.voice().map_or_else(|| (text.to_owned(), Vec::new()), |voice| voice.spoken(text))
    }

    pub(in crate::turn) fn usage(&self) -> Usage {
        let mut usage = self.main.usage;
        usage.add(&self.agents.plan.usage());
        usage
    }
}
