//! The command line: one file for each noun. Data goes to stdout, messages to stderr, and the exit code states the result.

mod actors;
mod admin;
mod agents;
mod approvals;
mod args;
mod ask;
mod audit;
mod breakers;
mod built;
mod chaos;
mod chat;
mod client;
mod config;
mod console;
mod conversations;
mod cron;
mod data;
mod dlq;
mod doctor;
mod editor;
mod events;
mod failure;
mod gate;
mod input;
mod jobs;
mod key;
mod limited;
mod listing;
mod mcp;
mod migrate;
mod notices;
mod operations;
mod orders;
mod overview;
mod own;
mod page;
mod queue;
mod reminders;
mod repeated;
mod replay;
mod resume;
mod sandboxed;
mod screen;
mod secret;
mod serve;
mod service;
mod setup;
mod short_ids;
mod site;
mod skills;
mod state;
mod status;
mod tables;
mod talk;
mod tasks;
mod top;
mod turns;
mod usage;
mod waiting;
mod watch;
mod workflows;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::ExitCode,
};

use args::{Cli, Command, ConfigCommand, Global, Serve};
#[cfg(test)]
use clap::CommandFactory;
use console::{Console, Manner};
use failure::{Exit, Failure};
use serde_json::json;
use short_ids::ShortId;
use site::Site;
use toml::Value;

use crate::{
    boot,
    config::{Environment, Flag, Loaded, Location, Sources},
    logging,
};

/// How long the runtime may take to shut down after the command, in milliseconds. A limit is needed because the thread that
/// reads stdin cannot be interrupted.
const END_MS_MAX: u64 = 50;

/// Runs a command line to its exit code.
#[must_use]
pub fn main(args: impl IntoIterator<Item = OsString>, environment: Environment) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let (cli, short) = match short_ids::parse(&args) {
        Ok(parsed) => parsed,
        Err(e) => return misunderstood(&e, &args, &environment),
    };
    let Global { json, plain, quiet, .. } = cli.global;
    let console = Console::of_process(Manner { json, plain, quiet }, &environment);
    if let Command::RunLimited(options) = &cli.command {
        // Runs before the runtime starts threads, because this process becomes the parent of another program.
        return limited::run(&console, options);
    }
    if let Command::Sandbox(options) = &cli.command {
        // Before the runtime starts threads as well, because the sandbox holds for one thread only.
        return sandboxed::run(&console, options);
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => {
            console.error(&Failure::io("cannot start the runtime", &e));
            return ExitCode::FAILURE;
        }
    };
    let done = runtime.block_on(run(cli, &Given { args, short }, console.clone(), environment));
    runtime.shutdown_timeout(std::time::Duration::from_millis(END_MS_MAX));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            report(&console, &failure);
            ExitCode::from(failure.exit as u8)
        }
    }
}

/// Reports a command line that cannot be parsed. Help and version are not errors and go to stdout.
fn misunderstood(error: &clap::Error, args: &[OsString], environment: &Environment) -> ExitCode {
    if error.use_stderr() && args.iter().any(|arg| arg == "--json") {
        let console = Console::of_process(Manner { json: true, ..Manner::default() }, environment);
        report(&console, &usage(error));
    } else if error.kind() == clap::error::ErrorKind::MissingSubcommand {
        // The parser's own message would list hidden commands too.
        Console::of_process(Manner::default(), environment).say_always(&help_of(args).to_string());
    } else {
        let _ = error.print();
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(Exit::Usage as u8))
}

/// The help of the command that these arguments name.
fn help_of(args: &[OsString]) -> clap::builder::StyledStr {
    let mut command = args::command_line();
    command.build();
    for arg in args.iter().skip(1) {
        if let Some(inner) = command.find_subcommand(arg) {
            command = inner.clone();
        }
    }
    command.render_help()
}

/// The parser's message on one line.
fn usage(error: &clap::Error) -> Failure {
    let text = error.render().to_string();
    let what = text.split("\n\n").next().unwrap_or_default();
    let what = what.strip_prefix("error: ").unwrap_or(what).split_whitespace().collect::<Vec<_>>().join(" ");
    Failure::new(Exit::Usage, what).fix("`annie --help` lists the commands")
}

