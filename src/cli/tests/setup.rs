//! `annie setup` and `annie doctor --probe`.

use std::os::unix::fs::PermissionsExt;

use annie_testkit::model_server::{Description, FakeModelServer, Reply, Seen};

use super::*;
use crate::cli::{input::Input, setup};

fn able(seen: &Seen) -> Reply {
    let call = serde_json::json!({"skill": "tasks.create", "arguments": {"title": "Call the bank"}});
    match (seen.last_user_text().contains("call the bank"), seen.tool_names().is_empty()) {
        (false, _) => Reply::says("The moon is a rock."),
        (true, false) => Reply::calls([("use_skill", call)]),
        (true, true) => Reply::says("```cmd\ntasks.create --title \"Call the bank\" --due friday\n```"),
    }
}

async fn llama() -> FakeModelServer {
    let server = FakeModelServer::start(able).await;
    server.describe_as(Description::llama_cpp("fake-model", 4_096, 1));
    server
}

fn port_of(server: &FakeModelServer) -> String {
    server.base_url().trim_end_matches("/v1").rsplit(':').next().unwrap().to_owned()
}

fn user_file(data: &Path) -> std::path::PathBuf {
    data.join("home/.config/annie/annie.toml")
}

#[tokio::test]
async fn setup_writes_a_private_file_that_the_next_command_uses() {
    let data = tempfile::tempdir().unwrap();
    let model = llama().await;
    let output = annie(data.path(), &["setup", "--port", &port_of(&model), "--yes"]).await;
    assert_eq!(output.done, Ok(()), "{}{}", output.out, output.err);
    assert!(output.err.contains("requests; Ctrl-C stops"), "{}", output.err);
    let path = user_file(data.path());
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let written = std::fs::read_to_string(&path).unwrap();
    assert!(output.out.contains(&written), "the written text was shown: {}", output.out);
    for line in [
        "name = \"llamacpp\"",
        "model = \"fake-model\"",
        "# the server says: profile = \"llamacpp\"",
        "interface = \"cmd\"",
        "mode = \"single_loop\"",
        "# the server says: context_tokens_max = 4096",
        "# the server says: slots = 1",
    ] {
        assert!(written.lines().any(|l| l == line), "{line} is missing in\n{written}");
    }
    let before = model.request_count();
    let shown = annie(data.path(), &["config", "show", "--origin"]).await;
    assert!(!shown.out.contains("backend.0.output_tokens_max"), "its window is read at each start: {}", shown.out);
    let loaded = Sources::only(path).load().unwrap();
    let facts = loaded.config.facts().remove(0);
    assert_eq!(
        (facts.context_tokens_max, facts.learns_slots),
        (None, true),
        "the window and slots are read from the server"
    );
    assert_eq!(facts.privacy, annie_core::route::Privacy::Local);
    let asked = annie(data.path(), &["doctor", "--probe", "--json"]).await;
    assert_eq!(asked.done, Ok(()), "{}{}", asked.out, asked.err);
    let report: serde_json::Value = serde_json::from_str(asked.out.trim()).unwrap();
    assert_eq!(
        (&report["probe"]["backend"], &report["settings"]["fit"]["slots"]),
        (&"llamacpp".into(), &serde_json::Value::Null)
    );
    assert_eq!(report["settings"]["fit"]["server_says"][2], "slots = 1", "{report}");
    assert_eq!(model.request_count() - before, 4);
}

#[tokio::test]
async fn setup_replaces_a_file_only_with_force_and_keeps_a_backup() {
    let data = tempfile::tempdir().unwrap();
    let model = llama().await;
    let path = user_file(data.path());
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, "mode = \"direct\"\n").unwrap();
    let port = port_of(&model);
    let kept = annie(data.path(), &["setup", "--port", &port, "--yes"]).await;
    assert_eq!(kept.done.unwrap_err().exit, Exit::Usage);
    assert_eq!((std::fs::read_to_string(&path).unwrap().as_str(), model.request_count()), ("mode = \"direct\"\n", 0));
    for number in ["1", "2"] {
        let output = annie(data.path(), &["setup", "--port", &port, "--yes", "--force"]).await;
        assert_eq!(output.done, Ok(()), "{}{}", output.out, output.err);
        let backup = path.with_file_name(format!("annie.toml.bak-{number}"));
        assert!(backup.exists(), "{}", output.err);
    }
    let first = std::fs::read_to_string(path.with_file_name("annie.toml.bak-1")).unwrap();
    assert_eq!(first, "mode = \"direct\"\n");
    let left: Vec<_> = std::fs::read_dir(path.parent().unwrap()).unwrap().collect();
    assert_eq!(left.len(), 3, "no draft is left: {left:?}");
}

