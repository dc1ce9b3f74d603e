//! Output keys: a mission that contains `{key}` contains the report of the agent with this key when its own agent starts, and
//! waits for that report.

use super::Plan;
use crate::{
    context::{Frames, clip},
    dispatch::{fill_in, keys_in},
    event::{AgentReport, DispatchSpec},
    ids::AgentId,
};

/// How much of a report a mission contains in place of its key, in bytes: as much as a context may have.
const VALUE_BYTES_MAX: usize = 16 * 1024;

impl Plan {
    /// The agent whose report has this key, among those of the plan and of the same reply.
    fn keyed<'a>(&'a self, key: &str, specs: &'a [DispatchSpec]) -> Option<&'a AgentId> {
        let all = self.nodes.iter().map(|node| &node.spec).chain(specs);
        all.into_iter().find(|spec| spec.options.output_key.as_deref() == Some(key)).map(|spec| &spec.agent)
    }

    /// The dispatches of one reply, each of which also depends on the agents whose keys its mission names.
    pub(super) fn with_keys(&self, specs: &[DispatchSpec]) -> Vec<DispatchSpec> {
        let with_keys = |spec: &DispatchSpec| {
            let mut spec = spec.clone();
            let text = format!("{}\n{}", spec.mission, spec.context);
            for agent in keys_in(&text).filter_map(|key| self.keyed(key, specs)) {
                if *agent != spec.agent && !spec.depends_on.contains(agent) {
                    spec.depends_on.push(agent.clone());
                }
            }
            spec
        };
        specs.iter().map(with_keys).collect()
    }

    /// Why the `n`th dispatch of a reply may not have its key, if another agent has it.
    pub(super) fn key_is_taken(&self, specs: &[DispatchSpec], n: usize) -> Option<String> {
        let key = specs[n].options.output_key.as_deref()?;
        let other = self.keyed(key, specs).filter(|agent| **agent != specs[n].agent)?;
        Some(format!("output_key {key:?} was already used in this turn, by {other}; choose another"))
    }

    /// A dispatch whose mission and context contain the reports that they name by keys. Such a report is not listed once more.
    #[must_use]
    pub fn filled(&self, spec: &DispatchSpec, frames: &Frames) -> DispatchSpec {
        let mut filled = spec.clone();
        let reported = |key: &str| -> Option<(&str, &AgentReport)> {
            let agent = self.keyed(key, &[])?;
            self.dependencies(spec).find(|(of, _)| *of == agent.as_str())
        };
        let value = |key: &str| {
            let (agent, report) = reported(key)?;
            let origin = [("agent", agent), ("status", report.status.as_str())];
            Some(frames.wrap("report", &origin, &clip(&report.result, VALUE_BYTES_MAX)))
        };
        filled.mission = fill_in(&spec.mission, value);
        filled.context = fill_in(&spec.context, value);
        for text in [&spec.mission, &spec.context] {
            for (agent, _) in keys_in(text).filter_map(reported) {
                filled.depends_on.retain(|of| of.as_str() != agent);
            }
        }
        filled
    }
}
