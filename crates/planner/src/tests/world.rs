//! A miniature kernel around the planner: core's real prompts and command grammar, and a closure as skill runner. It plays
//! whole turns with orchestrator and sub-agents, and records the commands that ran.

use annie_core::{
    command,
    context::{Frames, agent_mission, agent_system, main_system, main_tools, scoped_use_skill},
    event::{AgentReport, DispatchSpec, Mode, PromptFacts, ReportStatus, SkillManual},
    ids::AgentId,
    limits::SubAgentInterface,
    message::{Message, ModelReply, ModelRequest, ToolCall},
};
use serde_json::{Value, json};

use super::super::{OfflinePlanner, catalog::Skill, testing::SKILLS};

type Runner = dyn Fn(&str, &str) -> String;

pub(super) struct World {
    interface: SubAgentInterface,
    runner: Box<Runner>,
    /// Commands and calls that were run, in order.
    pub ran: Vec<String>,
    /// Dispatched agents with their dependencies.
    pub agents: Vec<(String, Vec<String>)>,
    /// How many agents one turn may have.
    pub agents_max: usize,
    /// All messages of the orchestrator's conversation.
    pub messages: Vec<Message>,
    /// Whether the last answer reported unfinished requests.
    pub declined: bool,
}

/// A runner that answers like the bundled skills.
pub(super) fn bundled_runner(skill: &str, line: &str) -> String {
    match skill {
        "tasks.create" => "Created task #1 Review PR 42, due 2026-11-22 (tomorrow), priority medium".into(),
        "memory.save" => "Saved: Bob prefers email".into(),
        "tasks.search" => "Found 1 open task:\n\n- #1 Review PR 42, due 2026-11-22 (tomorrow), priority medium".into(),
        "tasks.update" => "Updated task #1 Review PR 42, priority medium, done".into(),
        _ => format!("ran {line}"),
    }
}

impl World {
    pub fn new(interface: SubAgentInterface, runner: impl Fn(&str, &str) -> String + 'static) -> Self {
        Self {
            interface,
            runner: Box::new(runner),
            ran: vec![],
            agents: vec![],
            agents_max: 8,
            messages: vec![],
            declined: false,
        }
    }

    fn facts(mode: Mode) -> PromptFacts {
        let skills = || SKILLS.iter().filter_map(|(line, about)| Skill::from_synopsis(line, about));
        let mut list = String::new();
        for domain in ["memory", "notes", "schedules", "system", "tasks"] {
            let names: Vec<String> =
                skills().map(|s| s.name).filter(|n| n.starts_with(&format!("{domain}."))).collect();
            list.push_str(&format!("- {domain}: About {domain}.\n  {}\n", names.join(", ")));
        }
        PromptFacts {
            effort: None,
            is_flagged: false,
            workflow: None,
            skills: list,
            domains: ["memory", "notes", "schedules", "system", "tasks"].map(str::to_owned).to_vec(),
            manual: if mode == Mode::Direct { SKILLS.iter().map(|(line, _)| manual(line)).collect() } else { vec![] },
            user_name: "Ann".into(),
            timezone: "Europe/Prague".into(),
            local_now: "2026-11-21 14:05 Saturday".into(),
            spoken: None,
            skill_change: None,
            suggestion: String::new(),
            spoken_as: None,
            tone: String::new(),
            todo_summary: String::new(),
            memories: vec!["Bob prefers email".into()],
            recalled: Vec::new(),
            texts: Vec::new(),
            channel: "cli".into(),
            intent: None,
            rules: Vec::new(),
        }
    }

    /// Plays one turn with the user's message and returns the answer.
    pub fn turn(&mut self, mode: Mode, sent: &str) -> String {
        self.agents.clear();
        let context = Some(
            "[Context]\nLocal time: now\nRelevant memories:\n<memory>Bob prefers email</memory>\n[/Context]".to_owned(),
        );
        self.messages.push(Message::User { context, text: sent.to_owned() });
        let facts = Self::facts(mode);
        for _ in 0..6 {
            let request = request(main_system(mode, &facts), self.messages.clone(), main_tools(mode, &facts));
            let reply = OfflinePlanner::new().plan(&request);
            self.messages.push(Message::calling(reply.text.clone(), reply.tool_calls.clone()));
            if reply.tool_calls.is_empty() {
                self.declined = reply.declined;
                return reply.text;
            }
            let mut reports: Vec<(String, AgentReport)> = Vec::new();
            let results: Vec<(String, String)> =
                reply.tool_calls.iter().map(|call| (call.id.clone(), self.answer(call, mode, &mut reports))).collect();
            self.messages.extend(results.into_iter().map(|(call_id, text)| Message::result(call_id, text)));
        }
        panic!("no answer within six rounds: {:#?}", self.messages);
    }

    fn answer(&mut self, call: &ToolCall, mode: Mode, reports: &mut Vec<(String, AgentReport)>) -> String {
        let arguments: Value = serde_json::from_str(&call.arguments).expect("arguments are JSON");
        match call.name.as_str() {
            "get_skill" => get_skill(&arguments, mode == Mode::SingleLoop),
            "dispatch_agent" => self.dispatch(&arguments, reports),
            "get_agent_results" => {
                let agents: Vec<Value> = reports
                    .iter()
                    .map(|(id, r)| json!({"agent_id": id, "status": r.status.as_str(), "result": r.result}))
                    .collect();
                json!({"agents": agents}).to_string()
            }
            "use_skill" => {
                let skill = arguments["skill"].as_str().expect("a skill").to_owned();
                self.run(&skill, &format!("{skill} {}", arguments["arguments"]))
            }
            tool => self.run(&tool.replace("__", "."), &format!("{tool} {arguments}")),
        }
    }

