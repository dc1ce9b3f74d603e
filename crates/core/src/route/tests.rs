//! Tests of routing as a whole: the default table [S3 10.3], fallbacks, names before a request, and invalid tables.

mod learned;
mod properties;
mod task;

use super::*;
use crate::{
    event::Priority,
    message::{ModelError, ModelErrorKind as Kind},
    time::Micros,
};

/// A pool of two [S3 10.2]: a local GPU that serves voice, and a command-line agent.
fn pool() -> Vec<BackendFacts> {
    let gpu = BackendFacts {
        name: "gpu".to_owned(),
        capabilities: ["tools", "voice", "python", "browser"].map(str::to_owned).into(),
        privacy: Privacy::Local,
        context_tokens_max: Some(131_072),
        ..BackendFacts::default()
    };
    let coder = BackendFacts {
        name: "coder".to_owned(),
        capabilities: ["git", "files", "shell", "web", "mcp"].map(str::to_owned).into(),
        called: vec!["claude".to_owned(), "Claude Code".to_owned()],
        acts: true,
        ..BackendFacts::default()
    };
    vec![gpu, coder]
}

fn asked(text: &str) -> Asked<'_> {
    Asked { text, source: "http", priority: Priority::High, skills: &[], tokens_estimate: 4_000, private: false }
}

fn table(facts: &[BackendFacts]) -> RouteTable {
    RouteTable::new(default_rules(), facts).unwrap()
}

fn routed(facts: &[BackendFacts], mode: RouteMode, asked: &Asked<'_>) -> Result<Route, NoRoute> {
    choose(&table(facts), facts, mode, asked)
}

fn automatic(text: &str) -> Route {
    routed(&pool(), RouteMode::Automatic, &asked(text)).unwrap()
}

#[test]
fn default_routes_match_specified_table() {
    for (text, backend, rule) in [
        ("Summarize https://www.youtube.com/watch?v=abc please", "coder", Some("video")),
        ("what does https://youtu.be/abc say?", "coder", Some("video")),
        ("check git status", "coder", Some("git")),
        ("Commit these changes", "coder", Some("git")),
        ("ok, can you commit the fix?", "coder", Some("git")),
        ("push it to origin", "coder", Some("git")),
        ("open a PR for this", "coder", Some("git")),
        ("edit file notes.txt", "coder", Some("files")),
        ("please fix src/main.rs", "coder", Some("files")),
        ("ask the MCP server for tickets", "coder", Some("mcp")),
        ("search for Czech beer", "gpu", Some("search")),
        ("Research the history of Brno", "gpu", Some("search")),
        ("remember that Bob prefers email", "gpu", Some("memory")),
        ("what time is it", "gpu", None),
        ("run this python: print(1)", "gpu", Some("python")),
        ("fill in the web form", "gpu", Some("browser")),
    ] {
        let route = automatic(text);
        assert_eq!((route.primary(), route.rule.as_deref()), (backend, rule), "{text}: {}", route.reason);
        assert!(route.agrees());
    }
}

#[test]
fn default_routes_ignore_phrases_that_only_resemble_requests() {
    for text in [
        "Create a task to review PR 42 due tomorrow, remember that Bob prefers email, and then tell me what is due",
        "remind me to push the branch tomorrow",
        "I cannot commit to a date yet",
        "the committee met on Monday",
        "turn off push notifications",
        "my digit status is fine",
        "add an event: git workshop on Friday",
    ] {
        assert_eq!(automatic(text).primary(), "gpu", "{text}");
    }
}

#[test]
fn default_routes_send_everything_to_single_plain_backend() {
    let plain = vec![BackendFacts { name: "only".to_owned(), ..BackendFacts::default() }];
    assert_eq!(table(&plain).idle().count(), table(&plain).rules().count());
    for text in ["git status", "remember me", "https://youtu.be/x", "hello", "edit file x"] {
        for (source, priority) in [("http", Priority::Normal), ("voice", Priority::Realtime)] {
            let asked = Asked { source, priority, ..asked(text) };
            let route = routed(&plain, RouteMode::Automatic, &asked).unwrap();
            assert_eq!((route.candidates, route.rule), (vec!["only".to_owned()], None));
        }
    }
}

#[test]
fn route_fallbacks_match_specification() {
    assert_eq!(automatic("hello").candidates, ["gpu"], "a program is not a fallback unless it is named");
    assert_eq!(automatic("https://youtu.be/x").candidates, ["coder", "gpu"]);
    assert_eq!(automatic("git status").candidates, ["coder"], "git needs the repository");
    assert_eq!(automatic("remember this").candidates, ["gpu"]);
    let voice = Asked { source: "voice", priority: Priority::Realtime, ..asked("git status") };
    let route = routed(&pool(), RouteMode::Automatic, &voice).unwrap();
    assert_eq!((route.candidates, route.rule.as_deref()), (vec!["gpu".to_owned()], Some("voice")));
}

