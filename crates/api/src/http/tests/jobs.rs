//! Jobs over HTTP and gRPC: the list, and commands.

use annie_core::message::{ModelError, ModelErrorKind, ModelRequest};
use annie_testkit::scripted_model::ScriptedModel;
use serde_json::{Value, json};

use super::world::{PATIENCE, Server, echo};
use crate::grpc::v1::{self, jobs_client::JobsClient};

/// A server with a task whose round never ends, and the id of this task.
async fn busy() -> (Server, String) {
    let server = Server::start(ScriptedModel::saying("x").hanging_when(|_, _| true)).await;
    let (_, sent) = server.post("/api/v1/messages", json!({ "text": "read the long book" })).await;
    server.model.called(1).await;
    let task = sent["task_id"].as_str().unwrap().to_owned();
    let running = async { while server.get(&format!("/api/v1/tasks/{task}")).await.1["status"] != "running" {} };
    tokio::time::timeout(PATIENCE, running).await.unwrap();
    (server, task)
}

async fn job(server: &Server) -> Value {
    server.get("/api/v1/jobs").await.1["jobs"][0].clone()
}

#[tokio::test]
async fn job_is_listed_suspended_continued_reprioritised_and_cancelled() {
    let (server, task) = busy().await;
    let (status, list) = server.get("/api/v1/jobs?text=short").await;
    assert_eq!((status, list["jobs"].as_array().unwrap().len()), (200, 1), "{list}");
    let one = &list["jobs"][0];
    assert_eq!((&one["number"], &one["task_id"], &one["status"]), (&json!(1), &json!(task), &json!("running")));
    let progress = (&one["priority"], &one["round"], &one["rounds_max"]);
    assert_eq!(progress, (&json!("high"), &json!(1), &json!(6)), "{one}");
    assert!(list["text"].as_str().unwrap().contains("long book"), "{list}");
    let (_, detailed) = server.get("/api/v1/jobs?text=detailed").await;
    assert!(detailed["text"].as_str().unwrap().contains("1"), "{detailed}");
    assert_eq!(server.get("/api/v1/jobs?text=long").await.0, 400);

    let suspend = format!("/api/v1/tasks/{task}/suspend");
    let continue_path = format!("/api/v1/tasks/{task}/continue");
    let priority = format!("/api/v1/tasks/{task}/priority");
    assert_eq!(server.post(&suspend, json!({})).await, (200, json!({ "done": true })));
    let held = job(&server).await;
    assert_eq!((&held["status"], held["suspended_at"].is_string()), (&json!("suspended"), true), "{held}");
    assert_eq!(server.get(&format!("/api/v1/tasks/{task}")).await.1["status"], "suspended");
    assert_eq!(server.post(&continue_path, json!({})).await, (200, json!({ "done": true })));
    assert_eq!(job(&server).await["status"], "running");
    assert_eq!(server.post(&priority, json!({ "priority": "low" })).await, (200, json!({ "done": true })));
    assert_eq!(job(&server).await["priority"], "low");
    let (status, refused) = server.post(&priority, json!({ "priority": "realtime" })).await;
    assert_eq!((status, &refused["field"]), (400, &json!("priority")), "{refused}");
    assert_eq!(server.post(&priority, json!({ "priority": "soon" })).await.0, 400);
    assert_eq!(server.post(&format!("/api/v1/tasks/{task}/cancel"), json!({})).await.1, json!({ "cancelled": true }));
}

#[tokio::test]
async fn job_waiting_for_another_task_is_not_listed_as_running() {
    let (server, first) = busy().await;
    let (_, sent) = server.post("/api/v1/messages", json!({ "text": "then sum it up", "after": [first] })).await;
    let second = format!("/api/v1/tasks/{}", sent["task_id"].as_str().unwrap());
    let begun = async { while server.get(&second).await.1["status"] != "running" {} };
    tokio::time::timeout(PATIENCE, begun).await.unwrap();
    let (_, list) = server.get("/api/v1/jobs?text=short").await;
    assert_eq!(
        (&list["jobs"][0]["status"], &list["jobs"][1]["status"]),
        (&json!("running"), &json!("queued")),
        "{list}"
    );
    assert_eq!(list["jobs"][1].get("running_ms"), None, "{list}");
    assert!(list["text"].as_str().unwrap().starts_with("I am working on \"read the long book\""), "{list}");
}

