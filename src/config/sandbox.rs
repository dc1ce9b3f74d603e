//! `[sandbox]` and `[skills.shell]`: how the programs of skills are run. They become [`annie_skillkit::ProgramRules`].

use std::path::{Path, PathBuf};

use annie_process::{ProcessLimits, SandboxLevel};
use annie_skillkit::{ProgramRules, ProgramSkills};
use serde::{Deserialize, Serialize};

use super::{settings::Config, typed::KeyError};

/// The folder of the data folder in which each run of a program has a folder of its own.
const RUNS: &str = "runs";
/// Programs that run others, and therefore would allow all programs of the machine.
const RUNS_OTHERS: [&str; 24] = [
    "ash", "awk", "bash", "busybox", "chroot", "dash", "doas", "env", "find", "fish", "ksh", "nice", "node", "nohup",
    "perl", "php", "python3", "ruby", "setsid", "sh", "sudo", "timeout", "xargs", "zsh",
];

/// `[sandbox]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SandboxSettings {
    /// How much of the sandbox must be in force: without it no program of a skill is run.
    pub level: SandboxLevel,
    /// Whether a script whose file says `network: true` gets the network.
    pub network: bool,
    /// Folders that every program of a skill may read, besides the programs and libraries of the machine.
    pub read: Vec<PathBuf>,
    /// The maximum size of what a program writes to stdout, in bytes.
    pub output_bytes_max: usize,
    /// The maximum address space of one process, in bytes.
    pub address_bytes_max: u64,
    /// The maximum size of one written file, in bytes.
    pub file_bytes_max: u64,
    /// The maximum number of open files of one process.
    pub files_max: u64,
    /// The maximum number of processes and threads of one program.
    pub processes_max: u64,
}

impl Default for SandboxSettings {
    fn default() -> Self {
        Self {
            level: SandboxLevel::Strict,
            network: false,
            read: Vec::new(),
            output_bytes_max: 1024 * 1024,
            address_bytes_max: 2 * 1024 * 1024 * 1024,
            file_bytes_max: 64 * 1024 * 1024,
            files_max: 256,
            processes_max: 64,
        }
    }
}

/// `[skills]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SkillSettings {
    /// Settings of `shell.run`.
    pub shell: ShellSettings,
}

/// `[skills.shell]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ShellSettings {
    /// The programs that `shell.run` may start, by name; an empty list switches the skill off.
    pub allow: Vec<String>,
}

impl Config {
    /// Which skills that start programs are listed.
    #[must_use]
    pub fn program_skills(&self) -> ProgramSkills {
        ProgramSkills { network: self.sandbox.network, listed: !self.skills.shell.allow.is_empty() }
    }

    /// How programs of skills are run with this data folder. `shim` is the path of this program.
    #[must_use]
    pub fn program_rules(&self, folder: &Path, shim: PathBuf) -> ProgramRules {
        let SandboxSettings { level, network, read, output_bytes_max, .. } = self.sandbox.clone();
        ProgramRules {
            shim,
            work_folder: folder.join(RUNS),
            level,
            network,
            read,
            shell_allow: self.skills.shell.allow.clone(),
            output_bytes_max,
            limits: ProcessLimits {
                address_bytes_max: Some(self.sandbox.address_bytes_max),
                files_max: Some(self.sandbox.files_max),
                file_bytes_max: Some(self.sandbox.file_bytes_max),
                own_processes_max: Some(self.sandbox.processes_max),
                ..ProcessLimits::default()
            },
        }
    }

    /// The errors in `[sandbox]` and `[skills.shell]`.
    pub(super) fn sandbox_problems(&self) -> Vec<KeyError> {
        let sandbox = &self.sandbox;
        let mut found = Vec::new();
        if let Some(path) = sandbox.read.iter().find(|path| !path.is_absolute()) {
            let what = format!("{:?} is not a whole path", path.display().to_string());
            found.push(KeyError::value(&["sandbox", "read"], &what, "write it from `/` on"));
        }
        let limits = [
            ("output_bytes_max", sandbox.output_bytes_max as u64),
            ("address_bytes_max", sandbox.address_bytes_max),
            ("file_bytes_max", sandbox.file_bytes_max),
            ("files_max", sandbox.files_max),
            ("processes_max", sandbox.processes_max),
        ];
        let zeros = limits.iter().filter(|(_, value)| *value == 0);
        found.extend(zeros.map(|(key, _)| KeyError::value(&["sandbox", key], "it is 0", "give at least 1")));
        let allow = &self.skills.shell.allow;
        let path = ["skills", "shell", "allow"];
        if let Some(name) = allow.iter().find(|name| name.is_empty() || name.contains('/')) {
            let fix = "write the name of a program, such as ls";
            found.push(KeyError::value(&path, &format!("{name:?} is no name of a program"), fix));
        }
        if let Some(name) = allow.iter().find(|name| RUNS_OTHERS.contains(&name.as_str())) {
            let fix = "name the programs themselves; for computing there is python.run";
            found.push(KeyError::value(&path, &format!("{name:?} runs other programs, which allows all of them"), fix));
        }
        found
    }
}
