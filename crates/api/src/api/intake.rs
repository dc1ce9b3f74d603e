//! The protocol-independent rules for an incoming message: its conversation, its id, its class and its options.

use annie_actors::Submission;
use annie_core::{
    classify::Emotion,
    event::{Mode, Priority},
    ids::{ConversationId, TaskId},
    ports::Address,
    time::Micros,
};
use chrono::DateTime;

use super::AppState;
use crate::{
    auth::{Caller, KeyScope},
    error::ApiError,
};

/// The maximum length of a client's name for a conversation, in bytes.
const KEY_BYTES_MAX: usize = 512;
/// The source of spoken messages.
const VOICE: &str = "voice";
/// The source of messages that were typed at the command line and sent to a server.
const CLI: &str = "cli";
/// The maximum delay of a message, in milliseconds: one year.
const DELAY_MS_MAX: u64 = 366 * 24 * 3_600_000;
/// The maximum number of tasks that one message may wait for.
const AFTER_MAX: usize = 64;

/// The conversation of a message, as the client names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConversationRef {
    /// A new conversation.
    New,
    /// An existing conversation, by its id.
    Id(String),
    /// The conversation with this client-defined name; created if it does not exist.
    Key(String),
}

/// A message as the client sent it.
#[derive(Debug, Clone)]
pub struct Message {
    pub text: String,
    pub conversation_ref: ConversationRef,
    pub mode: Option<Mode>,
    pub priority: Option<Priority>,
    pub client_id: Option<String>,
    pub preamble: Vec<(String, String)>,
    pub options: MessageOptions,
}

/// Options of a message.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MessageOptions {
    /// The source of the message if it is not the front end itself: `voice`.
    pub source: Option<String>,
    /// Whether the message joins the running turn.
    pub steer: bool,
    /// A name for the work: equal messages with the same name that are still waiting are run once.
    pub name: Option<String>,
    /// Whether only local backends may run the message.
    pub private: bool,
    /// The user's emotion in a recogniser's word, and the recogniser's confidence from 0 to 1.
    pub emotion: Option<(String, f32)>,
    /// The earliest start, RFC 3339.
    pub not_before: Option<String>,
    /// The delay of the start, in milliseconds.
    pub delay_ms: Option<u64>,
    /// The message starts after these tasks have ended.
    pub after: Vec<String>,
    /// Whether the text is never interpreted as a job command.
    pub verbatim: bool,
    /// Where the final text is delivered.
    pub reply_to: Option<Address>,
}

impl MessageOptions {
    /// The source that is recorded for the message. An unknown source is refused, because the source only selects the class.
    fn source<'a>(&'a self, caller: &Caller, api: &'a str) -> Result<&'a str, ApiError> {
        match self.source.as_deref() {
            None => Ok(api),
            Some(VOICE) => caller.must(KeyScope::Voice).map(|()| VOICE),
            Some(CLI) => Ok(CLI),
            Some(other) => {
                let why = format!(
                    "there is no source {other:?} here: use `{VOICE}` for spoken messages, `{CLI}` for typed commands, or \
                     leave it out"
                );
                Err(ApiError::invalid(why).at("source"))
            }
        }
    }

    fn emotion(&self) -> Result<Option<(Emotion, f32)>, ApiError> {
        let Some((name, intensity)) = &self.emotion else { return Ok(None) };
        if !(0.0..=1.0).contains(intensity) {
            return Err(ApiError::invalid("an intensity is a number from 0 to 1").at("emotion.intensity"));
        }
        let emotion = name.parse().map_err(|why: String| ApiError::invalid(why).at("emotion.name"))?;
        Ok(Some((emotion, *intensity)))
    }

    fn not_before(&self, now: Micros) -> Result<Option<Micros>, ApiError> {
        let (at, field) = match (&self.not_before, self.delay_ms) {
            (Some(_), Some(_)) => {
                return Err(ApiError::invalid("give `not_before` or `delay_ms`, not both").at("delay_ms"));
            }
            (None, None) => return Ok(None),
            (Some(text), None) => {
                let at = DateTime::parse_from_rfc3339(text).map_err(|e| {
                    let why = format!("{text:?} is no time of RFC 3339, like 2026-01-31T17:00:00Z: {e}");
                    ApiError::invalid(why).at("not_before")
                })?;
                (Micros::from_utc(at.to_utc()), "not_before")
            }
            (None, Some(ms)) => (now.plus_ms(i64::try_from(ms).unwrap_or(i64::MAX)), "delay_ms"),
        };
        if at.since_ms(now) > DELAY_MS_MAX {
            let why = format!("a message can be delayed by at most {DELAY_MS_MAX} ms (one year)");
            return Err(ApiError::invalid(why).at(field));
        }
        Ok(Some(at))
    }

