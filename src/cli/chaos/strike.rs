//! Carries out the steps of a scenario against a server that works.

use std::{path::Path, time::Duration};

use rustix::process::Signal;
use serde_json::json;

use super::{
    Door,
    own::Own,
    scenarios::{SkillFiles, Step},
};
use crate::cli::{client::Client, failure::Failure};

/// How long a fault that ends the process may wait for its place to be passed, in milliseconds.
const ABORT_MS_MAX: u64 = 5_000;
/// How long a step may go on not reaching the server, in milliseconds.
const REACH_MS_MAX: u64 = 30_000;

/// Who is struck.
pub struct Struck<'a> {
    /// The door to its faults.
    pub door: &'a Door,
    /// Its HTTP door.
    pub client: &'a Client,
    /// The server, if it is the run's own.
    pub own: Option<&'a Own>,
}

impl Struck<'_> {
    /// Takes all steps, and the faults off the list. Says how often something struck.
    ///
    /// # Errors
    /// If the server refuses a step.
    pub async fn take(&self, steps: &[Step]) -> Result<u64, Failure> {
        let mut strikes = 0;
        for step in steps {
            strikes += self.step(step).await?;
        }
        let listed = patiently(async || self.door.list().await).await?;
        strikes += listed.iter().map(|fault| fault.struck).sum::<u64>();
        patiently(async || self.door.clear(0).await).await?;
        Ok(strikes)
    }

    async fn step(&self, step: &Step) -> Result<u64, Failure> {
        match step {
            Step::Wait(ms) => tokio::time::sleep(Duration::from_millis(*ms)).await,
            Step::Inject(spec) => {
                patiently(async || self.door.inject(spec.clone()).await).await?;
                // A clock that is off strikes by being off.
                return Ok(u64::from(spec.target == crate::chaos::Target::Clock));
            }
            Step::HoldGate(ttl_ms) => {
                let body = json!({"holder": "chaos", "ttl_ms": ttl_ms});
                patiently(async || self.client.post("/api/v1/gate/hold", &body).await).await?;
                return Ok(1);
            }
            Step::Abort(spec) => {
                let Some(own) = self.own else { return Ok(0) };
                let before = own.deaths();
                // It may be gone before it answers.
                let _ = self.door.inject(spec.clone()).await;
                return Ok(u64::from(own.died_after(before, Duration::from_millis(ABORT_MS_MAX)).await));
            }
            Step::Kill => {
                let Some(own) = self.own else { return Ok(0) };
                let before = own.deaths();
                own.signal(Signal::KILL);
                return Ok(u64::from(own.died_after(before, Duration::from_millis(REACH_MS_MAX)).await));
            }
            Step::Skills(deed) => {
                let Some(own) = self.own else { return Ok(0) };
                strike_skills(&own.folder.join("skills"), *deed)
                    .map_err(|e| Failure::io("cannot strike the folder of skills", &e))?;
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

/// A skill, the half of it, or no folder at all.
fn strike_skills(folder: &Path, deed: SkillFiles) -> std::io::Result<()> {
    const WHOLE: &str = "---\nname: chaos-files\ndescription: Its file comes and goes.\n---\nSay hello.\n";
    let text = match deed {
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

/// Tries again while the server is between two lives.
async fn patiently<T>(mut attempt: impl AsyncFnMut() -> Result<T, Failure>) -> Result<T, Failure> {
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
