//! The process under test: the real program with a folder of its own, started, killed, frozen and started again.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::pace::pause;

/// The user name of the operator.
pub const OPERATOR: &str = "operator";
/// Longest time of a start.
const START_MAX: Duration = Duration::from_secs(60);

/// The program, its data, and the keys of its users.
pub struct Site {
    program: PathBuf,
    pub folder: PathBuf,
    /// The data folder: in the folder itself, or a small disk.
    pub data: PathBuf,
    config: PathBuf,
    child: Option<Child>,
    /// The number of processes that took over from another.
    successors: u32,
    url: watch::Sender<String>,
    http: reqwest::Client,
    /// The operator's key.
    pub admin: String,
    /// Every user's key.
    pub keys: BTreeMap<String, String>,
}

/// The variable parts of the configuration.
pub struct Setting<'a> {
    pub model_url: &'a str,
    /// The address of the database, if it is not in the folder.
    pub store_url: Option<&'a str>,
}

impl Site {
    /// Creates the folder with the configuration, the script that counts effects, and the operator's key.
    pub fn new(program: &str, folder: &Path, data: &Path, setting: &Setting<'_>) -> Self {
        // The program is copied, so that another build does not change it during the test.
        let own = folder.join("annie");
        std::fs::copy(program, &own).expect("the program is copied");
        let mut site = Self {
            program: own,
            folder: folder.to_owned(),
            data: data.to_owned(),
            config: folder.join("annie.toml"),
            child: None,
            successors: 0,
            url: watch::channel(String::new()).0,
            http: annie_llm::http_client().build().unwrap(),
            admin: String::new(),
            keys: BTreeMap::new(),
        };
        std::fs::write(folder.join("send.sh"), SEND).expect("the script is written");
        File::create(site.effects()).expect("the file of effects");
        std::fs::write(&site.config, config(folder, setting)).expect("the configuration is written");
        let key = site.run(&[
            "key",
            "create",
            "soak",
            "--user",
            OPERATOR,
            "--scope",
            "admin",
            "--scope",
            "impersonate",
            "--json",
        ]);
        let key: Value = serde_json::from_str(&key.expect("a key")).expect("JSON");
        site.admin = key["secret"].as_str().expect("the secret").to_owned();
        site.keys.insert(OPERATOR.to_owned(), site.admin.clone());
        site
    }

    /// The file to which the agentic backend writes what it has sent.
    pub fn effects(&self) -> PathBuf {
        self.folder.join("sent")
    }

    pub fn url(&self) -> watch::Receiver<String> {
        self.url.subscribe()
    }

    /// Runs a command of the program to its end. Returns its output, or its output and errors if it fails.
    pub fn run(&self, arguments: &[&str]) -> Result<String, String> {
        let out = self.command(arguments).output().expect("the program runs");
        let (sent, errors) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        if out.status.success() { Ok(sent.into_owned()) } else { Err(format!("{sent}{errors}")) }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(["--data".as_ref(), self.data.as_os_str(), "--config".as_ref(), self.config.as_os_str()])
            .args(arguments)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", &self.folder)
            .stdin(Stdio::null());
        command
    }

    fn ready_file(&self) -> PathBuf {
        self.folder.join("ready.json")
    }

    /// Starts a run. It is not ready yet.
    pub fn spawn(&mut self) {
        let _ = std::fs::remove_file(self.ready_file());
        let log = OpenOptions::new().create(true).append(true).open(self.folder.join("annie.log")).expect("a log");
        let ready = self.ready_file();
        let ready = ready.to_str().expect("a path");
        let mut command = self.command(&["serve", "--port", "0", "--ready-file", ready]);
        self.child = Some(command.stdout(Stdio::null()).stderr(log).spawn().expect("the program starts"));
    }

    /// Waits until the process accepts messages. If a run ends before that, another one is started, as a service manager
    /// does.
    pub async fn ready(&mut self) {
        let from = Instant::now();
        let mut ends = 0;
        while !self.is_ready().await {
            if let Some(status) = self.has_ended() {
                ends += 1;
                assert!(
                    ends < 20 && from.elapsed() < START_MAX,
                    "the process does not start: {status}, see {}",
                    self.folder.display()
                );
                pause(Duration::from_millis(50)).await;
                self.spawn();
            }
            assert!(
                from.elapsed() < START_MAX,
                "the process is not ready after {START_MAX:?}, see {}",
                self.folder.display()
            );
            pause(Duration::from_millis(2)).await;
        }
    }

    async fn is_ready(&self) -> bool {
        let Ok(bytes) = std::fs::read(self.ready_file()) else { return false };
        let sent: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let Some(url) = sent["url"].as_str() else { return false };
        let asked = self.http.get(format!("{url}/readyz")).timeout(Duration::from_secs(2)).send().await;
        let is_ready = asked.is_ok_and(|a| a.status() == 200);
        if is_ready {
            self.url.send_if_modified(|now| {
                let is_new = now != url;
                url.clone_into(now);
                is_new
            });
        }
        is_ready
    }

