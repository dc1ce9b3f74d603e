//! Scripts in the folder of a prompt skill: `NAME --script scripts/fill.py --args "..."`. Nothing but the files below `scripts/` is
//! run, and only if the skill's `allowed-tools` allow it.

use std::{
    ffi::OsString,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use annie_core::skill::{SCRIPTS_FOLDER, SkillFormat, SkillSpec, allows_script, interpreters};

use super::{Job, find};
use crate::{error::SkillError, files::words, handler::PromptArgs};

/// A prompt skill with its folder.
pub(crate) struct Owner {
    pub(crate) spec: Arc<SkillSpec>,
    /// Whether a conversation wrote the skill's file.
    pub(crate) is_built: bool,
    /// The skill's folder; `None` if it is not on disk.
    pub(crate) folder: Option<PathBuf>,
    /// The files below the folder, relative to it.
    pub(crate) files: Vec<String>,
}

impl Owner {
    /// The job of a script with these arguments (blocking).
    pub(crate) fn job(&self, script: &str, args: &PromptArgs) -> Result<Job, SkillError> {
        let name = &self.spec.name;
        let (SkillFormat::Prompt { scripts: Some(rules), allowed_tools, .. }, Some(folder)) =
            (&self.spec.format, &self.folder)
        else {
            return Err(SkillError::not_found(format!("The skill {name} has no scripts.")));
        };
        let script = script.trim().trim_start_matches("./");
        let outside = || {
            let what = format!("{script} was not run: only files below {SCRIPTS_FOLDER} of the skill {name} are.");
            SkillError::Outside(what)
        };
        if !script.starts_with(SCRIPTS_FOLDER) || script.split('/').any(|part| part == "..") {
            return Err(outside());
        }
        if !self.files.iter().any(|file| file == script) {
            let near = self.files.iter().filter(|file| file.starts_with(SCRIPTS_FOLDER)).cloned().collect();
            return Err(SkillError::NotFound { what: format!("The skill {name} has no file '{script}'."), near });
        }
        if !allowed_tools.is_empty() && !allows_script(allowed_tools, script) {
            let allowed = allowed_tools.join(", ");
            return Err(SkillError::NotAllowed(format!(
                "{script} was not run: `allowed-tools` of the skill {name} allows only: {allowed}. Its author can add `run_script`."
            )));
        }
        if self.is_built {
            return Err(SkillError::NotAllowed(format!(
                "{script} was not run: a conversation wrote the skill {name}, and scripts run only for skills that a person wrote. \
                 A person who has read the skill can remove the line `built:`."
            )));
        }
        let failed = |error| SkillError::Setup { what: format!("cannot open {script}"), source: error };
        // A link must not lead out of the folder of scripts, into another skill either.
        let folder = folder.canonicalize().map_err(failed)?;
        let path = folder.join(script).canonicalize().map_err(failed)?;
        if !path.starts_with(folder.join(SCRIPTS_FOLDER)) {
            return Err(outside());
        }
        let given = words(args.args.as_deref().unwrap_or_default());
        let given = given.into_iter().map(|word| OsString::from(word.replace('\0', "\u{fffd}")));
        let (program, first) = program(script, &path)?;
        Ok(Job {
            program,
            args: first.into_iter().chain(given).collect(),
            input: args.stdin.clone().unwrap_or_default().into_bytes(),
            folder: Some(folder),
            network: rules.network,
        })
    }
}

/// What runs a script, and its first argument: the interpreter that its name tells, or else the file itself.
fn program(script: &str, path: &Path) -> Result<(PathBuf, Option<OsString>), SkillError> {
    let programs = interpreters(script);
    if programs.is_empty() {
        let is_program = path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0);
        return if is_program {
            Ok((path.to_owned(), None))
        } else {
            let what = format!(
                "{script} is not executable, and its name does not say what runs it (.py, .sh, .js, .rb, .pl)."
            );
            Err(SkillError::ProgramMissing(what))
        };
    }
    let installed = programs.iter().find_map(|program| find(program).ok());
    let missing = || SkillError::ProgramMissing(format!("No {} is installed on this machine.", programs.join(" or ")));
    Ok((installed.ok_or_else(missing)?, Some(path.as_os_str().to_owned())))
}
