//! Embeddings through the backend pool: a permit on a backend that makes embeddings, one call, and the permit is given back.
//! These calls are not tasks, so the queue's limits do not count them, and they have limits of their own. What they spend counts for
//! the caps of their user's day, in this process only, because no event records it.

use std::time::Duration;

use annie_core::{
    context,
    event::Priority,
    ids::{ConversationId, TaskId, UserId},
    message::{ModelError, ModelErrorKind, Usage},
    queue::Refusal,
};
use serde_json::{Map, Value};

use super::Kernel;
use crate::{
    scheduler::{AdmissionMsg, PermitRequest, RequestHandle, SchedulerMsg, Verdict, acquire},
    tasks::caught,
};

/// How long a request waits for its permit, at most, in milliseconds. The caller may send it again.
const WAIT_MS_MAX: u64 = 60_000;
/// Why a request for embeddings failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EmbedError {
    /// No backend makes embeddings with this model; the value lists the available models.
    #[error("no backend makes embeddings with this model")]
    NoModel(Vec<String>),
    /// Too many requests are under way; the caller may try again.
    #[error(transparent)]
    Full(#[from] Refusal),
    /// The backend failed.
    #[error(transparent)]
    Model(#[from] ModelError),
}

/// Makes the Scheduler forget the call when it ends, however it ends.
struct Known<'a>(&'a Kernel, TaskId);

impl Drop for Known<'_> {
    fn drop(&mut self) {
        self.0.wiring.scheduler.tell(SchedulerMsg::Admission(AdmissionMsg::Forget { task: self.1 }));
    }
}

/// What a provider reports in its reply.
fn usage_of(reply: &Value) -> Usage {
    let usage = &reply["usage"];
    let input_tokens = usage["prompt_tokens"].as_u64().or_else(|| usage["total_tokens"].as_u64()).unwrap_or_default();
    let cost_usd = usage["cost"].as_f64().unwrap_or_default();
    Usage { input_tokens, cost_usd, ..Usage::default() }.bounded()
}

impl Kernel {
    /// The embedding models of all backends.
    #[must_use]
    pub fn embedding_models(&self) -> Vec<String> {
        self.wiring.backends.values().filter_map(|b| b.model.embeds().map(str::to_owned)).collect()
    }

    /// Makes embeddings: `request` has the shape of OpenAI's request without its model, and the result is the provider's
    /// reply. Without `model`, any available model is used.
    ///
    /// # Errors
    /// If no backend makes them, or it fails.
    pub async fn embed(
        &self,
        user: UserId,
        model: Option<&str>,
        request: Map<String, Value>,
    ) -> Result<Value, EmbedError> {
        let (wiring, env) = (&self.wiring, &self.wiring.env);
        let fits = |name: &str| model.is_none_or(|model| model == name);
        let able = wiring.backends.values().filter(|b| b.model.embeds().is_some_and(fits));
        let route: Vec<String> = able.map(|b| b.name.clone()).collect();
        if route.is_empty() {
            return Err(EmbedError::NoModel(self.embedding_models()));
        }
        let _slot = wiring.embeddings.take(&user)?;
        let known = Known(self, TaskId::from_uuid(env.uuid()));
        wiring.spend.read_day(wiring.store.as_ref(), &user, env.now()).await;
        let wanted = PermitRequest {
            task: known.1,
            user: user.clone(),
            conversation: ConversationId::from_uuid(env.uuid()),
            priority: Priority::High,
            since: env.now(),
            after: Vec::new(),
            route,
            progress: None,
            is_task: false,
        };
        let unavailable = |why: String| ModelError::new(ModelErrorKind::Unavailable, why);
        let handle = RequestHandle::default();
        let permit =
            tokio::time::timeout(Duration::from_millis(WAIT_MS_MAX), acquire(&wiring.scheduler, wanted, &handle)).await;
        let busy = |_| ModelError::new(ModelErrorKind::RateLimited, "no backend was free in time");
        let permit = permit.map_err(busy)?;
        let permit = permit.map_err(|why| why.into_error(env.now()))?;
        let backend = wiring.backends.get(permit.backend()).ok_or_else(|| unavailable("its backend is gone".into()))?;
        let text_bytes = request.get("input").map_or(0, |input| input.to_string().len());
        let input_tokens = context::tokens(text_bytes).into();
        let reservation = match wiring.spend.reserve_embeddings(&user, &backend.facts, input_tokens, env.now()) {
            Ok(reservation) => reservation,
            Err(refusal) => {
                permit.give_back(0, Verdict::Unused);
                metrics::counter!("annie_spend_refusals_total", "cap" => refusal.cap.as_str()).increment(1);
                return Err(refusal.into_error(env.now()).into());
            }
        };
        let from_us = env.clock.monotonic_us();
        let wait = Duration::from_millis(backend.round_ms_max.unwrap_or(wiring.limits.round_ms_max));
        let result = match tokio::time::timeout(wait, caught(backend.model.embed(request))).await {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => Err(ModelError::new(ModelErrorKind::Protocol, format!("the client panicked: {panic}"))),
            Err(_) => Err(ModelError::new(ModelErrorKind::Timeout, "no answer in time")),
        };
        let ran_ms = env.clock.monotonic_us().saturating_sub(from_us) / 1_000;
        permit.give_back(ran_ms, Verdict::of(&result));
        if let Ok(reply) = &result {
            reservation.settle(&usage_of(reply));
        }
        let outcome = result.as_ref().map_or_else(|error| error.kind.as_str(), |_| "ok");
        metrics::counter!("annie_embeddings_total", "backend" => backend.name.clone(), "outcome" => outcome)
            .increment(1);
        Ok(result?)
    }
}
