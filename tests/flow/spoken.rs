//! Spoken messages: never the orchestrator, only skills that read unless the words ask for more, a short answer.

use std::sync::{Arc, Mutex};

use annie_actors::Submission;
use annie_core::{
    event::{EventBody, Mode},
    message::ModelRequest,
};
use annie_testkit::scripted_model::{ScriptedModel, calls, says};
use serde_json::json;

use crate::world::{WorldParts, ann};

/// Sends a spoken message to a model that tries to change something. Returns the requests to the model, the answer, and
/// the number of skill runs.
async fn spoken(text: &str) -> (Vec<ModelRequest>, String, usize) {
    let requests: Arc<Mutex<Vec<ModelRequest>>> = Arc::default();
    let recorded = requests.clone();
    let model = ScriptedModel::new(move |request, call| {
        recorded.lock().expect("not poisoned").push(request.clone());
        let put = || calls([("use_skill", json!({"skill": "test.put", "arguments": {"what": "x"}}))]);
        Ok(if call == 0 { put() } else { says("So it is.") })
    });
    let world = WorldParts::with_model(Arc::new(model)).start().await;
    let sent = world.kernel.submit(Submission::new(ann(), "voice", text)).await.expect("accepted");
    let answer = world.answer(&sent).await;
    let log = world.log(sent.conversation).await;
    assert!(log.iter().any(|e| matches!(e.body, EventBody::TurnStarted { mode: Mode::SingleLoop, .. })), "{log:?}");
    let ran = log.iter().filter(|e| matches!(e.body, EventBody::SkillFinished { .. })).count();
    world.kernel.stop().await;
    let requests = requests.lock().expect("not poisoned").clone();
    (requests, answer, ran)
}

#[tokio::test]
async fn spoken_question_runs_no_skill_that_changes_something() {
    let (requests, answer, ran) = spoken("What is on my list?").await;
    assert_eq!((answer.as_str(), ran), ("So it is.", 0));
    assert!(requests[0].output_tokens_max <= 300, "{}", requests[0].output_tokens_max);
    assert!(requests[0].tools.iter().all(|tool| tool.name != "dispatch_agent"), "{:?}", requests[0].tools);
    assert!(!requests[0].system.iter().any(|part| part.text.contains("test.put")), "{:?}", requests[0].system);
    let last_message = format!("{:?}", requests[1].messages.last());
    assert!(
        last_message.contains("test.put"),
        "the model receives the error that there is no such skill: {last_message}"
    );
}

#[tokio::test]
async fn spoken_request_runs_the_skill_that_it_asks_for() {
    let (_, answer, ran) = spoken("Please put an x on my list").await;
    assert_eq!((answer.as_str(), ran), ("So it is.", 1));
}

#[tokio::test]
async fn spoken_yes_runs_the_skill_that_was_asked_about() {
    for sent in ["Yes please", "ok do that", "Ja bitte"] {
        let (requests, answer, ran) = spoken(sent).await;
        assert_eq!((answer.as_str(), ran), ("So it is.", 1), "{sent}: {requests:?}");
    }
}
