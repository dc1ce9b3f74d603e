//! Skills with injected faults, the skill whose effects are counted, and a catalogue whose files can be missing.

use std::sync::{Arc, Mutex, PoisonError};

use annie_core::{
    faults::{FaultKind, Target},
    outcome::Outcome,
    ports::{Catalog, Fut, SkillCall, SkillRunner},
    skill::SkillSet,
};
use serde_json::json;

use super::{
    effects::EffectLog,
    injector::{Injector, abort, wait},
    load,
};

/// The size of an output that is too large, in bytes.
const HUGE_BYTES: usize = 1024 * 1024;

/// A wrapper that injects faults into skill runs.
pub(super) struct ChaosRunner {
    inner: Arc<dyn SkillRunner>,
    faults: Arc<Injector>,
    effects: Arc<EffectLog>,
}

impl ChaosRunner {
    pub fn new(inner: Arc<dyn SkillRunner>, faults: Arc<Injector>, effects: Arc<EffectLog>) -> Self {
        Self { inner, faults, effects }
    }

    async fn done(&self, call: SkillCall) -> Outcome {
        if call.skill != load::SKILL {
            return self.inner.run(call).await;
        }
        let marker = call.arguments["marker"].as_str().unwrap_or_default();
        match self.effects.happen(marker, &call.intent.to_string()) {
            Ok(()) => Outcome::success(load::counted(marker)),
            Err(e) => Outcome::permanent("not_counted", format!("{marker} is not counted: {e}")),
        }
    }
}

impl SkillRunner for ChaosRunner {
    #[expect(clippy::panic, reason = "these are the requested faults")]
    fn run(&self, call: SkillCall) -> Fut<'_, Outcome> {
        Box::pin(async move {
            let skill = call.skill.clone();
            let Some(injection) = self.faults.pass(Target::Skill, &skill, "", "run", |_| true) else {
                return self.done(call).await;
            };
            match injection.kind {
                FaultKind::Panic => panic!("injected panic in {skill}"),
                FaultKind::Fail => {
                    return Outcome::transient("injected", format!("{skill} failed by an injected fault."));
                }
                FaultKind::Permanent => return Outcome::permanent("injected", format!("{skill} cannot do that.")),
                FaultKind::RateLimited => {
                    return Outcome::transient("rate_limited", format!("{skill} was called too often."));
                }
                FaultKind::Hang => std::future::pending().await,
                FaultKind::Slow => wait(injection).await,
                FaultKind::Abort => abort(&skill),
                _ => {}
            }
            let outcome = self.done(call).await;
            match injection.kind {
                FaultKind::PanicAfter => panic!("injected panic in {skill} after its work"),
                FaultKind::HangAfter => std::future::pending().await,
                FaultKind::AbortAfter => abort(&skill),
                FaultKind::Unknown => {
                    Outcome::unknown(format!("{skill} cannot tell whether it was done."), json!({"injected": true}))
                }
                FaultKind::Huge => Outcome::success("x".repeat(HUGE_BYTES)),
                _ => outcome,
            }
        })
    }

    fn reconcile(&self, call: SkillCall) -> Fut<'_, Option<Outcome>> {
        // The effect log could be read here. But the test must show that a skill with an unknown outcome is never run again.
        if call.skill == load::SKILL { Box::pin(std::future::ready(None)) } else { self.inner.reconcile(call) }
    }
}

/// The catalogue with the counting skill added; empty while the files are missing.
pub(super) struct ChaosCatalog {
    inner: Arc<dyn Catalog>,
    faults: Arc<Injector>,
    known: Mutex<Option<(Arc<SkillSet>, Arc<SkillSet>)>>,
}

impl ChaosCatalog {
    pub fn new(inner: Arc<dyn Catalog>, faults: Arc<Injector>) -> Self {
        Self { inner, faults, known: Mutex::default() }
    }
}

impl Catalog for ChaosCatalog {
    fn skills(&self) -> Arc<SkillSet> {
        if self.faults.are_files_gone() {
            return Arc::default();
        }
        let own = self.inner.skills();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, with)) = known.as_ref()
            && Arc::ptr_eq(of, &own)
        {
            return with.clone();
        }
        let skills = own.iter().map(|skill| (**skill).clone()).chain([load::skill()]);
        let domains = own.domains().into_iter().map(|domain| (domain.name, domain.description));
        let about = ("chaos".to_owned(), "What a chaos run counts.".to_owned());
        let with = Arc::new(SkillSet::new(skills, domains.chain([about]), own.version()));
        *known = Some((own, with.clone()));
        with
    }
}
