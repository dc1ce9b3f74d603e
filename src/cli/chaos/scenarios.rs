//! The named scenarios: faults for a server under load. Each scenario is a list of steps derived from a seed, so that a run is
//! repeatable.

use std::path::Path;

use annie_chaos::{FaultKind, FaultSpec, SKILL, Target};
use annie_core::faults::{Step, parse_plan};

use crate::cli::failure::{Exit, Failure};

/// A scenario.
pub struct Scenario {
    /// The name on the command line.
    pub name: &'static str,
    /// A description in one sentence.
    pub about: &'static str,
    /// Whether the run must start the server itself, because the scenario ends it.
    pub needs_own: bool,
    /// The steps, as a function of the seed and the total duration in milliseconds.
    pub steps: fn(u64, u64) -> Vec<Step>,
}

/// The faults of one run: those of a scenario, or of a plan in a file.
#[derive(Debug)]
pub struct Play {
    /// The name of the scenario, or `plan`.
    pub name: &'static str,
    /// A description in one sentence.
    pub about: String,
    /// Whether the run must start the server itself, because a step ends it.
    pub needs_own: bool,
    /// The steps.
    pub steps: Vec<Step>,
}

impl Play {
    /// The steps of a scenario for this seed and total duration in milliseconds.
    pub fn of(scenario: &Scenario, seed: u64, window_ms: u64) -> Self {
        let steps = (scenario.steps)(seed, window_ms);
        Self { name: scenario.name, about: scenario.about.to_owned(), needs_own: scenario.needs_own, steps }
    }

    /// Reads a plan: one step a line.
    ///
    /// # Errors
    /// If the file cannot be read, a line is wrong, or a run cannot inject its fault.
    pub fn read(file: &Path) -> Result<Self, Failure> {
        let path = file.display().to_string();
        let text =
            std::fs::read_to_string(file).map_err(|e| Failure::io(&format!("cannot read the plan {path}"), &e))?;
        let usage = |why: String| Failure::new(Exit::Usage, format!("the plan {path}: {why}"));
        let steps = parse_plan(&text).map_err(usage)?;
        let refused = steps.iter().find(|step| matches!(step, Step::Fault(spec) if !is_supported(spec)));
        if let Some(step) = refused {
            return Err(usage(format!("`{step}` cannot be injected by a run: only the soak can")));
        }
        if !steps.iter().any(|step| matches!(step, Step::Fault(_))) {
            return Err(usage("it has no fault".to_owned()));
        }
        let needs_own = steps.iter().any(needs_own);
        Ok(Self { name: "plan", about: format!("{} steps of {path}", steps.len()), needs_own, steps })
    }
}

/// Whether a run can inject the fault.
fn is_supported(spec: &FaultSpec) -> bool {
    match (spec.target, spec.kind) {
        (Target::Database, _) | (_, FaultKind::Takeover) => false,
        (Target::Process, FaultKind::Kill) => spec.point == "*",
        (Target::Process, FaultKind::Freeze) => spec.wait_ms > 0,
        _ => true,
    }
}

/// Whether the step ends the process, or needs access to it that only the command that started it has.
fn needs_own(step: &Step) -> bool {
    let Step::Fault(spec) = step else { return false };
    let ends = matches!(spec.kind, FaultKind::Abort | FaultKind::AbortAfter);
    ends || spec.is_from_outside() && spec.target != Target::Gate
}

/// All scenarios.
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
        about: "a supervisor dies while it restarts a child",
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
        about: "the database is locked, full, slow, returns stale data, and commits without a reply",
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
        about: "a skill with a `once` effect panics, fails and returns unknown outcomes",
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
        about: "the holder of the voice gate dies, and so does the scheduler",
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
    Scenario { name: "process-kill", about: "repeated SIGKILL", needs_own: true, steps: process_kill },
    Scenario {
        name: "process-freeze",
        about: "SIGSTOP for a second, then SIGCONT",
        needs_own: true,
        steps: process_freeze,
    },
];

