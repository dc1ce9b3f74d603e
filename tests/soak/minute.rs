//! The soak of every test run: less than a minute on each database. `just soak` is the long one.

use std::time::Duration;

use crate::soak::{Plan, Stroke, run};

fn plan(postgres: bool) -> Plan {
    Plan {
        program: env!("CARGO_BIN_EXE_annie"),
        postgres,
        small_disk: false,
        clients: 8,
        users: 4,
        seed: 1,
        time: Duration::from_secs(40),
        strokes: vec![
            (Stroke::Actor, 30),
            (Stroke::Process, 3),
            (Stroke::Start, 1),
            (Stroke::Freeze, 1),
            (Stroke::Takeover, u32::from(postgres)),
            (Stroke::DatabaseFreeze, u32::from(postgres)),
            (Stroke::Database, if postgres { 3 } else { 0 }),
            (Stroke::Cut, if postgres { 5 } else { 0 }),
        ],
    }
}

async fn soak(postgres: bool) {
    let Some(report) = run(&plan(postgres)).await else { return };
    println!("{}", report.table());
    assert!(report.is_good(), "{:#?}", report.violations);
    let load = (report.acknowledged, report.sent, report.noted);
    assert!(load.0 > 200 && load.1 > 10 && load.2 > 20, "there was hardly any load: {load:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minute_of_kills_loses_nothing_doubles_nothing_and_repeats_nothing_on_sqlite() {
    soak(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minute_of_kills_loses_nothing_doubles_nothing_and_repeats_nothing_on_postgres() {
    soak(true).await;
}
