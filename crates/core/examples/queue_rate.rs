//! How fast the scheduler's queue is at 1,000, 100,000 and 1,000,000 waiting tasks: the time of one operation, with the
//! queue kept at that length. Run with optimisation: `cargo run --release -p annie-core --example queue_rate`.
#![expect(clippy::print_stdout, reason = "an example that prints its measurements")]

use std::time::Instant;

use annie_core::{
    event::Priority,
    ids::{ConversationId, IdError, TaskId, UserId},
    queue::{BackendId, Queue, QueueLimits, Waiting},
    time::Micros,
};
use uuid::Uuid;

const OPERATIONS: u32 = 200_000;
const GPU: BackendId = BackendId(0);

/// A small generator: equal runs are equal.
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

/// Nanoseconds of one operation.
fn each_ns(operations: u32, mut run: impl FnMut(u32)) -> f64 {
    let start = Instant::now();
    for n in 0..operations {
        run(n);
    }
    start.elapsed().as_nanos() as f64 / f64::from(operations)
}

fn main() -> Result<(), IdError> {
    println!(
        "{:>9} {:>7} {:>10} {:>12} {:>12} {:>12}",
        "waiting", "users", "fill ns", "pop+put ns", "out+in ns", "peek ns"
    );
    for (waiting, users) in [(1_000_u32, 100_u64), (100_000, 1_000), (1_000_000, 10_000)] {
        let mut load = Load { numbers: Numbers(0x9e37_79b9_7f4a_7c15), users, now: Micros(0).plus_ms(10_000_000) };
        let tasks = (0..u64::from(waiting)).map(|n| load.task(n)).collect::<Result<Vec<_>, _>>()?;
        let mut queue = Queue::new(QueueLimits::default());
        let mut tasks = tasks.into_iter();
        let now = load.now;
        let fill = each_ns(waiting, |_| {
            if let Some(task) = tasks.next() {
                queue.restore(task, now);
            }
        });
        // The first pop moves all that have aged by then; it is paid once an entry and not part of a steady state.
        queue.peek(GPU, now);
        let pop_put = each_ns(OPERATIONS, |n| {
            let now = now.plus_ms(i64::from(n));
            if let Some(grant) = queue.pop(GPU, now) {
                queue.yield_back(grant.waiting, now);
            }
        });
        let mut numbers = Numbers(7);
        let out_in = each_ns(OPERATIONS, |n| {
            let task = TaskId::from_uuid(Uuid::from_u128(u128::from(numbers.next() % u64::from(waiting))));
            let now = now.plus_ms(i64::from(OPERATIONS + n));
            if let Some(task) = queue.remove(task) {
                queue.restore(task, now);
            }
        });
        let peek = each_ns(OPERATIONS, |n| {
            queue.peek(GPU, now.plus_ms(i64::from(2 * OPERATIONS + n)));
        });
        println!("{waiting:>9} {users:>7} {fill:>10.0} {pop_put:>12.0} {out_in:>12.0} {peek:>12.0}");
    }
    Ok(())
}
