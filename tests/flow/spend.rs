//! Caps on what model calls spend, by turn, conversation, user and day: with concurrent rounds, after a restart, and on several
//! nodes.

use std::sync::Arc;

use annie_actors::Submission;
use annie_core::{
    event::{Event, EventBody, Scope},
    ids::UserId,
    message::{Message, ModelReply, ModelRequest, Usage},
    ports::Records,
    spend::{SpendLimits, UsageBy, UsageQuery},
};
use annie_store::MemoryStore;
use annie_testkit::{
    model_server::{FakeModelServer, Reply},
    scripted_model::{ScriptedModel, calls, says},
};
use serde_json::json;

use super::bad_models::ask;
use crate::{
    server::Server,
    world::{WorldParts, ann, check_log, eventually, last_text, node, two_agents},
};

/// A reply that used this many tokens, and a tenth of a cent for each.
fn costing(tokens: u64, reply: ModelReply) -> ModelReply {
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let usage = Usage { input_tokens: tokens, cost_usd: tokens as f64 / 1_000.0, ..Usage::default() };
    ModelReply { usage, ..reply }
}

/// The reasons of the decisions about spending.
fn decisions(log: &[Event]) -> Vec<String> {
    let of_spend = log.iter().filter_map(|event| {
        let EventBody::Decided { component, reasoning, .. } = &event.body else { return None };
        (component == "spend").then(|| reasoning.clone())
    });
    of_spend.collect()
}

