//! Every row of the table of job control [S3 5.2.5], in phrases as one speaks them, typed into `annie chat` at a real
//! server whose model is slow. What is said comes back in words, and what it did is seen in the tasks.

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

/// A chat that runs. Killed when dropped.
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
        writeln!(stdin, "{line}").and_then(|()| stdin.flush()).expect("it listens");
    }

    /// Waits until this comes, behind what came before, and gives back all of it.
    async fn hears(&mut self, words: &str) -> String {
        let what = format!("the chat says {words:?}");
        let heard = eventually(&what, async || {
            let all = std::fs::read_to_string(&self.out).unwrap_or_default();
            let new = all.get(self.read..).unwrap_or_default();
            new.contains(words).then(|| new.to_owned())
        })
        .await;
        self.read += heard.len();
        heard
    }

    /// Says something about the tasks, and waits for the answer.
    async fn asks(&mut self, line: &str, words: &str) -> String {
        self.say(line);
        self.hears(words).await
    }
}

impl Drop for Chat {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The task with this title, as the server tells it; null before it is there.
async fn task(server: &Server, title: &str) -> Value {
    let (_, all) = server.get("/api/v1/tasks").await;
    all["tasks"].as_array().and_then(|all| all.iter().find(|t| t["title"] == title)).cloned().unwrap_or_default()
}

/// It stands in the queue: whoever asks for a round after it comes after it.
async fn waits_for_a_round(server: &Server, text: &str) {
    let id = task(server, text).await["id"].clone();
    eventually("it waits for a round", async || {
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

/// A model that works on the video for eight rounds and on the research for three, when it may, and knows the rest at once.
///
/// What has arrived in one life of the server is not answered by the leave that is given in the next.
async fn slow_model(steps: &Steps, life: &Arc<AtomicUsize>) -> FakeModelServer {
    let (gate, life) = (steps.clone(), life.clone());
    FakeModelServer::start(move |seen| {
        let text = seen.last_user_text();
        let (name, rounds) = match () {
            () if text.contains(VIDEO) => ("video", 8),
            () if text.contains(RESEARCH) => ("research", 3),
            () => return Reply::says("It is four."),
        };
        gate.wait(&format!("{name}{}", life.load(Relaxed)));
        works(seen, name, rounds)
    })
    .await
}

/// How many rounds have arrived that were about this.
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
async fn jobs_are_controlled_in_plain_words_while_they_run_and_across_a_restart() {
    let steps = Steps::default();
    let life = Arc::new(AtomicUsize::new(1));
    let model = slow_model(&steps, &life).await;
    let folder = tempfile::tempdir().expect("a folder");
    let mut server = one_slot(folder.path(), &model).await;
    let mut chat = Chat::start(&server, folder.path(), "first");

    // Work goes to the background, and the next message is answered meanwhile, after one round.
    chat.asks(VIDEO, "On it in the background").await;
    rounds_are(&model, VIDEO, 1).await;
    assert_eq!(task(&server, VIDEO).await["priority"], "normal");
    chat.say("How much is two and two?");
    becomes(&server, "How much is two and two?", "priority", "high").await;
    waits_for_a_round(&server, "How much is two and two?").await;
    steps.allow("video1", 1);
    chat.hears("It is four.").await;
    rounds_are(&model, VIDEO, 2).await;
    chat.asks(RESEARCH, "On it in the background").await;
    becomes(&server, RESEARCH, "status", "queued").await;

    // `jobs` and `top`.
    let list = chat.asks("What are you working on?", &format!("[Queued, NORMAL] {RESEARCH}")).await;
    assert!(list.contains("two things right now"), "{list}");
    assert!(list.contains(&format!("[Running, NORMAL] {VIDEO}")), "{list}");
    let busy = chat.asks("How busy are you?", "one more waits").await;
    assert!(busy.contains("I am working on one thing"), "{busy}");

    // `fg`: it overtakes what ran before it, in the same conversation.
    chat.asks("Do the research first", &format!("I will do \"{RESEARCH}\"")).await;
    becomes(&server, RESEARCH, "priority", "high").await;
    steps.allow("video1", 1);
    rounds_are(&model, RESEARCH, 1).await;

    // `Ctrl+Z`: it makes no round any more, also after a restart, while the others go on.
    chat.asks("Pause that for now", &format!("I pause \"{RESEARCH}\"")).await;
    becomes(&server, RESEARCH, "status", "suspended").await;
    assert_eq!(rounds(&model, VIDEO), 2, "all of this happened while one round was under way");
    steps.allow("research1", 1);
    rounds_are(&model, VIDEO, 3).await;
    chat.asks("What are you working on?", &format!("[Paused, HIGH] {RESEARCH}")).await;
    drop(chat);
    server.kill();
    life.store(2, Relaxed);
    let server = one_slot(folder.path(), &model).await;
    let mut chat = Chat::start(&server, folder.path(), "second");
    // The round that died with the process begins again, and the one before it is not answered any more.
    rounds_are(&model, VIDEO, 4).await;
    steps.allow("video2", 1);
    rounds_are(&model, VIDEO, 5).await;
    assert_eq!(task(&server, RESEARCH).await["status"], "suspended");
    assert_eq!(rounds(&model, RESEARCH), 1, "what is paused makes no round");

    // `fg` again.
    chat.asks("Resume the research", &format!("I am going on with \"{RESEARCH}\"")).await;
    steps.allow("research2", 2);
    // Between two of its rounds the slot is free for one of the other's.
    steps.allow("video2", 2);
    becomes(&server, RESEARCH, "status", "completed").await;
    assert_eq!(rounds(&model, RESEARCH), 3);

    // `nice`.
    chat.asks("This is urgent", &format!("\"{VIDEO}\"")).await;
    becomes(&server, VIDEO, "priority", "high").await;

    // `kill`.
    rounds_are(&model, VIDEO, 7).await;
    chat.asks("Never mind, cancel that", &format!("I am cancelling \"{VIDEO}\"")).await;
    becomes(&server, VIDEO, "status", "cancelled").await;
    chat.asks("How busy are you?", "I am not busy").await;
    assert_eq!(rounds(&model, VIDEO), 7);
    // Nobody is left waiting at the model.
    steps.allow("video1", 1);
    steps.allow("video2", 10);
}
