//! The disk as one run of the process sees it: slow, full, or unavailable in the middle of a commit; frozen or dead
//! together with its process.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use annie_core::{
    faults::{FaultKind, Target},
    ports::{Storage, StoreErrorKind},
};
use annie_store::{MemoryStore, StoreFault, StorePoint, StoreSide};
use annie_testkit::sim::{Dice, Schedule};

use super::{shared::Shared, town::pass_ms, watch::Watch};

/// The state of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    Runs,
    /// Frozen: the process does nothing and may continue later.
    Frozen,
    /// The process continued after other nodes had declared it dead: it may claim nothing any more.
    Stale,
    /// The process does nothing ever again.
    Dead,
}

/// One run of the process.
pub struct Run {
    pub number: u32,
    health: Shared<Health>,
}

impl Run {
    pub fn new(number: u32) -> Arc<Self> {
        Arc::new(Self { number, health: Shared::new(Health::Runs) })
    }

    pub fn is(&self, health: Health) -> bool {
        self.health.get() == health
    }

    pub fn set_health(&self, health: Health) {
        self.health.set(health);
    }

    /// Waits until the process runs.
    async fn wait_until_running(&self) {
        self.health.wait_for(|h| matches!(h, Health::Runs | Health::Stale)).await;
    }
}

/// Possible latencies of a call on each side, in milliseconds. A run has one of them.
const PACES_MS: [u64; 3] = [0, 3, 40];
/// How often a process scans that receives no notifications from others, in milliseconds, as the store for several
/// processes does.
const SCAN_MS: u64 = 60_000;
const TROUBLES: [FaultKind; 5] =
    [FaultKind::Full, FaultKind::Locked, FaultKind::Unavailable, FaultKind::LoseReply, FaultKind::Slow];

/// The disk of one run.
pub fn disk(
    data: &MemoryStore,
    run: &Arc<Run>,
    dice: Dice,
    schedule: &Arc<Schedule>,
    watch: &Arc<Watch>,
) -> Arc<dyn Storage> {
    let (hook_run, schedule, watch) = (run.clone(), schedule.clone(), watch.clone());
    let stalls = Arc::new(Mutex::new(0_u64));
    let to_come = stalls.clone();
    let hook = move |point: StorePoint<'_>| {
        let fault = fault_at(point, &hook_run, &schedule, &to_come);
        if let StorePoint::Commit(batch) = point {
            watch.commits(batch, matches!(fault, StoreFault::Fail(_) | StoreFault::Hang));
        } else {
            watch.settle();
        }
        fault
    };
    let (run, calls, pace_ms) = (run.clone(), Mutex::new(BTreeMap::new()), dice.of("disk").pick(&PACES_MS));
    let wait = move |point: StorePoint<'_>, side: StoreSide| -> annie_core::ports::Fut<'static, ()> {
        let (run, name) = (run.clone(), name(point));
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
            run.wait_until_running().await;
        })
    };
    let notified_by_scans = data.with_wakes(Arc::new(|| Box::pin(pass_ms(SCAN_MS))));
    Arc::new(notified_by_scans.with_hook(Arc::new(hook)).with_wait(Arc::new(wait)))
}

const fn name(point: StorePoint<'_>) -> &'static str {
    match point {
        StorePoint::Commit(_) => "commit",
        StorePoint::Claim(_) => "claim",
        StorePoint::Write(name) | StorePoint::Read(name) => name,
    }
}

fn fault_at(point: StorePoint<'_>, run: &Run, schedule: &Schedule, stall: &Mutex<u64>) -> StoreFault {
    // A process that was declared dead claims nothing and accepts nothing, because no other process would be notified of
    // it.
    let needs_a_live_process = match point {
        StorePoint::Claim(_) => true,
        StorePoint::Commit(batch) => batch.iter().any(|append| append.fence.is_inbox()),
        StorePoint::Write(_) | StorePoint::Read(_) => false,
    };
    if needs_a_live_process && run.is(Health::Stale) {
        return StoreFault::Fail(StoreErrorKind::Unavailable);
    }
    let Some(fault) = schedule.pass(Target::Store, name(point), "call", &TROUBLES) else {
        return StoreFault::Pass;
    };
    match fault.kind {
        FaultKind::Full => StoreFault::Fail(StoreErrorKind::Full),
        FaultKind::Locked => StoreFault::Fail(StoreErrorKind::Locked),
        FaultKind::Unavailable => StoreFault::Fail(StoreErrorKind::Unavailable),
        FaultKind::LoseReply => StoreFault::LoseReply(StoreErrorKind::Unavailable),
        _ => {
            *stall.lock().unwrap_or_else(PoisonError::into_inner) = u64::from(fault.wait_ms);
            StoreFault::Pass
        }
    }
}
