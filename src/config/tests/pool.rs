//! Backends of both kinds, rules and deadlines: where every key takes effect, and the errors of invalid keys.

use annie_core::{
    event::{Mode, Priority},
    limits::{Deadline, Deadlines, MainInterface},
    route::{BackendFacts, Cost, Privacy, RateWindow, RouteMode, default_rules},
};
use annie_llm::CommandConfig;
use toml::Table;

use super::*;

fn config(text: &str) -> Config {
    let folder = tempfile::tempdir().unwrap();
    Sources::only(file(&folder, "annie.toml", text)).load().map_err(|e| format!("{e}; {}", e.fix)).unwrap().config
}

/// A model server with additional keys.
fn server(more: &str) -> String {
    format!("[[backend]]\nname = \"a\"\nbase_url = \"http://x/v1\"\nmodel = \"m\"\n{more}\n")
}

/// A program with additional keys.
fn program(more: &str) -> String {
    format!("[[backend]]\nname = \"p\"\nkind = \"command\"\nprogram = \"/bin/true\"\nfolder = \"/\"\n{more}\n")
}

fn facts(text: &str) -> BackendFacts {
    config(text).facts().remove(0)
}

#[test]
fn backend_config_reaches_pool_facts() {
    let more = "slots = 2\ncapabilities = [\"git\", \"web\"]\nprivacy = \"local\"\ncontext_tokens_max = 9000\n\
                window = { requests_max = 60, window_ms = 1000, reserve = 5 }\ncalled = [\"Big One\"]\n\
                price = { input = 1.0, output = 2.5 }\nmode = \"single_loop\"\ninterface = \"cmd\"\n\
                output_tokens_max = 700";
    let wanted = BackendFacts {
        name: "a".into(),
        capabilities: ["git", "web"].map(str::to_owned).into(),
        privacy: Privacy::Local,
        context_tokens_max: Some(9_000),
        output_tokens_max: Some(700),
        reasons: false,
        is_hosted: false,
        slots: 2,
        learns_slots: false,
        cost: Some(Cost { input_usd: 1.0, output_usd: 2.5 }),
        window: Some(RateWindow { requests_max: 60, window_ms: 1_000, reserve: 5 }),
        called: vec!["Big One".into()],
        mode: Some(Mode::SingleLoop),
        interface: Some(MainInterface::Cmd),
        acts: false,
    };
    assert_eq!(facts(&server(more)), wanted);
    let plain = facts(&server(""));
    assert_eq!(
        (plain.slots, plain.learns_slots, plain.called, plain.privacy, plain.acts),
        (4, true, vec!["a".to_owned()], Privacy::Cloud, false)
    );
    assert!(facts(&server("called = []")).called.is_empty());
}

#[test]
fn program_backend_acts_and_counts_as_cloud() {
    let more = "args = [\"-p\", \"{prompt}\"]\nenv_pass = [\"HOME\"]\nenv = { TOKEN = \"t-secret\" }\nrun_ms_max = 5\n\
                output_bytes_max = 6\nstderr_bytes_max = 7\nprompt_bytes_max = 8\nlimits = { files_max = 9 }\n\
                failures = [{ exit = 3, kind = \"overflow\" }]\nslots = 1\ncapabilities = [\"shell\"]";
    let config = self::config(&program(more));
    let facts = config.facts().remove(0);
    assert_eq!((facts.name.as_str(), facts.acts, facts.privacy, facts.slots), ("p", true, Privacy::Cloud, 1));
    let ClientConfig::Command(command) = &config.backend[0].client else { panic!("a program") };
    assert_eq!((command.args.len(), &command.env_pass[..], command.run_ms_max), (2, &["HOME".to_owned()][..], 5));
    assert_eq!((command.output_bytes_max, command.stderr_bytes_max, command.prompt_bytes_max), (6, 7, 8));
    assert_eq!((command.limits.files_max, command.failures.len()), (Some(9), 1));
    let local = self::config(&program("privacy = \"local\""));
    assert_eq!(local.facts()[0].privacy, Privacy::Local);
}

