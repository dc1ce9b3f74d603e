//! Sends the drafts of a round to its listeners. Drafts before the first listener are buffered, because the client that sends the
//! first message of a conversation can subscribe only a moment later, and a client whose connection broke subscribes again.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use annie_core::{
    aloud::{Aloud, VoiceFormat},
    command::DraftFilter,
    planning::PlanFilter,
    ports::{Draft, DraftSink},
    redact::{DraftRedactor, Redaction},
    turn::{Shows, Withheld},
};
use parking_lot::Mutex;

use super::ModelCall;
use crate::{hub::Live, wiring::Wiring};

/// Text of one round that is buffered while there is no listener, in bytes. If a round writes more, later listeners get no draft
/// but the answer.
const HELD_BYTES_MAX: usize = 64 * 1024;

/// Drafts of the orchestrator go straight to the listeners; drafts of a sub-agent are dropped.
pub(super) fn sink(wiring: &Arc<Wiring>, call: &ModelCall, read_ms: &Arc<AtomicU64>) -> DraftSink {
    let (waits, clock, read_ms) = (call.waits.clone(), wiring.env.clock.clone(), Arc::clone(read_ms));
    let begins = move || {
        read_ms.fetch_add(waits.has_read(|| clock.now()), Ordering::Relaxed);
    };
    if !call.agent.is_orchestrator() || call.shows == Shows::Nothing {
        return Arc::new(move |_| begins());
    }
    let (hub, conversation, task, round) = (wiring.hub.clone(), call.conversation, call.task, call.round);
    let (has_tools, is_thread) = (!call.request.tools.is_empty(), call.request.options.is_thread);
    let (redaction, voice, plans) = (call.redaction.clone(), call.voice, call.shows == Shows::AllButPlans);
    let state = Mutex::new(Held::default());
    Arc::new(move |draft: Draft| {
        begins();
        let mut state = state.lock();
        if !hub.has_listeners(conversation) {
            state.hold(&draft);
            return;
        }
        let Some(pieces) = state.with(draft) else { return };
        let filters =
            state.filters.get_or_insert_with(|| Filters::new((has_tools, is_thread, plans), voice, &redaction));
        for draft in pieces.into_iter().filter_map(|piece| filters.push(piece)) {
            hub.publish(conversation, Live::Draft { task, round, draft });
        }
    })
}

/// What was not published yet.
#[derive(Default)]
struct Held {
    reasoning: String,
    text: String,
    /// More was written than is held.
    is_over: bool,
    filters: Option<Filters>,
}

impl Held {
    fn hold(&mut self, draft: &Draft) {
        let (piece, held, other) = match draft {
            Draft::Text(piece) => (piece, &mut self.text, self.reasoning.len()),
            Draft::Reasoning(piece) => (piece, &mut self.reasoning, self.text.len()),
        };
        if self.is_over || held.len() + other + piece.len() > HELD_BYTES_MAX {
            (self.is_over, self.text, self.reasoning) = (true, String::new(), String::new());
        } else {
            held.push_str(piece);
        }
    }

    /// What was held and this piece, in their order; nothing if a part between them is missing.
    fn with(&mut self, draft: Draft) -> Option<[Draft; 3]> {
        if self.is_over {
            return None;
        }
        let (reasoning, text) = (std::mem::take(&mut self.reasoning), std::mem::take(&mut self.text));
        Some([Draft::Reasoning(reasoning), Draft::Text(text), draft])
    }
}

/// Removes from a draft what is not for its reader.
struct Filters {
    /// A model without tools may write commands into its text; they are no part of the answer.
    commands: Option<DraftFilter>,
    /// The plan of a model that plans is an event.
    plan: Option<PlanFilter>,
    /// A program that brings its own thread gets the model's text unfiltered.
    withheld: Option<Withheld>,
    /// An answer that is read aloud has another form.
    aloud: Option<Aloud>,
    text: Option<DraftRedactor>,
    reasoning: Option<DraftRedactor>,
}

impl Filters {
    fn new(
        (has_tools, is_thread, plans): (bool, bool, bool),
        voice: Option<VoiceFormat>,
        (what, own): &(Vec<Redaction>, String),
    ) -> Self {
        Self {
            commands: (!has_tools).then(DraftFilter::default),
            plan: plans.then(PlanFilter::default),
            withheld: (!is_thread).then(Withheld::default),
            aloud: voice.map(Aloud::new),
            text: DraftRedactor::new(what, own),
            reasoning: DraftRedactor::new(what, own),
        }
    }

    /// What may be shown after this piece; nothing if that is nothing.
    fn push(&mut self, draft: Draft) -> Option<Draft> {
        let (shown, draft): (String, fn(String) -> Draft) = match draft {
            Draft::Text(mut text) => {
                if let Some(filter) = &mut self.commands {
                    text = filter.push(&text);
                }
                if let Some(filter) = &mut self.plan {
                    text = filter.push(&text);
                }
                if let Some(filter) = &mut self.withheld {
                    text = filter.push(&text);
                }
                if let Some(filter) = &mut self.aloud {
                    text = filter.push(&text);
                }
                (redacted(&mut self.text, text), Draft::Text)
            }
            Draft::Reasoning(text) => (redacted(&mut self.reasoning, text), Draft::Reasoning),
        };
        (!shown.is_empty()).then(|| draft(shown))
    }
}

fn redacted(redactor: &mut Option<DraftRedactor>, piece: String) -> String {
    match redactor {
        Some(redactor) => redactor.push(&piece),
        None => piece,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(piece: &str) -> Draft {
        Draft::Text(piece.to_owned())
    }

    #[test]
    fn draft_before_the_first_listener_is_held_and_shown_first() {
        let mut held = Held::default();
        held.hold(&text("one "));
        held.hold(&Draft::Reasoning("why".to_owned()));
        held.hold(&text("two "));
        let pieces = held.with(text("three")).unwrap();
        assert_eq!(pieces, [Draft::Reasoning("why".to_owned()), text("one two "), text("three")]);
        assert_eq!(held.with(text("four")).unwrap()[1], text(""), "it is shown once");
    }

    #[test]
    fn draft_that_is_too_long_to_hold_is_not_shown_with_a_gap() {
        let mut held = Held::default();
        held.hold(&text(&"x".repeat(HELD_BYTES_MAX)));
        assert!(held.with(text("")).is_some());
        held.hold(&text(&"x".repeat(HELD_BYTES_MAX)));
        held.hold(&text("y"));
        assert!(held.with(text("z")).is_none() && held.text.is_empty(), "the memory is freed");
    }

    #[test]
    fn filters_keep_commands_out_of_drafts() {
        let mut filters = Filters::new((false, true, false), None, &(Vec::new(), String::new()));
        let shown: Vec<Draft> =
            [text("Done.\n```cmd\n"), text("tasks.list\n```\n")].into_iter().filter_map(|p| filters.push(p)).collect();
        assert!(!shown.iter().any(|draft| matches!(draft, Draft::Text(t) if t.contains("tasks.list"))), "{shown:?}");
    }
}
