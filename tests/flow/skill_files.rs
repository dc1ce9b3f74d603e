//! Skill files that change and vanish under a server.

use serde_json::json;

use crate::{server::Server, world::eventually};

async fn knows(server: &Server, skill: &str) -> bool {
    let (status, list) = server.get("/api/v1/skills").await;
    assert_eq!(status, 200, "{list}");
    list["skills"].as_array().expect("a list").iter().any(|one| one["name"] == skill)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_of_skills_that_is_removed_under_a_server_and_comes_back_is_read_again() {
    let data = tempfile::tempdir().expect("a folder");
    let skills = data.path().join("skills");
    let write = |text: &str| {
        std::fs::create_dir_all(skills.join("greet")).expect("made");
        std::fs::write(skills.join("greet/SKILL.md"), text).expect("written");
    };
    const WHOLE: &str = "---\nname: greet\ndescription: Greets somebody.\n---\nSay hello.\n";
    write(WHOLE);
    let server = Server::start(data.path(), &[], &[]).await;
    eventually("it is known", async || knows(&server, "greet").await.then_some(())).await;
    for half in ["---\nname: gre", "", "\u{fffd}\u{0}"] {
        std::fs::remove_dir_all(&skills).expect("removed");
        eventually("it is gone", async || (!knows(&server, "greet").await).then_some(())).await;
        assert!(knows(&server, "tasks.create").await, "what the binary brings stays");
        let said =
            server.post("/api/v1/messages?wait=20", &json!({"text": "what tasks are open?"})).await.expect("said");
        assert_eq!((said.0, &said.1["status"]), (200, &json!("completed")), "{}", said.1);
        // Half of it comes first, as with an editor that is slow.
        write(half);
        write(WHOLE);
        eventually("it is known again", async || knows(&server, "greet").await.then_some(())).await;
    }
}
