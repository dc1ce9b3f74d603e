//! Tool definitions [S0 2] [S4 2] [S4 3.3]. The arrays are small, sorted and identical in every call, so that they stay
//! within the cached prefix.

use std::{cmp::Reverse, collections::BTreeMap, fmt::Write as _};

use serde_json::{Value, json};

use crate::{
    event::{DispatchSpec, Mode, PromptFacts, SkillManual},
    message::ToolDef,
    skill::{SkillFormat, SkillSet, SkillSpec},
};

/// The tools of the agent that answers the user.
#[must_use]
pub fn main_tools(mode: Mode, facts: &PromptFacts) -> Vec<ToolDef> {
    match mode {
        Mode::MultiAgent => vec![dispatch_agent(), get_agent_results(), get_skill(&facts.domains)],
        Mode::SingleLoop => vec![get_skill(&facts.domains), use_skill()],
        Mode::Direct => facts.manual.iter().map(direct).collect(),
    }
}

fn tool(name: &str, description: &str, parameters: Value) -> ToolDef {
    ToolDef { name: name.to_owned(), description: description.to_owned(), parameters, strict: false }
}

fn get_skill(domains: &[String]) -> ToolDef {
    tool(
        "get_skill",
        "Discover skills. With a domain: its skills with their usage. With search: the skills that fit the words. With \
         neither: a summary of all domains.",
        json!({
            "type": "object",
            "properties": {
                "domain": {"type": "string", "enum": domains, "description": "Only this domain."},
                "search": {"type": "string", "description": "Words to look for in names and descriptions."}
            },
            "required": []
        }),
    )
}

fn dispatch_agent() -> ToolDef {
    tool(
        "dispatch_agent",
        "Dispatch a sub-agent for one focused task with the skills that it needs. Several run in parallel unless depends_on \
         says otherwise. Collect their results with get_agent_results before you answer the user.",
        json!({
            "type": "object",
            "properties": {
                "agent_id": {"type": "string", "description": "A name, unique in this turn: letters, digits, _ and - (e.g. task_search)."},
                "mission": {"type": "string", "description": "Specific, self-contained instructions: inputs, expected result, success criteria."},
                "skills": {"type": "array", "items": {"type": "string"}, "description": "Names of the only skills that it sees (e.g. tasks.search)."},
                "context": {"type": "string", "description": "Short background."},
                "depends_on": {"type": "array", "items": {"type": "string"}, "description": "Agents whose results it needs first."},
                "max_tool_calls": {"type": "integer", "minimum": 1, "description": "Skill calls at most. Default 5."},
                "label": {"type": "string"},
                "model": {"type": "string"},
                "timeout_s": {"type": "integer"},
                "effort": {"enum": ["low", "medium", "high"]},
                "output_schema": {"type": "object"},
                "output_key": {"type": "string", "description": "As {key} in later missions."}
            },
            "required": ["agent_id", "mission", "skills"]
        }),
    )
}

fn get_agent_results() -> ToolDef {
    tool(
        "get_agent_results",
        "Wait for dispatched agents and get their results. Without agent_ids: all agents of this turn.",
        json!({
            "type": "object",
            "properties": {
                "agent_ids": {"type": "array", "items": {"type": "string"}, "description": "Which agents. Omit for all."}
            },
            "required": []
        }),
    )
}

/// The tools by which the orchestrator controls its agents, if the limits of the turn have them.
#[must_use]
pub fn control_tools() -> [ToolDef; 2] {
    let agent = json!({"type": "string", "description": "The agent's name."});
    [
        tool(
            "steer_agent",
            "Add a text to the mission of a running agent.",
            json!({
                "type": "object",
                "properties": {"agent_id": agent, "text": {"type": "string"}},
                "required": ["agent_id", "text"]
            }),
        ),
        tool(
            "stop_agent",
            "End a running agent. The others continue.",
            json!({"type": "object", "properties": {"agent_id": agent}, "required": ["agent_id"]}),
        ),
    ]
}

fn use_skill() -> ToolDef {
    tool(
        "use_skill",
        "Run a skill by its exact name. Call get_skill first if you do not know its arguments. If it fails you get an \
         error that says what went wrong.",
        json!({
            "type": "object",
            "properties": {
                "skill": {"type": "string", "description": "The skill's exact name, e.g. tasks.create."},
                "arguments": {"type": "object", "description": "Its arguments, as its schema says."}
            },
            "required": ["skill", "arguments"]
        }),
    )
}

