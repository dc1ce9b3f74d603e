//! Which backend of its route a round waits for (S3 10.4, 10.5), and what moves it to another one.

use annie_core::{event::Priority, route::Shut, time::Micros};

use super::{
    NoPermit,
    desk::{Desk, Entry},
    leases::Stance,
};

/// What a backend took when it was last looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Usable {
    pub is_up: bool,
    pub is_closed: bool,
    /// Its window, for what is urgent.
    shut_urgent: Option<Shut>,
    /// Its window, for everything else.
    shut_others: Option<Shut>,
    down_until: Option<Micros>,
}

impl Usable {
    pub fn is_shut_for(&self, class: Priority) -> bool {
        if class <= Priority::High { self.shut_urgent.is_some() } else { self.shut_others.is_some() }
    }

    /// When it changes by itself.
    pub fn next_change(&self) -> Option<Micros> {
        let shut = |shut: Option<Shut>| shut.map(|s| s.until);
        [shut(self.shut_urgent), shut(self.shut_others), self.down_until].into_iter().flatten().min()
    }

    /// Whether it takes anything that it did not, or no longer takes what it did.
    fn differs(&self, before: &Self) -> bool {
        let what = |u: &Self| (u.is_up, u.is_closed, u.shut_urgent.is_some(), u.shut_others.is_some());
        what(self) != what(before)
    }
}

impl Desk {
    /// The backends of a route that exist.
    pub fn route(&self, names: &[String]) -> Result<Vec<usize>, NoPermit> {
        if names.is_empty() && self.leases.len() > 0 {
            return Ok(vec![0]);
        }
        let found: Vec<usize> = names.iter().filter_map(|name| self.leases.find(name)).collect();
        if found.is_empty() { Err(NoPermit::UnknownBackend(names.to_vec())) } else { Ok(found) }
    }

    /// The first that can take it, busy or not. If none can: the first that is up, to wait there. If none is up the first is
    /// tried all the same, because a visible failure beats silence.
    pub fn pick(&self, route: &[usize], class: Priority, now: Micros) -> usize {
        let stances: Vec<(usize, Stance)> = route.iter().map(|n| (*n, self.leases.stance(*n, class, now))).collect();
        let find = |fits: fn(&Stance) -> bool| stances.iter().find(|(_, stance)| fits(stance));
        let chosen = find(Stance::takes).or_else(|| find(|s| s.is_up)).or_else(|| find(|s| !s.waits()));
        chosen.or(stances.first()).map_or(0, |(n, _)| *n)
    }

    /// Looks how a backend is; if that has changed, everybody whom it concerns is put where they belong now.
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
        let is_changed = usable.differs(seen);
        if usable.is_up != seen.is_up {
            self.leases.publish_up(n);
        }
        *seen = usable;
        if is_changed {
            // Those who wait here, and those who wait elsewhere and could come here.
            let concerned = |e: &Entry| e.tickets.iter().any(|t| t.at == n || t.route.contains(&n));
            for task in self.in_order(concerned) {
                self.settle(task, now);
            }
        }
        is_changed
    }
}
