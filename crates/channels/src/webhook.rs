//! A channel that posts each final text to a URL of the operator. Messages for it come in through the front ends, with the
//! address in `reply_to`.
//!
//! A request is signed (`crates/channels/src/signed.rs`) and has one more header: `annie-delivery` is the id of the text, which is
//! the same for every attempt.

use std::{fmt, sync::Arc};

use annie_core::{
    ids::UserId,
    ports::{Channel, Clock, Delivered, DeliveryError, Fut, OutboxRow},
};
use reqwest::{
    ClientBuilder, StatusCode,
    header::{HeaderMap, RETRY_AFTER},
};
use serde_json::json;

use crate::signed::{Signed, words};

/// Time limit of a request, in milliseconds: shorter than the kernel's limit of an attempt, so that the log names the reason.
const REQUEST_MS_MAX: u64 = 25_000;

/// The settings of a webhook.
pub struct WebhookConfig {
    /// The name of the channel.
    pub name: String,
    /// The URL to which texts are posted.
    pub url: String,
    /// The key of the signatures.
    pub secret: String,
    /// The users who may name this channel in an address; empty for all.
    pub users: Vec<String>,
    /// The receiver ignores a delivery whose id it has received before.
    pub deduplicates: bool,
}

/// A webhook that cannot be built. The text says what is wrong, without the URL and the secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("channel `{name}`: {what}")]
pub struct WebhookError {
    /// The name of the channel.
    pub name: String,
    /// What is wrong, and the fix.
    pub what: String,
}

/// A webhook.
pub struct Webhook {
    name: String,
    target: Signed,
    users: Vec<String>,
    deduplicates: bool,
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Webhook({})", self.name)
    }
}

impl Webhook {
    /// Builds a webhook. `client` brings the TLS provider.
    ///
    /// # Errors
    /// If the URL is no HTTP URL, the secret is too short, or the client cannot be built.
    pub fn new(config: WebhookConfig, client: ClientBuilder, clock: Arc<dyn Clock>) -> Result<Self, WebhookError> {
        let WebhookConfig { name, url, secret, users, deduplicates } = config;
        match Signed::new(&url, &secret, client, clock, REQUEST_MS_MAX) {
            Ok(target) => Ok(Self { name, target, users, deduplicates }),
            Err(what) => Err(WebhookError { name, what }),
        }
    }

    async fn post(&self, text: &OutboxRow) -> Result<Delivered, DeliveryError> {
        let request = self.target.post(body_of(text)).header("annie-delivery", text.id.to_string());
        match request.send().await {
            Ok(response) => judge(response.status(), response.headers()),
            Err(error) => Err(failure(error)),
        }
    }
}

impl Channel for Webhook {
    fn name(&self) -> &str {
        &self.name
    }

    fn check(&self, user: &UserId, _to: &str) -> Result<(), String> {
        if self.users.is_empty() || self.users.iter().any(|allowed| allowed == user.as_str()) {
            return Ok(());
        }
        Err(format!("the channel {:?} is not for this user: use another one, or ask the operator", self.name))
    }

    fn is_idempotent(&self) -> bool {
        self.deduplicates
    }

    fn deliver<'a>(&'a self, text: &'a OutboxRow) -> Fut<'a, Result<Delivered, DeliveryError>> {
        Box::pin(self.post(text))
    }
}

/// The JSON that the receiver gets.
fn body_of(text: &OutboxRow) -> String {
    let OutboxRow { id, user, task, conversation, title, state, text, at, reply_to, .. } = text;
    json!({
        "id": id,
        "user": user,
        "to": reply_to.as_ref().map(|address| &address.to),
        "task_id": task,
        "conversation_id": conversation,
        "title": title,
        "status": state,
        "text": text,
        "at": at.to_string(),
    })
    .to_string()
}

/// What the receiver's status says.
fn judge(status: StatusCode, headers: &HeaderMap) -> Result<Delivered, DeliveryError> {
    if status.is_success() {
        return Ok(Delivered::Received);
    }
    let why = format!("the receiver answered {status}");
    // Proxies also answer 503 and 408 after the receiver had the request. One that says when to come back refused the request.
    let is_unsent = match status {
        StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => true,
        StatusCode::SERVICE_UNAVAILABLE => headers.contains_key(RETRY_AFTER),
        _ => false,
    };
    if is_unsent {
        let after = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        return Err(DeliveryError::Retry { after_ms: after.unwrap_or(0).saturating_mul(1_000), why });
    }
    // The receiver may have failed after it had passed the text on.
    if status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT {
        return Err(DeliveryError::Unknown(why));
    }
    Err(DeliveryError::Refused(why))
}

