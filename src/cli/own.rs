//! `annie todos`, `annie memory`, `annie notes` and `annie skills run`: the user's own data, by the skills that keep them.
//! Without a server the kernel runs in this process for the command.

use annie_actors::CommandCaller;
use annie_core::{command::quote, people::for_people};
use serde_json::{Value, json};

use super::{
    args::{Memory, Notes, TodoPriority, Todos},
    console::tame,
    failure::{Exit, Failure},
    site::Site,
    skills,
};
use crate::{boot, ops, system};

/// The most rows of a list: the limits of the skills.
const TODOS_MAX: u32 = 100;
const MEMORIES_MAX: u32 = 100;
const NOTES_MAX: u32 = 500;
/// The most lines of a note that are shown: the limit of the skill.
const NOTE_LINES_MAX: u32 = 1_000;

/// `annie todos`
///
/// # Errors
/// If the skill fails, or neither server nor data folder can be used.
pub async fn todos(site: &Site, command: Todos) -> Result<(), Failure> {
    let (skill, arguments) = match command {
        Todos::List { words, status } => {
            ("tasks.search", json!({"query": words.join(" "), "status": status.as_str(), "limit": TODOS_MAX}))
        }
        Todos::Add { title, due, priority, tags, parent } => {
            let (title, priority) = (title.join(" "), priority.map(TodoPriority::as_str));
            let all = json!({"title": title, "due": due, "priority": priority, "tags": tags, "parent": parent});
            ("tasks.create", all)
        }
        Todos::Done { number } => ("tasks.update", json!({"id": number, "status": "done"})),
        Todos::Delete { number } => ("tasks.delete", json!({"id": number})),
        Todos::Restore { which } => ("tasks.restore", named(&which)),
    };
    run(site, skill, arguments).await
}

/// `annie memory`
///
/// # Errors
/// As [`todos`].
pub async fn memory(site: &Site, command: Memory) -> Result<(), Failure> {
    let (skill, arguments) = match command {
        Memory::List { deleted } => ("memory.list", json!({"deleted": deleted, "limit": MEMORIES_MAX})),
        Memory::Add { statement } => ("memory.save", json!({"content": statement.join(" ")})),
        Memory::Update { number, statement } => {
            ("memory.update", json!({"id": number, "content": statement.join(" ")}))
        }
        Memory::Delete { which } => ("memory.delete", named(&which)),
        Memory::Restore { which } => ("memory.restore", named(&which)),
    };
    run(site, skill, arguments).await
}

/// `annie notes`
///
/// # Errors
/// As [`todos`].
pub async fn notes(site: &Site, command: Notes) -> Result<(), Failure> {
    let (skill, arguments) = match command {
        Notes::List { deleted } => ("notes.list", json!({"deleted": deleted, "limit": NOTES_MAX})),
        Notes::Show { title } => ("notes.read", json!({"title": title.join(" "), "lines": NOTE_LINES_MAX})),
        Notes::Rename { title, to } => ("notes.rename", json!({"title": title, "to": to})),
        Notes::Delete { title } => ("notes.delete", json!({"title": title.join(" ")})),
        Notes::Restore { title } => ("notes.restore", json!({"title": title.join(" ")})),
    };
    run(site, skill, arguments).await
}

/// `annie reminders add`
///
/// # Errors
/// As [`todos`].
pub async fn remind(site: &Site, when: &str, title: &str) -> Result<(), Failure> {
    run(site, "tasks.remind", json!({"title": title, "when": when})).await
}

/// `annie skills run`
///
/// # Errors
/// As [`todos`], or if the skill must be asked for expressly and `accepts_once` is false.
pub async fn command(site: &Site, words: &[String], accepts_once: bool) -> Result<(), Failure> {
    let (words, accepts_once) = with_yes(words, accepts_once);
    send(site, &text_of(words), Mode::Run { accepts_once }).await
}

/// `annie skills test`
///
/// # Errors
/// As [`todos`], or if the skill must not be repeated and `accepts_once` is false.
pub async fn test(site: &Site, words: &[String], accepts_once: bool) -> Result<(), Failure> {
    let (words, accepts_once) = with_yes(words, accepts_once);
    send(site, &text_of(words), Mode::Test { accepts_once }).await
}

/// The flag `--yes` of these commands is also understood behind the flags of the skill, where a person adds it.
fn with_yes(words: &[String], accepts_once: bool) -> (&[String], bool) {
    match words {
        [before @ .., last] if last == "--yes" && !before.is_empty() => (before, true),
        words => (words, accepts_once),
    }
}