#[test]
fn program_is_routed_only_if_rule_capability_or_user_names_it() {
    let mut facts = pool();
    facts[1].privacy = Privacy::Local;
    for text in ["hello", "search for Czech beer", "remind me to call Bob"] {
        for mode in [RouteMode::Automatic, RouteMode::Shadow, RouteMode::Suggest] {
            let route = routed(&facts, mode, &asked(text)).unwrap();
            assert_eq!(route.candidates, ["gpu"], "{text}: {}", route.reason);
            let sent = "`coder`: it is a program, which runs only where a rule or the user names it";
            assert_eq!(route.alternatives, [sent]);
        }
    }
    let long = Asked { tokens_estimate: 200_000, ..asked("hello") };
    for mode in [RouteMode::Automatic, RouteMode::Shadow] {
        let refused = routed(&facts, mode, &long).unwrap_err().to_string();
        assert!(refused.contains("too small") && refused.contains("`coder`: it is a program"), "{refused}");
    }
    let rule = |fallback| RouteRule {
        name: "hello".to_owned(),
        when: When { any_words: vec!["hello".to_owned()], ..When::default() },
        to: Target::backend("gpu"),
        fallback,
        reason: String::new(),
    };
    let by = |fallback| {
        let table = RouteTable::new(vec![rule(fallback)], &facts).unwrap();
        choose(&table, &facts, RouteMode::Automatic, &asked("hello")).unwrap().candidates
    };
    assert_eq!(by(Fallback::Allow), ["gpu"]);
    assert_eq!(by(Fallback::Names(vec!["coder".to_owned()])), ["gpu", "coder"], "a rule names it");
    assert_eq!(automatic("git status").candidates, ["coder"], "a capability names it");
    assert_eq!(automatic("claude, hello").candidates, ["coder"], "the user names it");
    facts.remove(0);
    assert_eq!(
        routed(&facts, RouteMode::Automatic, &asked("hello")).unwrap().candidates,
        ["coder"],
        "there is no other"
    );
}

#[test]
fn route_orders_rule_backends_before_named_fallbacks() {
    let names = ["a", "b", "c", "d"];
    let of = |name: &str| BackendFacts { name: name.to_owned(), ..BackendFacts::default() };
    let mut facts: Vec<BackendFacts> = names.into_iter().map(of).collect();
    for n in [1, 3] {
        facts[n].capabilities.insert("git".to_owned());
    }
    facts[1].cost = Some(Cost { input_usd: 3.0, output_usd: 15.0 });
    let rule = |fallback: &[&str], prefer| RouteRule {
        name: "r".to_owned(),
        when: When { any_words: vec!["git".to_owned()], ..When::default() },
        to: Target { prefer, ..Target::able(["git"]) },
        fallback: Fallback::Names(fallback.iter().map(|&n| n.to_owned()).collect()),
        reason: String::new(),
    };
    let order = |rule: RouteRule| {
        let table = RouteTable::new(vec![rule], &facts).unwrap();
        choose(&table, &facts, RouteMode::Automatic, &asked("git!")).unwrap().candidates.concat()
    };
    assert_eq!(order(rule(&["c", "a", "c"], Preference::Listed)), "bdca");
    assert_eq!(order(rule(&[], Preference::Cheapest)), "db");
}

#[test]
fn route_modes_shadow_and_suggest_use_first_backend_and_record_choice() {
    let shadow = routed(&pool(), RouteMode::Shadow, &asked("git status")).unwrap();
    assert_eq!((shadow.candidates.concat().as_str(), shadow.chosen.as_deref()), ("gpu", Some("coder")));
    assert!(!shadow.agrees() && shadow.suggestion.is_none() && shadow.reason.contains("rule `git`"), "{shadow:?}");
    let suggest = routed(&pool(), RouteMode::Suggest, &asked("git status")).unwrap();
    let sent = suggest.suggestion.clone().unwrap();
    assert_eq!(suggest.primary(), "gpu");
    assert!(sent.contains("\"Claude,\"") && sent.contains("git command line"), "{sent}");
    let agreed = routed(&pool(), RouteMode::Suggest, &asked("hello")).unwrap();
    assert!(agreed.agrees() && agreed.suggestion.is_none());
}

