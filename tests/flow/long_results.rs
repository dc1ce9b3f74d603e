//! Results that are too long for a prompt, against the real binary: the model reads the rest by the handle in the notice.

use annie_testkit::model_server::{FakeModelServer, Reply, Seen};
use serde_json::json;

use super::bad_models::{ask, server_with};

/// The results that the model has been shown in this turn.
fn results(seen: &Seen) -> Vec<String> {
    let messages = seen.messages();
    let own = messages.iter().rev().take_while(|message| message["role"] != "user");
    let mut texts: Vec<String> = own
        .filter(|message| message["role"] == "tool")
        .map(|message| message["content"].as_str().unwrap_or_default().to_owned())
        .collect();
    texts.reverse();
    texts
}

fn run(skill: &str, arguments: &serde_json::Value) -> Reply {
    Reply::calls([("use_skill", json!({"skill": skill, "arguments": arguments}))])
}

/// The offset in the notice of a cut result.
fn next_offset(result: &str) -> Option<u64> {
    let notice = result.rsplit_once("[cut: ")?.1;
    let digits = notice.split("\"offset\":").nth(1)?;
    digits.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn model_reads_a_result_longer_than_its_prompt_to_the_end() {
    let line = "a line of the note that is rather long, ".repeat(5);
    let text = format!("{}THE END", format!("{line}\n").repeat(100));
    let model = FakeModelServer::start(move |seen| {
        let shown = results(seen);
        match shown.last() {
            None => run("notes.create", &json!({"title": "Long", "content": text})),
            Some(_) if shown.len() == 1 => run("notes.read", &json!({"title": "Long"})),
            Some(last) => match next_offset(last) {
                Some(offset) => run("system.read_result", &json!({"id": "r1", "offset": offset})),
                None => Reply::says(if last.contains("THE END") { "I read the end." } else { "It is cut." }),
            },
        }
    })
    .await;
    let (_folder, server) = server_with(&model, "mode = \"single_loop\"\n").await;
    let sent = ask(&server, "Write the long note \"Long\" and read it to the end").await;
    assert!(sent["answer"].as_str().unwrap_or_default().contains("I read the end."), "{sent}");
    assert!(model.request_count() >= 5, "{} rounds", model.request_count());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turn_that_continues_a_paused_one_reads_the_rest_of_its_results() {
    let line = "a line of the note that is rather long, ".repeat(5);
    let text = format!("{line}\n").repeat(100);
    let model = FakeModelServer::start(move |seen| {
        let (shown, said) = (results(seen), seen.last_user_text());
        match (shown.len(), shown.last()) {
            (0, _) if said.contains("continue") => run("system.read_result", &json!({"id": "r1", "offset": 100})),
            (_, Some(last)) if said.contains("continue") => {
                Reply::says(if last.contains("r1 from character 100") { "I read it." } else { "It is gone." })
            }
            (0, _) if said.contains("Write") => run("notes.create", &json!({"title": "Long", "content": text})),
            (_, _) if said.contains("Write") => Reply::says("It is written."),
            (0, _) => run("notes.read", &json!({"title": "Long"})),
            _ => run("notes.list", &json!({})),
        }
    })
    .await;
    let settings = "mode = \"single_loop\"\n[turn]\nsingle_loop_calls_max = 1\n";
    let (_folder, server) = server_with(&model, settings).await;
    ask(&server, "Write the long note \"Long\"").await;
    let say = async |text: &str| {
        let body = json!({"text": text, "conversation_key": "reader"});
        server.post("/api/v1/messages?wait=20", &body).await.expect("the server answers").1
    };
    let first = say("Read the note \"Long\"").await;
    assert_eq!(first["paused"], true, "{first}");
    let sent = say("continue").await;
    assert!(sent["answer"].as_str().unwrap_or_default().contains("I read it."), "{first} {sent}");
}
