//! Requests over the pipes of a program: one message a line. Many requests may be open at once.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader},
    sync::{Notify, mpsc, oneshot},
};

use crate::{
    McpError,
    rpc::{self, Incoming},
};

/// The most open requests. A server that answers none of them must not collect more.
const REQUESTS_MAX: usize = 64;
/// The most messages that wait to be written: every open request, its cancellation, and some answers to the server.
const OUTGOING_MAX: usize = 3 * REQUESTS_MAX;
/// The notification by which a server announces that its tools have changed.
pub(crate) const LIST_CHANGED: &str = "notifications/tools/list_changed";

type Answer = Result<Value, McpError>;

/// The requests that wait for their answers.
#[derive(Default)]
struct Open {
    answers: BTreeMap<u64, oneshot::Sender<Answer>>,
    /// Why the connection has ended.
    ended: Option<McpError>,
}

/// The side of the connection that sends requests.
pub(crate) struct StdioLink {
    outgoing: mpsc::Sender<Vec<u8>>,
    open: Arc<Mutex<Open>>,
    last_id: AtomicU64,
}

/// The side of the connection that moves the bytes.
pub(crate) struct Pipes<W, R> {
    to_server: W,
    from_server: R,
    outgoing: mpsc::Receiver<Vec<u8>>,
    replies: mpsc::WeakSender<Vec<u8>>,
    open: Arc<Mutex<Open>>,
    changed: Arc<Notify>,
    message_bytes_max: usize,
}

/// Both sides of a connection over these pipes. `changed` is notified when the server announces other tools.
pub(crate) fn connect<W, R>(
    to_server: W,
    from_server: R,
    changed: Arc<Notify>,
    message_bytes_max: usize,
) -> (StdioLink, Pipes<W, R>) {
    let (sender, receiver) = mpsc::channel(OUTGOING_MAX);
    let open = Arc::new(Mutex::new(Open::default()));
    let pipes = Pipes {
        to_server,
        from_server,
        outgoing: receiver,
        replies: sender.downgrade(),
        open: open.clone(),
        changed,
        message_bytes_max,
    };
    (StdioLink { outgoing: sender, open, last_id: AtomicU64::new(0) }, pipes)
}

fn locked(open: &Mutex<Open>) -> MutexGuard<'_, Open> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

fn line_of(message: &Value) -> Vec<u8> {
    let mut line = message.to_string().into_bytes();
    line.push(b'\n');
    line
}

impl StdioLink {
    /// Sends a request and waits for its answer. Dropping the future, or the end of the time, cancels the request.
    pub(crate) async fn request(&self, method: &str, params: &Value, ms_max: u64) -> Answer {
        let id = self.last_id.fetch_add(1, Relaxed) + 1;
        let answer = self.begin(id)?;
        let waits = Waits { link: self, id, method };
        self.send(&rpc::request(id, method, params))?;
        let answered = tokio::time::timeout(Duration::from_millis(ms_max), answer).await;
        drop(waits);
        match answered {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(McpError::Ended("the connection was closed".to_owned())),
            Err(_) => Err(McpError::Timeout { ms_max }),
        }
    }

    /// Sends a notification.
    pub(crate) fn notify(&self, method: &str, params: &Value) -> Result<(), McpError> {
        self.send(&rpc::notification(method, params))
    }

    /// Ends the connection: every open request fails with this reason, and later ones are not sent.
    pub(crate) fn end(&self, why: &McpError) {
        let mut open = locked(&self.open);
        open.ended = Some(why.clone());
        for (_, answer) in std::mem::take(&mut open.answers) {
            // The request may have been dropped.
            let _ = answer.send(Err(why.clone()));
        }
    }

    fn begin(&self, id: u64) -> Result<oneshot::Receiver<Answer>, McpError> {
        let mut open = locked(&self.open);
        if let Some(why) = &open.ended {
            return Err(McpError::Away(why.to_string()));
        }
        if open.answers.len() >= REQUESTS_MAX {
            return Err(McpError::Busy { requests_max: REQUESTS_MAX });
        }
        let (sender, receiver) = oneshot::channel();
        open.answers.insert(id, sender);
        Ok(receiver)
    }

