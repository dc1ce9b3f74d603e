//! Merging of layers, error texts, and that every key is used.

use std::{collections::BTreeSet, fs, path::PathBuf};

use annie_actors::KernelLimits;
use annie_core::{event::Mode, limits::SubAgentInterface};
use annie_llm::{ModelConfig, Profile};
use annie_store::Durability;
use toml::Value;

use super::{
    show::{down, table},
    typed::typed,
    *,
};

mod channels;
mod egress;
mod files;
mod hooks;
mod mcp;
mod mistakes;
mod pool;
mod sandbox;
mod store;
mod supervised;
mod web_search;

fn file(folder: &tempfile::TempDir, name: &str, text: &str) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, text).unwrap();
    path
}

/// The error of a file, without the folder.
fn error_text(text: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let error = Sources::only(file(&folder, "annie.toml", text)).load().unwrap_err();
    let text = format!("{error}; {}", error.fix);
    text.replace(&format!("{}/", folder.path().display()), "")
}

fn variable_error(name: &str, value: &str) -> String {
    let sources = Sources { environment: Environment::of(&[(name, value)]), ..Sources::default() };
    let error = sources.load().unwrap_err();
    format!("{error}; {}", error.fix)
}

fn model_of(backend: &BackendConfig) -> &ModelConfig {
    match &backend.client {
        ClientConfig::Model(model) => model,
        ClientConfig::Command(_) => panic!("a model"),
    }
}

#[test]
fn config_error_names_location_problem_and_fix() {
    for (text, wanted) in [
        ("[server]\nbnd = \"x\"\n", "annie.toml:2:1: unknown key `server.bnd`; did you mean `bind`?"),
        ("[sever]\n", "annie.toml:1:2: unknown key `sever`; did you mean `server`?"),
        ("[[backnd]]\n", "annie.toml:1:3: unknown key `backnd`; did you mean `backend`?"),
        ("[log]\ncolour = 1\n", "annie.toml:2:1: unknown key `log.colour`; known here are format, level"),
        (
            "[server]\nbind = \"nowhere\"\n",
            "annie.toml:2:8: `server.bind`: it is no address with a port, such as 127.0.0.1:7420; see `annie config sample` for every key and its values",
        ),
        (
            "mode = \"chaos\"\n",
            "annie.toml:1:8: `mode`: unknown value `chaos`, expected one of `multi_agent`, `single_loop`, `direct`; \
             see `annie config sample` for every key and its values",
        ),
        (
            "[queue.depth_per_user]\nhihg_max = 1\n",
            "annie.toml:2:1: unknown key `queue.depth_per_user.hihg_max`; did you mean `high_max`?",
        ),
        (
            "[turn.loop_guard]\nenabled = false\n",
            "annie.toml:1:7: unknown key `turn.loop_guard`; it is set as `[loop_guard]`",
        ),
        (
            "[turn]\ninterface = \"json\"\n",
            "annie.toml:2:1: unknown key `turn.interface`; it is set as `sub_agent.interface`",
        ),
        (
            "[[backend]]\nname = \"a\"\nmodle = \"m\"\n",
            "annie.toml:3:1: unknown key `backend.0.modle`; did you mean `model`?",
        ),
        ("[[backend]]\nslot = 1\n", "annie.toml:2:1: unknown key `backend.0.slot`; did you mean `slots`?"),
        (
            "[user.\"ann@x.org\"]\nnam = \"Ann\"\n",
            "annie.toml:2:1: unknown key `user.\"ann@x.org\".nam`; did you mean `name`?",
        ),
        (
            "[server\n",
            "annie.toml:1:8: not TOML: unclosed table, expected `]`; see https://toml.io, or `annie config sample` for an example",
        ),
        (
            "[turn]\ncompaction_overlap_messages = 20\n",
            "annie.toml:2:1: `turn.compaction_overlap_messages`: it is not smaller than compaction_messages: nothing would be summarised; lower it, or raise compaction_messages",
        ),
        ("[limits]\nround_ms_max = 0\n", "annie.toml:2:1: `limits.round_ms_max`: it is 0; give at least 1"),
        (
            "[user.ann]\ntimezone = \"Mars/Base\"\n",
            "annie.toml:2:1: `user.ann.timezone`: there is no time zone \"Mars/Base\"; write an IANA name, such as Europe/Prague or UTC",
        ),
        (
            "[[backend]]\nname = \"a\"\nmodel = \"m\"\nbase_url = \"ftp://x\"\n",
            "annie.toml:4:1: `backend.0.base_url`: base_url must begin with http:// or https://, not ftp:; see `annie config sample` for an example",
        ),
    ] {
        assert_eq!(error_text(text), wanted);
    }
}

