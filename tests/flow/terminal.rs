//! The program at a terminal: `script` of util-linux gives it one, and the tests type and read as a person does.

use std::{
    fs::File,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use annie_core::ids::{ConversationId, IntentId, TaskId};
use annie_testkit::model_server::{FakeModelServer, Reply};
use serde_json::json;

use super::{bad_models::server_with, command_line::annie};
use crate::{server::Server, world::eventually};

/// A program at a terminal of 80 columns. Dropping it hangs up.
struct Terminal {
    child: Child,
    shown: PathBuf,
    read: usize,
}

impl Terminal {
    fn start(folder: &Path, arguments: &str) -> Self {
        let shown = folder.join("shown");
        let file = File::create(&shown).expect("a file");
        // The last lines show the mode of the terminal after the program, and its exit code. Ctrl-C must not end the shell.
        let line = format!(
            "trap : INT QUIT; stty cols 80 rows 24; {} --data {} {arguments}; echo code=$?; stty -a; echo over",
            env!("CARGO_BIN_EXE_annie"),
            folder.join("data").display(),
        );
        let child = Command::new("script")
            .args(["-qfec", &line, "/dev/null"])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", folder)
            .env("TERM", "xterm")
            .env("SHELL", "/bin/sh")
            .stdin(Stdio::piped())
            .stdout(file)
            .stderr(Stdio::null())
            .spawn()
            .expect("script runs");
        Self { child, shown, read: 0 }
    }

    fn types(&mut self, keys: &str) {
        let stdin = self.child.stdin.as_mut().expect("its stdin");
        stdin.write_all(keys.as_bytes()).and_then(|()| stdin.flush()).expect("the terminal takes keys");
    }

    /// Waits until the terminal shows this after what was read before, and returns what is new.
    async fn shows(&mut self, words: &str) -> String {
        eventually(&format!("the terminal shows {words:?}"), async || {
            let all = std::fs::read(&self.shown).unwrap_or_default();
            let new = String::from_utf8_lossy(all.get(self.read..)?).into_owned();
            let at = new.find(words)?;
            let text = new[..at + words.len()].to_owned();
            self.read += text.len();
            Some(text)
        })
        .await
    }
}

impl Drop for Terminal {
    #[expect(clippy::print_stderr, reason = "what the terminal showed explains the failure of a test")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let all = std::fs::read(&self.shown).unwrap_or_default();
            eprintln!("the terminal showed {:?}", String::from_utf8_lossy(all.get(self.read..).unwrap_or_default()));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asserts that the terminal has its mode again.
async fn is_restored(terminal: &mut Terminal) {
    let shown = terminal.shows("over").await;
    let words: Vec<&str> = shown.split_whitespace().collect();
    for flag in ["icanon", "echo", "icrnl", "isig"] {
        assert!(words.contains(&flag), "{flag}: {shown}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chat_at_a_terminal_edits_lines_recalls_them_and_takes_a_paste_as_one_message() {
    let model = FakeModelServer::start(|seen| {
        let text = seen.last_user_text();
        let named = [
            ("one\ndelete task 2\nthree", "Got the paste."),
            ("hello!", "Got the second."),
            ("hello", "Got the first."),
            ("swordfish", "Got the secret."),
        ];
        let found = named.iter().find(|(words, _)| text.contains(words)).map(|(_, answer)| *answer);
        Reply::says(found.unwrap_or("Got something else."))
    })
    .await;
    let (_folder, server) = server_with(&model, "mode = \"single_loop\"").await;
    let folder = tempfile::tempdir().expect("a folder");
    let mut terminal = Terminal::start(folder.path(), &format!("--url {} chat", server.url));
    terminal.shows("> ").await;
    // Arrow keys move the cursor: "helo" becomes "hello".
    terminal.types("heo\x1b[Dl\x1b[Dl");
    terminal.shows("hello").await;
    terminal.types("\r");
    terminal.shows("Got the first.").await;
    // A paste with line breaks waits for Enter, and is one message.
    terminal.types("\x1b[200~one\rdelete task 2\rthree\x1b[201~");
    terminal.shows("three").await;
    terminal.types("\r");
    terminal.shows("Got the paste.").await;
    terminal.types("\x1b[A\x1b[A!\r");
    terminal.shows("Got the second.").await;
    terminal.types("my password is swordfish\r");
    terminal.shows("Got the secret.").await;
    terminal.types("/sta\t");
    terminal.shows("/status ").await;
    terminal.types("\r");
    terminal.shows("connected to the server").await;
    terminal.types("\x04");
    terminal.shows("code=0").await;
    is_restored(&mut terminal).await;
    let history = folder.path().join("data/cli_history");
    assert_eq!(std::fs::metadata(&history).expect("a history").permissions().mode() & 0o777, 0o600);
    let stored = std::fs::read_to_string(&history).expect("a history");
    assert!(stored.contains("\"one\\ndelete task 2\\nthree\"") && !stored.contains("swordfish"), "{stored}");

    let mut private = Terminal::start(folder.path(), &format!("--url {} chat --private", server.url));
    private.shows("> ").await;
    private.types("only here\r");
    private.shows("only here").await;
    private.types("\x1b[A");
    drop(private);
    assert_eq!(std::fs::read_to_string(&history).expect("a history"), stored, "a private chat stores nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chat_at_a_terminal_takes_a_line_during_an_answer_says_what_it_waits_for_and_stops_at_ctrl_c() {
    let model = FakeModelServer::start(|seen| match seen.last_user_text().contains("slow") {
        true => Reply::says("Never.").stall_after_events(0),
        false => Reply::says("Second."),
    })
    .await;
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("annie.toml");
    let text = format!("[[backend]]\nname = \"gpu\"\nbase_url = {:?}\nmodel = \"m\"\n", model.base_url());
    std::fs::write(&config, text).expect("written");
    let flags = ["--config", config.to_str().expect("a path")];
    let server = Server::start(&folder.path().join("server"), &flags, &[]).await;
    let mut terminal = Terminal::start(folder.path(), &format!("--url {} chat", server.url));
    terminal.shows("> ").await;
    terminal.types("slow one\r");
    terminal.shows("waiting for the model on gpu").await;
    terminal.types("what are you working on?\r");
    terminal.shows("slow one").await;
    terminal.types("\x03");
    terminal.shows("stopping the answer").await;
    terminal.shows("> ").await;
    terminal.types("\x03");
    terminal.shows("code=130").await;
    is_restored(&mut terminal).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn terminal_is_restored_when_ctrl_backslash_ends_the_chat() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut terminal = Terminal::start(folder.path(), "chat");
    terminal.shows("> ").await;
    terminal.types("\x1c");
    terminal.shows("code=143").await;
    is_restored(&mut terminal).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn terminal_is_restored_when_a_signal_ends_the_chat() {
    let folder = tempfile::tempdir().expect("a folder");
    let server_folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(server_folder.path(), &[], &[]).await;
    let mut terminal = Terminal::start(folder.path(), &format!("--url {} chat", server.url));
    terminal.shows("> ").await;
    let found = eventually("the process of the chat", async || {
        std::fs::read_dir("/proc").ok()?.filter_map(Result::ok).find_map(|entry| {
            let arguments = std::fs::read(entry.path().join("cmdline")).ok()?;
            let own = arguments.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect::<Vec<_>>();
            let is_it = own.first()? == env!("CARGO_BIN_EXE_annie") && own.contains(&server.url.as_str().into());
            is_it.then(|| entry.file_name().to_str()?.parse::<i32>().ok()).flatten()
        })
    })
    .await;
    let pid = rustix::process::Pid::from_raw(found).expect("an id");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("the chat runs");
    terminal.shows("code=143").await;
    is_restored(&mut terminal).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_fit_the_terminal_with_relative_times_and_short_ids_that_commands_accept() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let (code, out, err) = annie(&data, &["--json", "ask", "create a task to call Bob about the house"], &[]).await;
    assert_eq!(code, 0, "{out} {err}");
    let mut terminal = Terminal::start(folder.path(), "tasks list");
    let shown = terminal.shows("over").await;
    let table: Vec<&str> = shown.lines().filter(|line| line.starts_with("task_")).collect();
    assert!(table.len() == 1 && table[0].chars().count() <= 80, "{shown}");
    assert!(table[0].contains("ago") || table[0].contains("now"), "{shown}");
    let short = table[0].split_whitespace().next().expect("an id");
    assert_eq!(short.len(), "task_".len() + 12, "{shown}");
    let (code, out, err) = annie(&data, &["tasks", "list"], &[]).await;
    assert!(code == 0 && out.contains("T") && out.lines().nth(1).is_some_and(|l| l.len() > 37), "{out} {err}");
    let (code, out, err) = annie(&data, &["--json", "tasks", "show", short], &[]).await;
    let task: serde_json::Value = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {code} {out} {err}"));
    assert!(task["id"] != json!(short) && task["id"].as_str().is_some_and(|id| id.starts_with(short)), "{task}");
    let (code, _, err) = annie(&data, &["tasks", "show", "task_ffffff"], &[]).await;
    assert!(code == 3 && err.contains("no id begins with task_ffffff"), "{code} {err}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn skill_of_a_conversation_is_approved_at_a_terminal_after_its_content_was_shown() {
    let folder = tempfile::tempdir().expect("a folder");
    let skills = folder.path().join("data/skills/weather");
    std::fs::create_dir_all(&skills).expect("made");
    let id = uuid::Uuid::from_u128(7);
    let [conversation, task, intent] = [
        ConversationId::from_uuid(id).to_string(),
        TaskId::from_uuid(id).to_string(),
        IntentId::from_uuid(id).to_string(),
    ];
    let built = json!({"by": "me", "conversation": conversation, "task": task, "intent": intent, "at": 1});
    let text = format!(
        "---\nname: weather.now\nbuilt: {built}\ndescription: Of \u{202e}today.\neffect: read\nexternal: true\nrequest:\n  \
         url: https://example.com/v1\n---\nx\n"
    );
    std::fs::write(skills.join("now.md"), text).expect("written");
    for (answer, end) in [("n", "code=6"), ("y", "weather.now is approved")] {
        let mut terminal = Terminal::start(folder.path(), "skills approve weather.now");
        let shown = terminal.shows("approve exactly this content").await;
        assert!(shown.contains("Of <U+202E>today.") && shown.contains("https://example.com/v1"), "{shown}");
        terminal.types(&format!("{answer}\r"));
        terminal.shows(end).await;
        terminal.shows("over").await;
    }
}
