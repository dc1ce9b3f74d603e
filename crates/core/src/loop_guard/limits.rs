//! When the loop guard speaks up: two presets, each number settable.

use serde::{Deserialize, Serialize};

/// Thresholds, in calls of the remembered window. The default is the preset [`LoopGuardLimits::annie`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoopGuardLimits {
    /// Whether it watches at all.
    pub enabled: bool,
    /// How many calls are remembered, at most [`LoopGuardLimits::WINDOW_CALLS_MAX`].
    pub window_calls: u32,
    /// So many repetitions earn a warning; the call still runs.
    pub warning_calls: u32,
    /// So many repetitions without progress are vetoed.
    pub critical_calls: u32,
    /// So many calls in a row of a tool that does not exist are vetoed.
    pub unknown_tool_calls: u32,
    /// So many repetitions without progress are vetoed whatever the detectors below say.
    pub breaker_calls: u32,
    /// After so many vetoes the run ends: a model that ignored them goes on in circles, and each round costs time and money.
    pub vetoes_max: u32,
    /// Which patterns are looked for.
    pub detectors: LoopDetectors,
}

/// The detectors that can be switched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoopDetectors {
    /// The same call again and again.
    pub generic_repeat: bool,
    /// Asking for a status that does not change.
    pub known_poll_no_progress: bool,
    /// Two calls in turn, with the same two results.
    pub ping_pong: bool,
    /// The same few variants of one call in turn, all with one result: a warning only.
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
    /// The longest window.
    pub const WINDOW_CALLS_MAX: u32 = 1_000;

    /// For short turns: window 20, warn at 3, block at 5 [S3 4.9].
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

    /// For long autonomous runs: window 30, warn at 10, block at 20, circuit breaker at 30, as in OpenClaw's
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

    /// Numbers that can work together: zero means the default, each step is above the one before it, and the window is
    /// long enough for every threshold to be reached.
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
