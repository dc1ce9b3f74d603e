//! One round: wait for a permit, stream, give the permit back. The permit is never held across a wait for anything else
//! (invariant 8), and comes back even if the task is aborted.

use std::{sync::Arc, time::Duration};

use annie_core::{
    event::Priority,
    ids::{AgentId, ConversationId, TaskId, UserId},
    message::{ModelError, ModelErrorKind, ModelReply, ModelRequest},
    ports::{Draft, DraftSink},
};

use crate::{
    hub::Live,
    scheduler::{PermitRequest, acquire},
    tasks::caught,
    wiring::Wiring,
};

/// A round to run.
pub(crate) struct ModelCall {
    pub task: TaskId,
    pub user: UserId,
    pub conversation: ConversationId,
    pub agent: AgentId,
    pub priority: Priority,
    pub round: u32,
    pub request: ModelRequest,
    /// How long it may take after its permit, in milliseconds.
    pub ms_max: u64,
}

/// What a round came to.
#[derive(Debug)]
pub(crate) struct ModelDone {
    pub task: TaskId,
    pub round: u32,
    pub result: Result<ModelReply, ModelError>,
    pub backend: String,
    /// How long it ran after its permit, in milliseconds.
    pub ran_ms: u64,
}

pub(crate) async fn call_model(wiring: Arc<Wiring>, call: ModelCall) -> ModelDone {
    let clock = wiring.env.clock.clone();
    let wanted = PermitRequest {
        task: call.task,
        user: call.user.clone(),
        conversation: call.conversation,
        priority: call.priority,
        since: wiring.env.now(),
    };
    let permit = acquire(&wiring, wanted).await;
    let backend = permit.backend().to_owned();
    let from_us = clock.monotonic_us();
    let result = match wiring.backends.get(&backend) {
        Some(endpoint) => {
            let sink = sink(&wiring, &call);
            let wait = Duration::from_millis(call.ms_max);
            match tokio::time::timeout(wait, caught(endpoint.model.call(&call.request, sink))).await {
                Ok(Ok(result)) => result,
                Ok(Err(panic)) => {
                    Err(ModelError::new(ModelErrorKind::Protocol, format!("the client broke down: {panic}")))
                }
                Err(_) => {
                    let detail = format!("no complete answer within {} s", call.ms_max / 1_000);
                    Err(ModelError::new(ModelErrorKind::Timeout, detail))
                }
            }
        }
        None => Err(ModelError::new(ModelErrorKind::Unavailable, format!("there is no backend {backend:?}"))),
    };
    let ran_us = clock.monotonic_us().saturating_sub(from_us);
    permit.give_back(ran_us / 1_000);
    measure(&backend, &result, ran_us);
    ModelDone { task: call.task, round: call.round, result, backend, ran_ms: ran_us / 1_000 }
}

/// Drafts of the agent that answers the user go straight to the listeners; a sub-agent's are nobody's business.
fn sink(wiring: &Arc<Wiring>, call: &ModelCall) -> DraftSink {
    if !call.agent.is_orchestrator() || !wiring.hub.has_listeners(call.conversation) {
        return Arc::new(|_| {});
    }
    let (hub, conversation, task, round) = (wiring.hub.clone(), call.conversation, call.task, call.round);
    Arc::new(move |draft: Draft| hub.publish(conversation, Live::Draft { task, round, draft }))
}

fn measure(backend: &str, result: &Result<ModelReply, ModelError>, ran_us: u64) {
    let outcome = match result {
        Ok(_) => "ok",
        Err(e) => e.kind.as_str(),
    };
    metrics::counter!("annie_llm_requests_total", "backend" => backend.to_owned(), "outcome" => outcome).increment(1);
    #[expect(clippy::cast_precision_loss, reason = "a duration in a histogram")]
    metrics::histogram!("annie_llm_request_seconds", "backend" => backend.to_owned()).record(ran_us as f64 / 1e6);
    if let Ok(reply) = result {
        let count = |kind: &'static str, tokens: u64| {
            metrics::counter!("annie_llm_tokens_total", "type" => kind).increment(tokens);
        };
        count("input", reply.usage.input_tokens);
        count("output", reply.usage.output_tokens);
        count("cached", reply.usage.cached_tokens);
    }
}
