//! What is open, as the log says: asked at the start, and when a wake-up may have been lost.

use std::{collections::BTreeSet, time::Duration};

use annie_core::{
    event::ResumeCause,
    ids::ConversationId,
    ports::{OpenConversation, StoreError, StoreErrorKind},
};

use super::{Conversations, ConversationsMsg, ConversationsState, Work, room::take_seat, steady, wake};
use crate::{observe::Context, tasks::caught};

/// How long the log may take to say what is open, in milliseconds.
const SCAN_MS_MAX: u64 = 30_000;

/// What a scan takes, of what is open here or at no living process.
#[derive(Default)]
pub(super) struct Wanted {
    /// Everything: a wake-up of this process may have been lost, or another one is dead.
    pub all: bool,
    /// Everything but what nobody owns yet: a process that took a message in a moment ago is about to claim it.
    pub claimed: bool,
    /// What this process owns: another one may have stored a message for it.
    pub ours: bool,
    /// What may be stored of which nobody was told.
    pub doubted: BTreeSet<ConversationId>,
}

impl Wanted {
    fn is_nothing(&self) -> bool {
        !self.all && !self.claimed && !self.ours && self.doubted.is_empty()
    }

    fn add(&mut self, mut other: Self) {
        self.all |= other.all;
        self.claimed |= other.claimed;
        self.ours |= other.ours;
        self.doubted.append(&mut other.doubted);
    }
}

/// Asks the log what is open here, and at no living process. Who is wanted while it is being asked is asked for after that: many hints shall not keep the
/// log from ever answering.
pub(super) fn scan(ctx: &Context<Conversations>, state: &mut ConversationsState) {
    const WHAT: &str = "open_for";
    if state.tasks.contains(&Work::Scan) {
        return;
    }
    state.scanning = std::mem::take(&mut state.wanted);
    let (store, me, by) = (state.wiring.store.clone(), ctx.me(), state.wiring.lease.incarnation());
    // A hint is of what is stored; whoever gave up a commit asks what it left, and so not before its fate is decided.
    let settled = state.scanning.all || state.scanning.claimed || !state.scanning.doubted.is_empty();
    state.tasks.spawn(Work::Scan, async move {
        let wait = Duration::from_millis(SCAN_MS_MAX);
        let found = match tokio::time::timeout(wait, caught(store.open_for(by, settled))).await {
            Ok(found) => found.unwrap_or_else(|panic| Err(broken(WHAT, panic))),
            Err(_) => Err(broken(WHAT, format!("no answer within {SCAN_MS_MAX} ms"))),
        };
        me.tell(ConversationsMsg::Scanned(found));
    });
}

pub(super) fn broken(what: &'static str, why: String) -> StoreError {
    StoreError { kind: StoreErrorKind::Unavailable, what, detail: format!("it broke down: {why}") }
}

pub(super) async fn scanned(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    found: Result<Vec<OpenConversation>, StoreError>,
) {
    state.tasks.remove(&Work::Scan);
    let wanted = std::mem::take(&mut state.scanning);
    let open = match found {
        Ok(open) => open,
        Err(e) => {
            tracing::error!(error = %e, "the log could not be scanned for open conversations, trying again");
            state.wanted.add(wanted);
            let me = ctx.me();
            state.tasks.spawn(Work::ScanLater, async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                me.tell(ConversationsMsg::Doubt(Vec::new()));
            });
            return;
        }
    };
    let is_first = !std::mem::replace(&mut state.booted, true);
    let me = state.wiring.lease.incarnation();
    let unclaimed = open.iter().filter(|found| found.owner.is_none()).map(|found| found.id).collect();
    let still_unclaimed = if wanted.all || wanted.claimed {
        state.all_at = Some(steady(ctx));
        std::mem::replace(&mut state.unclaimed, unclaimed)
    } else {
        BTreeSet::new()
    };
    for found in open {
        let is_wanted = match found.owner {
            Some(owner) if owner == me => wanted.all || wanted.claimed || wanted.ours,
            Some(_) => wanted.all || wanted.claimed,
            None => wanted.all || still_unclaimed.contains(&found.id),
        };
        if is_wanted || wanted.doubted.contains(&found.id) {
            let is_orphan = found.owner.is_some_and(|owner| owner != me);
            let is_told = !wanted.all && !wanted.doubted.contains(&found.id);
            take(ctx, state, found, (is_first || is_orphan).then_some(ResumeCause::Restart), is_told).await;
        }
    }
    if !state.wanted.is_nothing() {
        scan(ctx, state);
    }
}

/// Takes an open conversation up where nothing is at work in it. `is_told`: wake-ups of this process are not in doubt, and
/// only a message of another one is news.
async fn take(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    found: OpenConversation,
    cause: Option<ResumeCause>,
    is_told: bool,
) {
    let OpenConversation { id, user, last, waiting, .. } = found;
    if state.room.sleeps(id, last) {
        return;
    }
    if let Some(seat) = state.seats.get_mut(&id) {
        let newest = waiting.unwrap_or_default();
        if is_told && seat.told_to >= newest {
            return;
        }
        seat.told_to = seat.told_to.max(newest);
    }
    if take_seat(ctx, state, id, &user, cause) {
        wake(ctx, state, id, user, None).await;
    }
}
