//! Tests of server descriptions, queried over HTTP.

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
async fn client_identifies_usual_servers_by_their_descriptions() {
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
async fn describe_tolerates_missing_routes() {
    let of = |description| facts_of(description, |_| ());
    let (bare, _) = of(Description::llama_cpp("fake-model", 8_192, 2).without("/props")).await;
    assert_eq!((bare.profile.as_str(), bare.context_tokens_max, bare.slots), ("llamacpp", None, None));
    assert_eq!(bare.trained_tokens_max, Some(32_768), "the trained window is not the configured window");
    let (unnamed, _) = of(Description::llama_cpp("fake-model", 8_192, 2).without("/v1/models")).await;
    assert_eq!((unnamed.profile.as_str(), unnamed.context_tokens_max), ("llamacpp", Some(8_192)));
    let (unnamed, _) = of(Description::ollama("fake-model", 6_000, true).without("/v1/models")).await;
    assert_eq!((unnamed.profile.as_str(), unnamed.context_tokens_max), ("ollama", Some(6_000)));
    let (mute, _) = of(Description::default()).await;
    assert_eq!(mute, ServerFacts { profile: "generic".to_owned(), ..ServerFacts::default() });
}

#[tokio::test]
async fn describe_gives_up_oversized_and_endless_answers() {
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
async fn learned_profile_applies_to_requests_unless_one_is_configured() {
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

/// Queries a model whose server gives a new description.
async fn described(model: &OpenAiModel, server: &FakeModelServer, description: Description) -> ServerFacts {
    server.describe_as(description);
    model.describe().await.unwrap()
}

#[tokio::test]
async fn requests_use_profile_of_current_server() {
    let server = FakeModelServer::start(|_| Reply::says("ok")).await;
    let model = model(config(&server));
    for (description, profile, from, asks_parallel) in [
        (Description::llama_cpp("fake-model", 8_192, 1), "llamacpp", Origin::Server, true),
        (Description::vllm("fake-model", 8_192), "vllm", Origin::Server, false),
        (Description::llama_cpp("fake-model", 8_192, 1), "llamacpp", Origin::Server, true),
        (Description::default(), "llamacpp", Origin::Server, true),
        (Description::lm_studio("fake-model", 8_192), "generic", Origin::Default, false),
    ] {
        let facts = described(&model, &server, description).await;
        assert_eq!((facts.profile.as_str(), facts.profile_from), (profile, from));
        model.call(&with_tools(), Arc::new(|_| ())).await.unwrap();
        let sent = server.requests().pop().unwrap().json();
        assert_eq!(sent["parallel_tool_calls"] == true, asks_parallel, "{profile}");
    }
}

#[tokio::test]
async fn parameters_refused_by_one_model_are_sent_to_the_next() {
    let server = FakeModelServer::start(|seen| {
        let is_first = seen.number < 4;
        if is_first && roles(seen).contains(&"system".to_owned()) {
            Reply::error(400, "System role not supported")
        } else if is_first && !seen.json()["seed"].is_null() {
            Reply::error(400, "Unknown parameter: 'seed'.")
        } else {
            Reply::says("hm</think>fine")
        }
    })
    .await;
    let model = model(config(&server));
    let with_parameters = |size: u64| Description::vllm("fake-model", 8_192).entry("meta", json!({"n_params": size}));
    let mut request = ModelRequest { messages: vec![Message::user("hello")], ..with_many_roles() };
    request.options.sampling.seed = Some(7);
    let sent = async |model: &OpenAiModel| {
        assert_eq!(model.call(&request, Arc::new(|_| ())).await.unwrap().text, "fine");
        let last = server.requests().pop().unwrap();
        (roles(&last).contains(&"system".to_owned()), last.json()["seed"] == 7)
    };
    described(&model, &server, with_parameters(1_000)).await;
    assert_eq!(sent(&model).await, (false, false), "both are refused");
    described(&model, &server, with_parameters(1_000)).await;
    assert_eq!((sent(&model).await, server.request_count()), ((false, false), 4), "the same model");
    assert!(model.learned.known().begins_thinking);
    described(&model, &server, with_parameters(2_000)).await;
    assert!(!model.learned.known().begins_thinking);
    assert_eq!((sent(&model).await, server.request_count()), ((true, true), 5), "another model takes them");
}

#[tokio::test]
async fn configured_profile_does_not_set_server_name() {
    let of = |description, profile| facts_of(description, move |config| config.profile = profile);
    for profile in [Profile::LlamaCpp, Profile::Vllm, Profile::Ollama] {
        let (silent, _) = of(Description::default(), profile).await;
        assert_eq!(silent.server, None, "{profile:?}");
        let (other, _) = of(Description::vllm("fake-model", 8_192).entry("owned_by", json!("openai")), profile).await;
        assert_eq!(other.server.as_deref(), Some("openai"), "{profile:?}");
    }
    let unnamed = Description::llama_cpp("fake-model", 8_192, 1).without("/v1/models");
    assert_eq!(of(unnamed, Profile::LlamaCpp).await.0.server.as_deref(), Some("llama.cpp"), "its own route answers");
    let unnamed = Description::vllm("fake-model", 8_192).without("/v1/models");
    assert_eq!(of(unnamed, Profile::Vllm).await.0.server.as_deref(), Some("vLLM"));
}

#[tokio::test]
async fn client_withholds_first_thinking_if_template_opens_it_and_streams_if_thinking_is_separate() {
    let shown = async |reply: Reply| {
        let server = FakeModelServer::start(move |_| reply.clone()).await;
        let template = json!("{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}{% endif %}");
        let model = model(config(&server));
        described(&model, &server, Description::llama_cpp("fake-model", 8_192, 1).prop("chat_template", template))
            .await;
        let (sender, receiver) = std::sync::mpsc::channel();
        model.call(&request(), Arc::new(move |d| drop(sender.send(d)))).await.unwrap();
        receiver
            .try_iter()
            .filter_map(|d| if let Draft::Text(text) = d { Some(text) } else { None })
            .filter(|text| !text.is_empty())
            .collect::<Vec<_>>()
    };
    assert_eq!(shown(Reply::says("secret</think>Hi")).await, ["Hi"]);
    let apart = shown(Reply::says("Hello there, you").reasoning("hm").pieces_of_bytes(4)).await;
    assert_eq!((apart.len(), apart.concat().as_str()), (4, "Hello there, you"), "it streams");
}

#[tokio::test]
async fn client_keeps_withholding_thinking_after_reply_with_only_calls() {
    let calls = Reply::calls([("use_skill", json!({"skill": "tasks.create", "arguments": {}}))]);
    let server = FakeModelServer::queue([Reply::says("hm</think>Hi"), calls, Reply::says("hm</think>Hi")]).await;
    let model = model(config(&server));
    let mut shown = String::new();
    for _ in 0..3 {
        let (sender, receiver) = std::sync::mpsc::channel();
        model.call(&with_tools(), Arc::new(move |d| drop(sender.send(d)))).await.unwrap();
        shown = receiver.try_iter().map(|d| if let Draft::Text(text) = d { text } else { String::new() }).collect();
    }
    assert_eq!(shown, "Hi", "the third reply");
}
