//! The disk as one life of the process sees it: slow, full, or gone in the middle of a commit; and frozen or dead with its
//! process.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use annie_core::ports::{Fence, Store, StoreErrorKind};
use annie_store::{MemoryStore, StoreFault, StorePoint, StoreSide};
use annie_testkit::sim::{Dice, Schedule};

use super::{shared::Shared, town::pass_ms, watch::Watch};

/// How a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    Runs,
    /// It does nothing, and may go on later.
    Frozen,
    /// It woke up, and was declared dead meanwhile: it may take nothing over any more.
    Stale,
    /// It does nothing ever again.
    Dead,
}

/// One life of the process.
pub struct Life {
    pub number: u32,
    health: Shared<Health>,
}

impl Life {
    pub fn new(number: u32) -> Arc<Self> {
        Arc::new(Self { number, health: Shared::new(Health::Runs) })
    }

    pub fn is(&self, health: Health) -> bool {
        self.health.get() == health
    }

    pub fn becomes(&self, health: Health) {
        self.health.set(health);
    }

    /// Waits until the process goes on.
    async fn goes_on(&self) {
        self.health.wait_for(|h| matches!(h, Health::Runs | Health::Stale)).await;
    }
}

/// How long a call takes on each side, in milliseconds: one of these for a run.
const PACES_MS: [u64; 3] = [0, 3, 40];
/// How long a disk stalls, in milliseconds: longer than a commit may take, or just long.
const STALLS_MS: [u64; 3] = [300, 4_000, 17_000];
/// How often a process looks that is never told of another one, in milliseconds: as the store for many processes has it.
const LOOK_MS: u64 = 60_000;
const TROUBLES: [&str; 5] = ["full", "locked", "unavailable", "reply lost", "stalls"];

/// The disk of a life.
pub fn disk(
    data: &MemoryStore,
    life: &Arc<Life>,
    dice: Dice,
    schedule: &Arc<Schedule>,
    watch: &Arc<Watch>,
) -> Arc<dyn Store> {
    let (hook_life, schedule, watch) = (life.clone(), schedule.clone(), watch.clone());
    let stalls = Arc::new(Mutex::new(0_u64));
    let to_come = stalls.clone();
    let hook = move |point: StorePoint<'_>| {
        let fault = strikes(point, &hook_life, &schedule, &to_come);
        if let StorePoint::Commit(batch) = point {
            watch.commits(batch, matches!(fault, StoreFault::Fail(_) | StoreFault::Hang));
        } else {
            watch.settle();
        }
        fault
    };
    let (life, calls, pace_ms) = (life.clone(), Mutex::new(BTreeMap::new()), dice.of("disk").pick(&PACES_MS));
    let wait = move |point: StorePoint<'_>, side: StoreSide| -> annie_core::ports::Fut<'static, ()> {
        let (life, name) = (life.clone(), name(point));
        let mut calls = calls.lock().unwrap_or_else(PoisonError::into_inner);
        let count: &mut u64 = calls.entry((name, side == StoreSide::After)).or_default();
        *count += 1;
        let dice = dice.of(name).nth(*count).nth(u64::from(side == StoreSide::After));
        let stall_ms = match side {
            StoreSide::Before => 0,
            StoreSide::After => std::mem::take(&mut *stalls.lock().unwrap_or_else(PoisonError::into_inner)),
        };
        Box::pin(async move {
            let ms = stall_ms + dice.below(pace_ms + 1);
            if ms > 0 {
                pass_ms(ms).await;
            }
            life.goes_on().await;
        })
    };
    let looks = data.with_wakes(Arc::new(|| Box::pin(pass_ms(LOOK_MS))));
    Arc::new(looks.with_hook(Arc::new(hook)).with_wait(Arc::new(wait)))
}

const fn name(point: StorePoint<'_>) -> &'static str {
    match point {
        StorePoint::Commit(_) => "commit",
        StorePoint::Claim(_) => "claim",
        StorePoint::Write(name) | StorePoint::Read(name) => name,
    }
}

fn strikes(point: StorePoint<'_>, life: &Life, schedule: &Schedule, stall: &Mutex<u64>) -> StoreFault {
    // A process that was declared dead takes nothing over and takes nothing in: nobody would hear of it.
    let is_for_the_living = match point {
        StorePoint::Claim(_) => true,
        StorePoint::Commit(batch) => batch.iter().any(|append| append.fence == Fence::Inbox),
        StorePoint::Write(_) | StorePoint::Read(_) => false,
    };
    if is_for_the_living && life.is(Health::Stale) {
        return StoreFault::Fail(StoreErrorKind::Unavailable);
    }
    let Some((kind, dice)) = schedule.pass(&format!("store {}", name(point)), &TROUBLES) else {
        return StoreFault::Pass;
    };
    match kind {
        "full" => StoreFault::Fail(StoreErrorKind::Full),
        "locked" => StoreFault::Fail(StoreErrorKind::Locked),
        "unavailable" => StoreFault::Fail(StoreErrorKind::Unavailable),
        "reply lost" => StoreFault::LoseReply(StoreErrorKind::Unavailable),
        _ => {
            *stall.lock().unwrap_or_else(PoisonError::into_inner) = dice.of("stall").pick(&STALLS_MS);
            StoreFault::Pass
        }
    }
}
