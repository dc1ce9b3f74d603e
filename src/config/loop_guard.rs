//! `[loop_guard]`: when the loop guard warns and refuses. The detectors are documented in [`annie_core::loop_guard`].

use annie_core::loop_guard::{LoopDetectors, LoopGuardLimits};
use serde::{Deserialize, Serialize};

use super::{settings::Config, typed::KeyError};

/// A set of thresholds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoopGuardPreset {
    /// For short turns: warnings at 3, vetoes at 5.
    #[default]
    Annie,
    /// For long autonomous runs: warnings at 10, vetoes at 20.
    Openclaw,
}

/// `[loop_guard]`. A threshold that is absent is the preset's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LoopGuardSettings {
    /// Whether the guard is active.
    pub enabled: bool,
    /// The preset.
    pub preset: LoopGuardPreset,
    /// See [`LoopGuardLimits::window_calls`].
    pub window_calls: Option<u32>,
    /// See [`LoopGuardLimits::warning_calls`].
    pub warning_calls: Option<u32>,
    /// See [`LoopGuardLimits::critical_calls`].
    pub critical_calls: Option<u32>,
    /// See [`LoopGuardLimits::unknown_tool_calls`].
    pub unknown_tool_calls: Option<u32>,
    /// See [`LoopGuardLimits::breaker_calls`].
    pub breaker_calls: Option<u32>,
    /// See [`LoopGuardLimits::vetoes_max`].
    pub vetoes_max: Option<u32>,
    /// See [`LoopGuardLimits::near_warning_calls`].
    pub near_warning_calls: Option<u32>,
    /// See [`LoopGuardLimits::near_critical_calls`].
    pub near_critical_calls: Option<u32>,
    /// See [`LoopGuardLimits::cycle_warning_laps`].
    pub cycle_warning_laps: Option<u32>,
    /// See [`LoopGuardLimits::cycle_critical_laps`].
    pub cycle_critical_laps: Option<u32>,
    /// See [`LoopGuardLimits::changing_calls`].
    pub changing_calls: Option<u32>,
    /// See [`LoopGuardLimits::cascade_warning_calls`].
    pub cascade_warning_calls: Option<u32>,
    /// See [`LoopGuardLimits::cascade_critical_calls`].
    pub cascade_critical_calls: Option<u32>,
    /// See [`LoopGuardLimits::known_failure_calls`].
    pub known_failure_calls: Option<u32>,
    /// See [`LoopGuardLimits::compaction_calls`].
    pub compaction_calls: Option<u32>,
    /// See [`LoopGuardLimits::ping_pong_calls`].
    pub ping_pong_calls: Option<u32>,
    /// See [`LoopGuardLimits::churn_variant_calls`].
    pub churn_variant_calls: Option<u32>,
    /// See [`LoopGuardLimits::cycle_calls_max`].
    pub cycle_calls_max: Option<u32>,
    /// See [`LoopGuardLimits::near_percent_max`].
    pub near_percent_max: Option<u32>,
    /// See [`LoopGuardLimits::pollers`].
    pub pollers: Vec<String>,
    /// The enabled detectors.
    pub detectors: LoopDetectors,
}

impl Default for LoopGuardSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            preset: LoopGuardPreset::Annie,
            window_calls: None,
            warning_calls: None,
            critical_calls: None,
            unknown_tool_calls: None,
            breaker_calls: None,
            vetoes_max: None,
            near_warning_calls: None,
            near_critical_calls: None,
            cycle_warning_laps: None,
            cycle_critical_laps: None,
            changing_calls: None,
            cascade_warning_calls: None,
            cascade_critical_calls: None,
            known_failure_calls: None,
            compaction_calls: None,
            ping_pong_calls: None,
            churn_variant_calls: None,
            cycle_calls_max: None,
            near_percent_max: None,
            pollers: Vec::new(),
            detectors: LoopDetectors::default(),
        }
    }
}

