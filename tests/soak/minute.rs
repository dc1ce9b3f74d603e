//! The soak of every test run: less than a minute on each database. `just soak` runs the long one.

use std::time::Duration;

use crate::soak::{Plan, faults, run};

fn plan(postgres: bool, small_disk: bool) -> Plan {
    Plan {
        program: env!("CARGO_BIN_EXE_annie"),
        postgres,
        small_disk,
        clients: 8,
        users: 4,
        seed: 1,
        time: Duration::from_secs(if small_disk { 15 } else { 40 }),
        faults: faults([
            ("actor kill", 30),
            ("database full", if small_disk { 3 } else { 0 }),
            ("process kill", 3),
            ("process kill --point start", 1),
            ("process freeze", 1),
            ("process takeover", u32::from(postgres)),
            ("database freeze", u32::from(postgres)),
            ("database kill", if postgres { 3 } else { 0 }),
            ("database cut", if postgres { 5 } else { 0 }),
        ]),
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
async fn soak_with_kills_on_sqlite_loses_duplicates_and_repeats_nothing() {
    soak(false, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn soak_with_kills_on_postgres_loses_duplicates_and_repeats_nothing() {
    soak(true, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn soak_with_a_repeatedly_full_disk_loses_duplicates_and_repeats_nothing() {
    soak(false, true).await;
}
