//! A failing run is made smaller: fewer faults, fewer steps, and still the same is wrong.

use std::collections::BTreeSet;

use super::run::{Order, Report, run};

/// Runs that making it smaller may take.
const RUNS_MAX: u32 = 150;

/// Makes a failing run smaller.
pub fn shrink(order: &Order) -> (Order, Report) {
    let mut best = (order.clone(), run(order));
    let mut runs = 0;
    // First the very faults that struck instead of the chance that chose them.
    let chosen: BTreeSet<(String, u64)> = best.1.strikes.iter().map(|s| (s.site.clone(), s.nth)).collect();
    attempt(&mut best, &mut runs, |order| order.plan.only = Some(chosen.clone()));
    let mut share = 2;
    loop {
        let before = size(&best.1);
        let faults: Vec<(String, u64)> = best.0.plan.only.iter().flatten().cloned().collect();
        for part in faults.chunks(faults.len().div_ceil(share).max(1)) {
            attempt(&mut best, &mut runs, |order| {
                if let Some(only) = &mut order.plan.only {
                    only.retain(|fault| !part.contains(fault));
                }
            });
        }
        let steps: Vec<u64> = best.1.steps.iter().map(|step| step.id).collect();
        for part in steps.chunks(steps.len().div_ceil(share).max(1)) {
            attempt(&mut best, &mut runs, |order| order.without.extend(part));
        }
        let is_finest = share >= faults.len().max(steps.len());
        if runs >= RUNS_MAX || is_finest && size(&best.1) == before {
            return best;
        }
        share = (share * 2).min(faults.len().max(steps.len()).max(2));
    }
}

fn size(report: &Report) -> usize {
    report.strikes.len() + report.steps.len()
}

fn attempt(best: &mut (Order, Report), runs: &mut u32, change: impl FnOnce(&mut Order)) {
    let kinds = best.1.kinds();
    if *runs >= RUNS_MAX {
        return;
    }
    *runs += 1;
    let mut order = best.0.clone();
    change(&mut order);
    let report = run(&order);
    if report.kinds().iter().any(|kind| kinds.contains(kind)) {
        *best = (order, report);
    }
}
