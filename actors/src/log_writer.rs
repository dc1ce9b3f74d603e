//! The one writer of the log.
//!
//! Owns: the queue of appends. Appends that arrive while a commit is under way go into the next one together (group
//! commit), so that one fsync serves many conversations. After each commit, in the order of the log: it wakes the engines
//! of new messages, tells the listeners, and only then answers.
//! Supervised by: infra. Survives its death: everything that was committed; waiting appends are answered with a loss, and
//! whoever asked treats their fate as unknown.

mod late;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use annie_core::{
    event::{Event, EventBody},
    ids::{ConversationId, Seq, UserId},
    ports::{Append, AppendError, Appended, Env, Store},
};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::{
    conversations::ConversationsMsg,
    expiry::ExpiryMsg,
    hub::{Hub, Live},
    letters::LettersMsg,
    notify::NotifyMsg,
    observe::{Context, Handle, Named, Node, NodeError, SendError, task_point},
    scheduler::SchedulerMsg,
    tasks::{Tasks, caught},
};

/// Appends in one transaction at most.
const BATCH_MAX: usize = 256;
/// How long a commit may take, in milliseconds; longer than the stores' own waits for locks.
const COMMIT_MS_MAX: u64 = 15_000;

/// How long an append may take with all that stands before it, in milliseconds.
const APPEND_MS_MAX: u64 = 120_000;
/// Appends that may wait for a commit; whoever asks for one more is told that it is lost.
const WAITING_MAX: usize = 100_000;

/// How an append can fail for its writer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// The store refused it; nothing of it is stored.
    #[error(transparent)]
    Refused(#[from] AppendError),
    /// The writer died or is overloaded; whether it is stored is not known.
    #[error("the log writer did not answer: {0}")]
    Lost(#[from] SendError),
}

impl LogError {
    /// Whether the same may be stored later: the writer or the store is away for now.
    #[must_use]
    pub const fn is_passing(&self) -> bool {
        match self {
            Self::Lost(_) => true,
            Self::Refused(AppendError::Store(error)) => error.is_retryable(),
            Self::Refused(_) => false,
        }
    }
}

/// What the log writer hears.
pub enum LogMsg {
    /// Store this.
    Append {
        /// What.
        append: Append,
        /// Whom to answer.
        reply: oneshot::Sender<Result<Appended, AppendError>>,
    },
    /// The commit under way is done.
    Flushed {
        /// Whose messages may be stored all the same, or later.
        in_doubt: Vec<ConversationId>,
    },
    /// What was in doubt may be stored now.
    Look,
}

impl Named for LogMsg {
    fn name(&self) -> &'static str {
        match self {
            Self::Append { .. } => "Append",
            Self::Flushed { .. } => "Flushed",
            Self::Look => "Look",
        }
    }
}

/// What the log writer starts from.
#[derive(Clone)]
pub struct LogArgs {
    /// Where to.
    pub store: Arc<dyn Store>,
    /// Whom to tell.
    pub hub: Arc<Hub>,
    /// Whom to wake.
    pub conversations: Handle<ConversationsMsg>,
    /// Who works on what the log leads to beside the conversations.
    pub keepers: Keepers,
    /// Whether a life before this one began.
    pub has_lived: Arc<AtomicBool>,
}

/// Who works on what the log leads to beside the conversations: on rows that are stored with it, of which each hears that there is
/// something new, and reads it itself; and on the order of the rounds, which is kept in memory. Each is told and never refused:
/// there may be no next time for long. If nobody lives there, its next life looks first of all.
#[derive(Clone)]
pub struct Keepers {
    /// Of final words.
    pub(crate) notifier: Handle<NotifyMsg>,
    /// Of dead letters.
    pub(crate) letters: Handle<LettersMsg>,
    /// Of long-running operations.
    pub(crate) expiry: Handle<ExpiryMsg>,
    /// Of what changes when a task runs, and of its end.
    pub(crate) scheduler: Handle<SchedulerMsg>,
}

type Waiting = (Append, oneshot::Sender<Result<Appended, AppendError>>);

/// The log writer's state.
pub struct LogState {
    args: LogArgs,
    waiting: Vec<Waiting>,
    commit: Tasks<()>,
    late: late::Late,
    commits: u64,
    appends: u64,
}

/// The log writer.
pub struct LogWriter;

impl Node for LogWriter {
    type Msg = LogMsg;
    type Args = LogArgs;
    type State = LogState;
    const KIND: &'static str = "log_writer";
    const MAILBOX_MAX: usize = 100_000;

    fn init(ctx: &Context<Self>, args: LogArgs) -> Result<LogState, NodeError> {
        let (commit, late) = (Tasks::of(ctx.branch()), late::Late::of(ctx.branch()));
        Ok(LogState { args, waiting: Vec::new(), commit, late, commits: 0, appends: 0 })
    }

