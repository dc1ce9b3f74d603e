//! Deferral: turns that wait until a later time while other turns go first.

use serde::{Deserialize, Serialize};

use super::{Clock, Now};
use crate::{
    event::EventBody,
    ids::TaskId,
    time::Micros,
    turn::conversation::{Conversation, Turn},
};

/// The deferral of a turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deferral {
    /// When the turn resumes; other turns go first until then.
    pub until: Option<Micros>,
    /// How often the turn was deferred.
    pub count: u32,
    /// The turn must be deferred, and the event is not recorded yet.
    pub(in crate::turn) is_due: bool,
    /// The turn was resumed before `until`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(in crate::turn) is_lifted: bool,
    /// The turn was deferred because its model failed, and resumes as soon as the model answers again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub after_failure: bool,
}

impl Conversation {
    /// Defers a turn. Messages that steer it and that its model has not seen are not deferred with it.
    pub(in crate::turn) fn defer(&mut self, task: TaskId, until: Micros, after_failure: bool) {
        let mut is_deferred = false;
        self.in_turn(task, |turn, now| is_deferred = turn.defer_until(until, after_failure, now.at));
        if is_deferred {
            self.return_unseen_steering(task);
            self.start_clocks();
        }
    }
}

impl Turn {
    /// Defers the turn. Returns false if it is deferred until this time already.
    fn defer_until(&mut self, until: Micros, after_failure: bool, at: Micros) -> bool {
        // A deferral that is due is carried out even if it ends at the same time as the one before.
        if self.deferral.until == Some(until) && !self.deferral.is_due {
            return false;
        }
        let count = self.deferral.count.saturating_add(u32::from(until > at));
        self.deferral = Deferral { until: Some(until), count, is_due: false, is_lifted: false, after_failure };
        self.clock = Clock::starting(until);
        self.control.is_detached = true;
        true
    }

    pub(in crate::turn) fn defer(&self, now: Now, wait_ms: u64, reason: &str, after_failure: bool) -> EventBody {
        let until = now.at.later_ms(wait_ms);
        EventBody::Deferred { until, reason: reason.to_owned(), after_failure }
    }
}