/// A model that searches on and on.
fn searching(request: &ModelRequest) -> ModelReply {
    let n = request.messages.iter().filter(|m| matches!(m, Message::Tool { .. })).count();
    costing(20_000, calls([("get_skill", json!({"search": format!("thing {n}")}))]))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turn_that_reaches_its_cap_stops_with_a_report_and_can_be_continued() {
    let mut parts = WorldParts::new(|request, _| {
        Ok(if last_text(request).contains("continue") { costing(10, says("Done.")) } else { searching(request) })
    });
    parts.limits.spend = SpendLimits { turn_tokens_max: 42_000, ..SpendLimits::NONE };
    let world = parts.start().await;
    let sent = world.say("find everything").await;
    let end = world.final_of(sent.conversation, sent.task).await;
    let EventBody::Answered { text, paused: true, usage, .. } = end else { panic!("wanted a pause, got {end:?}") };
    assert!(text.contains("The limit of 42000 tokens for one request (`turn_tokens_max` in `[spend]`)"), "{text}");
    assert_eq!(usage.input_tokens, 40_000, "the third round would have exceeded the cap");
    let log = world.log(sent.conversation).await;
    assert_eq!(decisions(&log).len(), 1, "{log:#?}");
    let again = world.say_in(sent.conversation, "continue").await;
    assert_eq!(world.answer(&again).await, "Done.", "the turn that continues has its own cap");
    check_log(&world.log(sent.conversation).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rounds_of_sub_agents_count_for_the_turn() {
    let mut parts = WorldParts::new(|request, _| Ok(costing(30_000, two_agents(request))));
    // The main agent and two sub-agents use 30,000 tokens each; a fourth round does not fit.
    parts.limits.spend = SpendLimits { turn_tokens_max: 91_000, ..SpendLimits::NONE };
    let world = parts.start().await;
    let sent = world.say("do both").await;
    world.final_of(sent.conversation, sent.task).await;
    let log = world.log(sent.conversation).await;
    let replies = log.iter().filter(|e| matches!(e.body, EventBody::ModelReplied { .. })).count();
    assert!(replies <= 3, "{replies} rounds were run: {log:#?}");
    assert!(!decisions(&log).is_empty(), "{log:#?}");
    check_log(&log);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conversation_cap_holds_after_a_restart_and_names_the_next_step() {
    let mut parts = WorldParts::new(|_, _| Ok(costing(9_000, says("Hello."))));
    parts.limits.spend = SpendLimits { conversation_usd_max: 8.0, ..SpendLimits::NONE };
    let world = parts.start().await;
    let first = world.say("hello").await;
    assert_eq!(world.answer(&first).await, "Hello.", "what the backend costs is not known yet");
    world.kernel.stop().await;
    let world = parts.start().await;
    let second = world.say_in(first.conversation, "hello again").await;
    let end = world.final_of(second.conversation, second.task).await;
    let EventBody::Failed { code, text, .. } = end else { panic!("wanted a failure, got {end:?}") };
    assert_eq!(code, "spend_cap");
    assert!(text.contains("$8.0000 for one conversation (`conversation_usd_max` in `[spend]`)"), "{text}");
    assert!(text.contains("$9.0000 are used") && text.contains("Start a new conversation"), "{text}");
    let other = world.say("hello").await;
    assert_eq!(world.answer(&other).await, "Hello.", "another conversation has its own cap");
    check_log(&world.log(first.conversation).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn day_cap_counts_all_conversations_of_a_user_on_all_nodes() {
    let store = Arc::new(MemoryStore::new());
    let mut parts = WorldParts::new(|_, _| Ok(costing(30_000, says("Hello."))));
    parts.store = store.clone();
    parts.limits.spend = SpendLimits { user_day_tokens_max: 61_000, ..SpendLimits::NONE };
    let world = parts.start().await;
    for text in ["one", "two"] {
        let sent = world.say(text).await;
        assert_eq!(world.answer(&sent).await, "Hello.");
    }
    let sent = world.say("three").await;
    let end = world.final_of(sent.conversation, sent.task).await;
    let EventBody::Failed { code, text, .. } = &end else { panic!("wanted a failure, got {end:?}") };
    assert!(code == "spend_cap" && text.contains("`user_day_tokens_max`") && text.contains("00:00 UTC"), "{text}");
    let other = WorldParts { node: node(1), store: store.clone(), ..parts };
    let other = other.start().await;
    let sent = other.say("four").await;
    let end = other.final_of(sent.conversation, sent.task).await;
    assert!(matches!(&end, EventBody::Failed { code, .. } if code == "spend_cap"), "{end:?}");
    let spent = store.usage(UsageQuery::all(UsageBy::All, Some(ann()))).await.expect("sums");
    assert_eq!((spent[0].totals.rounds, spent[0].totals.input_tokens), (2, 60_000));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn round_waits_for_reservations_of_others_without_a_permit_and_then_runs() {
    let model = ScriptedModel::new(|_, _| Ok(costing(100, says("Hello.")))).hanging_when(|_, call| call < 2);
    let model = Arc::new(model);
    let mut parts = WorldParts::with_model(model.clone());
    // Two prompts with their answers fit below this cap, three do not.
    parts.limits.turn.context_tokens_max = 400_000;
    parts.limits.turn.response_tokens_reserve = 50_000;
    parts.limits.spend = SpendLimits { user_day_tokens_max: 140_000, ..SpendLimits::NONE };
    parts.slots = 3;
    let world = parts.start().await;
    let under_way = [world.say("one").await, world.say("two").await];
    model.called(2).await;
    let third = world.say("three").await;
    eventually("the third round has no place in the queue of permits", async || {
        let queue = world.kernel.queue().await.ok()?;
        (queue["running"].as_array()?.len() == 2 && queue["waiting"].as_array()?.is_empty()).then_some(())
    })
    .await;
    assert_eq!(model.call_count(), 2, "the third round does not fit beside the two");
    let bob = UserId::new("bob").expect("an id");
    world.kernel.submit(Submission::new(bob, "test", "four")).await.expect("accepted");
    eventually("another user's round uses the free slot", async || (model.call_count() == 3).then_some(())).await;
    for sent in under_way {
        world.kernel.cancel(Scope::User(ann()), sent.task, "a test").await.expect("it is cancelled");
        world.final_of(sent.conversation, sent.task).await;
    }
    assert_eq!(world.answer(&third).await, "Hello.", "the reservations of rounds that did not end are released");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn free_backend_answers_when_a_cap_on_money_is_reached() {
    let (paid, free) = (
        FakeModelServer::start(|_| Reply::says("Paid.")).await,
        FakeModelServer::start(|_| Reply::says("Free.")).await,
    );
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("annie.toml");
    let config = format!(
        "[[backend]]\nname = \"paid\"\nprofile = \"generic\"\nbase_url = {:?}\nmodel = \"m\"\n\
         price = {{ input = 1.0, output = 1.0 }}\n\
         [[backend]]\nname = \"free\"\nprofile = \"generic\"\nbase_url = {:?}\nmodel = \"m\"\nprivacy = \"local\"\n\
         [spend]\nuser_day_usd_max = 0.000001\n",
        paid.base_url(),
        free.base_url()
    );
    std::fs::write(&path, config).expect("written");
    let server = Server::start(folder.path(), &["--config", path.to_str().expect("a path")], &[]).await;
    let sent = ask(&server, "hello").await;
    assert_eq!(sent["answer"], "Free.", "{sent}");
    assert_eq!((paid.request_count(), free.request_count()), (0, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reservation_counts_the_longest_answer_that_the_backend_is_asked_for() {
    let model = FakeModelServer::start(|_| Reply::says("Hello.")).await;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("annie.toml");
    let config = format!(
        "[[backend]]\nname = \"fake\"\nprofile = \"generic\"\nbase_url = {:?}\nmodel = \"m\"\noutput_tokens_max = 32000\n\
         [spend]\nturn_tokens_max = 30000\n",
        model.base_url()
    );
    std::fs::write(&path, config).expect("written");
    let server = Server::start(folder.path(), &["--config", path.to_str().expect("a path")], &[]).await;
    let sent = ask(&server, "tell me a long story").await;
    assert!(sent["answer"].as_str().is_some_and(|text| text.contains("turn_tokens_max")), "{sent}");
    assert_eq!(model.request_count(), 0, "the answer alone could exceed the cap");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn embeddings_count_for_the_cap_of_their_user_and_day() {
    let vectors = json!({"data": [{"index": 0, "embedding": [0.5]}], "model": "vectors",
        "usage": {"prompt_tokens": 90, "total_tokens": 90}});
    let model = FakeModelServer::start(move |_| Reply::body(200, vectors.to_string())).await;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("annie.toml");
    let config = format!(
        "[[backend]]\nname = \"fake\"\nprofile = \"generic\"\nbase_url = {:?}\nmodel = \"m\"\nembeddings = \"vectors\"\n\
         [spend]\nuser_day_tokens_max = 100\n",
        model.base_url()
    );
    std::fs::write(&path, config).expect("written");
    let server = Server::start(folder.path(), &["--config", path.to_str().expect("a path")], &[]).await;
    let body = json!({"model": "annie", "input": "x".repeat(200)});
    let (status, made) = server.post("/v1/embeddings", &body).await.expect("the server answers");
    assert_eq!(status, 200, "{made}");
    let (status, refused) = server.post("/v1/embeddings", &body).await.expect("the server answers");
    assert!(status == 429 && refused.to_string().contains("user_day_tokens_max"), "{refused}");
    assert_eq!(model.request_count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spend_settings_set_the_caps_of_a_server() {
    for (key, value, whose) in [
        ("turn_tokens_max", "10", "one request"),
        ("turn_usd_max", "0.000001", "one request"),
        ("conversation_tokens_max", "10", "one conversation"),
        ("conversation_usd_max", "0.000001", "one conversation"),
        ("user_day_tokens_max", "10", "you in one day"),
        ("user_day_usd_max", "0.000001", "you in one day"),
    ] {
        let model = FakeModelServer::start(|_| Reply::says("Hello.")).await;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("annie.toml");
        let config = format!(
            "[[backend]]\nname = \"fake\"\nprofile = \"generic\"\nbase_url = {:?}\nmodel = \"m\"\n\
             price = {{ input = 1.0, output = 1.0 }}\n[spend]\n{key} = {value}\n",
            model.base_url()
        );
        std::fs::write(&path, config).expect("written");
        let server = Server::start(folder.path(), &["--config", path.to_str().expect("a path")], &[]).await;
        let sent = ask(&server, "hello").await;
        let text = sent["answer"].as_str().unwrap_or_default();
        assert!(text.contains(key) && text.contains(whose), "{key}: {sent}");
        assert_eq!(model.request_count(), 0, "{key}: the call was not made");
    }
}
