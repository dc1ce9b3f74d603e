//! The report of a sub-agent to its orchestrator.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    error_route::ErrorKind,
    event::{ReportStatus, is_zero},
    loop_guard::CallRecord,
    message::Usage,
    receipt::Receipt,
};

/// The report that a sub-agent hands in exactly once, at its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentReport {
    /// How the sub-agent ended.
    pub status: ReportStatus,
    /// The summary, or the reason for a failure.
    pub result: String,
    /// Number of tool calls made.
    pub tool_calls_used: u32,
    /// Time from the sub-agent's start to its report, in milliseconds.
    pub duration_ms: u64,
    /// Total cost of its model calls.
    #[serde(default)]
    pub usage: Usage,
    /// The skills that it ran, in order, each with the status of its outcome unless that is success.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skills_run: Vec<String>,
    /// The receipts of its effects. The turn does not repeat these effects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub receipts: Vec<Receipt>,
    /// Numbers of the things named in its results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<u64>,
    /// How long its rounds waited for permits, in milliseconds. Queueing time does not count as the turn's own time.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub waited_ms: u64,
    /// How long its models processed prompts before their first tokens, in milliseconds. The turn's soft deadline is
    /// extended by this time.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub prefill_ms: u64,
    /// Effects that may or may not have happened, as (skill, arguments). The turn does not repeat these effects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_doubt: Vec<(String, Value)>,
    /// Its failed calls, for the loop guard of other agents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_calls: Vec<CallRecord>,
    /// How often each kind of failure occurred for the goal of the turn, with those before this agent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failures: BTreeMap<ErrorKind, u32>,
    /// The skills that failed for the goal of the turn.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub failed_skills: BTreeSet<String>,
    /// What its skills, or the kernel's router, asked the parent agent to decide, one line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub escalated: Vec<String>,
    /// How often it asked for another approach.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub alternatives_asked: u32,
    /// The usual ways to its goal have failed, and nothing succeeded since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_stuck: bool,
    /// A round ran on an agentic backend. No receipt shows what that backend did.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub programs_ran: bool,
    /// A guard found words that look like instructions in what it read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_flagged: bool,
    /// Number of its model calls, failed ones included.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub model_calls: u32,
    /// The origins of what it has read and the user did not write. Its report may contain such text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub origins: Vec<String>,
}

impl AgentReport {
    /// A report with a status and a text, and all other fields empty.
    #[must_use]
    pub fn bare(status: ReportStatus, result: impl Into<String>) -> Self {
        Self {
            status,
            result: result.into(),
            tool_calls_used: 0,
            duration_ms: 0,
            usage: Usage::default(),
            skills_run: Vec::new(),
            receipts: Vec::new(),
            ids: Vec::new(),
            waited_ms: 0,
            prefill_ms: 0,
            in_doubt: Vec::new(),
            failed_calls: Vec::new(),
            failures: BTreeMap::new(),
            failed_skills: BTreeSet::new(),
            escalated: Vec::new(),
            alternatives_asked: 0,
            is_stuck: false,
            programs_ran: false,
            is_flagged: false,
            model_calls: 0,
            origins: Vec::new(),
        }
    }
}
