//! What the doctor says where nothing can be looked at.

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
