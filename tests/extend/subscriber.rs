//! A subscriber of an extension: it receives stored events.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use annie_core::{
    event::{Event, Topics},
    ids::TaskId,
    ports::{FaultAction, LogSubscriber},
};
use annie_testkit::{faults::FaultPlan, scripted_model::ScriptedModel};

use crate::world::{World, WorldParts, eventually, kill};

/// Keeps a list of the tasks that have ended.
#[derive(Default)]
struct Ended {
    tasks: Mutex<Vec<TaskId>>,
    calls: AtomicU64,
    reread: AtomicU64,
    panics_at: Option<u64>,
}

impl LogSubscriber for Ended {
    fn name(&self) -> &'static str {
        "ended"
    }

    fn topics(&self) -> Topics {
        Topics::FINAL_TEXT
    }

    fn stored(&self, event: &Event) {
        assert_ne!(Some(self.calls.fetch_add(1, Relaxed)), self.panics_at, "the subscriber panics");
        self.tasks.lock().unwrap().push(event.task);
    }

    fn reread(&self) {
        self.reread.fetch_add(1, Relaxed);
    }
}

async fn with(ended: Ended) -> (World, Arc<Ended>) {
    let ended = Arc::new(ended);
    let mut parts = WorldParts::with_model(Arc::new(ScriptedModel::saying("here")));
    parts.extensions.subscribers.push(ended.clone());
    let world = parts.start().await;
    eventually("it reads what was stored before", async || (ended.reread.load(Relaxed) > 0).then_some(())).await;
    (world, ended)
}

#[tokio::test(start_paused = true)]
async fn subscriber_of_extension_receives_each_final_event_once_after_it_is_stored() {
    let (world, ended) = with(Ended::default()).await;
    let mut sent = Vec::new();
    for n in 0..4 {
        let one = world.say(&n.to_string()).await;
        eventually("its end is received", async || (ended.tasks.lock().unwrap().len() > n).then_some(())).await;
        let log = world.log(one.conversation).await;
        assert!(log.iter().any(|event| event.task == one.task && event.body.is_final()), "its end is stored: {log:?}");
        sent.push(one.task);
        assert_eq!(*ended.tasks.lock().unwrap(), sent, "each end is received once");
    }
    world.kernel.stop().await;
}

#[tokio::test(start_paused = true)]
async fn subscriber_of_extension_that_panics_costs_no_append_and_reads_the_store_again() {
    let (world, ended) = with(Ended { panics_at: Some(0), ..Ended::default() }).await;
    let first = world.say("1").await;
    assert_eq!(world.answer(&first).await, "here");
    eventually("its actor was started again", async || (ended.reread.load(Relaxed) > 1).then_some(())).await;
    let second = world.say("2").await;
    assert_eq!(world.answer(&second).await, "here");
    eventually("the next event is received", async || {
        (ended.tasks.lock().unwrap().as_slice() == [second.task]).then_some(())
    })
    .await;
    world.kernel.stop().await;
}

#[tokio::test(start_paused = true)]
async fn subscriber_of_extension_reads_the_store_again_after_the_log_writer_died() {
    let (world, ended) = with(Ended::default()).await;
    let before = ended.reread.load(Relaxed);
    kill(&world, "/infra/log").await;
    eventually("it reads the store again", async || (ended.reread.load(Relaxed) > before).then_some(())).await;
    world.kernel.stop().await;
}

#[tokio::test(start_paused = true)]
async fn extensions_with_equal_or_invalid_names_are_refused() {
    struct Named(&'static str);
    impl LogSubscriber for Named {
        fn name(&self) -> &'static str {
            self.0
        }
        fn topics(&self) -> Topics {
            Topics::NONE
        }
        fn stored(&self, _event: &Event) {}
        fn reread(&self) {}
    }
    for (names, reason) in
        [(["a", "a"], "two extensions are named subscriber:a"), (["a", "A b"], "needs a name of 1 to 40")]
    {
        let mut parts = WorldParts::with_model(Arc::new(ScriptedModel::saying("here")));
        parts.extensions.subscribers = names.map(|name| Arc::new(Named(name)) as Arc<dyn LogSubscriber>).to_vec();
        let refused = parts.try_start().await.err().expect("it is refused").to_string();
        assert!(refused.contains(reason), "{refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn subscriber_of_extension_that_panics_when_asked_for_its_topics_is_refused_at_the_start() {
    struct NoTopics;
    impl LogSubscriber for NoTopics {
        fn name(&self) -> &'static str {
            "none"
        }
        fn topics(&self) -> Topics {
            panic!("it has no topics")
        }
        fn stored(&self, _event: &Event) {}
        fn reread(&self) {}
    }
    let mut parts = WorldParts::with_model(Arc::new(ScriptedModel::saying("here")));
    parts.extensions.subscribers.push(Arc::new(NoTopics));
    let refused = parts.try_start().await.err().expect("it is refused").to_string();
    assert!(refused.contains("subscriber:none panicked when it was asked for its topics"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn extension_that_does_not_start_is_a_warning_and_the_kernel_is_ready() {
    let plan = Arc::new(FaultPlan::by(|kind, point, _| {
        if (kind, point) == ("subscriber", "init") { FaultAction::Hang } else { FaultAction::Pass }
    }));
    let mut parts = WorldParts::with_model(Arc::new(ScriptedModel::saying("here"))).faults(plan);
    // The watchdog uses real time, so it is switched off under virtual time.
    parts.limits.stuck_ms_max = 0;
    parts.extensions.subscribers.push(Arc::new(Ended::default()));
    let world = parts.start().await;
    let health = world.kernel.health().await;
    assert!(health.ready && health.problems.is_empty(), "{health:?}");
    assert_eq!(health.warnings, ["/infra/extensions/subscriber:ended is not running"]);
    let sent = world.say("hello").await;
    assert_eq!(world.answer(&sent).await, "here");
    world.kernel.crash().await;
}
