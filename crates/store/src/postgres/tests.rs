//! Every question is one that the server takes, those that are asked again and again find their rows by an index, and a
//! batch is one statement however many rows it has.
// A test says what went wrong by panicking.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use annie_core::{
    event::{EventBody, Inbound, NewEvent},
    ids::{AgentId, ConversationId, Epoch, Seq, TaskId, UserId},
    ports::{Append, Fence},
    time::Micros,
};
use annie_testkit::postgres::{Database, database};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};
use uuid::Uuid;

use super::{PostgresStore, batch::Plan, commit, memories, outbox, rebuild};
use crate::{
    PostgresOptions,
    admission::{Desk, Head, Needs, Proposal},
    sql::{Writes, guards, judge, texts, writes},
};

/// Rows that more than one index gives: the server takes the right one only if there are some.
const ROWS: &str = "INSERT INTO conversations VALUES ('00000000-0000-0000-0000-000000000001', 'ann', NULL, 0, 1, '', 1, 1, FALSE); \
     INSERT INTO letters SELECT gen_random_uuid(), 'user' || n % 100, '00000000-0000-0000-0000-000000000001', n, '', '', '', \
     '[]', n, n, 'waiting', NULL, n, n FROM generate_series(1, 5000) n; \
     INSERT INTO outbox SELECT gen_random_uuid(), 'ann', '00000000-0000-0000-0000-000000000001', gen_random_uuid(), 'x', n, \
     CASE n % 2 WHEN 0 THEN n END FROM generate_series(1, 5000) n; \
     INSERT INTO tasks (id, user_id, conversation_id, seq, client_id, text_sha256, state, priority, source, title, \
     received_at) SELECT gen_random_uuid(), 'user' || n % 100, '00000000-0000-0000-0000-000000000001', n, n, \
     sha256(''), 'completed', '', '', '', n FROM generate_series(1, 5000) n; ANALYZE letters, outbox, tasks";

async fn made() -> Option<(Database, PgConnection)> {
    let database = database().await?;
    let store = PostgresStore::open(&database.url.parse().unwrap(), PostgresOptions::default()).await.unwrap();
    annie_core::ports::Store::close(&store).await;
    let db = PgConnection::connect(&database.url).await.unwrap();
    Some((database, db))
}

/// How the server would answer, whatever the arguments, one line for each step. An empty table is read from end to end at no
/// cost, so that is forbidden where there is another way.
async fn plan(db: &mut PgConnection, types: &str, sql: &str) -> Vec<String> {
    let nothing: Vec<&str> = types.split(", ").map(|_| "NULL").collect();
    let setup = format!(
        "SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan; DEALLOCATE ALL; PREPARE q ({types}) AS {sql}"
    );
    db.execute(sqlx::raw_sql(AssertSqlSafe(setup))).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
    let explain = format!("EXPLAIN EXECUTE q ({})", nothing.join(", "));
    let rows = db.fetch_all(sqlx::raw_sql(AssertSqlSafe(explain))).await.unwrap();
    rows.iter().map(|row| row.get::<String, _>(0)).collect()
}