/// A sub-agent's `use_skill`. The enum contains exactly the granted skills, sorted [S4 3.3] [S4 8.3].
#[must_use]
pub fn scoped_use_skill(spec: &DispatchSpec) -> ToolDef {
    let mut description = "Run a skill. The skills of this agent:\n".to_owned();
    for skill in &spec.manual {
        let _ = write!(
            description,
            "\nSkill: {}\nDescription: {}\nParameters: {}\n",
            skill.name, skill.description, skill.schema
        );
    }
    tool(
        "use_skill",
        &description,
        json!({
            "type": "object",
            "properties": {
                "skill": {"type": "string", "enum": spec.skills, "description": "The skill to run."},
                "arguments": {"type": "object", "description": "Arguments that match its parameters."}
            },
            "required": ["skill", "arguments"]
        }),
    )
}

fn direct(skill: &SkillManual) -> ToolDef {
    tool(
        &direct_tool_name(&skill.name),
        &skill.description,
        serde_json::from_str(&skill.schema).unwrap_or_else(|_| json!({"type": "object"})),
    )
}

/// Maximum length of a tool's name that providers accept and return, in bytes.
pub(crate) const TOOL_NAME_BYTES_MAX: usize = 64;

/// The tool name of a skill such as `tasks.create`, because providers do not allow dots. The reverse mapping is a look-up,
/// because names of skills may contain underscores.
#[must_use]
pub fn direct_tool_name(skill: &str) -> String {
    let name = skill.replace('.', "__");
    if name.len() <= TOOL_NAME_BYTES_MAX { name } else { skill.replace('.', "_") }
}

/// The skill list of a prompt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SkillsList {
    /// The list. If something is omitted, the last line says so.
    pub text: String,
    /// The omitted parts of the command skills, for the log; `None` if their list is complete.
    pub left_out: Option<&'static str>,
    /// The omitted prompt skills, for the log.
    pub skills_left_out: Vec<String>,
}

/// Level of detail of the list, highest first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Detail {
    /// Usage and description of each skill.
    Whole,
    /// Usage of each skill, and descriptions of the domains.
    Usage,
    /// Names by domain.
    Names,
    /// Domains.
    Domains,
}

/// Length up to which the usage list is included however small the window is, in characters. Without it a model guesses
/// flags and wastes whole rounds.
const USAGE_CHARS_MIN: usize = 3_000;
/// The same for the list of names.
const NAMES_CHARS_MIN: usize = 2_000;

/// The skill list of a prompt [S0 10.2] [S1 Layer 1]. Command skills: each with its flags and description, as far as it fits;
/// otherwise names by domain; otherwise only the domains, with a pointer to `get_skill`. Prompt skills: each with its
/// description, within a limit of the same size of their own. `uses` counts how often each prompt skill began; those that began
/// least are left out first.
#[must_use]
pub fn skills_list(skills: &SkillSet, chars_max: usize, uses: &BTreeMap<String, u32>) -> SkillsList {
    let (mut text, left_out) = commands_list(skills, chars_max);
    // Without room for the descriptions of commands, prompt skills have half the room: the commands need more than theirs.
    let prompts_chars_max = if left_out.is_some() { chars_max / 2 } else { chars_max };
    let (prompts, skills_left_out) = prompts_list(skills, prompts_chars_max, uses);
    text.push_str(&prompts);
    if let Some(left_out) = left_out {
        let _ = writeln!(text, "(Left out for room: {left_out}.)");
    }
    if !skills_left_out.is_empty() {
        let count = skills_left_out.len();
        let _ = writeln!(text, "(Left out for room: prompt skills: {count}; ask for the domain {PROMPT_DOMAIN}.)");
    }
    SkillsList { text, left_out, skills_left_out }
}

fn commands_list(skills: &SkillSet, chars_max: usize) -> (String, Option<&'static str>) {
    let whole = list(skills, Detail::Whole);
    if whole.chars().count() <= chars_max {
        return (whole, None);
    }
    let levels = [
        (Detail::Usage, USAGE_CHARS_MIN, "descriptions"),
        (Detail::Names, NAMES_CHARS_MIN, "usage and descriptions of commands"),
        (Detail::Domains, usize::MAX, "skills of the domains"),
    ];
    let fits = |(detail, chars_min, left_out)| {
        let text = list(skills, detail);
        (text.chars().count() <= chars_max.max(chars_min)).then_some((text, Some(left_out)))
    };
    levels.into_iter().find_map(fits).unwrap_or_default()
}

