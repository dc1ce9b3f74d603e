//! The plan of a turn: the sub-agents that the orchestrator dispatched, and their dependencies [S4 4]. An agent starts as
//! soon as its own dependencies are done, not at the end of a wave. Agents that depend on a failed one are skipped with the
//! reason, transitively [S4 9.3].

mod control;
mod keys;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use control::AgentSteer;

use crate::{
    event::{AgentReport, DispatchSpec, ReportStatus},
    ids::AgentId,
    message::Usage,
    receipt::Receipt,
    time::Micros,
};

/// Prefix of the report of an agent that was not started because of a limit on calls.
pub const NOT_STARTED: &str = "Not started: ";

/// State of a dispatched agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// Waiting for dependencies or budget.
    Pending,
    /// Running, with reserved tool calls.
    Running {
        /// Number of reserved tool calls.
        calls_granted: u32,
        /// Time of the start.
        since: Micros,
    },
    /// Ended, with its report.
    Reported(AgentReport),
}

/// One dispatched agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// The dispatch.
    pub spec: DispatchSpec,
    /// The state.
    pub state: NodeState,
    /// Whether the orchestrator has seen the report.
    pub collected: bool,
    /// Number of tool calls reserved at the start.
    #[serde(default)]
    pub granted: u32,
    /// The texts that were added to its mission, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steering: Vec<AgentSteer>,
    /// Why it is to end before its own end, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<String>,
}

impl Node {
    /// The report, if the agent has ended.
    #[must_use]
    pub const fn report(&self) -> Option<&AgentReport> {
        match &self.state {
            NodeState::Reported(report) => Some(report),
            NodeState::Pending | NodeState::Running { .. } => None,
        }
    }

    /// Tool calls that count against the budgets. If the kernel ended an agent, its actual use is in the log and not in
    /// its report: then the whole reservation counts, so that a crash never extends a budget.
    #[must_use]
    pub fn charged(&self) -> u32 {
        match &self.state {
            NodeState::Pending => 0,
            NodeState::Running { calls_granted, .. } => *calls_granted,
            NodeState::Reported(r) if matches!(r.status, ReportStatus::Crashed | ReportStatus::Cancelled) => {
                self.granted
            }
            NodeState::Reported(r) => r.tool_calls_used.min(self.granted),
        }
    }
}

/// All agents of a turn, in the order of dispatch.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    nodes: Vec<Node>,
    /// Dispatches that a limit refused, as (agent, mission). The "continue?" report lists them as not yet started.
    refused: Vec<(String, String)>,
    /// Number of agents from the turn that this one continues. They are known, but not counted again.
    #[serde(default)]
    before: usize,
}

impl Plan {
    /// All agents, in the order of dispatch.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Number of agents from the turn that this one continues.
    #[must_use]
    pub const fn before(&self) -> usize {
        self.before
    }

    /// Dispatches that a limit refused.
    #[must_use]
    pub fn refused(&self) -> &[(String, String)] {
        &self.refused
    }

    /// The agent with this name.
    #[must_use]
    pub fn node(&self, agent: &AgentId) -> Option<&Node> {
        self.nodes.iter().find(|n| n.spec.agent == *agent)
    }

    fn node_mut(&mut self, agent: &AgentId) -> Option<&mut Node> {
        self.nodes.iter_mut().find(|n| n.spec.agent == *agent)
    }

    /// Checks the dispatches of one reply against the plan and each other, and adds the valid ones. The result has one entry
    /// per dispatch; an error is the text for the model.
    pub fn add(&mut self, specs: &[DispatchSpec], agents_max: u32) -> Vec<Result<(), String>> {
        let specs = &self.with_keys(specs);
        let mut verdicts: Vec<Result<(), String>> = Vec::with_capacity(specs.len());
        let mut names: BTreeSet<&AgentId> = BTreeSet::new();
        for (n, spec) in specs.iter().enumerate() {
            verdicts.push(if self.node(&spec.agent).is_some() || !names.insert(&spec.agent) {
                Err(format!("agent_id {:?} was already used in this turn; choose another", spec.agent.as_str()))
            } else if spec.depends_on.contains(&spec.agent) {
                Err(format!("agent {} depends on itself", spec.agent))
            } else {
                self.key_is_taken(specs, n).map_or(Ok(()), Err)
            });
        }
        // An invalid dispatch invalidates the dispatches that depend on it. Repeat until there are no more.
        loop {
            let known = |agent: &AgentId, verdicts: &[Result<(), String>]| {
                self.node(agent).is_some() || specs.iter().zip(verdicts).any(|(s, v)| v.is_ok() && s.agent == *agent)
            };
            let invalidated = specs.iter().enumerate().find_map(|(i, spec)| {
                let missing = spec.depends_on.iter().find(|d| !known(d, &verdicts))?;
                verdicts[i].is_ok().then(|| (i, missing.clone()))
            });
            match invalidated {
                Some((i, missing)) => {
                    verdicts[i] = Err(format!("depends_on names {missing}, which was not dispatched"));
                }
                None => break,
            }
        }
        for (i, why) in cycles(specs, &verdicts) {
            verdicts[i] = Err(why);
        }
        for (spec, verdict) in specs.iter().zip(&mut verdicts) {
            if verdict.is_err() {
                continue;
            }
            if self.nodes.len() - self.before >= agents_max as usize {
                if !self.refused.iter().any(|(agent, _)| agent == spec.agent.as_str()) {
                    self.refused.push((spec.agent.to_string(), first_line(&spec.mission)));
                }
                *verdict =
                    Err(format!("the limit of {agents_max} agents in a turn is reached; this one was not started"));
                continue;
            }
            self.nodes.push(Node {
                spec: spec.clone(),
                state: NodeState::Pending,
                collected: false,
                granted: 0,
                steering: Vec::new(),
                stop: None,
            });
        }
        verdicts
    }

