//! A whole start on a disk that is full: the server comes up to be read, says that it takes nothing, and goes on by itself
//! when there is space.

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
        let said = page["messages"].as_array().expect("a list").iter();
        texts.extend(said.filter(|m| m["role"] == "assistant").filter_map(|m| Some(m["text"].as_str()?.to_owned())));
    }
    texts
}

fn problems(ready: &Value) -> String {
    ready["problems"].to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_starts_on_a_full_disk_is_read_refuses_writes_and_recovers_by_itself() {
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
    let (status, said) = server.post("/api/v1/messages?wait=20", &body("what is due?")).await.expect("answered");
    assert_eq!((status, &said["status"]), (200, &json!("completed")), "{said}");
    let mut before = answers(&server).await;
    assert_eq!(before.len(), 1, "{before:?}");

    // After a stop in good order SQLite has to make its files anew; after a kill they are there.
    for is_kill in [false, true] {
        if is_kill {
            server.kill()
        } else {
            server.stop().await
        }
        disk.fill();
        server = server.again_beside(&data, &beside).await;
        assert_eq!(answers(&server).await, before, "what is stored is read; killed: {is_kill}");
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
        assert_eq!(server.get("/healthz").await.0, 200, "the process lives");

        disk.make_room();
        let said = eventually("a message is taken again", async || {
            let (status, said) = server.post("/api/v1/messages?wait=20", &body("what is due?")).await.ok()?;
            (status == 200).then_some(said)
        });
        assert_eq!(said.await["status"], "completed");
        eventually("it is ready again", async || (server.get("/readyz").await.0 == 200).then_some(())).await;
        let now = answers(&server).await;
        assert_eq!(now.len(), before.len() + 1, "what was refused is not carried out later: {now:?}");
        before = now;
    }
}
