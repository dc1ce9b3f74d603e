//! Every paginated list on every front end: each row appears exactly once and in order across the pages, even if rows have the
//! same time. A cursor that no page returned is refused.

use std::collections::BTreeSet;

use annie_core::{
    dead_letter::DeadLetter,
    event::{EventBody, Inbound, NewEvent},
    ids::{AgentId, ConversationId, IntentId, OperationId, TaskId, UserId},
    outcome::{Operation, Outcome},
    ports::{Append, Fence},
};
use annie_testkit::skills::FakeSkills;
use prost::Message as _;
use serde_json::{Value, json};
use tonic::Status;
use uuid::Uuid;

use super::world::{Server, echo};
use crate::grpc::{self, v1};

/// A list over HTTP, and the same list over gRPC.
struct List {
    path: &'static str,
    /// The response field with the rows, and the field that identifies a row.
    rows: &'static str,
    id: &'static str,
    rpc: Option<&'static str>,
    /// The newest page comes first, and the rows of a page are oldest first.
    is_backwards: bool,
}

const fn list(path: &'static str, rows: &'static str, id: &'static str, rpc: &'static str) -> List {
    List { path, rows, id, rpc: Some(rpc), is_backwards: false }
}

/// All lists that take `limit` and `next`. The tests below fail if one is missing here.
const LISTS: [List; 9] = [
    list("/api/v1/actions", "actions", "number", "Actions/List"),
    list("/api/v1/actors", "actors", "path", "Actors/Tree"),
    list("/api/v1/conversations", "conversations", "id", "Conversations/List"),
    list("/api/v1/conversations/{id}/events", "events", "seq", "Events/List"),
    List { is_backwards: true, ..list("/api/v1/conversations/{id}/messages", "messages", "seq", "Chat/History") },
    list("/api/v1/dead-letters", "dead_letters", "task_id", "DeadLetters/List"),
    list("/api/v1/notifications", "notifications", "id", "Notifications/List"),
    list("/api/v1/operations", "operations", "id", "Operations/List"),
    list("/api/v1/tasks", "tasks", "id", "Jobs/List"),
];

/// Paths that take `limit` or `next` and are no lists in pages, or lists with tests of their own, and methods of gRPC.
const NO_LISTS: [(&str, &str); 12] = [
    ("/api/v1/actions/verify", "verifies a part of the chain at a time; `tests/flow/orders.rs` reads it"),
    ("Actions/Verify", "as over HTTP"),
    ("/api/v1/conversations/trash", "the last deleted ones: there is no further page"),
    ("/api/v1/usage", "sums, of which only the largest are shown: there is no further page"),
    ("/api/v1/conversations/search", "the best matches: there is no further page"),
    ("/api/v1/audit/verify", "verifies a part of the seals at a time; no test asks for a second part"),
    ("/api/v1/conversations/{id}/audit", "`tests/flow/audit.rs` reads it; no test asks for a second page"),
    ("/api/v1/conversations/{id}/export", "`tests/flow/replay.rs` reads it; no test asks for a second page"),
    ("Audit/Verify", "as over HTTP"),
    ("Audit/Trail", "as over HTTP"),
    ("Replay/Export", "as over HTTP"),
    ("/api/v1/live", "a stream"),
];

/// The number of rows with the same time in each list that is ordered by time.
const ROWS_OF_ONE_INSTANT: u128 = 5;
/// The maximum number of pages of one list; a cyclic cursor ends the test.
const PAGES_MAX: usize = 200;

/// A failed task with a dead letter and an open operation, all at one time.
fn failed_task(n: u128, server: &Server) -> Append {
    let at = annie_core::time::Micros(server.state.kernel.now().0 / 60_000_000 * 60_000_000);
    let id = |kind: u128| Uuid::from_u128(kind << 64 | n);
    let (task, intent) = (TaskId::from_uuid(id(1)), IntentId::from_uuid(id(2)));
    let operation = Operation { id: OperationId::for_intent(intent), expires_at: at.plus_ms(24 * 3_600_000) };
    let outcome = Outcome::pending(operation, "It goes on.");
    let (call_id, skill, text, detail) =
        ("call".to_owned(), "mail.send".to_owned(), "Sorry.".to_owned(), String::new());
    let dead_letter = Some(DeadLetter { tried: Vec::new(), since: at, retry_at: None });
    let inbound = Inbound { client_id: task.to_string(), text: format!("work {n}"), ..Inbound::default() };
    let bodies = [
        EventBody::Received(inbound),
        EventBody::SkillFinished { intent, call_id, skill, outcome, duration_ms: 1, route: None },
        EventBody::Failed { code: "model_unavailable".to_owned(), text, detail, dead_letter },
    ];
    let events = bodies.map(|body| NewEvent { at, task, agent: AgentId::orchestrator(), body });
    let conversation = ConversationId::from_uuid(id(3));
    Append { conversation, user: UserId::new("me").unwrap(), fence: Fence::Inbox, events: events.into() }
}

