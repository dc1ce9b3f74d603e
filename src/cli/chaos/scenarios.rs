//! The named scenarios: what is done to a server while it works. Each is a list of steps made out of a seed, so that a run can
//! be had again.

use crate::chaos::{Deed, FaultSpec, SKILL, Target};

/// One thing that is done to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A fault is put on the list, for the rest of the window unless it says less.
    Inject(FaultSpec),
    /// A fault that ends the process; the server is started again behind it.
    Abort(FaultSpec),
    /// SIGKILL from outside.
    Kill,
    /// SIGSTOP, so many milliseconds, SIGCONT.
    Freeze(u64),
    /// Something is done to the folder of the user's own skills.
    Skills(SkillFiles),
    /// Somebody takes the voice gate for so many milliseconds, and is never heard of again.
    HoldGate(u64),
    /// Nothing, for so many milliseconds.
    Wait(u64),
}

/// What is done to the folder of the user's own skills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SkillFiles {
    /// A skill is written into it, or written anew.
    Written,
    /// Half a skill is written over the whole one.
    Half,
    /// The folder is removed.
    Removed,
}

/// A scenario.
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// What it is, in a sentence.
    pub about: &'static str,
    /// Whether the server must be its own, because it ends.
    pub needs_own: bool,
    /// Its steps, of a seed and of the milliseconds that they take together.
    pub steps: fn(u64, u64) -> Vec<Step>,
}

/// All of them.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "kill-engines",
        about: "Engines and sub-agents are killed in the middle of their turns",
        needs_own: false,
        steps: kill_engines,
    },
    Scenario {
        name: "kill-everything",
        about: "every kind of actor and task panics, fails, hangs, stops and is killed",
        needs_own: false,
        steps: kill_everything,
    },
    Scenario {
        name: "kill-supervisors",
        about: "a supervisor dies while it starts a dead child again",
        needs_own: false,
        steps: kill_supervisors,
    },
    Scenario {
        name: "mail-lost",
        about: "mailboxes are full, answers are lost and late, hints arrive twice and are overtaken",
        needs_own: false,
        steps: mail_lost,
    },
    Scenario {
        name: "store-flaky",
        about: "the database is locked, full, slow, behind the times, and commits without a reply",
        needs_own: false,
        steps: store_flaky,
    },
    Scenario {
        name: "model-flaky",
        about: "the model refuses, cuts, hangs, and answers with nonsense",
        needs_own: false,
        steps: model_flaky,
    },
    Scenario {
        name: "skills-crash",
        about: "a skill with an effect that must not be repeated panics, fails and does not know",
        needs_own: false,
        steps: skills_crash,
    },
    Scenario {
        name: "clock-jumps",
        about: "the wall clock goes forward and back by hours",
        needs_own: false,
        steps: clock_jumps,
    },
    Scenario {
        name: "gate-holder-dies",
        about: "who holds the voice gate dies with it, and so does the scheduler",
        needs_own: false,
        steps: gate_holder_dies,
    },
    Scenario { name: "files-gone", about: "the skill files are gone for a while", needs_own: false, steps: files_gone },
    Scenario {
        name: "folder-removed",
        about: "the folder of the user's skills is removed, comes back, and holds half a file",
        needs_own: true,
        steps: folder_removed,
    },
    Scenario {
        name: "process-abort",
        about: "the process ends at each boundary around a commit, a round and an effect",
        needs_own: true,
        steps: process_abort,
    },
    Scenario { name: "process-kill", about: "SIGKILL, again and again", needs_own: true, steps: process_kill },
    Scenario {
        name: "process-freeze",
        about: "SIGSTOP for a second, then SIGCONT",
        needs_own: true,
        steps: process_freeze,
    },
];

/// Faults at these places by chance, each by a seed of its own.
fn flaky<const N: usize>(seed: u64, window_ms: u64, faults: [(FaultSpec, u32); N]) -> Vec<Step> {
    let numbered = faults.into_iter().zip(1_u64..);
    let mut steps: Vec<Step> = numbered
        .map(|((fault, permille), n)| Step::Inject(fault.by_chance(permille, seed.wrapping_mul(31).wrapping_add(n))))
        .collect();
    steps.push(Step::Wait(window_ms));
    steps
}

fn fault(target: Target, deed: Deed, place: &str, point: &str) -> FaultSpec {
    FaultSpec::new(target, deed).at(place, point)
}

/// So slow, in milliseconds.
fn slow(target: Target, place: &str, wait_ms: u32) -> FaultSpec {
    FaultSpec { wait_ms, ..fault(target, Deed::Slow, place, "*") }
}