#[tokio::test]
async fn what_is_asked_often_uses_an_index() {
    let Some((_database, mut db)) = made().await else { return };
    db.execute(sqlx::raw_sql(ROWS)).await.unwrap();
    for (sql, types, index) in [
        (texts::OPEN_TASKS, "bigint, uuid, bigint", "tasks_open"),
        (texts::OPEN_CONVERSATIONS, "", "tasks_open"),
        (texts::LETTER, "uuid, text", "letters_pkey"),
        (texts::LETTERS, "bigint, uuid, bigint, text, text, bigint, text, bigint", "letters_by_time"),
        (texts::LETTERS_OF_USER, "bigint, uuid, bigint, text, text, bigint, text, bigint, text", "letters_by_user"),
        (texts::COUNT_LETTERS, "bigint, text, text, bigint, text, bigint", "letters_by_time"),
        (texts::COUNT_LETTERS_OF_USER, "bigint, text, text, bigint, text, bigint, text", "letters_by_user"),
        (texts::DUE_LETTERS, "bigint, bigint, bigint", "letters_to_retry"),
        (texts::DUE_LETTERS, "bigint, bigint, bigint", "letters_to_archive"),
        (texts::LETTERS_WAITING, "", "letters_to_retry"),
        (texts::LETTERS_WAITING, "", "letters_to_archive"),
        (texts::OPERATION, "uuid, text", "operations_pkey"),
        (texts::OPERATIONS, "bigint, uuid, bigint, boolean", "operations_by_time"),
        (texts::OPERATIONS_OF_USER, "bigint, uuid, bigint, boolean, text", "operations_by_user"),
        (texts::EXPIRING_OPERATIONS, "bigint, bigint", "operations_open"),
        (texts::NOTIFICATIONS, "text, bigint, bigint", "notifications_by_user"),
        (texts::LAST_NOTIFIED, "text", "notifications_by_user"),
        (outbox::OUTBOX, "bigint", "outbox_waiting"),
        (outbox::DELIVERED, "bigint, uuid[]", "outbox_pkey"),
        (outbox::WAITING, "text, uuid[]", "outbox_pkey"),
        (outbox::SWEEP, "bigint", "outbox_to_sweep"),
        (outbox::SWEEP, "bigint", "notifications_by_time"),
        (memories::FIND, "text, text, float8, text[], bigint, text, text[]", "_memory_terms_by_term"),
        (rebuild::EVENTS, "uuid, bigint, bigint", "events_pkey"),
        (commit::LOCK_HEADS, "uuid[]", "conversations_pkey"),
        (commit::READ_MESSAGES, "text[], text[]", "tasks_user_id_client_id_key"),
        (commit::READ_TASKS, "uuid[]", "tasks_pkey"),
        (commit::READ_INTENTS, "uuid[]", "intents_pkey"),
        (commit::IS_OURS, "uuid, bigint, bigint, uuid, text, text, bigint, text", "events_pkey"),
    ] {
        let steps = plan(&mut db, if types.is_empty() { "text" } else { types }, sql).await;
        assert!(steps.iter().any(|step| step.contains(index)), "{index} for {sql}: {steps:#?}");
        // The one row of the totals is all of its table.
        let whole = steps.iter().find(|step| step.contains("Seq Scan on") && !step.contains("_memory_totals"));
        assert_eq!(whole, None, "{sql}: {steps:#?}");
    }
}

fn id(n: u128) -> Uuid {
    Uuid::from_u128(n)
}

fn inbox(n: u128) -> Append {
    let inbound = Inbound { client_id: n.to_string(), text: "x".to_owned(), ..Inbound::default() };
    append(n, Fence::Inbox, EventBody::Received(inbound))
}

fn answer(n: u128) -> Append {
    let body = EventBody::answered("x");
    append(n, Fence::Owner(Epoch(1)), body)
}

fn append(n: u128, fence: Fence, body: EventBody) -> Append {
    let event = NewEvent { at: Micros(1), task: TaskId::from_uuid(id(n)), agent: AgentId::orchestrator(), body };
    Append { conversation: ConversationId::from_uuid(id(n)), user: UserId::local(), fence, events: vec![event] }
}

/// The texts of what a batch sends, each conversation being there already if its number is even.
fn texts_of(batch: Vec<Append>) -> Vec<String> {
    let proposals: Vec<Proposal> = batch.into_iter().map(Proposal::new).collect();
    let needs = Needs::of(&proposals);
    let mut desk = Desk::default();
    for conversation in needs.conversations.iter().filter(|c| c.uuid().as_u128() % 2 == 0) {
        desk.heads.insert(*conversation, Head { user: UserId::local(), epoch: Epoch(1), next: Seq(5) });
    }
    let mut rows = guards(&needs, &desk);
    let verdicts = judge(&mut desk, &proposals);
    assert!(verdicts.iter().all(Result::is_ok), "{verdicts:?}");
    rows.extend(writes(&proposals, &verdicts).unwrap().rows());
    Plan::of(rows).statements().map(|statement| statement.unwrap().text).collect()
}

#[test]
fn a_batch_is_one_statement_whose_text_does_not_depend_on_how_many_rows_it_has() {
    let batches = [2_u128, 10, 200].map(|size| {
        let answers = (1_000..1_000 + size).map(|n| answer(2 * n));
        texts_of((1..=size).map(inbox).chain(answers).collect())
    });
    assert!(batches.iter().all(|texts| texts.len() == 1));
    assert_eq!(batches.iter().collect::<BTreeSet<_>>().len(), 1);
    // A task that is opened and ended in one batch: its end comes behind.
    let both = vec![inbox(2), answer(2)];
    assert_eq!(texts_of(both).len(), 2);
    assert!(Plan::of(Writes::default().rows()).statements().next().is_none());
}
