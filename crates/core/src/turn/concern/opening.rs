//! The beginning of a turn.

use super::{Agents, Clock, Control, Deferral, Lane, Pending, Recovery, Retries, Steering};
use crate::{
    caller::Thread,
    classify::{Intent, spoken},
    context::Frames,
    event::{Inbound, Mode, PromptFacts},
    ids::{AgentId, TaskId},
    limits::{MainInterface, TurnLimits},
    loop_guard::LoopGuard,
    message::Message,
    turn::{
        alternatives::Advising,
        conversation::{Conversation, Turn},
        opening, request,
        run::{AgentRun, RunKind},
        truth,
    },
};

/// Whether the model of this turn plans first. Small talk and spoken requests need no plan, a workflow has no model, and a program
/// expects the text, or the format, that it asked for.
fn plans(limits: &TurnLimits, facts: &PromptFacts, inbound: &Inbound) -> bool {
    let is_plain = inbound.thread().is_none() && inbound.format().is_none();
    !limits.planning.is_off()
        && is_plain
        && facts.workflow.is_none()
        && facts.spoken_as.is_none()
        && facts.intent != Some(Intent::Simple)
}

/// Notes what the user's words ask for.
fn note_words(main: &mut AgentRun, inbound: &Inbound, may_consent: bool) {
    (main.is_asked, main.is_requested) = (truth::asks_what_was(&inbound.text), truth::requests_change(&inbound.text));
    main.has_request = truth::has_request(&inbound.text);
    main.only_thanks = truth::only_thanks(&inbound.text) && !may_consent;
    // A story or a translation needs no action.
    (main.asks_only, main.reminded_to_act) = (spoken(&inbound.text).reads_only(), truth::asks_for_prose(&inbound.text));
    main.shows_calls = inbound.is_for_a_program();
    main.takes_cuts = main.shows_calls || inbound.sets_length();
}

impl Conversation {
    /// Begins the turn of a pending message.
    pub(in crate::turn) fn begin(
        &mut self,
        task: TaskId,
        mode: Mode,
        facts: &PromptFacts,
        limits: &TurnLimits,
        route: &[String],
    ) {
        let Some(Pending { mut inbound, at, .. }) = self.take_out(task) else { return };
        debug_assert!(!self.is_open(task), "{task} begins, and is open in another way than as a pending message");
        let frames = Frames::of(task);
        if self.history.is_empty() {
            opening::seed_history(&mut self.history, &inbound.preamble, inbound.private, &frames);
        }
        self.known.preamble(&inbound.preamble);
        inbound.preamble.clear();
        let (lane, has_dependencies) = (Lane::of(inbound.priority), !inbound.after.is_empty());
        let (may_consent, guard) = (self.may_consent(&inbound), self.begin_guard(&inbound, limits));
        let paused = if lane == Lane::Front { self.paused.take() } else { None };
        let mode = limits.main_interface.mode(mode);
        let by_commands = limits.main_interface == MainInterface::Cmd && inbound.thread().is_none();
        let (active_skill, confined) = self.carry_skill(&inbound, facts, limits.result_bytes_max());
        let fixed_tokens = request::fixed_tokens(mode, by_commands, facts, active_skill.as_ref());
        let opening = match inbound.request.as_mut().and_then(|request| request.thread.as_mut()) {
            // The thread moves into the context, so that the state does not hold it twice.
            Some(thread) => opening::of_thread(std::mem::take(&mut thread.messages)),
            None => opening::open(&mut self.history, paused, &inbound, facts, limits, (mode, fixed_tokens, &frames)),
        };
        let run_limits = opening::run_limits(mode, limits, self.window_used(limits));
        let (agent, kind) = (AgentId::orchestrator(), RunKind::Main(mode));
        let outside = opening::outside_text(&inbound, &frames);
        let run = AgentRun::new(agent, kind, opening.messages, opening.stable, run_limits);
        let mut main = run.with_frames(frames).with_advising(Advising::of_main(&limits.error_router));
        (main.known, main.in_doubt) = (opening.receipts, opening.in_doubt);
        (main.programs_ran, main.cut_results) = (opening.programs_ran, opening.cut_results);
        (main.guard, main.confined, main.plans) = (guard, confined, plans(limits, facts, &inbound));
        main.earlier = self.receipts.iter().cloned().collect();
        note_words(&mut main, &inbound, may_consent);
        main.provenance = self.known.clone();
        if !opening.provenance.is_empty() {
            main.provenance.continue_from(&opening.provenance);
        }
        main.provenance.begin(&inbound, facts, &main.messages);
        // Later turns also see an outside party's text in its frame.
        inbound.text = outside.unwrap_or(inbound.text);
        if by_commands {
            main.begin_with_commands(mode, usize::MAX);
        }
        if let Some(retry) = &inbound.retry {
            main.begin_retry(retry);
        }
        main.begin_workflow(facts, inbound.retry.as_mut());
        self.turns.push(Turn {
            task,
            inbound,
            mode,
            limits: limits.clone(),
            // The definition moves into the run, so that the state does not hold it twice.
            facts: PromptFacts { workflow: None, ..facts.clone() },
            main,
            agents: Agents { plan: opening.plan, ..Agents::default() },
            started_at: self.at,
            route: route.to_vec(),
            lane,
            // Its dependencies may take any time, so it must not block its lane.
            control: Control { is_detached: has_dependencies, ..Control::default() },
            deferral: Deferral::default(),
            // Before this time the turn could not begin: it was not due, queued behind others, or the process was down.
            clock: Clock::starting(self.at.max(at)),
            retries: Retries::default(),
            recovery: Recovery::default(),
            steering: Steering { channels: opening.channels, ..Steering::default() },
            notes: Vec::new(),
            format_repairs: 0,
            approvals: Vec::new(),
            active_skill,
        });
    }

