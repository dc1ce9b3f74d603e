//! Rate limit of steering messages: one per conversation in 2 s, because each costs a round.

use std::collections::HashMap;

use annie_core::{
    ids::{ConversationId, TaskId, UserId},
    time::Micros,
};

use super::{messages::Steering, task_table::TaskTable};

/// The shortest time between two messages that steer a conversation, in milliseconds.
const STEER_MS_MIN: u64 = 2_000;
/// Conversations that are remembered.
const STEERS_MAX: usize = 10_000;

/// When conversations were last steered.
#[derive(Debug, Default)]
pub(super) struct Steers(HashMap<ConversationId, Micros>);

impl Steers {
    /// Whether a message may steer a conversation now; if not, the milliseconds after which to ask again.
    pub fn steer(
        &mut self,
        table: &mut TaskTable,
        conversation: ConversationId,
        task: TaskId,
        user: UserId,
        now: Micros,
    ) -> Result<Steering, u64> {
        if !table.works_on(conversation, &user) {
            return Ok(Steering::OwnTurn);
        }
        self.admit(conversation, now)?;
        table.enter_unqueued(task, user, now);
        Ok(Steering::Joins)
    }

    /// Whether the limit admits one more message now; if not, the milliseconds after which it does.
    fn admit(&mut self, conversation: ConversationId, now: Micros) -> Result<(), u64> {
        let left_ms = |at: Micros| if at > now { 0 } else { STEER_MS_MIN.saturating_sub(now.since_ms(at)) };
        if let Some(wait_ms) = self.0.get(&conversation).map(|at| left_ms(*at)).filter(|ms| *ms > 0) {
            return Err(wait_ms);
        }
        if self.0.len() >= STEERS_MAX {
            self.0.retain(|_, at| left_ms(*at) > 0);
        }
        if self.0.len() >= STEERS_MAX {
            return Err(STEER_MS_MIN);
        }
        self.0.insert(conversation, now);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conversation(n: usize) -> ConversationId {
        format!("conv_{n:032x}").parse().expect("an id")
    }

    fn at_ms(ms: i64) -> Micros {
        Micros(0).plus_ms(ms)
    }

    #[test]
    fn steers_admit_one_message_per_conversation_in_two_seconds() {
        let mut steers = Steers::default();
        assert_eq!(steers.admit(conversation(1), at_ms(0)), Ok(()));
        assert_eq!(steers.admit(conversation(1), at_ms(500)), Err(1_500));
        assert_eq!(steers.admit(conversation(2), at_ms(500)), Ok(()));
        assert_eq!(steers.admit(conversation(1), at_ms(2_000)), Ok(()));
    }

    #[test]
    fn steers_remember_a_limited_number_of_conversations() {
        let mut steers = Steers::default();
        for n in 0..STEERS_MAX {
            assert_eq!(steers.admit(conversation(n), at_ms(0)), Ok(()));
        }
        assert_eq!(steers.admit(conversation(STEERS_MAX), at_ms(1)), Err(STEER_MS_MIN));
        assert_eq!(steers.admit(conversation(STEERS_MAX), at_ms(2_000)), Ok(()));
        assert_eq!(steers.0.len(), 1);
    }
}
