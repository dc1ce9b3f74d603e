//! The load of a run, and what became of it: users that send messages until they are acknowledged, and afterwards read from the
//! log what happened to each.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures_util::future::join_all;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tokio::{sync::watch, time::Instant};

use crate::{
    auth::USER_HEADER,
    chaos::{MARK, counted},
    cli::{
        client::Client,
        failure::{Exit, Failure},
    },
};

/// Messages of one user in one scenario, at most.
const MESSAGES_MAX: u32 = 2_000;
/// From one message of a user to the next, in milliseconds.
const PAUSE_MS: u64 = 15;
/// How long one request may take, in milliseconds.
const REQUEST_MS_MAX: u64 = 10_000;
/// From one attempt to the next, in milliseconds, unless the server asks for less.
const AGAIN_MS_MAX: u64 = 100;
/// Of so many messages one is sent again after it was acknowledged.
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
    /// It was acknowledged a second time, as something else.
    is_doubled: bool,
}

/// What became of the messages of one scenario.
#[derive(Debug, Default)]
pub struct Found {
    /// With an answer.
    pub answered: u64,
    /// With a visible failure or a cancellation.
    pub failed: u64,
    /// Acknowledged, and without an end.
    pub lost: Vec<String>,
    /// With two ends, or taken twice.
    pub doubled: Vec<String>,
    /// Conversations whose places are not dense.
    pub gaps: Vec<String>,
    /// Markers that an answer says are counted.
    pub claimed: BTreeSet<String>,
}

/// Who sends.
pub struct Load<'a> {
    /// To whom.
    pub client: &'a Client,
    /// Its HTTP.
    pub http: reqwest::Client,
    /// What the markers of this scenario begin with.
    pub prefix: String,
    /// Whether it may speak for several users.
    pub as_users: bool,
    /// How long a message may go on not being taken, and a task on not ending.
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

    async fn ask(&self, request: RequestBuilder) -> Option<(u16, Value)> {
        let answer = request.send().await.ok()?;
        let status = answer.status().as_u16();
        Some((status, answer.json().await.ok()?))
    }

    /// Sends at least so many messages of each user, and goes on until `done`. Gives back what was acknowledged, and the
    /// markers of what was never taken.
    ///
    /// # Errors
    /// If the server refuses for good.
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
            // Both ways to a skill: through a sub-agent, and by the agent's own call.
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

    /// Sends one until it is acknowledged, under the same id; nothing if patience runs out.
    async fn send(&self, user: u32, marker: &str, body: &Value) -> Result<Option<Sent>, Failure> {
        let from = Instant::now();
        while from.elapsed() < self.patience {
            let again_ms = match self.ask(self.request(Method::POST, "/api/v1/messages", user).json(body)).await {
                Some((200 | 202, said)) => {
                    let text = |key: &str| said[key].as_str().unwrap_or_default().to_owned();
                    return Ok(Some(Sent {
                        user,
                        marker: marker.to_owned(),
                        task: text("task_id"),
                        conversation: text("conversation_id"),
                        ack_ms: u64::try_from(from.elapsed().as_millis()).unwrap_or(u64::MAX),
                        is_doubled: false,
                    }));
                }
                Some((400..=407, said)) => {
                    return Err(Failure::new(Exit::Failure, format!("the server does not take the load: {said}")));
                }
                Some((_, said)) => said["retry_after_ms"].as_u64().unwrap_or(AGAIN_MS_MAX).min(AGAIN_MS_MAX),
                None => AGAIN_MS_MAX,
            };
            tokio::time::sleep(Duration::from_millis(again_ms.max(5))).await;
        }
        Ok(None)
    }

    /// Waits until every task has ended, and reads what became of it.
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

    /// The log of a conversation, once it has an end for each of these tasks or patience runs out.
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
            let page = match self.ask(self.request(Method::GET, &path, user)).await {
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
    if log.iter().zip(1_u64..).any(|(event, place)| event["seq"].as_u64() != Some(place)) {
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
    fn what_is_lost_doubled_or_missing_is_found() {
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
