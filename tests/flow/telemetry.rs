//! Traces of a real server, as a collector receives them by OTLP.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Duration,
};

use annie::grpc::v1::{self, chat_client::ChatClient};
use annie_testkit::model_server::{FakeModelServer, Reply, Seen};
use serde_json::{Value, json};
use tonic::transport::Channel;

use super::{bad_models::ask, command_line::annie};
use crate::{server::Server, world::eventually};

/// A span as the collector got it.
#[derive(Debug, Clone)]
struct Got {
    id: String,
    parent: String,
    trace: String,
    name: String,
    attributes: BTreeMap<String, Value>,
    json: Value,
}

impl Got {
    fn of(json: &Value) -> Self {
        let text = |key: &str| json[key].as_str().unwrap_or_default().to_owned();
        let attributes = json["attributes"].as_array().into_iter().flatten();
        let attribute = |one: &Value| {
            let value = one["value"].as_object().and_then(|value| value.values().next()).cloned();
            (one["key"].as_str().expect("a key").to_owned(), value.unwrap_or_default())
        };
        Self {
            id: text("spanId"),
            parent: text("parentSpanId"),
            trace: text("traceId"),
            name: text("name"),
            attributes: attributes.map(attribute).collect(),
            json: json.clone(),
        }
    }

    fn nanos(&self, key: &str) -> u128 {
        self.json[key].as_str().and_then(|nanos| nanos.parse().ok()).expect("a time")
    }
}

/// The spans of a request.
fn spans_in(seen: &Seen) -> Vec<Got> {
    let body = seen.json();
    let scopes = body["resourceSpans"].as_array().into_iter().flatten();
    let scopes = scopes.flat_map(|resource| resource["scopeSpans"].as_array().into_iter().flatten());
    scopes.flat_map(|scope| scope["spans"].as_array().into_iter().flatten()).map(Got::of).collect()
}

/// All spans that a collector has received.
fn all_spans(collector: &FakeModelServer) -> Vec<Got> {
    collector.requests().iter().flat_map(spans_in).collect()
}

/// The spans of a task, when the collector has them.
async fn trace_of(collector: &FakeModelServer, task: &str) -> Vec<Got> {
    eventually("the trace arrives", async || {
        let is_its = |span: &Got| span.attributes.get("annie.task.id").is_some_and(|id| id == task);
        let all = all_spans(collector);
        let trace = all.iter().find(|span| is_its(span))?.trace.clone();
        Some(all.into_iter().filter(|span| span.trace == trace).collect::<Vec<_>>())
    })
    .await
}

/// The address of a collector for the configuration.
fn endpoint(collector: &FakeModelServer) -> String {
    collector.base_url().trim_end_matches("/v1").to_owned()
}

fn table(collector: &FakeModelServer, more: &str) -> String {
    format!("[telemetry]\notlp_endpoint = \"{}\"\ndelay_ms = 1\n{more}\n", endpoint(collector))
}

/// A server with this model, whose rounds may take some seconds.
async fn server_with(model: &FakeModelServer, more: &str) -> (tempfile::TempDir, Server) {
    let folder = tempfile::tempdir().expect("a folder");
    let text = format!(
        "{more}\n[[backend]]\nname = \"gpu\"\nprofile = \"generic\"\nbase_url = \"{}\"\nmodel = \"small-1\"\n",
        model.base_url()
    );
    std::fs::write(folder.path().join("annie.toml"), text).expect("written");
    let server = Server::start(folder.path(), &config(folder.path()), &[]).await;
    (folder, server)
}

fn config(folder: &Path) -> [&'static str; 2] {
    let path = folder.join("annie.toml").to_str().expect("a path").to_owned();
    ["--config", Box::leak(path.into_boxed_str())]
}

async fn taking() -> FakeModelServer {
    FakeModelServer::start(|_| Reply::body(200, "{}")).await
}