#[tokio::test]
async fn setup_asks_before_writing_and_without_a_terminal_writes_nothing() {
    let data = tempfile::tempdir().unwrap();
    let model = llama().await;
    let environment = Environment::of(&[("HOME", data.path().join("home").to_str().unwrap())]);
    let answer = async |typed: &'static [u8], is_terminal: bool| {
        let (out, err) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
        let console = Console::into_sinks(Manner::default(), out.clone(), err.clone());
        let options = args::Setup { step_s_max: 20, ..args::Setup::default() };
        let global = Global { url: Some(model.base_url()), ..Global::default() };
        let input = || Input::of(typed, is_terminal);
        let done = setup::run_with(&console, &environment, &global, &options, input).await;
        let out = String::from_utf8(out.lock().unwrap().clone()).unwrap();
        (done.map_err(|failure| failure.exit), out.contains("[[backend]]"), user_file(data.path()).exists())
    };
    assert_eq!(answer(b"y\n", false).await, (Err(Exit::NotDone), true, false));
    assert_eq!(answer(b"\n", true).await, (Err(Exit::NotDone), true, false));
    assert_eq!(answer(b"no\n", true).await, (Err(Exit::NotDone), true, false));
    assert_eq!(answer(b"y\n", true).await, (Ok(()), true, true));
}

#[tokio::test]
async fn setup_that_finds_no_server_reports_the_ports_and_next_steps() {
    let data = tempfile::tempdir().unwrap();
    let gone = port_of(&llama().await);
    let output = annie(data.path(), &["setup", "--port", &gone, "--yes"]).await;
    let failure = output.done.unwrap_err();
    assert_eq!(failure.exit, Exit::NotFound);
    assert!(failure.what.contains(&gone), "{}", failure.what);
    let fix = failure.fix.unwrap();
    for words in ["offline planner", "ollama", "llama-server", "vllm serve", "lms server start", "--api-key-env"] {
        assert!(fix.contains(words), "{words} is missing in {fix}");
    }
    assert!(!user_file(data.path()).exists());
}

#[tokio::test]
async fn service_key_is_used_and_never_written() {
    let data = tempfile::tempdir().unwrap();
    let model = llama().await;
    let url = model.base_url();
    let variables = [("MY_KEY", "sk-very-secret")];
    let all = ["setup", "--url", &url, "--api-key-env", "MY_KEY", "--model", "fake-model", "--yes"];
    let output = annie_in(data.path(), &all, &variables).await;
    assert_eq!(output.done, Ok(()), "{}{}", output.out, output.err);
    assert_eq!(model.requests()[0].header("authorization"), Some("Bearer sk-very-secret"));
    let written = std::fs::read_to_string(user_file(data.path())).unwrap();
    assert!(written.contains("api_key_env = \"MY_KEY\"\n"), "{written}");
    assert!(!format!("{written}{}{}", output.out, output.err).contains("very-secret"));
    let unset = annie(data.path(), &["setup", "--force", "--url", &url, "--api-key-env", "MY_KEY"]).await;
    assert!(unset.done.unwrap_err().what.contains("MY_KEY is not set"));
    let without_url = annie_in(data.path(), &["setup", "--force", "--api-key-env", "MY_KEY"], &variables).await;
    assert!(without_url.done.unwrap_err().what.contains("but no server for it"));
}

