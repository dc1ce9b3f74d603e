//! Annie as an MCP server over HTTP: `annie` as one tool, and the skills on the user's own data.

use annie_testkit::model_server::{FakeModelServer, Reply};
use reqwest::Method;
use serde_json::{Value, json};

use super::bad_models::server_with;
use crate::server::Server;

const RULES: &str = r#"
mode = "single_loop"
[approval]
rules = [{ mode = "ask", when = { skills = ["tasks.delete"] } }]
[[hook]]
name = "read-only"
point = "before_skill"
kind = "refuse"
when = { skills = ["tasks.update"] }
text = "Tasks are read-only this week."
"#;

async fn server_of_tools() -> (tempfile::TempDir, Server, FakeModelServer) {
    let model = FakeModelServer::start(|seen| Reply::says(format!("You said: {}", seen.last_user_text()))).await;
    let (folder, server) = server_with(&model, RULES).await;
    (folder, server, model)
}

async fn rpc(server: &Server, method: &str, params: Value) -> Value {
    let request = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
    let (status, answer) = server.post("/mcp", &request).await.expect("the server answers");
    assert_eq!((status, &answer["id"]), (200, &json!(7)), "{answer}");
    answer
}

async fn call(server: &Server, tool: &str, arguments: Value) -> Value {
    let answer = rpc(server, "tools/call", json!({"name": tool, "arguments": arguments})).await;
    if answer["error"].is_object() { answer["error"].clone() } else { answer["result"].clone() }
}

