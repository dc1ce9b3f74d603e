//! A store examines itself: the projections are compared with the log, and repaired from it.

use std::sync::Arc;

use annie_core::{
    event::Scope,
    ids::Seq,
    outcome::Outcome,
    ports::{Snapshot, Store},
    skill::Effect,
    time::Micros,
    turn::{Conversation, STATE_VERSION},
};
use annie_store::{Examination, examine, repair};
use annie_testkit::postgres::database;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, SqliteConnection};
use tempfile::TempDir;

use crate::{
    make::*,
    sqlite_only::{beside, open},
    stores::at,
};

/// Stores two conversations with events of many kinds; returns the number of events.
async fn filled(store: &dyn Store) -> u64 {
    for n in 1..=2 {
        let (c, name) = (conversation(n), if n == 1 { "ann" } else { "bob" });
        let epoch = opened(store, c, name, task(n), n as i64).await;
        let calls = vec![planned(intent(n), "mail.send", Effect::Once)];
        let mut events = vec![started(task(n), 10), plans(task(n), calls, 11), run_started(task(n), intent(n), 12)];
        events.push(run_finished(task(n), intent(n), Outcome::success("sent"), 13));
        events.push(if n == 1 { answered(task(n), "done", 14) } else { died(task(n), dead_letter(1, None), 14) });
        commit(store, owned(c, name, epoch, events)).await.unwrap();
        let mut state = Conversation::new(c, user(name));
        for event in store.events(Scope::Operator, c, Seq(0), 100).await.unwrap() {
            state.apply(&event);
        }
        let state = serde_json::to_string(&state).unwrap();
        store.put_snapshot(c, epoch, Snapshot { seq: Seq(6), v: STATE_VERSION, state }).await.unwrap();
    }
    12
}

fn wrong_tables(found: &Examination) -> Vec<&str> {
    found.tables.iter().filter(|t| !t.is_right()).map(|t| t.table).collect()
}

pub async fn examine_finds_nothing_wrong_in_an_unchanged_store(store: Arc<dyn Store>) {
    let events = filled(&*store).await;
    store.delivered(vec![annie_core::ids::OutboxId::for_task(task(1))], Micros(99)).await.unwrap();
    let found = examine(&*store).await.unwrap();
    assert!(found.is_folded_right() && found.is_log_whole(), "{found:#?}");
    assert_eq!((found.conversations, found.events), (2, events));
    let right: Vec<_> = found.tables.iter().map(|t| (t.table, t.right)).collect();
    let wanted =
        [("conversations", 2), ("tasks", 2), ("intents", 2), ("dead_letters", 1), ("operations", 0), ("outbox", 1)];
    assert_eq!(right, wanted);
    repair(&*store, &found).await.unwrap();
    assert_eq!(examine(&*store).await.unwrap(), found, "there was nothing to repair");
}

/// Direct access to a database, past its store.
pub trait DirectAccess {
    async fn run_sql(&mut self, sql: &str);
    /// The one text that a query returns.
    async fn read_text(&mut self, sql: &str) -> String;
}

impl DirectAccess for SqliteConnection {
    async fn run_sql(&mut self, sql: &str) {
        self.execute(AssertSqlSafe(sql)).await.unwrap();
    }

    async fn read_text(&mut self, sql: &str) -> String {
        sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(self).await.unwrap()
    }
}

impl DirectAccess for PgConnection {
    async fn run_sql(&mut self, sql: &str) {
        self.execute(AssertSqlSafe(sql)).await.unwrap();
    }

    async fn read_text(&mut self, sql: &str) -> String {
        sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(self).await.unwrap()
    }
}

/// An operation that no event opened; `id` is the SQL that makes its ids.
fn operation_without_an_event(id: &str) -> String {
    format!(
        "INSERT INTO operations (id, user_id, conversation_id, seq, task_id, intent_id, skill, opened_at, expires_at) \
         SELECT {id}, user_id, id, 1, {id}, {id}, 'x.y', 1, 2 FROM conversations LIMIT 1"
    )
}

