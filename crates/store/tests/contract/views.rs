//! The view `agents` shows each report with the dispatch that was accepted, and the other dispatches of that name as refused.

use annie_core::ports::Store;
use annie_testkit::postgres::database;
use sqlx::{Connection, PgConnection};
use tempfile::TempDir;

use crate::{
    examine::DirectAccess,
    make::*,
    sqlite_only::{beside, open},
    stores::at,
};

/// Stores a turn whose dispatches name an agent several times: one that has begun, one whose first dispatch was invalid, and
/// one that waits for another agent. Each mission says what became of it.
async fn store_repeated_dispatches(store: &dyn Store) {
    let t = task(1);
    let epoch = opened(store, conversation(1), "ann", t, 1).await;
    let events = vec![
        started(t, 2),
        plans(t, vec![dispatched("a", "ran a", &[]), dispatched("a", "refused in the same reply", &[])], 3),
        agent_started(t, "a", 4),
        plans(t, vec![dispatched("a", "refused after the start", &[])], 5),
        agent_reported(t, "a", "done", 6),
        plans(t, vec![dispatched("b", "refused as invalid", &["ghost"])], 7),
        plans(t, vec![dispatched("b", "ran b", &["a"])], 8),
        agent_started(t, "b", 9),
        agent_reported(t, "b", "done", 10),
        plans(t, vec![dispatched("c", "ran c", &["d"]), dispatched("d", "ran d", &[])], 11),
        agent_started(t, "d", 12),
        plans(t, vec![dispatched("c", "refused while it waited", &[])], 13),
        agent_reported(t, "d", "done", 14),
        agent_started(t, "c", 15),
        agent_reported(t, "c", "done", 16),
        plans(
            t,
            vec![dispatched("p", "ran p", &[]), dispatched("q", "ran q", &["p"]), dispatched("r", "ran r", &["q"])],
            17,
        ),
        agent_started(t, "p", 18),
        plans(t, vec![dispatched("r", "refused before its dependency began", &[])], 19),
        agent_reported(t, "p", "done", 20),
        agent_started(t, "q", 21),
        agent_reported(t, "q", "done", 22),
        agent_started(t, "r", 23),
        agent_reported(t, "r", "done", 24),
        plans(
            t,
            vec![dispatched("u", "u refused", &["ghost"]), dispatched("v", "refused with its dependency", &["u"])],
            25,
        ),
        plans(t, vec![dispatched("u", "ran u", &[]), dispatched("v", "ran v", &["u"])], 26),
        agent_started(t, "u", 27),
        agent_reported(t, "u", "done", 28),
        agent_started(t, "v", 29),
        agent_reported(t, "v", "done", 30),
        plans(t, vec![dispatched("e", "refused and never repeated", &["ghost"])], 31),
        answered(t, "Done.", 32),
    ];
    commit(store, owned(conversation(1), "ann", epoch, events)).await.unwrap();
}

async fn assert_only_accepted_dispatches_have_reports(store: &dyn Store, database_access: &mut impl DirectAccess) {
    store_repeated_dispatches(store).await;
    for (mission, wanted) in [
        ("ran a", "completed"),
        ("refused in the same reply", "refused"),
        ("refused after the start", "refused"),
        ("refused as invalid", "refused"),
        ("ran b", "completed"),
        ("ran c", "completed"),
        ("ran d", "completed"),
        ("refused while it waited", "refused"),
        ("ran q", "completed"),
        ("ran r", "completed"),
        ("refused before its dependency began", "refused"),
        ("u refused", "refused"),
        ("refused with its dependency", "refused"),
        ("ran u", "completed"),
        ("ran v", "completed"),
        ("refused and never repeated", "refused"),
    ] {
        let of = format!("FROM agents WHERE mission = '{mission}'");
        assert_eq!(database_access.read_text(&format!("SELECT status {of}")).await, wanted, "{mission}");
        let count = database_access.read_text(&format!("SELECT CAST(count(*) AS TEXT) {of}")).await;
        assert_eq!(count, "1", "rows of the dispatch {mission:?}");
    }
    store.close().await;
}

#[tokio::test]
async fn view_of_agents_in_sqlite_shows_a_report_only_with_the_accepted_dispatch() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path()).await;
    assert_only_accepted_dispatches_have_reports(&store, &mut beside(folder.path()).await).await;
}

#[tokio::test]
async fn view_of_agents_in_postgres_shows_a_report_only_with_the_accepted_dispatch() {
    let Some(database) = database().await else { return };
    let mut database_access = PgConnection::connect(&database.url).await.unwrap();
    assert_only_accepted_dispatches_have_reports(&at(&database.url).await, &mut database_access).await;
}