/// Injects these faults with their probabilities, each with its own seed.
fn flaky<const N: usize>(seed: u64, window_ms: u64, faults: [(FaultSpec, u32); N]) -> Vec<Step> {
    let numbered = faults.into_iter().zip(1_u64..);
    let mut steps: Vec<Step> = numbered
        .map(|((fault, permille), n)| Step::Fault(fault.by_chance(permille, seed.wrapping_mul(31).wrapping_add(n))))
        .collect();
    steps.push(Step::Wait(window_ms));
    steps
}

fn fault(target: Target, kind: FaultKind, place: &str, point: &str) -> FaultSpec {
    FaultSpec::new(target, kind).at(place, point)
}

/// A fault that delays by `wait_ms` milliseconds.
fn slow(target: Target, place: &str, wait_ms: u32) -> FaultSpec {
    FaultSpec { wait_ms, ..fault(target, FaultKind::Slow, place, "*") }
}

fn kill_engines(seed: u64, window_ms: u64) -> Vec<Step> {
    let at = |kind, place| fault(Target::Actor, kind, place, "*");
    let faults = [
        (at(FaultKind::Kill, "engine"), 10),
        (at(FaultKind::Panic, "engine"), 5),
        (at(FaultKind::Stop, "engine"), 5),
        (at(FaultKind::Kill, "sub_agent"), 20),
        (at(FaultKind::Panic, "sub_agent"), 10),
    ];
    flaky(seed, window_ms, faults)
}

fn kill_everything(seed: u64, window_ms: u64) -> Vec<Step> {
    let actors = |kind| fault(Target::Actor, kind, "*", "*");
    let faults = [
        (actors(FaultKind::Kill), 3),
        (actors(FaultKind::Panic), 2),
        (actors(FaultKind::Fail), 2),
        (actors(FaultKind::Stop), 2),
        (FaultSpec { injections_max: 3, ..actors(FaultKind::Hang) }, 2),
        (FaultSpec { wait_ms: 20, ..actors(FaultKind::Block) }, 1),
        (fault(Target::Task, FaultKind::Panic, "*", "*"), 3),
        (fault(Target::Task, FaultKind::Fail, "*", "*"), 3),
    ];
    flaky(seed, window_ms, faults)
}

fn kill_supervisors(seed: u64, window_ms: u64) -> Vec<Step> {
    // Few injections, because the parent supervisor counts its crashes.
    let parent = |kind, point| FaultSpec { injections_max: 2, ..fault(Target::Actor, kind, "/infra", point) };
    let child = |place, point| FaultSpec { injections_max: 6, ..fault(Target::Actor, FaultKind::Kill, place, point) };
    let faults = [
        (parent(FaultKind::Kill, "restarting"), 400),
        (parent(FaultKind::Panic, "restarted"), 400),
        (parent(FaultKind::Kill, "restarted"), 400),
        (child("log_writer", "before:Append"), 40),
        (child("log_writer", "after:Append"), 20),
        (child("notifier", "before:New"), 100),
    ];
    flaky(seed, window_ms, faults)
}

fn mail_lost(seed: u64, window_ms: u64) -> Vec<Step> {
    let faults = [
        (fault(Target::Mail, FaultKind::Fail, "*", "mailbox:*"), 10),
        (fault(Target::Mail, FaultKind::Fail, "*", "reply:*"), 20),
        (FaultSpec { point: "reply:*".to_owned(), ..slow(Target::Mail, "*", 50) }, 50),
        (FaultSpec { point: "arrival:*".to_owned(), ..slow(Target::Mail, "*", 50) }, 50),
        (fault(Target::Mail, FaultKind::Twice, "*", "arrival:*"), 50),
    ];
    flaky(seed, window_ms, faults)
}

