//! The listening end: so many connections, altogether and of one address, none of which may dawdle, and an orderly stop.

use std::{
    future::Future,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::{Router, http::Request};
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto::Builder, graceful::GracefulShutdown},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
    time::{Sleep, sleep, timeout},
};
use tower::ServiceExt;

use super::{
    connections::{Connections, Guest},
    guard::Peer,
};
use crate::{
    door::{AppState, DoorLimits},
    error::AppError,
    grpc,
};

/// How often the other end of a silent HTTP/2 connection is asked whether it is there.
const PING_EVERY: Duration = Duration::from_secs(30);
/// How long it may take to say so.
const PING_WAIT: Duration = Duration::from_secs(20);
/// The longest head of an HTTP/2 request, in bytes.
const HEAD_BYTES_MAX: u32 = 32 * 1024;
/// The buffer of an HTTP/1 connection, which bounds a request's head, in bytes.
const BUFFER_BYTES_MAX: usize = 64 * 1024;
/// So many bytes tell the protocols apart.
const PREFACE_BYTES: usize = 24;
/// How long to wait when no connection can be accepted, in milliseconds.
const ACCEPT_AGAIN_MS: u64 = 200;

/// Serves HTTP and gRPC until `shutdown`, then stops: health says so, no connection and no message is taken any more,
/// streams are ended with a hint to resume, and what is under way has `drain_ms_max` to end. Dropping it cuts every
/// connection.
///
/// # Errors
/// If the address may not be served without keys, or the listener breaks.
pub async fn serve(
    listener: TcpListener,
    state: AppState,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), AppError> {
    let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
    let at = listener.local_addr().map_err(|source| AppError::Listen { at: nowhere, source })?;
    if !state.auth.needs_keys() && !at.ip().is_loopback() {
        return Err(AppError::Config(format!(
            "{at} is reachable from other machines and there is no key: make one with `annie key create`, or listen on 127.0.0.1"
        )));
    }
    grpc::open(&state.doors.health).await;
    let mut house = House::new(&state);
    let broken = tokio::select! {
        broken = house.receive(&listener) => Some(broken),
        () = shutdown => None,
    };
    drop(listener);
    tracing::info!(%at, "the doors are closing");
    state.doors.close(&state.kernel).await;
    if !house.see_off(Duration::from_millis(state.limits.drain_ms_max)).await {
        tracing::warn!(%at, "some requests did not end in time and are cut off");
    }
    match broken {
        Some(source) => Err(AppError::Door { at, source }),
        None => Ok(()),
    }
}

/// The connections of one server.
struct House {
    app: Router,
    limits: Arc<DoorLimits>,
    builder: Arc<Builder<TokioExecutor>>,
    places: Arc<Semaphore>,
    connections: Connections,
    farewell: GracefulShutdown,
    guests: JoinSet<()>,
}

impl House {
    fn new(state: &AppState) -> Self {
        let limits = state.limits.clone();
        let head = Duration::from_millis(limits.head_ms_max);
        let mut builder = Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(head).max_buf_size(BUFFER_BYTES_MAX);
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_WAIT)
            .max_concurrent_streams(limits.requests_per_connection_max)
            .max_header_list_size(HEAD_BYTES_MAX);
        Self {
            app: super::app(state.clone()),
            places: Arc::new(Semaphore::new(limits.connections_max.clamp(1, Semaphore::MAX_PERMITS))),
            connections: Connections::new(limits.connections_per_address_max),
            limits,
            builder: Arc::new(builder),
            farewell: GracefulShutdown::new(),
            guests: JoinSet::new(),
        }
    }

    /// Takes connections in while there are places; ends only with an error.
    async fn receive(&mut self, listener: &TcpListener) -> io::Error {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(left) = self.guests.join_next() => {
                    if let Err(error) = left {
                        tracing::error!(%error, "a connection broke down");
                    }
                    continue;
                }
            };
            match accepted {
                Ok((stream, at)) => match self.connections.enter(at.ip()) {
                    Some(guest) => {
                        // Not cut itself while it waits.
                        let entering = guest.standing.begin();
                        let place = self.place().await;
                        drop(entering);
                        self.admit(stream, at, place, guest);
                    }
                    None => tracing::debug!(%at, "this address has its share of the connections: one was closed"),
                },
                Err(error) if is_listeners(&error) => return error,
                // The caller is gone already, or this process has too many files open: others may be luckier.
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    sleep(Duration::from_millis(ACCEPT_AGAIN_MS)).await;
                }
            }
        }
    }

    /// Waits for a place. Connections that are idle and have shown no key make room for it.
    async fn place(&self) -> Option<OwnedSemaphorePermit> {
        loop {
            if self.places.available_permits() == 0 {
                self.connections.make_room();
            }
            let place = self.places.clone().acquire_owned();
            // Nobody closes the semaphore, so there always comes a place.
            if let Ok(place) = timeout(Duration::from_millis(ACCEPT_AGAIN_MS), place).await {
                return place.ok();
            }
        }
    }

    fn admit(&mut self, stream: TcpStream, at: SocketAddr, place: Option<OwnedSemaphorePermit>, guest: Guest) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection keeps its delay");
        }
        let (app, standing) = (self.app.clone(), guest.standing.clone());
        let app = tower::service_fn(move |mut request: Request<Incoming>| {
            let under_way = standing.begin();
            request.extensions_mut().insert(Peer(at));
            request.extensions_mut().insert(standing.clone());
            let answer = app.clone().oneshot(request);
            async move {
                let answer = answer.await;
                drop(under_way);
                answer
            }
        });
        let io = TokioIo::new(Connection::new(stream, Duration::from_millis(self.limits.head_ms_max)));
        let (builder, watcher) = (self.builder.clone(), self.farewell.watcher());
        self.guests.spawn(async move {
            let _place = place;
            let connection = builder.serve_connection_with_upgrades(io, TowerToHyperService::new(app));
            tokio::select! {
                ended = watcher.watch(connection.into_owned()) => if let Err(error) = ended {
                    tracing::debug!(%at, error, "a connection ended badly");
                },
                () = guest.standing.cut() => tracing::debug!(%at, "an idle connection without a key made room"),
            }
        });
    }

    /// Lets what is under way end. False if it did not.
    async fn see_off(self, patience: Duration) -> bool {
        let Self { farewell, mut guests, .. } = self;
        let all = async {
            farewell.shutdown().await;
            while guests.join_next().await.is_some() {}
        };
        timeout(patience, all).await.is_ok()
    }
}

/// Whether an error of `accept` says that the listener itself is of no use any more.
fn is_listeners(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::NotConnected | io::ErrorKind::Unsupported)
}

/// A connection that has to say something soon: before the protocol is known, nothing else watches the time.
struct Connection {
    stream: TcpStream,
    heard_bytes: usize,
    patience: Option<Pin<Box<Sleep>>>,
}

impl Connection {
    fn new(stream: TcpStream, patience: Duration) -> Self {
        Self { stream, heard_bytes: 0, patience: Some(Box::pin(sleep(patience))) }
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if let Some(patience) = self.patience.as_mut()
            && read.is_pending()
            && patience.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        self.heard_bytes = self.heard_bytes.saturating_add(buf.filled().len() - before);
        if self.heard_bytes >= PREFACE_BYTES {
            self.patience = None;
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.patience = None;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.patience = None;
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
