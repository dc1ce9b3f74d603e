//! The order of rounds as seen from outside: one slot, several conversations.

use std::sync::{Arc, Mutex};

use annie_actors::{KernelError, LeaseLimits, Submission};
use annie_core::{
    event::{EventBody, Mode, Priority, Scope},
    ids::{ConversationId, Seq, UserId},
    message::{Message, ModelRequest},
};
use annie_testkit::scripted_model::{ScriptedModel, calls, says};
use serde_json::json;

use crate::world::{World, WorldParts, ann, check_log, eventually, node};

pub fn user(name: &str) -> UserId {
    UserId::new(name).expect("a user id")
}

fn first_user_text(request: &ModelRequest) -> String {
    let text = request.messages.iter().find_map(|m| if let Message::User { text, .. } = m { Some(text) } else { None });
    text.cloned().unwrap_or_default()
}

/// All requests to the model in order, each as the first word of the request's own message.
pub type Order = Arc<Mutex<Vec<String>>>;

/// A world with one slot whose rounds proceed one by one as the test adds permits. A message `name N` takes N rounds.
pub fn one_slot() -> (WorldParts, Order, Arc<tokio::sync::Semaphore>) {
    let order: Order = Arc::default();
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let begun = order.clone();
    let model = ScriptedModel::new(move |request, _| {
        let text = first_user_text(request);
        let mut words = text.split(' ');
        let name = words.next().unwrap_or_default().to_owned();
        let rounds: usize = words.next().and_then(|n| n.parse().ok()).unwrap_or(1);
        begun.lock().expect("not poisoned").push(name.clone());
        let done = request.messages.iter().filter(|m| matches!(m, Message::Assistant { .. })).count();
        Ok(if done + 1 >= rounds {
            says(format!("{name} is done"))
        } else {
            calls([("get_skill", json!({"search": format!("{name}{done}")}))])
        })
    });
    let mut parts = WorldParts::with_model(Arc::new(Gated { model, gate: gate.clone() }));
    parts.slots = 1;
    parts.limits.mode = Mode::SingleLoop;
    (parts, order, gate)
}

/// A model whose rounds wait for the test.
pub struct Gated {
    pub model: ScriptedModel,
    pub gate: Arc<tokio::sync::Semaphore>,
}

impl annie_core::ports::Model for Gated {
    fn id(&self) -> &str {
        self.model.id()
    }

    fn about(&self) -> String {
        self.model.about()
    }

    fn call<'a>(
        &'a self,
        request: &'a ModelRequest,
        drafts: annie_core::ports::DraftSink,
    ) -> annie_core::ports::Fut<'a, Result<annie_core::message::ModelReply, annie_core::message::ModelError>> {
        Box::pin(async move {
            let reply = self.model.call(request, drafts).await;
            if let Ok(step) = self.gate.acquire().await {
                step.forget();
            }
            reply
        })
    }

    fn check(&self) -> annie_core::ports::Fut<'_, Result<(), annie_core::message::ModelError>> {
        self.model.check()
    }
}

pub async fn say(world: &World, user_name: &str, text: &str, priority: Priority) -> annie_actors::Submitted {
    // Only spoken messages may have class REALTIME.
    let source = if priority == Priority::Realtime { "voice" } else { "test" };
    let mut message = Submission::new(user(user_name), source, text);
    message.priority = Some(priority);
    world.kernel.submit(message).await.expect("accepted")
}

pub async fn rounds_begun(order: &Order, count: usize) {
    eventually("the rounds have begun", async || (order.lock().expect("not poisoned").len() >= count).then_some(()))
        .await;
}

pub async fn waiting(world: &World, count: usize) {
    eventually("the tasks wait", async || {
        let queue = world.kernel.queue().await.ok()?;
        let asking = queue["waiting"].as_array()?.iter().filter(|w| w["start_in_ms"].is_u64()).count();
        (asking == count).then_some(())
    })
    .await;
}

pub async fn ended(world: &World, user_name: &str, sent: &annie_actors::Submitted) {
    eventually("the task has ended", async || {
        let row = world.kernel.task(Scope::User(user(user_name)), sent.task).await.ok()?;
        row.state.is_ended().then_some(())
    })
    .await;
    let log =
        world.kernel.events(Scope::User(user(user_name)), sent.conversation, Seq(0), 500).await.expect("readable");
    check_log(&log);
}

#[tokio::test]
async fn high_task_preempts_a_normal_one_between_rounds_and_the_normal_one_resumes() {
    let (parts, order, gate) = one_slot();
    let world = parts.start().await;
    let long = say(&world, "ann", "long 5", Priority::Normal).await;
    rounds_begun(&order, 1).await;
    gate.add_permits(2);
    rounds_begun(&order, 3).await;
    let urgent = say(&world, "bob", "urgent 1", Priority::High).await;
    waiting(&world, 1).await;
    gate.add_permits(10);
    ended(&world, "ann", &long).await;
    ended(&world, "bob", &urgent).await;
    let order = order.lock().expect("not poisoned").clone();
    assert_eq!(order, ["long", "long", "long", "urgent", "long", "long"]);
}

