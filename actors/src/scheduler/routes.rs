//! Chooses the backend of its route for which a round waits [S3 10.4] [S3 10.5], and moves the round to another one.

use annie_core::{event::Priority, route::Shut, time::Micros};

use super::{
    NoPermit,
    leases::Stance,
    task_table::{Entry, TaskTable, Ticket},
};

/// The rounds that a backend accepted when its state was last read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Usable {
    pub is_up: bool,
    pub is_closed: bool,
    /// Its rate window, for urgent classes.
    shut_urgent: Option<Shut>,
    /// Its rate window, for all other classes.
    shut_others: Option<Shut>,
    down_until: Option<Micros>,
}

impl Usable {
    pub fn is_shut_for(&self, class: Priority) -> bool {
        if class <= Priority::High { self.shut_urgent.is_some() } else { self.shut_others.is_some() }
    }

    /// The next time at which this changes without an event.
    pub fn next_change(&self) -> Option<Micros> {
        let shut = |shut: Option<Shut>| shut.map(|s| s.until);
        [shut(self.shut_urgent), shut(self.shut_others), self.down_until].into_iter().flatten().min()
    }

    /// Whether the backend accepts rounds that it refused, or refuses rounds that it accepted.
    fn differs(&self, before: &Self) -> bool {
        let accepted = |u: &Self| (u.is_up, u.is_closed, u.shut_urgent.is_some(), u.shut_others.is_some());
        accepted(self) != accepted(before)
    }
}

impl TaskTable {
    /// The backends of a route that exist.
    pub fn route(&self, names: &[String]) -> Result<Vec<usize>, NoPermit> {
        if names.is_empty() && self.leases.len() > 0 {
            return Ok(vec![0]);
        }
        let found: Vec<usize> = names.iter().filter_map(|name| self.leases.find(name)).collect();
        if found.is_empty() { Err(NoPermit::UnknownBackend(names.to_vec())) } else { Ok(found) }
    }

    /// The first backend that accepts the round, busy or not. If none does: the first that is up, to wait there, unless that
    /// wait would be too long. If none is up, the first is tried all the same, because a visible failure beats silence.
    pub fn pick(&self, route: &[usize], class: Priority, now: Micros) -> usize {
        let stances: Vec<(usize, Stance)> = route.iter().map(|n| (*n, self.leases.stance(*n, class, now))).collect();
        let find = |fits: fn(&Stance) -> bool| stances.iter().find(|(_, stance)| fits(stance));
        let chosen = find(Stance::takes)
            .or_else(|| find(|s| s.is_up && !s.is_shut_too_long))
            .or_else(|| find(|s| !s.waits()))
            .or_else(|| find(|s| !s.is_shut_too_long));
        chosen.or(stances.first()).map_or(0, |(n, _)| *n)
    }

    /// Why a round is refused instead of waiting: every backend of its route refuses requests for longer than its class waits.
    fn is_turned_away(&self, route: &[usize], class: Priority, now: Micros) -> Option<NoPermit> {
        let shut = |n: &usize| {
            let stance = self.leases.stance(*n, class, now);
            stance.shut.filter(|_| stance.is_shut_too_long).map(|shut| (shut, *n))
        };
        let shut: Vec<(Shut, usize)> = route.iter().map(shut).collect::<Option<_>>()?;
        let (shut, n) = shut.into_iter().min_by_key(|(shut, _)| shut.until)?;
        Some(NoPermit::Shut { backend: self.leases.name(n).to_owned(), shut })
    }

    /// Answers the tickets whose wait would be too long; the others remain.
    pub fn turn_away(&self, tickets: &mut Vec<Ticket>, class: Priority, now: Micros) {
        for ticket in std::mem::take(tickets) {
            match self.is_turned_away(&ticket.route, class, now) {
                // If the caller has dropped its receiver, the answer is not needed.
                Some(why) => drop(ticket.reply.send(Err(why))),
                None => tickets.push(ticket),
            }
        }
    }

    /// Reads the state of a backend. If it has changed, every task that it concerns moves to the queue where it belongs now.
    pub fn look_at(&mut self, n: usize, now: Micros) -> bool {
        let urgent = self.leases.stance(n, Priority::High, now);
        let others = self.leases.stance(n, Priority::Normal, now);
        let usable = Usable {
            is_up: urgent.is_up,
            is_closed: urgent.is_closed,
            shut_urgent: urgent.shut,
            shut_others: others.shut,
            down_until: self.leases.down_until(n, now),
        };
        let Some(seen) = self.usable.get_mut(n) else { return false };
        // A longer wait may be too long for the tasks that wait already.
        let until = |usable: &Usable| usable.shut_urgent.map(|shut| shut.until);
        let is_changed = usable.differs(seen) || until(&usable) > until(seen);
        if usable.is_up != seen.is_up {
            self.leases.publish_up(n);
        }
        *seen = usable;
        if is_changed {
            // Tasks that wait for this backend, and tasks that wait for another one and could use this one.
            let concerned = |e: &Entry| e.tickets.iter().any(|t| t.at == n || t.route.contains(&n));
            for task in self.in_order(concerned) {
                self.settle(task, now);
            }
        }
        is_changed
    }
}
