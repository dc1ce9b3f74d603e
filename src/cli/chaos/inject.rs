//! Executes the steps of a scenario against a server under load.

use std::{path::Path, time::Duration};

use annie_chaos::{FaultKind, FaultSpec, Target};
use annie_core::faults::Step;
use rustix::process::Signal;
use serde_json::json;

use super::{FaultApi, own::Own};
use crate::cli::{client::Client, failure::Failure};

/// How long a fault that ends the process may wait until its fault point is passed, in milliseconds.
const ABORT_MS_MAX: u64 = 5_000;
/// How long a step may be retried while the server is unavailable, in milliseconds.
const REACH_MS_MAX: u64 = 30_000;

/// The server into which faults are injected.
pub struct Victim<'a> {
    /// gRPC client for its faults.
    pub faults_api: &'a FaultApi,
    /// HTTP client of the server.
    pub client: &'a Client,
    /// The server process, if the run started it.
    pub own: Option<&'a Own>,
}

impl Victim<'_> {
    /// Executes all steps, then removes all faults. Returns the number of injections.
    ///
    /// # Errors
    /// If the server rejects a step.
    pub async fn execute(&self, steps: &[Step]) -> Result<u64, Failure> {
        let mut injections = 0;
        for step in steps {
            injections += self.step(step).await?;
        }
        let listed = retrying(async || self.faults_api.list().await).await?;
        injections += listed.iter().map(|fault| fault.injected).sum::<u64>();
        retrying(async || self.faults_api.clear(0).await).await?;
        Ok(injections)
    }

    async fn step(&self, step: &Step) -> Result<u64, Failure> {
        let spec = match step {
            Step::Wait(ms) => {
                tokio::time::sleep(Duration::from_millis(*ms)).await;
                return Ok(0);
            }
            Step::Fault(spec) => spec,
        };
        if !spec.is_from_outside() && !matches!(spec.kind, FaultKind::Abort | FaultKind::AbortAfter) {
            retrying(async || self.faults_api.inject(spec.clone()).await).await?;
            // A shifted clock has no pass count; it counts as one injection.
            return Ok(u64::from(spec.target == Target::Clock));
        }
        if spec.target == Target::Gate {
            let body = json!({"holder": "chaos", "ttl_ms": spec.wait_ms});
            retrying(async || self.client.post("/api/v1/gate/hold", &body).await).await?;
            return Ok(1);
        }
        match self.own {
            Some(own) => self.inject_from_outside(own, spec).await,
            None => Ok(0),
        }
    }

    /// Injects a fault that only the command that started the server can inject, or survive.
    async fn inject_from_outside(&self, own: &Own, spec: &FaultSpec) -> Result<u64, Failure> {
        let before = own.deaths();
        match (spec.target, spec.kind) {
            (Target::Process, FaultKind::Kill) => {
                own.signal(Signal::KILL);
                Ok(u64::from(own.died_after(before, Duration::from_millis(REACH_MS_MAX)).await))
            }
            (Target::Process, FaultKind::Freeze) => {
                own.signal(Signal::STOP);
                tokio::time::sleep(Duration::from_millis(u64::from(spec.wait_ms))).await;
                own.signal(Signal::CONT);
                Ok(1)
            }
            (Target::Files, kind) => {
                break_skill_files(&own.folder.join("skills"), kind)
                    .map_err(|e| Failure::io("cannot change the folder of skills", &e))?;
                Ok(1)
            }
            _ => {
                // The server may end before it replies.
                let _ = self.faults_api.inject(spec.clone()).await;
                Ok(u64::from(own.died_after(before, Duration::from_millis(ABORT_MS_MAX)).await))
            }
        }
    }
}

/// Writes a whole skill file or half of one, or removes the folder.
fn break_skill_files(folder: &Path, kind: FaultKind) -> std::io::Result<()> {
    const WHOLE: &str = "---\nname: chaos-files\ndescription: Its file comes and goes.\n---\nSay hello.\n";
    if kind == FaultKind::Removed {
        return match std::fs::remove_dir_all(folder) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        };
    }
    let half = WHOLE.split_once("name: chaos").map_or("", |(half, _)| half);
    let text = if kind == FaultKind::Half { half } else { WHOLE };
    let skill = folder.join("chaos-files");
    std::fs::create_dir_all(&skill)?;
    std::fs::write(skill.join("SKILL.md"), text)
}

/// Retries while the server restarts.
async fn retrying<T>(mut attempt: impl AsyncFnMut() -> Result<T, Failure>) -> Result<T, Failure> {
    let mut waited_ms = 0;
    loop {
        match attempt().await {
            Err(failure) if failure.exit == crate::cli::failure::Exit::Unavailable && waited_ms < REACH_MS_MAX => {
                tokio::time::sleep(Duration::from_millis(50)).await;
                waited_ms += 50;
            }
            other => return other,
        }
    }
}
