//! A message comes in: one place asked for, one append, and only then an acknowledgement (invariant 1).

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use annie_core::{
    caller::{CallerRequest, Thread},
    classify::{Basis, Classified, Emotion, classify, mood},
    event::{EventBody, Inbound, Mode, NewEvent, Priority, Retry, Scope},
    ids::{AgentId, ConversationId, OperationId, Seq, TaskId, UserId},
    inbound::{DEAD_LETTER, OPERATION},
    jobs::{JobRequest, resolve, understand},
    ports::{Append, AppendError, Fence},
    projection::text_sha256,
    queue::WorkKey,
    time::Micros,
};

use super::{Kernel, KernelError};
use crate::{
    conversations::ConversationsMsg,
    jobs,
    log_writer::{LogError, append},
    observe::Handle,
    scheduler::{Place, SchedulerMsg, Steering},
    wiring::Wiring,
};

/// How long a place may take to be answered, in milliseconds.
const ADMIT_MS_MAX: u64 = 5_000;
/// Tasks that one may wait for.
const AFTER_MAX: usize = 64;
/// The longest client id, in bytes.
const CLIENT_ID_BYTES_MAX: usize = 200;

/// The longest conversation that a caller may bring with a request, its tools included, in bytes.
pub const THREAD_BYTES_MAX: usize = 1024 * 1024;

/// Beginnings of message ids that only the kernel gives, so that nobody can send one of its messages in its place.
const RESERVED: [&str; 2] = [DEAD_LETTER, OPERATION];

/// A message as a door hands it in.
#[derive(Debug, Clone)]
pub struct Submission {
    /// Whose message.
    pub user: UserId,
    /// In which conversation; nothing starts a new one.
    pub conversation: Option<ConversationId>,
    /// What the user said.
    pub text: String,
    /// The front end's id for it; nothing means that a repeat cannot be recognised.
    pub client_id: Option<String>,
    /// Through which door.
    pub source: String,
    /// The class asked for; nothing means that source and words decide.
    pub priority: Option<Priority>,
    /// The mode asked for.
    pub mode: Option<Mode>,
    /// What a stateless front end says came before.
    pub preamble: Vec<(String, String)>,
    /// It joins the turn under way, if there is one, instead of waiting behind it.
    pub steer: bool,
    /// Names the work: equal work of the same user under this name that waits already is done once, and answers both.
    pub name: Option<String>,
    /// It must not leave the house.
    pub private: bool,
    /// How the user feels, where the front end knows it, and how sure that is, from 0 to 1.
    pub emotion: Option<(Emotion, f32)>,
    /// It does not begin before this.
    pub not_before: Option<Micros>,
    /// Its first round starts when these tasks of the same user have ended.
    pub after: Vec<TaskId>,
    /// Its words are never an order about tasks: for front ends that only pass on.
    pub verbatim: bool,
    /// It is a conversation of its own that its caller will not come back to.
    pub stateless: bool,
    /// What a program asks of the answer.
    pub request: Option<Box<CallerRequest>>,
    /// A dead letter tried again.
    pub(crate) retry: Option<Retry>,
    /// The result of a long-running operation.
    pub(crate) resumes: Option<OperationId>,
}

impl Submission {
    /// A plain message of a user through a door.
    #[must_use]
    pub fn new(user: UserId, source: &str, text: impl Into<String>) -> Self {
        Self {
            user,
            conversation: None,
            text: text.into(),
            client_id: None,
            source: source.to_owned(),
            priority: None,
            mode: None,
            preamble: Vec::new(),
            steer: false,
            name: None,
            private: false,
            emotion: None,
            not_before: None,
            after: Vec::new(),
            verbatim: false,
            stateless: false,
            request: None,
            retry: None,
            resumes: None,
        }
    }

    const fn is_the_kernels(&self) -> bool {
        self.retry.is_some() || self.resumes.is_some()
    }

    /// In this conversation.
    #[must_use]
    pub const fn within(mut self, conversation: ConversationId) -> Self {
        self.conversation = Some(conversation);
        self
    }
}