#[test]
fn backend_is_local_by_default_only_for_self_hosted_server_at_private_address() {
    for (profile, url, local) in [
        ("vllm", "http://127.0.0.1:8000/v1", true),
        ("llamacpp", "http://localhost:8080/v1", true),
        ("ollama", "http://192.168.1.5:11434/v1", true),
        ("ollama", "http://[::1]:11434/v1", true),
        ("vllm", "http://[fd00::5]:8000/v1", true),
        ("vllm", "http://10.0.0.7/v1", true),
        ("vllm", "http://GPU.internal:8000/v1", true),
        ("vllm", "http://11.0.0.7/v1", false),
        ("vllm", "http://[2001:db8::1]/v1", false),
        ("vllm", "https://gpu.example.org/v1", false),
        ("vllm", "https://localhost.example.org/v1", false),
        ("generic", "http://127.0.0.1:4000/v1", true),
        ("generic", "http://127.8.9.10/v1", true),
        ("generic", "http://[::1]:4000/v1", true),
        ("generic", "http://[::ffff:127.0.0.1]:4000/v1", true),
        ("generic", "http://LOCALHOST:1234/v1", true),
        ("generic", "http://localhost.example.org/v1", false),
        ("generic", "http://192.168.1.5:1234/v1", false),
        ("generic", "http://gpu.local:1234/v1", false),
        ("generic", "http://128.0.0.1/v1", false),
        ("openai", "http://127.0.0.1:4000/v1", false),
        ("anthropic", "http://127.0.0.1:4000/v1", false),
        ("azure", "http://127.0.0.1:4000/openai/v1", false),
        ("openrouter", "https://openrouter.ai/api/v1", false),
    ] {
        let text = format!("[[backend]]\nname = \"a\"\nmodel = \"m\"\nprofile = {profile:?}\nbase_url = {url:?}\n");
        assert_eq!(facts(&text).privacy == Privacy::Local, local, "{profile} {url}");
    }
    let here = "[[backend]]\nname = \"a\"\nmodel = \"m\"\nbase_url = \"http://localhost:8080/v1\"\n";
    assert_eq!(facts(here).privacy, Privacy::Local);
    assert_eq!(facts(&format!("{here}privacy = \"cloud\"\n")).privacy, Privacy::Cloud);
}

#[test]
fn backend_behind_a_proxy_is_cloud_whatever_its_profile_and_address() {
    for profile in ["generic", "vllm", "llamacpp", "ollama"] {
        for host in ["127.0.0.1", "localhost", "192.168.1.5"] {
            let text = format!(
                "[[backend]]\nname = \"a\"\nmodel = \"m\"\nprofile = {profile:?}\nbase_url = \"http://{host}:8000/v1\"\n\
                 proxy = \"http://proxy.example.org:3128\"\n"
            );
            assert_eq!(facts(&text).privacy, Privacy::Cloud, "{profile} at {host}: the proxy reads the request");
            let chosen = facts(&format!("{text}privacy = \"local\"\n"));
            assert_eq!(chosen.privacy, Privacy::Local, "the operator decides whether the proxy is trusted");
        }
    }
}

#[test]
fn backend_profile_counts_as_set_only_when_written_in_file() {
    let is_set = |more: &str| model_of(&config(&server(more)).backend[0]).is_profile_set;
    assert_eq!((is_set(""), is_set("profile = \"generic\""), is_set("profile = \"vllm\"")), (false, true, true));
    let environment = Environment::of(&[("OPENAI_BASE_URL", "http://127.0.0.1:8080/v1"), ("ANNIE_MODEL", "m")]);
    let config = Sources { environment, ..Sources::default() }.load().unwrap().config;
    assert!(!model_of(&config.backend[0]).is_profile_set, "the server at that port is unknown");
    assert_eq!(config.facts()[0].privacy, Privacy::Local, "private requests stay on this machine");
}