/// A number of `/metrics`, 0 if it is not there.
async fn counted(server: &Server, name: &str) -> f64 {
    let page = server.http.get(format!("{}/metrics", server.url)).send().await.expect("an answer");
    let page = page.text().await.expect("text");
    page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap_or(0.0)
}

fn one<'a>(spans: &'a [Got], name: &str) -> &'a Got {
    let found: Vec<&Got> = spans.iter().filter(|span| span.name == name).collect();
    let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(found.len(), 1, "one span {name} among {names:?}");
    found[0]
}

/// Every span has an id of its own, begins before it ends, and has a parent within the trace, except the first.
fn assert_whole(spans: &[Got]) {
    let ids: BTreeSet<&str> = spans.iter().map(|span| span.id.as_str()).collect();
    assert_eq!(ids.len(), spans.len(), "an id is used twice: {spans:#?}");
    let orphans: Vec<&Got> = spans.iter().filter(|span| !ids.contains(span.parent.as_str())).collect();
    assert_eq!(orphans.len(), 1, "one span has no parent in the trace: {orphans:#?}");
    for span in spans {
        assert!(span.nanos("startTimeUnixNano") <= span.nanos("endTimeUnixNano"), "{span:#?}");
    }
}

/// A model that has two agents create a task each, and then answers.
fn two_agents(seen: &Seen) -> Reply {
    let last = seen.messages().last().cloned().unwrap_or_default();
    let (is_result, text) = (last["role"] == "tool", last["content"].to_string());
    if !seen.tool_names().iter().any(|tool| tool == "dispatch_agent") {
        return match text.contains("Created task") {
            true => Reply::says("It was created."),
            false => {
                let title = if seen.json().to_string().contains("the first task") { "one" } else { "two" };
                Reply::says(format!("```cmd\ntasks.create --title \"a-private-title-{title}\"\n```"))
            }
        };
    }
    let mission = |agent: &str, which: &str| json!({"agent_id": agent, "mission": format!("create the {which} task"), "skills": ["tasks.create"]});
    if is_result && text.contains("It was created") {
        return Reply::says("Both are there.");
    }
    Reply::calls([
        ("get_skill", json!({"domain": "tasks"})),
        ("dispatch_agent", mission("one", "first")),
        ("dispatch_agent", mission("two", "second")),
        ("get_agent_results", json!({})),
    ])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trace_of_a_turn_with_two_agents_is_one_tree_with_names_and_without_texts() {
    let (model, collector) = (FakeModelServer::start(two_agents).await, taking().await);
    let more = format!("mode = \"multi_agent\"\n{}", table(&collector, ""));
    let (_folder, server) = server_with(&model, &more).await;
    let sent = ask(&server, "my-private-words").await;
    assert_eq!(sent["answer"], "Both are there.", "{sent}");
    let task = sent["task_id"].as_str().expect("a task");
    let spans = trace_of(&collector, task).await;
    assert_whole(&spans);
    assert_eq!(format!("task_{}", spans[0].trace), task, "the digits of the task's id find its trace");
    let message = one(&spans, "message http");
    let main = one(&spans, "invoke_agent orchestrator");
    assert_eq!((message.parent.as_str(), &main.parent), ("", &message.id));
    assert_eq!((&message.json["kind"], &message.attributes["annie.outcome"]), (&json!(2), &json!("done")));
    for agent in ["one", "two"] {
        let span = one(&spans, &format!("invoke_agent {agent}"));
        assert_eq!(span.parent, main.id, "{span:#?}");
        assert_eq!(span.attributes["gen_ai.operation.name"], "invoke_agent");
        let own: Vec<&Got> = spans.iter().filter(|other| other.parent == span.id).collect();
        let skill = own.iter().find(|other| other.name == "execute_tool tasks.create").expect("its skill");
        assert_eq!(skill.attributes["gen_ai.tool.name"], "tasks.create");
        assert!(skill.attributes["gen_ai.tool.call.id"].as_str().is_some_and(|id| !id.is_empty()), "{skill:#?}");
        assert_eq!(skill.attributes["annie.outcome"], "success");
        assert_eq!(own.iter().filter(|other| other.name == "chat small-1").count(), 2, "{own:#?}");
    }
    assert_eq!(one(&spans, "execute_tool get_skill").parent, main.id);
    let round = spans.iter().find(|span| span.name == "chat small-1" && span.parent == main.id).expect("a round");
    for (key, value) in [
        ("gen_ai.operation.name", json!("chat")),
        ("gen_ai.provider.name", json!("generic")),
        ("gen_ai.request.model", json!("small-1")),
        ("gen_ai.conversation.id", sent["conversation_id"].clone()),
        ("gen_ai.response.finish_reasons", json!({"values": []})),
    ] {
        let got = &round.attributes[key];
        if let Some(list) = got["values"].as_array() {
            assert_eq!(list, &[json!({"stringValue": "tool_calls"})], "{round:#?}");
        } else {
            assert_eq!(got, &value, "{key}: {round:#?}");
        }
    }
    let tokens = round.attributes["gen_ai.usage.input_tokens"].as_str().expect("a number as text");
    assert!(tokens.parse::<u64>().is_ok() && round.json["kind"] == 3, "{round:#?}");
    let request = collector.requests().first().expect("a request").clone();
    assert_eq!((request.path.as_str(), request.header("content-type")), ("/v1/traces", Some("application/json")));
    let resource = request.json()["resourceSpans"][0]["resource"].to_string();
    assert!(resource.contains("service.name") && resource.contains("annie"), "{resource}");
    for seen in collector.requests() {
        let body = seen.json().to_string();
        let has_text = |text: &str| body.contains(text);
        assert!(!has_text("private") && !has_text("Both are there") && !has_text("It was created"), "{body}");
    }
    assert!(counted(&server, "annie_telemetry_spans_total{result=\"sent\"}").await >= 11.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trace_contains_texts_if_the_operator_asks_and_the_message_is_not_private() {
    let model = FakeModelServer::start(two_agents).await;
    let collector = taking().await;
    let local = "privacy = \"local\"\n";
    let more = format!("mode = \"multi_agent\"\n{}", table(&collector, "content = true"));
    let folder = tempfile::tempdir().expect("a folder");
    let backend = format!("[[backend]]\nname = \"gpu\"\nbase_url = \"{}\"\nmodel = \"small-1\"\n", model.base_url());
    std::fs::write(folder.path().join("annie.toml"), format!("{more}{backend}{local}")).expect("written");
    let server = Server::start(folder.path(), &config(folder.path()), &[]).await;
    for (is_private, body) in
        [(false, json!({"text": "my-words"})), (true, json!({"text": "my-words", "private": true}))]
    {
        let (status, sent) = server.post("/api/v1/messages?wait=20", &body).await.expect("an answer");
        assert_eq!((status, &sent["answer"]), (200, &json!("Both are there.")), "{sent}");
        let spans = trace_of(&collector, sent["task_id"].as_str().expect("a task")).await;
        let all: String = spans.iter().map(|span| span.json.to_string()).collect();
        for text in ["my-words", "a-private-title", "Both are there.", "It was created.", "Created task"] {
            assert_eq!(all.contains(text), !is_private, "{text}, private: {is_private}: {all}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trace_of_a_failed_turn_names_the_error() {
    let (model, collector) = (FakeModelServer::start(|_| Reply::error(401, "who?")).await, taking().await);
    let (_folder, server) = server_with(&model, &table(&collector, "")).await;
    let sent = ask(&server, "hello").await;
    assert_eq!(sent["status"], "failed", "{sent}");
    let spans = trace_of(&collector, sent["task_id"].as_str().expect("a task")).await;
    assert_whole(&spans);
    let round = spans.iter().find(|span| span.name.starts_with("chat")).expect("a round");
    assert_eq!((&round.attributes["error.type"], &round.json["status"]["code"]), (&json!("auth"), &json!(2)));
    let message = one(&spans, "message http");
    assert_eq!((&message.attributes["error.type"], &message.json["status"]["code"]), (&sent["error"], &json!(2)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trace_continues_the_trace_of_its_caller_on_every_front_end() {
    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    let (model, collector) = (FakeModelServer::start(|_| Reply::says("Fine.")).await, taking().await);
    let (_folder, server) = server_with(&model, &table(&collector, "")).await;
    let post = async |path: &str, body: Value, traceparent: String| {
        let request = server.http.post(format!("{}{path}", server.url)).header("traceparent", traceparent);
        let sent = request.json(&body).send().await.expect("an answer");
        assert_eq!(sent.status().as_u16(), 200);
        sent.json::<Value>().await.expect("JSON")
    };
    let said = json!({"text": "hello"});
    let chat = json!({"model": "annie", "messages": [{"role": "user", "content": "hello there"}]});
    // The caller of the first one does not record its trace.
    post("/api/v1/messages?wait=20", said.clone(), format!("00-{TRACE}-00f067aa0ba902b0-00")).await;
    post("/api/v1/messages?wait=20", said.clone(), format!("00-{TRACE}-00f067aa0ba902b1-01")).await;
    post("/v1/chat/completions", chat, format!("00-{TRACE}-00f067aa0ba902b2-01")).await;
    let mut chat = ChatClient::new(Channel::from_shared(server.url.clone()).expect("a URL").connect_lazy());
    let mut request = tonic::Request::new(v1::SubmitRequest { text: "hello".to_owned(), ..Default::default() });
    let parent = format!("00-{TRACE}-00f067aa0ba902b3-01").parse().expect("ASCII");
    request.metadata_mut().insert("traceparent", parent);
    chat.submit(request).await.expect("accepted");
    eventually("the trace of the gRPC message arrives", async || {
        all_spans(&collector).iter().any(|span| span.name == "message grpc").then_some(())
    })
    .await;
    let wrong = post("/api/v1/messages?wait=20", said, "00-nothing".to_owned()).await;
    trace_of(&collector, wrong["task_id"].as_str().expect("a task")).await;
    let spans = all_spans(&collector);
    let parents: BTreeSet<(&str, &str)> = spans
        .iter()
        .filter(|span| span.name.starts_with("message") && span.trace == TRACE)
        .map(|span| (span.parent.as_str(), span.name.as_str()))
        .collect();
    let wanted = [("b1", "message http"), ("b2", "message openai"), ("b3", "message grpc")];
    let wanted = wanted.map(|(end, name)| (format!("00f067aa0ba902{end}"), name));
    assert_eq!(parents, wanted.iter().map(|(parent, name)| (parent.as_str(), *name)).collect(), "{spans:#?}");
    let foreign = spans.iter().filter(|span| span.trace != TRACE && span.name == "message http");
    assert_eq!(foreign.count(), 1, "a header that is not valid counts as absent");
}

/// A model that creates a task, and takes its time for the answer.
fn slow_second_round(seen: &Seen) -> Reply {
    match seen.messages().last().is_some_and(|last| last["role"] == "tool") {
        true => Reply::says("Done.").first_after(Duration::from_millis(1_500)),
        false => Reply::calls([("use_skill", json!({"skill": "tasks.create", "arguments": {"title": "x"}}))]),
    }
}

fn assert_one_whole_trace(collector: &FakeModelServer, spans: &[Got]) {
    assert_whole(spans);
    assert_eq!(all_spans(collector).len(), spans.len(), "there is one trace, and it was sent once");
    one(spans, "execute_tool tasks.create");
    assert_eq!(spans.iter().filter(|span| span.name == "chat small-1").count(), 2, "{spans:#?}");
    let main = one(spans, "invoke_agent orchestrator");
    assert!(main.json["events"].to_string().contains("resumed"), "{main:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trace_is_whole_and_sent_once_after_the_engine_was_killed_in_its_turn() {
    let (model, collector) = (FakeModelServer::start(slow_second_round).await, taking().await);
    let (_folder, server) = server_with(&model, &format!("mode = \"single_loop\"\n{}", table(&collector, ""))).await;
    let (_, sent) = server.post("/api/v1/messages", &json!({"text": "do it"})).await.expect("an answer");
    model.arrived(2).await;
    let path = format!("/conversations/engine:{}", sent["conversation_id"].as_str().expect("an id"));
    let kill = json!({"path": path, "reason": "a test", "force": true});
    let (status, killed) = server.post("/api/v1/actors/kill", &kill).await.expect("an answer");
    assert_eq!(status, 200, "{killed}");
    let spans = trace_of(&collector, sent["task_id"].as_str().expect("a task")).await;
    assert_one_whole_trace(&collector, &spans);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trace_is_whole_and_sent_once_after_sigkill_of_the_process_in_its_turn() {
    let (model, collector) = (FakeModelServer::start(slow_second_round).await, taking().await);
    let more = format!("mode = \"single_loop\"\n{}", table(&collector, ""));
    let (folder, mut server) = server_with(&model, &more).await;
    let (_, sent) = server.post("/api/v1/messages", &json!({"text": "do it"})).await.expect("an answer");
    model.arrived(2).await;
    server.kill();
    let _server = server.again(folder.path(), &config(folder.path()), &[]).await;
    let spans = trace_of(&collector, sent["task_id"].as_str().expect("a task")).await;
    assert_one_whole_trace(&collector, &spans);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trace_of_a_task_whose_notification_died_with_the_log_writer_is_sent_once() {
    let (model, collector) = (FakeModelServer::start(|_| Reply::says("Fine.")).await, taking().await);
    let (folder, server) = server_with(&model, &format!("[chaos]\nenabled = true\n{}", table(&collector, ""))).await;
    let first = ask(&server, "hello").await;
    // The first commit stores the message, the second one its answer.
    let fault = ["chaos", "inject", "task", "panic", "--at", "commit", "--point", "after", "--skip", "1", "--once"];
    let (exit, _, printed) = annie(folder.path(), &fault, &[]).await;
    assert_eq!(exit, 0, "{printed}");
    let second = ask(&server, "hello again").await;
    assert_eq!(second["answer"], "Fine.", "{second}");
    let (_, crashes) = server.get("/api/v1/actors/crashes").await;
    assert!(crashes.to_string().contains("/infra/log"), "{crashes}");
    let mut spans = trace_of(&collector, first["task_id"].as_str().expect("a task")).await;
    spans.extend(trace_of(&collector, second["task_id"].as_str().expect("a task")).await);
    // The log is read again and again in the next minutes. A third task shows that nothing was sent twice until then.
    let third = ask(&server, "and again").await;
    spans.extend(trace_of(&collector, third["task_id"].as_str().expect("a task")).await);
    assert_eq!(all_spans(&collector).len(), spans.len(), "no trace was sent twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn telemetry_to_a_collector_that_is_down_drops_and_affects_no_turn() {
    let model = FakeModelServer::start(|_| Reply::says("Fine.")).await;
    // Nothing listens here: the socket is bound only.
    let port = tokio::net::TcpSocket::new_v4().expect("a socket");
    port.bind(([127, 0, 0, 1], 0).into()).expect("a free port");
    let table = format!(
        "[telemetry]\notlp_endpoint = \"http://{}\"\ndelay_ms = 1\nqueue_max = 1\n",
        port.local_addr().expect("bound")
    );
    let (_folder, mut server) = server_with(&model, &table).await;
    for _ in 0..4 {
        assert_eq!(ask(&server, "hello").await["answer"], "Fine.");
    }
    eventually("the dropped traces are counted", async || {
        (counted(&server, "annie_telemetry_dropped_total").await >= 3.0).then_some(())
    })
    .await;
    assert!(counted(&server, "annie_telemetry_queue").await <= 1.0);
    let warnings = server.log().iter().filter(|line| line.contains("WARN") && line.contains("telemetry")).count();
    assert_eq!(warnings, 1, "the change is logged once: {:#?}", server.log());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn telemetry_repeats_what_a_collector_takes_later_and_drops_what_it_refuses() {
    let model = FakeModelServer::start(|_| Reply::says("Fine.")).await;
    let collector = FakeModelServer::queue([
        Reply::error(503, "later"),
        Reply::body(200, r#"{"partialSuccess": {"rejectedSpans": "1", "errorMessage": "too old"}}"#),
        Reply::error(500, "broken"),
        Reply::body(200, "{}"),
    ])
    .await;
    let (_folder, server) = server_with(&model, &table(&collector, "batch_spans_max = 1")).await;
    let first = ask(&server, "hello").await;
    eventually("the request is repeated", async || (collector.request_count() >= 2).then_some(())).await;
    let [refused, repeated] = [0, 1].map(|n| collector.requests()[n].body.clone());
    assert_eq!(refused, repeated, "the same spans have the same ids");
    let second = ask(&server, "again").await;
    collector.arrived(3).await;
    let third = ask(&server, "and again").await;
    collector.arrived(4).await;
    for (sent, request) in [(&first, 1), (&second, 2), (&third, 3)] {
        let task = sent["task_id"].as_str().expect("a task");
        let spans = spans_in(&collector.requests()[request]);
        assert!(spans.iter().any(|span| span.attributes.get("annie.task.id").is_some_and(|id| id == task)));
    }
    eventually("all is counted", async || {
        let refused = counted(&server, "annie_telemetry_spans_total{result=\"refused\"}").await;
        let dropped = counted(&server, "annie_telemetry_dropped_total").await;
        (refused >= 3.0 && dropped >= 1.0 && counted(&server, "annie_telemetry_queue").await == 0.0).then_some(())
    })
    .await;
    let count = |text: &str| server.log().iter().filter(|line| line.contains(text)).count();
    assert_eq!((count("traces cannot be sent"), count("traces are sent again")), (1, 1), "{:#?}", server.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn telemetry_that_is_behind_sends_full_requests_without_a_delay() {
    const TURNS: usize = 15;
    let (model, collector) = (FakeModelServer::start(|_| Reply::says("Fine.")).await, taking().await);
    // With a delay before each request it would take longer than a test waits.
    let table =
        format!("[telemetry]\notlp_endpoint = \"{}\"\ndelay_ms = 5000\nbatch_spans_max = 1\n", endpoint(&collector));
    let (_folder, server) = server_with(&model, &table).await;
    for _ in 0..TURNS {
        assert_eq!(ask(&server, "hello").await["answer"], "Fine.");
    }
    let sent = u64::try_from(TURNS).expect("a small number");
    tokio::time::timeout(crate::world::PATIENCE, collector.arrived(sent)).await.expect("all traces arrive");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn telemetry_to_a_collector_that_hangs_delays_no_turn_and_no_stop() {
    let model = FakeModelServer::start(|_| Reply::says("Fine.")).await;
    let collector = FakeModelServer::start(|_| Reply::says("x").first_after(Duration::from_secs(3_600))).await;
    let (_folder, mut server) = server_with(&model, &table(&collector, "timeout_ms = 60000")).await;
    assert_eq!(ask(&server, "hello").await["answer"], "Fine.");
    collector.arrived(1).await;
    for _ in 0..3 {
        assert_eq!(ask(&server, "hello").await["answer"], "Fine.");
    }
    server.stop().await;
    let lost = server.log().iter().any(|line| line.contains("WARN") && line.contains("were not sent before"));
    assert!(lost, "{:#?}", server.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn telemetry_sends_what_waits_before_the_process_ends() {
    let (model, collector) = (FakeModelServer::start(|_| Reply::says("Fine.")).await, taking().await);
    let table = format!("[telemetry]\notlp_endpoint = \"{}\"\ndelay_ms = 60000\n", endpoint(&collector));
    let (_folder, mut server) = server_with(&model, &table).await;
    let sent = ask(&server, "hello").await;
    assert_eq!(collector.request_count(), 0);
    server.stop().await;
    trace_of(&collector, sent["task_id"].as_str().expect("a task")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn telemetry_header_is_a_stored_secret_which_nothing_shows() {
    const SECRET: &str = "Basic c2VjcmV0LW9mLWNvbGxlY3Rvcg==";
    let (model, collector) = (FakeModelServer::start(|_| Reply::says("Fine.")).await, taking().await);
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("secrets.key"), "7".repeat(64)).expect("written");
    std::fs::write(folder.path().join("value"), SECRET).expect("written");
    let key = format!("[secrets]\nkey_file = {:?}\n", folder.path().join("secrets.key"));
    let headers = table(&collector, "otlp_headers = { authorization = \"otlp\" }");
    let backend = format!("[[backend]]\nname = \"gpu\"\nbase_url = \"{}\"\nmodel = \"small-1\"\n", model.base_url());
    std::fs::write(folder.path().join("annie.toml"), format!("{key}{headers}{backend}")).expect("written");
    let mut server = Server::start(folder.path(), &config(folder.path()), &[]).await;
    ask(&server, "hello").await;
    eventually("the missing secret is reported", async || {
        server.log().iter().any(|line| line.contains("annie secret set otlp")).then_some(())
    })
    .await;
    server.stop().await;
    assert_eq!(collector.request_count(), 0, "nothing is sent without the header");
    let value = folder.path().join("value");
    let set = ["secret", "set", "otlp", "--file", value.to_str().expect("a path")];
    let arguments = [&config(folder.path())[..], &set].concat();
    let (exit, _, printed) = annie(folder.path(), &arguments, &[]).await;
    assert_eq!(exit, 0, "{printed}");
    let server = server.again(folder.path(), &config(folder.path()), &[]).await;
    let sent = ask(&server, "hello").await;
    trace_of(&collector, sent["task_id"].as_str().expect("a task")).await;
    assert_eq!(collector.requests()[0].header("authorization"), Some(SECRET));
    let (_, settings) = server.get("/api/v1/settings").await;
    let shown = format!("{settings}{:?}", server.log());
    assert!(!shown.contains("c2VjcmV0"), "{shown}");
}

#[tokio::test]
async fn telemetry_settings_that_cannot_work_are_refused_at_the_start() {
    for (table, wanted) in [
        ("otlp_endpoint = \"collector:4318\"", "telemetry.otlp_endpoint"),
        ("otlp_endpoint = \"grpc://127.0.0.1:4317\"", "http:// or https://"),
        ("otlp_endpoint = \"http://127.0.0.1:4318/?key=1\"", "query"),
        ("otlp_endpoint = \"http://u:hidden@127.0.0.1:4318\"", "otlp_headers"),
        (
            "otlp_endpoint = \"http://example.org:4318\"\notlp_headers = { authorization = \"otlp\" }",
            "without encryption",
        ),
        ("otlp_headers = { \"a b\" = \"otlp\" }", "name of a header"),
        ("otlp_headers = { authorization = \"Bearer hidden\" }", "telemetry.otlp_headers"),
        ("service_name = \"\"", "telemetry.service_name"),
        ("queue_max = 0", "telemetry.queue_max"),
        ("batch_spans_max = 0", "telemetry.batch_spans_max"),
        ("timeout_ms = 0", "telemetry.timeout_ms"),
        ("delay_ms = 60001", "telemetry.delay_ms"),
        ("otlp_endpont = \"http://127.0.0.1:4318\"", "otlp_endpont"),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("annie.toml"), format!("[telemetry]\n{table}\n")).expect("written");
        for command in [&["serve", "--port", "0"][..], &["config", "check"]] {
            let arguments = [&config(folder.path())[..], command].concat();
            let (exit, _, printed) = annie(folder.path(), &arguments, &[]).await;
            assert!(exit != 0 && printed.contains(wanted), "{command:?} {table}: {exit} {printed}");
            assert!(!printed.contains("u:hidden"), "{printed}");
        }
    }
}
