//! What holds for runs of workflows as for all other turns, through the real binary: rules about channels, untrusted text,
//! and what is refused before the first step.

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use annie::grpc::v1::{RunWorkflowRequest, workflows_client::WorkflowsClient};
use annie_testkit::model_server::{FakeModelServer, Reply};
use serde_json::{Value, json};

use super::{
    bad_models::{ask, server_with},
    mcp::{connected, program},
    prompt_skills,
    untrusted::effects,
    workflows::{end_of, ended, put, run, server_of, start, state, steps},
};
use crate::{server::Server, world::eventually};

/// The state of a run that waits for a person or has ended.
async fn waiting_or_ended(server: &Server, task: &str) -> Value {
    eventually("the run waits for a person or ends", async || {
        let run = state(server, task).await;
        let is_ended = ["completed", "failed", "cancelled"].iter().any(|end| run["status"] == *end);
        (run["awaits_approval"] == true || is_ended).then_some(run)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_about_a_channel_hold_for_a_run_that_was_started_over_it() {
    let add = "\
name: add
description: Creates a to-do.
steps:
  - {id: add, skill: tasks.create, args: {title: milk}, next: [{on: denied, to: refused}]}
  - {id: say, answer: \"added: {steps.add.result}\"}
  - {id: refused, answer: \"refused: {steps.add.result}\"}
";
    let config = "\
[approval]
rules = [{ mode = \"ask\", when = { skills = [\"tasks.create\"], channels = [\"http\"] } }]
[[hook]]
name = \"no-grpc\"
point = \"before_skill\"
kind = \"refuse\"
text = \"Not from there.\"
when = { skills = [\"tasks.create\"], channels = [\"grpc\"] }
";
    let (_folder, server) = server_of(config, &[add]).await;
    let (task, conversation) = start(&server, "add", json!({})).await;
    let run = waiting_or_ended(&server, &task).await;
    assert_eq!(run["awaits_approval"], true, "the rule about http holds: {run}");
    let (status, _) = server.post(&format!("/api/v1/approvals/{task}/deny"), &json!({})).await.expect("an answer");
    assert_eq!(status, 200);
    ended(&server, &task).await;
    let end = end_of(&server, &conversation).await;
    assert!(end["text"].as_str().is_some_and(|text| text.starts_with("refused: ")), "{end}");

    let mut client = WorkflowsClient::connect(server.url.clone()).await.expect("connected");
    let asked = RunWorkflowRequest { name: "add".to_owned(), ..RunWorkflowRequest::default() };
    let started = client.run(asked).await.expect("started").into_inner();
    let run = waiting_or_ended(&server, &started.task_id).await;
    assert_eq!(run["awaits_approval"], false, "the rule about http does not hold for gRPC: {run}");
    let end = end_of(&server, &started.conversation_id).await;
    assert!(end["text"].as_str().is_some_and(|text| text.contains("Not from there.")), "{end}");
}
