//! A server's stream that is taken up again where it broke off.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::{
    client::{Client, RESUME_MS_MAX, ServerEvent, ServerEvents},
    failure::{Exit, Failure},
};

/// How often a stream may break before anything new comes.
const BREAKS_MAX: u32 = 30;

/// A stream, or the wait for one.
pub struct Resumed {
    client: Client,
    events: Option<ServerEvents>,
    /// When this wait is given up.
    until: Option<Instant>,
    breaks: u32,
}

impl Resumed {
    /// Nothing is asked yet.
    #[must_use]
    pub const fn of(client: Client) -> Self {
        Self { client, events: None, until: None, breaks: 0 }
    }

    /// The next thing that the server tells; nothing if the stream broke or is there again. May be given up at any time and
    /// asked again.
    ///
    /// # Errors
    /// If the server refuses, is away or silent for too long, or never says anything new.
    pub async fn next(&mut self, path: impl FnOnce() -> String) -> Result<Option<ServerEvent>, Failure> {
        let Some(events) = &mut self.events else {
            self.take_up(&path()).await?;
            return Ok(None);
        };
        if let Some(Ok(event)) = events.next().await {
            return Ok(Some(event));
        }
        self.events = None;
        self.breaks += 1;
        if self.breaks > BREAKS_MAX {
            return Err(Failure::new(Exit::Unavailable, "it breaks again and again"));
        }
        Ok(None)
    }

    /// What came is new.
    pub const fn goes_on(&mut self) {
        self.breaks = 0;
    }

    async fn take_up(&mut self, path: &str) -> Result<(), Failure> {
        let wait = Duration::from_millis(self.client.resume_ms);
        let until = *self.until.get_or_insert_with(|| Instant::now() + Duration::from_millis(RESUME_MS_MAX));
        if self.breaks > 1 {
            sleep(wait).await;
        }
        match timeout_at(until, self.client.events(path)).await {
            Ok(Ok(events)) => (self.events, self.until) = (Some(events), None),
            // Also the first time: it took a message in, and may have died since.
            Ok(Err(failure)) if failure.exit == Exit::Unavailable && Instant::now() + wait < until => sleep(wait).await,
            Ok(Err(failure)) => return Err(failure),
            Err(_) => return Err(self.client.silent()),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;
    use crate::cli::client::RESUME_MS;

    fn client(at: std::net::SocketAddr) -> Client {
        Client::new(&format!("http://{at}"), None).unwrap()
    }

    async fn given_up(client: Client) -> (Failure, Duration) {
        let (mut stream, from) = (Resumed::of(client), Instant::now());
        loop {
            match stream.next(|| "/".to_owned()).await {
                Ok(event) => assert_eq!(event, None),
                Err(failure) => return (failure, from.elapsed()),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_away_and_one_that_is_silent_are_given_up_after_half_a_minute() {
        let place = TcpSocket::new_v4().unwrap();
        place.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        for at in [place.local_addr().unwrap(), silent.local_addr().unwrap()] {
            let (failure, waited) = given_up(client(at)).await;
            assert_eq!(failure.exit, Exit::Unavailable);
            let wanted =
                Duration::from_millis(RESUME_MS_MAX - 2 * RESUME_MS)..=Duration::from_millis(RESUME_MS_MAX + RESUME_MS);
            assert!(wanted.contains(&waited), "{waited:?}");
        }
    }

    #[tokio::test]
    async fn a_stream_that_breaks_again_and_again_is_given_up() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = client(listener.local_addr().unwrap());
        client.resume_ms = 1;
        let given_up = given_up(client);
        let breaking = async {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                assert_ne!(stream.read(&mut [0; 1024]).await.unwrap(), 0);
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n: hello\n\n").await.unwrap();
            }
        };
        tokio::select! {
            (failure, _) = given_up => assert_eq!(failure.what, "it breaks again and again"),
            () = breaking => {}
        }
    }
}
