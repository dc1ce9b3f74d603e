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
