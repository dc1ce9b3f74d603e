//! Resolves the calls of a workflow. The author of the file wrote them, so the rules about what a model invents do not apply.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{Resolver, error, fit, manual_of, no_such_thing, tools::collect, unique_id};
use crate::{
    event::{Action, DispatchSpec, ResolvedCall},
    ids::{AgentId, TaskId},
    limits::{SubAgentInterface, TurnLimits},
    message::ModelReply,
    route::AgentModels,
    skill::{CallStyle, SkillSet},
    turn::run::{AgentRun, COLLECT, DISPATCH},
};

/// Resolves the calls of a workflow's reply.
#[must_use]
pub(in crate::turn) fn resolve_steps(
    reply: &ModelReply,
    task: TaskId,
    run: &AgentRun,
    skills: &SkillSet,
    limits: &TurnLimits,
    (models, route): (AgentModels<'_>, &[String]),
) -> Vec<ResolvedCall> {
    let resolver = Resolver { task, run, granted: None, skills, limits, models, route, wrote_as_text: false };
    let mut ids = BTreeSet::new();
    let calls = reply.tool_calls.iter().enumerate().map(|(n, call)| {
        let id = unique_id(&mut ids, call, run.round, n);
        let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_default();
        let (name, action) = match call.name.as_str() {
            DISPATCH => (call.name.clone(), resolver.agent(&arguments)),
            COLLECT => (call.name.clone(), collect(&arguments)),
            _ => {
                let name = arguments["skill"].as_str().unwrap_or_default();
                let given = arguments["arguments"].as_object().cloned().unwrap_or_default();
                (name.to_owned(), resolver.step(name, &given, &id))
            }
        };
        ResolvedCall { id, name, raw: call.arguments.clone(), action }
    });
    calls.collect()
}

impl Resolver<'_> {
    fn step(&self, name: &str, given: &Map<String, Value>, id: &str) -> Action {
        let Some(skill) = self.skills.named_like(name) else { return no_such_thing(&self.unknown(name)) };
        match fit(skill, given, CallStyle::Cmd) {
            Ok(arguments) => self.planned(skill, Value::Object(arguments), id),
            Err(misfit) => error(&format!("{}: {}", skill.name, misfit.what)),
        }
    }

    fn agent(&self, arguments: &Value) -> Action {
        let Some(agent) = arguments["agent_id"].as_str().and_then(|name| AgentId::sub(name).ok()) else {
            return error("the agent has no valid name.");
        };
        let mut granted = BTreeMap::new();
        for name in arguments["skills"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            let Some(skill) = self.skills.named_like(name) else { return no_such_thing(&self.unknown(name)) };
            granted.insert(skill.name.clone(), manual_of(skill, self.limits.interface == SubAgentInterface::Json));
        }
        let (skills, manual) = granted.into_iter().unzip();
        // Agents of steps have the preferred model of agents, as those that a model dispatches.
        let options = match self.options(arguments) {
            Ok(options) => options,
            Err(why) => return error(&why),
        };
        let wanted = arguments["max_tool_calls"].as_u64().and_then(|n| u32::try_from(n).ok());
        let wanted = wanted.unwrap_or(self.limits.agent_calls_default);
        Action::Dispatch(DispatchSpec {
            agent,
            mission: arguments["mission"].as_str().unwrap_or_default().to_owned(),
            skills,
            context: String::new(),
            depends_on: Vec::new(),
            max_tool_calls: wanted.min(self.limits.agent_calls_max).max(1),
            manual,
            options,
        })
    }
}
