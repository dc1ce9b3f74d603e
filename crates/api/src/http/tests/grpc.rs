//! gRPC on the port of HTTP, used by generated clients.

use std::time::Duration;

use annie_testkit::scripted_model::ScriptedModel;
use tonic::{Code, Request, Status, transport::Channel};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_types::StatusExt;

use super::world::{PATIENCE, Server, delegating, echo};
use crate::{
    auth::KeyScope,
    grpc::v1::{
        self, actors_client::ActorsClient, chat_client::ChatClient, events_client::EventsClient,
        jobs_client::JobsClient, skills_client::SkillsClient, stream_item::Item, submit_request::Conversation,
    },
};

async fn channel(server: &Server) -> Channel {
    Channel::from_shared(format!("http://{}", server.at)).unwrap().connect().await.unwrap()
}

fn sent(text: &str) -> v1::SubmitRequest {
    v1::SubmitRequest { text: text.to_owned(), ..Default::default() }
}

fn keyed<T>(key: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
    request
}

async fn collect(mut stream: tonic::Streaming<v1::StreamItem>) -> (Vec<Item>, Option<Status>) {
    let mut items = Vec::new();
    let reading = async {
        loop {
            match stream.message().await {
                Ok(Some(item)) => items.push(item.item.unwrap()),
                Ok(None) => return None,
                Err(status) => return Some(status),
            }
        }
    };
    let end = tokio::time::timeout(PATIENCE, reading).await.unwrap();
    (items, end)
}

fn kinds(items: &[Item]) -> Vec<(u64, String)> {
    let of = |item: &Item| match item {
        Item::Event(event) => Some((event.seq, event.kind.clone())),
        _ => None,
    };
    items.iter().filter_map(of).collect()
}

#[tokio::test]
async fn grpc_stream_resumes_after_any_sequence_number() {
    let server = Server::start(delegating()).await;
    let mut chat = ChatClient::new(channel(&server).await);
    let mut message = sent("do it");
    message.client_id = "m-1".to_owned();
    let accepted = chat.submit(message.clone()).await.unwrap().into_inner();
    assert_eq!((accepted.seq, accepted.repeated, accepted.position), (1, false, Some(1)));
    let options = |after_seq| v1::StreamRequest {
        conversation_id: accepted.conversation_id.clone(),
        after_seq,
        task_id: accepted.task_id.clone(),
    };
    let (items, end) = collect(chat.stream(options(0)).await.unwrap().into_inner()).await;
    let whole = kinds(&items);
    assert!(end.is_none() && whole.last().unwrap().1 == "answered");
    for (seq, _) in &whole {
        let (rest, _) = collect(chat.stream(options(*seq)).await.unwrap().into_inner()).await;
        assert_eq!(kinds(&rest), whole[usize::try_from(*seq).unwrap()..]);
    }
    let again = chat.submit(message).await.unwrap().into_inner();
    assert_eq!((again.repeated, &again.task_id), (true, &accepted.task_id));
    let asked = v1::HistoryRequest { conversation_id: accepted.conversation_id.clone(), ..Default::default() };
    let history = chat.history(asked).await.unwrap().into_inner();
    let answer = &history.messages[1];
    assert_eq!((answer.text.as_str(), answer.agents[0].agent.as_str()), ("All is done.", "doer"));
    assert_eq!((answer.skills[0].skill.as_str(), answer.state()), ("test.put", v1::TaskState::Completed));
    let mut events = EventsClient::new(channel(&server).await);
    let asked = v1::ListEventsRequest { conversation_id: accepted.conversation_id, limit: 2, ..Default::default() };
    let listed = events.list(asked).await.unwrap().into_inner().events;
    assert_eq!(listed.iter().map(|e| e.kind.as_str()).collect::<Vec<_>>(), ["received", "turn_started"]);
    assert!(listed[0].json.contains("\"kind\":\"received\""));
}

