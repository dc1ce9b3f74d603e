//! Probing a server that behaves, one that does not, and one that is not there.

use annie_core::ports::Catalog;
use annie_llm::{ModelConfig, OpenAiModel};
use annie_skillkit::FileCatalog;
use annie_testkit::model_server::{Description, FakeModelServer, Reply, Seen};
use serde_json::json;

use super::*;
use crate::system;

async fn probed(base_url: String, slots: Option<u32>, step: Duration) -> Report {
    let env = system::env();
    let probe = Probe { env: &env, skills: FileCatalog::bundled().skills(), timezone: "UTC".to_owned(), step };
    let config = ModelConfig { base_url, model: "fake-model".to_owned(), retries_max: 0, ..ModelConfig::default() };
    let model = OpenAiModel::new(config, env.entropy.clone()).unwrap();
    probe.run("gpu", &model, slots).await
}

fn is_everyday(seen: &Seen) -> bool {
    seen.last_user_text().contains("call the bank")
}

/// A model that does what it is asked, by the tools or the commands that its prompt tells it of.
fn able(seen: &Seen) -> Reply {
    let call = json!({"skill": "tasks.create", "arguments": {"title": "Call the bank", "due": "friday"}});
    match (is_everyday(seen), seen.tool_names().is_empty()) {
        (false, _) => Reply::says("The moon is a rock. It is round. It goes around us."),
        (true, false) => Reply::calls([("use_skill", call)]),
        (true, true) => Reply::says("```cmd\ntasks.create --title \"Call the bank\" --due friday\n```"),
    }
}

const STEP: Duration = Duration::from_secs(20);

#[tokio::test]
async fn able_model_is_measured_and_its_calls_are_recognised() {
    let server = FakeModelServer::start(able).await;
    server.describe_as(Description::llama_cpp("fake-model", 8_192, 2));
    let report = probed(server.base_url(), None, STEP).await;
    assert_eq!((&report.tool_call, &report.command), (&Some(Outcome::Well), &Some(Outcome::Well)), "{report:?}");
    assert_eq!((report.error.as_deref(), report.server.context_tokens_max), (None, Some(8_192)));
    assert!(report.first_token_ms.is_some());
    let parallel = report.parallel.expect("the server says that it has two slots");
    assert_eq!((parallel.requests, parallel.answered), (2, 2));
    assert_eq!((server.request_count(), report.requests), (5, 5), "no request that was not announced");
    let seen = server.requests();
    assert_eq!(seen[1].tool_names(), ["get_skill", "use_skill"], "the tools of a single loop");
    assert!(seen[2].texts_of("system").join("").contains("tasks.create"), "the quick reference of the real prompt");
}

#[tokio::test]
async fn model_that_writes_calls_as_text_or_refuses_tools_is_found_out() {
    let text = FakeModelServer::start(|seen| match (is_everyday(seen), seen.tool_names().is_empty()) {
        (true, false) => {
            Reply::says("{\"name\": \"use_skill\", \"arguments\": {\"skill\": \"tasks.create\", \"arguments\": {}}}")
        }
        (true, true) => Reply::says("I will remind you on Friday!"),
        (false, _) => Reply::says("A rock."),
    })
    .await;
    let report = probed(text.base_url(), Some(1), STEP).await;
    assert_eq!(report.tool_call, Some(Outcome::AsText), "{report:?}");
    assert_eq!(report.command, Some(Outcome::Not("I will remind you on Friday!".into())));
    assert_eq!((report.parallel, text.request_count()), (None, 3));
    let refuses = FakeModelServer::start(|seen| {
        if seen.tool_names().is_empty() { able(seen) } else { Reply::error(400, "gemma does not support tools") }
    })
    .await;
    let report = probed(refuses.base_url(), Some(1), STEP).await;
    assert!(matches!(report.tool_call, Some(Outcome::Refused(_))), "{report:?}");
    assert_eq!((Fit::of(&report).interface, Fit::of(&report).mode), ("cmd", Some("single_loop")));
}

#[tokio::test]
async fn server_that_does_not_answer_in_time_cannot_be_used_and_is_asked_once() {
    let mute = FakeModelServer::start(|_| Reply::says("never").stall_after_events(0)).await;
    let report = probed(mute.base_url(), Some(4), Duration::from_millis(100)).await;
    assert!(report.error.as_deref().unwrap_or_default().contains("no whole answer within"), "{report:?}");
    assert_eq!((mute.request_count(), report.tool_call), (1, None));
    let refuses = FakeModelServer::start(|_| Reply::error(401, "no such key")).await;
    let report = probed(refuses.base_url(), None, STEP).await;
    assert!(report.error.unwrap_or_default().contains("no such key"));
}
