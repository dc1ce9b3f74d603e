//! Tests that the list of handlers, the bundled files and the code agree.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use annie_core::{
    command::{Resolution, extract, resolve},
    context::{agent_system, main_system, main_system_cmd, main_tools, skills_list_for, tokens},
    event::{DispatchSpec, Mode, PromptFacts},
    ids::AgentId,
    limits::{SubAgentInterface, TurnLimits},
    message::{SystemPart, ToolDef},
    ports::Catalog,
    skill::SkillFormat,
    turn::manual_of,
};

use super::ALL;
use crate::{FileCatalog, ProgramSkills, files::validate};

/// All bundled skills, also those that are listed only if requests to other machines, folders or programs are enabled.
fn bundled() -> FileCatalog {
    let programs = ProgramSkills { network: false, listed: true };
    FileCatalog::bundled().reaching_out().searching().with_folders().building().running_programs(programs)
}

#[test]
fn every_handler_has_a_bundled_file_and_every_bundled_command_a_handler() {
    let skills = bundled().skills();
    let files: BTreeSet<&str> =
        skills.iter().filter(|s| s.format == SkillFormat::Command).map(|s| s.name.as_str()).collect();
    let handlers: BTreeSet<&str> = ALL.iter().map(|b| b.name).collect();
    assert_eq!(files, handlers);
    assert!(ALL.windows(2).all(|pair| pair[0].name < pair[1].name), "the list is sorted, and has no duplicates");
}

#[test]
fn every_handler_file_is_in_the_list() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/builtin");
    let mut verbs = BTreeSet::new();
    for domain in folder.read_dir().unwrap().map(Result::unwrap).filter(|d| d.path().is_dir()) {
        for file in domain.path().read_dir().unwrap().map(|f| f.unwrap().path()).filter(|f| f.is_file()) {
            if std::fs::read_to_string(&file).unwrap().contains("impl Handler for ") {
                let (domain, verb) = (domain.file_name(), file.file_stem().unwrap().to_owned());
                verbs.insert(format!("{}.{}", domain.to_string_lossy(), verb.to_string_lossy()));
            }
        }
    }
    assert_eq!(verbs, ALL.iter().map(|b| b.name.to_owned()).collect());
}

