//! The report that the run of a sub-agent hands in.

use super::AgentRun;
use crate::{
    event::{AgentReport, ReportStatus},
    guard::FLAGGED,
    time::Micros,
};

impl AgentRun {
    /// The agent's report with the state so far; the agent started at `since`.
    #[must_use]
    pub fn report(&self, status: ReportStatus, result: String, since: Micros, now: Micros) -> AgentReport {
        AgentReport {
            status,
            result,
            tool_calls_used: self.calls_used,
            duration_ms: now.since_ms(since),
            usage: self.usage,
            skills_run: self.ran.clone(),
            receipts: self.receipts.clone(),
            ids: self.provenance.found_ids(),
            waited_ms: self.waited_ms,
            prefill_ms: self.prefill_ms,
            in_doubt: self.doubts(),
            failed_calls: self.guard.own_failed_calls(),
            failures: self.failures.clone(),
            failed_skills: self.failed_skills.clone(),
            escalated: self.escalated.clone(),
            alternatives_asked: self.advising.asked,
            is_stuck: self.advising.is_stuck,
            programs_ran: self.programs_ran || self.acts(),
            is_flagged: self.provenance.origins().iter().any(|origin| origin == FLAGGED),
            model_calls: self.model_calls,
            origins: self.provenance.origins().to_vec(),
        }
    }
}
