//! Operator routes, and the middleware of every request.

use std::{path::PathBuf, sync::Arc, time::Duration};

use annie_core::{
    breaker::{BreakerRow, BreakerState},
    ids::UserId,
    outcome::Outcome,
    ports::{Breakers, Fut, SkillCall, SkillSource},
    skill::{Effect, SkillSet},
    time::Micros,
};
use annie_skillkit::{FileCatalog, FileRules, Router, Runner, RunnerParts};
use annie_store::MemoryStore;
use annie_testkit::skills::skill;
use reqwest::Method;
use serde_json::{Value, json};

use super::world::{PATIENCE, Server, delegating, echo, last_text, read};
use crate::{
    api::{ApiLimits, AppState},
    auth::KeyScope,
    folder::{NotesPace, NotesProblem, NotesWatch},
    grpc::v1::{self, actors_client::ActorsClient, jobs_client::JobsClient, scheduler_client::SchedulerClient},
    system,
};

#[tokio::test]
async fn actor_tree_is_listed_viewed_and_operated() {
    let server = Server::start(echo()).await;
    let (_, tree) = server.get("/api/v1/actors").await;
    let paths: Vec<&str> = tree["actors"].as_array().unwrap().iter().map(|a| a["path"].as_str().unwrap()).collect();
    assert!(["/", "/infra/log", "/scheduler"].iter().all(|p| paths.contains(p)), "{paths:?}");
    let (_, lax) = server.get("/api/v1/actors/view?path=scheduler").await;
    assert_eq!(lax["actor"]["path"], "/scheduler", "the leading slash is optional: {lax}");
    assert_eq!(
        server.get("/api/v1/actors?under=infra").await.1["total"],
        server.get("/api/v1/actors?under=/infra").await.1["total"]
    );
    let (_, part) = server.get("/api/v1/actors?under=/infra&limit=1").await;
    assert_eq!((part["actors"].as_array().unwrap().len(), part["total"].as_u64() > Some(1)), (1, true));
    let (_, view) = server.get("/api/v1/actors/view?path=/scheduler").await;
    assert!(view["view"]["backends"].is_array(), "{view}");
    let started_at = view["actor"]["started_at"].as_str().unwrap();
    assert!(started_at.ends_with('Z'), "{started_at} is not RFC 3339 in UTC: {view}");
    let incarnation = view["actor"]["incarnation"].as_u64().unwrap();
    let (status, problem) = server
        .post("/api/v1/actors/kill", json!({ "path": "/scheduler", "incarnation": incarnation + 7, "reason": "x" }))
        .await;
    assert_eq!((status, &problem["code"]), (409, &json!("stale")));
    // JSON does not distinguish 7 and 7.0.
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let inject = json!({ "path": "/scheduler", "incarnation": incarnation as f64, "reason": "a test" });
    assert_eq!(server.post("/api/v1/actors/kill", inject).await.0, 200);
    assert_eq!(server.say(json!({ "text": "still there?" })).await["answer"], "You said: still there?");
    let (status, injected) =
        server.post("/api/v1/actors/restart", json!({ "path": "/breakers", "reason": "a test", "force": true })).await;
    assert_eq!((status, &injected["actor"]["path"]), (200, &json!("/breakers")));
    assert_eq!(server.say(json!({ "text": "and now?" })).await["answer"], "You said: and now?");
    assert_eq!(server.post("/api/v1/actors/stop", json!({ "path": "/nobody" })).await.0, 404);
    assert_eq!(server.get("/api/v1/actors/view?path=/nobody").await.0, 404);
    let (status, ends) = server.get("/api/v1/actors/crashes").await;
    let ordered = &ends["operated"][0];
    assert_eq!(
        (status, &ordered["path"], &ordered["operation"]),
        (200, &json!("/scheduler"), &json!("kill")),
        "{ends}"
    );
    assert!(ordered["by"].is_string() && ends["crashes"].as_array().is_some_and(Vec::is_empty), "{ends}");
}

