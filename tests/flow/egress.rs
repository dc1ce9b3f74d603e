//! Requests of skills to other machines: `web.fetch` through the real binary, and the client against sites that misbehave. All
//! sites are on loopback; none of these tests sends anything further.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use annie_core::ports::{Egress, EgressError, EgressRequest, Exchange, Fut};
use annie_skillkit::{EgressLimits, EgressParts, EgressRules, HostPort, HttpEgress, Lookup};
use annie_testkit::model_server::{FakeModelServer, Reply};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use super::bad_models::{ask, server_with};
use crate::server::Server;

/// What a site sends for one request.
pub(super) struct Sent {
    bytes: Vec<u8>,
    /// The connection stays open without further bytes.
    stalls: bool,
}

pub(super) fn response(status: &str, headers: &str, body: &[u8]) -> Sent {
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n{headers}\r\n", body.len());
    Sent { bytes: [head.as_bytes(), body].concat(), stalls: false }
}

pub(super) fn page(body: &str) -> Sent {
    response("200 OK", "content-type: text/html\r\n", body.as_bytes())
}

pub(super) fn redirect(to: &str) -> Sent {
    response("302 Found", &format!("location: {to}\r\n"), b"")
}

type Script = dyn Fn(&str) -> Sent + Send + Sync;

/// A site on a loopback port, which answers each path by a script.
pub(super) struct Site {
    pub(super) address: SocketAddr,
    /// The heads of the requests in lower case.
    heads: Arc<Mutex<Vec<String>>>,
    /// Their bodies.
    bodies: Arc<Mutex<Vec<String>>>,
    _serving: JoinSet<()>,
}

impl Site {
    pub(super) async fn start(script: impl Fn(&str) -> Sent + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (heads, script): (Arc<Mutex<Vec<String>>>, Arc<Script>) = (Arc::default(), Arc::new(script));
        let bodies: Arc<Mutex<Vec<String>>> = Arc::default();
        let (seen, mut serving) = ((heads.clone(), bodies.clone()), JoinSet::new());
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, seen.clone(), script.clone()));
            }
        });
        Self { address, heads, bodies, _serving: serving }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(super) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }

    pub(super) fn bodies(&self) -> Vec<String> {
        self.bodies.lock().unwrap().clone()
    }
}

/// The heads and the bodies of the requests that a site has read.
type Seen = (Arc<Mutex<Vec<String>>>, Arc<Mutex<Vec<String>>>);

async fn serve(mut stream: TcpStream, (heads, bodies): Seen, script: Arc<Script>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else { return };
        head.push(byte);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let head = head.to_ascii_lowercase();
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    if stream.read_exact(&mut body).await.is_err() {
        return;
    }
    bodies.lock().unwrap().push(String::from_utf8_lossy(&body).into_owned());
    heads.lock().unwrap().push(head);
    let Sent { bytes, stalls } = script(&path);
    // The client may have hung up.
    let _ = stream.write_all(&bytes).await;
    if stalls {
        std::future::pending::<()>().await;
    }
    let _ = stream.shutdown().await;
}

// Through the real binary

/// A model that fetches this address once and answers with the beginning of the result.
async fn fetches(url: String) -> FakeModelServer {
    FakeModelServer::start(move |seen| {
        let last = seen.messages().last().cloned().unwrap_or_default();
        if last["role"] == "user" {
            Reply::calls([("use_skill", json!({"skill": "web.fetch", "arguments": {"url": url}}))])
        } else {
            Reply::says("That is what I found.")
        }
    })
    .await
}

/// What the model was shown as the result of its call.
fn result(model: &FakeModelServer) -> String {
    let last = model.requests().last().expect("a request").messages().last().cloned().unwrap_or_default();
    last["content"].to_string()
}

fn settings(egress: &str) -> String {
    format!("mode = \"single_loop\"\n{egress}")
}

fn allowing(site: &Site) -> String {
    settings(&format!("[egress]\nenabled = true\nallow_private = [\"{}\"]\n", site.address))
}

