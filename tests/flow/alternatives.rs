//! Requests for another approach, against the real binary: offered only after the router has nothing left, advised by a model of the
//! turn's route or by the fallback map, and recorded.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use annie_testkit::model_server::{FakeModelServer, Reply, Seen};
use serde_json::{Value, json};

use super::{
    bad_models::{ask, server_with},
    command_line::annie,
    egress::{Site, page, refusal},
};
use crate::{server::Server, world::eventually};

const REQUEST: &str = "request_alternative_approach";

fn is_advisor(seen: &Seen) -> bool {
    seen.texts_of("system").iter().any(|text| text.starts_with("You advise an agent"))
}

fn last(seen: &Seen) -> String {
    seen.messages().last().map(|message| message["content"].to_string()).unwrap_or_default()
}

fn fetch(url: &str) -> Reply {
    Reply::calls([("use_skill", json!({"skill": "web.fetch", "arguments": {"url": url}}))])
}

fn request() -> Reply {
    Reply::calls([(
        REQUEST,
        json!({"task": "Read the talk", "attempts": "web.fetch was refused", "error_details": "http_403"}),
    )])
}

/// A model that fetches a page, asks for another approach when it is offered one, reads the other page when an advisor names it,
/// and says what the result of its request was.
async fn stuck(url: String, other: String, advice: &'static str) -> FakeModelServer {
    FakeModelServer::start(move |seen| {
        let last = last(seen);
        if is_advisor(seen) {
            return Reply::says(advice);
        }
        if last.contains("the whole talk") {
            return Reply::says("It is about the whole talk.");
        }
        if last.contains("/transcript") {
            return fetch(&other);
        }
        if seen.tool_names().iter().any(|name| name == REQUEST) {
            return request();
        }
        match seen.messages().last() {
            Some(last) if last["role"] == "user" => fetch(&url),
            _ => Reply::says(format!("I could not: {last}")),
        }
    })
    .await
}

fn settings(site: &Site, more: &str) -> String {
    format!(
        "mode = \"single_loop\"\n[egress]\nenabled = true\nallow_private = [\"{}\"]\n[error_router]\n{more}\n\
         [error_router.chains]\nhttp_403 = [\"report_failure\"]\n",
        site.address
    )
}

async fn log(server: &Server, sent: &Value) -> Vec<Value> {
    let conversation = sent["conversation_id"].as_str().expect("a conversation");
    let (_, log) = server.get(&format!("/api/v1/conversations/{conversation}/events?limit=500")).await;
    log["events"].as_array().expect("events").clone()
}

fn advice(log: &[Value]) -> Vec<Value> {
    log.iter().filter(|event| event["component"] == "alternatives").cloned().collect()
}

async fn site() -> Site {
    Site::start(|path| if path == "/transcript" { page("<p>the whole talk</p>") } else { refusal(403) }).await
}