/// An acknowledgement: the message is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submitted {
    /// What it became.
    pub task: TaskId,
    /// In which conversation.
    pub conversation: ConversationId,
    /// Where it is in the log: follow from here for its answer.
    pub seq: Seq,
    /// The same message had come before; this is its first acknowledgement again.
    pub repeated: bool,
    /// Its place in the queue.
    pub place: Option<Place>,
    /// The class it got.
    pub priority: Priority,
    /// It is an order about tasks, and needs no place.
    pub is_order: bool,
}

impl Submitted {
    /// What was acknowledged before, once more.
    pub(crate) const fn repeat(task: TaskId, conversation: ConversationId, seq: Seq, priority: Priority) -> Self {
        Self { task, conversation, seq, repeated: true, place: None, priority, is_order: false }
    }
}

/// A place that is asked for and not used yet: it goes back with whoever asked, also if they leave before an answer. If
/// the message is stored after all, its Engine asks for rounds and gets a place again.
struct Held<'a> {
    scheduler: &'a Handle<SchedulerMsg>,
    task: TaskId,
    used: bool,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if !self.used {
            self.scheduler.tell(SchedulerMsg::Forget { task: self.task });
        }
    }
}

impl Kernel {
    /// Takes in a message. When this returns, the message is stored and will get exactly one final answer or one visible
    /// failure, whatever dies.
    ///
    /// # Errors
    /// If it is not acceptable, there is no place, or it could not be stored; then nothing happened, except that after
    /// `Unavailable` and `Store` it may have been stored: send it again with the same client id.
    pub async fn submit(&self, message: Submission) -> Result<Submitted, KernelError> {
        if self.draining.load(Relaxed) {
            return Err(KernelError::NotReady("it is shutting down".to_owned()));
        }
        let is_reserved =
            |id: &String| RESERVED.iter().any(|r| id.strip_prefix(r).is_some_and(|rest| rest.starts_with(':')));
        if !message.is_the_kernels() && message.client_id.as_ref().is_some_and(is_reserved) {
            return Err(KernelError::Invalid(format!(
                "message ids that begin with `{}:` are the kernel's",
                RESERVED.join(":` or `")
            )));
        }
        take_in(&self.wiring, message).await
    }
}

/// As [`Kernel::submit`], for what the kernel itself has to say.
///
/// # Errors
/// As [`Kernel::submit`].
pub(crate) async fn take_in(wiring: &Wiring, mut message: Submission) -> Result<Submitted, KernelError> {
    check(wiring, &message)?;
    message.after = still_open(wiring, &message).await?;
    let env = &wiring.env;
    let task = TaskId::from_uuid(env.uuid());
    let conversation = conversation_of(wiring, &message);
    let mood = message.emotion.map(|(emotion, intensity)| mood(emotion, intensity));
    let mut classified = classify(&message.source, &message.text, message.priority);
    if let Some(mood) = &mood {
        classified = classified.felt(mood);
    }
    let is_order = !message.verbatim && is_order(wiring, &message, conversation).await;
    let mut held = Held { scheduler: &wiring.scheduler, task, used: false };
    let priority = classified.priority;
    let place = match room(wiring, task, conversation, priority, &message, is_order).await {
        Ok(place) => place,
        Err(refusal) => return accepted_before(wiring, &message, conversation, priority).await.ok_or(refusal),
    };
    let inbound = Inbound {
        client_id: message.client_id.unwrap_or_else(|| task.to_string()),
        text: message.text,
        source: message.source,
        priority,
        mode: message.mode,
        preamble: message.preamble,
        steer: message.steer,
        same_as: place.as_ref().and_then(|p| p.same_as),
        lifts: place.as_ref().and_then(|p| p.lifts),
        order: is_order,
        private: message.private,
        mood,
        not_before: message.not_before,
        after: message.after,
        retry: message.retry,
        resumes: message.resumes,
        stateless: message.stateless,
        request: message.request,
    };
    let new = |body| NewEvent { at: env.now(), task, agent: AgentId::orchestrator(), body };
    let mut events = vec![new(EventBody::Received(inbound))];
    if !is_order && (priority != Priority::High || classified.basis != Basis::Source) {
        events.push(new(decided(classified)));
    }
    let what = Append { conversation, user: message.user, fence: Fence::Inbox, events };
    let submitted = |task, conversation, seq, repeated, place| Submitted {
        task,
        conversation,
        seq,
        repeated,
        place,
        priority,
        is_order,
    };
    match append(&wiring.log, what).await {
        Ok(stored) => {
            held.used = true;
            metrics::counter!("annie_messages_total").increment(1);
            Ok(submitted(task, conversation, stored.first, false, place))
        }
        Err(LogError::Refused(AppendError::Duplicate { task, conversation, seq, same: true })) => {
            Ok(submitted(task, conversation, seq, true, None))
        }
        Err(e) => Err(e.into()),
    }
}

