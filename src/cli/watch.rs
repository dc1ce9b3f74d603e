//! Shows a turn: agents and skills on stderr as they start and finish, the answer on stdout. With `--json` every event is
//! one line, and the last line is the result.

#![deny(clippy::wildcard_enum_match_arm)]

use std::collections::BTreeMap;

use annie_core::{
    approval,
    event::{Action, AgentReport, AnswerOutcome, Event, EventBody, FinalEvent, LoopFound, ReportStatus, ResolvedCall},
    ids::AgentId,
    outcome::Outcome,
    planning,
};
use serde_json::{Value, json};

use super::{
    console::{Console, Ink, clipped, tame},
    failure::Failure,
    talk::Seen,
};
use crate::api::{is_cut_off, shown_event};

/// Maximum number of shown characters of a command line or mission.
const LINE_CHARS_MAX: usize = 100;

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Answered, and the request was carried out.
    Answered,
    /// Answered, but the request was not carried out; with the name of the outcome.
    NotDone(&'static str),
    /// Failed, with a text for the user.
    Failed,
    /// Cancelled on request.
    Cancelled,
}

impl Ending {
    /// The ending of an answered turn whose outcome has this name.
    fn of(word: &'static str) -> Self {
        if word == AnswerOutcome::DONE { Self::Answered } else { Self::NotDone(word) }
    }
}

/// Shows one turn.
pub struct Watch<'a> {
    console: &'a Console,
    /// The part of the current round's draft that is already on stdout.
    drafted: String,
    round: u32,
    /// The last round was cut off, and the next round continues its text.
    is_continued: bool,
    /// The mission of each sub-agent.
    missions: BTreeMap<AgentId, String>,
}

impl<'a> Watch<'a> {
    /// Creates a view of a turn on a console.
    #[must_use]
    pub const fn new(console: &'a Console) -> Self {
        Self { console, drafted: String::new(), round: 0, is_continued: false, missions: BTreeMap::new() }
    }

    /// Shows one item. Returns how the turn ended, if the item is its end.
    ///
    /// # Errors
    /// If stdout is closed.
    pub fn see(&mut self, seen: &Seen) -> Result<Option<Ending>, Failure> {
        if self.console.is_json() {
            return self.write_json(seen);
        }
        match seen {
            Seen::Draft { round, text, .. } => {
                self.draft(*round, text)?;
                Ok(None)
            }
            Seen::Event(event) => self.event(event),
        }
    }

    fn write_json(&self, seen: &Seen) -> Result<Option<Ending>, Failure> {
        match seen {
            Seen::Draft { task, round, text } => {
                self.console.json(&json!({"kind": "draft", "task_id": task, "round": round, "text": text}))?;
                Ok(None)
            }
            Seen::Event(event) => {
                self.console.json(&shown_event(event))?;
                let Some((ending, mut result)) = result(event) else { return Ok(None) };
                result["task_id"] = json!(event.task);
                result["conversation_id"] = json!(event.conversation);
                self.console.json(&result)?;
                Ok(Some(ending))
            }
        }
    }

    fn draft(&mut self, round: u32, text: &str) -> Result<(), Failure> {
        if !self.console.live || self.is_continued {
            return Ok(());
        }
        if round != self.round {
            self.break_off()?;
            self.round = round;
        }
        self.drafted.push_str(text);
        self.console.data(&tame(text))
    }

    /// Ends the line of an unfinished draft.
    ///
    /// # Errors
    /// If stdout is closed.
    pub fn break_off(&mut self) -> Result<(), Failure> {
        if self.drafted.is_empty() {
            return Ok(());
        }
        let ends = self.drafted.ends_with('\n');
        self.drafted.clear();
        if ends { Ok(()) } else { self.console.data("\n") }
    }

