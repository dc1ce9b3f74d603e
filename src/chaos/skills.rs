//! Skills that fail as skills do, the skill whose effects are counted, and a catalogue whose files can be gone.

use std::sync::{Arc, Mutex, PoisonError};

use annie_core::{
    outcome::Outcome,
    ports::{Catalog, Fut, SkillCall, SkillRunner},
    skill::SkillSet,
};
use serde_json::json;

use super::{
    effects::EffectLog,
    fault::{Deed, Target},
    injector::{Injector, abort},
    load,
};

/// How large an output is that is too large, in bytes.
const HUGE_BYTES: usize = 1024 * 1024;

/// Who runs skills, behind their faults.
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
    #[expect(clippy::panic, reason = "these are faults that were asked for")]
    fn run(&self, call: SkillCall) -> Fut<'_, Outcome> {
        Box::pin(async move {
            let skill = call.skill.clone();
            let Some(strike) = self.faults.pass(Target::Skill, &skill, "", "run", |_| true) else {
                return self.done(call).await;
            };
            match strike.deed {
                Deed::Panic => panic!("injected panic in {skill}"),
                Deed::Fail => return Outcome::transient("injected", format!("{skill} failed by an injected fault.")),
                Deed::Permanent => return Outcome::permanent("injected", format!("{skill} cannot do that.")),
                Deed::Hang => std::future::pending().await,
                Deed::Slow => strike.wait().await,
                Deed::Abort => abort(&skill),
                _ => {}
            }
            let outcome = self.done(call).await;
            match strike.deed {
                Deed::PanicAfter => panic!("injected panic in {skill} after its work"),
                Deed::HangAfter => std::future::pending().await,
                Deed::AbortAfter => abort(&skill),
                Deed::Unknown => {
                    Outcome::unknown(format!("{skill} cannot tell whether it was done."), json!({"injected": true}))
                }
                Deed::Huge => Outcome::success("x".repeat(HUGE_BYTES)),
                _ => outcome,
            }
        })
    }

    fn reconcile(&self, call: SkillCall) -> Fut<'_, Option<Outcome>> {
        // The counter could be read; but what is shown here is that a skill that cannot tell is never run again.
        if call.skill == load::SKILL { Box::pin(std::future::ready(None)) } else { self.inner.reconcile(call) }
    }
}

/// The skills with the one that counts; none while the files are gone.
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
