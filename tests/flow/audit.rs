//! The audit chain and the audit trail through the front ends.

use std::path::Path;

use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection, Executor, SqliteConnection};

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

/// Changes the database of a server that does not run, as a person with access to the file can do.
async fn change(data: &Path, sql: &str) -> u64 {
    let url = format!("sqlite://{}", data.join("annie.db").display());
    let mut database = SqliteConnection::connect(&url).await.expect("the database");
    let changed =
        database.execute(sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))).await.expect("changed").rows_affected();
    database.close().await.expect("closed");
    changed
}

async fn newest_seal(data: &Path) -> u64 {
    let url = format!("sqlite://{}", data.join("annie.db").display());
    let mut database = SqliteConnection::connect(&url).await.expect("the database");
    let sql = "SELECT max(number) FROM documents WHERE namespace = 'auditseals'";
    let newest: i64 = sqlx::query_scalar(sql).fetch_one(&mut database).await.expect("a seal");
    database.close().await.expect("closed");
    newest.unsigned_abs()
}

/// The differences that a page of a verification lists.
fn differences(page: &Value) -> Vec<String> {
    let all = page["broken"].as_array().expect("a list").iter();
    all.map(|one| format!("{}: {}", one["number"], one["what"].as_str().unwrap_or_default())).collect()
}

/// A server that does not run, with at least this many seals.
async fn sealed(data: &Path, seals: u64) -> Server {
    let mut server = Server::start(data, &[], &[("ANNIE__AUDIT__SEAL_MS", "20")]).await;
    for n in 1..=seals {
        assert_eq!(annie(data, &["ask", "hello"], &[]).await.0, 0);
        eventually("the events are sealed", async || {
            let (_, page) = server.get("/api/v1/audit/verify?limit=500").await;
            assert_eq!(page["broken_total"], 0, "{page}");
            let (_, all) = server.get("/api/v1/conversations?limit=1").await;
            let has_all = page["events"].as_u64() == all["conversations"][0]["last_seq"].as_u64();
            (has_all && page["last_number"].as_u64() >= Some(n)).then_some(())
        })
        .await;
    }
    server.stop().await;
    server
}

/// All differences that a verification finds with pages of this many seals.
async fn broken(server: &Server, limit: u32) -> Vec<String> {
    let (mut found, mut next) = (Vec::new(), String::new());
    for _ in 0..50 {
        let (status, page) = server.get(&format!("/api/v1/audit/verify?limit={limit}&next={next}")).await;
        assert_eq!(status, 200, "{page}");
        found.extend(differences(&page));
        match page["next"].as_str() {
            Some(cursor) => cursor.clone_into(&mut next),
            None => return found,
        }
    }
    panic!("the verification does not end: {found:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn audit_verification_notices_seals_that_were_removed_and_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path();
    let server = sealed(data, 5).await;
    assert_eq!(change(data, "DELETE FROM documents WHERE namespace = 'auditseals' AND number IN (2, 3)").await, 2);
    let mut server = server.again(data, &[], &[("ANNIE__AUDIT__SEAL_MS", "0")]).await;
    for limit in [1, 500] {
        let found = broken(&server, limit).await;
        assert!(found.contains(&"2: the seals from here to 3 are missing".to_owned()), "{found:?}");
        assert!(found.contains(&"4: it does not follow the seal before it".to_owned()), "{found:?}");
    }
    server.stop().await;
    // A number from which no person could count up to the next one.
    let newest = newest_seal(data).await;
    let far = format!(
        "UPDATE documents SET number = 4000000000000, number_1 = 4000000000000 WHERE namespace = 'auditseals' AND number = {newest}"
    );
    assert_eq!(change(data, &far).await, 1);
    let server = server.again(data, &[], &[("ANNIE__AUDIT__SEAL_MS", "0")]).await;
    let found = broken(&server, 1).await;
    assert!(found.contains(&format!("{newest}: the seals from here to 3999999999999 are missing")), "{found:?}");
    assert!(found.contains(&"4000000000000: the seal was changed".to_owned()), "{found:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn audit_verification_notices_a_changed_text_that_events_share() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path();
    let server = sealed(data, 1).await;
    assert_eq!(change(data, "UPDATE texts SET text = text || ' and obey'").await, 1);
    let mut server = server.again(data, &[], &[("ANNIE__AUDIT__SEAL_MS", "0")]).await;
    let found = broken(&server, 500).await;
    assert!(
        found.iter().any(|what| what.contains("the shared text of event") && what.ends_with("was changed")),
        "{found:?}"
    );
    server.stop().await;
    // Another text under its right id, to which the event is directed.
    let other = "UPDATE events SET text_id = zeroblob(16) WHERE text_id IS NOT NULL";
    assert!(change(data, other).await > 0);
    let server = server.again(data, &[], &[("ANNIE__AUDIT__SEAL_MS", "0")]).await;
    let found = broken(&server, 500).await;
    assert!(found.iter().any(|what| what.ends_with("is not the one that its row names")), "{found:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn audit_chain_continues_after_a_seal_and_an_event_that_cannot_be_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path();
    let server = sealed(data, 2).await;
    let newest = newest_seal(data).await;
    let unreadable = format!("UPDATE documents SET body = '{{}}' WHERE namespace = 'auditseals' AND number = {newest}");
    assert_eq!(change(data, &unreadable).await, 1);
    let damaged = "PRAGMA ignore_check_constraints = ON; UPDATE events SET erased_sha256 = x'00' WHERE seq = 1 AND \
                   conversation_id = (SELECT conversation_id FROM events ORDER BY at LIMIT 1)";
    assert!(change(data, damaged).await > 0);
    // A pass seals the newest change first. The clock was set back, so the damaged conversations come first.
    let ahead = "UPDATE conversations SET updated_at = updated_at + 600000000";
    assert!(change(data, ahead).await > 0);
    let mut server = server.again(data, &[], &[("ANNIE__AUDIT__SEAL_MS", "20")]).await;
    assert_eq!(annie(data, &["ask", "--new", "hello"], &[]).await.0, 0);
    let found = eventually("the events of another conversation are sealed", async || {
        let (_, page) = server.get("/api/v1/audit/verify?limit=500").await;
        (page["last_number"].as_u64() > Some(newest)).then_some(page)
    })
    .await;
    let found = differences(&found);
    assert!(found.contains(&format!("{newest}: the seal cannot be read")), "{found:?}");
    assert!(found.iter().any(|what| what.starts_with("1: ") && what.contains("cannot be read")), "{found:?}");
    assert!(!found.iter().any(|what| what.contains("does not follow")), "{found:?}");
    server.stop().await;
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
