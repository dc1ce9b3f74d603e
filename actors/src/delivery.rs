//! The worker of a channel: delivers final texts to the addresses of the channel, those of each address in order.
//!
//! Owns: nothing beside its counters. Supervised by: the supervisor of extensions. Survives its death: the texts and the
//! attempts, which the store keeps. An attempt is stored before the channel is called. If its end is not stored, the text may
//! have been sent: it is sent again only if the recipient recognises its id, otherwise its user is notified of the doubt. So a
//! stop waits for the attempts under way.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use annie_core::{
    ids::NodeId,
    ports::{Channel, Delivered, DeliveryEnd, DeliveryError, DeliveryRow, Diverted, OutboxRow},
    time::Micros,
};
use futures_util::future::join_all;
use serde_json::{Map, Value};

use crate::{
    due_timer::{earlier, later},
    notify::Notifier,
    observe::{Branch, Path, task_point},
    tasks::caught,
    wiring::Wiring,
    worker::{Chore, Pass, WorkerMsg},
};

/// Addresses that one pass reads. A pass whose attempts all time out stays below the time limit of a pass.
const ADDRESSES_MAX: u32 = 32;
/// Deliveries of one channel at a time.
const AT_ONCE_MAX: usize = 8;
/// Time limit of one attempt, in milliseconds.
const DELIVER_MS_MAX: u64 = 30_000;
/// Wait after a failed attempt, in milliseconds: the first wait, which each further failure doubles, and the maximum.
const RETRY_MS: (u64, u64) = (1_000, 300_000);
/// Attempts to deliver one text; with the longest wait between them they take about a day.
const ATTEMPTS_MAX: u32 = 300;
/// After this time the attempt of another node counts as broken off, in milliseconds: twice the time limit of a pass. The
/// clocks of the nodes may differ by the rest.
const OTHER_NODE_MS_MAX: u64 = 600_000;
/// Interval at which this node checks again an address to which another node delivers, in milliseconds.
const OTHER_NODE_CHECK_MS: u64 = 5_000;
/// Wait before the end of an attempt that could not be stored is stored again, in milliseconds: the first wait, which each
/// further failure doubles, and the last one; 12.7 s in all. A restart of PostgreSQL usually takes less.
const STORE_AGAIN_MS: (u64, u64) = (100, 6_400);

/// The name of an attempt in fault points.
const TASK: &str = "delivery";

/// The chore of a channel.
pub(crate) struct Delivery {
    sender: Sender,
    wiring: Arc<Wiring>,
    counts: Counts,
}

/// What a pass delivers with.
#[derive(Clone)]
pub(crate) struct Sender {
    channel: Arc<dyn Channel>,
    /// The worker stops.
    is_stopping: Arc<AtomicBool>,
}

/// What a pass did.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Counts {
    delivered: u64,
    retried: u64,
    diverted: u64,
}

impl Chore for Delivery {
    const KIND: &'static str = "channel";
    const SUBJECT: &'static str = "the texts of a channel";
    // Most receivers answer sooner. All extensions together have 5,000 ms.
    const STOP_MS_MAX: u64 = 4_000;
    type Config = Arc<dyn Channel>;
    type Hint = ();
    type Batch = Sender;
    type Done = Counts;

    fn new(channel: Arc<dyn Channel>, wiring: Arc<Wiring>, _owner: Branch) -> Self {
        Self { sender: Sender { channel, is_stopping: Arc::default() }, wiring, counts: Counts::default() }
    }

    fn start(&mut self) {
        // The previous incarnation may have diverted a text and died before it notified the notifier.
        wake_notifier(&self.wiring);
    }

    fn take_hint(&mut self, (): ()) -> u64 {
        0
    }

    fn batch(&mut self) -> Sender {
        self.sender.clone()
    }

    async fn pass(wiring: &Wiring, sender: &Sender) -> Result<Pass<Counts>, String> {
        deliver_due(wiring, sender).await
    }

    fn passed(&mut self, done: Counts) {
        self.counts.delivered += done.delivered;
        self.counts.retried += done.retried;
        self.counts.diverted += done.diverted;
    }

    fn failed(&mut self, _sender: Sender) {
        // A text may have been diverted although the reply of the store was lost.
        wake_notifier(&self.wiring);
    }

    fn stop(&mut self) {
        self.sender.is_stopping.store(true, Relaxed);
    }

    fn view(&self) -> Map<String, Value> {
        let Counts { delivered, retried, diverted } = self.counts;
        [("delivered", delivered), ("retried", retried), ("diverted", diverted)]
            .map(|(name, count)| (name.to_owned(), count.into()))
            .into_iter()
            .collect()
    }
}

