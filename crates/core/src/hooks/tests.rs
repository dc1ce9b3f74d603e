//! The order of hooks, the isolation of failing hooks, and the conditions of rules.

use serde_json::json;
use uuid::Uuid;

use super::*;
use crate::{
    ids::IntentId,
    inbound::{DEAD_LETTER, OPERATION},
    skill::Effect,
};

/// What the hooks judge: a turn or a skill of one agent.
struct Scene {
    user: UserId,
    channels: Vec<String>,
    agent: AgentId,
    inbound: Inbound,
    skill: PlannedSkill,
}

impl Scene {
    /// An agent without a name is the orchestrator.
    fn of(user: &str, channel: &'static str, agent: &str, skill: &str) -> Self {
        let skill = PlannedSkill {
            intent: IntentId::from_uuid(Uuid::nil()),
            skill: skill.to_owned(),
            arguments: json!({}),
            effect: Effect::Once,
            external: false,
            timeout_ms: 1_000,
            origin: Vec::new(),
        };
        let agent = if agent.is_empty() { AgentId::orchestrator() } else { AgentId::sub(agent).unwrap() };
        Self {
            user: UserId::new(user).unwrap(),
            channels: vec![channel.to_owned()],
            agent,
            inbound: Inbound::default(),
            skill,
        }
    }

    fn at(&self, point: HookPoint) -> HookContext<'_> {
        let subject = match point {
            HookPoint::BeforeTurn => HookSubject::Turn(&self.inbound),
            HookPoint::BeforeSkill => HookSubject::Skill(&self.skill),
        };
        HookContext {
            user: &self.user,
            channels: &self.channels,
            conversation: ConversationId::from_uuid(Uuid::nil()),
            task: TaskId::from_uuid(Uuid::nil()),
            agent: &self.agent,
            point,
            subject,
        }
    }
}

/// A scene for tests that do not depend on it.
fn usual() -> Scene {
    Scene::of("ann", "http", "", "tasks.create")
}

/// A hook that always gives the same verdict, or always panics.
struct Fixed {
    name: &'static str,
    points: &'static [HookPoint],
    level: HookLevel,
    on_failure: OnFailure,
    verdict: fn() -> HookVerdict,
}

impl Fixed {
    fn new(name: &'static str, verdict: fn() -> HookVerdict) -> Self {
        let points = &[HookPoint::BeforeTurn, HookPoint::BeforeSkill];
        Self { name, points, level: HookLevel::Global, on_failure: OnFailure::Refuse, verdict }
    }

    fn hook(self) -> Arc<dyn Hook> {
        Arc::new(self)
    }
}

impl Hook for Fixed {
    fn name(&self) -> &str {
        self.name
    }

    fn points(&self) -> &[HookPoint] {
        self.points
    }

    fn level(&self) -> HookLevel {
        self.level
    }

    fn on_failure(&self) -> OnFailure {
        self.on_failure
    }

    fn judge(&self, _: &HookContext<'_>) -> HookVerdict {
        (self.verdict)()
    }
}

fn continues() -> HookVerdict {
    HookVerdict::Continue
}

fn refuses() -> HookVerdict {
    HookVerdict::Refuse { text: "No.".to_owned() }
}

fn panics() -> HookVerdict {
    panic!("no memory for {}", "é".repeat(FAILURE_BYTES_MAX))
}

fn rule(name: &str, when: Conditions) -> RefuseRule {
    RefuseRule { name: name.to_owned(), point: HookPoint::BeforeSkill, text: "No.".to_owned(), when }
}

fn list(values: &[&str]) -> Vec<String> {
    values.iter().map(|value| (*value).to_owned()).collect()
}

