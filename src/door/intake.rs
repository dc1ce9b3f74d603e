//! A message as any door takes it in: where it is said, under which id, how urgent.

use annie_actors::Submission;
use annie_core::{
    event::{Mode, Priority},
    ids::ConversationId,
};

use super::AppState;
use crate::{auth::Caller, error::Fault};

/// The longest name that a front end may give a conversation, in bytes.
const KEY_BYTES_MAX: usize = 512;

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
pub async fn submission(
    state: &AppState,
    caller: &Caller,
    source: &str,
    message: Message,
) -> Result<Submission, Fault> {
    if message.priority == Some(Priority::Realtime) {
        let why = "`realtime` is kept for voice sessions; use `high`";
        return Err(Fault::invalid(why).at("priority"));
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
    if let Some(priority) = message.priority {
        submission.priority = priority;
    }
    Ok(submission)
}