#[tokio::test]
async fn ended_task_is_no_job_and_cannot_be_controlled() {
    let server = Server::start(echo()).await;
    let sent = server.say(json!({ "text": "x" })).await;
    let task = sent["task_id"].as_str().unwrap();
    for what in ["suspend", "continue"] {
        assert_eq!(server.post(&format!("/api/v1/tasks/{task}/{what}"), json!({})).await.1, json!({ "done": false }));
    }
    assert_eq!(server.get("/api/v1/jobs").await.1, json!({ "jobs": [] }));
}

#[tokio::test]
async fn jobs_are_the_same_over_grpc() {
    let (server, task_id) = busy().await;
    let mut jobs = JobsClient::connect(format!("http://{}", server.at)).await.unwrap();
    let ask = v1::ListJobsRequest { text: v1::Words::Short.into() };
    let list = jobs.list_jobs(ask).await.unwrap().into_inner();
    assert!(list.text.contains("long book") && list.jobs.len() == 1, "{list:?}");
    assert_eq!((&list.jobs[0].task_id, list.jobs[0].state()), (&task_id, v1::TaskState::Running));
    let options = || v1::ControlTaskRequest { task_id: task_id.clone() };
    assert!(jobs.suspend(options()).await.unwrap().into_inner().done);
    let list = jobs.list_jobs(v1::ListJobsRequest::default()).await.unwrap().into_inner();
    assert_eq!((list.jobs[0].state(), list.text.as_str()), (v1::TaskState::Suspended, ""));
    assert!(jobs.r#continue(options()).await.unwrap().into_inner().done, "Continue does it");
    let mut hurry = v1::SetPriorityRequest { task_id: task_id.clone(), priority: v1::Priority::Low.into() };
    assert!(jobs.set_priority(hurry.clone()).await.unwrap().into_inner().done);
    for wrong in [v1::Priority::Realtime, v1::Priority::Unspecified] {
        hurry.priority = wrong.into();
        assert_eq!(jobs.set_priority(hurry.clone()).await.unwrap_err().code(), tonic::Code::InvalidArgument);
    }
    let odd = v1::ListJobsRequest { text: 9 };
    assert_eq!(jobs.list_jobs(odd).await.unwrap_err().code(), tonic::Code::InvalidArgument);
}

#[tokio::test]
async fn job_deferred_after_model_failure_is_listed_as_deferred() {
    let away = || Err(ModelError::new(ModelErrorKind::Unavailable, "the model is away"));
    let model = ScriptedModel::new(move |_, _| away());
    let is_second = |request: &ModelRequest, _| format!("{:?}", request.messages).contains("long book");
    let server = Server::start(model.hanging_when(is_second)).await;
    let work = json!({ "text": "research heat pumps", "priority": "normal" });
    let (_, sent) = server.post("/api/v1/messages", work).await;
    // The Scheduler learns of the deferral after it is stored.
    let is_known = |one: &Value| one["status"] == "deferred" && one["start_in_ms"].is_number();
    let deferred_listed = async { while !is_known(&job(&server).await) {} };
    tokio::time::timeout(PATIENCE, deferred_listed).await.unwrap();
    let one = job(&server).await;
    assert_eq!((&one["task_id"], &one["reason"]), (&sent["task_id"], &json!("its model failed")), "{one}");
    assert!(one["start_in_ms"].as_u64().is_some_and(|ms| ms > 30_000), "{one}");
    assert_eq!(one.get("running_ms"), None, "the time of the deferral is no running time: {one}");
    let mut jobs = JobsClient::connect(format!("http://{}", server.at)).await.unwrap();
    let list = jobs.list_jobs(v1::ListJobsRequest::default()).await.unwrap().into_inner();
    let deferred = (list.jobs[0].state(), list.jobs[0].reason.as_str());
    assert_eq!(deferred, (v1::TaskState::Deferred, "its model failed"), "the same over gRPC: {list:?}");

    server.post("/api/v1/messages", json!({ "text": "read the long book" })).await;
    let running_listed = async {
        loop {
            let (_, list) = server.get("/api/v1/jobs?text=detailed").await;
            if list["jobs"].as_array().unwrap().iter().any(|job| job["status"] == "running") {
                break list;
            }
        }
    };
    let list = tokio::time::timeout(PATIENCE, running_listed).await.unwrap();
    let statuses = (&list["jobs"][0]["status"], &list["jobs"][1]["status"]);
    assert_eq!(statuses, (&json!("running"), &json!("deferred")), "{list}");
    let text = list["text"].as_str().unwrap();
    assert!(text.contains("2. [Deferred, NORMAL] research heat pumps") && text.contains("its model failed"), "{text}");
}
