//! Orders and the record of actions over gRPC, and with keys of several users.

use reqwest::Method;
use serde_json::json;
use tonic::{Code, Request};

use super::world::{Server, echo, read};
use crate::{
    auth::KeyScope,
    grpc::v1::{self, actions_client::ActionsClient, actors_client::ActorsClient},
};

async fn client(server: &Server) -> ActionsClient<tonic::transport::Channel> {
    ActionsClient::connect(format!("http://{}", server.at)).await.unwrap()
}

#[tokio::test]
async fn orders_and_actions_are_the_same_over_grpc() {
    let server = Server::start(echo()).await;
    let sent = server.say(json!({ "text": "hello" })).await;
    let conversation_id = sent["conversation_id"].as_str().unwrap().to_owned();
    let mut grpc = client(&server).await;
    let low = v1::Priority::Low.into();
    let pause = |reason: &str, dry_run| v1::PauseClassRequest { priority: low, reason: reason.into(), dry_run };
    assert_eq!(grpc.pause_class(pause("", false)).await.unwrap_err().code(), Code::InvalidArgument);
    let unknown = v1::PauseClassRequest { reason: "x".into(), ..Default::default() };
    assert_eq!(grpc.pause_class(unknown).await.unwrap_err().code(), Code::InvalidArgument);
    let tried = grpc.pause_class(pause("the GPU", true)).await.unwrap().into_inner();
    assert!(tried.dry_run && tried.order.is_none() && tried.effect.contains("class low"), "{tried:?}");
    let given = grpc.pause_class(pause("the GPU", false)).await.unwrap().into_inner().order.unwrap();
    assert_eq!((given.kind.as_str(), given.target.as_str(), given.reason.as_str()), ("paused_class", "low", "the GPU"));
    let orders = grpc.list_orders(v1::ListOrdersRequest {}).await.unwrap().into_inner().orders;
    assert_eq!(orders, [given]);
    let resume = v1::ResumeClassRequest { priority: low, reason: String::new() };
    assert!(grpc.resume_class(resume.clone()).await.unwrap().into_inner().lifted);
    assert!(!grpc.resume_class(resume).await.unwrap().into_inner().lifted);

    let (id, why) = (conversation_id, "not now".to_owned());
    let suspend = v1::SuspendConversationRequest { conversation_id: id.clone(), reason: why.clone(), dry_run: false };
    assert!(grpc.suspend_conversation(suspend).await.unwrap().into_inner().order.is_some());
    let go_on = v1::ContinueConversationRequest { conversation_id: id.clone(), reason: String::new() };
    assert!(grpc.continue_conversation(go_on).await.unwrap().into_inner().lifted);
    let quarantine = |force, dry_run| v1::QuarantineConversationRequest {
        conversation_id: id.clone(),
        reason: why.clone(),
        dry_run,
        force,
    };
    assert_eq!(grpc.quarantine_conversation(quarantine(false, false)).await.unwrap_err().code(), Code::InvalidArgument);
    assert!(grpc.quarantine_conversation(quarantine(false, true)).await.unwrap().into_inner().dry_run);
    let open = |skill: &str| v1::OpenBreakerRequest { skill: skill.into(), reason: why.clone(), dry_run: false };
    assert_eq!(grpc.open_breaker(open("test.pu")).await.unwrap_err().code(), Code::NotFound);
    assert!(grpc.open_breaker(open("test.put")).await.unwrap().into_inner().order.is_some());
    let mut actors = ActorsClient::connect(format!("http://{}", server.at)).await.unwrap();
    let breakers = actors.list_breakers(v1::ListBreakersRequest {}).await.unwrap().into_inner().breakers;
    assert!(breakers.iter().any(|one| one.skill == "test.put" && one.held.contains("not now")), "{breakers:?}");
    actors.reset_breaker(v1::ResetBreakerRequest { skill: "test.put".into() }).await.unwrap();
    let drain = v1::DrainRequest { reason: why.clone(), dry_run: true };
    assert!(grpc.drain(drain).await.unwrap().into_inner().effect.contains("accepts no messages"));
    assert!(!grpc.undrain(v1::UndrainRequest::default()).await.unwrap().into_inner().lifted);
    let budget = v1::ResetBudgetRequest { path: "/infra".into(), incarnation: 0, reason: why.clone() };
    assert!(grpc.reset_budget(budget).await.unwrap().into_inner().restarts_left > 0);
    // The log of the tests is not that of a server.
    assert_eq!(grpc.get_log_level(v1::GetLogLevelRequest {}).await.unwrap_err().code(), Code::Unavailable);
    let level = v1::SetLogLevelRequest { level: "debug".into(), reason: why };
    assert_eq!(grpc.set_log_level(level).await.unwrap_err().code(), Code::Unavailable);
    let dry = v1::ActRequest { path: "/scheduler".into(), dry_run: true, ..Default::default() };
    let tried = actors.kill(dry).await.unwrap().into_inner();
    assert!(tried.dry_run && tried.effect.contains("ends at once"), "{tried:?}");

    let listed = grpc.list(v1::ListActionsRequest { under: "low".into(), ..Default::default() }).await.unwrap();
    let actions = listed.into_inner().actions;
    let shown: Vec<(&str, &str)> = actions.iter().map(|one| (one.action.as_str(), one.result.as_str())).collect();
    let wanted =
        [("class.resume", "done"), ("class.resume", "done"), ("class.pause", "done"), ("class.pause", "refused")];
    assert_eq!(shown, wanted);
    assert!(actions.iter().all(|one| one.channel == "grpc" && one.ended_at_us.is_some()), "{actions:?}");
    let page = grpc.verify(v1::VerifyActionsRequest { limit: 3, ..Default::default() }).await.unwrap().into_inner();
    assert_eq!((page.entries, page.broken_total, page.next.as_str()), (3, 0, "3"));
    let rest = grpc.verify(v1::VerifyActionsRequest { next: page.next, limit: 500 }).await.unwrap().into_inner();
    assert!(rest.broken_total == 0 && rest.next.is_empty() && rest.entries > 3, "{rest:?}");
}

