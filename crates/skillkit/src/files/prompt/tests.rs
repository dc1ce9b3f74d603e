//! Tests of prompt skills: what their files declare, their texts and their other files.

use super::*;

fn read_file(folder: &str, text: &str) -> (Option<PromptFile>, Vec<String>) {
    let mut report = Report::new("SKILL.md");
    let file = read(folder, &[], text, &mut report);
    (file, report.into_problems().iter().map(ToString::to_string).collect())
}

#[test]
fn prompt_file_in_standard_format_passes_strict_validation() {
    let text = "---\nname: code-review\ndescription: Review code. Use it on changes.\nlicense: MIT\n\
                allowed-tools: Bash(git:*, gh:*) Read\nmetadata:\n  author: ann\n  context: fork\n---\n# Do it\n";
    let (file, problems) = read_file("code-review", text);
    let file = file.unwrap();
    assert_eq!(
        problems,
        ["SKILL.md:5: not supported: `allowed-tools` names `Bash(git:*, gh:*)`, which is no skill here and allows \
             nothing; name skills or domains, such as `tasks.search` or `notes.*`",],
        "the format is accepted, and unsupported features are reported"
    );
    assert_eq!(file.allowed_tools, ["Bash(git:*, gh:*)", "Read"]);
    assert_eq!(file.context, PromptContext::Fork);
    assert!(file.user_invocable && file.model_invocable);
}

#[test]
fn prompt_file_in_looser_format_loads_and_each_deviation_is_reported() {
    let text = "---\nuser-invocable: false\nallowed-tools: read_file, grep_files\nargument-hint: [pr-number]\n\
                colour: red\n---\n# Title\n\nReview the\nchanges.\n";
    let (file, problems) = read_file("code-review", text);
    let file = file.unwrap();
    assert_eq!((file.name.as_str(), file.description.as_str()), ("code-review", "Review the changes."));
    assert_eq!(file.allowed_tools, ["read_file", "grep_files"]);
    assert_eq!(file.argument_hint.as_deref(), Some("[pr-number]"));
    assert!(!file.user_invocable);
    assert_eq!(
        problems,
        [
            "SKILL.md: not strict: `name` is missing; write `name: code-review`",
            "SKILL.md: not strict: `description` is missing, the first paragraph stands in; say in one or two \
             sentences what it does and when to use it",
            "SKILL.md:2: not strict: `user-invocable` is an extension that other programs refuse; move it below \
             `metadata:`, where it is read as well",
            "SKILL.md:4: not strict: `argument-hint` is an extension that other programs refuse; move it below \
             `metadata:`, where it is read as well",
            "SKILL.md:5: not strict: unknown key `colour`; known are name, description, license, compatibility, \
             metadata, allowed-tools",
            "SKILL.md:3: not supported: `allowed-tools` names `grep_files`, which is no skill here and allows nothing; \
             name skills or domains, such as `tasks.search` or `notes.*`",
        ]
    );
}

#[test]
fn prompt_keys_without_effect_are_reported_at_both_levels() {
    let (_, above) = read_file("x", "---\nname: x\ndescription: d\nagent: explore\nhooks: high\n---\nx");
    let (_, below) = read_file("x", "---\nname: x\ndescription: d\nmetadata:\n  agent: explore\n  hooks: high\n---\nx");
    let not_read = |line: &str, key: &str| format!("SKILL.md{line}: not supported: `{key}` is not read; leave it out");
    assert_eq!(above, [not_read(":4", "agent"), not_read(":5", "hooks")]);
    assert_eq!(below, [not_read("", "agent"), not_read("", "hooks")]);
}

