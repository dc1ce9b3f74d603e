//! Restart budget: how often a child may die in a sliding window, with a back-off that grows while deaths come close
//! together.

use std::collections::VecDeque;

use annie_core::time::Micros;
use serde::{Deserialize, Serialize};

/// The deaths allowed within a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BudgetLimits {
    /// Restarts allowed within the window; one more death uses the budget up.
    pub restarts_max: u32,
    /// The length of the window, in milliseconds.
    pub window_ms: u64,
}

/// The restart budget of one child, or of all children that share it.
#[derive(Debug, Clone)]
pub struct Budget {
    limits: BudgetLimits,
    deaths: VecDeque<Micros>,
}

/// The longest wait before a restart, in milliseconds.
const BACKOFF_MS_MAX: u64 = 30_000;

impl Budget {
    /// A full budget.
    #[must_use]
    pub const fn new(limits: BudgetLimits) -> Self {
        Self { limits, deaths: VecDeque::new() }
    }

    /// Notes a death. Returns how long to wait before the restart, in milliseconds, or `None` if the budget is used up.
    pub fn died(&mut self, now: Micros) -> Option<u64> {
        self.forget_old(now);
        self.deaths.push_back(now);
        let deaths = self.deaths.len();
        if deaths > self.limits.restarts_max as usize {
            return None;
        }
        // The first restart is at once; then 50 ms, 100 ms, 200 ms …
        Some(match deaths {
            1 => 0,
            n => (50_u64 << (n - 2).min(20)).min(BACKOFF_MS_MAX),
        })
    }

    /// Forgets all deaths: the budget is whole again.
    pub fn reset(&mut self) {
        self.deaths.clear();
    }

    /// Whether the budget is used up, by the deaths within the window that ends now.
    pub fn is_used_up(&mut self, now: Micros) -> bool {
        self.forget_old(now);
        self.deaths.len() > self.limits.restarts_max as usize
    }

    fn forget_old(&mut self, now: Micros) {
        let from = now.plus_ms(-i64::try_from(self.limits.window_ms).unwrap_or(i64::MAX));
        while self.deaths.front().is_some_and(|t| *t <= from) {
            self.deaths.pop_front();
        }
    }

    /// Restarts left at the last death noted.
    #[must_use]
    pub fn left(&self) -> u32 {
        self.limits.restarts_max.saturating_sub(u32::try_from(self.deaths.len()).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_backs_off_for_close_deaths_until_used_up() {
        let mut budget = Budget::new(BudgetLimits { restarts_max: 3, window_ms: 1_000 });
        assert_eq!(budget.died(Micros(0)), Some(0));
        assert_eq!(budget.died(Micros(1)), Some(50));
        assert_eq!(budget.died(Micros(2)), Some(100));
        assert_eq!(budget.died(Micros(3)), None);
    }

    #[test]
    fn budget_forgets_deaths_outside_window() {
        let mut budget = Budget::new(BudgetLimits { restarts_max: 1, window_ms: 1_000 });
        assert_eq!(budget.died(Micros(0)), Some(0));
        assert_eq!(budget.died(Micros(0).plus_ms(1_000)), Some(0));
        assert_eq!(budget.died(Micros(0).plus_ms(1_500)), None);
    }

    #[test]
    fn budget_that_is_reset_is_whole_again() {
        let mut budget = Budget::new(BudgetLimits { restarts_max: 1, window_ms: 1_000 });
        assert_eq!((budget.died(Micros(0)), budget.died(Micros(1))), (Some(0), None));
        budget.reset();
        assert_eq!((budget.left(), budget.died(Micros(2))), (1, Some(0)));
    }

    #[test]
    fn budget_query_does_not_use_it_up() {
        let mut budget = Budget::new(BudgetLimits { restarts_max: 1, window_ms: 1_000 });
        assert_eq!((budget.died(Micros(0)), budget.died(Micros(0))), (Some(0), None));
        assert!((0..100).all(|n| budget.is_used_up(Micros(0).plus_ms(n * 9))));
        assert!(!budget.is_used_up(Micros(0).plus_ms(1_000)));
    }
}
