//! Reduces a failing run: fewer faults and fewer steps, with the same kind of failure.

use annie_core::faults::FaultSpec;

use super::run::{Planned, Report, run};

/// Most runs that a reduction may take.
const RUNS_MAX: u32 = 150;

/// Reduces a failing run.
pub fn shrink(planned: &Planned) -> (Planned, Report) {
    let mut best = (planned.clone(), run(planned));
    let mut runs = 0;
    // The faults that were injected replace the chance that chose them.
    let chosen: Vec<FaultSpec> = best.1.fault_at.iter().map(|injection| injection.spec.clone()).collect();
    attempt(&mut best, &mut runs, |planned| planned.plan.only = Some(chosen.clone()));
    let mut share = 2;
    loop {
        let before = size(&best.1);
        let faults: Vec<FaultSpec> = best.0.plan.only.iter().flatten().cloned().collect();
        for part in faults.chunks(faults.len().div_ceil(share).max(1)) {
            attempt(&mut best, &mut runs, |planned| {
                if let Some(only) = &mut planned.plan.only {
                    only.retain(|fault| !part.contains(fault));
                }
            });
        }
        let steps: Vec<u64> = best.1.steps.iter().map(|step| step.id).collect();
        for part in steps.chunks(steps.len().div_ceil(share).max(1)) {
            attempt(&mut best, &mut runs, |planned| planned.without.extend(part));
        }
        let is_finest = share >= faults.len().max(steps.len());
        if runs >= RUNS_MAX || is_finest && size(&best.1) == before {
            return best;
        }
        share = (share * 2).min(faults.len().max(steps.len()).max(2));
    }
}

fn size(report: &Report) -> usize {
    report.fault_at.len() + report.steps.len()
}

fn attempt(best: &mut (Planned, Report), runs: &mut u32, change: impl FnOnce(&mut Planned)) {
    let kinds = best.1.kinds();
    if *runs >= RUNS_MAX {
        return;
    }
    *runs += 1;
    let mut planned = best.0.clone();
    change(&mut planned);
    let report = run(&planned);
    if report.kinds().iter().any(|kind| kinds.contains(kind)) {
        *best = (planned, report);
    }
}
