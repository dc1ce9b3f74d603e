//! The notifier: notifies users of work that ended while they did not follow it.
//!
//! Owns: the delivery of the outbox, and when each user was last notified; the store keeps both. Supervised by: infra.
//! Survives its death: the outbox, which the next incarnation reads, and every notification. A notification is stored in one
//! transaction with the delivery of the outbox entries in it, so a crash in between neither loses nor doubles one.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};

use annie_core::{
    fork_report::FORK_REPORT_CHANNEL,
    ids::{OutboxId, TaskId, UserId},
    notice::notice,
    ports::{Channel, Delivered, OutboxRow, StoreError, StoreErrorKind},
    time::Micros,
};
use serde_json::{Map, Value};

use crate::{
    due_timer::{earlier, later},
    live_channel::LiveChannel,
    observe::{Branch, NodeError, task_point},
    tasks::{Tasks, caught},
    wiring::Wiring,
    worker::{Chore, Pass},
};

/// Outbox entries that are read at once.
const ENTRIES_MAX: u32 = 1_000;
/// Tasks whose final text a listener received and whose outbox entry is not marked yet, at most. Beyond this, an entry
/// counts as delivered only if the user is listening when it is processed.
const RECEIVED_MAX: usize = 10_000;
/// How long the texts of a channel that this node does not have wait for another node, in milliseconds: 28 hours, longer than
/// a channel tries to deliver.
const MISSING_CHANNEL_MS: i64 = 28 * 3_600_000;
/// Interval between two checks of such a channel, in milliseconds.
const MISSING_CHANNEL_CHECK_MS: u64 = 3_600_000;
/// Interval between two deletions of old entries, in milliseconds.
const SWEEP_MS: u64 = 24 * 3_600_000;

/// The chore of the notifier.
pub(crate) struct Notifier {
    wiring: Arc<Wiring>,
    /// Tasks whose final text their users received live and whose entries are not marked yet.
    received: HashSet<TaskId>,
    sweep: Tasks<()>,
    delivered: u64,
    notified: u64,
}

/// What a pass did.
#[derive(Debug, Default)]
pub(crate) struct Done {
    delivered: u64,
    notified: u64,
}

impl Chore for Notifier {
    const KIND: &'static str = "notifier";
    const SUBJECT: &'static str = "the outbox";
    type Config = ();
    /// The task whose final text its user received live.
    type Hint = Option<TaskId>;
    type Batch = HashSet<TaskId>;
    type Done = Done;

    fn new((): (), wiring: Arc<Wiring>, owner: Branch) -> Self {
        Self { wiring, received: HashSet::new(), sweep: Tasks::of(owner), delivered: 0, notified: 0 }
    }

    fn start(&mut self) {
        // The previous incarnation may have stored a notification and died before it announced it.
        self.wiring.hub.unsure_of_notices();
        self.sweep.spawn((), sweep(self.wiring.clone()));
    }

    fn take_hint(&mut self, received: Option<TaskId>) -> u64 {
        if self.received.len() < RECEIVED_MAX {
            self.received.extend(received);
        }
        self.wiring.limits.notify.gather_ms
    }

    fn batch(&mut self) -> HashSet<TaskId> {
        std::mem::take(&mut self.received)
    }

    async fn pass(wiring: &Wiring, received: &HashSet<TaskId>) -> Result<Pass<Done>, String> {
        deliver(wiring, received).await.map_err(|error| error.to_string())
    }

    fn passed(&mut self, done: Done) {
        self.delivered += done.delivered;
        self.notified += done.notified;
    }

    fn failed(&mut self, received: HashSet<TaskId>) {
        self.received.extend(received);
        // A notification may have been stored without having been announced.
        self.wiring.hub.unsure_of_notices();
    }

    fn view(&self) -> Map<String, Value> {
        let received = self.received.len() as u64;
        [("delivered", self.delivered), ("notified", self.notified), ("received", received)]
            .map(|(name, count)| (name.to_owned(), count.into()))
            .into_iter()
            .collect()
    }
}

/// Delivers the outbox: marks the entries whose text was received, and notifies the users of the other entries, as often as
/// each may be notified.
async fn deliver(wiring: &Wiring, received: &HashSet<TaskId>) -> Result<Pass<Done>, StoreError> {
    let mut done = Done::default();
    let front_ends = LiveChannel::new(wiring.hub.clone(), wiring.store.clone());
    // These entries are marked by id, because many entries may precede them in the outbox.
    let received: Vec<OutboxId> = received.iter().map(|task| OutboxId::for_task(*task)).collect();
    for entries in received.chunks(ENTRIES_MAX as usize) {
        done.delivered += entries.len() as u64;
        wiring.store.delivered(entries.to_vec(), wiring.env.now()).await?;
    }
    let next_missing = divert_missing_channels(wiring).await?;
    loop {
        let page = wiring.store.to_notify(ENTRIES_MAX).await?;
        let is_full = page.len() == ENTRIES_MAX as usize;
        let mut is_less = false;
        let mut delivered_ids = Vec::new();
        let mut by_user: BTreeMap<UserId, Vec<OutboxRow>> = BTreeMap::new();
        for entry in page {
            if entry.diverted.is_none() && is_delivered(&front_ends, &entry).await? {
                delivered_ids.push(entry.id);
            } else {
                by_user.entry(entry.user.clone()).or_default().push(entry);
            }
        }
        if !delivered_ids.is_empty() {
            done.delivered += delivered_ids.len() as u64;
            is_less = true;
            point(wiring, "before").await?;
            wiring.store.delivered(delivered_ids, wiring.env.now()).await?;
            point(wiring, "after").await?;
        }
        let mut next = None;
        for (user, entries) in by_user {
            match notify(wiring, user, entries).await? {
                Notified::Now => {
                    done.notified += 1;
                    is_less = true;
                }
                Notified::NotBefore(at) => next = earlier(next, Some(at)),
            }
        }
        if !(is_full && is_less) {
            return Ok(Pass { next: earlier(next, next_missing), done });
        }
    }
}

