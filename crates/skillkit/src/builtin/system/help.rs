//! `system.help`: the domains, one domain's skills, or one skill's help, from the current skills of all sources.

use annie_core::{
    command::{Resolution, resolve},
    outcome::Outcome,
    skill::{Effect, SkillSet},
};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    error::SkillError,
    handler::{Ctx, Handler, Ran},
};

pub(crate) struct Help;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// A domain (tasks) or a skill (tasks.create); without it all domains are listed.
    topic: Option<String>,
}

impl Handler for Help {
    type Args = Args;
    const NAME: &'static str = "system.help";
    const EFFECT: Effect = Effect::Read;

    async fn run(ctx: Ctx, args: Args) -> Ran {
        let skills = ctx.tools.all_skills.load_full();
        let topic = args.topic.unwrap_or_default().trim().to_lowercase();
        let topic = topic.trim_end_matches("--help").trim_end();
        if topic.is_empty() {
            return Ok(Outcome::success(domains(&skills)));
        }
        // The same text as the command's own `--help`.
        match resolve(&format!("{topic} --help"), &skills, None) {
            Resolution::Help(text) => Ok(Outcome::success(text)),
            Resolution::Run { .. } | Resolution::Error(_) => Err(unknown(&skills, topic)),
        }
    }
}

fn domains(skills: &SkillSet) -> String {
    let lines =
        skills.domains().into_iter().map(|d| format!("- {}: {}\n  {}", d.name, d.description, d.skills.join(", ")));
    let lines: Vec<String> = lines.collect();
    format!(
        "What I can do:\n\n{}\n\n`system.help --topic NAME` tells more about a domain or a skill.",
        lines.join("\n")
    )
}

fn unknown(skills: &SkillSet, topic: &str) -> SkillError {
    let mut near = skills.near(topic);
    if near.is_empty() {
        near = skills.search(topic).into_iter().take(3).map(|s| s.name.clone()).collect();
    }
    SkillError::NotFound { what: format!("There is no domain or skill named '{topic}'."), near }
}
