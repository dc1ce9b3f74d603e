//! Tables of commands that models write, and properties for arbitrary texts.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::skill::{ArgKind, ArgSpec, Effect, PromptContext, SkillFormat, SkillSet, SkillSpec};

fn arg(name: &str, kind: ArgKind, required: bool) -> ArgSpec {
    ArgSpec {
        name: name.into(),
        kind,
        required,
        help: format!("The {name}."),
        minimum: None,
        maximum: None,
        default: Value::Null,
    }
}

fn skill(name: &str, args: Vec<ArgSpec>) -> SkillSpec {
    SkillSpec {
        name: name.into(),
        domain: name.split('.').next().unwrap_or_default().into(),
        description: format!("Does {name}."),
        body: String::new(),
        args,
        effect: Effect::Once,
        external: false,
        timeout_ms: 30_000,
        alternatives: Vec::new(),
        fallback: std::collections::BTreeMap::new(),
        is_ready: false,
        format: SkillFormat::Command,
        source: "bundled".into(),
    }
}

fn prompt(name: &str, model_invocable: bool) -> SkillSpec {
    let format = SkillFormat::Prompt {
        context: PromptContext::Inline,
        user_invocable: true,
        model_invocable,
        allowed_tools: Vec::new(),
        argument_hint: None,
        model: None,
        effort: None,
        scripts: None,
    };
    SkillSpec { domain: "prompt".into(), body: "Secret steps.".into(), format, ..skill(name, Vec::new()) }
}

fn skills() -> SkillSet {
    use ArgKind::{Bool, Choice, Date, Integer, List, Text};
    let all = [
        skill(
            "tasks.create",
            vec![
                arg("title", Text, true),
                arg("due_date", Date, false),
                arg("priority", Choice(vec!["high".into(), "low".into()]), false),
                arg("tags", List, false),
                arg("urgent", Bool, false),
                arg("estimate", Integer, false),
            ],
        ),
        skill("tasks.search", vec![arg("query", Text, false), arg("overdue", Bool, false)]),
        skill("email.send", vec![arg("body", Text, true), arg("to", Text, true)]),
        skill("system.time", Vec::new()),
        prompt("review", true),
        prompt("deploy", false),
    ];
    SkillSet::new(all, [("tasks".to_owned(), "Things to do".to_owned())], 1)
}

fn texts(reply: &str) -> Vec<String> {
    extract(reply).into_iter().map(|c| c.unwrap_or_else(|e| format!("error: {e}"))).collect()
}

#[test]
fn prose_in_command_block_is_answer_and_command_is_not() {
    for (reply, answer) in [
        ("```cmd\nHi there! How can I help you today?\n```", "Hi there! How can I help you today?"),
        (
            "```cmd\nI updated task #3 \"Buy milk\" to high priority.",
            "I updated task #3 \"Buy milk\" to high priority.",
        ),
        ("```cmd\nI'm fine, thank you.\n```", "I'm fine, thank you."),
        ("Well.\n```cmd\nDone!\n```", "Well.\nDone!"),
        ("```cmd\n#1 Send the parcel, due 2026-11-27 (Friday)\n```", "#1 Send the parcel, due 2026-11-27 (Friday)"),
    ] {
        assert_eq!(prose_in_blocks(reply).as_deref(), Some(answer), "{reply}");
    }
    for reply in [
        "```cmd\ntasks.create --title \"Call mum.\"\n```",
        "```cmd\nTasks.Create --title x\n```",
        "```cmd\nTasks create\n```",
        "```cmd\nI will create it now.\ntasks.create --title x\n```",
        "```cmd\nhelp\n```",
        "```cmd\nreview the last change.\n```",
        "```cmd\nCreate --title \"a b c\"\n```",
        "```json\nHi there, it is me.\n```",
        "Hi there.",
        "```cmd\n```",
    ] {
        assert_eq!(prose_in_blocks(reply), None, "{reply}");
    }
}