    fn send(&self, message: &Value) -> Result<(), McpError> {
        self.outgoing.try_send(line_of(message)).map_err(|why| match why {
            mpsc::error::TrySendError::Full(_) => McpError::Busy { requests_max: REQUESTS_MAX },
            mpsc::error::TrySendError::Closed(_) => McpError::Away("the connection was closed".to_owned()),
        })
    }
}

/// A request that waits. Dropping it removes the request; if there was no answer, the server is asked to cancel it.
struct Waits<'a> {
    link: &'a StdioLink,
    id: u64,
    method: &'a str,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let was_open = locked(&self.link.open).answers.remove(&self.id).is_some();
        // The protocol forbids to cancel the first request of a session.
        if was_open && self.method != "initialize" {
            let params = json!({"requestId": self.id, "reason": "the caller no longer waits"});
            let _ = self.link.notify("notifications/cancelled", &params);
        }
    }
}

impl<W: AsyncWrite + Unpin + Send, R: AsyncRead + Unpin + Send> Pipes<W, R> {
    /// Writes and reads until the connection ends, and returns why it did.
    pub(crate) async fn run(self) -> McpError {
        let Self { mut to_server, from_server, mut outgoing, replies, open, changed, message_bytes_max } = self;
        let write = async {
            while let Some(line) = outgoing.recv().await {
                let written = async {
                    to_server.write_all(&line).await?;
                    to_server.flush().await
                };
                if let Err(why) = written.await {
                    return McpError::Ended(format!("the server reads no more: {why}"));
                }
            }
            McpError::Ended("the connection was closed".to_owned())
        };
        let mut lines = Lines { reader: BufReader::new(from_server), line: Vec::new(), message_bytes_max };
        let read = async {
            loop {
                match lines.next().await {
                    Ok(line) => receive(line, &open, &replies, &changed),
                    Err(why) => return why,
                }
            }
        };
        tokio::select! {
            why = read => why,
            why = write => why,
        }
    }
}

/// Handles a line of the server. A line that is no message is left out: some programs print other texts to stdout.
fn receive(line: &[u8], open: &Mutex<Open>, replies: &mpsc::WeakSender<Vec<u8>>, changed: &Notify) {
    let Ok(message) = serde_json::from_slice::<Value>(line) else { return };
    match rpc::incoming(&message) {
        Some(Incoming::Answer(id, answer)) => {
            let waiting = locked(open).answers.remove(&id);
            if let Some(waiting) = waiting {
                // The request may have been dropped.
                let _ = waiting.send(answer);
            }
        }
        Some(Incoming::Request(id, method)) => {
            // A server that asks faster than it reads gets no answer.
            if let Some(replies) = replies.upgrade() {
                let _ = replies.try_send(line_of(&rpc::reply_to(&id, &method)));
            }
        }
        Some(Incoming::Notification(method)) if method == LIST_CHANGED => changed.notify_one(),
        Some(Incoming::Notification(_)) | None => {}
    }
}

