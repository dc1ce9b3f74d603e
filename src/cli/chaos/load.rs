//! The load of a run and its evaluation: users send each message until it is acknowledged, and afterwards the log shows what
//! happened to each message.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use annie_chaos::{MARK, counted};
use futures_util::future::join_all;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tokio::{sync::watch, time::Instant};

use crate::{
    auth::USER_HEADER,
    cli::{
        client::Client,
        failure::{Exit, Failure},
    },
};

/// Maximum number of messages of one user in one scenario.
const MESSAGES_MAX: u32 = 2_000;
/// Pause between two messages of a user, in milliseconds.
const PAUSE_MS: u64 = 15;
/// How long one request may take, in milliseconds.
const REQUEST_MS_MAX: u64 = 10_000;
/// Pause between two attempts, in milliseconds, unless the server requests less.
const AGAIN_MS_MAX: u64 = 100;
/// One of this many messages is sent again after its acknowledgement.
const REPEAT_EVERY: u32 = 5;
/// Events in one page.
const PAGE: usize = 500;

/// A message that was acknowledged.
#[derive(Debug, Clone)]
pub struct Sent {
    user: u32,
    marker: String,
    task: String,
    conversation: String,
    /// From the first attempt to the acknowledgement, in milliseconds.
    pub ack_ms: u64,
    /// The repeated message was acknowledged as a different task.
    is_doubled: bool,
}

/// The results of the messages of one scenario.
#[derive(Debug, Default)]
pub struct Found {
    /// Number of answered messages.
    pub answered: u64,
    /// Number of messages that ended with a visible failure or a cancellation.
    pub failed: u64,
    /// Markers of acknowledged messages without a final event.
    pub lost: Vec<String>,
    /// Markers of messages with two final events or two tasks.
    pub doubled: Vec<String>,
    /// Conversations whose sequence numbers have a gap.
    pub gaps: Vec<String>,
    /// Markers whose effect an answer claims.
    pub claimed: BTreeSet<String>,
}

/// The load of one scenario.
pub struct Load<'a> {
    /// The server.
    pub client: &'a Client,
    /// HTTP client for the messages.
    pub http: reqwest::Client,
    /// The prefix of this scenario's markers.
    pub prefix: String,
    /// Whether messages are sent on behalf of several users.
    pub as_users: bool,
    /// How long a message may stay unacknowledged, and a task may stay open.
    pub patience: Duration,
}

