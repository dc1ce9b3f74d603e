//! The reasoning effort of an agent, of a workflow's step and of a prompt skill, against the real binary.

use annie_testkit::model_server::{FakeModelServer, Reply, Seen};
use serde_json::{Value, json};

use super::{bad_models::ask, prompt_skills, workflows};
use crate::{server::Server, world::eventually};

fn effort(seen: &Seen) -> Value {
    seen.json()["reasoning_effort"].clone()
}

fn is_sub(seen: &Seen) -> bool {
    seen.texts_of("user").first().is_some_and(|text| text.contains("MISSION: "))
}

/// A server whose backend has a field for the effort.
async fn serve(model: &FakeModelServer, more: &str) -> (tempfile::TempDir, Server) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("annie.toml");
    let text = format!(
        "{more}\n[[backend]]\nname = \"fake\"\nprofile = \"generic\"\nbase_url = \"{}\"\nmodel = \"m\"\n\
         body = {{ reasoning_effort = \"medium\" }}\n",
        model.base_url()
    );
    std::fs::write(&path, text).expect("written");
    let path = path.to_str().expect("a path").to_owned();
    let server = Server::start(folder.path(), &["--config", &path], &[]).await;
    (folder, server)
}

async fn boss(wanted: Value) -> FakeModelServer {
    FakeModelServer::start(move |seen| {
        if is_sub(seen) {
            return Reply::says("It is done.");
        }
        match seen.texts_of("tool").last() {
            Some(result) if result.contains("\"agents\"") || result.starts_with("Error") => {
                Reply::says(format!("So: {result}"))
            }
            Some(_) => Reply::calls([("get_agent_results", json!({}))]),
            None => {
                let mission =
                    json!({"agent_id": "a", "mission": "Count", "skills": ["tasks.search"], "effort": wanted});
                Reply::calls([("dispatch_agent", mission)])
            }
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dispatch_sets_the_effort_of_its_agent_alone() {
    let model = boss(json!("low")).await;
    let (_folder, server) = serve(&model, "").await;
    let sent = ask(&server, "Count them").await;
    assert!(sent["answer"].as_str().unwrap_or_default().contains("It is done."), "{sent}");
    for seen in model.requests() {
        assert_eq!(effort(&seen), if is_sub(&seen) { "low" } else { "medium" });
    }
    let conversation = sent["conversation_id"].as_str().expect("an id");
    let (_, log) = server.get(&format!("/api/v1/conversations/{conversation}/events?limit=500")).await;
    assert!(log.to_string().contains("\"options\":{\"effort\":\"low\"}"), "it is recorded: {log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dispatch_with_an_unknown_effort_is_an_error_that_names_the_words() {
    for wanted in [json!("maximal"), json!(3)] {
        let model = boss(wanted).await;
        let (_folder, server) = serve(&model, "").await;
        let answer = ask(&server, "Count them").await["answer"].as_str().unwrap_or_default().to_owned();
        assert!(answer.contains("must be low, medium or high") || answer.contains("effort must be a text"), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prompt_skill_sets_the_effort_of_the_turn_that_begins_with_it() {
    let model = FakeModelServer::start(|_| Reply::says("Fine.")).await;
    let (folder, server) = serve(&model, "mode = \"single_loop\"").await;
    prompt_skills::put(&folder, &server, &[("think", "metadata:\n  effort: high", "Think hard.")]).await;
    ask(&server, "/think about it").await;
    ask(&server, "What did you think of then?").await;
    let efforts: Vec<Value> = model.requests().iter().map(effort).collect();
    assert_eq!(efforts, ["high", "medium"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_step_of_a_workflow_sets_its_effort_and_a_wrong_word_starts_nothing() {
    let model = FakeModelServer::start(|_| Reply::says("It is done.")).await;
    let (folder, server) = serve(&model, "").await;
    let file = |name: &str, effort: &str| {
        format!(
            "name: {name}\ndescription: Counts.\nsteps:\n  - {{id: count, agent: Count them., skills: [tasks.search], effort: {effort}}}\n  \
             - {{id: say, answer: \"{{steps.count.result}}\"}}\n"
        )
    };
    workflows::put(folder.path(), &[&file("count", "high"), &file("miscount", "maximal")]);
    let (task, _) = workflows::start(&server, "count", json!({})).await;
    eventually("the agent was asked", async || (model.request_count() > 0).then_some(())).await;
    workflows::ended(&server, &task).await;
    assert_eq!(effort(&model.requests()[0]), "high");
    let (status, refused) =
        server.post("/api/v1/workflows/miscount/run", &json!({})).await.expect("the server answers");
    assert!(status >= 400 && refused.to_string().contains("must be low, medium or high"), "{status} {refused}");
}