#[test]
fn backend_called_by_name_is_used_in_every_mode_and_name_is_stripped() {
    for mode in [RouteMode::Shadow, RouteMode::Suggest, RouteMode::Automatic] {
        for text in [
            "Claude, what time is it",
            "claude: what time is it",
            " CLAUDE,what time is it",
            "@claude , what time is it",
        ] {
            let route = routed(&pool(), mode, &asked(text)).unwrap();
            assert_eq!(route.candidates, ["coder"], "{text}");
            assert_eq!(route.stripped_text.as_deref(), Some("what time is it"));
            assert!(route.is_called && !route.agrees() && route.chosen.as_deref() == Some("gpu"));
        }
    }
    let longer = automatic("claude code: commit this");
    assert!(longer.is_called && longer.agrees() && longer.stripped_text.as_deref() == Some("commit this"));
}

#[test]
fn ordinary_sentence_calls_no_backend() {
    for text in [
        "Claude is a name",
        "Claude Monet, the painter",
        "claudette, come here",
        "tell claude, he knows",
        "claude://settings",
        "claude:8080 does not answer",
        "Claude,",
        "Claude",
        "",
        "Clau",
    ] {
        let route = automatic(text);
        assert!(!route.is_called && route.stripped_text.is_none(), "{text}");
    }
}

#[test]
fn route_keeps_private_requests_local_and_sends_long_ones_to_larger_window() {
    let private = Asked { private: true, ..asked("https://youtu.be/x") };
    let route = routed(&pool(), RouteMode::Automatic, &private).unwrap();
    assert_eq!(route.candidates, ["gpu"]);
    assert!(route.alternatives.iter().any(|a| a.contains("`coder`") && a.contains("private")), "{route:?}");
    let long = Asked { tokens_estimate: 200_000, ..asked("hello") };
    let mut facts = pool();
    facts[1].acts = false;
    assert_eq!(routed(&facts, RouteMode::Shadow, &long).unwrap().candidates, ["coder"]);
}

#[test]
fn route_error_lists_reason_for_each_backend() {
    let private = |text| Asked { private: true, ..asked(text) };
    let git = routed(&pool(), RouteMode::Automatic, &private("git status")).unwrap_err();
    assert!(matches!(&git, NoRoute::Rule { rule, unfit, .. } if rule == "git" && unfit.len() == 1), "{git}");
    assert!(
        git.to_string().contains("a backend with git and allows no fallback: `coder`: the request is private"),
        "{git}"
    );
    assert!(routed(&pool(), RouteMode::Shadow, &private("git status")).is_ok(), "only recorded, not obeyed");
    let called = routed(&pool(), RouteMode::Shadow, &private("claude, hello")).unwrap_err();
    assert_eq!(called, NoRoute::Called { backend: "coder".to_owned(), why: Unfit::NotLocal });
    let both = Asked { tokens_estimate: 200_000, ..private("hello") };
    let unroutable = routed(&pool(), RouteMode::Automatic, &both).unwrap_err().to_string();
    assert!(unroutable.contains("`gpu`: its context of 131072 tokens is too small for 200000"), "{unroutable}");
}

#[test]
fn route_rule_requires_all_kinds_of_conditions() {
    let rules: Vec<RouteRule> = serde_json::from_str(
        r#"[{"name": "n", "when": {"any_words": ["deploy", "roll back"], "regex": "^ship", "sources": ["cli"], "domains": ["ops"]},
             "to": {"backend": "coder"}, "fallback": ["gpu"]}]"#,
    )
    .unwrap();
    let (facts, skills) = (pool(), ["ops.restart".to_owned()]);
    let table = RouteTable::new(rules, &facts).unwrap();
    let fits = |text, source, skills: &[String]| {
        let asked = Asked { source, skills, ..asked(text) };
        choose(&table, &facts, RouteMode::Automatic, &asked).unwrap().rule.is_some()
    };
    assert!(fits("Roll  back, now!", "cli", &skills) && fits("SHIP it", "cli", &skills));
    assert!(!fits("rollback", "cli", &skills) && !fits("deploy", "http", &skills) && !fits("deploy", "cli", &[]));
}

