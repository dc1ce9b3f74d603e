//! Taking in a message: one admission request, one append, and only then an acknowledgement (invariant 1).

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use annie_core::{
    caller::{CallerRequest, Thread},
    classify::{Basis, Classified, Emotion, classify, mood},
    event::{EventBody, Inbound, Mode, NewEvent, Priority, Retry, Scope},
    fork_report::FORK_REPORT,
    hidden::is_hidden,
    ids::{AgentId, ConversationId, OperationId, Seq, TaskId, UserId},
    inbound::{DEAD_LETTER, FORK, OPERATION},
    jobs::{JobRequest, resolve, understand},
    ports::{Address, Append, AppendError, Fence},
    projection::text_sha256,
    queue::WorkKey,
    reminder::REMINDER,
    schedule::SCHEDULE,
    time::Micros,
    trace_parent::TraceParent,
};

use super::{Kernel, KernelError};
use crate::{
    conversations::ConversationsMsg,
    jobs, log_ids,
    log_writer::{LogError, append},
    observe::Handle,
    scheduler::{AdmissionMsg, QueuePosition, SchedulerMsg, Steering},
    tasks::caught,
    wiring::Wiring,
};

/// Time limit of an admission request, in milliseconds.
const ADMIT_MS_MAX: u64 = 5_000;
/// Tasks that one task may wait for.
const AFTER_MAX: usize = 64;
/// The longest client id, in bytes.
const CLIENT_ID_BYTES_MAX: usize = 200;

/// The longest conversation that a caller may send with a request, including its tools, in bytes.
pub const THREAD_BYTES_MAX: usize = 1024 * 1024;

/// Prefixes of message ids that only the kernel may use, so that no client can send a message in place of the kernel's.
const RESERVED: [&str; 7] = [DEAD_LETTER, OPERATION, CHANNEL, SCHEDULE, FORK, REMINDER, FORK_REPORT];
/// The source of messages that a channel received, before the name of the channel.
pub(super) const CHANNEL: &str = "channel";

/// How many deleted conversations of one key a message passes by.
const SUCCESSORS_MAX: usize = 1_000;

/// A message as a front end hands it in.
#[derive(Debug, Clone)]
pub struct Submission {
    /// The sender.
    pub user: UserId,
    /// The conversation; `None` starts a new one.
    pub conversation: Option<ConversationId>,
    /// The text of the message.
    pub text: String,
    /// The front end's id for the message. Without one, a repeat cannot be recognised.
    pub client_id: Option<String>,
    /// The name of the front end.
    pub source: String,
    /// The requested class; `None` means that source and text decide.
    pub priority: Option<Priority>,
    /// The requested mode.
    pub mode: Option<Mode>,
    /// The earlier messages that a stateless front end sends along.
    pub preamble: Vec<(String, String)>,
    /// The message joins the running turn, if there is one, instead of waiting behind it.
    pub steer: bool,
    /// Names the work. Equal work of the same user with the same name, channel and address that still waits is done once,
    /// and both messages get the answer.
    pub name: Option<String>,
    /// Only local backends may run this message.
    pub private: bool,
    /// The user's emotion, where the front end knows it, and its confidence from 0 to 1.
    pub emotion: Option<(Emotion, f32)>,
    /// The task does not begin before this time.
    pub not_before: Option<Micros>,
    /// The first round starts after these tasks of the same user have ended.
    pub after: Vec<TaskId>,
    /// The conversation was not named by its id but follows from a key. If it was deleted, the message begins the next one of the key.
    pub moves_on: bool,
    /// The text is never taken for a job command: for front ends that only pass messages on.
    pub verbatim: bool,
    /// The message gets a conversation of its own, to which its caller will not return.
    pub stateless: bool,
    /// The requirements of a calling program on the answer.
    pub request: Option<Box<CallerRequest>>,
    /// Where the final text is delivered; `None` if the user reads it in the conversation or is notified.
    pub reply_to: Option<Address>,
    /// The trace of the caller, if it named one.
    pub traceparent: Option<TraceParent>,
    /// Set if this is a retry of a dead letter.
    pub(crate) retry: Option<Retry>,
    /// The channel of the message whose work this message of the kernel continues.
    pub(crate) channel: String,
    /// Set if this is the result of a long-running operation.
    pub(crate) resumes: Option<OperationId>,
    /// Set if this reminds the user of a to-do or reports a forked task: the kernel answers it at once, beside a running turn, with
    /// the text that it carries.
    pub(crate) carries_answer: bool,
    /// Set if this starts a forked task, whose address is the conversation that started it.
    pub(crate) is_fork: bool,
    /// The origins of what the agent had read that wrote the text.
    pub(crate) origins: Vec<String>,
}

