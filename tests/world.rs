//! A kernel for one test, with fakes for its ports and handles that kill its actors.

use std::{path::PathBuf, sync::Arc, time::Duration};

use annie::boot;
use annie_actors::{
    Backend, Extensions, Kernel, KernelError, KernelLimits, Operation, PAGE_MAX, Parts, Profile, Profiles, StreamItem,
    Submission, Submitted,
};
use annie_core::{
    event::{Event, EventBody, Scope},
    hooks::Hooks,
    ids::{ConversationId, NodeId, Seq, TaskId, UserId},
    message::{Message, ModelError, ModelReply, ModelRequest},
    ports::{
        Before, Catalog, ContextSource, Env, Faults, Model, NoWorkflows, SkillRunner, SkillSource, Storage, Workflows,
    },
    replay::Replay,
    route::{BackendFacts, RouteMode, RouteTable, default_rules},
};
use annie_skillkit::{FileCatalog, FileRules, Router, Runner, RunnerParts};
use annie_store::MemoryStore;
use annie_testkit::{
    env,
    scripted_model::{ScriptedModel, calls, commands, says},
    skills::{FakeSkills, FixedCatalog},
};
use futures_util::FutureExt;
use serde_json::json;

/// Longest time that a test waits for an expected state.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The parts of a test kernel. A test replaces the parts that it is about.
pub struct WorldParts {
    pub env: Env,
    /// Two kernels with the same node are consecutive runs of one process.
    pub node: NodeId,
    pub store: Arc<dyn Storage>,
    pub model: Arc<dyn Model>,
    /// Backends in addition to the one that is called `main`.
    pub others: Vec<(&'static str, Arc<dyn Model>)>,
    pub skills: Arc<FakeSkills>,
    /// Sources of skills. If there are any, the kernel has their skills and the bundled ones, and none of `skills`.
    pub sources: Vec<Arc<dyn SkillSource>>,
    /// The folder of skill files beside the bundled ones, if there are sources.
    pub skills_folder: Option<PathBuf>,
    pub workflows: Arc<dyn Workflows>,
    pub slots: u32,
    /// The backend `main` is agentic: one of its rounds is an effect.
    pub acts: bool,
    pub limits: KernelLimits,
    pub extensions: Extensions,
    pub hooks: Hooks,
    /// Context sources in addition to those of the built-in skills.
    pub context_sources: Vec<Arc<dyn ContextSource>>,
}

impl WorldParts {
    pub fn new(script: impl Fn(&ModelRequest, u64) -> Result<ModelReply, ModelError> + Send + Sync + 'static) -> Self {
        Self::with_model(Arc::new(ScriptedModel::new(script)))
    }

    pub fn with_model(model: Arc<dyn Model>) -> Self {
        Self {
            env: env::env(7),
            node: node(0),
            store: Arc::new(MemoryStore::new()),
            model,
            others: Vec::new(),
            skills: Arc::new(FakeSkills::obliging()),
            sources: Vec::new(),
            skills_folder: None,
            workflows: Arc::new(NoWorkflows),
            slots: 8,
            acts: false,
            limits: KernelLimits { stuck_ms_max: 1_000, ..KernelLimits::default() },
            extensions: Extensions::default(),
            hooks: Hooks::default(),
            context_sources: Vec::new(),
        }
    }

    pub fn faults(mut self, faults: Arc<dyn Faults>) -> Self {
        self.env.faults = Some(faults);
        self
    }

    pub async fn start(&self) -> World {
        World { kernel: self.try_start().await.expect("the kernel starts") }
    }