#[test]
fn extraction_finds_commands_in_every_kind_of_fence_only() {
    let table: &[(&str, &[&str])] = &[
        ("no commands here", &[]),
        ("```cmd\na.b --x 1\n```", &["a.b --x 1"]),
        ("I will.\n\n```cmd\na.b\n\nc.d\n```\nand\n```cmd\ne.f\n```", &["a.b", "c.d", "e.f"]),
        ("```cmd\r\na.b --x 1\r\nc.d\r\n```\r\n", &["a.b --x 1", "c.d"]),
        ("1. do\n   ```cmd\n   a.b\n   ```", &["a.b"]),
        ("~~~cmd\na.b\n~~~", &["a.b"]),
        ("`````cmd\na.b --x \"```\ncode\n```\"\n`````", &["a.b --x \"```\ncode\n```\""]),
        ("```cmd\na.b\nc.d", &["a.b", "c.d"]),
        ("```bash\nrm -rf /\n```\n```\nls\n```", &[]),
        ("````markdown\n```cmd\na.b\n```\n````", &[]),
        ("~~~\n```cmd\na.b\n```\n~~~", &[]),
        ("```cmd\n# a comment\na.b --n 1 # 2\n```", &["a.b --n 1 # 2"]),
        (
            "```cmd\na.b --t \"one\ntwo # three\n\nfour\" --u 1\nc.d\n```",
            &["a.b --t \"one\ntwo # three\n\nfour\" --u 1", "c.d"],
        ),
        ("```cmd\na.b \\\n  --x 1\nc.d\n```", &["a.b \\\n  --x 1", "c.d"]),
        ("``` CMD\na.b\n```", &["a.b"]),
        ("```cmd a.b --x 1\n```", &["a.b --x 1"]),
        ("```command\na.b\n```", &[]),
        ("use ```cmd fences``` please", &[]),
        ("```cmd fences``` please", &[]),
        ("```cmd\n~~~\na.b\n```", &["~~~", "a.b"]),
        ("", &[]),
        ("```cmd", &[]),
        ("```cmd\n```", &[]),
    ];
    for (reply, want) in table {
        assert_eq!(texts(reply), *want, "{reply:?}");
    }
}

#[test]
fn extraction_accepts_other_blocks_and_bare_lines_if_every_line_is_a_command() {
    let known = |name: &str| matches!(name, "a.b" | "c.d" | "review");
    let table: &[(&str, &[&str])] = &[
        ("```bash\na.b --x 1\nc.d\n```", &["a.b --x 1", "c.d"]),
        ("Here:\n```\na.b --x 1\n```", &["a.b --x 1"]),
        ("```sh\n$ a.b --x 1\n```", &["$ a.b --x 1"]),
        ("```bash\na.b --x 1\nls -l\n```", &[]),
        ("```python\na.b\n```", &[]),
        ("```cmd a.b --x 1```", &["a.b --x 1"]),
        ("```a.b --x 1```", &["a.b --x 1"]),
        ("```cmd x.y --x 1```", &[]),
        ("a.b --x 1\n\ncmd c.d", &["a.b --x 1", "cmd c.d"]),
        ("`a.b --x 1`", &["a.b --x 1"]),
        ("a.b {\"x\": 1}", &["a.b {\"x\": 1}"]),
        ("I ran this:\na.b --x 1", &[]),
        ("a.b was run and created 3 things.", &[]),
        ("review", &[]),
        ("````markdown\n```\na.b\n```\n````", &[]),
        ("<think>\n```cmd\na.b --x wrong\n```\n</think>\n```cmd\na.b --x right\n```", &["a.b --x right"]),
        ("Let me think. ```cmd\na.b\n```</think>Done.", &[]),
        ("<thinking>never closed\n```cmd\na.b\n```", &[]),
        ("<Think>a</THINK>\n```cmd\na.b\n```\n<think>c</think>", &["a.b"]),
        ("```cmd\nx.y\n```\n</think>\n```cmd\na.b\n```\n<think>```cmd\nx.y\n```", &["a.b"]),
        ("Well.\n<think>hm</think>\na.b", &[]),
        ("<think>hm</think>\na.b", &["a.b"]),
        ("[THINK]\n```cmd\na.b --x wrong\n```\n[/THINK]\n```cmd\na.b\n```", &["a.b"]),
        ("Hm. <seed:think>maybe\n```cmd\na.b\n```", &[]),
        ("\u{25c1}think\u{25b7}\n```cmd\na.b --x wrong\n```\n\u{25c1}/think\u{25b7}\n```cmd\na.b\n```", &["a.b"]),
    ];
    for (reply, want) in table {
        let found: Vec<String> =
            extract_for(reply, &known).into_iter().map(|c| c.unwrap_or_else(|e| format!("error: {e}"))).collect();
        assert_eq!(found, *want, "{reply:?}");
    }
}

