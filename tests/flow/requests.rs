//! Requests of skill files and web searches, through the real binary: what reaches the host, and what the model sees. All hosts are
//! on loopback.

use serde_json::{Value, json};

use super::{
    egress::{Sent, Site, page, redirect, response},
    scripts::Scripted,
};
use crate::world::eventually;

const WEATHER: &str = "---\nname: weather.now\ndescription: The weather of a city.\neffect: read\nexternal: true\narguments:\n  \
                       city: {required: true}\nrequest:\n  url: URL/v1/{city}/now\n  query: {units: metric}\nresponse:\n  \
                       fields: {temperature: /main/temp}\n---\nx\n";
const ORDER: &str = "---\nname: shop.order\ndescription: Order a thing.\nexternal: true\neffect: EFFECT\narguments:\n  thing: \
                     {required: true}\n  count: {type: integer, default: 1}\nrequest:\n  method: POST\n  url: URL/orders\n  \
                     headers: {X-Key: \"{secret:shop-key}\"}\n  json: {thing: \"{thing}\", count: \"{count}\"}\n---\nx\n";

fn json_of(status: &str, body: &Value) -> Sent {
    response(status, "content-type: application/json\r\n", body.to_string().as_bytes())
}

fn allowing(site: &Site, more: &str) -> String {
    format!("[egress]\nenabled = true\nallow_private = [\"{}\"]\n{more}", site.address)
}

/// A server with these skill files, whose `URL` is the site.
async fn with_skills(site: &Site, config: &str, files: &[(&str, &str)]) -> Scripted {
    let scripted = Scripted::start(config).await;
    for (path, text) in files {
        scripted.write(path, &text.replace("URL", &site.url("")));
        let name = path.trim_end_matches(".md").replace('/', ".");
        eventually("the skill is known", async || scripted.knows(&name).await.then_some(())).await;
    }
    scripted
}

