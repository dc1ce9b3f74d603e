//! What a sub-agent hands in at its end.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    event::{ReportStatus, is_zero},
    message::Usage,
    receipt::Receipt,
};

/// A sub-agent's one report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentReport {
    /// How it ended.
    pub status: ReportStatus,
    /// Its summary, or the reason.
    pub result: String,
    /// Tool calls it made.
    pub tool_calls_used: u32,
    /// From its start to its report, in milliseconds.
    pub duration_ms: u64,
    /// What its model calls cost.
    #[serde(default)]
    pub usage: Usage,
    /// The skills that it ran, in order, each with its outcome's status if that is not success.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skills_run: Vec<String>,
    /// The receipts of its effects: the turn does not repeat them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub receipts: Vec<Receipt>,
    /// The numbers of things that its results named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<u64>,
    /// How long its rounds waited for their permits, in milliseconds: a queue is not its turn's time.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub waited_ms: u64,
    /// How long its models read before their first tokens, in milliseconds: its turn's soft deadline is later by that.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub prefill_ms: u64,
    /// Effects of which it is not known whether they happened, as (skill, arguments): the turn does not repeat them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub in_doubt: Vec<(String, Value)>,
    /// A round of it ran on a backend that works by itself: what that did, no receipt shows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub programs_ran: bool,
}

impl AgentReport {
    /// A report of an agent of which nothing else is known.
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
            programs_ran: false,
        }
    }
}