/// A server with rows in every list, and the conversation of the log and messages.
async fn filled() -> (Server, String) {
    let server = Server::hasty(echo(), FakeSkills::obliging()).await;
    let me = UserId::new("me").unwrap();
    let mut talk = Value::Null;
    let mut notices = server.state.kernel.follow_notifications(&me, 0);
    for text in ["one", "two", "three"] {
        let body = json!({ "text": text, "conversation_key": "talk", "priority": "normal" });
        talk = server.post("/api/v1/messages", body).await.1;
        // Each message causes one notification.
        notices.next().await.unwrap().unwrap();
    }
    for _ in 0..3 {
        assert_eq!(server.post("/api/v1/gate/release", json!({ "holder": "ann" })).await.0, 200);
    }
    let appends = (1..=ROWS_OF_ONE_INSTANT).map(|n| failed_task(n, &server)).collect();
    for appended in server.state.kernel.store().commit(appends).await {
        appended.unwrap();
    }
    (server, talk["conversation_id"].as_str().unwrap().to_owned())
}

fn ids(rows: &Value, id: &str) -> Vec<String> {
    let of = |row: &Value| row[id].as_str().map_or_else(|| row[id].to_string(), str::to_owned);
    rows.as_array().unwrap_or_else(|| panic!("no rows: {rows}")).iter().map(of).collect()
}

/// One page over HTTP: its rows and its `next`.
async fn page(server: &Server, list: &List, talk: &str, limit: u32, next: &str) -> (Vec<String>, String) {
    let path = format!("{}?limit={limit}&next={next}", list.path.replace("{id}", talk));
    let (status, page) = server.get(&path).await;
    assert_eq!(status, 200, "{path}: {page}");
    (ids(&page[list.rows], list.id), page["next"].as_str().unwrap_or_default().to_owned())
}

/// One page over gRPC.
async fn rpc_page(
    server: &Server,
    rpc: &str,
    talk: &str,
    limit: u32,
    next: &str,
) -> Result<(Vec<String>, String), Status> {
    let (next, conversation_id, at) = (next.to_owned(), talk.to_owned(), format!("http://{}", server.at));
    macro_rules! page {
        ($client:ident :: $Client:ident . $method:ident ( $request:expr ) . $rows:ident . $id:ident) => {{
            let mut client = v1::$client::$Client::connect(at).await.unwrap();
            let page = client.$method($request).await?.into_inner();
            (page.$rows.into_iter().map(|row| row.$id.to_string()).collect(), page.next)
        }};
    }
    Ok(match rpc {
        "Actions/List" => {
            let options = v1::ListActionsRequest { limit, next, ..Default::default() };
            page!(actions_client::ActionsClient.list(options).actions.number)
        }
        "Actors/Tree" => {
            let options = v1::TreeRequest { limit, next, ..Default::default() };
            page!(actors_client::ActorsClient.tree(options).actors.path)
        }
        "Conversations/List" => {
            let options = v1::ListConversationsRequest { limit, next, ..Default::default() };
            page!(conversations_client::ConversationsClient.list(options).conversations.id)
        }
        "Events/List" => {
            let options = v1::ListEventsRequest { conversation_id, limit, next, ..Default::default() };
            page!(events_client::EventsClient.list(options).events.seq)
        }
        "Chat/History" => {
            let options = v1::HistoryRequest { conversation_id, limit, next };
            page!(chat_client::ChatClient.history(options).messages.seq)
        }
        "DeadLetters/List" => {
            let options = v1::ListDeadLettersRequest { limit, next, ..Default::default() };
            page!(dead_letters_client::DeadLettersClient.list(options).dead_letters.task_id)
        }
        "Notifications/List" => {
            let options = v1::ListNotificationsRequest { limit, next, ..Default::default() };
            page!(notifications_client::NotificationsClient.list(options).notifications.id)
        }
        "Operations/List" => {
            let options = v1::ListOperationsRequest { limit, next, ..Default::default() };
            page!(operations_client::OperationsClient.list(options).operations.id)
        }
        "Jobs/List" => {
            let options = v1::ListTasksRequest { limit, next, ..Default::default() };
            page!(jobs_client::JobsClient.list(options).tasks.id)
        }
        other => panic!("{other} is not known here"),
    })
}

