//! Limits that the operating system enforces.

use std::ffi::OsString;

use serde::{Deserialize, Serialize};

/// Limits that the operating system's kernel enforces on a program, set by the shim. Each applies per process, and child
/// processes inherit it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProcessLimits {
    /// Address space, in bytes. Programs with a virtual machine reserve far more than they use; leave it unset for them.
    pub address_bytes_max: Option<u64>,
    /// CPU time, in seconds.
    pub cpu_s_max: Option<u64>,
    /// Open files.
    pub files_max: Option<u64>,
    /// Processes and threads. The kernel counts all processes of the user, Annie's own included.
    pub processes_max: Option<u64>,
    /// The size of a file that is written, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_bytes_max: Option<u64>,
    /// Processes and threads of this program alone. The shim counts them ten times a second, because the kernel's own limit
    /// counts those of the whole user, and does not hold for the superuser.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own_processes_max: Option<u64>,
}

impl Default for ProcessLimits {
    fn default() -> Self {
        Self {
            address_bytes_max: None,
            cpu_s_max: None,
            files_max: Some(1_024),
            processes_max: None,
            file_bytes_max: None,
            own_processes_max: None,
        }
    }
}

impl ProcessLimits {
    /// The limits as flags of the shim.
    pub(crate) fn flags(&self) -> Vec<OsString> {
        let flags = [
            ("--as-bytes", self.address_bytes_max),
            ("--cpu-s", self.cpu_s_max),
            ("--files", self.files_max),
            ("--procs", self.processes_max),
            ("--file-bytes", self.file_bytes_max),
            ("--own-procs", self.own_processes_max),
        ];
        flags.into_iter().filter_map(|(flag, n)| Some([flag.into(), n?.to_string().into()])).flatten().collect()
    }
}
