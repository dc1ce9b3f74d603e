//! The search over the events of all conversations: filters, pages, bad input, and the borders between users.

use serde_json::{Value, json};

use super::world::{Server, echo, read};
use crate::{
    auth::KeyScope,
    grpc::v1::{self, events_client::EventsClient, scheduler_client::SchedulerClient, skills_client::SkillsClient},
};

/// The kinds of the events that a search found.
fn kinds(found: &Value) -> Vec<&str> {
    let events = found["events"].as_array().unwrap_or_else(|| panic!("no events: {found}"));
    events.iter().map(|event| event["kind"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn event_search_finds_events_by_kind_text_and_time_newest_first() {
    let server = Server::start(echo()).await;
    for text in ["buy Oolong", "call Bob"] {
        server.say(json!({"text": text, "conversation_key": text})).await;
    }
    let (status, all) = server.get("/api/v1/events").await;
    assert_eq!((status, &all["searched"], &all["left_out"]), (200, &json!(2), &json!(0)), "{all}");
    let times: Vec<&str> =
        all["events"].as_array().unwrap().iter().map(|event| event["at"].as_str().unwrap()).collect();
    assert!(times.windows(2).all(|pair| pair[0] >= pair[1]), "newest first: {times:?}");

    let (_, received) = server.get("/api/v1/events?kind=received&text=oolong").await;
    assert_eq!((kinds(&received), &received["events"][0]["text"]), (vec!["received"], &json!("buy Oolong")));
    let (_, nothing) = server.get("/api/v1/events?kind=received&text=green").await;
    assert_eq!((kinds(&nothing).len(), &nothing["searched"]), (0, &json!(2)), "{nothing}");
    let (_, later) = server.get("/api/v1/events?from=2999-01-01T00:00:00Z").await;
    assert_eq!(
        (kinds(&later).len(), &later["searched"]),
        (0, &json!(0)),
        "conversations without such events are skipped"
    );
    let (_, earlier) = server.get("/api/v1/events?before=1999-01-01T00:00:00Z").await;
    assert_eq!(kinds(&earlier).len(), 0, "{earlier}");

    for (query, field) in [("cursor=x", "cursor"), ("from=yesterday", "from"), ("everything=1", "everything")] {
        let (status, problem) = server.get(&format!("/api/v1/events?{query}")).await;
        assert!(status == 400 && problem.to_string().contains(field), "{query} -> {status} {problem}");
    }
}

#[tokio::test]
async fn event_search_continues_at_its_cursor_until_every_conversation_was_searched() {
    let server = Server::start(echo()).await;
    for n in 0..23 {
        server.say(json!({"text": format!("message {n}"), "conversation_key": format!("talk {n}")})).await;
    }
    let (mut found, mut cursor, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let (_, page) = server.get(&format!("/api/v1/events?kind=received&cursor={cursor}")).await;
        found.extend(page["events"].as_array().unwrap().iter().map(|event| event["text"].as_str().unwrap().to_owned()));
        pages += 1;
        assert!(pages < 20, "the cursor does not end: {page}");
        match page["cursor"].as_str() {
            Some(next) => cursor = next.to_owned(),
            None => break,
        }
    }
    found.sort();
    found.dedup();
    assert_eq!((found.len(), pages), (23, 2), "{found:?}");
}

#[tokio::test]
async fn event_search_of_everyone_needs_the_admin_scope() {
    let server = Server::start(echo()).await;
    let (ann, bob) = (server.key("ann", &[KeyScope::Chat]).await, server.key("bob", &[KeyScope::Chat]).await);
    let root = server.key("root", &[KeyScope::Admin]).await;
    let sent = server.request(reqwest::Method::POST, "/api/v1/messages?wait=20").bearer_auth(&ann);
    read(sent.json(&json!({"text": "a secret"})).send().await.unwrap()).await;
    let search = async |key: &str, query: &str| {
        let request = server.request(reqwest::Method::GET, &format!("/api/v1/events{query}")).bearer_auth(key);
        read(request.send().await.unwrap()).await
    };
    assert!(search(&ann, "?text=secret").await.1.to_string().contains("a secret"));
    let (status, of_bob) = search(&bob, "").await;
    assert_eq!((status, kinds(&of_bob).len()), (200, 0), "{of_bob}");
    let (status, refused) = search(&bob, "?everyone=true").await;
    assert_eq!((status, &refused["field"]), (403, &json!("everyone")), "{refused}");
    assert!(search(&root, "?everyone=true&text=secret").await.1.to_string().contains("a secret"));

    let mut client = EventsClient::connect(format!("http://{}", server.at)).await.unwrap();
    let mut request = tonic::Request::new(v1::SearchEventsRequest { text: "secret".to_owned(), ..Default::default() });
    request.metadata_mut().insert("authorization", format!("Bearer {ann}").parse().unwrap());
    let found = client.search(request).await.unwrap().into_inner();
    assert!(found.searched == 1 && found.events.iter().any(|event| event.json.contains("a secret")), "{found:?}");
}

#[tokio::test]
async fn settings_are_listed_for_operators_only() {
    let server = Server::start(echo()).await;
    let (status, empty) = server.get("/api/v1/settings").await;
    assert_eq!((status, empty), (200, json!({"settings": []})), "this server was given none");
    let mut scheduler = SchedulerClient::connect(format!("http://{}", server.at)).await.unwrap();
    let listed = scheduler.list_settings(v1::ListSettingsRequest {}).await.unwrap().into_inner();
    assert!(listed.settings.is_empty(), "{listed:?}");
    let hour = scheduler.overview(v1::OverviewRequest {}).await.unwrap().into_inner();
    assert_eq!(hour.minutes.len(), 60, "the last hour has 60 minutes: {hour:?}");
    let ann = server.key("ann", &[KeyScope::Chat]).await;
    let request = server.request(reqwest::Method::GET, "/api/v1/settings").bearer_auth(&ann);
    assert_eq!(read(request.send().await.unwrap()).await.0, 403);
}

#[tokio::test]
async fn data_with_bad_input_is_refused_and_a_new_user_has_none() {
    let server = Server::start(echo()).await;
    for (query, part) in [
        ("", "kind"),
        ("kind=notes", "todos"),
        ("kind=todos&deleted=true&query=x", "trash"),
        ("kind=todos&limit=3", "limit"),
    ] {
        let (status, problem) = server.get(&format!("/api/v1/data?{query}")).await;
        assert!(status == 400 && problem.to_string().contains(part), "{query} -> {status} {problem}");
    }
    for query in ["kind=todos", "kind=memories&query=tea", "kind=memories&deleted=true"] {
        assert_eq!(server.get(&format!("/api/v1/data?{query}")).await, (200, json!({"documents": []})), "{query}");
    }
    let mut skills = SkillsClient::connect(format!("http://{}", server.at)).await.unwrap();
    let asked = |kind: &str| v1::ListDataRequest { kind: kind.to_owned(), ..Default::default() };
    assert!(skills.list_data(asked("todos")).await.unwrap().into_inner().documents.is_empty());
    let refused = skills.list_data(asked("notes")).await.unwrap_err();
    assert!(refused.code() == tonic::Code::InvalidArgument && refused.message().contains("memories"), "{refused:?}");
}

#[tokio::test]
async fn page_file_of_another_version_is_not_found() {
    let server = Server::start(echo()).await;
    let (status, problem) = server.get("/page/0123456789abcdef/app.js").await;
    assert!(status == 404 && problem.to_string().contains("reload"), "{status} {problem}");
}
