//! Invariants that must hold after every step of every scenario.

use std::collections::BTreeSet;

use super::world::{World, timeless};
use crate::{
    event::{EventBody, Priority},
    plan::NodeState,
    turn::{Lane, Pending, Turn},
};

impl World {
    pub fn check(&self) {
        if self.fast {
            return;
        }
        if !self.conv.is_idle() {
            assert!(
                !self.conv.outstanding(self.now).is_empty() || self.conv.next_due(self.now).is_some(),
                "a turn has no outstanding work: {:?}",
                self.conv
            );
        }
        assert_eq!(self.conv.decide(), None, "decisions must be stored together with their cause");
        for ((_, agent), turn) in &self.agents {
            assert!(!turn.outstanding().is_empty(), "{agent} has no outstanding work: {:?}", turn.run.phase);
        }
        if self.agents.is_empty() {
            assert_eq!(timeless(&self.conv), timeless(&self.expected_from_log()), "the log gives another state");
        }
        self.check_finals();
        self.check_lanes();
        for turn in &self.conv.turns {
            self.check_limits(turn);
        }
    }

    /// No message that may begin waits behind a turn of another lane, and messages of a lane begin in order of acceptance.
    fn check_lanes(&self) {
        let beginnings = self.beginnings();
        for lane in Lane::ALL {
            let fits = |class: Priority| Lane::of(class) == lane;
            let is_held_up = self.conv.turns.iter().any(|t| !t.control.is_detached && fits(t.inbound.priority));
            let due = |p: &&Pending| !p.is_suspended && p.not_before().is_none_or(|at| at <= self.now);
            let next = self.conv.inbox.iter().filter(due).find(|p| fits(p.inbound.priority)).map(|p| p.task);
            let begins = beginnings
                .iter()
                .copied()
                .find(|task| self.conv.inbox.iter().any(|p| p.task == *task && fits(p.inbound.priority)));
            assert_eq!(begins, next.filter(|_| !is_held_up), "{lane:?}");
        }
        assert!(self.conv.inbox.iter().map(|p| p.seq).is_sorted());
    }

    fn check_finals(&self) {
        let mut ended = BTreeSet::new();
        for event in &self.log {
            if event.body.is_final() {
                assert!(ended.insert(event.task), "a second final event: {event:?}");
            }
        }
        for event in &self.log {
            if matches!(event.body, EventBody::Received(_)) {
                let open = self.conv.is_open(event.task) || self.undelivered.iter().any(|e| e.task == event.task);
                assert!(ended.contains(&event.task) != open, "{} is lost or doubled", event.task);
            }
        }
    }

    fn check_limits(&self, turn: &Turn) {
        assert!(turn.agents.plan.calls_committed() <= turn.limits.skill_calls_max);
        assert!(self.conv.window_used(&turn.limits) <= turn.limits.window_calls_max);
        assert!(turn.main.calls_used <= turn.main.calls_max);
        for ((_, agent), sub) in self.agents.iter().filter(|((task, _), _)| *task == turn.task) {
            assert!(sub.run.calls_used <= sub.calls_granted, "{agent} used more than it was granted");
            let node = turn.agents.plan.node(agent).expect("a running agent is in the plan");
            assert!(matches!(node.state, NodeState::Running { .. }));
        }
    }
}
