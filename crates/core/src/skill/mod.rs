//! The definition of a skill: name, description, arguments, and the effect class that recovery uses.

mod active;
mod args;
mod fit;
mod index;
mod scripts;
mod set;
mod slash;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{effort::Effort, error_route::Chains};

/// Prefix of tags that record the sources that the author of a memory or a note had read: `from:notes.read`.
pub const ORIGIN_TAG: &str = "from:";

pub use active::{ActiveSkill, Confinement, SkillChange};
pub use args::{ArgError, ArgKind, ArgSpec, args_from_schema};
pub use fit::{CallStyle, Found, Misfit, PLACEHOLDER, find_argument, fit};
pub use scripts::{SCRIPTS_FOLDER, ScriptRules, allows_script, called, called_script, interpreters};
pub use set::{DomainBrief, SkillSet, edit_distance, valid_skill_name};
pub use slash::{DONE_COMMAND, HELP_COMMAND, SlashCommand, is_kernel_command, slash_commands};

/// The consequence of running a skill twice. Recovery depends only on this.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// No effect. The run may be repeated freely, and is not recorded before it starts.
    Read,
    /// Two runs with the same intent id have a single effect. The run may be repeated under its id.
    Idempotent,
    /// The kernel never repeats the run. A missing receipt becomes the outcome `unknown`.
    #[default]
    Once,
}

impl Effect {
    /// The wire word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Idempotent => "idempotent",
            Self::Once => "once",
        }
    }

    /// Maximum number of runs for one call whose runs are interrupted, all under one intent. A repeated idempotent run
    /// changes nothing more. A model may call a reading skill again itself.
    #[must_use]
    pub const fn runs_max(self) -> u32 {
        match self {
            Self::Idempotent => 2,
            Self::Read | Self::Once => 1,
        }
    }
}

/// The destination of a prompt skill's body [S1 Frontmatter Fields].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptContext {
    /// The caller's own context.
    #[default]
    Inline,
    /// A background task of its own, which does not see the caller's context.
    Fork,
}

/// The format of a skill, with the data specific to the format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "format", rename_all = "snake_case")]
pub enum SkillFormat {
    /// A file `skills/<domain>/<verb>.md` with a built-in handler.
    Command,
    /// A file `<name>/SKILL.md` with instructions for a model.
    Prompt {
        /// The destination that the file requests for its body.
        context: PromptContext,
        /// Whether `/name` invokes it.
        user_invocable: bool,
        /// Whether a model may invoke it.
        model_invocable: bool,
        /// The skills and domains that may run while the skill is active. Empty means all.
        allowed_tools: Vec<String>,
        /// A hint for completion at a prompt.
        argument_hint: Option<String>,
        /// The backend that a turn prefers which begins with the skill, by its name in the configuration.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// How hard the model of a turn should think that begins with the skill.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        effort: Option<Effort>,
        /// What a run of one of its scripts may do; `None` if it has none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        scripts: Option<ScriptRules>,
    },
}

/// The definition of one skill.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SkillSpec {
    /// `domain.verb`, or a prompt skill's plain name.
    pub name: String,
    /// `tasks` for `tasks.create`; `prompt` for prompt skills.
    pub domain: String,
    /// One sentence: the skill's purpose, and when to use it.
    pub description: String,
    /// The body of the file: what `--help` shows below the synopsis, or the instructions of a prompt skill.
    pub body: String,
    /// The declared arguments, required ones first, then by name.
    pub args: Vec<ArgSpec>,
    /// The consequence of running the skill twice.
    pub effect: Effect,
    /// Whether the skill communicates outside the machine. Approvals and trust rules depend on this.
    pub external: bool,
    /// Time limit of one run, in milliseconds; 30,000 unless the file sets it [S0 5.1].
    pub timeout_ms: u64,
    /// The skills that may stand in for it if it fails, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alternatives: Vec<String>,
    /// What follows its failures, by kind, in place of the usual chains.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fallback: Chains,
    /// Whether the text of a successful run is an answer for a person as it is, so that no model need repeat it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_ready: bool,
    /// The format.
    pub format: SkillFormat,
    /// The origin: `bundled`, a path relative to the data folder, or what another source of skills calls it.
    pub source: String,
}

impl SkillSpec {
    /// Whether models may see and call the skill.
    #[must_use]
    pub const fn is_model_invocable(&self) -> bool {
        match &self.format {
            SkillFormat::Command => true,
            SkillFormat::Prompt { model_invocable, .. } => *model_invocable,
        }
    }

    /// The usage line: `tasks.create --title TEXT [--due DATE] …`.
    #[must_use]
    pub fn synopsis(&self) -> String {
        let mut line = self.name.clone();
        for arg in &self.args {
            line.push(' ');
            line.push_str(&arg.usage());
        }
        line
    }

    /// The complete `--help` text: synopsis, description, one line per flag, then the file's body.
    #[must_use]
    pub fn help(&self) -> String {
        let mut text = format!("{}\n\nUsage: {}\n", self.description, self.synopsis());
        if !self.args.is_empty() {
            text.push_str("\nFlags:\n");
            for arg in &self.args {
                text.push_str(&arg.help_line());
                text.push('\n');
            }
        }
        let body = self.body.trim();
        if !body.is_empty() {
            text.push('\n');
            text.push_str(body);
            text.push('\n');
        }
        text
    }

    /// JSON Schema of the arguments, keys in a fixed order (properties by name).
    #[must_use]
    pub fn schema(&self) -> serde_json::Value {
        args::schema_of(&self.args)
    }

    /// A normalised name that ignores how its parts are joined: see [`SkillSet::named_like`].
    #[must_use]
    pub fn key(name: &str) -> String {
        let parts = name.split(['.', '_', '-', '/', ' ']).filter(|part| !part.is_empty());
        parts.map(str::to_lowercase).collect::<Vec<_>>().join(".")
    }

    /// Validates arguments in the form of a JSON object. Adds no defaults, which are the handler's task.
    ///
    /// # Errors
    /// The first invalid or missing argument, with the right usage.
    pub fn check_arguments(&self, arguments: &serde_json::Value) -> Result<(), ArgError> {
        args::check_object(self, arguments)
    }
}