#[tokio::test]
async fn operations_on_the_root_actor_without_force_are_refused_on_every_front_end() {
    let server = Server::start(echo()).await;
    let mut actors = ActorsClient::connect(format!("http://{}", server.at)).await.unwrap();
    for path in ["/", "//", ""] {
        for operation in ["kill", "stop", "restart"] {
            let (status, problem) = server.post(&format!("/api/v1/actors/{operation}"), json!({ "path": path })).await;
            assert_eq!(status, 400, "{operation} {path:?}: {problem}");
        }
        let act = v1::ActRequest { path: path.into(), ..v1::ActRequest::default() };
        let refused = actors.kill(act).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{refused}");
    }
    assert_eq!(server.say(json!({ "text": "still there?" })).await["answer"], "You said: still there?");
    let (status, _) =
        server.post("/api/v1/actors/kill", json!({ "path": "/", "force": true, "reason": "a test" })).await;
    assert_eq!(status, 200, "force allows it");
}

#[tokio::test]
async fn breaker_left_open_by_an_earlier_run_is_listed_before_its_skill_is_called() {
    let store = MemoryStore::new();
    let open = BreakerRow { state: BreakerState::Open, failures: 5, opened_at: Micros(1), trips: 1 };
    store.put_breaker("test.put".into(), open).await.unwrap();
    let closed = BreakerRow { state: BreakerState::Closed, ..open };
    store.put_breaker("test.other".into(), closed).await.unwrap();
    let server = Server::on(store, echo(), ApiLimits::default()).await;
    let mut listed = Vec::new();
    for _ in 0..10_000 {
        let (_, list) = server.get("/api/v1/breakers").await;
        listed = list["breakers"].as_array().cloned().unwrap();
        if listed.iter().any(|breaker| breaker["state"].is_string()) {
            break;
        }
    }
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!((&listed[0]["skill"], &listed[0]["state"]), (&json!("test.put"), &json!("open")));
}

#[tokio::test]
async fn voice_gate_has_one_holder() {
    let server = Server::start(echo()).await;
    let hold = |holder: &str| json!({ "holder": holder, "ttl_ms": 5_000 });
    let (status, held) = server.post("/api/v1/gate/hold", hold("ann")).await;
    assert_eq!((status, held["epoch"].is_u64()), (200, true), "{held}");
    let (status, problem) = server.post("/api/v1/gate/hold", hold("bob")).await;
    assert_eq!((status, &problem["code"]), (409, &json!("stale")));
    let release = |holder: &str| json!({ "holder": holder });
    assert_eq!(server.post("/api/v1/gate/release", release("bob")).await.1, json!({ "released": false }));
    assert_eq!(server.post("/api/v1/gate/release", release("ann")).await.1, json!({ "released": true }));
    let elsewhere = json!({ "backend": "nowhere", "holder": "ann", "ttl_ms": 1 });
    assert_eq!(server.post("/api/v1/gate/hold", elsewhere).await.0, 404);
    assert_eq!(server.post("/api/v1/gate/hold", json!({ "holder": "", "ttl_ms": 1 })).await.0, 400);
    assert!(server.get("/api/v1/queue").await.1["waiting"].is_array());
    let (status, unused) = server.post("/api/v1/breakers/test.put/reset", json!({})).await;
    assert!(status == 404 && unused["detail"].as_str().unwrap().contains("nothing to close"), "{unused}");
}

