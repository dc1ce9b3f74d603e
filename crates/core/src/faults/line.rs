//! A list of faults with their counts: which fault takes effect on a pass.

use super::{FaultKind, FaultSpec};
use crate::ports::FaultAction;

/// A fault on a list, with its counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultLine {
    /// The id with which the fault can be cleared.
    pub id: u64,
    /// The specification.
    pub spec: FaultSpec,
    /// How often its place was passed since it was injected.
    pub passed: u64,
    /// How often it was injected.
    pub injected: u64,
    /// Whether it will not be injected again.
    pub ended: bool,
}

/// A fault that takes effect now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Injection {
    /// The effect.
    pub kind: FaultKind,
    /// The duration of the wait, in milliseconds.
    pub wait_ms: u32,
}

impl Injection {
    /// The action of a fault point; [`FaultAction::Pass`] if fault points have no action of this kind.
    #[must_use]
    pub fn action(self) -> FaultAction {
        self.kind.action(self.wait_ms).unwrap_or(FaultAction::Pass)
    }
}

impl FaultLine {
    /// A fault that was not passed yet.
    #[must_use]
    pub const fn new(id: u64, spec: FaultSpec) -> Self {
        Self { id, spec, passed: 0, injected: 0, ended: false }
    }

    /// Counts a pass of the fault's place. Returns whether the fault takes effect: the skipped passes are over, and its seed
    /// chooses this pass.
    fn pass(&mut self) -> bool {
        self.passed += 1;
        let is_chosen = mixed(self.spec.seed, self.passed) % 1_000 < u64::from(self.spec.chance_permille);
        if self.passed <= self.spec.skip || !is_chosen {
            return false;
        }
        self.injected += 1;
        self.ended = self.spec.injections_max > 0 && self.injected >= self.spec.injections_max;
        true
    }
}

/// The first active fault of a list that takes effect on this pass. `is_meant` tells which faults the pass concerns. A fault
/// behind the one that takes effect does not count the pass.
pub fn first_injection<'a>(
    lines: impl IntoIterator<Item = &'a mut FaultLine>,
    is_meant: impl Fn(&FaultSpec) -> bool,
) -> Option<Injection> {
    let mut active = lines.into_iter().filter(|line| !line.ended && is_meant(&line.spec));
    let line = active.find_map(|line| line.pass().then_some(line))?;
    Some(Injection { kind: line.spec.kind, wait_ms: line.spec.wait_ms })
}

/// The `n`-th pseudo-random number of a seed (splitmix64).
const fn mixed(seed: u64, n: u64) -> u64 {
    let mut z = seed.wrapping_add(n.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::Target;

    #[test]
    fn fault_list_skips_passes_and_ends_at_its_limit() {
        let plan = ["actor fail --at engine --point stored --skip 1 --injections 2", "actor panic --at engine"];
        let mut lines: Vec<FaultLine> =
            (1..).zip(plan).map(|(id, text)| FaultLine::new(id, text.parse().unwrap())).collect();
        let mut pass = |point| {
            first_injection(&mut lines, |spec| spec.means(Target::Actor, "engine", "", point)).map(Injection::action)
        };
        let got = [pass("stored"), pass("stored"), pass("ready"), pass("stored"), pass("stored")];
        let wanted = [FaultAction::Panic, FaultAction::Fail, FaultAction::Panic, FaultAction::Fail, FaultAction::Panic];
        assert_eq!(got, wanted.map(Some));
        assert_eq!(
            lines.iter().map(|l| (l.passed, l.injected, l.ended)).collect::<Vec<_>>(),
            [(3, 2, true), (3, 3, false)]
        );
    }
}
