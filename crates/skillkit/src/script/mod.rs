//! Programs of skills: scripts, `python.run` and `shell.run`. All of them run in the sandbox, in a folder of their own that is
//! removed afterwards.

mod outcome;
mod own;
mod work;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use annie_core::{
    outcome::Outcome,
    ports::SkillCall,
    skill::{ArgSpec, SkillSpec},
};
use annie_process::{Launch, ProcessLimits, Sandbox, SandboxLevel, execute};
pub(crate) use own::Owner;
use serde_json::Value;
use work::WorkFolder;

use crate::{
    error::SkillError,
    files::Script,
    runner::run_blocking,
    template::{defaulted, filled},
};

/// Where programs are looked for by name.
pub(crate) const FOLDERS: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];
/// How many bytes from the end of stderr are kept for the detail of the outcome.
const STDERR_BYTES_MAX: usize = 4 * 1024;
/// The part of a skill's time limit that is left for ending its program, so that the outcome says that the program was late: one
/// twentieth, at least this long, in milliseconds.
const ENDING_MS_MIN: u64 = 500;

/// How programs of skills are run. The operator sets these rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramRules {
    /// The program that sets limits and enters the sandbox: `annie` itself.
    pub shim: PathBuf,
    /// The folder in which each run gets a folder of its own. Everything else in it is removed at the start.
    pub work_folder: PathBuf,
    /// How much of the sandbox must be in force.
    pub level: SandboxLevel,
    /// Whether a script that asks for it gets the network.
    pub network: bool,
    /// Further folders that programs may read.
    pub read: Vec<PathBuf>,
    /// The programs that `shell.run` may start, by name.
    pub shell_allow: Vec<String>,
    /// The maximum size of what a program writes to stdout, in bytes.
    pub output_bytes_max: usize,
    /// Limits of the operating system. The limit of CPU time is the skill's time limit.
    pub limits: ProcessLimits,
}

/// Starts the programs of skills.
pub(crate) struct Programs {
    rules: ProgramRules,
}

/// One program to run for a skill.
pub(crate) struct Job {
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<OsString>,
    /// What it reads from stdin.
    pub(crate) input: Vec<u8>,
    /// The skill's folder, which it may read.
    pub(crate) folder: Option<PathBuf>,
    pub(crate) network: bool,
}

impl Programs {
    /// Programs under these rules. Removes what an earlier process left in the work folder (blocking).
    pub(crate) fn new(mut rules: ProgramRules) -> Self {
        // Programs are started in a folder below, where a relative path would name another one.
        if let Ok(absolute) = std::path::absolute(&rules.work_folder) {
            rules.work_folder = absolute;
        }
        work::clear(&rules.work_folder);
        Self { rules }
    }

    /// The path of a program that `shell.run` may start.
    pub(crate) fn listed(&self, name: &str) -> Result<PathBuf, SkillError> {
        if !self.rules.shell_allow.iter().any(|allowed| allowed == name) {
            let allowed = self.rules.shell_allow.join(", ");
            return Err(SkillError::NotAllowed(format!(
                "The program `{name}` is not allowed; allowed are: {allowed}."
            )));
        }
        find(name)
    }

    /// Runs a program for a call of a skill, and converts its end into the outcome. Dropping the future ends the program.
    pub(crate) async fn run(&self, job: Job, spec: &SkillSpec, call: &SkillCall) -> Result<Outcome, SkillError> {
        if job.network && !self.rules.network {
            return Err(SkillError::NotAllowed(format!(
                "The program of {} was not run: it needs the network, which is switched off; the operator can allow it with \
                 sandbox.network.",
                spec.name
            )));
        }
        let root = self.rules.work_folder.clone();
        let work = run_blocking(move || WorkFolder::create(&root)).await?;
        let launch = self.launch(job, spec, call, work.path());
        let program = launch.program.display().to_string();
        let mut ignored = |_: &[u8]| ();
        let ended = execute(launch, &mut ignored).await;
        drop(work);
        let ended = ended.map_err(|e| SkillError::ProgramMissing(format!("`{program}` cannot be started: {e}.")))?;
        outcome::of(ended, spec, self.rules.output_bytes_max)
    }

    /// Runs a script that is not in its folder yet, with the text of its file. It has no network.
    pub(crate) async fn try_out(
        &self,
        script: &Script,
        file: Option<(&str, &str)>,
        arguments: Value,
        (spec, call): (&SkillSpec, &SkillCall),
    ) -> Result<Outcome, SkillError> {
        let root = self.rules.work_folder.clone();
        let file = file.map(|(name, text)| (name.to_owned(), text.to_owned()));
        // Removed at the end. The program may read it, as it will read the skill's folder.
        let place = run_blocking(move || {
            let place = WorkFolder::create(&root)?;
            if let Some((name, text)) = file {
                let failed = |error| SkillError::Setup { what: format!("cannot write {name}"), source: error };
                std::fs::write(place.path().join(&name), text).map_err(failed)?;
            }
            Ok(place)
        })
        .await?;
        let script = Script { folder: place.path().to_owned(), network: false, run: script.run.clone() };
        self.run(job(&script, &spec.args, arguments)?, spec, call).await
    }