#[test]
fn config_reports_backend_errors_at_line_of_their_key() {
    let backend = "[[backend]]\nbase_url = \"http://127.0.0.1:1/v1\"\nmodel = \"m\"\nname = \"a\"\n";
    for (line, wanted) in [
        ("connect_ms_max = 0", "annie.toml:5:1: `backend.0.connect_ms_max`"),
        ("temperature = -1.0", "annie.toml:5:1: `backend.0.temperature`: it is no temperature; give 0 to 2"),
        ("slots = 0", "annie.toml:5:1: `backend.0.slots`"),
    ] {
        let error_text = error_text(&format!("{backend}{line}\n"));
        assert!(error_text.starts_with(wanted), "{error_text}");
    }
}

#[test]
fn config_reports_several_errors_in_file_order() {
    let shapes =
        error_text("[server]\nbnd = 1\nuser = 2\n[log]\ncolour = 1\n[[backend]]\nslot = 1\n[[backend]]\nslto = 1\n");
    let places: Vec<&str> = shapes.lines().map(|line| line.split(": ").next().unwrap()).collect();
    let at = ["annie.toml:2:1", "annie.toml:3:8", "annie.toml:5:1", "annie.toml:7:1", "annie.toml:9:1"];
    assert_eq!(places, at, "{shapes}");
    let values = error_text(
        "[limits]\nround_ms_max = 0\n[turn]\nagents_max = 0\n[log]\nlevel = \"=\"\n[api]\nhead_ms_max = 0\n",
    );
    let places: Vec<&str> = values.lines().map(|line| line.split(": ").next().unwrap()).collect();
    assert_eq!(places, ["annie.toml:2:1", "annie.toml:4:1", "annie.toml:6:1", "annie.toml:8:1"], "{values}");
    assert!(values.lines().all(|line| line.contains("(")), "each with its fix: {values}");
}

#[test]
fn config_refuses_unusable_values() {
    for (text, wanted) in [
        ("[limits]\nround_ms_max = 99999999999999999999\n", "annie.toml:2:16: a whole number is not between"),
        ("[limits]\nround_ms_max = 0xFFFFFFFFFFFFFFFFFF\n", "annie.toml:2:16: a whole number is not between"),
        ("[data]\nfolder = \"\"\n", "annie.toml:2:1: `data.folder`: it is empty"),
        ("[data]\nfolder = \"a\\u0000b\"\n", "annie.toml:2:1: `data.folder`: it has a NUL character"),
        ("[client]\nurl = \"\"\n", "annie.toml:2:1: `client.url`: it is empty"),
        ("[store]\ndatabase_bytes_max = 0\n", "annie.toml:2:1: `store.database_bytes_max`: it is 0"),
        ("[api]\ngrpc_request_bytes_max = 0\n", "annie.toml:2:1: `api.grpc_request_bytes_max`: it is 0"),
        (
            "[[backend]]\nname = \"a\"\nmodel = \"m\"\nbase_url = \"http://127.0.0.1:1/v1\"\napi_key_file = \"\"\n",
            "annie.toml:5:1: `backend.0.api_key_file`: it is empty",
        ),
        (
            "[[route]]\nname = \"r\"\nwhen = { any_words = [\"x\"] }\nto = \"prog\"\n",
            "annie.toml:4:6: `route.0.to`: it is not a table; write it as { backend = \"NAME\" }",
        ),
    ] {
        let error_text = error_text(text);
        assert!(error_text.starts_with(wanted), "{error_text}");
    }
}