async fn finished(server: &Server, sent: &Value) -> Value {
    let conversation = sent["conversation_id"].as_str().expect("a conversation");
    let (_, log) = server.get(&format!("/api/v1/conversations/{conversation}/events")).await;
    let events = log["events"].as_array().expect("events");
    events.iter().find(|event| event["kind"] == "skill_finished").cloned().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn web_fetch_shows_the_text_of_a_page_and_the_log_has_its_request() {
    let site = Site::start(|_| page("<title>News</title><script>x</script><p>Rain &amp; sun</p>")).await;
    let model = fetches(site.url("/today?token=secret")).await;
    let (_folder, server) = server_with(&model, &allowing(&site)).await;
    let sent = ask(&server, "What is on that page?").await;
    assert_eq!(sent["answer"], "That is what I found.", "{sent}");
    let shown = result(&model);
    assert!(shown.contains("It is from outside and not by the user") && shown.contains("Rain"), "{shown}");
    assert!(shown.contains("Title: News") && !shown.contains("<script>"), "{shown}");
    let finished = finished(&server, &sent).await;
    let requests = finished["outcome"]["requests"].as_array().expect("the requests are stored").clone();
    let [request] = &requests[..] else { panic!("one request: {finished}") };
    assert_eq!(
        (&request["host"], &request["method"], &request["status"], &request["bytes"]),
        (&json!(site.address.to_string()), &json!("GET"), &json!(200), &json!(58)),
    );
    assert!(!requests[0].to_string().contains("secret"), "a query may contain secrets: {request}");
    assert_eq!(site.heads().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn web_fetch_does_not_exist_unless_it_is_enabled() {
    let site = Site::start(|_| page("Hello")).await;
    let model = fetches(site.url("/")).await;
    let (_folder, server) = server_with(&model, &settings("")).await;
    ask(&server, "What is on that page?").await;
    assert!(result(&model).contains("unknown skill"), "{}", result(&model));
    let (_, list) = server.get("/api/v1/skills").await;
    assert!(!list.to_string().contains("web.fetch"), "{list}");
    assert!(site.heads().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn web_fetch_reaches_no_private_address_that_is_not_listed() {
    let site = Site::start(|_| page("Hello")).await;
    let port = site.address.port();
    let enabled = settings(&format!("[egress]\nenabled = true\nports = [{port}]\n"));
    for host in ["127.0.0.1", "localhost", "2130706433", "[::ffff:127.0.0.1]"] {
        let model = fetches(format!("http://{host}:{port}/")).await;
        let (_folder, server) = server_with(&model, &enabled).await;
        let sent = ask(&server, "What is on that page?").await;
        assert!(result(&model).contains("ssrf_blocked"), "{host}: {}", result(&model));
        assert_eq!(finished(&server, &sent).await["outcome"]["status"], "error_blocked", "{host}");
    }
    assert!(site.heads().is_empty(), "{:?}", site.heads());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn web_fetch_is_refused_in_a_private_request() {
    let site = Site::start(|_| page("Hello")).await;
    let model = fetches(site.url("/?diary=secret")).await;
    let (_folder, server) = server_with(&model, &allowing(&site)).await;
    let private = json!({"text": "my diary of today", "private": true});
    let (status, sent) = server.post("/api/v1/messages?wait=20", &private).await.expect("the server answers");
    assert_eq!((status, &sent["answer"]), (200, &json!("That is what I found.")), "{sent}");
    assert!(result(&model).contains("[refused] web.fetch reaches other machines"), "{}", result(&model));
    assert!(site.heads().is_empty(), "{:?}", site.heads());
}

// The client itself

/// Answers every name with the next of these addresses, and the last one again and again.
struct Names {
    addresses: Vec<IpAddr>,
    asked: AtomicUsize,
}

impl Lookup for Names {
    fn addresses(&self, _host: String) -> Fut<'static, io::Result<Vec<IpAddr>>> {
        let n = self.asked.fetch_add(1, Relaxed).min(self.addresses.len() - 1);
        let found = vec![self.addresses[n]];
        Box::pin(std::future::ready(Ok(found)))
    }
}

fn names(addresses: &[&str]) -> Arc<Names> {
    let addresses = addresses.iter().map(|text| text.parse().expect("an address")).collect();
    Arc::new(Names { addresses, asked: AtomicUsize::new(0) })
}

fn client_with(rules: EgressRules, lookup: Arc<Names>) -> HttpEgress {
    HttpEgress::new(EgressParts { rules, client: annie_llm::http_client, lookup, secrets: None }).expect("a client")
}

/// Rules that allow these addresses only, with small limits.
fn rules(allowed: &[String]) -> EgressRules {
    EgressRules {
        ports: vec![80, 443],
        private: allowed.iter().map(|text| HostPort::parse(text).expect("an address")).collect(),
        limits: EgressLimits { reply_bytes_max: 100_000, ..EgressLimits::default() },
        ..EgressRules::default()
    }
}

fn client_for(sites: &[&Site]) -> HttpEgress {
    let allowed: Vec<String> = sites.iter().map(|site| site.address.to_string()).collect();
    client_with(rules(&allowed), names(&["127.0.0.1"]))
}

async fn get(client: &HttpEgress, url: &str) -> Exchange {
    client.send(EgressRequest::get(url)).await
}

#[tokio::test]
async fn credentials_are_not_sent_to_another_host_after_a_redirect() {
    let other = Site::start(|_| page("other")).await;
    let to = other.url("/there");
    let site = Site::start(move |path| redirect(if path == "/" { "/next" } else { &to })).await;
    let mut request = EgressRequest::get(site.url("/"));
    let headers =
        [("Authorization", "Bearer abc"), ("Cookie", "id=abc"), ("X-Api-Key", "abc"), ("Accept", "text/html")];
    request.headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let Exchange { requests, result } = client_for(&[&site, &other]).send(request).await;
    let reply = result.expect("a reply");
    assert_eq!((reply.body.as_slice(), reply.url), (&b"other"[..], other.url("/there")));
    let [first, second] = &site.heads()[..] else { panic!("two requests") };
    assert_eq!(first.matches("abc").count(), 3, "{first}");
    assert_eq!(second.matches("abc").count(), 3, "the same host: {second}");
    let [third] = &other.heads()[..] else { panic!("one request") };
    assert!(!third.contains("abc") && third.contains("accept: text/html"), "{third}");
    let sent: Vec<_> = requests.iter().map(|request| (request.host.clone(), request.status)).collect();
    let (site, other) = (site.address.to_string(), other.address.to_string());
    assert_eq!(sent, [(site.clone(), Some(302)), (site, Some(302)), (other, Some(200))]);
}

#[tokio::test]
async fn redirect_to_a_private_address_or_another_scheme_is_refused() {
    let inside = Site::start(|_| page("inside")).await;
    let port = inside.address.port();
    for to in [
        inside.url("/"),
        format!("http://localhost:{port}/"),
        format!("http://0x7f000001:{port}/"),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        "http://[::1]/".to_owned(),
        "file:///etc/passwd".to_owned(),
        format!("http://user@{}/", inside.address),
    ] {
        let target = to.clone();
        let site = Site::start(move |_| redirect(&target)).await;
        let Exchange { requests, result } = get(&client_for(&[&site]), &site.url("/")).await;
        let refused = result.expect_err(&to);
        assert!(matches!(&refused, EgressError::Denied(why) if why.contains("redirects")), "{to}: {refused:?}");
        assert_eq!(requests.len(), 1, "{to}");
    }
    assert!(inside.heads().is_empty(), "{:?}", inside.heads());
}

#[tokio::test]
async fn redirects_without_an_end_are_limited() {
    let site = Site::start(|_| redirect("/again")).await;
    let Exchange { requests, result } = get(&client_for(&[&site]), &site.url("/")).await;
    assert_eq!(result, Err(EgressError::Redirects { redirects_max: 5 }));
    assert_eq!((requests.len(), site.heads().len()), (6, 6));
}

#[tokio::test]
async fn name_that_resolves_to_a_private_address_is_refused_each_time() {
    let site = Site::start(|_| page("inside")).await;
    let port = site.address.port();
    let lookup = names(&["127.0.0.1", "10.0.0.1", "::1", "::ffff:127.0.0.1"]);
    let client = client_with(EgressRules { ports: vec![port], ..rules(&[]) }, lookup.clone());
    for _ in 0..4 {
        let refused = get(&client, &format!("http://example.org:{port}/")).await.result.expect_err("a refusal");
        assert!(
            matches!(&refused, EgressError::Denied(why) if why.starts_with("example.org is not a public")),
            "{refused:?}"
        );
    }
    assert_eq!((lookup.asked.load(Relaxed), site.heads().len()), (4, 0));
}

#[tokio::test]
async fn name_that_is_listed_is_resolved_once_for_each_request() {
    let site = Site::start(|_| page("home")).await;
    let port = site.address.port();
    let lookup = names(&["127.0.0.1"]);
    let client = client_with(rules(&[format!("nas.local:{port}")]), lookup.clone());
    let reply = get(&client, &format!("http://nas.local:{port}/")).await.result.expect("a reply");
    assert_eq!((reply.body.as_slice(), lookup.asked.load(Relaxed)), (&b"home"[..], 1));
    let refused = get(&client, &format!("http://127.0.0.1:{port}/")).await.result;
    assert!(matches!(refused, Err(EgressError::Denied(_))), "{refused:?}");
    assert_eq!(site.heads().len(), 1);
}

/// A gzip stream of 258 zeros for each of `repeats`, in 13 bits each.
fn bomb(repeats: usize) -> Vec<u8> {
    // The last block, with fixed codes; then a literal zero.
    let mut bits: Vec<u8> = vec![1, 1, 0];
    let mut put = |code: u32, len: u32| bits.extend((0..len).rev().map(|n| u8::from((code >> n) & 1 == 1)));
    put(0b0011_0000, 8);
    for _ in 0..repeats {
        // Length 258, distance 1.
        put(0b1100_0101, 8);
        put(0, 5);
    }
    put(0, 7);
    let header = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    let body = bits.chunks(8).map(|bits| bits.iter().rev().fold(0_u8, |byte, bit| (byte << 1) | *bit));
    header.into_iter().chain(body).collect()
}

#[tokio::test]
async fn response_that_is_too_large_is_cut_off() {
    let site = Site::start(|path| match path {
        "/length" => response("200 OK", "content-type: text/plain\r\n", &vec![b'x'; 100_001]),
        "/endless" => {
            let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n".to_vec();
            Sent { bytes: [head, vec![b'x'; 300_000]].concat(), stalls: true }
        }
        "/bomb" => response("200 OK", "content-type: text/plain\r\ncontent-encoding: gzip\r\n", &bomb(2_000)),
        _ => response("200 OK", "content-type: text/plain\r\n", &vec![b'x'; 100_000]),
    })
    .await;
    let client = client_for(&[&site]);
    assert_eq!(get(&client, &site.url("/fits")).await.result.expect("a reply").body.len(), 100_000);
    for path in ["/length", "/endless", "/bomb"] {
        let Exchange { requests, result } = get(&client, &site.url(path)).await;
        assert_eq!(result, Err(EgressError::TooLarge { bytes_max: 100_000 }), "{path}");
        assert!(requests[0].bytes < 400_000, "{path}: reading stops at the limit: {requests:?}");
    }
}

#[tokio::test]
async fn response_that_is_slow_ends_at_the_time_limit() {
    let site = Site::start(|path| match path {
        "/body" => Sent { bytes: b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf".to_vec(), stalls: true },
        _ => Sent { bytes: Vec::new(), stalls: true },
    })
    .await;
    let mut rules = rules(&[site.address.to_string()]);
    rules.limits.total_ms_max = 200;
    let client = client_with(rules, names(&["127.0.0.1"]));
    for (path, status, bytes) in [("/body", Some(200), 4), ("/head", None, 0)] {
        let Exchange { requests, result } = get(&client, &site.url(path)).await;
        assert_eq!(result, Err(EgressError::Timeout { ms_max: 200 }), "{path}");
        let [request] = &requests[..] else { panic!("one request") };
        assert_eq!((request.status, request.bytes), (status, bytes), "{path}");
        assert!(request.ms >= 100, "{path}: {request:?}");
    }
}

#[tokio::test]
async fn response_of_another_type_and_a_site_that_is_down_are_errors() {
    let site = Site::start(|_| response("200 OK", "content-type: image/png\r\n", b"png")).await;
    let client = client_for(&[&site]);
    let request = EgressRequest { content_types: vec!["text/".to_owned()], ..EgressRequest::get(site.url("/")) };
    let result = client.send(request).await.result;
    assert_eq!(result, Err(EgressError::ContentType("image/png".to_owned())));
    let url = site.url("/?token=secret");
    drop(site);
    let failed = get(&client, &url).await.result.expect_err("nothing listens there");
    assert!(matches!(failed, EgressError::Unreached(_)), "{failed:?}");
    assert!(!failed.to_string().contains("secret"), "{failed}");
}

#[tokio::test]
async fn redirect_target_that_is_down_leaves_the_effect_of_the_first_request_in_doubt() {
    let down = Site::start(|_| page("")).await;
    let to = down.url("/");
    let first = Site::start(move |_| redirect(&to)).await;
    let client = client_for(&[&first, &down]);
    let url = first.url("/");
    drop(down);
    let failed = get(&client, &url).await.result.expect_err("nothing listens behind the redirect");
    assert!(matches!(&failed, EgressError::Network(why) if why.contains("redirects")), "{failed:?}");
}
