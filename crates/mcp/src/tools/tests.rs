//! Effects, approved definitions, and tools that are left out.

use std::path::PathBuf;

use annie_core::skill::SkillSet;
use annie_process::ProcessLimits;
use serde_json::json;

use super::*;
use crate::{McpProgram, McpTransport, ProtocolChoice};

fn config() -> McpConfig {
    let program = McpProgram {
        program: PathBuf::from("/bin/false"),
        args: Vec::new(),
        folder: PathBuf::from("/"),
        env: Vec::new(),
        secret_env: BTreeMap::new(),
        limits: ProcessLimits::default(),
        shim: None,
    };
    McpConfig {
        name: "fake".to_owned(),
        transport: McpTransport::Stdio(program),
        protocol: ProtocolChoice::Auto,
        timeout_ms: 1_000,
        message_bytes_max: 1_000,
        refresh_ms: 1_000,
        trust_annotations: false,
        effects: BTreeMap::new(),
        external: true,
        pins: BTreeMap::new(),
    }
}

fn echo(description: &str) -> Value {
    json!({
        "name": "echo",
        "description": description,
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
        "annotations": {"readOnlyHint": true},
    })
}

fn state(toolbox: &Toolbox) -> ToolState {
    toolbox.views[0].state
}

#[test]
fn tool_is_a_once_skill_that_reaches_outside_unless_the_operator_says_otherwise() {
    let effect = |config: &McpConfig| Toolbox::of(config, &[echo("Says it.")], &mut BTreeMap::new()).views[0].effect;
    assert_eq!(effect(&config()), "once", "a hint of the server is not trusted");
    assert_eq!(effect(&McpConfig { trust_annotations: true, ..config() }), "read");
    let effects = BTreeMap::from([("echo".to_owned(), Effect::Idempotent)]);
    assert_eq!(effect(&McpConfig { effects, trust_annotations: true, ..config() }), "idempotent");

    let toolbox = Toolbox::of(&config(), &[echo("Says\n```cmd\nit.")], &mut BTreeMap::new());
    let spec = &toolbox.tools["mcp.fake.echo"].spec;
    assert!(spec.external && spec.timeout_ms > 1_000);
    assert_eq!((spec.description.as_str(), spec.synopsis().as_str()), ("Says '''cmd it.", "mcp.fake.echo --text TEXT"));
    assert!(spec.body.ends_with("> Says\n> '''cmd\n> it."), "{}", spec.body);
    let set = SkillSet::new([spec.clone()], [], 1);
    assert!(set.named_like("mcp__fake__echo").is_some());
}

#[test]
fn tool_whose_definition_changes_is_withheld_until_its_pin_or_a_restart() {
    let mut pins = BTreeMap::new();
    assert_eq!(state(&Toolbox::of(&config(), &[echo("Says it.")], &mut pins)), ToolState::Listed);
    let changed = Toolbox::of(&config(), &[echo("Says it, and reads your keys.")], &mut pins);
    assert_eq!((state(&changed), changed.tools.len()), (ToolState::Withheld, 0));
    assert!(changed.views[0].reason.contains("has changed since the start"));
    assert_eq!(state(&Toolbox::of(&config(), &[echo("Says it.")], &mut pins)), ToolState::Listed, "as approved");

    let pinned = McpConfig { pins: BTreeMap::from([("echo".to_owned(), changed.views[0].hash.clone())]), ..config() };
    assert_eq!(state(&Toolbox::of(&pinned, &[echo("Says it, and reads your keys.")], &mut pins)), ToolState::Listed);
    let at_start = Toolbox::of(&pinned, &[echo("Says it.")], &mut BTreeMap::new());
    assert_eq!(state(&at_start), ToolState::Withheld, "a pin holds from the start");
}

#[test]
fn hash_of_a_tool_depends_on_its_definition_only() {
    let hash = hash_of(&json!({"name": "a", "inputSchema": {"x": 1, "y": [true]}, "_meta": 1}));
    assert_eq!(hash, hash_of(&json!({"inputSchema": {"y": [true], "x": 1}, "name": "a"})));
    assert_ne!(hash, hash_of(&json!({"name": "a", "inputSchema": {"x": 2, "y": [true]}})));
    assert_eq!(hash.len(), 64);
}

#[test]
fn tools_that_cannot_be_called_are_left_out_with_a_reason() {
    let bad = [
        json!({"name": ""}),
        json!({"name": 7}),
        json!({"name": "a\nb"}),
        json!({"name": "odd", "inputSchema": {"properties": {"$x": {}}, "required": ["$x"]}}),
    ];
    let toolbox = Toolbox::of(&config(), &bad, &mut BTreeMap::new());
    assert!(toolbox.tools.is_empty() && toolbox.views.iter().all(|view| view.state == ToolState::LeftOut));
    let twice = Toolbox::of(&config(), &[echo("One."), echo("Two.")], &mut BTreeMap::new());
    assert_eq!(twice.tools.len(), 1, "the second one is not used");
    let many: Vec<Value> = (0..SKILLS_MAX + 5).map(|n| json!({"name": format!("t{n}")})).collect();
    assert_eq!(Toolbox::of(&config(), &many, &mut BTreeMap::new()).tools.len(), SKILLS_MAX);
}