#[test]
fn config_errors_never_repeat_secrets() {
    for text in [
        "[[backend]]\nname = \"a\"\napi_key = 12345678\n",
        "[[backend]]\nname = \"a\"\nheaders = { x = 12345678 }\n",
        "[client]\nkey = 12345678\n",
        "[client]\nkey = \"12345678\nurl = 1\n",
        "[client]\nkey = \"12345678\"\nkey_file = \"k\"\n",
        "[store]\nurl = 12345678\n",
        "[store]\nurl = \"mysql://a:12345678@h/d\"\n",
        "[store]\nurl = \"postgres://a:12345678@h:12345678/d\"\n",
        "[store]\nurl = \"postgres://a:12345678@h/d?x=12345678\"\n",
    ] {
        let error = error_text(text);
        assert!(!error.contains("12345678"), "{error}");
    }
}

#[test]
fn config_refuses_unknown_environment_variable() {
    assert_eq!(
        variable_error("ANNIE__SERVER__BNID", "x"),
        "ANNIE__SERVER__BNID: unknown key `server.bnid`; did you mean ANNIE__SERVER__BIND?"
    );
    assert_eq!(
        variable_error("ANNIE__SEVER__BIND", "x"),
        "ANNIE__SEVER__BIND: unknown key `sever`; did you mean ANNIE__SERVER__BIND?"
    );
    assert!(variable_error("ANNIE__LIMITS__ROUND_MS_MAX", "soon").starts_with("ANNIE__LIMITS__ROUND_MS_MAX: "));
    assert!(variable_error("ANNIE__BACKEND__0__MODLE", "m").contains("ANNIE__BACKEND__0__MODEL"));
    assert!(variable_error("ANNIE_MODEL", "m").contains("OPENROUTER_API_KEY"));
}

#[test]
fn config_later_layer_wins_and_values_have_origins() {
    let folder = tempfile::tempdir().unwrap();
    let system = file(
        &folder,
        "system.toml",
        "mode = \"direct\"\n[limits]\nengines_max = 1\nround_ms_max = 1\nstuck_ms_max = 1\n",
    );
    let user = file(&folder, "user.toml", "[limits]\nround_ms_max = 2\nstuck_ms_max = 2\npassivate_after_ms = 2\n");
    let asked =
        file(&folder, "asked.toml", "[limits]\nstuck_ms_max = 3\npassivate_after_ms = 3\n[server]\nuser = \"file\"\n");
    let sources = Sources {
        files: vec![system.clone(), folder.path().join("missing.toml"), user.clone()],
        asked: Some(asked.clone()),
        environment: Environment::of(&[
            ("ANNIE__LIMITS__PASSIVATE_AFTER_MS", "4"),
            ("ANNIE__SERVER__USER", "variable"),
            ("ANNIE__LOG__LEVEL", "debug"),
            ("ANNIE__USER__ANN__NAME", "5"),
            ("ANNIE_UNRELATED", "x"),
        ]),
        flags: vec![Flag { name: "--user", path: &["server", "user"], value: Value::from("flag") }],
    };
    let loaded = sources.load().unwrap();
    let config = &loaded.config;
    let limits = &config.limits;
    assert_eq!((limits.engines_max, limits.round_ms_max, limits.stuck_ms_max, limits.passivate_after_ms), (1, 2, 3, 4));
    assert_eq!((config.mode, config.server.user.as_str(), config.log.level.as_str()), (Mode::Direct, "flag", "debug"));
    assert_eq!(config.user["ann"].name, "5", "a string may look like a number");
    assert_eq!(loaded.files, [system.clone(), user, asked.clone()]);
    assert_eq!(loaded.origin(&["mode"]), Location::File { path: system, at: Some((1, 1)) });
    assert_eq!(loaded.origin(&["limits", "stuck_ms_max"]), Location::File { path: asked, at: Some((2, 1)) });
    assert_eq!(loaded.origin(&["limits", "passivate_after_ms"]).to_string(), "ANNIE__LIMITS__PASSIVATE_AFTER_MS");
    assert_eq!(loaded.origin(&["server", "user"]).to_string(), "--user");
    assert_eq!(loaded.origin(&["server", "bind"]), Location::Default);
}