impl Submission {
    /// A plain message of a user through a front end.
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
            moves_on: false,
            verbatim: false,
            stateless: false,
            request: None,
            reply_to: None,
            traceparent: None,
            retry: None,
            channel: String::new(),
            resumes: None,
            carries_answer: false,
            is_fork: false,
            origins: Vec::new(),
        }
    }

    const fn is_the_kernels(&self) -> bool {
        self.retry.is_some() || self.resumes.is_some() || self.carries_answer || self.is_fork
    }

    /// Sets the conversation.
    #[must_use]
    pub const fn within(mut self, conversation: ConversationId) -> Self {
        self.conversation = Some(conversation);
        self
    }
}

/// An acknowledgement: the message is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submitted {
    /// The task of the message.
    pub task: TaskId,
    /// Its conversation.
    pub conversation: ConversationId,
    /// Its sequence number in the log: follow from here for the answer.
    pub seq: Seq,
    /// The same message had been stored before; this repeats its first acknowledgement.
    pub repeated: bool,
    /// Its position in the queue.
    pub place: Option<QueuePosition>,
    /// Its class.
    pub priority: Priority,
    /// The message is a job command, and needs no queue position.
    pub is_job_command: bool,
}

impl Submitted {
    /// The acknowledgement of a message that was stored before.
    pub(crate) const fn repeat(task: TaskId, conversation: ConversationId, seq: Seq, priority: Priority) -> Self {
        Self { task, conversation, seq, repeated: true, place: None, priority, is_job_command: false }
    }
}

/// A granted queue position that is not used yet. It is given back when dropped, also if the caller leaves before an answer.
/// If the message is stored after all, its Engine requests rounds and gets a position again.
struct Reservation<'a> {
    scheduler: &'a Handle<SchedulerMsg>,
    task: TaskId,
    used: bool,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if !self.used {
            self.scheduler.tell(SchedulerMsg::Admission(AdmissionMsg::Forget { task: self.task }));
        }
    }
}

impl Kernel {
    /// Checks whether a user may have texts delivered to an address.
    ///
    /// # Errors
    /// `Invalid` with the reason, if there is no such channel or it does not accept the recipient for this user.
    pub async fn check_address(&self, user: &UserId, address: &Address) -> Result<(), KernelError> {
        check_address(&self.wiring, user, address).await
    }

    /// Takes in a message. When this returns, the message is stored and will get exactly one final answer or one visible
    /// failure, whatever crashes.
    ///
    /// # Errors
    /// If the message is not acceptable, there is no capacity, or it could not be stored. Then nothing happened, except that
    /// after `Unavailable` and `Store` it may have been stored: send it again with the same client id.
    pub async fn submit(&self, message: Submission) -> Result<Submitted, KernelError> {
        self.submit_to(None, message).await
    }

    /// As [`Kernel::submit`], into the conversation that [`conversation_of`] gave for this message.
    pub(super) async fn submit_to(
        &self,
        conversation: Option<ConversationId>,
        message: Submission,
    ) -> Result<Submitted, KernelError> {
        let is_reserved =
            |id: &String| RESERVED.iter().any(|r| id.strip_prefix(r).is_some_and(|rest| rest.starts_with(':')));
        if !message.is_the_kernels() && message.client_id.as_ref().is_some_and(is_reserved) {
            return Err(KernelError::Invalid(format!(
                "message ids that begin with `{}:` are the kernel's",
                RESERVED.join(":` or `")
            )));
        }
        self.accept_to(conversation, message).await
    }

    /// As [`Kernel::submit`], for messages whose ids only the kernel may use.
    pub(super) async fn accept(&self, message: Submission) -> Result<Submitted, KernelError> {
        self.accept_to(None, message).await
    }