fn type_of(outcome: &Value) -> (&str, &str) {
    (outcome["status"].as_str().unwrap_or_default(), outcome["error_type"].as_str().unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_skill_of_a_file_reaches_its_host_with_the_encoded_argument() {
    let site = Site::start(|path| match path {
        "/v1/Bad%20Homburg%2F..%2Fadmin/now?units=metric" => json_of("200 OK", &json!({"main": {"temp": 3.5}})),
        "/v1/Nowhere/now?units=metric" => json_of("404 Not Found", &json!({"message": "city not found"})),
        "/v1/Away/now?units=metric" => redirect("http://169.254.169.254/latest/meta-data/"),
        "/v1/Broken/now?units=metric" => page("<p>Sorry"),
        _ => json_of("403 Forbidden", &json!({})),
    })
    .await;
    let scripted = with_skills(&site, &allowing(&site, ""), &[("weather/now.md", WEATHER)]).await;
    let outcome = scripted.outcome(r#"weather.now {"city": "Bad Homburg/../admin"}"#).await;
    assert_eq!(outcome["status"], "success", "{outcome}");
    let data = outcome["data"].as_str().expect("data");
    assert!(data.contains("It is from outside") && data.ends_with("temperature: 3.5"), "{data}");
    assert_eq!(outcome["requests"][0]["host"], site.address.to_string(), "{outcome}");
    for (city, expected, part) in [
        ("Nowhere", ("error_permanent", "http_404"), "city not found"),
        ("Else", ("error_permanent", "http_403"), "status 403"),
        ("Away", ("error_blocked", "ssrf_blocked"), "not a public address"),
        ("Broken", ("error_permanent", "parse_error"), "not JSON"),
        ("..", ("error_permanent", "invalid_arguments"), "change the path"),
    ] {
        let outcome = scripted.outcome(&format!("weather.now {{\"city\": \"{city}\"}}")).await;
        assert_eq!(type_of(&outcome), expected, "{city}: {outcome}");
        assert!(outcome["data"].to_string().contains(part), "{city}: {outcome}");
    }
    // A broken file keeps its last good version, and a corrected one holds at once.
    scripted.write("weather/now.md", "---\nname: weather.now\nrequest: 3\n---\n");
    let changed = WEATHER.replace("URL", &site.url("")).replace("temperature:", "degrees:");
    eventually("the status names the broken file", async || {
        let log = scripted.server.log().join("\n");
        log.contains("`request` must be a mapping").then_some(())
    })
    .await;
    let outcome = scripted.outcome(r#"weather.now {"city": "Bad Homburg/../admin"}"#).await;
    assert_eq!(outcome["status"], "success", "{outcome}");
    scripted.write("weather/now.md", &changed);
    eventually("the corrected file is used", async || {
        let outcome = scripted.outcome(r#"weather.now {"city": "Bad Homburg/../admin"}"#).await;
        outcome["data"].as_str().is_some_and(|data| data.ends_with("degrees: 3.5")).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_skill_with_an_effect_sends_its_key_once_and_never_repeats_in_doubt() {
    let site = Site::start(|path| match path {
        "/orders" => json_of("500 Internal Server Error", &json!({})),
        _ => json_of("404 Not Found", &json!({})),
    })
    .await;
    let once = ORDER.replace("EFFECT", "once").replace("  headers: {X-Key: \"{secret:shop-key}\"}\n", "");
    let again = once.replace("effect: once", "effect: idempotent").replace("shop.order", "shop.again");
    let files = [("shop/order.md", once.as_str()), ("shop/again.md", again.as_str())];
    let scripted = with_skills(&site, &allowing(&site, ""), &files).await;
    let outcome = scripted.outcome(r#"shop.order {"thing": "tea\", \"count\": 99"}"#).await;
    assert_eq!(outcome["status"], "unknown", "{outcome}");
    let sent: Value = serde_json::from_str(&site.bodies()[0]).expect("JSON");
    assert_eq!(sent, json!({"thing": "tea\", \"count\": 99", "count": 1}));
    assert_eq!(site.heads().len(), 1, "{:?}", site.heads());
    assert!(!site.heads()[0].contains("idempotency-key"), "{:?}", site.heads());
    scripted.outcome(r#"shop.again {"thing": "tea"}"#).await;
    let keys: Vec<String> = site.heads()[1..]
        .iter()
        .filter_map(|head| head.lines().find(|line| line.starts_with("idempotency-key")).map(str::to_owned))
        .collect();
    assert!(keys.len() == 2 && keys[0] == keys[1], "run again under the same key: {:?}", site.heads());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_skill_sends_no_secret_to_a_host_that_the_operator_did_not_name() {
    let site = Site::start(|_| json_of("200 OK", &json!({"ok": true}))).await;
    let order = ORDER.replace("EFFECT", "once");
    let scripted = with_skills(&site, &allowing(&site, ""), &[("shop/order.md", &order)]).await;
    let outcome = scripted.outcome(r#"shop.order {"thing": "tea"}"#).await;
    assert_eq!(type_of(&outcome), ("error_blocked", "credential_unavailable"), "{outcome}");
    assert!(outcome["data"].to_string().contains("egress.credentials"), "{outcome}");
    assert!(site.heads().is_empty(), "{:?}", site.heads());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_skill_does_not_exist_unless_requests_are_enabled() {
    let site = Site::start(|_| json_of("200 OK", &json!({}))).await;
    let scripted = Scripted::start("").await;
    scripted.write("weather/now.md", &WEATHER.replace("URL", &site.url("")));
    eventually("the log says why", async || {
        let log = scripted.server.log().join("\n");
        log.contains("it sends a request to another machine, which is switched off").then_some(())
    })
    .await;
    assert!(!scripted.knows("weather.now").await && !scripted.knows("web.search").await);
}

// web.search

fn results(n: usize) -> Value {
    let of = |n| json!({"title": format!("Title {n}"), "url": format!("https://r{n}.test/"), "content": format!("Text <b>{n}</b>")});
    json!({"query": "x", "results": (1..=n).map(of).collect::<Vec<_>>()})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn web_search_shows_titles_addresses_and_texts_of_a_searxng_instance() {
    let site = Site::start(|path| match path {
        "/search?q=tea%20%26%20cake%3F&format=json" => json_of("200 OK", &results(3)),
        "/search?q=nothing&format=json" => json_of("200 OK", &results(0)),
        "/search?q=limited&format=json" => json_of("429 Too Many Requests", &json!({})),
        "/search?q=paused&format=json" => response("429 Too Many Requests", "retry-after: 30\r\n", b"{}"),
        "/search?q=page&format=json" => page("<h1>SearXNG</h1>"),
        _ => json_of("403 Forbidden", &json!({})),
    })
    .await;
    let config = allowing(&site, &format!("[web_search]\nkind = \"searxng\"\nurl = \"{}\"\n", site.url("/search")));
    let scripted = Scripted::start(&config).await;
    let outcome = scripted.outcome(r#"web.search {"query": "tea & cake?", "count": 2}"#).await;
    let data = outcome["data"].as_str().expect("data");
    assert!(data.contains("from outside and not by the user"), "{data}");
    assert!(data.contains("1. Title 1\n   https://r1.test/\n   Text 1\n") && !data.contains("Title 3"), "{data}");
    for (query, expected) in [
        ("nothing", ("error_permanent", "empty_result")),
        ("limited", ("error_transient", "http_429")),
        ("paused", ("error_transient", "http_429")),
        ("page", ("error_permanent", "parse_error")),
        ("denied", ("error_permanent", "http_403")),
    ] {
        let outcome = scripted.outcome(&format!("web.search {{\"query\": \"{query}\"}}")).await;
        assert_eq!(type_of(&outcome), expected, "{query}: {outcome}");
    }
    let sent = |query: &str| site.heads().iter().filter(|head| head.contains(query)).count();
    assert_eq!((sent("q=limited"), sent("q=paused")), (2, 1), "a pause of 30 s is not cut short");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn web_fetch_obeys_robots_only_if_the_setting_says_so() {
    let serve = |path: &str| match path {
        "/robots.txt" => response("200 OK", "content-type: text/plain\r\n", b"User-agent: *\nDisallow: /private\n"),
        _ => page("<p>Hello"),
    };
    let site = Site::start(serve).await;
    let scripted = Scripted::start(&allowing(&site, "robots = true\n")).await;
    let fetch = |path: &str| format!("web.fetch {}", json!({"url": site.url(path)}));
    assert_eq!(scripted.outcome(&fetch("/open")).await["status"], "success");
    let outcome = scripted.outcome(&fetch("/private/x")).await;
    assert_eq!(type_of(&outcome), ("error_blocked", "robots_refused"), "{outcome}");
    let asked = site.heads().iter().filter(|head| head.starts_with("get /robots.txt")).count();
    assert_eq!((asked, site.heads().len()), (1, 2), "{:?}", site.heads());
    let other = Scripted::start(&allowing(&site, "")).await;
    assert_eq!(other.outcome(&fetch("/private/x")).await["status"], "success");
}