#[test]
fn extraction_never_treats_text_after_open_quote_as_command() {
    let found = texts("```cmd\na.b\nnotes.create --body \"broken\ntasks.delete --id 1\n```\n```cmd\nc.d\n```");
    assert_eq!(found, ["a.b", "notes.create --body \"broken\ntasks.delete --id 1", "c.d"]);
    assert!(matches!(parse(&found[1]), Err(CommandError::OpenQuote { line: 1, column: 21, .. })));
}

#[test]
fn extraction_reports_too_many_and_too_long_commands() {
    let many = format!("```cmd\n{}```", "a.b\n".repeat(23));
    let found = extract(&many);
    assert_eq!(found.len(), 21);
    assert_eq!(found[20], Err(CommandError::TooMany { count: 23 }));
    assert!(found[20].as_ref().is_err_and(|e| e.to_string().contains("the last 3 were not run")));
    let long = format!("```cmd\na.b --x \"{}\"\nc.d\n```", "y".repeat(COMMAND_BYTES_MAX));
    let found = extract(&long);
    assert!(matches!(&found[0], Err(CommandError::TooLong { bytes, .. }) if *bytes > COMMAND_BYTES_MAX));
    assert_eq!(found[1], Ok("c.d".into()));
    assert!(matches!(parse(&"x".repeat(COMMAND_BYTES_MAX + 1)), Err(CommandError::TooLong { .. })));
}

fn flags(line: &str) -> Vec<(String, Option<String>)> {
    parse(line).unwrap_or_else(|e| panic!("{line:?}: {e}")).flags
}

