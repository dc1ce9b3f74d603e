//! The operations on skills: list, get, run, and the list of slash commands.

use std::sync::Arc;

use annie_actors::{CommandCaller, SkillRun};
use annie_core::{
    outcome,
    skill::{self, Effect, SkillFormat, SkillSpec, slash_commands},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::row::{
    Call, Operation,
    Verb::{Get, Post},
    route,
};
use crate::{
    auth::{
        KeyScope::{self, Chat},
        Need::{AnyKey, Scope},
    },
    error::ApiError,
    grpc::v1,
    http::{
        extract::{Args, Body, Name},
        schema,
    },
};

/// The operations on skills.
pub(super) fn table() -> Vec<Operation> {
    vec![
        route(Get, "/api/v1/skills", AnyKey, list_skills, Skills::from)
            .about("list_skills", "skills", "List or search skills.", "skills list")
            .rpc("/annie.v1.Skills/List", asked, listed),
        route(Get, "/api/v1/skills/{name}", AnyKey, get_skill, SkillDetail::from)
            .about("get_skill", "skills", "Get a skill.", "skills help")
            .rpc("/annie.v1.Skills/Get", |r: v1::GetSkillRequest| Ok(Name(r.name)), whole),
        route(Post, "/api/v1/run", Scope(Chat), run_skill, SkillResult::from)
            .about("run_skill", "skills", RUN, "skills run")
            .rpc("/annie.v1.Skills/Run", asked_run, ran),
        route(Get, "/api/v1/commands", AnyKey, list_commands, SlashCommands::from)
            .about("list_commands", "skills", "List the slash commands.", "skills commands")
            .rpc("/annie.v1.Skills/Commands", |_: v1::ListCommandsRequest| Ok(()), commands),
    ]
}

const RUN: &str = "Run a skill from a typed command, without a model. A prompt skill with `context: fork` starts its background task.";

/// A skill.
#[derive(Debug, Serialize, ToSchema)]
pub struct Skill {
    /// `domain.verb`, or the plain name of a prompt skill.
    name: String,
    domain: String,
    description: String,
    /// One line of usage.
    synopsis: String,
    /// The effect of running the skill again: `read`, `idempotent` or `once`.
    #[schema(value_type = schema::Effect)]
    effect: Effect,
    /// Whether the skill accesses systems outside of this machine.
    external: bool,
    timeout_ms: u64,
    /// `command` or `prompt`.
    format: &'static str,
    /// The source from which the skill was loaded.
    source: String,
}

impl From<&SkillSpec> for Skill {
    fn from(spec: &SkillSpec) -> Self {
        Self {
            name: spec.name.clone(),
            domain: spec.domain.clone(),
            description: spec.description.clone(),
            synopsis: spec.synopsis(),
            effect: spec.effect,
            external: spec.external,
            timeout_ms: spec.timeout_ms,
            format: format_of(spec),
            source: spec.source.clone(),
        }
    }
}

const fn format_of(spec: &SkillSpec) -> &'static str {
    match spec.format {
        SkillFormat::Command => "command",
        SkillFormat::Prompt { .. } => "prompt",
    }
}

/// A skill as gRPC lists it: without its help text and its schema.
fn brief(spec: &SkillSpec) -> v1::Skill {
    v1::Skill {
        name: spec.name.clone(),
        domain: spec.domain.clone(),
        description: spec.description.clone(),
        synopsis: spec.synopsis(),
        effect: spec.effect.as_str().to_owned(),
        external: spec.external,
        timeout_ms: spec.timeout_ms,
        format: format_of(spec).to_owned(),
        help: String::new(),
        schema_json: String::new(),
    }
}

/// Skills, ordered by name, or by relevance if there is a query.
#[derive(Debug, Serialize, ToSchema)]
pub struct Skills {
    skills: Vec<Skill>,
    /// Increases with every reload.
    version: u64,
}

/// The skills that were found, and the version of the set.
type Found = (Vec<Arc<SkillSpec>>, u64);

impl From<Found> for Skills {
    fn from((skills, version): Found) -> Self {
        Self { skills: skills.iter().map(|spec| Skill::from(spec.as_ref())).collect(), version }
    }
}