/// The lines of a stream, each of at most `message_bytes_max` bytes.
struct Lines<R> {
    reader: BufReader<R>,
    line: Vec<u8>,
    message_bytes_max: usize,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// The next line without its end.
    async fn next(&mut self) -> Result<&[u8], McpError> {
        self.line.clear();
        loop {
            let piece = self.reader.fill_buf().await;
            let piece = piece.map_err(|why| McpError::Ended(format!("the server cannot be read: {why}")))?;
            if piece.is_empty() {
                return Err(McpError::Ended("the server closed its output".to_owned()));
            }
            let end = piece.iter().position(|byte| *byte == b'\n');
            let part = piece.get(..end.unwrap_or(piece.len())).unwrap_or_default();
            if self.line.len() + part.len() > self.message_bytes_max {
                return Err(McpError::TooLarge { bytes_max: self.message_bytes_max });
            }
            self.line.extend_from_slice(part);
            let used = part.len() + usize::from(end.is_some());
            self.reader.consume(used);
            if end.is_some() {
                return Ok(&self.line);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{DuplexStream, duplex, split};

    use super::*;

    /// A link, its moving side as a task of the test, and the server's end of the connection.
    fn linked(message_bytes_max: usize) -> (Arc<StdioLink>, impl Future<Output = McpError>, DuplexStream) {
        let (ours, theirs) = duplex(1024);
        let (from_server, to_server) = split(ours);
        let (link, pipes) = connect(to_server, from_server, Arc::new(Notify::new()), message_bytes_max);
        (Arc::new(link), pipes.run(), theirs)
    }

    /// Reads the next message of the client.
    async fn message(server: &mut BufReader<DuplexStream>) -> Value {
        let mut line = String::new();
        server.read_line(&mut line).await.unwrap();
        serde_json::from_str(&line).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn stdio_link_answers_requests_in_any_order_and_cancels_what_is_late() {
        let (link, pump, theirs) = linked(1_000);
        let serve = async {
            let mut server = BufReader::new(theirs);
            let (first, second) = (message(&mut server).await, message(&mut server).await);
            let reply = |request: &Value, text: &str| line_of(&json!({"id": request["id"], "result": {"text": text}}));
            server.write_all(b"this is no message\n").await.unwrap();
            server.write_all(b"{\"id\":\"p\",\"method\":\"ping\"}\n").await.unwrap();
            server.write_all(&reply(&second, "second")).await.unwrap();
            server.write_all(&reply(&first, "first")).await.unwrap();
            assert_eq!(message(&mut server).await["result"], json!({}));
            let late = message(&mut server).await;
            let cancelled = message(&mut server).await;
            assert_eq!(
                (cancelled["method"].as_str(), &cancelled["params"]["requestId"]),
                (Some("notifications/cancelled"), &late["id"])
            );
        };
        let ask = async {
            let nothing = json!({});
            let (first, second) = tokio::join!(link.request("a", &nothing, 1_000), link.request("b", &nothing, 1_000));
            assert_eq!(
                (first.unwrap()["text"].as_str(), second.unwrap()["text"].as_str()),
                (Some("first"), Some("second"))
            );
            assert_eq!(link.request("c", &nothing, 50).await, Err(McpError::Timeout { ms_max: 50 }));
            assert!(locked(&link.open).answers.is_empty());
        };
        tokio::select! {
            why = pump => panic!("{why}"),
            _ = async { tokio::join!(serve, ask) } => {}
        }
    }

    #[tokio::test]
    async fn stdio_link_ends_at_a_message_that_is_too_large_and_at_the_end_of_the_server() {
        for (sent, wanted) in [
            (vec![b'x'; 600], McpError::TooLarge { bytes_max: 100 }),
            (b"half".to_vec(), McpError::Ended("the server closed its output".to_owned())),
        ] {
            let (link, pump, mut theirs) = linked(100);
            theirs.write_all(&sent).await.unwrap();
            drop(theirs);
            let why = pump.await;
            assert_eq!(why, wanted);
            link.end(&why);
            let refused = link.request("a", &json!({}), 1_000).await;
            assert!(matches!(refused, Err(McpError::Away(_))), "{refused:?}");
        }
    }

    #[tokio::test]
    async fn stdio_link_has_a_limit_of_open_requests_and_fails_all_of_them_at_its_end() {
        let (link, _pump, _theirs) = linked(100);
        let open: Vec<_> = (1..=REQUESTS_MAX as u64).map(|id| link.begin(id).unwrap()).collect();
        let nothing = json!({});
        assert_eq!(link.request("a", &nothing, 1).await, Err(McpError::Busy { requests_max: REQUESTS_MAX }));
        let why = McpError::Ended("it died".to_owned());
        link.end(&why);
        for answer in open {
            assert_eq!(answer.await, Ok(Err(why.clone())));
        }
    }
}
