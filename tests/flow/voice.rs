//! A user speaks while Annie works in the background: through the real binary, on a backend with one slot. Rounds are
//! counted where they arrive, at the model server.

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Condvar, Mutex},
};

use annie_testkit::model_server::{FakeModelServer, Reply, Seen};
use serde_json::{Value, json};

use crate::{
    server::Server,
    world::{PATIENCE, eventually},
};

/// Rounds at a fake model server that are answered when the test allows it, by the name of their task.
#[derive(Clone, Default)]
pub struct Steps(Arc<(Mutex<HashMap<String, usize>>, Condvar)>);

impl Steps {
    /// Allows `rounds` more rounds of this name to be answered.
    pub fn allow(&self, name: &str, rounds: usize) {
        *self.0.0.lock().expect("not poisoned").entry(name.to_owned()).or_default() += rounds;
        self.0.1.notify_all();
    }

    /// Waits for a permission. Called on a thread of the fake server, whose runtime has other threads.
    pub fn wait(&self, name: &str) {
        let left = |all: &mut HashMap<String, usize>| all.get(name).is_none_or(|left| *left == 0);
        tokio::task::block_in_place(|| {
            let all = self.0.0.lock().expect("not poisoned");
            let (mut all, _) = self.0.1.wait_timeout_while(all, PATIENCE, left).expect("not poisoned");
            if let Some(left) = all.get_mut(name) {
                *left = left.saturating_sub(1);
            }
        });
    }
}

/// A server in front of one fake model with one slot.
pub async fn one_slot(folder: &Path, model: &FakeModelServer) -> Server {
    let config = format!(
        "mode = \"single_loop\"\n[turn]\ncompaction_messages = 0\n[[backend]]\nname = \"gpu\"\nbase_url = {:?}\nmodel = \"m\"\nslots = 1\nretries_max = 0\n\
         [deadline]\nrealtime = {{ soft_ms = 30000, hard_ms = 60000 }}\n\
         voice_simple = {{ soft_ms = 30000, hard_ms = 60000 }}\nvoice_action = {{ soft_ms = 30000, hard_ms = 60000 }}\n",
        model.base_url()
    );
    let path = folder.join("annie.toml");
    std::fs::write(&path, config).expect("the configuration is written");
    Server::start(folder, &["--config", path.to_str().expect("a path")], &[]).await
}

/// The number of rounds that the turn ran before this request.
pub fn rounds_done(seen: &Seen) -> usize {
    seen.texts_of("tool").len()
}

/// Works for `rounds` rounds and then answers.
pub fn works(seen: &Seen, name: &str, rounds: usize) -> Reply {
    let done = rounds_done(seen);
    if done + 1 >= rounds {
        Reply::says(format!("{name} is done."))
    } else {
        Reply::calls([("get_skill", json!({"search": format!("{name} {done}")}))])
    }
}

/// The names of the tasks whose rounds have arrived, in order.
fn arrived(model: &FakeModelServer) -> Vec<String> {
    model.requests().iter().map(Seen::last_user_text).map(|text| name_of(&text)).collect()
}

fn name_of(text: &str) -> String {
    text.split_whitespace().find(|w| ["voice", "background"].contains(w)).unwrap_or("neither").to_owned()
}

async fn say(server: &Server, body: Value) -> Value {
    let (status, sent) = server.post("/api/v1/messages", &body).await.expect("answered");
    assert_eq!(status, 202, "{sent}");
    sent
}

