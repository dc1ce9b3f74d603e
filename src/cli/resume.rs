//! A server's stream that is taken up again where it broke off.

use std::time::Duration;

use futures_util::{FutureExt, future::BoxFuture};
use tokio::time::{Instant, sleep_until, timeout_at};

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
    /// It is being asked for. Kept when a call is given up, so that what interrupts every call does not begin every wait anew.
    asked: Option<BoxFuture<'static, Result<ServerEvents, Failure>>>,
    /// When this wait is given up.
    until: Option<Instant>,
    /// Before, it is not asked for again.
    again_at: Option<Instant>,
    breaks: u32,
}

impl Resumed {
    /// Nothing is asked yet.
    #[must_use]
    pub const fn of(client: Client) -> Self {
        Self { client, events: None, asked: None, until: None, again_at: None, breaks: 0 }
    }

    /// The next thing that the server tells; nothing if the stream broke or is there again. May be given up at any time and
    /// asked again.
    ///
    /// # Errors
    /// If the server refuses, is away or silent for too long, or never says anything new.
    pub async fn next(&mut self, path: impl FnOnce() -> String) -> Result<Option<ServerEvent>, Failure> {
        let Some(events) = &mut self.events else {
            self.take_up(path).await?;
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
        // The first time at once.
        self.again_at = (self.breaks > 1).then(|| Instant::now() + self.wait());
        Ok(None)
    }

    /// What came is new.
    pub const fn goes_on(&mut self) {
        self.breaks = 0;
    }

    const fn wait(&self) -> Duration {
        Duration::from_millis(self.client.resume_ms)
    }

    async fn take_up(&mut self, path: impl FnOnce() -> String) -> Result<(), Failure> {
        let wait = self.wait();
        let until = *self.until.get_or_insert_with(|| Instant::now() + Duration::from_millis(RESUME_MS_MAX));
        let Self { client, asked, again_at, .. } = self;
        let answer = asked.get_or_insert_with(|| ask(client.clone(), path(), *again_at, until).boxed()).await;
        self.asked = None;
        match answer {
            Ok(events) => (self.events, self.until, self.again_at) = (Some(events), None, None),
            // Also the first time: it took a message in, and may have died since.
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
    // Whoever comes to it only after that time has not yet seen that nobody answers.
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

    const BREAKS: &str = "HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n: hello\n\n";
    const TELLS: &str = "HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\ndata: hello\n\n";

    /// A server that answers every question once; the last answer is given again and again.
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
    async fn a_stream_that_breaks_again_and_again_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = client(listener.local_addr().unwrap());
        client.resume_ms = 1;
        tokio::select! {
            (failure, _) = given_up(client) => assert_eq!(failure.what, "it breaks again and again"),
            () = answers(listener, &[BREAKS]) => {}
        }
    }

    #[tokio::test]
    async fn a_stream_is_taken_up_by_whoever_is_interrupted_all_the_time() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = client(listener.local_addr().unwrap());
        client.resume_ms = 20;
        let mut stream = Resumed::of(client);
        let told = async {
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
        // It waits from the second break on.
        let told = tokio::select! {
            told = tokio::time::timeout(Duration::from_millis(RESUME_MS_MAX), told) => told,
            () = answers(listener, &[BREAKS, BREAKS, TELLS]) => unreachable!("it answers for ever"),
        };
        assert_eq!(told.expect("it is taken up").data, "hello");
    }

    #[tokio::test]
    async fn a_server_that_was_not_asked_in_time_is_not_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut stream = Resumed::of(client(listener.local_addr().unwrap()));
        // As for a process that was stopped meanwhile.
        stream.until = Some(Instant::now());
        let told = async {
            loop {
                if let Some(event) = stream.next(|| "/".to_owned()).await.unwrap() {
                    return event;
                }
            }
        };
        tokio::select! {
            told = told => assert_eq!(told.data, "hello"),
            () = answers(listener, &[TELLS]) => unreachable!("it answers for ever"),
        }
    }
}