    async fn ready(ctx: &Context<Self>, state: &mut LogState) -> Result<(), NodeError> {
        // A former life may have committed a message and died before it woke the engine. If nobody lives there, its next life
        // scans the log; and before the first life there was nobody who could leave anything.
        if state.args.has_lived.swap(true, Relaxed) {
            state.args.conversations.tell(ConversationsMsg::Rescan);
            state.late.expect_anything(ctx.me());
        }
        // And a final word, a letter or an operation, before it told who works on them.
        tell_all_keepers(&state.args.keepers);
        state.args.hub.unsure();
        Ok(())
    }

    async fn handle(ctx: &Context<Self>, state: &mut LogState, msg: LogMsg) -> Result<(), NodeError> {
        match msg {
            LogMsg::Append { append, reply } if state.waiting.len() < WAITING_MAX => {
                state.waiting.push((append, reply));
            }
            LogMsg::Append { .. } => metrics::counter!("annie_log_refusals_total").increment(1),
            LogMsg::Flushed { in_doubt } => {
                state.commit.remove(&());
                state.late.expect(in_doubt, ctx.me());
            }
            LogMsg::Look => state.late.look(&state.args, ctx.me()),
        }
        if !state.commit.contains(&()) && !state.waiting.is_empty() {
            flush(ctx, state);
        }
        Ok(())
    }

    fn view(state: &LogState) -> Value {
        json!({
            "waiting": state.waiting.len(), "committing": !state.commit.is_empty(),
            "commits": state.commits, "appends": state.appends
        })
    }
}

fn flush(ctx: &Context<LogWriter>, state: &mut LogState) {
    let batch: Vec<Waiting> = state.waiting.drain(..state.waiting.len().min(BATCH_MAX)).collect();
    state.commits += 1;
    state.appends += batch.len() as u64;
    metrics::counter!("annie_log_commits_total").increment(1);
    metrics::counter!("annie_log_appends_total").increment(batch.len() as u64);
    let (args, me) = (state.args.clone(), ctx.me());
    let env = ctx.env().clone();
    state.commit.spawn((), async move {
        let started_us = env.clock.monotonic_us();
        let (appends, replies): (Vec<Append>, Vec<_>) = batch.into_iter().unzip();
        let Some(results) = commit(&args, &env, appends.clone()).await else {
            // Whether it is stored is not known: the askers lose their answers and find out from the log.
            tracing::error!(wait_ms = COMMIT_MS_MAX, "a commit broke down or did not come back");
            drop(replies);
            let in_doubt = doubt(&args, appends.iter());
            args.hub.unsure();
            args.hub.note_commit();
            me.tell(LogMsg::Flushed { in_doubt });
            return;
        };
        #[expect(clippy::cast_precision_loss, reason = "a duration in a histogram")]
        let seconds = env.clock.monotonic_us().saturating_sub(started_us) as f64 / 1e6;
        metrics::histogram!("annie_log_commit_seconds").record(seconds);
        let is_store_error = |r: &Result<_, _>| matches!(r, Err(AppendError::Store(_)));
        let failed = appends.iter().zip(&results).filter(|(_, r)| is_store_error(r)).map(|(append, _)| append);
        let in_doubt = doubt(&args, failed);
        for (append, result) in appends.into_iter().zip(&results) {
            announce(&args, append, result);
        }
        args.hub.note_commit();
        // An error has nobody left to be told to: what was stored is stored, and was announced.
        let _ = task_point(&env, "commit", "told").await;
        for (reply, result) in replies.into_iter().zip(results) {
            // Whoever asked may have died since.
            let _ = reply.send(result);
        }
        // If it fails this life is over, and the next one starts afresh.
        me.tell(LogMsg::Flushed { in_doubt });
    });
}

/// Commits within a time; nothing if whether it is stored is not known.
async fn commit(args: &LogArgs, env: &Env, appends: Vec<Append>) -> Option<Vec<Result<Appended, AppendError>>> {
    task_point(env, "commit", "before").await.ok()?;
    let wait = Duration::from_millis(COMMIT_MS_MAX);
    let results = tokio::time::timeout(wait, caught(args.store.commit(appends))).await.ok()?.ok()?;
    task_point(env, "commit", "after").await.ok()?;
    Some(results)
}

/// What may be stored all the same is looked for: a message whose sender may never ask again, and what an event left beside
/// its conversation. Says whose messages those are.
fn doubt<'a>(args: &LogArgs, appends: impl Iterator<Item = &'a Append>) -> Vec<ConversationId> {
    let appends: Vec<&Append> = appends.collect();
    if appends.is_empty() {
        return Vec::new();
    }
    let brings_a_message = |append: &&&Append| append.events.iter().any(|event| wakes(&event.body));
    let messages = appends.iter().filter(brings_a_message);
    let conversations: Vec<ConversationId> = messages.map(|append| append.conversation).collect();
    if !conversations.is_empty() {
        // If nobody lives there, its next life scans the log.
        args.conversations.tell(ConversationsMsg::Doubt(conversations.clone()));
    }
    tell_all_keepers(&args.keepers);
    conversations
}

