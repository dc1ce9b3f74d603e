//! What must be there twice, or once for each: migrations for every database, a test for every route.

use std::{collections::BTreeSet, fs};

use super::tree::{all_well, files, read, root, sources};

fn migrations(database: &str) -> BTreeSet<String> {
    let folder = root().join("migrations").join(database);
    let Ok(entries) = fs::read_dir(folder) else { return BTreeSet::new() };
    let names = entries.filter_map(|e| e.ok()?.file_name().into_string().ok());
    names.filter(|n| n.ends_with(".sql")).collect()
}

#[test]
fn both_databases_have_the_same_migrations() {
    let (sqlite, postgres) = (migrations("sqlite"), migrations("postgres"));
    assert!(!sqlite.is_empty(), "migrations/sqlite is empty");
    if postgres.is_empty() {
        println!("migrations/postgres is empty: there is one database only, and nothing to compare");
    } else {
        assert_eq!(sqlite, postgres, "a migration has the same number and name on both databases");
    }
}

#[test]
fn migrations_count_up_from_one() {
    for database in ["sqlite", "postgres"] {
        for (n, name) in (1..).zip(migrations(database)) {
            assert!(name.starts_with(&format!("{n:04}_")), "migrations/{database}/{name} should have number {n:04}");
        }
    }
}

/// The routes of both doors: method and path, as the table of rights has them.
fn routes() -> Vec<(String, String)> {
    let table = read("src/auth/policy.rs");
    let route = |line: &str| {
        let mut quoted = line.trim().strip_prefix('(')?.split('"').skip(1).step_by(2);
        Some((quoted.next()?.to_owned(), quoted.next().filter(|p| p.starts_with('/'))?.to_owned()))
    };
    table.lines().filter_map(route).collect()
}

/// Whether a text speaks of a path: its fixed pieces stand in their order on one line, or, for a call of gRPC, its service
/// and its method stand in it as clients write them.
fn speaks_of(text: &str, method: &str, path: &str) -> bool {
    if method == "RPC" {
        let (service, call) = path.trim_start_matches('/').split_once('/').unwrap_or((path, ""));
        let service = service.rsplit('.').next().unwrap_or(service);
        let snake = call.chars().flat_map(|c| [c.is_uppercase().then_some('_'), Some(c.to_ascii_lowercase())]);
        let snake: String = snake.flatten().collect();
        return text.contains(service)
            && (text.contains(&format!(".{}(", snake.trim_start_matches('_'))) || text.contains(call));
    }
    let pieces: Vec<&str> = path.split(['{', '}']).step_by(2).collect();
    text.lines().any(|line| {
        line.match_indices(pieces[0]).any(|(at, _)| is_this_path(&line[at + pieces[0].len()..], &pieces[1..]))
    })
}

/// Whether the rest of a line goes on with these pieces, and the path ends there.
fn is_this_path(rest: &str, pieces: &[&str]) -> bool {
    let Some((piece, more)) = pieces.split_first() else {
        return !rest.starts_with(|c: char| c.is_alphanumeric() || "/_-{:".contains(c));
    };
    // A hole is filled with anything but the end of the text around it.
    let hole = rest.find(['"', ' ', '`', '?']).unwrap_or(rest.len());
    if piece.is_empty() {
        return more.is_empty() && hole > 0;
    }
    rest[..hole].match_indices(piece).any(|(at, _)| at > 0 && is_this_path(&rest[at + piece.len()..], more))
}

#[test]
fn every_route_is_walked_by_a_test() {
    let routes = routes();
    assert!(routes.len() > 30, "only {} routes were found in src/auth/policy.rs", routes.len());
    let rust = sources().iter().filter(|s| s.is_for_tests() && !s.path.starts_with("tests/tidy/")).map(|s| &s.text);
    let clients = files().iter().filter(|f| f.path.starts_with("tests/clients/")).map(|f| &f.text);
    let tests: Vec<&String> = rust.chain(clients).filter(|text| is_at_a_door(text)).collect();
    if tests.is_empty() {
        println!("no test goes through a door: {} routes are unwalked", routes.len());
        return;
    }
    let unwalked = routes.iter().filter(|(method, path)| !tests.iter().any(|text| speaks_of(text, method, path)));
    all_well(
        "walk these routes in src/http/tests or tests/flow",
        &unwalked.map(|(m, p)| format!("{m} {p}")).collect::<Vec<_>>(),
    );
}

fn is_at_a_door(text: &str) -> bool {
    text.contains("/api/v1/") || text.contains("/v1/chat/completions") || text.contains("annie.v1")
}

#[test]
fn a_path_is_recognised_however_a_test_fills_its_holes() {
    assert!(speaks_of("get(&format!(\"/api/v1/tasks/{id}/cancel\"))", "POST", "/api/v1/tasks/{id}/cancel"));
    assert!(!speaks_of("get(\"/api/v1/tasks/1\")", "POST", "/api/v1/tasks/{id}/cancel"));
    assert!(speaks_of("get(\"/api/v1/tasks/1?x\")", "GET", "/api/v1/tasks/{id}"));
    assert!(!speaks_of("get(\"/api/v1/tasks/1\")", "GET", "/api/v1/tasks"));
    assert!(speaks_of("get(\"/api/v1/tasks?open=true\")", "GET", "/api/v1/tasks"));
    assert!(speaks_of("let c = ChatClient::new(x);\nc.submit(y)", "RPC", "/annie.v1.Chat/Submit"));
    assert!(!speaks_of("let c = ChatClient::new(x);", "RPC", "/annie.v1.Chat/Submit"));
}