async fn ended(server: &Server, sent: &Value) -> Value {
    let path = format!("/api/v1/tasks/{}", sent["task_id"].as_str().expect("an id"));
    eventually("the task has ended", async || {
        let (_, task) = server.get(&path).await;
        ["completed", "failed", "cancelled"].contains(&task["status"].as_str()?).then_some(task)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn voice_task_waits_for_at_most_one_round_and_no_other_task_begins_until_it_ends() {
    for is_killed in [false, true] {
        let steps = Steps::default();
        let gate = steps.clone();
        let model = FakeModelServer::start(move |seen| {
            let name = name_of(&seen.last_user_text());
            gate.wait(&name);
            works(seen, &name, 3)
        })
        .await;
        let folder = tempfile::tempdir().expect("a folder");
        let server = one_slot(folder.path(), &model).await;
        let kill = async || {
            if is_killed {
                let dead = server
                    .post("/api/v1/actors/kill", &json!({"path": "/scheduler", "reason": "a test", "force": true}))
                    .await;
                assert_eq!(dead.expect("answered").0, 200);
            }
        };
        let background = [
            say(&server, json!({"text": "background one", "priority": "background"})).await,
            say(&server, json!({"text": "background two", "priority": "background"})).await,
        ];
        model.arrived(1).await;
        let voice = say(&server, json!({"text": "voice please", "source": "voice"})).await;
        assert_eq!(voice["priority"], "realtime", "{voice}");
        kill().await;
        assert_eq!(arrived(&model), ["background"], "the slot is in use");
        steps.allow("background", 1);
        model.arrived(2).await;
        kill().await;
        steps.allow("voice", 3);
        let spoken = ended(&server, &voice).await;
        assert_eq!(spoken["status"], "completed", "{spoken}");
        // A round that began during the voice task has arrived before the last round of that task.
        let begun = arrived(&model);
        assert_eq!(begun[..4], ["background", "voice", "voice", "voice"], "killed: {is_killed}");
        assert!(begun[4..].iter().all(|name| name == "background"), "{begun:?}");
        steps.allow("background", 10);
        for sent in &background {
            assert_eq!(ended(&server, sent).await["status"], "completed");
        }
        assert_eq!(arrived(&model).len(), 9, "a round ran twice: {:?}", arrived(&model));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn steering_message_is_accepted_once_in_two_seconds() {
    let steps = Steps::default();
    let gate = steps.clone();
    let model = FakeModelServer::start(move |seen| {
        gate.wait("any");
        works(seen, "it", 2)
    })
    .await;
    let folder = tempfile::tempdir().expect("a folder");
    let server = one_slot(folder.path(), &model).await;
    let long = say(&server, json!({"text": "choose a colour", "conversation_key": "k"})).await;
    model.arrived(1).await;
    let steering = say(&server, json!({"text": "I prefer blue", "conversation_key": "k", "steer": true})).await;
    let again = json!({"text": "or red", "conversation_key": "k", "steer": true});
    let (status, problem) = server.post("/api/v1/messages", &again).await.expect("answered");
    assert_eq!((status, problem["code"].as_str()), (429, Some("too_soon")), "{problem}");
    steps.allow("any", 1);
    model.arrived(2).await;
    let text = model.requests().remove(1).texts_of("user").join("\n");
    assert!(text.contains("I prefer blue") && !text.contains("or red"), "{text}");
    steps.allow("any", 5);
    for sent in [&long, &steering] {
        assert_eq!(ended(&server, sent).await["status"], "completed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_backend_killed_by_a_restart_is_not_rerun_and_the_doubt_is_reported() {
    let work = tempfile::tempdir().expect("a folder");
    let folder = tempfile::tempdir().expect("a folder");
    let (script, marks) = (work.path().join("agent"), work.path().join("marks"));
    std::fs::write(&script, format!("echo run >> {marks:?}\nexec tail -f /dev/null\n")).expect("written");
    let config = format!(
        "[[backend]]\nname = \"agent\"\nkind = \"command\"\nprogram = \"/bin/sh\"\nargs = [{script:?}]\nfolder = {:?}\n\
         env_pass = [\"PATH\"]\nslots = 1\n",
        work.path()
    );
    let path = folder.path().join("annie.toml");
    std::fs::write(&path, config).expect("the configuration is written");
    let path = path.to_str().expect("a path").to_owned();
    let runs = || std::fs::read_to_string(&marks).unwrap_or_default().lines().count();
    let mut server = Server::start(folder.path(), &["--config", &path], &[]).await;
    let sent = say(&server, json!({"text": "commit what has changed"})).await;
    eventually("the program runs", async || (runs() == 1).then_some(())).await;
    server.kill();
    let server = Server::start(folder.path(), &["--config", &path], &[]).await;
    let task = ended(&server, &sent).await;
    assert_eq!((task["status"].as_str(), task["error"].as_str()), (Some("failed"), Some("model_in_doubt")), "{task}");
    assert_eq!(runs(), 1);
    let conversation = sent["conversation_id"].as_str().expect("an id");
    let log = server.stream(conversation, 0, |seen| seen.iter().any(crate::server::Sse::is_final)).await;
    let final_text =
        log.iter().find(|s| s.is_final()).expect("a final event").data["text"].as_str().unwrap_or_default().to_owned();
    assert!(!final_text.is_empty(), "{log:#?}");
    // A kernel that had forgotten that the program ran would run it again here.
    let next = json!({"text": "what time is it?", "conversation_id": conversation, "priority": "high"});
    let next = say(&server, next).await;
    eventually("the next program runs", async || (runs() == 2).then_some(())).await;
    let cancel = format!("/api/v1/tasks/{}/cancel", next["task_id"].as_str().expect("an id"));
    assert_eq!(server.post(&cancel, &json!({})).await.expect("answered").0, 200);
    assert_eq!(ended(&server, &next).await["status"], "cancelled");
}
