//! An inbound message and its metadata.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    caller::{AnswerFormat, CallOptions, CallerRequest, Thread},
    classify::Mood,
    event::{Mode, Priority},
    fork_report::FORK_REPORT,
    ids::{OperationId, TaskId},
    message::Message,
    ports::Address,
    receipt::Receipt,
    reminder::REMINDER,
    time::Micros,
    trace_parent::TraceParent,
    workflow::WorkflowBefore,
};

/// The source of a message that retries a dead letter.
pub const DEAD_LETTER: &str = "dead_letter";
/// The source of a message that carries the result of a long-running operation, or reports that none arrived.
pub const OPERATION: &str = "operation";
/// The source, before the name of the skill, of a message that starts the work of a prompt skill as a task of its own; also the
/// beginning of its client id.
pub const FORK: &str = "fork";
/// The role of a message in [`Inbound::preamble`] that an outside party sent, not the user. Its text is the kernel's line
/// about the message, followed by the party's own text.
pub const OUTSIDE: &str = "outside";

/// One inbound message.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inbound {
    /// The client's id for the message, unique per user. Repeated messages are recognised by it.
    pub client_id: String,
    /// The user's text.
    pub text: String,
    /// The front end or channel of the message: `http`, `grpc`, `cli`, `openai` …
    pub source: String,
    /// The channel of the user's message whose work this message of the kernel continues: a retry, the result of an operation, a
    /// forked task or its report. Empty for a message of a user.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub channel: String,
    /// Where the final text is delivered. Absent means that the user reads it in the conversation or is notified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<Address>,
    /// The scheduling class.
    #[serde(default)]
    pub priority: Priority,
    /// The requested mode. Absent means the conversation's mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Earlier messages, as reported by a stateless client, oldest first, as (role, text). Used only in an empty
    /// conversation. The role is `assistant`, [`OUTSIDE`], or the user's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preamble: Vec<(String, String)>,
    /// Whether the message joins the running turn, if that can accept it, instead of queueing behind it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub steer: bool,
    /// An equal task that is already waiting. This message shares its answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_as: Option<TaskId>,
    /// The class to which that task is raised, which is this message's own class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifts: Option<Priority>,
    /// Whether the message is a job command, which the kernel executes without a model.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub order: bool,
    /// Whether the message is local only: only local backends may run it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub private: bool,
    /// The consequences of the user's mood, if the client detects it [S3 12.1].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mood: Option<Mood>,
    /// The turn does not begin before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Micros>,
    /// The first round starts when these tasks of the same user have ended, in whatever state.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<TaskId>,
    /// Set if the message retries a dead letter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// The long-running operation whose result the message carries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumes: Option<OperationId>,
    /// Whether the message is a conversation of its own that its caller will not continue. Lists omit it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stateless: bool,
    /// The parameters that a program set for the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Box<CallerRequest>>,
    /// For the task of a forked prompt skill: the origins of what the agent had read that wrote its arguments. For a reminder: those
    /// of its to-do. For the report of a forked task: those of what that task had read. Empty if the user wrote them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub origins: Vec<String>,
    /// The trace of the caller, of which the trace of this task becomes a part. Absent if the caller named none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<TraceParent>,
}

impl Inbound {
    /// The channel on which the user requested this work.
    #[must_use]
    pub fn channel(&self) -> &str {
        if self.channel.is_empty() { &self.source } else { &self.channel }
    }

    /// Parameters sent to the backend in addition to prompts, messages and tools.
    #[must_use]
    pub fn options(&self) -> Option<&CallOptions> {
        self.request.as_ref().map(|request| &request.options)
    }