#[tokio::test]
async fn queue_and_gate_are_the_same_over_grpc() {
    let server = Server::start(echo()).await;
    let mut scheduler = SchedulerClient::connect(format!("http://{}", server.at)).await.unwrap();
    let hold = |holder: &str| v1::HoldGateRequest { holder: holder.to_owned(), ttl_ms: 5_000, ..Default::default() };
    assert!(scheduler.hold_gate(hold("ann")).await.unwrap().into_inner().until_us > 0);
    assert_eq!(scheduler.hold_gate(hold("bob")).await.unwrap_err().code(), tonic::Code::FailedPrecondition);
    assert_eq!(scheduler.hold_gate(hold("")).await.unwrap_err().code(), tonic::Code::InvalidArgument);
    let queue = scheduler.queue(v1::QueueRequest {}).await.unwrap().into_inner().queue_json;
    let queue: Value = serde_json::from_str(&queue).unwrap();
    assert_eq!(queue["backends"][0]["gate"]["holder"], "ann", "{queue}");
    let release = v1::ReleaseGateRequest { holder: "ann".into(), ..Default::default() };
    assert!(scheduler.release_gate(release.clone()).await.unwrap().into_inner().released);
    assert!(!scheduler.release_gate(release).await.unwrap().into_inner().released);
}

#[tokio::test]
async fn used_breaker_can_be_closed_on_every_front_end() {
    let server = Server::start(delegating()).await;
    server.say(json!({ "text": "do it" })).await;
    assert_eq!(server.post("/api/v1/breakers/test.put/reset", json!({})).await.0, 204);
    let to = format!("http://{}", server.at);
    let mut actors = ActorsClient::connect(to).await.unwrap();
    actors.reset_breaker(v1::ResetBreakerRequest { skill: "test.put".into() }).await.unwrap();
    let (_, list) = server.get("/api/v1/breakers").await;
    assert_eq!(list["breakers"].as_array().unwrap().len(), 1, "{list}");
    assert_eq!((&list["breakers"][0]["skill"], &list["breakers"][0]["state"]), (&json!("test.put"), &json!("closed")));
    let listed = actors.list_breakers(v1::ListBreakersRequest {}).await.unwrap().into_inner().breakers;
    assert_eq!((listed[0].skill.as_str(), listed[0].state.as_str()), ("test.put", "closed"));
}

#[tokio::test]
async fn resume_reaches_conversations_of_other_users_only_with_ops_control() {
    let server = Server::start(echo()).await;
    let ann = server.key("ann", &[KeyScope::Chat]).await;
    let sent = server.request(Method::POST, "/api/v1/messages?wait=20").bearer_auth(&ann);
    let (_, sent) = read(sent.json(&json!({ "text": "x" })).send().await.unwrap()).await;
    let id = sent["conversation_id"].as_str().unwrap();
    let path = format!("/api/v1/conversations/{id}/resume");
    let mut jobs = JobsClient::connect(format!("http://{}", server.at)).await.unwrap();
    let mut resume = async |scopes: &[KeyScope]| {
        let key = server.key("bob", scopes).await;
        let mut options = tonic::Request::new(v1::ResumeConversationRequest { conversation_id: id.to_owned() });
        options.metadata_mut().insert("x-api-key", key.parse().unwrap());
        let refused = jobs.resume_conversation(options).await.unwrap_err();
        let (status, problem) = read(server.request(Method::POST, &path).bearer_auth(key).send().await.unwrap()).await;
        let detail = problem["detail"].as_str().unwrap().to_owned();
        assert_eq!(
            (refused.code(), refused.message()),
            (tonic::Code::NotFound, detail.as_str()),
            "both front ends agree"
        );
        (status, detail)
    };
    // The conversation is not quarantined. A caller with access to the quarantine learns this; others do not even learn that
    // the conversation exists.
    let operator = resume(&[KeyScope::JobsControl, KeyScope::OpsControl]).await;
    assert_eq!(operator, (404, "there is no such quarantined conversation".to_owned()));
    assert_eq!(resume(&[KeyScope::JobsControl]).await, (404, "there is no such conversation".to_owned()));
}