impl LoopGuardSettings {
    /// The thresholds with the names of their keys, as they are given.
    const fn given(&self) -> [(&'static str, Option<u32>); 19] {
        [
            ("window_calls", self.window_calls),
            ("warning_calls", self.warning_calls),
            ("critical_calls", self.critical_calls),
            ("unknown_tool_calls", self.unknown_tool_calls),
            ("breaker_calls", self.breaker_calls),
            ("vetoes_max", self.vetoes_max),
            ("near_warning_calls", self.near_warning_calls),
            ("near_critical_calls", self.near_critical_calls),
            ("cycle_warning_laps", self.cycle_warning_laps),
            ("cycle_critical_laps", self.cycle_critical_laps),
            ("changing_calls", self.changing_calls),
            ("cascade_warning_calls", self.cascade_warning_calls),
            ("cascade_critical_calls", self.cascade_critical_calls),
            ("known_failure_calls", self.known_failure_calls),
            ("compaction_calls", self.compaction_calls),
            ("ping_pong_calls", self.ping_pong_calls),
            ("churn_variant_calls", self.churn_variant_calls),
            ("cycle_calls_max", self.cycle_calls_max),
            ("near_percent_max", self.near_percent_max),
        ]
    }

    /// The limits of the guard.
    #[must_use]
    pub fn limits(&self) -> LoopGuardLimits {
        let usual = match self.preset {
            LoopGuardPreset::Annie => LoopGuardLimits::annie(),
            LoopGuardPreset::Openclaw => LoopGuardLimits::openclaw(),
        };
        let limits = LoopGuardLimits {
            enabled: self.enabled,
            window_calls: self.window_calls.unwrap_or(usual.window_calls),
            warning_calls: self.warning_calls.unwrap_or(usual.warning_calls),
            critical_calls: self.critical_calls.unwrap_or(usual.critical_calls),
            unknown_tool_calls: self.unknown_tool_calls.unwrap_or(usual.unknown_tool_calls),
            breaker_calls: self.breaker_calls.unwrap_or(usual.breaker_calls),
            vetoes_max: self.vetoes_max.unwrap_or(usual.vetoes_max),
            near_warning_calls: self.near_warning_calls.unwrap_or(usual.near_warning_calls),
            near_critical_calls: self.near_critical_calls.unwrap_or(usual.near_critical_calls),
            cycle_warning_laps: self.cycle_warning_laps.unwrap_or(usual.cycle_warning_laps),
            cycle_critical_laps: self.cycle_critical_laps.unwrap_or(usual.cycle_critical_laps),
            changing_calls: self.changing_calls.unwrap_or(usual.changing_calls),
            cascade_warning_calls: self.cascade_warning_calls.unwrap_or(usual.cascade_warning_calls),
            cascade_critical_calls: self.cascade_critical_calls.unwrap_or(usual.cascade_critical_calls),
            known_failure_calls: self.known_failure_calls.unwrap_or(usual.known_failure_calls),
            compaction_calls: self.compaction_calls.unwrap_or(usual.compaction_calls),
            ping_pong_calls: self.ping_pong_calls.unwrap_or(usual.ping_pong_calls),
            churn_variant_calls: self.churn_variant_calls.unwrap_or(usual.churn_variant_calls),
            cycle_calls_max: self.cycle_calls_max.unwrap_or(usual.cycle_calls_max),
            near_percent_max: self.near_percent_max.unwrap_or(usual.near_percent_max),
            pollers: self.pollers.clone(),
            detectors: self.detectors.clone(),
        };
        // A window that is not given grows with the thresholds.
        let window_calls = match self.window_calls {
            Some(calls) => calls,
            None => limits.window_calls.max(limits.window_calls_min()),
        };
        LoopGuardLimits { window_calls, ..limits }
    }

    fn size_problems(&self) -> Vec<KeyError> {
        let calls_max = LoopGuardLimits::WINDOW_CALLS_MAX;
        let wrong = |(key, value): &(&'static str, Option<u32>)| {
            let value = value.filter(|value| !(1..=calls_max).contains(value))?;
            let what = format!("{value} is not between 1 and {calls_max}");
            Some(KeyError::value(&["loop_guard", key], &what, "leave it out for the value of the preset"))
        };
        self.given().iter().filter_map(wrong).collect()
    }
}

impl Config {
    /// The errors in `[loop_guard]`.
    pub(super) fn loop_guard_problems(&self) -> Vec<KeyError> {
        let mut found = self.loop_guard.size_problems();
        if !found.is_empty() {
            return found;
        }
        let limits = self.loop_guard.limits();
        for (warning, critical, key) in limits.pairs() {
            if critical <= warning {
                let what = format!("{critical} is not more than the {warning} of the warning, which would never come");
                found.push(KeyError::value(&["loop_guard", key], &what, "raise it, or lower the warning"));
            }
        }
        if limits.breaker_calls <= limits.critical_calls {
            let what = format!("{} is not more than critical_calls, {}", limits.breaker_calls, limits.critical_calls);
            found.push(KeyError::value(&["loop_guard", "breaker_calls"], &what, "raise it, or lower critical_calls"));
        }
        let cycles = (LoopGuardLimits::CYCLE_CALLS_MIN, LoopGuardLimits::CYCLE_CALLS_MAX);
        for (key, value, (least, most)) in [
            ("cycle_calls_max", limits.cycle_calls_max, cycles),
            ("near_percent_max", limits.near_percent_max, (1, LoopGuardLimits::NEAR_PERCENT_MAX)),
        ] {
            if !(least..=most).contains(&value) {
                let what = format!("{value} is not between {least} and {most}");
                found.push(KeyError::value(&["loop_guard", key], &what, "leave it out for the value of the preset"));
            }
        }
        let (window_calls, calls_min) = (limits.window_calls, limits.window_calls_min());
        if window_calls < calls_min {
            let what = format!("in {window_calls} calls not every threshold can be reached");
            let fix = format!("give at least {calls_min}, or leave it out");
            found.push(KeyError::value(&["loop_guard", "window_calls"], &what, &fix));
        }
        for (at, pattern) in limits.pollers.iter().enumerate() {
            let name = pattern.strip_suffix('*').unwrap_or(pattern);
            if name.is_empty() || name.contains(['*', ' ']) {
                let what = format!("{pattern:?} is no name of a skill");
                let fix = "write a name, such as builds.status, or all of a domain: builds.*";
                found.push(KeyError::value(&["loop_guard", "pollers", &at.to_string()], &what, fix));
            }
        }
        found
    }
}
