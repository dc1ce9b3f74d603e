//! The process is killed while a model writes the summary of a conversation: the compaction is asked for again and recorded once,
//! and no turn is lost.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use annie_testkit::model_server::{FakeModelServer, Reply};
use serde_json::{Value, json};

use crate::{
    flow::compaction::{asks_for_summary, compactions},
    server::Server,
    world::eventually,
};

async fn ask(server: &Server, text: &str) -> Value {
    let body = json!({"text": text, "conversation_key": "k"});
    let (status, sent) = server.post("/api/v1/messages?wait=20", &body).await.expect("the server answers");
    assert_eq!((status, &sent["answer"]), (200, &json!("ok")), "{sent}");
    sent
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process_killed_during_compaction_records_it_once_in_its_next_run() {
    let summaries = Arc::new(AtomicU64::new(0));
    let asked = Arc::clone(&summaries);
    let model = FakeModelServer::start(move |seen| {
        if !asks_for_summary(seen) {
            return Reply::says("ok");
        }
        match asked.fetch_add(1, SeqCst) {
            0 => Reply::says("LOST").first_after(Duration::from_secs(60)),
            _ => Reply::says("KEPT"),
        }
    })
    .await;
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("annie.toml");
    let text = format!(
        "mode = \"single_loop\"\n[turn]\ncompaction_messages = 4\ncompaction_overlap_messages = 1\n[[backend]]\nname = \
         \"fake\"\nprofile = \"generic\"\nbase_url = \"{}\"\nmodel = \"m\"\nslots = 2\n",
        model.base_url()
    );
    std::fs::write(&config, text).expect("the configuration is written");
    let path = config.to_str().expect("a path").to_owned();
    let mut first = Server::start(folder.path(), &["--config", &path], &[]).await;
    ask(&first, "count ONE").await;
    ask(&first, "count TWO").await;
    let is_asked = || (summaries.load(SeqCst) == 1).then_some(());
    eventually("a summary is written", async || is_asked()).await;
    // A turn does not wait for the summary.
    ask(&first, "count THREE").await;
    first.kill();

    let second = first.again(folder.path(), &["--config", &path], &[]).await;
    let sent = ask(&second, "count FOUR").await;
    let done = compactions(&second, &sent, 1).await;
    assert_eq!((&done[0]["number"], &done[0]["summary"]), (&json!(1), &json!("KEPT")), "{done:?}");
    assert_eq!(done[0]["messages"], 4, "it covers what it covered before: {done:?}");
    // Four messages have come since, so the next one follows, under the next number.
    let done = compactions(&second, &ask(&second, "count FIVE").await, 2).await;
    let numbers: Vec<&Value> = done.iter().map(|event| &event["number"]).collect();
    assert_eq!(numbers, [&json!(1), &json!(2)], "{done:?}");
}
