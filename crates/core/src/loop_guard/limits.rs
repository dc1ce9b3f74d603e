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
    /// Number of nearly equal calls with one result that causes a warning.
    pub near_warning_calls: u32,
    /// Number of nearly equal calls with one result that causes a veto.
    pub near_critical_calls: u32,
    /// Number of laps of a cycle of three or more calls that causes a warning.
    pub cycle_warning_laps: u32,
    /// Number of laps of a cycle without progress that causes a veto.
    pub cycle_critical_laps: u32,
    /// Number of equal calls in a row, with nothing between, that causes a veto although their results differ.
    pub changing_calls: u32,
    /// Number of consecutive failures of several skills that causes a warning.
    pub cascade_warning_calls: u32,
    /// Number of consecutive failures of several skills that causes a veto.
    pub cascade_critical_calls: u32,
    /// Number of failures after which the same call is refused, if it certainly fails again.
    pub known_failure_calls: u32,
    /// Number of equal calls with one result, directly after the context was shortened, that ends the run.
    pub compaction_calls: u32,
    /// Number of alternating calls that are a ping-pong at least: two complete laps are four.
    pub ping_pong_calls: u32,
    /// Number of calls of each variant that are argument churn at least.
    pub churn_variant_calls: u32,
    /// Number of calls of the longest cycle that is looked for, 3 to [`LoopGuardLimits::CYCLE_CALLS_MAX`].
    pub cycle_calls_max: u32,
    /// How many of the characters of nearly equal arguments may differ, in percent, 1 to [`LoopGuardLimits::NEAR_PERCENT_MAX`].
    pub near_percent_max: u32,
    /// The skills that ask for the state of something that changes elsewhere, as names or as `domain.*`. Their calls are
    /// never judged. Calls of skills with the usual names of such skills, such as `status`, are free as long as their results
    /// change.
    pub pollers: Vec<String>,
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
    /// Calls of tools that do not exist.
    pub unknown_tool_repeat: bool,
    /// Repetitions without progress, whatever the other detectors find.
    pub global_circuit_breaker: bool,
    /// Three or more calls in a cycle with the same results.
    pub cycle: bool,
    /// Nearly equal calls that all fail or find nothing.
    pub near_identical: bool,
    /// The same call in a row with another result each time.
    pub changing_result: bool,
    /// Failures of several skills in a row.
    pub error_cascade: bool,
    /// The same call after it failed so that it certainly fails again.
    pub known_failure: bool,
    /// The same call and result directly after the context was shortened.
    pub compaction_loop: bool,
}

impl Default for LoopDetectors {
    fn default() -> Self {
        Self {
            generic_repeat: true,
            known_poll_no_progress: true,
            ping_pong: true,
            argument_churn: true,
            unknown_tool_repeat: true,
            global_circuit_breaker: true,
            cycle: true,
            near_identical: true,
            changing_result: true,
            error_cascade: true,
            known_failure: true,
            compaction_loop: true,
        }
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
    /// The shortest cycle, in calls: two calls in a cycle are a ping-pong, one is a repetition.
    pub const CYCLE_CALLS_MIN: u32 = 3;
    /// The longest cycle that can be looked for, in calls.
    pub const CYCLE_CALLS_MAX: u32 = 8;
    /// The most characters that may differ in nearly equal arguments, in percent.
    pub const NEAR_PERCENT_MAX: u32 = 50;

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
            near_warning_calls: 4,
            near_critical_calls: 7,
            cycle_warning_laps: 3,
            cycle_critical_laps: 4,
            changing_calls: 12,
            cascade_warning_calls: 4,
            cascade_critical_calls: 8,
            known_failure_calls: 1,
            compaction_calls: 3,
            ping_pong_calls: 4,
            churn_variant_calls: 3,
            cycle_calls_max: 4,
            near_percent_max: 10,
            pollers: Vec::new(),
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
            near_warning_calls: 10,
            near_critical_calls: 20,
            cycle_warning_laps: 5,
            cycle_critical_laps: 7,
            changing_calls: 40,
            cascade_warning_calls: 10,
            cascade_critical_calls: 20,
            known_failure_calls: 3,
            ..Self::annie()
        }
    }

    /// Whether these are the defaults, which are not stored.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::annie()
    }

    /// Whether calls of a skill are free.
    pub(super) fn is_poller(&self, name: &str) -> bool {
        self.pollers.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(begins) => name.starts_with(begins),
            None => name == pattern,
        })
    }

    /// The pairs of a threshold for warnings and one for vetoes that must be above it, with the names of the latter.
    #[must_use]
    pub const fn pairs(&self) -> [(u32, u32, &'static str); 4] {
        [
            (self.warning_calls, self.critical_calls, "critical_calls"),
            (self.near_warning_calls, self.near_critical_calls, "near_critical_calls"),
            (self.cycle_warning_laps, self.cycle_critical_laps, "cycle_critical_laps"),
            (self.cascade_warning_calls, self.cascade_critical_calls, "cascade_critical_calls"),
        ]
    }

    /// The shortest window in which every threshold can be reached, in calls.
    #[must_use]
    pub fn window_calls_min(&self) -> u32 {
        let cycle = self.cycle_critical_laps.saturating_mul(self.cycle_calls_max);
        [self.breaker_calls, self.unknown_tool_calls, self.near_critical_calls, self.cascade_critical_calls, cycle]
            .into_iter()
            .fold(0, u32::max)
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
        let pairs = [
            (&mut self.near_warning_calls, &mut self.near_critical_calls, default.near_warning_calls),
            (&mut self.cycle_warning_laps, &mut self.cycle_critical_laps, default.cycle_warning_laps),
            (&mut self.cascade_warning_calls, &mut self.cascade_critical_calls, default.cascade_warning_calls),
        ];
        for (warning, critical, usual) in pairs {
            *warning = or(*warning, usual).min(Self::WINDOW_CALLS_MAX / 4 - 1);
            *critical = or(*critical, *warning + 1).clamp(*warning + 1, Self::WINDOW_CALLS_MAX / 4);
        }
        self.changing_calls = or(self.changing_calls, default.changing_calls);
        self.known_failure_calls = or(self.known_failure_calls, default.known_failure_calls);
        self.compaction_calls = or(self.compaction_calls, default.compaction_calls);
        self.ping_pong_calls = or(self.ping_pong_calls, default.ping_pong_calls);
        self.churn_variant_calls = or(self.churn_variant_calls, default.churn_variant_calls);
        // The window must have room for all laps.
        let cycle_max =
            (Self::WINDOW_CALLS_MAX / self.cycle_critical_laps).clamp(Self::CYCLE_CALLS_MIN, Self::CYCLE_CALLS_MAX);
        self.cycle_calls_max =
            or(self.cycle_calls_max, default.cycle_calls_max).clamp(Self::CYCLE_CALLS_MIN, cycle_max);
        self.near_percent_max = or(self.near_percent_max, default.near_percent_max).min(Self::NEAR_PERCENT_MAX);
        self.window_calls = or(self.window_calls, default.window_calls).max(self.window_calls_min());
        self
    }
}
