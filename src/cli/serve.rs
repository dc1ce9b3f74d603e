//! `annie serve`: kernel and doors until a signal, then an orderly stop. The exit code is not zero if the kernel ended by
//! itself, so that a service manager starts it again.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use annie_actors::{Kernel, StopReason};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::{
    net::TcpListener,
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
};

use super::{
    args,
    ask::introduce,
    failure::{Exit, Failure},
    service,
    site::{Address, Site},
};
use crate::{auth::Auth, boot, door::AppState, error::AppError, http, telemetry};

/// How often counters are tidied up when nobody reads them, in milliseconds.
const METRICS_TIDY_MS: u64 = 10_000;
/// What the door gets over its own patience, to notice that it has run out.
const SPARE: Duration = Duration::from_secs(1);

/// `annie serve`
///
/// # Errors
/// If something does not start, or the kernel or a door ended by itself.
pub async fn run(site: &Site, serve: args::Serve) -> Result<(), Failure> {
    let config = &site.loaded.config;
    let mut signals = Signals::new()?;
    let metrics = config.metrics.enabled.then(telemetry::metrics).flatten();
    let (listener, at) = listen(config.server.bind).await?;
    let assembled = boot::assemble(&site.loaded, &site.folder).await?;
    introduce(site);
    let auth = match admitted(site, &assembled, at.ip().is_loopback()).await {
        Ok(auth) => auth,
        Err(failure) => {
            assembled.stop().await;
            return Err(failure);
        }
    };
    let kernel = assembled.kernel.clone();
    assembled.watch_skills();
    assembled.watch_notes();
    let state =
        AppState::new(kernel.clone(), auth, config.doors.clone(), metrics.clone()).with_chaos(assembled.chaos.clone());
    let state = state.with_notes(assembled.notes.clone());
    let door = Door::open(&kernel, listener, state);
    run_beside(site, &kernel, metrics);
    let why = match tell_ready(site, &serve, &Address::of(at)) {
        Ok(()) => tokio::select! {
            reason = kernel.ended() => ended_by_itself(&reason),
            broken = door.broken() => Some(broken),
            () = signals.next() => None,
        },
        Err(failure) => Some(failure),
    };
    service::notify(&site.loaded.environment, "STOPPING=1");
    site.console.say("annie: stopping; a second signal leaves at once");
    // If it cannot be removed, whoever reads it finds that nobody answers there.
    let _ = std::fs::remove_file(Address::file(&site.folder));
    kernel.drain();
    let stopped = async {
        door.close(Duration::from_millis(config.doors.drain_ms_max)).await;
        assembled.stop().await;
    };
    tokio::select! {
        () = stopped => {}
        () = signals.next() => return Err(Failure::interrupted()),
    }
    match why {
        Some(failure) => Err(failure),
        None => {
            site.console.say("annie: stopped; what was open goes on at the next start");
            Ok(())
        }
    }
}

async fn listen(at: SocketAddr) -> Result<(std::net::TcpListener, SocketAddr), Failure> {
    let failed = |source| AppError::Listen { at, source };
    let listener = TcpListener::bind(at).await.and_then(TcpListener::into_std).map_err(failed)?;
    let at = listener.local_addr().map_err(failed)?;
    Ok((listener, at))
}

/// HTTP and gRPC as a part of the tree: a life that was killed or panicked is followed by another on the same port. A
/// listener that breaks ends the server.
struct Door {
    close: watch::Sender<bool>,
    how: watch::Receiver<How>,
}

/// How the door is.
#[derive(Clone)]
enum How {
    Open,
    Closed,
    Broken(Failure),
}

impl Door {
    fn open(kernel: &Kernel, listener: std::net::TcpListener, state: AppState) -> Self {
        let (close, closed) = watch::channel(false);
        let (tell, how) = watch::channel(How::Open);
        let (listener, tell) = (Arc::new(listener), Arc::new(tell));
        let life = move || {
            let (listener, state, tell) = (listener.clone(), state.clone(), tell.clone());
            let mut closed = closed.clone();
            async move {
                let listener = listener.try_clone().and_then(TcpListener::from_std).map_err(|e| e.to_string())?;
                let shutdown = async move {
                    // An error means that the server is gone, which is an end too.
                    let _ = closed.wait_for(|closed| *closed).await;
                };
                let ended = http::serve(listener, state, shutdown).await;
                let said = ended.as_ref().map_err(ToString::to_string).copied();
                tell.send_replace(ended.map_or_else(|e| How::Broken(e.into()), |()| How::Closed));
                said
            }
        };
        kernel.run_door("http", Arc::new(move || Box::pin(life())));
        Self { close, how }
    }

