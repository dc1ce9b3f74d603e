//! `annie doctor --probe`: tests each model with requests, and prints matching settings.

use std::time::Duration;

use annie_core::ports::{Catalog, Origin};
use annie_llm::{ModelConfig, OpenAiModel};
use serde_json::json;

use crate::{
    cli::{
        args,
        console::{Console, table, tame},
        failure::{Exit, Failure},
        site::Site,
        skills,
    },
    config::{BackendConfig, ClientConfig},
    probe::{Fit, Outcome, Probe, Report, requests_of},
    system,
};

/// `annie doctor --probe`
///
/// # Errors
/// If a backend cannot be used, or there is none.
pub async fn run(site: &Site, options: &args::Doctor) -> Result<(), Failure> {
    let chosen = chosen(site, options.backend.as_deref())?;
    let count = |backend: &&BackendConfig| requests_of(backend.pool.slots.unwrap_or(u32::MAX));
    let requests: u32 = chosen.iter().filter(|backend| is_model(backend)).map(count).sum();
    site.console
        .say(&format!("sends up to {requests} requests to language models, which may cost money; Ctrl-C stops"));
    let env = system::env();
    let probe = Probe {
        env: &env,
        skills: skills::catalog(site).skills(),
        timezone: site.loaded.environment.timezone(),
        step: Duration::from_secs(options.step_s_max),
    };
    let mut unusable = Vec::new();
    for backend in chosen {
        let ClientConfig::Model(model) = backend.ready(&site.loaded.environment)? else {
            site.console.say(&format!("{}: a program, which would act; it is not probed", backend.name()));
            continue;
        };
        let model = OpenAiModel::new(as_probed(model, options.step_s_max), env.entropy.clone())
            .map_err(|e| Failure::new(Exit::Usage, e.to_string()))?;
        site.console.say(&format!("{}: asking {} …", backend.name(), model.config().model));
        let report = probe.run(backend.name(), &model, backend.pool.slots).await;
        show(&site.console, &report, Some(backend))?;
        if report.error.is_some() {
            unusable.push(report.backend);
        }
    }
    if unusable.is_empty() {
        return Ok(());
    }
    let failure = Failure::new(Exit::Unavailable, format!("cannot be used: {}", unusable.join(", ")));
    Err(failure.fix("check base_url, model and key, and whether the server runs"))
}

/// The settings of a client for a probe: no retries, because they hide failures, and long time limits, so that a slow server
/// is measured instead of given up.
pub(crate) fn as_probed(config: ModelConfig, step_s_max: u64) -> ModelConfig {
    let ms_max = step_s_max.saturating_mul(1_000).max(1);
    ModelConfig {
        retries_max: 0,
        first_token_ms_max: config.first_token_ms_max.max(ms_max),
        idle_ms_max: config.idle_ms_max.max(ms_max),
        call_ms_max: config.call_ms_max.max(ms_max),
        ..config
    }
}

const fn is_model(backend: &BackendConfig) -> bool {
    matches!(backend.client, ClientConfig::Model(_))
}

fn chosen<'a>(site: &'a Site, name: Option<&str>) -> Result<Vec<&'a BackendConfig>, Failure> {
    let all = &site.loaded.config.backend;
    if all.is_empty() {
        let failure = Failure::new(Exit::NotFound, "no language model is configured: the offline planner answers");
        return Err(failure.fix("annie setup looks for one; annie config init writes a file to edit"));
    }
    let Some(name) = name else { return Ok(all.iter().collect()) };
    let found: Vec<&BackendConfig> = all.iter().filter(|backend| backend.name() == name).collect();
    if found.is_empty() {
        let names: Vec<&str> = all.iter().map(BackendConfig::name).collect();
        let failure = Failure::new(Exit::NotFound, format!("there is no backend `{name}`"));
        return Err(failure.fix(format!("there are: {}", names.join(", "))));
    }
    Ok(found)
}

/// Prints the results and the matching settings. `configured` is the present configuration, for comparison.
pub(crate) fn show(console: &Console, report: &Report, configured: Option<&BackendConfig>) -> Result<(), Failure> {
    let fit = Fit::of(report);
    if console.is_json() {
        let settings = report.error.is_none().then(|| json!({"fit": fit, "toml": fit.toml()}));
        return console.json(&json!({"probe": report, "settings": settings}));
    }
    console.line(&format!("{} ({})", tame(&report.backend), tame(&report.model)))?;
    let rows = rows(report).into_iter().map(|(what, found)| vec![format!("  {what}"), found]).collect();
    console.line(table(&["", ""], rows).trim_start_matches('\n'))?;
    if report.error.is_none() {
        console.line("\n  the settings that fit, for its [[backend]]:")?;
        for line in fit.toml().lines() {
            console.line(&format!("  {line}"))?;
        }
        if let Some(limits) = fit.limits {
            console.line("\n  and with them:")?;
            for line in limits.toml().lines() {
                console.line(format!("  {line}").trim_end())?;
            }
        }
        if let Some(window) = configured.and_then(|backend| backend.pool.context_tokens_max)
            && report.server.context_tokens_max.is_some_and(|server| server < window)
        {
            console.line(&format!("  # configured is {window}: the server refuses or cuts what is longer"))?;
        }
    }
    console.line("")
}

fn plain_answer(report: &Report) -> String {
    let words = report.plain.as_ref().map_or("not asked".to_owned(), Outcome::describe);
    match (report.first_token_ms, &report.unmeasured) {
        (Some(ms), _) => format!("{words}, first token after {ms} ms"),
        (None, Some(why)) => format!("{words}; its speed was not measured: {}", tame(why)),
        (None, None) => format!("{words}; its speed is not known, since it came as a whole"),
    }
}

fn rows(report: &Report) -> Vec<(&'static str, String)> {
    let server = &report.server;
    let kind = server.server.clone().unwrap_or_else(|| "does not name itself".to_owned());
    let version = server.version.as_ref().map_or(String::new(), |version| format!(" {version}"));
    let rate =
        |speed: Option<f64>| speed.map_or("not told".to_owned(), |speed| format!("{speed:.1} tokens per second"));
    let tokens = |n: Option<u32>| n.map_or("not told".to_owned(), |n| format!("{n} tokens"));
    let step = |outcome: &Option<Outcome>| outcome.as_ref().map_or("not asked".to_owned(), |o| tame(&o.describe()));
    if let Some(error) = &report.error {
        return vec![("server", tame(&(kind + &version))), ("plain answer", format!("FAILED: {}", tame(error)))];
    }
    let mut rows = vec![
        ("server", tame(&(kind + &version))),
        ("plain answer", plain_answer(report)),
        ("thinks", if report.reasons { "yes, before it answers" } else { "not seen" }.to_owned()),
        ("reads", rate(report.input_tokens_per_s)),
        ("writes", rate(report.output_tokens_per_s)),
        ("tool call", step(&report.tool_call)),
        ("command block", step(&report.command)),
        ("window", tokens(server.context_tokens_max)),
        ("trained for", tokens(server.trained_tokens_max)),
        ("slots", server.slots.map_or("not told".to_owned(), |n| n.to_string())),
    ];
    if server.profile_from != Origin::Default {
        rows.push(("profile", format!("{} ({})", server.profile, server.profile_from.as_str())));
    }
    if let Some(parallel) = &report.parallel {
        let text = format!("{} of {} answered in {} ms", parallel.answered, parallel.requests, parallel.ms);
        rows.push(("at a time", text));
    }
    rows.push(("requests", report.requests.to_string()));
    rows
}
