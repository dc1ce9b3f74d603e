//! The live stream of the page: topics, scopes, resumption, and the actor tree as differences.

use std::collections::VecDeque;

use futures_util::{StreamExt, stream::BoxStream};
use reqwest::{Method, Response};
use serde_json::{Value, json};

use super::world::{PATIENCE, Server, delegating, echo, read};
use crate::{
    api::ApiLimits,
    auth::KeyScope,
    grpc::v1::{self, scheduler_client::SchedulerClient},
};

/// A server-sent event: (id, event, data).
type Sent = (String, String, Value);

/// A live stream that is read event by event.
struct Live {
    bytes: BoxStream<'static, Vec<u8>>,
    text: String,
    ready: VecDeque<Sent>,
}

impl Live {
    fn of(response: Response) -> Self {
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let bytes = response.bytes_stream().map(|chunk| chunk.unwrap().to_vec()).boxed();
        Self { bytes, text: String::new(), ready: VecDeque::new() }
    }

    async fn open(server: &Server, query: &str) -> Self {
        Self::of(server.request(Method::GET, &format!("/api/v1/live?{query}")).send().await.unwrap())
    }

    async fn next(&mut self) -> Sent {
        let read = async {
            loop {
                if let Some(sent) = self.ready.pop_front() {
                    return sent;
                }
                self.text.push_str(std::str::from_utf8(&self.bytes.next().await.unwrap()).unwrap());
                while let Some(at) = self.text.find("\n\n") {
                    let block: String = self.text.drain(..at + 2).collect();
                    let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
                    if let Ok(data) = serde_json::from_str(field("data: ")) {
                        self.ready.push_back((field("id: ").to_owned(), field("event: ").to_owned(), data));
                    }
                }
            }
        };
        tokio::time::timeout(PATIENCE, read).await.unwrap()
    }

    /// The next event of this name for which the check holds.
    async fn until(&mut self, event: &str, holds: impl Fn(&Value) -> bool) -> Sent {
        loop {
            let sent = self.next().await;
            if sent.1 == event && holds(&sent.2) {
                return sent;
            }
        }
    }
}

#[tokio::test]
async fn live_stream_sends_each_topic_over_one_connection() {
    let server = Server::start(delegating()).await;
    let sent = server.say(json!({ "text": "do it" })).await;
    let conversation = sent["conversation_id"].as_str().unwrap();
    let topics = format!("topics=status,queue,overview,tree,notifications,conversation:{conversation}");
    let mut live = Live::open(&server, &topics).await;
    let (mut hello, mut seen) = (Value::Null, Vec::new());
    while ["hello", "status", "queue", "overview", "tree", "event"].iter().any(|one| !seen.contains(&(*one).to_owned()))
    {
        let (_, event, data) = live.next().await;
        match event.as_str() {
            "hello" => hello = data,
            "status" => assert_eq!((&data["ready"], &data["backends"][0]["name"]), (&json!(true), &json!("main"))),
            "queue" => assert_eq!(data["backends"][0]["gate"]["closed"], false, "{data}"),
            "overview" => assert_eq!(data["minutes"].as_array().unwrap().len(), 60),
            "tree" => assert_eq!((data["seq"].as_u64(), &data["changed"][0]["path"]), (Some(0), &json!("/"))),
            "event" => assert_eq!(data["conversation_id"], conversation),
            other => panic!("{other}: {data}"),
        }
        seen.push(event);
    }
    assert_eq!((&hello["user"], &hello["needs_keys"], &hello["refused"]), (&json!("me"), &json!(false), &json!([])));
    assert_eq!(hello["topics"].as_array().unwrap().len(), 6, "{hello}");
}