#[test]
fn config_requires_the_explicitly_named_file() {
    let folder = tempfile::tempdir().unwrap();
    let error = Sources::only(folder.path().join("none.toml")).load().unwrap_err();
    assert!(error.what.contains("cannot be read") && error.fix.contains("annie config init"), "{error:?}");
}

#[test]
fn backend_secret_is_read_from_file_or_variable() {
    let folder = tempfile::tempdir().unwrap();
    let key = file(&folder, "key", "sk-from-file\n");
    let text = format!(
        "[[backend]]\nname = \"a\"\nbase_url = \"http://x/v1\"\nmodel = \"m\"\nslots = 1\napi_key_file = {key:?}\n\
         [[backend]]\nname = \"b\"\nbase_url = \"http://y/v1\"\nmodel = \"m\"\napi_key_env = \"B_KEY\"\n"
    );
    let path = file(&folder, "annie.toml", &text);
    let environment = Environment::of(&[("B_KEY", "sk-from-env"), ("ANNIE__BACKEND__1__MODEL", "n")]);
    let loaded = Sources { environment: environment.clone(), ..Sources::only(path) }.load().unwrap();
    let [a, b] = loaded.config.backend.as_slice() else { panic!("two backends") };
    let model = |backend: &BackendConfig| match backend.ready(&environment).unwrap() {
        ClientConfig::Model(model) => model,
        ClientConfig::Command(_) => panic!("a model"),
    };
    assert_eq!((a.pool.slots.unwrap(), model(a).api_key.unwrap().expose()), (1, "sk-from-file"));
    assert_eq!((model(b).model.as_str(), model(b).api_key.unwrap().expose()), ("n", "sk-from-env"));
    let none = b.ready(&Environment::default()).unwrap_err();
    assert_eq!(none.to_string(), "B_KEY: backend `b` reads its key from here, and it is not set or empty");
    let shown: Vec<String> = lines(&loaded).unwrap().iter().map(|l| format!("{} {}", l.key, l.value)).collect();
    assert!(!shown.join("\n").contains("sk-from"), "{shown:?}");
    assert!(shown.contains(&"backend.1.model \"n\"".to_owned()), "{shown:?}");
}

#[test]
fn annie_model_variable_alone_enables_well_known_variables() {
    let load = |variables: &[(&str, &str)]| {
        let sources = Sources { environment: Environment::of(variables), ..Sources::default() };
        sources.load().unwrap().config.backend
    };
    assert!(load(&[("OPENAI_API_KEY", "sk-1")]).is_empty());
    let [openai] = &load(&[("OPENAI_API_KEY", "sk-1"), ("ANNIE_MODEL", "m")])[..] else { panic!("one") };
    let model = model_of(openai);
    assert_eq!((model.profile, model.base_url.as_str()), (Profile::OpenAi, "https://api.openai.com/v1"));
    assert_eq!(openai.pool.api_key_env.as_deref(), Some("OPENAI_API_KEY"));
    let [router] = &load(&[("OPENAI_API_KEY", "1"), ("OPENROUTER_API_KEY", "2"), ("ANNIE_MODEL", "m")])[..] else {
        panic!("one")
    };
    assert_eq!(model_of(router).profile, Profile::OpenRouter);
    let [local] = &load(&[("OPENAI_BASE_URL", "http://127.0.0.1:11434/v1"), ("ANNIE_MODEL", "m")])[..] else {
        panic!("one")
    };
    assert_eq!((model_of(local).profile, local.pool.api_key_env.as_deref()), (Profile::Ollama, None));
}