/// All rows, page by page.
async fn walk(list: &List, limit: u32, mut page: impl AsyncFnMut(String) -> (Vec<String>, String)) -> Vec<String> {
    let (mut rows, mut next) = (Vec::new(), String::new());
    for _ in 0..PAGES_MAX {
        let (mut more, end) = page(next).await;
        assert!(more.len() <= limit as usize, "{}: {more:?}", list.path);
        if list.is_backwards {
            more.reverse();
        }
        rows.extend(more);
        next = end;
        if next.is_empty() {
            return rows;
        }
    }
    panic!("{} leads in a circle, or has very many rows: {rows:?}", list.path)
}

#[tokio::test]
async fn every_list_gives_each_row_once_and_in_order_page_by_page_on_every_front_end() {
    let (server, talk) = filled().await;
    for list in &LISTS {
        let (mut whole, next) = page(&server, list, &talk, 200, "").await;
        assert_eq!(next, "", "{} fits on one page", list.path);
        assert!(whole.len() >= 3, "{} has enough rows for several pages: {whole:?}", list.path);
        if list.is_backwards {
            whole.reverse();
        }
        assert_eq!(whole.iter().collect::<BTreeSet<_>>().len(), whole.len(), "{}: {whole:?}", list.path);
        for limit in [1, 2] {
            let rows = walk(list, limit, async |next| page(&server, list, &talk, limit, &next).await).await;
            assert_eq!(rows, whole, "{} in pages of {limit}", list.path);
            let Some(rpc) = list.rpc else { continue };
            let rows = walk(list, limit, async |next| rpc_page(&server, rpc, &talk, limit, &next).await.unwrap()).await;
            assert_eq!(rows, whole, "{rpc} in pages of {limit}");
        }
    }
}

#[tokio::test]
async fn cursor_that_no_page_gave_is_refused_by_every_list_on_every_front_end() {
    let (server, talk) = filled().await;
    for list in &LISTS {
        for rubbish in ["x", "-1", "1.5", "%00", "99999999999999999999999999", "~.~"] {
            let path = format!("{}?limit=1&next={rubbish}", list.path.replace("{id}", &talk));
            let (status, problem) = server.get(&path).await;
            assert_eq!(
                (status, problem["code"].as_str(), problem["field"].as_str()),
                (400, Some("invalid_request"), Some("next")),
                "{path}: {problem}"
            );
            let Some(rpc) = list.rpc else { continue };
            let refused = rpc_page(&server, rpc, &talk, 1, rubbish).await.unwrap_err();
            assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{rpc} {rubbish}: {refused:?}");
        }
    }
}

#[test]
fn every_list_with_pages_is_in_the_table_of_these_tests() {
    let document = super::super::openapi::document();
    let paths = document["paths"].as_object().unwrap().iter();
    let has_pages = |operation: &Value| {
        let parameters = operation["get"]["parameters"].as_array();
        parameters.is_some_and(|all| all.iter().any(|p| p["name"] == "limit" || p["name"] == "next"))
    };
    let is_list = |path: &str| !NO_LISTS.iter().any(|(other, _)| *other == path);
    let served: BTreeSet<&str> =
        paths.filter(|(path, o)| is_list(path) && has_pages(o)).map(|(path, _)| path.as_str()).collect();
    assert_eq!(served, LISTS.iter().map(|list| list.path).collect(), "HTTP");

    let contract = prost_types::FileDescriptorSet::decode(grpc::DESCRIPTOR).unwrap();
    let messages: Vec<_> = contract.file.iter().flat_map(|file| &file.message_type).collect();
    let has_pages = |input: &str| {
        let message = messages.iter().find(|m| input.rsplit('.').next() == Some(m.name())).unwrap();
        message.field.iter().any(|field| field.name() == "next")
    };
    let services = contract.file.iter().flat_map(|file| &file.service);
    let served: BTreeSet<String> = services
        .flat_map(|service| service.method.iter().map(move |method| (service, method)))
        .filter(|(_, method)| has_pages(method.input_type()))
        .map(|(service, method)| format!("{}/{}", service.name(), method.name()))
        .filter(|method| is_list(method))
        .collect();
    assert_eq!(served, LISTS.iter().filter_map(|list| list.rpc).map(str::to_owned).collect(), "gRPC");
}