fn store_flaky(seed: u64, window_ms: u64) -> Vec<Step> {
    let faults = [
        (fault(Target::Store, FaultKind::Locked, "*", "*"), 10),
        (fault(Target::Store, FaultKind::LoseReply, "commit", "*"), 15),
        (fault(Target::Store, FaultKind::Full, "commit", "*"), 10),
        (fault(Target::Store, FaultKind::Unavailable, "*", "*"), 10),
        (slow(Target::Store, "*", 40), 50),
        (FaultSpec { wait_ms: 40, ..fault(Target::Store, FaultKind::Stale, "*", "*") }, 50),
    ];
    flaky(seed, window_ms, faults)
}

fn model_flaky(seed: u64, window_ms: u64) -> Vec<Step> {
    let at = |kind| fault(Target::Model, kind, "*", "*");
    let faults = [
        (at(FaultKind::RateLimited), 30),
        (at(FaultKind::Unavailable), 30),
        (at(FaultKind::Timeout), 10),
        (at(FaultKind::Cut), 30),
        (at(FaultKind::Garbage), 20),
        (at(FaultKind::WrongTool), 20),
        (at(FaultKind::Panic), 10),
        (FaultSpec { injections_max: 2, ..at(FaultKind::Hang) }, 10),
        (slow(Target::Model, "*", 100), 50),
    ];
    flaky(seed, window_ms, faults)
}

fn skills_crash(seed: u64, window_ms: u64) -> Vec<Step> {
    let at = |kind| fault(Target::Skill, kind, SKILL, "*");
    let faults = [
        (at(FaultKind::Panic), 30),
        (at(FaultKind::PanicAfter), 30),
        (at(FaultKind::Fail), 40),
        (at(FaultKind::Unknown), 30),
        (slow(Target::Skill, SKILL, 80), 50),
        (fault(Target::Actor, FaultKind::Kill, "breaker", "*"), 20),
    ];
    flaky(seed, window_ms, faults)
}

fn clock_jumps(seed: u64, window_ms: u64) -> Vec<Step> {
    const MINUTE_MS: i64 = 60_000;
    let part_ms = (window_ms / 6).max(20);
    let jump = |by_ms| {
        let spec = FaultSpec { by_ms, for_ms: part_ms, ..fault(Target::Clock, FaultKind::Jump, "*", "*") };
        [Step::Fault(spec), Step::Wait(part_ms)]
    };
    let odd = i64::try_from(seed % 50).unwrap_or(0);
    [odd + 5, -60 - odd, 60 + odd, -24 * 60, 1, -1].into_iter().flat_map(|minutes| jump(minutes * MINUTE_MS)).collect()
}

fn gate_holder_dies(_: u64, window_ms: u64) -> Vec<Step> {
    let part_ms = (window_ms / 4).max(20);
    let hold = |wait_ms| Step::Fault(FaultSpec { wait_ms, ..fault(Target::Gate, FaultKind::Hold, "*", "*") });
    let kill = || Step::Fault(fault(Target::Actor, FaultKind::Kill, "scheduler", "before:Acquire").once());
    vec![
        hold(500),
        Step::Wait(part_ms),
        hold(1_000),
        kill(),
        Step::Wait(part_ms),
        kill(),
        hold(500),
        Step::Wait(2 * part_ms),
    ]
}

fn files_gone(_: u64, window_ms: u64) -> Vec<Step> {
    let part_ms = (window_ms / 4).max(20);
    let gone = || {
        let spec = FaultSpec { for_ms: part_ms, ..fault(Target::Files, FaultKind::Gone, "*", "*") };
        [Step::Fault(spec), Step::Wait(2 * part_ms)]
    };
    gone().into_iter().chain(gone()).collect()
}

fn folder_removed(_: u64, window_ms: u64) -> Vec<Step> {
    use FaultKind::{Half, Removed, Written};
    let part_ms = (window_ms / 8).max(20);
    let kinds = [Written, Removed, Half, Written, Half, Removed, Written, Removed];
    let change = |kind| Step::Fault(fault(Target::Files, kind, "*", "*"));
    kinds.into_iter().flat_map(|kind| [change(kind), Step::Wait(part_ms)]).collect()
}

