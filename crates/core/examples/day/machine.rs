//! The GPU, which runs one round at a time, and the voice gate in front of it.

use std::collections::VecDeque;

use crate::{
    load::{Day, Job},
    ways::{Line, Way},
};

/// The times of a task, in milliseconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Done {
    /// Start of its first round.
    pub first_ms: u64,
    /// End of its last round.
    pub end_ms: u64,
    /// Longest wait for one round.
    pub round_wait_ms_max: u64,
    rounds: usize,
    ready_ms: u64,
}

/// The result of a day under one policy.
#[derive(Debug, Default)]
pub struct Outcome {
    pub jobs: Vec<Done>,
    /// Total time of all rounds.
    pub busy_ms: u64,
    /// Total time in which the GPU was idle because of the voice gate, although tasks were waiting.
    pub held_ms: u64,
    /// End of the last task, from midnight.
    pub end_ms: u64,
    pub preemptions: usize,
    /// Number of rounds that belonged to another task than the round before, although that task had more rounds to run.
    pub changes: usize,
}

struct Machine<'a> {
    day: &'a Day,
    line: Line,
    /// Voice tasks, which bypass the queue.
    voice: VecDeque<usize>,
    /// Remaining turns of each session, whether it has begun, and the number of active sessions.
    turns_left: Vec<usize>,
    has_begun: Vec<bool>,
    speaking: usize,
    come: usize,
    outcome: Outcome,
}

/// Simulates the day under this policy until all tasks are done.
pub fn run(day: &Day, way: Way) -> Outcome {
    let outcome = Outcome { jobs: vec![Done::default(); day.jobs.len()], ..Outcome::default() };
    let mut machine = Machine {
        day,
        line: Line::new(way),
        voice: VecDeque::new(),
        turns_left: day.sessions.clone(),
        has_begun: vec![false; day.sessions.len()],
        speaking: 0,
        come: 0,
        outcome,
    };
    machine.run();
    assert!(machine.outcome.jobs.iter().zip(&day.jobs).all(|(done, job)| done.rounds == job.rounds_ms.len()));
    Outcome { preemptions: machine.line.preemptions, ..machine.outcome }
}

impl Machine<'_> {
    fn run(&mut self) {
        let (mut now_ms, mut unfinished, mut in_line) = (0, None, 0_usize);
        loop {
            in_line += self.add_arrivals(now_ms);
            let is_shut = self.speaking > 0;
            let next = self.voice.pop_front().or_else(|| if is_shut { None } else { self.line.next(now_ms) });
            let Some(n) = next else {
                let Some(job) = self.day.jobs.get(self.come) else { break };
                if in_line > 0 {
                    self.outcome.held_ms += job.at_ms - now_ms;
                }
                now_ms = job.at_ms;
                continue;
            };
            let job = &self.day.jobs[n];
            let is_voice = job.session.is_some();
            self.outcome.changes += usize::from(unfinished.take().is_some_and(|last| last != n));
            now_ms = self.round(n, job, now_ms);
            in_line += self.add_arrivals(now_ms);
            if self.outcome.jobs[n].rounds < job.rounds_ms.len() {
                self.line.back(n, job, now_ms);
                unfinished = Some(n);
            } else {
                in_line -= usize::from(!is_voice);
                self.outcome.jobs[n].end_ms = now_ms;
                self.outcome.end_ms = now_ms;
                self.end_turn(job);
            }
        }
    }

    /// Adds all tasks that have arrived by now. Returns the number of those that queue.
    fn add_arrivals(&mut self, now_ms: u64) -> usize {
        let before = self.come;
        let mut voices = 0;
        while let Some(job) = self.day.jobs.get(self.come).filter(|job| job.at_ms <= now_ms) {
            let n = self.come;
            self.come += 1;
            self.outcome.jobs[n].ready_ms = job.at_ms;
            if let Some(session) = job.session {
                self.speaking += usize::from(!std::mem::replace(&mut self.has_begun[session], true));
            }
            if !self.line.arrive(n, job) {
                self.voice.push_back(n);
                voices += 1;
            }
        }
        self.come - before - voices
    }

    fn round(&mut self, n: usize, job: &Job, now_ms: u64) -> u64 {
        let done = &mut self.outcome.jobs[n];
        if done.rounds == 0 {
            done.first_ms = now_ms;
        }
        done.round_wait_ms_max = done.round_wait_ms_max.max(now_ms - done.ready_ms);
        let round_ms = job.rounds_ms[done.rounds];
        done.rounds += 1;
        done.ready_ms = now_ms + round_ms;
        self.outcome.busy_ms += round_ms;
        now_ms + round_ms
    }

    /// Ends a session after its last turn.
    fn end_turn(&mut self, job: &Job) {
        if let Some(left) = job.session.and_then(|session| self.turns_left.get_mut(session)) {
            *left -= 1;
            self.speaking -= usize::from(*left == 0);
        }
    }
}