/// Delivers the oldest text of each address, if it is due. The next pass follows at once if a text was handled, because others
/// may wait behind it.
async fn deliver_due(wiring: &Wiring, sender: &Sender) -> Result<Pass<Counts>, String> {
    let channel = sender.channel.as_ref();
    let rows = wiring.store.next_deliveries(channel.name().to_owned(), ADDRESSES_MAX).await;
    let rows = rows.map_err(|error| error.to_string())?;
    let (now, node) = (wiring.env.now(), wiring.store.is_shared().then(|| wiring.lease.node()));
    let mut next = None;
    let mut due = Vec::new();
    for row in rows {
        match due_at(&row, node, now) {
            at if at > now => next = earlier(next, Some(at)),
            _ => due.push(row),
        }
    }
    if !due.is_empty() {
        next = Some(now);
    }
    let mut done = Counts::default();
    let mut failed = None;
    for rows in due.chunks(AT_ONCE_MAX) {
        if sender.is_stopping.load(Relaxed) {
            break;
        }
        // All of them end before an error is returned: dropping a delivery that is under way would leave it in doubt.
        let ended: Vec<_> = rows.iter().map(|row| caught(deliver_one(wiring, channel, row))).collect();
        for end in join_all(ended).await {
            match end {
                Ok(Ok(end)) => count(&mut done, channel, end),
                Ok(Err(error)) | Err(error) => failed = Some(error),
            }
        }
    }
    failed.map_or(Ok(Pass { next, done }), Err)
}

/// When the next step for a text is due. `node` is this node if it shares the store with others.
fn due_at(row: &DeliveryRow, node: Option<NodeId>, now: Micros) -> Micros {
    let Some((by, begun_at)) = row.begun else {
        // No wait is longer than the longest one: the clock was set back since.
        return row.retry_at.filter(|at| *at <= later(now, RETRY_MS.1)).unwrap_or(now);
    };
    // A pass ends after its own attempts, so such an attempt is left over from an earlier pass that did not end.
    let is_own = node.is_none_or(|node| by == node);
    let is_over = is_own || later(begun_at, OTHER_NODE_MS_MAX) <= now;
    if is_over { now } else { later(now, OTHER_NODE_CHECK_MS) }
}

/// Attempts to deliver a text, or ends an attempt that was broken off. Returns the stored end; `None` if another node was
/// first.
async fn deliver_one(wiring: &Wiring, channel: &dyn Channel, row: &DeliveryRow) -> Result<Option<DeliveryEnd>, String> {
    let id = row.text.id;
    if row.begun.is_some() && !channel.is_idempotent() {
        tracing::warn!(channel = channel.name(), %id, "a delivery was interrupted, its user is notified of the doubt");
        return end(wiring, row, row.attempts, DeliveryEnd::Diverted(Diverted::InDoubt)).await;
    }
    let begun = wiring.store.begin_delivery(id, row.attempts, wiring.lease.node(), wiring.env.now()).await;
    if !begun.map_err(|error| error.to_string())? {
        return Ok(None);
    }
    let attempts = row.attempts + 1;
    task_point(&wiring.env, TASK, "before").await.map_err(|error| error.to_string())?;
    let result = attempt(channel, &row.text).await;
    task_point(&wiring.env, TASK, "after").await.map_err(|error| error.to_string())?;
    if let Err(error) = &result {
        tracing::warn!(channel = channel.name(), %id, attempts, %error, "a delivery failed");
    }
    end_known(wiring, row, attempts, end_of(result, channel.is_idempotent(), attempts, wiring.env.now())).await
}

/// Calls the channel, at most for its time limit. A panic ends this attempt only.
async fn attempt(channel: &dyn Channel, text: &OutboxRow) -> Result<Delivered, DeliveryError> {
    let delivery = caught(async { channel.deliver(text).await });
    match tokio::time::timeout(Duration::from_millis(DELIVER_MS_MAX), delivery).await {
        Ok(Ok(result)) => result,
        Ok(Err(panic)) => Err(DeliveryError::Unknown(format!("the channel panicked: {panic}"))),
        Err(_) => Err(DeliveryError::Unknown(format!("it took longer than {DELIVER_MS_MAX} ms"))),
    }
}

/// The end of an attempt by its result.
fn end_of(result: Result<Delivered, DeliveryError>, is_idempotent: bool, attempts: u32, now: Micros) -> DeliveryEnd {
    let after_ms = match result {
        Ok(Delivered::Received) => return DeliveryEnd::Delivered(now),
        Ok(Delivered::NotReachable) | Err(DeliveryError::Refused(_)) => {
            return DeliveryEnd::Diverted(Diverted::Refused);
        }
        Err(DeliveryError::Unknown(_)) if !is_idempotent => return DeliveryEnd::Diverted(Diverted::InDoubt),
        Err(DeliveryError::Unknown(_)) => 0,
        Err(DeliveryError::Retry { after_ms, .. }) => after_ms,
    };
    if attempts >= ATTEMPTS_MAX {
        return DeliveryEnd::Diverted(Diverted::GivenUp);
    }
    let (first, most) = RETRY_MS;
    let wait_ms = first.saturating_mul(1 << attempts.saturating_sub(1).min(10)).max(after_ms).min(most);
    DeliveryEnd::Retry(later(now, wait_ms))
}

