//! A message as it comes in, and what it is besides its text.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    caller::{AnswerFormat, CallOptions, CallerRequest, Thread},
    classify::Mood,
    event::{Mode, Priority},
    ids::{OperationId, TaskId},
    receipt::Receipt,
    time::Micros,
};

/// The source of a dead letter's new try.
pub const DEAD_LETTER: &str = "dead_letter";
/// The source of a message that brings the result of a long-running operation, or says that none came.
pub const OPERATION: &str = "operation";
/// The role of a message in [`Inbound::preamble`] that an outside party sent, and not the user: the kernel's line about it, and
/// below it the party's own text.
pub const OUTSIDE: &str = "outside";

/// One inbound message.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inbound {
    /// The front end's id for it, unique per user: a repeat is recognised by it.
    pub client_id: String,
    /// What the user said.
    pub text: String,
    /// Which door or channel it came through: `http`, `grpc`, `cli`, `openai` …
    pub source: String,
    /// Its scheduling class.
    #[serde(default)]
    pub priority: Priority,
    /// The mode asked for; nothing means the conversation's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Messages that a stateless front end says came before, oldest first, as (role, text); only for an empty conversation. The
    /// role is `assistant`, [`OUTSIDE`], or the user's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preamble: Vec<(String, String)>,
    /// It joins the turn under way, if there is one that can take it in, instead of waiting behind it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub steer: bool,
    /// Equal work waits already: its answer is this one's answer too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_as: Option<TaskId>,
    /// That work is lifted to this class, which is this message's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifts: Option<Priority>,
    /// It is an order about tasks, which the kernel carries out without a model.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub order: bool,
    /// It must not leave the house: only local backends may run it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub private: bool,
    /// What follows from the user's mood, where the front end knows it [S3 12.1].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mood: Option<Mood>,
    /// Its turn does not begin before this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Micros>,
    /// Its first round starts when these tasks of the same user have ended, however they did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<TaskId>,
    /// It is a dead letter's new try.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// It brings the result of a long-running operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumes: Option<OperationId>,
    /// It is a conversation of its own that its caller will not come back to: lists leave it out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stateless: bool,
    /// What a program asks of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Box<CallerRequest>>,
}

impl Inbound {
    /// What goes to the backend beside prompts, messages and tools.
    #[must_use]
    pub fn options(&self) -> Option<&CallOptions> {
        self.request.as_ref().map(|request| &request.options)
    }

    /// The conversation that the caller keeps.
    #[must_use]
    pub fn thread(&self) -> Option<&Thread> {
        self.request.as_ref()?.thread.as_ref()
    }

    /// Whether a program reads the answer: it asked for a form, or it keeps the conversation and no skill of ours runs in it.
    #[must_use]
    pub fn is_for_a_program(&self) -> bool {
        self.format().is_some() || self.thread().is_some_and(|thread| !thread.with_skills)
    }

    /// Whether the caller set the longest reply itself.
    #[must_use]
    pub fn sets_length(&self) -> bool {
        self.options().is_some_and(|options| options.sampling.output_tokens_max.is_some())
    }

    /// What an outside party sent, if it is not the user who speaks: the kernel's line about it, and the party's own text,
    /// which is empty where only the kernel speaks.
    #[must_use]
    pub fn outside_text(&self) -> Option<(&str, &str)> {
        let is_outside = self.resumes.is_some() || self.retry.as_ref().is_some_and(|retry| retry.is_outside);
        is_outside.then(|| self.text.split_once('\n').unwrap_or((&self.text, "")))
    }

    /// The form that the answer must have.
    #[must_use]
    pub fn format(&self) -> Option<&AnswerFormat> {
        self.options()?.format.as_ref()
    }
}

/// A dead letter tried again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// The task that failed.
    pub of: TaskId,
    /// When the first of its tries failed: the archive counts from here.
    pub since: Micros,
    /// What was tried before, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tried: Vec<String>,
    /// The message was the result of a long-running operation: an outside party's words, not the user's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_outside: bool,
    /// The effects of the tries before: this one does not repeat them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub receipts: Vec<Receipt>,
    /// Effects of the tries before that may have happened, as (skill, arguments): this one does not repeat them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_doubt: Vec<(String, Value)>,
    /// A program worked on the tries before: what it did, no receipt shows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub programs_ran: bool,
}

impl Retry {
    /// A try of this task again that is told nothing of those before.
    #[must_use]
    pub const fn of(of: TaskId, since: Micros) -> Self {
        Self {
            of,
            since,
            tried: Vec::new(),
            is_outside: false,
            receipts: Vec::new(),
            in_doubt: Vec::new(),
            programs_ran: false,
        }
    }

    /// Whether the tries before had effects, or may have had.
    #[must_use]
    pub const fn had_effects(&self) -> bool {
        !self.receipts.is_empty() || !self.in_doubt.is_empty() || self.programs_ran
    }
}