#[tokio::test]
async fn live_stream_resumes_a_conversation_after_the_last_id() {
    let server = Server::start(delegating()).await;
    let sent = server.say(json!({ "text": "do it" })).await;
    let topics = format!("topics=notifications,conversation:{}", sent["conversation_id"].as_str().unwrap());
    let mut live = Live::open(&server, &topics).await;
    let (mut ids, mut seqs) = (Vec::new(), Vec::new());
    loop {
        let (id, _, data) = live.until("event", |_| true).await;
        ids.push(id);
        seqs.push(data["seq"].as_u64().unwrap());
        if data["kind"] == "answered" {
            break;
        }
    }
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
    for (n, id) in ids.iter().enumerate().take(ids.len() - 1) {
        let again = server.request(Method::GET, &format!("/api/v1/live?{topics}")).header("last-event-id", id);
        let mut again = Live::of(again.send().await.unwrap());
        let (_, _, next) = again.until("event", |_| true).await;
        assert_eq!(next["seq"].as_u64(), Some(n as u64 + 2), "after {id}");
    }
    let far = Live::open(&server, &format!("{topics}@99")).await.until("reset", |_| true).await;
    assert_eq!(far.2["last_seq"].as_u64(), seqs.last().copied());
}

#[tokio::test]
async fn live_stream_names_topics_that_the_key_may_not_follow() {
    let server = Server::start(echo()).await;
    let foreign = server.say(json!({ "text": "one" })).await["conversation_id"].as_str().unwrap().to_owned();
    let chat = server.key("ann", &[KeyScope::Chat]).await;
    let jobs = server.key("ann", &[KeyScope::JobsRead]).await;
    let ask = async |key: &str, topics: &str| {
        let request = server.request(Method::GET, &format!("/api/v1/live?topics={topics}"));
        request.bearer_auth(key).send().await.unwrap()
    };
    let topics = format!("status,notifications,conversation:{foreign}");
    let (_, _, hello) = Live::of(ask(&chat, &topics).await).until("hello", |_| true).await;
    assert_eq!((&hello["topics"], &hello["scopes"]), (&json!(["notifications"]), &json!(["chat"])));
    let refused: Vec<_> = hello["refused"].as_array().unwrap().iter().map(|r| (&r["topic"], &r["code"])).collect();
    let conversation = json!(format!("conversation:{foreign}"));
    assert_eq!(refused, [(&json!("status"), &json!("forbidden")), (&conversation, &json!("not_found"))]);
    let (status, problem) = read(ask(&chat, &format!("conversation:{foreign}")).await).await;
    assert_eq!((status, &problem["code"]), (404, &json!("not_found")), "another user's conversation does not exist");
    assert_eq!(read(ask(&jobs, "status,tree").await).await.0, 403);
    assert_eq!(server.get("/api/v1/live?topics=status").await.0, 401, "without a key");
}

#[tokio::test]
async fn live_stream_refuses_unknown_topics_bad_places_and_too_many_streams() {
    let limits = ApiLimits { streams_per_user_max: 1, ..ApiLimits::default() };
    let server = Server::with(echo(), limits).await;
    let (status, problem) = server.get("/api/v1/live?topics=weather").await;
    assert_eq!((status, &problem["field"]), (400, &json!("topics")), "{problem}");
    assert_eq!(server.get("/api/v1/live").await.0, 400, "no topics");
    assert_eq!(server.get("/api/v1/live?topics=tree&actors_max=0").await.1["field"], "actors_max");
    let bad = server.request(Method::GET, "/api/v1/live?topics=status").header("last-event-id", "7");
    assert_eq!(read(bad.send().await.unwrap()).await.1["field"], "Last-Event-ID");
    let first = Live::open(&server, "topics=status").await;
    assert_eq!(server.get("/api/v1/live?topics=status").await.0, 429);
    drop(first);
}

#[tokio::test]
async fn live_tree_shows_who_killed_an_actor_and_its_next_incarnation() {
    let server = Server::start(echo()).await;
    let mut live = Live::open(&server, "topics=tree&search=SCHEDULER").await;
    let (_, _, first) = live.until("tree", |_| true).await;
    let shown = first["changed"].as_array().unwrap();
    let actor = shown.iter().find(|actor| actor["path"] == "/scheduler").unwrap();
    assert!(first["all"].as_u64() > first["total"].as_u64(), "the filter hides the others: {first}");
    let incarnation = actor["incarnation"].as_u64().unwrap();
    let kill = json!({ "path": "/scheduler", "incarnation": incarnation, "reason": "to see it fall" });
    assert_eq!(server.post("/api/v1/actors/kill", kill).await.0, 200);
    let mut seq = 0;
    let is_fall = |end: &&Value| end["path"] == "/scheduler" && end["incarnation"].as_u64() == Some(incarnation);
    loop {
        let (_, _, diff) = live.until("tree", |_| true).await;
        seq += 1;
        assert_eq!(diff["seq"].as_u64(), Some(seq), "no difference is missing");
        let Some(end) = diff["gone"].as_array().unwrap().iter().find(is_fall).cloned() else { continue };
        assert_eq!(end["cause"], "kill");
        assert_eq!(end["by"], "me (local): to see it fall");
        break;
    }
    let (_, crashes) = server.get("/api/v1/actors/crashes").await;
    assert_eq!(crashes["operated"][0]["operation"], "kill", "{crashes}");
    assert_eq!(crashes["crashes"], json!([]), "an operator's kill is no crash");
}

