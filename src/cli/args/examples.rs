//! An example for each command with arguments, which stands below its help. A test compares them with the commands.

use std::ffi::OsString;

use clap::{Command, CommandFactory, FromArgMatches};

use super::Cli;

const TASK: &str = "task_019a2b3c4d5e";
const CONV: &str = "conv_019a2b3c4d5e";

/// The path of each command, and what follows `annie ` in its example. `TASK` and `CONV` stand for the beginnings of ids, which
/// commands accept in place of whole ones.
const EXAMPLES: [(&str, &str); 120] = [
    ("serve", "serve --port 7420"),
    ("chat", "chat --conversation errands"),
    ("actors tree", "actors tree --under /conversations"),
    ("actors show", "actors show /scheduler"),
    ("actors stop", "actors stop /infra/notifier"),
    ("actors kill", "actors kill /scheduler --incarnation 3 --reason \"it hangs\""),
    ("actors restart", "actors restart /scheduler --force --reason \"new settings\""),
    ("actors reset-budget", "actors reset-budget /infra --reason \"the disk is mended\""),
    ("actions", "actions --under /scheduler --newer-than 2d"),
    ("classes pause", "classes pause low --reason \"the GPU is needed\""),
    ("drain", "drain --reason \"the disk is replaced\""),
    ("undrain", "undrain --reason \"done\""),
    ("classes resume", "classes resume low"),
    ("log level", "log level info,annie_actors=debug --reason \"slow turns\""),
    ("audit verify", "audit verify"),
    ("audit export", "audit export CONV"),
    ("replay", "replay CONV --until 12 --check"),
    ("top", "top --by mailbox --once"),
    ("queue", "queue --watch=5"),
    ("gate hold", "gate hold --backend gpu"),
    ("gate release", "gate release --backend gpu"),
    ("breakers reset", "breakers reset web.fetch"),
    ("breakers open", "breakers open web.fetch --reason \"the site asked for it\""),
    ("conversations list", "conversations list --limit 50"),
    ("conversations show", "conversations show CONV"),
    ("conversations export", "conversations export CONV --events"),
    ("conversations fork", "conversations fork CONV --at 12"),
    ("conversations import", "conversations import conversation.jsonl"),
    ("conversations search", "conversations search green tea"),
    ("conversations rename", "conversations rename CONV \"Plans for March\""),
    ("conversations delete", "conversations delete CONV"),
    ("conversations restore", "conversations restore CONV"),
    ("conversations resume", "conversations resume CONV"),
    ("conversations suspend", "conversations suspend CONV --reason \"not now\""),
    ("conversations continue", "conversations continue CONV"),
    ("conversations quarantine", "conversations quarantine CONV --force --reason \"it floods the log\""),
    ("tasks list", "tasks list --open"),
    ("tasks show", "tasks show TASK"),
    ("tasks cancel", "tasks cancel TASK"),
    ("jobs list", "jobs list --watch"),
    ("jobs cancel", "jobs cancel 2"),
    ("jobs pause", "jobs pause 2"),
    ("jobs resume", "jobs resume 2"),
    ("jobs priority", "jobs priority 2 high"),
    ("dlq list", "dlq list --state waiting"),
    ("dlq show", "dlq show TASK"),
    ("dlq retry", "dlq retry --error model_unavailable --newer-than 6h"),
    ("dlq discard", "dlq discard TASK"),
    ("usage", "usage --by backend --from 2026-02-01"),
    ("approvals approve", "approvals approve TASK"),
    ("approvals deny", "approvals deny TASK not this one"),
    ("agents list", "agents list CONV"),
    ("agents steer", "agents steer CONV/task_search only open to-dos"),
    ("agents stop", "agents stop CONV/task_search it takes too long"),
    ("operations list", "operations list --open"),
    ("operations show", "operations show op_019a2b3c4d5e"),
    ("operations key", "operations key op_019a2b3c4d5e"),
    ("operations finish", "operations finish op_019a2b3c4d5e \"the build is green\""),
    ("state list", "state list --conversation CONV"),
    ("state get", "state get user:name"),
    ("state set", "state set user:name Ann"),
    ("state delete", "state delete user:name"),
    ("cron add", "cron add \"every weekday at 8\" \"tell me what is due\""),
    ("cron pause", "cron pause 2"),
    ("cron resume", "cron resume 2"),
    ("cron remove", "cron remove 2"),
    ("cron run-now", "cron run-now 2"),
    ("cron next", "cron next 2"),
    ("reminders add", "reminders add \"tomorrow 9:00\" call the dentist"),
    ("reminders cancel", "reminders cancel 6"),
    ("reminders snooze", "reminders snooze 6 30"),
    ("events", "events --kind failed --newer-than 2d"),
    ("notifications", "notifications --follow"),
    ("skills list", "skills list tasks"),
    ("skills help", "skills help tasks.create"),
    ("skills run", "skills run tasks.search --status overdue"),
    ("skills validate", "skills validate --strict skills/weather/now.md"),
    ("skills new", "skills new weather.now --kind request"),
    ("skills show", "skills show weather.now"),
    ("skills test", "skills test --yes weather.now --city Berlin"),
    ("skills approve", "skills approve text.count"),
    ("skills withdraw", "skills withdraw text.count"),
    ("workflows show", "workflows show digest"),
    ("workflows run", "workflows run digest --arg topic=tea --arg days=3"),
    ("workflows validate", "workflows validate workflows/digest.md"),
    ("todos list", "todos list --status overdue"),
    ("todos add", "todos add call the dentist --due \"friday 14:00\" --priority high"),
    ("todos done", "todos done 3"),
    ("todos delete", "todos delete 3"),
    ("todos restore", "todos restore 3"),
    ("memory list", "memory list --deleted"),
    ("memory add", "memory add Bob prefers email"),
    ("memory update", "memory update 2 Bob prefers the phone"),
    ("memory delete", "memory delete 2"),
    ("memory restore", "memory restore 2"),
    ("notes list", "notes list --deleted"),
    ("notes show", "notes show Groceries"),
    ("notes rename", "notes rename Groceries \"Home/Groceries\""),
    ("notes delete", "notes delete Groceries"),
    ("notes restore", "notes restore Groceries"),
    ("mcp list", "mcp list --tools"),
    ("mcp import", "mcp import claude_desktop_config.json"),
    ("secret set", "secret set weather_token --file token.txt"),
    ("secret delete", "secret delete weather_token"),
    ("key create", "key create laptop --scope chat,admin --out laptop.key"),
    ("key revoke", "key revoke k_1a2b3c"),
    ("config init", "config init annie.toml"),
    ("config check", "config check annie.toml"),
    ("config show", "config show --origin"),
    ("doctor", "doctor --probe --backend gpu"),
    ("setup", "setup --url http://127.0.0.1:8080"),
    ("data list", "data list todos"),
    ("data export", "data export --user ann"),
    ("data delete", "data delete --user ann --yes"),
    ("chaos points", "chaos points engine"),
    ("chaos clear", "chaos clear 3"),
    ("chaos effects", "chaos effects mail"),
    ("chaos run", "chaos run all --users 8"),
    ("completions", "completions bash"),
    ("migrate", "migrate --from sqlite --to postgres"),
];

