//! Faults are injected into the worker of a channel at every message and at every step of a delivery. A text is never sent twice,
//! and never lost: it is delivered, or its user is notified.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use annie_actors::Submission;
use annie_core::{
    ids::UserId,
    ports::{Address, Channel, Delivered, DeliveryError, FaultAction, Fut, OutboxRow, StoreErrorKind},
};
use annie_store::{MemoryStore, StoreFault, StorePoint};
use annie_testkit::{
    faults::FaultPlan,
    scripted_model::{ScriptedModel, says},
};

use crate::world::{WorldParts, ann, eventually, last_text};

/// Remembers the texts that it has sent.
#[derive(Default)]
struct Pager(Mutex<Vec<String>>);

impl Channel for Pager {
    fn name(&self) -> &str {
        "pager"
    }

    fn check(&self, _user: &UserId, _to: &str) -> Result<(), String> {
        Ok(())
    }

    fn deliver<'a>(&'a self, text: &'a OutboxRow) -> Fut<'a, Result<Delivered, DeliveryError>> {
        Box::pin(async move {
            self.0.lock().unwrap().push(text.text.clone());
            Ok(Delivered::Received)
        })
    }
}

const TEXTS: [&str; 3] = ["one", "two", "three"];

/// Injects one fault while three texts are delivered. Returns whether it took effect.
async fn inject(kind: &str, point: &str, action: FaultAction) -> bool {
    let plan = Arc::new(FaultPlan::once_at(kind, point, 0, action));
    let pager = Arc::new(Pager::default());
    let model = ScriptedModel::new(|request, _| Ok(says(last_text(request))));
    let mut parts = WorldParts::with_model(Arc::new(model)).faults(plan.clone());
    parts.limits.stuck_ms_max = 150;
    parts.limits.notify.gather_ms = 1;
    parts.limits.notify.every_ms = 0;
    parts.extensions.channels.push(pager.clone());
    let world = parts.start().await;
    for text in TEXTS {
        let mut message = Submission::new(ann(), "test", text);
        message.reply_to = Some(Address { channel: "pager".to_owned(), to: "ann".to_owned() });
        let sent = world.kernel.submit(message).await.expect("accepted");
        world.answer(&sent).await;
    }
    let context = format!("{action:?} in {kind} at {point}");
    eventually("all texts are delivered, or their user is notified", async || {
        world.kernel.store().outbox(10).await.ok()?.is_empty().then_some(())
    })
    .await;
    let sent = pager.0.lock().unwrap().clone();
    let notifications = world.kernel.notifications(&ann(), 0, 100).await.expect("readable");
    let notified: usize = notifications.iter().map(|notification| notification.tasks.len()).sum();
    let in_order: Vec<&str> = TEXTS.into_iter().filter(|text| sent.iter().any(|sent| sent == text)).collect();
    assert_eq!(sent, in_order, "{context}: each text is sent at most once, in order");
    assert!(sent.len() + notified >= TEXTS.len(), "{context}: a text was lost: {sent:?} {notifications:?}");
    assert!(notified <= 1, "{context}: one fault interrupts at most one delivery: {notifications:?}");
    world.kernel.stop().await;
    !plan.injected().is_empty()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn channel_worker_that_dies_at_any_step_loses_and_repeats_nothing() {
    for action in [FaultAction::Panic, FaultAction::Kill, FaultAction::Hang] {
        for point in ["before:New", "after:New", "before:Clock", "after:Clock", "before:PassEnded", "after:PassEnded"] {
            assert!(inject("channel", point, action).await, "channel never passes {point}");
        }
    }
    for action in [FaultAction::Panic, FaultAction::Fail] {
        for point in ["before", "after"] {
            assert!(inject("delivery", point, action).await, "no delivery passes {point}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn delivery_whose_end_cannot_be_stored_at_once_is_not_in_doubt() {
    for fault in [StoreFault::Fail(StoreErrorKind::Unavailable), StoreFault::LoseReply(StoreErrorKind::Unavailable)] {
        let pager = Arc::new(Pager::default());
        let failed = Arc::new(AtomicUsize::new(0));
        let counter = failed.clone();
        let hook = move |point: StorePoint<'_>| match point {
            StorePoint::Write("end_delivery") if counter.fetch_add(1, Relaxed) < 3 => fault,
            _ => StoreFault::Pass,
        };
        let mut parts = WorldParts::new(|request, _| Ok(says(last_text(request))));
        parts.extensions.channels.push(pager.clone());
        parts.store = Arc::new(MemoryStore::new().with_hook(Arc::new(hook)));
        let world = parts.start().await;
        let mut message = Submission::new(ann(), "test", "hello");
        message.reply_to = Some(Address { channel: "pager".to_owned(), to: "ann".to_owned() });
        world.kernel.submit(message).await.expect("accepted");
        eventually("the outbox is empty", async || {
            world.kernel.store().outbox(10).await.ok()?.is_empty().then_some(())
        })
        .await;
        eventually("the write is repeated", async || (failed.load(Relaxed) == 4).then_some(())).await;
        assert_eq!(*pager.0.lock().unwrap(), ["hello"], "{fault:?}");
        assert_eq!(world.kernel.notifications(&ann(), 0, 100).await.expect("readable"), [], "{fault:?}");
        world.kernel.stop().await;
    }
}