#[tokio::test]
async fn conversation_is_suspended_by_its_user_or_an_operator_and_the_record_names_them() {
    let server = Server::start(echo()).await;
    let ann = server.key("ann", &[KeyScope::Chat, KeyScope::JobsControl]).await;
    let bob = server.key("bob", &[KeyScope::Chat, KeyScope::JobsControl]).await;
    let operator = server.key("olga", &[KeyScope::OpsControl, KeyScope::JobsControl, KeyScope::OpsRead]).await;
    let post = async |key: &str, path: &str, body: serde_json::Value| {
        read(server.request(Method::POST, path).bearer_auth(key).json(&body).send().await.unwrap()).await
    };
    let (_, sent) = post(&ann, "/api/v1/messages?wait=20", json!({ "text": "hi" })).await;
    let path = format!("/api/v1/conversations/{}", sent["conversation_id"].as_str().unwrap());
    let why = || json!({ "reason": "not now" });
    assert_eq!(
        post(&bob, &format!("{path}/suspend"), why()).await.0,
        404,
        "another user does not learn that it exists"
    );
    assert_eq!(post(&ann, &format!("{path}/quarantine"), why()).await.0, 403);
    assert_eq!(post(&ann, "/api/v1/classes/pause", json!({ "priority": "low", "reason": "x" })).await.0, 403);
    assert_eq!(post(&ann, &format!("{path}/suspend"), why()).await.0, 200);
    assert_eq!(post(&operator, &format!("{path}/continue"), json!({})).await.1, json!({ "lifted": true }));
    let (status, list) =
        read(server.request(Method::GET, "/api/v1/actions").bearer_auth(&operator).send().await.unwrap()).await;
    assert_eq!(status, 200);
    let of = |name: &str| {
        list["actions"].as_array().unwrap().iter().filter(|one| one["by"].as_str().unwrap().starts_with(name)).count()
    };
    assert_eq!((of("olga (key "), of("ann (key "), of("bob (key ")), (1, 1, 1), "{list}");
    assert_eq!(
        read(server.request(Method::GET, "/api/v1/actions").bearer_auth(&ann).send().await.unwrap()).await.0,
        403
    );
    let mut grpc = client(&server).await;
    let mut asked = Request::new(v1::ListActionsRequest::default());
    asked.metadata_mut().insert("authorization", format!("Bearer {ann}").parse().unwrap());
    assert_eq!(grpc.list(asked).await.unwrap_err().code(), Code::PermissionDenied);
}
