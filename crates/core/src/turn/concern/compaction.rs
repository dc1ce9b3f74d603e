//! The compaction of a conversation: when it is due, and what its event changes. A turn's end makes it due. The Engine then has a
//! model write the summary, while turns go on. If a model server refuses a prompt as too long, the kernel itself makes the summary
//! at once, so that the turn can go on.

use serde::{Deserialize, Serialize};

use crate::{
    caller::CallOptions,
    context::{Frames, SUMMARISE, SUMMARY_BYTES_MAX, Span, to_summarise, with_context},
    event::{Compacted, CompactionCause, EventBody, Priority},
    ids::{AgentId, TaskId},
    limits::TurnLimits,
    message::{Message, ModelRequest, SystemPart, Usage},
    turn::{
        Decision,
        conversation::{Conversation, Turn},
        directive::Directive,
    },
};

/// Maximum length of a summary that a model writes, in tokens. Models that reason first need the rest.
const OUTPUT_TOKENS_MAX: u32 = 1_500;

/// The state of a conversation's compaction.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compaction {
    /// The number of compactions so far.
    #[serde(default, skip_serializing_if = "crate::event::is_zero")]
    count: u32,
    /// The compaction that is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    due: Option<Due>,
    /// No turn has begun since the last compaction.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_new: bool,
}

/// A compaction that is due.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Due {
    /// The task at whose end it became due.
    task: TaskId,
    /// The exchanges that it covers. Later ones are left to the next compaction.
    span: Span,
    /// The settings of the turn that ended.
    basis: Basis,
}

/// What a turn says about the compaction at its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::turn) struct Basis {
    messages: u32,
    overlap_messages: u32,
    /// Size of a history, in tokens.
    tokens: u32,
    /// The backends that ran the turn.
    route: Vec<String>,
}

impl Basis {
    /// The settings of a turn; `None` if its conversation is not compacted.
    pub(in crate::turn) fn of(turn: &Turn) -> Option<Self> {
        let limits: &TurnLimits = &turn.limits;
        (limits.compaction_messages > 0 && turn.inbound.thread().is_none()).then(|| Self {
            messages: limits.compaction_messages,
            overlap_messages: limits.compaction_overlap_messages,
            tokens: limits.history_tokens_max(),
            route: turn.route.clone(),
        })
    }
}

impl Compaction {
    /// Whether nothing was compacted and nothing is due.
    #[must_use]
    pub fn is_unused(&self) -> bool {
        *self == Self::default()
    }
}

/// How to make the summary of a compaction that is due.
#[derive(Debug, Clone, PartialEq)]
pub struct CompactionWork {
    /// The request to a model.
    pub request: ModelRequest,
    /// The backends that may run it, the preferred one first. Empty means the first configured one.
    pub route: Vec<String>,
}

/// A summary, or why no model wrote one.
#[derive(Debug, Clone, PartialEq)]
pub enum Summarised {
    /// A model wrote it.
    ByModel {
        /// The text.
        text: String,
        /// The backend.
        backend: String,
        /// Cost of the call.
        usage: Usage,
    },
    /// No model wrote one, for this reason.
    Not(String),
}

impl Conversation {
    /// Makes a compaction due at the end of a turn, if it is time. One at a time is due.
    pub(in crate::turn) fn compact_if_due(&mut self, task: TaskId, basis: Option<Basis>) {
        if self.compaction.due.is_some() || !self.is_listed {
            return;
        }
        let Some(basis) = basis else { return };
        let span = self.history.due(basis.messages);
        self.compaction.due = span.map(|span| Due { task, span, basis });
    }

    /// The compaction that is due.
    pub(in crate::turn) fn due_compaction(&self) -> Option<Directive> {
        let due = self.compaction.due.as_ref()?;
        Some(Directive::Compact { task: due.task, number: self.compaction.count.saturating_add(1) })
    }

    /// What the Engine does for the compaction that is due.
    #[must_use]
    pub fn compaction_work(&self) -> Option<CompactionWork> {
        let Due { task, span, basis } = self.compaction.due.as_ref()?;
        let transcript = self.history.transcript(*span, basis.tokens / 4 * 3);
        let text = to_summarise(self.history.summary_before(), &transcript, &Frames::of(*task));
        let request = ModelRequest {
            model: None,
            system: vec![SystemPart { text: SUMMARISE.to_owned(), cache: None }],
            messages: vec![Message::user(text)],
            stable_messages: 0,
            tools: Vec::new(),
            skill_names: Vec::new(),
            output_tokens_max: OUTPUT_TOKENS_MAX,
            session_id: self.id.to_string(),
            priority: Priority::Background.level(),
            options: CallOptions::default(),
        };
        Some(CompactionWork { request, route: basis.route.clone() })
    }

