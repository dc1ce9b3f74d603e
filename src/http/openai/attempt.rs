//! Requests that OpenAI's libraries repeat by themselves after a lost connection or a time-out. They send no idempotency key,
//! and number their attempts in a header. The message of a numbered request gets an id that is made of the request, so that a
//! later attempt finds it in the store, also after the process was killed, and waits for its answer: stored anew it would be
//! another message, with effects of its own.

use annie_core::{ids::UserId, time::Micros};
use axum::http::HeaderMap;
use sha2::{Digest, Sha256};

use crate::{
    auth::Caller,
    door::{AppState, Fingerprint, Where},
    error::Fault,
};

/// The number of an attempt, from 0.
const HEADER: &str = "x-stainless-retry-count";
/// Messages of equal requests are numbered within so long a time, in milliseconds.
const WINDOW_MS: i64 = 300_000;
/// So many windows are searched for an earlier attempt: the libraries give up an attempt after ten minutes.
const WINDOWS: i64 = 4;
/// Equal requests of one user in one window that are told from each other, at most. More get no id, and a later attempt does
/// not find them.
const EQUAL_MAX: u32 = 16;
/// An answer that was stored so long before this process began may not have reached its client, in milliseconds: the process
/// before it may have been killed in between. Who was given an older one does not ask again.
const UNTOLD_MS_MAX: i64 = 30_000;

/// One request of a client that numbers its attempts.
#[derive(Debug, Clone)]
pub struct Attempt {
    user: UserId,
    fingerprint: Fingerprint,
    window: i64,
    /// The message id of an earlier attempt whose answer was not given.
    earlier: Option<String>,
}

/// Which request it is, whatever its attempt.
pub struct Asked<'a> {
    pub surface: &'static str,
    pub place: Option<&'a Where>,
    pub body_sha256: [u8; 32],
}

impl Asked<'_> {
    fn fingerprint(&self) -> Fingerprint {
        let place = match self.place {
            None | Some(Where::New) => String::new(),
            Some(Where::Id(id)) => format!("id {id}"),
            Some(Where::Key(key)) => format!("key {key}"),
        };
        let mut hash = Sha256::new();
        hash.update(self.surface);
        hash.update([0]);
        hash.update(Sha256::digest(place));
        hash.update(self.body_sha256);
        hash.finalize().into()
    }
}

impl Attempt {
    /// The attempt that these headers name; nothing for a client that does not number them, or gives an idempotency key.
    pub async fn of(
        state: &AppState,
        caller: &Caller,
        headers: &HeaderMap,
        key: Option<&str>,
        asked: Asked<'_>,
    ) -> Result<Option<Self>, Fault> {
        let number = headers.get(HEADER).and_then(|value| value.to_str().ok()?.parse::<u32>().ok());
        let Some(number) = number.filter(|_| key.is_none()) else { return Ok(None) };
        let window = state.kernel.now().0 / 1_000 / WINDOW_MS;
        let mut attempt = Self { user: caller.user.clone(), fingerprint: asked.fingerprint(), window, earlier: None };
        if number > 0 {
            attempt.earlier = attempt.find_earlier(state, caller).await?;
        }
        Ok(Some(attempt))
    }

    /// The message id of an earlier attempt whose answer was not given.
    pub fn earlier(&self) -> Option<&str> {
        self.earlier.as_deref()
    }

    /// A message id for a new request, which an equal one may have already; nothing if there were too many equal ones.
    pub fn new_id(&self, state: &AppState) -> Option<String> {
        let number = state.doors.attempts.number(&self.user, self.fingerprint, self.window);
        (number < EQUAL_MAX).then(|| self.id(self.window, number))
    }

    /// Nothing was stored for this attempt: the next one is not to get the answer of an equal request.
    pub fn refused(&self, state: &AppState) {
        state.doors.attempts.refuse(&self.user, self.fingerprint, self.window);
    }

    /// Its message was stored: a further attempt is to get its answer.
    pub fn accepted(&self, state: &AppState) {
        state.doors.attempts.accept(&self.user, self.fingerprint);
    }

    fn id(&self, window: i64, number: u32) -> String {
        let mut id = "attempt:".to_owned();
        for byte in &self.fingerprint[..16] {
            id.push_str(&format!("{byte:02x}"));
        }
        format!("{id}:{window}:{number}")
    }

    /// The newest first.
    async fn find_earlier(&self, state: &AppState, caller: &Caller) -> Result<Option<String>, Fault> {
        let was_refused = state.doors.attempts.was_refused(&self.user, self.fingerprint, self.window - WINDOWS + 1);
        for window in (0..WINDOWS).map(|back| self.window - back) {
            let mut stored = Vec::new();
            for number in 0..EQUAL_MAX {
                let id = self.id(window, number);
                let Some(row) = state.kernel.store().message(self.user.clone(), id.clone()).await? else {
                    // A number may have been given to a request that was refused.
                    continue;
                };
                stored.push((id, row.task));
            }
            for (id, task) in stored.into_iter().rev() {
                let row = state.kernel.task(caller.scope(), task).await?;
                let is_untold = |at: Micros| at > state.doors.started_at.plus_ms(-UNTOLD_MS_MAX);
                // That an answer was written does not say that it arrived: a later attempt says that it did not. But where an
                // equal request was refused, this may be the attempt behind that one.
                let is_given = state.doors.attempts.is_answered(task) && was_refused;
                if !is_given && row.ended_at.is_none_or(is_untold) {
                    return Ok(Some(id));
                }
            }
        }
        Ok(None)
    }
}
