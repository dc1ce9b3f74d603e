//! `annie serve`: runs kernel and front ends until a signal, then stops in good order. The exit code is not zero if the kernel
//! ended without a signal, so that a service manager restarts it.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use annie_actors::{Kernel, StopReason};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::{
    net::TcpListener,
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
};

use super::{
    admin::AdminListener,
    args,
    ask::introduce,
    failure::{Exit, Failure},
    service,
    site::{Address, Site},
};
use crate::{
    api::{ApiLimits, AppState},
    auth::Auth,
    boot,
    error::AppError,
    http, logging, telemetry,
};

/// How often the metrics are compacted, in milliseconds. Without it they grow while no client reads them.
const METRICS_TIDY_MS: u64 = 10_000;
/// Extra time for the listener to report that its drain time is over.
const SPARE: Duration = Duration::from_secs(1);

/// `annie serve`
///
/// # Errors
/// If a part does not start, or the kernel or the listener ended without a signal.
pub async fn run(site: &Site, serve: args::Serve) -> Result<(), Failure> {
    let config = &site.loaded.config;
    let mut signals = Signals::new()?;
    let metrics = config.metrics.enabled.then(telemetry::metrics).flatten();
    let (api, at) = listen(config.server.bind).await?;
    let admin = AdminListener::bind(config.server.admin_bind).await?;
    let address = Address::of(at).with_admin(admin.as_ref().map(|admin| admin.at));
    let assembled = boot::assemble(&site.loaded, &site.folder).await?;
    introduce(site);
    let listens_at = [Some(at), admin.as_ref().map(|admin| admin.at)];
    let auth = match admitted(site, &assembled, &listens_at).await {
        Ok(auth) => auth,
        Err(failure) => {
            assembled.stop().await;
            return Err(failure);
        }
    };
    let kernel = assembled.kernel.clone();
    assembled.watch_skills();
    assembled.watch_notes();
    let state = state_of(&assembled, auth, config.api.clone(), metrics.clone());
    let state = state.with_settings(super::config::settings(&site.loaded)).with_log(logging::control());
    let admin = admin.map(|admin| admin.serve(state.clone().of_admin_plane())).transpose();
    let api = Listener::open(&kernel, api, state);
    run_beside(site, &kernel, metrics);
    let begun = admin.and_then(|admin| report_ready(site, &serve, &address).map(|()| admin));
    let why = match &begun {
        Ok(_) => tokio::select! {
            reason = kernel.ended() => ended_by_itself(&reason),
            broken = api.broken() => Some(broken),
            () = signals.next() => None,
        },
        Err(failure) => Some(failure.clone()),
    };
    service::notify(&site.loaded.environment, "STOPPING=1");
    site.console.say("annie: stopping; a second signal leaves at once");
    // If the file cannot be removed, its readers find that no server answers at the address.
    let _ = std::fs::remove_file(Address::file(&site.folder));
    kernel.drain();
    let stopped = async {
        // Open requests get time to end only while there is a kernel that can answer them.
        let failure_of_kernel = tokio::select! {
            () = api.close(Duration::from_millis(config.api.drain_ms_max)) => None,
            reason = kernel.ended() => ended_by_itself(&reason),
        };
        assembled.stop().await;
        if let Ok(Some(admin)) = begun {
            admin.close().await;
        }
        failure_of_kernel
    };
    let failure_while_draining = tokio::select! {
        failure = stopped => failure,
        () = signals.next() => return Err(Failure::interrupted()),
    };
    match why.or(failure_while_draining) {
        Some(failure) => Err(failure),
        None => {
            site.console.say("annie: stopped; open work continues at the next start");
            Ok(())
        }
    }
}

/// The state of the front ends of a server.
pub(super) fn state_of(
    assembled: &boot::Assembled,
    auth: Arc<Auth>,
    limits: ApiLimits,
    metrics: Option<PrometheusHandle>,
) -> AppState {
    let state = AppState::new(assembled.kernel.clone(), auth, limits, metrics).with_chaos(assembled.chaos.clone());
    state.with_notes(assembled.notes.clone()).with_skills(assembled.skills.clone()).with_mcp(&assembled.mcp)
}

async fn listen(at: SocketAddr) -> Result<(std::net::TcpListener, SocketAddr), Failure> {
    let failed = |source| AppError::Listen { at, source };
    let api = TcpListener::bind(at).await.and_then(TcpListener::into_std).map_err(failed)?;
    let at = api.local_addr().map_err(failed)?;
    Ok((api, at))
}

/// HTTP and gRPC as a service of the actor tree: after a kill or a panic the next run uses the same port. A broken listening
/// socket ends the server.
struct Listener {
    close: watch::Sender<bool>,
    state: watch::Receiver<ListenerState>,
}

