//! Measures the speed of the scheduler's queue at 1,000, 100,000 and 1,000,000 waiting tasks: the time of one operation,
//! with the queue kept at that length. Run with optimisation: `cargo run --release -p annie-core --example queue_rate`.
#![expect(clippy::print_stdout, reason = "an example that prints its measurements")]

use std::time::{Duration, Instant};

use annie_core::{
    event::Priority,
    ids::{ConversationId, IdError, TaskId, UserId},
    queue::{BackendId, DepthLimits, Queue, QueueLimits, Waiting},
    time::Micros,
};
use uuid::Uuid;

const OPERATIONS: u32 = 200_000;
/// Number of operations that are timed together, because reading the clock costs as much as one operation.
const BATCH: u32 = 100;
const GPU: BackendId = BackendId(0);

/// A small random number generator. All runs use the same numbers.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

struct Load {
    numbers: Numbers,
    users: u64,
    now: Micros,
}

impl Load {
    fn task(&mut self, n: u64) -> Result<Waiting, IdError> {
        let user = self.numbers.next() % self.users;
        let conversation = user * 4 + self.numbers.next() % 4;
        let class = Priority::ALL[1 + (self.numbers.next() % 4) as usize];
        let waited_ms = (self.numbers.next() % 1_000_000) as i64;
        Ok(Waiting::new(
            TaskId::from_uuid(Uuid::from_u128(u128::from(n))),
            UserId::new(format!("user-{user}"))?,
            ConversationId::from_uuid(Uuid::from_u128(u128::from(conversation))),
            class,
            GPU,
            self.now.plus_ms(-waited_ms),
        ))
    }
}

/// Mean time of one operation, in nanoseconds.
fn each_ns(operations: u32, mut run: impl FnMut(u32)) -> f64 {
    let start = Instant::now();
    for n in 0..operations {
        run(n);
    }
    per(start.elapsed(), operations)
}

fn per(took: Duration, operations: u32) -> f64 {
    took.as_nanos() as f64 / f64::from(operations.max(1))
}

/// No limits: the benchmark measures the order, and refusals would make the queue shorter than stated.
fn limits() -> QueueLimits {
    let depth_per_user =
        DepthLimits { high_max: u32::MAX, normal_max: u32::MAX, low_max: u32::MAX, background_max: u32::MAX };
    QueueLimits { depth_per_user, waiting_max: u32::MAX, ..QueueLimits::default() }
}

/// A queue under measurement. Every operation restores its length.
struct Bench {
    queue: Queue,
    numbers: Numbers,
    waiting: u32,
    now: Micros,
}

impl Bench {
    fn pick(&mut self) -> TaskId {
        TaskId::from_uuid(Uuid::from_u128(u128::from(self.numbers.next() % u64::from(self.waiting))))
    }

    fn tick(&mut self) -> Micros {
        self.now = self.now.plus_ms(1);
        self.now
    }

    /// Grants rounds and returns the tasks. Time of each half, in nanoseconds.
    fn rounds(&mut self) -> [f64; 2] {
        let mut took = [Duration::ZERO; 2];
        for _ in 0..OPERATIONS / BATCH {
            let now = self.tick();
            let start = Instant::now();
            let granted: Vec<_> = (0..BATCH).filter_map(|_| self.queue.pop(GPU, now)).collect();
            took[0] += start.elapsed();
            let now = self.tick();
            let start = Instant::now();
            for grant in granted {
                self.queue.yield_back(grant.waiting, now);
            }
            took[1] += start.elapsed();
        }
        took.map(|took| per(took, OPERATIONS))
    }

    /// Removes tasks at arbitrary positions and admits new ones. Time of each half, in nanoseconds.
    fn cancels(&mut self) -> [f64; 2] {
        let mut took = [Duration::ZERO; 2];
        for _ in 0..OPERATIONS / BATCH {
            let tasks: Vec<_> = (0..BATCH).map(|_| self.pick()).collect();
            let start = Instant::now();
            let gone: Vec<_> = tasks.into_iter().filter_map(|task| self.queue.remove(task)).collect();
            took[0] += start.elapsed();
            let now = self.tick();
            let start = Instant::now();
            for waiting in gone {
                self.queue.admit(waiting, now);
            }
            took[1] += start.elapsed();
        }
        took.map(|took| per(took, OPERATIONS))
    }

    /// Raises or lowers the class of a waiting task.
    fn reprioritise(&mut self) -> f64 {
        let changes: Vec<_> =
            (0..OPERATIONS).map(|_| (self.pick(), Priority::ALL[1 + (self.numbers.next() % 4) as usize])).collect();
        let now = self.tick();
        let start = Instant::now();
        for (task, class) in changes {
            // Without limits, the change is never refused.
            self.queue.reprioritise(task, class, now).ok();
        }
        per(start.elapsed(), OPERATIONS)
    }

    fn peek(&mut self) -> f64 {
        let now = self.tick();
        each_ns(OPERATIONS, |_| {
            self.queue.peek(GPU, now);
        })
    }

    /// Time of finding a task's position, in microseconds. The operation iterates up to the position, so only a few are
    /// measured.
    fn position_us(&mut self) -> f64 {
        let asked = if self.waiting > 100_000 { 5 } else { 50 };
        let tasks: Vec<_> = (0..asked).map(|_| self.pick()).collect();
        let now = self.tick();
        let start = Instant::now();
        for task in tasks {
            self.queue.position(task, now);
        }
        per(start.elapsed(), asked) / 1e3
    }
}

fn main() -> Result<(), IdError> {
    println!("nanoseconds of one operation; position in microseconds, for a task anywhere in the line\n");
    println!("| waiting | users | fill | pop | yield_back | cancel | admit | reprioritise | peek | position us |");
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for (waiting, users) in [(1_000_u32, 100_u64), (100_000, 1_000), (1_000_000, 10_000)] {
        let mut load = Load { numbers: Numbers(0x9e37_79b9_7f4a_7c15), users, now: Micros(0).plus_ms(10_000_000) };
        let tasks = (0..u64::from(waiting)).map(|n| load.task(n)).collect::<Result<Vec<_>, _>>()?;
        let mut bench = Bench { queue: Queue::new(limits()), numbers: Numbers(7), waiting, now: load.now };
        let mut tasks = tasks.into_iter();
        let fill = each_ns(waiting, |_| {
            if let Some(task) = tasks.next() {
                bench.queue.admit(task, bench.now);
            }
        });
        // The first call moves all entries that have aged by then. This cost occurs once per entry and is not part of the
        // steady state.
        bench.queue.peek(GPU, bench.now);
        let [pop, yield_back] = bench.rounds();
        let [cancel, admit] = bench.cancels();
        let (reprioritise, peek, position) = (bench.reprioritise(), bench.peek(), bench.position_us());
        assert_eq!(bench.queue.len(), waiting as usize, "nothing is lost or doubled");
        println!(
            "| {waiting} | {users} | {fill:.0} | {pop:.0} | {yield_back:.0} | {cancel:.0} | {admit:.0} | \
             {reprioritise:.0} | {peek:.0} | {position:.0} |"
        );
    }
    Ok(())
}
