//! What the doctor says where nothing can be looked at.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use annie_testkit::model_server::{FakeModelServer, Reply};

use super::*;

#[tokio::test]
async fn a_check_of_a_folder_without_data_finds_nothing_and_makes_nothing() {
    let data = tempfile::tempdir().unwrap();
    for how in ["--check", "--repair"] {
        let said = annie(data.path(), &["doctor", how]).await;
        assert_eq!(said.done, Ok(()), "{}{}", said.out, said.err);
        assert!(said.out.contains("there is none yet"), "{}", said.out);
        assert!(!data.path().join("annie.db").exists(), "{how} made a database");
    }
}

#[tokio::test]
async fn a_check_that_cannot_look_is_one_fault_among_the_findings() {
    let data = tempfile::tempdir().unwrap();
    std::fs::write(data.path().join("annie.db"), "this is no database at all, and never was").unwrap();
    let said = annie(data.path(), &["doctor", "--check"]).await;
    assert_eq!(said.done.unwrap_err().exit, Exit::Failure);
    for part in ["configuration", "data folder", "FAULT    log", "skills", "backend"] {
        assert!(said.out.contains(part), "{part} is not in {}", said.out);
    }
}

#[tokio::test]
async fn doctor_says_that_notes_cannot_be_kept_and_that_the_whole_database_is_lost() {
    let data = tempfile::tempdir().unwrap();
    assert_eq!(annie(data.path(), &["--quiet", "ask", "what is due?"]).await.done, Ok(()));
    std::fs::write(data.path().join("notes"), "in the way").unwrap();
    let said = annie(data.path(), &["doctor"]).await;
    let line = said.out.lines().find(|line| line.contains("notes cannot be kept in")).unwrap_or_default();
    assert!(line.contains("warning") && line.contains("is no folder"), "{}", said.out);
    for file in ["annie.db", "annie.db-wal", "annie.db-shm"] {
        let _ = std::fs::remove_file(data.path().join(file));
    }
    let lost = annie(data.path(), &["doctor"]).await;
    assert_eq!(lost.done.unwrap_err().exit, Exit::Failure, "a start refuses it too: {}", lost.out);
    assert!(lost.out.contains("the database has no conversations"), "{}", lost.out);
}

#[tokio::test]
async fn doctor_beside_a_server_whose_rounds_fail_names_the_backend_and_the_reason() {
    let data = tempfile::tempdir().unwrap();
    let is_broken = Arc::new(AtomicBool::new(false));
    let breaks = is_broken.clone();
    let model = FakeModelServer::start(move |_| match breaks.load(Relaxed) {
        false => Reply::says("Good morning."),
        true => Reply::error(500, "the GPU fell off the bus"),
    })
    .await;
    let base = model.base_url();
    let variables = [("ANNIE_MODEL", "m"), ("OPENAI_BASE_URL", &base), ("ANNIE__BACKEND__0__RETRIES_MAX", "0")];
    with_server_of(data.path(), &variables, async |url| {
        let well = annie_in(data.path(), &["--url", &url, "ask", "good morning"], &variables).await;
        assert_eq!(well.done, Ok(()), "{}", well.err);
        let before = annie_in(data.path(), &["--url", &url, "doctor"], &variables).await;
        assert!(before.done.is_ok() && before.out.contains("ok       backend"), "{}", before.out);
        is_broken.store(true, Relaxed);
        let asked = annie_in(data.path(), &["--url", &url, "ask", "and now?"], &variables).await;
        assert!(asked.done.is_err(), "{}", asked.out);
        let said = annie_in(data.path(), &["--url", &url, "doctor"], &variables).await;
        assert_eq!(
            said.done.unwrap_err().exit,
            Exit::Failure,
            "its list of models is there, its rounds fail: {}",
            said.out
        );
        let line = said.out.lines().find(|line| line.starts_with("FAULT")).unwrap_or_default();
        for part in ["backend", "generic", "FAILING since", "the GPU fell off the bus"] {
            assert!(line.contains(part), "{part} is not in {}", said.out);
        }
        assert!(!said.out.contains("ok       backend"), "{}", said.out);
    })
    .await;
}

#[tokio::test]
async fn migration_of_a_folder_whose_notes_cannot_be_used_says_how_to_mend_that() {
    let data = tempfile::tempdir().unwrap();
    assert_eq!(annie(data.path(), &["--quiet", "ask", "what is due?"]).await.done, Ok(()));
    std::fs::write(data.path().join("notes"), "in the way").unwrap();
    let wanted = ["migrate", "--from", "sqlite", "--to", "postgres"];
    let env = [("ANNIE__STORE__URL", "postgres://someone@127.0.0.1:1/none")];
    let failure = annie_in(data.path(), &wanted, &env).await.done.unwrap_err();
    assert!(failure.what.contains("notes cannot be kept in"), "{failure:?}");
    let fix = failure.fix.unwrap_or_default();
    assert!(fix.contains("owner and rights") && fix.contains("--without-notes") && !fix.contains("cp -a"), "{fix}");
}
