//! The server accepts every query, frequent queries find their rows by an index, and a batch is one statement however many rows
//! it has.
// Tests report failures by panicking.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use annie_core::{
    event::{EventBody, Inbound, NewEvent},
    ids::{AgentId, ConversationId, Epoch, Seq, TaskId, UserId},
    ports::{Append, DocumentOrder, Fence},
    time::Micros,
};
use annie_testkit::postgres::{Database, database};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};
use uuid::Uuid;

use super::{PostgresStore, batch::Plan, commit, documents, outbox, rebuild};
use crate::{
    PostgresOptions,
    admission::{Admission, Head, Needs, Proposal},
    sql::{SharedTexts, Writes, guards, judge, texts, writes},
};

/// Rows for which several indexes are possible: the server chooses the right one only if there are some rows.
const ROWS: &str = "INSERT INTO conversations VALUES ('00000000-0000-0000-0000-000000000001', 'ann', NULL, 0, 1, '', 1, 1, FALSE); \
     INSERT INTO dead_letters SELECT gen_random_uuid(), 'user' || n % 100, '00000000-0000-0000-0000-000000000001', n, '', '', '', \
     '[]', n, n, 'waiting', NULL, n, n FROM generate_series(1, 5000) n; \
     INSERT INTO outbox SELECT gen_random_uuid(), 'ann', '00000000-0000-0000-0000-000000000001', gen_random_uuid(), 'x', n, \
     CASE n % 2 WHEN 0 THEN n END FROM generate_series(1, 5000) n; \
     INSERT INTO outbox (id, user_id, conversation_id, task_id, text, at, channel, recipient) SELECT gen_random_uuid(), 'ann', \
     '00000000-0000-0000-0000-000000000001', gen_random_uuid(), 'x', n, 'chats', n FROM generate_series(1, 5000) n; \
     INSERT INTO tasks (id, user_id, conversation_id, seq, client_id, text_sha256, state, priority, source, title, \
     received_at) SELECT gen_random_uuid(), 'user' || n % 100, '00000000-0000-0000-0000-000000000001', n, n, \
     sha256(''), 'completed', '', '', '', n FROM generate_series(1, 5000) n; ANALYZE dead_letters, outbox, tasks";

/// Types of the arguments of a query for documents.
const FIND_TYPES: &str = "text, text, text[], text[], text[], text[], text[], text[], float8, float8, float8, float8, text[], \
     bigint";
const COUNT_TYPES: &str = "text, text, text[], text[], text[], text[], text[], text[], float8, float8, float8, float8, text[], \
     bigint[], text[], text[], bigint";
const WORDS_TYPES: &str = "text, text, text[], text[], text[], text[], text[], text[], float8, float8, float8, float8, text[], \
     bigint, text, text[]";

async fn database_with_tables() -> Option<(Database, PgConnection)> {
    let database = database().await?;
    let store = PostgresStore::open(&database.url.parse().unwrap(), PostgresOptions::default()).await.unwrap();
    annie_core::ports::Store::close(&store).await;
    let db = PgConnection::connect(&database.url).await.unwrap();
    Some((database, db))
}