    /// Pending agents that can now start or be skipped: all dependencies are completed (`Ok`), or one ended otherwise and
    /// the reason for skipping is given (`Err`).
    #[must_use]
    pub fn decidable(&self) -> Vec<(AgentId, Result<(), String>)> {
        self.nodes
            .iter()
            .filter(|n| n.state == NodeState::Pending)
            .filter_map(|n| {
                let mut waiting = false;
                for dependency in &n.spec.depends_on {
                    match self.node(dependency).map(|d| &d.state) {
                        Some(NodeState::Reported(r)) if r.status == ReportStatus::Completed => {}
                        Some(NodeState::Reported(r)) => {
                            let why = format!(
                                "Skipped because dependency '{dependency}' {}: {}",
                                ended(r.status),
                                first_line(&r.result)
                            );
                            return Some((n.spec.agent.clone(), Err(why)));
                        }
                        // A limit refused the dependency after this agent was added.
                        None => {
                            let why = format!("Skipped because dependency '{dependency}' was not started.");
                            return Some((n.spec.agent.clone(), Err(why)));
                        }
                        Some(_) => waiting = true,
                    }
                }
                (!waiting).then(|| (n.spec.agent.clone(), Ok(())))
            })
            .collect()
    }

    /// Records that an agent runs. Returns false if the agent is unknown or not pending.
    pub fn started(&mut self, agent: &AgentId, calls_granted: u32, since: Micros) -> bool {
        match self.node_mut(agent) {
            Some(node) if node.state == NodeState::Pending => {
                node.granted = calls_granted;
                node.state = NodeState::Running { calls_granted, since };
                true
            }
            _ => false,
        }
    }

    /// Records an agent's report. Returns false if the agent is unknown or has already reported.
    pub fn reported(&mut self, agent: &AgentId, report: AgentReport) -> bool {
        match self.node_mut(agent) {
            Some(node) if !matches!(node.state, NodeState::Reported(_)) => {
                node.state = NodeState::Reported(report);
                // The agent's prompt inputs are no longer needed.
                node.spec.manual = Vec::new();
                node.spec.context = String::new();
                (node.steering, node.stop) = (Vec::new(), None);
                true
            }
            _ => false,
        }
    }

