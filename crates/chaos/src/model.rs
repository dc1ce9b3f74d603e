//! A model backend with injected faults.

use std::sync::Arc;

use annie_core::{
    faults::{FaultKind, Injection, Target},
    message::{Finish, ModelError, ModelErrorKind, ModelReply, ModelRequest, ToolCall},
    ports::{Draft, DraftSink, Fut, Model, ServerFacts},
};

use super::{
    injector::{Injector, abort, wait},
    load,
};

/// The size of a reply that is too large, in bytes.
const HUGE_BYTES: usize = 1024 * 1024;
/// The retry time of an injected rate limit, in milliseconds.
const RETRY_AFTER_MS: u64 = 200;

/// A wrapper that injects faults into a backend.
pub(super) struct ChaosModel {
    name: String,
    inner: Arc<dyn Model>,
    faults: Arc<Injector>,
}

impl ChaosModel {
    pub fn new(name: &str, inner: Arc<dyn Model>, faults: Arc<Injector>) -> Self {
        Self { name: name.to_owned(), inner, faults }
    }

    async fn answer(&self, request: &ModelRequest, drafts: DraftSink) -> Result<ModelReply, ModelError> {
        let Some(reply) = load::reply(request) else { return self.inner.call(request, drafts).await };
        if !reply.text.is_empty() {
            drafts(Draft::Text(reply.text.clone()));
        }
        Ok(reply)
    }

    #[expect(clippy::panic, reason = "this is the requested fault")]
    async fn injected(
        &self,
        injection: Injection,
        request: &ModelRequest,
        drafts: DraftSink,
    ) -> Result<ModelReply, ModelError> {
        match injection.kind {
            FaultKind::Slow => wait(injection).await,
            FaultKind::Hang => std::future::pending().await,
            FaultKind::Panic => panic!("injected panic in model {}", self.name),
            FaultKind::Abort => abort(&self.name),
            FaultKind::Cut => {
                drafts(Draft::Text("This answer breaks o".to_owned()));
                return Err(ModelError { after_first_token: true, ..failed(ModelErrorKind::Truncated) });
            }
            FaultKind::WrongTool => return Ok(wrong_tool()),
            FaultKind::Huge => return Ok(load::says("x".repeat(HUGE_BYTES))),
            FaultKind::RateLimited => {
                let retry_after_ms = Some(RETRY_AFTER_MS);
                return Err(ModelError { retry_after_ms, ..failed(ModelErrorKind::RateLimited) });
            }
            FaultKind::Unavailable => return Err(failed(ModelErrorKind::Unavailable)),
            FaultKind::Auth => return Err(failed(ModelErrorKind::Auth)),
            FaultKind::Payment => return Err(failed(ModelErrorKind::Payment)),
            FaultKind::Timeout => return Err(failed(ModelErrorKind::Timeout)),
            FaultKind::Overflow => return Err(failed(ModelErrorKind::Overflow)),
            FaultKind::Garbage => return Err(failed(ModelErrorKind::Protocol)),
            _ => {}
        }
        let reply = self.answer(request, drafts).await;
        if injection.kind == FaultKind::AbortAfter {
            abort(&self.name);
        }
        reply
    }
}

fn failed(kind: ModelErrorKind) -> ModelError {
    ModelError::new(kind, "injected fault")
}

fn wrong_tool() -> ModelReply {
    let call =
        ToolCall { id: "call_0".to_owned(), name: "no_such_tool".to_owned(), arguments: "{\"broken\": ".to_owned() };
    ModelReply { tool_calls: vec![call], finish: Finish::ToolCalls, ..load::says("") }
}

impl Model for ChaosModel {
    fn id(&self) -> &str {
        self.inner.id()
    }

    fn about(&self) -> String {
        self.inner.about()
    }

    fn call<'a>(&'a self, request: &'a ModelRequest, drafts: DraftSink) -> Fut<'a, Result<ModelReply, ModelError>> {
        Box::pin(async move {
            match self.faults.pass(Target::Model, &self.name, "", "call", |_| true) {
                Some(injection) => self.injected(injection, request, drafts).await,
                None => self.answer(request, drafts).await,
            }
        })
    }

    fn summarises(&self) -> bool {
        self.inner.summarises()
    }

    fn embeds(&self) -> Option<&str> {
        self.inner.embeds()
    }

    fn embed(
        &self,
        request: serde_json::Map<String, serde_json::Value>,
    ) -> Fut<'_, Result<serde_json::Value, ModelError>> {
        self.inner.embed(request)
    }

    fn check(&self) -> Fut<'_, Result<(), ModelError>> {
        self.inner.check()
    }

    fn describe(&self) -> Fut<'_, Option<ServerFacts>> {
        self.inner.describe()
    }
}
