//! A chore of an extension: work that becomes due at times that only the extension knows.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use annie_core::{
    ports::{Chore, Fut},
    time::Micros,
};
use annie_testkit::scripted_model::ScriptedModel;

use crate::world::{World, WorldParts, eventually, kill};

/// Says the time every few seconds, and fails or panics when it is told to.
#[derive(Default)]
struct Cuckoo {
    calls: AtomicU64,
    fails_at: Option<u64>,
    panics_at: Option<u64>,
}

const EVERY_MS: i64 = 5_000;

impl Chore for Cuckoo {
    fn name(&self) -> &'static str {
        "cuckoo"
    }

    fn pass(&self, now: Micros) -> Fut<'_, Result<Option<Micros>, String>> {
        let call = self.calls.fetch_add(1, Relaxed);
        Box::pin(async move {
            assert_ne!(Some(call), self.panics_at, "the cuckoo panics");
            if Some(call) == self.fails_at {
                return Err("the cuckoo is hoarse".to_owned());
            }
            Ok(Some(now.plus_ms(EVERY_MS)))
        })
    }
}

async fn with(cuckoo: Cuckoo) -> (World, Arc<Cuckoo>) {
    let cuckoo = Arc::new(cuckoo);
    let mut parts = WorldParts::with_model(Arc::new(ScriptedModel::saying("here")));
    parts.extensions.chores.push(cuckoo.clone());
    (parts.start().await, cuckoo)
}

async fn until_called(cuckoo: &Cuckoo, times: u64) {
    eventually("the chore is called", async || (cuckoo.calls.load(Relaxed) >= times).then_some(())).await;
}

#[tokio::test(start_paused = true)]
async fn chore_of_extension_runs_at_start_and_when_due() {
    let (world, cuckoo) = with(Cuckoo::default()).await;
    until_called(&cuckoo, 1).await;
    let from = tokio::time::Instant::now();
    until_called(&cuckoo, 4).await;
    let waited_ms = i64::try_from(from.elapsed().as_millis()).expect("a short test");
    assert!((2 * EVERY_MS..4 * EVERY_MS).contains(&waited_ms), "{waited_ms}");
    let (_, view) = world.kernel.view("/infra/extensions/chore:cuckoo").await.expect("its actor is there");
    assert!(view.expect("a view")["passes"].as_u64() >= Some(3));
    world.kernel.stop().await;
}

#[tokio::test(start_paused = true)]
async fn chore_of_extension_that_fails_or_panics_is_called_again_and_ends_nothing_else() {
    for (fails_at, panics_at) in [(Some(0), None), (None, Some(0)), (None, Some(1))] {
        let (world, cuckoo) = with(Cuckoo { fails_at, panics_at, ..Cuckoo::default() }).await;
        until_called(&cuckoo, 3).await;
        let sent = world.say("hello").await;
        assert_eq!(world.answer(&sent).await, "here");
        assert!(world.kernel.health().await.ready);
        world.kernel.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn chore_of_extension_whose_actor_is_killed_runs_again_at_once() {
    let (world, cuckoo) = with(Cuckoo::default()).await;
    until_called(&cuckoo, 1).await;
    let from = tokio::time::Instant::now();
    kill(&world, "/infra/extensions/chore:cuckoo").await;
    until_called(&cuckoo, 2).await;
    assert!(from.elapsed().as_millis() < 3_000, "it waited until it was due");
    world.kernel.stop().await;
}
