//! Skills for tests: a catalogue of three that differ in their effect, and a runner that counts how often each intent took
//! effect. The counts are kept outside of every component that is killed.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use annie_core::{
    ids::IntentId,
    outcome::Outcome,
    ports::{Catalog, Fut, SkillCall, SkillRunner},
    skill::{ArgKind, ArgSpec, Effect, SkillFormat, SkillSet, SkillSpec},
};
use parking_lot::Mutex;

type Behaviour = Box<dyn Fn(&SkillCall) -> FakeBehaviour + Send + Sync>;

/// Behaviour of a fake skill.
#[derive(Debug, Clone)]
pub enum FakeBehaviour {
    /// Takes effect and answers.
    Answer(Outcome),
    /// Takes effect, then answers after this time.
    Slow(Duration, Outcome),
    /// Takes effect and never answers.
    Hang,
    /// Takes effect and panics.
    Panic,
}

/// A runner whose effects are counted per intent.
pub struct FakeSkills {
    behaviour: Behaviour,
    effects: Mutex<BTreeMap<IntentId, (String, u32)>>,
    can_reconcile: bool,
}

impl FakeSkills {
    /// Skills with the behaviour that this function chooses.
    #[must_use]
    pub fn new(behaviour: impl Fn(&SkillCall) -> FakeBehaviour + Send + Sync + 'static) -> Self {
        Self { behaviour: Box::new(behaviour), effects: Mutex::new(BTreeMap::new()), can_reconcile: false }
    }

    /// Skills that always succeed with their name and argument.
    #[must_use]
    pub fn obliging() -> Self {
        Self::new(|call| {
            let what = call.arguments["what"].as_str().unwrap_or("nothing").to_owned();
            FakeBehaviour::Answer(Outcome::success(format!("{} did {what}", call.skill)))
        })
    }

    /// The same skills, with `reconcile` reporting whether a run took effect.
    #[must_use]
    pub const fn knowing(mut self) -> Self {
        self.can_reconcile = true;
        self
    }

    /// How often each intent took effect, with the name of its skill.
    #[must_use]
    pub fn effects(&self) -> BTreeMap<IntentId, (String, u32)> {
        self.effects.lock().clone()
    }

    /// How often a skill took effect in total.
    #[must_use]
    pub fn count(&self, skill: &str) -> u32 {
        self.effects.lock().values().filter(|(s, _)| s == skill).map(|(_, n)| n).sum()
    }

    /// The largest number of effects of any one intent of a skill: for a `once` skill never more than 1.
    #[must_use]
    pub fn most(&self, skill: &str) -> u32 {
        self.effects.lock().values().filter(|(s, _)| s == skill).map(|(_, n)| *n).max().unwrap_or(0)
    }

    fn took_effect(&self, call: &SkillCall) {
        self.effects.lock().entry(call.intent).or_insert_with(|| (call.skill.clone(), 0)).1 += 1;
    }
}

impl SkillRunner for FakeSkills {
    fn run(&self, call: SkillCall) -> Fut<'_, Outcome> {
        Box::pin(async move {
            let behaviour = (self.behaviour)(&call);
            self.took_effect(&call);
            match behaviour {
                FakeBehaviour::Answer(outcome) => outcome,
                FakeBehaviour::Slow(wait, outcome) => {
                    tokio::time::sleep(wait).await;
                    outcome
                }
                FakeBehaviour::Hang => std::future::pending().await,
                #[expect(clippy::panic, reason = "the fault that the test asks for")]
                FakeBehaviour::Panic => panic!("{} panics as told", call.skill),
            }
        })
    }

    fn reconcile(&self, call: SkillCall) -> Fut<'_, Option<Outcome>> {
        Box::pin(async move {
            let known = self.can_reconcile.then(|| self.effects.lock().contains_key(&call.intent))?;
            Some(if known {
                Outcome::success(format!("{} had taken effect", call.skill))
            } else {
                Outcome::transient("not_done", format!("{} had not taken effect", call.skill))
            })
        })
    }
}

/// A catalogue that never changes.
pub struct FixedCatalog(Arc<SkillSet>);

impl FixedCatalog {
    /// `test.look` (read), `test.put` (idempotent) and `test.send` (once, external), each with one optional text `what`.
    #[must_use]
    pub fn three() -> Self {
        let skills = [
            skill("test.look", Effect::Read, false),
            skill("test.put", Effect::Idempotent, false),
            skill("test.send", Effect::Once, true),
        ];
        let domains = [("test".to_owned(), "Skills for tests".to_owned())];
        Self(Arc::new(SkillSet::new(skills, domains, 1)))
    }

    /// A catalogue of these skills.
    #[must_use]
    pub fn of(skills: impl IntoIterator<Item = SkillSpec>) -> Self {
        Self(Arc::new(SkillSet::new(skills, [], 1)))
    }
}

impl Catalog for FixedCatalog {
    fn skills(&self) -> Arc<SkillSet> {
        self.0.clone()
    }
}

/// A skill of this name and effect with one optional text argument `what`, and a time limit of two seconds.
#[must_use]
pub fn skill(name: &str, effect: Effect, external: bool) -> SkillSpec {
    SkillSpec {
        name: name.to_owned(),
        domain: name.split('.').next().unwrap_or(name).to_owned(),
        description: format!("{name} for tests."),
        body: String::new(),
        args: vec![ArgSpec {
            name: "what".to_owned(),
            kind: ArgKind::Text,
            required: false,
            help: "What to do.".to_owned(),
            minimum: None,
            maximum: None,
            default: serde_json::Value::Null,
        }],
        effect,
        external,
        timeout_ms: 2_000,
        alternatives: Vec::new(),
        fallback: std::collections::BTreeMap::new(),
        is_ready: false,
        format: SkillFormat::Command,
        source: "test".to_owned(),
    }
}