/// The prompt skills that fit, most used ones first in the choice and sorted by name in the text, and the names of the others.
fn prompts_list(skills: &SkillSet, chars_max: usize, uses: &BTreeMap<String, u32>) -> (String, Vec<String>) {
    let mut all: Vec<&SkillSpec> = skills.for_model().map(|skill| &**skill).filter(|skill| is_prompt(skill)).collect();
    // The set is sorted by name, and the sort is stable.
    all.sort_by_key(|skill| Reverse(uses.get(&skill.name).copied().unwrap_or_default()));
    let about =
        skills.domains().into_iter().find(|domain| domain.name == PROMPT_DOMAIN).map(|domain| domain.description);
    let heading = format!("- {PROMPT_DOMAIN}: {}\n", one_line(&about.unwrap_or_default()));
    let mut chars_used = heading.chars().count();
    let (mut shown, mut left_out) = (BTreeMap::new(), Vec::new());
    for skill in all {
        let entry = format!("  {}\n    {}\n", prompt_usage(skill), one_line(&skill.description));
        let chars = entry.chars().count();
        if chars_used + chars <= chars_max {
            chars_used += chars;
            shown.insert(skill.name.as_str(), entry);
        } else {
            left_out.push(skill.name.clone());
        }
    }
    let text =
        if shown.is_empty() { String::new() } else { shown.into_values().fold(heading, |text, entry| text + &entry) };
    (text, left_out)
}

/// The usage of a prompt skill without the flags that its own text explains.
fn prompt_usage(skill: &SkillSpec) -> String {
    let arguments = skill.args.iter().filter(|arg| arg.name == "args");
    arguments.fold(skill.name.clone(), |usage, arg| usage + " " + &arg.usage())
}

fn is_prompt(skill: &SkillSpec) -> bool {
    matches!(skill.format, SkillFormat::Prompt { .. })
}

/// The domain of prompt skills.
const PROMPT_DOMAIN: &str = "prompt";
/// The skill that waits for an external event.
const AWAIT: &str = "system.await";
/// Words that may request such a wait.
const WAITS: [&str; 10] = [
    "wait",
    "until",
    "as soon as",
    "notify",
    "let me know",
    "tell me when",
    "once the",
    "warte",
    "sobald",
    "gib bescheid",
];

/// The skill list for a turn with this message. If space is limited, the model is small, and small models call the waiting
/// skill even in reply to small talk. So the skill is listed only if the message may request a wait.
#[must_use]
pub fn skills_list_for(
    skills: &SkillSet,
    chars_max: usize,
    message_text: &str,
    uses: &BTreeMap<String, u32>,
) -> SkillsList {
    let all = skills_list(skills, chars_max, uses);
    let message_text = message_text.to_lowercase();
    if all.left_out.is_none() || WAITS.iter().any(|words| message_text.contains(words)) {
        return all;
    }
    skills_list(&skills.without(AWAIT), chars_max, uses)
}

fn list(skills: &SkillSet, detail: Detail) -> String {
    let mut text = String::new();
    for domain in &skills.domains() {
        let listed = || domain.skills.iter().filter_map(|name| skills.get(name)).filter(|skill| !is_prompt(skill));
        let count = listed().count();
        if count == 0 {
            continue;
        }
        if detail == Detail::Domains {
            let _ = writeln!(text, "- {} ({count} skills)", domain.name);
            continue;
        }
        let _ = writeln!(text, "- {}: {}", domain.name, one_line(&domain.description));
        if detail == Detail::Names {
            let names: Vec<&str> = listed().map(|skill| skill.name.as_str()).collect();
            let _ = writeln!(text, "  {}", names.join(", "));
            continue;
        }
        for skill in listed() {
            let _ = writeln!(text, "  {}", skill.synopsis());
            if detail == Detail::Whole && !skill.description.is_empty() {
                let _ = writeln!(text, "    {}", one_line(&skill.description));
            }
        }
    }
    text
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
