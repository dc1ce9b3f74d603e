//! Scans the log for open conversations: at the start, and when a wake-up may have been lost.

use std::{collections::BTreeSet, time::Duration};

use annie_core::{
    event::ResumeCause,
    ids::ConversationId,
    ports::{OpenConversation, StoreError, StoreErrorKind},
};

use super::{Conversations, ConversationsMsg, ConversationsState, Work, residency::ensure_child, steady, wake};
use crate::{observe::Context, tasks::caught};

/// Time limit of one scan, in milliseconds.
const SCAN_MS_MAX: u64 = 30_000;

/// The conversations that a scan takes up, among the open ones that this node owns or that no live node owns.
#[derive(Default)]
pub(super) struct Wanted {
    /// Everything: a wake-up of this process may have been lost, or another node is dead.
    pub all: bool,
    /// Everything except conversations without an owner: the node that stored a message a moment ago is about to claim them.
    pub claimed: bool,
    /// Conversations that this node owns: another node may have stored a message for one of them.
    pub ours: bool,
    /// Conversations for which a message may be stored without a wake-up having been sent.
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

/// Reads the open conversations that this node owns or that no live node owns. Requests that come while a scan runs are
/// served by the next scan: restarting the scan at every hint would keep it from ever finishing.
pub(super) fn scan(ctx: &Context<Conversations>, state: &mut ConversationsState) {
    const WHAT: &str = "open_for";
    if state.tasks.contains(&Work::Scan) {
        return;
    }
    state.scanning = std::mem::take(&mut state.wanted);
    let (store, me, by) = (state.wiring.store.clone(), ctx.me(), state.wiring.lease.incarnation());
    // With `settled`, commits whose callers gave up waiting are decided before the scan reads. A scan for hints of other
    // nodes alone does not need that, because a hint is sent only for a message that is stored.
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
    StoreError { kind: StoreErrorKind::Unavailable, what, detail: format!("the call failed: {why}") }
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
            let only_news = !wanted.all && !wanted.doubted.contains(&found.id);
            take_up(ctx, state, found, (is_first || is_orphan).then_some(ResumeCause::Restart), only_news).await;
        }
    }
    if !state.wanted.is_nothing() {
        scan(ctx, state);
    }
}

/// Takes up an open conversation unless its Engine is at work on it already. `only_news`: no wake-up of this process is in
/// doubt, so only a message of which the Engine was not notified is a reason to wake it.
async fn take_up(
    ctx: &Context<Conversations>,
    state: &mut ConversationsState,
    found: OpenConversation,
    cause: Option<ResumeCause>,
    only_news: bool,
) {
    let OpenConversation { id, user, last, waiting, .. } = found;
    if state.residency.is_passive(id, last) {
        return;
    }
    if let Some(child) = state.children.get_mut(&id) {
        let newest = waiting.unwrap_or_default();
        if only_news && child.notified_seq >= newest {
            return;
        }
        child.notified_seq = child.notified_seq.max(newest);
    }
    if ensure_child(ctx, state, id, &user, cause) {
        wake(ctx, state, id, user, None).await;
    }
}