#[test]
fn refuse_rule_matches_by_user_channel_agent_and_skill_pattern() {
    let skills = |skills: &[&str]| Conditions { skills: list(skills), ..Conditions::default() };
    let users = |users: &[&str]| Conditions { users: list(users), ..Conditions::default() };
    let channels = |channels: &[&str]| Conditions { channels: list(channels), ..Conditions::default() };
    let agents = |agents: Agents| Conditions { agents, ..Conditions::default() };
    let all = Conditions {
        skills: list(&["mail.*"]),
        users: list(&["bob"]),
        channels: list(&["voice"]),
        agents: Agents::Sub,
    };
    for (when, (user, channel, agent, skill), is_refused) in [
        (Conditions::default(), ("ann", "http", "", "mail.send"), true),
        (skills(&["mail.send"]), ("ann", "http", "", "mail.send"), true),
        (skills(&["mail.send"]), ("ann", "http", "", "mail.sends"), false),
        (skills(&["mail.*"]), ("ann", "http", "", "mail.send"), true),
        (skills(&["mail.*"]), ("ann", "http", "", "mail"), false),
        (skills(&["mail.*"]), ("ann", "http", "", "mailbox.send"), false),
        (skills(&["mcp.*"]), ("ann", "http", "", "mcp.git.push"), true),
        (skills(&["mcp.git.*"]), ("ann", "http", "", "mcp.files.read"), false),
        (skills(&["*"]), ("ann", "http", "", "plan-trip"), true),
        (skills(&["notes.read", "mail.send"]), ("ann", "http", "", "mail.send"), true),
        (users(&["bob"]), ("bob", "http", "", "mail.send"), true),
        (users(&["bob", "ann"]), ("ann", "http", "", "mail.send"), true),
        (users(&["bob"]), ("Bob", "http", "", "mail.send"), false),
        (channels(&["voice"]), ("ann", "voice", "", "mail.send"), true),
        (channels(&["voice"]), ("ann", "http", "", "mail.send"), false),
        (channels(&["voice"]), ("ann", DEAD_LETTER, "", "mail.send"), true),
        (channels(&["voice"]), ("ann", OPERATION, "", "mail.send"), true),
        (agents(Agents::Main), ("ann", "http", "", "mail.send"), true),
        (agents(Agents::Main), ("ann", "http", "scout", "mail.send"), false),
        (agents(Agents::Sub), ("ann", "http", "scout", "mail.send"), true),
        (agents(Agents::Sub), ("ann", "http", "", "mail.send"), false),
        (all.clone(), ("bob", "voice", "scout", "mail.send"), true),
        (all.clone(), ("bob", DEAD_LETTER, "scout", "mail.send"), true),
        (all.clone(), ("ann", "voice", "scout", "mail.send"), false),
        (all.clone(), ("ann", DEAD_LETTER, "scout", "mail.send"), false),
        (all.clone(), ("bob", "http", "scout", "mail.send"), false),
        (all.clone(), ("bob", "voice", "", "mail.send"), false),
        (all, ("bob", "voice", "scout", "notes.read"), false),
    ] {
        let set = HookSet::new(vec![Arc::new(rule("r", when.clone()))]);
        let decided = set.judge(&Scene::of(user, channel, agent, skill).at(HookPoint::BeforeSkill));
        let wanted = is_refused.then(|| Decided {
            hook: "r".to_owned(),
            point: HookPoint::BeforeSkill,
            verdict: refuses(),
            failure: String::new(),
        });
        assert_eq!(decided, wanted, "{when:?} for {user}, {channel}, agent {agent:?}, {skill}");
    }
}

#[test]
fn refuse_rule_decides_only_at_its_point() {
    let before_turn = RefuseRule { point: HookPoint::BeforeTurn, ..rule("r", Conditions::default()) };
    let set = HookSet::new(vec![Arc::new(before_turn)]);
    let scene = usual();
    assert_eq!(set.judge(&scene.at(HookPoint::BeforeTurn)).unwrap().verdict, refuses());
    assert_eq!(set.judge(&scene.at(HookPoint::BeforeSkill)), None);
    let of_skill = Conditions { skills: list(&["*"]), ..Conditions::default() };
    let without_skill = RefuseRule { point: HookPoint::BeforeTurn, ..rule("r", of_skill) };
    assert_eq!(HookSet::new(vec![Arc::new(without_skill)]).judge(&scene.at(HookPoint::BeforeTurn)), None);
}

