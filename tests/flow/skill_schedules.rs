//! Schedules that skill files ask for, and the schedule that a user asks for in words.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use annie_actors::{KernelError, Submission};
use annie_core::{
    event::Mode,
    message::{Message, ModelRequest},
    outcome::Outcome,
    ports::{FaultAction, Fut, SkillCall, SkillSource},
    schedule::{NumberedSchedule, ScheduleChange},
    skill::{Effect, SkillSet},
};
use annie_planner::OfflinePlanner;
use annie_testkit::{
    faults::FaultPlan,
    scripted_model::{calls, says},
    skills::skill,
};
use serde_json::json;

use super::{
    reminders::{parts, run},
    schedules::{HOUR_MS, notified, submitted, until, wake},
};
use crate::world::{World, WorldParts, ann, eventually, eventually_within};

/// Waits until the first schedule of Ann is as wanted.
async fn schedules(world: &World, state: &str, is_so: impl Fn(Option<&NumberedSchedule>) -> bool) {
    // The folder is watched in real time.
    eventually_within(Duration::from_secs(30), state, async || {
        let all = world.kernel.schedules(&ann()).await.ok()?;
        is_so(all.first()).then_some(())
    })
    .await;
}

fn file(schedule: &str) -> String {
    format!("---\nname: digest\ndescription: The digest of the day.\nmetadata:\n{schedule}---\nWrite the digest.\n")
}

#[tokio::test]
async fn schedule_of_a_skill_file_fires_and_follows_the_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("digest/SKILL.md");
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("created");
    let (mut parts, clock) = parts();
    parts.skills_folder = Some(folder.path().to_owned());
    std::fs::write(&path, file("  schedule: every weekday at 18\n  timezone: Europe/Prague\n")).expect("written");
    let world = parts.start().await;
    schedules(&world, "the file's schedule is stored", |first| {
        first.is_some_and(|found| found.schedule.file.as_deref() == Some("digest"))
    })
    .await;
    let made = world.kernel.schedule(&ann(), 1).await.expect("stored").schedule;
    assert_eq!((made.text.as_str(), made.timezone.as_str()), ("/digest", "Europe/Prague"));
    let refused = world.kernel.change_schedule(&ann(), 1, ScheduleChange::Remove).await.expect_err("it has a file");
    assert!(matches!(&refused, KernelError::Invalid(why) if why.contains("`digest`")), "{refused}");

    // Five minutes after 18:00 in Prague.
    clock.set_by_ms(3 * HOUR_MS);
    wake(&world).await;
    let ran = until(&world, "the schedule has run", |schedule| schedule.runs == 1).await;
    assert_eq!(submitted(&world, ran.conversation).await.len(), 1);
    notified(&world, 1).await;

    std::fs::write(&path, file("  schedule: every day at 7\n")).expect("written");
    schedules(&world, "the schedule has the new times", |first| {
        first.is_some_and(|found| {
            found.schedule.when == "every day at 7" && found.schedule.timezone == "UTC" && found.schedule.runs == 1
        })
    })
    .await;
    // A broken file keeps its last good version.
    std::fs::write(&path, file("  schedule: whenever you like\n")).expect("written");
    std::fs::create_dir_all(folder.path().join("other")).expect("created");
    let other = file("  schedule: \"@monthly\"\n").replace("name: digest", "name: other");
    std::fs::write(folder.path().join("other/SKILL.md"), other).expect("written");
    eventually_within(Duration::from_secs(30), "the folder is read again", async || {
        (world.kernel.schedules(&ann()).await.ok()?.len() == 2).then_some(())
    })
    .await;
    schedules(&world, "the schedule stays", |first| first.is_some_and(|found| found.schedule.when == "every day at 7"))
        .await;
    std::fs::remove_dir_all(path.parent().expect("a folder")).expect("removed");
    schedules(&world, "the schedule is gone with its file", |first| first.is_some_and(|found| found.number == 2)).await;
    world.kernel.stop().await;
}

/// A page, and a script that summarises it.
#[derive(Default)]
struct SummarySkills {
    fetched: AtomicU64,
    summarised: AtomicU64,
}

impl SkillSource for SummarySkills {
    fn name(&self) -> &str {
        "summaries"
    }