fn report(console: &Console, failure: &Failure) {
    // A user who pressed Ctrl-C, or closed stdout, needs no message.
    if matches!(failure.exit, Exit::Unread | Exit::Interrupted | Exit::Terminated) {
        return;
    }
    if console.is_json() {
        let Failure { exit, what, fix, request_id } = failure;
        let error = json!({"what": what, "fix": fix, "request_id": request_id, "exit": *exit as u8});
        return console.say_always(&json!({"error": error}).to_string());
    }
    console.error(failure);
}

/// The arguments of the process, and the short ids among them.
#[derive(Default)]
struct Given {
    args: Vec<OsString>,
    short: Vec<ShortId>,
}

async fn run(cli: Cli, given: &Given, console: Console, environment: Environment) -> Result<(), Failure> {
    let Cli { global, command } = cli;
    // These commands need no configuration, so they must work with a broken one.
    match command {
        Command::Version => version(&console),
        Command::Completions { shell } => completions(&console, shell),
        Command::Config { command: ConfigCommand::Init { file } } => config::init(&console, &environment, file),
        Command::Config { command: ConfigCommand::Sample } => config::sample(&console),
        Command::Config { command: ConfigCommand::Check { file: Some(file) } } => config::check_file(&console, file),
        Command::Setup(options) => setup::run(&console, &environment, &global, &options).await,
        command => with_config(global, command, given, console, environment).await,
    }
}

async fn with_config(
    global: Global,
    command: Command,
    given: &Given,
    console: Console,
    environment: Environment,
) -> Result<(), Failure> {
    let mut flags = global_flags(&global);
    if let Command::Serve(serve) = &command {
        flags.extend(serve_flags(serve));
    }
    let mut loaded = Sources::usual(environment, global.config, flags).load()?;
    if let Command::Serve(Serve { port: Some(port), .. }) = &command {
        loaded.config.server.bind.set_port(*port);
        loaded.origins.insert(vec!["server".to_owned(), "bind".to_owned()], Location::Flag("--port".to_owned()));
    }
    match command {
        Command::Config { command: ConfigCommand::Check { .. } } => return config::check_all(&console, &loaded),
        Command::Config { command: ConfigCommand::Show { origin } } => return config::show(&console, &loaded, origin),
        _ => {}
    }
    begin_log(&mut loaded, &command);
    let folder = boot::data_folder(&loaded)?;
    warn_of_unread_file(&console, &command, &loaded, &folder);
    let site = Site { loaded, console, folder };
    let command = match given.short.as_slice() {
        [] => command,
        short => short_ids::completed(&site, &given.args, short).await?.command,
    };
    in_site(site, command).await
}

async fn in_site(site: Site, command: Command) -> Result<(), Failure> {
    match command {
        Command::Serve(serve) => serve::run(&site, serve).await,
        Command::Ask(ask) => ask::run(&site, ask).await,
        Command::Chat(chat) => chat::run(&site, chat).await,
        Command::Status => status::run(&site).await,
        Command::Actors { command } => actors::run(&site, command).await,
        Command::Breakers { command } => breakers::run(&site, command).await,
        Command::Conversations { command } => conversations::run(&site, command).await,
        Command::Actions(wanted) => orders::actions(&site, wanted).await,
        Command::Drain(because) => orders::drain(&site, &because).await,
        Command::Undrain { reason } => orders::undrain(&site, reason.as_deref()).await,
        Command::Orders => orders::orders(&site).await,
        Command::Classes { command } => orders::classes(&site, command).await,
        Command::Log { command } => orders::log(&site, command).await,
        Command::Audit { command } => audit::run(&site, command).await,
        Command::Replay(options) => replay::run(&site, &options).await,
        Command::Top(options) => top::run(&site, &options).await,
        Command::Queue(watch) => queue::run(&site, watch).await,
        Command::Overview => overview::run(&site).await,
        Command::Gate { command } => gate::run(&site, command).await,
        Command::Tasks { command } => tasks::run(&site, command).await,
        Command::Jobs { command } => {
            jobs::run(&site, command.unwrap_or(args::Jobs::List(args::Watch::default()))).await
        }
        Command::Dlq { command } => dlq::run(&site, command).await,
        Command::Approvals { command } => approvals::run(&site, command.unwrap_or(args::Approvals::List)).await,
        Command::Agents { command } => agents::run(&site, command).await,
        Command::Usage(options) => usage::run(&site, options).await,
        Command::Operations { command } => operations::run(&site, command).await,
        Command::Cron { command } => cron::run(&site, command).await,
        Command::Reminders { command } => reminders::run(&site, command).await,
        Command::State { command } => state::run(&site, command).await,
        Command::Events(wanted) => events::run(&site, wanted).await,
        Command::Notifications(options) => notices::run(&site, options).await,
        Command::Skills { command } => skills::run(&site, command).await,
        Command::Workflows { command } => workflows::run(&site, command).await,
        Command::Todos { command } => own::todos(&site, command).await,
        Command::Memory { command } => own::memory(&site, command).await,
        Command::Notes { command } => own::notes(&site, command).await,
        Command::Mcp { command } => mcp::run(&site, command).await,
        Command::Secret { command } => secret::run(&site, command).await,
        Command::Key { command } => key::run(&site, command).await,
        Command::Migrate(options) => migrate::run(&site, options).await,
        Command::Data { command } => data::run(&site, command).await,
        Command::Chaos { command } => chaos::run(&site, command).await,
        Command::Doctor(options) => doctor::run(&site, &options).await,
        Command::Config { command: ConfigCommand::Running } => config::running(&site).await,
        Command::Config { .. }
        | Command::Setup(_)
        | Command::Version
        | Command::Completions { .. }
        | Command::RunLimited(_)
        | Command::Sandbox(_) => Ok(()),
    }
}