    fn launch(&self, job: Job, spec: &SkillSpec, call: &SkillCall, work: &Path) -> Launch {
        let mut read = self.rules.read.clone();
        read.extend(job.folder);
        let home = work.display().to_string();
        let environment = [
            ("PATH", FOLDERS.join(":")),
            ("HOME", home.clone()),
            ("TMPDIR", home),
            ("LANG", "C.UTF-8".to_owned()),
            ("TZ", call.timezone.clone()),
            // The folders of programs cannot be written.
            ("PYTHONDONTWRITEBYTECODE", "1".to_owned()),
            ("ANNIE_SKILL", spec.name.clone()),
            ("ANNIE_INTENT", call.intent.to_string()),
        ];
        let ending_ms = (spec.timeout_ms / 20).max(ENDING_MS_MIN).min(spec.timeout_ms / 2);
        Launch {
            program: job.program,
            args: job.args,
            environment: environment.map(|(name, value)| (name.to_owned(), value)).to_vec(),
            folder: work.to_owned(),
            input: Some(job.input),
            run_ms_max: spec.timeout_ms - ending_ms,
            output_bytes_max: self.rules.output_bytes_max,
            stderr_bytes_max: STDERR_BYTES_MAX,
            limits: ProcessLimits { cpu_s_max: Some(spec.timeout_ms.div_ceil(1_000)), ..self.rules.limits },
            shim: Some(self.rules.shim.clone()),
            sandbox: Some(Sandbox {
                level: self.rules.level,
                folder: work.to_owned(),
                read,
                network: job.network && self.rules.network,
            }),
        }
    }
}

/// The job of a script for these arguments: they are its stdin as JSON, and fill the places of its argument list. An item that
/// begins with `./` is a file of the skill's folder. An absent argument has its default.
pub(crate) fn job(script: &Script, args: &[ArgSpec], arguments: Value) -> Result<Job, SkillError> {
    let arguments = defaulted(args, arguments);
    let as_is = |value: String| value.replace('\0', "\u{fffd}");
    let mut items = script.run.iter().filter_map(|item| match item.strip_prefix("./") {
        Some(own) => filled(own, &arguments, &as_is).map(|own| script.folder.join(own).display().to_string()),
        None => filled(item, &arguments, &as_is),
    });
    let program = items.next().ok_or_else(|| SkillError::not_found("The script has no program."))?;
    let args = items.map(OsString::from).collect();
    let program = if program.starts_with('/') { PathBuf::from(program) } else { find(&program)? };
    let input = arguments.to_string().into_bytes();
    Ok(Job { program, args, input, folder: Some(script.folder.clone()), network: script.network })
}

/// The path of an installed program.
pub(crate) fn find(name: &str) -> Result<PathBuf, SkillError> {
    let is_name = !name.is_empty() && !name.contains('/');
    let found = FOLDERS.iter().map(|folder| Path::new(folder).join(name)).find(|path| is_name && path.is_file());
    found.ok_or_else(|| {
        let folders = FOLDERS.join(", ");
        SkillError::ProgramMissing(format!("There is no program `{name}` on this machine (in {folders})."))
    })
}

#[cfg(test)]
mod tests {
    use annie_core::skill::ArgKind;
    use serde_json::json;

    use super::*;

    fn argv(run: &[&str], arguments: Value) -> Vec<OsString> {
        let run = run.iter().map(|item| (*item).to_owned()).collect();
        let script = Script { folder: "/skills/sums".into(), run, network: false };
        let with_default = ArgSpec {
            name: "limit".to_owned(),
            kind: ArgKind::Integer,
            required: false,
            help: String::new(),
            minimum: None,
            maximum: None,
            default: json!(7),
        };
        let job = job(&script, &[with_default], arguments).unwrap();
        std::iter::once(job.program.into_os_string()).chain(job.args).collect()
    }

    #[test]
    fn script_arguments_fill_their_places_and_are_never_divided() {
        let arguments = json!({"text": "./a b; rm {n}", "n": 3, "tags": ["x", "y"]});
        let run = ["/bin/sh", "./add.sh", "{text}", "--n={n}", "{none}", "-t={tags}{n}", "{limit}", "{\"a\": 1}"];
        assert_eq!(
            argv(&run, arguments),
            ["/bin/sh", "/skills/sums/add.sh", "./a b; rm {n}", "--n=3", "-t=x,y3", "7", "{\"a\": 1}"]
        );
    }

    #[test]
    fn program_that_is_not_installed_is_named() {
        let missing = find("no-such-program").unwrap_err().to_string();
        assert!(missing.starts_with("There is no program `no-such-program`"), "{missing}");
        assert!(find("../bin/sh").is_err());
    }
}