    /// Agents without a report.
    pub fn unreported(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|n| !matches!(n.state, NodeState::Reported(_)))
    }

    /// Whether one of these agents (any agent if empty) has not reported yet.
    #[must_use]
    pub fn is_waiting_for(&self, agents: &[AgentId]) -> bool {
        self.unreported().any(|n| agents.is_empty() || agents.contains(&n.spec.agent))
    }

    /// Whether there is an agent whose report the orchestrator has not seen.
    #[must_use]
    pub fn has_uncollected(&self) -> bool {
        self.nodes.iter().any(|n| !n.collected)
    }

    /// The plan at the start of a continued turn: the results stay known, budgets and refusals start anew [S0 5.3].
    #[must_use]
    pub fn resumable(mut self) -> Self {
        self.refused.clear();
        self.before = self.nodes.len();
        for node in &mut self.nodes {
            node.spec.mission = first_line(&node.spec.mission);
        }
        self
    }

    /// Tool calls of this turn that are used or reserved.
    #[must_use]
    pub fn calls_committed(&self) -> u32 {
        self.nodes.iter().skip(self.before).map(Node::charged).fold(0, u32::saturating_add)
    }

    /// Tool calls reserved for running agents.
    #[must_use]
    pub fn calls_granted(&self) -> u32 {
        self.running().map(Node::charged).fold(0, u32::saturating_add)
    }

    /// Running agents.
    pub fn running(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|n| matches!(n.state, NodeState::Running { .. }))
    }

    /// Total cost of all reports.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        for node in self.nodes.iter().skip(self.before) {
            if let NodeState::Reported(r) = &node.state {
                usage.add(&r.usage);
            }
        }
        usage
    }

    /// The results in the format of [S4 2.3]. Marks them as seen by the orchestrator. An empty list means all agents.
    pub fn collect(&mut self, agents: &[AgentId]) -> String {
        let results: Vec<_> = self
            .nodes
            .iter_mut()
            .filter(|n| agents.is_empty() || agents.contains(&n.spec.agent))
            .map(|n| match &n.state {
                NodeState::Reported(r) => {
                    n.collected = true;
                    let mut result = json!({
                        "agent_id": n.spec.agent, "status": r.status.as_str(), "result": r.result,
                        "tool_calls_used": r.tool_calls_used, "duration_ms": r.duration_ms
                    });
                    // If the kernel ended an agent, the list of its skills is unknown.
                    if !r.skills_run.is_empty() || r.tool_calls_used == 0 && r.status.ended_by_itself() {
                        result["skills_run"] = json!(r.skills_run);
                    }
                    if !r.escalated.is_empty() {
                        result["decide"] = json!(r.escalated);
                    }
                    result
                }
                NodeState::Pending | NodeState::Running { .. } => {
                    json!({"agent_id": n.spec.agent, "status": "running", "result": null})
                }
            })
            .collect();
        json!({"agents": results}).to_string()
    }

    /// The receipts of all effects, including those of the turn that this one continues.
    pub fn receipts(&self) -> impl Iterator<Item = &Receipt> {
        self.reports().flat_map(|report| &report.receipts)
    }

    /// Effects that may have happened, as (skill, arguments), including those of the turn that this one continues.
    pub fn in_doubt(&self) -> impl Iterator<Item = &(String, Value)> {
        self.reports().flat_map(|report| &report.in_doubt)
    }

    /// The receipts of this turn's own effects.
    pub fn own_receipts(&self) -> impl Iterator<Item = &Receipt> {
        let own = self.nodes.iter().skip(self.before);
        own.filter_map(Node::report).flat_map(|report| &report.receipts)
    }

    /// All reports, including those of the turn that this one continues.
    pub fn reports(&self) -> impl Iterator<Item = &AgentReport> {
        self.nodes.iter().filter_map(Node::report)
    }

    /// The missions that were not started because of a limit.
    pub fn missions_not_started(&self) -> impl Iterator<Item = String> {
        let skipped = self.nodes.iter().skip(self.before).filter(|n| {
            n.report().is_some_and(|r| r.status == ReportStatus::Skipped && r.result.starts_with(NOT_STARTED))
        });
        let skipped = skipped.map(|n| first_line(&n.spec.mission));
        skipped.chain(self.refused.iter().map(|(_, mission)| mission.clone()))
    }

    /// The reports in a node's prompt, in the order of its `depends_on`.
    pub fn dependencies<'a>(&'a self, spec: &'a DispatchSpec) -> impl Iterator<Item = (&'a str, &'a AgentReport)> {
        spec.depends_on.iter().filter_map(|d| match self.node(d).map(|n| &n.state) {
            Some(NodeState::Reported(r)) => Some((d.as_str(), r)),
            _ => None,
        })
    }
}

const fn ended(status: ReportStatus) -> &'static str {
    match status {
        ReportStatus::Completed => "completed",
        ReportStatus::NoAction => "ran no skill",
        ReportStatus::Failed => "failed",
        ReportStatus::Timeout => "ran out of time",
        ReportStatus::Crashed => "crashed",
        ReportStatus::Skipped => "was skipped",
        ReportStatus::Cancelled => "was cancelled",
    }
}

/// The first line of a text, truncated to 200 characters.
#[must_use]
pub fn first_line(text: &str) -> String {
    text.trim().lines().next().unwrap_or_default().chars().take(200).collect()
}

