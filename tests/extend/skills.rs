//! A source of skills of an extension: it lists its skills, runs them, and knows afterwards which runs took effect.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use annie_core::{
    event::{Event, EventBody, Mode},
    ids::IntentId,
    message::Message,
    outcome::{Outcome, Status},
    ports::{FaultAction, Fut, IntentState, SkillCall, SkillSource},
    skill::{Effect, SkillSet},
};
use annie_testkit::{
    faults::FaultPlan,
    scripted_model::{calls, says},
    skills::skill,
};
use serde_json::json;

use crate::world::{World, WorldParts, check_log, eventually, last_text};

/// A ledger with the skills `ledger.show`, which reads, and `ledger.book`, which must not be repeated.
struct Ledger {
    listed: Mutex<Result<Arc<SkillSet>, String>>,
    /// The skills that the ledger is about to announce, or why its connection breaks.
    announced: Mutex<Result<Arc<SkillSet>, String>>,
    announces: tokio::sync::Notify,
    followed: AtomicU64,
    booked: Mutex<Vec<IntentId>>,
    reconciled: AtomicU64,
    panics: AtomicBool,
}

fn skills(more: &[&str], version: u64) -> Arc<SkillSet> {
    let more = more.iter().map(|name| skill(name, Effect::Read, false));
    let own = [skill("ledger.show", Effect::Read, false), skill("ledger.book", Effect::Once, false)];
    let about = ("ledger".to_owned(), "A ledger of bookings.".to_owned());
    Arc::new(SkillSet::new(own.into_iter().chain(more), [about], version))
}

fn ledger(more: &[&str]) -> Arc<Ledger> {
    Arc::new(Ledger {
        listed: Mutex::new(Ok(skills(more, 1))),
        announced: Mutex::new(Err("nothing is announced".to_owned())),
        announces: tokio::sync::Notify::new(),
        followed: AtomicU64::new(0),
        booked: Mutex::default(),
        reconciled: AtomicU64::new(0),
        panics: AtomicBool::new(false),
    })
}

impl Ledger {
    fn lists(&self, skills: Result<Arc<SkillSet>, String>) {
        *self.listed.lock().unwrap() = skills;
    }

    fn announce(&self, skills: Result<Arc<SkillSet>, String>) {
        *self.announced.lock().unwrap() = skills;
        self.announces.notify_one();
    }

    fn bookings(&self) -> usize {
        self.booked.lock().unwrap().len()
    }
}

impl SkillSource for Ledger {
    fn name(&self) -> &str {
        "ledger"
    }

    fn specs(&self) -> Result<Arc<SkillSet>, String> {
        assert!(!self.panics.load(Relaxed), "the ledger panics");
        self.listed.lock().unwrap().clone()
    }

    fn run(&self, call: SkillCall) -> Fut<'_, Outcome> {
        assert_ne!(call.arguments["what"], "panic", "the ledger panics");
        Box::pin(async move {
            if call.skill == "ledger.book" {
                self.booked.lock().unwrap().push(call.intent);
            }
            Outcome::success(format!("{} by the ledger, which has {} bookings", call.skill, self.bookings()))
        })
    }

    fn reconcile(&self, call: SkillCall) -> Fut<'_, Option<Outcome>> {
        self.reconciled.fetch_add(1, Relaxed);
        let is_booked = self.booked.lock().unwrap().contains(&call.intent);
        let known = if is_booked {
            Outcome::success("It was booked.")
        } else {
            Outcome::transient("not_booked", "It was not booked.")
        };
        Box::pin(std::future::ready(Some(known)))
    }

    fn changes(&self) -> Fut<'_, Result<(), String>> {
        self.followed.fetch_add(1, Relaxed);
        Box::pin(async move {
            loop {
                self.announces.notified().await;
                match self.announced.lock().unwrap().clone() {
                    Ok(skills) => self.lists(Ok(skills)),
                    Err(why) => return Err(why),
                }
            }
        })
    }
}

/// Parts with this ledger and a model that calls the skill that the user names.
fn parts(ledger: &Arc<Ledger>) -> WorldParts {
    let mut parts = WorldParts::new(|request, _| {
        if request.messages.iter().any(|message| matches!(message, Message::Tool { .. })) {
            return Ok(says("over"));
        }
        let text = last_text(request);
        let is_skill = |word: &&str| word.starts_with("ledger.") || word.starts_with("system.");
        let skill = text.split_whitespace().find(is_skill).unwrap_or_default();
        let arguments = if text.contains("panic") { json!({"what": "panic"}) } else { json!({}) };
        Ok(calls([("use_skill", json!({"skill": skill, "arguments": arguments}))]))
    });
    parts.limits.mode = Mode::SingleLoop;
    // Some of these tests use virtual time. The watchdog uses real time, so it is switched off.
    parts.limits.stuck_ms_max = 0;
    parts.sources.push(ledger.clone());
    parts
}

/// Sends a message that names a skill. Returns the outcome of its run, and the log.
async fn outcome_of(world: &World, text: &str) -> (Outcome, Vec<Event>) {
    let sent = world.say(text).await;
    world.answer(&sent).await;
    let log = world.log(sent.conversation).await;
    check_log(&log);
    let outcome = log.iter().find_map(|event| {
        let EventBody::SkillFinished { outcome, .. } = &event.body else { return None };
        Some(outcome.clone())
    });
    (outcome.expect("the skill was called"), log)
}

fn position(log: &[Event], kind: &str) -> Option<usize> {
    log.iter().position(|event| event.body.kind() == kind)
}

