//! Hooks outside the kernel that failed lately. A hook that fails again and again for a user is not asked for this user for a while,
//! so that no turn waits for it. Messages of one user cannot disable the hook for others. The state is in memory: after a restart
//! each hook is asked again.

use std::collections::BTreeMap;

use annie_core::{
    breaker::{Admission, BreakerLimits, BreakerRow, BreakerState},
    hooks::OnFailure,
    ids::UserId,
    time::Micros,
};
use parking_lot::Mutex;

/// When a hook is disabled, and for how long: as the breaker of a skill by default.
const LIMITS: BreakerLimits = BreakerLimits { failures_max: 5, open_ms: 60_000 };

/// The most breakers that are kept. Beyond that, those of hooks that are not disabled are forgotten.
const KEPT_MAX: usize = 10_000;
/// After this time without a further failure a disabled hook is forgotten, in milliseconds: its user has not asked since.
const FORGOTTEN_MS: u64 = 10 * LIMITS.open_ms;

/// A hook and the user about whose turn it is asked.
type Asked = (String, UserId);

/// The hooks that failed lately, each with its breakers.
#[derive(Default)]
pub(crate) struct HookBreakers(Mutex<BTreeMap<Asked, BreakerRow>>);

impl HookBreakers {
    /// Whether the hook may be asked, and whether this is the probe after it was disabled.
    pub fn admit(&self, asked: &Asked, now: Micros) -> Result<bool, String> {
        let mut rows = self.0.lock();
        let Some(row) = rows.get_mut(asked) else { return Ok(false) };
        match row.admit(&LIMITS, now).0 {
            Admission::Pass => Ok(false),
            Admission::Probe => Ok(true),
            Admission::Refuse { retry_after_ms } => Err(format!(
                "it is disabled after {} failures in a row, and is asked again in {} s",
                LIMITS.failures_max,
                retry_after_ms.div_ceil(1_000)
            )),
        }
    }

    /// Records the end of an admitted question.
    pub fn record(&self, asked: &Asked, is_ok: bool, is_probe: bool, now: Micros) {
        let mut rows = self.0.lock();
        if is_ok {
            if let Some(row) = rows.get_mut(asked)
                && row.succeeded(is_probe)
                && row.state == BreakerState::Closed
            {
                rows.remove(asked);
            }
            return;
        }
        if rows.len() >= KEPT_MAX {
            rows.retain(|_, row| is_disabled(row, now));
        }
        let row = rows.entry(asked.clone()).or_default();
        if row.failed(&LIMITS, is_probe, now) && row.state == BreakerState::Open {
            let (hook, user) = asked;
            tracing::warn!(hook, %user, "the hook is disabled for this user, because it failed again and again");
        }
    }

    /// The probe of a disabled hook.
    pub fn probe<'a>(&'a self, asked: &'a Asked) -> Probe<'a> {
        Probe { breakers: self, asked }
    }

    /// The disabled hooks, for people: since when, for how many users, and what that means. A hook that is gone refuses what still
    /// waits for it.
    pub fn disabled(&self, now: Micros, on_failure: impl Fn(&str) -> OnFailure) -> Vec<String> {
        let mut since: BTreeMap<String, (Micros, usize)> = BTreeMap::new();
        for ((hook, _), row) in self.0.lock().iter().filter(|(_, row)| is_disabled(row, now)) {
            let (first, users) = since.entry(hook.clone()).or_insert((row.opened_at, 0));
            (*first, *users) = ((*first).min(row.opened_at), *users + 1);
        }
        let disabled = since.into_iter();
        disabled
            .map(|(hook, (opened_at, users))| {
                let meanwhile = match on_failure(&hook) {
                    OnFailure::Refuse => "refuses everything that it would decide about",
                    OnFailure::Continue => "lets everything through that it would decide about",
                };
                let users = if users == 1 { "1 user".to_owned() } else { format!("{users} users") };
                format!(
                    "hook {hook:?} is disabled since {opened_at} for {users} after {} failures in a row; it is asked again after \
                     {} s, and until then its on_failure {meanwhile}",
                    LIMITS.failures_max,
                    LIMITS.open_ms / 1_000
                )
            })
            .collect()
    }
}

fn is_disabled(row: &BreakerRow, now: Micros) -> bool {
    row.state != BreakerState::Closed && now.since_ms(row.opened_at) < FORGOTTEN_MS
}

/// The question that decides whether a disabled hook is asked again. If it is dropped with its turn, the next one decides.
pub(crate) struct Probe<'a> {
    breakers: &'a HookBreakers,
    asked: &'a Asked,
}

impl Drop for Probe<'_> {
    fn drop(&mut self) {
        // After an answer the breaker is no longer half-open, and this changes nothing.
        if let Some(row) = self.breakers.0.lock().get_mut(self.asked) {
            row.probe_lost();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(user: &str) -> Asked {
        ("rules".to_owned(), UserId::new(user).expect("an id"))
    }

    #[test]
    fn hook_that_fails_for_one_user_is_asked_for_others() {
        let (breakers, at) = (HookBreakers::default(), Micros(1));
        for _ in 0..LIMITS.failures_max {
            assert_eq!(breakers.admit(&of("ann"), at), Ok(false));
            breakers.record(&of("ann"), false, false, at);
        }
        assert!(breakers.admit(&of("ann"), at).is_err());
        assert_eq!(breakers.admit(&of("bob"), at), Ok(false));
        let shown = breakers.disabled(at, |_| OnFailure::Continue);
        assert!(shown.len() == 1 && shown[0].contains("for 1 user after 5 failures"), "{shown:?}");
        let later = at.plus_ms(i64::try_from(FORGOTTEN_MS).expect("small"));
        assert_eq!(breakers.disabled(later, |_| OnFailure::Continue), [""; 0], "its user has not asked it since");
    }

    #[test]
    fn hook_failures_of_many_users_take_bounded_space() {
        let breakers = HookBreakers::default();
        for n in 0..2 * KEPT_MAX {
            breakers.record(&of(&format!("user {n}")), false, false, Micros(1));
        }
        assert!(breakers.0.lock().len() <= KEPT_MAX);
    }
}
