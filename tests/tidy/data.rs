//! What must exist twice or once for each item: migrations for both databases, a test for every route.

use std::{collections::BTreeSet, fs};

use super::tree::{all_well, files, read, root, sources};

fn migrations(database: &str) -> BTreeSet<String> {
    let folder = root().join("migrations").join(database);
    let Ok(entries) = fs::read_dir(folder) else { return BTreeSet::new() };
    let names = entries.filter_map(|e| e.ok()?.file_name().into_string().ok());
    names.filter(|n| n.ends_with(".sql")).collect()
}

#[test]
fn migrations_of_both_databases_are_the_same() {
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

/// The routes of both front ends: method and path, as listed in the table of rights and in the table of operations.
fn routes() -> Vec<(String, String)> {
    let table = read("crates/api/src/auth/policy.rs");
    let route = |line: &str| {
        let mut quoted = line.trim().strip_prefix('(')?.split('"').skip(1).step_by(2);
        Some((quoted.next()?.to_owned(), quoted.next().filter(|p| p.starts_with('/'))?.to_owned()))
    };
    let mut routes: Vec<(String, String)> = table.lines().filter_map(route).collect();
    for file in sources().iter().filter(|s| s.path.starts_with("crates/api/src/ops/") && !s.is_for_tests()) {
        for (method, start) in [("HTTP", "\"/api/v1/"), ("RPC", "\"/annie.v1.")] {
            let paths = file.text.match_indices(start).filter_map(|(at, _)| file.text[at + 1..].split('"').next());
            routes.extend(paths.map(|path| (method.to_owned(), path.to_owned())));
        }
    }
    routes
}

/// Whether a text mentions a path: the fixed pieces of the path are in order on one line. For a gRPC call the text must
/// contain the service and the method as clients write them.
fn mentions(text: &str, method: &str, path: &str) -> bool {
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

/// Whether the rest of a line continues with these pieces and the path ends there.
fn is_this_path(rest: &str, pieces: &[&str]) -> bool {
    let Some((piece, more)) = pieces.split_first() else {
        return !rest.starts_with(|c: char| c.is_alphanumeric() || "/_-{:".contains(c));
    };
    // A parameter may be anything up to the end of the surrounding text.
    let parameter = rest.find(['"', ' ', '`', '?']).unwrap_or(rest.len());
    if piece.is_empty() {
        return more.is_empty() && parameter > 0;
    }
    rest[..parameter].match_indices(piece).any(|(at, _)| at > 0 && is_this_path(&rest[at + piece.len()..], more))
}

#[test]
fn routes_are_each_used_by_a_test() {
    let routes = routes();
    assert!(routes.len() > 30, "only {} routes were found in crates/api/src/auth/policy.rs", routes.len());
    let rust = sources().iter().filter(|s| s.is_for_tests() && !s.path.starts_with("tests/tidy/")).map(|s| &s.text);
    let clients = files().iter().filter(|f| f.path.starts_with("tests/clients/")).map(|f| &f.text);
    let tests: Vec<&String> = rust.chain(clients).filter(|text| uses_an_api(text)).collect();
    if tests.is_empty() {
        println!("no test uses an API: {} routes are untested", routes.len());
        return;
    }
    let untested = routes.iter().filter(|(method, path)| !tests.iter().any(|text| mentions(text, method, path)));
    all_well(
        "test these routes in crates/api/src/http/tests or tests/flow",
        &untested.map(|(m, p)| format!("{m} {p}")).collect::<Vec<_>>(),
    );
}

fn uses_an_api(text: &str) -> bool {
    text.contains("/api/v1/") || text.contains("/v1/chat/completions") || text.contains("annie.v1")
}

#[test]
fn route_path_is_recognised_whatever_fills_its_parameters() {
    assert!(mentions("get(&format!(\"/api/v1/tasks/{id}/cancel\"))", "POST", "/api/v1/tasks/{id}/cancel"));
    assert!(!mentions("get(\"/api/v1/tasks/1\")", "POST", "/api/v1/tasks/{id}/cancel"));
    assert!(mentions("get(\"/api/v1/tasks/1?x\")", "GET", "/api/v1/tasks/{id}"));
    assert!(!mentions("get(\"/api/v1/tasks/1\")", "GET", "/api/v1/tasks"));
    assert!(mentions("get(\"/api/v1/tasks?open=true\")", "GET", "/api/v1/tasks"));
    assert!(mentions("let c = ChatClient::new(x);\nc.submit(y)", "RPC", "/annie.v1.Chat/Submit"));
    assert!(!mentions("let c = ChatClient::new(x);", "RPC", "/annie.v1.Chat/Submit"));
}

/// The texts between quotation marks.
fn quoted(text: &str) -> BTreeSet<String> {
    text.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn channels_of_hooks_are_those_that_front_ends_record() {
    let (config, intake) = (read("src/config/hooks.rs"), read("crates/api/src/api/intake.rs"));
    let list = config.split_once("const CHANNELS:").and_then(|(_, list)| list.split_once("= ["));
    let list = list.and_then(|(_, list)| list.split(']').next()).expect("the list of channels");
    let spoken = intake.lines().find(|line| line.starts_with("const VOICE:")).expect("the channel of spoken messages");
    let mut recorded = quoted(spoken);
    let front_ends = |path: &str| ["src/", "crates/api/src/"].iter().any(|folder| path.starts_with(folder));
    for source in sources().iter().filter(|source| front_ends(&source.path)) {
        let code = source.shipped();
        for (at, _) in [" submission(", " Submission::new("].iter().flat_map(|call| code.match_indices(call)) {
            let end = code[at..].find([';', '{']).map_or(code.len(), |length| at + length);
            recorded.extend(quoted(&source.text[at..end]));
        }
    }
    assert_eq!(quoted(list), recorded, "a rule about a channel that is not listed is refused: src/config/hooks.rs");
}