#[test]
fn prompt_scripts_are_once_unless_the_file_says_otherwise_and_bad_values_are_errors() {
    let read_head = |head: &str| {
        let (mut report, text) = (Report::new("SKILL.md"), format!("---\nname: x\ndescription: d\n{head}---\nx"));
        let file = read("x", &["scripts/run.py"], &text, &mut report);
        (file.and_then(|file| file.scripts), report.into_problems().iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    let rules = |effect, network, timeout_ms| Some(ScriptRules { effect, network, timeout_ms });
    assert_eq!(read_head(""), (rules(Effect::Once, false, 30_000), Vec::new()));
    let head = "allowed-tools: Bash(python:*)\nmetadata:\n  effect: read\n  network: true\n  timeout_ms: 5000\n";
    assert_eq!(read_head(head), (rules(Effect::Read, true, 5_000), Vec::new()));
    let (none, problems) = read_head("metadata:\n  effect: maybe\n  network: perhaps\n  timeout_ms: 0\n");
    assert!(none.is_none() && problems.len() == 3, "{problems:#?}");
    let (_, problems) = read_file("x", "---\nname: x\ndescription: d\nmetadata:\n  effect: once\n---\nx");
    assert_eq!(
        problems,
        ["SKILL.md: not supported: `effect` is about scripts, and the folder has none in `scripts/`; leave it out"]
    );
}

#[test]
fn prompt_effort_is_read_and_another_word_is_reported() {
    for (word, effort, problems_count) in
        [("high", Some(Effort::High), 0), ("Low", Some(Effort::Low), 0), ("inherit", None, 0), ("max", None, 1)]
    {
        let (file, problems) =
            read_file("x", &format!("---\nname: x\ndescription: d\nmetadata:\n  effort: {word}\n---\nx"));
        assert_eq!(file.unwrap().effort, effort, "{word}");
        assert_eq!(problems.len(), problems_count, "{word}: {problems:?}");
    }
}

#[test]
fn prompt_allowed_tools_name_skills_domains_and_known_tools_of_other_programs() {
    let text = "---\nname: x\ndescription: d\nallowed-tools: WebFetch tasks.search notes.* memory Read\n---\nx";
    let (file, problems) = read_file("x", text);
    assert_eq!(file.unwrap().allowed_tools, ["web.fetch", "tasks.search", "notes.*", "memory", "Read"]);
    assert_eq!(problems, Vec::<String>::new());
}

#[test]
fn prompt_parts_that_will_not_run_are_reported() {
    let text = "---\nname: x\ndescription: d\nhooks: high\n---\nStatus:\n!`git status`\nSee ${CLAUDE_SKILL_DIR}/a.md\n";
    let (file, problems) = read_file("x", text);
    assert!(file.is_some(), "the file is used");
    let parts = ["`hooks` is not read", "no command is run", "is not filled in"];
    assert!(problems.iter().zip(parts).all(|(problem, part)| problem.contains(part)), "{problems:#?}");
    assert_eq!(problems.len(), parts.len(), "{problems:#?}");
}

#[test]
fn prompt_description_includes_when_to_use() {
    let text = "---\nname: x\ndescription: Review code.\nmetadata:\n  when_to_use: Before a merge.\n---\nx";
    assert_eq!(read_file("x", text).0.unwrap().description, "Review code. Before a merge.");
}

#[test]
fn prompt_names_of_any_script_are_compared_normalised() {
    let head = |name: &str| format!("---\nname: {name}\ndescription: d\n---\nx");
    for (folder, name) in [("评审", "评审"), ("обзор", "обзор"), ("ﬁle", "file"), ("cafe\u{301}", "café")]
    {
        let (file, problems) = read_file(folder, &head(name));
        assert!(file.is_some() && problems.is_empty(), "{name}: {problems:?}");
    }
    for bad in ["Code", "a--b", "-a", "other", &"x".repeat(65)] {
        let (file, problems) = read_file("folder", &head(bad));
        assert!(file.is_some() && !problems.is_empty(), "{bad}");
    }
    for worse in ["a b", "a.b", "../a", "a/b"] {
        assert!(read_file("folder", &head(worse)).0.is_none(), "{worse}");
    }
}

#[test]
fn prompt_file_errors_are_all_collected() {
    let (file, problems) =
        read_file("x", "---\nname: x y\ncontext: spoon\nuser-invocable: maybe\nallowed-tools: {a: b}\n---\n");
    assert!(file.is_none());
    assert_eq!(problems.iter().filter(|p| p.contains(": error: ")).count(), 5, "{problems:#?}");
}