/// Those of the tasks before it that it has to wait for: what is unknown or has ended is nothing to wait for, and a turn
/// that waits for nothing has its deadlines and its place in its lane.
async fn still_open(wiring: &Wiring, message: &Submission) -> Result<Vec<TaskId>, KernelError> {
    let mut open = Vec::new();
    for task in &message.after {
        let row = wiring.store.task(Scope::User(message.user.clone()), *task).await?;
        if row.is_some_and(|row| !row.state.is_ended()) {
            open.push(*task);
        }
    }
    Ok(open)
}

/// Room for a message; nothing where it needs none. A conversation that nobody named has nothing to be steered.
async fn room(
    wiring: &Wiring,
    task: TaskId,
    conversation: ConversationId,
    priority: Priority,
    message: &Submission,
    is_order: bool,
) -> Result<Option<Place>, KernelError> {
    if is_order {
        // If it is lost, nobody can wait for it: it is over in a moment.
        wiring.scheduler.tell(SchedulerMsg::Order { task, user: message.user.clone() });
        Ok(None)
    } else if message.steer
        && message.conversation.is_some()
        && steering(wiring, conversation, task, &message.user).await? == Steering::Joins
    {
        Ok(None)
    } else {
        place(wiring, task, conversation, priority, message).await.map(Some)
    }
}

/// A message for which there is no room may be one that was accepted before, whose sender has not heard of it.
async fn accepted_before(
    wiring: &Wiring,
    message: &Submission,
    conversation: ConversationId,
    priority: Priority,
) -> Option<Submitted> {
    let known = wiring.store.message(message.user.clone(), message.client_id.clone()?).await;
    let known = known.inspect_err(|error| tracing::warn!(%error, "a repeat could not be looked for")).ok()??;
    if known.conversation != conversation || known.text_sha256 != text_sha256(&message.text) {
        return None;
    }
    // Its first wake-up may have been lost with whoever was to give it.
    let user = message.user.clone();
    wiring.conversations.tell(ConversationsMsg::Wake { conversation, user, event: None });
    Some(Submitted::repeat(known.task, conversation, known.seq, priority))
}

/// The named conversation; named work has one of its own, so that equal work meets there; else a new one.
fn conversation_of(wiring: &Wiring, message: &Submission) -> ConversationId {
    let named = || message.name.as_ref().map(|n| ConversationId::for_key(&message.user, &format!("work:{n}")));
    message.conversation.or_else(named).unwrap_or_else(|| ConversationId::from_uuid(wiring.env.uuid()))
}

/// Whether the whole message is an order about tasks that it can be carried out on.
async fn is_order(wiring: &Wiring, message: &Submission, conversation: ConversationId) -> bool {
    let Some(command) = understand(&message.text) else { return false };
    if command.is_certain() {
        return true;
    }
    let JobRequest::Act { verb, target } = &command.request else { return true };
    match jobs::lines(wiring, &message.user, None).await {
        Ok(lines) => command.applies(&resolve(target, &lines, *verb, Some(conversation))),
        Err(_) => false,
    }
}

