//! A model backend that fails as backends do.

use std::sync::Arc;

use annie_core::{
    message::{Finish, ModelError, ModelErrorKind, ModelReply, ModelRequest, ToolCall},
    ports::{Draft, DraftSink, Fut, Model, ServerFacts},
};

use super::{
    fault::{Deed, Target},
    injector::{Injector, Strike, abort},
    load,
};

/// How large an answer is that is too large, in bytes.
const HUGE_BYTES: usize = 1024 * 1024;
/// When a provider that refuses wants to be asked again, in milliseconds.
const RETRY_AFTER_MS: u64 = 200;

/// A backend behind its faults.
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

    #[expect(clippy::panic, reason = "this is the fault that was asked for")]
    async fn struck(
        &self,
        strike: Strike,
        request: &ModelRequest,
        drafts: DraftSink,
    ) -> Result<ModelReply, ModelError> {
        match strike.deed {
            Deed::Slow => strike.wait().await,
            Deed::Hang => std::future::pending().await,
            Deed::Panic => panic!("injected panic in model {}", self.name),
            Deed::Abort => abort(&self.name),
            Deed::Cut => {
                drafts(Draft::Text("This answer breaks o".to_owned()));
                return Err(ModelError { after_first_token: true, ..failed(ModelErrorKind::Truncated) });
            }
            Deed::WrongTool => return Ok(wrong_tool()),
            Deed::Huge => return Ok(load::says("x".repeat(HUGE_BYTES))),
            Deed::RateLimited => {
                let retry_after_ms = Some(RETRY_AFTER_MS);
                return Err(ModelError { retry_after_ms, ..failed(ModelErrorKind::RateLimited) });
            }
            Deed::Unavailable => return Err(failed(ModelErrorKind::Unavailable)),
            Deed::Auth => return Err(failed(ModelErrorKind::Auth)),
            Deed::Payment => return Err(failed(ModelErrorKind::Payment)),
            Deed::Timeout => return Err(failed(ModelErrorKind::Timeout)),
            Deed::Garbage => return Err(failed(ModelErrorKind::Protocol)),
            _ => {}
        }
        let reply = self.answer(request, drafts).await;
        if strike.deed == Deed::AbortAfter {
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
                Some(strike) => self.struck(strike, request, drafts).await,
                None => self.answer(request, drafts).await,
            }
        })
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