/// How a skill is run.
#[derive(Clone, Copy)]
enum Mode {
    Run { accepts_once: bool },
    Test { accepts_once: bool },
}

fn text_of(words: &[String]) -> String {
    match words {
        // A command as one argument has quotes of its own.
        [whole] => whole.clone(),
        words => {
            let quoted = |word: &String| match word.split_once('=') {
                _ if !word.starts_with("--") => quote(word),
                Some((flag, value)) if !flag.contains(char::is_whitespace) => format!("{flag}={}", quote(value)),
                _ if word.contains(char::is_whitespace) => quote(word),
                _ => word.clone(),
            };
            words.iter().map(quoted).collect::<Vec<_>>().join(" ")
        }
    }
}

/// A number such as `3` or `#3`, or else words.
fn named(which: &[String]) -> Value {
    let text = which.join(" ");
    match text.trim().trim_start_matches('#').parse::<u64>() {
        Ok(number) => json!({"id": number}),
        Err(_) => json!({"query": text}),
    }
}

async fn run(site: &Site, skill: &str, mut arguments: Value) -> Result<(), Failure> {
    if let Some(given) = arguments.as_object_mut() {
        given.retain(|_, value| !value.is_null() && *value != json!([]) && *value != json!(""));
    }
    // The lines behind the first one show the call of the skill, and this is another command.
    let first_line =
        |failure: Failure| Failure { what: failure.what.lines().next().unwrap_or_default().to_owned(), ..failure };
    send(site, &format!("{skill} {arguments}"), Mode::Run { accepts_once: false }).await.map_err(first_line)
}

async fn send(site: &Site, command: &str, mode: Mode) -> Result<(), Failure> {
    let name = command.split_whitespace().next().unwrap_or_default();
    match sent(site, command, mode).await {
        Err(failure) if failure.what.starts_with("unknown skill") => Err(skills::not_listed(site, name, failure)),
        done => done,
    }
}

async fn sent(site: &Site, command: &str, mode: Mode) -> Result<(), Failure> {
    let key = system::env().uuid().simple().to_string();
    let answer = match site.server().await? {
        Some(client) => {
            let path = ops::path_of("skills run");
            match mode {
                Mode::Run { accepts_once } => {
                    let body = json!({"command": command, "key": key, "accepts_once": accepts_once});
                    client.post_idempotent(path, &body).await?
                }
                Mode::Test { accepts_once } => {
                    let body = json!({"command": command, "key": key, "test": true, "accepts_once": accepts_once});
                    client.post(path, &body).await?
                }
            }
        }
        None => {
            let own = boot::assemble(&site.loaded, &site.folder).await?;
            // The person at this machine owns the data folder.
            let caller = CommandCaller {
                user: site.user(),
                source: "cli",
                may_approve: true,
                is_served: false,
                origins: Vec::new(),
            };
            let ran = match mode {
                Mode::Run { accepts_once } => own.kernel.run_skill(caller, command, &key, accepts_once).await,
                Mode::Test { accepts_once } => own.kernel.test_skill(caller, command, &key, accepts_once).await,
            };
            own.stop().await;
            json!(ops::skills::SkillResult::from(ran?))
        }
    };
    show(site, &answer)
}

/// Prints the text of a result, or fails with it.
fn show(site: &Site, answer: &Value) -> Result<(), Failure> {
    let text = answer["text"].as_str().unwrap_or_default();
    if matches!(answer["status"].as_str(), Some("success" | "partial")) {
        return if site.console.is_json() { site.console.json(answer) } else { site.console.line(&tame(text)) };
    }
    let exit = match answer["error"].as_str() {
        Some("not_found") => Exit::NotFound,
        Some("invalid_arguments" | "conflict" | "outside_folder") => Exit::Usage,
        _ => Exit::Failure,
    };
    let mut what = tame(for_people(text).lines().next().unwrap_or_default());
    if let Some(detail) = answer["detail"].as_str().filter(|detail| !detail.trim().is_empty()) {
        let detail: Vec<String> = detail.lines().map(tame).collect();
        what = format!("{what}\n{}", detail.join("\n"));
    }
    Err(Failure::new(exit, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_data_is_named_by_number_or_by_words() {
        let of = |words: &[&str]| named(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!((of(&["3"]), of(&["#3"])), (json!({"id": 3}), json!({"id": 3})));
        assert_eq!(of(&["green", "tea"]), json!({"query": "green tea"}));
        assert_eq!(of(&["3", "teas"]), json!({"query": "3 teas"}));
    }
}