#[test]
fn config_error_of_appended_backend_names_its_variable() {
    let environment = Environment::of(&[("ANNIE__BACKEND__7__MODEL", "m")]);
    let error = Sources { environment, ..Sources::default() }.load().unwrap_err();
    assert!(error.to_string().starts_with("ANNIE__BACKEND__7__MODEL: `backend.0.base_url`"), "{error}");
}

#[test]
fn config_backends_of_later_file_replace_earlier_ones() {
    let folder = tempfile::tempdir().unwrap();
    let backend = |name: &str| format!("[[backend]]\nname = \"{name}\"\nbase_url = \"http://x/v1\"\nmodel = \"m\"\n");
    let first = file(&folder, "first.toml", &(backend("a") + &backend("b")));
    let second = file(&folder, "second.toml", &backend("c"));
    let environment = Environment::of(&[("ANNIE_MODEL", "other")]);
    let sources = Sources { files: vec![first], asked: Some(second), environment, ..Sources::default() };
    let loaded = sources.load().unwrap();
    assert_eq!(loaded.config.backend.len(), 1);
    let model = model_of(&loaded.config.backend[0]);
    assert_eq!((model.name.as_str(), model.model.as_str()), ("c", "other"));
    assert!(loaded.origins.keys().all(|path| path[0] != "backend" || path[1] == "0"), "{:?}", loaded.origins);
}

