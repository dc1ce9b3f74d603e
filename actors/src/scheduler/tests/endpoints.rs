//! The actors of the backends: they check their endpoint at the start, and again only while it does not answer.

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

/// An endpoint that answers or not, as the test sets it.
#[derive(Default)]
struct Endpoint {
    is_away: AtomicBool,
    checks: AtomicU32,
    /// The window that its server reports; 0 reports none.
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
    world.until("the endpoint is checked", async || (model.checks.load(SeqCst) > 0).then_some(())).await;
    world.processed().await;
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
async fn backend_checks_a_reachable_endpoint_once() {
    let model = Arc::new(Endpoint::default());
    let world = start(&model).await;
    world.pass_ms(24 * 3_600_000).await;
    assert_eq!(model.checks.load(SeqCst), 1);
    assert_eq!(view(&world).await["up"], true);
}

#[tokio::test(start_paused = true)]
async fn backend_checks_an_unreachable_endpoint_at_growing_intervals_until_it_answers() {
    let model = Arc::new(Endpoint::default());
    model.is_away.store(true, SeqCst);
    let world = start(&model).await;
    world.until("the failure is known", async || (view(&world).await["up"] == false).then_some(())).await;
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
    assert_eq!(model.checks.load(SeqCst), asked, "a reachable endpoint is not checked again");
}

#[tokio::test(start_paused = true)]
async fn backend_checks_its_endpoint_after_failed_calls_and_continues_after_a_crash() {
    let model = Arc::new(Endpoint::default());
    let world = start(&model).await;
    model.is_away.store(true, SeqCst);
    let failed = Verdict::Failed { kind: ModelErrorKind::Unavailable, retry_after_ms: None };
    world.fail(1, "gpu", &[failed; 5]).await;
    world.pass_ms(2_100).await;
    assert_eq!(model.checks.load(SeqCst), 2);
    let entry = world.system.directory.get(&endpoint("gpu")).expect("the actor runs");
    entry.cell.kill();
    world.until("its next incarnation checks", async || (model.checks.load(SeqCst) >= 3).then_some(())).await;
    model.is_away.store(false, SeqCst);
    world.pass_ms(10_000).await;
    assert_eq!(used(&world, 2).await, "gpu", "the backend is up again without waiting for the breaker's minute");
}

#[tokio::test(start_paused = true)]
async fn backend_asks_a_server_that_comes_back_for_its_facts_again() {
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
    assert_eq!(world.leases.window("gpu"), Some(8_192), "the server could not be asked");
    model.is_away.store(false, SeqCst);
    world.pass_ms(300_001).await;
    assert_eq!(world.leases.window("gpu"), Some(2_048), "the server was restarted with another window");
}
