//! Probes of a capable server, of servers with faults, and of one that does not answer.

use annie_core::ports::Catalog;
use annie_llm::{ModelConfig, OpenAiModel};
use annie_skillkit::FileCatalog;
use annie_testkit::model_server::{Description, FakeModelServer, Reply, Seen};
use serde_json::json;

use super::*;
use crate::system;

async fn probed(base_url: String, slots: Option<u32>, step: Duration) -> Report {
    probed_with(ModelConfig { base_url, ..ModelConfig::default() }, slots, step).await
}

async fn probed_with(config: ModelConfig, slots: Option<u32>, step: Duration) -> Report {
    let env = system::env();
    let probe = Probe { env: &env, skills: FileCatalog::bundled().skills(), timezone: "UTC".to_owned(), step };
    let config = ModelConfig { model: "fake-model".to_owned(), retries_max: 0, ..config };
    let model = OpenAiModel::new(config, env.entropy.clone()).unwrap();
    probe.run("gpu", &model, slots).await
}

fn is_everyday(seen: &Seen) -> bool {
    seen.last_user_text().contains("call the bank")
}

/// A model that does what is asked, with the tools or the commands of its prompt.
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
async fn probe_measures_capable_model_and_recognises_its_calls() {
    let server = FakeModelServer::start(able).await;
    server.describe_as(Description::llama_cpp("fake-model", 8_192, 2));
    let report = probed(server.base_url(), None, STEP).await;
    assert_eq!((&report.tool_call, &report.command), (&Some(Outcome::Well), &Some(Outcome::Well)), "{report:?}");
    assert_eq!((report.error.as_deref(), report.server.context_tokens_max), (None, Some(8_192)));
    assert!(report.first_token_ms.is_some());
    let parallel = report.parallel.as_ref().expect("the server says that it has two slots");
    assert_eq!((parallel.requests, parallel.answered), (2, 2));
    assert_eq!((server.request_count(), report.requests), (6, 6), "no more requests than reported");
    assert!(!report.reasons && report.plain == Some(Outcome::Well), "{report:?}");
    let seen = server.requests();
    assert_eq!(seen[2].tool_names(), ["get_skill", "use_skill"], "the tools of a single loop");
    assert!(seen[3].texts_of("system").join("").contains("tasks.create"), "the quick reference of the real prompt");
}

#[tokio::test]
async fn probe_detects_calls_written_as_text_and_refused_tools() {
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
    assert_eq!((&report.parallel, text.request_count()), (&None, 4));
    assert_eq!(Fit::of(&report).interface, Some("auto"), "its calls are found in its text, and it wrote no commands");
    let refuses = FakeModelServer::start(|seen| {
        if seen.tool_names().is_empty() { able(seen) } else { Reply::error(400, "gemma does not support tools") }
    })
    .await;
    let report = probed(refuses.base_url(), Some(1), STEP).await;
    assert!(matches!(report.tool_call, Some(Outcome::Refused(_))), "{report:?}");
    assert_eq!((Fit::of(&report).interface, Fit::of(&report).mode), (Some("cmd"), Some("single_loop")));
}

#[tokio::test]
async fn probe_stops_after_first_request_when_server_does_not_answer_in_time() {
    let mute = FakeModelServer::start(|_| Reply::says("never").stall_after_events(0)).await;
    let report = probed(mute.base_url(), Some(4), Duration::from_millis(100)).await;
    assert!(report.error.as_deref().unwrap_or_default().contains("no whole answer within"), "{report:?}");
    assert_eq!((mute.request_count(), report.tool_call), (1, None));
    let refuses = FakeModelServer::start(|_| Reply::error(401, "no such key")).await;
    let report = probed(refuses.base_url(), None, STEP).await;
    assert!(report.error.unwrap_or_default().contains("no such key"));
}

/// A model that reasons first: with the limit for models without reasoning, its answer is cut off before it begins.
fn thoughtful(seen: &Seen) -> Reply {
    let has_room = seen.json()["max_tokens"].as_u64().is_none_or(|tokens| tokens > 200);
    if has_room { able(seen).reasoning("The bank, on Friday.") } else { silent().reasoning("Hm, the moon") }
}

fn silent() -> Reply {
    Reply::says("").finish("length")
}

