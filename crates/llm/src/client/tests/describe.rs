//! What servers say of themselves, asked over the wire.

use annie_core::ports::{Origin, ServerFacts};
use annie_testkit::model_server::Description;

use super::*;

async fn facts_of(description: Description, change: impl FnOnce(&mut ModelConfig)) -> (ServerFacts, OpenAiModel) {
    let server = FakeModelServer::start(|_| Reply::says("ok")).await;
    server.describe_as(description);
    let mut config = config(&server);
    change(&mut config);
    let model = model(config);
    (model.describe().await.unwrap(), model)
}

#[tokio::test]
async fn each_of_the_usual_servers_is_known_by_what_it_says_of_itself() {
    let of = |description| facts_of(description, |_| ());
    let (llama, _) = of(Description::llama_cpp("fake-model", 8_192, 2)).await;
    assert_eq!((llama.server.as_deref(), llama.profile.as_str()), (Some("llama.cpp"), "llamacpp"));
    assert_eq!((llama.context_tokens_max, llama.slots, llama.tools), (Some(8_192), Some(2), Some(true)));
    assert_eq!((llama.profile_from, llama.version.as_deref()), (Origin::Server, Some("b5200-0123abc")));
    let (vllm, _) = of(Description::vllm("fake-model", 40_960)).await;
    assert_eq!((vllm.profile.as_str(), vllm.context_tokens_max), ("vllm", Some(40_960)));
    assert_eq!((vllm.version.as_deref(), vllm.slots, vllm.tools), (Some("0.33.0"), None, None));
    let (ollama, _) = of(Description::ollama("fake-model", 6_000, false)).await;
    assert_eq!(
        (ollama.profile.as_str(), ollama.context_tokens_max, ollama.tools),
        ("ollama", Some(6_000), Some(false))
    );
    let (studio, _) = of(Description::lm_studio("fake-model", 5_000)).await;
    assert_eq!((studio.server.as_deref(), studio.profile.as_str()), (Some("LM Studio"), "generic"));
    assert_eq!((studio.context_tokens_max, studio.tools), (Some(5_000), Some(true)));
}

#[tokio::test]
async fn route_that_a_server_does_not_have_is_no_error() {
    let of = |description| facts_of(description, |_| ());
    let (bare, _) = of(Description::llama_cpp("fake-model", 8_192, 2).without("/props")).await;
    assert_eq!((bare.profile.as_str(), bare.context_tokens_max, bare.slots), ("llamacpp", None, None));
    assert_eq!(bare.trained_tokens_max, Some(32_768), "what it was trained for is not what it is run with");
    let (unnamed, _) = of(Description::llama_cpp("fake-model", 8_192, 2).without("/v1/models")).await;
    assert_eq!((unnamed.profile.as_str(), unnamed.context_tokens_max), ("llamacpp", Some(8_192)));
    let (unnamed, _) = of(Description::ollama("fake-model", 6_000, true).without("/v1/models")).await;
    assert_eq!((unnamed.profile.as_str(), unnamed.context_tokens_max), ("ollama", Some(6_000)));
    let (mute, _) = of(Description::default()).await;
    assert_eq!(mute, ServerFacts { profile: "generic".to_owned(), ..ServerFacts::default() });
}

#[tokio::test]
async fn answers_that_are_too_large_or_never_end_are_given_up() {
    let server = FakeModelServer::start(|_| Reply::says("ok")).await;
    let model = model(ModelConfig { check_ms_max: 50, ..config(&server) });
    let flood = format!("{{\"data\": [], \"padding\": \"{}\"}}", "x".repeat(2 * 1024 * 1024));
    for reply in [Reply::body(200, flood), Reply::says("slow").stall_after_events(0), Reply::body(200, "no JSON")] {
        server.answer_probes_with(reply);
        let facts = model.describe().await.unwrap();
        assert_eq!(facts, ServerFacts { profile: "generic".to_owned(), ..ServerFacts::default() });
    }
}

#[tokio::test]
async fn learned_profile_counts_for_requests_and_a_configured_one_is_kept() {
    let asks_parallel = async |change: &dyn Fn(&mut ModelConfig)| {
        let server = FakeModelServer::start(|_| Reply::says("ok")).await;
        server.describe_as(Description::llama_cpp("fake-model", 8_192, 1));
        let mut config = config(&server);
        change(&mut config);
        let model = model(config);
        let facts = model.describe().await.unwrap();
        model.call(&with_tools(), Arc::new(|_| ())).await.unwrap();
        (server.requests()[0].json()["parallel_tool_calls"] == true, facts.profile, facts.profile_from)
    };
    assert_eq!(asks_parallel(&|_| ()).await, (true, "llamacpp".to_owned(), Origin::Server));
    let chosen = asks_parallel(&|config| config.is_profile_set = true).await;
    assert_eq!(chosen, (false, "generic".to_owned(), Origin::Configured));
    let other = asks_parallel(&|config| config.profile = Profile::Vllm).await;
    assert_eq!(other, (false, "vllm".to_owned(), Origin::Configured));
}