/// Says that a configuration file in the data folder is not read. People put one there because everything else is there.
fn warn_of_unread_file(console: &Console, command: &Command, loaded: &Loaded, folder: &Path) {
    let file = folder.join("annie.toml");
    let is_shown = matches!(command, Command::Serve(_) | Command::Doctor(_) | Command::Status);
    let is_same = |read: &PathBuf| read.canonicalize().ok() == file.canonicalize().ok();
    if is_shown && file.is_file() && !loaded.files.iter().any(is_same) {
        let file = file.display();
        console.say_always(&format!(
            "warning: {file} is not read; name it with --config, or move it to where `annie config show` looks"
        ));
    }
}

/// Starts the log. A server logs as configured. Other commands log only if a log level is set, because they print their own
/// messages.
fn begin_log(loaded: &mut Loaded, command: &Command) {
    let is_server = matches!(command, Command::Serve(_));
    if !is_server && loaded.origin(&["log", "level"]) == Location::Default {
        "off".clone_into(&mut loaded.config.log.level);
    }
    logging::log(&loaded.config.log, &loaded.environment);
}

fn global_flags(global: &Global) -> Vec<Flag> {
    let path = |path: &std::path::PathBuf| Value::from(path.to_string_lossy().into_owned());
    let flags = [
        global.data.as_ref().map(|p| Flag { name: "--data", path: &["data", "folder"], value: path(p) }),
        global.url.as_ref().map(|u| Flag { name: "--url", path: &["client", "url"], value: u.as_str().into() }),
        global.key_file.as_ref().map(|p| Flag { name: "--key-file", path: &["client", "key_file"], value: path(p) }),
    ];
    flags.into_iter().flatten().collect()
}

fn serve_flags(serve: &Serve) -> Vec<Flag> {
    let flags = [
        serve.bind.map(|at| Flag { name: "--bind", path: &["server", "bind"], value: at.to_string().into() }),
        serve.accept_empty_database.then(|| Flag {
            name: "--accept-empty-database",
            path: &["data", "accept_empty_database"],
            value: true.into(),
        }),
        serve.log_level.as_ref().map(|l| Flag {
            name: "--log-level",
            path: &["log", "level"],
            value: l.as_str().into(),
        }),
    ];
    flags.into_iter().flatten().collect()
}

fn version(console: &Console) -> Result<(), Failure> {
    let version = env!("CARGO_PKG_VERSION");
    if console.is_json() {
        console.json(&json!({"version": version}))
    } else {
        console.line(&format!("annie {version}"))
    }
}

fn completions(console: &Console, shell: clap_complete::Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut args::command_line(), "annie", &mut script);
    console.data(&String::from_utf8_lossy(&script))
}

/// Whether the command line has a command, such as `tasks list`.
#[cfg(test)]
pub(crate) fn has_command(path: &str) -> bool {
    let mut command = Cli::command();
    path.split(' ').all(|name| match command.find_subcommand(name).cloned() {
        Some(found) => {
            command = found;
            true
        }
        None => false,
    })
}

#[cfg(test)]
mod tests;
