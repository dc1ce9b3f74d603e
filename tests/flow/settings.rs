//! Settings of the configuration whose effect shows only in a whole server that has worked for a while.

use annie_testkit::model_server::{FakeModelServer, Reply};
use serde_json::{Value, json};

use crate::{server::Server, world::eventually};

async fn say(server: &Server, body: &Value) -> Value {
    let (status, said) = server.post("/api/v1/messages?wait=20", body).await.expect("the server answers");
    assert_eq!(status, 200, "{said}");
    said
}

async fn notifications(server: &Server) -> usize {
    let (status, said) = server.get("/api/v1/notifications").await;
    assert_eq!(status, 200, "{said}");
    said["notifications"].as_array().expect("a list").len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notifications_are_kept_as_long_as_is_said_and_then_swept_away() {
    let folder = tempfile::tempdir().expect("a folder");
    let soon = [("ANNIE__NOTIFY__GATHER_MS", "1"), ("ANNIE__NOTIFY__EVERY_MS", "0")];
    let mut server = Server::start(folder.path(), &[], &soon).await;
    let work = json!({"text": "what is due?", "priority": "normal"});
    assert_eq!(server.post("/api/v1/messages", &work).await.expect("an answer").0, 202);
    eventually("it is told", async || (notifications(&server).await == 1).then_some(())).await;
    server.stop().await;
    // A start sweeps first of all: what was told since is behind it.
    let mut server = Server::start(folder.path(), &[], &soon).await;
    assert_eq!(server.post("/api/v1/messages", &work).await.expect("an answer").0, 202);
    eventually("the second is told", async || (notifications(&server).await == 2).then_some(())).await;
    server.stop().await;
    let short = [soon[0], soon[1], ("ANNIE__NOTIFY__KEEP_MS", "1")];
    let server = Server::start(folder.path(), &[], &short).await;
    eventually("both are swept away", async || (notifications(&server).await == 0).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_which_class_on_a_failure_is_tried_again_by_itself_is_a_setting() {
    let model = FakeModelServer::start(|_| Reply::error(500, "oops")).await;
    // Of each class: whether it is tried again, with this setting.
    for (from, wanted) in [("high", [true, true, true]), ("normal", [false, true, true]), ("low", [false, false, true])]
    {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("annie.toml");
        let config = format!(
            "[[backend]]\nname = \"gpu\"\nbase_url = {:?}\nmodel = \"m\"\nretries_max = 0\n[turn]\ndefer_ms = 5\n\
             [turn.letters]\nretry_from = {from:?}\n[breaker]\nfailures_max = 1000\n",
            model.base_url()
        );
        std::fs::write(&path, config).expect("written");
        let server = Server::start(folder.path(), &["--config", path.to_str().expect("a path")], &[]).await;
        for (class, is_retried) in ["high", "normal", "low"].into_iter().zip(wanted) {
            let said = say(&server, &json!({"text": "hello", "priority": class})).await;
            assert_eq!(said["status"], "failed", "{said}");
            let task = said["task_id"].as_str().expect("an id");
            let (status, letter) = server.get(&format!("/api/v1/dead-letters/{task}")).await;
            let wanted = if is_retried { 200 } else { 404 };
            assert_eq!((status, letter["retry_at"].is_string()), (wanted, is_retried), "{from}, {class}: {letter}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_upset_is_answered_sooner_and_in_fewer_words() {
    let model = FakeModelServer::start(|_| Reply::says("Done.")).await;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("annie.toml");
    let config = format!("[[backend]]\nname = \"gpu\"\nbase_url = {:?}\nmodel = \"m\"\n", model.base_url());
    std::fs::write(&path, config).expect("written");
    let server = Server::start(folder.path(), &["--config", path.to_str().expect("a path")], &[]).await;
    let work = json!({"text": "Research heat pumps for the house"});
    let calm = say(&server, &work).await;
    let mut upset = work.clone();
    upset["emotion"] = json!({"name": "frustrated", "intensity": 0.9});
    let upset = say(&server, &upset).await;
    assert_eq!((&calm["priority"], &upset["priority"]), (&json!("normal"), &json!("high")), "{calm} {upset}");
    let asked: Vec<String> =
        model.requests().iter().map(|request| String::from_utf8_lossy(&request.body).into_owned()).collect();
    assert_eq!(asked.len(), 2);
    let is_short = |text: &String| text.contains("Answer briefly, and suggest nothing");
    assert_eq!(asked.iter().map(is_short).collect::<Vec<_>>(), [false, true], "{asked:#?}");
}
