//! One server as a source of skills. The service that runs [`SkillSource::changes`] owns the connection: when it ends, the
//! program of the server is killed and open calls fail.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use annie_core::{
    outcome::Outcome,
    ports::{Fut, Secrets, SkillCall, SkillSource},
    skill::SkillSet,
};
use annie_process::Pipes;
use serde_json::{Value, json};
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};

use crate::{
    McpConfig, McpEndpoint, McpError, McpProgram, McpServerView, McpTransport, ServerState, ToolState,
    answer::{answered, failed},
    handshake::{Agreed, agree, list_tools},
    http::HttpLink,
    link::Link,
    names::DOMAIN,
    program::{read_stderr, start},
    reads::Method,
    rpc::Revision,
    stdio,
    text::one_line,
    tools::{Tool, Toolbox},
};

/// The pause before the second attempt to connect, in milliseconds. Each further pause is twice as long.
const PAUSE_MS_MIN: u64 = 500;
/// The longest pause, in milliseconds.
const PAUSE_MS_MAX: u64 = 60_000;
/// A connection that lasted so long, in milliseconds, is followed by the shortest pause.
const STABLE_MS_MIN: u64 = 60_000;
/// The shortest time between two lists of the tools, in milliseconds: a server may announce changes without end.
const LIST_PAUSE_MS: u64 = 500;
/// Length limit of the end of stderr in an error, in bytes.
const STDERR_BYTES_MAX: usize = 300;
/// The description of the domain of all tools.
const ABOUT: &str = "Tools of MCP servers, which the operator has connected.";

/// A connection on which tools can be called.
struct Connection {
    link: Arc<Link>,
    revision: Revision,
}

struct State {
    phase: ServerState,
    connection: Option<Connection>,
    set: Arc<SkillSet>,
    toolbox: Toolbox,
    /// The definitions seen first since the start.
    pins: BTreeMap<String, String>,
    protocol: String,
    server: String,
    error: String,
    connections: u64,
}

/// The tools of one server as skills.
pub struct McpSource {
    config: McpConfig,
    name: String,
    secrets: Option<Arc<dyn Secrets>>,
    state: Mutex<State>,
    /// The server announced other tools.
    changed: Arc<Notify>,
    /// The server ended the session.
    session_lost: Notify,
}

impl McpSource {
    /// A source for this server. Connects only while [`SkillSource::changes`] runs. `secrets` opens those of the program's
    /// environment.
    #[must_use]
    pub fn new(config: McpConfig, secrets: Option<Arc<dyn Secrets>>) -> Self {
        let state = State {
            phase: ServerState::Idle,
            connection: None,
            set: Arc::new(SkillSet::default()),
            toolbox: Toolbox::default(),
            pins: BTreeMap::new(),
            protocol: String::new(),
            server: String::new(),
            error: String::new(),
            connections: 0,
        };
        Self {
            name: format!("{DOMAIN}_{}", config.name),
            config,
            secrets,
            state: Mutex::new(state),
            changed: Arc::new(Notify::new()),
            session_lost: Notify::new(),
        }
    }

