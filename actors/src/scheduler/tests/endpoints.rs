//! The actors of the backends: asked at the start, and again only while nobody answers.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
};

use annie_core::{
    event::Priority,
    message::{ModelError, ModelErrorKind, ModelReply, ModelRequest},
    ports::{DraftSink, Fut, Model, ServerFacts},
};
use serde_json::Value;

use super::{
    super::Verdict,
    world::{Parts, World, endpoint},
};
use crate::{
    backend::{BackendArgs, Backends},
    observe::{Path, ask_view, spawn},
};

/// An endpoint that is there or not, as the test says.
#[derive(Default)]
struct Endpoint {
    is_away: AtomicBool,
    checks: AtomicU32,
    /// The window that its server says; 0 says nothing.
    window: AtomicU32,
}

impl Model for Endpoint {
    fn id(&self) -> &str {
        "endpoint"
    }

    fn about(&self) -> String {
        String::new()
    }

    fn call<'a>(&'a self, _: &'a ModelRequest, _: DraftSink) -> Fut<'a, Result<ModelReply, ModelError>> {
        Box::pin(async { Err(ModelError::new(ModelErrorKind::Unavailable, "not asked here")) })
    }

    fn check(&self) -> Fut<'_, Result<(), ModelError>> {
        self.checks.fetch_add(1, SeqCst);
        let answer = if self.is_away.load(SeqCst) {
            Err(ModelError::new(ModelErrorKind::Unavailable, "connection refused"))
        } else {
            Ok(())
        };
        Box::pin(std::future::ready(answer))
    }

    fn describe(&self) -> Fut<'_, Option<ServerFacts>> {
        let context_tokens_max = Some(self.window.load(SeqCst)).filter(|window| *window > 0);
        Box::pin(async move { Some(ServerFacts { context_tokens_max, ..ServerFacts::default() }) })
    }
}

async fn start(model: &Arc<Endpoint>) -> World {
    let world = Parts::of(&[("gpu", 2), ("cloud", 2)]).start().await;
    let args = BackendArgs {
        name: "gpu".to_owned(),
        model: model.clone(),
        leases: world.leases.clone(),
        scheduler: world.scheduler.clone(),
    };
    spawn::<Backends>(&world.system, Path::parse("/backends"), vec![args], None).await.expect("it starts");
    world.until("it is asked", async || (model.checks.load(SeqCst) > 0).then_some(())).await;
    world.heard().await;
    world
}

async fn view(world: &World) -> Value {
    let wait = std::time::Duration::from_secs(1);
    ask_view(&world.system.directory, &endpoint("gpu"), wait).await.unwrap_or_default()
}

async fn used(world: &World, n: u32) -> String {
    let permit = world.take(n, Priority::Normal, &["gpu", "cloud"]).await;
    permit.backend().to_owned()
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_is_there_is_asked_once_and_never_again() {
    let model = Arc::new(Endpoint::default());
    let world = start(&model).await;
    world.pass_ms(24 * 3_600_000).await;
    assert_eq!(model.checks.load(SeqCst), 1);
    assert_eq!(view(&world).await["up"], true);
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_is_not_there_is_asked_again_at_growing_intervals_until_it_is() {
    let model = Arc::new(Endpoint::default());
    model.is_away.store(true, SeqCst);
    let world = start(&model).await;
    world.until("it is known", async || (view(&world).await["up"] == false).then_some(())).await;
    assert_eq!(used(&world, 1).await, "cloud");
    assert_eq!(view(&world).await["check_error"]["detail"], "connection refused");
    world.pass_ms(3_600_000).await;
    let asked = model.checks.load(SeqCst);
    assert!((15..30).contains(&asked), "not more often each hour than every five minutes: {asked}");
    model.is_away.store(false, SeqCst);
    world.pass_ms(300_001).await;
    let asked = model.checks.load(SeqCst);
    assert_eq!(used(&world, 2).await, "gpu");
    world.pass_ms(3_600_000).await;
    assert_eq!(model.checks.load(SeqCst), asked, "all is well");
}

#[tokio::test(start_paused = true)]
async fn calls_that_fail_make_it_look_and_a_new_life_of_it_goes_on() {
    let model = Arc::new(Endpoint::default());
    let world = start(&model).await;
    model.is_away.store(true, SeqCst);
    let failed = Verdict::Failed { kind: ModelErrorKind::Unavailable, retry_after_ms: None };
    world.fail(1, "gpu", &[failed; 5]).await;
    world.pass_ms(2_100).await;
    assert_eq!(model.checks.load(SeqCst), 2);
    let entry = world.system.directory.get(&endpoint("gpu")).expect("it lives");
    entry.cell.kill();
    world.until("its next life asks", async || (model.checks.load(SeqCst) >= 3).then_some(())).await;
    model.is_away.store(false, SeqCst);
    world.pass_ms(10_000).await;
    assert_eq!(used(&world, 2).await, "gpu", "it is back, a minute's pause or not");
}

#[tokio::test(start_paused = true)]
async fn server_that_comes_back_is_asked_again_what_it_can() {
    let model = Arc::new(Endpoint::default());
    model.window.store(8_192, SeqCst);
    let world = start(&model).await;
    world.until("its window is known", async || world.leases.window("gpu").filter(|window| *window == 8_192)).await;
    assert_eq!(view(&world).await["context_tokens_from"], "server");
    model.is_away.store(true, SeqCst);
    model.window.store(2_048, SeqCst);
    let failed = Verdict::Failed { kind: ModelErrorKind::Unavailable, retry_after_ms: None };
    world.fail(1, "gpu", &[failed; 5]).await;
    world.pass_ms(10_000).await;
    assert_eq!(world.leases.window("gpu"), Some(8_192), "nobody could be asked");
    model.is_away.store(false, SeqCst);
    world.pass_ms(300_001).await;
    assert_eq!(world.leases.window("gpu"), Some(2_048), "it was started anew with another window");
}
