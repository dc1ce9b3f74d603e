//! Embeddings through the pool: a permit on a backend that makes them, one call, and the permit back.

use std::time::Duration;

use annie_core::{
    event::Priority,
    ids::{ConversationId, TaskId, UserId},
    message::{ModelError, ModelErrorKind},
};
use serde_json::{Map, Value};

use super::Kernel;
use crate::{
    scheduler::{PermitRequest, SchedulerMsg, Verdict, Wish, acquire},
    tasks::caught,
};

/// Why there are no vectors.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EmbedError {
    /// No backend makes any of this model; these are the models that there are.
    #[error("no backend makes embeddings with this model")]
    NoModel(Vec<String>),
    /// The backend failed.
    #[error(transparent)]
    Model(#[from] ModelError),
}

/// What the scheduler knows of the call is forgotten with it, however it ends.
struct Known<'a>(&'a Kernel, TaskId);

impl Drop for Known<'_> {
    fn drop(&mut self) {
        self.0.wiring.scheduler.tell(SchedulerMsg::Forget { task: self.1 });
    }
}

impl Kernel {
    /// The embedding models of all backends.
    #[must_use]
    pub fn embedding_models(&self) -> Vec<String> {
        self.wiring.backends.values().filter_map(|b| b.model.embeds().map(str::to_owned)).collect()
    }

    /// Has a backend make vectors: a request of OpenAI's shape without its model, and the provider's reply. Nothing names any
    /// model that there is.
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
        let known = Known(self, TaskId::from_uuid(env.uuid()));
        let wanted = PermitRequest {
            task: known.1,
            user,
            conversation: ConversationId::from_uuid(env.uuid()),
            priority: Priority::High,
            since: env.now(),
            after: Vec::new(),
            route,
            progress: None,
        };
        let unavailable = |why: String| ModelError::new(ModelErrorKind::Unavailable, why);
        let permit = acquire(wiring, wanted, &Wish::default()).await.map_err(|why| unavailable(why.to_string()))?;
        let backend = wiring.backends.get(permit.backend()).ok_or_else(|| unavailable("its backend is gone".into()))?;
        let from_us = env.clock.monotonic_us();
        let wait = Duration::from_millis(backend.round_ms_max.unwrap_or(wiring.limits.round_ms_max));
        let result = match tokio::time::timeout(wait, caught(backend.model.embed(request))).await {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => Err(ModelError::new(ModelErrorKind::Protocol, format!("the client broke down: {panic}"))),
            Err(_) => Err(ModelError::new(ModelErrorKind::Timeout, "no answer in time")),
        };
        let ran_ms = env.clock.monotonic_us().saturating_sub(from_us) / 1_000;
        permit.give_back(ran_ms, Verdict::of(&result));
        let outcome = result.as_ref().map_or_else(|error| error.kind.as_str(), |_| "ok");
        metrics::counter!("annie_embeddings_total", "backend" => backend.name.clone(), "outcome" => outcome)
            .increment(1);
        Ok(result?)
    }
}
