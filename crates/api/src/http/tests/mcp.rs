//! Which tools a key has over MCP.

use reqwest::Method;
use serde_json::{Value, json};

use super::world::{Server, echo, read};
use crate::auth::KeyScope;

async fn rpc(server: &Server, key: &str, method: &str, params: Value) -> (u16, Value) {
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    read(server.request(Method::POST, "/mcp").bearer_auth(key).json(&request).send().await.unwrap()).await
}

#[tokio::test]
async fn mcp_key_sees_and_calls_the_tools_of_its_scopes() {
    let server = Server::start(echo()).await;
    let chat = server.key("ann", &[KeyScope::Chat, KeyScope::JobsControl]).await;
    let watcher = server.key("ann", &[KeyScope::OpsRead]).await;
    let names = async |key: &str| {
        let (status, listed) = rpc(&server, key, "tools/list", json!({})).await;
        assert_eq!(status, 200, "{listed}");
        let tools = listed["result"]["tools"].as_array().unwrap().clone();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&chat).await, ["annie", "test__look", "test__put"]);
    assert_eq!(names(&watcher).await, [""; 0]);
    for (tool, arguments) in [("annie", json!({"message": "hello"})), ("test__put", json!({"what": "x"}))] {
        let params = json!({"name": tool, "arguments": arguments});
        let (_, answer) = rpc(&server, &chat, "tools/call", params.clone()).await;
        assert_eq!(answer["result"]["isError"], false, "{answer}");
        let (_, refused) = rpc(&server, &watcher, "tools/call", params).await;
        assert_eq!(refused["error"]["code"], -32_602, "{refused}");
    }
    let (_, once) = rpc(&server, &chat, "tools/call", json!({"name": "test__send", "arguments": {}})).await;
    assert_eq!(once["error"]["code"], -32_602, "a skill that must not be repeated is no tool: {once}");
    let (status, wrong) = rpc(&server, "annie_wrong", "ping", json!({})).await;
    assert_eq!((status, &wrong["code"]), (401, &json!("unauthenticated")), "{wrong}");
}
