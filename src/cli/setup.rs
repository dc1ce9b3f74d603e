//! `annie setup`: finds model servers, tests them, and writes a matching configuration.

mod file;
mod look;

use std::{path::PathBuf, time::Duration};

use annie_llm::{ModelConfig, OpenAiModel};
use annie_skillkit::FileCatalog;
use serde_json::json;

use super::{
    args::{self, Global},
    console::{Console, tame},
    doctor::probe,
    failure::{Exit, Failure},
    input::Input,
};
use crate::{
    config::Environment,
    probe::{Fit, Probe, Report, quoted, requests_of},
    system,
};
use look::{Found, Key};

/// `annie setup`
///
/// # Errors
/// If no configuration was written.
pub async fn run(
    console: &Console,
    environment: &Environment,
    global: &Global,
    options: &args::Setup,
) -> Result<(), Failure> {
    run_with(console, environment, global, options, Input::of_process).await
}

/// `annie setup` with another input, for tests.
pub(super) async fn run_with(
    console: &Console,
    environment: &Environment,
    global: &Global,
    options: &args::Setup,
    input: impl FnOnce() -> Input,
) -> Result<(), Failure> {
    let path = path(environment, global)?;
    if path.exists() && !options.force {
        let failure = Failure::new(Exit::Usage, format!("{} is there already; nothing was written", path.display()));
        let fix = "annie doctor --probe prints matching settings; --force replaces the file and keeps a backup; \
                   --config FILE writes another";
        return Err(failure.fix(fix));
    }
    let key = Key::of(options, environment, global.url.is_some())?;
    let found = look::look(console, global.url.as_deref(), options, &key).await?;
    if found.is_empty() {
        return Err(look::nothing_found(global.url.as_deref(), options));
    }
    let usable = probed(console, environment, options, &key, found).await?;
    if usable.is_empty() {
        let failure = Failure::new(Exit::Unavailable, "no server that was found can be used; nothing was written");
        return Err(failure.fix("see above; without a language model the offline planner answers: annie ask \"help\""));
    }
    let text = text(&usable, &key);
    if !console.is_json() {
        console.line(&format!("{}:\n\n{text}", path.display()))?;
    }
    let backup = if options.yes || confirmed(console, input()).await? {
        file::write(&path, &text, options.force)?
    } else {
        return Err(unwritten(console, &path, &text)?);
    };
    if console.is_json() {
        return console.json(&json!({"file": path, "written": true, "backup": backup, "toml": text}));
    }
    if let Some(backup) = backup {
        console.say(&format!("the old file is {}", backup.display()));
    }
    console.say(&format!("written: {}. Now: annie chat", path.display()));
    Ok(())
}

/// The path of the configuration file: `--config`, or the user's default.
fn path(environment: &Environment, global: &Global) -> Result<PathBuf, Failure> {
    global.config.clone().or_else(|| environment.user_file()).ok_or_else(|| {
        Failure::new(Exit::Usage, "there is no home folder to put the configuration into")
            .fix("name a file: annie setup --config FILE")
    })
}

/// The failure of a setup that was not confirmed.
fn unwritten(console: &Console, path: &std::path::Path, text: &str) -> Result<Failure, Failure> {
    if console.is_json() {
        console.json(&json!({"file": path, "written": false, "toml": text}))?;
    }
    let failure = Failure::new(Exit::NotDone, "nothing was written");
    Ok(failure.fix("annie setup --yes writes it without asking"))
}

/// Asks whether to write the file. Without a terminal the answer is no.
async fn confirmed(console: &Console, mut input: Input) -> Result<bool, Failure> {
    if !input.is_terminal {
        return Ok(false);
    }
    console.say_always("Write this file? [y/N]");
    let typed = input.next().await?.unwrap_or_default();
    Ok(matches!(typed.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// Tests every server that was found. Returns the usable ones in their order.
async fn probed(
    console: &Console,
    environment: &Environment,
    options: &args::Setup,
    key: &Key,
    found: Vec<Found>,
) -> Result<Vec<(Found, Report)>, Failure> {
    let env = system::env();
    let catalog = FileCatalog::bundled();
    let how = Probe {
        env: &env,
        skills: annie_core::ports::Catalog::skills(&catalog),
        timezone: environment.timezone(),
        step: Duration::from_secs(options.step_s_max),
    };
    let requests = found.len() as u64 * u64::from(requests_of(u32::MAX));
    console.say(&format!("trying them, with up to {requests} requests; Ctrl-C stops"));
    let mut usable = Vec::new();
    for one in found {
        let config = ModelConfig { name: one.name.clone(), ..one.client(key) };
        let config = probe::as_probed(config, options.step_s_max);
        let model = OpenAiModel::new(config, env.entropy.clone())
            .map_err(|e| Failure::new(Exit::Usage, tame(&e.to_string())))?;
        console.say(&format!("{}: asking {} …", one.name, tame(&one.model)));
        let report = how.run(&one.name, &model, None).await;
        probe::show(console, &report, None)?;
        if report.error.is_none() {
            usable.push((one, report));
        }
    }
    Ok(usable)
}

/// The configuration file.
fn text(usable: &[(Found, Report)], key: &Key) -> String {
    let mut text =
        "# Written by `annie setup`. `annie config init FILE` writes a file with every key, `annie doctor --probe` \
                    measures again.\n"
            .to_owned();
    let fits: Vec<Fit> = usable.iter().map(|(_, report)| Fit::of(report)).collect();
    if let Some(limits) = fits.iter().filter_map(|fit| fit.limits).max() {
        text.push_str(&format!(
            "\n# For the slowest backend, which needs so long to read a prompt.\n{}",
            limits.toml()
        ));
    }
    for ((found, _), fit) in usable.iter().zip(&fits) {
        text.push_str("\n[[backend]]\n");
        for (name, value) in [("name", &found.name), ("base_url", &found.base_url), ("model", &found.model)] {
            text.push_str(&format!("{name} = {}\n", quoted(value)));
        }
        if let Some(line) = key.toml() {
            text.push_str(&line);
        }
        text.push_str(&fit.toml());
    }
    text
}