/// The server's query plan, whatever the arguments, one line for each step. A scan of an empty table costs nothing, so
/// sequential scans are disabled where there is another way.
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
async fn frequent_queries_use_an_index() {
    let Some((_database, mut db)) = database_with_tables().await else { return };
    db.execute(sqlx::raw_sql(ROWS)).await.unwrap();
    for (sql, types, index) in [
        (texts::OPEN_TASKS, "bigint, uuid, bigint", "tasks_open"),
        (texts::OPEN_CONVERSATIONS, "", "tasks_open"),
        (texts::DEAD_LETTER, "uuid, text", "dead_letters_pkey"),
        (
            texts::DEAD_LETTERS,
            "bigint, uuid, bigint, text, text, bigint, text, bigint, boolean",
            "dead_letters_by_time",
        ),
        (
            texts::DEAD_LETTERS_OF_USER,
            "bigint, uuid, bigint, text, text, bigint, text, bigint, boolean, text",
            "dead_letters_by_user",
        ),
        (texts::COUNT_DEAD_LETTERS, "bigint, text, text, bigint, text, bigint, boolean", "dead_letters_by_time"),
        (
            texts::COUNT_DEAD_LETTERS_OF_USER,
            "bigint, text, text, bigint, text, bigint, boolean, text",
            "dead_letters_by_user",
        ),
        (texts::DUE_DEAD_LETTERS, "bigint, bigint, bigint", "dead_letters_to_retry"),
        (texts::DUE_DEAD_LETTERS, "bigint, bigint, bigint", "dead_letters_to_archive"),
        (texts::DEAD_LETTERS_WAITING, "", "dead_letters_to_retry"),
        (texts::DEAD_LETTERS_WAITING, "", "dead_letters_to_archive"),
        (texts::OPERATION, "uuid, text", "operations_pkey"),
        (texts::OPERATIONS, "bigint, uuid, bigint, boolean", "operations_by_time"),
        (texts::OPERATIONS_OF_USER, "bigint, uuid, bigint, boolean, text", "operations_by_user"),
        (texts::EXPIRING_OPERATIONS, "bigint, bigint", "operations_open"),
        (texts::NOTIFICATIONS, "text, bigint, bigint", "notifications_by_user"),
        (texts::LAST_NOTIFIED, "text", "notifications_by_user"),
        (outbox::OUTBOX, "bigint", "outbox_waiting"),
        (outbox::TO_NOTIFY, "bigint", "outbox_to_notify"),
        (outbox::TO_SEND, "text, bigint", "outbox_to_send"),
        (texts::WAITING_CHANNELS, "", "outbox_to_send"),
        (texts::BEGIN_DELIVERY, "uuid, bigint, uuid, bigint", "outbox_pkey"),
        (texts::END_DELIVERY, "uuid, bigint, bigint, bigint, text", "outbox_pkey"),
        (texts::DIVERT_CHANNEL, "text, bigint", "outbox_to_send"),
        (outbox::DELIVERED, "bigint, uuid[]", "outbox_pkey"),
        (outbox::RECEIVED, "bigint, uuid[]", "outbox_pkey"),
        (outbox::WAITING, "text, uuid[]", "outbox_pkey"),
        (outbox::SWEEP, "bigint", "outbox_to_sweep"),
        (outbox::SWEEP, "bigint", "notifications_by_time"),
        (documents::BY_NUMBER, "text, text, bigint", "documents_user_id_namespace_number_key"),
        (documents::EXPORT, "text, text, bigint, bigint", "documents_user_id_namespace_number_key"),
        (documents::find_all(DocumentOrder::Text), FIND_TYPES, "documents_user_id_namespace_number_key"),
        (documents::COUNT, COUNT_TYPES, "documents_user_id_namespace_number_key"),
        (documents::find_words(DocumentOrder::Rank), WORDS_TYPES, "_document_terms_by_term"),
        (rebuild::EVENTS, "uuid, bigint, bigint", "events_pkey"),
        (commit::LOCK_HEADS, "uuid[]", "conversations_pkey"),
        (commit::READ_MESSAGES, "text[], text[]", "tasks_user_id_client_id_key"),
        (commit::READ_TASKS, "uuid[]", "tasks_pkey"),
        (commit::READ_INTENTS, "uuid[]", "intents_pkey"),
        (commit::IS_OURS, "uuid, bigint, bigint, uuid, text, text, bigint, text", "events_pkey"),
    ] {
        let steps = plan(&mut db, if types.is_empty() { "text" } else { types }, sql).await;
        assert!(steps.iter().any(|step| step.contains(index)), "{index} for {sql}: {steps:#?}");
        // The totals are a table with one row, which may be scanned.
        let whole = steps.iter().find(|step| step.contains("Seq Scan on") && !step.contains("_totals"));
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

/// The statements of a batch; a conversation exists already if its number is even.
fn texts_of(batch: Vec<Append>) -> Vec<String> {
    let proposals: Vec<Proposal> = batch.into_iter().map(Proposal::new).collect();
    let needs = Needs::of(&proposals);
    let mut admission = Admission::default();
    for conversation in needs.conversations.iter().filter(|c| c.uuid().as_u128() % 2 == 0) {
        admission
            .heads
            .insert(*conversation, Head { user: UserId::local(), epoch: Epoch(1), next: Seq(5), is_deleted: false });
    }
    let mut rows = guards(&needs, &admission);
    let verdicts = judge(&mut admission, &proposals);
    assert!(verdicts.iter().all(Result::is_ok), "{verdicts:?}");
    rows.extend(writes(&proposals, &verdicts, &SharedTexts::default()).unwrap().rows());
    Plan::of(rows).statements().map(|statement| statement.unwrap().text).collect()
}

#[test]
fn postgres_batch_is_one_statement_whose_text_is_independent_of_the_number_of_rows() {
    let batches = [2_u128, 10, 200].map(|size| {
        let answers = (1_000..1_000 + size).map(|n| answer(2 * n));
        texts_of((1..=size).map(inbox).chain(answers).collect())
    });
    assert!(batches.iter().all(|texts| texts.len() == 1));
    assert_eq!(batches.iter().collect::<BTreeSet<_>>().len(), 1);
    // A task that is opened and ended in one batch: its end comes in a second statement.
    let both = vec![inbox(2), answer(2)];
    assert_eq!(texts_of(both).len(), 2);
    assert!(Plan::of(Writes::default().rows()).statements().next().is_none());
}
