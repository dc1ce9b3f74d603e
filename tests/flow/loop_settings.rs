//! Every key of `[loop_guard]`, `[error_router]`, `[result_checks]` and `[cache]` that other tests do not change in a file: the
//! server starts with the key, and its behaviour differs from the usual one.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use annie_testkit::model_server::{FakeModelServer, Reply, Seen};
use serde_json::{Value, json};

use super::{
    bad_models::{ask, server_with},
    egress::{Site, page, refusal, response},
    scripts::is_sandboxed,
};
use crate::{server::Server, world::eventually};

/// Words of which no two are nearly equal.
const WORDS: [&str; 30] = [
    "amber",
    "bridge",
    "candle",
    "dolphin",
    "engine",
    "feather",
    "glacier",
    "harbour",
    "island",
    "jigsaw",
    "kettle",
    "lantern",
    "meadow",
    "needle",
    "orchard",
    "pepper",
    "quarry",
    "ribbon",
    "saddle",
    "thunder",
    "umbrella",
    "velvet",
    "walnut",
    "xylophone",
    "yoghurt",
    "zeppelin",
    "basket",
    "copper",
    "drawer",
    "eleven",
];

/// The `n`th call of a model that plays a script by its name, and how many calls it makes.
fn call(script: &str, n: usize, site: &str) -> Option<(&'static str, Value)> {
    let search = |word: &str| ("tasks.search", json!({"query": word}));
    let memories = |limit: usize| ("memory.list", json!({"limit": limit}));
    let (calls, call) = match script {
        "same" => (14, search("alpha")),
        "spaced" => (26, search(if n.is_multiple_of(4) { "alpha" } else { WORDS[n % WORDS.len()] })),
        "alternating" => (12, search(["alpha", "bravo"][n % 2])),
        "three" => (18, search(WORDS[n % 3])),
        "five" => (18, search(WORDS[n % 5])),
        "rotating" => (14, memories([5, 5, 6, 6, 5, 6, 5, 6, 5, 6, 5, 6, 5, 6][n.min(13)])),
        "unknown" => (8, ("tasks.nothing", json!({}))),
        "near" => (12, ("notes.read", json!({"title": format!("gone{}", "x".repeat(n))}))),
        "half" => {
            let letter = char::from(b'a' + u8::try_from(n % 26).unwrap_or_default());
            (9, ("notes.read", json!({"title": format!("gone {letter}{letter}{letter}")})))
        }
        "failing" if n.is_multiple_of(2) => (12, ("notes.read", json!({"title": WORDS[n]}))),
        "failing" => (12, ("tasks.get", json!({"id": 1_000 + n}))),
        "polling" => (12, ("jobs.status", json!({"query": "alpha"}))),
        "changing" => (10, ("web.fetch", json!({"url": format!("{site}/news")}))),
        "refused" => (6, ("web.fetch", json!({"url": format!("{site}/closed")}))),
        other => panic!("no script {other}"),
    };
    (n < calls).then_some(call)
}

struct Lab {
    site: Site,
    model: FakeModelServer,
}

impl Lab {
    async fn start() -> Self {
        let count = AtomicUsize::new(0);
        let site = Site::start(move |path| match path {
            "/news" => page(&format!("<p>Headline {}</p>", WORDS[count.fetch_add(1, Relaxed) % WORDS.len()])),
            _ => refusal(403),
        })
        .await;
        let url = site.url("");
        let model = FakeModelServer::start(move |seen| {
            let messages = seen.messages();
            let own = messages.iter().rev().take_while(|message| message["role"] != "user");
            let results = own.filter(|message| message["role"] == "tool").count();
            let asked = seen.last_user_text();
            let script = asked.split("script=").nth(1).and_then(|rest| rest.split_whitespace().next());
            match script.and_then(|script| call(script, results, &url)) {
                Some((skill, arguments)) => {
                    Reply::calls([("use_skill", json!({"skill": skill, "arguments": arguments}))])
                }
                None => Reply::says("That is all."),
            }
        })
        .await;
        Self { site, model }
    }

