//! Hooks: where every key takes effect, and the errors of invalid keys.

use std::sync::Arc;

use annie_core::{
    approval::ApprovalMode,
    hooks::{Decided, HookContext, HookPoint, HookSet, HookSubject, HookVerdict, OnFailure},
    ids::{AgentId, ConversationId, TaskId, UserId},
    inbound::Inbound,
    skill::Effect,
};
use tokio::sync::Semaphore;

use super::*;

/// A valid hook, which later lines may extend.
const HOOK: &str = "[[hook]]\nname = \"x\"\npoint = \"before_skill\"\nkind = \"refuse\"\ntext = \"No.\"\n";

fn config(text: &str) -> Config {
    let folder = tempfile::tempdir().unwrap();
    Sources::only(file(&folder, "annie.toml", text)).load().map_err(|e| format!("{e}; {}", e.fix)).unwrap().config
}

/// The decision of the configured hooks about a turn of this user on this channel.
fn decided(config: &Config, user: &str, channel: &str) -> Option<Decided> {
    let (user, agent, inbound) = (UserId::new(user).unwrap(), AgentId::orchestrator(), Inbound::default());
    HookSet::new(config.hooks()).judge(&HookContext {
        user: &user,
        channels: &[channel.to_owned()],
        conversation: ConversationId::for_key(&user, "k"),
        task: TaskId::from_uuid(uuid::Uuid::nil()),
        agent: &agent,
        point: HookPoint::BeforeTurn,
        subject: HookSubject::Turn(&inbound),
    })
}

