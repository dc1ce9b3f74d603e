//! Hooks outside the kernel that failed lately. A hook that fails again and again is not asked for a while, so that no turn waits
//! for it. The state is in memory: after a restart each hook is asked again.

use std::collections::BTreeMap;

use annie_core::{
    breaker::{Admission, BreakerLimits, BreakerRow, BreakerState},
    hooks::OnFailure,
    time::Micros,
};
use parking_lot::Mutex;

/// When a hook is disabled, and for how long: as the breaker of a skill by default.
const LIMITS: BreakerLimits = BreakerLimits { failures_max: 5, open_ms: 60_000 };

/// The hooks that failed lately, each with its breaker.
#[derive(Default)]
pub(crate) struct HookBreakers(Mutex<BTreeMap<String, BreakerRow>>);

impl HookBreakers {
    /// Whether the hook may be asked, and whether this is the probe after it was disabled.
    pub fn admit(&self, hook: &str, now: Micros) -> Result<bool, String> {
        let mut rows = self.0.lock();
        let Some(row) = rows.get_mut(hook) else { return Ok(false) };
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
    pub fn record(&self, hook: &str, is_ok: bool, is_probe: bool, now: Micros) {
        let mut rows = self.0.lock();
        if is_ok {
            if let Some(row) = rows.get_mut(hook)
                && row.succeeded(is_probe)
                && row.state == BreakerState::Closed
            {
                rows.remove(hook);
            }
            return;
        }
        let row = rows.entry(hook.to_owned()).or_default();
        if row.failed(&LIMITS, is_probe, now) && row.state == BreakerState::Open {
            tracing::warn!(hook, "the hook is disabled, because it failed again and again");
        }
    }

    /// The probe of a disabled hook.
    pub fn probe<'a>(&'a self, hook: &'a str) -> Probe<'a> {
        Probe { breakers: self, hook }
    }

    /// The disabled hooks, for people: since when, and what that means. A hook that is gone refuses what still waits for it.
    pub fn disabled(&self, on_failure: impl Fn(&str) -> OnFailure) -> Vec<String> {
        let rows = self.0.lock();
        let disabled = rows.iter().filter(|(_, row)| row.state != BreakerState::Closed);
        disabled
            .map(|(hook, row)| {
                let meanwhile = match on_failure(hook) {
                    OnFailure::Refuse => "refuses everything that it would decide about",
                    OnFailure::Continue => "lets everything through that it would decide about",
                };
                format!(
                    "hook {hook:?} is disabled since {} after {} failures in a row; it is asked again after {} s, and until then \
                     its on_failure {meanwhile}",
                    row.opened_at,
                    LIMITS.failures_max,
                    LIMITS.open_ms / 1_000
                )
            })
            .collect()
    }
}

/// The question that decides whether a disabled hook is asked again. If it is dropped with its turn, the next one decides.
pub(crate) struct Probe<'a> {
    breakers: &'a HookBreakers,
    hook: &'a str,
}

impl Drop for Probe<'_> {
    fn drop(&mut self) {
        // After an answer the breaker is no longer half-open, and this changes nothing.
        if let Some(row) = self.breakers.0.lock().get_mut(self.hook) {
            row.probe_lost();
        }
    }
}
