//! The only writer of the log.
//!
//! Owns: the queue of appends. Appends that arrive while a commit is under way are committed together in the next one (group
//! commit), so that one fsync serves many conversations. After each commit it wakes the Engines of new messages, notifies
//! the listeners, and only then answers the callers, in the order of the log.
//! Supervised by: infra. Survives its death: everything that was committed. Waiting appends are answered with `Lost`, and
//! their callers treat their fate as unknown.

#![deny(clippy::wildcard_enum_match_arm)]

mod late;
mod messages;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use annie_core::{
    event::{Event, EventBody, FinalEvent},
    ids::{ConversationId, Seq, UserId},
    ports::{Append, AppendError, Appended, Env, Store},
};
pub use messages::{LogError, LogMsg, append};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::{
    conversations::ConversationsMsg,
    hub::{Hub, Live},
    observe::{Context, Handle, Node, NodeError, task_point},
    opening::Opening,
    ownership::OwnershipMsg,
    subscriptions::{Stored, Subscriptions},
    tasks::{Tasks, caught},
};

/// Appends in one transaction, at most.
const BATCH_MAX: usize = 256;
/// Time limit of a commit, in milliseconds; longer than the stores' own lock timeouts.
const COMMIT_MS_MAX: u64 = 15_000;

/// Appends that may wait for a commit; a further one is answered with `Lost`.
const WAITING_MAX: usize = 100_000;

/// The arguments of the log writer.
#[derive(Clone)]
pub struct LogArgs {
    /// The store to write to.
    pub store: Arc<dyn Store>,
    /// The listeners to notify.
    pub hub: Arc<Hub>,
    /// The parent of the Engines, which is sent the wake-ups.
    pub conversations: Handle<ConversationsMsg>,
    /// Is notified of messages that may be stored without a wake-up.
    pub ownership: Handle<OwnershipMsg>,
    /// The actors that process what the log produces outside the conversations.
    pub(crate) subscriptions: Subscriptions,
    /// Whether an incarnation before this one has started.
    pub has_run_before: Arc<AtomicBool>,
}

type Waiting = (Append, oneshot::Sender<Result<Appended, AppendError>>);

/// The state of the log writer.
pub struct LogState {
    args: LogArgs,
    waiting: Vec<Waiting>,
    commit: Tasks<()>,
    late: late::Late,
    commits: u64,
    appends: u64,
}

/// The log writer's actor.
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
        // The previous incarnation may have committed a message and died before it woke the Engine. If the ownership actor is
        // dead, its next incarnation scans the log. The first incarnation of the log writer has no predecessor.
        if state.args.has_run_before.swap(true, Relaxed) {
            state.args.ownership.tell(OwnershipMsg::Rescan);
            state.late.expect_anything(ctx.me());
        }
        // The previous incarnation may also have stored a final text, a dead letter or an operation and died before it sent
        // the hint.
        state.args.subscriptions.reread();
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
            LogMsg::CheckLate => state.late.check(&state.args, ctx.me()),
            LogMsg::NodesEnded => state.args.subscriptions.reread(),
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
            // Whether the batch is stored is unknown: the callers lose their answers and read the log.
            tracing::error!(wait_ms = COMMIT_MS_MAX, "a commit panicked or timed out, its result is unknown");
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
        // A fault here cannot be reported to any caller: what was stored is stored, and was announced.
        let _ = task_point(&env, "commit", "told").await;
        for (reply, result) in replies.into_iter().zip(results) {
            // The caller may have died.
            let _ = reply.send(result);
        }
        // If the message is lost, this incarnation has ended, and the next one starts afresh.
        me.tell(LogMsg::Flushed { in_doubt });
    });
}

/// Commits with a time limit. Returns `None` if it is unknown whether the batch is stored.
async fn commit(args: &LogArgs, env: &Env, appends: Vec<Append>) -> Option<Vec<Result<Appended, AppendError>>> {
    task_point(env, "commit", "before").await.ok()?;
    let wait = Duration::from_millis(COMMIT_MS_MAX);
    let results = tokio::time::timeout(wait, caught(args.store.commit(appends))).await.ok()?.ok()?;
    task_point(env, "commit", "after").await.ok()?;
    Some(results)
}

/// Starts the checks for appends that may be stored although they failed: for messages, whose senders may never ask again,
/// and for rows that events produce outside their conversations. Returns the conversations of the messages.
fn doubt<'a>(args: &LogArgs, appends: impl Iterator<Item = &'a Append>) -> Vec<ConversationId> {
    let appends: Vec<&Append> = appends.collect();
    if appends.is_empty() {
        return Vec::new();
    }
    let brings_a_message = |append: &&&Append| append.events.iter().any(|event| wakes(&event.body));
    let messages = appends.iter().filter(brings_a_message);
    let conversations: Vec<ConversationId> = messages.map(|append| append.conversation).collect();
    if !conversations.is_empty() {
        // If the ownership actor is dead, its next incarnation scans the log.
        args.ownership.tell(OwnershipMsg::Doubt(conversations.clone()));
    }
    args.subscriptions.reread();
    conversations
}

/// Sends wake-ups and notifications before any caller is answered, so that a request caused by an answer always arrives
/// after the wake-up.
fn announce(args: &LogArgs, append: Append, result: &Result<Appended, AppendError>) {
    let (conversation, user) = (append.conversation, append.user);
    match result {
        Ok(appended) => {
            let seqs = (appended.first.0..).map(Seq);
            let placed = append.events.into_iter().zip(seqs).map(|(new, seq)| Event::placed(conversation, seq, new));
            let events: Vec<Arc<Event>> = placed.map(Arc::new).collect();
            let mut opening = appended.opened_by(append.fence).map(|by| Opening::new(by, events.clone()));
            for event in events {
                if wakes(&event.body) {
                    wake(args, conversation, user.clone(), Some(event.clone()), opening.take());
                }
                if let Some(end) = event.body.as_final() {
                    count_end(args, &event, end);
                }
                args.hub.publish(conversation, Live::Event(event.clone()));
                args.subscriptions.stored(&Stored { conversation, user: &user, event: &event });
            }
        }
        // A repeated message: its first wake-up may have been lost with the log writer that was to send it.
        Err(AppendError::Duplicate { conversation, same: true, .. }) => wake(args, *conversation, user, None, None),
        // A store that returned an error may have stored the append nevertheless.
        Err(AppendError::Store(_)) => args.hub.publish(conversation, Live::Unsure),
        Err(_) => {}
    }
}

/// Counts a task that has ended, by its outcome.
fn count_end(args: &LogArgs, event: &Event, end: FinalEvent<'_>) {
    args.hub.pulse().task_ended(matches!(end, FinalEvent::Failed { .. }), event.at);
    if let Some(accepted) = event.task.made_at() {
        #[expect(clippy::cast_precision_loss, reason = "milliseconds of a task")]
        let seconds = event.at.since_ms(accepted) as f64 / 1e3;
        metrics::histogram!("annie_turn_seconds", "outcome" => end.word()).record(seconds);
    }
}

const fn wakes(body: &EventBody) -> bool {
    matches!(body, EventBody::Received(_))
}

fn wake(
    args: &LogArgs,
    conversation: ConversationId,
    user: UserId,
    event: Option<Arc<Event>>,
    opening: Option<Opening>,
) {
    // If the parent of the Engines is dead, its next incarnation scans the log.
    args.conversations.tell(ConversationsMsg::Wake { conversation, user, event, opening });
}
