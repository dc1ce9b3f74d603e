//! The audit chain and the audit trail through the front ends.

use std::path::Path;

use serde_json::Value;

use super::command_line::annie;
use crate::{server::Server, world::eventually};

/// Replaces these bytes of the database by others of the same length, as a person with access to the file can do.
fn tamper(data: &Path, from: &[u8], to: &[u8]) {
    let file = data.join("annie.db");
    let mut bytes = std::fs::read(&file).expect("the database");
    let places: Vec<usize> = (0..bytes.len() - from.len()).filter(|at| bytes[*at..].starts_with(from)).collect();
    assert!(!places.is_empty(), "the text is stored");
    places.into_iter().for_each(|at| bytes[at..at + to.len()].copy_from_slice(to));
    std::fs::write(&file, bytes).expect("written");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn audit_seals_stored_events_and_notices_changed_ones() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path();
    let mut server = Server::start(data, &[], &[("ANNIE__AUDIT__SEAL_MS", "20")]).await;
    assert_eq!(annie(data, &["ask", "create a task to call Bob"], &[]).await.0, 0);
    let head = eventually("the events are sealed", async || {
        let (_, page) = server.get("/api/v1/audit/verify").await;
        let is_sealed = page["events"].as_u64() >= Some(4) && page["next"].is_null();
        is_sealed.then(|| format!("{}:{}", page["last_number"], page["last_digest"].as_str().unwrap_or_default()))
    })
    .await;
    let (code, out, err) = annie(data, &["audit", "verify", "--head", &head], &[]).await;
    assert!(code == 0 && out.contains("seals over") && out.contains("last seal"), "{out} {err}");
    let wrong = format!("1:{}", "0".repeat(64));
    let (code, out, _) = annie(data, &["audit", "verify", "--head", &wrong], &[]).await;
    assert!(code == 1 && out.contains("the noted digest is"), "{out}");
    server.stop().await;
    tamper(data, b"call Bob", b"call Eve");
    let server = server.again(data, &[], &[("ANNIE__AUDIT__SEAL_MS", "0")]).await;
    let (code, out, err) = annie(data, &["audit", "verify"], &[]).await;
    assert!(code == 1 && out.contains("are not those that were sealed"), "{out} {err}");
    let (_, page) = server.get("/api/v1/audit/verify").await;
    assert!(page["broken_total"].as_u64() > Some(0), "{page}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn audit_trail_shows_decisions_and_no_content() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path();
    let _server = Server::start(data, &[], &[]).await;
    assert_eq!(annie(data, &["ask", "create a task to call Bob"], &[]).await.0, 0);
    let (code, out, err) = annie(data, &["audit", "export"], &[]).await;
    assert_eq!(code, 0, "{err}");
    let rows: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let kinds: Vec<&str> = rows.iter().filter_map(|row| row["event_type"].as_str()).collect();
    for kind in ["received", "turn_started", "decided", "model_replied", "answered"] {
        assert!(kinds.contains(&kind), "{kinds:?}");
    }
    assert!(!out.contains("Bob"), "{out}");
    let decided = rows.iter().find(|row| row["event_type"] == "decided").expect("a decision");
    assert!(decided["reasoning"].is_string() && decided["alternatives"].is_array(), "{decided}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn key_shows_its_own_user_and_scopes() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path();
    let file = data.join("key");
    let path = file.to_str().expect("a path");
    let made = annie(data, &["key", "create", "laptop", "--scope", "chat", "--out", path], &[]).await;
    assert_eq!(made.0, 0, "{}", made.2);
    let server = Server::start(data, &[], &[]).await;
    let (code, out, err) = annie(data, &["--key-file", path, "key", "self"], &[]).await;
    assert!(code == 0 && out.contains("scopes chat"), "{out} {err}");
    let (code, _, _) = annie(data, &["--key-file", path, "key", "list"], &[]).await;
    assert_eq!(code, 4, "this key may not list keys");
    let (status, _) = server.get("/api/v1/keys/self").await;
    assert_eq!(status, 401);
}
