//! Workflows through the real binary, where something is refused, fails or is repeated: no effect happens twice, no result is lost.

use annie_testkit::model_server::{FakeModelServer, Reply};
use serde_json::json;

use super::{
    bad_models::server_with,
    prompt_skills,
    workflows::{end_of, ended, put, start},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_beside_a_refused_one_runs_once_and_its_report_reaches_its_step() {
    let steps = "
  - id: both
    parallel:
      - {id: a, agent: \"Report A.\"}
      - {id: b, agent: \"Report B.\", skills: [SKILL]}
    next: {on: failed, to: say}
  - {id: say, answer: \"{steps.a.status} {steps.a.result} {steps.b.status} {steps.b.error}\"}
";
    let unknown = format!(
        "name: unknown\ndescription: One agent has a skill that does not exist.\nsteps:{}",
        steps.replace("SKILL", "mcp.gone.look")
    );
    let confined = format!(
        "name: confined\ndescription: One agent has a forbidden skill.\nsteps:\n  - {{id: keep, skill: keep}}{}",
        steps.replace("SKILL", "tasks.create")
    );
    let model = FakeModelServer::start(|seen| {
        Reply::says(if seen.last_user_text().contains("Report A.") { "The report of A." } else { "Nothing." })
    })
    .await;
    let (folder, server) = server_with(&model, "").await;
    prompt_skills::put(&folder, &server, &[("keep", "allowed-tools: tasks.search", "Keep to it.")]).await;
    put(folder.path(), &[&unknown, &confined]);
    for (name, error) in [("unknown", "failed invalid_call"), ("confined", "denied denied")] {
        let (task, conversation) = start(&server, name, json!({})).await;
        ended(&server, &task).await;
        let end = end_of(&server, &conversation).await;
        assert_eq!(end["text"], format!("ok The report of A. {error}"), "{name}: {end}");
    }
    assert_eq!(model.requests().len(), 2, "one round of agent A for each run: {:?}", model.requests());
}
