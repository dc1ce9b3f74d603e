//! The load of the day: users, classes, arrival times and durations of rounds.

use std::ops::RangeInclusive;

use annie_core::{
    event::Priority,
    ids::{ConversationId, IdError, TaskId, UserId},
    queue::{BackendId, Waiting},
    time::Micros,
};
use uuid::Uuid;

const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;
const USERS: u64 = 20;

/// Weight of each hour of the day for interactive work, out of 100, with peaks in the morning and evening.
const PEOPLE: [u64; 24] = [14, 6, 4, 4, 6, 18, 48, 78, 100, 96, 76, 60, 58, 56, 54, 56, 60, 66, 80, 96, 98, 70, 44, 28];
/// The same for maintenance, which runs mostly at night.
const NIGHT: [u64; 24] =
    [70, 100, 100, 100, 100, 50, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 20, 50];
/// Number of tasks of each kind per day.
const VOICE_SESSIONS: u64 = 60;
const CHATS: u64 = 2_800;
const RESEARCH: u64 = 290;
const MAINTENANCE: u64 = 180;
/// Scheduled work: tasks at every full hour, and the morning's summaries at seven.
const CRON_HOURLY: u64 = 13;
const CRON_AT_SEVEN: u64 = 60;

/// A small random number generator. Equal seeds give equal days.
struct Numbers(u64);

impl Numbers {
    fn new(seed: u64) -> Self {
        let mut numbers = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..16 {
            numbers.next();
        }
        numbers
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        range.start() + self.next() % (range.end() - range.start() + 1)
    }

    /// The smaller of two random numbers, so that short durations are more frequent.
    fn short(&mut self, range: RangeInclusive<u64>) -> u64 {
        self.within(range.clone()).min(self.within(range))
    }

    /// A random time of the day, weighted by hour.
    fn instant(&mut self, hours: &[u64; 24]) -> u64 {
        let mut left = self.next() % hours.iter().sum::<u64>();
        for (hour, weight) in (0..).zip(hours) {
            if left < *weight {
                return hour * HOUR_MS + self.within(0..=HOUR_MS - 1);
            }
            left -= weight;
        }
        DAY_MS - 1
    }
}

/// A task of the day.
pub struct Job {
    pub class: Priority,
    pub at_ms: u64,
    /// Duration of each of its rounds, in milliseconds.
    pub rounds_ms: Vec<u64>,
    /// The voice session, if the task is a turn of one.
    pub session: Option<usize>,
    /// The task as a queue entry.
    pub waiting: Waiting,
}

impl Job {
    pub fn work_ms(&self) -> u64 {
        self.rounds_ms.iter().sum()
    }
}

/// All tasks in the order of arrival, and the number of turns of each voice session.
#[derive(Default)]
pub struct Day {
    pub jobs: Vec<Job>,
    pub sessions: Vec<usize>,
}

impl Day {
    /// The day for this seed.
    pub fn of(seed: u64) -> Result<Self, IdError> {
        let (mut day, mut numbers) = (Self::default(), Numbers::new(seed));
        for _ in 0..VOICE_SESSIONS {
            day.add_voice_session(&mut numbers)?;
        }
        for _ in 0..CHATS {
            let at_ms = numbers.instant(&PEOPLE);
            let rounds = numbers.within(1..=10).saturating_sub(7).max(1);
            day.add(&mut numbers, Priority::High, at_ms, rounds, 2_000..=10_000)?;
        }
        for _ in 0..RESEARCH {
            let (at_ms, rounds) = (numbers.instant(&PEOPLE), numbers.within(3..=8));
            day.add(&mut numbers, Priority::Normal, at_ms, rounds, 6_000..=30_000)?;
        }
        for hour in 0..24 {
            let due = if hour == 7 { CRON_AT_SEVEN } else { CRON_HOURLY };
            for _ in 0..due {
                let rounds = numbers.within(1..=3);
                day.add(&mut numbers, Priority::Low, hour * HOUR_MS, rounds, 4_000..=24_000)?;
            }
        }
        for _ in 0..MAINTENANCE {
            let (at_ms, rounds) = (numbers.instant(&NIGHT), numbers.within(3..=9));
            day.add(&mut numbers, Priority::Background, at_ms, rounds, 8_000..=30_000)?;
        }
        day.jobs.sort_by_key(|job| (job.at_ms, job.waiting.task));
        // From here on a task's id is its index.
        for (n, job) in (0..).zip(&mut day.jobs) {
            job.waiting.task = TaskId::from_uuid(Uuid::from_u128(n));
        }
        Ok(day)
    }

    /// Adds a voice session: several turns of one short round each, with pauses in which the person talks.
    fn add_voice_session(&mut self, numbers: &mut Numbers) -> Result<(), IdError> {
        let (mut at_ms, turns) = (numbers.instant(&PEOPLE), numbers.short(2..=12));
        for _ in 0..turns {
            self.add(numbers, Priority::Realtime, at_ms, 1, 2_000..=4_000)?;
            if let Some(job) = self.jobs.last_mut() {
                job.session = Some(self.sessions.len());
            }
            at_ms += numbers.within(7_000..=18_000);
        }
        self.sessions.push(usize::try_from(turns).unwrap_or(0));
        Ok(())
    }

    fn add(
        &mut self,
        numbers: &mut Numbers,
        class: Priority,
        at_ms: u64,
        rounds: u64,
        round_ms: RangeInclusive<u64>,
    ) -> Result<(), IdError> {
        let (n, user) = (self.jobs.len() as u128 + 1, numbers.next() % USERS);
        let rounds_ms = (0..rounds).map(|_| numbers.short(round_ms.clone())).collect();
        let waiting = Waiting::new(
            TaskId::from_uuid(Uuid::from_u128(n)),
            UserId::new(format!("user-{user}"))?,
            ConversationId::from_uuid(Uuid::from_u128(n)),
            class,
            BackendId(0),
            instant(at_ms),
        );
        self.jobs.push(Job { class, at_ms, rounds_ms, session: None, waiting });
        Ok(())
    }

    pub fn rounds(&self) -> usize {
        self.jobs.iter().map(|job| job.rounds_ms.len()).sum()
    }

    /// The work that arrives in each hour, in percent of the GPU's capacity.
    pub fn load_by_hour(&self) -> [u64; 24] {
        let mut hours = [0; 24];
        for (hour, load) in (0..).zip(&mut hours) {
            let jobs = self.jobs.iter().filter(|job| job.at_ms / HOUR_MS == hour);
            *load = jobs.map(Job::work_ms).sum::<u64>() * 100 / HOUR_MS;
        }
        hours
    }
}

/// A time of the day in the form that the queue takes.
pub fn instant(ms: u64) -> Micros {
    Micros(0).plus_ms(i64::try_from(ms).unwrap_or(i64::MAX))
}