/// What a failed request means.
fn failure(error: reqwest::Error) -> DeliveryError {
    let (is_unsent, is_unsendable) = (error.is_connect(), error.is_builder());
    let why = words(error);
    if is_unsent {
        DeliveryError::Retry { after_ms: 0, why }
    } else if is_unsendable {
        DeliveryError::Refused(why)
    } else {
        DeliveryError::Unknown(why)
    }
}

#[cfg(test)]
mod tests {
    use annie_core::{
        event::Priority,
        ids::{ConversationId, OutboxId, TaskId},
        ports::{Address, TaskState},
    };
    use annie_testkit::env::TestClock;
    use reqwest::header::HeaderValue;
    use uuid::Uuid;

    use super::*;
    use crate::signed::seconds;

    fn config(url: &str, secret: &str) -> WebhookConfig {
        let (name, url, secret) = ("helpdesk".to_owned(), url.to_owned(), secret.to_owned());
        WebhookConfig { name, url, secret, users: vec!["ann".to_owned()], deduplicates: false }
    }

    /// Fails before a client is built, which the tests of the whole program cover.
    #[expect(clippy::disallowed_methods, reason = "no request is made here, and other packages have the TLS provider")]
    fn refused(url: &str, secret: &str) -> String {
        let clock = Arc::new(TestClock::new());
        Webhook::new(config(url, secret), reqwest::Client::builder(), clock).unwrap_err().to_string()
    }

    #[tokio::test]
    async fn webhook_with_a_bad_url_or_secret_is_refused_without_showing_them() {
        let secret = "0123456789abcdef";
        for (url, secret, what) in [
            ("no url", secret, "is no URL"),
            ("ftp://127.0.0.1/x", secret, "must begin with http:// or https://"),
            ("http://ann:pass-word@127.0.0.1/x", secret, "has a user or a password"),
            ("http://127.0.0.1/token-1", "short-secret", "is shorter than 16 bytes"),
        ] {
            let error = refused(url, secret);
            assert!(error.starts_with("channel `helpdesk`: ") && error.contains(what), "{error}");
            assert!(
                !error.contains("pass-word") && !error.contains("token-1") && !error.contains("short-secret"),
                "{error}"
            );
        }
    }

    #[test]
    fn webhook_body_has_the_address_and_the_text() {
        let task = TaskId::from_uuid(Uuid::nil());
        let text = OutboxRow {
            id: OutboxId::for_task(task),
            user: UserId::new("ann").unwrap(),
            task,
            conversation: ConversationId::from_uuid(Uuid::nil()),
            title: "Hi".to_owned(),
            priority: Priority::High,
            source: "http".to_owned(),
            state: TaskState::Completed,
            text: "Hello ü".to_owned(),
            at: TestClock::START,
            reply_to: Some(Address { channel: "helpdesk".to_owned(), to: "thread:7".to_owned() }),
            diverted: None,
        };
        let body: serde_json::Value = serde_json::from_str(&body_of(&text)).unwrap();
        assert_eq!(body["id"], text.id.to_string());
        assert_eq!((&body["user"], &body["to"], &body["text"]), (&json!("ann"), &json!("thread:7"), &json!("Hello ü")));
        assert_eq!((&body["status"], &body["title"]), (&json!("completed"), &json!("Hi")));
        assert_eq!(seconds(text.at), "1771423500");
    }

    #[test]
    fn webhook_status_decides_whether_a_text_is_sent_again() {
        let mut headers = HeaderMap::new();
        assert_eq!(judge(StatusCode::ACCEPTED, &headers), Ok(Delivered::Received));
        for status in [StatusCode::INTERNAL_SERVER_ERROR, StatusCode::BAD_GATEWAY, StatusCode::GATEWAY_TIMEOUT] {
            assert!(matches!(judge(status, &headers), Err(DeliveryError::Unknown(_))), "{status}");
        }
        for status in [StatusCode::FOUND, StatusCode::UNAUTHORIZED, StatusCode::NOT_FOUND, StatusCode::GONE] {
            assert!(matches!(judge(status, &headers), Err(DeliveryError::Refused(_))), "{status}");
        }
        headers.insert(RETRY_AFTER, HeaderValue::from_static("7"));
        for status in [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE] {
            let Err(DeliveryError::Retry { after_ms, .. }) = judge(status, &headers) else { panic!("{status}") };
            assert_eq!(after_ms, 7_000);
        }
        // A date is not read: the wait is that of Annie.
        headers.insert(RETRY_AFTER, HeaderValue::from_static("Wed, 21 Oct 2026 07:28:00 GMT"));
        let dated = judge(StatusCode::SERVICE_UNAVAILABLE, &headers);
        assert!(matches!(dated, Err(DeliveryError::Retry { after_ms: 0, .. })), "{dated:?}");
    }
}