#[test]
fn bundled_files_pass_strict_validation_and_match_effects_in_code() {
    let problems = validate(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../skills")).unwrap();
    assert!(problems.is_empty(), "{problems:#?}");
    assert!(bundled().problems().is_empty());
    let skills = bundled().skills();
    for builtin in ALL {
        assert_eq!(skills.get(builtin.name).unwrap().effect, builtin.effect, "{}", builtin.name);
    }
}

/// The size of a system prompt with its tools, in tokens.
fn size(system: &[SystemPart], tools: &[ToolDef]) -> u32 {
    let tools = if tools.is_empty() { 0 } else { serde_json::to_string(tools).unwrap().len() };
    tokens(system.iter().map(|part| part.text.len()).sum::<usize>() + tools)
}

#[test]
fn prompts_with_bundled_skills_stay_within_token_limits() {
    let skills = FileCatalog::bundled().skills();
    let facts = |window| PromptFacts {
        skills: skills_list_for(&skills, TurnLimits::skill_list_chars_max(window), "Hi", &BTreeMap::new()).text,
        domains: skills.domains().into_iter().map(|d| d.name).collect(),
        user_name: "Ann".to_owned(),
        timezone: "Europe/Berlin".to_owned(),
        local_now: "2026-11-21 14:03 Saturday".to_owned(),
        ..PromptFacts::default()
    };
    let (small, large) = (facts(Some(8_192)), facts(None));
    let main = |mode, facts: &PromptFacts| size(&main_system(mode, facts), &main_tools(mode, facts));
    for (what, size, tokens_max) in [
        ("orchestrator", main(Mode::MultiAgent, &large), 2_600),
        ("orchestrator, small window", main(Mode::MultiAgent, &small), 2_000),
        ("single_loop, small window", main(Mode::SingleLoop, &small), 1_500),
        ("by commands, small window", size(&main_system_cmd(&small), &[]), 1_100),
    ] {
        assert!(size <= tokens_max, "{what}: {size} tokens, {tokens_max} are allowed");
    }
    let commands: Vec<_> = skills.for_model().filter(|s| s.format == SkillFormat::Command).collect();
    for granted in [&commands[..1], &commands[..3], &commands[..]] {
        let spec = DispatchSpec {
            agent: AgentId::sub("a").unwrap(),
            mission: String::new(),
            skills: granted.iter().map(|s| s.name.clone()).collect(),
            context: String::new(),
            depends_on: Vec::new(),
            max_tool_calls: 5,
            manual: granted.iter().map(|s| manual_of(s, false)).collect(),
            options: Default::default(),
        };
        let size = size(&agent_system(SubAgentInterface::Cmd, &spec, &small), &[]);
        let tokens_max = 200 + 100 * u32::try_from(granted.len()).unwrap();
        assert!(size <= tokens_max, "{} skills: {size} tokens, {tokens_max} are allowed", granted.len());
    }
}

#[test]
fn every_example_in_the_help_is_a_valid_command() {
    let skills = bundled().skills();
    for skill in skills.iter().filter(|s| s.format == SkillFormat::Command) {
        let commands = extract(&skill.body);
        assert!(!commands.is_empty(), "{} shows no example", skill.name);
        for line in commands {
            let line = line.unwrap();
            let resolution = resolve(&line, &skills, None);
            let is_own = matches!(&resolution, Resolution::Run { skill: name, .. } if name.name == skill.name);
            assert!(is_own, "{line}: {resolution:?}");
        }
    }
}

#[test]
fn every_argument_and_every_domain_has_a_description() {
    let skills = bundled().skills();
    for skill in skills.iter() {
        assert_eq!(skill.source, "bundled");
        for arg in &skill.args {
            assert!(arg.help.ends_with('.'), "{} --{}: {:?}", skill.name, arg.name, arg.help);
        }
    }
    for domain in skills.domains() {
        assert!(!domain.description.is_empty(), "{}", domain.name);
    }
}

#[test]
fn tasks_create_description_says_when_it_reminds() {
    let skills = bundled().skills();
    let description = &skills.get("tasks.create").unwrap().description;
    let promise = "with a time of day also reminds at this time; a day alone does not";
    assert!(description.contains(promise), "the model would promise a reminder: {description}");
}

#[test]
fn synopsis_of_every_skill_matches_the_documentation() {
    let skills = bundled().skills();
    let shown: Vec<String> = skills.iter().map(|s| format!("{} ({})", s.synopsis(), s.effect.as_str())).collect();
    assert_eq!(
        shown,
        [
            "code-review [--args TEXT] [--done] [--file TEXT] (read)",
            "commit [--args TEXT] [--done] [--file TEXT] (read)",
            "day-plan [--args TEXT] [--done] [--file TEXT] (read)",
            "decision-help [--args TEXT] [--done] [--file TEXT] (read)",
            "files.list [--path TEXT] (read)",
            "files.read --path TEXT [--from_line N] [--lines N] (read)",
            "files.search [--limit N] [--name TEXT] [--path TEXT] [--query TEXT] (read)",
            "files.write --content TEXT --path TEXT (idempotent)",
            "learn-topic [--args TEXT] [--done] [--file TEXT] (read)",
            "meal-plan [--args TEXT] [--done] [--file TEXT] (read)",
            "meeting-notes [--args TEXT] [--done] [--file TEXT] (read)",
            "memory.delete [--id N] [--query TEXT] (idempotent)",
            "memory.list [--deleted] [--limit N] (read)",
            "memory.restore [--id N] [--query TEXT] (idempotent)",
            "memory.save --content TEXT [--category preference|fact|decision|goal|relationship|context|instruction] \
             [--importance N] [--tags A,B] (idempotent)",
            "memory.search --query TEXT \
             [--category preference|fact|decision|goal|relationship|context|instruction] [--limit N] \
             [--min_importance N] [--tags A,B] (read)",
            "memory.update --id N [--content TEXT] [--importance N] [--tags A,B] (idempotent)",
            "notes.create --content TEXT --title TEXT [--tags A,B] (idempotent)",
            "notes.delete --title TEXT (idempotent)",
            "notes.edit --title TEXT [--append TEXT] [--prepend TEXT] [--replace TEXT] [--with TEXT] (idempotent)",
            "notes.list [--deleted] [--limit N] (read)",
            "notes.read --title TEXT [--from_line N] [--lines N] (read)",
            "notes.rename --title TEXT --to TEXT (idempotent)",
            "notes.restore --title TEXT (idempotent)",
            "notes.search [--limit N] [--query TEXT] [--tag TEXT] (read)",
            "page-summary [--args TEXT] [--done] [--file TEXT] (read)",
            "python.run --code TEXT [--input TEXT] (read)",
            "reply-draft [--args TEXT] [--done] [--file TEXT] (read)",
            "schedules.cancel --id N (idempotent)",
            "schedules.create --message TEXT --when TEXT [--timezone TEXT] (idempotent)",
            "schedules.list (read)",
            "shell.run --program TEXT [--args A,B] [--input TEXT] (read)",
            "state.delete --key TEXT (idempotent)",
            "state.get --key TEXT (read)",
            "state.list [--prefix temp|session|user|app] (read)",
            "state.set --key TEXT --value TEXT (idempotent)",
            "system.await --what TEXT [--hours N] (idempotent)",
            "system.build_skill --content TEXT --name TEXT [--replace] [--script TEXT] (once)",
            "system.help [--topic TEXT] (read)",
            "system.time [--timezone TEXT] (read)",
            "tasks.create --title TEXT [--description TEXT] [--due DATE] [--parent N] \
             [--priority low|medium|high|critical] [--tags A,B] (idempotent)",
            "tasks.delete --id N (idempotent)",
            "tasks.get [--id N] [--ids A,B] [--limit N] [--recent] (read)",
            "tasks.remind --when DATE [--id N] [--title TEXT] (idempotent)",
            "tasks.restore [--id N] [--query TEXT] (idempotent)",
            "tasks.search [--due DATE] [--limit N] [--parent N] [--priority low|medium|high|critical] [--query TEXT] \
             [--status open|overdue|todo|in_progress|blocked|done|cancelled|all|deleted] [--tag TEXT] (read)",
            "tasks.update --id N [--description TEXT] [--due DATE] [--priority low|medium|high|critical] \
             [--status todo|in_progress|blocked|done|cancelled] [--tags A,B] [--title TEXT] (idempotent)",
            "text-polish [--args TEXT] [--done] [--file TEXT] (read)",
            "trip-plan [--args TEXT] [--done] [--file TEXT] (read)",
            "web.fetch --url TEXT [--chars N] [--from_char N] (read)",
            "web.search --query TEXT [--count N] (read)",
            "weekly-review [--args TEXT] [--done] [--file TEXT] (read)",
        ]
    );
}
