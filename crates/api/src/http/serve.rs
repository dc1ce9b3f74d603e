//! The listening socket of the front ends: connection limits in total and per address, time-outs for silent connections,
//! and a graceful stop.

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
    connections::{AdmittedConnection, Connections},
    guard::Peer,
};
use crate::{
    api::{ApiLimits, AppState},
    error::AppError,
    grpc,
};

/// The interval of pings on a silent HTTP/2 connection.
const PING_EVERY: Duration = Duration::from_secs(30);
/// The maximum wait for the reply to a ping.
const PING_WAIT: Duration = Duration::from_secs(20);
/// The maximum size of the headers of an HTTP/2 request, in bytes.
const HEAD_BYTES_MAX: u32 = 32 * 1024;
/// The buffer of an HTTP/1 connection, in bytes, which limits the size of a request head.
const BUFFER_BYTES_MAX: usize = 64 * 1024;
/// The number of bytes after which the protocol is known.
const PREFACE_BYTES: usize = 24;
/// The wait before the next attempt after a failed accept, in milliseconds.
const ACCEPT_AGAIN_MS: u64 = 200;

/// Serves HTTP and gRPC until `shutdown`, then stops: the health status changes, no new connection or message is accepted,
/// streams are ended with a hint to resume, and requests in progress get `drain_ms_max` to end. Dropping the future closes
/// every connection.
///
/// # Errors
/// If the address may not be served without keys, or the listener fails.
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
    grpc::open(&state.shared.health).await;
    let mut connection_server = ConnectionServer::new(&state);
    let broken = tokio::select! {
        broken = connection_server.accept_connections(&listener) => Some(broken),
        () = shutdown => None,
    };
    drop(listener);
    tracing::info!(%at, "the server stops accepting connections");
    state.shared.close(state.drains_kernel.then_some(&state.kernel)).await;
    if !connection_server.drain(Duration::from_millis(state.limits.drain_ms_max)).await {
        tracing::warn!(%at, "some requests did not end in time and are aborted");
    }
    match broken {
        Some(source) => Err(AppError::ListenerFailed { at, source }),
        None => Ok(()),
    }
}

/// The connections of one server.
struct ConnectionServer {
    app: Router,
    limits: Arc<ApiLimits>,
    builder: Arc<Builder<TokioExecutor>>,
    permits: Arc<Semaphore>,
    connections: Connections,
    graceful_shutdown: GracefulShutdown,
    connection_tasks: JoinSet<()>,
}

impl ConnectionServer {
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
            permits: Arc::new(Semaphore::new(limits.connections_max.clamp(1, Semaphore::MAX_PERMITS))),
            connections: Connections::new(limits.connections_per_address_max),
            limits,
            builder: Arc::new(builder),
            graceful_shutdown: GracefulShutdown::new(),
            connection_tasks: JoinSet::new(),
        }
    }

    /// Accepts connections while there is capacity. Returns only with an error.
    async fn accept_connections(&mut self, listener: &TcpListener) -> io::Error {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(left) = self.connection_tasks.join_next() => {
                    if let Err(error) = left {
                        tracing::error!(%error, "a connection task panicked");
                    }
                    continue;
                }
            };
            match accepted {
                Ok((stream, at)) => match self.connections.enter(at.ip()) {
                    Some(admitted) => {
                        // The connection must not be evicted itself while it waits.
                        let entering = admitted.connection.begin();
                        let permit = self.permit().await;
                        drop(entering);
                        self.admit(stream, at, permit, admitted);
                    }
                    None => {
                        tracing::debug!(%at, "the connection limit of this address is reached: the new connection was closed")
                    }
                },
                Err(error) if is_listener_error(&error) => return error,
                // The client has disconnected already, or this process has too many open files; a later attempt may succeed.
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    sleep(Duration::from_millis(ACCEPT_AGAIN_MS)).await;
                }
            }
        }
    }

    /// Waits for a connection permit. Idle connections without a key are closed to free one.
    async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        loop {
            if self.permits.available_permits() == 0 {
                self.connections.cut_idle();
            }
            let permit = self.permits.clone().acquire_owned();
            // The semaphore is never closed, so a permit is granted eventually.
            if let Ok(permit) = timeout(Duration::from_millis(ACCEPT_AGAIN_MS), permit).await {
                return permit.ok();
            }
        }
    }

    fn admit(
        &mut self,
        stream: TcpStream,
        at: SocketAddr,
        permit: Option<OwnedSemaphorePermit>,
        admitted: AdmittedConnection,
    ) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection keeps its delay");
        }
        let (app, connection) = (self.app.clone(), admitted.connection.clone());
        let app = tower::service_fn(move |mut request: Request<Incoming>| {
            let under_way = connection.begin();
            request.extensions_mut().insert(Peer(at));
            request.extensions_mut().insert(connection.clone());
            let answer = app.clone().oneshot(request);
            async move {
                let answer = answer.await;
                drop(under_way);
                answer
            }
        });
        let io = TokioIo::new(Connection::new(stream, Duration::from_millis(self.limits.head_ms_max)));
        let (builder, watcher) = (self.builder.clone(), self.graceful_shutdown.watcher());
        self.connection_tasks.spawn(async move {
            let _permit = permit;
            let connection = builder.serve_connection_with_upgrades(io, TowerToHyperService::new(app));
            tokio::select! {
                ended = watcher.watch(connection.into_owned()) => if let Err(error) = ended {
                    tracing::debug!(%at, error, "a connection ended badly");
                },
                () = admitted.connection.cut() => tracing::debug!(%at, "an idle connection without a key was closed to free capacity"),
            }
        });
    }

    /// Waits for the requests in progress to end. False if they did not end in time.
    async fn drain(self, patience: Duration) -> bool {
        let Self { graceful_shutdown, mut connection_tasks, .. } = self;
        let all = async {
            graceful_shutdown.shutdown().await;
            while connection_tasks.join_next().await.is_some() {}
        };
        timeout(patience, all).await.is_ok()
    }
}

/// Whether an error of `accept` means that the listener itself is unusable.
fn is_listener_error(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::NotConnected | io::ErrorKind::Unsupported)
}

/// A connection with a time-out for its first bytes: no other time-out applies before the protocol is known.
struct Connection {
    stream: TcpStream,
    received_bytes: usize,
    patience: Option<Pin<Box<Sleep>>>,
}

impl Connection {
    fn new(stream: TcpStream, patience: Duration) -> Self {
        Self { stream, received_bytes: 0, patience: Some(Box::pin(sleep(patience))) }
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
        self.received_bytes = self.received_bytes.saturating_add(buf.filled().len() - before);
        if self.received_bytes >= PREFACE_BYTES {
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
