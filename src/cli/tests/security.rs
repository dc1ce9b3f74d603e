//! Protection of a data folder: its mark, the permissions of its files, the warning of the first key.

use std::{path::Path, time::Duration};

use super::{Exit, annie, annie_in};

/// How long a test waits for a condition.
const PATIENCE: Duration = Duration::from_secs(60);

/// Empties the database of a folder, as a disk failure or a user may.
fn empty_database(data: &Path) {
    std::fs::write(data.join("annie.db"), "").unwrap();
    for beside in ["annie.db-wal", "annie.db-shm"] {
        let _ = std::fs::remove_file(data.join(beside));
    }
}

#[tokio::test]
async fn emptied_database_of_a_used_folder_does_not_start_without_keys() {
    let data = tempfile::tempdir().unwrap();
    assert_eq!(annie(data.path(), &["key", "create", "laptop"]).await.done, Ok(()));
    empty_database(data.path());
    let serve = ["--quiet", "serve", "--port", "0", "--log-level", "error"];
    let serve = tokio::time::timeout(PATIENCE, annie(data.path(), &serve)).await.expect("the server does not start");
    let failure = serve.done.unwrap_err();
    assert!(failure.what.contains("the database has no API keys"), "{}", failure.what);
    assert!(failure.fix.unwrap().contains("--accept-empty-database"));
    let doctor = annie(data.path(), &["doctor"]).await;
    assert_eq!(doctor.done.unwrap_err().exit, Exit::Failure, "{}", doctor.out);
    let line = doctor.out.lines().find(|line| line.contains("keys")).unwrap_or_default();
    assert!(line.contains("ERROR") && line.contains("the database has no API keys"), "{}", doctor.out);
    assert!(doctor.out.contains("--accept-empty-database"), "{}", doctor.out);
    let accepted = [("ANNIE__DATA__ACCEPT_EMPTY_DATABASE", "true")];
    assert_eq!(annie_in(data.path(), &["--quiet", "ask", "what is due?"], &accepted).await.done, Ok(()));
    assert_eq!(annie(data.path(), &["--quiet", "ask", "what is due?"]).await.done, Ok(()), "accepted once is enough");
    empty_database(data.path());
    let lost = annie(data.path(), &["--quiet", "ask", "what is due?"]).await.done.unwrap_err();
    assert!(lost.what.contains("the database has no conversations"), "{}", lost.what);
}

#[tokio::test]
async fn first_key_warns_on_stderr_and_later_keys_do_not() {
    let data = tempfile::tempdir().unwrap();
    let made = annie(data.path(), &["key", "create", "first", "--scope", "chat"]).await;
    assert!(made.err.contains("warning: this is the first key") && made.err.contains("--scope admin"), "{}", made.err);
    let second = annie(data.path(), &["key", "create", "second", "--scope", "chat"]).await;
    assert!(!second.err.contains("warning"), "{}", second.err);
}

#[tokio::test]
async fn database_and_folder_are_accessible_to_their_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let data = tempfile::tempdir().unwrap();
    let mode = |name: &str| std::fs::metadata(data.path().join(name)).unwrap().permissions().mode() & 0o777;
    std::fs::set_permissions(data.path(), PermissionsExt::from_mode(0o755)).unwrap();
    assert_eq!(annie(data.path(), &["key", "create", "laptop"]).await.done, Ok(()));
    assert_eq!([".", "annie.db", "annie.lock", "database.mark"].map(mode), [0o700, 0o600, 0o600, 0o600]);
    std::fs::set_permissions(data.path().join("annie.db"), PermissionsExt::from_mode(0o644)).unwrap();
    assert_eq!(annie(data.path(), &["key", "list"]).await.done, Ok(()));
    assert_eq!(mode("annie.db"), 0o600, "a file of an older version is closed too");
}