    /// The text, after the words of the user that a stateless client sent with it and that no answer followed.
    #[must_use]
    pub fn unanswered_text(&self) -> Cow<'_, str> {
        let of_thread = self.thread().map_or([].as_slice(), |thread| &thread.messages).iter().rev();
        let of_thread = of_thread.take_while(|message| !matches!(message, Message::Assistant { .. }));
        let of_thread = of_thread.filter_map(|message| match message {
            Message::User { text, .. } => Some(text.as_str()),
            Message::Assistant { .. } | Message::Tool { .. } | Message::Note { .. } => None,
        });
        let of_preamble = self.preamble.iter().rev().take_while(|(role, _)| role != "assistant");
        let of_preamble = of_preamble.filter(|(role, _)| role != OUTSIDE).map(|(_, text)| text.as_str());
        let mut texts: Vec<&str> = of_thread.chain(of_preamble).filter(|text| *text != self.text).collect();
        if texts.is_empty() {
            return self.text.as_str().into();
        }
        texts.reverse();
        texts.push(&self.text);
        texts.join("\n\n").into()
    }

    /// The conversation whose history the caller keeps.
    #[must_use]
    pub fn thread(&self) -> Option<&Thread> {
        self.request.as_ref()?.thread.as_ref()
    }

    /// Whether a program reads the answer: it requested a format, or it keeps the history itself and runs without Annie's
    /// skills.
    #[must_use]
    pub fn is_for_a_program(&self) -> bool {
        self.format().is_some() || self.thread().is_some_and(|thread| !thread.with_skills)
    }

    /// Whether the caller set the maximum length of the reply.
    #[must_use]
    pub fn sets_length(&self) -> bool {
        self.options().is_some_and(|options| options.sampling.output_tokens_max.is_some())
    }

    /// The text of an outside party, if the message is not from the user: the kernel's line about it, and the party's own
    /// text, which is empty if the kernel alone wrote the message.
    #[must_use]
    pub fn outside_text(&self) -> Option<(&str, &str)> {
        let is_outside = self.resumes.is_some() || self.retry.as_ref().is_some_and(|retry| retry.is_outside);
        is_outside.then(|| self.text.split_once('\n').unwrap_or((&self.text, "")))
    }

    /// Whether the kernel started this task for a prompt skill. Only the kernel may use such client ids.
    #[must_use]
    pub fn is_forked(&self) -> bool {
        self.client_id.strip_prefix(FORK).is_some_and(|rest| rest.starts_with(':'))
    }

    /// Whether the message reminds the user of a to-do. The kernel answers it with the text that it carries, without a model.
    /// Only the kernel may use such client ids.
    #[must_use]
    pub fn is_reminder(&self) -> bool {
        self.client_id.strip_prefix(REMINDER).is_some_and(|rest| rest.starts_with(':'))
    }

    /// Whether the message reports the end of a forked task to the conversation that started it. Only the kernel may use such
    /// client ids.
    #[must_use]
    pub fn is_fork_report(&self) -> bool {
        self.client_id.strip_prefix(FORK_REPORT).is_some_and(|rest| rest.starts_with(':'))
    }

    /// Whether the kernel answers the message with the text that it carries, without a model: a reminder, or the report of a forked
    /// task.
    #[must_use]
    pub fn carries_answer(&self) -> bool {
        self.is_reminder() || self.is_fork_report()
    }

    /// The format that the answer must have.
    #[must_use]
    pub fn format(&self) -> Option<&AnswerFormat> {
        self.options()?.format.as_ref()
    }
}

/// A retry of a dead letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// The failed task.
    pub of: TaskId,
    /// Time of the first failure, from which the maximum age counts.
    pub since: Micros,
    /// The failed attempts, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tried: Vec<String>,
    /// The message carried the result of a long-running operation: it is an outside party's text, not the user's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_outside: bool,
    /// The effects of the earlier attempts. The retry does not repeat them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub receipts: Vec<Receipt>,
    /// Effects of the earlier attempts that may have happened, as (skill, arguments). The retry does not repeat them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_doubt: Vec<(String, Value)>,
    /// Whether a program worked on the earlier attempts. No receipt shows what the program did.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub programs_ran: bool,
    /// Whether the kernel started the failed task for a skill or a workflow that was called by its name.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_forked: bool,
    /// The run of a workflow in the earlier attempts; `None` if they carried out none, and in older messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<Box<WorkflowBefore>>,
}

impl Retry {
    /// A retry of this task without information about the earlier attempts.
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
            is_forked: false,
            workflow: None,
        }
    }

    /// Whether the earlier attempts had effects, or may have had.
    #[must_use]
    pub const fn had_effects(&self) -> bool {
        !self.receipts.is_empty() || !self.in_doubt.is_empty() || self.programs_ran
    }
}
