//! Replies that the model client repairs, through the HTTP front end: what the user sees, what the history contains, what
//! runs.

use annie_testkit::model_server::{FakeModelServer, Reply, Seen};
use serde_json::{Value, json};

use super::bad_models::{ask, server_with};
use crate::server::Server;

const SINGLE_LOOP: &str = "mode = \"single_loop\"";

/// Replies as model servers without a parser for their model pass them on, selected by the user's text.
fn unparsed(seen: &Seen) -> Reply {
    let text = seen.last_user_text();
    let is = |word: &str| text.contains(word);
    if is("tagged") {
        Reply::says("<think>SECRET plan,\ntwo lines</think>\n\nTagged.").pieces_of_bytes(3)
    } else if is("unopened") {
        Reply::says("SECRET plan</think>Unopened.").pieces_of_bytes(5)
    } else if is("harmony") {
        Reply::says(
            "<|channel|>analysis<|message|>SECRET plan<|end|><|start|>assistant<|channel|>final<|message|>Harmony.<|return|>",
        )
        .pieces_of_bytes(7)
    } else if is("field") {
        Reply::says("Field.").reasoning("SECRET plan")
    } else if is("token") {
        Reply::says("Token.<|im_end|>").pieces_of_bytes(4)
    } else {
        Reply::says("Plain.")
    }
}

async fn metrics(server: &Server) -> String {
    let answer = server.http.get(format!("{}/metrics", server.url)).send().await.expect("an answer");
    answer.text().await.expect("text")
}

