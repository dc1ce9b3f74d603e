//! Recovery: turns that were open when an Engine or the process ended.

use serde::{Deserialize, Serialize};

use super::{Deferral, Now};
use crate::{
    event::ResumeCause,
    time::Micros,
    turn::{Decision, conversation::Turn},
};

/// How often a turn was interrupted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    /// How often an Engine died during the turn.
    pub crashes: u32,
    /// How often the process ended during the turn.
    pub restarts: u32,
}

impl Turn {
    /// Records that a new incarnation of the Engine resumed the turn.
    pub(in crate::turn) fn resumed(&mut self, cause: ResumeCause, at: Micros) {
        // A suspended or deferred turn was not running, so it did not cause the end of the Engine or the process.
        if self.is_at_rest() || self.deferral.until.is_some_and(|until| until > at) {
            return;
        }
        // Nor does a turn run that waits for a person, who may take longer than any number of restarts.
        if self.only_awaits_approval() {
            return;
        }
        match cause {
            ResumeCause::Bystander => {}
            ResumeCause::Crash => self.recovery.crashes = self.recovery.crashes.saturating_add(1),
            // A turn that may still wait for other tasks did not cause it either. It may wait through any number of restarts. The
            // log records only for agentic backends that the first round was running, and those rounds count.
            ResumeCause::Restart if self.may_wait_for_others() && self.main.interrupted().is_none() => {}
            ResumeCause::Restart => {
                self.recovery.restarts = self.recovery.restarts.saturating_add(1);
                // While the process was down, the turn could not run. `restarts_max` bounds how often its deadlines restart.
                self.restart_clock(at);
            }
        }
    }

    /// Begins the next step of the turn's workflow, if it has one: each step has its deadlines and its interruptions to itself. A step
    /// whose agents were ended because the hard deadline had passed is the last one.
    pub(in crate::turn) fn begin_step(&mut self, at: Micros) {
        if self.main.workflow.is_some() && !self.clock.hard_passed {
            self.restart_clock(at);
            self.recovery = Recovery::default();
            self.deferral = Deferral::default();
        }
    }

    /// Fails a turn during which the Engine or the process died too often, so that the conversation can continue.
    pub(in crate::turn) fn poisoned(&self, now: Now) -> Option<Decision> {
        let (code, text, detail) = if self.recovery.crashes >= self.limits.crashes_max.max(1) {
            (
                "engine_crashed",
                "Annie failed repeatedly while it worked on this message, so I stopped working on it.",
                format!("the engine died {} times in this turn", self.recovery.crashes),
            )
        } else if self.recovery.restarts >= self.limits.restarts_max.max(1) {
            (
                "process_restarted",
                "Annie was restarted too often while it worked on this message, so I stopped working on it.",
                format!("the process ended {} times in this turn", self.recovery.restarts),
            )
        } else {
            return None;
        };
        Some(
            self.end_agents(now, "The turn was given up.")
                .unwrap_or_else(|| self.failed(now, code, text, detail, false)),
        )
    }
}