    fn event(&mut self, event: &Event) -> Result<Option<Ending>, Failure> {
        if let Some(end) = event.body.as_final() {
            return self.ended(end).map(Some);
        }
        match &event.body {
            EventBody::ModelReplied { calls, .. } => {
                self.is_continued |= is_cut_off(event);
                if !calls.is_empty() {
                    self.break_off()?;
                }
                calls.iter().for_each(|call| self.called(&event.agent, call));
            }
            EventBody::AgentStarted { .. } => {
                let mission = self.missions.get(&event.agent).cloned().unwrap_or_else(|| "started".to_owned());
                self.agent_line("●", Ink::Name, &event.agent, &mission);
            }
            EventBody::SkillFinished { skill, outcome, duration_ms, .. } => {
                self.finished(&event.agent, skill, outcome, *duration_ms);
            }
            EventBody::AgentReported { report } => self.reported(&event.agent, report),
            EventBody::LoopDetected { found, ends_run } => {
                let text = loop_line(found, *ends_run);
                self.agent_line("⟳", Ink::Bad, &event.agent, &clipped(&text, LINE_CHARS_MAX * 2));
            }
            EventBody::ModelFailed { error, .. } => {
                let text = format!("the model failed: {}", clipped(&error.to_string(), LINE_CHARS_MAX));
                self.agent_line("✗", Ink::Bad, &event.agent, &text);
            }
            EventBody::ApprovalRequested { skill, arguments, expires_at, .. } => {
                self.break_off()?;
                self.asks(event, &approval::question(skill, arguments, *expires_at));
            }
            EventBody::ApprovalDecided { number, verdict, by, .. } => {
                self.agent_line("?", Ink::Dim, &event.agent, &tame(&approval::outcome(*number, verdict, by)));
            }
            EventBody::Resumed { .. } => {
                // The interrupted round runs again and writes its draft again.
                self.between_drafts("↻", "resumed after an interruption")?;
            }
            EventBody::Decided { component, alternatives, .. } if component == planning::COMPONENT => {
                self.planned(&event.agent, alternatives)?;
            }
            EventBody::Compacted(compacted) => self.between_drafts("≡", &compacted.line())?,
            EventBody::Received(_)
            | EventBody::Joined { .. }
            | EventBody::TurnStarted { .. }
            | EventBody::RoundBegan { .. }
            | EventBody::RoundNotBegun { .. }
            | EventBody::InterfaceChanged { .. }
            | EventBody::SkillStarted { .. }
            | EventBody::AgentSteered { .. }
            | EventBody::SteeringTaken { .. }
            | EventBody::AgentStopRequested { .. }
            | EventBody::CancelRequested { .. }
            | EventBody::Decided { .. }
            | EventBody::ResultsGiven
            | EventBody::Suspended { .. }
            | EventBody::Continued { .. }
            | EventBody::Reprioritised { .. }
            | EventBody::DeadlinePassed { .. }
            | EventBody::Deferred { .. }
            | EventBody::Retried { .. }
            | EventBody::Ordered { .. }
            | EventBody::DeadLetterDue { .. }
            | EventBody::DeadLetterMoved { .. }
            | EventBody::Answered { .. }
            | EventBody::Failed { .. }
            | EventBody::Cancelled { .. }
            | EventBody::Copied(_) => {}
        }
        Ok(None)
    }

    fn ended(&mut self, end: FinalEvent<'_>) -> Result<Ending, Failure> {
        match end {
            FinalEvent::Answered { text, paused, outcome, finish, .. } => {
                self.answer(text)?;
                Ok(Ending::of(outcome.word(paused, finish)))
            }
            FinalEvent::Failed { text, .. } => {
                self.break_off()?;
                self.console.line(&tame(text))?;
                Ok(Ending::Failed)
            }
            FinalEvent::Cancelled { text } => {
                self.break_off()?;
                self.console.line(&tame(text))?;
                Ok(Ending::Cancelled)
            }
        }
    }