#[test]
fn config_refuses_invalid_pool_key_with_its_location() {
    let at = |line: usize, key: &str, what: &str| format!("annie.toml:{line}:1: `backend.0.{key}`: {what}");
    let within = |column: usize, key: &str, what: &str| format!("annie.toml:5:{column}: `backend.0.{key}`: {what}");
    for (text, wanted) in [
        (
            server("").replace("\"a\"", "\"workflow\""),
            at(2, "name", "\"workflow\" is the name of replies that come from a workflow"),
        ),
        (server("slots = 0"), at(5, "slots", "slots is 0; give at least 1")),
        (
            server("capabilities = [\"Git it\"]"),
            at(5, "capabilities", "capability \"Git it\" is no word of small letters"),
        ),
        (server("context_tokens_max = 0"), at(5, "context_tokens_max", "context_tokens_max is 0")),
        (
            server("window = { requests_max = 0, window_ms = 1 }"),
            within(12, "window", "its window needs 1 to 100000 requests"),
        ),
        (
            server("window = { requests_max = 2, window_ms = 1, reserve = 2 }"),
            within(12, "window", "its window's reserve leaves nothing"),
        ),
        (server("called = [\"a, b\"]"), at(5, "called", "users cannot call it \"a, b\"")),
        (server("price = { input = -1.0 }"), within(11, "price", "a cost is not a price")),
        (server("privacy = \"secret\""), "annie.toml:5:11: `backend.0.privacy`: unknown value `secret`".to_owned()),
        (server("kind = \"magic\""), "annie.toml:5:8: `backend.0.kind`: unknown value `magic`".to_owned()),
        (
            program("program = \"true\"").replacen("program = \"/bin/true\"\n", "", 1),
            "annie.toml:5:1: `backend.0.program`: program \"true\" is not a whole path".to_owned(),
        ),
        (
            program("api_key_env = \"K\""),
            at(6, "api_key_env", "a program is given no key; name the variable in env_pass"),
        ),
        (server("") + &server(""), "annie.toml:7:1: `backend.1.name`: another backend is named \"a\" too".to_owned()),
        (
            server("") + &program("called = [\"A\"]"),
            "annie.toml:11:1: `backend.1.called`: \"A\" is what users call another one already".to_owned(),
        ),
    ] {
        assert!(error_text(&text).starts_with(&wanted), "{wanted}\n{}", error_text(&text));
    }
}

#[test]
fn config_tells_key_of_other_backend_kind_from_misspelt_key() {
    assert_eq!(
        error_text(&server("program = \"/bin/true\"")),
        "annie.toml:5:1: unknown key `backend.0.program`; it is a program's: add kind = \"command\" or remove it"
    );
    assert_eq!(
        error_text(&program("base_url = \"http://x\"")),
        "annie.toml:6:1: unknown key `backend.0.base_url`; it is a model server's: remove it, or kind = \"command\""
    );
    assert_eq!(
        error_text(&program("progarm = \"/bin/true\"")),
        "annie.toml:6:1: unknown key `backend.0.progarm`; did you mean `program`?"
    );
    let secret = error_text(&program("env = { TOKEN = 12345678 }"));
    assert!(!secret.contains("12345678"), "{secret}");
}

#[test]
fn variables_configure_program_backend_and_annie_model_sets_first_model() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, "annie.toml", &(program("") + &server("")));
    let environment = Environment::of(&[
        ("ANNIE__BACKEND__0__RUN_MS_MAX", "7"),
        ("ANNIE__BACKEND__0__ARGS", "[\"-x\"]"),
        ("ANNIE__BACKEND__0__CAPABILITIES", "[\"git\"]"),
        ("ANNIE_MODEL", "other"),
    ]);
    let config = Sources { environment, ..Sources::only(path) }.load().unwrap().config;
    let ClientConfig::Command(command) = &config.backend[0].client else { panic!("a program") };
    assert_eq!((command.run_ms_max, &command.args[..]), (7, &["-x".to_owned()][..]));
    assert!(config.backend[0].pool.capabilities.contains("git"));
    assert_eq!(model_of(&config.backend[1]).model, "other");
    assert!(variable_error("ANNIE__BACKEND__0__PROGARM", "x").contains("unknown key `backend.0.progarm`"));
}

const RULE: &str = "[[route]]\nname = \"mine\"\nwhen = { any_words = [\"invoice\"] }\nto = { backend = \"a\" }\n";

#[test]
fn configured_rules_come_first_and_replace_built_in_rules_of_same_name() {
    let names = |text: &str| -> Vec<String> {
        let config = self::config(text);
        let table = config.route_table(&config.facts()).unwrap();
        table.rules().map(|rule| rule.name.clone()).collect()
    };
    let usual: Vec<String> = default_rules().into_iter().map(|rule| rule.name).collect();
    assert_eq!(names(&server("")), usual);
    let all = names(&(server("") + RULE));
    assert_eq!((all[0].as_str(), &all[1..]), ("mine", &usual[..]));
    let git = names(&(server("") + &RULE.replace("mine", "git")));
    assert_eq!((git[0].as_str(), git.len(), git.iter().filter(|n| *n == "git").count()), ("git", usual.len(), 1));
    assert_eq!(names(&(server("") + RULE + "[routing]\ndefault_rules = false\n")), ["mine"]);
    let modes = [("automatic", RouteMode::Automatic), ("suggest", RouteMode::Suggest), ("shadow", RouteMode::Shadow)];
    for (word, mode) in modes {
        assert_eq!(config(&format!("[routing]\nmode = {word:?}\n")).routing.mode, mode);
    }
}

