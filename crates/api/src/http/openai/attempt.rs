//! Detects requests that OpenAI's libraries repeat automatically after a lost connection or a time-out. These libraries send no
//! idempotency key, but number their attempts in a header. The message of such a request gets an id that is derived from the
//! request. A later attempt finds this id in the store, even after a restart of the process, and waits for the answer of that
//! message. Without this, the attempt would be stored as a second message with its own effects.

use annie_core::{ids::UserId, time::Micros};
use axum::http::HeaderMap;
use sha2::{Digest, Sha256};

use crate::{
    api::{AppState, ConversationRef, Fingerprint},
    auth::Caller,
    error::ApiError,
};

/// The header with the number of the attempt, from 0.
const HEADER: &str = "x-stainless-retry-count";
/// The length of a window within which equal requests are numbered, in milliseconds.
const WINDOW_MS: i64 = 300_000;
/// The number of windows that are searched for an earlier attempt: the libraries abandon an attempt after ten minutes.
const WINDOWS: i64 = 4;
/// The maximum number of equal requests of one user in one window that are distinguished. Further ones get no derived id, so
/// that a later attempt does not find them.
const EQUAL_MAX: u32 = 16;
/// An answer that was stored at most this long before the process started may not have reached its client, in milliseconds: the
/// previous process may have been killed in between. A client that received an older answer does not repeat its request.
const UNDELIVERED_MS_MAX: i64 = 30_000;

/// One request of a client that numbers its attempts.
#[derive(Debug, Clone)]
pub struct Attempt {
    user: UserId,
    fingerprint: Fingerprint,
    window: i64,
    /// The message id of an earlier attempt whose answer was not delivered.
    earlier: Option<String>,
}

/// Identifies a request independently of its attempt number.
pub struct RequestIdentity<'a> {
    pub surface: &'static str,
    pub conversation_ref: Option<&'a ConversationRef>,
    pub body_sha256: [u8; 32],
}

impl RequestIdentity<'_> {
    fn fingerprint(&self) -> Fingerprint {
        let conversation_ref = match self.conversation_ref {
            None | Some(ConversationRef::New) => String::new(),
            Some(ConversationRef::Id(id)) => format!("id {id}"),
            Some(ConversationRef::Key(key)) => format!("key {key}"),
        };
        let mut hash = Sha256::new();
        hash.update(self.surface);
        hash.update([0]);
        hash.update(Sha256::digest(conversation_ref));
        hash.update(self.body_sha256);
        hash.finalize().into()
    }
}

impl Attempt {
    /// The attempt of a request; nothing if the client does not number its attempts or sends an idempotency key.
    pub async fn of(
        state: &AppState,
        caller: &Caller,
        headers: &HeaderMap,
        key: Option<&str>,
        identity: RequestIdentity<'_>,
    ) -> Result<Option<Self>, ApiError> {
        let number = headers.get(HEADER).and_then(|value| value.to_str().ok()?.parse::<u32>().ok());
        let Some(number) = number.filter(|_| key.is_none()) else { return Ok(None) };
        let window = state.kernel.now().0 / 1_000 / WINDOW_MS;
        let mut attempt =
            Self { user: caller.user.clone(), fingerprint: identity.fingerprint(), window, earlier: None };
        if number > 0 {
            attempt.earlier = attempt.find_earlier(state, caller).await?;
        }
        Ok(Some(attempt))
    }

    /// The message id of an earlier attempt whose answer was not delivered.
    pub fn earlier(&self) -> Option<&str> {
        self.earlier.as_deref()
    }

    /// A message id for a new request; an equal request may have it already. Nothing if there were too many equal requests.
    pub fn new_id(&self, state: &AppState) -> Option<String> {
        let number = state.shared.attempts.number(&self.user, self.fingerprint, self.window);
        (number < EQUAL_MAX).then(|| self.id(self.window, number))
    }

    /// Records that nothing was stored for this attempt, so that the next attempt does not get the answer of an equal request.
    pub fn refused(&self, state: &AppState) {
        state.shared.attempts.refuse(&self.user, self.fingerprint, self.window);
    }

    /// Records that the message was stored, so that a further attempt gets its answer.
    pub fn accepted(&self, state: &AppState) {
        state.shared.attempts.accept(&self.user, self.fingerprint);
    }

    fn id(&self, window: i64, number: u32) -> String {
        let mut id = "attempt:".to_owned();
        for byte in &self.fingerprint[..16] {
            id.push_str(&format!("{byte:02x}"));
        }
        format!("{id}:{window}:{number}")
    }

    /// Searches the windows and numbers in descending order, the newest first.
    async fn find_earlier(&self, state: &AppState, caller: &Caller) -> Result<Option<String>, ApiError> {
        let was_refused = state.shared.attempts.was_refused(&self.user, self.fingerprint, self.window - WINDOWS + 1);
        for window in (0..WINDOWS).map(|back| self.window - back) {
            let mut stored = Vec::new();
            for number in 0..EQUAL_MAX {
                let id = self.id(window, number);
                let Some(row) = state.kernel.store().message(self.user.clone(), id.clone()).await? else {
                    // A number may have been assigned to a request that was refused.
                    continue;
                };
                stored.push((id, row.task));
            }
            for (id, task) in stored.into_iter().rev() {
                let row = state.kernel.task(caller.scope(), task).await?;
                let is_undelivered = |at: Micros| at > state.shared.started_at.plus_ms(-UNDELIVERED_MS_MAX);
                // A written answer may not have arrived: a later attempt shows that it did not. But if an equal request was
                // refused, this attempt may belong to that one.
                let is_delivered = state.shared.attempts.is_answered(task) && was_refused;
                if !is_delivered && row.ended_at.is_none_or(is_undelivered) {
                    return Ok(Some(id));
                }
            }
        }
        Ok(None)
    }
}
