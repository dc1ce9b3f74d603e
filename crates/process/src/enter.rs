//! Restricts this process for ever. Only a process that is about to become another program may call [`enter`].

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus,
    Scope, path_beneath_rules,
};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

use crate::{
    error::ProcessError,
    filter::filters,
    sandbox::{Sandbox, SandboxLevel},
};

/// The version of Landlock whose rules are used: files (1 to 3), TCP (4), devices (5), signals and abstract sockets (6).
const VERSION: ABI = ABI::V6;
/// Programs and libraries of the machine, and what the loader and the C library read.
const SYSTEM: [&str; 10] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/etc/ld.so.cache",
    "/etc/ld.so.preload",
    "/etc/localtime",
    "/etc/timezone",
];
/// Devices without data.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];
/// What a program needs to find other machines and to check their certificates.
const NETWORK: [&str; 8] = [
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/ssl",
    "/etc/ca-certificates",
];

/// How much of the sandbox is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enforced {
    /// All of it.
    Fully,
    /// The seccomp filter and the rules of Landlock that this kernel knows.
    Partly,
}

impl Enforced {
    /// The word for people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fully => "fully enforced",
            Self::Partly => "partly enforced",
        }
    }
}

/// Restricts this process, and every program that it becomes or starts, to what the sandbox allows. Nothing can undo it.
///
/// # Errors
/// If less than the required level can be enforced. The process may be restricted in part then, and must end.
pub fn enter(sandbox: &Sandbox) -> Result<Enforced, ProcessError> {
    let programs = filters(sandbox.network)?;
    let enforced = match landlock(sandbox)? {
        RulesetStatus::FullyEnforced => Enforced::Fully,
        RulesetStatus::PartiallyEnforced if sandbox.level == SandboxLevel::BestEffort => Enforced::Partly,
        RulesetStatus::PartiallyEnforced => return Err(ProcessError::PartialLandlock),
        RulesetStatus::NotEnforced => return Err(ProcessError::NoLandlock),
    };
    // Landlock has set `no_new_privs`, so that no program gets a capability back, also as the superuser.
    let none = CapabilitySet::empty();
    let none = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, none).map_err(ProcessError::Capabilities)?;
    for program in &programs {
        seccompiler::apply_filter(program)?;
    }
    Ok(enforced)
}

fn landlock(sandbox: &Sandbox) -> Result<RulesetStatus, RulesetError> {
    let read = AccessFs::from_read(VERSION);
    // A device file that the program makes could be the disk of the machine.
    let devices: BitFlags<AccessFs> = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev;
    let write = AccessFs::from_all(VERSION) & !devices;
    let mut rules = Ruleset::default()
        .handle_access(AccessFs::from_all(VERSION))?
        .scope(Scope::AbstractUnixSocket | Scope::Signal)?;
    if !sandbox.network {
        rules = rules.handle_access(AccessNet::BindTcp | AccessNet::ConnectTcp)?;
    }
    let mut readable: Vec<PathBuf> = SYSTEM.iter().map(PathBuf::from).collect();
    readable.extend(python_settings());
    readable.extend(sandbox.read.iter().cloned());
    if sandbox.network {
        readable.extend(NETWORK.iter().map(PathBuf::from));
    }
    let device: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::WriteFile;
    let created = rules
        .create()?
        .add_rules(path_beneath_rules(readable, read))?
        .add_rules(path_beneath_rules(DEVICES, device))?
        .add_rules(path_beneath_rules([&sandbox.folder], write))?;
    Ok(created.restrict_self()?.ruleset)
}

/// `/etc/python3`, `/etc/python3.11`: the interpreter reads its site settings there, and complains if it cannot.
fn python_settings() -> Vec<PathBuf> {
    let is_python = |name: &OsStr| name.to_str().is_some_and(|name| name.starts_with("python"));
    let entries = std::fs::read_dir(Path::new("/etc")).into_iter().flatten().flatten();
    entries.filter(|entry| is_python(&entry.file_name())).map(|entry| entry.path()).collect()
}