/// Every key with a value other than its default.
const OTHERWISE: &str = r#"
mode = "direct"
timezone = "Asia/Tokyo"
[server]
bind = "127.0.0.1:1"
user = "ann"
require_key = true
admin_bind = "off"
[client]
url = "http://127.0.0.1:2"
key_file = "k"
[api]
body_bytes_max = 1
body_ms_max = 2
head_ms_max = 14
requests_per_connection_max = 15
grpc_request_bytes_max = 3
grpc_response_bytes_max = 4
connections_max = 5
connections_per_address_max = 16
requests_max = 6
streams_max = 7
streams_per_user_max = 8
stream_ms_max = 9
wait_s_max = 10
attempt_ms_max = 19
requests_per_minute_max = 11
requests_burst_max = 12
wrong_keys_per_minute_max = 17
wrong_keys_burst_max = 18
drain_ms_max = 13
allowed_hosts = ["a"]
allowed_origins = ["b"]
[data]
folder = "d"
accept_empty_database = true
separate_notes = true
[store]
url_file = "u"
connections_max = 4
connect_ms_max = 5
statement_ms_max = 6
node_lease_ms = 2000
node_renew_ms = 600
synchronous = "normal"
busy_timeout_ms = 1
readers_max = 9
database_bytes_max = 100000000
[user.ann]
name = "Ann"
timezone = "Europe/Prague"
[limits]
message_bytes_max = 1
round_ms_max = 2
passivate_after_ms = 3
engines_max = 4
stuck_ms_max = 5
[turn]
agents_max = 1
skill_calls_max = 2
iterations_max = 3
single_loop_calls_max = 4
agent_calls_default = 6
agent_calls_max = 7
agent_round_ms_max = 8
window_calls_max = 9
window_ms = 10
crashes_max = 11
restarts_max = 12
context_tokens_max = 9000
window_tokens_max = 31000
voice_response_tokens_max = 19
compaction_messages = 22
compaction_overlap_messages = 21
main_interface = "cmd"
planning = "plan_react"
redact = ["pii"]
system_tokens_reserve = 14
response_tokens_reserve = 15
ready_answers = false
defer_ms = 16
[turn.dead_letters]
retry_after_ms = 17
archive_after_ms = 18
retry_from = "low"
[deadline]
realtime = { soft_ms = 1, hard_ms = 2 }
high = { soft_ms = 3, hard_ms = 4 }
normal = { soft_ms = 5, hard_ms = 6 }
low = { soft_ms = 7, hard_ms = 8 }
background = { soft_ms = 9, hard_ms = 10 }
permit_ms_max = 11
voice_simple = { soft_ms = 11, hard_ms = 12 }
voice_action = { soft_ms = 13, hard_ms = 14 }
[routing]
mode = "shadow"
default_rules = false
[sub_agent]
interface = "json"
model = "offline"
timeout_ms_max = 9
control = true
[queue]
waiting_max = 1
aging_ms_per_class = 2
preemptions_max = 4
round_guess_ms = 5
realtime_max = 6
depth_per_user = { high_max = 6, normal_max = 7, low_max = 8, background_max = 9 }
[prompt]
rules = ["Never use emoji."]
short_for_small_talk = true
[audit]
seal_ms = 1
[retention]
trash_days = 1
events_days = 2
working_data_hours = 3
pass_ms = 4
[memory]
halved_after_days = 7
[spend]
turn_tokens_max = 1
turn_usd_max = 2.5
conversation_tokens_max = 3
conversation_usd_max = 4.5
user_day_tokens_max = 5
user_day_usd_max = 6.5
[notify]
every_ms = 1
gather_ms = 2
keep_ms = 3
[breaker]
failures_max = 1
open_ms = 2
[egress]
enabled = true
hosts = ["*.example.org"]
ports = [443]
allow_private = ["127.0.0.1:8080"]
credentials = { "api.example.org" = "example-token" }
robots = true
redirects_max = 1
reply_bytes_max = 2
connect_ms_max = 3
total_ms_max = 4
[files]
folder = [{ path = "/srv/docs", access = "write", name = "docs", users = ["ann"] }]
read_bytes_max = 1
write_bytes_max = 2
[web_search]
kind = "searxng"
url = "https://searx.example.org/search"
secret = "search-key"
[sandbox]
level = "best_effort"
network = true
read = ["/srv/texts"]
output_bytes_max = 1
address_bytes_max = 2
file_bytes_max = 3
files_max = 4
processes_max = 5
[skills.shell]
allow = ["ls"]
[secrets]
key_file = "k"
[log]
level = "debug"
format = "json"
[metrics]
enabled = false
[telemetry]
otlp_endpoint = "https://collector.test"
otlp_headers = { authorization = "otlp" }
service_name = "home"
content = true
queue_max = 111
batch_spans_max = 112
delay_ms = 113
timeout_ms = 114
[chaos]
enabled = true
[workflows]
steps_max = 1
parallel_max = 2
loop_max = 3
calls_max = 4
value_bytes_max = 5
[result_checks]
empty = false
guard_pages = false
overlap_percent_min = 1
flag_below_percent = 2
sizes = { "web.fetch" = { chars_min = 3, chars_max = 4 } }
[error_router]
retry_reads = false
retry_wait_ms = 1
run_alternatives = false
alternatives_per_goal_max = 2
alternatives_per_turn_max = 4
alternatives_model = "offline"
chains = { http_403 = ["report_failure"] }
alternatives = { "web.fetch" = ["web.mirror"] }
[loop_guard]
enabled = false
preset = "openclaw"
window_calls = 101
warning_calls = 1
critical_calls = 2
unknown_tool_calls = 4
breaker_calls = 9
vetoes_max = 3
near_warning_calls = 5
near_critical_calls = 6
cycle_warning_laps = 1
cycle_critical_laps = 2
changing_calls = 13
cascade_warning_calls = 5
cascade_critical_calls = 7
known_failure_calls = 2
compaction_calls = 4
ping_pong_calls = 5
churn_variant_calls = 4
cycle_calls_max = 5
near_percent_max = 20
pollers = ["builds.*"]
[loop_guard.detectors]
generic_repeat = false
known_poll_no_progress = false
ping_pong = false
argument_churn = false
unknown_tool_repeat = false
global_circuit_breaker = false
cycle = false
near_identical = false
changing_result = false
error_cascade = false
known_failure = false
compaction_loop = false
[approval]
default = "always"
rules = [{ mode = "ask", when = { skills = ["mail.*"] }, effects = ["once"], external = true }]
after_untrusted = "always"
reads_after_untrusted = "ask"
untrusted = ["tasks.*"]
trusted = ["mcp.git.*"]
expires_ms = 2000
[[hook]]
name = "h"
point = "before_skill"
kind = "refuse"
when = { skills = ["mail.*"], users = ["bob"], channels = ["voice"], agents = "sub" }
text = "No."
[guard]
injection = "refuse"
model_calls_per_conversation_max = 7
model_calls_window_ms = 60000
[[guard.topic]]
name = "money"
words = ["stock tip"]
pattern = "crypto"
action = "refuse"
reply = "No advice."
[voice]
plain = false
sentences_max = 3
[cache]
seconds = 300
entries_max = 9
[[channel]]
name = "helpdesk"
kind = "webhook"
url = "https://example.org/annie"
secret_file = "/run/secrets/annie"
users = ["ann"]
deduplicates = true
[[mcp]]
name = "git"
enabled = false
command = ["/usr/bin/mcp-server-git"]
folder = "/srv"
env_pass = ["PATH"]
env = { GIT_PAGER = "cat" }
env_secrets = { GITHUB_TOKEN = "github" }
process = { files_max = 9 }
protocol = "2025-11-25"
timeout_ms = 1
message_bytes_max = 2
refresh_ms = 3
trust_annotations = true
effects = { git_status = "read" }
external = false
pins = { git_status = "1111111111111111111111111111111111111111111111111111111111111111" }
"#;