#[test]
fn hooks_are_judged_in_level_order() {
    let agents = Conditions { agents: Agents::Main, ..Conditions::default() };
    let skills = Conditions { skills: list(&["*"]), ..agents.clone() };
    let hooks: [Arc<dyn Hook>; 5] = [
        Arc::new(rule("skill", skills)),
        Arc::new(rule("agent", agents)),
        Arc::new(rule("global", Conditions::default())),
        Fixed::new("continues", continues).hook(),
        Arc::new(rule("second-global", Conditions::default())),
    ];
    let set = HookSet::new(hooks.to_vec());
    assert_eq!(format!("{set:?}"), r#"["global", "continues", "second-global", "agent", "skill"]"#);
    let scene = usual();
    let first =
        |hooks: &[Arc<dyn Hook>]| HookSet::new(hooks.to_vec()).judge(&scene.at(HookPoint::BeforeSkill)).unwrap();
    assert_eq!(first(&hooks).hook, "global");
    assert_eq!(first(&hooks[..2]).hook, "agent");
    assert_eq!(first(&hooks[3..]).hook, "second-global", "a hook without an objection leaves the decision to the next");
    assert!(HookSet::default().is_empty() && HookSet::default().judge(&scene.at(HookPoint::BeforeTurn)).is_none());
    assert!(!set.is_empty());
}

#[test]
fn hook_that_panics_refuses_by_default() {
    let scene = usual();
    let set = HookSet::new(vec![Fixed::new("broken", panics).hook()]);
    let decided = set.judge(&scene.at(HookPoint::BeforeTurn)).unwrap();
    assert_eq!((decided.hook.as_str(), decided.point), ("broken", HookPoint::BeforeTurn));
    assert_eq!(decided.verdict, HookVerdict::Refuse { text: FAILED.to_owned() });
    assert!(decided.failure.starts_with("it panicked: no memory for é"), "{}", decided.failure);
    assert!(decided.failure.len() <= FAILURE_BYTES_MAX + "it panicked: ".len(), "{} bytes", decided.failure.len());
}

#[test]
fn hook_that_panics_and_may_continue_leaves_decision_to_next_hook() {
    let scene = usual();
    let lenient = || Fixed { on_failure: OnFailure::Continue, ..Fixed::new("broken", panics) }.hook();
    let alone = HookSet::new(vec![lenient(), Fixed::new("continues", continues).hook()]);
    let decided = alone.judge(&scene.at(HookPoint::BeforeSkill)).unwrap();
    assert_eq!((decided.hook.as_str(), &decided.verdict), ("broken", &HookVerdict::Continue));
    assert!(decided.failure.starts_with("it panicked: "), "the failure is reported: {decided:?}");
    let followed = HookSet::new(vec![lenient(), Fixed::new("strict", refuses).hook()]);
    let decided = followed.judge(&scene.at(HookPoint::BeforeSkill)).unwrap();
    assert_eq!((decided.hook.as_str(), decided.verdict, decided.failure.as_str()), ("strict", refuses(), ""));
}

#[test]
fn skill_pattern_is_a_name_or_a_domain_or_everything() {
    for (pattern, is_valid) in [
        ("tasks.create", true),
        ("tasks.*", true),
        ("mcp.git.*", true),
        ("*", true),
        ("plan-trip", true),
        ("výlet", true),
        ("tasks.*.x", false),
        ("tasks*", false),
        ("*.create", false),
        ("**", false),
        (".*", false),
        ("tasks.", false),
        ("tasks create", false),
        ("", false),
    ] {
        assert_eq!(valid_skill_pattern(pattern), is_valid, "{pattern:?}");
    }
}

#[test]
fn hook_name_has_lower_case_letters_digits_dashes_and_underscores() {
    for (name, is_valid) in [
        ("no-mail_2", true),
        (&"x".repeat(64), true),
        (&"x".repeat(65), false),
        ("", false),
        ("A", false),
        ("a b", false),
    ] {
        assert_eq!(valid_hook_name(name), is_valid, "{name:?}");
    }
}

#[test]
fn rule_about_channels_holds_for_steering_and_leaves_results_of_operations_their_turn() {
    let voice = Conditions { channels: list(&["voice"]), ..Conditions::default() };
    let before_turn = RefuseRule { point: HookPoint::BeforeTurn, ..rule("r", voice.clone()) };
    let set = HookSet::new(vec![Arc::new(rule("r", voice)), Arc::new(before_turn)]);
    let steered = Scene { channels: list(&["http", "voice"]), ..usual() };
    assert!(set.judge(&steered.at(HookPoint::BeforeSkill)).is_some());
    for source in [DEAD_LETTER, OPERATION] {
        let scene = Scene::of("ann", source, "", "mail.send");
        assert!(set.judge(&scene.at(HookPoint::BeforeSkill)).is_some(), "its channel is not known");
        assert!(set.judge(&scene.at(HookPoint::BeforeTurn)).is_none(), "a refused result would be lost");
    }
}