/// The command line with the examples.
pub fn command_line() -> Command {
    EXAMPLES.iter().fold(Cli::command(), |command, (path, example)| {
        let example = example.replace("TASK", TASK).replace("CONV", CONV);
        with_example(command, &path.split(' ').collect::<Vec<_>>(), &format!("annie {example}"))
    })
}

/// Parses the arguments of the process, with the name of the program.
///
/// # Errors
/// If they are no command; the error is the text for the user.
pub fn parsed(args: &[OsString]) -> Result<Cli, clap::Error> {
    let matches = command_line().try_get_matches_from(args)?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command_line()))
}

fn with_example(command: Command, path: &[&str], example: &str) -> Command {
    if let [name, rest @ ..] = path {
        return command.mut_subcommand(*name, |inner| with_example(inner, rest, example));
    }
    let before = command.get_after_help().map(ToString::to_string).filter(|help| !help.is_empty());
    match before {
        // The command has examples of its own.
        Some(help) if help.contains("Example") => command,
        Some(help) => command.after_help(format!("{help}\n\nExample: {example}")),
        None => command.after_help(format!("Example: {example}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of a command, some of them in quotes.
    fn words(text: &str) -> Vec<OsString> {
        let mut words = Vec::new();
        for (n, part) in text.split('"').enumerate() {
            if n % 2 == 1 { words.push(part.into()) } else { words.extend(part.split_whitespace().map(OsString::from)) }
        }
        words
    }

    fn leaves(command: &Command, path: &str, found: &mut Vec<(String, Command)>) {
        let inner: Vec<&Command> =
            command.get_subcommands().filter(|c| !c.is_hide_set() && !is_generated_help(c)).collect();
        if inner.is_empty() {
            found.push((path.trim().to_owned(), command.clone()));
        }
        inner.iter().for_each(|c| leaves(c, &format!("{path} {}", c.get_name()), found));
    }

    /// The command `help` that the parser adds to each group. `annie skills help` is a command of its own.
    fn is_generated_help(command: &Command) -> bool {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        command.get_name() == "help" && about.starts_with("Print this message")
    }

    #[test]
    fn every_command_with_arguments_has_an_example_that_parses() {
        let mut all = Vec::new();
        leaves(&command_line(), "", &mut all);
        assert!(all.len() > 100, "{} commands", all.len());
        let own = |command: &Command| {
            command.get_arguments().any(|a| !a.is_global_set() && !["help", "version"].contains(&a.get_id().as_str()))
        };
        let help = |command: &Command| command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let bare: Vec<&str> =
            all.iter().filter(|(_, c)| own(c) && !help(c).contains("Example")).map(|(path, _)| path.as_str()).collect();
        assert_eq!(bare, Vec::<&str>::new(), "commands without an example");
        for (path, example) in EXAMPLES {
            assert!(all.iter().any(|(known, _)| known == path), "there is no command {path}");
            assert!(example.starts_with(path), "{example} is no example of {path}");
            let whole = example
                .replace("TASK", &format!("task_{}", "0".repeat(32)))
                .replace("CONV", &format!("conv_{}", "0".repeat(32)));
            let whole = whole.replace("op_019a2b3c4d5e", &format!("op_{}", "0".repeat(32)));
            let parsed = parsed(&words(&format!("annie {whole}")));
            assert!(parsed.is_ok(), "{example}: {}", parsed.err().map(|e| e.to_string()).unwrap_or_default());
        }
    }
}