/// Something may be stored that none of them was told of.
fn tell_all_keepers(keepers: &Keepers) {
    keepers.notifier.tell(NotifyMsg::New { heard: None });
    keepers.letters.tell(LettersMsg::New);
    keepers.expiry.tell(ExpiryMsg::New);
    keepers.scheduler.tell(SchedulerMsg::Reread);
}

/// Wakes and tells before anybody is answered: so a question that an answer leads to always comes behind the wake-up.
fn announce(args: &LogArgs, append: Append, result: &Result<Appended, AppendError>) {
    let (conversation, user) = (append.conversation, append.user);
    match result {
        Ok(Appended { first }) => {
            for (n, new) in append.events.into_iter().enumerate() {
                let event = Arc::new(Event::placed(conversation, Seq(first.0 + n as u64), new));
                if wakes(&event.body) {
                    wake(args, conversation, user.clone(), Some(event.clone()));
                }
                args.hub.publish(conversation, Live::Event(event.clone()));
                tell_keepers(args, (conversation, &user), &event);
            }
        }
        // A repeat: its first wake-up may have been lost with whoever was to give it.
        Err(AppendError::Duplicate { conversation, same: true, .. }) => wake(args, *conversation, user, None),
        // A store that fails may have stored it all the same.
        Err(AppendError::Store(_)) => args.hub.publish(conversation, Live::Unsure),
        Err(_) => {}
    }
}

/// Tells who works on what an event left beside the conversation. Lost where nobody lives.
fn tell_keepers(args: &LogArgs, (conversation, user): (ConversationId, &UserId), event: &Event) {
    let Keepers { notifier, letters, expiry, scheduler } = &args.keepers;
    let (mut has_word, mut has_letter, mut has_operation) = (event.body.is_final(), false, false);
    match &event.body {
        EventBody::Failed { letter, .. } => has_letter = letter.is_some(),
        EventBody::Received(inbound) => has_letter = inbound.retry.is_some(),
        EventBody::LetterDue { .. } => has_letter = true,
        EventBody::LetterMoved { .. } => (has_word, has_letter) = (true, true),
        EventBody::SkillFinished { outcome, .. } => has_operation = outcome.operation.is_some(),
        _ => {}
    }
    if let Some(news) = for_scheduler(event) {
        scheduler.tell(news);
    }
    if has_word {
        let is_heard = event.body.is_final() && args.hub.is_heard_by(conversation, user);
        notifier.tell(NotifyMsg::New { heard: is_heard.then_some(event.task) });
    }
    if has_letter {
        letters.tell(LettersMsg::New);
    }
    if has_operation {
        expiry.tell(ExpiryMsg::New);
    }
}

/// What the scheduler has to know of an event that is stored. It hears it here and not from whoever stored it: they may be
/// dead by now, and who waits for the end of a task would wait for ever.
fn for_scheduler(event: &Event) -> Option<SchedulerMsg> {
    let task = event.task;
    match &event.body {
        EventBody::Suspended { .. } => Some(SchedulerMsg::Hold { task, held: true }),
        EventBody::Continued { .. } => Some(SchedulerMsg::Hold { task, held: false }),
        EventBody::Deferred { until, after_failure, .. } => {
            Some(SchedulerMsg::Defer { task, until: *until, after_failure: *after_failure })
        }
        EventBody::Reprioritised { priority, .. } => Some(SchedulerMsg::Reprioritise { task, priority: *priority }),
        body if body.is_final() => Some(SchedulerMsg::Ended { task }),
        _ => None,
    }
}

const fn wakes(body: &EventBody) -> bool {
    matches!(body, EventBody::Received(_))
}

fn wake(args: &LogArgs, conversation: ConversationId, user: UserId, event: Option<Arc<Event>>) {
    // If nobody lives there, its next life scans the log.
    args.conversations.tell(ConversationsMsg::Wake { conversation, user, event });
}

/// Appends through the writer and waits for the commit, within a time.
///
/// # Errors
/// As [`LogError`]; after `Lost` the append may or may not be stored.
pub async fn append(log: &Handle<LogMsg>, append: Append) -> Result<Appended, LogError> {
    let (reply, answer) = oneshot::channel();
    log.cast(LogMsg::Append { append, reply })?;
    match tokio::time::timeout(Duration::from_millis(APPEND_MS_MAX), answer).await {
        Ok(Ok(stored)) => Ok(stored?),
        Ok(Err(_)) => Err(LogError::Lost(SendError::Crashed)),
        Err(_) => Err(LogError::Lost(SendError::Timeout)),
    }
}
