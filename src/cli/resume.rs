//! A server's event stream that is resumed after an interruption.

use std::time::Duration;

use futures_util::{FutureExt, future::BoxFuture};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{
    client::{Client, RESUME_MS_MAX, ServerEvent, ServerEvents},
    failure::{Exit, Failure},
};

/// How often a stream may break without a new event in between.
const BREAKS_MAX: u32 = 30;

/// A stream, or the attempt to open it again.
pub struct Resumed {
    client: Client,
    events: Option<ServerEvents>,
    /// The pending request for the stream. It survives a cancelled call of `next`, so that frequent cancellation does not restart
    /// every wait.
    asked: Option<BoxFuture<'static, Result<ServerEvents, Failure>>>,
    /// When the attempts to open the stream are given up.
    until: Option<Instant>,
    /// The earliest time of the next attempt.
    again_at: Option<Instant>,
    breaks: u32,
}

impl Resumed {
    /// Creates a stream that is not open yet.
    #[must_use]
    pub const fn of(client: Client) -> Self {
        Self { client, events: None, asked: None, until: None, again_at: None, breaks: 0 }
    }

    /// The next event; `None` if the stream broke or was opened again. Cancel-safe.
    ///
    /// # Errors
    /// If the server rejects the request, is unavailable or silent for too long, or the stream breaks repeatedly without a new
    /// event.
    pub async fn next(&mut self, path: impl FnOnce() -> String) -> Result<Option<ServerEvent>, Failure> {
        let Some(events) = &mut self.events else {
            self.open(path).await?;
            return Ok(None);
        };
        if let Some(Ok(event)) = events.next().await {
            return Ok(Some(event));
        }
        self.events = None;
        self.breaks += 1;
        if self.breaks > BREAKS_MAX {
            return Err(Failure::new(Exit::Unavailable, "the stream breaks repeatedly"));
        }
        // The first attempt is made at once.
        self.again_at = (self.breaks > 1).then(|| Instant::now() + self.wait());
        Ok(None)
    }

    /// Reports that a new event was received, which resets the count of breaks.
    pub const fn note_progress(&mut self) {
        self.breaks = 0;
    }

    const fn wait(&self) -> Duration {
        Duration::from_millis(self.client.resume_ms)
    }

    async fn open(&mut self, path: impl FnOnce() -> String) -> Result<(), Failure> {
        let wait = self.wait();
        let until = *self.until.get_or_insert_with(|| Instant::now() + Duration::from_millis(RESUME_MS_MAX));
        let Self { client, asked, again_at, .. } = self;
        let answer = asked.get_or_insert_with(|| ask(client.clone(), path(), *again_at, until).boxed()).await;
        self.asked = None;
        match answer {
            Ok(events) => (self.events, self.until, self.again_at) = (Some(events), None, None),
            // This also holds for the first attempt: the server stored the message and may have died since.
            Err(failure) if failure.exit == Exit::Unavailable && Instant::now() + wait < until => {
                self.again_at = Some(Instant::now() + wait);
            }
            Err(failure) => return Err(failure),
        }
        Ok(())
    }
}

async fn ask(client: Client, path: String, at: Option<Instant>, until: Instant) -> Result<ServerEvents, Failure> {
    if let Some(at) = at {
        sleep_until(at).await;
    }
    // If this call starts only after that time, the server still gets one wait: it was not asked before.
    let until = until.max(Instant::now() + Duration::from_millis(client.resume_ms));
    timeout_at(until, client.events(&path)).await.unwrap_or_else(|_| Err(client.silent()))
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
    async fn stream_of_an_absent_or_silent_server_is_given_up_after_half_a_minute() {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        for at in [socket.local_addr().unwrap(), silent.local_addr().unwrap()] {
            let (failure, waited) = given_up(client(at)).await;
            assert_eq!(failure.exit, Exit::Unavailable);
            let wanted =
                Duration::from_millis(RESUME_MS_MAX - 2 * RESUME_MS)..=Duration::from_millis(RESUME_MS_MAX + RESUME_MS);
            assert!(wanted.contains(&waited), "{waited:?}");
        }
    }

    const BREAKS: &str = "HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n: hello\n\n";
    const TELLS: &str = "HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\ndata: hello\n\n";

    /// A server that gives each answer to one request; the last answer is repeated.
    async fn answers(listener: TcpListener, answers: &[&str]) {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (last, first) = answers.split_last().unwrap();
        for answer in first.iter().chain(std::iter::repeat(last)) {
            let (mut stream, _) = listener.accept().await.unwrap();
            assert_ne!(stream.read(&mut [0; 1024]).await.unwrap(), 0);
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    }

    #[tokio::test]
    async fn stream_that_breaks_repeatedly_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = client(listener.local_addr().unwrap());
        client.resume_ms = 1;
        tokio::select! {
            (failure, _) = given_up(client) => assert_eq!(failure.what, "the stream breaks repeatedly"),
            () = answers(listener, &[BREAKS]) => {}
        }
    }

    #[tokio::test]
    async fn stream_is_resumed_although_its_caller_is_cancelled_all_the_time() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = client(listener.local_addr().unwrap());
        client.resume_ms = 20;
        let mut stream = Resumed::of(client);
        let event = async {
            loop {
                tokio::select! {
                    biased;
                    event = stream.next(|| "/".to_owned()) => if let Some(event) = event.unwrap() {
                        return event;
                    },
                    () = tokio::task::yield_now() => {}
                }
            }
        };
        // From the second break on the stream waits before an attempt.
        let event = tokio::select! {
            event = tokio::time::timeout(Duration::from_millis(RESUME_MS_MAX), event) => event,
            () = answers(listener, &[BREAKS, BREAKS, TELLS]) => unreachable!("the server answers for ever"),
        };
        assert_eq!(event.expect("the stream is resumed").data, "hello");
    }

    #[tokio::test]
    async fn server_that_was_not_asked_in_time_is_not_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut stream = Resumed::of(client(listener.local_addr().unwrap()));
        // As in a process that was frozen meanwhile.
        stream.until = Some(Instant::now());
        let event = async {
            loop {
                if let Some(event) = stream.next(|| "/".to_owned()).await.unwrap() {
                    return event;
                }
            }
        };
        tokio::select! {
            event = event => assert_eq!(event.data, "hello"),
            () = answers(listener, &[TELLS]) => unreachable!("the server answers for ever"),
        }
    }
}
