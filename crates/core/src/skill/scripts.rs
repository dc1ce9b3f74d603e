//! Scripts of prompt skills: files below `scripts/` of a skill's folder. A call of a prompt skill only reads, unless it names one
//! of them.

use std::{borrow::Cow, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Effect, SkillFormat, SkillSpec};

/// The folder of the scripts in a skill's folder, with the slash behind it.
pub const SCRIPTS_FOLDER: &str = "scripts/";
/// The argument of a call that names a script.
const SCRIPT: &str = "script";
/// The entry of `allowed-tools` that allows the skill's scripts.
const RUN_SCRIPT: &str = "run_script";
/// The tool of other programs that starts programs, with its pattern in parentheses.
const BASH: &str = "Bash";
/// Interpreters by the end of a script's name. The first one that is installed runs the script.
const INTERPRETERS: [(&str, &[&str]); 6] = [
    (".py", &["python3", "python"]),
    (".sh", &["bash", "sh"]),
    (".js", &["node"]),
    (".mjs", &["node"]),
    (".rb", &["ruby"]),
    (".pl", &["perl"]),
];

/// What a run of a prompt skill's script may do, as the skill's file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScriptRules {
    /// The consequence of running a script twice.
    pub effect: Effect,
    /// Whether the scripts need the network.
    pub network: bool,
    /// Time limit of one run, in milliseconds.
    pub timeout_ms: u64,
}

impl SkillSpec {
    /// The skill as a call with these arguments runs it: with the effect, the reach and the time limit of its scripts if the call
    /// runs one of them.
    #[must_use]
    pub fn as_called(&self, arguments: &Value) -> Cow<'_, Self> {
        match &self.format {
            SkillFormat::Prompt { scripts: Some(rules), .. } if called_script(arguments).is_some() => {
                let ScriptRules { effect, network: external, timeout_ms } = *rules;
                Cow::Owned(Self { effect, external, timeout_ms, ..self.clone() })
            }
            SkillFormat::Prompt { .. } | SkillFormat::Command => Cow::Borrowed(self),
        }
    }

    /// Checks the arguments that a hook or a person puts in place of those of a call. They must name the same script, because the
    /// effect of the call and the decisions about it depend on that.
    ///
    /// # Errors
    /// What does not fit, as the rest of a sentence.
    pub fn check_replacement(&self, before: &Value, after: &Value) -> Result<(), String> {
        self.check_arguments(after).map_err(|error| error.what)?;
        let is_prompt = matches!(self.format, SkillFormat::Prompt { .. });
        if is_prompt && called_script(before) != called_script(after) {
            return Err("they name another script".to_owned());
        }
        Ok(())
    }
}

/// The same as [`SkillSpec::as_called`] for a shared skill.
#[must_use]
pub fn called(skill: &Arc<SkillSpec>, arguments: &Value) -> Arc<SkillSpec> {
    match skill.as_called(arguments) {
        Cow::Borrowed(_) => Arc::clone(skill),
        Cow::Owned(called) => Arc::new(called),
    }
}

/// The script that a call of a prompt skill names; empty if its value is no text.
#[must_use]
pub fn called_script(arguments: &Value) -> Option<&str> {
    arguments.get(SCRIPT).filter(|value| !value.is_null()).map(|value| value.as_str().unwrap_or_default())
}

/// The programs that may run a script of this name, the preferred one first; empty if its name does not say that.
#[must_use]
pub fn interpreters(script: &str) -> &'static [&'static str] {
    INTERPRETERS.iter().find(|(end, _)| script.ends_with(end)).map_or(&[], |(_, programs)| programs)
}

/// Whether a list of allowed tools allows a script: by `run_script`, by `Bash`, or by a pattern such as `Bash(python:*)` that fits
/// the command which runs the script.
#[must_use]
pub fn allows_script(tools: &[String], script: &str) -> bool {
    let own = [script.to_owned(), format!("./{script}")];
    let by_program =
        interpreters(script).iter().flat_map(|program| own.each_ref().map(|own| format!("{program} {own}")));
    let commands: Vec<String> = by_program.chain(own.clone()).collect();
    let fits = |pattern: &str| {
        let pattern = pattern.trim();
        match pattern.strip_suffix('*') {
            Some(start) => {
                let start = start.trim_end_matches([':', ' ']);
                commands.iter().any(|command| {
                    let rest = command.strip_prefix(start);
                    rest.is_some_and(|rest| {
                        start.is_empty() || rest.is_empty() || rest.starts_with(' ') || start.ends_with('/')
                    })
                })
            }
            None => commands.iter().any(|command| command == pattern),
        }
    };
    tools.iter().any(|tool| {
        let pattern =
            tool.strip_prefix(BASH).and_then(|rest| rest.strip_prefix('(')).and_then(|rest| rest.strip_suffix(')'));
        tool == RUN_SCRIPT || tool == BASH || pattern.is_some_and(|patterns| patterns.split(',').any(fits))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(tool: &str, script: &str) -> bool {
        allows_script(&[tool.to_owned()], script)
    }

    #[test]
    fn script_is_allowed_by_patterns_that_fit_the_command_which_runs_it() {
        for tool in [
            "run_script",
            "Bash",
            "Bash(*)",
            "Bash(python:*)",
            "Bash(python3 scripts/*)",
            "Bash(git:*, python3:*)",
            "Bash(python scripts/fill.py)",
            "Bash(./scripts/fill.py:*)",
        ] {
            assert!(allows(tool, "scripts/fill.py"), "{tool}");
        }
        for tool in ["Read", "Bash(git:*)", "Bash(pyth:*)", "Bash(bash:*)", "Bash(python scripts/other.py)", "Bash("] {
            assert!(!allows(tool, "scripts/fill.py"), "{tool}");
        }
        assert!(allows("Bash(scripts/*)", "scripts/run") && !allows("Bash(python:*)", "scripts/run"));
    }
}
