//! Prompts: the same bytes wherever a provider could have them cached, breakpoints, budgets, and what they say word for word.

use serde_json::json;

use super::{
    script::{agent, cmd, collect, dispatch, dispatch_to_act, skills, tool, use_skill},
    world::World,
};
use crate::{
    context::{
        agent_mission, agent_system, continue_note, main_system, main_tools, scoped_use_skill, skills_text, tokens_of,
        turn_context,
    },
    event::{AgentReport, DispatchSpec, Mode, PromptFacts, ReportStatus},
    limits::{SubAgentInterface, TurnLimits},
    message::{CacheTtl, Message, ModelRequest},
    outcome::Outcome,
    turn::manual_of,
};

/// What a provider sees first, as bytes.
fn head(request: &ModelRequest) -> String {
    serde_json::to_string(&(&request.tools, &request.system)).unwrap()
}

fn lines(messages: &[Message]) -> Vec<String> {
    messages.iter().map(|m| serde_json::to_string(m).unwrap()).collect()
}

/// Whether the later request begins with the earlier one, byte for byte.
fn assert_extends(later: &ModelRequest, earlier: &ModelRequest) {
    assert_eq!(head(later), head(earlier));
    let (later, earlier) = (lines(&later.messages), lines(&earlier.messages));
    assert_eq!(later[..earlier.len().min(later.len())], earlier);
}

#[test]
fn between_rounds_of_a_turn_the_request_only_grows_at_its_end() {
    let mut w = World::new();
    w.say("Do it");
    let mut requests = vec![w.request()];
    let mut step = |w: &mut World, text: &str, calls: &[crate::message::ToolCall]| {
        w.replies(text, calls);
        if !w.conv.turns.is_empty() {
            requests.push(w.request());
        }
    };
    step(&mut w, "", &[]);
    step(&mut w, "Looking", &[tool("1", "get_skill", &json!({"domain": "tasks"}))]);
    step(&mut w, "", &[dispatch("a", &[])]);
    step(&mut w, "I am done.", &[]);
    w.agent_replies("a", "found", &[]);
    requests.push(w.request());
    for pair in requests.windows(2) {
        assert_extends(&pair[1], &pair[0]);
    }
    assert_eq!(requests.len(), 6);
}

#[test]
fn between_turns_the_prefix_holds_up_to_the_last_history_message() {
    let mut w = World::new();
    let mut before: Option<ModelRequest> = None;
    for n in 0..12 {
        w.facts.local_now = format!("2026-02-18 14:{n:02} Wednesday");
        w.facts.memories = vec![format!("memory {n}")];
        w.say(&format!("question {n}"));
        let request = w.request();
        assert_eq!(request.stable_messages, n * 2);
        if let Some(before) = &before {
            assert_eq!(head(&request), head(before), "nothing of the minute stands in the cached part");
            let history = lines(&before.messages[..before.stable_messages]);
            assert_eq!(lines(&request.messages)[..history.len()], history);
        }
        before = Some(request);
        w.replies(&format!("answer {n}"), &[]);
    }
}

#[test]
fn a_sub_agents_rounds_extend_each_other() {
    for interface in [SubAgentInterface::Cmd, SubAgentInterface::Json] {
        let mut w = World::with(Mode::MultiAgent, TurnLimits { interface, ..TurnLimits::default() });
        w.say("Do it");
        w.replies("", &[dispatch_to_act("a", &[]), collect(&[])]);
        let mut before = w.sub("a").request();
        for n in 0..5 {
            let title = json!({"title": n.to_string()});
            w.agent_replies("a", &cmd(&format!("tasks.create --title {n}")), &[use_skill("1", "tasks.create", &title)]);
            w.skill_ends(&agent("a"), 0, Outcome::success("created"));
            let request = w.sub("a").request();
            assert_extends(&request, &before);
            before = request;
        }
    }
}

#[test]
fn agents_with_the_same_skills_share_their_head_and_the_order_of_the_skills_does_not_matter() {
    for interface in [SubAgentInterface::Cmd, SubAgentInterface::Json] {
        let mut w = World::with(Mode::MultiAgent, TurnLimits { interface, ..TurnLimits::default() });
        w.say("Do it");
        let of = |name: &str, granted: &[&str]| {
            let arguments = json!({"agent_id": name, "mission": format!("Do {name}"), "skills": granted});
            tool(name, "dispatch_agent", &arguments)
        };
        let calls = [
            of("a", &["tasks.create", "tasks.search"]),
            of("b", &["tasks.search", "tasks.create", "tasks.search"]),
            of("c", &["tasks.search"]),
        ];
        w.replies("", &calls);
        let [a, b, c] = ["a", "b", "c"].map(|name| head(&w.sub(name).request()));
        assert_eq!(a, b);
        assert_ne!(a, c);
    }
}

#[test]
fn breakpoints_are_few_and_a_longer_life_never_follows_a_shorter_one() {
    let facts = World::new().facts;
    let spec = spec();
    let mut prompts: Vec<_> = MODES.map(|mode| main_system(mode, &facts)).to_vec();
    prompts.push(agent_system(SubAgentInterface::Cmd, &spec, &facts));
    prompts.push(agent_system(SubAgentInterface::Json, &spec, &facts));
    for parts in prompts {
        let lives: Vec<CacheTtl> = parts.iter().filter_map(|p| p.cache).collect();
        assert_eq!(lives[0], CacheTtl::OneHour);
        // One more is left for the history, of the four that providers allow.
        assert!(lives.len() <= 3);
        let first_short = lives.iter().position(|l| *l == CacheTtl::FiveMinutes).unwrap_or(lives.len());
        assert!(lives[first_short..].iter().all(|l| *l == CacheTtl::FiveMinutes), "{lives:?}");
        assert!(!parts[0].text.contains("Ann\n") && !parts[0].text.contains("2026"), "nothing personal is shared");
    }
}