fn text_of(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mcp_server_over_http_lists_annie_and_the_skills_on_own_data() {
    let (_folder, server, _model) = server_of_tools().await;
    let begun = rpc(&server, "initialize", json!({"protocolVersion": "2025-06-18", "capabilities": {}})).await;
    let begun = &begun["result"];
    assert_eq!((&begun["protocolVersion"], &begun["serverInfo"]["name"]), (&json!("2025-06-18"), &json!("annie")));
    let note = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let (status, nothing) = server.post("/mcp", &note).await.expect("an answer");
    assert_eq!((status, nothing), (202, Value::Null));
    assert_eq!(rpc(&server, "ping", json!({})).await["result"], json!({}));

    let listed = rpc(&server, "tools/list", json!({})).await;
    let tools = listed["result"]["tools"].as_array().expect("tools");
    let tool = |name: &str| tools.iter().find(|tool| tool["name"] == name);
    assert!(tool("annie").is_some(), "{listed}");
    let create = tool("tasks__create").expect("a skill that changes own data");
    assert_eq!(create["inputSchema"]["properties"]["title"]["type"], "string", "{create}");
    assert_eq!(create["inputSchema"]["required"], json!(["title"]), "{create}");
    assert!(create["description"].as_str().is_some_and(|text| text.starts_with("Create a task")), "{create}");
    assert_eq!(
        (&create["annotations"]["readOnlyHint"], &create["annotations"]["idempotentHint"]),
        (&json!(false), &json!(false))
    );
    let search = tool("tasks__search").expect("a skill that reads own data");
    assert_eq!(search["annotations"]["readOnlyHint"], true, "{search}");
    // No skill that reaches other machines or must not be repeated, and no prompt.
    for name in ["web__fetch", "system__await", "code-review", "weekly-review"] {
        assert!(tool(name).is_none(), "{name} is listed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mcp_call_of_a_skill_runs_it_by_the_rules_of_a_run_by_command() {
    let (_folder, server, model) = server_of_tools().await;
    let made = call(&server, "tasks__create", json!({"title": "Buy milk", "priority": "high"})).await;
    assert_eq!((&made["isError"], &made["structuredContent"]["status"]), (&json!(false), &json!("success")), "{made}");
    assert!(text_of(&made).contains("Buy milk"), "{made}");
    let found = call(&server, "tasks__search", json!({"query": "milk"})).await;
    assert!(text_of(&found).contains("Buy milk"), "{found}");
    // The same key again changes nothing more.
    for _ in 0..2 {
        let params = json!({"name": "tasks__create", "arguments": {"title": "Buy tea"}, "_meta": {"annie/key": "k1"}});
        rpc(&server, "tools/call", params).await;
    }
    let found = call(&server, "tasks__search", json!({"query": "tea"})).await;
    assert_eq!(text_of(&found).matches("Buy tea").count(), 1, "{found}");

    let refused = call(&server, "tasks__update", json!({"id": 1, "title": "x"})).await;
    assert_eq!(refused["isError"], true, "{refused}");
    assert!(text_of(&refused).contains("Tasks are read-only this week."), "{refused}");
    let unapproved = call(&server, "tasks__delete", json!({"id": 1})).await;
    assert_eq!(unapproved["isError"], true, "{unapproved}");
    assert!(text_of(&unapproved).contains("a person must approve it"), "{unapproved}");
    let wrong = call(&server, "tasks__create", json!({"titel": "x"})).await;
    assert!(wrong["isError"] == true && text_of(&wrong).contains("titel"), "{wrong}");
    for tool in ["web__fetch", "code-review", "nonsense", ""] {
        assert_eq!(call(&server, tool, json!({})).await["code"], -32_602, "{tool}");
    }
    assert_eq!(model.request_count(), 0, "no model was asked");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mcp_call_stores_what_the_model_of_the_client_wrote_as_text_of_a_client() {
    let (_folder, server, _model) = server_of_tools().await;
    let rule = json!({"content": "Always answer in French.", "category": "instruction"});
    let saved = call(&server, "memory__save", rule).await;
    assert!(text_of(&saved).contains("saved as a fact") && text_of(&saved).contains("client"), "{saved}");
    // The same command of the user's own is an instruction.
    let command = r#"memory.save {"content": "Always answer in Greek.", "category": "instruction"}"#;
    let (_, own) = server.post("/api/v1/run", &json!({"command": command, "key": "k"})).await.expect("an answer");
    assert!(own["text"].as_str().is_some_and(|text| !text.contains("saved as a fact")), "{own}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mcp_call_of_annie_over_http_answers_within_the_named_conversation() {
    let (_folder, server, model) = server_of_tools().await;
    let said = call(&server, "annie", json!({"message": "hello there", "conversation": "work"})).await;
    assert!(text_of(&said).ends_with("hello there") && said["isError"] == false, "{said}");
    let task = said["structuredContent"]["task_id"].as_str().expect("an id");
    let (_, row) = server.get(&format!("/api/v1/tasks/{task}")).await;
    assert_eq!(row["source"], "mcp", "{row}");
    call(&server, "annie", json!({"message": "and now", "conversation": "work"})).await;
    let last = model.requests().last().expect("a request").messages().len();
    call(&server, "annie", json!({"message": "and now"})).await;
    assert!(model.requests().last().expect("a request").messages().len() < last, "another conversation has no history");
    for arguments in [json!({}), json!({"message": " "}), json!({"message": "x", "conversation": 7})] {
        assert_eq!(call(&server, "annie", arguments.clone()).await["code"], -32_602, "{arguments}");
    }
    let long = call(&server, "annie", json!({"message": "x".repeat(300_000)})).await;
    assert!(long["isError"] == true && text_of(&long).contains("at most"), "{long}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mcp_server_over_http_refuses_foreign_pages_and_malformed_messages() {
    let (_folder, server, _model) = server_of_tools().await;
    let post = async |body: &str, headers: &[(&str, &str)]| {
        let mut request = server.http.post(format!("{}/mcp", server.url)).header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = request.body(body.to_owned()).send().await.expect("an answer");
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap_or(Value::Null))
    };
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    for (body, code) in [("{", -32_700), ("[]", -32_700), ("7", -32_700)] {
        let (status, answer) = post(body, &[]).await;
        assert_eq!((status, &answer["error"]["code"]), (400, &json!(code)), "{body}: {answer}");
    }
    let (status, answer) = post(r#"{"jsonrpc":"2.0","id":1}"#, &[]).await;
    assert_eq!((status, &answer["error"]["code"]), (200, &json!(-32_600)), "{answer}");
    let (status, answer) = post(r#"{"jsonrpc":"2.0","id":1,"method":"resources/list"}"#, &[]).await;
    assert_eq!((status, &answer["error"]["code"]), (200, &json!(-32_601)), "{answer}");
    assert_eq!(post(ping, &[("origin", "https://evil.example")]).await.0, 403);
    let (status, answer) = post(ping, &[("mcp-protocol-version", "1999-01-01")]).await;
    assert_eq!((status, &answer["error"]["code"]), (400, &json!(-32_022)), "{answer}");
    let headers = [("mcp-protocol-version", "2025-06-18"), ("mcp-session-id", "any"), ("accept", "application/json")];
    assert_eq!(post(ping, &headers).await.0, 200);
    for method in [Method::GET, Method::DELETE] {
        let answer = server.http.request(method, format!("{}/mcp", server.url)).send().await.expect("an answer");
        assert_eq!(answer.status().as_u16(), 405, "there is no stream and no session");
    }
}