    fn asks(&mut self, event: &Event, question: &str) {
        self.agent_line("?", Ink::Name, &event.agent, &tame(question));
        self.say("?", Ink::Dim, &format!("annie approvals approve {} or deny {}", event.task, event.task));
    }

    fn called(&mut self, agent: &AgentId, call: &ResolvedCall) {
        match &call.action {
            Action::Skill(planned) => {
                // A command is shown as written; a tool call is shown with its arguments.
                let asked = if call.raw.trim_start().starts_with(planned.skill.as_str()) {
                    clipped(&call.raw, LINE_CHARS_MAX)
                } else {
                    clipped(&format!("{} {}", planned.skill, planned.arguments), LINE_CHARS_MAX)
                };
                self.agent_line("→", Ink::Dim, agent, &asked);
            }
            Action::Dispatch(spec) => {
                let title = if spec.options.label.is_empty() { &spec.mission } else { &spec.options.label };
                self.missions.insert(spec.agent.clone(), clipped(title, LINE_CHARS_MAX));
                if !spec.depends_on.is_empty() {
                    let names: Vec<&str> = spec.depends_on.iter().map(AgentId::as_str).collect();
                    self.agent_line("○", Ink::Dim, &spec.agent, &format!("waits for {}", names.join(", ")));
                }
            }
            Action::Answer { is_error: true, text, .. } => {
                let line = text.lines().next().unwrap_or_default();
                self.agent_line("✗", Ink::Bad, agent, &clipped(line, LINE_CHARS_MAX));
            }
            Action::Alternatives(asked) => {
                let line = match &asked.answer {
                    Some(advice) => {
                        format!("another approach: {}", advice.strategies.first().map_or("none", String::as_str))
                    }
                    None => format!("asks for another approach: {}", asked.task),
                };
                self.agent_line("?", Ink::Dim, agent, &clipped(&line, LINE_CHARS_MAX));
            }
            Action::Answer { .. } | Action::Collect { .. } | Action::ControlAgent { .. } | Action::Caller => {}
        }
    }

    /// Says something between two drafts.
    fn between_drafts(&mut self, sign: &str, text: &str) -> Result<(), Failure> {
        self.break_off()?;
        self.say(sign, Ink::Dim, text);
        Ok(())
    }

    /// Shows the steps of a plan.
    fn planned(&mut self, agent: &AgentId, steps: &[String]) -> Result<(), Failure> {
        self.break_off()?;
        for (n, step) in steps.iter().enumerate() {
            self.agent_line("·", Ink::Dim, agent, &clipped(&format!("{}. {step}", n + 1), LINE_CHARS_MAX));
        }
        Ok(())
    }

    fn finished(&mut self, agent: &AgentId, skill: &str, outcome: &Outcome, duration_ms: u64) {
        if outcome.status.is_ok() {
            self.agent_line("✓", Ink::Good, agent, &format!("{skill} … ok ({duration_ms} ms)"));
            if !outcome.doubts.is_empty() {
                let (confidence, doubts) = (outcome.confidence, outcome.doubts.join("; "));
                let text = format!("{skill} … confidence {confidence:.2}: {doubts}");
                self.agent_line("!", Ink::Bad, agent, &clipped(&text, LINE_CHARS_MAX * 2));
            }
        } else {
            let why = outcome.error_type.as_deref().unwrap_or(outcome.status.as_str());
            self.agent_line("✗", Ink::Bad, agent, &format!("{skill} … {why} ({duration_ms} ms)"));
        }
    }

    fn reported(&mut self, agent: &AgentId, report: &AgentReport) {
        let calls = match report.tool_calls_used {
            1 => "1 call".to_owned(),
            n => format!("{n} calls"),
        };
        if report.status == ReportStatus::Completed {
            self.agent_line("✓", Ink::Good, agent, &format!("done ({calls}, {} ms)", report.duration_ms));
        } else {
            let why = clipped(&report.result, LINE_CHARS_MAX);
            self.agent_line("✗", Ink::Bad, agent, &format!("{}: {why}", report.status.as_str()));
        }
    }

