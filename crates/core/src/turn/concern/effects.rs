//! The effects of a turn: what its receipts and reports show, and what is in doubt.

use crate::{event::AgentReport, plan::Node, receipt::Receipt, turn::conversation::Turn};

impl Turn {
    /// The receipts of this turn's own effects.
    pub(in crate::turn) fn own_receipts(&self) -> impl Iterator<Item = &Receipt> {
        self.main.receipts.iter().chain(self.agents.plan.own_receipts())
    }

    /// Effects of this turn, and of the turn that it continues, that may have happened.
    pub(in crate::turn) fn doubts(&self) -> Vec<(String, serde_json::Value)> {
        let mut doubts = self.main.in_doubt.clone();
        for doubt in self.agents.plan.in_doubt() {
            if !doubts.contains(doubt) {
                doubts.push(doubt.clone());
            }
        }
        doubts
    }

    /// The skills that ran in this turn, as [`AgentReport::skills_run`] lists them.
    pub(in crate::turn) fn skills_run(&self) -> impl Iterator<Item = &str> {
        let by_agents = self.agents.plan.nodes().iter().skip(self.agents.plan.before()).filter_map(Node::report);
        let by_agents = by_agents.flat_map(|report| &report.skills_run);
        self.main.ran.iter().chain(by_agents).map(String::as_str)
    }

    /// Whether any skill ran in this turn.
    pub(in crate::turn) fn has_run(&self) -> bool {
        self.skills_run().next().is_some()
    }

    /// Whether this turn, or a turn that it continues, had effects or may have had them. Only a person may retry such a turn.
    pub(in crate::turn) fn had_effects(&self) -> bool {
        let main = &self.main;
        let own = !main.known.is_empty() || !main.receipts.is_empty() || !main.doubts().is_empty();
        let by_agent =
            |report: &AgentReport| !report.receipts.is_empty() || !report.in_doubt.is_empty() || report.programs_ran;
        own || main.programs_ran || main.acts() || self.agents.plan.reports().any(by_agent)
    }

    /// The receipts of the turns that this turn continues.
    pub(in crate::turn) fn known_receipts(&self) -> impl Iterator<Item = &Receipt> {
        let known = self.main.known.iter();
        let of_agents = self.agents.plan.nodes().iter().take(self.agents.plan.before()).filter_map(Node::report);
        known.chain(of_agents.flat_map(|report| &report.receipts).filter(|receipt| !self.main.known.contains(receipt)))
    }

    /// Whether this turn, or the turn that it continues, may have changed anything.
    pub(in crate::turn) fn may_have_changed(&self) -> bool {
        let main = &self.main;
        let own = !main.receipts.is_empty() || !main.known.is_empty() || !main.in_doubt.is_empty();
        let by_agent = |report: &AgentReport| !report.receipts.is_empty() || !report.in_doubt.is_empty();
        own || self.agents.plan.reports().any(by_agent) || self.has_unseen_work()
    }

    /// Whether work was done that no receipt shows: the work of an agentic backend. However an agent ended, its report contains
    /// its receipts and its in-doubt effects. If the turn ended the agent, every call without a result is in doubt. Reports of
    /// older versions have no in-doubt effects.
    pub(in crate::turn) fn has_unseen_work(&self) -> bool {
        let by_agent =
            |report: &AgentReport| report.programs_ran || report.skills_run.iter().any(|run| run.contains("(unknown)"));
        self.main.programs_ran || self.agents.plan.reports().any(by_agent)
    }
}
