//! The service manager's protocol (`sd_notify`): a datagram to the socket in `NOTIFY_SOCKET`, if that is set.

use std::{
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram},
    },
    time::Duration,
};

use annie_actors::Kernel;

use crate::config::Environment;

/// Sends a message to the service manager. Does nothing without `NOTIFY_SOCKET`.
pub fn notify(environment: &Environment, message: &str) {
    let Some(name) = environment.get("NOTIFY_SOCKET") else { return };
    let address = match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(name),
    };
    let sent = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(message.as_bytes(), &address));
    if let Err(error) = sent {
        tracing::warn!(%error, message, "the service manager cannot be notified");
    }
}

/// The interval of watchdog messages: a third of the service manager's timeout. `None` if it expects none from this process.
#[must_use]
pub fn watchdog_every(environment: &Environment) -> Option<Duration> {
    let is_for_us = environment.get("WATCHDOG_PID").is_none_or(|pid| pid == std::process::id().to_string());
    let us: u64 = environment.get("WATCHDOG_USEC")?.parse().ok()?;
    (is_for_us && us > 0).then(|| Duration::from_micros((us / 3).max(1_000)))
}

/// Notifies the watchdog while the kernel is ready. The service manager restarts a kernel that is not ready, because the
/// messages stop.
///
/// # Errors
/// Never; the loop only ends with its task.
pub async fn feed_watchdog(environment: Environment, kernel: Kernel, every: Duration) -> Result<(), String> {
    loop {
        if kernel.health().await.ready {
            notify(&environment, "WATCHDOG=1");
        }
        tokio::time::sleep(every).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_manager_receives_messages_on_its_socket() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        notify(&Environment::of(&[("NOTIFY_SOCKET", path.to_str().unwrap())]), "READY=1");
        let mut received = [0_u8; 32];
        let n = socket.recv(&mut received).unwrap();
        assert_eq!(&received[..n], b"READY=1");
        // Without a socket nothing happens.
        notify(&Environment::default(), "READY=1");
    }

    #[test]
    fn watchdog_of_another_process_is_ignored() {
        let ours = std::process::id().to_string();
        let every =
            |pid: &str, us: &str| watchdog_every(&Environment::of(&[("WATCHDOG_PID", pid), ("WATCHDOG_USEC", us)]));
        assert_eq!(every(&ours, "3000000"), Some(Duration::from_secs(1)));
        assert_eq!(every("1", "3000000"), None);
        assert_eq!(every(&ours, "0"), None);
        assert_eq!(watchdog_every(&Environment::default()), None);
    }
}
