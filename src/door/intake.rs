//! A message as any door takes it in: where it is said, under which id, how urgent, and what else it wishes.

use annie_actors::Submission;
use annie_core::{
    classify::Emotion,
    event::{Mode, Priority},
    ids::{ConversationId, TaskId},
    time::Micros,
};
use chrono::DateTime;

use super::AppState;
use crate::{
    auth::{Caller, KeyScope},
    error::Fault,
};

/// The longest name that a front end may give a conversation, in bytes.
const KEY_BYTES_MAX: usize = 512;
/// The source of what was spoken.
const VOICE: &str = "voice";
/// How far ahead a message may be put off, in milliseconds: a year. What is to happen later still is no message.
const DELAY_MS_MAX: u64 = 366 * 24 * 3_600_000;
/// Tasks that one message may wait for.
const AFTER_MAX: usize = 64;

/// Where a message is said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Where {
    /// In a new conversation.
    New,
    /// In one that exists.
    Id(String),
    /// In the one that the front end calls so, new or not.
    Key(String),
}

/// A message in the caller's words.
#[derive(Debug, Clone)]
pub struct Message {
    pub text: String,
    pub place: Where,
    pub mode: Option<Mode>,
    pub priority: Option<Priority>,
    pub client_id: Option<String>,
    pub preamble: Vec<(String, String)>,
    pub wish: Wish,
}

/// What a message may wish besides.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Wish {
    /// Where it was said, if not at this door: `voice`.
    pub source: Option<String>,
    /// It joins the turn under way.
    pub steer: bool,
    /// Names the work: equal work that waits is done once.
    pub name: Option<String>,
    /// Only local backends may run it.
    pub private: bool,
    /// How the user feels, in a recogniser's word, and how sure that is.
    pub emotion: Option<(String, f32)>,
    /// It does not begin before this: RFC 3339.
    pub not_before: Option<String>,
    /// Or not before so many milliseconds have gone by.
    pub delay_ms: Option<u64>,
    /// It begins when these tasks have ended.
    pub after: Vec<String>,
    /// Its words are never an order about tasks.
    pub verbatim: bool,
}

impl Wish {
    /// The door or channel that the message counts as coming from. What is not known would only change its class.
    fn source<'a>(&'a self, caller: &Caller, door: &'a str) -> Result<&'a str, Fault> {
        match self.source.as_deref() {
            None => Ok(door),
            Some(VOICE) => caller.must(KeyScope::Voice).map(|()| VOICE),
            Some(other) => {
                let why =
                    format!("there is no source {other:?} here: say `{VOICE}` for what was spoken, or leave it out");
                Err(Fault::invalid(why).at("source"))
            }
        }
    }

    fn emotion(&self) -> Result<Option<(Emotion, f32)>, Fault> {
        let Some((name, intensity)) = &self.emotion else { return Ok(None) };
        if !(0.0..=1.0).contains(intensity) {
            return Err(Fault::invalid("an intensity is a number from 0 to 1").at("emotion.intensity"));
        }
        let emotion = name.parse().map_err(|why: String| Fault::invalid(why).at("emotion.name"))?;
        Ok(Some((emotion, *intensity)))
    }

    fn not_before(&self, now: Micros) -> Result<Option<Micros>, Fault> {
        let (at, field) = match (&self.not_before, self.delay_ms) {
            (Some(_), Some(_)) => {
                return Err(Fault::invalid("give `not_before` or `delay_ms`, not both").at("delay_ms"));
            }
            (None, None) => return Ok(None),
            (Some(text), None) => {
                let at = DateTime::parse_from_rfc3339(text).map_err(|e| {
                    let why = format!("{text:?} is no time of RFC 3339, like 2026-01-31T17:00:00Z: {e}");
                    Fault::invalid(why).at("not_before")
                })?;
                (Micros::from_utc(at.to_utc()), "not_before")
            }
            (None, Some(ms)) => (now.plus_ms(i64::try_from(ms).unwrap_or(i64::MAX)), "delay_ms"),
        };
        if at.since_ms(now) > DELAY_MS_MAX {
            let why = format!("a message is put off by at most {DELAY_MS_MAX} ms, which is a year");
            return Err(Fault::invalid(why).at(field));
        }
        Ok(Some(at))
    }

