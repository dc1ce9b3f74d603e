//! The listening end: so many connections, and an orderly stop.

use std::{
    future::{Future, IntoFuture},
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    extract::connect_info::Connected,
    serve::{IncomingStream, Listener},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
};

use super::guard::Peer;
use crate::{door::AppState, error::AppError, grpc};

/// Serves HTTP and gRPC until `shutdown`, then stops: health says so, no connection and no message is taken any more,
/// streams are ended with a hint to resume, and what is under way has `drain_ms_max` to end.
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
    let drain = Duration::from_millis(state.limits.drain_ms_max);
    let places = Arc::new(Semaphore::new(state.limits.connections_max.clamp(1, Semaphore::MAX_PERMITS)));
    let app = super::app(state.clone()).into_make_service_with_connect_info::<Peer>();
    let (tell, told) = oneshot::channel();
    let stop = async move {
        shutdown.await;
        tracing::info!(%at, "the doors are closing");
        state.doors.close(&state.kernel).await;
        let _ = tell.send(());
    };
    let server = axum::serve(Bounded { listener, places }, app).with_graceful_shutdown(stop);
    let patience = async {
        if told.await.is_err() {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(drain).await;
    };
    tokio::select! {
        ended = server.into_future() => ended.map_err(|source| AppError::Door { at, source }),
        () = patience => {
            tracing::warn!(%at, "some requests did not end in time and are cut off");
            Ok(())
        }
    }
}

/// A listener that accepts only while there is a place.
struct Bounded {
    listener: TcpListener,
    places: Arc<Semaphore>,
}

impl Listener for Bounded {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        // Nobody closes the semaphore, so there always comes a place.
        let place = self.places.clone().acquire_owned().await.ok();
        let (stream, at) = Listener::accept(&mut self.listener).await;
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection keeps its delay");
        }
        (Connection { stream, _place: place }, at)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection in its place.
struct Connection {
    stream: TcpStream,
    _place: Option<OwnedSemaphorePermit>,
}

impl Connected<IncomingStream<'_, Bounded>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Bounded>) -> Self {
        Self(*stream.remote_addr())
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
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
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