/// The dispatches that are on a cycle or depend on one.
fn cycles(specs: &[DispatchSpec], verdicts: &[Result<(), String>]) -> Vec<(usize, String)> {
    let mut left: Vec<usize> = (0..specs.len()).filter(|i| verdicts[*i].is_ok()).collect();
    loop {
        let before = left.len();
        let names: BTreeSet<&AgentId> = left.iter().map(|i| &specs[*i].agent).collect();
        left.retain(|i| specs[*i].depends_on.iter().any(|d| names.contains(d)));
        if left.len() == before {
            break;
        }
    }
    let members = left.iter().map(|i| specs[*i].agent.as_str()).collect::<Vec<_>>().join(", ");
    left.into_iter().map(|i| (i, format!("depends_on goes in a circle: {members}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(agent: &str, depends_on: &[&str]) -> DispatchSpec {
        let id = |a: &str| AgentId::sub(a).unwrap();
        DispatchSpec {
            agent: id(agent),
            mission: format!("do {agent}"),
            skills: vec!["tasks.search".into()],
            context: String::new(),
            depends_on: depends_on.iter().map(|d| id(d)).collect(),
            max_tool_calls: 5,
            manual: Vec::new(),
            options: Default::default(),
        }
    }

    fn report(status: ReportStatus) -> AgentReport {
        AgentReport { tool_calls_used: 1, duration_ms: 1, ..AgentReport::bare(status, "so") }
    }

    fn decided(plan: &Plan) -> Vec<(String, bool)> {
        plan.decidable().into_iter().map(|(a, v)| (a.to_string(), v.is_ok())).collect()
    }

    #[test]
    fn plan_starts_each_agent_when_its_own_dependencies_are_done() {
        let mut plan = Plan::default();
        let specs = [spec("a", &[]), spec("b", &[]), spec("c", &["a", "b"]), spec("d", &["c"]), spec("e", &["a"])];
        assert!(plan.add(&specs, 8).iter().all(Result::is_ok));
        assert_eq!(decided(&plan), [("a".into(), true), ("b".into(), true)]);
        for agent in ["a", "b"] {
            plan.started(&AgentId::sub(agent).unwrap(), 5, Micros(0));
        }
        plan.reported(&AgentId::sub("a").unwrap(), report(ReportStatus::Completed));
        assert_eq!(decided(&plan), [("e".into(), true)], "e does not wait for b");
        plan.reported(&AgentId::sub("b").unwrap(), report(ReportStatus::Completed));
        assert_eq!(decided(&plan), [("c".into(), true), ("e".into(), true)]);
    }

    #[test]
    fn plan_failure_skips_only_dependent_agents() {
        let mut plan = Plan::default();
        plan.add(&[spec("a", &[]), spec("b", &["a"]), spec("c", &["b"]), spec("d", &[])], 8);
        plan.reported(&AgentId::sub("a").unwrap(), report(ReportStatus::Timeout));
        let reasons = plan.decidable();
        assert_eq!(reasons[0].1, Err("Skipped because dependency 'a' ran out of time: so".into()));
        plan.reported(&AgentId::sub("b").unwrap(), report(ReportStatus::Skipped));
        assert_eq!(decided(&plan), [("c".into(), false), ("d".into(), true)]);
    }

    #[test]
    fn plan_rejects_invalid_dispatches_and_accepts_valid_ones_of_same_reply() {
        let mut plan = Plan::default();
        let specs = [
            spec("a", &[]),
            spec("a", &[]),
            spec("x", &["y"]),
            spec("y", &["x"]),
            spec("z", &["gone"]),
            spec("w", &["z"]),
        ];
        let verdicts = plan.add(&specs, 8);
        let messages: Vec<&str> = verdicts.iter().map(|v| v.as_ref().map_or_else(|e| e.as_str(), |()| "ok")).collect();
        assert_eq!(
            messages,
            [
                "ok",
                "agent_id \"a\" was already used in this turn; choose another",
                "depends_on goes in a circle: x, y",
                "depends_on goes in a circle: x, y",
                "depends_on names gone, which was not dispatched",
                "depends_on names z, which was not dispatched",
            ]
        );
        assert_eq!(plan.nodes().len(), 1);
    }

    #[test]
    fn plan_refuses_and_records_agent_above_limit() {
        let mut plan = Plan::default();
        let specs: Vec<_> = (0..9).map(|n| spec(&format!("a{n}"), &[])).collect();
        let verdicts = plan.add(&specs, 8);
        assert!(verdicts[7].is_ok() && verdicts[8].is_err());
        assert_eq!(plan.refused(), [("a8".to_owned(), "do a8".to_owned())]);
    }

    #[test]
    fn plan_accepts_only_one_report_per_agent() {
        let mut plan = Plan::default();
        plan.add(&[spec("a", &[])], 8);
        let a = AgentId::sub("a").unwrap();
        assert!(plan.reported(&a, report(ReportStatus::Crashed)));
        assert!(!plan.reported(&a, report(ReportStatus::Completed)));
        assert!(plan.collect(&[]).contains("crashed"));
    }
}