async fn steering(
    wiring: &Wiring,
    conversation: ConversationId,
    task: TaskId,
    user: &UserId,
) -> Result<Steering, KernelError> {
    let wait = Duration::from_millis(ADMIT_MS_MAX);
    let ask = |reply| SchedulerMsg::Steer { conversation, task, user: user.clone(), reply };
    let answer = wiring.scheduler.call(wait, ask).await;
    match answer {
        Ok(Err(retry_after_ms)) => Err(KernelError::TooSoon { retry_after_ms }),
        Ok(Ok(steering)) => Ok(steering),
        // Between two lives of the scheduler nobody counts.
        Err(_) => Ok(Steering::Joins),
    }
}

fn check(wiring: &Wiring, message: &Submission) -> Result<(), KernelError> {
    let max = wiring.limits.message_bytes_max;
    if message.text.trim().is_empty() {
        return Err(KernelError::Invalid("the message is empty: say something in `text`".to_owned()));
    }
    if message.text.len() > max {
        let len = message.text.len();
        let why = format!("the message has {len} bytes, and at most {max} are allowed: shorten it or split it");
        return Err(KernelError::Invalid(why));
    }
    if let Some(id) = &message.client_id
        && (id.is_empty() || id.len() > CLIENT_ID_BYTES_MAX || id.chars().any(char::is_control))
    {
        return Err(KernelError::Invalid(format!(
            "the message id must have 1 to {CLIENT_ID_BYTES_MAX} bytes and no control characters"
        )));
    }
    if message.after.len() > AFTER_MAX {
        return Err(KernelError::Invalid(format!("a task may wait for at most {AFTER_MAX} others")));
    }
    if let Some(name) = &message.name
        && (name.is_empty() || name.len() > CLIENT_ID_BYTES_MAX || name.chars().any(char::is_control))
    {
        return Err(KernelError::Invalid(format!(
            "the name of the work must have 1 to {CLIENT_ID_BYTES_MAX} bytes and no control characters"
        )));
    }
    let thread = message.request.as_ref().and_then(|request| request.thread.as_ref());
    if let Some(bytes) = thread.map(Thread::len_bytes).filter(|bytes| *bytes > THREAD_BYTES_MAX) {
        return Err(KernelError::Invalid(format!(
            "the messages and tools have {bytes} bytes together, and at most {THREAD_BYTES_MAX} are allowed"
        )));
    }
    let instructions = message.request.as_ref().map_or(0, |request| request.instructions.len());
    if instructions > max {
        return Err(KernelError::Invalid(format!(
            "the instructions have {instructions} bytes, at most {max} are allowed"
        )));
    }
    let preamble: usize = message.preamble.iter().map(|(_, text)| text.len()).sum();
    if preamble > max {
        return Err(KernelError::Invalid(format!(
            "the earlier messages have {preamble} bytes, at most {max} are allowed"
        )));
    }
    Ok(())
}

async fn place(
    wiring: &Wiring,
    task: TaskId,
    conversation: ConversationId,
    priority: Priority,
    message: &Submission,
) -> Result<Place, KernelError> {
    let wait = Duration::from_millis(ADMIT_MS_MAX);
    // What must not leave the house is not the same work as what may.
    let private = if message.private { "private " } else { "" };
    let work = message.name.as_ref().map(|name| WorkKey::of(&format!("{private}{conversation} {name}"), &message.text));
    let ask = |reply| SchedulerMsg::Admit {
        task,
        user: message.user.clone(),
        conversation,
        priority,
        work,
        not_before: message.not_before,
        after: message.after.clone(),
        reply,
    };
    match wiring.scheduler.call(wait, ask).await {
        Ok(answer) => answer.map_err(KernelError::Full),
        // A death of the scheduler in between is no reason to turn somebody away: its next life is asked once.
        Err(_) => {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let answer = wiring.scheduler.call(wait, ask).await;
            answer.map_err(|error| KernelError::NotReady(error.to_string()))?.map_err(KernelError::Full)
        }
    }
}

fn decided(classified: Classified) -> EventBody {
    EventBody::Decided {
        component: "classify".to_owned(),
        decision: format!("class {}", classified.priority.as_str()),
        reasoning: classified.reason,
        alternatives: classified.alternatives,
    }
}