/// Diverts the texts of channels that no longer exist. Where nodes share the store, another node may have a channel of this
/// name, and gets time to deliver. Returns when to check again.
async fn divert_missing_channels(wiring: &Wiring) -> Result<Option<Micros>, StoreError> {
    let mut next = None;
    for channel in wiring.store.waiting_channels().await? {
        if channel == FORK_REPORT_CHANNEL || wiring.extensions.channel(&channel).is_some() {
            continue;
        }
        let now = wiring.env.now();
        let before = diverted_before(wiring.store.is_shared(), now);
        let diverted = wiring.store.divert_channel(channel.clone(), before).await?;
        if diverted > 0 {
            tracing::warn!(channel, diverted, "no channel has this name any more, its users are notified instead");
        }
        next = Some(later(now, MISSING_CHANNEL_CHECK_MS));
    }
    Ok(next)
}

/// The texts of a channel that this node does not have are diverted if they are older than this.
fn diverted_before(is_shared: bool, now: Micros) -> Micros {
    let wait_ms = if is_shared { MISSING_CHANNEL_MS } else { 0 };
    now.plus_ms(1).plus_ms(wait_ms.saturating_neg())
}

/// Whether the user has a text by this channel.
async fn is_delivered(channel: &dyn Channel, text: &OutboxRow) -> Result<bool, StoreError> {
    match channel.deliver(text).await {
        Ok(delivered) => Ok(delivered == Delivered::Received),
        Err(error) => Err(StoreError {
            kind: StoreErrorKind::Unavailable,
            what: "delivering to the front ends",
            detail: error.to_string(),
        }),
    }
}

/// A fault point before and after entries are marked as delivered.
async fn point(wiring: &Wiring, point: &str) -> Result<(), StoreError> {
    let failed = |why: NodeError| StoreError {
        kind: StoreErrorKind::Internal,
        what: "delivering words",
        detail: why.to_string(),
    };
    task_point(&wiring.env, "delivery", point).await.map_err(failed)
}

enum Notified {
    Now,
    NotBefore(Micros),
}

async fn notify(wiring: &Wiring, user: UserId, entries: Vec<OutboxRow>) -> Result<Notified, StoreError> {
    let now = wiring.env.now();
    let every_ms = wiring.limits.notify.every_ms;
    if let Some(last) = wiring.store.last_notified(user.clone()).await?
        && now.since_ms(last) < every_ms
    {
        // A clock that was set back must not delay notifications for longer.
        return Ok(Notified::NotBefore(later(last.min(now), every_ms)));
    }
    let text = notice(&entries);
    let ids: Vec<(OutboxId, TaskId)> = entries.iter().map(|entry| (entry.id, entry.task)).collect();
    point(wiring, "before").await?;
    let stored = wiring.store.notify(user.clone(), text, ids, now).await?;
    point(wiring, "after").await?;
    match stored {
        Some(_) => {
            metrics::counter!("annie_notifications_total").increment(1);
            wiring.hub.announce_notice(&user);
            Ok(Notified::Now)
        }
        // One of the entries was delivered meanwhile: read the rest again.
        None => Ok(Notified::NotBefore(now)),
    }
}

/// Deletes old entries, at once and then every day.
async fn sweep(wiring: Arc<Wiring>) {
    loop {
        let keep_ms = i64::try_from(wiring.limits.notify.keep_ms).unwrap_or(i64::MAX);
        let before = wiring.env.now().plus_ms(keep_ms.saturating_neg());
        match caught(wiring.store.sweep_outbox(before)).await {
            Ok(Ok(0)) => {}
            Ok(Ok(swept)) => tracing::info!(swept, "deleted old outbox entries and notifications"),
            Ok(Err(error)) => tracing::warn!(%error, "old outbox entries could not be deleted"),
            Err(panic) => tracing::warn!(panic, "old outbox entries could not be deleted"),
        }
        tokio::time::sleep(Duration::from_millis(SWEEP_MS)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notifier_diverts_the_texts_of_a_missing_channel_at_once_or_after_28_hours_on_a_shared_store() {
        let now = Micros(1_771_423_500_000_000);
        let is_diverted = |is_shared: bool, hours: i64, ms: i64| {
            now.plus_ms(-hours * 3_600_000 - ms) < diverted_before(is_shared, now)
        };
        assert!(is_diverted(false, 0, 0));
        assert!(!is_diverted(true, 0, 0) && !is_diverted(true, 27, 3_599_999));
        assert!(is_diverted(true, 28, 0));
    }
}