async fn assert_each_change_is_reported_and_repaired(
    store: &dyn Store,
    database_access: &mut impl DirectAccess,
    more: [&str; 1],
) {
    filled(store).await;
    let whole = examine(store).await.unwrap();
    let changes = [
        ("DELETE FROM tasks", "tasks"),
        ("UPDATE tasks SET state = 'queued', ended_at = NULL", "tasks"),
        ("DELETE FROM intents", "intents"),
        ("UPDATE intents SET state = 'planned'", "intents"),
        ("DELETE FROM dead_letters", "dead_letters"),
        ("UPDATE dead_letters SET state = 'archived'", "dead_letters"),
        ("UPDATE dead_letters SET state = 'perhaps'", "dead_letters"),
        ("UPDATE outbox SET text = 'a lie'", "outbox"),
        ("UPDATE conversations SET next_seq = 3", "conversations"),
        ("UPDATE conversations SET title = 'another'", "conversations"),
        ("UPDATE snapshots SET state = '{}'", "snapshots"),
        ("UPDATE snapshots SET state = replace(state, 'ann', 'eve')", "snapshots"),
    ];
    for (sql, table) in changes.into_iter().chain(more.map(|sql| (sql, "operations"))) {
        database_access.run_sql(sql).await;
        let found = examine(store).await.unwrap();
        assert!(found.is_log_whole(), "{sql}: {found:#?}");
        let named = wrong_tables(&found);
        if table == "snapshots" {
            assert!(!found.snapshots.is_empty(), "{sql}");
        } else {
            assert!(named.contains(&table), "{sql}: {named:?}");
        }
        repair(store, &found).await.unwrap();
        assert_eq!(examine(store).await.unwrap(), whole, "{sql}");
    }
    store.close().await;
}

#[tokio::test]
async fn examine_reports_and_repairs_direct_changes_of_sqlite_tables() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path()).await;
    let more = operation_without_an_event("zeroblob(16)");
    assert_each_change_is_reported_and_repaired(&store, &mut beside(folder.path()).await, [&more]).await;
}

#[tokio::test]
async fn examine_reports_and_repairs_direct_changes_of_postgres_tables() {
    let Some(database) = database().await else { return };
    let mut database_access = PgConnection::connect(&database.url).await.unwrap();
    let more = operation_without_an_event("gen_random_uuid()");
    assert_each_change_is_reported_and_repaired(&at(&database.url).await, &mut database_access, [&more]).await;
}

async fn assert_log_damage_is_reported_and_not_repaired(store: &dyn Store, database_access: &mut impl DirectAccess) {
    filled(store).await;
    let of_first = "conversation_id = (SELECT conversation_id FROM tasks WHERE user_id = 'ann')";
    database_access.run_sql(&format!("UPDATE events SET body = 'rust' WHERE seq = 4 AND {of_first}")).await;
    database_access.run_sql("UPDATE tasks SET title = 'changed'").await;
    let found = examine(store).await.unwrap();
    let [unreadable] = found.unreadable.as_slice() else { panic!("{found:#?}") };
    assert_eq!((unreadable.conversation, unreadable.seq), (conversation(1), Seq(4)));
    assert!(found.gaps.is_empty(), "{found:#?}");
    repair(store, &found).await.unwrap();
    let title = async |n| store.task(Scope::Operator, task(n)).await.unwrap().unwrap().title;
    assert_eq!(title(1).await, "changed", "an incomplete log would give wrong rows");
    assert_ne!(title(2).await, "changed", "the other conversations are repaired");
    let again = examine(store).await.unwrap();
    assert!(again.is_folded_right() && again.unreadable == found.unreadable, "{again:#?}");
    assert_eq!(store.events(Scope::Operator, conversation(1), Seq(4), 9).await.unwrap().len(), 2, "nothing is deleted");
    assert_eq!(store.outbox(9).await.unwrap().len(), 2, "no final message is deleted either");
    database_access.run_sql("DELETE FROM events WHERE body = 'rust'").await;
    let found = examine(store).await.unwrap();
    let [gap] = found.gaps.as_slice() else { panic!("{found:#?}") };
    assert_eq!((gap.conversation, gap.after, gap.next), (conversation(1), Seq(3), Seq(5)));
    store.close().await;
}

#[tokio::test]
async fn examine_reports_a_damaged_sqlite_log_and_invents_nothing() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path()).await;
    assert_log_damage_is_reported_and_not_repaired(&store, &mut beside(folder.path()).await).await;
}

#[tokio::test]
async fn examine_reports_a_damaged_postgres_log_and_invents_nothing() {
    let Some(database) = database().await else { return };
    let mut database_access = PgConnection::connect(&database.url).await.unwrap();
    assert_log_damage_is_reported_and_not_repaired(&at(&database.url).await, &mut database_access).await;
}