    /// Whether the key whose first conversation this is has a conversation that is not deleted: the one into which a message with
    /// this key goes.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn has_conversation_of_key(&self, scope: Scope, first: ConversationId) -> Result<bool, KernelError> {
        let mut conversation = first;
        for _ in 0..SUCCESSORS_MAX {
            match self.conversation(scope.clone(), conversation).await {
                Ok(_) => return Ok(true),
                Err(KernelError::NotFound(_)) => return Ok(false),
                Err(KernelError::Deleted) => conversation = conversation.successor(),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    async fn accept_to(
        &self,
        conversation: Option<ConversationId>,
        message: Submission,
    ) -> Result<Submitted, KernelError> {
        if self.draining.load(Relaxed) {
            return Err(KernelError::NotReady("it is shutting down".to_owned()));
        }
        if self.is_drained() {
            return Err(KernelError::NotReady("an operator has drained the server: it accepts no messages".to_owned()));
        }
        accept_message_to(&self.wiring, conversation, message).await
    }
}

/// As [`Kernel::submit`], for messages of the kernel itself.
///
/// # Errors
/// As [`Kernel::submit`].
pub(crate) async fn accept_message(wiring: &Wiring, message: Submission) -> Result<Submitted, KernelError> {
    accept_message_to(wiring, None, message).await
}

async fn accept_message_to(
    wiring: &Wiring,
    conversation: Option<ConversationId>,
    message: Submission,
) -> Result<Submitted, KernelError> {
    let mut conversation = conversation.unwrap_or_else(|| conversation_of(wiring, &message));
    if !message.moves_on && message.name.is_none() {
        return accept_in(wiring, conversation, message).await;
    }
    for _ in 0..SUCCESSORS_MAX {
        match accept_in(wiring, conversation, message.clone()).await {
            Err(KernelError::Deleted) => conversation = conversation.successor(),
            accepted => return accepted,
        }
    }
    Err(KernelError::Deleted)
}

async fn accept_in(
    wiring: &Wiring,
    conversation: ConversationId,
    mut message: Submission,
) -> Result<Submitted, KernelError> {
    check(wiring, &message)?;
    check_reply_to(wiring, &message).await?;
    // A message in which a guard finds something gets a turn of its own, before which the finding is judged and recorded.
    message.steer = message.steer && wiring.limits.guards.examine_message(&message.text).is_empty();
    message.after = still_open(wiring, &message).await?;
    let (env, task) = (&wiring.env, TaskId::from_uuid(wiring.env.uuid()));
    let mood = message.emotion.map(|(emotion, intensity)| mood(emotion, intensity));
    let classified = classify(&message.source, &message.text, message.priority);
    let classified = if let Some(mood) = &mood { classified.felt(mood) } else { classified };
    let is_job_command =
        message.carries_answer || (!message.verbatim && is_job_command(wiring, &message, conversation).await);
    let mut reservation = Reservation { scheduler: &wiring.scheduler, task, used: false };
    let priority = classified.priority;
    let position = match capacity(wiring, task, conversation, priority, &message, is_job_command).await {
        Ok(position) => position,
        Err(refusal) => return accepted_before(wiring, &message, conversation, priority).await.ok_or(refusal),
    };
    let inbound = Inbound {
        client_id: message.client_id.unwrap_or_else(|| task.to_string()),
        text: message.text,
        source: message.source,
        channel: message.channel,
        reply_to: message.reply_to,
        priority,
        mode: message.mode,
        preamble: message.preamble,
        steer: message.steer,
        same_as: position.as_ref().and_then(|p| p.same_as),
        lifts: position.as_ref().and_then(|p| p.lifts),
        order: is_job_command,
        private: message.private,
        mood,
        not_before: message.not_before,
        after: message.after,
        retry: message.retry,
        resumes: message.resumes,
        stateless: message.stateless,
        origins: message.origins,
        request: message.request,
        traceparent: message.traceparent,
    };
    let new = |body| NewEvent { at: env.now(), task, agent: AgentId::orchestrator(), body };
    let mut events = vec![new(EventBody::Received(inbound))];
    if !is_job_command && (priority != Priority::High || classified.basis != Basis::Source) {
        events.push(new(decided(classified)));
    }
    // Without the lease another node may own what this one opens, so the Engine must ask.
    let opens = wiring.lease.held(env.clock.monotonic_us());
    let what = Append { conversation, user: message.user, fence: opens.map_or(Fence::Inbox, Fence::Opening), events };
    let submitted = |task, conversation, seq, repeated, position| Submitted {
        task,
        conversation,
        seq,
        repeated,
        place: position,
        priority,
        is_job_command,
    };
    match append(&wiring.log, what).await {
        Ok(stored) => {
            reservation.used = true;
            metrics::counter!("annie_messages_total").increment(1);
            log_ids::note_accepted(conversation, task);
            Ok(submitted(task, conversation, stored.first, false, position))
        }
        Err(LogError::Refused(AppendError::Duplicate { task, conversation, seq, same: true })) => {
            Ok(submitted(task, conversation, seq, true, None))
        }
        Err(e) => Err(e.into()),
    }
}

/// The tasks that this one must wait for: those of `after` that exist and have not ended. A turn that waits for none keeps
/// its deadlines and its order in its lane.
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

/// Requests a queue position for a message; `None` where it needs none. A message without a conversation cannot steer a
/// turn.
async fn capacity(
    wiring: &Wiring,
    task: TaskId,
    conversation: ConversationId,
    priority: Priority,
    message: &Submission,
    is_job_command: bool,
) -> Result<Option<QueuePosition>, KernelError> {
    if is_job_command {
        // If the message is lost, no task can depend on it for long: a job command ends in a moment.
        wiring.scheduler.tell(SchedulerMsg::Admission(AdmissionMsg::JobCommand { task, user: message.user.clone() }));
        Ok(None)
    } else if message.steer
        && message.conversation.is_some()
        && steering(wiring, conversation, task, &message.user).await? == Steering::Joins
    {
        Ok(None)
    } else {
        admit(wiring, task, conversation, priority, message).await.map(Some)
    }
}

/// Looks up a message for which there is no capacity: it may have been accepted before without its sender having received
/// the acknowledgement.
async fn accepted_before(
    wiring: &Wiring,
    message: &Submission,
    conversation: ConversationId,
    priority: Priority,
) -> Option<Submitted> {
    let known = wiring.store.message(message.user.clone(), message.client_id.clone()?).await;
    let known =
        known.inspect_err(|error| tracing::warn!(%error, "could not check whether a message is a repeat")).ok()??;
    if known.conversation != conversation || known.text_sha256 != text_sha256(&message.text) {
        return None;
    }
    // The first wake-up may have been lost with the log writer that was to send it.
    let user = message.user.clone();
    wiring.conversations.tell(ConversationsMsg::Wake { conversation, user, event: None, opening: None });
    Some(Submitted::repeat(known.task, conversation, known.seq, priority))
}

/// The given conversation; or the one of named work, so that equal work meets there; or a new one.
pub(super) fn conversation_of(wiring: &Wiring, message: &Submission) -> ConversationId {
    let named = || message.name.as_ref().map(|n| ConversationId::for_key(&message.user, &format!("work:{n}")));
    message.conversation.or_else(named).unwrap_or_else(|| ConversationId::from_uuid(wiring.env.uuid()))
}

/// Whether the whole message is a job command, and applies to the user's tasks.
async fn is_job_command(wiring: &Wiring, message: &Submission, conversation: ConversationId) -> bool {
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
    let ask = |reply| SchedulerMsg::Admission(AdmissionMsg::Steer { conversation, task, user: user.clone(), reply });
    let answer = wiring.scheduler.call(wait, ask).await;
    match answer {
        Ok(Err(retry_after_ms)) => Err(KernelError::TooSoon { retry_after_ms }),
        Ok(Ok(steering)) => Ok(steering),
        // While the Scheduler restarts, steering is not rate limited.
        Err(_) => Ok(Steering::Joins),
    }
}

fn check(wiring: &Wiring, message: &Submission) -> Result<(), KernelError> {
    let max = wiring.limits.message_bytes_max;
    // Control characters and hidden ones alone would be a conversation without a visible title.
    if !message.text.chars().any(|c| !c.is_whitespace() && !c.is_control() && !is_hidden(c)) {
        return Err(KernelError::of_field("text", "the message is empty: say something in `text`"));
    }
    if message.text.len() > max {
        let len = message.text.len();
        let why = format!("the message has {len} bytes, and at most {max} are allowed: shorten it or split it");
        return Err(KernelError::of_field("text", why));
    }
    if let Some(id) = &message.client_id
        && (id.is_empty() || id.len() > CLIENT_ID_BYTES_MAX || id.chars().any(char::is_control))
    {
        let why = format!("the message id must have 1 to {CLIENT_ID_BYTES_MAX} bytes and no control characters");
        return Err(KernelError::of_field("client_id", why));
    }
    if message.after.len() > AFTER_MAX {
        return Err(KernelError::Invalid(format!("a task may wait for at most {AFTER_MAX} others")));
    }
    if let Some(name) = &message.name
        && (name.is_empty() || name.len() > CLIENT_ID_BYTES_MAX || name.chars().any(char::is_control))
    {
        let why = format!("the name of the work must have 1 to {CLIENT_ID_BYTES_MAX} bytes and no control characters");
        return Err(KernelError::of_field("name", why));
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

/// Checks the address of a user's message. That of a message of the kernel was checked with the first message; if its channel
/// is gone since, the notifier notices.
async fn check_reply_to(wiring: &Wiring, message: &Submission) -> Result<(), KernelError> {
    match &message.reply_to {
        Some(address) if !message.is_the_kernels() => check_address(wiring, &message.user, address).await,
        _ => Ok(()),
    }
}

/// Checks that there is such a channel, and that it accepts the recipient for this user.
async fn check_address(wiring: &Wiring, user: &UserId, address: &Address) -> Result<(), KernelError> {
    let Some(channel) = wiring.extensions.channel(&address.channel) else {
        let names: Vec<&str> = wiring.extensions.channels().iter().map(|channel| channel.name()).collect();
        let known = if names.is_empty() { "none is configured".to_owned() } else { names.join(", ") };
        let why = format!("there is no channel {:?}: use one of the configured channels ({known})", address.channel);
        return Err(KernelError::Invalid(why));
    };
    if !address.is_well_formed() {
        let max = Address::TO_BYTES_MAX;
        let why = format!("the recipient in `to` must have 1 to {max} bytes and no control characters");
        return Err(KernelError::Invalid(why));
    }
    // A panic of the channel refuses the message and ends nothing else.
    match caught(async { channel.check(user, &address.to) }).await {
        Ok(checked) => checked.map_err(KernelError::Invalid),
        Err(panic) => {
            tracing::error!(channel = address.channel, panic, "a channel panicked while it checked an address");
            Err(KernelError::Invalid(format!("the channel {:?} could not check the recipient", address.channel)))
        }
    }
}

async fn admit(
    wiring: &Wiring,
    task: TaskId,
    conversation: ConversationId,
    priority: Priority,
    message: &Submission,
) -> Result<QueuePosition, KernelError> {
    let wait = Duration::from_millis(ADMIT_MS_MAX);
    // Local-only work is never equal to work that may use cloud backends.
    let private = if message.private { "private " } else { "" };
    // Nor is work of another channel, because rules may hold for one channel only.
    let on = if message.channel.is_empty() { &message.source } else { &message.channel };
    // Nor is work with another address: the answer of a retry goes to one address.
    let to = message.reply_to.as_ref().map(|address| (&address.channel, &address.to));
    let key = |name: &String| WorkKey::of(&format!("{private}{conversation} {on:?} {to:?} {name}"), &message.text);
    let work = message.name.as_ref().map(key);
    let ask = |reply| {
        SchedulerMsg::Admission(AdmissionMsg::Admit {
            task,
            user: message.user.clone(),
            conversation,
            priority,
            work,
            not_before: message.not_before,
            after: message.after.clone(),
            reply,
        })
    };
    match wiring.scheduler.call(wait, ask).await {
        Ok(answer) => answer.map_err(KernelError::Full),
        // A crash of the Scheduler is no reason to refuse a message: its next incarnation is asked once.
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
        hook: None,
    }
}
