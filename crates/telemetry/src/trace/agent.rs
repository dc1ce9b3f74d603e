//! The run of one agent in a task: its span, and what is open in it.

use std::collections::BTreeMap;

use annie_core::{ids::IntentId, time::Micros};

use crate::span::Span;

/// An agent that runs.
pub struct AgentRun {
    /// Its span, which ends with its report or with the task.
    pub span: Span,
    /// Since when the agent waits for its next reply.
    pub idle_since: Micros,
    /// When an agentic backend began the round under way.
    pub round_began: Option<Micros>,
    /// The runs of skills without an outcome.
    pub runs: BTreeMap<IntentId, Span>,
}

impl AgentRun {
    pub fn new(span: Span) -> Self {
        Self { idle_since: span.start, span, round_began: None, runs: BTreeMap::new() }
    }

    /// The wait and the call of a round that ended at a time: when it began to wait, and when its model was called.
    pub fn round_until(&mut self, end: Micros, waited_ms: u64) -> (Micros, Micros) {
        let since = self.idle_since.min(end);
        let called = self.round_began.take().unwrap_or_else(|| since.later_ms(waited_ms)).clamp(since, end);
        (called.plus_ms(i64::try_from(waited_ms).map_or(i64::MIN, |ms| -ms)).max(since), called)
    }

    /// Ends the run. Runs of skills without an outcome end with it, for this reason.
    pub fn end(mut self, at: Micros, why: &str) -> Vec<Span> {
        self.span.end = at.max(self.span.start);
        let open = self.runs.into_values().map(|mut run| {
            run.end = at.max(run.start);
            run.fail(why);
            run
        });
        let open: Vec<Span> = open.collect();
        [self.span].into_iter().chain(open).collect()
    }
}