    /// A server with these lines in its configuration.
    async fn serve(&self, config: &str) -> (tempfile::TempDir, Server) {
        let more = format!(
            "mode = \"single_loop\"\n{config}\n[turn]\nsingle_loop_calls_max = 40\nready_answers = false\n[egress]\n\
             enabled = true\nallow_private = [\"{}\"]\n",
            self.site.address
        );
        let (folder, server) = server_with(&self.model, &more).await;
        let file = folder.path().join("skills/jobs/status.md");
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("made");
        let text =
            "---\nname: jobs.status\ndescription: d\neffect: read\nexternal: false\nhandler: tasks.search\n---\nx\n";
        std::fs::write(file, text).expect("written");
        eventually("the skill is known", async || {
            let (_, list) = server.get("/api/v1/skills").await;
            list["skills"].as_array()?.iter().any(|one| one["name"] == "jobs.status").then_some(())
        })
        .await;
        (folder, server)
    }

    /// What the guard finds in a script, as (detector, level, count).
    async fn found(&self, server: &Server, script: &str) -> Vec<(String, String, u64)> {
        let body = json!({"text": format!("Play script={script} now"), "conversation_key": script});
        let (status, sent) = server.post("/api/v1/messages?wait=20", &body).await.expect("the server answers");
        assert_eq!(status, 200, "{sent}");
        let id = sent["conversation_id"].as_str().expect("an id");
        let (_, log) = server.get(&format!("/api/v1/conversations/{id}/events?limit=500")).await;
        let loops = log["events"].as_array().expect("events").iter().filter(|event| event["kind"] == "loop_detected");
        let word = |event: &Value, key: &str| event[key].as_str().unwrap_or_default().to_owned();
        loops
            .map(|event| (word(event, "detector"), word(event, "level"), event["count"].as_u64().unwrap_or_default()))
            .collect()
    }
}

/// The first thing that a detector found at a level: its count.
fn first(found: &[(String, String, u64)], detector: &str, level: &str) -> Option<u64> {
    found.iter().find(|(d, l, _)| d == detector && l == level).map(|(_, _, count)| *count)
}

/// The key, the script, what is to be found first with it and without it.
type Threshold = (&'static str, &'static str, &'static str, &'static str, Option<u64>, Option<u64>);