fn has(world: &World, skill: &str) -> bool {
    world.kernel.catalog().skills().get(skill).is_some()
}

#[tokio::test]
async fn skill_source_of_extension_runs_its_skills_and_a_once_run_has_an_intent_and_a_receipt() {
    let ledger = ledger(&[]);
    let parts = parts(&ledger);
    let world = parts.start().await;
    let (shown, log) = outcome_of(&world, "use ledger.show please").await;
    let text = "ledger.show by the ledger, which has 0 bookings";
    assert_eq!((shown.status, shown.data.as_str(), position(&log, "skill_started")), (Status::Success, text, None));
    let (booked, log) = outcome_of(&world, "use ledger.book please").await;
    assert_eq!((booked.status, ledger.bookings()), (Status::Success, 1));
    let started = position(&log, "skill_started").expect("the run is marked before it starts");
    assert!(Some(started) < position(&log, "skill_finished"));
    let rows = parts.store.intents(log[started].task).await.expect("the intents can be read");
    let rows: Vec<_> = rows.iter().map(|row| (row.id, row.skill.as_str(), row.state)).collect();
    assert_eq!(rows, [(ledger.booked.lock().unwrap()[0], "ledger.book", IntentState::Done)]);
    let (help, _) = outcome_of(&world, "use system.help please").await;
    assert!(help.data.contains("A ledger of bookings.\n  ledger.book, ledger.show"), "{help:?}");
    world.kernel.stop().await;
}

#[tokio::test(start_paused = true)]
async fn skill_source_of_extension_determines_the_outcome_of_a_once_run_that_was_lost() {
    for (dies_at, status, text, bookings) in
        [("started", Status::ErrorTransient, "It was not booked.", 0), ("ran", Status::Success, "It was booked.", 1)]
    {
        let ledger = ledger(&[]);
        let plan = Arc::new(FaultPlan::once_at("run", dies_at, 0, FaultAction::Panic));
        let world = parts(&ledger).faults(plan.clone()).start().await;
        let (outcome, _) = outcome_of(&world, "use ledger.book please").await;
        assert_eq!(plan.injected().len(), 1, "{dies_at}");
        assert_eq!((outcome.status, outcome.data.as_str()), (status, text), "{dies_at}");
        assert_eq!((ledger.bookings(), ledger.reconciled.load(Relaxed)), (bookings, 1), "{dies_at}");
        world.kernel.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn skill_source_of_extension_announces_new_skills_also_after_its_connection_broke() {
    let ledger = ledger(&[]);
    let world = parts(&ledger).start().await;
    assert!(has(&world, "ledger.book") && has(&world, "tasks.create") && !has(&world, "ledger.audit"));
    eventually("the source is followed", async || (ledger.followed.load(Relaxed) > 0).then_some(())).await;
    ledger.announce(Err("the connection broke".to_owned()));
    eventually("the source is followed again", async || (ledger.followed.load(Relaxed) > 1).then_some(())).await;
    ledger.announce(Ok(skills(&["ledger.audit"], 2)));
    eventually("the new skill is listed", async || has(&world, "ledger.audit").then_some(())).await;
    let (outcome, _) = outcome_of(&world, "use ledger.audit please").await;
    assert_eq!(outcome.data, "ledger.audit by the ledger, which has 0 bookings");
    ledger.announce(Ok(skills(&[], 3)));
    eventually("the skill is gone", async || (!has(&world, "ledger.audit")).then_some(())).await;
    world.kernel.stop().await;
}

#[tokio::test]
async fn skill_source_of_extension_that_cannot_list_its_skills_keeps_them_and_ends_nothing() {
    let ledger = ledger(&[]);
    let world = parts(&ledger).start().await;
    for is_panic in [false, true] {
        ledger.lists(Err("the ledger is away".to_owned()));
        ledger.panics.store(is_panic, Relaxed);
        let (outcome, _) = outcome_of(&world, "use ledger.show please").await;
        assert_eq!(outcome.status, Status::Success, "{outcome:?}");
        assert!(has(&world, "ledger.book") && has(&world, "tasks.create"));
    }
    assert!(world.kernel.crashes().is_empty(), "{:?}", world.kernel.crashes());
    world.kernel.stop().await;
}

#[tokio::test]
async fn skill_source_of_extension_that_panics_in_a_run_costs_only_this_run() {
    let ledger = ledger(&[]);
    let world = parts(&ledger).start().await;
    let (outcome, _) = outcome_of(&world, "use ledger.show and panic").await;
    assert_eq!((outcome.status, outcome.error_type.as_deref()), (Status::ErrorTransient, Some("panic")));
    let (outcome, _) = outcome_of(&world, "use ledger.book and panic").await;
    assert_eq!(outcome.status, Status::Unknown, "the effect may have happened: {outcome:?}");
    let (outcome, _) = outcome_of(&world, "use ledger.book please").await;
    assert_eq!((outcome.status, ledger.bookings()), (Status::Success, 1));
    assert!(world.kernel.crashes().is_empty(), "{:?}", world.kernel.crashes());
    world.kernel.stop().await;
}

#[tokio::test]
async fn skill_source_of_extension_never_runs_a_call_of_a_bundled_skill() {
    let ledger = ledger(&["system.time"]);
    let world = parts(&ledger).start().await;
    let (outcome, _) = outcome_of(&world, "use system.time please").await;
    assert!(outcome.data.contains("UTC+00:00"), "{outcome:?}");
    let skills = world.kernel.catalog().skills();
    assert_eq!(skills.get("system.time").map(|skill| skill.source.as_str()), Some("bundled"));
    world.kernel.stop().await;
}