#[test]
fn invalid_route_table_error_names_the_cause() {
    let facts = pool();
    let wrong = |json: &str| match serde_json::from_str::<Vec<RouteRule>>(&format!("[{json}]")) {
        Err(e) => e.to_string(),
        Ok(rules) => RouteTable::new(rules, &facts).unwrap_err().to_string(),
    };
    let to = r#""to": {"backend": "gpu"}"#;
    for (json, words) in [
        (format!(r#"{{"name": "a", "when": {{}}, {to}}}"#), "rule `a`: `when` is empty"),
        (format!(r#"{{"name": "", "when": {{"sources": ["x"]}}, {to}}}"#), "rule `number 1`: it has no name"),
        (format!(r#"{{"name": "a", "when": {{"regex": "("}}, {to}}}"#), "is none"),
        (format!(r#"{{"name": "a", "when": {{"regex": "x*"}}, {to}}}"#), "fits every text"),
        (format!(r#"{{"name": "a", "when": {{"any_words": ["?"]}}, {to}}}"#), "no word in it"),
        (format!(r#"{{"name": "a", "when": {{"word": ["x"]}}, {to}}}"#), "unknown field `word`"),
        (format!(r#"{{"name": "a", "when": {{"sources": ["x"]}}, {to}, "fallback": "maybe"}}"#), "a list of backends"),
        (
            format!(r#"{{"name": "a", "when": {{"sources": ["x"]}}, {to}, "fallback": ["z"]}}"#),
            "there is no backend `z`; there are: gpu, coder",
        ),
        (r#"{"name": "a", "when": {"sources": ["x"]}, "to": {"backend": "z"}}"#.to_owned(), "no backend `z`"),
        (r#"{"name": "a", "when": {"sources": ["x"]}, "to": {}}"#.to_owned(), "`to` names neither"),
    ] {
        let sent = wrong(&json);
        assert!(sent.contains(words), "{json}: {sent}");
    }
    let with = |change: &dyn Fn(&mut BackendFacts)| {
        let mut facts = pool();
        change(&mut facts[1]);
        RouteTable::new(default_rules(), &facts).unwrap_err().to_string()
    };
    assert!(with(&|f| f.name = "gpu".into()).contains("two of this name"));
    assert!(with(&|f| f.slots = 0).contains("slots"));
    assert!(with(&|f| f.called.push("CLAUDE".into())).contains("call another one already"));
    assert!(with(&|f| f.called = vec![", ".into()]).contains("users cannot call it"));
    assert!(with(&|f| f.capabilities = ["Git".to_owned()].into()).contains("capability \"Git\""));
    assert!(with(&|f| f.window = Some(RateWindow { requests_max: 5, window_ms: 1, reserve: 5 })).contains("reserve"));
    assert_eq!(RouteTable::new(Vec::new(), &[]).unwrap_err(), RouteTableError::NoBackend);
}

#[test]
fn route_rules_round_trip_through_json() {
    let text = serde_json::to_string(&default_rules()).unwrap();
    assert_eq!(serde_json::from_str::<Vec<RouteRule>>(&text).unwrap(), default_rules());
}

#[test]
fn failover_happens_only_for_failures_that_other_backends_may_avoid() {
    let mut facts = pool();
    facts.push(BackendFacts { name: "cloud".to_owned(), ..BackendFacts::default() });
    let automatic = |text| routed(&facts, RouteMode::Automatic, &asked(text)).unwrap();
    let after = |route: &Route, facts: &[BackendFacts], kind, started| {
        let error = ModelError { after_first_token: started, ..ModelError::new(kind, "") };
        stand_ins(&route.candidates, route.primary(), &error, facts).into_iter().next()
    };
    let (hello, video) = (automatic("hello"), automatic("https://youtu.be/x"));
    for kind in [Kind::RateLimited, Kind::Auth, Kind::Payment, Kind::Unavailable, Kind::Timeout, Kind::Truncated] {
        assert_eq!(after(&hello, &facts, kind, false).as_deref(), Some("cloud"), "{kind:?}");
        assert_eq!(after(&hello, &facts, kind, true), None, "{kind:?} after text was shown");
    }
    for kind in [Kind::Content, Kind::InvalidRequest] {
        assert_eq!(after(&hello, &facts, kind, false), None);
    }
    assert_eq!(after(&video, &facts, Kind::Timeout, false), None, "its effects would be repeated");
    assert_eq!(after(&video, &facts, Kind::RateLimited, false).as_deref(), Some("gpu"));
    assert_eq!(after(&hello, &facts, Kind::Overflow, false).as_deref(), Some("cloud"), "unknown is tried");
    facts[2].context_tokens_max = Some(8_000);
    assert_eq!(after(&hello, &facts, Kind::Overflow, false), None);
    let failed = ModelError::new(Kind::Unavailable, "");
    let route = &hello.candidates;
    assert_eq!(
        stand_ins(route, "cloud", &failed, &facts),
        ["gpu"],
        "a preferred backend that was busy before is tried again"
    );
    assert!(stand_ins(route, "gone", &failed, &facts).is_empty());
}
