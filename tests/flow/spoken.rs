//! What was spoken: never the orchestrator, skills that only read unless the words ask for more, a short answer.

use std::sync::{Arc, Mutex};

use annie_actors::Submission;
use annie_core::{
    event::{EventBody, Mode},
    message::ModelRequest,
};
use annie_testkit::scripted_model::{ScriptedModel, calls, says};
use serde_json::json;

use crate::world::{WorldParts, ann};

/// Says something aloud to a model that tries to change something; what the model was asked, and the answer.
async fn spoken(text: &str) -> (Vec<ModelRequest>, String, usize) {
    let heard: Arc<Mutex<Vec<ModelRequest>>> = Arc::default();
    let hears = heard.clone();
    let model = ScriptedModel::new(move |request, call| {
        hears.lock().expect("not poisoned").push(request.clone());
        let put = || calls([("use_skill", json!({"skill": "test.put", "arguments": {"what": "x"}}))]);
        Ok(if call == 0 { put() } else { says("So it is.") })
    });
    let world = WorldParts::with_model(Arc::new(model)).start().await;
    let said = world.kernel.submit(Submission::new(ann(), "voice", text)).await.expect("it is taken in");
    let answer = world.answer(&said).await;
    let log = world.log(said.conversation).await;
    assert!(log.iter().any(|e| matches!(e.body, EventBody::TurnStarted { mode: Mode::SingleLoop, .. })), "{log:?}");
    let ran = log.iter().filter(|e| matches!(e.body, EventBody::SkillFinished { .. })).count();
    world.kernel.stop().await;
    let heard = heard.lock().expect("not poisoned").clone();
    (heard, answer, ran)
}

#[tokio::test]
async fn spoken_question_runs_no_skill_that_changes_something() {
    let (heard, answer, ran) = spoken("What is on my list?").await;
    assert_eq!((answer.as_str(), ran), ("So it is.", 0));
    assert!(heard[0].output_tokens_max <= 300, "{}", heard[0].output_tokens_max);
    assert!(heard[0].tools.iter().all(|tool| tool.name != "dispatch_agent"), "{:?}", heard[0].tools);
    assert!(!heard[0].system.iter().any(|part| part.text.contains("test.put")), "{:?}", heard[0].system);
    let told = format!("{:?}", heard[1].messages.last());
    assert!(told.contains("test.put"), "the model is told that there is no such skill: {told}");
}

#[tokio::test]
async fn spoken_wish_runs_the_skill_that_it_asks_for() {
    let (_, answer, ran) = spoken("Please put an x on my list").await;
    assert_eq!((answer.as_str(), ran), ("So it is.", 1));
}

#[tokio::test]
async fn spoken_yes_runs_the_skill_that_was_asked_about() {
    for said in ["Yes please", "ok do that", "Ja bitte"] {
        let (heard, answer, ran) = spoken(said).await;
        assert_eq!((answer.as_str(), ran), ("So it is.", 1), "{said}: {heard:?}");
    }
}
