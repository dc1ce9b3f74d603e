//! Stored secrets through the real binary: a secret reaches its own host, and nothing else.

use std::path::Path;

use annie_testkit::model_server::{FakeModelServer, Reply};
use serde_json::json;

use super::{
    bad_models::ask,
    egress::{Site, page, redirect},
};
use crate::server::Server;

const SECRET: &str = "tok+en/secret-123456";
/// The secret as servers may repeat it: as it is, as base64, and within a URL.
const FORMS: [&str; 3] = [SECRET, "dG9rK2VuL3NlY3JldC0xMjM0NTY", "tok%2Ben%2Fsecret-123456"];

/// Runs a command with this configuration in its data folder, and returns everything that it prints.
async fn annie(folder: &Path, arguments: &[&str]) -> (i32, String) {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_annie"));
    command.arg("--data").arg(folder).arg("--config").arg(folder.join("annie.toml")).args(arguments);
    command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", folder).stdin(std::process::Stdio::null());
    let done = command.output().await.expect("the binary starts");
    let printed = [done.stdout, done.stderr].concat();
    (done.status.code().expect("an exit code"), String::from_utf8_lossy(&printed).into_owned())
}

fn write_key(folder: &Path, digit: &str) {
    std::fs::write(folder.join("secrets.key"), digit.repeat(64)).expect("written");
}

/// Writes a configuration that sends the secret to the first of these sites.
fn configure(folder: &Path, model: &FakeModelServer, [site, other]: [&Site; 2], key: &str) {
    let (own, other) = (site.address, other.address);
    let text = format!(
        "mode = \"single_loop\"\n{key}[egress]\nenabled = true\nallow_private = [\"{own}\", \"{other}\"]\n\
         credentials = {{ \"{own}\" = \"site-token\" }}\n[[backend]]\nname = \"fake\"\nprofile = \"generic\"\n\
         base_url = \"{}\"\nmodel = \"m\"\n",
        model.base_url()
    );
    std::fs::write(folder.join("annie.toml"), text).expect("written");
}

/// Characters of a portion that ends within the secret.
const PORTION: usize = 16;

/// A model that fetches `/away` of a site if the user names it, and otherwise `/`, or a portion of it.
async fn fetches(url: String) -> FakeModelServer {
    FakeModelServer::start(move |seen| {
        let last = seen.messages().last().cloned().unwrap_or_default();
        if last["role"] == "user" {
            let path = if last["content"].to_string().contains("away") { "away" } else { "" };
            let mut arguments = json!({"url": format!("{url}{path}")});
            if last["content"].to_string().contains("portion") {
                arguments["chars"] = json!(PORTION);
            }
            Reply::calls([("use_skill", json!({"skill": "web.fetch", "arguments": arguments}))])
        } else {
            Reply::says("That is what I found.")
        }
    })
    .await
}

/// What the model was shown last.
fn shown(model: &FakeModelServer) -> String {
    let last = model.requests().last().expect("a request").messages().last().cloned().unwrap_or_default();
    last["content"].to_string()
}

