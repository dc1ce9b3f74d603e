//! A store examines itself: what is folded is held against the log, and put right from it.

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

/// Two conversations with a bit of everything; gives the number of events.
async fn filled(store: &dyn Store) -> u64 {
    for n in 1..=2 {
        let (c, name) = (conversation(n), if n == 1 { "ann" } else { "bob" });
        let epoch = opened(store, c, name, task(n), n as i64).await;
        let calls = vec![planned(intent(n), "mail.send", Effect::Once)];
        let mut events = vec![started(task(n), 10), plans(task(n), calls, 11), run_started(task(n), intent(n), 12)];
        events.push(run_finished(task(n), intent(n), Outcome::success("sent"), 13));
        events.push(if n == 1 { answered(task(n), "done", 14) } else { died(task(n), letter(1, None), 14) });
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

fn wrong(found: &Examination) -> Vec<&str> {
    found.tables.iter().filter(|t| !t.is_right()).map(|t| t.table).collect()
}

pub async fn a_store_that_nobody_touched_is_as_its_log_says(store: Arc<dyn Store>) {
    let events = filled(&*store).await;
    store.delivered(vec![annie_core::ids::OutboxId::for_task(task(1))], Micros(99)).await.unwrap();
    let found = examine(&*store).await.unwrap();
    assert!(found.is_folded_right() && found.is_log_whole(), "{found:#?}");
    assert_eq!((found.conversations, found.events), (2, events));
    let right: Vec<_> = found.tables.iter().map(|t| (t.table, t.right)).collect();
    let wanted = [("conversations", 2), ("tasks", 2), ("intents", 2), ("letters", 1), ("operations", 0), ("outbox", 1)];
    assert_eq!(right, wanted);
    repair(&*store, &found).await.unwrap();
    assert_eq!(examine(&*store).await.unwrap(), found, "there was nothing to put right");
}

/// Something that changes a database beside its store.
pub trait Hand {
    async fn tell(&mut self, sql: &str);
    /// The one text that answers a question.
    async fn ask(&mut self, sql: &str) -> String;
}

impl Hand for SqliteConnection {
    async fn tell(&mut self, sql: &str) {
        self.execute(AssertSqlSafe(sql)).await.unwrap();
    }

    async fn ask(&mut self, sql: &str) -> String {
        sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(self).await.unwrap()
    }
}

impl Hand for PgConnection {
    async fn tell(&mut self, sql: &str) {
        self.execute(AssertSqlSafe(sql)).await.unwrap();
    }

    async fn ask(&mut self, sql: &str) -> String {
        sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(self).await.unwrap()
    }
}

/// An operation that no event opened; its ids are made by `id`.
fn operation_of_nobody(id: &str) -> String {
    format!(
        "INSERT INTO operations (id, user_id, conversation_id, seq, task_id, intent_id, skill, opened_at, expires_at) \
         SELECT {id}, user_id, id, 1, {id}, {id}, 'x.y', 1, 2 FROM conversations LIMIT 1"
    )
}

async fn each_change_is_named_and_comes_back(store: &dyn Store, hand: &mut impl Hand, more: [&str; 1]) {
    filled(store).await;
    let whole = examine(store).await.unwrap();
    let changes = [
        ("DELETE FROM tasks", "tasks"),
        ("UPDATE tasks SET state = 'queued', ended_at = NULL", "tasks"),
        ("DELETE FROM intents", "intents"),
        ("UPDATE intents SET state = 'planned'", "intents"),
        ("DELETE FROM letters", "letters"),
        ("UPDATE letters SET state = 'archived'", "letters"),
        ("UPDATE letters SET state = 'perhaps'", "letters"),
        ("UPDATE outbox SET text = 'a lie'", "outbox"),
        ("UPDATE conversations SET next_seq = 3", "conversations"),
        ("UPDATE conversations SET title = 'another'", "conversations"),
        ("UPDATE snapshots SET state = '{}'", "snapshots"),
        ("UPDATE snapshots SET state = replace(state, 'ann', 'eve')", "snapshots"),
    ];
    for (sql, table) in changes.into_iter().chain(more.map(|sql| (sql, "operations"))) {
        hand.tell(sql).await;
        let found = examine(store).await.unwrap();
        assert!(found.is_log_whole(), "{sql}: {found:#?}");
        let named = wrong(&found);
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
async fn what_was_changed_by_hand_beside_the_log_is_named_and_comes_back() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path()).await;
    let more = operation_of_nobody("zeroblob(16)");
    each_change_is_named_and_comes_back(&store, &mut beside(folder.path()).await, [&more]).await;
}

#[tokio::test]
async fn what_was_changed_by_hand_beside_the_log_of_postgres_is_named_and_comes_back() {
    let Some(database) = database().await else { return };
    let mut hand = PgConnection::connect(&database.url).await.unwrap();
    let more = operation_of_nobody("gen_random_uuid()");
    each_change_is_named_and_comes_back(&at(&database.url).await, &mut hand, [&more]).await;
}

async fn damage_is_reported_and_nothing_is_invented(store: &dyn Store, hand: &mut impl Hand) {
    filled(store).await;
    let of_first = "conversation_id = (SELECT conversation_id FROM tasks WHERE user_id = 'ann')";
    hand.tell(&format!("UPDATE events SET body = 'rust' WHERE seq = 4 AND {of_first}")).await;
    hand.tell("UPDATE tasks SET title = 'changed'").await;
    let found = examine(store).await.unwrap();
    let [unreadable] = found.unreadable.as_slice() else { panic!("{found:#?}") };
    assert_eq!((unreadable.conversation, unreadable.seq), (conversation(1), Seq(4)));
    assert!(found.gaps.is_empty(), "{found:#?}");
    repair(store, &found).await.unwrap();
    let title = async |n| store.task(Scope::Operator, task(n)).await.unwrap().unwrap().title;
    assert_eq!(title(1).await, "changed", "half a log would tell a wrong story");
    assert_ne!(title(2).await, "changed", "the others are put right");
    let again = examine(store).await.unwrap();
    assert!(again.is_folded_right() && again.unreadable == found.unreadable, "{again:#?}");
    assert_eq!(store.events(Scope::Operator, conversation(1), Seq(4), 9).await.unwrap().len(), 2, "nothing is deleted");
    assert_eq!(store.outbox(9).await.unwrap().len(), 2, "and no final word");
    hand.tell("DELETE FROM events WHERE body = 'rust'").await;
    let found = examine(store).await.unwrap();
    let [gap] = found.gaps.as_slice() else { panic!("{found:#?}") };
    assert_eq!((gap.conversation, gap.after, gap.next), (conversation(1), Seq(3), Seq(5)));
    store.close().await;
}

#[tokio::test]
async fn a_damaged_log_is_reported_and_nothing_is_invented() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path()).await;
    damage_is_reported_and_nothing_is_invented(&store, &mut beside(folder.path()).await).await;
}

#[tokio::test]
async fn a_damaged_log_on_postgres_is_reported_and_nothing_is_invented() {
    let Some(database) = database().await else { return };
    let mut hand = PgConnection::connect(&database.url).await.unwrap();
    damage_is_reported_and_nothing_is_invented(&at(&database.url).await, &mut hand).await;
}