#[tokio::test]
async fn tasks_of_one_class_take_turns_round_by_round() {
    let (parts, order, gate) = one_slot();
    let world = parts.start().await;
    let mut all = vec![say(&world, "a", "a 2", Priority::Normal).await];
    rounds_begun(&order, 1).await;
    all.push(say(&world, "b", "b 2", Priority::Normal).await);
    waiting(&world, 1).await;
    all.push(say(&world, "c", "c 1", Priority::Normal).await);
    waiting(&world, 2).await;
    gate.add_permits(10);
    for (user_name, sent) in ["a", "b", "c"].into_iter().zip(&all) {
        ended(&world, user_name, sent).await;
    }
    assert_eq!(*order.lock().expect("not poisoned"), ["a", "b", "c", "a", "b"], "equals take turns [S3 5.7]");
}

#[tokio::test]
async fn voice_gate_when_closed_admits_only_voice_which_waits_at_most_one_round() {
    let (parts, order, gate) = one_slot();
    let world = parts.start().await;
    let background = say(&world, "ann", "background 3", Priority::Background).await;
    rounds_begun(&order, 1).await;
    world.kernel.hold_gate("", "the microphone", 60_000).await.expect("free");
    assert!(world.kernel.hold_gate("", "another speaker", 60_000).await.is_err());
    let voice = say(&world, "bob", "voice 2", Priority::Realtime).await;
    gate.add_permits(3);
    ended(&world, "bob", &voice).await;
    waiting(&world, 1).await;
    assert_eq!(*order.lock().expect("not poisoned"), ["background", "voice", "voice"], "nothing else begins");
    assert!(world.kernel.release_gate("", "the microphone").await.expect("answered"));
    gate.add_permits(10);
    ended(&world, "ann", &background).await;
}

#[tokio::test]
async fn voice_gate_whose_holder_dies_opens_by_itself() {
    let (parts, order, gate) = one_slot();
    gate.add_permits(10);
    let world = parts.start().await;
    world.kernel.hold_gate("", "the microphone", 500).await.expect("free");
    let sent = say(&world, "ann", "patient 1", Priority::High).await;
    waiting(&world, 1).await;
    assert!(order.lock().expect("not poisoned").is_empty());
    ended(&world, "ann", &sent).await;
}

#[tokio::test]
async fn queue_refuses_the_fourth_waiting_message_of_a_user_with_limit_and_retry_time() {
    let (parts, order, _gate) = one_slot();
    let world = parts.start().await;
    say(&world, "ann", "running 1", Priority::High).await;
    rounds_begun(&order, 1).await;
    for n in 0..3 {
        say(&world, "ann", &format!("waiting{n} 1"), Priority::High).await;
    }
    let fourth = world.kernel.submit(Submission::new(ann(), "test", "one too many")).await;
    let Err(KernelError::Full(refusal)) = fourth else { panic!("wanted a refusal, got {fourth:?}") };
    assert_eq!(refusal.limit, 3);
    assert!(refusal.retry_after_ms >= 1_000);
    say(&world, "bob", "other 1", Priority::High).await;
}

#[tokio::test]
async fn repeated_message_is_acknowledged_again_although_the_queue_is_full() {
    let (parts, order, _gate) = one_slot();
    let world = parts.start().await;
    let conversation = say(&world, "ann", "running 1", Priority::High).await.conversation;
    rounds_begun(&order, 1).await;
    let named = |id: &str, text: &str, steer: bool| {
        let mut message = Submission::new(ann(), "test", text).within(conversation);
        (message.client_id, message.steer) = (Some(id.to_owned()), steer);
        message
    };
    let message = |text: &str| named("mine", text, false);
    let first = world.kernel.submit(message("waiting 1")).await.expect("the queue has capacity");
    for n in 0..2 {
        say(&world, "ann", &format!("waiting{n} 1"), Priority::High).await;
    }
    let other = world.kernel.submit(message("something else")).await;
    assert!(matches!(other, Err(KernelError::Full(_))), "{other:?}");
    let again = world.kernel.submit(message("waiting 1")).await.expect("acknowledged");
    assert_eq!((again.task, again.seq, again.repeated), (first.task, first.seq, true));
    let steers = named("steers", "that too", true);
    let steered = world.kernel.submit(steers.clone()).await.expect("the first steering message is accepted");
    let again = world.kernel.submit(steers).await.expect("the repeated steering message is acknowledged");
    assert_eq!((again.task, again.repeated), (steered.task, true));
    let untargeted = {
        let mut message = named("untargeted", "steers nothing", true);
        message.conversation = None;
        message
    };
    let untargeted = world.kernel.submit(untargeted).await;
    assert!(
        matches!(untargeted, Err(KernelError::Full(_))),
        "a steering message does not bypass the queue: {untargeted:?}"
    );
}