#[tokio::test]
async fn probe_of_an_unusable_backend_fails_and_names_it() {
    let data = tempfile::tempdir().unwrap();
    let broken = FakeModelServer::start(|_| Reply::error(401, "no such key")).await;
    let url = broken.base_url();
    let variables = [("ANNIE_MODEL", "m"), ("OPENAI_BASE_URL", url.as_str())];
    let output = annie_in(data.path(), &["doctor", "--probe"], &variables).await;
    let failure = output.done.unwrap_err();
    assert_eq!((failure.exit, failure.what.as_str()), (Exit::Unavailable, "cannot be used: generic"));
    assert!(output.out.contains("FAILED") && output.out.contains("no such key"), "{}", output.out);
    assert!(output.err.contains("sends up to 8 requests"), "{}", output.err);
    let other = annie_in(data.path(), &["doctor", "--probe", "--backend", "gpu"], &variables).await;
    assert_eq!(other.done.unwrap_err().fix.as_deref(), Some("there are: generic"));
    let none = annie(data.path(), &["doctor", "--probe"]).await;
    assert!(none.done.unwrap_err().fix.unwrap().contains("annie setup"));
    assert!(parsed(&["doctor", "--backend", "gpu"]).is_err(), "--backend needs --probe");
}

#[tokio::test]
async fn setup_notes_a_rate_limited_tool_call_and_writes_no_interface() {
    let data = tempfile::tempdir().unwrap();
    let limited =
        FakeModelServer::start(
            |seen| {
                if seen.tool_names().is_empty() { able(seen) } else { Reply::rate_limited(None) }
            },
        )
        .await;
    let output = annie(data.path(), &["setup", "--port", &port_of(&limited), "--yes"]).await;
    assert_eq!(output.done, Ok(()), "{}{}", output.out, output.err);
    let written = std::fs::read_to_string(user_file(data.path())).unwrap();
    assert!(written.contains("# the tool call could not be tried: "), "{written}");
    let keys = written.lines().filter(|line| line.starts_with("interface = ") || line.starts_with("mode = "));
    assert_eq!(keys.count(), 0, "its tool support is unknown: {written}");
}

#[tokio::test]
async fn setup_for_a_slow_model_writes_limits_that_let_it_answer() {
    let data = tempfile::tempdir().unwrap();
    let slow = FakeModelServer::start(|seen| {
        let usage = serde_json::json!({"prompt_tokens": 5, "completion_tokens": 3});
        able(seen).usage(usage).first_after(std::time::Duration::from_millis(100))
    })
    .await;
    let output = annie(data.path(), &["setup", "--port", &port_of(&slow), "--yes"]).await;
    assert_eq!(output.done, Ok(()), "{}{}", output.out, output.err);
    let config = Sources::only(user_file(data.path())).load().unwrap().config;
    let limits = config.kernel_limits();
    let crate::config::ClientConfig::Model(model) = &config.backend[0].client else { panic!("a model") };
    let first = model.first_token_ms_max;
    assert!(first > 60_000 && first < limits.round_ms_max && first <= model.call_ms_max, "{first}: {limits:?}");
    assert!(limits.turn.agent_round_ms_max >= limits.round_ms_max, "an agent's round also reads a prompt");
    let (high, normal, low) = (limits.deadlines.high, limits.deadlines.normal, limits.deadlines.low);
    assert!(high.hard_ms > limits.round_ms_max, "a turn of class high has such a round");
    for (class, deadline) in [("normal", normal), ("low", low)] {
        assert!(
            deadline.soft_ms >= high.soft_ms && deadline.hard_ms >= high.hard_ms,
            "class {class} has at least as much time: {deadline:?}, {high:?}"
        );
    }
    let shown = annie(data.path(), &["config", "show", "--origin"]).await;
    assert!(shown.out.contains(&format!("limits.round_ms_max = {}", limits.round_ms_max)), "{}", shown.out);
}

#[test]
fn probe_step_is_the_only_limit_of_its_requests() {
    let model = crate::cli::doctor::probe::as_probed(annie_llm::ModelConfig::default(), 1_200);
    let limits = [model.first_token_ms_max, model.idle_ms_max, model.call_ms_max];
    assert_eq!(limits, [1_200_000; 3], "a smaller limit would end the step without naming --step-s-max");
    assert_eq!(crate::cli::doctor::probe::as_probed(annie_llm::ModelConfig::default(), 1).call_ms_max, 600_000);
}
