//! From candidates to the one that starts now, or the one to wait for (S3 10.4, 10.5).

use super::choose::Route;
use crate::time::Micros;

/// Whether a backend could begin a round of this request's class now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// It could.
    Free,
    /// Its slots are taken or its gate is closed: nobody knows for how long.
    Busy,
    /// Its window is shut, or it is down: not before then.
    Shut {
        /// When to ask again.
        until: Micros,
    },
}

/// What to do with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pick<'r> {
    /// Begin here.
    Start {
        /// The backend.
        backend: &'r str,
    },
    /// Nobody is ready: queue here.
    Wait {
        /// The backend.
        backend: &'r str,
        /// When it can begin at the earliest, where that is known.
        until: Option<Micros>,
    },
}

/// Takes the first candidate that is ready. If none is: the first that is only busy, or the one that opens first.
#[must_use]
pub fn pick<'r>(route: &'r Route, readiness: impl Fn(&str) -> Readiness) -> Pick<'r> {
    let states: Vec<(&str, Readiness)> = route.candidates.iter().map(|n| (n.as_str(), readiness(n))).collect();
    if let Some((backend, _)) = states.iter().find(|(_, r)| *r == Readiness::Free) {
        return Pick::Start { backend };
    }
    if let Some((backend, _)) = states.iter().find(|(_, r)| *r == Readiness::Busy) {
        return Pick::Wait { backend, until: None };
    }
    let opens = |r: &Readiness| if let Readiness::Shut { until } = r { Some(*until) } else { None };
    let first = states.iter().filter_map(|(name, r)| Some((*name, opens(r)?))).min_by_key(|(_, until)| *until);
    let (backend, until) = first.map_or((route.primary(), None), |(name, until)| (name, Some(until)));
    Pick::Wait { backend, until }
}
