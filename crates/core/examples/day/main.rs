//! Simulates one day of mixed load on one GPU: the waiting times of voice, chat, research, scheduled work and maintenance
//! under five scheduling policies. Pure and seeded: the same seed gives the same day and the same table.
//!
//! `cargo run --release -p annie-core --example day -- --seed 1 --svg docs/day.svg`
//!
//! Rounds take 2 to 30 s [S3 5.2.1], and a task's skills take no time between them. Every policy gets the same tasks at the
//! same times. Nothing is refused, so depth limits have no influence. The day begins at midnight; work that remains at its
//! end is finished after it.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example that prints what it found")]

mod load;
mod machine;
mod picture;
mod ways;

use std::process::ExitCode;

use annie_core::event::Priority;

use crate::{
    load::Day,
    machine::{Outcome, run},
    ways::Way,
};

/// The statistics of a class under one policy, in milliseconds.
#[derive(Debug, Clone, Copy, Default)]
struct Spread {
    median: u64,
    p95: u64,
    p99: u64,
    max: u64,
}

impl Spread {
    fn of(mut values: Vec<u64>) -> Self {
        values.sort_unstable();
        let at = |percent: usize| values.get(values.len().saturating_sub(1) * percent / 100).copied().unwrap_or(0);
        Self { median: at(50), p95: at(95), p99: at(99), max: at(100) }
    }
}

/// One class under one policy.
struct Row {
    class: Priority,
    way: Way,
    tasks: usize,
    first: Spread,
    finish: Spread,
    /// Longest wait for any one round, in milliseconds.
    round_max: u64,
}

fn row(class: Priority, way: Way, day: &Day, outcome: &Outcome) -> Row {
    let of_class = || day.jobs.iter().zip(&outcome.jobs).filter(|(job, _)| job.class == class);
    Row {
        class,
        way,
        tasks: of_class().count(),
        first: Spread::of(of_class().map(|(job, done)| done.first_ms - job.at_ms).collect()),
        finish: Spread::of(of_class().map(|(job, done)| done.end_ms - job.at_ms).collect()),
        round_max: of_class().map(|(_, done)| done.round_wait_ms_max).max().unwrap_or(0),
    }
}

/// A duration in one readable unit.
fn span(ms: u64) -> String {
    match ms {
        0..60_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        60_000..3_600_000 => format!("{}.{} min", ms / 60_000, ms % 60_000 / 6_000),
        _ => format!("{}.{} h", ms / 3_600_000, ms % 3_600_000 / 360_000),
    }
}

fn print(day: &Day, rows: &[Row], outcomes: &[(Way, Outcome)]) {
    let work_ms: u64 = day.jobs.iter().map(|job| job.work_ms()).sum();
    println!("{} tasks, {} rounds, {} of work", day.jobs.len(), day.rounds(), span(work_ms));
    let hours: Vec<String> = day.load_by_hour().iter().map(|percent| percent.to_string()).collect();
    println!("load by hour of arrival, in percent of the GPU: {}\n", hours.join(" "));
    println!(
        "| class | way | tasks | wait: median | p95 | p99 | max | finished: median | p95 | p99 | max | longest wait for a round |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|");
    for r in rows {
        let (a, b) = (r.first, r.finish);
        let cells = [a.median, a.p95, a.p99, a.max, b.median, b.p95, b.p99, b.max, r.round_max].map(span);
        println!("| {} | {} | {} | {} |", r.class.as_str(), r.way.name(), r.tasks, cells.join(" | "));
    }
    println!("\n| way | busy | held free for voice | busy or held | last task finished | parked | other task next |");
    println!("|---|---|---|---|---|---|---|");
    for (way, o) in outcomes {
        let percent = |ms: u64| format!("{} %", (ms * 100 + o.end_ms / 2) / o.end_ms.max(1));
        println!(
            "| {} | {} | {} | {} | {} | {} | {} |",
            way.name(),
            percent(o.busy_ms),
            percent(o.held_ms),
            percent(o.busy_ms + o.held_ms),
            span(o.end_ms),
            o.preemptions,
            o.changes
        );
    }
}

/// The seed, and the path of the picture.
fn arguments() -> Result<(u64, Option<String>), String> {
    let (mut seed, mut svg) = (1, None);
    let mut given = std::env::args().skip(1);
    while let Some(name) = given.next() {
        let value = given.next().ok_or_else(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--seed" => seed = value.parse().map_err(|e| format!("--seed {value:?}: {e}"))?,
            "--svg" => svg = Some(value),
            _ => return Err(format!("{name} is unknown; there are --seed NUMBER and --svg PATH")),
        }
    }
    Ok((seed, svg))
}

fn main() -> ExitCode {
    let (seed, svg) = match arguments() {
        Ok(given) => given,
        Err(e) => {
            eprintln!("{e}");
            return ExitCode::from(2);
        }
    };
    let day = match Day::of(seed) {
        Ok(day) => day,
        Err(e) => {
            eprintln!("the day cannot be made: {e}");
            return ExitCode::FAILURE;
        }
    };
    let outcomes: Vec<(Way, Outcome)> = Way::ALL.into_iter().map(|way| (way, run(&day, way))).collect();
    let rows: Vec<Row> = Priority::ALL
        .into_iter()
        .flat_map(|class| outcomes.iter().map(move |(way, outcome)| (class, *way, outcome)))
        .map(|(class, way, outcome)| row(class, way, &day, outcome))
        .collect();
    print(&day, &rows, &outcomes);
    if let Some(path) = svg
        && let Err(e) = std::fs::write(&path, picture::draw(&rows, seed))
    {
        eprintln!("{path}: {e}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