    /// The loop guard of the main agent of a turn. A turn that continues a paused one also continues its loops.
    fn begin_guard(&mut self, inbound: &Inbound, limits: &TurnLimits) -> LoopGuard {
        let limits = limits.loop_guard.clone();
        let is_front = Lane::of(inbound.priority) == Lane::Front && inbound.thread().is_none();
        let continues = is_front && self.paused.as_ref().is_some_and(|paused| opening::may_resume(paused, inbound));
        let mut guard = if continues { self.loop_guard.resume(limits) } else { self.loop_guard.begin(limits) };
        if self.take_new_compaction() {
            guard.context_was_shortened();
        }
        guard
    }

    /// Whether something is open to which a message may be the answer: a paused turn, a turn under way, a request to a person, or
    /// a question in the last answer.
    #[must_use]
    pub fn awaits_answer(&self) -> bool {
        self.paused.is_some()
            || !self.turns.is_empty()
            || self.open_approvals().next().is_some()
            || self.history.exchanges().last().is_some_and(|last| last.answer.contains('?'))
    }

    /// Whether a message may be the consent to what a paused turn or the last answer asked.
    fn may_consent(&self, inbound: &Inbound) -> bool {
        // A retry follows the failed attempt, and no longer the question.
        self.paused.is_some()
            || inbound.retry.is_some()
            || self.history.exchanges().last().is_some_and(|last| last.answer.contains('?'))
            || inbound.thread().is_some_and(ends_with_question)
    }
}

/// Whether the last words of the assistant in a caller's conversation contain a question.
fn ends_with_question(thread: &Thread) -> bool {
    let texts = thread.messages.iter().rev().filter_map(|message| match message {
        Message::Assistant { text, .. } => Some(text),
        Message::User { .. } | Message::Tool { .. } | Message::Note { .. } => None,
    });
    texts.map(String::as_str).find(|text| !text.trim().is_empty()).is_some_and(|text| text.contains('?'))
}