fn assert_hidden(what: &str, text: &str) {
    for form in FORMS {
        assert!(!text.contains(form), "{what} shows {form}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secret_never_appears_in_log_prompt_error_or_view() {
    let other = Site::start(|_| page("elsewhere")).await;
    // A site may repeat the secret in an address as well, which the outcome shows.
    let to = other.url(&format!("/?seen={}", FORMS[2]));
    let site = Site::start(move |path| match path {
        "/away" => redirect(&to),
        _ => page(&format!("You sent {}", FORMS.join(" and "))),
    })
    .await;
    let model = fetches(site.url("/")).await;
    let data = tempfile::tempdir().expect("a folder");
    let folder = data.path();
    let key = format!("[secrets]\nkey_file = {:?}\n", folder.join("secrets.key"));
    write_key(folder, "a");
    configure(folder, &model, [&site, &other], &key);
    let value = folder.join("value");
    std::fs::write(&value, format!("{SECRET}\n")).expect("written");
    let value_file = value.to_str().expect("a path");
    let (code, printed) = annie(folder, &["secret", "set", "site-token", "--file", value_file]).await;
    assert_eq!(code, 0, "{printed}");
    std::fs::remove_file(&value).expect("removed");
    let (_, listed) = annie(folder, &["secret", "list"]).await;
    assert!(listed.contains("site-token") && listed.contains("opens"), "{listed}");

    let config = folder.join("annie.toml");
    let mut server = Server::start(folder, &["--config", config.to_str().expect("a path")], &[]).await;
    let sent = ask(&server, "What does the page say?").await;
    assert!(shown(&model).contains("You sent [secret] and [secret] and [secret]"), "{}", shown(&model));
    ask(&server, "Now look away").await;
    let [first, second] = &site.heads()[..] else { panic!("two requests: {:?}", site.heads()) };
    let header = format!("authorization: bearer {SECRET}");
    assert!(first.contains(&header) && second.contains(&header), "{first}\n{second}");
    let [away] = &other.heads()[..] else { panic!("one request") };
    assert!(!away.contains("authorization"), "{away}");
    assert!(shown(&model).contains("/?seen=[secret]"), "{}", shown(&model));
    ask(&server, "Show a portion of the page").await;
    let portion = shown(&model);
    assert!(portion.contains("You sent [secre") && !portion.contains("tok+en"), "{portion}");

    let conversation = sent["conversation_id"].as_str().expect("a conversation");
    for path in ["events", "messages"] {
        let (_, view) = server.get(&format!("/api/v1/conversations/{conversation}/{path}")).await;
        assert_hidden(path, &view.to_string());
    }
    for request in model.requests() {
        assert_hidden("a prompt", &String::from_utf8_lossy(&request.body));
    }
    assert_hidden("the log", &server.log().join("\n"));
    server.stop().await;
    for file in ["annie.db", "annie.db-wal"] {
        let bytes = std::fs::read(folder.join(file)).unwrap_or_default();
        assert_hidden(file, &String::from_utf8_lossy(&bytes));
    }
    assert_hidden("the list", &listed);
    assert_hidden("the command", &printed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secret_without_its_key_is_not_used_and_the_doctor_says_so() {
    let other = Site::start(|_| page("elsewhere")).await;
    let site = Site::start(|_| page("hello")).await;
    let model = fetches(site.url("/")).await;
    let data = tempfile::tempdir().expect("a folder");
    let folder = data.path();
    let key = format!("[secrets]\nkey_file = {:?}\n", folder.join("secrets.key"));
    std::fs::write(folder.join("value"), SECRET).expect("written");
    let value = folder.join("value");
    let set = ["secret", "set", "site-token", "--file", value.to_str().expect("a path")];
    configure(folder, &model, [&site, &other], "");
    let (code, printed) = annie(folder, &set).await;
    assert!(code == 2 && printed.contains("no key is configured") && printed.contains("secrets.key_file"), "{printed}");
    write_key(folder, "a");
    configure(folder, &model, [&site, &other], &key);
    assert_eq!(annie(folder, &set).await.0, 0);
    let (_, printed) = annie(folder, &["doctor"]).await;
    assert!(!printed.contains("does not open"), "{printed}");

    write_key(folder, "b");
    let (_, printed) = annie(folder, &["doctor"]).await;
    assert!(printed.contains("the configured key does not open site-token"), "{printed}");
    let config = folder.join("annie.toml");
    let mut server = Server::start(folder, &["--config", config.to_str().expect("a path")], &[]).await;
    ask(&server, "What does the page say?").await;
    assert!(shown(&model).contains("does not open the secret"), "{}", shown(&model));
    assert!(site.heads().is_empty(), "nothing is sent without the credential: {:?}", site.heads());
    server.stop().await;

    configure(folder, &model, [&site, &other], "");
    let (_, printed) = annie(folder, &["doctor"]).await;
    assert!(printed.contains("1 stored, and no key is configured that opens them"), "{printed}");
    assert_eq!(annie(folder, &["secret", "delete", "site-token"]).await.0, 0);
    assert_eq!(annie(folder, &["secret", "delete", "site-token"]).await.0, 3);
    let (_, printed) = annie(folder, &["doctor"]).await;
    assert!(!printed.contains("no key is configured"), "no secret is left: {printed}");
}
