//! Faults through the public front end: a kernel as `annie serve` assembles it, on a real database, over a real socket. Each
//! kind of fault takes effect, and in each case the message ends exactly once.

use std::{collections::BTreeSet, time::Duration};

use annie::{
    api::AppState,
    auth::Auth,
    boot::{self, Assembled},
    config::{Environment, Loaded, Sources},
    error::AppError,
    grpc::{
        chaos::to_wire,
        v1::{self, chaos_client::ChaosClient},
    },
    http, system,
};
use annie_chaos::{FAULTS_MAX, FaultKind, FaultSpec, MARK, Target};
use annie_core::{
    ids::{AgentId, ConversationId, IntentId, OperationId, TaskId, UserId},
    ports::{OperationGrant, SkillCall, SkillRunner},
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::oneshot, task::JoinSet};
use tonic::{Code, transport::Channel};

/// How long a test waits for something that must happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// An environment of these variables only.
fn environment_of(variables: &[(&str, &str)]) -> Environment {
    Environment::new(variables.iter().map(|(name, value)| (name.into(), value.into())))
}

fn loaded(more: &[(&str, &str)]) -> Loaded {
    let short = [
        // Longer than a write on a disk that other processes use too.
        ("ANNIE__LIMITS__STUCK_MS_MAX", "3000"),
        ("ANNIE__LIMITS__ROUND_MS_MAX", "3000"),
        ("ANNIE__TURN__DEFER_MS", "20"),
        ("ANNIE__NOTIFY__GATHER_MS", "5"),
        // Injected failures must not open the skill's breaker.
        ("ANNIE__BREAKER__FAILURES_MAX", "1000"),
    ];
    let variables: Vec<(&str, &str)> = short.iter().chain(more).copied().collect();
    Sources { environment: environment_of(&variables), ..Sources::default() }.load().unwrap()
}

struct Server {
    url: String,
    client: reqwest::Client,
    chaos: ChaosClient<Channel>,
    stop: Option<oneshot::Sender<()>>,
    running: JoinSet<Result<(), AppError>>,
    assembled: Assembled,
    auth: std::sync::Arc<Auth>,
    sent: u32,
    _folder: tempfile::TempDir,
}

impl Server {
    /// The number of the local user's tasks with this word, ended ones included.
    async fn tasks_with(&self, word: &str) -> u64 {
        let (user, task, agent) = (UserId::local(), TaskId::from_uuid(Default::default()), AgentId::orchestrator());
        let intent = IntentId::for_call(task, &agent, word);
        let id = OperationId::for_intent(intent);
        let call = SkillCall {
            intent,
            skill: "tasks.search".to_owned(),
            arguments: json!({"query": word, "status": "all"}),
            origin: Vec::new(),
            conversation: ConversationId::for_key(&user, "test"),
            user,
            task,
            agent,
            now: system::env().now(),
            timezone: "UTC".to_owned(),
            operation: OperationGrant { id, key: String::new(), path: String::new() },
        };
        let found = self.assembled.skills.run(call).await;
        found.evidence["count"].as_u64().unwrap_or_else(|| panic!("{found:?}"))
    }

    async fn start(enabled: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let loaded = loaded(if enabled { &[("ANNIE__CHAOS__ENABLED", "true")] } else { &[] });
        let assembled = boot::assemble(&loaded, folder.path()).await.unwrap();
        let kernel = assembled.kernel.clone();
        let auth = Auth::load(kernel.store().clone(), system::env(), loaded.config.server.user.clone()).await.unwrap();
        let state = AppState::new(kernel, auth.clone(), loaded.config.api, None).with_chaos(assembled.chaos.clone());
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (stop, stopped) = oneshot::channel();
        let mut running = JoinSet::new();
        running.spawn(http::serve(listener, state, async {
            let _ = stopped.await;
        }));
        let chaos = ChaosClient::new(Channel::from_shared(url.clone()).unwrap().connect_lazy());
        let client = annie_llm::http_client().no_proxy().timeout(PATIENCE).build().unwrap();
        Self { url, client, chaos, stop: Some(stop), running, assembled, auth, sent: 0, _folder: folder }
    }