    /// Waits until the listener breaks.
    async fn broken(&self) -> Failure {
        let mut how = self.how.clone();
        match how.wait_for(|how| !matches!(how, How::Open)).await.as_deref() {
            Ok(How::Broken(failure)) => failure.clone(),
            Ok(_) | Err(_) => Failure::new(Exit::Failure, "the doors closed by themselves"),
        }
    }

    /// Closes it: open requests have some time to end.
    async fn close(&self, patience: Duration) {
        self.close.send_replace(true);
        let mut how = self.how.clone();
        // A life that was just killed answers no more; the next one closes at once.
        let _ = tokio::time::timeout(patience + SPARE, how.wait_for(|how| !matches!(how, How::Open))).await;
    }
}

/// What runs beside the doors: the service manager's watchdog, and tidying up what was counted.
fn run_beside(site: &Site, kernel: &Kernel, metrics: Option<PrometheusHandle>) {
    if let Some(every) = service::watchdog_every(&site.loaded.environment) {
        let (environment, of) = (site.loaded.environment.clone(), kernel.clone());
        let keep = move || service::keep_watchdog(environment.clone(), of.clone(), every);
        kernel.run_resource("watchdog", Arc::new(move || Box::pin(keep())));
    }
    if let Some(metrics) = metrics {
        let tidy = move || {
            let metrics = metrics.clone();
            async move {
                loop {
                    tokio::time::sleep(Duration::from_millis(METRICS_TIDY_MS)).await;
                    metrics.run_upkeep();
                }
            }
        };
        kernel.run_resource("metrics", Arc::new(move || Box::pin(tidy())));
    }
}

/// Looks whether this address may be served with the keys that there are.
async fn admitted(site: &Site, assembled: &boot::Assembled, is_loopback: bool) -> Result<Arc<Auth>, Failure> {
    let kernel = &assembled.kernel;
    let auth = Auth::load_in(kernel.store().clone(), kernel.env().clone(), site.user(), Some(site.folder.clone()));
    let auth = auth.await.map_err(AppError::from)?;
    if auth.needs_keys() || (is_loopback && !site.loaded.config.server.require_key) {
        return Ok(auth);
    }
    let what = if is_loopback {
        "server.require_key is set and there is no key".to_owned()
    } else {
        format!("{} can be reached from other machines and there is no key", site.loaded.config.server.bind)
    };
    Err(Failure::new(Exit::Usage, what)
        .fix("make a key with `annie key create NAME --scope admin`, or listen on 127.0.0.1"))
}

fn tell_ready(site: &Site, serve: &args::Serve, address: &Address) -> Result<(), Failure> {
    // A full disk must not keep the server from answering: what is stored stays readable.
    if let Err(failure) = address.write_into(&site.folder) {
        tracing::warn!(error = failure.what, "commands on this folder need --url: the server's address is not kept");
    }
    if let Some(file) = &serve.ready_file {
        address.write(file)?;
    }
    site.console.say_always(&format!("annie {}: ready at {} (pid {})", crate::door::VERSION, address.url, address.pid));
    service::notify(&site.loaded.environment, "READY=1");
    Ok(())
}

fn ended_by_itself(reason: &StopReason) -> Option<Failure> {
    match reason {
        StopReason::Asked => None,
        StopReason::Failed(_) => Some(
            Failure::new(Exit::Failure, format!("the kernel has ended: {reason}"))
                .fix("start it again: nothing acknowledged is lost; the log says what broke"),
        ),
    }
}

/// SIGTERM and SIGINT.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub fn new() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(|e| Failure::io("cannot listen for signals", &e));
        Ok(Self { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