#[tokio::test]
async fn skills_are_listed_searched_and_described() {
    let server = Server::start(echo()).await;
    let (_, all) = server.get("/api/v1/skills").await;
    assert_eq!((all["skills"].as_array().unwrap().len(), &all["skills"][0]["name"]), (3, &json!("test.look")));
    let (_, found) = server.get("/api/v1/skills?query=send").await;
    assert_eq!(found["skills"][0]["name"], "test.send");
    let (_, one) = server.get("/api/v1/skills/test.send").await;
    assert_eq!((&one["effect"], one["help"].as_str().unwrap().contains("Usage")), (&json!("once"), true));
    let (status, problem) = server.get("/api/v1/skills/test.sent").await;
    assert!(status == 404 && problem["detail"].as_str().unwrap().contains("test.send"), "{problem}");
}

#[tokio::test]
async fn status_routes_report_server_state() {
    let server = Server::start(echo()).await;
    assert_eq!(server.get("/healthz").await, (200, json!("ok\n")));
    assert_eq!(server.get("/readyz").await, (200, json!({ "ready": true, "problems": [] })));
    let (_, status) = server.get("/api/v1/status").await;
    assert_eq!(
        (&status["store"], &status["skills"], &status["needs_keys"]),
        (&json!("memory"), &json!(3), &json!(false))
    );
    assert_eq!(status["backends"][0]["about"], "a script in a test");
    assert_eq!(server.get("/metrics").await.0, 200);
    server.state.kernel.drain();
    assert_eq!(server.get("/readyz").await.0, 503);
}

/// A notes folder whose check hangs until the sender is dropped, and its state as the server reports it.
fn hanging_notes() -> (std::sync::mpsc::Sender<()>, Arc<NotesWatch>) {
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let check = move || {
        let _ = held.lock().unwrap().recv();
        None
    };
    let pace = NotesPace { every: Duration::from_millis(1), patience: Duration::from_millis(1) };
    (release, Arc::new(NotesWatch::new(Arc::new(check), None, pace, system::env().clock)))
}

#[tokio::test]
async fn hanging_notes_check_delays_no_handler_and_is_a_warning() {
    let mut server = Server::start(echo()).await;
    let (release, notes) = hanging_notes();
    let at = server.also(server.state.clone().with_notes(notes.clone())).await;
    let mut checks = tokio::task::JoinSet::new();
    let watch = notes.clone();
    checks.spawn(async move { watch.run().await });
    let asked = async |path: &str| {
        let answer = server.client.get(format!("http://{at}{path}")).send().await.unwrap();
        let warning = answer.json::<Value>().await.unwrap()["warnings"][0].clone();
        warning["text"].as_str().or(warning.as_str()).map(str::to_owned)
    };
    let until = async |is_warned: bool| {
        let changed = async { while asked("/readyz").await.is_some() != is_warned {} };
        tokio::time::timeout(PATIENCE, changed).await.expect("each request is answered, and the state changes");
    };
    until(true).await;
    let warning = asked("/api/v1/status").await.unwrap();
    assert!(warning.contains("has not answered a check since 20"), "{warning}");
    assert_eq!(asked("/readyz").await.as_deref(), Some("the notes skills do not work: `annie status` says why"));
    drop(release);
    until(false).await;
    let notes_problem = NotesProblem { what: "notes cannot be kept in /srv/notes".to_owned(), fix: "cp -a".to_owned() };
    let refused = NotesWatch::new(Arc::new(|| None), Some(notes_problem), NotesPace::default(), system::env().clock);
    let at = server.also(server.state.clone().with_notes(Arc::new(refused))).await;
    let ready = server.client.get(format!("http://{at}/readyz")).send().await.unwrap().text().await.unwrap();
    assert!(ready.contains("notes skills") && !ready.contains('/'), "unauthenticated callers see no path: {ready}");
}

/// A source with one skill, of the name of a bundled one.
struct Rival;

impl SkillSource for Rival {
    fn name(&self) -> &str {
        "rival"
    }

    fn specs(&self) -> Result<Arc<SkillSet>, String> {
        Ok(Arc::new(SkillSet::new([skill("tasks.create", Effect::Once, false)], [], 1)))
    }