#[test]
fn parser_reads_values_with_quotes_and_escapes() {
    type Flags<'a> = &'a [(&'a str, Option<&'a str>)];
    let table: &[(&str, Flags<'_>)] = &[
        ("a --x 1 --y=2", &[("x", Some("1")), ("y", Some("2"))]),
        ("a --x --y", &[("x", None), ("y", None)]),
        ("a --due-date today", &[("due_date", Some("today"))]),
        ("a --x \"two words\"", &[("x", Some("two words"))]),
        ("a --x='two words'", &[("x", Some("two words"))]),
        ("a --x=\"a=b\"", &[("x", Some("a=b"))]),
        ("a --x=", &[("x", Some(""))]),
        ("a --x \"\"", &[("x", Some(""))]),
        (r#"a --x "say \"hi\" \\ a\nb\tc \d""#, &[("x", Some("say \"hi\" \\ a\nb\tc \\d"))]),
        (r"a --x 'C:\temp\n'", &[("x", Some(r"C:\temp\n"))]),
        (r"a --x 'it'\''s'", &[("x", Some("it's"))]),
        (r"a --x 'don\'t'", &[("x", Some("don't"))]),
        ("a --x 'it's fine'", &[("x", Some("it's fine"))]),
        ("a --x it's", &[("x", Some("it's"))]),
        ("a --x 5\"", &[("x", Some("5\""))]),
        ("a --x “two words” --y ‘it’s so’", &[("x", Some("two words")), ("y", Some("it’s so"))]),
        ("a --x “he said \"hi\"”", &[("x", Some("he said \"hi\""))]),
        ("a --x “mixed\" --y 1", &[("x", Some("mixed")), ("y", Some("1"))]),
        ("a --x \"keeps “these”\"", &[("x", Some("keeps “these”"))]),
        ("a --x -5 --y -0.5 --z -", &[("x", Some("-5")), ("y", Some("-0.5")), ("z", Some("-"))]),
        ("a --x \"--y\"", &[("x", Some("--y"))]),
        ("a --x one\\ word", &[("x", Some("one word"))]),
        ("a --x \"line one\nline two\"", &[("x", Some("line one\nline two"))]),
        ("a --x 1 \\\n --y 2", &[("x", Some("1")), ("y", Some("2"))]),
        ("a --x 1 \\\r\n --y 2", &[("x", Some("1")), ("y", Some("2"))]),
        ("a --t 1 --t 2", &[("t", Some("1")), ("t", Some("2"))]),
        ("$ a --x 1", &[("x", Some("1"))]),
        ("a --x -- y", &[("x", None)]),
    ];
    for (line, want) in table {
        let want: Vec<_> = want.iter().map(|(n, v)| ((*n).to_owned(), v.map(str::to_owned))).collect();
        assert_eq!(flags(line), want, "{line}");
    }
}

#[test]
fn parser_distinguishes_name_help_and_positional_words() {
    let table: &[(&str, &str, bool, &[&str])] = &[
        ("tasks.create --help", "tasks.create", true, &[]),
        ("tasks.create -h", "tasks.create", true, &[]),
        ("tasks.create \"--help\"", "tasks.create", false, &["--help"]),
        ("tasks.create -- --help", "tasks.create", false, &["--help"]),
        ("help tasks.create", "tasks.create", true, &[]),
        ("help", "", true, &[]),
        ("--help", "", true, &[]),
        ("tasks --help", "tasks", true, &[]),
        ("tasks create \"Buy milk\"", "tasks", false, &["create", "Buy milk"]),
    ];
    for (line, name, help, positional) in table {
        let parsed = parse(line).unwrap_or_else(|e| panic!("{line:?}: {e}"));
        assert_eq!((parsed.name.as_str(), parsed.help), (*name, *help), "{line}");
        let loose: Vec<&str> = parsed.positional.iter().map(|word| word.text.as_str()).collect();
        assert_eq!(loose, *positional, "{line}");
    }
}

#[test]
fn parser_error_names_position_and_cause() {
    let table: &[(&str, &str)] = &[
        ("", "empty"),
        ("  \n ", "empty"),
        ("a --x \"open", "line 1, column 7"),
        ("a --x \"one\ntwo\" --y 'open", "line 2, column 10"),
        ("a -x 1", "-x is not a flag"),
        ("a --=1", "not a flag"),
        ("a --! 1", "not a flag"),
        ("--title x", "begins with the name of a skill"),
    ];
    for (line, want) in table {
        let error = parse(line).map_or_else(|e| e.to_string(), |p| format!("{p:?}"));
        assert!(error.contains(want), "{line:?}: {error}");
    }
    assert!(parse("a --x \"open").is_err_and(|e| e.to_string().contains("a --x \"open <- here")));
}

#[test]
fn resolve_turns_valid_command_into_run_with_typed_arguments() {
    let table: &[(&str, &str, Value)] = &[
        ("tasks.create --title \"Review PR 42\"", "tasks.create", json!({"title": "Review PR 42"})),
        (
            "tasks.create --title x --due-date tomorrow --tags a,b --tags c --urgent --estimate -3",
            "tasks.create",
            json!({"title": "x", "due_date": "tomorrow", "tags": ["a", "b", "c"], "urgent": true, "estimate": -3}),
        ),
        ("tasks.create --title=x --no-urgent", "tasks.create", json!({"title": "x", "urgent": false})),
        ("tasks.create --title x --urgent=false", "tasks.create", json!({"title": "x", "urgent": false})),
        ("tasks.create --Title x --priority high", "tasks.create", json!({"title": "x", "priority": "high"})),
        ("tasks create --title x", "tasks.create", json!({"title": "x"})),
        ("Tasks Create \"Buy milk\"", "tasks.create", json!({"title": "Buy milk"})),
        ("tasks.create Buy some milk --urgent", "tasks.create", json!({"title": "Buy some milk", "urgent": true})),
        ("email.send --to bob@x.org \"Hi Bob\"", "email.send", json!({"to": "bob@x.org", "body": "Hi Bob"})),
        ("tasks.create {\"title\": \"Buy milk\"}", "tasks.create", json!({"title": "Buy milk"})),
        ("tasks.create({\"title\": \"x\", \"estimate\": \"3\"})", "tasks.create", json!({"title": "x", "estimate": 3})),
        (
            "tasks.create title=\"Buy milk\" due=tomorrow",
            "tasks.create",
            json!({"title": "Buy milk", "due_date": "tomorrow"}),
        ),
        ("tasks.create —title \"Buy milk\"", "tasks.create", json!({"title": "Buy milk"})),
        ("tasks.create –title=\"Buy milk\" —urgent", "tasks.create", json!({"title": "Buy milk", "urgent": true})),
        (
            "tasks.create --title x --due 1 --priority High",
            "tasks.create",
            json!({"title": "x", "due_date": "1", "priority": "high"}),
        ),
        ("tasks.create title: \"Buy milk\"", "tasks.create", json!({"title": "Buy milk"})),
        (
            "tasks.create title:\"Buy milk\", due: friday",
            "tasks.create",
            json!({"title": "Buy milk", "due_date": "friday"}),
        ),
        (
            "tasks.create Title: Buy milk, priority:high, Tags: a,b",
            "tasks.create",
            json!({"title": "Buy milk", "priority": "high", "tags": ["a", "b"]}),
        ),
        ("tasks.create --title: \"Buy milk\"", "tasks.create", json!({"title": "Buy milk"})),
        ("tasks.create --title:\"Buy milk\"", "tasks.create", json!({"title": "Buy milk"})),
        ("tasks.create --title x due: friday", "tasks.create", json!({"title": "x", "due_date": "friday"})),
        ("tasks.create \"Buy milk\" due: friday", "tasks.create", json!({"title": "Buy milk", "due_date": "friday"})),
        ("tasks.create title: Note: call Bob", "tasks.create", json!({"title": "Note: call Bob"})),
        ("tasks.search query: milk", "tasks.search", json!({"query": "milk"})),
        // A title that contains a colon.
        ("tasks.create \"Note: call Bob\"", "tasks.create", json!({"title": "Note: call Bob"})),
        ("tasks.create \"title: a history\"", "tasks.create", json!({"title": "title: a history"})),
        ("tasks.create Buy: milk", "tasks.create", json!({"title": "Buy: milk"})),
        ("tasks.create Date: dinner with Ann", "tasks.create", json!({"title": "Date: dinner with Ann"})),
        ("tasks.create -- title: x", "tasks.create", json!({"title": "title: x"})),
        ("tasks_create --title x", "tasks.create", json!({"title": "x"})),
        ("cmd tasks.create --title x", "tasks.create", json!({"title": "x"})),
        ("system.time", "system.time", json!({})),
        ("review --args \"the diff\"", "review", json!({"args": "the diff"})),
        ("/review the diff", "review", json!({"args": "the diff"})),
        ("review", "review", json!({})),
    ];
    for (line, name, want) in table {
        match resolve(line, &skills(), None) {
            Resolution::Run { skill, arguments } => {
                assert_eq!((skill.name.as_str(), &arguments), (*name, want), "{line}");
            }
            other => panic!("{line}: {other:?}"),
        }
    }
}

#[test]
fn resolve_error_names_flag_and_shows_usage() {
    let table: &[(&str, &[&str])] = &[
        (
            "tasks.create",
            &["missing required flag: --title", "Usage: tasks.create --title TEXT", "tasks.create --help"],
        ),
        ("email.send", &["missing required flags: --body, --to"]),
        ("email.send \"Hi\"", &["unexpected text \"Hi\""]),
        ("tasks.create --titel x", &["no flag --titel", "Did you mean --title?", "Usage:"]),
        ("tasks.create --date 1", &["Did you mean --due_date?"]),
        (
            "tasks.create --titel x",
            &["Write this block (with real values in place of …):\n```cmd\ntasks.create --title \"…\"\n```"],
        ),
        ("tasks.create --title a --estimate soon", &["Write this block:\n```cmd\ntasks.create --title a\n```"]),
        ("tasks.create --title … --urgent", &["--title needs a real value"]),
        ("tasks.create {\"due\": \"friday\"}", &["--title is missing", "--title \"…\" --due_date friday"]),
        ("tasks.create {\"title\": \"Buy milk\"", &["unexpected text", "every value follows its flag"]),
        ("tasks.create colour=red", &["unexpected text \"colour=red\""]),
        ("tasks.create [\"Buy milk\"]", &["unexpected text"]),
        ("tasks.create <title>", &["unexpected text"]),
        ("tasks.create --title", &["--title needs a value: --title TEXT"]),
        ("tasks.create --title a --title b", &["--title is given more than once"]),
        ("tasks.create --title a --estimate soon", &["--estimate wants a whole number"]),
        ("tasks.create --title a --priority huge", &["--priority must be one of high, low"]),
        ("tasks.create --title a --urgent maybe", &["--urgent wants true or false"]),
        ("tasks.create --title a --no-urgent=1", &["--no-urgent takes no value"]),
        ("tasks.create --title Buy milk", &["unexpected text \"milk\"", "quotes"]),
        (
            "tasks.create titel: \"Buy milk\"",
            &["no flag titel", "Did you mean --title?", "\ntasks.create --title \"Buy milk\"\n"],
        ),
        (
            "tasks.create Pay rent due: friday",
            &["may be the flag --due_date", "\ntasks.create --title \"Pay rent\" --due_date friday\n"],
        ),
        ("tasks.create Due: rent", &["missing required flag: --title"]),
        ("tasks.create title:", &["--title needs a value"]),
        ("tasks.create title: \"a\" b", &["unexpected text \"b\""]),
        ("tasks.create --title a title: b", &["--title is given more than once"]),
        ("tasks.create --title \"\"", &["--title must not be empty"]),
        ("system.time --zone x", &["no flag --zone", "takes none"]),
        ("review --file x", &["no flag --file", "Usage: review [--args TEXT]"]),
        ("tasks.crate --title x", &["unknown skill", "Did you mean tasks.create"]),
        ("tasks remove", &["tasks has no skill \"remove\"", "tasks.search"]),
        ("tasks --title x", &["tasks is a domain", "tasks.create --title TEXT"]),
        ("weather", &["unknown skill \"weather\""]),
        ("deploy", &["unknown skill"]),
        ("\"\" x", &["unknown skill"]),
        ("tasks.create --title \"x", &["never closed"]),
    ];
    for (line, wants) in table {
        let Resolution::Error(error) = resolve(line, &skills(), None) else { panic!("{line} was accepted") };
        for want in *wants {
            assert!(error.contains(want), "{line}: {want:?} not in {error:?}");
        }
    }
}

#[test]
fn resolve_error_of_reading_skill_names_the_one_that_takes_the_flags() {
    let read = |name: &str, args| SkillSpec { effect: Effect::Read, ..skill(name, args) };
    let search =
        || read("tasks.search", vec![arg("query", ArgKind::Text, false), arg("overdue", ArgKind::Bool, false)]);
    let get = || read("tasks.get", vec![arg("id", ArgKind::Id, false)]);
    let error = |all: Vec<SkillSpec>, line: &str| match resolve(line, &SkillSet::new(all, [], 1), None) {
        Resolution::Error(error) => error,
        other => panic!("{line}: {other:?}"),
    };
    let taken = error(vec![get(), search()], "tasks.get --overdue --query milk");
    let wanted = "tasks.search takes it. Write this block:\n```cmd\ntasks.search --query milk --overdue\n```";
    assert!(taken.ends_with(wanted), "{taken}");
    let changing = skill("tasks.search", vec![arg("overdue", ArgKind::Bool, false)]);
    let other = read("tasks.list", vec![arg("overdue", ArgKind::Bool, false)]);
    for all in [vec![get(), changing], vec![get(), search(), other]] {
        let plain = error(all, "tasks.get --overdue");
        assert!(plain.ends_with("Write this block:\n```cmd\ntasks.get\n```"), "{plain}");
    }
}

#[test]
fn resolve_answers_help_for_skill_domain_and_overview() {
    let help = |line: &str| match resolve(line, &skills(), None) {
        Resolution::Help(text) => text,
        other => panic!("{line}: {other:?}"),
    };
    assert!(help("tasks.create --help").contains("Usage: tasks.create --title TEXT"));
    assert_eq!(help("help tasks create"), help("tasks.create -h"));
    for line in ["tasks --help", "help tasks", "tasks"] {
        let text = help(line);
        assert!(text.contains("Things to do") && text.contains("tasks.search [--query TEXT] [--overdue]"), "{text}");
        assert!(!text.contains("email.send"), "{text}");
    }
    assert!(help("help").contains("email.send: Does email.send."));
    assert!(!help("help").contains("deploy"));
    let review = help("review --help");
    assert!(review.contains("review [--args TEXT]") && !review.contains("Secret steps"), "{review}");
}

#[test]
fn resolve_runs_only_granted_skills() {
    let granted = ["tasks.search".to_owned(), "deploy".to_owned()];
    let go = |line: &str| resolve(line, &skills(), Some(&granted));
    assert!(matches!(go("tasks.search --query x"), Resolution::Run { .. }));
    assert!(
        matches!(go("deploy"), Resolution::Run { .. }),
        "a granted skill can be run although models may not call it by default"
    );
    for line in ["tasks.create --title x", "tasks.create --help", "help tasks.create"] {
        let Resolution::Error(error) = go(line) else { panic!("{line} was accepted") };
        assert_eq!(error, "tasks.create is not available to this agent; yours are: deploy, tasks.search");
    }
    let Resolution::Help(domain) = go("tasks --help") else { panic!("no help") };
    assert!(!domain.contains("tasks.create"), "{domain}");
    let Resolution::Error(unknown) = go("tasks.crate") else { panic!("accepted") };
    assert!(!unknown.contains("tasks.create"), "{unknown}");
}

proptest! {
    #[test]
    fn command_grammar_does_not_panic_on_arbitrary_text(text in "\\PC{0,200}") {
        let _ = parse(&text);
        let _ = resolve(&text, &skills(), None);
        let _ = extract(&format!("```cmd\n{text}"));
        let _ = extract(&text);
    }

    #[test]
    fn command_grammar_does_not_panic_on_mixed_special_characters(text in "[a-z.\"'“”‘’\\\\\n\r\t =`~#$-]{0,120}") {
        for command in extract(&format!("```cmd\n{text}\n```\n{text}")).into_iter().flatten() {
            let _ = resolve(&command, &skills(), None);
        }
        for command in extract_for(&format!("<think>{text}</think>{text}"), &|_| true).into_iter().flatten() {
            let _ = resolve(&command, &skills(), None);
        }
    }

    #[test]
    fn quoted_command_value_round_trips(value in any::<String>(), odd in "[\"'\\\\\n\r\t “”‘’a-]{0,20}") {
        for value in [value, odd] {
            let line = format!("a.b --x {} --y={}", quote(&value), quote(&value));
            let want = vec![("x".to_owned(), Some(value.clone())), ("y".to_owned(), Some(value))];
            prop_assert_eq!(parse(&line).map(|p| p.flags), Ok(want.clone()));
            let found = extract(&format!("text\n```cmd\n{line}\n```\n"));
            prop_assert_eq!(found.len(), 1);
            prop_assert_eq!(found[0].clone().and_then(|l| parse(&l)).map(|p| p.flags), Ok(want));
        }
    }

    #[test]
    fn extraction_finds_generated_blocks(
        blocks in prop::collection::vec(
            (prop::collection::vec(("[a-z]{1,6}\\.[a-z]{1,6}", any::<String>()), 0..4), "[ \t]{0,4}", 3_usize..6, any::<bool>()),
            0..5,
        )
    ) {
        let mut reply = String::new();
        let mut want = Vec::new();
        for (commands, indent, len, tilde) in &blocks {
            let fence = if *tilde { "~" } else { "`" }.repeat(*len);
            reply.push_str(&format!("Some prose.\n{indent}{fence}cmd\n"));
            for (name, value) in commands {
                let line = format!("{name} --v {}", quote(value));
                reply.push_str(&format!("{indent}{line}\n"));
                want.push(line);
            }
            reply.push_str(&format!("{indent}{fence}\n"));
        }
        let found: Vec<String> = extract(&reply).into_iter().flatten().collect();
        let read = |line: &String| parse(line).map(|p| (p.name, p.flags));
        prop_assert_eq!(found.iter().map(read).collect::<Vec<_>>(), want.iter().map(read).collect::<Vec<_>>());
        prop_assert!(found.iter().all(|line| read(line).is_ok()));
    }
}
