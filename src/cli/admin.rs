//! The admin plane: all front ends once more, on a thread, a runtime and a listener of their own. It answers while every worker
//! thread is blocked, so that an operator sees the tree and kills the actor that blocks them. Its limits and rates are its own:
//! requests that wait for blocked workers take no place from an operator.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use annie_actors::Kernel;
use tokio::{net::TcpListener, sync::watch};

use super::failure::Failure;
use crate::{api::AppState, config::AdminBind, error::AppError, http, telemetry};

/// How often the worker threads show that they are not blocked, in milliseconds.
const BEAT_MS: u64 = 250;
/// How long no worker may show it before that is logged, in milliseconds.
const BLOCKED_MS_MIN: u64 = 3_000;
/// How long the end of the thread is waited for.
const END_WAIT: Duration = Duration::from_secs(1);

/// The listener, before it serves.
pub(super) struct AdminListener {
    listener: std::net::TcpListener,
    /// Its address.
    pub at: SocketAddr,
}

impl AdminListener {
    /// Listens, unless the admin plane is off.
    ///
    /// # Errors
    /// If the address cannot be used.
    pub async fn bind(to: AdminBind) -> Result<Option<Self>, Failure> {
        let AdminBind::At(at) = to else { return Ok(None) };
        let failed = |source| AppError::Listen { at, source };
        let listener = TcpListener::bind(at).await.and_then(TcpListener::into_std).map_err(failed)?;
        let at = listener.local_addr().map_err(failed)?;
        Ok(Some(Self { listener, at }))
    }

    /// Serves on a thread of its own, until it is closed.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn serve(self, state: AppState) -> Result<AdminPlane, Failure> {
        let beat = Arc::new(AtomicU64::new(0));
        let kernel = state.kernel.clone();
        kernel.run_resource("heartbeat", {
            let beat = Arc::clone(&beat);
            Arc::new(move || Box::pin(keep_beating(Arc::clone(&beat))))
        });
        let (close, closed) = watch::channel(false);
        let (done, ended) = watch::channel(false);
        let thread = std::thread::Builder::new().name("annie-admin".to_owned()).spawn(move || {
            match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => {
                    let watched = watch_workers(beat, kernel);
                    runtime.block_on(async {
                        tokio::select! {
                            () = answer(self.listener, state, closed) => {}
                            () = watched => {}
                        }
                    });
                }
                Err(error) => tracing::error!(%error, "the admin plane has no runtime"),
            }
            done.send_replace(true);
        });
        thread.map_err(|error| Failure::io("cannot start the thread of the admin plane", &error))?;
        Ok(AdminPlane { close, ended })
    }
}

/// The admin plane of a running server.
pub(super) struct AdminPlane {
    close: watch::Sender<bool>,
    ended: watch::Receiver<bool>,
}

impl AdminPlane {
    /// Closes the listener.
    pub async fn close(mut self) {
        self.close.send_replace(true);
        // A request that does not end holds the thread, which ends with the process.
        let _ = tokio::time::timeout(END_WAIT, self.ended.wait_for(|ended| *ended)).await;
    }
}

async fn answer(listener: std::net::TcpListener, state: AppState, mut closed: watch::Receiver<bool>) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "the admin plane does not listen"),
    };
    let shutdown = async move {
        // An error means that the sender is gone, which is also a shutdown.
        let _ = closed.wait_for(|closed| *closed).await;
    };
    if let Err(error) = http::serve(listener, state, shutdown).await {
        tracing::error!(%error, "the admin plane has ended, the server goes on without it");
    }
}

/// Counts up on the worker threads.
async fn keep_beating(beat: Arc<AtomicU64>) -> Result<(), String> {
    loop {
        beat.fetch_add(1, Relaxed);
        tokio::time::sleep(Duration::from_millis(BEAT_MS)).await;
    }
}

/// Notices on the thread of the admin plane that no worker thread runs anything.
async fn watch_workers(beat: Arc<AtomicU64>, kernel: Kernel) {
    let now_us = || kernel.env().clock.monotonic_us();
    let (mut last, mut seen_us, mut is_blocked) = (beat.load(Relaxed), now_us(), false);
    loop {
        tokio::time::sleep(Duration::from_millis(BEAT_MS)).await;
        let present = beat.load(Relaxed);
        if present != last {
            (last, seen_us) = (present, now_us());
        }
        let blocked_ms = now_us().saturating_sub(seen_us) / 1_000;
        let blocked = Duration::from_millis(if blocked_ms < BLOCKED_MS_MIN { 0 } else { blocked_ms });
        telemetry::workers_blocked(blocked.as_secs_f64());
        match (is_blocked, !blocked.is_zero()) {
            (false, true) => tracing::error!(
                blocked_ms,
                "all worker threads are blocked: only the admin plane answers; `annie actors tree` shows which actor has run longest"
            ),
            (true, false) => tracing::info!("the worker threads work again"),
            _ => {}
        }
        is_blocked = !blocked.is_zero();
    }
}
