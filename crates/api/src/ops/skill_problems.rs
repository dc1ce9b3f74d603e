//! The problems of skill files and of other sources of skills: what is not used, what replaces something, and how to fix it.

use annie_skillkit::Problem;
use serde::Serialize;
use utoipa::ToSchema;

use super::row::{Call, Operation, Verb::Get, route};
use crate::{
    auth::Need::AnyKey,
    error::{ApiError, Code},
    grpc::v1,
};

/// The operations on problems of skills.
pub(super) fn table() -> Vec<Operation> {
    vec![
        route(Get, "/api/v1/skill-problems", AnyKey, list_skill_problems, SkillProblems::from)
            .about(
                "list_skill_problems",
                "skills",
                "List the problems and notices of the skill files.",
                "skills problems",
            )
            .rpc("/annie.v1.Skills/ListProblems", |_: v1::ListSkillProblemsRequest| Ok(()), listed),
    ]
}

/// A problem of a skill file, or a notice about it.
#[derive(Debug, Serialize, ToSchema)]
pub struct SkillProblem {
    /// The file below the folder of skills, or `skill sources`.
    file: String,
    /// The line in the file, counted from 1; absent if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    /// `error` (the file is not used), `lenient`, `unsupported` or `notice`.
    severity: &'static str,
    what: String,
    /// How to fix it; empty if `what` says that.
    fix: String,
}

/// All problems of skills, worst first.
#[derive(Debug, Serialize, ToSchema)]
pub struct SkillProblems {
    problems: Vec<SkillProblem>,
}

impl From<Vec<Problem>> for SkillProblems {
    fn from(problems: Vec<Problem>) -> Self {
        let shown = problems.into_iter().map(|Problem { file, line, severity, what, fix }| SkillProblem {
            file,
            line,
            severity: severity.as_str(),
            what,
            fix,
        });
        Self { problems: shown.collect() }
    }
}

fn listed(problems: Vec<Problem>) -> v1::ListSkillProblemsResponse {
    let shown = problems.into_iter().map(|Problem { file, line, severity, what, fix }| v1::SkillProblem {
        file,
        line,
        severity: severity.as_str().to_owned(),
        what,
        fix,
    });
    v1::ListSkillProblemsResponse { problems: shown.collect() }
}

async fn list_skill_problems(call: Call, (): ()) -> Result<Vec<Problem>, ApiError> {
    let router = call.state.skills.clone();
    let router = router.ok_or_else(|| ApiError::new(Code::Unavailable, "this process has no skill files"))?;
    Ok(router.all_problems())
}
