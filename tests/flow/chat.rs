//! Every row of the table of job control [S3 5.2.5], in spoken phrases, typed into `annie chat` at a real server with a
//! slow model. The answers are checked as text, and the effects in the task list.

use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use annie_testkit::model_server::{FakeModelServer, Reply};
use serde_json::Value;

use crate::{
    flow::voice::{Steps, one_slot, works},
    server::Server,
    world::eventually,
};

const VIDEO: &str = "Summarise the video about golf courses";
const RESEARCH: &str = "Research heat pumps for the house";

/// A running `annie chat`, killed when dropped.
struct Chat {
    child: Child,
    out: PathBuf,
    read: usize,
}

impl Chat {
    fn start(server: &Server, folder: &Path, name: &str) -> Self {
        let out = folder.join(name);
        let file = File::create(&out).expect("a file");
        let errors = file.try_clone().expect("the same file");
        let child = Command::new(env!("CARGO_BIN_EXE_annie"))
            .args(["--url", &server.url, "chat", "--conversation", "home"])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", folder)
            .stdin(Stdio::piped())
            .stdout(file)
            .stderr(errors)
            .spawn()
            .expect("the binary runs");
        Self { child, out, read: 0 }
    }

    fn say(&mut self, line: &str) {
        let stdin = self.child.stdin.as_mut().expect("its stdin");
        writeln!(stdin, "{line}").and_then(|()| stdin.flush()).expect("the chat reads its input");
    }

    /// Waits until the chat prints this text after what was read before, and returns all new output.
    async fn wait_for(&mut self, words: &str) -> String {
        let what = format!("the chat says {words:?}");
        let new_text = eventually(&what, async || {
            let all = std::fs::read_to_string(&self.out).unwrap_or_default();
            let new = all.get(self.read..).unwrap_or_default();
            new.contains(words).then(|| new.to_owned())
        })
        .await;
        self.read += new_text.len();
        new_text
    }

    /// Types a line about the tasks and waits for the answer.
    async fn ask(&mut self, line: &str, words: &str) -> String {
        self.say(line);
        self.wait_for(words).await
    }
}

impl Drop for Chat {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The task with this title as the server lists it, or null before the task exists.
async fn task(server: &Server, title: &str) -> Value {
    let (_, all) = server.get("/api/v1/tasks").await;
    all["tasks"].as_array().and_then(|all| all.iter().find(|t| t["title"] == title)).cloned().unwrap_or_default()
}

/// Waits until the task is in the queue, so that later requests for a round come after it.
async fn waits_for_a_round(server: &Server, text: &str) {
    let id = task(server, text).await["id"].clone();
    eventually("the task waits for a round", async || {
        let (_, queue) = server.get("/api/v1/queue").await;
        queue["waiting"].as_array()?.iter().any(|one| one["task_id"] == id && one["state"] == "waiting").then_some(())
    })
    .await;
}

async fn becomes(server: &Server, title: &str, key: &str, value: &str) {
    eventually(&format!("{title:?} has {key} {value}"), async || {
        (task(server, title).await[key] == value).then_some(())
    })
    .await;
}

/// A model that works for eight rounds on the video and for three on the research, as far as `steps` allows, and answers
/// anything else at once.
///
/// A permission that a test gives to one run of the server does not release a request of the former run.
async fn slow_model(steps: &Steps, run: &Arc<AtomicUsize>) -> FakeModelServer {
    let (gate, run) = (steps.clone(), run.clone());
    FakeModelServer::start(move |seen| {
        let text = seen.last_user_text();
        let (name, rounds) = match () {
            () if text.contains(VIDEO) => ("video", 8),
            () if text.contains(RESEARCH) => ("research", 3),
            () => return Reply::says("It is four."),
        };
        gate.wait(&format!("{name}{}", run.load(Relaxed)));
        works(seen, name, rounds)
    })
    .await
}

/// The number of rounds about this title that have arrived.
fn rounds(model: &FakeModelServer, title: &str) -> usize {
    model.requests().iter().filter(|seen| seen.last_user_text().contains(title)).count()
}

async fn rounds_are(model: &FakeModelServer, title: &str, count: usize) {
    eventually(&format!("round {count} of {title:?} has arrived"), async || {
        (rounds(model, title) >= count).then_some(())
    })
    .await;
    assert_eq!(rounds(model, title), count);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 6)]
