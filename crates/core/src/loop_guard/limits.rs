//! Thresholds of the loop guard: two presets, with each value configurable.

use serde::{Deserialize, Serialize};

/// Thresholds, as numbers of calls within the recorded window. The default is the preset [`LoopGuardLimits::annie`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoopGuardLimits {
    /// Whether the guard is active.
    pub enabled: bool,
    /// Number of recorded calls, at most [`LoopGuardLimits::WINDOW_CALLS_MAX`].
    pub window_calls: u32,
    /// Number of repetitions that causes a warning. The call still runs.
    pub warning_calls: u32,
    /// Number of repetitions without progress that causes a veto.
    pub critical_calls: u32,
    /// Number of consecutive calls of a tool that does not exist that causes a veto.
    pub unknown_tool_calls: u32,
    /// Number of repetitions without progress that causes a veto whatever the detectors find.
    pub breaker_calls: u32,
    /// Number of vetoes that ends the run: a model that ignored them would continue to loop, and each round costs time and
    /// money.
    pub vetoes_max: u32,
    /// The enabled detectors.
    pub detectors: LoopDetectors,
}

/// The detectors that can be disabled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoopDetectors {
    /// Repetition of the same call.
    pub generic_repeat: bool,
    /// Polling of an unchanged state.
    pub known_poll_no_progress: bool,
    /// Two alternating calls with the same two results.
    pub ping_pong: bool,
    /// Rotation over a few variants of one call, all with one result. Causes a warning only.
    pub argument_churn: bool,
}

impl Default for LoopDetectors {
    fn default() -> Self {
        Self { generic_repeat: true, known_poll_no_progress: true, ping_pong: true, argument_churn: true }
    }
}

impl Default for LoopGuardLimits {
    fn default() -> Self {
        Self::annie()
    }
}

impl LoopGuardLimits {
    /// Maximum number of recorded calls.
    pub const WINDOW_CALLS_MAX: u32 = 1_000;

    /// Preset for short turns: window 20, warning at 3, veto at 5 [S3 4.9].
    #[must_use]
    pub fn annie() -> Self {
        Self {
            enabled: true,
            window_calls: 20,
            warning_calls: 3,
            critical_calls: 5,
            unknown_tool_calls: 3,
            breaker_calls: 8,
            vetoes_max: 2,
            detectors: LoopDetectors::default(),
        }
    }

    /// Preset for long autonomous runs: window 30, warning at 10, veto at 20, veto of all patterns at 30, as in OpenClaw's
    /// tool-loop detection.
    #[must_use]
    pub fn openclaw() -> Self {
        Self {
            window_calls: 30,
            warning_calls: 10,
            critical_calls: 20,
            unknown_tool_calls: 10,
            breaker_calls: 30,
            ..Self::annie()
        }
    }

    /// Corrects unusable values: zero becomes the default, each threshold is above the one before it, and the window is long
    /// enough for every threshold to be reached.
    #[must_use]
    pub fn corrected(mut self) -> Self {
        let default = Self::annie();
        let or = |value: u32, default: u32| if value == 0 { default } else { value.min(Self::WINDOW_CALLS_MAX) };
        self.warning_calls = or(self.warning_calls, default.warning_calls).min(Self::WINDOW_CALLS_MAX - 2);
        self.critical_calls = or(self.critical_calls, default.critical_calls).min(Self::WINDOW_CALLS_MAX - 1);
        self.unknown_tool_calls = or(self.unknown_tool_calls, default.unknown_tool_calls);
        self.breaker_calls = or(self.breaker_calls, default.breaker_calls);
        self.vetoes_max = or(self.vetoes_max, default.vetoes_max);
        self.critical_calls = self.critical_calls.max(self.warning_calls + 1);
        self.breaker_calls = self.breaker_calls.max(self.critical_calls + 1);
        self.window_calls =
            or(self.window_calls, default.window_calls).max(self.breaker_calls).max(self.unknown_tool_calls);
        self
    }
}