    /// The address, if its channel accepts it for the caller.
    async fn reply_to(&self, state: &AppState, caller: &Caller) -> Result<Option<Address>, ApiError> {
        if let Some(address) = &self.reply_to {
            let checked = state.kernel.check_address(&caller.user, address).await;
            checked.map_err(|error| ApiError::from(error).at("reply_to"))?;
        }
        Ok(self.reply_to.clone())
    }

    /// The tasks that the message waits for. They must be the caller's own: otherwise the wait would reveal the state of other
    /// users' tasks.
    async fn after(&self, state: &AppState, caller: &Caller) -> Result<Vec<TaskId>, ApiError> {
        if self.after.len() > AFTER_MAX {
            return Err(ApiError::invalid(format!("a message waits for at most {AFTER_MAX} tasks")).at("after"));
        }
        let mut tasks = Vec::with_capacity(self.after.len());
        for (n, text) in self.after.iter().enumerate() {
            let at = |error: ApiError| error.at(format!("after[{n}]"));
            let id: TaskId = text.parse().map_err(|e| at(ApiError::from(e)))?;
            tasks.push(state.kernel.task(caller.scope(), id).await.map_err(|e| at(e.into()))?.id);
        }
        Ok(tasks)
    }
}

/// Checks a client's name for a conversation.
///
/// # Errors
/// If it is empty, too long or contains control characters.
pub fn check_key(key: &str) -> Result<(), ApiError> {
    if key.is_empty() || key.len() > KEY_BYTES_MAX || key.chars().any(char::is_control) {
        let why = format!("a conversation's name has 1 to {KEY_BYTES_MAX} bytes and no control characters");
        return Err(ApiError::invalid(why).at("conversation_key"));
    }
    Ok(())
}

/// Validates a message and converts it into a submission to the kernel.
///
/// # Errors
/// If an option is not valid, or the conversation is not the caller's.
pub async fn submission(
    state: &AppState,
    caller: &Caller,
    api: &str,
    message: Message,
) -> Result<Submission, ApiError> {
    let options = message.options;
    let source = options.source(caller, api)?;
    if message.priority == Some(Priority::Realtime) && source != VOICE {
        let why = "`realtime` is reserved for spoken messages (`source` \"voice\"); use `high`";
        return Err(ApiError::invalid(why).at("priority"));
    }
    let emotion = options.emotion()?;
    let not_before = options.not_before(state.kernel.now())?;
    let after = options.after(state, caller).await?;
    let reply_to = options.reply_to(state, caller).await?;
    if options.steer && (not_before.is_some() || !after.is_empty()) {
        let why = "a steering message cannot wait: leave out `steer`, or `delay_ms`, `not_before` and `after`";
        return Err(ApiError::invalid(why).at("steer"));
    }
    let user = caller.user.clone();
    let moves_on = matches!(message.conversation_ref, ConversationRef::Key(_));
    let conversation = match (message.conversation_ref, &message.client_id) {
        (ConversationRef::Id(id), _) => {
            let id: ConversationId = id.parse().map_err(|e| ApiError::from(e).at("conversation_id"))?;
            let found = state.kernel.conversation(caller.scope(), id).await;
            found.map_err(|e| ApiError::from(e).at("conversation_id"))?;
            Some(id)
        }
        (ConversationRef::Key(key), _) => {
            check_key(&key)?;
            Some(ConversationId::for_key(&user, &key))
        }
        // The kernel selects the conversation by the name, so that equal messages meet in it.
        (ConversationRef::New, _) if options.name.is_some() => None,
        // A repeated first message must not start another conversation. The control character separates these names from those
        // of clients.
        (ConversationRef::New, Some(client_id)) => Some(ConversationId::for_key(&user, &format!("\u{1}{client_id}"))),
        (ConversationRef::New, None) => None,
    };
    let mut submission = Submission::new(user, source, message.text);
    submission.conversation = conversation;
    submission.moves_on = moves_on;
    submission.client_id = message.client_id;
    submission.mode = message.mode;
    submission.preamble = message.preamble;
    submission.priority = message.priority;
    submission.steer = options.steer;
    submission.private = options.private;
    submission.emotion = emotion;
    submission.not_before = not_before;
    submission.after = after;
    submission.reply_to = reply_to;
    submission.traceparent = caller.traceparent;
    // A job command in a text requires the same scope as the routes for jobs.
    submission.verbatim = options.verbatim || !caller.grants.has(KeyScope::JobsControl);
    submission.name = options.name;
    Ok(submission)
}