fn kill_engines(seed: u64, window_ms: u64) -> Vec<Step> {
    let at = |deed, place| fault(Target::Actor, deed, place, "*");
    let faults = [
        (at(Deed::Kill, "engine"), 10),
        (at(Deed::Panic, "engine"), 5),
        (at(Deed::Stop, "engine"), 5),
        (at(Deed::Kill, "sub_agent"), 20),
        (at(Deed::Panic, "sub_agent"), 10),
    ];
    flaky(seed, window_ms, faults)
}

fn kill_everything(seed: u64, window_ms: u64) -> Vec<Step> {
    let actors = |deed| fault(Target::Actor, deed, "*", "*");
    let faults = [
        (actors(Deed::Kill), 3),
        (actors(Deed::Panic), 2),
        (actors(Deed::Fail), 2),
        (actors(Deed::Stop), 2),
        (FaultSpec { strikes_max: 3, ..actors(Deed::Hang) }, 2),
        (FaultSpec { wait_ms: 20, ..actors(Deed::Block) }, 1),
        (fault(Target::Task, Deed::Panic, "*", "*"), 3),
        (fault(Target::Task, Deed::Fail, "*", "*"), 3),
    ];
    flaky(seed, window_ms, faults)
}

fn kill_supervisors(seed: u64, window_ms: u64) -> Vec<Step> {
    // Few: whoever is above it counts its deaths.
    let parent = |deed, point| FaultSpec { strikes_max: 2, ..fault(Target::Actor, deed, "/infra", point) };
    let child = |place, point| FaultSpec { strikes_max: 6, ..fault(Target::Actor, Deed::Kill, place, point) };
    let faults = [
        (parent(Deed::Kill, "restarting"), 400),
        (parent(Deed::Panic, "restarted"), 400),
        (parent(Deed::Kill, "restarted"), 400),
        (child("log_writer", "before:Append"), 40),
        (child("log_writer", "after:Append"), 20),
        (child("notifier", "before:New"), 100),
    ];
    flaky(seed, window_ms, faults)
}

fn mail_lost(seed: u64, window_ms: u64) -> Vec<Step> {
    let faults = [
        (fault(Target::Mail, Deed::Fail, "*", "mailbox:*"), 10),
        (fault(Target::Mail, Deed::Fail, "*", "reply:*"), 20),
        (FaultSpec { point: "reply:*".to_owned(), ..slow(Target::Mail, "*", 50) }, 50),
        (FaultSpec { point: "arrival:*".to_owned(), ..slow(Target::Mail, "*", 50) }, 50),
        (fault(Target::Mail, Deed::Twice, "*", "arrival:*"), 50),
    ];
    flaky(seed, window_ms, faults)
}

fn store_flaky(seed: u64, window_ms: u64) -> Vec<Step> {
    let faults = [
        (fault(Target::Store, Deed::Locked, "*", "*"), 10),
        (fault(Target::Store, Deed::LoseReply, "commit", "*"), 15),
        (fault(Target::Store, Deed::Full, "commit", "*"), 10),
        (fault(Target::Store, Deed::Unavailable, "*", "*"), 10),
        (slow(Target::Store, "*", 40), 50),
        (FaultSpec { wait_ms: 40, ..fault(Target::Store, Deed::Stale, "*", "*") }, 50),
    ];
    flaky(seed, window_ms, faults)
}

fn model_flaky(seed: u64, window_ms: u64) -> Vec<Step> {
    let at = |deed| fault(Target::Model, deed, "*", "*");
    let faults = [
        (at(Deed::RateLimited), 30),
        (at(Deed::Unavailable), 30),
        (at(Deed::Timeout), 10),
        (at(Deed::Cut), 30),
        (at(Deed::Garbage), 20),
        (at(Deed::WrongTool), 20),
        (at(Deed::Panic), 10),
        (FaultSpec { strikes_max: 2, ..at(Deed::Hang) }, 10),
        (slow(Target::Model, "*", 100), 50),
    ];
    flaky(seed, window_ms, faults)
}

fn skills_crash(seed: u64, window_ms: u64) -> Vec<Step> {
    let at = |deed| fault(Target::Skill, deed, SKILL, "*");
    let faults = [
        (at(Deed::Panic), 30),
        (at(Deed::PanicAfter), 30),
        (at(Deed::Fail), 40),
        (at(Deed::Unknown), 30),
        (slow(Target::Skill, SKILL, 80), 50),
        (fault(Target::Actor, Deed::Kill, "breaker", "*"), 20),
    ];
    flaky(seed, window_ms, faults)
}

