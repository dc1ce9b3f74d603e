//! Budget: skill calls within the sliding window of the conversation.

use crate::{
    limits::TurnLimits,
    time::Micros,
    turn::conversation::{Conversation, Turn},
};

/// The state of the conversation that the folds and the decisions of a turn depend on.
#[derive(Clone, Copy)]
pub(in crate::turn) struct Now {
    /// When the Engine last recorded an event.
    pub at: Micros,
    /// Skill calls of the conversation within its sliding window, plus the calls that all its turns have reserved or running.
    pub window_used: u32,
}

impl Conversation {
    /// Skill calls within the sliding window, plus the calls that open turns have reserved or running.
    pub(in crate::turn) fn window_used(&self, limits: &TurnLimits) -> u32 {
        self.window_used_at(self.at, limits)
    }

    /// The same for an event that is recorded at this time.
    pub(in crate::turn) fn window_used_at(&self, at: Micros, limits: &TurnLimits) -> u32 {
        let used = self.window_calls(at.max(self.at), limits);
        self.turns.iter().map(Turn::calls_under_way).fold(used, u32::saturating_add)
    }

    /// Skill calls within the sliding window that ends at this time.
    fn window_calls(&self, at: Micros, limits: &TurnLimits) -> u32 {
        let from = window_start(at, limits);
        u32::try_from(self.window.iter().filter(|t| **t >= from).count()).unwrap_or(u32::MAX)
    }
}

impl Turn {
    /// Skill calls that are reserved for the sub-agents, plus those that the main agent has running or that wait for a
    /// hook.
    fn calls_under_way(&self) -> u32 {
        let own = u32::try_from(self.main.awaited_skills().count()).unwrap_or(u32::MAX);
        self.agents.plan.calls_granted().saturating_add(own)
    }
}

pub(in crate::turn) fn window_start(at: Micros, limits: &TurnLimits) -> Micros {
    at.plus_ms(i64::try_from(limits.window_ms).unwrap_or(i64::MAX).saturating_neg())
}
