//! What the simulation found, each in the smallest world that shows it.

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

use crate::{
    flow::kernel::two_agents,
    world::{World, WorldParts, ann, check_log, eventually, kill},
};

/// Its sender was told of an error and left; before, nobody woke its Engine until the next start.
#[tokio::test]
async fn a_message_whose_commit_lost_its_reply_comes_to_its_end_though_nobody_sends_it_again() {
    let data = MemoryStore::new();
    let is_first = AtomicBool::new(true);
    let mut parts = WorldParts::new(|_, _| Ok(says("fine")));
    parts.store = Arc::new(data.with_hook(Arc::new(move |point| match point {
        StorePoint::Commit(_) if is_first.swap(false, SeqCst) => StoreFault::LoseReply(StoreErrorKind::Unavailable),
        _ => StoreFault::Pass,
    })));
    let world = parts.start().await;
    world.kernel.submit(Submission::new(ann(), "test", "hello")).await.expect_err("its reply is lost");
    eventually("it is answered", async || {
        let tasks = data.tasks(Scope::Operator, false, Micros(i64::MAX).into(), 10).await.ok()?;
        tasks.first().filter(|task| task.state.is_ended()).cloned()
    })
    .await;
    world.kernel.stop().await;
}

/// Its wake-up was lost, and the log cannot be asked what is open. Before, whoever cancelled it was told that it had ended.
#[tokio::test]
async fn a_message_that_its_engine_has_not_heard_of_can_be_cancelled() {
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
    let second = open.iter().find(|task| task.id != first.task).expect("it is stored").id;
    assert!(world.kernel.cancel(Scope::User(ann()), second, "ann").await.expect("it is there"), "it is not too late");
    let end = world.final_of(first.conversation, second).await;
    assert!(matches!(end, EventBody::Cancelled { .. }), "{end:?}");
    world.kernel.stop().await;
}

/// Before, the agents of a turn whose conversation was parked had no report at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_agents_of_a_conversation_that_is_parked_report_once() {
    let plan = Arc::new(FaultPlan::by(|kind, point, _| match (kind, point) {
        ("engine", "folded") => FaultAction::Panic,
        _ => FaultAction::Pass,
    }));
    plan.disarm();
    let model = ScriptedModel::new(|request, _| Ok(two_agents(request))).hanging_when(|r, _| r.tools.is_empty());
    let model = Arc::new(model);
    let world = WorldParts::with_model(model.clone()).faults(plan.clone()).start().await;
    let said = world.say("do both").await;
    model.called(3).await;
    plan.arm();
    kill(&world, &format!("/conversations/engine:{}", said.conversation)).await;
    let end = world.final_of(said.conversation, said.task).await;
    assert!(matches!(&end, EventBody::Failed { code, .. } if code == "conversation_parked"), "{end:?}");
    let log = world.log(said.conversation).await;
    let reports = log.iter().filter(|e| matches!(e.body, EventBody::AgentReported { .. })).count();
    assert_eq!(reports, 2);
    check_log(&log);
    world.kernel.stop().await;
}

/// A world in which somebody panics once at a point, after the model has said its last.
async fn struck_at_the_end(who: &'static str, at: &'static str) -> (World, Arc<FaultPlan>) {
    let is_said = Arc::new(AtomicBool::new(false));
    let (said_by_plan, is_struck) = (is_said.clone(), AtomicBool::new(false));
    let plan = Arc::new(FaultPlan::by(move |kind, point, _| {
        let is_the_end = kind == who && point == at && said_by_plan.load(SeqCst);
        if is_the_end && !is_struck.swap(true, SeqCst) { FaultAction::Panic } else { FaultAction::Pass }
    }));
    let model = ScriptedModel::new(move |_, _| {
        is_said.store(true, SeqCst);
        Ok(says("fine"))
    });
    // What is known of the turn's beginning is stored before its model answers.
    let model = model.taking(std::time::Duration::from_millis(150));
    let world = WorldParts::with_model(Arc::new(model)).faults(plan.clone()).start().await;
    (world, plan)
}

/// The Engine dies between storing the end of a task and telling the scheduler; before, who waited for the task waited for
/// ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_a_task_goes_on_though_the_news_of_its_end_died_with_its_engine() {
    let (world, plan) = struck_at_the_end("engine", "stored").await;
    let first = world.say("first").await;
    let mut waiting = Submission::new(ann(), "test", "then this");
    waiting.after = vec![first.task];
    let second = world.kernel.submit(waiting).await.expect("it is taken");
    assert_eq!(world.answer(&first).await, "fine");
    assert_eq!(world.answer(&second).await, "fine");
    assert_eq!(plan.struck().len(), 1);
    world.kernel.stop().await;
}

/// The log writer dies between storing a final word and telling the notifier; before, the word lay there until the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_final_word_is_delivered_though_the_log_writer_died_before_it_told_anybody() {
    let (world, plan) = struck_at_the_end("commit", "after").await;
    let said = world.say("hello").await;
    assert_eq!(world.answer(&said).await, "fine");
    assert_eq!(plan.struck().len(), 1);
    eventually("the outbox is empty", async || world.kernel.store().outbox(10).await.ok()?.is_empty().then_some(()))
        .await;
    world.kernel.stop().await;
}

/// Refuses every piece of news to the keepers that may be refused.
struct Deaf;

impl Faults for Deaf {
    fn at(&self, _actor: &str, _point: &str) -> FaultAction {
        FaultAction::Pass
    }

    fn in_mail(&self, actor: &str, _path: &str, point: &str) -> FaultAction {
        let is_news = point == "mailbox:New" && matches!(actor, "notifier" | "letters" | "expiry");
        if is_news { FaultAction::Fail } else { FaultAction::Pass }
    }
}

/// Before, news to a keeper could be refused, and a letter, a word or an operation lay there until the next one.
#[tokio::test]
async fn news_to_a_keeper_are_not_refused() {
    let world = WorldParts::new(|_, _| Ok(says("fine"))).faults(Arc::new(Deaf)).start().await;
    let said = world.say("hello").await;
    assert_eq!(world.answer(&said).await, "fine");
    eventually("the outbox is empty", async || world.kernel.store().outbox(10).await.ok()?.is_empty().then_some(()))
        .await;
    world.kernel.stop().await;
}