/// Stores the end of an attempt that this process made. A write that fails is repeated, because the text would be in doubt
/// without it, although its result is known. The store compares the number of attempts, so a repeated write changes nothing more.
async fn end_known(
    wiring: &Wiring,
    row: &DeliveryRow,
    attempts: u32,
    known: DeliveryEnd,
) -> Result<Option<DeliveryEnd>, String> {
    let (mut wait_ms, last_ms) = STORE_AGAIN_MS;
    loop {
        match end(wiring, row, attempts, known).await {
            Err(error) if wait_ms <= last_ms => {
                let id = row.text.id;
                tracing::warn!(%id, attempts, error, wait_ms, "the end of a delivery was not stored, trying again");
                tokio::time::sleep(Duration::from_millis(wait_ms)).await;
                wait_ms *= 2;
            }
            stored => return stored,
        }
    }
}

/// Stores the end of an attempt.
async fn end(
    wiring: &Wiring,
    row: &DeliveryRow,
    attempts: u32,
    end: DeliveryEnd,
) -> Result<Option<DeliveryEnd>, String> {
    let stored = wiring.store.end_delivery(row.text.id, attempts, end).await.map_err(|error| error.to_string())?;
    // Also if no row was changed: the store may have repeated a write whose reply was lost.
    if matches!(end, DeliveryEnd::Diverted(_)) {
        wake_notifier(wiring);
    }
    Ok(stored.then_some(end))
}

/// Makes the notifier read the store. If the message is lost, the next incarnation of the notifier begins with that.
fn wake_notifier(wiring: &Wiring) {
    let path = Path::root().child("infra").child(Notifier::KIND);
    wiring.log.sibling::<WorkerMsg<Notifier>>(path).tell(WorkerMsg::New(None));
}

fn count(done: &mut Counts, channel: &dyn Channel, end: Option<DeliveryEnd>) {
    let (counter, end) = match end {
        None => return,
        Some(DeliveryEnd::Delivered(_)) => (&mut done.delivered, "delivered"),
        Some(DeliveryEnd::Retry(_)) => (&mut done.retried, "retried"),
        Some(DeliveryEnd::Diverted(_)) => (&mut done.diverted, "diverted"),
    };
    *counter += 1;
    metrics::counter!("annie_deliveries_total", "channel" => channel.name().to_owned(), "end" => end).increment(1);
}

#[cfg(test)]
mod tests {
    use annie_core::{
        event::Priority,
        ids::{ConversationId, OutboxId, TaskId, UserId},
        ports::TaskState,
    };

    use super::*;

    const NOW: Micros = Micros(1_771_423_500_000_000);

    fn row(begun: Option<(NodeId, Micros)>, retry_at: Option<Micros>) -> DeliveryRow {
        let task: TaskId = format!("task_{:032}", 0).parse().unwrap();
        let user = UserId::new("ann").unwrap();
        let text = OutboxRow {
            id: OutboxId::for_task(task),
            task,
            conversation: ConversationId::for_key(&user, "k"),
            user,
            title: "Hi".to_owned(),
            priority: Priority::Normal,
            source: "http".to_owned(),
            state: TaskState::Completed,
            text: "Hello".to_owned(),
            at: NOW,
            reply_to: None,
            diverted: None,
        };
        DeliveryRow { text, attempts: 1, begun, retry_at }
    }

    #[test]
    fn delivery_that_is_always_refused_for_now_is_given_up_after_300_attempts_with_waits_of_at_most_300_s() {
        let end = |attempts: u32, after_ms: u64| {
            end_of(Err(DeliveryError::Retry { after_ms, why: String::new() }), false, attempts, NOW)
        };
        assert_eq!(end(1, 0), DeliveryEnd::Retry(NOW.later_ms(1_000)));
        assert_eq!(end(1, 7_000), DeliveryEnd::Retry(NOW.later_ms(7_000)));
        assert_eq!(end(1, 10_000_000), DeliveryEnd::Retry(NOW.later_ms(300_000)));
        assert_eq!(end(299, 0), DeliveryEnd::Retry(NOW.later_ms(300_000)));
        assert_eq!(end(300, 0), DeliveryEnd::Diverted(Diverted::GivenUp));
    }

    #[test]
    fn delivery_of_another_node_counts_as_broken_off_after_600_s_and_its_own_at_once() {
        let [own, other] = [1, 2].map(|n| format!("{}_{n:032}", NodeId::PREFIX).parse::<NodeId>().unwrap());
        let due = |by: NodeId, ago_ms: i64, node: Option<NodeId>| {
            due_at(&row(Some((by, NOW.plus_ms(-ago_ms))), None), node, NOW)
        };
        assert_eq!(due(other, 599_999, Some(own)), NOW.later_ms(OTHER_NODE_CHECK_MS));
        assert_eq!(due(other, 600_000, Some(own)), NOW);
        assert_eq!((due(own, 0, Some(own)), due(other, 0, None)), (NOW, NOW));
    }

    #[test]
    fn delivery_waits_for_its_retry_unless_the_clock_was_set_back() {
        let due = |wait_ms: u64| due_at(&row(None, Some(NOW.later_ms(wait_ms))), None, NOW);
        assert_eq!((due(300_000), due(300_001)), (NOW.later_ms(300_000), NOW));
        assert_eq!(due_at(&row(None, None), None, NOW), NOW);
    }
}