    /// The exit status, if the process has ended by itself.
    pub fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.as_mut().and_then(|c| c.try_wait().ok()).flatten()
    }

    /// Sends SIGKILL and waits until the process is gone.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Sends a signal to the current run.
    pub fn signal(&self, what: Signal) {
        if let Some(child) = &self.child {
            signal(child, what);
        }
    }

    /// Starts another process on the same database, with a data folder of its own that shares only the notes. Returns the
    /// former process.
    pub fn start_successor(&mut self) -> Option<Child> {
        let former = self.child.take();
        self.successors += 1;
        let notes = self.folder.join("data").join("notes");
        self.data = self.folder.join(format!("data-{}", self.successors));
        let made = std::fs::create_dir_all(&self.data).and_then(|()| symlink(notes, self.data.join("notes")));
        made.expect("a folder with the same notes");
        self.spawn();
        former
    }

    /// Whether a second process on this folder refuses to start.
    pub async fn refuses_a_second_process(&self) -> bool {
        let mut second = self.command(&["serve", "--port", "0"]);
        let mut second = second.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program starts");
        let since = Instant::now();
        let mut ended = None;
        while ended.is_none() && since.elapsed() < Duration::from_secs(10) {
            pause(Duration::from_millis(10)).await;
            ended = second.try_wait().ok().flatten();
        }
        let _ = second.kill();
        let _ = second.wait();
        ended.is_some_and(|status| !status.success())
    }

    /// Sends a request to the current run as the operator.
    pub async fn operate(&self, path: &str, body: &Value) -> Option<(u16, Value)> {
        let url = format!("{}{path}", *self.url.borrow());
        let request = self.http.post(url).bearer_auth(&self.admin).json(body).timeout(Duration::from_secs(10));
        let answer = request.send().await.ok()?;
        Some((answer.status().as_u16(), answer.json().await.unwrap_or_default()))
    }

    /// Reads a resource with this key.
    pub async fn read_as(&self, key: &str, path: &str) -> Option<Value> {
        let url = format!("{}{path}", *self.url.borrow());
        let answer = self.http.get(url).bearer_auth(key).timeout(Duration::from_secs(10)).send().await.ok()?;
        if answer.status() != 200 { None } else { answer.json().await.ok() }
    }

    /// The paths of all live actors.
    pub async fn actors(&self) -> Vec<String> {
        let tree = self.read_as(&self.admin, "/api/v1/actors?limit=5000").await.unwrap_or_default();
        let all = tree["actors"].as_array().into_iter().flatten();
        all.filter_map(|a| a["path"].as_str().map(str::to_owned)).collect()
    }

    /// Creates a key for a chat user.
    pub async fn key(&mut self, user: &str) -> String {
        let body = json!({"name": user, "user": user, "scopes": ["chat", "jobs:read", "jobs:control"]});
        let (_, made) = self.operate("/api/v1/keys", &body).await.expect("the server answers");
        let secret = made["secret"].as_str().unwrap_or_else(|| panic!("a key: {made}")).to_owned();
        self.keys.insert(user.to_owned(), secret.clone());
        secret
    }
}

/// Sends a signal to a child process.
pub fn signal(child: &Child, what: Signal) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, what);
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The external effect: one line for each run, written unbuffered, and then some time in which the run can be killed.
const SEND: &str = r#"token=$(printf '%s' "$1" | grep -o 'TK[0-9N]*E' | tail -n 1)
echo "$token" >> sent
sleep 0.03
echo "It is sent: $token."
"#;

fn config(folder: &Path, setting: &Setting<'_>) -> String {
    let script = folder.join("send.sh");
    let store = setting.store_url.map(|url| format!("[store]\nurl = {url:?}\n")).unwrap_or_default();
    format!(
        r#"timezone = "UTC"
[[backend]]
name = "main"
base_url = {model:?}
model = "m"
slots = 32
[[backend]]
name = "sender"
kind = "command"
program = "/bin/sh"
args = [{script:?}, "{{prompt}}"]
folder = {folder:?}
slots = 8
[routing]
default_rules = false
[[route]]
name = "send"
when = {{ any_words = ["zsend"] }}
to = {{ backend = "sender" }}
fallback = "never"
[server]
require_key = true
[api]
requests_per_minute_max = 600000
requests_burst_max = 10000
[turn]
window_calls_max = 1000000
[queue]
depth_per_user = {{ high_max = 12, normal_max = 12, low_max = 3, background_max = 5 }}
[log]
level = "warn"
{store}"#,
        model = setting.model_url,
        script = script.display().to_string(),
        folder = folder.display().to_string(),
    )
}
