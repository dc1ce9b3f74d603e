//! Configuration settings whose effect shows only in a whole server that has run for a while.

use annie_testkit::model_server::{FakeModelServer, Reply};
use serde_json::{Value, json};

use crate::{server::Server, world::eventually};

async fn say(server: &Server, body: &Value) -> Value {
    let (status, sent) = server.post("/api/v1/messages?wait=20", body).await.expect("the server answers");
    assert_eq!(status, 200, "{sent}");
    sent
}

async fn notifications(server: &Server) -> usize {
    let (status, sent) = server.get("/api/v1/notifications").await;
    assert_eq!(status, 200, "{sent}");
    sent["notifications"].as_array().expect("a list").len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notifications_are_deleted_after_the_configured_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let soon = [("ANNIE__NOTIFY__GATHER_MS", "1"), ("ANNIE__NOTIFY__EVERY_MS", "0")];
    let mut server = Server::start(folder.path(), &[], &soon).await;
    let work = json!({"text": "what is due?", "priority": "normal"});
    assert_eq!(server.post("/api/v1/messages", &work).await.expect("an answer").0, 202);
    eventually("the user is notified", async || (notifications(&server).await == 1).then_some(())).await;
    server.stop().await;
    // A start deletes old notifications first. The notification of this run comes after that.
    let mut server = Server::start(folder.path(), &[], &soon).await;
    assert_eq!(server.post("/api/v1/messages", &work).await.expect("an answer").0, 202);
    eventually("the user is notified again", async || (notifications(&server).await == 2).then_some(())).await;
    server.stop().await;
    let short = [soon[0], soon[1], ("ANNIE__NOTIFY__KEEP_MS", "1")];
    let server = Server::start(folder.path(), &[], &short).await;
    eventually("both are deleted", async || (notifications(&server).await == 0).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retry_from_setting_selects_the_classes_whose_failures_are_retried() {
    let model = FakeModelServer::start(|_| Reply::error(500, "oops")).await;
    // For each value of the setting: whether a failure of the classes high, normal and low is retried.
    for (from, wanted) in [("high", [true, true, true]), ("normal", [false, true, true]), ("low", [false, false, true])]
    {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("annie.toml");
        let config = format!(
            "[[backend]]\nname = \"gpu\"\nbase_url = {:?}\nmodel = \"m\"\nretries_max = 0\n[turn]\ndefer_ms = 5\n\
             [turn.dead_letters]\nretry_from = {from:?}\n[breaker]\nfailures_max = 1000\n",
            model.base_url()
        );
        std::fs::write(&path, config).expect("written");
        let server = Server::start(folder.path(), &["--config", path.to_str().expect("a path")], &[]).await;
        for (class, is_retried) in ["high", "normal", "low"].into_iter().zip(wanted) {
            let sent = say(&server, &json!({"text": "hello", "priority": class})).await;
            assert_eq!(sent["status"], "failed", "{sent}");
            let task = sent["task_id"].as_str().expect("an id");
            let (status, dead_letter) = server.get(&format!("/api/v1/dead-letters/{task}")).await;
            let wanted = if is_retried { 200 } else { 404 };
            assert_eq!(
                (status, dead_letter["retry_at"].is_string()),
                (wanted, is_retried),
                "{from}, {class}: {dead_letter}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frustrated_user_gets_a_higher_class_and_a_shorter_answer() {
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn configuration_file_in_the_data_folder_that_is_not_read_is_named_in_a_warning() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("annie.toml");
    std::fs::write(&path, "mode = \"direct\"\n").expect("written");
    let is_warned = |server: &Server| server.log().iter().any(|line| line.contains("annie.toml is not read"));
    let mut server = Server::start(folder.path(), &[], &[]).await;
    assert!(is_warned(&server), "{:?}", server.log());
    server.stop().await;
    let server = server.again(folder.path(), &["--config", path.to_str().expect("a path")], &[]).await;
    assert!(!is_warned(&server), "{:?}", server.log());
}
