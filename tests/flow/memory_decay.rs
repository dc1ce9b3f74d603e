//! Memories that are not used lose rank in searches, and nothing is deleted.

use std::path::Path;

use annie_testkit::model_server::{FakeModelServer, Reply};
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection, Executor, SqliteConnection};

use super::bad_models::ask;
use crate::server::Server;

/// Changes the database of a server that does not run.
async fn change(data: &Path, sql: &str) {
    let url = format!("sqlite://{}", data.join("annie.db").display());
    let mut database = SqliteConnection::connect(&url).await.expect("the database");
    let changed =
        database.execute(sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))).await.expect("changed").rows_affected();
    assert!(changed > 0, "{sql}");
    database.close().await.expect("closed");
}

/// A model that saves `save: TEXT`, and shows what a search of anything else finds first.
async fn librarian() -> FakeModelServer {
    FakeModelServer::start(|seen| {
        let last = seen.messages().last().cloned().unwrap_or_default();
        if last["role"] == "tool" {
            return Reply::says(format!("So: {}", last["content"]));
        }
        let text = seen.last_user_text();
        let call = match text.split_once("save: ") {
            Some((_, content)) => {
                json!({"skill": "memory.save", "arguments": {"content": content, "category": "fact", "importance": 0.5}})
            }
            None => json!({"skill": "memory.search", "arguments": {"query": "tea", "limit": 1}}),
        };
        Reply::calls([("use_skill", call)])
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_memory_comes_behind_a_used_one_unless_decay_is_off() {
    const YEAR_US: u64 = 365 * 24 * 3_600 * 1_000_000;
    let model = librarian().await;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("annie.toml");
    let configure = |halved_after_days: u32| {
        let text = format!(
            "mode = \"single_loop\"\n[memory]\nhalved_after_days = {halved_after_days}\n[[backend]]\nname = \"fake\"\nprofile = \"generic\"\n\
             base_url = \"{}\"\nmodel = \"m\"\n",
            model.base_url()
        );
        std::fs::write(&path, text).expect("written");
    };
    configure(0);
    let arguments = ["--config".to_owned(), path.to_str().expect("a path").to_owned()];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut server = Server::start(folder.path(), &arguments, &[]).await;
    ask(&server, "save: Tom likes tea in the morning").await;
    ask(&server, "save: Ann likes tea late at night").await;
    server.stop().await;
    // The newer one of two equal ones comes first, so it is made the older one.
    let old = format!(
        "UPDATE documents SET created_at = created_at - {YEAR_US}, updated_at = updated_at - {YEAR_US}, accessed_at = NULL \
         WHERE namespace = 'memory' AND number = 2"
    );
    change(folder.path(), &old).await;
    for (halved_after_days, is_used, first) in [(30, false, "Tom"), (0, false, "Ann"), (30, true, "Ann")] {
        configure(halved_after_days);
        if is_used {
            let sql = "UPDATE documents SET accessed_at = (SELECT max(created_at) FROM documents) WHERE namespace = 'memory' AND number = 2";
            change(folder.path(), sql).await;
            change(folder.path(), &old.replace("number = 2", "number = 1")).await;
        } else {
            change(folder.path(), "UPDATE documents SET accessed_at = NULL WHERE namespace = 'memory'").await;
        }
        server = server.again(folder.path(), &arguments, &[]).await;
        let answer = ask(&server, "What did I say about the drink?").await["answer"].to_string();
        assert!(answer.contains(&format!("{first} likes tea")), "{halved_after_days} {is_used}: {answer}");
        server.stop().await;
    }
}