#[test]
fn what_a_turn_starts_with_fits_the_budget_of_its_model() {
    for context_tokens_max in [4_000, 8_000, 32_000] {
        let limits = TurnLimits { context_tokens_max, ..TurnLimits::default() };
        let mut w = World::with(Mode::MultiAgent, limits.clone());
        w.fast = true;
        w.facts.memories = (0..5).map(|n| format!("memory {n} {}", "m".repeat(100))).collect();
        for n in 0..150 {
            w.say(&format!("{n} {}", "q".repeat(n * 4)));
            let request = w.request();
            assert!(tokens_of(&request.messages) <= limits.history_tokens_max(), "{context_tokens_max} {n}");
            w.replies(&"a".repeat(n * 2 + 1), &[]);
        }
        assert!(w.request_after("so").stable_messages >= 2, "the history is not thrown away");
    }
}

impl World {
    fn request_after(&mut self, text: &str) -> ModelRequest {
        self.say(text);
        self.request()
    }
}

const MODES: [Mode; 3] = [Mode::MultiAgent, Mode::SingleLoop, Mode::Direct];

fn spec() -> DispatchSpec {
    let skills = skills();
    let granted = ["tasks.create", "tasks.search"];
    DispatchSpec {
        agent: agent("tasks"),
        mission: "Find the overdue tasks and create one that says so.".to_owned(),
        skills: granted.map(str::to_owned).to_vec(),
        context: "Today is Wednesday.".to_owned(),
        depends_on: Vec::new(),
        max_tool_calls: 5,
        manual: granted.map(|name| manual_of(skills.get(name).unwrap(), true)).to_vec(),
    }
}

/// Compares with `tests/golden/prompts/<name>`; a change that is meant is copied from the failure into the file.
fn assert_golden(name: &str, golden: &str, now: &str) {
    assert!(golden == now, "{name} has changed. If that is meant, tests/golden/prompts/{name} becomes:\n{now}");
}

fn as_text(parts: &[crate::message::SystemPart]) -> String {
    parts.iter().map(|p| format!("[cache: {:?}]\n{}\n", p.cache, p.text)).collect()
}

#[test]
fn the_prompts_say_what_they_said() {
    let facts = PromptFacts { skills: skills_text(&skills(), 640), ..World::new().facts };
    let golden = |name: &str| match name {
        "multi_agent.txt" => include_str!("../../../tests/golden/prompts/multi_agent.txt"),
        "single_loop.txt" => include_str!("../../../tests/golden/prompts/single_loop.txt"),
        "direct.txt" => include_str!("../../../tests/golden/prompts/direct.txt"),
        "agent_cmd.txt" => include_str!("../../../tests/golden/prompts/agent_cmd.txt"),
        _ => include_str!("../../../tests/golden/prompts/agent_json.txt"),
    };
    for mode in MODES {
        let name = format!("{}.txt", mode.as_str());
        assert_golden(&name, golden(&name), &as_text(&main_system(mode, &facts)));
    }
    for (name, interface) in [("agent_cmd.txt", SubAgentInterface::Cmd), ("agent_json.txt", SubAgentInterface::Json)] {
        assert_golden(name, golden(name), &as_text(&agent_system(interface, &spec(), &facts)));
    }
}

#[test]
fn what_is_said_in_a_turn_is_what_it_was() {
    let facts = PromptFacts {
        todo_summary: "Tasks: 2 open, 1 overdue, 0 due today".to_owned(),
        memories: vec!["Bob prefers email".to_owned(), "The report is due on Friday".to_owned()],
        ..World::new().facts
    };
    let report = AgentReport::bare(ReportStatus::Completed, "Three tasks are overdue.");
    let said = [
        turn_context(&facts).unwrap(),
        agent_mission(&spec(), [("task_search", &report)].into_iter()),
        continue_note("Yes, go on."),
    ];
    assert_golden("said.txt", include_str!("../../../tests/golden/prompts/said.txt"), &(said.join("\n---\n") + "\n"));
}

#[test]
fn the_tools_are_what_they_were() {
    let facts = World::in_mode(Mode::Direct).facts;
    let pretty = |tools: &[crate::message::ToolDef]| serde_json::to_string_pretty(tools).unwrap() + "\n";
    let goldens = [
        include_str!("../../../tests/golden/prompts/multi_agent.tools.json"),
        include_str!("../../../tests/golden/prompts/single_loop.tools.json"),
        include_str!("../../../tests/golden/prompts/direct.tools.json"),
    ];
    for (mode, golden) in MODES.into_iter().zip(goldens) {
        let tools = main_tools(mode, &facts);
        let mut names: Vec<&str> = tools.iter().map(|t| t.name.as_str()).collect();
        names.sort_unstable();
        assert!(tools.iter().map(|t| t.name.as_str()).eq(names), "the tools are sorted");
        assert_golden(&format!("{}.tools.json", mode.as_str()), golden, &pretty(&tools));
    }
    let golden = include_str!("../../../tests/golden/prompts/agent_json.tools.json");
    assert_golden("agent_json.tools.json", golden, &pretty(&[scoped_use_skill(&spec())]));
}

#[test]
fn the_default_limits_are_part_of_the_log() {
    // They are not written where they are the default, so an old log is read with today's: a change of them changes what
    // old turns meant, and needs a new event version.
    let golden = include_str!("../../../tests/golden/prompts/default_limits.json");
    let now = serde_json::to_string_pretty(&TurnLimits::default()).unwrap() + "\n";
    assert_golden("default_limits.json", golden, &now);
}
