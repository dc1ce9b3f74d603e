//! A separate server for each test.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use annie_actors::{Backend, Extensions, Kernel, KernelLimits, Parts, Profile, Profiles};
use annie_core::{
    event::Mode,
    hooks::Hooks,
    ids::UserId,
    message::{Message, ModelReply, ModelRequest},
    route::{BackendFacts, RouteMode, RouteTable, default_rules},
};
use annie_store::MemoryStore;
use annie_testkit::{
    env::env,
    scripted_model::{ScriptedModel, calls, commands, says},
    skills::{FakeSkills, FixedCatalog},
};
use metrics_exporter_prometheus::PrometheusBuilder;
use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::oneshot, task::JoinSet};

use crate::{
    api::{ApiLimits, AppState},
    auth::{Auth, KeyScope, NewKey},
    error::AppError,
    http::serve,
};

/// How long a test waits for something that must happen.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Server {
    pub at: SocketAddr,
    pub state: AppState,
    pub model: Arc<ScriptedModel>,
    pub client: Client,
    stop: Option<oneshot::Sender<()>>,
    running: JoinSet<Result<(), AppError>>,
}

/// The last text of a request, of any author.
pub fn last_text(request: &ModelRequest) -> String {
    match request.messages.last() {
        Some(
            Message::User { text, .. }
            | Message::Tool { text, .. }
            | Message::Assistant { text, .. }
            | Message::Note { text },
        ) => text.clone(),
        None => String::new(),
    }
}

/// A model that repeats the text it receives.
pub fn echo() -> ScriptedModel {
    ScriptedModel::new(|request, _| Ok(says(format!("You said: {}", last_text(request)))))
}

/// A model that lets a sub-agent run a skill for every message.
pub fn delegating() -> ScriptedModel {
    ScriptedModel::new(|request, _| Ok(delegate(request)))
}

fn delegate(request: &ModelRequest) -> ModelReply {
    let last = last_text(request);
    if request.tools.is_empty() {
        return if last.contains("<result") { says("It is done.") } else { commands(["test.put --what x"]) };
    }
    if last.contains("\"agents\"") {
        return says("All is done.");
    }
    let mut reply = calls([
        ("dispatch_agent", json!({"agent_id": "doer", "mission": "do it", "skills": ["test.put"]})),
        ("get_agent_results", json!({})),
    ]);
    reply.text = "I have it done.".to_owned();
    reply
}

impl Server {
    pub async fn start(model: ScriptedModel) -> Self {
        Self::with(model, ApiLimits::default()).await
    }

    pub async fn with(model: ScriptedModel, limits: ApiLimits) -> Self {
        Self::on(MemoryStore::new(), model, limits).await
    }

    pub async fn on(store: MemoryStore, model: ScriptedModel, limits: ApiLimits) -> Self {
        Self::of(store, model, limits, FakeSkills::obliging(), KernelLimits::default()).await
    }

    /// A server that sends notifications soon, keeps failures as dead letters at once, and has these skills.
    pub async fn hasty(model: ScriptedModel, skills: FakeSkills) -> Self {
        let mut kernel = KernelLimits { mode: Mode::SingleLoop, ..KernelLimits::default() };
        kernel.turn.defer_ms = 5;
        kernel.breaker.failures_max = u32::MAX;
        kernel.notify.gather_ms = 5;
        kernel.notify.every_ms = 0;
        Self::of(MemoryStore::new(), model, ApiLimits::default(), skills, kernel).await
    }

    async fn of(
        store: MemoryStore,
        model: ScriptedModel,
        limits: ApiLimits,
        skills: FakeSkills,
        kernel_limits: KernelLimits,
    ) -> Self {
        let (model, store, env) = (Arc::new(model), Arc::new(store), env(7));
        let facts = BackendFacts { name: "main".to_owned(), slots: 8, ..BackendFacts::default() };
        let table = RouteTable::new(default_rules(), std::slice::from_ref(&facts)).unwrap();
        let kernel = Kernel::start(Parts {
            env: env.clone(),
            node: annie_core::ids::NodeId::from_uuid(uuid::Uuid::from_u128(1)),
            context_sources: annie_skillkit::context_sources(store.clone(), annie_skillkit::MemoryDecay::OFF),
            documents: store.clone(),
            store: store.clone(),
            catalog: Arc::new(FixedCatalog::three()),
            runner: Arc::new(skills),
            workflows: Arc::new(annie_core::ports::NoWorkflows),
            backends: vec![Backend {
                name: "main".to_owned(),
                slots: 8,
                facts,
                model: model.clone(),
                round_ms_max: None,
            }],
            profiles: Profiles {
                by_user: BTreeMap::new(),
                default: Profile { name: String::new(), timezone: "UTC".to_owned() },
            },
            limits: kernel_limits,
            routing: (table, RouteMode::default()),
            extensions: Extensions::default(),
            hooks: Hooks::default(),
        });
        let kernel = kernel.await.unwrap();
        let auth = Auth::load(store, env, UserId::new("me").unwrap()).await.unwrap();
        let recorder = PrometheusBuilder::new().build_recorder();
        let state = AppState::new(kernel, auth, limits, Some(recorder.handle()));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let at = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let mut running = JoinSet::new();
        running.spawn(serve(listener, state.clone(), async {
            let _ = stopped.await;
        }));
        let client = annie_llm::http_client().no_proxy().timeout(PATIENCE).build().unwrap();
        Self { at, state, model, client, stop: Some(stop), running }
    }

    /// Serves the same kernel on another port with another state of the front ends.
    pub async fn also(&mut self, state: AppState) -> SocketAddr {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let at = listener.local_addr().unwrap();
        self.running.spawn(serve(listener, state, std::future::pending()));
        at
    }

    /// Creates a key and returns its secret.
    pub async fn key(&self, user: &str, scopes: &[KeyScope]) -> String {
        let user = UserId::new(user).unwrap();
        let new = NewKey { name: "test".to_owned(), user, scopes: scopes.to_vec(), expires_at: None };
        self.state.auth.create(new).await.unwrap().secret
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("http://{}{path}", self.at))
    }

    pub async fn get(&self, path: &str) -> (u16, Value) {
        read(self.request(Method::GET, path).send().await.unwrap()).await
    }

    pub async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        read(self.request(Method::POST, path).json(&body).send().await.unwrap()).await
    }

    /// Sends a message and waits for its answer.
    pub async fn say(&self, body: Value) -> Value {
        let (status, answer) = self.post("/api/v1/messages?wait=20", body).await;
        assert_eq!(status, 200, "{answer}");
        answer
    }

    /// Requests the server to stop.
    pub fn ask_to_stop(&mut self) {
        let _ = self.stop.take().map(|stop| stop.send(()));
    }

    /// Waits until the server has stopped.
    pub async fn stopped(&mut self) -> Result<(), AppError> {
        tokio::time::timeout(PATIENCE, self.running.join_next()).await.unwrap().unwrap().unwrap()
    }
}

pub async fn read(response: Response) -> (u16, Value) {
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

/// The fields of server-sent events: (id, event, data).
pub fn sse(text: &str) -> Vec<(Option<u64>, String, String)> {
    let field = |block: &str, name: &str| {
        block.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':').map(|v| v.trim_start().to_owned()))
    };
    text.split("\n\n")
        .filter_map(|block| {
            let id = field(block, "id").and_then(|id| id.parse().ok());
            Some((id, field(block, "event").unwrap_or_default(), field(block, "data")?))
        })
        .collect()
}
