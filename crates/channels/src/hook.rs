//! A hook that is a service of the operator: each question is a signed POST request, and the body of the reply is the answer. The
//! header `annie-question` is the id of the question, which is the same if a crash makes Annie ask again.

use std::{fmt, sync::Arc};

use annie_core::{
    event::HookAnswer,
    hooks::HookQuestion,
    ports::{Clock, Fut, HookRunner},
};
use reqwest::{ClientBuilder, Response};

use crate::signed::{Signed, words};

/// Size limit of an answer, in bytes. An answer replaces the arguments of one call at most.
const ANSWER_BYTES_MAX: usize = 16 * 1024;

/// The settings of a hook.
pub struct WebhookHookConfig {
    /// The name of the hook.
    pub name: String,
    /// The URL to which questions are posted.
    pub url: String,
    /// The key of the signatures.
    pub secret: String,
    /// Time limit of an answer, in milliseconds.
    pub ms_max: u64,
    /// Size limit of a question, in bytes.
    pub question_bytes_max: usize,
}

/// A hook that cannot be built. The text says what is wrong, without the URL and the secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("hook `{name}`: {what}")]
pub struct WebhookHookError {
    /// The name of the hook.
    pub name: String,
    /// What is wrong, and the fix.
    pub what: String,
}

/// A hook behind a URL.
pub struct WebhookHook {
    name: String,
    target: Signed,
    question_bytes_max: usize,
}

impl fmt::Debug for WebhookHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WebhookHook({})", self.name)
    }
}

impl WebhookHook {
    /// Builds a hook. `client` brings the TLS provider.
    ///
    /// # Errors
    /// If the URL is no HTTP URL, the secret is too short, or the client cannot be built.
    pub fn new(
        config: WebhookHookConfig,
        client: ClientBuilder,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, WebhookHookError> {
        let WebhookHookConfig { name, url, secret, ms_max, question_bytes_max } = config;
        match Signed::new(&url, &secret, client, clock, ms_max) {
            Ok(target) => Ok(Self { name, target, question_bytes_max }),
            Err(what) => Err(WebhookHookError { name, what }),
        }
    }

    async fn post(&self, question: &HookQuestion) -> Result<HookAnswer, String> {
        let body = serde_json::to_string(question).map_err(|e| e.to_string())?;
        if body.len() > self.question_bytes_max {
            // No failure: a hook whose failure lets through could be evaded by a long text.
            let (bytes, bytes_max) = (body.len(), self.question_bytes_max);
            let text = format!("The question to the rule's service has {bytes} bytes, {bytes_max} are allowed.");
            return Ok(HookAnswer::Refuse { text });
        }
        let request = self.target.post(body).header("annie-question", question.id.as_str());
        let response = request.send().await.map_err(words)?;
        let status = response.status();
        if !status.is_success() {
            return Err(format!("its service answered {status}"));
        }
        answer(&read(response).await?)
    }
}

/// The body of a reply within the limit.
async fn read(mut response: Response) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(words)? {
        body.extend_from_slice(&chunk);
        if body.len() > ANSWER_BYTES_MAX {
            return Err(format!("its answer has more than {ANSWER_BYTES_MAX} bytes"));
        }
    }
    Ok(body)
}

/// The answer in a body. An empty one means that the service has no objection.
fn answer(body: &[u8]) -> Result<HookAnswer, String> {
    if body.trim_ascii().is_empty() {
        return Ok(HookAnswer::Continue);
    }
    serde_json::from_slice(body).map_err(|e| format!("its reply is no answer: {e}"))
}

impl HookRunner for WebhookHook {
    fn ask<'a>(&'a self, question: &'a HookQuestion) -> Fut<'a, Result<HookAnswer, String>> {
        Box::pin(self.post(question))
    }
}
