//! Bugs that the simulation found, each in the smallest world that shows it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU8, Ordering::SeqCst},
};

use annie_actors::Submission;
use annie_core::{
    event::{EventBody, Scope},
    ports::{FaultAction, Faults, Records, StoreErrorKind},
    time::Micros,
};
use annie_store::{MemoryStore, StoreFault, StorePoint};
use annie_testkit::{
    faults::FaultPlan,
    scripted_model::{ScriptedModel, says},
};

use crate::world::{World, WorldParts, ann, check_log, eventually, kill, two_agents};

/// The sender received an error and gave up. Before the fix its Engine was activated only at the next start.
#[tokio::test]
async fn message_whose_commit_lost_its_reply_is_answered_without_a_repeat() {
    let data = MemoryStore::new();
    let is_first = AtomicBool::new(true);
    let mut parts = WorldParts::new(|_, _| Ok(says("fine")));
    parts.store = Arc::new(data.with_hook(Arc::new(move |point| match point {
        StorePoint::Commit(_) if is_first.swap(false, SeqCst) => StoreFault::LoseReply(StoreErrorKind::Unavailable),
        _ => StoreFault::Pass,
    })));
    let world = parts.start().await;
    world.kernel.submit(Submission::new(ann(), "test", "hello")).await.expect_err("its reply is lost");
    eventually("the message is answered", async || {
        let tasks = data.tasks(Scope::Operator, false, Micros(i64::MAX).into(), 10).await.ok()?;
        tasks.first().filter(|task| task.state.is_ended()).cloned()
    })
    .await;
    world.kernel.stop().await;
}

/// The wake-up of the message was lost, and the log cannot be scanned for open conversations. Before the fix a
/// cancellation was answered as if the message had already ended.
#[tokio::test]
async fn message_unknown_to_its_engine_can_be_cancelled() {
    const ARMED: u8 = 1;
    const CUT: u8 = 2;
    let data = MemoryStore::new();
    let state = Arc::new(AtomicU8::new(0));
    let seen = state.clone();
    let model = Arc::new(ScriptedModel::new(|_, _| Ok(says("fine"))).hanging_when(|_, _| true));
    let mut parts = WorldParts::with_model(model.clone());
    parts.store = Arc::new(data.with_hook(Arc::new(move |point| match point {
        StorePoint::Commit(_) if seen.compare_exchange(ARMED, CUT, SeqCst, SeqCst).is_ok() => {
            StoreFault::LoseReply(StoreErrorKind::Unavailable)
        }
        StorePoint::Read("open_for") if seen.load(SeqCst) == CUT => StoreFault::Fail(StoreErrorKind::Unavailable),
        _ => StoreFault::Pass,
    })));
    let world = parts.start().await;
    let first = world.say("first").await;
    model.called(1).await;
    state.store(ARMED, SeqCst);
    let second = Submission::new(ann(), "test", "second").within(first.conversation);
    world.kernel.submit(second).await.expect_err("its reply is lost");
    let open = data.tasks(Scope::Operator, true, Micros(i64::MAX).into(), 10).await.expect("readable");
    let second = open.iter().find(|task| task.id != first.task).expect("the message is stored").id;
    assert!(
        world.kernel.cancel(Scope::User(ann()), second, "ann").await.expect("the task exists"),
        "the cancellation comes in time"
    );
    let end = world.final_of(first.conversation, second).await;
    assert!(matches!(end, EventBody::Cancelled { .. }), "{end:?}");
    world.kernel.stop().await;
}