fn listed((skills, version): Found) -> v1::ListSkillsResponse {
    v1::ListSkillsResponse { skills: skills.iter().map(|spec| brief(spec)).collect(), version }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SkillArgs {
    /// Words to search for.
    query: Option<String>,
}

fn asked(asked: v1::ListSkillsRequest) -> Result<Args<SkillArgs>, ApiError> {
    Ok(Args(SkillArgs { query: Some(asked.query).filter(|query| !query.is_empty()) }))
}

async fn list_skills(call: Call, Args(args): Args<SkillArgs>) -> Result<Found, ApiError> {
    let set = call.state.kernel.catalog().skills();
    let skills = match &args.query {
        Some(query) => set.search(query).into_iter().cloned().collect(),
        None => set.iter().cloned().collect(),
    };
    Ok((skills, set.version()))
}

/// A skill with its help text and its schema.
#[derive(Debug, Serialize, ToSchema)]
pub struct SkillDetail {
    #[serde(flatten)]
    skill: Skill,
    /// The whole help text.
    help: String,
    /// The JSON Schema of the arguments.
    schema: Value,
}

impl From<Arc<SkillSpec>> for SkillDetail {
    fn from(spec: Arc<SkillSpec>) -> Self {
        Self { skill: Skill::from(spec.as_ref()), help: spec.help(), schema: spec.schema() }
    }
}

fn whole(spec: Arc<SkillSpec>) -> v1::Skill {
    v1::Skill { help: spec.help(), schema_json: spec.schema().to_string(), ..brief(&spec) }
}

async fn get_skill(call: Call, Name(name): Name) -> Result<Arc<SkillSpec>, ApiError> {
    let set = call.state.kernel.catalog().skills();
    set.get(&name).cloned().ok_or_else(|| unknown_skill(&set.near(&name)))
}

/// A command that runs a skill.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SkillCommand {
    /// Such as `tasks.search --status done`, or `tasks.search {"status": "done"}`.
    command: String,
    /// The idempotency key, 1 to 200 bytes. Repeating the command with the same key has no further effect.
    key: String,
    /// Try the skill as its author, also if it reaches other machines.
    #[serde(default)]
    test: bool,
    /// Run the skill also if it reaches other machines or must not be repeated. Needs the scope `jobs:control`.
    #[serde(default)]
    accepts_once: bool,
}

/// The result of a skill.
#[derive(Debug, Serialize, ToSchema)]
pub struct SkillResult {
    skill: String,
    /// `success`, `partial`, `error_transient` …
    #[schema(value_type = schema::SkillStatus)]
    status: outcome::Status,
    /// The kind of the error; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    text: String,
    /// What the run returned for programs, such as the numbers of what it found; absent if there is nothing.
    #[serde(skip_serializing_if = "Value::is_null")]
    #[schema(value_type = Option<Object>)]
    evidence: Value,
    /// What a program that failed wrote to stderr, or what else is known about the failure; absent if there is nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

impl From<SkillRun> for SkillResult {
    fn from(SkillRun { skill, outcome }: SkillRun) -> Self {
        let outcome::Outcome { status, error_type: error, data: text, evidence, error_detail: detail, .. } = outcome;
        Self { skill, status, error, text, evidence, detail }
    }
}

fn asked_run(asked: v1::RunSkillRequest) -> Result<Body<SkillCommand>, ApiError> {
    let v1::RunSkillRequest { command, key, test, accepts_once } = asked;
    Ok(Body(SkillCommand { command, key, test, accepts_once }))
}

fn ran(SkillRun { skill, outcome }: SkillRun) -> v1::SkillResult {
    let status = outcome.status.as_str().to_owned();
    let evidence_json = if outcome.evidence.is_null() { String::new() } else { outcome.evidence.to_string() };
    v1::SkillResult {
        skill,
        status,
        error: outcome.error_type.unwrap_or_default(),
        text: outcome.data,
        evidence_json,
        detail: outcome.error_detail.unwrap_or_default(),
    }
}

async fn run_skill(call: Call, Body(asked): Body<SkillCommand>) -> Result<SkillRun, ApiError> {
    let SkillCommand { command, key, test, accepts_once } = asked;
    if accepts_once {
        // The caller decides in place of a person who is asked about each call.
        call.caller.must(KeyScope::JobsControl)?;
    }
    let may_approve = call.caller.must(KeyScope::JobsControl).is_ok();
    let caller =
        CommandCaller { user: call.caller.user, source: "api", may_approve, is_served: true, origins: Vec::new() };
    let kernel = call.state.kernel;
    if test {
        return Ok(kernel.test_skill(caller, &command, &key, accepts_once).await?);
    }
    Ok(kernel.run_skill(caller, &command, &key, accepts_once).await?)
}

/// A command that a message may begin with.
#[derive(Debug, Serialize, ToSchema)]
pub struct SlashCommand {
    /// The command with its slash.
    name: String,
    description: String,
    /// What may follow the command; empty if that is not known.
    argument_hint: String,
}

/// The slash commands: those of the kernel, then the prompt skills by name.
#[derive(Debug, Serialize, ToSchema)]
pub struct SlashCommands {
    commands: Vec<SlashCommand>,
}

impl From<Vec<skill::SlashCommand>> for SlashCommands {
    fn from(commands: Vec<skill::SlashCommand>) -> Self {
        let shown = commands.into_iter().map(|command| SlashCommand {
            name: command.name,
            description: command.description,
            argument_hint: command.argument_hint,
        });
        Self { commands: shown.collect() }
    }
}

fn commands(commands: Vec<skill::SlashCommand>) -> v1::ListCommandsResponse {
    let shown = commands.into_iter().map(|command| v1::SlashCommand {
        name: command.name,
        description: command.description,
        argument_hint: command.argument_hint,
    });
    v1::ListCommandsResponse { commands: shown.collect() }
}

async fn list_commands(call: Call, (): ()) -> Result<Vec<skill::SlashCommand>, ApiError> {
    Ok(slash_commands(&call.state.kernel.catalog().skills()))
}

/// The error for an unknown skill, with similar names as suggestions.
pub(super) fn unknown_skill(near: &[String]) -> ApiError {
    let mut error = ApiError::not_found("skill");
    if !near.is_empty() {
        error.detail = format!("there is no such skill; did you mean {}?", near.join(" or "));
    }
    error
}
