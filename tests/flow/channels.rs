//! Webhook channels of the real program: an answer is posted to its address, signed, and once.

use std::{path::PathBuf, time::Duration};

use annie_testkit::model_server::{FakeModelServer, Reply, Seen};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;

use super::bad_models::server_with;
use crate::{
    server::Server,
    world::{PATIENCE, eventually},
};

const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// The secret in a file, and the table of a channel that posts to this URL.
pub(super) fn channel(url: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let path: PathBuf = folder.path().join("secret");
    std::fs::write(&path, format!("{SECRET}\n")).expect("written");
    let table = format!(
        "[[channel]]\nname = \"helpdesk\"\nkind = \"webhook\"\nurl = {url:?}\nsecret_file = {path:?}\nusers = [\"me\"]\n"
    );
    (folder, table)
}

async fn send(server: &Server, reply_to: &Value) -> (u16, Value) {
    let body = json!({"text": "How is the weather?", "reply_to": reply_to});
    server.post("/api/v1/messages", &body).await.expect("the server answers")
}

async fn notifications(server: &Server) -> Vec<String> {
    let (_, list) = server.get("/api/v1/notifications").await;
    let all = list["notifications"].as_array().expect("a list");
    all.iter().map(|notification| notification["text"].as_str().unwrap_or_default().to_owned()).collect()
}

/// HMAC-SHA256 as RFC 2104 defines it, in hex.
pub(super) fn hmac_sha256(key: &[u8], text: &[u8]) -> String {
    let pad = |byte: u8| -> Vec<u8> {
        let mut block = [byte; 64];
        block.iter_mut().zip(key).for_each(|(padded, key)| *padded ^= key);
        block.to_vec()
    };
    let inner = Sha256::digest([pad(0x36), text.to_vec()].concat());
    let outer = Sha256::digest([pad(0x5c), inner.to_vec()].concat());
    outer.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn check_signature(seen: &Seen) {
    let timestamp = seen.header("annie-timestamp").expect("a timestamp");
    let signed = [timestamp.as_bytes(), b".".as_slice(), seen.body.as_ref()].concat();
    let wanted = format!("v1={}", hmac_sha256(SECRET.as_bytes(), &signed));
    assert_eq!(seen.header("annie-signature"), Some(wanted.as_str()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhook_gets_an_answer_signed_and_once_although_its_client_has_left() {
    let model = FakeModelServer::start(|_| Reply::says("It is sunny.")).await;
    let receiver = FakeModelServer::queue([Reply::error(429, "later"), Reply::body(200, "{}")]).await;
    let (_secret, table) = channel(&receiver.base_url());
    let (_folder, server) = server_with(&model, &table).await;
    let (status, sent) = send(&server, &json!({"channel": "helpdesk", "to": "thread:7"})).await;
    assert_eq!(status, 202, "{sent}");
    tokio::time::timeout(PATIENCE, receiver.arrived(2)).await.expect("the answer is posted again after a 429");
    let counted = "annie_deliveries_total{channel=\"helpdesk\",end=\"delivered\"} 1";
    eventually("the delivery is counted", async || {
        let metrics = server.http.get(format!("{}/metrics", server.url)).send().await.ok()?.text().await.ok()?;
        metrics.contains(counted).then_some(())
    })
    .await;
    let seen = receiver.requests();
    assert_eq!(seen.len(), 2);
    for request in &seen {
        check_signature(request);
        assert_eq!((request.path.as_str(), request.header("content-type")), ("/v1", Some("application/json")));
        assert_eq!(request.body, seen[0].body);
        let body = request.json();
        assert_eq!(request.header("annie-delivery"), body["id"].as_str());
        assert_eq!(
            (&body["user"], &body["to"], &body["status"]),
            (&json!("me"), &json!("thread:7"), &json!("completed"))
        );
        assert_eq!((&body["text"], &body["task_id"]), (&json!("It is sunny."), &sent["task_id"]));
    }
    assert_eq!(notifications(&server).await, [""; 0]);
    let (status, refused) = send(&server, &json!({"channel": "radio", "to": "x"})).await;
    assert_eq!((status, &refused["field"]), (400, &json!("reply_to")), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhook_delivery_that_is_cut_off_by_sigkill_is_not_repeated_and_its_user_is_notified() {
    let model = FakeModelServer::start(|_| Reply::says("It is sunny.")).await;
    let receiver = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let (_secret, table) = channel(&format!("http://{}/", receiver.local_addr().expect("bound")));
    let (folder, mut server) = server_with(&model, &table).await;
    let (status, sent) = send(&server, &json!({"channel": "helpdesk", "to": "thread:7"})).await;
    assert_eq!(status, 202, "{sent}");
    let attempt = tokio::time::timeout(PATIENCE, receiver.accept()).await.expect("an attempt");
    server.kill();
    drop(attempt);
    let config = folder.path().join("annie.toml");
    let server = server.again(folder.path(), &["--config", config.to_str().expect("a path")], &[]).await;
    let texts = eventually("the user is notified", async || {
        Some(notifications(&server).await).filter(|texts| !texts.is_empty())
    })
    .await;
    let doubt = "I finished \"How is the weather?\": It is sunny.\nI do not know whether I delivered \"How is the weather?\" to thread:7 (channel helpdesk): the attempt broke off.";
    assert_eq!(texts, [doubt]);
    let repeated = tokio::time::timeout(Duration::from_millis(50), receiver.accept()).await;
    assert!(repeated.is_err(), "the text was sent again: {repeated:?}");
}
