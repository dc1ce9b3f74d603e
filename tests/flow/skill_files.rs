//! Skill files that change or vanish while a server runs.

use serde_json::json;

use crate::{server::Server, world::eventually};

async fn knows(server: &Server, skill: &str) -> bool {
    let (status, list) = server.get("/api/v1/skills").await;
    assert_eq!(status, 200, "{list}");
    list["skills"].as_array().expect("a list").iter().any(|one| one["name"] == skill)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn skill_folder_removed_and_restored_under_a_running_server_is_read_again() {
    let data = tempfile::tempdir().expect("a folder");
    let skills = data.path().join("skills");
    let write = |text: &str| {
        std::fs::create_dir_all(skills.join("greet")).expect("made");
        std::fs::write(skills.join("greet/SKILL.md"), text).expect("written");
    };
    const WHOLE: &str = "---\nname: greet\ndescription: Greets somebody.\n---\nSay hello.\n";
    write(WHOLE);
    let server = Server::start(data.path(), &[], &[]).await;
    eventually("the skill is known", async || knows(&server, "greet").await.then_some(())).await;
    for half in ["---\nname: gre", "", "\u{fffd}\u{0}"] {
        std::fs::remove_dir_all(&skills).expect("removed");
        eventually("the skill is gone", async || (!knows(&server, "greet").await).then_some(())).await;
        assert!(knows(&server, "tasks.create").await, "built-in skills stay");
        let sent =
            server.post("/api/v1/messages?wait=20", &json!({"text": "what tasks are open?"})).await.expect("answered");
        assert_eq!((sent.0, &sent.1["status"]), (200, &json!("completed")), "{}", sent.1);
        // Half of the file comes first, as from a slow editor.
        write(half);
        write(WHOLE);
        eventually("the skill is known again", async || knows(&server, "greet").await.then_some(())).await;
    }
}