#[derive(Clone)]
enum ListenerState {
    Open,
    Closed,
    Broken(Failure),
}

impl Listener {
    fn open(kernel: &Kernel, api: std::net::TcpListener, state: AppState) -> Self {
        let (close, closed) = watch::channel(false);
        let (report, listener_state) = watch::channel(ListenerState::Open);
        let (api, report) = (Arc::new(api), Arc::new(report));
        let run = move || {
            let (api, state, report) = (api.clone(), state.clone(), report.clone());
            let mut closed = closed.clone();
            async move {
                let api = api.try_clone().and_then(TcpListener::from_std).map_err(|e| e.to_string())?;
                let shutdown = async move {
                    // An error means that the sender is gone, which is also a shutdown.
                    let _ = closed.wait_for(|closed| *closed).await;
                };
                let ended = http::serve(api, state, shutdown).await;
                let result = ended.as_ref().map_err(ToString::to_string).copied();
                report.send_replace(ended.map_or_else(|e| ListenerState::Broken(e.into()), |()| ListenerState::Closed));
                result
            }
        };
        kernel.run_listener("http", Arc::new(move || Box::pin(run())));
        Self { close, state: listener_state }
    }

    /// Waits until the listener breaks.
    async fn broken(&self) -> Failure {
        let mut state = self.state.clone();
        match state.wait_for(|state| !matches!(state, ListenerState::Open)).await.as_deref() {
            Ok(ListenerState::Broken(failure)) => failure.clone(),
            Ok(_) | Err(_) => Failure::new(Exit::Failure, "the listener closed unexpectedly"),
        }
    }

    /// Closes the listener. Open requests have `patience` to end.
    async fn close(&self, patience: Duration) {
        self.close.send_replace(true);
        let mut state = self.state.clone();
        // A run that was just killed does not report; the next run closes at once.
        let closed = state.wait_for(|state| !matches!(state, ListenerState::Open));
        let _ = tokio::time::timeout(patience + SPARE, closed).await;
    }
}

/// Starts the service manager's watchdog and the compaction of metrics.
fn run_beside(site: &Site, kernel: &Kernel, metrics: Option<PrometheusHandle>) {
    if let Some(every) = service::watchdog_every(&site.loaded.environment) {
        let (environment, of) = (site.loaded.environment.clone(), kernel.clone());
        let feed = move || service::feed_watchdog(environment.clone(), of.clone(), every);
        kernel.run_resource("watchdog", Arc::new(move || Box::pin(feed())));
    }
    if let Some(metrics) = metrics {
        let compact = move || {
            let metrics = metrics.clone();
            async move {
                loop {
                    tokio::time::sleep(Duration::from_millis(METRICS_TIDY_MS)).await;
                    metrics.run_upkeep();
                }
            }
        };
        kernel.run_resource("metrics", Arc::new(move || Box::pin(compact())));
    }
}

/// Checks whether the existing keys allow to serve these addresses.
async fn admitted(
    site: &Site,
    assembled: &boot::Assembled,
    listens_at: &[Option<SocketAddr>],
) -> Result<Arc<Auth>, Failure> {
    let kernel = &assembled.kernel;
    let auth = Auth::load_in(kernel.store().clone(), kernel.env().clone(), site.user(), Some(site.folder.clone()));
    let auth = auth.await.map_err(AppError::from)?;
    let open = listens_at.iter().flatten().find(|at| !at.ip().is_loopback());
    if auth.needs_keys() || (open.is_none() && !site.loaded.config.server.require_key) {
        return Ok(auth);
    }
    let what = match open {
        None => "server.require_key is set and there is no key".to_owned(),
        Some(at) => format!("{at} can be reached from other machines and there is no key"),
    };
    Err(Failure::new(Exit::Usage, what)
        .fix("make a key with `annie key create NAME --scope admin`, or listen on 127.0.0.1"))
}

fn report_ready(site: &Site, serve: &args::Serve, address: &Address) -> Result<(), Failure> {
    // A full disk must not prevent the server from answering, because stored data stays readable.
    if let Err(failure) = address.write_into(&site.folder) {
        tracing::warn!(
            error = failure.what,
            "commands on this folder need --url: the server's address could not be stored"
        );
    }
    if let Some(file) = &serve.ready_file {
        address.write(file)?;
    }
    site.console.say_always(&format!("annie {}: ready at {} (pid {})", crate::api::VERSION, address.url, address.pid));
    service::notify(&site.loaded.environment, "READY=1");
    Ok(())
}

fn ended_by_itself(reason: &StopReason) -> Option<Failure> {
    match reason {
        StopReason::Asked => None,
        StopReason::Failed(_) => Some(
            Failure::new(Exit::Failure, format!("the kernel has ended: {reason}"))
                .fix("start it again: no acknowledged message is lost; the log has the cause"),
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
