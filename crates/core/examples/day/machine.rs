//! The GPU: one round at a time, and the voice gate in front of it.

use std::collections::VecDeque;

use crate::{
    load::{Day, Job},
    ways::{Line, Way},
};

/// How a task fared.
#[derive(Debug, Clone, Copy, Default)]
pub struct Done {
    /// When its first round began.
    pub first_ms: u64,
    /// When its last round ended.
    pub end_ms: u64,
    /// The longest it waited for one round.
    pub round_wait_ms_max: u64,
    rounds: usize,
    ready_ms: u64,
}

/// A day under one way.
#[derive(Debug, Default)]
pub struct Outcome {
    pub jobs: Vec<Done>,
    /// Rounds ran for so long.
    pub busy_ms: u64,
    /// Nothing ran for so long because somebody spoke, although work was waiting.
    pub held_ms: u64,
    /// When the last task was finished, counted from midnight.
    pub end_ms: u64,
    pub parks: usize,
    /// How often the next round was another task's although the one before had more to run.
    pub changes: usize,
}

struct Machine<'a> {
    day: &'a Day,
    line: Line,
    /// Voice that goes past the line.
    voice: VecDeque<usize>,
    /// Turns that are left in each session, whether it has begun, and how many are under way.
    turns_left: Vec<usize>,
    has_begun: Vec<bool>,
    speaking: usize,
    come: usize,
    outcome: Outcome,
}

/// The day under this way, until everything is done.
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
    Outcome { parks: machine.line.parks, ..machine.outcome }
}

impl Machine<'_> {
    fn run(&mut self) {
        let (mut now_ms, mut unfinished, mut in_line) = (0, None, 0_usize);
        loop {
            in_line += self.take_in(now_ms);
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
            in_line += self.take_in(now_ms);
            if self.outcome.jobs[n].rounds < job.rounds_ms.len() {
                self.line.back(n, job, now_ms);
                unfinished = Some(n);
            } else {
                in_line -= usize::from(!is_voice);
                self.outcome.jobs[n].end_ms = now_ms;
                self.outcome.end_ms = now_ms;
                self.fall_silent(job);
            }
        }
    }

    /// Everybody comes in who has come by now; how many stand in line for it.
    fn take_in(&mut self, now_ms: u64) -> usize {
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

    /// A session is over with its last turn.
    fn fall_silent(&mut self, job: &Job) {
        if let Some(left) = job.session.and_then(|session| self.turns_left.get_mut(session)) {
            *left -= 1;
            self.speaking -= usize::from(*left == 0);
        }
    }
}
