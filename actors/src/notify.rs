//! The notifier: tells users of work that ended while nobody waited for it.
//!
//! Owns: the outbox's way out, and when each user was last notified; the store keeps both. Supervised by: infra.
//! Survives its death: the outbox, which its next life reads, and every notification, which is stored in one transaction
//! with the delivery of the words in it: so a death in between neither loses nor doubles one.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};

use annie_core::{
    event::Scope,
    ids::{OutboxId, TaskId, UserId},
    notice::{is_told_there, notice},
    ports::{OutboxRow, StoreError, StoreErrorKind},
    time::Micros,
};
use serde_json::{Value, json};

use crate::{
    lookout::{Lookout, earlier, later, outcome},
    observe::{Context, Named, Node, NodeError, task_point},
    tasks::{Tasks, caught},
    wiring::Wiring,
};

/// Words that one look takes in.
const WORDS_MAX: u32 = 1_000;
/// Words that somebody heard and that are not marked yet; beyond this only who listens now counts.
const HEARD_MAX: usize = 10_000;
/// From one sweep of what is old to the next, in milliseconds.
const SWEEP_MS: u64 = 24 * 3_600_000;

/// What the notifier hears.
pub(crate) enum NotifyMsg {
    /// There are new words in the outbox. May get lost: the next one, or the next life, finds them.
    New {
        /// The task whose final word somebody heard as it was said.
        heard: Option<TaskId>,
    },
    /// It may be time to look.
    Clock,
    /// A look is over: when something is due next, and what was heard and is not marked yet.
    Looked(Result<Looked, String>, HashSet<TaskId>),
}

impl Named for NotifyMsg {
    fn name(&self) -> &'static str {
        match self {
            Self::New { .. } => "New",
            Self::Clock => "Clock",
            Self::Looked(..) => "Looked",
        }
    }

    fn again(&self) -> Option<Self> {
        let Self::New { heard } = self else { return None };
        Some(Self::New { heard: *heard })
    }
}

/// What a look came to.
#[derive(Debug, Default)]
pub(crate) struct Looked {
    next: Option<Micros>,
    delivered: u64,
    notified: u64,
}

/// The notifier's state.
pub(crate) struct NotifyState {
    wiring: Arc<Wiring>,
    lookout: Lookout,
    heard: HashSet<TaskId>,
    sweep: Tasks<()>,
    delivered: u64,
    notified: u64,
}

/// The notifier.
pub(crate) struct Notifier;

impl Node for Notifier {
    type Msg = NotifyMsg;
    type Args = Arc<Wiring>;
    type State = NotifyState;
    const KIND: &'static str = "notifier";

    fn init(ctx: &Context<Self>, wiring: Arc<Wiring>) -> Result<NotifyState, NodeError> {
        let (lookout, sweep) = (Lookout::of(ctx.branch()), Tasks::of(ctx.branch()));
        Ok(NotifyState { wiring, lookout, heard: HashSet::new(), sweep, delivered: 0, notified: 0 })
    }

    async fn ready(ctx: &Context<Self>, state: &mut NotifyState) -> Result<(), NodeError> {
        // A former life may have stored a notification and died before it told.
        state.wiring.hub.unsure_of_notices();
        state.sweep.spawn((), sweep(state.wiring.clone()));
        want(ctx, state, 0);
        Ok(())
    }

    async fn handle(ctx: &Context<Self>, state: &mut NotifyState, msg: NotifyMsg) -> Result<(), NodeError> {
        match msg {
            NotifyMsg::New { heard } => {
                if state.heard.len() < HEARD_MAX {
                    state.heard.extend(heard);
                }
                let gather_ms = state.wiring.limits.notify.gather_ms;
                want(ctx, state, gather_ms);
            }
            NotifyMsg::Clock => {
                if state.lookout.struck(ctx.now()) {
                    look(ctx, state);
                }
                wind(ctx, state);
            }
            NotifyMsg::Looked(Ok(Looked { next, delivered, notified }), _marked) => {
                state.delivered += delivered;
                state.notified += notified;
                state.lookout.looked(ctx.now(), next);
                wind(ctx, state);
            }
            NotifyMsg::Looked(Err(error), heard) => {
                tracing::warn!(error, "the outbox could not be emptied");
                state.heard.extend(heard);
                // Something may have been stored that nobody was told of.
                state.wiring.hub.unsure_of_notices();
                state.lookout.failed(ctx.now());
                wind(ctx, state);
            }
        }
        Ok(())
    }

    fn view(state: &NotifyState) -> Value {
        json!({
            "delivered": state.delivered, "notified": state.notified, "heard": state.heard.len(),
            "lookout": state.lookout.view()
        })
    }
}

fn want(ctx: &Context<Notifier>, state: &mut NotifyState, in_ms: u64) {
    state.lookout.want(later(ctx.now(), in_ms));
    wind(ctx, state);
}

fn wind(ctx: &Context<Notifier>, state: &mut NotifyState) {
    let me = ctx.me();
    state.lookout.wind(ctx.now(), move || me.tell(NotifyMsg::Clock));
}