    fn run(&mut self, skill: &str, line: &str) -> String {
        self.ran.push(line.to_owned());
        (self.runner)(skill, line)
    }

    fn dispatch(&mut self, arguments: &Value, reports: &mut Vec<(String, AgentReport)>) -> String {
        let texts = |v: &Value| -> Vec<String> {
            v.as_array().into_iter().flatten().filter_map(|t| t.as_str().map(str::to_owned)).collect()
        };
        let id = arguments["agent_id"].as_str().expect("an agent id").to_owned();
        let agent = AgentId::sub(&id).expect("a fitting agent id");
        if self.agents.len() >= self.agents_max {
            return format!(
                "Error: the limit of {} agents in a turn is reached; this one was not started",
                self.agents_max
            );
        }
        let depends_on = texts(&arguments["depends_on"]);
        self.agents.push((id.clone(), depends_on.clone()));
        let spec = DispatchSpec {
            agent,
            mission: arguments["mission"].as_str().expect("a mission").to_owned(),
            skills: texts(&arguments["skills"]),
            context: String::new(),
            depends_on: Vec::new(),
            max_tool_calls: 5,
            manual: SKILLS
                .iter()
                .map(|(line, _)| manual(line))
                .filter(|m| texts(&arguments["skills"]).contains(&m.name))
                .collect(),
            options: Default::default(),
        };
        let waited: Vec<(String, AgentReport)> =
            reports.iter().filter(|(id, _)| depends_on.contains(id)).cloned().collect();
        let brief = agent_mission(&spec, waited.iter().map(|(id, r)| (id.as_str(), r)), &Frames::default());
        let result = self.sub_agent(&spec, &brief);
        let status = ReportStatus::Completed;
        let report = AgentReport { tool_calls_used: 1, duration_ms: 1, ..AgentReport::bare(status, result) };
        reports.push((id.clone(), report));
        json!({"agent_id": id, "status": "accepted"}).to_string()
    }

    fn sub_agent(&mut self, spec: &DispatchSpec, brief: &str) -> String {
        let facts = Self::facts(Mode::MultiAgent);
        let mut messages = vec![Message::user(brief)];
        for _ in 0..6 {
            let tools = match self.interface {
                SubAgentInterface::Cmd => vec![],
                SubAgentInterface::Json => vec![scoped_use_skill(spec)],
            };
            let reply = OfflinePlanner::new().plan(&request(
                agent_system(self.interface, spec, &facts),
                messages.clone(),
                tools,
            ));
            let done = self.act(&reply, &mut messages);
            if done {
                return reply.text;
            }
        }
        panic!("a sub-agent did not end within six rounds: {messages:#?}");
    }

    fn act(&mut self, reply: &ModelReply, messages: &mut Vec<Message>) -> bool {
        messages.push(Message::calling(reply.text.clone(), reply.tool_calls.clone()));
        for call in &reply.tool_calls {
            let text = self.answer(call, Mode::MultiAgent, &mut Vec::new());
            messages.push(Message::result(call.id.clone(), text));
        }
        let mut blocks = Vec::new();
        for line in command::extract(&reply.text) {
            blocks.push(match line {
                Ok(line) => {
                    let name = command::parse(&line).expect("a command that parses").name;
                    Frames::default().wrap("result", &[("command", &name)], &self.run(&name, &line))
                }
                Err(error) => Frames::default().wrap("result", &[("command", "command")], &format!("Error: {error}")),
            });
        }
        if !blocks.is_empty() {
            messages.push(Message::user(blocks.join("\n")));
        }
        reply.tool_calls.is_empty() && blocks.is_empty()
    }
}

fn request(
    system: Vec<annie_core::message::SystemPart>,
    messages: Vec<Message>,
    tools: Vec<annie_core::message::ToolDef>,
) -> ModelRequest {
    ModelRequest {
        model: None,
        system,
        messages,
        stable_messages: 0,
        tools,
        skill_names: Vec::new(),
        output_tokens_max: 1_000,
        session_id: "conv_1".into(),
        priority: 2,
        options: annie_core::caller::CallOptions::default(),
    }
}

/// The kernel's manual of a skill with this synopsis.
fn manual(line: &str) -> SkillManual {
    let skill = Skill::from_synopsis(line, "Does it.").expect("a synopsis");
    let spec = annie_core::skill::SkillSpec {
        name: skill.name.clone(),
        domain: String::new(),
        description: "Does it.".into(),
        body: String::new(),
        args: skill.args.clone().unwrap_or_default(),
        effect: annie_core::skill::Effect::Read,
        external: false,
        timeout_ms: 1,
        alternatives: Vec::new(),
        fallback: std::collections::BTreeMap::new(),
        is_ready: false,
        format: annie_core::skill::SkillFormat::Command,
        source: String::new(),
    };
    SkillManual {
        name: skill.name,
        description: spec.description.clone(),
        synopsis: line.to_owned(),
        schema: spec.schema().to_string(),
        changes: false,
    }
}

fn get_skill(arguments: &Value, full: bool) -> String {
    let domain = arguments["domain"].as_str().unwrap_or_default();
    let words = arguments["search"].as_str().unwrap_or_default().to_lowercase();
    let fits = |line: &str| {
        if domain.is_empty() {
            words.split(' ').any(|w| w.len() > 3 && line.contains(w))
        } else {
            line.starts_with(&format!("{domain}."))
        }
    };
    let skills: Vec<Value> = SKILLS
        .iter()
        .filter(|(line, _)| fits(line))
        .map(|(line, about)| {
            let manual = manual(line);
            let mut entry = json!({"name": manual.name, "description": about, "usage": line});
            if full {
                entry["parameters"] = serde_json::from_str(&manual.schema).expect("a schema");
            }
            entry
        })
        .collect();
    json!({"skills": skills}).to_string()
}
