//! Kills actors whose handler has been running for too long; their parents restart them. The watchdog runs on its own thread
//! with its own runtime, so that it works while every worker thread is blocked.

use std::{sync::Weak, time::Duration};

use annie_core::ports::Env;

use crate::{kernel::Kernel, observe::System};

/// Interval between two checks, in milliseconds, unless half the limit is shorter.
const CHECK_MS: u64 = 1_000;

/// Starts the watchdog of a kernel; it ends with the kernel. With a limit of 0 no watchdog is started, and only
/// [`Kernel::end_stuck`] kills stuck actors.
pub(crate) fn start(kernel: &Kernel) {
    let limit_ms = kernel.wiring.limits.stuck_ms_max;
    if limit_ms == 0 {
        return;
    }
    let system = std::sync::Arc::downgrade(&kernel.system);
    let ended = kernel.ended.clone();
    let spawned = std::thread::Builder::new().name("annie-watchdog".to_owned()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        match runtime {
            Ok(runtime) => runtime.block_on(watch(system, ended, limit_ms)),
            Err(e) => tracing::error!(error = %e, "the watchdog has no runtime"),
        }
    });
    if let Err(e) = spawned {
        tracing::error!(error = %e, "the watchdog could not be started: stuck actors stay stuck");
    }
}

async fn watch(
    system: Weak<System>,
    mut ended: tokio::sync::watch::Receiver<Option<crate::root::StopReason>>,
    limit_ms: u64,
) {
    let every = Duration::from_millis(CHECK_MS.min(limit_ms.max(2) / 2));
    loop {
        tokio::select! {
            biased;
            _ = ended.wait_for(Option::is_some) => return,
            () = tokio::time::sleep(every) => {}
        }
        let Some(system) = system.upgrade() else { return };
        kill_stuck(&system, &system.env, limit_ms);
    }
}

impl Kernel {
    /// Kills actors whose handler has been running for longer than this, in milliseconds: one check of the watchdog, for
    /// simulations whose time does not pass by itself.
    pub fn end_stuck(&self, limit_ms: u64) {
        kill_stuck(&self.system, &self.wiring.env, limit_ms);
    }
}

fn kill_stuck(system: &System, env: &Env, limit_ms: u64) {
    for (path, entry) in system.directory.stuck(env.clock.monotonic_us(), limit_ms.saturating_mul(1_000)) {
        let message = *entry.meter.current.lock();
        tracing::error!(%path, message, limit_ms, "the handler is stuck, killing the actor");
        metrics::counter!("annie_actors_stuck_total", "kind" => entry.kind).increment(1);
        entry.kill();
    }
}