/// Before the fix the agents of a turn whose conversation was quarantined had no report at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_of_a_quarantined_conversation_report_once() {
    let plan = Arc::new(FaultPlan::of(["actor panic --at engine --point folded"]));
    plan.disarm();
    let model = ScriptedModel::new(|request, _| Ok(two_agents(request))).hanging_when(|r, _| r.tools.is_empty());
    let model = Arc::new(model);
    let world = WorldParts::with_model(model.clone()).faults(plan.clone()).start().await;
    let sent = world.say("do both").await;
    model.called(3).await;
    plan.arm();
    kill(&world, &format!("/conversations/engine:{}", sent.conversation)).await;
    let end = world.final_of(sent.conversation, sent.task).await;
    assert!(matches!(&end, EventBody::Failed { code, .. } if code == "conversation_quarantined"), "{end:?}");
    let log = world.log(sent.conversation).await;
    let reports = log.iter().filter(|e| matches!(e.body, EventBody::AgentReported { .. })).count();
    assert_eq!(reports, 2);
    check_log(&log);
    world.kernel.stop().await;
}

/// A world in which one actor or task panics once at a point, after the model has given its final reply.
async fn injected_at_the_end(kind_wanted: &'static str, at: &'static str) -> (World, Arc<FaultPlan>) {
    let has_replied = Arc::new(AtomicBool::new(false));
    let (has_replied_for_plan, is_injected) = (has_replied.clone(), AtomicBool::new(false));
    let plan = Arc::new(FaultPlan::by(move |kind, point, _| {
        let is_the_end = kind == kind_wanted && point == at && has_replied_for_plan.load(SeqCst);
        if is_the_end && !is_injected.swap(true, SeqCst) { FaultAction::Panic } else { FaultAction::Pass }
    }));
    let model = ScriptedModel::new(move |_, _| {
        has_replied.store(true, SeqCst);
        Ok(says("fine"))
    });
    // The delay lets the Engine store the beginning of the turn before its model answers.
    let model = model.taking(std::time::Duration::from_millis(150));
    let world = WorldParts::with_model(Arc::new(model)).faults(plan.clone()).start().await;
    (world, plan)
}

/// The Engine dies between storing the end of a task and notifying the scheduler. Before the fix a dependent task waited
/// for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dependent_task_continues_although_the_engine_died_before_reporting_the_end() {
    let (world, plan) = injected_at_the_end("engine", "stored").await;
    let first = world.say("first").await;
    let mut waiting = Submission::new(ann(), "test", "then this");
    waiting.after = vec![first.task];
    let second = world.kernel.submit(waiting).await.expect("accepted");
    assert_eq!(world.answer(&first).await, "fine");
    assert_eq!(world.answer(&second).await, "fine");
    assert_eq!(plan.injected().len(), 1);
    world.kernel.stop().await;
}

/// The log writer dies between storing a final event and notifying the notifier. Before the fix the notification was
/// delayed until the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn final_text_is_delivered_although_the_log_writer_died_before_notifying() {
    let (world, plan) = injected_at_the_end("commit", "after").await;
    let sent = world.say("hello").await;
    assert_eq!(world.answer(&sent).await, "fine");
    assert_eq!(plan.injected().len(), 1);
    eventually("the outbox is empty", async || world.kernel.store().outbox(10).await.ok()?.is_empty().then_some(()))
        .await;
    world.kernel.stop().await;
}

/// Refuses every notification to the background workers that may be refused.
struct RefuseNotifications;

impl Faults for RefuseNotifications {
    fn at(&self, _actor: &str, _point: &str) -> FaultAction {
        FaultAction::Pass
    }

    fn in_mail(&self, actor: &str, _path: &str, point: &str) -> FaultAction {
        let is_notification = point == "mailbox:New"
            && matches!(actor, "notifier" | "dead_letters" | "expiry" | "schedules" | "reminders" | "channel");
        if is_notification { FaultAction::Fail } else { FaultAction::Pass }
    }
}

/// Before the fix a notification to a background worker could be refused, and a dead letter, a notification or an
/// operation waited until the next one.
#[tokio::test]
async fn background_worker_mailbox_refuses_no_notification() {
    let world = WorldParts::new(|_, _| Ok(says("fine"))).faults(Arc::new(RefuseNotifications)).start().await;
    let sent = world.say("hello").await;
    assert_eq!(world.answer(&sent).await, "fine");
    eventually("the outbox is empty", async || world.kernel.store().outbox(10).await.ok()?.is_empty().then_some(()))
        .await;
    world.kernel.stop().await;
}
