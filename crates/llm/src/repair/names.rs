//! The names that a call written as text may have: those of offered tools and of skills.

use annie_core::{caller::ToolChoice, message::ModelRequest};

/// Prefixes that models put before a name because their template does.
const PREFIXES: [&str; 6] = ["functions.", "functions::", "tools.", "tool.", "default_api.", "skills."];

/// The tool that runs a skill.
const USE_SKILL: &str = "use_skill";

/// The callable names of one request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    /// Each name as offered, and in its normalised form. Tools come before skills.
    known: Vec<(String, String)>,
    /// The number of tools in `known`.
    tools: usize,
    /// Whether a block of commands is a call. False for agents instructed to write such blocks, because the kernel parses
    /// those.
    takes_blocks: bool,
}

impl Names {
    /// The names of a request; none if the caller forbids calls. An agent that runs skills by commands has no tools, but
    /// some models write calls nevertheless: of a skill, or of the tool that runs skills.
    pub fn of(request: &ModelRequest) -> Self {
        if request.options.tool_choice == Some(ToolChoice::None) {
            return Self::default();
        }
        let by_commands = request.tools.is_empty() && !request.skill_names.is_empty();
        let tools: Vec<&str> = match by_commands {
            true => vec![USE_SKILL],
            false => request.tools.iter().map(|tool| tool.name.as_str()).collect(),
        };
        let skills = request.skill_names.iter().map(String::as_str);
        let known = tools.iter().copied().chain(skills).map(|name| (name.to_owned(), plain(name))).collect();
        Self { known, tools: tools.len(), takes_blocks: !by_commands }
    }

    pub const fn takes_blocks(&self) -> bool {
        self.takes_blocks
    }

    pub const fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Returns the offered name that a written name refers to: the tool with exactly this name, or else the only name with
    /// the same normalised form. Tools take precedence over skills. An ambiguous name matches none.
    pub fn find(&self, written: &str) -> Option<&str> {
        let written = written.trim();
        let (tools, skills) = self.known.split_at(self.tools);
        let exact = |known: &'_ [(String, String)], written: &str| known.iter().position(|(name, _)| name == written);
        if let Some(at) = exact(tools, written).or_else(|| exact(tools, bare(written))) {
            return Some(&tools[at].0);
        }
        let wanted = plain(bare(written));
        let alike = |known: &[(String, String)]| {
            let mut alike = (0..known.len()).filter(|at| known[*at].1 == wanted);
            (alike.next(), alike.next().is_some())
        };
        match (alike(tools), alike(skills)) {
            ((Some(at), false), _) => Some(&tools[at].0),
            ((None, _), (Some(at), false)) => Some(&skills[at].0),
            ((None, _), (Some(_), true)) => exact(skills, bare(written)).map(|at| skills[at].0.as_str()),
            ((Some(_), true), _) | ((None, _), (None, _)) => None,
        }
    }

    /// Whether an offered name may begin with this text.
    pub fn may_begin(&self, word: &str) -> bool {
        let begun = plain(word);
        let head = begun.trim_end_matches('.');
        self.known.iter().any(|(_, plain)| plain.starts_with(&begun) || plain.starts_with(head))
    }
}

fn bare(written: &str) -> &str {
    PREFIXES.iter().find_map(|prefix| written.strip_prefix(prefix)).unwrap_or(written)
}

/// Normalises a name for comparison: models may write a dot as `_` or `__`.
fn plain(name: &str) -> String {
    name.to_ascii_lowercase().replace("__", ".").replace('_', ".")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn names(tools: &[&str], skills: &[&str]) -> Names {
        let all = tools.iter().chain(skills);
        Names {
            known: all.map(|name| ((*name).to_owned(), plain(name))).collect(),
            tools: tools.len(),
            takes_blocks: true,
        }
    }

    #[test]
    fn names_match_skill_with_dots_written_as_underscores() {
        let names = names(&["get_skill", "use_skill"], &["tasks.create", "time.now"]);
        for written in ["tasks.create", "tasks_create", "tasks__create", "functions.tasks_create", " Tasks.Create "] {
            assert_eq!(names.find(written), Some("tasks.create"), "{written}");
        }
        assert_eq!(names.find("functions.get_skill"), Some("get_skill"));
        assert_eq!(names.find("tasks.drop"), None);
        assert!(names.may_begin("tas") && names.may_begin("tasks_") && !names.may_begin("take"));
    }

    #[test]
    fn names_match_tool_before_skill() {
        let names = names(&["tasks__create"], &["tasks.create"]);
        assert_eq!(names.find("tasks.create"), Some("tasks__create"));
    }

    #[test]
    fn names_match_exact_tool_name_before_normalised_name() {
        let names = names(&["get_weather", "get__weather", "functions.run"], &["a.b_c", "a.b.c"]);
        for written in ["get_weather", "get__weather", "functions.run", "a.b_c", "a.b.c"] {
            assert_eq!(names.find(written), Some(written));
        }
        assert_eq!((names.find("Get.Weather"), names.find("a_b_c")), (None, None), "ambiguous names match nothing");
    }
}
