//! What is open, as the log says: asked at the start, and when a wake-up may have been lost.

use std::{collections::BTreeSet, time::Duration};

use annie_core::{
    event::ResumeCause,
    ids::{ConversationId, UserId},
    ports::{StoreError, StoreErrorKind},
};

use super::{
    Conversations, ConversationsMsg, ConversationsState, Work,
    room::take_seat,
    wake,
    watch::{Due, watch},
};
use crate::{observe::Context, tasks::caught};

/// How long the log may take to say what is open, in milliseconds.
const SCAN_MS_MAX: u64 = 30_000;

/// Whom a scan wakes, of what is open.
#[derive(Default)]
pub(super) struct Wanted {
    /// Everything: a wake-up of this process may have been lost.
    pub all: bool,
    /// What other processes may have left lying.
    pub others: bool,
    /// What may be stored of which nobody was told.
    pub doubted: BTreeSet<ConversationId>,
}

impl Wanted {
    fn is_nobody(&self) -> bool {
        !self.all && !self.others && self.doubted.is_empty()
    }
}

/// Asks the log what is open. Who is wanted while it is being asked is asked for after that: many hints shall not keep the
/// log from ever answering.
pub(super) fn scan(ctx: &Context<Conversations>, state: &mut ConversationsState) {
    const WHAT: &str = "open_conversations";
    if state.tasks.contains(&Work::Scan) {
        return;
    }
    state.scanning = std::mem::take(&mut state.wanted);
    let (store, me) = (state.wiring.store.clone(), ctx.me());
    state.tasks.spawn(Work::Scan, async move {
        let wait = Duration::from_millis(SCAN_MS_MAX);
        let found = match tokio::time::timeout(wait, caught(store.open_conversations())).await {
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
    found: Result<Vec<(ConversationId, UserId)>, StoreError>,
) {
    state.tasks.remove(&Work::Scan);
    let first = !std::mem::replace(&mut state.booted, true);
    let open = match found {
        Ok(open) => open,
        Err(e) => {
            tracing::error!(error = %e, "the log could not be scanned for open conversations, trying again");
            state.booted = !first;
            state.wanted.all |= state.scanning.all;
            state.wanted.others |= state.scanning.others;
            state.wanted.doubted.append(&mut state.scanning.doubted);
            let me = ctx.me();
            state.tasks.spawn(Work::ScanLater, async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                me.tell(ConversationsMsg::Doubt(Vec::new()));
            });
            return;
        }
    };
    let wanted = std::mem::take(&mut state.scanning);
    let here = if wanted.others { state.room.all() } else { BTreeSet::new() };
    for (conversation, user) in open {
        let is_doubted = wanted.doubted.contains(&conversation);
        let is_known = state.seats.contains_key(&conversation) || state.quarantine.contains_key(&conversation);
        if !wanted.all && !is_doubted {
            if wanted.others && !is_known && !here.contains(&conversation) {
                watch(ctx, state, conversation, user, Due::IfItStays);
            }
            continue;
        }
        if !first && !is_doubted && !is_known {
            // Another process may be at it.
            watch(ctx, state, conversation, user, Due::AtOnce);
            continue;
        }
        if take_seat(ctx, state, conversation, &user, first.then_some(ResumeCause::Restart)) {
            wake(ctx, state, conversation, user, None).await;
        }
    }
    if !state.wanted.is_nobody() {
        scan(ctx, state);
    }
}
