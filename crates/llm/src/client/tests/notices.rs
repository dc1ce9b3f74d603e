//! Tests of the client's log messages to the operator.

use std::fmt::{Debug, Write};

use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

use super::*;

/// Records the log events of this crate as text.
#[derive(Clone, Default)]
struct Captured(Arc<Mutex<Vec<String>>>);

impl Captured {
    /// Counts the events that contain these words.
    fn count(&self, words: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|event| event.contains(words)).count()
    }
}

struct Words(String);

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }
}

impl Subscriber for Captured {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("annie_llm")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut words = Words(String::new());
        event.record(&mut words);
        self.0.lock().unwrap().push(words.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[tokio::test]
async fn client_warns_if_ollama_dropped_part_of_the_prompt() {
    for (profile, counted, warnings) in
        [(Profile::Ollama, 100, 1), (Profile::Ollama, 9_000, 0), (Profile::Vllm, 100, 0)]
    {
        let captured = Captured::default();
        let _guard = tracing::subscriber::set_default(captured.clone());
        let usage = json!({"prompt_tokens": counted, "completion_tokens": 1});
        let server = FakeModelServer::start(move |_| Reply::says("x").usage(usage.clone())).await;
        let request = ModelRequest { messages: vec![Message::user("word ".repeat(4_000))], ..request() };
        let model = model(ModelConfig { profile, ..config(&server) });
        model.call(&request, Arc::new(|_| ())).await.unwrap();
        assert_eq!(captured.count("dropped part of the prompt"), warnings, "{profile:?} that counts {counted} tokens");
    }
}

#[tokio::test]
async fn client_logs_unsupported_parameter_once() {
    let captured = Captured::default();
    let _guard = tracing::subscriber::set_default(captured.clone());
    let server = FakeModelServer::start(|_| Reply::says("x")).await;
    let model = model(ModelConfig { profile: Profile::Anthropic, ..config(&server) });
    let mut request = request();
    request.options.sampling.seed = Some(7);
    for _ in 0..2 {
        model.call(&request, Arc::new(|_| ())).await.unwrap();
    }
    assert_eq!(captured.count("parameter=\"seed\""), 1);
}