#[test]
fn configured_hooks_are_in_their_order_and_replace_those_of_an_earlier_file() {
    assert!(Config::default().hooks().is_empty());
    let rule = "[[hook]]\nname = \"bob-types\"\npoint = \"before_turn\"\nkind = \"refuse\"\n\
                when = { users = [\"bob\"], channels = [\"voice\"] }\ntext = \"Type it.\"\n";
    let own = config(&format!("{HOOK}{rule}"));
    assert_eq!(format!("{:?}", HookSet::new(own.hooks())), r#"["x", "bob-types"]"#);
    let refused = decided(&own, "bob", "voice").unwrap();
    assert_eq!((refused.hook.as_str(), refused.failure.as_str()), ("bob-types", ""));
    assert_eq!(refused.verdict, HookVerdict::Refuse { text: "Type it.".to_owned() });
    assert_eq!((decided(&own, "ann", "voice"), decided(&own, "bob", "http")), (None, None));

    let folder = tempfile::tempdir().unwrap();
    let first = file(&folder, "first.toml", &format!("{HOOK}{rule}"));
    let second = file(&folder, "second.toml", HOOK);
    let loaded = Sources { files: vec![first], asked: Some(second), ..Sources::default() }.load().unwrap();
    assert_eq!(loaded.config.hook.len(), 1);
    assert!(loaded.origins.keys().all(|path| path[0] != "hook" || path[1] == "0"), "{:?}", loaded.origins);
    let shown: Vec<String> = lines(&loaded).unwrap().iter().map(|l| format!("{} {}", l.key, l.value)).collect();
    assert!(shown.contains(&"hook.0.point \"before_skill\"".to_owned()), "{shown:?}");
}

#[test]
fn idle_hooks_lists_patterns_that_match_no_skill() {
    let own = config(&format!("{HOOK}when = {{ skills = [\"mail.send\", \"*\", \"mail.*\"] }}\n"));
    let idle = |pattern: &str| ("x".to_owned(), pattern.to_owned());
    assert_eq!(own.idle_hooks(&["tasks.create".to_owned()]), [idle("mail.send"), idle("mail.*")]);
}

#[test]
fn idle_hooks_lists_no_pattern_of_an_mcp_server_that_connects_later() {
    let server = |name: &str, more: &str| format!("[[mcp]]\nname = \"{name}\"\ncommand = [\"/bin/x\"]\n{more}");
    let patterns = "\"mcp.*\", \"mcp.git.status\", \"mcp.git.*\", \"mcp.gti.*\", \"mcp.off.put\"";
    let servers = server("git", "") + &server("off", "enabled = false\n");
    let own = config(&format!("{HOOK}when = {{ skills = [{patterns}] }}\n{servers}"));
    let idle = |pattern: &str| ("x".to_owned(), pattern.to_owned());
    assert_eq!(own.idle_hooks(&[]), [idle("mcp.gti.*"), idle("mcp.off.put")]);
}

#[test]
fn hook_may_be_about_what_a_channel_receives() {
    let own =
        config(&format!("{HOOK}when = {{ channels = [\"channel:mail\"] }}\n").replace("before_skill", "before_turn"));
    assert!(decided(&own, "bob", "channel:mail").is_some() && decided(&own, "bob", "http").is_none());
}

#[test]
fn config_refuses_invalid_hook_with_its_location() {
    let when = |conditions: &str| format!("{HOOK}when = {{ {conditions} }}\n");
    let before_turn = |conditions: &str| when(conditions).replace("before_skill", "before_turn");
    let many: String = (0..65).map(|n| HOOK.replace("\"x\"", &format!("\"x{n}\""))).collect();
    let values: Vec<String> = (0..65).map(|n| format!("user{n}")).collect();
    for (text, wanted) in [
        (
            format!("{HOOK}{HOOK}"),
            "annie.toml:7:1: `hook.1.name`: another hook is named \"x\" too; give each its own name",
        ),
        (many, "annie.toml:4:1: `hook`: there are 65 hooks, at most 64 are allowed; combine some of them"),
        (
            when("skills = [\"tasks.*.x\"]"),
            "annie.toml:6:10: `hook.0.when.skills`: \"tasks.*.x\" is not a skill pattern; write `tasks.create`, `tasks.*` or `*`",
        ),
        (
            before_turn("skills = [\"tasks.create\"]"),
            "annie.toml:6:10: `hook.0.when.skills`: a turn begins before its skills are known; use point = \"before_skill\"",
        ),
        (
            before_turn("agents = \"sub\""),
            "annie.toml:6:10: `hook.0.when.agents`: a turn begins before its sub-agents exist; use point = \"before_skill\", \
             or leave `agents` out",
        ),
        (
            HOOK.replace("text = \"No.\"\n", ""),
            "annie.toml:2:1: `hook.0.text`: it is missing or empty; write the reason that the user or the model receives",
        ),
        (
            HOOK.replace("No.", " "),
            "annie.toml:5:1: `hook.0.text`: it is missing or empty; write the reason that the user or the model receives",
        ),
        (
            HOOK.replace("No.", &"é".repeat(1_001)),
            "annie.toml:5:1: `hook.0.text`: it has 1001 characters, at most 1000 are allowed; shorten it",
        ),
        (
            HOOK.replace("\"x\"", "\"No mail\""),
            "annie.toml:2:1: `hook.0.name`: \"No mail\" is not a valid name; use 1 to 64 lower-case letters, digits, dashes \
             and underscores",
        ),
        (
            when("users = [\"bob\", \"\"]"),
            "annie.toml:6:10: `hook.0.when.users`: \"\" cannot be a user id; use 1 to 128 bytes without control characters",
        ),
        (
            when(&format!("users = {values:?}")),
            "annie.toml:6:10: `hook.0.when.users`: it has 65 values, at most 64 are allowed; divide them between several hooks",
        ),
        (
            when(&format!("skills = [\"{}\"]", "x".repeat(129))),
            "annie.toml:6:10: `hook.0.when.skills`: a value has more than 128 bytes; shorten it",
        ),
        (
            HOOK.replace("point = \"before_skill\"\n", ""),
            "annie.toml:1:1: `hook.0`: missing field `point`; see `annie config sample` for every key and its values",
        ),
        (
            HOOK.replace("refuse", "http"),
            "annie.toml:4:8: `hook.0.kind`: unknown value `http`, expected one of `refuse`, `program`, `ask`, `webhook`; \
             see `annie config sample` for every key and its values",
        ),
        (when("user = [\"bob\"]"), "annie.toml:6:10: unknown key `hook.0.when.user`; did you mean `users`?"),
    ] {
        assert_eq!(error_text(&text), wanted);
    }
}

#[test]
fn config_refuses_condition_of_a_hook_on_a_channel_that_receives_nothing() {
    let when = |conditions: &str| format!("{HOOK}when = {{ {conditions} }}\n");
    for (text, wanted) in [
        (
            when("channels = [\"telegram\"]"),
            "annie.toml:6:10: `hook.0.when.channels`: there is no channel \"telegram\"; the channels are cli, grpc, http, \
             openai, voice, and channel:NAME for what the channel NAME of an extension receives",
        ),
        (
            when("channels = [\"channel:Mail box\"]"),
            "annie.toml:6:10: `hook.0.when.channels`: there is no channel \"channel:Mail box\"; the channels are cli, grpc, \
             http, openai, voice, and channel:NAME for what the channel NAME of an extension receives",
        ),
        (
            when("channels = [\"channel:desk\"]")
                + "[[channel]]\nname = \"desk\"\nkind = \"webhook\"\nurl = \"http://h/\"\nsecret_env = \"KEY\"\n",
            "annie.toml:6:10: `hook.0.when.channels`: \"channel:desk\" is a webhook, which receives no messages: name the front \
             end; the channels are cli, grpc, http, openai, voice, and channel:NAME for what the channel NAME of an extension \
             receives",
        ),
    ] {
        assert_eq!(error_text(&text), wanted);
    }
}

/// A valid program, which later lines may extend.
const PROGRAM: &str =
    "[[hook]]\nname = \"x\"\npoint = \"before_skill\"\nkind = \"program\"\nprogram = \"/no/such/program\"\n";

#[test]
fn configured_program_has_its_settings_and_their_defaults() {
    let usual = config(PROGRAM).hook.remove(0);
    let command = usual.command(1_000).unwrap();
    assert_eq!((command.program, command.folder), (PathBuf::from("/no/such/program"), PathBuf::from("/no/such")));
    assert_eq!((command.args.len(), command.run_ms_max, usual.on_failure), (0, 2_000, None));
    assert_eq!(command.prompt_bytes_max, 6_000 + 65_536, "a message of 1,000 bytes fits, whatever it contains");
    let own =
        config(&format!("{PROGRAM}args = [\"-v\"]\nanswer_ms_max = 7\non_failure = \"continue\"\n")).hook.remove(0);
    let command = own.command(1_000).unwrap();
    assert_eq!((command.args, command.run_ms_max), (vec!["-v".to_owned()], 7));
    assert_eq!(own.on_failure, Some(OnFailure::Continue));
    let runner =
        annie_llm::ProgramHook::new(usual.command(1_000).unwrap(), Arc::new(Semaphore::new(1)), |_| None).unwrap();
    let outside = own.outside(Arc::new(runner));
    assert_eq!(outside.ms_max, 11_007, "the wait for a slot is no part of the time of the program");
    assert!(config(HOOK).hook[0].command(1_000).is_none(), "a rule starts no program");
    let broken = config(PROGRAM).broken_hook_programs();
    assert_eq!(broken, [("x".to_owned(), PathBuf::from("/no/such/program"))]);
    assert!(config(&PROGRAM.replace("/no/such/program", "/bin/sh")).broken_hook_programs().is_empty());
}

#[test]
fn config_refuses_invalid_program_of_a_hook_with_its_location() {
    let with = |line: &str| format!("{PROGRAM}{line}\n");
    for (text, wanted) in [
        (
            PROGRAM.replace("program = \"/no/such/program\"\n", ""),
            "annie.toml:2:1: `hook.0.program`: it is missing; give the whole path of the program",
        ),
        (
            PROGRAM.replace("/no/such/program", "check"),
            "annie.toml:5:1: `hook.0.program`: \"check\" is not a whole path; begin it with a slash",
        ),
        (
            with("args = [\"{prompt}\"]"),
            "annie.toml:6:1: `hook.0.args`: the question is no argument; read it from stdin, and remove {prompt}",
        ),
        (
            with("answer_ms_max = 0"),
            "annie.toml:6:1: `hook.0.answer_ms_max`: 0 is not between 1 and 60000; a person may wait for the turn: 2000 is the default",
        ),
        (with("text = \"No.\""), "annie.toml:6:1: `hook.0.text`: the program gives the reason; remove it"),
        (
            format!("{HOOK}on_failure = \"continue\"\n"),
            "annie.toml:6:1: `hook.0.on_failure`: a rule that refuses asks no program; use kind = \"program\", or remove it",
        ),
    ] {
        assert_eq!(error_text(&text), wanted);
    }
}

#[test]
fn approval_policy_has_the_settings_and_the_rules_that_ask() {
    assert!(Config::default().approval_policy().is_off());
    let own = config(&format!(
        "[approval]\ndefault = \"ask_first_time\"\nexpires_ms = 2000\nrules = [{{ mode = \"off\", when = {{ skills = \
         [\"mail.*\"] }}, effects = [\"read\"], external = true }}]\n{}",
        HOOK.replace("refuse", "ask").replace("text = \"No.\"\n", "")
    ));
    let policy = own.approval_policy();
    assert_eq!((policy.default, policy.expires_ms), (ApprovalMode::AskFirstTime, 2_000));
    let rule = &policy.rules[0];
    assert_eq!((rule.mode, &rule.effects[..], rule.external), (ApprovalMode::Off, &[Effect::Read][..], Some(true)));
    assert_eq!((policy.hooks.len(), policy.hooks[0].mode), (1, ApprovalMode::Ask));
    assert!(own.hooks().is_empty(), "a rule that asks refuses nothing itself");
    assert_eq!(own.idle_hooks(&["tasks.create".to_owned()]), [("approval".to_owned(), "mail.*".to_owned())]);
}

#[test]
fn config_refuses_invalid_approval_settings_with_their_location() {
    let ask = HOOK.replace("refuse", "ask");
    for (text, wanted) in [
        (
            "[approval]\nexpires_ms = 1\n".to_owned(),
            "annie.toml:2:1: `approval.expires_ms`: 1 is not between 1000 and 2592000000; 86400000, a day, is the default",
        ),
        (
            "[approval]\nrules = [{ mode = \"ask\", when = { channels = [\"telegram\"] } }]\n".to_owned(),
            "annie.toml:2:1: `approval.rules.0.when.channels`: there is no channel \"telegram\"; the channels are cli, \
             grpc, http, openai, voice, and channel:NAME for what the channel NAME of an extension receives",
        ),
        (ask.clone(), "annie.toml:5:1: `hook.0.text`: the person gives the reason; remove it"),
        (
            ask.replace("text = \"No.\"", "on_failure = \"refuse\""),
            "annie.toml:5:1: `hook.0.on_failure`: a rule that asks a person asks no program; use kind = \"program\", or \
             remove it",
        ),
        (
            ask.replace("before_skill", "before_turn").replace("text = \"No.\"\n", ""),
            "annie.toml:3:1: `hook.0.point`: a person is asked about calls of skills, and a turn begins before them; use \
             point = \"before_skill\"",
        ),
        (
            HOOK.replace("\"x\"", "\"approval\""),
            "annie.toml:2:1: `hook.0.name`: this name stands for the answers of persons; rename it",
        ),
    ] {
        assert_eq!(error_text(&text), wanted);
    }
}