#[test]
fn config_refuses_invalid_rule_with_its_location() {
    let second = |rule: &str| server("") + RULE + "[[route]]\nname = \"two\"\n" + rule;
    for (text, wanted) in [
        (
            second("when = { any_words = [\"x\"] }\nto = { backend = \"b\" }\n"),
            "annie.toml:11:1: `route.1`: there is no backend `b`; there are: a",
        ),
        (second("when = {}\nto = { backend = \"a\" }\n"), "annie.toml:11:1: `route.1`: `when` is empty"),
        (
            second("when = { regex = \"(\" }\nto = { backend = \"a\" }\n"),
            "annie.toml:11:1: `route.1`: regex \"(\" is none",
        ),
        (second("when = { any_words = [\"x\"] }\nto = {}\n"), "annie.toml:11:1: `route.1`: `to` names neither"),
        (server("") + RULE + RULE, "annie.toml:11:1: `route.1`: there are two of this name"),
        (second("wen = {}\n"), "annie.toml:12:1: unknown key `route.1.wen`; did you mean `when`?"),
        (
            second("when = { words = [] }\n"),
            "annie.toml:12:10: unknown key `route.1.when.words`; did you mean `any_words`?",
        ),
        (second("when = { regex = \"x\" }\n"), "annie.toml:10:1: `route.1`: missing field `to`"),
        (
            second("when = { regex = \"x\" }\nto = { backend = \"a\" }\nfallback = \"perhaps\"\n"),
            "annie.toml:14:12: `route.1.fallback`: invalid value: string \"perhaps\", expected \"allow\", \"never\" or a list",
        ),
    ] {
        assert!(error_text(&text).starts_with(wanted), "{wanted}\n{}", error_text(&text));
    }
    let rules = "[{ name = \"x\", when = { regex = \"y\" }, to = { backend = \"nobody\" } }]";
    assert!(
        variable_error("ANNIE__ROUTE", rules)
            .starts_with("ANNIE__ROUTE: `route.0`: there is no backend `nobody`; there are: offline"),
        "{}",
        variable_error("ANNIE__ROUTE", rules)
    );
}

#[test]
fn idle_rules_lists_rules_that_no_backend_matches() {
    let config = self::config(&(server("") + &RULE.replace("backend = \"a\"", "capabilities = [\"fly\"]")));
    assert_eq!(config.idle_rules(&config.facts()), ["mine"]);
}

#[test]
fn config_refuses_strict_rule_that_no_backend_matches() {
    let local = RULE.replace("backend = \"a\"", "privacy = \"local\"") + "fallback = \"never\"\n";
    let cloud = server("privacy = \"cloud\"") + &local;
    let error = error_text(&cloud);
    assert!(error.contains(": `route.0`: it wants a local backend"), "{error}");
    assert!(error.contains("no such backend"), "{error}");
    let named = error_text(&cloud.replace("\"never\"", "[\"a\"]"));
    assert!(named.contains("no such backend"), "{named}");
    for fine in [
        cloud.replace("\"cloud\"", "\"local\""),
        cloud.replace("\"never\"", "\"allow\""),
        cloud.clone() + "[routing]\nmode = \"shadow\"\n",
        local,
    ] {
        config(&fine);
    }
}

#[test]
fn deadline_config_keeps_default_of_unset_key_and_checks_order() {
    let usual = Deadlines::default();
    assert_eq!(
        config("[deadline.high]\nsoft_ms = 7\n").deadline,
        Deadlines { high: Deadline { soft_ms: 7, ..usual.high }, ..usual }
    );
    let environment = Environment::of(&[("ANNIE__DEADLINE__LOW__HARD_MS", "9999999")]);
    let low = Sources { environment, ..Sources::default() }.load().unwrap().config.deadline.of(Priority::Low);
    assert_eq!((low.soft_ms, low.hard_ms), (usual.low.soft_ms, 9_999_999));
    for (text, wanted) in [
        ("[deadline.high]\nsoft_ms = 0\n", "annie.toml:2:1: `deadline.high.soft_ms`: it is 0; give at least 1"),
        (
            "[deadline.high]\nhard_ms = 30000\n",
            "annie.toml:2:1: `deadline.high.hard_ms`: it is not later than soft_ms; raise it, or lower soft_ms",
        ),
        ("[deadline.hihg]\n", "annie.toml:1:11: unknown key `deadline.hihg`; did you mean `high`?"),
        ("[deadline.low]\nsoft = 1\n", "annie.toml:2:1: unknown key `deadline.low.soft`; did you mean `soft_ms`?"),
        ("[turn]\ndefer_ms = 0\n", "annie.toml:2:1: `turn.defer_ms`: it is 0; give at least 1"),
        (
            "[turn.dead_letters]\nretry_after_ms = 0\n",
            "annie.toml:2:1: `turn.dead_letters.retry_after_ms`: it is 0; give at least 1",
        ),
        (
            "[turn.dead_letters]\narchive_after_ms = 1\n",
            "annie.toml:2:1: `turn.dead_letters.archive_after_ms`: it is not longer than retry_after_ms",
        ),
    ] {
        assert!(error_text(text).starts_with(wanted), "{wanted}\n{}", error_text(text));
    }
}

