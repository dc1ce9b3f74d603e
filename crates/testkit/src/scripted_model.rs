//! A model backend in memory: a script answers instead of a server. Its only cost is the script's own work, so the kernel can
//! be tested and measured without HTTP.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use annie_core::{
    message::{Finish, ModelError, ModelErrorKind, ModelReply, ModelRequest, ToolCall},
    ports::{Draft, DraftSink, Fut, Model},
};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::sync::{Semaphore, watch};

type Script = dyn Fn(&ModelRequest, u64) -> Result<ModelReply, ModelError> + Send + Sync;
type Choice = dyn Fn(&ModelRequest, u64) -> bool + Send + Sync;

/// A reply with only text.
#[must_use]
pub fn says(text: impl Into<String>) -> ModelReply {
    ModelReply { text: text.into(), model: "scripted".to_owned(), ..ModelReply::default() }
}

/// A reply that calls tools; the calls get the ids `call_0`, `call_1` … Use [`calls_as`] where ids must differ between
/// rounds.
#[must_use]
pub fn calls<'a>(tools: impl IntoIterator<Item = (&'a str, Value)>) -> ModelReply {
    calls_as("call", tools)
}

/// A reply that calls tools under the ids `<prefix>_0`, `<prefix>_1` …
#[must_use]
pub fn calls_as<'a>(prefix: &str, tools: impl IntoIterator<Item = (&'a str, Value)>) -> ModelReply {
    let tool_calls = tools
        .into_iter()
        .enumerate()
        .map(|(i, (name, arguments))| ToolCall {
            id: format!("{prefix}_{i}"),
            name: name.to_owned(),
            arguments: arguments.to_string(),
        })
        .collect();
    ModelReply { tool_calls, finish: Finish::ToolCalls, model: "scripted".to_owned(), ..ModelReply::default() }
}

/// A reply with one ```` ```cmd ```` block that holds these commands.
#[must_use]
pub fn commands<'a>(lines: impl IntoIterator<Item = &'a str>) -> ModelReply {
    let lines: Vec<&str> = lines.into_iter().collect();
    says(format!("```cmd\n{}\n```", lines.join("\n")))
}

/// A [`Model`] implemented by a closure. Calls are numbered from 0 in the order in which they begin.
///
/// ```
/// use annie_testkit::scripted_model::{ScriptedModel, says};
/// let model = ScriptedModel::new(|request, call| Ok(says(format!("call {call} of {}", request.session_id))));
/// assert_eq!(model.call_count(), 0);
/// ```
pub struct ScriptedModel {
    id: String,
    script: Box<Script>,
    delay: Option<Duration>,
    hangs: Option<Box<Choice>>,
    begun: AtomicU64,
    seen: watch::Sender<u64>,
    abandoned: Arc<watch::Sender<u64>>,
    requests: Option<Mutex<Vec<ModelRequest>>>,
    embeddings: Option<String>,
    embedding_gate: Option<Arc<Semaphore>>,
}

impl ScriptedModel {
    /// A model that answers with what the closure returns for a request and its number.
    pub fn new(script: impl Fn(&ModelRequest, u64) -> Result<ModelReply, ModelError> + Send + Sync + 'static) -> Self {
        Self {
            id: "scripted".to_owned(),
            script: Box::new(script),
            delay: None,
            hangs: None,
            begun: AtomicU64::new(0),
            seen: watch::channel(0).0,
            abandoned: Arc::new(watch::channel(0).0),
            requests: Some(Mutex::new(Vec::new())),
            embeddings: None,
            embedding_gate: None,
        }
    }

    /// A model that gives the same text on every call.
    pub fn saying(text: impl Into<String>) -> Self {
        let text = text.into();
        Self::new(move |_, _| Ok(says(text.clone())))
    }

    /// A model that gives these replies in turn, and after the last one the error `scripted replies are used up`.
    pub fn replying(replies: impl IntoIterator<Item = Result<ModelReply, ModelError>>) -> Self {
        let replies: Vec<_> = replies.into_iter().collect();
        Self::new(move |_, call| {
            usize::try_from(call)
                .ok()
                .and_then(|i| replies.get(i))
                .cloned()
                .unwrap_or_else(|| Err(ModelError::new(ModelErrorKind::InvalidRequest, "scripted replies are used up")))
        })
    }

    /// Adds an embedding model of this name, which gives one vector for each request.
    #[must_use]
    pub fn embedding(mut self, name: impl Into<String>) -> Self {
        self.embeddings = Some(name.into());
        self
    }

    /// Makes each embedding wait for a permit of this gate.
    #[must_use]
    pub fn embedding_behind(mut self, gate: Arc<Semaphore>) -> Self {
        self.embedding_gate = Some(gate);
        self
    }

    /// Sets the name.
    #[must_use]
    pub fn named(mut self, id: impl Into<String>) -> Self {
        self.id = id.into();
        self
    }

