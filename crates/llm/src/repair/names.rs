//! The names that a call written as text may have: offered tools, and skills.

use annie_core::{caller::ToolChoice, message::ModelRequest};

/// What models put before a name because their own template does.
const PREFIXES: [&str; 6] = ["functions.", "functions::", "tools.", "tool.", "default_api.", "skills."];

/// The tool that runs a skill.
const USE_SKILL: &str = "use_skill";

/// The names of one request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    /// As the model was told it, and as names are compared. Tools come before skills.
    known: Vec<(String, String)>,
    /// How many of them are tools.
    tools: usize,
    /// Whether a block of commands is a call: not of an agent that was told to write them, whose blocks the kernel reads.
    takes_blocks: bool,
}

impl Names {
    /// Those of a request; none where the caller wants no calls. An agent that runs its skills by commands is offered no tools,
    /// and some models write calls all the same: of a skill, or of the tool that runs skills.
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

    /// The offered name that this means: the tool of this very name, or else the one whose name is only written otherwise. A
    /// skill that is a tool of its own is called as that tool. A name that may mean several means none.
    pub fn find(&self, said: &str) -> Option<&str> {
        let said = said.trim();
        let (tools, skills) = self.known.split_at(self.tools);
        let exact = |known: &'_ [(String, String)], said: &str| known.iter().position(|(name, _)| name == said);
        if let Some(at) = exact(tools, said).or_else(|| exact(tools, bare(said))) {
            return Some(&tools[at].0);
        }
        let wanted = plain(bare(said));
        let alike = |known: &[(String, String)]| {
            let mut alike = (0..known.len()).filter(|at| known[*at].1 == wanted);
            (alike.next(), alike.next().is_some())
        };
        match (alike(tools), alike(skills)) {
            ((Some(at), false), _) => Some(&tools[at].0),
            ((None, _), (Some(at), false)) => Some(&skills[at].0),
            ((None, _), (Some(_), true)) => exact(skills, bare(said)).map(|at| skills[at].0.as_str()),
            ((Some(_), true), _) | ((None, _), (None, _)) => None,
        }
    }

    /// Whether a name may begin like this.
    pub fn may_begin(&self, word: &str) -> bool {
        let begun = plain(word);
        let head = begun.trim_end_matches('.');
        self.known.iter().any(|(_, plain)| plain.starts_with(&begun) || plain.starts_with(head))
    }
}

fn bare(said: &str) -> &str {
    PREFIXES.iter().find_map(|prefix| said.strip_prefix(prefix)).unwrap_or(said)
}

/// A name as it is compared: dots may be written `_` or `__`.
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
    fn name_with_dots_written_otherwise_means_the_skill() {
        let names = names(&["get_skill", "use_skill"], &["tasks.create", "time.now"]);
        for said in ["tasks.create", "tasks_create", "tasks__create", "functions.tasks_create", " Tasks.Create "] {
            assert_eq!(names.find(said), Some("tasks.create"), "{said}");
        }
        assert_eq!(names.find("functions.get_skill"), Some("get_skill"));
        assert_eq!(names.find("tasks.drop"), None);
        assert!(names.may_begin("tas") && names.may_begin("tasks_") && !names.may_begin("take"));
    }

    #[test]
    fn skill_that_is_offered_as_a_tool_is_called_as_the_tool() {
        let names = names(&["tasks__create"], &["tasks.create"]);
        assert_eq!(names.find("tasks.create"), Some("tasks__create"));
    }

    #[test]
    fn tool_of_the_very_name_is_meant_before_one_whose_name_is_written_otherwise() {
        let names = names(&["get_weather", "get__weather", "functions.run"], &["a.b_c", "a.b.c"]);
        for said in ["get_weather", "get__weather", "functions.run", "a.b_c", "a.b.c"] {
            assert_eq!(names.find(said), Some(said));
        }
        assert_eq!((names.find("Get.Weather"), names.find("a_b_c")), (None, None), "which one nobody knows");
    }
}