    fn run(&self, call: SkillCall) -> Fut<'_, Outcome> {
        Box::pin(std::future::ready(Outcome::success(call.skill)))
    }
}

#[tokio::test]
async fn status_warns_of_a_skill_source_with_a_taken_name_and_the_public_readiness_does_not() {
    let mut server = Server::start(echo()).await;
    let store = Arc::new(MemoryStore::new());
    let files = Runner::new(RunnerParts {
        untrusted: annie_core::approval::UntrustedText::default(),
        memory_decay: annie_skillkit::MemoryDecay::OFF,
        documents: store,
        catalog: Arc::new(FileCatalog::bundled()),
        notes_folder: PathBuf::new(),
        are_notes_here: false,
        respects_robots: false,
        files: FileRules::default(),
        search: None,
        egress: None,
        secrets: None,
        programs: None,
        owner: UserId::new("ann").unwrap(),
    });
    let skills = Arc::new(Router::new(Arc::new(files), vec![Arc::new(Rival)]));
    let at = server.also(server.state.clone().with_skills(skills)).await;
    let asked = async |path: &str| {
        let answer = server.client.get(format!("http://{at}{path}")).send().await.unwrap();
        answer.json::<Value>().await.unwrap()["warnings"].clone()
    };
    let warning = "skill source `rival` also has `tasks.create`, and that of `files` is used: rename one of them";
    assert_eq!(asked("/api/v1/status").await, json!([{"about": "skills", "text": warning}]));
    assert_eq!(asked("/readyz").await, Value::Null);
}

#[tokio::test]
async fn keys_are_created_used_and_revoked_over_http() {
    let server = Server::start(echo()).await;
    let options = json!({ "name": "root", "scopes": ["admin"] });
    let (status, root) = server.post("/api/v1/keys", options.clone()).await;
    assert_eq!((status, &root["user"]), (201, &json!("me")));
    assert_eq!(server.post("/api/v1/keys", options).await.0, 401, "after the first key a key is required");
    let root_key = root["secret"].as_str().unwrap();
    assert!(root["warning"].as_str().unwrap().contains("every request needs a key"), "{root}");
    let admin = |method, path: &str| server.request(method, path).bearer_auth(root_key);
    let options = json!({ "name": "chat", "scopes": ["chat"], "expires_in_days": 1 });
    let (_, chat) = read(admin(Method::POST, "/api/v1/keys").json(&options).send().await.unwrap()).await;
    let more = json!({ "name": "x", "scopes": ["impersonate"] });
    assert_eq!(admin(Method::POST, "/api/v1/keys").json(&more).send().await.unwrap().status(), 403);
    let ended = json!({ "name": "x", "scopes": ["chat"], "expires_in_days": 0 });
    let (status, problem) = read(admin(Method::POST, "/api/v1/keys").json(&ended).send().await.unwrap()).await;
    assert_eq!((status, &problem["field"]), (400, &json!("expires_in_days")));
    let odd = json!({ "name": "x", "scopes": ["root"] });
    assert_eq!(admin(Method::POST, "/api/v1/keys").json(&odd).send().await.unwrap().status(), 400);
    let (_, list) = read(admin(Method::GET, "/api/v1/keys").send().await.unwrap()).await;
    let list_text = list.to_string();
    assert_eq!(list["keys"].as_array().unwrap().len(), 2);
    assert!(!list_text.contains("secret") && !list_text.contains("sha256"), "{list_text}");
    let uses = || server.request(Method::GET, "/api/v1/conversations").bearer_auth(chat["secret"].as_str().unwrap());
    assert_eq!(uses().send().await.unwrap().status(), 200);
    let path = format!("/api/v1/keys/{}/revoke", chat["id"].as_str().unwrap());
    assert_eq!(admin(Method::POST, &path).send().await.unwrap().status(), 200);
    assert_eq!(uses().send().await.unwrap().status(), 401);
}