async fn thresholds(base: &str, rows: &[Threshold]) {
    let lab = Lab::start().await;
    let (_usual_folder, usual) = lab.serve(&format!("[loop_guard]\n{base}")).await;
    for (key, script, detector, level, with, without) in rows {
        let (_folder, server) = lab.serve(&format!("[loop_guard]\n{key}\n{base}")).await;
        let found = lab.found(&server, script).await;
        assert_eq!(first(&found, detector, level), *with, "{key}, {script}: {found:?}");
        // A conversation knows the failures of the last one with its key, so each script is played once for one server.
        let before = lab.found(&usual, &format!("{script} {key}")).await;
        assert_eq!(first(&before, detector, level), *without, "without {key}, {script}: {before:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loop_guard_thresholds_of_the_file_decide_when_it_warns_and_refuses() {
    let rows: [Threshold; 14] = [
        ("warning_calls = 2", "same", "generic_repeat", "warning", Some(2), Some(3)),
        ("critical_calls = 4", "same", "generic_repeat", "critical", Some(4), Some(5)),
        ("window_calls = 16", "spaced", "generic_repeat", "critical", None, Some(5)),
        ("unknown_tool_calls = 2", "unknown", "unknown_tool_repeat", "critical", Some(2), Some(3)),
        ("near_warning_calls = 2", "near", "near_identical", "warning", Some(2), Some(4)),
        ("near_critical_calls = 5", "near", "near_identical", "critical", Some(5), Some(7)),
        ("near_percent_max = 50", "half", "near_identical", "warning", Some(4), None),
        ("cycle_warning_laps = 2", "three", "cycle", "warning", Some(2), Some(3)),
        ("cycle_critical_laps = 5", "three", "cycle", "critical", Some(5), Some(4)),
        ("cycle_calls_max = 5", "five", "cycle", "warning", Some(3), None),
        ("ping_pong_calls = 6", "alternating", "ping_pong", "warning", None, Some(4)),
        ("changing_calls = 5", "changing", "changing_result", "critical", Some(5), None),
        ("cascade_warning_calls = 3", "failing", "error_cascade", "warning", Some(3), Some(4)),
        ("known_failure_calls = 2", "refused", "known_failure", "critical", Some(2), Some(1)),
    ];
    thresholds("", &rows).await;
    let cascade = ("cascade_critical_calls = 5", "failing", "error_cascade", "critical", Some(5), Some(8));
    let churn = ("churn_variant_calls = 2", "rotating", "argument_churn", "warning", Some(4), Some(6));
    thresholds("detectors = { ping_pong = false }", &[cascade, churn]).await;
    let breaker = ("breaker_calls = 6", "same", "global_circuit_breaker", "critical", Some(6), Some(8));
    thresholds("detectors = { generic_repeat = false }", &[breaker]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loop_guard_switches_of_the_file_act() {
    let lab = Lab::start().await;
    let (_folder, usual) = lab.serve("[loop_guard]\nchanging_calls = 5").await;
    for (detector, script) in [
        ("generic_repeat", "same"),
        ("known_poll_no_progress", "polling"),
        ("ping_pong", "alternating"),
        ("unknown_tool_repeat", "unknown"),
        ("cycle", "three"),
        ("near_identical", "near"),
        ("changing_result", "changing"),
        ("error_cascade", "failing"),
        ("known_failure", "refused"),
    ] {
        let names = |found: &[(String, String, u64)]| found.iter().any(|(name, ..)| name == detector);
        assert!(names(&lab.found(&usual, script).await), "{detector} finds the script");
        let config = format!("[loop_guard]\nchanging_calls = 5\ndetectors = {{ {detector} = false }}");
        let (_folder, server) = lab.serve(&config).await;
        let found = lab.found(&server, script).await;
        assert!(!names(&found), "{detector} is off: {found:?}");
    }
    for (more, detector, script, usual) in [
        ("generic_repeat = false", "global_circuit_breaker", "same", true),
        ("generic_repeat = false, global_circuit_breaker = false", "global_circuit_breaker", "same", false),
        ("ping_pong = false", "argument_churn", "rotating", true),
        ("ping_pong = false, argument_churn = false", "argument_churn", "rotating", false),
    ] {
        let (_folder, server) = lab.serve(&format!("[loop_guard]\ndetectors = {{ {more} }}")).await;
        let found = lab.found(&server, script).await;
        assert_eq!(found.iter().any(|(name, ..)| name == detector), usual, "{more}: {found:?}");
    }
    for (key, wanted) in [
        ("", vec![("warning", 3), ("critical", 5), ("critical", 5)]),
        ("vetoes_max = 1", vec![("warning", 3), ("critical", 5)]),
        ("enabled = false", vec![]),
        ("pollers = [\"tasks.*\"]", vec![]),
        ("preset = \"openclaw\"", vec![("warning", 10)]),
    ] {
        let (_folder, server) = lab.serve(&format!("[loop_guard]\n{key}")).await;
        let found = lab.found(&server, "same").await;
        let found: Vec<(&str, u64)> = found.iter().map(|(_, level, count)| (level.as_str(), *count)).collect();
        assert_eq!(found, wanted, "{key:?}");
    }
}

/// A model that calls the skill that the user names as `run=NAME`, with a query.
async fn runner() -> FakeModelServer {
    FakeModelServer::start(|seen: &Seen| {
        let is_asked = seen.messages().last().is_some_and(|message| message["role"] == "user");
        let asked = seen.last_user_text();
        match asked.split("run=").nth(1).filter(|_| is_asked).and_then(|rest| rest.split_whitespace().next()) {
            Some(skill) => {
                let arguments = if skill == "shop.find" { json!({"query": "zebra saddle"}) } else { json!({}) };
                Reply::calls([("use_skill", json!({"skill": skill, "arguments": arguments}))])
            }
            None => Reply::says("That is all."),
        }
    })
    .await
}

/// The event of the run of a skill on a server with these settings.
async fn finished(site: &Site, more: &str, skill: &str, file: &str) -> Value {
    let model = runner().await;
    let config =
        format!("mode = \"single_loop\"\n[egress]\nenabled = true\nallow_private = [\"{}\"]\n{more}", site.address);
    let (folder, server) = server_with(&model, &config).await;
    let path = folder.path().join("skills").join(skill.replace('.', "/")).with_extension("md");
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    std::fs::write(path, format!("---\nname: {skill}\ndescription: d\neffect: read\n{file}---\nx\n")).expect("written");
    eventually("the skill is known", async || {
        let (_, list) = server.get("/api/v1/skills").await;
        list["skills"].as_array()?.iter().any(|one| one["name"] == skill).then_some(())
    })
    .await;
    let sent = ask(&server, &format!("Please run={skill} for me")).await;
    let id = sent["conversation_id"].as_str().expect("an id");
    let (_, log) = server.get(&format!("/api/v1/conversations/{id}/events?limit=500")).await;
    let found =
        log["events"].as_array().expect("events").iter().find(|event| event["kind"] == "skill_finished").cloned();
    found.unwrap_or_else(|| panic!("{skill} was not run: {sent}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn result_checks_and_the_wait_before_a_retry_are_those_of_the_file() {
    let tried: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let tries = tried.clone();
    let is_late = move || {
        let mut tries = tries.lock().expect("no panic");
        tries.push(Instant::now());
        !tries.len().is_multiple_of(2)
    };
    let site = Site::start(move |path| match path {
        "/late" if is_late() => refusal(503),
        _ => response("200 OK", "content-type: text/plain\r\n", b"Tea costs three euros in all shops of this town."),
    })
    .await;
    let find = format!(
        "external: true\narguments:\n  query: {{required: true}}\nrequest:\n  url: {}\n  query: {{q: \"{{query}}\"}}\n\
         response: {{type: text}}\n",
        site.url("/find")
    );
    let show = format!("external: true\nrequest: {{url: {:?}}}\nresponse: {{type: text}}\n", site.url("/show"));
    let late = format!("external: true\nrequest: {{url: {:?}}}\nresponse: {{type: text}}\n", site.url("/late"));
    for (settings, skill, file, is_doubted) in [
        ("", "shop.find", &find, true),
        ("[result_checks]\noverlap_percent_min = 0\n", "shop.find", &find, false),
        ("[result_checks]\nflag_below_percent = 0\n", "shop.find", &find, false),
        ("", "shop.show", &show, false),
        ("[result_checks]\nsizes = { \"shop.show\" = { chars_min = 5000 } }\n", "shop.show", &show, true),
    ] {
        let event = finished(&site, settings, skill, file).await;
        let doubts = event["outcome"]["doubts"].as_array().map_or(0, Vec::len);
        assert_eq!(
            (event["outcome"]["status"].as_str(), doubts > 0),
            (Some("success"), is_doubted),
            "{settings}: {event}"
        );
    }
    for (settings, at_least_ms) in [("", 250), ("[error_router]\nretry_wait_ms = 1500\n", 1_500)] {
        let event = finished(&site, settings, "shop.late", &late).await;
        assert_eq!(event["outcome"]["status"], "success", "{event}");
        let waited = {
            let tried = tried.lock().expect("no panic");
            tried[tried.len() - 1] - tried[tried.len() - 2]
        };
        assert!(waited >= Duration::from_millis(at_least_ms), "{settings}: {waited:?}");
        assert!(at_least_ms > 250 || waited < Duration::from_millis(1_500), "the usual wait is short: {waited:?}");
    }
    if is_sandboxed() {
        let empty = "external: false\nrun: [echo, \"[]\"]\n";
        for (settings, is_doubted) in [("", true), ("[result_checks]\nempty = false\n", false)] {
            let event = finished(&site, settings, "shop.empty", empty).await;
            let doubts = event["outcome"]["doubts"].as_array().map_or(0, Vec::len);
            assert_eq!(doubts > 0, is_doubted, "{settings}: {event}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reply_cache_keeps_as_many_replies_as_the_file_says() {
    let model = FakeModelServer::start(|_| Reply::says("Good day.")).await;
    for (entries, is_kept) in [(1, false), (2, true)] {
        let more = format!(
            "mode = \"single_loop\"\n[cache]\nseconds = 300\nentries_max = {entries}\n[prompt]\nshort_for_small_talk = true\n"
        );
        let (_folder, server) = server_with(&model, &more).await;
        let mut hits = 0;
        // The prompt contains the minute of the user's clock, so one of the rounds may fall into two minutes.
        for round in 0..3 {
            for (n, text) in ["Hello!", "Thanks!", "Hello!"].into_iter().enumerate() {
                let before = model.request_count();
                let body = json!({"text": text, "conversation_key": format!("{round}.{n}")});
                server.post("/api/v1/messages?wait=20", &body).await.expect("the server answers");
                hits += u64::from(n == 2 && model.request_count() == before);
            }
        }
        assert_eq!(hits > 0, is_kept, "{entries} entries: {hits} of 3 replies were used again");
    }
}
