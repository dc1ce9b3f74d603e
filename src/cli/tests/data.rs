//! `annie data`: export and deletion of what skills store of a user.

use super::*;

#[tokio::test]
async fn data_of_a_user_is_exported_and_deleted_only_if_confirmed() {
    let data = tempfile::tempdir().unwrap();
    let none = annie(data.path(), &["data", "export", "--user", "me"]).await;
    assert_eq!(none.done.unwrap_err().exit, Exit::NotFound);
    assert!(!data.path().join("annie.db").exists(), "an export creates no database");
    assert_eq!(annie(data.path(), &["ask", REQUEST]).await.done, Ok(()));
    let exported = annie(data.path(), &["data", "export", "--user", "me"]).await;
    let lines: Vec<serde_json::Value> = exported.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let namespaces: Vec<&str> = lines.iter().filter_map(|line| line["namespace"].as_str()).collect();
    assert_eq!(namespaces, ["memory", "tasks"], "{}", exported.out);
    assert!(lines.iter().any(|line| line["event"]["kind"] == "received"), "{}", exported.out);
    assert!(lines[0]["body"]["content"].as_str().unwrap().contains("email"), "{}", exported.out);
    assert!(lines[1]["number"] == 1 && lines[1]["created_at"].as_str().unwrap().ends_with('Z'), "{}", exported.out);
    let shown = annie(data.path(), &["data", "delete", "--user", "me"]).await;
    assert!(shown.out.contains("tasks      1") && shown.err.contains("add --yes"), "{} {}", shown.out, shown.err);
    let other = annie(data.path(), &["data", "delete", "--user", "bob", "--yes"]).await;
    assert!(other.err.contains("user bob has no documents and no conversations"), "{}", other.err);
    let again = annie(data.path(), &["data", "export", "--user", "me"]).await;
    assert_eq!(again.out, exported.out, "nothing was deleted");
    let deleted = annie(data.path(), &["--json", "data", "delete", "--user", "me", "--yes"]).await;
    let deleted: serde_json::Value = serde_json::from_str(&deleted.out).unwrap();
    assert_eq!((&deleted["deleted"], &deleted["erased_conversations"]), (&2.into(), &1.into()));
    assert_eq!(annie(data.path(), &["data", "export", "--user", "me"]).await.out, "");
}

#[tokio::test]
async fn data_command_refuses_a_folder_in_use_and_an_invalid_user() {
    let data = tempfile::tempdir().unwrap();
    let held = opened_elsewhere(data.path()).await;
    let output = annie(data.path(), &["data", "delete", "--user", "ann", "--yes"]).await;
    let failure = output.done.unwrap_err();
    assert_eq!(failure.exit, Exit::Unavailable);
    assert!(failure.what.contains("a server uses the data folder") && failure.fix.unwrap().contains("stop it"));
    held.close().await;
    let wrong = annie(data.path(), &["data", "export", "--user", ""]).await;
    assert_eq!(wrong.done.unwrap_err().exit, Exit::Usage);
}