const ADVICE: &str = "- browser.navigate: open the page.\n- web.fetch: read /transcript of the same site.";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stuck_agent_is_offered_another_approach_and_a_model_gives_it() {
    let site = site().await;
    let model = stuck(site.url("/watch"), site.url("/transcript"), ADVICE).await;
    let (_folder, server) = server_with(&model, &settings(&site, "")).await;
    let sent = ask(&server, "Summarise that talk").await;
    assert_eq!(sent["answer"], "It is about the whole talk.", "{sent}");
    let requests = model.requests();
    assert_eq!(requests.len(), 5, "fetch, request, advisor, fetch, answer");
    let offers: Vec<bool> = requests.iter().map(|seen| seen.tool_names().iter().any(|name| name == REQUEST)).collect();
    assert_eq!(offers, [false, true, false, false, false], "only after the chain was used up, and once");
    assert!(last(&requests[1]).contains("Ask once for another approach"), "{}", last(&requests[1]));
    let question = last(&requests[2]);
    assert!(
        question.contains("Task: Read the talk") && question.contains("Skills that failed: web.fetch"),
        "{question}"
    );
    assert!(requests[2].texts_of("system")[0].contains("- web.fetch: "), "the advisor knows the skills");
    assert!(requests[2].tool_names().is_empty());
    let result = last(&requests[3]);
    assert!(result.contains("web.fetch: read /transcript"), "{result}");
    assert!(
        result.contains("do not exist here: browser.navigate"),
        "an invented skill is dropped, and this is said: {result}"
    );
    let log = log(&server, &sent).await;
    let advice = advice(&log);
    assert_eq!(advice.len(), 1, "{advice:?}");
    assert_eq!(advice[0]["alternatives"], json!(["web.fetch: read /transcript of the same site."]), "{}", advice[0]);
    assert!(advice[0]["reasoning"].as_str().unwrap_or_default().contains("browser.navigate"), "{}", advice[0]);
    // The call counts as spending like any other.
    let rounds = log.iter().filter(|event| event["kind"] == "model_replied").count();
    assert_eq!(rounds, 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_is_limited_per_goal_and_switched_off_by_zero() {
    for (more, advised) in [
        ("alternatives_per_goal_max = 0", 0),
        ("alternatives_per_turn_max = 0", 0),
        ("alternatives_per_goal_max = 2\nalternatives_per_turn_max = 9", 2),
        ("alternatives_per_goal_max = 9\nalternatives_per_turn_max = 1", 1),
    ] {
        let site = site().await;
        // The advice leads to an address that is refused as well.
        let model = stuck(site.url("/watch"), site.url("/elsewhere"), "- web.fetch: read /transcript").await;
        let (_folder, server) = server_with(&model, &settings(&site, more)).await;
        let sent = ask(&server, "Summarise that talk").await;
        let count = model.requests().iter().filter(|seen| is_advisor(seen)).count();
        assert_eq!(count, advised, "{more}: {sent}");
        assert_eq!(sent["status"], "completed", "{more}: {sent}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_that_was_not_offered_is_an_error_and_calls_no_advisor() {
    let model = FakeModelServer::start(|seen| match seen.messages().last() {
        Some(last) if last["role"] == "user" => request(),
        _ => Reply::says(format!("It said: {}", last(seen))),
    })
    .await;
    let (_folder, server) = server_with(&model, "mode = \"single_loop\"\n").await;
    let sent = ask(&server, "Summarise that talk").await;
    assert!(sent["answer"].as_str().unwrap_or_default().contains("is offered only after"), "{sent}");
    assert!(!model.requests().iter().any(is_advisor));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failing_advisor_is_replaced_by_the_fallback_map() {
    let site = site().await;
    let url = site.url("/watch");
    let model = FakeModelServer::start(move |seen| {
        if is_advisor(seen) {
            return Reply::error(400, "no");
        }
        if seen.tool_names().iter().any(|name| name == REQUEST) {
            return request();
        }
        match seen.messages().last() {
            Some(last) if last["role"] == "user" => fetch(&url),
            _ => Reply::says(format!("It said: {}", last(seen))),
        }
    })
    .await;
    let more = "alternatives = { \"web.fetch\" = [\"notes.search\", \"video.gone\"] }";
    let (_folder, server) = server_with(&model, &settings(&site, more)).await;
    let sent = ask(&server, "Summarise that talk").await;
    let answer = sent["answer"].as_str().unwrap_or_default();
    assert!(answer.contains("notes.search: use it in place of web.fetch"), "{sent}");
    assert!(!answer.contains("video.gone"), "a skill that does not exist is not named: {sent}");
    let advice = advice(&log(&server, &sent).await);
    assert_eq!(advice.len(), 1, "{advice:?}");
    assert!(
        advice[0]["decision"].as_str().unwrap_or_default().starts_with("the fallback map suggests"),
        "{}",
        advice[0]
    );
    assert!(advice[0]["reasoning"].as_str().unwrap_or_default().contains("no model advised"), "{}", advice[0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn preferred_model_advises_and_the_sub_agent_asks() {
    let site = site().await;
    let (url, other) = (site.url("/watch"), site.url("/transcript"));
    let cheap = FakeModelServer::start(|seen| match is_advisor(seen) {
        true => Reply::says("1. web.fetch: read /transcript"),
        false => Reply::says("not asked"),
    })
    .await;
    let model = FakeModelServer::start(move |seen| {
        let last = last(seen);
        let is_sub = seen.texts_of("user").first().is_some_and(|text| text.contains("MISSION: "));
        if is_sub {
            return if last.contains("the whole talk") {
                Reply::says("It is the whole talk.")
            } else if last.contains("web.fetch: read /transcript") {
                Reply::says(format!("```cmd\nweb.fetch --url \"{other}\"\n```"))
            } else if last.contains(REQUEST) {
                Reply::says(format!(
                    "```cmd\n{REQUEST} --task \"Read the talk\" --attempts \"web.fetch, refused\"\n```"
                ))
            } else {
                Reply::says(format!("```cmd\nweb.fetch --url \"{url}\"\n```"))
            };
        }
        match seen.texts_of("tool").last() {
            Some(result) if result.contains("\"agents\"") => Reply::says(format!("Done: {result}")),
            Some(_) => Reply::calls([("get_agent_results", json!({}))]),
            None => Reply::calls([(
                "dispatch_agent",
                json!({"agent_id": "a", "mission": "Read the talk", "skills": ["web.fetch"]}),
            )]),
        }
    })
    .await;
    let more = settings(&site, "alternatives_model = \"cheap\"").replace("single_loop", "multi_agent");
    let backend = format!(
        "{more}\n[[backend]]\nname = \"big\"\nprofile = \"generic\"\nbase_url = \"{}\"\nmodel = \"m\"\n\
         [[backend]]\nname = \"small\"\nprofile = \"generic\"\ncapabilities = [\"cheap\"]\nbase_url = \"{}\"\nmodel = \"m\"\n",
        model.base_url(),
        cheap.base_url()
    );
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("annie.toml");
    std::fs::write(&path, backend).expect("written");
    let path = path.to_str().expect("a path").to_owned();
    let server = Server::start(folder.path(), &["--config", &path], &[]).await;
    let sent = ask(&server, "Summarise that talk").await;
    assert!(sent["answer"].as_str().unwrap_or_default().contains("It is the whole talk."), "{sent}");
    assert_eq!(cheap.request_count(), 1, "the advisor only");
    let log = log(&server, &sent).await;
    let advice = advice(&log);
    assert_eq!(advice.len(), 1, "{advice:?}");
    assert_eq!(advice[0]["agent"], "a", "{}", advice[0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_advice_is_not_asked_again_after_a_kill_and_a_lost_one_is() {
    for dies_in_advice in [false, true] {
        let site = site().await;
        let url = site.url("/watch");
        let is_back = Arc::new(AtomicBool::new(false));
        let has_come_back = is_back.clone();
        let model = FakeModelServer::start(move |seen| {
            let never = |reply: Reply| match has_come_back.load(Relaxed) {
                true => reply,
                false => reply.first_after(Duration::from_secs(600)),
            };
            let last = last(seen);
            if is_advisor(seen) {
                let advice = Reply::says("- none: say that it is gone");
                return if dies_in_advice { never(advice) } else { advice };
            }
            if last.contains("say that it is gone") {
                return if dies_in_advice { Reply::says("It is gone.") } else { never(Reply::says("It is gone.")) };
            }
            if seen.tool_names().iter().any(|name| name == REQUEST) {
                return request();
            }
            fetch(&url)
        })
        .await;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("annie.toml");
        let backend = format!(
            "{}\n[[backend]]\nname = \"fake\"\nprofile = \"generic\"\nbase_url = \"{}\"\nmodel = \"m\"\nretries_max = 0\n\
             first_token_ms_max = 600000\nidle_ms_max = 600000\n",
            settings(&site, ""),
            model.base_url()
        );
        std::fs::write(&path, backend).expect("written");
        let path = path.to_str().expect("a path").to_owned();
        let mut server = Server::start(folder.path(), &["--config", &path], &[]).await;
        let (_, sent) =
            server.post("/api/v1/messages", &json!({"text": "Summarise that talk"})).await.expect("an answer");
        let requests_before = if dies_in_advice { 3 } else { 4 };
        eventually("the round hangs", async || (model.request_count() == requests_before).then_some(())).await;
        server.kill();
        is_back.store(true, Relaxed);
        let server = server.again(folder.path(), &["--config", &path], &[]).await;
        let conversation = sent["conversation_id"].as_str().expect("an id");
        let log = server.stream(conversation, 0, |seen| seen.iter().any(crate::server::Sse::is_final)).await;
        let end = log.last().expect("a final event");
        assert_eq!(end.data["text"], "It is gone.", "{end:?}");
        let advisors = model.requests().iter().filter(|seen| is_advisor(seen)).count();
        assert_eq!(advisors, if dies_in_advice { 2 } else { 1 });
        let (code, out, err) = annie(folder.path(), &["replay", conversation, "--check"], &[]).await;
        assert_eq!(code, 0, "{out}{err}");
    }
}