    /// Delays every call by this time (on tokio's clock, so that a paused clock runs it at once).
    #[must_use]
    pub fn taking(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    /// Never answers the calls that `choice` selects: the caller has to give up.
    #[must_use]
    pub fn hanging_when(mut self, choice: impl Fn(&ModelRequest, u64) -> bool + Send + Sync + 'static) -> Self {
        self.hangs = Some(Box::new(choice));
        self
    }

    /// Records no requests: for benchmarks.
    #[must_use]
    pub fn without_recording(mut self) -> Self {
        self.requests = None;
        self
    }

    /// Number of calls that have begun.
    #[must_use]
    pub fn call_count(&self) -> u64 {
        self.begun.load(Ordering::SeqCst)
    }

    /// Number of calls that were dropped before they were answered.
    #[must_use]
    pub fn abandoned_count(&self) -> u64 {
        *self.abandoned.borrow()
    }

    /// The requests of all calls that have begun, in order; empty without recording.
    #[must_use]
    pub fn requests(&self) -> Vec<ModelRequest> {
        self.requests.as_ref().map(|r| r.lock().clone()).unwrap_or_default()
    }

    /// Waits until `count` calls have begun.
    pub async fn called(&self, count: u64) {
        // The sender lives in `self`, so the wait can only end by the condition.
        let _ = self.seen.subscribe().wait_for(|n| *n >= count).await;
    }

    /// Waits until `count` calls were dropped before they were answered.
    pub async fn abandoned(&self, count: u64) {
        let _ = self.abandoned.subscribe().wait_for(|n| *n >= count).await;
    }
}

impl fmt::Debug for ScriptedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedModel").field("id", &self.id).field("calls", &self.call_count()).finish_non_exhaustive()
    }
}

/// Counts a call that is dropped while it is armed.
struct Abandon(Option<Arc<watch::Sender<u64>>>);

impl Drop for Abandon {
    fn drop(&mut self) {
        if let Some(count) = &self.0 {
            count.send_modify(|n| *n += 1);
        }
    }
}

impl Model for ScriptedModel {
    fn id(&self) -> &str {
        &self.id
    }

    fn about(&self) -> String {
        "a script in a test".to_owned()
    }

    fn call<'a>(&'a self, request: &'a ModelRequest, drafts: DraftSink) -> Fut<'a, Result<ModelReply, ModelError>> {
        Box::pin(async move {
            let call = self.begun.fetch_add(1, Ordering::SeqCst);
            if let Some(requests) = &self.requests {
                requests.lock().push(request.clone());
            }
            self.seen.send_modify(|n| *n = (*n).max(call + 1));
            let mut abandon = Abandon(Some(Arc::clone(&self.abandoned)));
            if let Some(delay) = self.delay {
                tokio::time::sleep(delay).await;
            }
            if self.hangs.as_ref().is_some_and(|h| h(request, call)) {
                std::future::pending::<()>().await;
            }
            abandon.0 = None;
            let reply = (self.script)(request, call)?;
            // An empty text shows that the reply has begun.
            drafts(Draft::Text(reply.text.clone()));
            Ok(reply)
        })
    }

    fn embeds(&self) -> Option<&str> {
        self.embeddings.as_deref()
    }

    fn embed(&self, request: Map<String, Value>) -> Fut<'_, Result<Value, ModelError>> {
        let data = json!([{"object": "embedding", "index": 0, "embedding": [0.5, 1.0]}]);
        let reply = json!({"object": "list", "data": data, "model": self.embeddings, "asked": request});
        Box::pin(async move {
            if let Some(gate) = &self.embedding_gate
                && let Ok(step) = gate.acquire().await
            {
                step.forget();
            }
            Ok(reply)
        })
    }

    fn check(&self) -> Fut<'_, Result<(), ModelError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(session: &str) -> ModelRequest {
        ModelRequest {
            model: None,
            system: Vec::new(),
            messages: Vec::new(),
            stable_messages: 0,
            tools: Vec::new(),
            skill_names: Vec::new(),
            output_tokens_max: 10,
            session_id: session.to_owned(),
            priority: 0,
            options: annie_core::caller::CallOptions::default(),
        }
    }

    #[tokio::test]
    async fn scripted_model_passes_request_and_number_to_the_script() {
        let model = ScriptedModel::new(|r, n| Ok(says(format!("{}-{n}", r.session_id))));
        let drafts: Arc<Mutex<Vec<Draft>>> = Arc::default();
        let kept = Arc::clone(&drafts);
        let sink: DraftSink = Arc::new(move |d| kept.lock().push(d));
        let first = model.call(&request("a"), Arc::clone(&sink)).await.unwrap();
        let second = model.call(&request("b"), sink).await.unwrap();
        assert_eq!((first.text.as_str(), second.text.as_str()), ("a-0", "b-1"));
        assert_eq!(*drafts.lock(), [Draft::Text("a-0".into()), Draft::Text("b-1".into())]);
        assert_eq!(model.requests().len(), 2);
    }

    #[tokio::test]
    async fn scripted_model_counts_a_hanging_call_that_is_dropped() {
        let model = ScriptedModel::saying("never").hanging_when(|_, call| call == 0);
        {
            let request = request("a");
            let call = model.call(&request, Arc::new(|_| ()));
            tokio::select! {
                _ = call => panic!("a hanging call answered"),
                () = model.called(1) => {}
            }
        }
        model.abandoned(1).await;
        assert_eq!(model.call(&request("a"), Arc::new(|_| ())).await.unwrap().text, "never");
        assert_eq!(model.abandoned_count(), 1);
    }

    #[tokio::test]
    async fn scripted_model_gives_queued_replies_in_turn_and_then_an_error() {
        let model = ScriptedModel::replying([Ok(says("one")), Ok(commands(["tasks.search --status open"]))]);
        let sink: DraftSink = Arc::new(|_| ());
        assert_eq!(model.call(&request("a"), Arc::clone(&sink)).await.unwrap().text, "one");
        let second = model.call(&request("a"), Arc::clone(&sink)).await.unwrap();
        assert_eq!(second.text, "```cmd\ntasks.search --status open\n```");
        assert!(model.call(&request("a"), sink).await.is_err());
    }
}