#[tokio::test]
async fn live_tree_shows_only_busy_actors_and_those_below_a_path() {
    let server = Server::start(echo()).await;
    let (_, _, infra) = Live::open(&server, "topics=tree&under=infra&actors_max=2").await.until("tree", |_| true).await;
    let shown = infra["changed"].as_array().unwrap();
    assert_eq!(shown.len(), 2);
    assert!(shown.iter().all(|actor| actor["path"].as_str().unwrap().starts_with("/infra")), "{infra}");
    assert!(infra["total"].as_u64() > Some(2), "{infra}");
    let (_, _, busy) = Live::open(&server, "topics=tree&busy=true").await.until("tree", |_| true).await;
    assert!(busy["total"].as_u64() < busy["all"].as_u64(), "{busy}");
}

#[tokio::test]
async fn live_stream_ends_when_its_key_is_revoked() {
    let server = Server::start(echo()).await;
    let admin = server.key("ops", &[KeyScope::Admin]).await;
    let secret = server.key("ann", &[KeyScope::Chat]).await;
    let request = server.request(Method::GET, "/api/v1/live?topics=notifications").bearer_auth(&secret);
    let mut live = Live::of(request.send().await.unwrap());
    live.until("hello", |_| true).await;
    let keys = server.request(Method::GET, "/api/v1/keys").bearer_auth(&admin).send().await.unwrap();
    let keys = read(keys).await.1;
    let ann = keys["keys"].as_array().unwrap().iter().find(|key| key["user"] == "ann").unwrap().clone();
    let revoke = format!("/api/v1/keys/{}/revoke", ann["id"].as_str().unwrap());
    server.request(Method::POST, &revoke).bearer_auth(&admin).send().await.unwrap();
    assert_eq!(live.until("error", |_| true).await.2["code"], "unauthenticated");
}

#[tokio::test]
async fn overview_counts_turns_restarts_and_waits_of_the_last_hour() {
    let server = Server::start(echo()).await;
    server.say(json!({ "text": "one" })).await;
    server.say(json!({ "text": "two" })).await;
    let kill = json!({ "path": "/scheduler", "reason": "a test", "force": true });
    assert_eq!(server.post("/api/v1/actors/kill", kill).await.0, 200);
    server.say(json!({ "text": "three" })).await;
    let (status, overview) = server.get("/api/v1/overview").await;
    assert_eq!(status, 200, "{overview}");
    let minutes = overview["minutes"].as_array().unwrap();
    let sum = |key: &str| minutes.iter().filter_map(|minute| minute[key].as_u64()).sum::<u64>();
    assert_eq!((minutes.len(), sum("turns"), sum("failures")), (60, 3, 0), "{overview}");
    assert!(
        overview["since"].as_str().is_some_and(|at| at > "2020"),
        "what is before the start is not counted: {overview}"
    );
    assert!(sum("restarts") >= 1, "the scheduler was started again: {overview}");
    assert!(minutes.iter().any(|minute| minute["first_token_p95_ms"].is_u64()), "{overview}");
    let mut scheduler = SchedulerClient::connect(format!("http://{}", server.at)).await.unwrap();
    let over_grpc = scheduler.overview(v1::OverviewRequest {}).await.unwrap().into_inner().minutes;
    assert_eq!((over_grpc.len(), over_grpc.iter().map(|minute| minute.turns).sum::<u32>()), (60, 3));
}
