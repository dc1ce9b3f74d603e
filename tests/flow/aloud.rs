//! Answers that are read aloud, in the answer, in the drafts of a stream, and in the log.

use annie_testkit::model_server::{FakeModelServer, Reply};
use serde_json::{Value, json};

use super::{
    bad_models::server_with,
    voice::{Steps, one_slot},
};
use crate::server::Server;

const WRITTEN: &str = "# Today 🎉\n\nYou have **two** tasks:\n- Buy `milk`\n- Call [Ann](https://example.org/ann)\n\n\
                       | Day | Time |\n|-----|------|\n| Mon | 10 |\n\nSee https://example.org.";
const SPOKEN: &str = "Today. You have two tasks: Buy milk, Call Ann. Day, Time. Mon, 10. See a link.";
const MODE: &str = "mode = \"single_loop\"\n";

async fn say(server: &Server, source: Option<&str>) -> Value {
    let mut body = json!({"text": "What is due?", "conversation_key": source.unwrap_or("written")});
    if let Some(source) = source {
        body["source"] = json!(source);
    }
    let (status, sent) = server.post("/api/v1/messages?wait=20", &body).await.expect("the server answers");
    assert_eq!(status, 200, "{sent}");
    sent
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spoken_answer_has_no_markup_and_a_written_one_keeps_it() {
    let model = FakeModelServer::start(|_| Reply::says(WRITTEN)).await;
    let (_folder, server) = server_with(&model, MODE).await;
    let sent = say(&server, Some("voice")).await;
    assert_eq!(sent["answer"], SPOKEN, "{sent}");
    let id = sent["conversation_id"].as_str().expect("an id");
    let (_, log) = server.get(&format!("/api/v1/conversations/{id}/events")).await;
    let answered = log["events"].as_array().and_then(|events| events.iter().find(|e| e["kind"] == "answered"));
    let changes = json!(["markup", "emoji", "url", "table"]);
    assert_eq!(answered.map(|event| &event["spoken"]), Some(&changes), "{log}");
    let metrics = server.http.get(format!("{}/metrics", server.url)).send().await.expect("an answer");
    let metrics = metrics.text().await.expect("text");
    assert!(metrics.contains("annie_answers_spoken_total{change=\"table\"} 1"), "{metrics}");
    let sent = say(&server, None).await;
    assert_eq!(sent["answer"], WRITTEN, "{sent}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spoken_answer_has_as_many_sentences_as_the_configuration_allows() {
    let model = FakeModelServer::start(|_| Reply::says("One. Two. **Three.** Four.")).await;
    for (settings, answer) in [
        ("[voice]\nsentences_max = 2\n", "One. Two. There is more; ask me to go on."),
        ("[voice]\nsentences_max = 0\n", "One. Two. Three. Four."),
        ("[voice]\nplain = false\n", "One. Two. **Three.** Four."),
    ] {
        let (_folder, server) = server_with(&model, &format!("{MODE}{settings}")).await;
        let sent = say(&server, Some("voice")).await;
        assert_eq!(sent["answer"], answer, "{settings}: {sent}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn drafts_of_a_spoken_answer_have_no_markup() {
    let steps = Steps::default();
    let gate = steps.clone();
    let model = FakeModelServer::start(move |_| {
        gate.wait("round");
        Reply::says(WRITTEN)
    })
    .await;
    let folder = tempfile::tempdir().expect("a folder");
    let server = one_slot(folder.path(), &model).await;
    let body = json!({"text": "What is due?", "source": "voice"});
    let (_, sent) = server.post("/api/v1/messages", &body).await.expect("the server answers");
    model.arrived(1).await;
    let id = sent["conversation_id"].as_str().expect("an id");
    let url = format!("{}/api/v1/conversations/{id}/stream?after=0", server.url);
    let mut reply = server.http.get(url).send().await.expect("the server answers");
    let mut stream = String::new();
    let mut is_open = false;
    while !stream.contains("event: answered") {
        let Ok(Some(chunk)) = reply.chunk().await else { break };
        stream.push_str(&String::from_utf8_lossy(&chunk));
        if !is_open {
            is_open = true;
            steps.allow("round", 1);
        }
    }
    let blocks = stream.split("\n\n").filter(|block| block.contains("event: draft"));
    let data = blocks.filter_map(|block| block.lines().find_map(|line| line.strip_prefix("data: ")));
    let drafts = data.filter_map(|data| serde_json::from_str::<Value>(data).ok());
    let text: String = drafts.filter_map(|draft| draft["text"].as_str().map(str::to_owned)).collect();
    assert!(text.len() > SPOKEN.len() / 2 && SPOKEN.starts_with(&text), "{text:?}: {stream}");
}
