//! The skills that agents can use.

use annie_core::skill::{Effect, SkillFormat, SkillSpec};
use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::{
    extract::{Args, Name},
    problem::Problem,
    schema,
};
use crate::{
    api::{AppState, unknown_skill},
    error::ApiError,
};

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

impl Skill {
    fn of(spec: &SkillSpec) -> Self {
        Self {
            name: spec.name.clone(),
            domain: spec.domain.clone(),
            description: spec.description.clone(),
            synopsis: spec.synopsis(),
            effect: spec.effect,
            external: spec.external,
            timeout_ms: spec.timeout_ms,
            format: match spec.format {
                SkillFormat::Command => "command",
                SkillFormat::Prompt { .. } => "prompt",
            },
            source: spec.source.clone(),
        }
    }
}

/// Skills, ordered by name, or by relevance if there is a query.
#[derive(Debug, Serialize, ToSchema)]
pub struct Skills {
    skills: Vec<Skill>,
    /// Increases with every reload.
    version: u64,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SkillArgs {
    /// Words to search for.
    query: Option<String>,
}

/// List or search skills.
#[utoipa::path(
    get, path = "/api/v1/skills", tag = "skills", params(SkillArgs),
    responses((status = 200, body = Skills), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn list_skills(State(state): State<AppState>, Args(args): Args<SkillArgs>) -> Json<Skills> {
    let set = state.kernel.catalog().skills();
    let skills = match &args.query {
        Some(query) => set.search(query).into_iter().map(|s| Skill::of(s)).collect(),
        None => set.iter().map(|s| Skill::of(s)).collect(),
    };
    Json(Skills { skills, version: set.version() })
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

/// Get a skill.
#[utoipa::path(
    get, path = "/api/v1/skills/{name}", tag = "skills", params(("name" = String, Path)),
    responses((status = 200, body = SkillDetail), (status = "default", body = Problem, description = "A problem"))
)]
pub async fn get_skill(State(state): State<AppState>, Name(name): Name) -> Result<Json<SkillDetail>, ApiError> {
    let set = state.kernel.catalog().skills();
    let spec = set.get(&name).ok_or_else(|| unknown_skill(&set.near(&name)))?;
    Ok(Json(SkillDetail { skill: Skill::of(spec), help: spec.help(), schema: spec.schema() }))
}
