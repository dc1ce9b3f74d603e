//! The real binary as a child process on loopback. Tests send requests to it and kill it.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use serde_json::Value;
use tokio::net::TcpSocket;

use crate::world::eventually;

/// A running `annie serve`, which `drop` kills with SIGKILL.
pub struct Server {
    child: Child,
    /// Bound but never listened on. While this socket exists, no other process gets the port between two runs of the
    /// server.
    reserved_port: Arc<TcpSocket>,
    log: tempfile::NamedTempFile,
    pub url: String,
    pub http: reqwest::Client,
}

impl Server {
    /// Starts a server with this data folder on a free port. `arguments` and `env` are added to the command line and
    /// environment.
    pub async fn start(data: &Path, arguments: &[&str], env: &[(&str, &str)]) -> Self {
        let reserved_port = TcpSocket::new_v4().expect("a socket");
        // The server sets SO_REUSEADDR as well, so it can bind the port beside this socket.
        reserved_port.set_reuseaddr(true).expect("set");
        reserved_port.bind(([127, 0, 0, 1], 0).into()).expect("a free port");
        Self::start_on(data, data, Arc::new(reserved_port), arguments, env).await
    }

    /// Starts the next run of a killed server. Its ready file is in `beside`, because the data folder may be on a full
    /// disk.
    pub async fn restart_with_ready_file_in(&self, data: &Path, beside: &Path) -> Self {
        Self::start_on(data, beside, self.reserved_port.clone(), &[], &[]).await
    }

    /// Starts the next run of a killed server with the same data folder and on the same port.
    pub async fn again(&self, data: &Path, arguments: &[&str], env: &[(&str, &str)]) -> Self {
        Self::start_on(data, data, self.reserved_port.clone(), arguments, env).await
    }

    async fn start_on(
        data: &Path,
        beside: &Path,
        reserved_port: Arc<TcpSocket>,
        arguments: &[&str],
        env: &[(&str, &str)],
    ) -> Self {
        let port = reserved_port.local_addr().expect("bound").port().to_string();
        let ready = beside.join("ready.json");
        let _ = std::fs::remove_file(&ready);
        let log = tempfile::NamedTempFile::new().expect("a file");
        let child = Command::new(env!("CARGO_BIN_EXE_annie"))
            .args(["--data".as_ref(), data.as_os_str(), "serve".as_ref(), "--port".as_ref(), port.as_ref()])
            .args(["--ready-file".as_ref(), ready.as_os_str()])
            .args(arguments)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", beside)
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.reopen().expect("the same file"))
            .spawn()
            .expect("the binary starts");
        let mut server =
            Self { child, reserved_port, log, url: String::new(), http: annie_llm::http_client().build().unwrap() };
        server.url = eventually("the server is ready", async || {
            let sent: Value = serde_json::from_slice(&std::fs::read(&ready).ok()?).ok()?;
            sent["url"].as_str().map(str::to_owned)
        })
        .await;
        server
    }

    /// What the server wrote to stderr: its log, line by line.
    pub fn log(&self) -> Vec<String> {
        std::fs::read_to_string(self.log.path()).expect("its log").lines().map(str::to_owned).collect()
    }

    /// Sends SIGKILL and waits until the process is gone.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends SIGTERM and waits until the process has shut down.
    pub async fn stop(&mut self) {
        self.signal(rustix::process::Signal::TERM);
        self.ended().await;
    }

    /// Waits until the process has ended by itself.
    pub async fn ended(&mut self) -> std::process::ExitStatus {
        eventually("the server ends", async || self.child.try_wait().expect("its exit status")).await
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("the server runs");
    }

    pub async fn get(&self, path: &str) -> (u16, Value) {
        let answer = self.http.get(format!("{}{path}", self.url)).timeout(Duration::from_secs(20)).send().await;
        let answer = answer.expect("the server answers");
        (answer.status().as_u16(), answer.json().await.unwrap_or(Value::Null))
    }

    pub async fn post(&self, path: &str, body: &Value) -> Result<(u16, Value), reqwest::Error> {
        let request = self.http.post(format!("{}{path}", self.url)).json(body).timeout(Duration::from_secs(20));
        let answer = request.send().await?;
        Ok((answer.status().as_u16(), answer.json().await.unwrap_or(Value::Null)))
    }

    /// Reads the stream of a conversation after a sequence number, until `enough` returns true or the connection ends.
    pub async fn stream(&self, conversation: &str, after: u64, mut enough: impl FnMut(&[Sse]) -> bool) -> Vec<Sse> {
        use futures_util::StreamExt;
        let url = format!("{}/api/v1/conversations/{conversation}/stream?after={after}", self.url);
        let Ok(answer) = self.http.get(url).send().await else { return Vec::new() };
        let mut bytes = answer.bytes_stream();
        let (mut text, mut seen) = (String::new(), Vec::new());
        while !enough(&seen) {
            let Ok(Some(Ok(chunk))) = tokio::time::timeout(Duration::from_secs(60), bytes.next()).await else { break };
            text.push_str(&String::from_utf8_lossy(&chunk));
            while let Some(end) = text.find("\n\n") {
                let block: String = text.drain(..end + 2).collect();
                seen.extend(Sse::parse(&block));
            }
        }
        seen
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// One server-sent event with a durable id.
#[derive(Debug, Clone)]
pub struct Sse {
    pub id: u64,
    pub event: String,
    pub data: Value,
}

impl Sse {
    pub fn parse(block: &str) -> Option<Self> {
        let field = |name: &str| block.lines().find_map(|l| l.strip_prefix(name)).map(str::trim);
        Some(Self {
            id: field("id:")?.parse().ok()?,
            event: field("event:")?.to_owned(),
            data: serde_json::from_str(field("data:")?).ok()?,
        })
    }

    pub fn is_final(&self) -> bool {
        ["answered", "failed", "cancelled"].contains(&self.event.as_str())
    }
}