    pub async fn try_start(&self) -> Result<Kernel, KernelError> {
        let backend = |name: &str, model: &Arc<dyn Model>, acts: bool| {
            let (name, slots) = (name.to_owned(), self.slots);
            let facts = BackendFacts { name, slots, acts, ..BackendFacts::default() };
            Backend { name: facts.name.clone(), slots, facts, model: model.clone(), round_ms_max: None }
        };
        let mut backends = vec![backend("main", &self.model, self.acts)];
        backends.extend(self.others.iter().map(|(name, model)| backend(name, model, false)));
        let facts: Vec<BackendFacts> = backends.iter().map(|b| b.facts.clone()).collect();
        let table = RouteTable::new(default_rules(), &facts).expect("the rules fit");
        let mut context_sources = annie_skillkit::context_sources(self.store.clone(), annie_skillkit::MemoryDecay::OFF);
        context_sources.extend(self.context_sources.iter().cloned());
        let router = (!self.sources.is_empty()).then(|| Arc::new(self.router()));
        let catalog: Arc<dyn Catalog> = match &router {
            Some(router) => router.clone(),
            None => Arc::new(FixedCatalog::three()),
        };
        let runner: Arc<dyn SkillRunner> = match &router {
            Some(router) => router.clone(),
            None => self.skills.clone(),
        };
        let kernel = Kernel::start(Parts {
            env: self.env.clone(),
            node: self.node,
            store: self.store.clone(),
            documents: self.store.clone(),
            catalog,
            runner,
            workflows: self.workflows.clone(),
            backends,
            profiles: Profiles {
                by_user: Default::default(),
                default: Profile { name: "Ann".to_owned(), timezone: "UTC".to_owned() },
            },
            limits: self.limits.clone(),
            routing: (table, RouteMode::default()),
            extensions: self.extensions.clone(),
            hooks: self.hooks.clone(),
            context_sources,
        });
        let kernel = kernel.await?;
        if let Some(router) = &router {
            boot::watch_skills(&kernel, router, &ann());
        }
        Ok(kernel)
    }

    /// The bundled skills and those of the sources.
    fn router(&self) -> Router {
        let files = Runner::new(RunnerParts {
            untrusted: annie_core::approval::UntrustedText::default(),
            memory_decay: annie_skillkit::MemoryDecay::OFF,
            documents: self.store.clone(),
            catalog: Arc::new(match &self.skills_folder {
                Some(folder) => FileCatalog::open(folder.clone()),
                None => FileCatalog::bundled(),
            }),
            notes_folder: PathBuf::new(),
            are_notes_here: false,
            respects_robots: false,
            files: FileRules::default(),
            search: None,
            egress: None,
            secrets: None,
            programs: None,
            owner: UserId::new("ann").expect("valid"),
        });
        Router::new(Arc::new(files), self.sources.clone())
    }
}

/// A running kernel.
pub struct World {
    pub kernel: Kernel,
}

/// The core decides again what the logs of every test contain. A store that does not answer at once is not read.
impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let store = self.kernel.store();
        let all = store.conversations(Scope::Operator, Before::NEWEST, PAGE_MAX).now_or_never();
        for row in all.and_then(Result::ok).unwrap_or_default() {
            let mut replay = Replay::new(row.id, row.user.clone());
            while let Some(Ok(page)) = store.events(Scope::Operator, row.id, replay.seq(), PAGE_MAX).now_or_never()
                && !page.is_empty()
            {
                page.iter().for_each(|event| replay.see(event));
            }
            let check = replay.finish();
            assert!(check.agrees(), "the replay of {} diverges: {:#?}", row.id, check.divergences);
        }
    }
}

/// The id of one of several processes that share a store.
pub fn node(n: u64) -> NodeId {
    NodeId::from_uuid(uuid::Uuid::from_u128(0x0de << 64 | u128::from(n)))
}

pub fn ann() -> UserId {
    UserId::new("ann").expect("a user id")
}

impl World {
    pub async fn say(&self, text: &str) -> Submitted {
        self.kernel.submit(Submission::new(ann(), "test", text)).await.expect("the message is accepted")
    }

    pub async fn say_in(&self, conversation: ConversationId, text: &str) -> Submitted {
        let message = Submission::new(ann(), "test", text).within(conversation);
        self.kernel.submit(message).await.expect("the message is accepted")
    }

    /// Waits for the final event of a task.
    pub async fn final_of(&self, conversation: ConversationId, task: TaskId) -> EventBody {
        let wait = async {
            let mut seen = Seq(0);
            loop {
                // The store may fail for a moment. Then the follower starts again at the last event that it received.
                let Ok(mut follow) = self.kernel.follow(Scope::User(ann()), conversation, seen).await else {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    continue;
                };
                while let Ok(Some(item)) = follow.next().await {
                    seen = follow.seen();
                    if let StreamItem::Event(event) = item
                        && event.task == task
                        && event.body.is_final()
                    {
                        return event.body.clone();
                    }
                }
            }
        };
        match tokio::time::timeout(PATIENCE, wait).await {
            Ok(body) => body,
            Err(_) => {
                let log = self.kinds(conversation).await;
                panic!("no final event of {task}; the log is {log:#?}\ntree {:#?}", self.kernel.tree());
            }
        }
    }