    async fn inject(&mut self, spec: FaultSpec) -> u64 {
        let request = v1::InjectRequest { spec: Some(to_wire(spec)) };
        self.chaos.inject(request).await.unwrap().into_inner().fault.unwrap().id
    }

    async fn fault(&mut self, id: u64) -> v1::ListedFault {
        let listed = self.chaos.list_faults(v1::ListFaultsRequest {}).await.unwrap().into_inner().faults;
        listed.into_iter().find(|f| f.id == id).unwrap()
    }

    async fn clear(&mut self) {
        self.chaos.clear_faults(v1::ClearFaultsRequest { id: 0 }).await.unwrap();
    }

    async fn passed(&mut self) -> BTreeSet<(String, String, String)> {
        let points = self.chaos.points(v1::PointsRequest {}).await.unwrap().into_inner().points;
        points.into_iter().map(|p| (p.target, p.place, p.point)).collect()
    }

    /// Sends a message until it is accepted, and waits for its final event, of which there must be exactly one. Returns this
    /// event.
    async fn say(&mut self, mode: &str) -> Value {
        let text = format!("{MARK} m{}", self.sent + 1);
        self.say_text(mode, &text).await
    }

    async fn say_text(&mut self, mode: &str, text: &str) -> Value {
        self.sent += 1;
        let n = self.sent;
        let body = json!({
            "text": text, "client_id": format!("m{n}"), "mode": mode, "verbatim": true,
            "conversation_key": format!("c{n}")
        });
        let post = self.client.post(format!("{}/api/v1/messages", self.url)).json(&body);
        let taken = until("it is taken", async || {
            let answer = post.try_clone().unwrap().send().await.ok()?;
            let status = answer.status().as_u16();
            let submitted: Value = answer.json().await.ok()?;
            assert!(!(300..429).contains(&status), "{status} {submitted}");
            (status == 202).then_some(submitted)
        });
        let taken = taken.await;
        let (conversation, task) = (taken["conversation_id"].as_str().unwrap(), taken["task_id"].clone());
        let get = self.client.get(format!("{}/api/v1/conversations/{conversation}/events?limit=500", self.url));
        let ends = async || {
            let submitted: Value = get.try_clone().unwrap().send().await.ok()?.json().await.ok()?;
            let is_end = |e: &&Value| ["answered", "failed", "cancelled"].contains(&e["kind"].as_str().unwrap());
            let ends: Vec<&Value> =
                submitted["events"].as_array()?.iter().filter(|e| e["task_id"] == task).filter(is_end).collect();
            assert!(ends.len() < 2, "{ends:?}");
            ends.first().copied().cloned()
        };
        match tokio::time::timeout(PATIENCE, until("it ends", ends)).await {
            Ok(end) => end,
            Err(_) => panic!("no end of {task}: {:#}", self.diagnostics(conversation).await),
        }
    }

    /// Diagnostic state for a failed test.
    async fn diagnostics(&self, conversation: &str) -> Value {
        let kernel = &self.assembled.kernel;
        let crashes: Vec<String> = kernel.crashes().iter().map(|c| format!("{}: {}", c.path, c.reason)).collect();
        let engine =
            kernel.view(&format!("/conversations/engine:{conversation}")).await.ok().and_then(|(_, view)| view);
        json!({"queue": kernel.queue().await.ok(), "crashes": crashes, "engine": engine})
    }

    async fn effects(&mut self) -> v1::EffectsResponse {
        self.chaos.effects(v1::EffectsRequest { prefix: "m".to_owned() }).await.unwrap().into_inner()
    }

    async fn stop(mut self) {
        let _ = self.stop.take().map(|stop| stop.send(()));
        self.running.join_next().await.unwrap().unwrap().unwrap();
        self.assembled.stop().await;
    }
}

/// Repeats a check until it succeeds.
async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    // A little longer than the waits inside of `look`, which report more details.
    let patience = PATIENCE + Duration::from_secs(5);
    tokio::time::timeout(patience, looking).await.unwrap_or_else(|_| panic!("never: {what}"))
}