#[tokio::test]
async fn grpc_refusals_are_statuses_with_details() {
    let server = Server::start(echo()).await;
    let mut chat = ChatClient::new(channel(&server).await);
    let empty = chat.submit(sent(" ")).await.unwrap_err();
    assert_eq!(empty.code(), Code::InvalidArgument);
    assert_eq!(empty.get_error_details().error_info().unwrap().reason, "invalid_request");
    let nowhere = v1::SubmitRequest { conversation: Some(Conversation::ConversationId("x".into())), ..sent("x") };
    let status = chat.submit(nowhere).await.unwrap_err();
    assert_eq!(status.get_error_details().bad_request().unwrap().field_violations[0].field, "conversation_id");
    let mut first = sent("one");
    first.client_id = "m".to_owned();
    chat.submit(first.clone()).await.unwrap();
    first.text = "two".to_owned();
    assert_eq!(chat.submit(first).await.unwrap_err().code(), Code::Aborted);
    let large = sent(&"x".repeat(2 * 1024 * 1024));
    let large = chat.submit(large).await.unwrap_err();
    assert_eq!(large.code(), Code::InvalidArgument);
    assert_eq!(large.get_error_details().error_info().unwrap().reason, "too_large");
    let odd = v1::SubmitRequest { priority: 99, ..sent("x") };
    assert_eq!(chat.submit(odd).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn grpc_undecodable_message_is_invalid_argument() {
    let server = Server::start(echo()).await;
    let client = annie_llm::http_client().no_proxy().http2_prior_knowledge().build().unwrap();
    // A frame with two bytes that are not a protobuf message.
    let broken = [0, 0, 0, 0, 2, 0xff, 0xff];
    let request = client.post(format!("http://{}/annie.v1.Chat/Submit", server.at));
    let request = request.header("content-type", "application/grpc").header("te", "trailers").body(broken.to_vec());
    let response = request.send().await.unwrap();
    let status = Status::from_header_map(response.headers()).unwrap();
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    assert_eq!(status.get_error_details().error_info().unwrap().reason, "invalid_request");
}

#[tokio::test]
async fn grpc_full_queue_has_retry_info() {
    let server = Server::start(ScriptedModel::saying("x").hanging_when(|_, _| true)).await;
    let mut chat = ChatClient::new(channel(&server).await);
    let mut last = None;
    for n in 0..20 {
        let message =
            v1::SubmitRequest { conversation: Some(Conversation::ConversationKey("k".into())), ..sent(&n.to_string()) };
        if let Err(status) = chat.submit(message).await {
            last = Some(status);
            break;
        }
    }
    let full = last.unwrap();
    assert_eq!(full.code(), Code::ResourceExhausted);
    assert!(full.get_error_details().retry_info().unwrap().retry_delay >= Some(Duration::from_secs(1)));
}

#[tokio::test]
async fn grpc_checks_keys_and_ownership() {
    let server = Server::start(echo()).await;
    let all = &KeyScope::ALL[..6];
    let (ann, bob) = (server.key("ann", all).await, server.key("bob", all).await);
    let channel = channel(&server).await;
    let (mut chat, mut jobs) = (ChatClient::new(channel.clone()), JobsClient::new(channel.clone()));
    let mut events = EventsClient::new(channel.clone());
    let unauthenticated = chat.submit(sent("x")).await.unwrap_err();
    assert_eq!(unauthenticated.code(), Code::Unauthenticated);
    assert!(unauthenticated.get_error_details().request_info().is_some());
    let own = chat.submit(keyed(&ann, sent("a secret"))).await.unwrap().into_inner();
    let (conversation_id, task_id) = (own.conversation_id, own.task_id);
    let codes = [
        chat.stream(keyed(&bob, v1::StreamRequest { conversation_id: conversation_id.clone(), ..Default::default() }))
            .await
            .map(drop),
        chat.history(keyed(
            &bob,
            v1::HistoryRequest { conversation_id: conversation_id.clone(), ..Default::default() },
        ))
        .await
        .map(drop),
        chat.submit(keyed(
            &bob,
            v1::SubmitRequest {
                conversation: Some(Conversation::ConversationId(conversation_id.clone())),
                ..sent("x")
            },
        ))
        .await
        .map(drop),
        events
            .list(keyed(&bob, v1::ListEventsRequest { conversation_id: conversation_id.clone(), ..Default::default() }))
            .await
            .map(drop),
        events.follow(keyed(&bob, v1::FollowEventsRequest { conversation_id, after_seq: 0 })).await.map(drop),
        jobs.get(keyed(&bob, v1::GetTaskRequest { task_id: task_id.clone() })).await.map(drop),
        jobs.cancel(keyed(&bob, v1::CancelTaskRequest { task_id: task_id.clone() })).await.map(drop),
    ];
    for code in codes {
        assert_eq!(code.unwrap_err().code(), Code::NotFound);
    }
    assert!(jobs.list(keyed(&bob, v1::ListTasksRequest::default())).await.unwrap().into_inner().tasks.is_empty());
    let task = jobs.get(keyed(&ann, v1::GetTaskRequest { task_id })).await.unwrap().into_inner();
    assert_eq!((task.title.as_str(), task.source.as_str(), task.priority()), ("a secret", "grpc", v1::Priority::High));
}

#[tokio::test]
async fn grpc_cancel_ends_the_stream_of_the_task() {
    let server = Server::start(ScriptedModel::saying("x").hanging_when(|_, _| true)).await;
    let channel = channel(&server).await;
    let mut chat = ChatClient::new(channel.clone());
    let accepted = chat.submit(sent("x")).await.unwrap().into_inner();
    let task_id = accepted.task_id.clone();
    let options =
        v1::StreamRequest { conversation_id: accepted.conversation_id, after_seq: 0, task_id: task_id.clone() };
    let stream = chat.stream(options).await.unwrap().into_inner();
    server.model.called(1).await;
    let cancelled = JobsClient::new(channel).cancel(v1::CancelTaskRequest { task_id }).await.unwrap().into_inner();
    assert!(cancelled.cancelled);
    let (items, end) = collect(stream).await;
    assert!(end.is_none() && kinds(&items).last().unwrap().1 == "cancelled");
}

/// Watches until the actor has a later incarnation than this one.
async fn incarnation_after(watch: &mut tonic::Streaming<v1::TreeChange>, incarnation: u64) -> u64 {
    let next = async {
        loop {
            let change = watch.message().await.unwrap().unwrap();
            if let Some(actor) = change.changed.iter().find(|a| a.incarnation > incarnation) {
                return actor.incarnation;
            }
        }
    };
    tokio::time::timeout(PATIENCE, next).await.unwrap()
}

#[tokio::test]
async fn grpc_watch_shows_new_incarnations_after_kill_stop_and_restart() {
    let server = Server::start(echo()).await;
    let mut actors = ActorsClient::new(channel(&server).await);
    let options = v1::WatchRequest { under: "/scheduler".into(), every_ms: 200, limit: 0 };
    let mut watch = actors.watch(options).await.unwrap().into_inner();
    let first = watch.message().await.unwrap().unwrap();
    assert_eq!((first.changed.len(), first.changed[0].path.as_str(), first.total), (1, "/scheduler", 1));
    let incarnation = first.changed[0].incarnation;
    let act = |incarnation| {
        let (path, reason) = ("/scheduler".into(), "a test".into());
        v1::ActRequest { path, incarnation, reason, ..v1::ActRequest::default() }
    };
    assert_eq!(actors.kill(act(incarnation + 9)).await.unwrap_err().code(), Code::FailedPrecondition);
    actors.kill(act(incarnation)).await.unwrap();
    let incarnation = incarnation_after(&mut watch, incarnation).await;
    actors.stop(act(incarnation)).await.unwrap();
    let incarnation = incarnation_after(&mut watch, incarnation).await;
    actors.restart(act(incarnation)).await.unwrap();
    incarnation_after(&mut watch, incarnation).await;
    let view = actors.view(v1::ViewRequest { path: "/scheduler".into() }).await.unwrap().into_inner();
    assert!(view.view_json.unwrap().contains("backends"));
    let tree = actors.tree(v1::TreeRequest::default()).await.unwrap().into_inner();
    assert_eq!(tree.actors.len() as u64, tree.total);
    let reset = |skill: &str| v1::ResetBreakerRequest { skill: skill.to_owned() };
    let unused = actors.reset_breaker(reset("test.put")).await.unwrap_err();
    assert!(unused.code() == Code::NotFound && unused.message().contains("nothing to close"), "{unused:?}");
    let none = actors.reset_breaker(reset("test.putt")).await.unwrap_err();
    assert!(none.message().contains("did you mean test.put"), "{none:?}");
    let hasty = v1::WatchRequest { every_ms: 1, ..Default::default() };
    assert_eq!(actors.watch(hasty).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn grpc_skills_are_listed_and_described() {
    let server = Server::start(echo()).await;
    let mut skills = SkillsClient::new(channel(&server).await);
    let all = skills.list(v1::ListSkillsRequest::default()).await.unwrap().into_inner();
    assert_eq!((all.skills.len(), all.skills[0].help.as_str()), (3, ""));
    let one = skills.get(v1::GetSkillRequest { name: "test.send".into() }).await.unwrap().into_inner();
    assert!(one.help.contains("Usage") && one.schema_json.contains("properties"));
    let commands = skills.commands(v1::ListCommandsRequest {}).await.unwrap().into_inner().commands;
    assert_eq!(commands.iter().map(|command| command.name.as_str()).collect::<Vec<_>>(), ["/help", "/done"]);
    let near = skills.get(v1::GetSkillRequest { name: "test.sent".into() }).await.unwrap_err();
    assert!(near.code() == Code::NotFound && near.message().contains("test.send"));
    let servers = skills.list_mcp_servers(v1::ListMcpServersRequest {}).await.unwrap().into_inner();
    assert!(servers.servers.is_empty(), "{servers:?}");
}

#[tokio::test]
async fn grpc_skill_runs_by_command_if_it_may_be_repeated() {
    let server = Server::start(echo()).await;
    let mut skills = SkillsClient::new(channel(&server).await);
    let command = |text: &str, key: &str| v1::RunSkillRequest {
        command: text.to_owned(),
        key: key.to_owned(),
        ..v1::RunSkillRequest::default()
    };
    let ran = skills.run(command("test.put --what cups", "k")).await.unwrap().into_inner();
    let (skill, status, text) = ("test.put".to_owned(), "success".to_owned(), "test.put did cups".to_owned());
    assert_eq!(
        ran,
        v1::SkillResult {
            skill,
            status,
            error: String::new(),
            text,
            evidence_json: ran.evidence_json.clone(),
            detail: String::new()
        }
    );
    for (text, key, reason) in [
        ("test.send", "k", "in a conversation only"),
        ("test.look --where here", "k", "--where"),
        ("tidy up", "k", "unknown skill"),
        ("test.look", "", "1 to 200 bytes"),
    ] {
        let refused = skills.run(command(text, key)).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{text}: {refused:?}");
        assert!(refused.message().contains(reason), "{text}: {refused:?}");
    }
}

#[tokio::test]
async fn grpc_health_needs_no_key_and_reports_shutdown() {
    let server = Server::start(echo()).await;
    server.key("ann", &[KeyScope::Chat]).await;
    let mut health = HealthClient::new(channel(&server).await);
    for service in ["", "annie.v1.Chat"] {
        let asked = HealthCheckRequest { service: service.to_owned() };
        let answer = health.check(asked.clone()).await.unwrap().into_inner();
        assert_eq!(answer.status, 1);
    }
    let mut watch = health.watch(HealthCheckRequest { service: String::new() }).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status, 1);
    server.state.shared.close(Some(&server.state.kernel)).await;
    assert_eq!(watch.message().await.unwrap().unwrap().status, 2);
}

/// Requests the list of services from one revision of reflection.
macro_rules! reflected {
    ($server:expr, $revision:ident) => {{
        use tonic_reflection::pb::$revision::{
            ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
            server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
        };
        let ask = MessageRequest::ListServices(String::new());
        let ask = ServerReflectionRequest { host: String::new(), message_request: Some(ask) };
        let mut client = ServerReflectionClient::new(channel($server).await);
        let mut answers = client.server_reflection_info(futures_util::stream::iter([ask])).await.unwrap().into_inner();
        match answers.message().await.unwrap().unwrap().message_response {
            Some(MessageResponse::ListServicesResponse(list)) => {
                list.service.into_iter().map(|s| s.name).collect::<Vec<_>>()
            }
            other => panic!("{other:?}"),
        }
    }};
}

#[tokio::test]
async fn grpc_reflection_lists_services_in_both_revisions() {
    let server = Server::start(echo()).await;
    for names in [reflected!(&server, v1), reflected!(&server, v1alpha)] {
        for service in crate::grpc::SERVICES.into_iter().filter(|s| !s.is_empty()) {
            assert!(names.iter().any(|n| n == service), "{service} is not among {names:?}");
        }
    }
}