#[tokio::test]
async fn foreign_origin_and_foreign_host_are_refused() {
    let server = Server::start(echo()).await;
    let post = |name: &'static str, value: &str| {
        server.request(Method::POST, "/api/v1/messages").header(name, value).json(&json!({ "text": "x" })).send()
    };
    let (status, foreign) = super::world::read(post("origin", "https://evil.example").await.unwrap()).await;
    assert_eq!((status, &foreign["code"]), (403, &json!("foreign_origin")), "{foreign}");
    assert_eq!(
        foreign["title"], "Foreign pages and host names are turned away",
        "the title does not mention a key: {foreign}"
    );
    assert_eq!(post("host", "evil.example").await.unwrap().status(), 403);
    assert_eq!(post("origin", &format!("http://{}", server.at)).await.unwrap().status(), 202);
    assert_eq!(
        post("x-forwarded-for", "192.0.2.1").await.unwrap().status(),
        401,
        "a request through a proxy is not local"
    );
}

#[tokio::test]
async fn response_has_request_id_and_security_headers() {
    let server = Server::start(echo()).await;
    let ask = |id: &str| server.request(Method::GET, "/api/v1/nowhere").header("x-request-id", id).send();
    let response = ask("abc-1").await.unwrap();
    assert_eq!(response.headers()["x-request-id"], "abc-1");
    for (name, word) in [
        ("x-content-type-options", "nosniff"),
        ("content-security-policy", "frame-ancestors 'none'"),
        ("content-type", "application/problem+json"),
    ] {
        assert!(response.headers()[name].to_str().unwrap().contains(word), "{name}");
    }
    assert_eq!(read(response).await.1["request_id"], "abc-1");
    let own = ask(&"x".repeat(200)).await.unwrap();
    assert!(own.headers()["x-request-id"].to_str().unwrap().starts_with("req_"));
    let (status, problem) = server.post("/healthz", json!({})).await;
    assert_eq!((status, &problem["code"]), (405, &json!("method_not_allowed")));
    let (status, problem) = server.get("/api/v1/tasks?opne=true").await;
    assert_eq!((status, &problem["field"]), (400, &json!("opne")), "{problem}");
}

#[tokio::test]
async fn rate_limited_key_gets_retry_after() {
    let limits = ApiLimits { requests_burst_max: 2, requests_per_minute_max: 60, ..ApiLimits::default() };
    let server = Server::with(echo(), limits).await;
    let key = server.key("ann", &[KeyScope::Chat]).await;
    let ask = || server.request(Method::GET, "/v1/models").bearer_auth(&key).send();
    let first = ask().await.unwrap();
    assert_eq!(
        (first.status().as_u16(), &first.headers()["x-ratelimit-remaining-requests"]),
        (200, &"1".parse().unwrap())
    );
    ask().await.unwrap();
    let third = ask().await.unwrap();
    assert_eq!((third.status().as_u16(), &third.headers()["retry-after"]), (429, &"1".parse().unwrap()));
    assert_eq!(read(third).await.1["error"]["code"], "rate_limit_exceeded");
}

async fn panics() -> &'static str {
    panic!("told to")
}

#[tokio::test]
async fn panicking_handler_returns_internal_error_without_panic_text() {
    let app = axum::Router::new()
        .route("/", axum::routing::get(panics))
        .layer(tower_http::catch_panic::CatchPanicLayer::custom(crate::http::handler_panicked));
    let request = axum::http::Request::get("/").body(axum::body::Body::empty()).unwrap();
    let response = tower::ServiceExt::oneshot(app, request).await.unwrap();
    assert_eq!(response.status(), 500);
    let error = response.extensions().get::<crate::error::ApiError>().unwrap();
    assert!(!error.detail.contains("told to"));
}