#[test]
fn config_sample_has_all_backend_keys_and_show_hides_secrets() {
    let sample: Table = enabled_sample().parse().unwrap();
    let of_sample = |kind: usize| -> BTreeSet<String> {
        sample["backend"][kind]
            .as_table()
            .unwrap()
            .keys()
            .chain(["api_key", "api_key_env"].map(str::to_owned).iter())
            .cloned()
            .collect()
    };
    let has = |known: BTreeSet<String>, table: Table| {
        let missing: Vec<String> = table.keys().filter(|key| !known.contains(*key)).cloned().collect();
        assert!(missing.is_empty(), "the sample lacks {missing:?}");
    };
    has(of_sample(0), Table::try_from(ModelConfig::default()).unwrap());
    has(of_sample(0), BackendConfig::POOL_KEYS.map(|key| (key.to_owned(), Value::Boolean(true))).into_iter().collect());
    has(of_sample(1), Table::try_from(CommandConfig::default()).unwrap());
    let rule = sample["route"][0].as_table().unwrap();
    assert_eq!(rule.keys().cloned().collect::<Vec<_>>(), ["fallback", "name", "reason", "to", "when"]);

    let folder = tempfile::tempdir().unwrap();
    let text = server("") + &program("env = { TOKEN = \"t-secret\" }") + RULE;
    let loaded = Sources::only(file(&folder, "annie.toml", &text)).load().unwrap();
    let shown: Vec<String> = lines(&loaded).unwrap().iter().map(|l| format!("{} {}", l.key, l.value)).collect();
    for line in [
        "backend.0.kind \"model\"",
        "backend.0.privacy \"cloud\"",
        "backend.0.called [\"a\"]",
        "backend.1.kind \"command\"",
        "backend.1.program \"/bin/true\"",
        "backend.1.run_ms_max 600000",
        "route.0.to.backend \"a\"",
        "routing.mode \"automatic\"",
        "deadline.high.hard_ms 120000",
        "turn.dead_letters.retry_from \"normal\"",
    ] {
        assert!(shown.contains(&line.to_owned()), "{line} is missing in {shown:#?}");
    }
    assert!(!shown.join("\n").contains("t-secret"), "{shown:?}");
}

#[test]
fn config_accepts_anthropic_and_azure_backends() {
    let claude = "[[backend]]\nname = \"claude\"\nprofile = \"anthropic\"\nmodel = \"m\"\n";
    let config = self::config(claude);
    let ClientConfig::Model(model) = &config.backend[0].client else { panic!("a model") };
    assert_eq!((config.problems(), model.base()), (Vec::new(), "https://api.anthropic.com/v1"));
    assert_eq!(config.facts()[0].privacy, Privacy::Cloud);
    let azure = "[[backend]]\nname = \"az\"\nprofile = \"azure\"\nmodel = \"gpt\"\n\
                 base_url = \"https://x.openai.azure.com/openai/deployments/gpt\"\n";
    assert_eq!(self::config(&format!("{azure}api_version = \"2024-10-21\"\n")).problems(), []);
    let folder = tempfile::tempdir().unwrap();
    let error = Sources::only(file(&folder, "annie.toml", azure)).load().unwrap_err().to_string();
    assert!(error.contains("`backend.0.api_version`: api_version is missing"), "{error}");
}

#[test]
fn pool_facts_know_reasoning_and_hosted_models() {
    let of = |more: &str| {
        let facts = facts(&format!("[[backend]]\nname = \"a\"\nbase_url = \"http://x/v1\"\n{more}\n"));
        (facts.reasons, facts.is_hosted)
    };
    assert_eq!(of("profile = \"openai\"\nmodel = \"o3-mini\""), (true, true));
    assert_eq!(of("profile = \"openai\"\nmodel = \"gpt-4o\""), (false, true));
    assert_eq!(of("profile = \"vllm\"\nmodel = \"Qwen/QwQ-32B\""), (true, false));
}
