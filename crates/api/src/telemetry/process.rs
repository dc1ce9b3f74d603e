//! Measurements of this process for `/metrics`, under the names of Prometheus' own clients. They are read from `/proc`; on a
//! system without it there are none.

use std::fs;

use rustix::{
    param::{clock_ticks_per_second, page_size},
    process::{Resource, getrlimit},
};

use super::Help;

const CPU_SECONDS: Help = ("process_cpu_seconds_total", "CPU time of the process, user and system, in seconds");
const OPEN_FDS: Help = ("process_open_fds", "Open file descriptors");
const MAX_FDS: Help = ("process_max_fds", "Limit of open file descriptors; 0 is no limit");
const VIRTUAL: Help = ("process_virtual_memory_bytes", "Virtual memory");
const VIRTUAL_MAX: Help = ("process_virtual_memory_max_bytes", "Limit of virtual memory; 0 is no limit");
const RESIDENT: Help = ("process_resident_memory_bytes", "Resident memory");
const STARTED: Help = ("process_start_time_seconds", "Start of the process in seconds since 1970");
const THREADS: Help = ("process_threads", "Threads of the operating system");

/// The fields of `/proc/self/stat` that are measured.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    /// CPU time, user and system, in clock ticks.
    cpu_ticks: u64,
    threads: u64,
    /// Start of the process in clock ticks since the start of the machine.
    started_ticks: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The second field is the program's name in parentheses. It may contain spaces and parentheses.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        // proc(5) counts from 1, and the first field here is the third there.
        let field = |number: usize| fields.get(number.checked_sub(3)?)?.parse::<u64>().ok();
        Some(Self {
            cpu_ticks: field(14)?.saturating_add(field(15)?),
            threads: field(20)?,
            started_ticks: field(22)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
        })
    }
}

/// Registers the help texts.
pub(super) fn describe() {
    metrics::describe_counter!(CPU_SECONDS.0, CPU_SECONDS.1);
    for (name, help) in [OPEN_FDS, MAX_FDS, VIRTUAL, VIRTUAL_MAX, RESIDENT, STARTED, THREADS] {
        metrics::describe_gauge!(name, help);
    }
}

/// Measures the process.
pub(super) fn measure() {
    let ticks = clock_ticks_per_second().max(1);
    if let Some(stat) = fs::read_to_string("/proc/self/stat").ok().and_then(|text| Stat::parse(&text)) {
        metrics::counter!(CPU_SECONDS.0).absolute(stat.cpu_ticks / ticks);
        set(THREADS, stat.threads);
        set(VIRTUAL, stat.virtual_bytes);
        set(RESIDENT, stat.resident_pages.saturating_mul(page_size() as u64));
        if let Some(booted) = fs::read_to_string("/proc/stat").ok().as_deref().and_then(booted_seconds) {
            set(STARTED, booted.saturating_add(stat.started_ticks / ticks));
        }
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        // One of them reads this folder.
        set(OPEN_FDS, (open.count() as u64).saturating_sub(1));
    }
    set(MAX_FDS, getrlimit(Resource::Nofile).current.unwrap_or(0));
    set(VIRTUAL_MAX, getrlimit(Resource::As).current.unwrap_or(0));
}

/// The start of the machine in seconds since 1970, from `/proc/stat`.
fn booted_seconds(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

#[expect(clippy::cast_precision_loss, reason = "no measurement has more than 52 bits")]
fn set((name, _): Help, value: u64) {
    metrics::gauge!(name).set(value as f64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_stat_is_read_behind_a_name_with_spaces_and_parentheses() {
        let text =
            "42 (an (odd) name) S 1 42 42 0 -1 4194560 900 0 5 0 250 50 0 0 20 0 7 0 1200 1048576 300 18446744073709";
        let wanted =
            Stat { cpu_ticks: 300, threads: 7, started_ticks: 1_200, virtual_bytes: 1_048_576, resident_pages: 300 };
        assert_eq!(Stat::parse(text), Some(wanted));
        assert_eq!(Stat::parse("42 (short) S 1 2"), None);
        assert_eq!(booted_seconds("cpu  1 2 3\nbtime 1700000000\nprocesses 5\n"), Some(1_700_000_000));
    }

    #[test]
    fn process_stat_of_this_process_is_plausible() {
        let stat = Stat::parse(&fs::read_to_string("/proc/self/stat").unwrap()).unwrap();
        assert!(stat.threads > 0 && stat.resident_pages > 100 && stat.virtual_bytes > 1_000_000, "{stat:?}");
    }
}