#[test]
fn config_limits_reach_kernel_and_store() {
    let config = typed(OTHERWISE.parse().unwrap()).unwrap();
    assert_eq!(config.problems(), []);
    let (all, usual) = (table(&config).unwrap(), table(&Config::default()).unwrap());
    for leaf in super::layers::leaves(&all) {
        let at = |table: &toml::Table| leaf.iter().try_fold(Value::Table(table.clone()), down);
        assert_ne!(at(&all), at(&usual), "{leaf:?} has its default in this test");
    }
    let limits = config.kernel_limits();
    let KernelLimits {
        mode,
        turn,
        breaker,
        round_ms_max,
        passivate_after_ms,
        engines_max,
        stuck_ms_max,
        message_bytes_max,
        deadlines,
        queue,
        notify,
        lease,
        spend,
        rules,
        is_small_talk_short,
        guards,
        cache,
        trash_ms,
        agent_model,
        workflow,
    } = limits;
    assert_eq!((agent_model.as_str(), turn.agent_timeout_ms_max, turn.agent_control), ("offline", 9, true));
    assert_eq!((mode, turn.interface), (Mode::Direct, SubAgentInterface::Json));
    assert_eq!((message_bytes_max, round_ms_max, passivate_after_ms, engines_max, stuck_ms_max), (1, 2, 3, 4, 5));
    assert_eq!(turn.loop_guard, config.loop_guard.limits());
    assert_eq!(turn.error_router, config.error_router);
    assert_eq!(turn.result_checks, config.result_checks);
    assert_eq!(turn.voice, config.voice);
    assert_eq!(
        annie_core::limits::TurnLimits {
            interface: SubAgentInterface::Cmd,
            agent_timeout_ms_max: config.turn.agent_timeout_ms_max,
            agent_control: false,
            loop_guard: config.turn.loop_guard.clone(),
            error_router: config.turn.error_router.clone(),
            result_checks: config.turn.result_checks.clone(),
            voice: config.turn.voice,
            ..turn
        },
        config.turn
    );
    assert_eq!((queue, breaker, deadlines), (config.queue.clone(), config.breaker, config.deadline));
    assert_eq!((notify, spend), (config.notify.clone(), config.spend));
    assert_eq!((rules, is_small_talk_short), (config.prompt.rules.clone(), config.prompt.short_for_small_talk));
    assert_eq!((cache.kept_ms, cache.entries_max), (config.cache.seconds * 1_000, config.cache.entries_max));
    assert_eq!((guards.injection, guards.calls.calls_max, guards.calls.window_ms), (config.guard.injection, 7, 60_000));
    assert!(guards.refuses("a stock tip"));
    assert_eq!(trash_ms, 24 * 3_600_000);
    assert_eq!((workflow.steps_max, workflow.parallel_max, workflow.loop_max), (1, 2, 3));
    assert_eq!((workflow.calls_max, workflow.value_bytes_max), (4, 5));
    assert_eq!((lease.lease_ms, lease.renew_ms), (2_000, 600));
    let postgres = config.store.postgres();
    assert_eq!((postgres.connections_max, postgres.connect_ms_max, postgres.statement_ms_max), (4, 5, 6));
    let options = config.store.sqlite();
    assert_eq!((options.durability, options.busy_timeout_ms, options.readers_max), (Durability::Normal, 1, 9));
    assert_eq!(options.database_bytes_max, Some(100_000_000));
}