    /// Prints the answer, or the part of it that was not printed as a draft.
    fn answer(&mut self, text: &str) -> Result<(), Failure> {
        let text = text.trim_end();
        let rest = match text.strip_prefix(self.drafted.trim_end()) {
            Some(rest) if !self.drafted.is_empty() => rest,
            _ => {
                self.break_off()?;
                text
            }
        };
        let ends = rest.is_empty() && self.drafted.ends_with('\n');
        self.drafted.clear();
        if ends { Ok(()) } else { self.console.line(&tame(rest)) }
    }

    fn agent_line(&mut self, sign: &str, ink: Ink, agent: &AgentId, text: &str) {
        // On a terminal, the cursor may be in the middle of a draft line.
        let _ = self.break_off();
        if agent.is_orchestrator() {
            self.say(sign, ink, text);
        } else {
            let name = self.console.ink(Ink::Name, agent.as_str());
            self.say(sign, ink, &format!("agent {name}: {text}"));
        }
    }

    fn say(&self, sign: &str, ink: Ink, text: &str) {
        self.console.say(&format!("{} {text}", self.console.ink(ink, sign)));
    }
}

/// One line about a loop that was detected.
fn loop_line(found: &LoopFound, ends_run: bool) -> String {
    let LoopFound { detector, level, text, .. } = found;
    let end = if ends_run { " The agent is stopped." } else { "" };
    format!("loop detected ({}, {}): {text}{end}", detector.as_str(), level.as_str())
}

/// The result line of the JSON output.
fn result(event: &Event) -> Option<(Ending, Value)> {
    Some(match event.body.as_final()? {
        FinalEvent::Answered { text, paused, usage, outcome, finish, .. } => {
            let word = outcome.word(paused, finish);
            let result = json!({
                "kind": "result", "status": "completed", "outcome": word, "text": text, "paused": paused, "usage": usage,
            });
            (Ending::of(word), result)
        }
        FinalEvent::Failed { code, text, .. } => {
            (Ending::Failed, json!({"kind": "result", "status": "failed", "text": text, "error": code}))
        }
        FinalEvent::Cancelled { text } => {
            (Ending::Cancelled, json!({"kind": "result", "status": "cancelled", "text": text}))
        }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use annie_core::{
        event::ResumeCause,
        ids::{ConversationId, Seq, TaskId},
        time::Micros,
    };

    use super::*;
    use crate::cli::console::Manner;

    #[test]
    fn watch_prints_the_draft_of_an_interrupted_round_again_and_the_answer_once() {
        let out = Arc::new(Mutex::new(Vec::new()));
        let mut console = Console::into_sinks(Manner::default(), out.clone(), Arc::new(Mutex::new(Vec::new())));
        console.live = true;
        let task = TaskId::from_uuid(uuid::Uuid::nil());
        let event = |seq, body| {
            Seen::Event(Box::new(Event {
                conversation: ConversationId::from_uuid(uuid::Uuid::nil()),
                seq: Seq(seq),
                at: Micros(0),
                task,
                agent: AgentId::orchestrator(),
                body,
            }))
        };
        let draft = |text: &str| Seen::Draft { task, round: 1, text: text.to_owned() };
        let answer = EventBody::answered("Hello Ann");
        let mut watch = Watch::new(&console);
        for seen in [
            draft("Hello"),
            event(1, EventBody::Resumed { cause: ResumeCause::Restart }),
            draft("Hello"),
            draft(" Ann"),
        ] {
            assert_eq!(watch.see(&seen).unwrap(), None);
        }
        assert_eq!(watch.see(&event(2, answer)).unwrap(), Some(Ending::Answered));
        assert_eq!(String::from_utf8(out.lock().unwrap().clone()).unwrap(), "Hello\nHello Ann\n");
    }
}