fn look(ctx: &Context<Notifier>, state: &mut NotifyState) {
    let (wiring, heard, me) = (state.wiring.clone(), std::mem::take(&mut state.heard), ctx.me());
    state.lookout.look(async move {
        let looked = outcome(deliver(&wiring, &heard)).await;
        me.tell(NotifyMsg::Looked(looked, heard));
    });
}

/// Takes the words out of the outbox: marks those that were heard, and notifies of the others whom it may notify now.
async fn deliver(wiring: &Wiring, heard: &HashSet<TaskId>) -> Result<Looked, StoreError> {
    let mut looked = Looked::default();
    // Wherever in the outbox they stand: many words may wait before them.
    let heard: Vec<OutboxId> = heard.iter().map(|task| OutboxId::for_task(*task)).collect();
    for words in heard.chunks(WORDS_MAX as usize) {
        looked.delivered += words.len() as u64;
        wiring.store.delivered(words.to_vec(), wiring.env.now()).await?;
    }
    loop {
        let page = wiring.store.outbox(WORDS_MAX).await?;
        let is_full = page.len() == WORDS_MAX as usize;
        let mut is_less = false;
        let mut told = Vec::new();
        let mut by_user: BTreeMap<UserId, Vec<OutboxRow>> = BTreeMap::new();
        for word in page {
            if is_told(wiring, &word).await? {
                told.push(word.id);
            } else {
                by_user.entry(word.user.clone()).or_default().push(word);
            }
        }
        if !told.is_empty() {
            looked.delivered += told.len() as u64;
            is_less = true;
            point(wiring, "before").await?;
            wiring.store.delivered(told, wiring.env.now()).await?;
            point(wiring, "after").await?;
        }
        looked.next = None;
        for (user, words) in by_user {
            match notify(wiring, user, words).await? {
                Told::Now => {
                    looked.notified += 1;
                    is_less = true;
                }
                Told::NotBefore(at) => looked.next = earlier(looked.next, Some(at)),
            }
        }
        if !(is_full && is_less) {
            return Ok(looked);
        }
    }
}

async fn is_told(wiring: &Wiring, word: &OutboxRow) -> Result<bool, StoreError> {
    let is_heard = wiring.hub.is_heard_by(word.conversation, &word.user);
    if !is_told_there(word, is_heard) {
        return Ok(false);
    }
    if is_heard || word.id == OutboxId::for_letter(word.task) {
        return Ok(true);
    }
    // Who asked for something to be done later does not wait for it, however urgent it is then.
    let row = wiring.store.task(Scope::Operator, word.task).await?;
    Ok(row.is_none_or(|row| row.state.is_ended() && row.not_before.is_none() && row.after.is_empty()))
}

/// A fault point before and after words are marked as delivered.
async fn point(wiring: &Wiring, point: &str) -> Result<(), StoreError> {
    let failed = |why: NodeError| StoreError {
        kind: StoreErrorKind::Internal,
        what: "delivering words",
        detail: why.to_string(),
    };
    task_point(&wiring.env, "delivery", point).await.map_err(failed)
}

enum Told {
    Now,
    NotBefore(Micros),
}

async fn notify(wiring: &Wiring, user: UserId, words: Vec<OutboxRow>) -> Result<Told, StoreError> {
    let now = wiring.env.now();
    let every_ms = wiring.limits.notify.every_ms;
    if let Some(last) = wiring.store.last_notified(user.clone()).await?
        && now.since_ms(last) < every_ms
    {
        // A clock that was set back must not silence anybody for longer.
        return Ok(Told::NotBefore(later(last.min(now), every_ms)));
    }
    let text = notice(&words);
    let ids: Vec<(OutboxId, TaskId)> = words.iter().map(|word| (word.id, word.task)).collect();
    point(wiring, "before").await?;
    let noted = wiring.store.notify(user.clone(), text, ids, now).await?;
    point(wiring, "after").await?;
    match noted {
        Some(_) => {
            metrics::counter!("annie_notifications_total").increment(1);
            wiring.hub.announce_notice(&user);
            Ok(Told::Now)
        }
        // One of the words was delivered meanwhile: look again at what is left.
        None => Ok(Told::NotBefore(now)),
    }
}

/// Throws away what is old, at once and then every day.
async fn sweep(wiring: Arc<Wiring>) {
    loop {
        let keep_ms = i64::try_from(wiring.limits.notify.keep_ms).unwrap_or(i64::MAX);
        let before = wiring.env.now().plus_ms(keep_ms.saturating_neg());
        match caught(wiring.store.sweep_outbox(before)).await {
            Ok(Ok(0)) => {}
            Ok(Ok(swept)) => tracing::info!(swept, "old words and notifications are swept away"),
            Ok(Err(error)) => tracing::warn!(%error, "old words could not be swept away"),
            Err(panic) => tracing::warn!(panic, "old words could not be swept away"),
        }
        tokio::time::sleep(Duration::from_millis(SWEEP_MS)).await;
    }
}