async fn chat_controls_jobs_in_plain_words_while_they_run_and_across_a_restart() {
    let steps = Steps::default();
    let run = Arc::new(AtomicUsize::new(1));
    let model = slow_model(&steps, &run).await;
    let folder = tempfile::tempdir().expect("a folder");
    let mut server = one_slot(folder.path(), &model).await;
    let mut chat = Chat::start(&server, folder.path(), "first");

    // The long work goes to the background. The next message is answered meanwhile, after one round.
    chat.ask(VIDEO, "On it in the background").await;
    rounds_are(&model, VIDEO, 1).await;
    assert_eq!(task(&server, VIDEO).await["priority"], "normal");
    chat.say("How much is two and two?");
    becomes(&server, "How much is two and two?", "priority", "high").await;
    waits_for_a_round(&server, "How much is two and two?").await;
    steps.allow("video1", 1);
    chat.wait_for("It is four.").await;
    rounds_are(&model, VIDEO, 2).await;
    chat.ask(RESEARCH, "On it in the background").await;
    becomes(&server, RESEARCH, "status", "queued").await;

    // `jobs` and `top`.
    let list = chat.ask("What are you working on?", &format!("[Queued, NORMAL] {RESEARCH}")).await;
    assert!(list.contains("two things right now"), "{list}");
    assert!(list.contains(&format!("[Running, NORMAL] {VIDEO}")), "{list}");
    let busy = chat.ask("How busy are you?", "one more waits").await;
    assert!(busy.contains("I am working on one thing"), "{busy}");

    // `fg`: the research overtakes the task that ran before it in the same conversation.
    chat.ask("Do the research first", &format!("I will do \"{RESEARCH}\"")).await;
    becomes(&server, RESEARCH, "priority", "high").await;
    steps.allow("video1", 1);
    rounds_are(&model, RESEARCH, 1).await;

    // `Ctrl+Z`: the suspended task starts no further round, also after a restart, while the other tasks continue.
    chat.ask("Pause that for now", &format!("I pause \"{RESEARCH}\"")).await;
    becomes(&server, RESEARCH, "status", "suspended").await;
    assert_eq!(rounds(&model, VIDEO), 2, "all of this happened while one round was under way");
    steps.allow("research1", 1);
    rounds_are(&model, VIDEO, 3).await;
    chat.ask("What are you working on?", &format!("[Paused, HIGH] {RESEARCH}")).await;
    drop(chat);
    server.kill();
    run.store(2, Relaxed);
    let server = one_slot(folder.path(), &model).await;
    let mut chat = Chat::start(&server, folder.path(), "second");
    // The round that died with the process begins again. The request of the former run is not answered any more.
    rounds_are(&model, VIDEO, 4).await;
    steps.allow("video2", 1);
    rounds_are(&model, VIDEO, 5).await;
    assert_eq!(task(&server, RESEARCH).await["status"], "suspended");
    assert_eq!(rounds(&model, RESEARCH), 1, "a suspended task runs no round");

    // `fg` again.
    chat.ask("Resume the research", &format!("I am going on with \"{RESEARCH}\"")).await;
    steps.allow("research2", 2);
    // Between two rounds of the research the slot is free for a round of the video.
    steps.allow("video2", 2);
    becomes(&server, RESEARCH, "status", "completed").await;
    assert_eq!(rounds(&model, RESEARCH), 3);

    // `nice`.
    chat.ask("This is urgent", &format!("\"{VIDEO}\"")).await;
    becomes(&server, VIDEO, "priority", "high").await;

    // `kill`.
    rounds_are(&model, VIDEO, 7).await;
    chat.ask("Never mind, cancel that", &format!("I am cancelling \"{VIDEO}\"")).await;
    becomes(&server, VIDEO, "status", "cancelled").await;
    chat.ask("How busy are you?", "I am not busy").await;
    assert_eq!(rounds(&model, VIDEO), 7);
    // Release all requests that still wait at the model.
    steps.allow("video1", 1);
    steps.allow("video2", 10);
}