/// Every step of a turn at which something is stored or leaves the process, and the envelope of every actor: (target, place,
/// points).
const BOUNDARIES: &[(&str, &str, &[&str])] = &[
    ("actor", "engine", &["init", "ready", "claimed", "folded", "deciding", "stored"]),
    ("actor", "engine", &["before:ModelReplied", "after:ModelReplied", "before:SkillFinished", "child_ended"]),
    ("actor", "sub_agent", &["init", "ready", "stored", "before:ModelReplied", "before:SkillFinished"]),
    ("actor", "scheduler", &["ready", "before:Admit", "before:Acquire", "after:Acquire", "before:Released"]),
    ("actor", "log_writer", &["ready", "before:Append", "after:Append", "before:Flushed"]),
    ("actor", "conversations", &["before:Wake", "after:Wake"]),
    ("actor", "breakers", &["before:Ensure", "after:Ensure"]),
    ("actor", "breaker", &["init", "ready", "before:Run", "after:Run", "before:RunEnded"]),
    ("actor", "notifier", &["ready", "before:New", "before:PassEnded"]),
    ("actor", "dead_letters", &["ready"]),
    ("actor", "expiry", &["ready"]),
    ("actor", "schedules", &["ready"]),
    ("actor", "reminders", &["ready"]),
    ("actor", "node_lease", &["ready"]),
    ("actor", "ownership", &["ready"]),
    ("actor", "backend", &["ready"]),
    ("actor", "supervisor", &["init"]),
    ("mail", "conversations", &["arrival:Wake"]),
    ("mail", "scheduler", &["arrival:Ended"]),
    ("mail", "notifier", &["arrival:New"]),
    ("task", "commit", &["before", "after", "told"]),
    ("task", "round", &["permitted", "replied", "given_back"]),
    ("task", "run", &["starting", "started", "ran", "counted"]),
    ("task", "delivery", &["before", "after"]),
    ("mail", "log_writer", &["mailbox:Append"]),
    ("mail", "scheduler", &["mailbox:Acquire", "reply:Admit"]),
    ("mail", "breaker", &["mailbox:Run"]),
    ("store", "commit", &["call"]),
    ("store", "claim", &["call"]),
    ("store", "snapshot", &["call"]),
    ("store", "events", &["call"]),
    ("store", "to_notify", &["call"]),
    ("store", "breaker", &["call"]),
    ("model", "offline", &["call"]),
    ("skill", "chaos.count", &["run"]),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turn_passes_fault_points_at_every_boundary() {
    let mut server = Server::start(true).await;
    for mode in ["multi_agent", "single_loop"] {
        let end = server.say(mode).await;
        assert_eq!(end["kind"], "answered", "{end}");
    }
    // Texts are delivered concurrently with the turn.
    let wanted: Vec<_> = BOUNDARIES
        .iter()
        .flat_map(|(target, place, points)| {
            points.iter().map(|p| (target.to_string(), place.to_string(), p.to_string()))
        })
        .collect();
    let all = async {
        until("every boundary is passed", async || {
            let passed = server.passed().await;
            wanted.iter().all(|point| passed.contains(point)).then_some(())
        })
        .await;
    };
    if tokio::time::timeout(PATIENCE, all).await.is_err() {
        let passed = server.passed().await;
        let missing: Vec<_> = wanted.iter().filter(|point| !passed.contains(point)).collect();
        panic!("not passed: {missing:#?}\npassed: {passed:#?}");
    }
    server.stop().await;
}

/// Injects each fault once, and waits each time for the message to end.
async fn inject_each(faults: impl IntoIterator<Item = FaultSpec>) {
    let mut server = Server::start(true).await;
    for spec in faults {
        let what = format!("{} {} at {} {}", spec.target, spec.kind, spec.place, spec.point);
        let id = server.inject(spec.once()).await;
        server.say("multi_agent").await;
        until(&what, async || (server.fault(id).await.injected == 1).then_some(())).await;
        server.clear().await;
    }
    let effects = server.effects().await;
    assert_eq!(effects.repeated, Vec::<String>::new(), "an effect that must not be repeated was");
    assert!(effects.total > 0, "no effect happened");
    let end = server.say("single_loop").await;
    assert_eq!(end["kind"], "answered", "messages are answered after the faults are cleared: {end}");
    server.stop().await;
}

fn with_waits(target: Target, place: &str, point: &str, but: &[FaultKind]) -> Vec<FaultSpec> {
    let kinds = target.kinds().iter().filter(|d| !but.contains(d));
    let made = kinds.map(|kind| {
        let wait_ms = if kind.waits() { 30 } else { 0 };
        FaultSpec { wait_ms, ..FaultSpec::new(target, *kind).at(place, point) }
    });
    made.collect()
}

/// These kinds end the process; the tests that run the real program cover them.
const ABORTS: [FaultKind; 2] = [FaultKind::Abort, FaultKind::AbortAfter];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn actor_faults_take_effect_and_message_ends_once() {
    inject_each(with_waits(Target::Actor, "engine", "before:ModelReplied", &ABORTS)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn task_faults_take_effect_and_message_ends_once() {
    let places = [("round", "permitted"), ("run", "started"), ("commit", "after")];
    inject_each(places.iter().flat_map(|(task, point)| with_waits(Target::Task, task, point, &ABORTS))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_mailboxes_and_lost_or_late_replies_take_effect_and_message_ends_once() {
    let reply = with_waits(Target::Mail, "scheduler", "reply:Admit", &[FaultKind::Twice]);
    let full = [FaultSpec::new(Target::Mail, FaultKind::Fail).at("log_writer", "mailbox:Append")];
    inject_each(reply.into_iter().chain(full)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn duplicated_or_reordered_messages_take_effect_and_message_ends_once() {
    let arrivals = [("conversations", "Wake"), ("scheduler", "Ended"), ("notifier", "New")];
    let of =
        |(kind, name): &(&str, &str)| with_waits(Target::Mail, kind, &format!("arrival:{name}"), &[FaultKind::Fail]);
    inject_each(arrivals.iter().flat_map(of)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn supervisor_crash_during_child_restart_takes_effect_and_message_ends_once() {
    let mut server = Server::start(true).await;
    for point in ["restarting", "restarted"] {
        for kind in [FaultKind::Kill, FaultKind::Panic, FaultKind::Fail, FaultKind::Hang] {
            let what = format!("{kind} of its supervisor at {point}");
            let child = FaultSpec::new(Target::Actor, FaultKind::Kill).at("log_writer", "before:Append").once();
            let parent = FaultSpec::new(Target::Actor, kind).at("/infra", point).once();
            let (child, parent) = (server.inject(child).await, server.inject(parent).await);
            let end = server.say("multi_agent").await;
            assert_eq!(end["kind"], "answered", "{what}: {end}");
            for fault in [child, parent] {
                until(&what, async || (server.fault(fault).await.injected == 1).then_some(())).await;
            }
            server.clear().await;
        }
    }
    assert_eq!(server.effects().await.repeated, Vec::<String>::new());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_faults_in_built_in_skill_cause_its_effect_at_most_once() {
    let mut server = Server::start(true).await;
    let kinds = [
        FaultKind::Locked,
        FaultKind::Full,
        FaultKind::Unavailable,
        FaultKind::Corrupt,
        FaultKind::LoseReply,
        FaultKind::Slow,
        FaultKind::Stale,
    ];
    for (n, kind) in kinds.into_iter().enumerate() {
        let wait_ms = if kind.waits() { 30 } else { 0 };
        let spec = FaultSpec { wait_ms, ..FaultSpec::new(Target::Store, kind).at("write_document", "*") };
        let fault = server.inject(spec.once()).await;
        let submitted = server.say_text("multi_agent", &format!("Create a task to review PR 7{n}")).await;
        assert_eq!(submitted["kind"], "answered", "{kind}: {submitted}");
        let listed = server.fault(fault).await;
        assert_eq!(listed.injected, 1, "{kind} was not injected: {listed:?}");
        server.clear().await;
        let made = server.tasks_with(&format!("7{n}")).await;
        let text = submitted["text"].as_str().unwrap();
        let is_reported = text.contains(&format!("7{n}"));
        assert!(made == 0 || !text.contains("Not done"), "{kind}: {made:?} {submitted}");
        assert!(made < 2, "{kind}: {made:?}");
        let must_be = matches!(kind, FaultKind::LoseReply | FaultKind::Slow | FaultKind::Stale);
        assert!(!must_be || (made == 1 && is_reported), "{kind}: {made:?} {submitted}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stale_reads_take_effect_and_message_ends_once() {
    let reads = ["claim", "snapshot", "events", "to_notify"];
    let stale = |read| FaultSpec { wait_ms: 60, ..FaultSpec::new(Target::Store, FaultKind::Stale).at(read, "*") };
    inject_each(reads.map(stale)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_faults_take_effect_and_message_ends_once() {
    // A commit that hangs is abandoned after 15 s, the store's own limit; so another call hangs in this test.
    let excluded = [FaultKind::Hang, FaultKind::HangAfter, FaultKind::Abort, FaultKind::AbortAfter];
    let commits = with_waits(Target::Store, "commit", "*", &excluded);
    let hanging =
        [FaultKind::Hang, FaultKind::HangAfter].map(|kind| FaultSpec::new(Target::Store, kind).at("claim", "*"));
    inject_each(commits.into_iter().chain(hanging)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn model_faults_take_effect_and_message_ends_once() {
    inject_each(with_waits(Target::Model, "offline", "*", &ABORTS)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn skill_faults_take_effect_and_effect_is_never_repeated() {
    // A hanging skill is abandoned after its own limit of 10 s.
    let excluded = [FaultKind::Hang, FaultKind::HangAfter, FaultKind::Abort, FaultKind::AbortAfter];
    inject_each(with_waits(Target::Skill, "chaos.*", "*", &excluded)).await;
}

#[tokio::test]
async fn clock_and_file_faults_hold_only_while_active() {
    let mut server = Server::start(true).await;
    let now = |server: &Server| server.assembled.kernel.now();
    let before = now(&server);
    let forward = FaultSpec { by_ms: 3_600_000, ..FaultSpec::new(Target::Clock, FaultKind::Jump) };
    server.inject(forward).await;
    assert!(now(&server).since_ms(before) >= 3_600_000);
    server
        .inject(FaultSpec { by_ms: -7_200_000, for_ms: 3_600_000, ..FaultSpec::new(Target::Clock, FaultKind::Jump) })
        .await;
    assert!(now(&server) < before, "the clock can go back, too");
    let gone = server.inject(FaultSpec::new(Target::Files, FaultKind::Gone)).await;
    let skills = |server: &Server| server.assembled.kernel.catalog().skills().iter().count();
    assert_eq!(skills(&server), 0);
    assert!(server.fault(gone).await.injected > 0);
    server.clear().await;
    assert!(skills(&server) > 10 && now(&server) >= before);
    assert!(now(&server).since_ms(before) < 60_000 && before.since_ms(now(&server)) < 60_000);
    server.stop().await;
}

#[tokio::test]
async fn timed_fault_expires_and_seeded_fault_hits_the_same_passes() {
    let mut server = Server::start(true).await;
    let short = FaultSpec { for_ms: 1, ..FaultSpec::new(Target::Model, FaultKind::Unavailable) };
    let id = server.inject(short).await;
    until("it ends", async || server.fault(id).await.ended.then_some(())).await;
    let mut injected = Vec::new();
    for _ in 0..2 {
        server.clear().await;
        let id =
            server.inject(FaultSpec::new(Target::Store, FaultKind::Locked).at("ping", "*").by_chance(500, 11)).await;
        let mut seen = Vec::new();
        for _ in 0..20 {
            seen.push(server.assembled.kernel.store().ping().await.is_err());
        }
        assert!(server.fault(id).await.passed >= 20);
        injected.push(seen);
    }
    assert!(injected[0] == injected[1] && injected[0].contains(&true) && injected[0].contains(&false), "{injected:?}");
    server.stop().await;
}

#[tokio::test]
async fn inject_refuses_invalid_specs_with_field_and_full_list() {
    let mut server = Server::start(true).await;
    let mut refused = async |spec: v1::FaultSpec| server.chaos.inject(v1::InjectRequest { spec: Some(spec) }).await;
    let of = |target: &str, kind: &str| v1::FaultSpec {
        target: target.to_owned(),
        kind: kind.to_owned(),
        ..v1::FaultSpec::default()
    };
    for (spec, word) in [(of("house", "burn"), "target"), (of("actor", "burn"), "kind"), (of("actor", "full"), "panic")]
    {
        let status = refused(spec).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains(word), "{status:?}");
    }
    for _ in 0..FAULTS_MAX {
        refused(of("model", "auth")).await.unwrap();
    }
    assert!(refused(of("model", "auth")).await.unwrap_err().message().contains("clear some"));
    let none = server.chaos.clear_faults(v1::ClearFaultsRequest { id: 9_999 }).await.unwrap_err();
    assert_eq!(none.code(), Code::NotFound);
    let cleared = server.chaos.clear_faults(v1::ClearFaultsRequest { id: 0 }).await.unwrap().into_inner().cleared;
    assert_eq!(cleared as usize, FAULTS_MAX);
    server.stop().await;
}

#[tokio::test]
async fn server_without_chaos_refuses_faults_and_chaos_server_reports_itself() {
    let mut server = Server::start(false).await;
    assert!(server.assembled.chaos.is_none());
    let spec = to_wire(FaultSpec::new(Target::Process, FaultKind::Abort));
    let refused = server.chaos.inject(v1::InjectRequest { spec: Some(spec) }).await.unwrap_err();
    assert!(refused.code() == Code::InvalidArgument && refused.message().contains("[chaos]"), "{refused:?}");
    assert!(server.chaos.points(v1::PointsRequest {}).await.is_err());
    let status: Value =
        server.client.get(format!("{}/api/v1/status", server.url)).send().await.unwrap().json().await.unwrap();
    assert_eq!(status["chaos"], Value::Null);
    server.stop().await;
    let mut enabled = Server::start(true).await;
    for path in ["/api/v1/status", "/readyz"] {
        let submitted: Value =
            enabled.client.get(format!("{}{path}", enabled.url)).send().await.unwrap().json().await.unwrap();
        assert_eq!(submitted["chaos"], true, "{path}");
    }
    // The scope `ops:control` does not include fault injection: that requires `admin`.
    let key = |scope| annie::auth::NewKey {
        name: "test".to_owned(),
        user: UserId::local(),
        scopes: vec![scope],
        expires_at: None,
    };
    let auth = enabled.auth.clone();
    let operator = auth.create(key(annie::auth::KeyScope::OpsControl)).await.unwrap().secret;
    let admin = auth.create(key(annie::auth::KeyScope::Admin)).await.unwrap().secret;
    let mut asked = async |key: &str| {
        let mut request = tonic::Request::new(v1::PointsRequest {});
        request.metadata_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
        enabled.chaos.points(request).await
    };
    assert_eq!(asked(&operator).await.unwrap_err().code(), Code::PermissionDenied);
    asked(&admin).await.unwrap();
    enabled.stop().await;
}

#[test]
fn config_refuses_chaos_on_non_loopback_address() {
    let environment = environment_of(&[("ANNIE__CHAOS__ENABLED", "true"), ("ANNIE__SERVER__BIND", "0.0.0.0:7420")]);
    let refused = Sources { environment, ..Sources::default() }.load().unwrap_err();
    assert!(refused.to_string().contains("loopback") && refused.fix.contains("127.0.0.1"), "{refused}");
    assert!(!loaded(&[]).config.chaos.enabled, "off by default");
}
