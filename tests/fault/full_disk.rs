//! A complete start on a full disk: the server starts, serves reads, reports that it accepts no messages, and recovers by
//! itself when there is space.

use serde_json::{Value, json};

use crate::{server::Server, soak::database::SmallDisk, world::eventually};

/// The size of the disk, in megabytes.
const DISK_MB: u32 = 6;

async fn answers(server: &Server) -> Vec<String> {
    let (status, talks) = server.get("/api/v1/conversations").await;
    assert_eq!(status, 200, "{talks}");
    let mut texts = Vec::new();
    for talk in talks["conversations"].as_array().expect("a list") {
        let id = talk["id"].as_str().expect("an id");
        let (status, page) = server.get(&format!("/api/v1/conversations/{id}/messages")).await;
        assert_eq!(status, 200, "{page}");
        let sent = page["messages"].as_array().expect("a list").iter();
        texts.extend(sent.filter(|m| m["role"] == "assistant").filter_map(|m| Some(m["text"].as_str()?.to_owned())));
    }
    texts
}

fn problems(ready: &Value) -> String {
    ready["problems"].to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_started_on_a_full_disk_serves_reads_refuses_writes_and_recovers() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(disk) = SmallDisk::mount(&folder.path().join("disk"), DISK_MB) else {
        annie_testkit::skip::skipped(
            "a full disk needs a tmpfs of its own, which only root may mount: run this as root",
        );
        return;
    };
    let (data, beside) = (disk.folder.join("data"), folder.path().join("beside"));
    for folder in [&data, &beside] {
        std::fs::create_dir(folder).expect("a folder");
    }
    let mut server = Server::start(&data, &[], &[]).await;
    let body = |text: &str| json!({ "text": text, "conversation_key": "k" });
    let (status, sent) = server.post("/api/v1/messages?wait=20", &body("what is due?")).await.expect("answered");
    assert_eq!((status, &sent["status"]), (200, &json!("completed")), "{sent}");
    let mut before = answers(&server).await;
    assert_eq!(before.len(), 1, "{before:?}");

    // After an orderly stop SQLite must create its files anew. After a kill they still exist.
    for is_kill in [false, true] {
        if is_kill {
            server.kill()
        } else {
            server.stop().await
        }
        disk.fill();
        server = server.restart_with_ready_file_in(&data, &beside).await;
        assert_eq!(answers(&server).await, before, "stored messages are readable; killed: {is_kill}");
        let (status, refused) =
            server.post("/api/v1/messages", &body("create a task to rest")).await.expect("answered");
        assert_eq!((status, &refused["code"]), (503, &json!("unavailable")), "{refused}");
        assert!(
            refused["detail"].as_str().is_some_and(|why| why.contains("the disk or its limit is full")),
            "{refused}"
        );
        let (status, ready) = server.get("/readyz").await;
        assert_eq!((status, &ready["ready"]), (503, &json!(false)), "{ready}");
        assert!(problems(&ready).contains("full"), "{ready}");
        assert_eq!(server.get("/healthz").await.0, 200, "the process is alive");

        disk.free_space();
        let sent = eventually("a message is accepted again", async || {
            let (status, sent) = server.post("/api/v1/messages?wait=20", &body("what is due?")).await.ok()?;
            (status == 200).then_some(sent)
        });
        assert_eq!(sent.await["status"], "completed");
        eventually("the server is ready again", async || (server.get("/readyz").await.0 == 200).then_some(())).await;
        let now = answers(&server).await;
        assert_eq!(now.len(), before.len() + 1, "a refused message is not run later: {now:?}");
        before = now;
    }
}