    /// Waits for the answer to a message. Panics if the task ends in another way.
    pub async fn answer(&self, sent: &Submitted) -> String {
        let end = self.final_of(sent.conversation, sent.task).await;
        let EventBody::Answered { text, .. } = end else { panic!("wanted an answer, got {end:?}") };
        text
    }

    pub async fn log(&self, conversation: ConversationId) -> Vec<Event> {
        eventually("the log can be read", async || {
            self.kernel.events(Scope::User(ann()), conversation, Seq(0), 500).await.ok()
        })
        .await
    }

    /// The log, one entry `agent kind` per event.
    pub async fn kinds(&self, conversation: ConversationId) -> Vec<String> {
        let log = self.log(conversation).await;
        log.iter().map(|e| format!("{} {}", e.agent, e.body.kind())).collect()
    }
}

/// The metrics of this process. They are counted from the first call of this function on.
pub fn metrics() -> String {
    annie::telemetry::metrics().expect("no other recorder is installed").render()
}

/// Waits until `probe` returns a value, at most [`PATIENCE`]. `state` names the expected state in the panic message.
pub async fn eventually<T>(state: &str, probe: impl AsyncFnMut() -> Option<T>) -> T {
    eventually_within(PATIENCE, state, probe).await
}

/// Waits until `probe` returns a value, at most `patience`.
pub async fn eventually_within<T>(patience: Duration, state: &str, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    let wait = async {
        loop {
            if let Some(found) = probe().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(patience, wait).await.unwrap_or_else(|_| panic!("never happened: {state}"))
}

/// Waits as long as a refusal asks, as a client does before it retries.
pub async fn sleep_for_ms(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// Kills the actor at this path. If the actor is just being restarted, kills its next incarnation.
pub async fn kill(world: &World, path: &str) {
    eventually("the actor is alive and is killed", async || {
        world.kernel.operate(path, None, Operation::Kill, "a test").await.ok()
    })
    .await;
}

/// Checks the invariants of every log: sequence numbers without gaps, one final event per message, one report per agent.
pub fn check_log(log: &[Event]) {
    for (n, event) in log.iter().enumerate() {
        assert_eq!(event.seq.0, n as u64 + 1, "the log has no gaps");
    }
    for received in log.iter().filter(|e| matches!(e.body, EventBody::Received(_))) {
        let finals = log.iter().filter(|e| e.task == received.task && e.body.is_final()).count();
        assert_eq!(finals, 1, "message {} has {finals} final events", received.task);
    }
    for started in log.iter().filter(|e| matches!(e.body, EventBody::AgentStarted { .. })) {
        let same = |e: &&Event| e.task == started.task && e.agent == started.agent;
        let reports = log.iter().filter(same).filter(|e| matches!(e.body, EventBody::AgentReported { .. })).count();
        assert_eq!(reports, 1, "agent {} reported {reports} times", started.agent);
    }
}

/// Whether a request comes from a sub-agent, which writes commands and has no tools.
pub fn is_sub_agent(request: &ModelRequest) -> bool {
    request.tools.is_empty()
}

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

/// An orchestrator that dispatches two agents with one skill each and answers from their results.
pub fn two_agents(request: &ModelRequest) -> ModelReply {
    let last = last_text(request);
    if is_sub_agent(request) {
        return if last.contains("<result") {
            says(format!("Done: {last}"))
        } else {
            let skill = if last.contains("first") { "test.put" } else { "test.send" };
            commands([format!("{skill} --what x").as_str()])
        };
    }
    if last.contains("\"agents\"") {
        return says(format!("All done. {last}"));
    }
    calls([
        ("dispatch_agent", json!({"agent_id": "one", "mission": "do the first", "skills": ["test.put"]})),
        ("dispatch_agent", json!({"agent_id": "two", "mission": "do the second", "skills": ["test.send"]})),
        ("get_agent_results", json!({})),
    ])
}
