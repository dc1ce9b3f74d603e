//! Jobs: the list, and what is done with one, through both doors.

use annie_core::message::{ModelError, ModelErrorKind};
use annie_testkit::scripted_model::ScriptedModel;
use serde_json::{Value, json};

use super::world::{PATIENCE, Server, echo};
use crate::grpc::v1::{self, jobs_client::JobsClient};

/// A server where one answer is being worked on for ever: the server and its task.
async fn busy() -> (Server, String) {
    let server = Server::start(ScriptedModel::saying("x").hanging_when(|_, _| true)).await;
    let (_, said) = server.post("/api/v1/messages", json!({ "text": "read the long book" })).await;
    server.model.called(1).await;
    let task = said["task_id"].as_str().unwrap().to_owned();
    let running = async { while server.get(&format!("/api/v1/tasks/{task}")).await.1["status"] != "running" {} };
    tokio::time::timeout(PATIENCE, running).await.unwrap();
    (server, task)
}

async fn job(server: &Server) -> Value {
    server.get("/api/v1/jobs").await.1["jobs"][0].clone()
}

#[tokio::test]
async fn a_job_is_listed_held_back_let_go_hurried_and_ended() {
    let (server, task) = busy().await;
    let (status, list) = server.get("/api/v1/jobs?text=short").await;
    assert_eq!((status, list["jobs"].as_array().unwrap().len()), (200, 1), "{list}");
    let one = &list["jobs"][0];
    assert_eq!((&one["number"], &one["task_id"], &one["status"]), (&json!(1), &json!(task), &json!("running")));
    assert_eq!((&one["priority"], &one["round"]), (&json!("high"), &json!(1)), "{one}");
    assert!(list["text"].as_str().unwrap().contains("long book"), "{list}");
    let (_, detailed) = server.get("/api/v1/jobs?text=detailed").await;
    assert!(detailed["text"].as_str().unwrap().contains("1"), "{detailed}");
    assert_eq!(server.get("/api/v1/jobs?text=long").await.0, 400);

    let suspend = format!("/api/v1/tasks/{task}/suspend");
    let go_on = format!("/api/v1/tasks/{task}/continue");
    let priority = format!("/api/v1/tasks/{task}/priority");
    assert_eq!(server.post(&suspend, json!({})).await, (200, json!({ "done": true })));
    let held = job(&server).await;
    assert_eq!((&held["status"], held["suspended_at"].is_string()), (&json!("suspended"), true), "{held}");
    assert_eq!(server.get(&format!("/api/v1/tasks/{task}")).await.1["status"], "suspended");
    assert_eq!(server.post(&go_on, json!({})).await, (200, json!({ "done": true })));
    assert_eq!(job(&server).await["status"], "running");
    assert_eq!(server.post(&priority, json!({ "priority": "low" })).await, (200, json!({ "done": true })));
    assert_eq!(job(&server).await["priority"], "low");
    let (status, refused) = server.post(&priority, json!({ "priority": "realtime" })).await;
    assert_eq!((status, &refused["field"]), (400, &json!("priority")), "{refused}");
    assert_eq!(server.post(&priority, json!({ "priority": "soon" })).await.0, 400);
    assert_eq!(server.post(&format!("/api/v1/tasks/{task}/cancel"), json!({})).await.1, json!({ "cancelled": true }));
}

#[tokio::test]
async fn what_waits_for_another_task_is_not_told_as_running() {
    let (server, first) = busy().await;
    let (_, said) = server.post("/api/v1/messages", json!({ "text": "then sum it up", "after": [first] })).await;
    let second = format!("/api/v1/tasks/{}", said["task_id"].as_str().unwrap());
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
async fn what_has_ended_is_told_so_and_is_no_job() {
    let server = Server::start(echo()).await;
    let said = server.say(json!({ "text": "x" })).await;
    let task = said["task_id"].as_str().unwrap();
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
    let wish = || v1::ControlTaskRequest { task_id: task_id.clone() };
    assert!(jobs.suspend(wish()).await.unwrap().into_inner().done);
    let list = jobs.list_jobs(v1::ListJobsRequest::default()).await.unwrap().into_inner();
    assert_eq!((list.jobs[0].state(), list.text.as_str()), (v1::TaskState::Suspended, ""));
    assert!(jobs.r#continue(wish()).await.unwrap().into_inner().done, "Continue does it");
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
async fn job_that_is_put_off_after_its_model_failed_is_deferred_and_not_running() {
    let away = || Err(ModelError::new(ModelErrorKind::Unavailable, "the model is away"));
    let server = Server::start(ScriptedModel::new(move |_, _| away())).await;
    let work = json!({ "text": "research heat pumps", "priority": "normal" });
    let (_, said) = server.post("/api/v1/messages", work).await;
    let put_off = async { while job(&server).await["status"] != "deferred" {} };
    tokio::time::timeout(PATIENCE, put_off).await.unwrap();
    let one = job(&server).await;
    assert_eq!(one["task_id"], said["task_id"], "{one}");
    assert!(one["start_in_ms"].as_u64().is_some_and(|ms| ms > 60_000), "{one}");
}