fn process_abort(seed: u64, window_ms: u64) -> Vec<Step> {
    let places = [
        fault(Target::Task, FaultKind::Abort, "commit", "before"),
        fault(Target::Task, FaultKind::Abort, "commit", "after"),
        fault(Target::Task, FaultKind::Abort, "commit", "told"),
        fault(Target::Store, FaultKind::AbortAfter, "commit", "*"),
        fault(Target::Task, FaultKind::Abort, "round", "permitted"),
        fault(Target::Task, FaultKind::Abort, "round", "replied"),
        fault(Target::Task, FaultKind::Abort, "run", "starting"),
        fault(Target::Task, FaultKind::Abort, "run", "started"),
        fault(Target::Skill, FaultKind::AbortAfter, SKILL, "*"),
        fault(Target::Task, FaultKind::Abort, "run", "ran"),
        fault(Target::Actor, FaultKind::Abort, "engine", "deciding"),
        fault(Target::Actor, FaultKind::Abort, "engine", "stored"),
        fault(Target::Actor, FaultKind::Abort, "sub_agent", "stored"),
        fault(Target::Process, FaultKind::Abort, "*", "*"),
    ];
    let pause_ms = (window_ms / 40).max(20);
    let numbered = places.into_iter().zip(0_u64..);
    numbered
        .flat_map(|(place, n)| {
            let skip = if place.target == Target::Process { 0 } else { seed.wrapping_add(n) % 5 };
            [Step::Fault(FaultSpec { skip, ..place.once() }), Step::Wait(pause_ms)]
        })
        .collect()
}

fn process_kill(seed: u64, window_ms: u64) -> Vec<Step> {
    const KILLS: u64 = 6;
    let part_ms = (window_ms / KILLS).max(20);
    let kill = || Step::Fault(fault(Target::Process, FaultKind::Kill, "*", "*"));
    (0..KILLS).flat_map(|n| [Step::Wait(part_ms / 2 + seed.wrapping_mul(7 + n) % part_ms), kill()]).collect()
}

fn process_freeze(_: u64, window_ms: u64) -> Vec<Step> {
    let part_ms = (window_ms / 3).max(20);
    let freeze = || {
        let freeze = fault(Target::Process, FaultKind::Freeze, "*", "*");
        Step::Fault(FaultSpec { wait_ms: 1_000, ..freeze })
    };
    vec![Step::Wait(part_ms), freeze(), Step::Wait(part_ms), freeze(), Step::Wait(part_ms)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenario_steps_are_valid_and_the_same_for_the_same_seed() {
        for scenario in SCENARIOS {
            let steps = (scenario.steps)(7, 1_000);
            assert_eq!(steps, (scenario.steps)(7, 1_000), "{}", scenario.name);
            assert_eq!(steps.iter().any(needs_own), scenario.needs_own, "{}", scenario.name);
            for step in &steps {
                let Step::Fault(spec) = step else { continue };
                spec.check().unwrap();
                assert!(is_supported(spec), "{}: {spec}", scenario.name);
            }
            let text: Vec<String> = steps.iter().map(ToString::to_string).collect();
            assert_eq!(parse_plan(&text.join("\n")).unwrap(), steps, "{} as text", scenario.name);
        }
    }

    #[test]
    fn plan_file_is_refused_with_the_line_or_the_fault_that_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("plan");
        for (text, wanted) in [
            ("wait 10", "no fault"),
            ("actor kill\nactor jump", "line 2"),
            ("database kill", "only the soak"),
            ("process kill --point start", "only the soak"),
        ] {
            std::fs::write(&file, text).unwrap();
            let failure = Play::read(&file).unwrap_err();
            assert!(failure.exit == Exit::Usage && failure.what.contains(wanted), "{text}: {failure}");
        }
        std::fs::write(&file, "actor kill --at engine --once\nwait 5\nprocess kill").unwrap();
        let plan = Play::read(&file).unwrap();
        assert!(plan.needs_own && plan.steps.len() == 3);
        assert!(Play::read(&folder.path().join("none")).is_err());
    }
}
