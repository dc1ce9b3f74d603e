//! The whole program on a PostgreSQL database: front ends, command line, a database outage, and the migration there and
//! back.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use annie_testkit::{
    model_server::{FakeModelServer, Reply},
    postgres::{self, Options},
};
use serde_json::{Value, json};

use crate::{server::Server, world::eventually};

const REQUEST: &str =
    "Create a task to review PR 42 due tomorrow, remember that Bob prefers email, and then tell me what is due";

/// The output of a command and its exit code.
struct Output {
    code: i32,
    out: String,
    err: String,
}

/// Runs a command on a data folder.
async fn annie(data: &Path, arguments: &[&str], env: &[(&str, &str)]) -> Output {
    let done = tokio::process::Command::new(env!("CARGO_BIN_EXE_annie"))
        .args(["--data".as_ref(), data.as_os_str()])
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", data)
        .envs(env.iter().copied())
        .stdin(std::process::Stdio::null())
        .output()
        .await
        .expect("the binary starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    let printed =
        Output { code: done.status.code().expect("an exit code"), out: text(done.stdout), err: text(done.stderr) };
    for part in [&printed.out, &printed.err] {
        assert!(!part.contains(postgres::PASSWORD), "the output shows the password: {part}");
    }
    printed
}

async fn ask(server: &Server, text: &str, client_id: &str) -> Value {
    let body = json!({"text": text, "conversation_key": "k", "client_id": client_id});
    let (status, printed) = server.post("/api/v1/messages?wait=15", &body).await.expect("answered");
    assert!(status < 300, "{status} {printed}");
    printed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn program_works_on_postgres_and_never_shows_the_password() {
    let Some(database) = postgres::database().await else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path();
    let file = data.join("store.url");
    std::fs::write(&file, &database.url_tcp).expect("a file");
    let env = [("ANNIE__STORE__URL_FILE", file.to_str().expect("text"))];
    // This command runs without a server, on an empty database.
    let asked = annie(data, &["ask", "--plain", REQUEST], &env).await;
    assert!(asked.code == 0 && asked.out.contains("PR 42"), "{} {}", asked.out, asked.err);
    let made = annie(data, &["--json", "key", "create", "ops", "--scope", "admin"], &env).await;
    assert_eq!(made.code, 0, "{}", made.err);
    let doctor = annie(data, &["doctor"], &env).await;
    assert!(doctor.code == 0 && doctor.out.contains("PostgreSQL, annie@127.0.0.1:"), "{}", doctor.out);
    let shown = annie(data, &["config", "show"], &[("ANNIE__STORE__URL", &database.url_tcp)]).await;
    assert!(shown.code == 0 && shown.out.contains("store.url = "), "{}", shown.out);

    let mut server = Server::start(data, &[], &env).await;
    let key = serde_json::from_str::<Value>(&made.out).expect("JSON")["secret"].as_str().expect("a key").to_owned();
    let env_of_client = [env[0], ("ANNIE__CLIENT__KEY", key.as_str())];
    for arguments in [
        &["status"][..],
        &["key", "list"],
        &["conversations", "list"],
        &["tasks", "list"],
        &["jobs"],
        &["dlq", "list"],
        &["operations", "list"],
        &["notifications"],
        &["queue"],
        &["actors", "tree"],
        &["breakers", "list"],
        &["skills", "list"],
        &["doctor"],
        &["ask", "--plain", "what tasks are open?"],
    ] {
        let printed = annie(data, arguments, &env_of_client).await;
        assert_eq!(printed.code, 0, "{arguments:?}: {} {}", printed.out, printed.err);
    }
    let second = annie(data, &["serve", "--port", "0"], &env).await;
    assert_eq!(second.code, 5, "the folder belongs to one process: {}", second.err);
    server.stop().await;
    assert!(!data.join("annie.db").exists(), "the folder has a database of its own");
}

#[tokio::test]
async fn postgres_that_cannot_be_used_is_reported_with_its_address_and_exit_code_5() {
    let Some(database) = postgres::database().await else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").port();
    let unreachable = format!("postgres://annie:{}@127.0.0.1:{free}/annie", postgres::PASSWORD);
    let refused = database.url_tcp.replace(postgres::PASSWORD, "not-the-password");
    for (url, at) in
        [(&unreachable, format!("annie@127.0.0.1:{free}/annie")), (&refused, "annie@127.0.0.1:".to_owned())]
    {
        let env = [("ANNIE__STORE__URL", url.as_str()), ("ANNIE__STORE__CONNECT_MS_MAX", "300")];
        for arguments in [&["serve", "--port", "0"][..], &["ask", "hello"], &["key", "list"]] {
            let printed = annie(folder.path(), arguments, &env).await;
            assert_eq!(printed.code, 5, "{arguments:?}: {}", printed.err);
            assert!(printed.err.contains(&format!("cannot use the database {at}")), "{}", printed.err);
            assert!(!printed.err.contains("not-the-password"), "{}", printed.err);
        }
        let doctor = annie(folder.path(), &["doctor"], &env).await;
        assert!(doctor.code == 1 && doctor.out.contains("ERROR    database"), "{}", doctor.out);
    }
}

#[tokio::test]
async fn postgres_connection_wait_follows_the_configuration() {
    // This listener accepts the connection and never sends a byte.
    let front_end = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("postgres://annie@{}/annie", front_end.local_addr().expect("bound"));
    let folder = tempfile::tempdir().expect("a folder");
    let env = [("ANNIE__STORE__URL", url.as_str()), ("ANNIE__STORE__CONNECT_MS_MAX", "100")];
    let begun = std::time::Instant::now();
    let printed = annie(folder.path(), &["key", "list"], &env).await;
    assert!(printed.code == 5 && printed.err.contains("does not answer"), "{} {}", printed.code, printed.err);
    // By default one wait is 5 s, and there are two.
    assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn postgres_statement_limit_follows_the_configuration() {
    let Some(database) = postgres::Server::start(Options::default()).await else { return };
    let url = database.database().await;
    let folder = tempfile::tempdir().expect("a folder");
    let of = |ms| [("ANNIE__STORE__URL", url.as_str()), ("ANNIE__STORE__STATEMENT_MS_MAX", ms)];
    assert_eq!(annie(folder.path(), &["key", "list"], &of("5000")).await.code, 0);
    let name =
        url.split_once('?').map_or(url.as_str(), |(path, _)| path).rsplit('/').next().expect("a name").to_owned();
    let asked = database.clone();
    let locker = tokio::task::spawn_blocking(move || {
        asked.run_sql(&name, &["BEGIN; LOCK TABLE api_keys; SELECT pg_sleep (600); COMMIT"])
    });
    let locked =
        "SELECT count(*) FROM pg_locks WHERE relation IS NOT NULL AND mode = 'AccessExclusiveLock' AND granted";
    eventually("the table is locked", async || {
        let asked = database.clone();
        let count = tokio::task::spawn_blocking(move || asked.run_sql("postgres", &[locked])).await.expect("an answer");
        (count != "0").then_some(())
    })
    .await;
    let begun = std::time::Instant::now();
    let printed = annie(folder.path(), &["key", "list"], &of("100")).await;
    assert!(printed.code == 5 && printed.err.contains("holds the database"), "{} {}", printed.code, printed.err);
    // The default is 10 s.
    assert!(begun.elapsed().as_secs() < 8, "{:?}", begun.elapsed());
    database.kill();
    locker.await.expect_err("its server is gone");
}

#[tokio::test]
async fn postgres_connection_that_requires_tls_is_not_made_without_tls() {
    let Some(database) = postgres::database().await else { return };
    let folder = tempfile::tempdir().expect("a folder");
    for (mode, code) in [("disable", 0), ("prefer", 0), ("require", 5), ("verify-ca", 5), ("verify-full", 5)] {
        let url = format!("{}?sslmode={mode}", database.url_tcp);
        let env = [("ANNIE__STORE__URL", url.as_str()), ("ANNIE__STORE__CONNECT_MS_MAX", "300")];
        let printed = annie(folder.path(), &["key", "list"], &env).await;
        assert_eq!(printed.code, code, "{mode}: {}", printed.err);
        assert!(code == 0 || printed.err.to_lowercase().contains("tls"), "{mode}: {}", printed.err);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_outage_makes_the_server_not_ready_until_the_database_is_back() {
    let Some(database) = postgres::Server::start(Options::default()).await else { return };
    let url = database.database().await;
    let folder = tempfile::tempdir().expect("a folder");
    let env = [
        ("ANNIE__STORE__URL", url.as_str()),
        ("ANNIE__STORE__CONNECT_MS_MAX", "300"),
        ("ANNIE__STORE__STATEMENT_MS_MAX", "300"),
    ];
    let server = Server::start(folder.path(), &[], &env).await;
    ask(&server, "what tasks are open?", "before").await;
    for away in [postgres::Server::kill as fn(&postgres::Server), postgres::Server::stop_fast, postgres::Server::pause]
    {
        away(&database);
        eventually("the server says that it is not ready", async || {
            let (status, printed) = server.get("/readyz").await;
            (status == 503 && printed["ready"] == false).then_some(())
        })
        .await;
        let body = json!({"text": "hello", "client_id": "away"});
        let (status, printed) = server.post("/api/v1/messages", &body).await.expect("the server answers");
        assert_eq!(status, 503, "{printed}");
        let again = database.clone();
        tokio::task::spawn_blocking(move || if again.is_running() { again.go_on() } else { again.start_again() })
            .await
            .expect("the database comes back");
        eventually("the server is ready again", async || (server.get("/readyz").await.0 == 200).then_some(())).await;
        let body = json!({"text": "what tasks are open?", "client_id": "again"});
        let (status, printed) = server.post("/api/v1/messages?wait=15", &body).await.expect("the server answers");
        assert!(status < 300 && printed["answer"].is_string(), "{printed}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_connections_stay_within_the_configured_limit() {
    let Some(database) = postgres::Server::start(Options::default()).await else { return };
    let url = database.database().await;
    let folder = tempfile::tempdir().expect("a folder");
    let env = [("ANNIE__STORE__URL", url.as_str()), ("ANNIE__STORE__CONNECTIONS_MAX", "3")];
    let server = Arc::new(Server::start(folder.path(), &[], &env).await);
    let mut clients = tokio::task::JoinSet::new();
    for n in 0..40 {
        let server = server.clone();
        clients.spawn(async move {
            let body = json!({"text": "what tasks are open?", "conversation_key": format!("{n}"), "priority": "low"});
            server.post("/api/v1/messages?wait=15", &body).await
        });
    }
    clients.join_all().await;
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'annie'";
    let asked = database.clone();
    let connections =
        tokio::task::spawn_blocking(move || asked.run_sql("postgres", &[sql])).await.expect("the database answers");
    let connections: u32 = connections.parse().expect("a number");
    // One more connection listens for notifications.
    assert!((2..=4).contains(&connections), "{connections} connections");
}

/// Migrates and returns the tables with their row counts and checksums.
async fn migrate(data: &Path, from: &str, to: &str, env: &[(&str, &str)]) -> BTreeMap<String, (u64, String)> {
    let printed = annie(data, &["--json", "migrate", "--from", from, "--to", to], env).await;
    assert_eq!(printed.code, 0, "{from} to {to}: {} {}", printed.out, printed.err);
    let row = |line: &str| {
        let row: Value = serde_json::from_str(line).expect("JSON");
        let text = |key: &str| row[key].as_str().expect("text").to_owned();
        (text("table"), (row["rows"].as_u64().expect("a number"), text("sha256")))
    };
    printed.out.lines().map(row).collect()
}

/// Migrates with `--without-notes` in both directions. The notes of this PostgreSQL database are in the data folder
/// `other`, which is on SQLite now.
async fn migrate_without_notes_both_ways(other: &Path, env: &[(&str, &str)]) {
    let fresh = tempfile::tempdir().expect("a folder");
    let back = ["migrate", "--from", "sqlite", "--to", "postgres", "--replace"];
    let to_sqlite = ["migrate", "--from", "postgres", "--to", "sqlite", "--without-notes"];
    let alone = annie(fresh.path(), &to_sqlite, env).await;
    assert_eq!(alone.code, 0, "{} {}", alone.out, alone.err);
    let shared = annie(fresh.path(), &back, env).await;
    assert_eq!(shared.code, 0, "{} {}", shared.out, shared.err);
    let doctor = annie(fresh.path(), &["doctor"], env).await;
    assert!(!doctor.out.contains("another folder"), "{}", doctor.out);
    let doctor = annie(other, &["doctor"], env).await;
    assert!(doctor.out.contains("another folder"), "the database knows the fresh folder: {}", doctor.out);
    // The copy in `other` still has the id of the folder from which it was copied.
    std::fs::rename(other.join("notes"), other.join("away")).expect("moved");
    let refused = annie(other, &back, env).await;
    assert!(refused.code == 1 && refused.err.contains("--without-notes"), "{} {}", refused.out, refused.err);
    let doctor = annie(fresh.path(), &["doctor"], env).await;
    assert!(!doctor.out.contains("another folder"), "nothing was copied: {}", doctor.out);
    let forced = annie(other, &[&back[..], &["--without-notes"]].concat(), env).await;
    assert_eq!(forced.code, 0, "{} {}", forced.out, forced.err);
    let doctor = annie(other, &["doctor"], env).await;
    assert!(!doctor.out.contains("another folder"), "{}", doctor.out);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn migrate_moves_the_data_of_real_turns_to_postgres_and_back_without_loss() {
    let Some(database) = postgres::database().await else { return };
    let (first, second) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let env = [("ANNIE__STORE__URL", database.url_tcp.as_str())];
    let mut server = Server::start(first.path(), &[], &[]).await;
    ask(&server, REQUEST, "the-message").await;
    // No client waits for this task, so its end becomes a notification.
    let body =
        json!({"text": "create a task to call Zoë \u{0}🎉", "conversation_key": "other", "priority": "background"});
    server.post("/api/v1/messages", &body).await.expect("accepted");
    eventually("the task has ended", async || {
        let (_, tasks) = server.get("/api/v1/tasks?open=true").await;
        tasks["tasks"].as_array()?.is_empty().then_some(())
    })
    .await;
    let in_use = annie(first.path(), &["migrate", "--from", "sqlite", "--to", "postgres"], &env).await;
    assert!(in_use.code == 5 && in_use.err.contains("in use"), "{}", in_use.err);
    server.stop().await;
    assert_eq!(annie(first.path(), &["key", "create", "laptop"], &[]).await.code, 0);

    let there = migrate(first.path(), "sqlite", "postgres", &env).await;
    for table in [
        "conversations",
        "events",
        "tasks",
        "intents",
        "outbox",
        "documents",
        "document_intents",
        "api_keys",
        "secrets",
    ] {
        assert!(there[table].0 > 0, "{table} is empty in this test");
    }
    let away = annie(second.path(), &["migrate", "--from", "postgres", "--to", "sqlite"], &env).await;
    assert!(away.code == 1 && !second.path().join("annie.db").exists(), "its notes are elsewhere: {}", away.err);
    assert!(away.err.contains("cp -a OTHER/notes/. ") && away.err.contains("--without-notes"), "{}", away.err);
    let _ = std::fs::remove_dir_all(second.path().join("notes"));
    let mut copy = std::process::Command::new("cp");
    copy.arg("-a").args([first.path().join("notes"), second.path().join("notes")]);
    assert!(copy.status().expect("cp runs").success());
    let back = migrate(second.path(), "postgres", "sqlite", &env).await;
    let (mut rest, mut rest_back) = (there.clone(), back.clone());
    let (secrets, secrets_back) = (rest.remove("secrets"), rest_back.remove("secrets"));
    assert_eq!(rest, rest_back, "the two dumps differ");
    let counts = [secrets, secrets_back].map(|table| table.expect("secrets").0);
    assert_eq!(counts[0] + 1, counts[1], "the database has stored its notes folder since");
    for (folder, env) in [(first.path(), &env[..]), (second.path(), &[])] {
        let doctor = annie(folder, &["doctor"], env).await;
        assert_eq!(doctor.code, 0, "{}", doctor.out);
    }
    migrate_without_notes_both_ways(second.path(), &env).await;
    let again = annie(first.path(), &["migrate", "--from", "sqlite", "--to", "postgres"], &env).await;
    assert!(again.code == 1 && again.err.contains("not empty") && again.err.contains("--replace"), "{}", again.err);
    let replaced = annie(first.path(), &["migrate", "--from", "sqlite", "--to", "postgres", "--replace"], &env).await;
    assert_eq!(replaced.code, 0, "{}", replaced.err);

    // Both databases are usable: the PostgreSQL one and the SQLite copy of it.
    for (folder, env) in [(first.path(), &env[..]), (second.path(), &[])] {
        let key = annie(folder, &["--json", "key", "list"], env).await;
        assert!(key.out.contains("laptop"), "{}", key.out);
        let id =
            serde_json::from_str::<Value>(&key.out).expect("JSON")["keys"][0]["id"].as_str().expect("id").to_owned();
        assert_eq!(annie(folder, &["key", "revoke", &id], env).await.code, 0);
        let known = annie(folder, &["ask", "--plain", "--new", "How does Bob prefer to be contacted?"], env).await;
        assert!(known.out.to_lowercase().contains("email"), "the memory is missing: {} {}", known.out, known.err);
    }
}

/// A model that makes the call that the message holds as JSON, and answers with its result.
async fn obedient_model() -> FakeModelServer {
    FakeModelServer::start(|seen| {
        let results = seen.texts_of("tool");
        if let Some(result) = results.last() {
            return Reply::says(result.clone());
        }
        let text = seen.last_user_text();
        let call = text.find('{').zip(text.rfind('}')).and_then(|(from, to)| text.get(from..=to));
        Reply::calls([("use_skill", serde_json::from_str(call.expect("a call")).expect("JSON"))])
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notes_of_one_process_are_refused_by_a_process_with_another_folder() {
    let Some(database) = postgres::database().await else { return };
    let model = obedient_model().await;
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("annie.toml");
    let backend = format!(
        "mode = \"single_loop\"\n[[backend]]\nname = \"gpu\"\nbase_url = {:?}\nmodel = \"m\"\n[store]\nurl = {:?}\n",
        model.base_url(),
        database.url
    );
    std::fs::write(&config, backend).expect("the configuration is written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&config, mode).expect("the file has private permissions");
    let arguments = ["--config", config.to_str().expect("a path")];
    let [one, two, mounted] = ["one", "two", "mounted"].map(|name| folder.path().join(name));
    for data in [&one, &two, &mounted] {
        std::fs::create_dir(data).expect("a folder");
    }
    let run = async |server: &Server, key: &str, call: Value| {
        let body = json!({"text": call.to_string(), "conversation_key": key});
        let (status, printed) = server.post("/api/v1/messages?wait=20", &body).await.expect("answered");
        assert_eq!(status, 200, "{printed}");
        printed["answer"].as_str().unwrap_or_default().to_owned()
    };
    let read = json!({"skill": "notes.read", "arguments": {"title": "shop"}});
    let edit = json!({"skill": "notes.edit", "arguments": {"title": "shop", "append": "eggs"}});
    let first = Server::start(&one, &arguments, &[]).await;
    let create = json!({"skill": "notes.create", "arguments": {"title": "shop", "content": "milk"}});
    let printed = run(&first, "1", create).await;
    assert!(printed.contains("Created note 'shop'"), "{printed}");
    let mut second = Server::start(&two, &arguments, &[]).await;
    let (status, ready) = second.get("/readyz").await;
    let warning = ready["warnings"][0].as_str().unwrap_or_default().to_owned();
    assert!(status == 200 && warning.contains("notes") && !warning.contains('/'), "{status} {ready}");
    let (_, status_view) = second.get("/api/v1/status").await;
    let warning = status_view["warnings"][0]["text"].as_str().unwrap_or_default().to_owned();
    assert!(warning.contains("in another folder than"), "{status_view}");
    let shown = annie(&two, &[&arguments[..], &["status"]].concat(), &[]).await;
    assert!(shown.out.contains("\nwarning   the notes of this database"), "{} {}", shown.out, shown.err);
    assert!(first.get("/readyz").await.1.get("warnings").is_none(), "the first folder is the database's");
    let printed = annie(&two, &[&arguments[..], &["doctor"]].concat(), &[]).await;
    assert!(printed.out.contains("in another folder than"), "{} {}", printed.out, printed.err);
    for (key, call) in [("2", &read), ("3", &edit)] {
        let printed = run(&second, key, call.clone()).await;
        assert!(printed.contains("another folder") && !printed.contains("no note"), "{printed}");
    }
    second.kill();
    let separate = second.again(&two, &arguments, &[("ANNIE__DATA__SEPARATE_NOTES", "true")]).await;
    let printed = run(&separate, "4", read.clone()).await;
    assert!(printed.contains("There is no note 'shop'"), "{printed}");
    std::os::unix::fs::symlink(one.join("notes"), mounted.join("notes")).expect("a link");
    let third = Server::start(&mounted, &arguments, &[]).await;
    let printed = run(&third, "5", edit).await;
    assert!(printed.contains("Appended to note 'shop'"), "{printed}");
    let printed = run(&first, "6", read).await;
    assert!(printed.contains("milk\neggs"), "{printed}");
}