    fn specs(&self) -> Result<Arc<SkillSet>, String> {
        let own = [skill("page.fetch", Effect::Read, false), skill("summary.run", Effect::Idempotent, false)];
        let about =
            [("page", "Pages."), ("summary", "Summaries.")].map(|(name, what)| (name.to_owned(), what.to_owned()));
        Ok(Arc::new(SkillSet::new(own, about, 1)))
    }

    fn run(&self, call: SkillCall) -> Fut<'_, Outcome> {
        Box::pin(async move {
            if call.skill == "page.fetch" {
                self.fetched.fetch_add(1, SeqCst);
                return Outcome::success("The price is 12.");
            }
            self.summarised.fetch_add(1, SeqCst);
            Outcome::success("The price rose to 12.")
        })
    }
}

/// The request of the turn, and the number of results since.
fn turn(request: &ModelRequest) -> (String, usize) {
    let at = request.messages.iter().rposition(|message| matches!(message, Message::User { .. })).unwrap_or_default();
    let text = match request.messages.get(at) {
        Some(Message::User { text, .. }) => text.clone(),
        _ => String::new(),
    };
    let results = request.messages[at..].iter().filter(|message| matches!(message, Message::Tool { .. })).count();
    (text, results)
}

const WORDS: &str = "every weekday at 8 fetch the page https://example.org/prices, run my summary script over it, remember what changed";

#[tokio::test]
async fn request_of_every_weekday_runs_once_on_monday_although_its_process_is_killed() {
    let (mut parts, clock) = parts();
    let summaries = Arc::new(SummarySkills::default());
    parts.sources.push(summaries.clone());
    parts.limits.mode = Mode::SingleLoop;
    parts.model = WorldParts::new(|request, _| {
        let (text, results) = turn(request);
        if text.contains("every weekday") {
            return Ok(OfflinePlanner::new().plan(request));
        }
        let call = |skill: &str, arguments: serde_json::Value| {
            calls([("use_skill", json!({"skill": skill, "arguments": arguments}))])
        };
        Ok(match results {
            0 => call("page.fetch", json!({})),
            1 => call("summary.run", json!({})),
            2 => call("memory.save", json!({"content": "The price rose to 12."})),
            _ => says("The price rose to 12."),
        })
    })
    .model;
    let plan = Arc::new(FaultPlan::by(|kind, at, _| match (kind, at) {
        ("schedule", "submitted") => FaultAction::Fail,
        _ => FaultAction::Pass,
    }));
    plan.disarm();
    let mut parts = parts.faults(plan.clone());
    // From Wednesday to Friday afternoon.
    clock.set_by_ms(48 * HOUR_MS);
    let world = parts.start().await;
    let asked = world.kernel.submit(Submission::new(ann(), "test", WORDS)).await.expect("accepted");
    let answer = world.answer(&asked).await;
    assert!(answer.contains("schedule #1") && answer.contains("next 2026-02-23 08:00"), "{answer}");
    let made = world.kernel.schedule(&ann(), 1).await.expect("stored").schedule;
    assert_eq!(
        (made.when.as_str(), made.text.as_str()),
        ("every weekday at 8", WORDS.trim_start_matches("every weekday at 8 "))
    );
    plan.arm();
    clock.set_by_ms(66 * HOUR_MS);
    wake(&world).await;
    eventually("the step is reached", async || (!plan.injected().is_empty()).then_some(())).await;
    world.kernel.crash().await;
    parts.env.faults = None;
    let world = parts.start().await;
    let ran = until(&world, "the schedule has run", |schedule| schedule.runs == 1).await;
    assert_eq!((ran.last_at, ran.skipped, ran.missed), (made.due_at, 0, 0));
    let all = notified(&world, 1).await;
    assert!(all.len() == 1 && all[0].text.contains("The price rose to 12."), "{all:?}");
    assert_eq!(submitted(&world, made.conversation).await, [made.message_id(made.due_at.expect("due"))]);
    assert_eq!(summaries.summarised.load(SeqCst), 1);
    let remembered = run(&world, "memory.list", "list").await;
    assert!(remembered.contains("The price rose to 12.") && !remembered.contains("#2"), "{remembered}");
    world.kernel.stop().await;
}