#[tokio::test]
async fn serve_without_keys_refuses_non_loopback_address() {
    let server = Server::start(echo()).await;
    let open = || tokio::net::TcpListener::bind(("0.0.0.0", 0));
    let serve = |state: AppState, listener| crate::http::serve(listener, state, std::future::ready(()));
    let refused = serve(server.state.clone(), open().await.unwrap()).await;
    assert!(refused.unwrap_err().to_string().contains("annie key create"));
    let new = crate::auth::NewKey {
        name: "k".into(),
        user: UserId::new("ann").unwrap(),
        scopes: vec![KeyScope::Chat],
        expires_at: None,
    };
    server.state.auth.create(new).await.unwrap();
    assert!(serve(server.state.clone(), open().await.unwrap()).await.is_ok());
}

#[tokio::test]
async fn server_with_unavailable_model_accepts_messages_and_reports_backend_down() {
    let away = || annie_core::message::ModelError::new(annie_core::message::ModelErrorKind::Unavailable, "away");
    let model = annie_testkit::scripted_model::ScriptedModel::new(move |_, _| Err(away()));
    let server = Server::start(model).await;
    assert_eq!(server.get("/api/v1/status").await.1["backends"][0]["up"], true);
    let mut sent = Value::Null;
    // The first failure must be reported; it ends the loop.
    for _ in 0..20 {
        sent = server.get("/api/v1/status").await.1;
        if sent["backends"][0]["up"] == false {
            break;
        }
        assert_eq!(server.say(json!({ "text": "hello" })).await["status"], "failed");
    }
    let backend = &sent["backends"][0];
    assert_eq!((&backend["state"], &backend["failed_rounds"]), (&json!("failing"), &json!(1)), "after one failure");
    assert_eq!(backend["last_error"], json!({"kind": "unavailable", "detail": "away"}), "{backend}");
    assert!(backend["failing_since"].is_string(), "{backend}");
    assert_eq!((&sent["backends"][0]["up"], &sent["ready"]), (&json!(false), &json!(true)), "{sent}");
    assert_eq!(server.get("/readyz").await.0, 200);
}

#[tokio::test]
async fn backend_status_is_up_again_after_the_first_answered_round() {
    let model = annie_testkit::scripted_model::ScriptedModel::new(|request, _| match last_text(request).as_str() {
        "fail" => {
            let kind = annie_core::message::ModelErrorKind::InvalidRequest;
            Err(annie_core::message::ModelError::new(kind, "HTTP 404: no such model"))
        }
        _ => Ok(annie_testkit::scripted_model::says("here")),
    });
    let server = Server::start(model).await;
    server.say(json!({ "text": "fail" })).await;
    let (_, sent) = server.get("/api/v1/status").await;
    assert_eq!(sent["backends"][0]["last_error"]["detail"], "HTTP 404: no such model", "{sent}");
    assert_eq!(sent["backends"][0]["up"], false);
    server.say(json!({ "text": "hello" })).await;
    let (_, sent) = server.get("/api/v1/status").await;
    let backend = &sent["backends"][0];
    assert_eq!((&backend["state"], &backend["up"], &backend["failed_rounds"]), (&json!("up"), &json!(true), &json!(0)));
    assert!(backend["last_error"].is_null(), "{backend}");
}

#[tokio::test]
async fn openapi_document_is_served() {
    let server = Server::start(echo()).await;
    let (status, document) = server.get("/api/openapi.json").await;
    assert_eq!((status, &document["info"]["title"]), (200, &json!("Annie")));
}

#[test]
fn openapi_document_matches_golden_copy() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let agreed: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let now = crate::http::document();
    let new = std::env::temp_dir().join("annie-openapi.json");
    if agreed != now {
        std::fs::write(&new, serde_json::to_string_pretty(&now).unwrap() + "\n").unwrap();
    }
    // The documents are too long to be printed.
    assert!(agreed == now, "if the change is intended, copy {} to docs/openapi.json", new.display());
}