fn clock_jumps(seed: u64, window_ms: u64) -> Vec<Step> {
    const MINUTE_MS: i64 = 60_000;
    let part_ms = (window_ms / 6).max(20);
    let jump = |by_ms| {
        let spec = FaultSpec { by_ms, for_ms: part_ms, ..fault(Target::Clock, Deed::Jump, "*", "*") };
        [Step::Inject(spec), Step::Wait(part_ms)]
    };
    let odd = i64::try_from(seed % 50).unwrap_or(0);
    [odd + 5, -60 - odd, 60 + odd, -24 * 60, 1, -1].into_iter().flat_map(|minutes| jump(minutes * MINUTE_MS)).collect()
}

fn gate_holder_dies(_: u64, window_ms: u64) -> Vec<Step> {
    let part_ms = (window_ms / 4).max(20);
    let kill = || Step::Inject(fault(Target::Actor, Deed::Kill, "scheduler", "before:Acquire").once());
    vec![
        Step::HoldGate(500),
        Step::Wait(part_ms),
        Step::HoldGate(1_000),
        kill(),
        Step::Wait(part_ms),
        kill(),
        Step::HoldGate(500),
        Step::Wait(2 * part_ms),
    ]
}

fn files_gone(_: u64, window_ms: u64) -> Vec<Step> {
    let part_ms = (window_ms / 4).max(20);
    let gone = || {
        let spec = FaultSpec { for_ms: part_ms, ..fault(Target::Files, Deed::Gone, "*", "*") };
        [Step::Inject(spec), Step::Wait(2 * part_ms)]
    };
    gone().into_iter().chain(gone()).collect()
}

fn folder_removed(_: u64, window_ms: u64) -> Vec<Step> {
    use SkillFiles::{Half, Removed, Written};
    let part_ms = (window_ms / 8).max(20);
    let deeds = [Written, Removed, Half, Written, Half, Removed, Written, Removed];
    deeds.into_iter().flat_map(|deed| [Step::Skills(deed), Step::Wait(part_ms)]).collect()
}

fn process_abort(seed: u64, window_ms: u64) -> Vec<Step> {
    let places = [
        fault(Target::Task, Deed::Abort, "commit", "before"),
        fault(Target::Task, Deed::Abort, "commit", "after"),
        fault(Target::Task, Deed::Abort, "commit", "told"),
        fault(Target::Store, Deed::AbortAfter, "commit", "*"),
        fault(Target::Task, Deed::Abort, "round", "permitted"),
        fault(Target::Task, Deed::Abort, "round", "replied"),
        fault(Target::Task, Deed::Abort, "run", "starting"),
        fault(Target::Task, Deed::Abort, "run", "started"),
        fault(Target::Skill, Deed::AbortAfter, SKILL, "*"),
        fault(Target::Task, Deed::Abort, "run", "ran"),
        fault(Target::Actor, Deed::Abort, "engine", "deciding"),
        fault(Target::Actor, Deed::Abort, "engine", "stored"),
        fault(Target::Actor, Deed::Abort, "sub_agent", "stored"),
        fault(Target::Process, Deed::Abort, "*", "*"),
    ];
    let pause_ms = (window_ms / 40).max(20);
    let numbered = places.into_iter().zip(0_u64..);
    numbered
        .flat_map(|(place, n)| {
            let skip = if place.target == Target::Process { 0 } else { seed.wrapping_add(n) % 5 };
            [Step::Abort(FaultSpec { skip, ..place.once() }), Step::Wait(pause_ms)]
        })
        .collect()
}

fn process_kill(seed: u64, window_ms: u64) -> Vec<Step> {
    const KILLS: u64 = 6;
    let part_ms = (window_ms / KILLS).max(20);
    (0..KILLS).flat_map(|n| [Step::Wait(part_ms / 2 + seed.wrapping_mul(7 + n) % part_ms), Step::Kill]).collect()
}

fn process_freeze(_: u64, window_ms: u64) -> Vec<Step> {
    let part_ms = (window_ms / 3).max(20);
    vec![Step::Wait(part_ms), Step::Freeze(1_000), Step::Wait(part_ms), Step::Freeze(1_000), Step::Wait(part_ms)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_of_every_scenario_makes_sense_and_the_same_seed_gives_the_same_steps() {
        for scenario in SCENARIOS {
            let steps = (scenario.steps)(7, 1_000);
            assert_eq!(steps, (scenario.steps)(7, 1_000), "{}", scenario.name);
            for step in steps {
                match step {
                    Step::Inject(spec) => spec.check().unwrap(),
                    Step::Abort(spec) => {
                        spec.check().unwrap();
                        assert!(scenario.needs_own, "{}", scenario.name);
                    }
                    Step::Kill | Step::Freeze(_) | Step::Skills(_) => {
                        assert!(scenario.needs_own, "{}", scenario.name);
                    }
                    Step::HoldGate(_) | Step::Wait(_) => {}
                }
            }
        }
    }
}