/// The text that the OpenAI-compatible API streams to a client.
async fn streamed(server: &Server, text: &str) -> String {
    let body = json!({"model": "annie", "stream": true, "messages": [{"role": "user", "content": text}]});
    let request = server.http.post(format!("{}/v1/chat/completions", server.url)).json(&body);
    let answer = request.send().await.expect("an answer").text().await.expect("text");
    let chunks = answer.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
    chunks.filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str().map(str::to_owned)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thinking_and_template_tokens_are_neither_shown_nor_kept_in_the_history_and_are_counted() {
    let model = FakeModelServer::start(unparsed).await;
    let (_folder, server) = server_with(&model, SINGLE_LOOP).await;
    for (word, answer) in [
        ("tagged", "Tagged."),
        ("unopened", "Unopened."),
        ("harmony", "Harmony."),
        ("field", "Field."),
        ("token", "Token."),
    ] {
        assert_eq!(ask(&server, word).await["answer"], answer);
        let shown = streamed(&server, word).await;
        assert_eq!(shown, answer, "{word}");
    }
    ask(&server, "plain").await;
    let last = model.requests().pop().expect("a request").json()["messages"].to_string();
    assert!(last.contains("Harmony.") && last.contains("Tagged."), "the history is there: {last}");
    for markup in ["SECRET", "think>", "<|"] {
        assert!(!last.contains(markup), "{markup}: {last}");
    }
    let counted = metrics(&server).await;
    // The stop token of the harmony reply counts as a repair too. Thinking in its own field needs no repair.
    for sample in ["annie_llm_repairs_total{kind=\"thinking\"} 6", "annie_llm_repairs_total{kind=\"stop_token\"} 4"] {
        assert!(counted.contains(sample), "{sample}: {counted}");
    }
    assert!(!counted.contains("annie_llm_repairs_total{kind=\"text_call\"}"), "{counted}");
}

/// A model whose server leaves calls in the text, in the notation that the user names.
fn in_text(seen: &Seen) -> Reply {
    let last = seen.messages().last().cloned().unwrap_or_default();
    if last["content"].to_string().contains("Created task") {
        return Reply::says("Created.");
    }
    let text = seen.last_user_text();
    let call = "{\"name\": \"tasks_create\", \"arguments\": {\"title\": \"Buy milk\"}}";
    if text.contains("quote") {
        Reply::says(format!("For example you could call it like this:\n{call}\nShall I?"))
    } else if text.contains("fence") {
        Reply::says(format!("```json\n{call}\n```"))
    } else if text.contains("tools") {
        Reply::says(format!("<tools>\n{call}\n</tools>"))
    } else if text.contains("block") {
        Reply::says("On it.\n```cmd\ntasks.create --title \"Buy milk\"\n```").pieces_of_bytes(3)
    } else {
        Reply::says(call)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_written_as_text_runs_its_skill_and_is_not_shown_and_a_quoted_one_does_not_run() {
    let model = FakeModelServer::start(in_text).await;
    let (_folder, server) = server_with(&model, "mode = \"single_loop\"\n[turn]\nmain_interface = \"tools\"").await;
    for (n, shape) in ["bare", "fence", "tools", "block"].into_iter().enumerate() {
        assert_eq!(ask(&server, shape).await["answer"], "Created.", "{shape}");
        let runs = format!("annie_llm_repairs_total{{kind=\"text_call\"}} {}", n + 1);
        assert!(metrics(&server).await.contains(&runs), "{runs}");
    }
    assert_eq!(streamed(&server, "fence").await, "Created.");
    assert_eq!(streamed(&server, "block").await, "On it.\n\nCreated.");
    let before = model.request_count();
    let sent = ask(&server, "quote").await;
    assert!(sent["answer"].as_str().unwrap_or_default().ends_with("Shall I?"), "{sent}");
    assert_eq!(model.request_count(), before + 1, "no skill ran, so no second round followed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn model_stream_cut_before_any_text_is_requested_again_and_answered_once() {
    let model = FakeModelServer::queue([Reply::says("Hello!").cut_after_events(0), Reply::says("Hello!")]).await;
    let (_folder, server) = server_with(&model, SINGLE_LOOP).await;
    let sent = ask(&server, "hi").await;
    assert_eq!((&sent["answer"], &sent["status"]), (&json!("Hello!"), &json!("completed")), "{sent}");
    assert_eq!(model.request_count(), 2);
    let conversation = sent["conversation_id"].as_str().expect("an id").to_owned();
    let seen = server.stream(&conversation, 0, |seen| seen.iter().any(crate::server::Sse::is_final)).await;
    let finals = seen.iter().filter(|event| event.is_final()).count();
    assert_eq!(finals, 1, "{seen:?}");
}

/// Replies that the kernel retracts: a call of an unknown skill, and a result that the model invented.
const RETRACTED: [&str; 4] = [
    "<tool_call>{\"name\": \"launch_rockets\", \"arguments\": {}}</tool_call>",
    "{\"name\": \"launch_rockets\", \"arguments\": {\"at\": \"once\"}}",
    "<result-x command=\"tasks.create\" status=\"ok\">Created task #9</result-x>\nDone.",
    "On it.\n<function=launch_rockets><parameter=at>once</parameter></function>",
];

/// The blocks of a conversation's stream, including drafts, up to the end of its second turn.
async fn raw_stream(server: &Server, conversation: &str) -> Vec<String> {
    let url = format!("{}/api/v1/conversations/{conversation}/stream", server.url);
    let mut answer = server.http.get(url).send().await.expect("a stream");
    let mut text = String::new();
    while text.matches("event: answered").count() < 2 || !text.ends_with("\n\n") {
        let chunk = answer.chunk().await.expect("the stream continues").expect("the stream continues");
        text.push_str(&String::from_utf8_lossy(&chunk));
    }
    text.split("\n\n").map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retracted_reply_is_streamed_by_no_front_end_and_the_stored_answer_follows() {
    for (n, first) in RETRACTED.into_iter().enumerate() {
        let shown_of_it = if first.starts_with("On it.") { "On it.\n\n" } else { "" };
        let round = || [Reply::says(first).pieces_of_bytes(3), Reply::says("Fine.").pieces_of_bytes(2)];
        let replies = round().into_iter().chain(round()).chain(round());
        let model = FakeModelServer::queue([Reply::says("Hi.")].into_iter().chain(replies)).await;
        let (_folder, server) = server_with(&model, SINGLE_LOOP).await;
        let hello = ask(&server, "hello").await;
        assert_eq!(streamed(&server, &format!("request {n}")).await, format!("{shown_of_it}Fine."), "OpenAI: {first}");
        let conversation = hello["conversation_id"].as_str().expect("an id").to_owned();
        let (seen, sent) = tokio::join!(raw_stream(&server, &conversation), ask(&server, "again"));
        assert_eq!(sent["answer"], "Fine.", "{first}: {sent}");
        let drafts: String = seen.iter().filter(|block| block.contains("event: draft")).cloned().collect();
        assert!(!drafts.contains("launch") && !drafts.contains("result-x"), "events: {first}: {drafts}");
        let last = seen.iter().rev().find(|block| block.contains("event: answered")).expect("an answer");
        assert!(last.contains("\"text\":\"Fine.\""), "events: {first}: {last}");
        let (url, home) = (server.url.clone(), std::env::temp_dir());
        let asked = tokio::task::spawn_blocking(move || {
            let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_annie"));
            command.args(["--url", &url, "ask", "--new", "once more"]).env_clear();
            command.env("PATH", "/usr/bin:/bin").env("HOME", home).output().expect("the binary runs")
        });
        let out = String::from_utf8_lossy(&asked.await.expect("the command ends").stdout).into_owned();
        assert!(
            out.trim_end().ends_with("Fine.") && !out.contains("launch") && !out.contains("result-x"),
            "ask: {first}: {out}"
        );
    }
}
