//! The seccomp filters: system calls that a sandboxed program does not need and that could weaken the sandbox.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

use crate::error::ProcessError;

/// Refused whatever their arguments are. `io_uring` would perform calls that the filter does not see. A process that cannot call
/// `setsid` or `setpgid` stays in its group, which is killed as a whole.
const REFUSED: &[i64] = &[
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_setsid,
    libc::SYS_setpgid,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_open_by_handle_at,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
];
/// The flags of `clone` that make a namespace: cgroup, uts, ipc, user, pid, net, mount. A new user namespace would give the
/// program capabilities.
const NAMESPACE_FLAGS: [u64; 7] =
    [0x0200_0000, 0x0400_0000, 0x0800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000, 0x0002_0000];

/// The filters in the order in which they are applied.
pub(crate) fn filters(network: bool) -> Result<Vec<BpfProgram>, ProcessError> {
    let mut refused: BTreeMap<i64, Vec<SeccompRule>> = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    let flag = |flag| {
        let has_it = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(flag), flag)?;
        SeccompRule::new(vec![has_it])
    };
    let clone = NAMESPACE_FLAGS.into_iter().map(flag).collect::<Result<Vec<_>, seccompiler::BackendError>>()?;
    refused.insert(libc::SYS_clone, clone);
    refused.insert(libc::SYS_socket, if network { vec![not_internet()?] } else { Vec::new() });
    let denied = filter(refused, SeccompAction::Errno(libc::EPERM.unsigned_abs()))?;
    // The flags of `clone3` are in memory, where no filter sees them. The C library uses `clone` if `clone3` is missing.
    let missing = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let missing = filter(missing, SeccompAction::Errno(libc::ENOSYS.unsigned_abs()))?;
    let mut all = vec![missing, denied];
    all.extend(second_numbering());
    Ok(all)
}

/// Matches every socket that is not of the internet. A local socket could reach a service of this machine.
fn not_internet() -> Result<SeccompRule, seccompiler::BackendError> {
    let families = [libc::AF_INET, libc::AF_INET6];
    let is_other = families.map(|family| {
        SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, u64::from(family.unsigned_abs()))
    });
    SeccompRule::new(is_other.into_iter().collect::<Result<_, _>>()?)
}

fn filter(calls: BTreeMap<i64, Vec<SeccompRule>>, action: SeccompAction) -> Result<BpfProgram, ProcessError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let filter = SeccompFilter::new(calls, SeccompAction::Allow, action, arch)?;
    Ok(BpfProgram::try_from(filter)?)
}

/// Refuses the second numbering of system calls on this processor (x32), which the lists above do not cover.
#[cfg(target_arch = "x86_64")]
fn second_numbering() -> Option<BpfProgram> {
    use seccompiler::sock_filter;
    /// Added to every number of the second numbering.
    const X32: u32 = 0x4000_0000;
    const LOAD_NUMBER: u16 = 0x20;
    const IF_AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    const ALLOW: u32 = 0x7fff_0000;
    const ERRNO: u32 = 0x0005_0000;
    let step = |code, jf, k| sock_filter { code, jt: 0, jf, k };
    Some(vec![
        step(LOAD_NUMBER, 0, 0),
        step(IF_AT_LEAST, 1, X32),
        step(RETURN, 0, ERRNO | libc::ENOSYS.unsigned_abs()),
        step(RETURN, 0, ALLOW),
    ])
}

#[cfg(not(target_arch = "x86_64"))]
const fn second_numbering() -> Option<BpfProgram> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_built_with_and_without_network() {
        for network in [false, true] {
            let built = filters(network).unwrap();
            assert!(built.len() >= 2 && built.iter().all(|program| !program.is_empty()), "{network}");
        }
    }
}
