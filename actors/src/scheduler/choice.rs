//! Why a round was next: recorded with the round if other tasks waited for the same backend.

use annie_core::{
    event::{EventBody, Priority},
    queue::Rank,
};

/// The Scheduler's choice of a round.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RoundChoice {
    /// The backend.
    pub backend: String,
    /// The class after aging.
    pub effective: f64,
    /// How long the round waited, in milliseconds.
    pub waited_ms: u64,
    /// The reason.
    pub why: String,
    /// The number of tasks that wait for the backend and were passed over.
    pub others: usize,
    /// The class and the effective class of the task that comes next. Its id is not recorded, because it may be another user's.
    pub next: Option<(Priority, f64)>,
}

impl RoundChoice {
    /// The choice, if there were other tasks to choose from.
    pub fn among(
        others: usize,
        next: Option<&Rank>,
        (effective, waited_ms, why): (f64, u64, String),
    ) -> Option<Box<Self>> {
        let next = next.map(|rank| (rank.class, rank.effective));
        let choice = Self { backend: String::new(), effective, waited_ms, why, others, next };
        (others > 0).then(|| Box::new(choice))
    }

    /// The event that records the choice. No state depends on it.
    pub fn event(&self, round: u32) -> EventBody {
        let Self { backend, effective, waited_ms, why, others, next } = self;
        let then = next.map(|(class, effective)| {
            format!("a task of class {}, effective class {effective:.2}, which is next", class.as_str())
        });
        let rest = format!("{others} tasks that wait for {backend}");
        EventBody::Decided {
            component: "scheduler".to_owned(),
            decision: format!("round {round} runs on {backend} before {others} waiting tasks"),
            reasoning: format!("{why}; effective class {effective:.2} after {waited_ms} ms of waiting"),
            alternatives: then.into_iter().chain([rest]).collect(),
            hook: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_choice_is_recorded_only_among_alternatives() {
        let reason = || (1.5, 40, "in the order of classes".to_owned());
        assert_eq!(RoundChoice::among(0, None, reason()), None);
        let mut choice = RoundChoice::among(2, None, reason()).expect("a choice");
        "gpu".clone_into(&mut choice.backend);
        choice.next = Some((Priority::Low, 2.25));
        let EventBody::Decided { component, decision, reasoning, alternatives, hook } = choice.event(3) else {
            panic!("a decision")
        };
        assert_eq!(
            (component.as_str(), decision.as_str()),
            ("scheduler", "round 3 runs on gpu before 2 waiting tasks")
        );
        assert_eq!(reasoning, "in the order of classes; effective class 1.50 after 40 ms of waiting");
        assert_eq!(alternatives[0], "a task of class low, effective class 2.25, which is next");
        assert!(hook.is_none());
    }
}
