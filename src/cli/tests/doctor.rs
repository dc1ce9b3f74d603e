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