    /// Tasks that it waits for: the caller's own, or they would tell of others.
    async fn after(&self, state: &AppState, caller: &Caller) -> Result<Vec<TaskId>, Fault> {
        if self.after.len() > AFTER_MAX {
            return Err(Fault::invalid(format!("a message waits for at most {AFTER_MAX} tasks")).at("after"));
        }
        let mut tasks = Vec::with_capacity(self.after.len());
        for (n, text) in self.after.iter().enumerate() {
            let at = |fault: Fault| fault.at(format!("after[{n}]"));
            let id: TaskId = text.parse().map_err(|e| at(Fault::from(e)))?;
            tasks.push(state.kernel.task(caller.scope(), id).await.map_err(|e| at(e.into()))?.id);
        }
        Ok(tasks)
    }
}

/// Checks a front end's name for a conversation.
///
/// # Errors
/// If it is empty, too long or holds control characters.
pub fn check_key(key: &str) -> Result<(), Fault> {
    if key.is_empty() || key.len() > KEY_BYTES_MAX || key.chars().any(char::is_control) {
        let why = format!("a conversation's name has 1 to {KEY_BYTES_MAX} bytes and no control characters");
        return Err(Fault::invalid(why).at("conversation_key"));
    }
    Ok(())
}

/// Checks a message and makes it the kernel's.
///
/// # Errors
/// If something about it is not acceptable, or the conversation is not the caller's.
pub async fn submission(state: &AppState, caller: &Caller, door: &str, message: Message) -> Result<Submission, Fault> {
    let wish = message.wish;
    let source = wish.source(caller, door)?;
    if message.priority == Some(Priority::Realtime) && source != VOICE {
        let why = "`realtime` is kept for what was spoken (`source` \"voice\"); use `high`";
        return Err(Fault::invalid(why).at("priority"));
    }
    let emotion = wish.emotion()?;
    let not_before = wish.not_before(state.kernel.now())?;
    let after = wish.after(state, caller).await?;
    if wish.steer && (not_before.is_some() || !after.is_empty()) {
        let why =
            "what joins the turn under way does not wait: leave out `steer`, or `delay_ms`, `not_before` and `after`";
        return Err(Fault::invalid(why).at("steer"));
    }
    let user = caller.user.clone();
    let conversation = match (message.place, &message.client_id) {
        (Where::Id(id), _) => {
            let id: ConversationId = id.parse().map_err(|e| Fault::from(e).at("conversation_id"))?;
            state.kernel.conversation(caller.scope(), id).await?;
            Some(id)
        }
        (Where::Key(key), _) => {
            check_key(&key)?;
            Some(ConversationId::for_key(&user, &key))
        }
        // Equal work meets in the conversation of its name, which the kernel knows.
        (Where::New, _) if wish.name.is_some() => None,
        // The repeat of a first message must not begin another conversation. The control character keeps these names apart
        // from those of front ends.
        (Where::New, Some(client_id)) => Some(ConversationId::for_key(&user, &format!("\u{1}{client_id}"))),
        (Where::New, None) => None,
    };
    let mut submission = Submission::new(user, source, message.text);
    submission.conversation = conversation;
    submission.client_id = message.client_id;
    submission.mode = message.mode;
    submission.preamble = message.preamble;
    submission.priority = message.priority;
    submission.steer = wish.steer;
    submission.private = wish.private;
    submission.emotion = emotion;
    submission.not_before = not_before;
    submission.after = after;
    // Words do no more than the key may do with routes.
    submission.verbatim = wish.verbatim || !caller.grants.has(KeyScope::JobsControl);
    submission.name = wish.name;
    Ok(submission)
}
