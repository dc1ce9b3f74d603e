//! `annie mcp import`: prints the MCP servers of another program's configuration in the form of Annie's. Known are the shapes of
//! Claude Desktop (`mcpServers`) and VS Code (`servers`). Nothing is changed.

use std::path::Path;

use serde_json::Value as Json;
use toml::{Table, Value};

use crate::{
    cli::{
        failure::{Exit, Failure},
        site::Site,
    },
    config::Environment,
};

/// The longest name of a server, in bytes.
const NAME_BYTES_MAX: usize = 20;

/// Prints the servers of a file as `[[mcp]]` on stdout, and what to do about them on stderr.
///
/// # Errors
/// If the file cannot be read or has no servers, or stdout is closed.
pub fn run(site: &Site, file: &Path) -> Result<(), Failure> {
    let shown = file.display();
    let text = std::fs::read_to_string(file)
        .map_err(|why| Failure::new(Exit::NotFound, format!("{shown} cannot be read: {why}")))?;
    let wrong = |what: String| {
        let failure = Failure::new(Exit::Usage, format!("{shown}: {what}"));
        failure.fix("name a JSON file with `mcpServers` (Claude Desktop) or `servers` (VS Code)")
    };
    let config: Json = serde_json::from_str(&text).map_err(|why| wrong(format!("it is not JSON: {why}")))?;
    let Imported { servers, notes } = imported(&config, |program| whole_path(&site.loaded.environment, program));
    if servers.is_empty() {
        return Err(wrong("it has no MCP servers".to_owned()));
    }
    let servers = servers.into_iter().map(Value::Table).collect();
    let table = Table::from_iter([("mcp".to_owned(), Value::Array(servers))]);
    let text = toml::to_string(&table)
        .map_err(|why| Failure::new(Exit::Failure, format!("the servers cannot be written as TOML: {why}")))?;
    site.console.data(&text)?;
    for note in notes {
        site.console.say(&note);
    }
    Ok(())
}

/// The whole path of a program that a name stands for.
fn whole_path(environment: &Environment, program: &str) -> Option<String> {
    if program.starts_with('/') {
        return Some(program.to_owned());
    }
    let folders = environment.get("PATH")?.split(':').filter(|folder| folder.starts_with('/'));
    let mut found = folders.map(|folder| Path::new(folder).join(program)).filter(|path| path.is_file());
    found.next().map(|path| path.to_string_lossy().into_owned())
}

/// The servers in Annie's form, and what is left to do.
#[derive(Default)]
struct Imported {
    servers: Vec<Table>,
    notes: Vec<String>,
}

fn imported(config: &Json, path_of: impl Fn(&str) -> Option<String>) -> Imported {
    let mut found = Imported::default();
    let servers = config["mcpServers"].as_object().or_else(|| config["servers"].as_object());
    for (given, server) in servers.into_iter().flatten() {
        let name = name_of(given, &found.servers);
        let mut table = Table::from_iter([("name".to_owned(), Value::from(name.as_str()))]);
        let texts = |list: &Json| -> Vec<String> {
            list.as_array().into_iter().flatten().filter_map(Json::as_str).map(str::to_owned).collect()
        };
        if let Some(program) = server["command"].as_str() {
            let path = path_of(program).unwrap_or_else(|| {
                found.notes.push(format!("{name}: the program {program:?} was not found; write its whole path"));
                program.to_owned()
            });
            let command = std::iter::once(path).chain(texts(&server["args"])).map(Value::String);
            table.insert("command".to_owned(), Value::Array(command.collect()));
        } else if let Some(url) = server["url"].as_str() {
            table.insert("url".to_owned(), url.into());
        } else {
            found.notes.push(format!("{name}: it has neither a command nor a url, and is left out"));
            continue;
        }
        if server["disabled"] == Json::Bool(true) {
            table.insert("enabled".to_owned(), false.into());
        }
        let env = server["env"].as_object().into_iter().flatten();
        let env: Table = env.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.into()))).collect();
        if !env.is_empty() {
            found.notes.push(format!("{name}: store tokens with `annie secret set`, and name them in env_secrets"));
            table.insert("env".to_owned(), Value::Table(env));
        }
        if server["headers"].as_object().is_some_and(|headers| !headers.is_empty()) {
            let what = "headers are not taken over; store the token with `annie secret set`, and name it as bearer";
            found.notes.push(format!("{name}: {what}"));
        }
        found.servers.push(table);
    }
    found
}

/// A valid name that no other server has.
fn name_of(given: &str, others: &[Table]) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    let name: String = given.chars().map(safe).collect();
    let name = name.trim_matches('_');
    let begins = name.starts_with(|c: char| c.is_ascii_lowercase());
    let name: String = if begins { name.to_owned() } else { format!("mcp{name}") };
    let is_free = |name: &str| !others.iter().any(|other| other.get("name").and_then(Value::as_str) == Some(name));
    let numbered = |n: usize| {
        let end = if n == 0 { String::new() } else { format!("_{n}") };
        let kept: String = name.chars().take(NAME_BYTES_MAX - end.len()).collect();
        format!("{kept}{end}")
    };
    let free = (0..=others.len()).map(numbered).find(|name| is_free(name));
    free.unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::Sources;

    #[test]
    fn servers_of_both_shapes_are_valid_in_the_configuration() {
        for key in ["mcpServers", "servers"] {
            let config = json!({key: {
                "GitHub": {"command": "npx", "args": ["-y", "server"], "env": {"TOKEN": "t"}},
                "git hub": {"command": "/bin/x", "disabled": true},
                "42": {"type": "http", "url": "https://h.test/mcp", "headers": {"Authorization": "Bearer t"}},
                "empty": {},
            }});
            let found = imported(&config, |program| Some(format!("/usr/bin/{}", program.trim_start_matches("/bin/"))));
            let servers = found.servers.into_iter().map(Value::Table).collect();
            let text = toml::to_string(&Table::from_iter([("mcp".to_owned(), Value::Array(servers))])).unwrap();
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("annie.toml");
            std::fs::write(&file, &text).unwrap();
            let loaded = Sources::only(file).load().unwrap_or_else(|why| panic!("{why}: {text}"));
            let mut names: Vec<&str> = loaded.config.mcp.iter().map(|server| server.name.as_str()).collect();
            names.sort_unstable();
            assert_eq!(names, ["git_hub", "github", "mcp42"]);
            assert_eq!(found.notes.len(), 3, "{:?}", found.notes);
            assert!(text.contains("\"/usr/bin/npx\"") && text.contains("enabled = false"), "{text}");
        }
    }

    #[test]
    fn imported_servers_have_names_of_their_own_and_programs_that_are_missing_are_named() {
        let config = json!({"mcpServers": {"a.b": {"command": "x"}, "a-b": {"command": "x"}, "a b": {"command": "x"}}});
        let found = imported(&config, |_| None);
        let names: Vec<_> = found.servers.iter().filter_map(|server| server["name"].as_str()).collect();
        assert_eq!(names, ["a_b", "a_b_1", "a_b_2"]);
        assert!(found.notes.iter().all(|note| note.contains("\"x\" was not found")), "{:?}", found.notes);
        assert!(imported(&json!([]), |_| None).servers.is_empty());
        assert_eq!(name_of(&"n".repeat(50), &[]).len(), NAME_BYTES_MAX);
    }
}