    /// The present state, for operators.
    #[must_use]
    pub fn view(&self) -> McpServerView {
        let state = self.state();
        McpServerView {
            name: self.config.name.clone(),
            transport: match self.config.transport {
                McpTransport::Stdio(_) => "stdio",
                McpTransport::Http(_) => "http",
            },
            state: state.phase,
            protocol: state.protocol.clone(),
            server: state.server.clone(),
            error: state.error.clone(),
            connections: state.connections,
            tools: state.toolbox.views.clone(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects again and again, with a pause that grows while connections do not last.
    async fn follow(&self) -> Infallible {
        let mut pause_ms = PAUSE_MS_MIN;
        loop {
            let since = Instant::now();
            // A server may repeat its credential, and this text reaches the log and operators.
            let why = self.scrubbed(&self.connect().await);
            if since.elapsed() >= Duration::from_millis(STABLE_MS_MIN) {
                pause_ms = PAUSE_MS_MIN;
            }
            let server = &self.config.name;
            tracing::warn!(server, %why, pause_ms, "an MCP server is not connected; the next attempt follows after the pause");
            {
                let mut state = self.state();
                state.phase = ServerState::Waiting;
                state.error = why;
            }
            sleep(Duration::from_millis(pause_ms)).await;
            pause_ms = (pause_ms * 2).min(PAUSE_MS_MAX);
        }
    }

    /// Connects once, and returns why the connection was not made or has ended.
    async fn connect(&self) -> String {
        {
            let mut state = self.state();
            state.phase = ServerState::Connecting;
            state.connections += 1;
        }
        let why = match &self.config.transport {
            McpTransport::Stdio(program) => match self.secrets_of(program).await {
                Ok(secrets) => return self.connect_program(program, &secrets).await,
                Err(why) => why,
            },
            McpTransport::Http(McpEndpoint { url, egress }) => {
                let link = HttpLink::new(url.clone(), egress.clone(), self.changed.clone());
                let open = Open { source: self, link: Arc::new(Link::Http(link)) };
                self.attend(&open.link).await
            }
        };
        why.to_string()
    }

    /// Starts the program and uses it until the connection ends. Then no process of it is left.
    async fn connect_program(&self, config: &McpProgram, secrets: &[(String, String)]) -> String {
        let (mut program, pipes) = match start(config, secrets) {
            Ok(started) => started,
            Err(why) => return why.to_string(),
        };
        let Pipes { stdin, stdout, stderr } = pipes;
        let (link, pipes) = stdio::connect(stdin, stdout, self.changed.clone(), self.config.message_bytes_max);
        let open = Open { source: self, link: Arc::new(Link::Stdio(link)) };
        let mut tail = Vec::new();
        let read_errors = async {
            read_stderr(stderr, &mut tail).await;
            std::future::pending::<McpError>().await
        };
        let why = tokio::select! {
            why = self.attend(&open.link) => why,
            why = pipes.run() => why,
            why = read_errors => why,
            ended = program.ended() => McpError::Ended(match ended {
                Ok(status) => format!("the program ended with {status}"),
                Err(why) => format!("the program cannot be waited for: {why}"),
            }),
        };
        open.link.end(&why);
        let tail = one_line(&self.scrubbed(&String::from_utf8_lossy(&tail)), STDERR_BYTES_MAX);
        if tail.is_empty() { why.to_string() } else { format!("{why}; it wrote to stderr: {tail}") }
    }

    /// Agrees on a revision, and then lists the tools again and again until the connection fails.
    async fn attend(&self, link: &Arc<Link>) -> McpError {
        let Err(why) = self.follow_tools(link).await;
        why
    }

    async fn follow_tools(&self, link: &Arc<Link>) -> Result<Infallible, McpError> {
        let agreed = agree(link, self.config.protocol, self.config.timeout_ms).await?;
        loop {
            let mut listed = list_tools(link, agreed.revision, self.config.timeout_ms).await?;
            listed.iter_mut().for_each(|tool| self.scrub(tool));
            self.publish(link, &agreed, &listed);
            tokio::select! {
                () = self.changed.notified() => sleep(Duration::from_millis(LIST_PAUSE_MS)).await,
                () = sleep(Duration::from_millis(self.config.refresh_ms)) => {}
                () = self.session_lost.notified() => return Err(McpError::SessionGone),
            }
        }
    }

    /// Makes the tools that the server listed the present ones.
    fn publish(&self, link: &Arc<Link>, agreed: &Agreed, listed: &[Value]) {
        let mut state = self.state();
        let toolbox = Toolbox::of(&self.config, listed, &mut state.pins).with_reads(&self.config, &agreed.reads);
        for view in toolbox.views.iter().filter(|view| view.state != ToolState::Listed) {
            if !state.toolbox.views.contains(view) {
                let (server, tool, why) = (&self.config.name, &view.tool, &view.reason);
                tracing::warn!(server, tool, why, "a tool of an MCP server is not used");
            }
        }
        let version = state.set.version();
        let set = |version| {
            let specs = toolbox.tools.values().map(|tool| tool.spec.clone());
            SkillSet::new(specs, [(DOMAIN.to_owned(), ABOUT.to_owned())], version)
        };
        if set(version) != *state.set {
            state.set = Arc::new(set(version + 1));
        }
        state.toolbox = toolbox;
        state.phase = ServerState::Connected;
        agreed.version.clone_into(&mut state.protocol);
        state.server = self.scrubbed(&agreed.server);
        state.connection = Some(Connection { link: link.clone(), revision: agreed.revision });
    }

    /// The values of the secret variables of a program.
    async fn secrets_of(&self, program: &McpProgram) -> Result<Vec<(String, String)>, McpError> {
        let mut found = Vec::new();
        for (variable, name) in &program.secret_env {
            let missing =
                || McpError::Secret(format!("the secret {name:?} is not stored; run annie secret set {name}"));
            let secrets = self.secrets.as_ref().ok_or_else(missing)?;
            let secret = secrets.secret(None, name.clone()).await.map_err(|why| McpError::Secret(why.to_string()))?;
            found.push((variable.clone(), secret.ok_or_else(missing)?.expose().to_owned()));
        }
        Ok(found)
    }

    fn scrubbed(&self, text: &str) -> String {
        self.secrets.as_ref().map_or_else(|| text.to_owned(), |secrets| secrets.scrubbed(text))
    }

    /// Masks secrets in all texts that a server says of a tool: they reach prompts.
    fn scrub(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.scrubbed(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.scrub(item)),
            Value::Object(fields) => fields.values_mut().for_each(|item| self.scrub(item)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// The tool of a skill and the connection to call it on, or the outcome of a call that cannot be made.
    fn found(&self, skill: &str) -> Result<(Arc<Tool>, Arc<Link>, Revision), Box<Outcome>> {
        let state = self.state();
        let server = &self.config.name;
        let Some(tool) = state.toolbox.tools.get(skill).cloned() else {
            let view = state.toolbox.views.iter().find(|view| view.skill == skill && view.state == ToolState::Withheld);
            return Err(Box::new(match view {
                Some(view) => Outcome::blocked("mcp_withheld", format!("{skill} is withheld: {}.", view.reason)),
                None => Outcome::permanent("not_found", format!("The MCP server {server} no longer has {skill}.")),
            }));
        };
        let Some(connection) = &state.connection else {
            let why = McpError::Away(if state.error.is_empty() { "not yet".to_owned() } else { state.error.clone() });
            return Err(Box::new(failed(server, &tool.name, tool.spec.effect, &why)));
        };
        Ok((tool, connection.link.clone(), connection.revision))
    }

    async fn call(&self, call: SkillCall) -> Outcome {
        let (tool, link, revision) = match self.found(&call.skill) {
            Ok(found) => found,
            Err(outcome) => return *outcome,
        };
        let arguments = match tool.arguments.to_send(&call.arguments) {
            Ok(arguments) => arguments,
            Err(why) => return Outcome::permanent("invalid_arguments", why),
        };
        let is_first_page = arguments["cursor"].is_null();
        let params = tool.method.params(&tool.name, arguments);
        let mut reply = link.request(revision, tool.method.wire(), params, self.config.timeout_ms).await;
        if let (Method::ListResources, true, Ok(listed)) = (tool.method, is_first_page, &mut reply.result) {
            // A server without patterns need not have the method.
            let patterns = link.request(revision, "resources/templates/list", json!({}), self.config.timeout_ms).await;
            if let Ok(mut patterns) = patterns.result {
                listed["resourceTemplates"] = patterns["resourceTemplates"].take();
            }
            reply.requests.extend(patterns.requests);
        }
        let outcome = match reply.result {
            Ok(result) => answered(&self.config.name, &tool.method.result(result)),
            Err(why) => {
                if why == McpError::SessionGone {
                    self.session_lost.notify_one();
                }
                failed(&self.config.name, &tool.name, tool.spec.effect, &why)
            }
        };
        outcome.with_requests(reply.requests)
    }
}

/// A connection in use. When it is dropped, no call is made on it any more, and open calls fail.
struct Open<'a> {
    source: &'a McpSource,
    link: Arc<Link>,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        {
            let mut state = self.source.state();
            state.connection = None;
            state.phase = ServerState::Idle;
        }
        self.link.end(&McpError::Ended("Annie closed it".to_owned()));
    }
}

impl SkillSource for McpSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn specs(&self) -> Result<Arc<SkillSet>, String> {
        Ok(self.state().set.clone())
    }

    fn run(&self, call: SkillCall) -> Fut<'_, Outcome> {
        Box::pin(self.call(call))
    }

    fn changes(&self) -> Fut<'_, Result<(), String>> {
        Box::pin(async move { match self.follow().await {} })
    }
}

#[cfg(test)]
mod tests;
