//! `[sandbox]` and `[skills.shell]`: their defaults, their rules, and the errors of invalid keys.

use std::path::Path;

use annie_process::SandboxLevel;
use annie_skillkit::ProgramSkills;

use super::*;

#[test]
fn sandbox_is_strict_without_network_by_default_and_its_settings_reach_the_rules() {
    let config = Config::default();
    assert_eq!(config.program_skills(), ProgramSkills { network: false, listed: false });
    assert_eq!(config.program_rules(Path::new("/data"), "/annie".into()).level, SandboxLevel::Strict);
    let config = typed(OTHERWISE.parse().unwrap()).unwrap();
    assert_eq!(config.program_skills(), ProgramSkills { network: true, listed: true });
    let rules = config.program_rules(Path::new("/data"), "/annie".into());
    assert_eq!((rules.level, rules.network, rules.output_bytes_max), (SandboxLevel::BestEffort, true, 1));
    assert_eq!(rules.work_folder, Path::new("/data/runs"));
    assert_eq!(rules.read, [Path::new("/srv/texts")]);
    let limits = rules.limits;
    let of_memory_and_files = (limits.address_bytes_max, limits.file_bytes_max, limits.files_max);
    assert_eq!((of_memory_and_files, limits.own_processes_max), ((Some(2), Some(3), Some(4)), Some(5)));
}

#[test]
fn config_refuses_an_invalid_sandbox_with_its_location() {
    for (text, wanted) in [
        (
            "[sandbox]\nread = [\"texts\"]\n",
            "annie.toml:2:1: `sandbox.read`: \"texts\" is not a whole path; write it from `/` on",
        ),
        ("[sandbox]\nfiles_max = 0\n", "annie.toml:2:1: `sandbox.files_max`: it is 0; give at least 1"),
        (
            "[skills.shell]\nallow = [\"/bin/ls\"]\n",
            "annie.toml:2:1: `skills.shell.allow`: \"/bin/ls\" is no name of a program; write the name of a program, such as ls",
        ),
        (
            "[skills.shell]\nallow = [\"ls\", \"env\"]\n",
            "annie.toml:2:1: `skills.shell.allow`: \"env\" runs other programs, which allows all of them; name the programs \
             themselves; for computing there is python.run",
        ),
    ] {
        assert_eq!(error_text(text), wanted);
    }
}