/// All keys, as `table.key`.
fn all_keys() -> BTreeSet<String> {
    let mut keys: BTreeSet<String> = BTreeSet::new();
    let config = typed(OTHERWISE.parse().unwrap()).unwrap();
    let dotted = |leaf: &Vec<String>| leaf.join(".").replace("user.ann.", "user.me.");
    keys.extend(super::layers::leaves(&table(&config).unwrap()).iter().map(dotted));
    keys.extend(["client.key", "secrets.key_env", "store.url", "store.url_env"].map(str::to_owned));
    keys
}

#[test]
fn config_sample_has_every_key_with_default_and_loads() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made/annie.toml");
    write_sample(&path).unwrap();
    assert_eq!(Sources::only(path.clone()).load().unwrap().config, Config::default());
    assert!(write_sample(&path).is_err(), "an existing file is not overwritten");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let enabled = enabled_sample();
    let config = typed(enabled.parse().unwrap()).unwrap();
    let written: BTreeSet<String> =
        super::layers::leaves(&enabled.parse().unwrap()).iter().map(|leaf| leaf.join(".")).collect();
    let missing: Vec<_> = all_keys().difference(&written).cloned().collect();
    assert!(missing.is_empty(), "the sample lacks {missing:?}");
    // The sample shows the defaults, except for keys that have none.
    let usual = Config::default();
    assert_eq!(
        (&config.limits, &config.turn, &config.queue, &config.breaker),
        (&usual.limits, &usual.turn, &usual.queue, &usual.breaker)
    );
    assert_eq!((&config.server, &config.api, &config.log), (&usual.server, &usual.api, &usual.log));
    assert_eq!((&config.deadline, &config.routing, &config.notify), (&usual.deadline, &usual.routing, &usual.notify));
    assert_eq!(config.spend, usual.spend);
    let model = model_of(&config.backend[0]);
    let plain = annie_llm::ModelConfig::default();
    assert_eq!(
        (model.call_ms_max, model.reply_bytes_max, model.idle_ms_max),
        (plain.call_ms_max, plain.reply_bytes_max, plain.idle_ms_max)
    );
}

/// The sample with every commented key enabled.
fn enabled_sample() -> String {
    let is_key = |line: &str| {
        line.starts_with("[")
            || line.split_once(" = ").is_some_and(|(key, _)| key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'))
    };
    let lines = SAMPLE.lines().map(|line| match line.strip_prefix("# ") {
        Some(rest) if is_key(rest) => rest,
        _ => line,
    });
    // Top-level keys already precede the first table in the file.
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn environment_gives_time_zone_and_folders() {
    let environment =
        Environment::of(&[("TZ", ":Europe/Prague"), ("HOME", "/home/ann"), ("XDG_CONFIG_HOME", "relative")]);
    assert_eq!(environment.timezone(), "Europe/Prague");
    assert_eq!(environment.user_file().unwrap(), PathBuf::from("/home/ann/.config/annie/annie.toml"));
    assert_eq!(environment.data_folder().unwrap(), PathBuf::from("/home/ann/.local/share/annie"));
    assert!(Environment::of(&[("TERM", "dumb")]).no_color() && !Environment::default().no_color());
}