    /// The event of the compaction that is due, if it still is the one with this number.
    #[must_use]
    pub fn compacted_event(&self, number: u32, summarised: Summarised) -> Option<EventBody> {
        let due = self.compaction.due.as_ref().filter(|_| number == self.compaction.count.saturating_add(1))?;
        Some(self.event_of(due.span, due.basis.overlap_messages, summarised))
    }

    fn event_of(&self, span: Span, overlap_messages: u32, summarised: Summarised) -> EventBody {
        let is_usable = |text: &String| !text.trim().is_empty() && text.len() <= 2 * SUMMARY_BYTES_MAX;
        let (summary, backend, without_model, usage) = match summarised {
            Summarised::ByModel { text, backend, usage } if is_usable(&text) => {
                (text.trim().to_owned(), backend, String::new(), usage)
            }
            Summarised::ByModel { backend, usage, .. } => {
                let why = "the model's summary was empty or too long".to_owned();
                (self.history.digest(span), backend, why, usage)
            }
            Summarised::Not(why) => (self.history.digest(span), String::new(), why, Usage::default()),
        };
        EventBody::Compacted(Box::new(Compacted {
            number: self.compaction.count.saturating_add(1),
            cause: span.cause,
            first: span.first,
            last: span.last,
            messages: span.messages,
            overlap_messages,
            summary,
            origins: self.known.origins().to_vec(),
            backend,
            without_model,
            usage,
        }))
    }

    /// The compaction that lets a turn go on whose prompt was too long. No model writes the summary: the user waits, and the text
    /// would be too long for the same model.
    pub(in crate::turn) fn decide_compaction(&self) -> Option<Decision> {
        let turn = self.turns.iter().find(|turn| turn.main.lost_history && !turn.control.is_cancelled)?;
        let basis = Basis::of(turn)?;
        let span = self.history.uncovered(CompactionCause::Overflow)?;
        let why = Summarised::Not("the prompt was too long for the model".to_owned());
        let body = self.event_of(span, basis.overlap_messages, why);
        Some(Decision { task: turn.task, agent: AgentId::orchestrator(), body })
    }

    /// Folds a compaction. Another one than the next changes nothing.
    pub(in crate::turn) fn compacted(&mut self, task: TaskId, compacted: &Compacted) {
        if compacted.number != self.compaction.count.saturating_add(1) {
            return;
        }
        self.compaction = Compaction { count: compacted.number, due: None, is_new: true };
        self.known.summarised(&compacted.summary, &compacted.origins);
        self.history.compact(compacted, Frames::of(task));
        self.show_summary(task);
    }

    /// After an overflow, gives the turn the present summary, unless a new one follows.
    pub(in crate::turn) fn show_summary_if_complete(&mut self, task: TaskId) {
        let is_lost = |turn: &Turn| turn.task == task && turn.main.lost_history;
        if self.turns.iter().any(is_lost) && self.history.uncovered(CompactionCause::Overflow).is_none() {
            self.show_summary(task);
        }
    }

    /// Puts the summary into the prompt of a turn that lost its history. The last exchanges are in the summary too, and not
    /// added word for word, so that the one retry has the best chance.
    fn show_summary(&mut self, task: TaskId) {
        // A turn of another lane may have ended since this one began, and the summary may repeat what that one had read.
        let origins = self.known.origins().to_vec();
        let Some(turn) = self.turns.iter_mut().find(|turn| turn.task == task && turn.main.lost_history) else { return };
        turn.main.lost_history = false;
        let text = self.history.summary_text(turn.limits.history_tokens_max());
        if let (Some(summary), Some(first)) = (&text, turn.main.messages.first_mut()) {
            turn.main.provenance.summarised(summary, &origins);
            with_context(first, text);
        }
    }

    /// Whether the conversation was compacted since the last turn began. Called when a turn begins.
    pub(in crate::turn) fn take_new_compaction(&mut self) -> bool {
        std::mem::take(&mut self.compaction.is_new)
    }
}