impl Load<'_> {
    fn request(&self, method: Method, path: &str, user: u32) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.client.url()));
        let request = request.timeout(Duration::from_millis(REQUEST_MS_MAX));
        let request = match self.client.key() {
            Some(key) => request.bearer_auth(key.expose()),
            None => request,
        };
        if self.as_users { request.header(USER_HEADER, format!("chaos-{user}")) } else { request }
    }

    async fn send_once(&self, request: RequestBuilder) -> Option<(u16, Value)> {
        let answer = request.send().await.ok()?;
        let status = answer.status().as_u16();
        Some((status, answer.json().await.ok()?))
    }

    /// Sends at least `messages` messages of each user, and continues until `done`. Returns the acknowledged messages, and the
    /// markers of the messages that were never accepted.
    ///
    /// # Errors
    /// If the server rejects the load for good.
    pub async fn send_all(
        &self,
        users: u32,
        messages: u32,
        done: &watch::Receiver<bool>,
    ) -> Result<(Vec<Sent>, Vec<String>), Failure> {
        let all = join_all((0..users).map(|user| self.send_as(user, messages, done))).await;
        let (mut sent, mut refused) = (Vec::new(), Vec::new());
        for one in all {
            let (more, never) = one?;
            sent.extend(more);
            refused.extend(never);
        }
        Ok((sent, refused))
    }

    async fn send_as(
        &self,
        user: u32,
        messages: u32,
        done: &watch::Receiver<bool>,
    ) -> Result<(Vec<Sent>, Vec<String>), Failure> {
        let (mut sent, mut refused) = (Vec::new(), Vec::new());
        for n in 0..MESSAGES_MAX.max(messages) {
            if n >= messages && *done.borrow() {
                break;
            }
            let marker = format!("{}-u{user}-m{n}", self.prefix);
            // Covers both paths to a skill: through a sub-agent, and by the agent's own call.
            let mode = if n % 2 == 0 { "multi_agent" } else { "single_loop" };
            let body = json!({
                "text": format!("{MARK} {marker}"), "client_id": marker, "mode": mode, "verbatim": true,
                "conversation_key": format!("{}-{}", self.prefix, n % 3)
            });
            match self.send(user, &marker, &body).await? {
                Some(mut one) => {
                    if n % REPEAT_EVERY == 0 {
                        let again = self.send(user, &marker, &body).await?;
                        one.is_doubled = again.is_some_and(|again| again.task != one.task);
                    }
                    sent.push(one);
                }
                None => refused.push(marker),
            }
            tokio::time::sleep(Duration::from_millis(PAUSE_MS)).await;
        }
        Ok((sent, refused))
    }

    /// Sends a message under the same id until it is acknowledged; nothing if `patience` is exceeded.
    async fn send(&self, user: u32, marker: &str, body: &Value) -> Result<Option<Sent>, Failure> {
        let from = Instant::now();
        while from.elapsed() < self.patience {
            let again_ms = match self.send_once(self.request(Method::POST, "/api/v1/messages", user).json(body)).await {
                Some((200 | 202, reply)) => {
                    let text = |key: &str| reply[key].as_str().unwrap_or_default().to_owned();
                    return Ok(Some(Sent {
                        user,
                        marker: marker.to_owned(),
                        task: text("task_id"),
                        conversation: text("conversation_id"),
                        ack_ms: u64::try_from(from.elapsed().as_millis()).unwrap_or(u64::MAX),
                        is_doubled: false,
                    }));
                }
                Some((400..=407, reply)) => {
                    return Err(Failure::new(Exit::Failure, format!("the server rejects the load: {reply}")));
                }
                Some((_, reply)) => reply["retry_after_ms"].as_u64().unwrap_or(AGAIN_MS_MAX).min(AGAIN_MS_MAX),
                None => AGAIN_MS_MAX,
            };
            tokio::time::sleep(Duration::from_millis(again_ms.max(5))).await;
        }
        Ok(None)
    }

    /// Waits until every task has ended, and evaluates the logs.
    pub async fn find(&self, sent: &[Sent]) -> Found {
        let until = Instant::now() + self.patience;
        let mut found = Found::default();
        let mut conversations: BTreeMap<(u32, &str), Vec<&Sent>> = BTreeMap::new();
        for one in sent {
            conversations.entry((one.user, &one.conversation)).or_default().push(one);
            if one.is_doubled {
                found.doubled.push(one.marker.clone());
            }
        }
        let logs = conversations.keys().map(|(user, conversation)| async move {
            let wanted: BTreeSet<&str> =
                sent.iter().filter(|s| s.conversation == **conversation).map(|s| s.task.as_str()).collect();
            self.log_with_ends(*user, conversation, &wanted, until).await
        });
        for (log, ((_, conversation), messages)) in join_all(logs).await.iter().zip(&conversations) {
            judge(log, conversation, messages, &mut found);
        }
        found
    }

    /// The log of a conversation, read when it has a final event for each of these tasks, or at `until`.
    async fn log_with_ends(&self, user: u32, conversation: &str, tasks: &BTreeSet<&str>, until: Instant) -> Vec<Value> {
        loop {
            let log = self.log(user, conversation).await;
            let ended = log.iter().filter(|e| is_end(e)).filter_map(|e| e["task_id"].as_str());
            let ended: BTreeSet<&str> = ended.collect();
            if tasks.iter().all(|task| ended.contains(task)) || Instant::now() >= until {
                return log;
            }
            tokio::time::sleep(Duration::from_millis(AGAIN_MS_MAX)).await;
        }
    }

    async fn log(&self, user: u32, conversation: &str) -> Vec<Value> {
        let mut log: Vec<Value> = Vec::new();
        loop {
            let after = log.last().map_or(0, |e| e["seq"].as_u64().unwrap_or(0));
            let path = format!("/api/v1/conversations/{conversation}/events?after={after}&limit={PAGE}");
            let page = match self.send_once(self.request(Method::GET, &path, user)).await {
                Some((200, mut page)) => page["events"].take(),
                _ => return log,
            };
            let Value::Array(page) = page else { return log };
            let is_full = page.len() == PAGE;
            log.extend(page);
            if !is_full {
                return log;
            }
        }
    }
}

fn is_end(event: &Value) -> bool {
    matches!(event["kind"].as_str(), Some("answered" | "failed" | "cancelled"))
}

fn judge(log: &[Value], conversation: &str, messages: &[&Sent], found: &mut Found) {
    if log.iter().zip(1_u64..).any(|(event, expected)| event["seq"].as_u64() != Some(expected)) {
        found.gaps.push(conversation.to_owned());
    }
    for one in messages {
        let ends: Vec<&Value> = log.iter().filter(|e| is_end(e) && e["task_id"] == one.task.as_str()).collect();
        match ends.as_slice() {
            [] => found.lost.push(one.marker.clone()),
            [end] if end["kind"] == "answered" => {
                found.answered += 1;
                if end["text"].as_str().is_some_and(|text| text.contains(&counted(&one.marker))) {
                    found.claimed.insert(one.marker.clone());
                }
            }
            [_] => found.failed += 1,
            _ => found.doubled.push(one.marker.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(task: &str) -> Sent {
        Sent {
            user: 0,
            marker: format!("m-{task}"),
            task: task.to_owned(),
            conversation: "c".to_owned(),
            ack_ms: 1,
            is_doubled: false,
        }
    }

    fn event(seq: u64, task: &str, kind: &str, text: &str) -> Value {
        json!({"seq": seq, "task_id": task, "kind": kind, "text": text})
    }

    #[test]
    fn judge_finds_lost_doubled_and_missing_entries() {
        let (a, b, c, d) = (sent("a"), sent("b"), sent("c"), sent("d"));
        let log = [
            event(1, "a", "received", ""),
            event(2, "a", "answered", "m-a is counted."),
            event(3, "b", "failed", ""),
            event(4, "c", "answered", ""),
            event(5, "c", "answered", ""),
        ];
        let mut found = Found::default();
        judge(&log, "c", &[&a, &b, &c, &d], &mut found);
        assert_eq!((found.answered, found.failed), (1, 1));
        assert_eq!(
            (found.doubled.as_slice(), found.lost.as_slice()),
            (&["m-c".to_owned()][..], &["m-d".to_owned()][..])
        );
        assert!(found.gaps.is_empty() && found.claimed.contains("m-a"));
        judge(&log[1..], "c", &[], &mut found);
        assert_eq!(found.gaps, ["c"]);
    }
}
