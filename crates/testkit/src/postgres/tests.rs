//! A server that starts and stops, and the clean-up after it.

use super::*;

/// The output of a statement, sent to a database's address.
fn ask(url: &str, statement: &str) -> String {
    let programs = programs().unwrap();
    let done =
        std::process::Command::new(programs.join("psql")).args(["-X", "-A", "-t", "-c", statement, url]).output();
    let done = done.unwrap();
    assert!(done.status.success(), "{url}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).trim().to_owned()
}

#[tokio::test]
async fn postgres_database_is_new_and_answers_on_both_addresses() {
    let Some(one) = database().await else { return };
    let other = database().await.expect("as the first");
    ask(&one.url, "CREATE TABLE seen (n int); INSERT INTO seen VALUES (1)");
    assert_eq!(ask(&one.url_tcp, "SELECT n FROM seen"), "1");
    assert_eq!(ask(&other.url, "SELECT count(*) FROM pg_tables WHERE tablename = 'seen'"), "0");
}

#[tokio::test]
async fn postgres_database_like_another_copies_its_content() {
    let fill = async |url: String| {
        ask(&url, "CREATE TABLE filled (n int); INSERT INTO filled VALUES (7)");
    };
    let Some(one) = database_like("of_this_test", fill).await else { return };
    ask(&one.url, "UPDATE filled SET n = 8");
    let other = database_like("of_this_test", async |_| panic!("it is filled once")).await.unwrap();
    assert_eq!(ask(&other.url, "SELECT n FROM filled"), "7");
}

#[tokio::test]
async fn postgres_server_keeps_commits_across_a_kill_and_leaves_no_folder() {
    let Some(server) = Server::start(Options::default()).await else { return };
    let url = server.database().await;
    ask(&url, "CREATE TABLE kept (n int)");
    ask(&url, "INSERT INTO kept VALUES (1)");
    server.kill();
    server.start_again();
    assert_eq!(ask(&server.tcp(&url), "SELECT n FROM kept"), "1");
    server.stop_fast();
    server.start_again();
    server.pause();
    server.go_on();
    assert_eq!(ask(&url, "SELECT n FROM kept"), "1");
    let folder = server.files.folder.clone();
    assert!(folder.exists());
    drop(server);
    assert!(!folder.exists(), "the folder still exists");
}
