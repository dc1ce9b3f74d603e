//! Failures of skills through the real binary: they are typed and routed, passing ones are retried by the kernel, and lasting ones
//! lead to an alternative that exists.

use std::{
    path::Path,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use annie_testkit::model_server::{FakeModelServer, Reply, Seen};
use serde_json::{Value, json};

use super::{
    bad_models::{ask, server_with},
    command_line::annie,
    egress::{Site, page, refusal, response},
    scripts::is_sandboxed,
};
use crate::{server::Server, world::eventually};

fn use_skill(name: &str, url: &str) -> Reply {
    Reply::calls([("use_skill", json!({"skill": name, "arguments": {"url": url}}))])
}

fn last(seen: &Seen) -> String {
    seen.messages().last().map(|message| message["content"].to_string()).unwrap_or_default()
}

fn settings(site: &Site, more: &str) -> String {
    format!("mode = \"single_loop\"\n[egress]\nenabled = true\nallow_private = [\"{}\"]\n{more}", site.address)
}

async fn log(server: &Server, sent: &Value) -> Vec<Value> {
    let conversation = sent["conversation_id"].as_str().expect("a conversation");
    let (_, log) = server.get(&format!("/api/v1/conversations/{conversation}/events?limit=500")).await;
    log["events"].as_array().expect("events").clone()
}

fn decisions(log: &[Value]) -> Vec<String> {
    let decided = log.iter().filter(|event| event["component"] == "error_router");
    decided.map(|event| event["decision"].as_str().unwrap_or_default().to_owned()).collect()
}

/// Puts a skill file into the user's folder, and waits until it is known.
async fn add_skill(data: &Path, server: &Server, name: &str, head: &str) {
    let (domain, verb) = name.split_once('.').expect("a domain and a verb");
    let folder = data.join("skills").join(domain);
    std::fs::create_dir_all(&folder).expect("made");
    std::fs::write(folder.join(format!("{verb}.sh")), "echo 'Transcript: the whole talk.'\n").expect("written");
    let text = format!("---\nname: {name}\ndescription: Shows a page.\neffect: read\nexternal: true\n{head}---\nx\n");
    std::fs::write(folder.join(format!("{verb}.md")), text).expect("written");
    eventually("the skill is known", async || {
        let (_, list) = server.get("/api/v1/skills").await;
        list["skills"].as_array()?.iter().any(|one| one["name"] == name).then_some(())
    })
    .await;
}

const TRANSCRIPT: &str =
    "run: [sh, ./transcript.sh]\narguments:\n  url: {type: text, description: The address., required: true}\n";
const ALTERNATIVE: &str = "[error_router]\nalternatives = { \"web.fetch\" = [\"video.gone\", \"video.transcript\"] }\n";

/// A model that calls `web.fetch` with the same address again and again, until a result has what it needs.
async fn blind(url: String) -> FakeModelServer {
    FakeModelServer::start(move |seen| match last(seen).contains("the whole talk") {
        true => Reply::says("It is about the whole talk."),
        false => use_skill("web.fetch", &url),
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_page_is_read_by_the_alternative_skill_in_the_same_round() {
    if !is_sandboxed() {
        return;
    }
    let site = Site::start(|_| refusal(403)).await;
    let model = blind(site.url("/watch?v=1")).await;
    let (folder, server) = server_with(&model, &settings(&site, ALTERNATIVE)).await;
    add_skill(folder.path(), &server, "video.transcript", TRANSCRIPT).await;
    let sent = ask(&server, "Summarise that video").await;
    assert_eq!(sent["answer"], "It is about the whole talk.", "{sent}");
    assert_eq!((site.heads().len(), model.request_count()), (1, 2), "no round was wasted");
    let log = log(&server, &sent).await;
    assert_eq!(decisions(&log), ["replan: the kernel runs video.transcript in place of web.fetch"]);
    let decided = log.iter().find(|event| event["component"] == "error_router").expect("an event");
    assert!(decided["reasoning"].as_str().unwrap_or_default().starts_with("http_403; "), "{decided}");
    assert_eq!(decided["alternatives"], json!(["report_failure"]), "{decided}");
    let finished = log.iter().find(|event| event["kind"] == "skill_finished").expect("an event");
    assert_eq!(finished["outcome"]["instead"]["skill"], "video.transcript", "{finished}");

    // Switched off, or about a skill that a rule forbids: the kernel does not run it.
    let rule = "[[hook]]\nname = \"no-video\"\npoint = \"before_skill\"\nkind = \"refuse\"\n\
                when = { skills = [\"video.*\"] }\ntext = \"No.\"\n";
    for more in [format!("{ALTERNATIVE}run_alternatives = false\n"), format!("{ALTERNATIVE}{rule}")] {
        let model = blind(site.url("/watch?v=1")).await;
        let (folder, server) = server_with(&model, &settings(&site, &more)).await;
        add_skill(folder.path(), &server, "video.transcript", TRANSCRIPT).await;
        let sent = ask(&server, "Summarise that video").await;
        let answer = sent["answer"].as_str().unwrap_or_default();
        assert!(answer.starts_with("I had to stop"), "{more}: {sent}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failure_whose_skill_file_says_to_report_it_is_not_passed_to_the_alternative() {
    if !is_sandboxed() {
        return;
    }
    let site = Site::start(|_| refusal(403)).await;
    for (own, ran) in [("", true), ("fallback: {http_403: [report_failure]}\n", false)] {
        let model = FakeModelServer::start(|seen| match last(seen).contains("Run video.page") {
            true => Reply::calls([("use_skill", json!({"skill": "video.page", "arguments": {}}))]),
            false => Reply::says("That is all."),
        })
        .await;
        let (folder, server) = server_with(&model, &settings(&site, "")).await;
        add_skill(folder.path(), &server, "video.transcript", "run: [sh, ./transcript.sh]\n").await;
        let head = format!("request: {{url: {:?}}}\nalternatives: [video.transcript]\n{own}", site.url("/x"));
        add_skill(folder.path(), &server, "video.page", &head).await;
        let sent = ask(&server, "Run video.page").await;
        assert_eq!(sent["answer"], "That is all.", "{sent}");
        let decisions = decisions(&log(&server, &sent).await);
        let has_run = decisions.iter().any(|d| d == "replan: the kernel runs video.transcript in place of video.page");
        assert_eq!(has_run, ran, "{own}: {decisions:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_page_is_requested_once_and_the_model_learns_of_a_skill_that_exists() {
    let site =
        Site::start(|path| if path == "/transcript" { page("<p>the whole talk</p>") } else { refusal(403) }).await;
    let (url, other) = (site.url("/watch?v=1"), site.url("/transcript"));
    // The model repeats itself, and changes its way only when it is stopped.
    let model = FakeModelServer::start(move |seen| {
        let last = last(seen);
        if last.contains("the whole talk") {
            Reply::says("It is about the whole talk.")
        } else if last.contains("[blocked]") {
            use_skill("video.cache", &other)
        } else {
            use_skill("web.fetch", &url)
        }
    })
    .await;
    let more = "[error_router]\nalternatives = { \"web.fetch\" = [\"video.gone\", \"video.cache\"] }\nrun_alternatives = false\n";
    let (folder, server) = server_with(&model, &settings(&site, more)).await;
    add_skill(folder.path(), &server, "video.cache", "handler: web.fetch\n").await;
    let sent = ask(&server, "Summarise that video").await;
    assert_eq!(sent["answer"], "It is about the whole talk.", "{sent}");
    let watched = site.heads().iter().filter(|head| head.starts_with("get /watch")).count();
    assert_eq!((watched, model.request_count()), (1, 4), "one round was wasted");
    let shown: Vec<String> = model.requests().iter().map(last).collect();
    assert!(shown[1].contains("Use video.cache for this instead."), "{}", shown[1]);
    assert!(!shown[1].contains("video.gone"), "a skill that does not exist is not named: {}", shown[1]);
}

/// A model that goes on with the same address until a text that it reads names a skill to use, and, if it is stubborn, until it is
/// refused as well.
async fn led(url: String, stubborn: bool) -> FakeModelServer {
    FakeModelServer::start(move |seen| {
        let shown: String = seen.messages().iter().map(|message| message["content"].to_string()).collect();
        let last = last(seen);
        if last.contains("the whole talk") {
            return Reply::says("It is about the whole talk.");
        }
        if let Some(found) = last.split("http://").nth(1).filter(|_| last.contains("Results of a web search")) {
            let address = found.split(['\\', ' ', '"']).next().unwrap_or_default();
            return use_skill("web.fetch", &format!("http://{address}"));
        }
        let is_led = shown.contains("Use web.search for this instead.") && (!stubborn || last.contains("[blocked]"));
        match is_led {
            true => Reply::calls([("use_skill", json!({"skill": "web.search", "arguments": {"query": "that talk"}}))]),
            false => use_skill("web.fetch", &url),
        }
    })
    .await
}

/// With a search engine and nothing else set: the alternatives are those of the shipped skill files.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_page_leads_to_the_alternative_of_the_shipped_skill_file_and_to_an_answer() {
    for (stubborn, mode_rounds) in [(false, 4), (true, 5)] {
        let own = std::sync::Arc::new(std::sync::OnceLock::new());
        let known = own.clone();
        let site = Site::start(move |path| match path {
            "/transcript" => page("<p>the whole talk</p>"),
            _ if path.starts_with("/search") => {
                let url: &String = known.get().expect("the site has begun");
                let found = json!({"title": "That talk", "url": url, "content": "With its text."});
                let body = json!({"results": [found]}).to_string();
                response("200 OK", "content-type: application/json\r\n", body.as_bytes())
            }
            _ => refusal(403),
        })
        .await;
        own.set(site.url("/transcript")).expect("set once");
        let model = led(site.url("/watch?v=1"), stubborn).await;
        let more = format!("[web_search]\nkind = \"searxng\"\nurl = {:?}\n", site.url("/search"));
        let (_folder, server) = server_with(&model, &settings(&site, &more)).await;
        let sent = ask(&server, "Summarise that video").await;
        assert_eq!(sent["answer"], "It is about the whole talk.", "{sent}");
        let watched = site.heads().iter().filter(|head| head.starts_with("get /watch")).count();
        assert_eq!((watched, model.request_count()), (1, mode_rounds), "at most one round was wasted");
        let decided = decisions(&log(&server, &sent).await);
        assert_eq!(decided, ["replan: use_alternative_skill after web.fetch"], "stubborn: {stubborn}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passing_failure_of_a_reading_skill_is_retried_once_by_the_kernel() {
    let requests = async |failures: usize, more: &str| {
        let before = AtomicUsize::new(0);
        let site = Site::start(move |_| match before.fetch_add(1, Relaxed) < failures {
            true => refusal(503),
            false => page("<p>the whole talk</p>"),
        })
        .await;
        let url = site.url("/");
        let model = FakeModelServer::start(move |seen| match seen.messages().last() {
            Some(last) if last["role"] == "user" => use_skill("web.fetch", &url),
            _ => Reply::says(format!("Read: {}", last(seen).contains("the whole talk"))),
        })
        .await;
        let (_folder, server) = server_with(&model, &settings(&site, more)).await;
        let sent = ask(&server, "What is on that page?").await;
        let answer = sent["answer"].as_str().unwrap_or_default().to_owned();
        (answer, site.heads().len(), decisions(&log(&server, &sent).await))
    };
    let again = "retry: the kernel runs web.fetch again".to_owned();
    let (answer, count, decided) = requests(1, "").await;
    assert_eq!((answer.as_str(), count, decided), ("Read: true", 2, vec![again.clone()]));
    let (answer, count, decided) = requests(9, "").await;
    let report = "report: report_failure after web.fetch".to_owned();
    assert_eq!((answer.as_str(), count, decided), ("Read: false", 2, vec![again, report]), "once only");
    let (answer, count, _) = requests(1, "[error_router]\nretry_reads = false\n").await;
    assert_eq!((answer.as_str(), count), ("Read: false", 1), "the switch acts");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn page_that_keeps_programs_out_is_flagged_to_the_model_and_shown() {
    let site = Site::start(|_| page("<p>Please verify you are human to go on.</p>")).await;
    let doubts = async |more: &str| {
        let url = site.url("/");
        let model = FakeModelServer::start(move |seen| match seen.messages().last() {
            Some(last) if last["role"] == "user" => use_skill("web.fetch", &url),
            _ => Reply::says("I read it."),
        })
        .await;
        let (folder, server) = server_with(&model, &settings(&site, more)).await;
        let sent = ask(&server, "What is on that page?").await;
        let log = log(&server, &sent).await;
        let finished = log.iter().find(|event| event["kind"] == "skill_finished").expect("an event").clone();
        let (_, _, watched) = annie(folder.path(), &["ask", "Read it again"], &[]).await;
        (last(model.requests().get(1).expect("a second round")), finished["outcome"].clone(), watched)
    };
    let (shown, outcome, watched) = doubts("").await;
    assert!(
        shown.contains("[confidence 0.10] This may not answer the request: it looks like a page that keeps"),
        "{shown}"
    );
    assert_eq!(outcome["confidence"], json!(0.1), "{outcome}");
    assert!(watched.contains("web.fetch … confidence 0.10: it looks like"), "{watched}");
    let (shown, outcome, _) = doubts("[result_checks]\nguard_pages = false\n").await;
    assert!(!shown.contains("[confidence"), "the switch acts: {shown}");
    assert_eq!(outcome["confidence"], json!(1.0), "{outcome}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_go_up_the_ladder_for_one_goal_whatever_is_called() {
    let site = Site::start(|_| refusal(403)).await;
    let pages = ["/watch", "/mirror-of-the-talk", "/some/other/place"].map(|path| site.url(path));
    let model = FakeModelServer::start(move |seen| {
        let results = seen.messages().iter().filter(|message| message["role"] == "tool").count();
        pages.get(results).map_or_else(|| Reply::says("I could not."), |url| use_skill("web.fetch", url))
    })
    .await;
    let ladder = async |more: &str| {
        let (_folder, server) = server_with(&model, &settings(&site, more)).await;
        let sent = ask(&server, "Summarise that video").await;
        decisions(&log(&server, &sent).await)
    };
    let usual = [
        "replan: try_alternative_url after web.fetch",
        "replan: try_alternative_source after web.fetch",
        "report: report_failure after web.fetch",
    ];
    assert_eq!(ladder("").await, usual);
    let own = "[error_router.chains]\nhttp_403 = [\"try_simpler_request\", \"broaden_query\"]\n";
    let wanted = [
        "decompose: try_simpler_request after web.fetch",
        "replan: broaden_query after web.fetch",
        "report: report_failure after web.fetch",
    ];
    assert_eq!(ladder(own).await, wanted, "the configuration extends the chains");
}