#[tokio::test]
async fn queue_view_lists_waiting_and_running_tasks_with_position_and_reason() {
    let (parts, order, _gate) = one_slot();
    let world = parts.start().await;
    let running = say(&world, "ann", "running 1", Priority::High).await;
    rounds_begun(&order, 1).await;
    let next = say(&world, "bob", "next 1", Priority::High).await;
    waiting(&world, 1).await;
    let queue = world.kernel.queue().await.expect("answered");
    assert_eq!(queue["running"][0]["task_id"], running.task.to_string());
    assert_eq!(queue["waiting"][0]["task_id"], next.task.to_string());
    assert_eq!(queue["waiting"][0]["position"], 1);
    assert!(queue["waiting"][0]["why"].as_str().is_some_and(|w| !w.is_empty()), "{queue}");
    let elsewhere = ConversationId::for_key(&ann(), "none");
    assert!(matches!(
        world.kernel.follow(Scope::User(ann()), elsewhere, Seq(0)).await.err(),
        Some(KernelError::NotFound(_))
    ));
}

#[tokio::test]
async fn node_that_lost_a_conversation_to_another_node_does_not_reclaim_it() {
    let (mut here, mut there) = (WorldParts::new(|_, _| Ok(says("x"))), WorldParts::new(|_, _| Ok(says("x"))));
    (there.store, there.env, there.node) = (here.store.clone(), annie_testkit::env::env(8), node(8));
    // The second node learns of the change long before the first one.
    there.limits.lease = LeaseLimits { lease_ms: 1_000, renew_ms: 100 };
    let gate = || Arc::new(tokio::sync::Semaphore::new(0));
    let (gates, models): (Vec<_>, Vec<_>) = ["here", "there"]
        .map(|name| {
            let (gate, model) = (gate(), ScriptedModel::new(move |_, _| Ok(says(name))));
            (gate.clone(), Arc::new(Gated { model, gate }))
        })
        .into_iter()
        .unzip();
    (here.model, there.model) = (models[0].clone(), models[1].clone());
    let first = here.start().await;
    let sent = first.say("hello").await;
    models[0].model.called(1).await;
    let second = there.start().await;
    let row = first.kernel.conversation(Scope::User(ann()), sent.conversation).await.expect("the conversation exists");
    assert_eq!(row.epoch.0, 1, "its owner is alive");
    // Another process declares the first node dead.
    here.store.end_node(row.owner.expect("the conversation is claimed")).await.expect("the store works");
    models[1].model.called(1).await;
    gates[0].add_permits(10);
    eventually("its Engine is gone", async || {
        let (_, view) = first.kernel.view("/conversations").await.ok()?;
        (view?["active"] == 0).then_some(())
    })
    .await;
    gates[1].add_permits(10);
    assert_eq!(second.answer(&sent).await, "there");
    let row = second.kernel.conversation(Scope::User(ann()), sent.conversation).await.expect("the conversation exists");
    assert_eq!(row.epoch.0, 2, "each node claimed the conversation once");
    let more = second.say_in(sent.conversation, "and now?").await;
    assert_eq!(second.answer(&more).await, "there");
    check_log(&first.log(sent.conversation).await);
    for world in [first, second] {
        world.kernel.stop().await;
    }
}

#[tokio::test]
async fn round_that_overtakes_waiting_tasks_is_recorded_with_the_reason() {
    let (parts, order, gate) = one_slot();
    let world = parts.start().await;
    let first = say(&world, "ann", "first 1", Priority::High).await;
    rounds_begun(&order, 1).await;
    let low = say(&world, "bob", "low 1", Priority::Low).await;
    let high = say(&world, "eve", "high 1", Priority::High).await;
    waiting(&world, 2).await;
    gate.add_permits(3);
    for (name, sent) in [("ann", &first), ("bob", &low), ("eve", &high)] {
        ended(&world, name, sent).await;
    }
    let choices = async |name: &str, sent: &annie_actors::Submitted| {
        let log = world.kernel.events(Scope::User(user(name)), sent.conversation, Seq(0), 500).await.expect("readable");
        let of = |body: EventBody| {
            let EventBody::Decided { component, reasoning, alternatives, .. } = body else { return None };
            (component == "scheduler").then_some((reasoning, alternatives))
        };
        log.into_iter().filter_map(|event| of(event.body)).collect::<Vec<_>>()
    };
    let chosen = choices("eve", &high).await;
    assert!(chosen.len() == 1 && chosen[0].0.starts_with("urgent"), "{chosen:?}");
    assert!(chosen[0].1[0].contains("class low"), "{chosen:?}");
    assert!(!format!("{chosen:?}").contains(&low.task.to_string()), "another user's task is not named");
    // Nothing waited when these rounds began.
    assert_eq!((choices("ann", &first).await.len(), choices("bob", &low).await.len()), (0, 0));
    world.kernel.stop().await;
}