#[tokio::test]
async fn probe_gives_reasoning_model_longer_answers_and_finds_it_capable() {
    let server = FakeModelServer::start(thoughtful).await;
    server.describe_as(Description::vllm("fake-model", 4_096));
    let report = probed(server.base_url(), None, STEP).await;
    assert_eq!((report.reasons, &report.plain), (true, &Some(Outcome::Cut(200))), "{report:?}");
    assert_eq!((&report.tool_call, &report.command), (&Some(Outcome::Well), &Some(Outcome::Well)), "{report:?}");
    let fit = Fit::of(&report);
    assert_eq!(
        (fit.interface, fit.output_tokens_max),
        (Some("auto"), Some(2_048)),
        "half of the context window for the answer"
    );
    assert!(!fit.notes.join("").contains("did neither"), "{:?}", fit.notes);

    // A model whose reasoning is neither streamed nor counted.
    let hidden = FakeModelServer::start(|seen| match seen.json()["max_tokens"].as_u64() {
        Some(tokens) if tokens <= 200 => silent(),
        _ => able(seen),
    })
    .await;
    let report = probed(hidden.base_url(), Some(1), STEP).await;
    assert_eq!((report.reasons, Fit::of(&report).interface), (true, Some("auto")), "{report:?}");
    assert_eq!(Fit::of(&report).output_tokens_max, Some(8_192));
}

#[tokio::test]
async fn probe_gives_configured_reasoning_model_longer_answers_from_first_step() {
    let server = FakeModelServer::start(able).await;
    let config = ModelConfig {
        base_url: server.base_url(),
        body: [("reasoning_effort".to_owned(), json!("low"))].into(),
        ..ModelConfig::default()
    };
    let report = probed_with(config, Some(1), STEP).await;
    assert!(report.reasons, "{report:?}");
    assert_eq!(server.requests()[2].json()["max_tokens"], 8_192, "the tool call");
}

#[tokio::test]
async fn probe_failed_or_truncated_step_decides_nothing_about_model() {
    let limited = FakeModelServer::start(|seen| match (seen.number, is_everyday(seen)) {
        (_, true) if !seen.tool_names().is_empty() => Reply::rate_limited(None),
        _ => able(seen),
    })
    .await;
    let report = probed(limited.base_url(), Some(1), STEP).await;
    assert!(matches!(report.tool_call, Some(Outcome::Failed(_))), "{report:?}");
    let fit = Fit::of(&report);
    assert_eq!((fit.interface, fit.mode), (None, None), "{fit:?}");
    assert!(fit.notes.iter().any(|note| note.contains("the tool call could not be tried: ")), "{fit:?}");

    let wordy = FakeModelServer::start(|seen| {
        if is_everyday(seen) { Reply::says("Well, let us see").finish("length") } else { able(seen) }
    })
    .await;
    let report = probed(wordy.base_url(), Some(1), STEP).await;
    assert_eq!((&report.tool_call, &report.command), (&Some(Outcome::Cut(200)), &Some(Outcome::Cut(200))));
    assert_eq!((report.reasons, Fit::of(&report).interface), (false, None), "the model wrote text without reasoning");
}

#[tokio::test]
async fn probe_measures_speed_after_model_load_and_only_on_streams() {
    const LOADING: Duration = Duration::from_millis(400);
    let usage = json!({"prompt_tokens": 20_000, "completion_tokens": 3});
    let cold = FakeModelServer::start(move |seen| {
        let reply = able(seen).usage(usage.clone());
        if seen.number == 0 { reply.usage(json!({"prompt_tokens": 20})).first_after(LOADING) } else { reply }
    })
    .await;
    let report = probed(cold.base_url(), Some(1), STEP).await;
    assert!(report.input_tokens_per_s.is_none_or(|speed| speed > 1_000.0), "{report:?}");
    assert_eq!(Fit::of(&report).first_token_ms_max, None, "the model was loading; its prompt processing is fast");

    let whole =
        FakeModelServer::start(move |seen| able(seen).usage(json!({"prompt_tokens": 1})).first_after(LOADING)).await;
    let config = ModelConfig { base_url: whole.base_url(), stream: false, ..ModelConfig::default() };
    let report = probed_with(config, Some(1), STEP).await;
    assert_eq!((report.input_tokens_per_s, report.first_token_ms), (None, None), "the answer was not streamed");
    assert_eq!(Fit::of(&report).first_token_ms_max, None);
}
