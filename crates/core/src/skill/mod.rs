//! What a skill is: its name, what it says of itself, its arguments, and what its effect means for recovery.

mod args;
mod fit;
mod set;

use serde::{Deserialize, Serialize};

/// What a tag begins with that says what the author of a memory or a note had read: `from:notes.read`.
pub const ORIGIN_TAG: &str = "from:";

pub use args::{ArgError, ArgKind, ArgSpec, args_from_schema};
pub use fit::{CallStyle, Found, Misfit, PLACEHOLDER, find_argument, fit};
pub use set::{DomainBrief, SkillSet, edit_distance, valid_skill_name};

/// What may happen if a run is repeated. Recovery looks at this and at nothing else.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Changes nothing: runs again freely, and without a write before it.
    Read,
    /// The same intent id twice has the effect of once: runs again under its id.
    Idempotent,
    /// Never repeated by the kernel itself: a missing receipt becomes the outcome `unknown`.
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

    /// How often one call runs a skill whose runs are cut, all under one intent. Repeating an idempotent run changes nothing
    /// more; a model may call again what only reads.
    #[must_use]
    pub const fn runs_max(self) -> u32 {
        match self {
            Self::Idempotent => 2,
            Self::Read | Self::Once => 1,
        }
    }
}

/// Where a prompt skill's body goes [S1 Frontmatter Fields].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptContext {
    /// Into the caller's own context.
    #[default]
    Inline,
    /// Into a sub-agent of its own.
    Fork,
}

/// Which of the two formats a skill has, and what only that format knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "format", rename_all = "snake_case")]
pub enum SkillFormat {
    /// `skills/<domain>/<verb>.md` with a built-in handler.
    Command,
    /// `<name>/SKILL.md`: instructions for a model.
    Prompt {
        /// Where its file wants its body to go. Nobody carries `fork` out yet; who loads the file says so.
        context: PromptContext,
        /// Whether `/name` invokes it.
        user_invocable: bool,
        /// Whether a model may invoke it.
        model_invocable: bool,
        /// The tools that its file names. They hold nobody back yet; who loads the file says so.
        allowed_tools: Vec<String>,
        /// A hint for completion.
        argument_hint: Option<String>,
    },
}

/// Everything the kernel knows of one skill.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SkillSpec {
    /// `domain.verb`, or a prompt skill's plain name.
    pub name: String,
    /// `tasks` in `tasks.create`; prompt skills live in `prompt`.
    pub domain: String,
    /// One sentence: what it does and when to use it.
    pub description: String,
    /// The file's body: what `--help` prints below the synopsis, or a prompt skill's instructions.
    pub body: String,
    /// The declared arguments, required ones first, then by name.
    pub args: Vec<ArgSpec>,
    /// What a repetition would mean.
    pub effect: Effect,
    /// Whether it reaches outside the machine: approvals and trust rules look at this.
    pub external: bool,
    /// How long one run may take, in milliseconds: 30,000 unless the file says otherwise [S0 5.1].
    pub timeout_ms: u64,
    /// Its format.
    pub format: SkillFormat,
    /// Where it was loaded from: `bundled`, or a path relative to the data folder.
    pub source: String,
}

impl SkillSpec {
    /// Whether a model may be told of it and may call it.
    #[must_use]
    pub const fn is_model_invocable(&self) -> bool {
        match &self.format {
            SkillFormat::Command => true,
            SkillFormat::Prompt { model_invocable, .. } => *model_invocable,
        }
    }

    /// One line of usage: `tasks.create --title TEXT [--due DATE] …`.
    #[must_use]
    pub fn synopsis(&self) -> String {
        let mut line = self.name.clone();
        for arg in &self.args {
            line.push(' ');
            line.push_str(&arg.usage());
        }
        line
    }

    /// The whole `--help` text: synopsis, description, a line for each flag, then the file's body.
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

    /// The skill's name as a key that forgives how its parts are joined: see [`SkillSet::named_like`].
    fn key(name: &str) -> String {
        let parts = name.split(['.', '_', '-', '/', ' ']).filter(|part| !part.is_empty());
        parts.map(str::to_lowercase).collect::<Vec<_>>().join(".")
    }

    /// Checks arguments that came as a JSON object and fills in nothing: defaults are the handler's.
    ///
    /// # Errors
    /// Names the first wrong or missing argument and shows the right usage.
    pub fn check_arguments(&self, arguments: &serde_json::Value) -> Result<(), ArgError> {
        args::check_object(self, arguments)
    }
}
