//! How much of the sandbox is in force on this machine.

use std::ffi::OsString;

use annie_process::{Launch, SANDBOX_MISSING, SandboxLevel, execute};

use super::{Finding, Site};

/// How long the check may take, in milliseconds.
const RUN_MS_MAX: u64 = 10_000;
/// How much of its output is read, in bytes.
const OUTPUT_BYTES_MAX: usize = 4 * 1024;

/// Enters the sandbox in a process of its own, at the configured level.
pub(super) async fn check(site: &Site) -> Finding {
    const WHAT: &str = "sandbox";
    let level = site.loaded.config.sandbox.level;
    match probe(level).await {
        Ok(enforced) => Finding::ok(WHAT, format!("level {level}: {enforced}")),
        Err(why) => Finding::warning(
            WHAT,
            format!("level {level}: scripts, python.run and shell.run are refused: {why}"),
            "use a kernel with Landlock and seccomp; level = \"best_effort\" below [sandbox] accepts an older Landlock",
        ),
    }
}

async fn probe(level: SandboxLevel) -> Result<String, String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let folder = std::env::temp_dir();
    let args = ["__sandbox", "--level", level.as_str(), "--folder"].map(OsString::from).into_iter();
    let launch = Launch {
        program,
        args: args.chain([folder.clone().into_os_string()]).collect(),
        folder,
        run_ms_max: RUN_MS_MAX,
        output_bytes_max: OUTPUT_BYTES_MAX,
        stderr_bytes_max: OUTPUT_BYTES_MAX,
        ..Launch::default()
    };
    let ended = execute(launch, &mut |_: &[u8]| ()).await.map_err(|e| e.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match ended.how {
        Ok(status) if status.success() => Ok(text(&ended.stdout)),
        Ok(status) if status.code() == Some(SANDBOX_MISSING) => {
            Err(text(&ended.stderr.bytes).trim_start_matches("error: ").to_owned())
        }
        how => Err(format!("the check ended with {how:?}")),
    }
}
