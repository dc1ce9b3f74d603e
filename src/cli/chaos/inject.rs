//! Executes the steps of a scenario against a server under load.

use std::{path::Path, time::Duration};

use rustix::process::Signal;
use serde_json::json;

use super::{
    FaultApi,
    own::Own,
    scenarios::{SkillFiles, Step},
};
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
        match step {
            Step::Wait(ms) => tokio::time::sleep(Duration::from_millis(*ms)).await,
            Step::Inject(spec) => {
                retrying(async || self.faults_api.inject(spec.clone()).await).await?;
                // A shifted clock has no pass count; it counts as one injection.
                return Ok(u64::from(spec.target == annie_chaos::Target::Clock));
            }
            Step::HoldGate(ttl_ms) => {
                let body = json!({"holder": "chaos", "ttl_ms": ttl_ms});
                retrying(async || self.client.post("/api/v1/gate/hold", &body).await).await?;
                return Ok(1);
            }
            Step::Abort(spec) => {
                let Some(own) = self.own else { return Ok(0) };
                let before = own.deaths();
                // The server may end before it replies.
                let _ = self.faults_api.inject(spec.clone()).await;
                return Ok(u64::from(own.died_after(before, Duration::from_millis(ABORT_MS_MAX)).await));
            }
            Step::Kill => {
                let Some(own) = self.own else { return Ok(0) };
                let before = own.deaths();
                own.signal(Signal::KILL);
                return Ok(u64::from(own.died_after(before, Duration::from_millis(REACH_MS_MAX)).await));
            }
            Step::Skills(kind) => {
                let Some(own) = self.own else { return Ok(0) };
                break_skill_files(&own.folder.join("skills"), *kind)
                    .map_err(|e| Failure::io("cannot change the folder of skills", &e))?;
                return Ok(1);
            }
            Step::Freeze(ms) => {
                let Some(own) = self.own else { return Ok(0) };
                own.signal(Signal::STOP);
                tokio::time::sleep(Duration::from_millis(*ms)).await;
                own.signal(Signal::CONT);
                return Ok(1);
            }
        }
        Ok(0)
    }
}

/// Writes a whole skill file or half of one, or removes the folder.
fn break_skill_files(folder: &Path, kind: SkillFiles) -> std::io::Result<()> {
    const WHOLE: &str = "---\nname: chaos-files\ndescription: Its file comes and goes.\n---\nSay hello.\n";
    let text = match kind {
        SkillFiles::Written => WHOLE,
        SkillFiles::Half => WHOLE.split_once("name: chaos").map_or("", |(half, _)| half),
        SkillFiles::Removed => {
            return match std::fs::remove_dir_all(folder) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
                _ => Ok(()),
            };
        }
    };
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
