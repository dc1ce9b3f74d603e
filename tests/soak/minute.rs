//! The soak of every test run: less than a minute on each database. `just soak` is the long one.

use std::time::Duration;

use crate::soak::{Plan, Stroke, run};

fn plan(postgres: bool, small_disk: bool) -> Plan {
    Plan {
        program: env!("CARGO_BIN_EXE_annie"),
        postgres,
        small_disk,
        clients: 8,
        users: 4,
        seed: 1,
        time: Duration::from_secs(if small_disk { 15 } else { 40 }),
        strokes: vec![
            (Stroke::Actor, 30),
            (Stroke::Full, if small_disk { 3 } else { 0 }),
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

async fn soak(postgres: bool, small_disk: bool) {
    let Some(report) = run(&plan(postgres, small_disk)).await else { return };
    println!("{}", report.table());
    assert!(report.is_good(), "{:#?}", report.violations);
    let load = (report.acknowledged, report.sent, report.noted);
    assert!(load.0 > 100 && load.1 > 5 && load.2 > 10, "there was hardly any load: {load:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minute_of_kills_loses_nothing_doubles_nothing_and_repeats_nothing_on_sqlite() {
    soak(false, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minute_of_kills_loses_nothing_doubles_nothing_and_repeats_nothing_on_postgres() {
    soak(true, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_is_full_again_and_again_loses_nothing_doubles_nothing_and_repeats_nothing() {
    soak(false, true).await;
}
