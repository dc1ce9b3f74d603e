//! Simulation of the whole kernel on one thread. The clock is simulated; random numbers, disk, model, skills, users and
//! faults come from a seed. The invariants are checked after every stored event and at the end.
//!
//! For a failing seed the test prints a reduced list of faults and steps. `just sim-seed SEED` runs the seed again.

mod breakers;
mod disk;
mod forces;
mod found;
mod people;
mod run;
mod scenario;
mod shared;
mod shrink;
mod tables;
mod town;
mod trace;
mod voice;
mod watch;

use annie_core::faults::{Step, parse_plan};
use annie_testkit::sim::Plan;

use run::{Planned, Report, run};

/// The number of seeds that each of the tests below runs.
const SEEDS_EACH: u64 = 25;
/// The file, below the folder of built files, with the seeds of a longer run: `FIRST COUNT`. The lines that follow are a plan:
/// the only faults that are injected.
const REQUESTED: &str = "sim-seeds";

fn seeds(first: u64, count: u64) {
    for seed in first..first + count {
        let planned = Planned { seed, ..Planned::default() };
        let report = run(&planned);
        if !report.wrong.is_empty() {
            print_failure(&planned, &report);
            panic!("seed {seed}: {}", report.wrong[0]);
        }
    }
}

/// The faults of a plan; the seed decides if the text has none.
fn plan_of(text: &str) -> Plan {
    let steps = parse_plan(text).expect("a plan");
    let faults = steps.into_iter().map(|step| match step {
        Step::Fault(spec) => spec,
        Step::Wait(_) => panic!("`{step}`: a simulated fault is injected at the pass that `--skip` names"),
    });
    Plan { only: Some(faults.collect::<Vec<_>>()).filter(|faults| !faults.is_empty()) }
}

/// Prints the failure as it happened and as small as it could be made.
fn print_failure(planned: &Planned, report: &Report) {
    let seed = planned.seed;
    println!("seed {seed} fails. Again: just sim-seed {seed}\n{:#?}", report.wrong);
    let (small, report) = shrink::shrink(planned);
    println!("the smallest run that fails leaves out the steps {:?}, and does", small.without);
    for step in &report.steps {
        println!("  {step:?}");
    }
    println!("with these faults");
    for fault in &report.fault_at {
        println!("  {} # at {}", fault.spec, fault.at);
    }
    println!("and this log");
    for line in &report.log {
        println!("  {line}");
    }
    println!("and is wrong in\n{:#?}", report.wrong);
}

macro_rules! ranges {
    ($(fn $name:ident() $first:literal)*) => {
        $(#[test]
        fn $name() {
            seeds($first * SEEDS_EACH, SEEDS_EACH);
        })*
    };
}

ranges! {
    fn simulation_of_the_1st_seed_range_keeps_the_invariants() 0
    fn simulation_of_the_2nd_seed_range_keeps_the_invariants() 1
    fn simulation_of_the_3rd_seed_range_keeps_the_invariants() 2
    fn simulation_of_the_4th_seed_range_keeps_the_invariants() 3
    fn simulation_of_the_5th_seed_range_keeps_the_invariants() 4
    fn simulation_of_the_6th_seed_range_keeps_the_invariants() 5
    fn simulation_of_the_7th_seed_range_keeps_the_invariants() 6
    fn simulation_of_the_8th_seed_range_keeps_the_invariants() 7
}

#[test]
fn simulation_of_one_seed_gives_the_same_run_each_time() {
    // 7, 313, 328 and 333 kill actors with several children.
    for seed in [1, 7, 8, 23, 42, 101, 200, 201, 202, 313, 328, 333] {
        let planned = Planned { seed, ..Planned::default() };
        let (one, other) = (run(&planned), run(&planned));
        let same = one.log.iter().zip(&other.log).take_while(|(a, b)| a == b).count();
        let differ = (one.log.get(same.saturating_sub(3)..), other.log.get(same));
        let differ = (differ.0.map(|rest| rest.iter().take(4).collect::<Vec<_>>()), differ.1);
        assert_eq!(one.fingerprint(), other.fingerprint(), "seed {seed}: {differ:#?}");
    }
}

#[test]
fn simulation_with_a_plan_injects_its_faults_only() {
    let first = |seed| run(&Planned { seed, ..Planned::default() }).fault_at.into_iter().next().map(|f| (seed, f.spec));
    let (seed, spec) = (0..50).find_map(first).expect("a seed injects a fault");
    let plan = plan_of(&format!("# the first fault of seed {seed}\n{spec}\n"));
    let injected = run(&Planned { seed, plan, ..Planned::default() }).fault_at;
    assert_eq!(injected.into_iter().map(|fault| fault.spec).collect::<Vec<_>>(), [spec], "seed {seed}");
}

/// Runs the seeds that the request file names, if it exists: `just sim` and `just sim-seed` write it.
#[test]
fn simulation_of_the_requested_seeds_keeps_the_invariants() {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(REQUESTED);
    let Ok(request) = std::fs::read_to_string(&path) else { return };
    let (numbers, plan) = request.split_once('\n').unwrap_or((request.as_str(), ""));
    let plan = plan_of(plan);
    let mut numbers = numbers.split_whitespace().map(|n| n.parse::<u64>().expect("a number"));
    let (first, count) = (numbers.next().expect("the first seed"), numbers.next().expect("how many"));
    let mut failed = Vec::new();
    for seed in first..first + count {
        let planned = Planned { seed, plan: plan.clone(), ..Planned::default() };
        let report = run(&planned);
        if count == 1 {
            println!("{}; {}", report.tally, report.fingerprint());
        }
        if !report.wrong.is_empty() {
            failed.push(seed);
            if count == 1 {
                print_failure(&planned, &report);
            } else {
                println!("seed {seed}: {}", report.wrong[0].lines().next().unwrap_or_default());
            }
        }
    }
    assert!(failed.is_empty(), "{} of {count} seeds fail: {failed:?}", failed.len());
}
