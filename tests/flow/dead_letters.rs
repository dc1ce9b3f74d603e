//! Failed tasks are kept as dead letters and retried, archived, or discarded by hand. Each happens once, whatever dies in
//! between.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use annie_actors::{DeleteOptions, KernelError, ManyDeadLetters, Operation, Submission, Submitted};
use annie_core::{
    dead_letter::{DeadLetter, DeadLetterState},
    event::{Event, EventBody, Inbound, Mode, NewEvent, Priority, Scope},
    ids::{AgentId, ConversationId, TaskId, UserId},
    message::{Message, ModelError, ModelErrorKind},
    outcome::Outcome,
    ports::{Append, DeadLetterFilter, DeadLetterRow, Fence, TaskRow},
    time::Micros,
};
use annie_testkit::{
    env::TestClock,
    scripted_model::{ScriptedModel, calls, says},
    skills::{FakeBehaviour, FakeSkills},
};
use serde_json::json;

use crate::world::{World, WorldParts, ann, check_log, eventually};

const HOUR_MS: i64 = 3_600_000;

fn own() -> Scope {
    Scope::User(ann())
}

/// A world whose model fails while `is_broken` is set, and whose clock can be set.
struct Broken {
    parts: WorldParts,
    is_broken: Arc<AtomicBool>,
    clock: Arc<TestClock>,
}

impl Broken {
    fn new() -> Self {
        let is_broken = Arc::new(AtomicBool::new(true));
        let fails = is_broken.clone();
        let mut parts = WorldParts::new(move |_, _| {
            if fails.load(Relaxed) {
                return Err(ModelError::new(ModelErrorKind::Unavailable, "the model is away"));
            }
            Ok(says("Done after all."))
        });
        let clock = Arc::new(TestClock::new());
        parts.env.clock = clock.clone();
        parts.limits.mode = Mode::SingleLoop;
        parts.limits.turn.defer_ms = 5;
        parts.limits.breaker.failures_max = u32::MAX;
        parts.limits.notify.gather_ms = 5;
        parts.limits.notify.every_ms = 0;
        Self { parts, is_broken, clock }
    }
}

async fn fail(world: &World, text: &str, class: Priority) -> Submitted {
    let mut message = Submission::new(ann(), "test", text);
    message.priority = Some(class);
    let submitted = world.kernel.submit(message).await.expect("accepted");
    let failed = world.final_of(submitted.conversation, submitted.task).await;
    assert!(matches!(failed, EventBody::Failed { dead_letter: Some(_), .. }), "{failed:?}");
    submitted
}

async fn dead_letter(world: &World, submitted: &Submitted) -> DeadLetterRow {
    world.kernel.dead_letter(own(), submitted.task).await.expect("there is a dead letter").row
}

async fn retried(world: &World, task: TaskId) -> DeadLetterRow {
    eventually("the dead letter is retried", async || {
        let row = world.kernel.dead_letter(own(), task).await.ok()?.row;
        (row.state == DeadLetterState::Retried).then_some(row)
    })
    .await
}

async fn until(world: &World, submitted: &Submitted, state: DeadLetterState) -> DeadLetterRow {
    eventually("the dead letter changes its state", async || {
        let row = dead_letter(world, submitted).await;
        (row.state == state).then_some(row)
    })
    .await
}

/// Kills the background worker of dead letters. Its next incarnation has only the store.
async fn kill_worker(world: &World) {
    world.kernel.operate("/infra/dead_letters", None, Operation::Kill, "a test").await.expect("the actor is alive");
}

/// Waits until the worker has scanned since its start and has found nothing to do now.
async fn wait_for_scan(world: &World) {
    eventually("the worker has scanned", async || {
        let (_, view) = world.kernel.view("/infra/dead_letters").await.ok()?;
        let view = view?;
        let (next, has_pass) = (view["due_timer"]["next_at"].as_str(), view["due_timer"]["has_pass"] == true);
        (!has_pass && next.is_none_or(|at| at > world.kernel.now().to_string().as_str())).then_some(())
    })
    .await;
}

fn retries(log: &[Event]) -> usize {
    log.iter().filter(|e| matches!(&e.body, EventBody::Received(inbound) if inbound.retry.is_some())).count()
}

async fn retry_of(world: &World, row: &DeadLetterRow) -> TaskRow {
    let task = row.retried_by.expect("a task retries it");
    eventually("the retry ends", async || {
        let row = world.kernel.task(own(), task).await.ok()?;
        row.state.is_ended().then_some(row)
    })
    .await
}

#[tokio::test]
async fn dead_letter_of_background_work_is_retried_once_after_six_hours_whatever_dies() {
    let Broken { parts, is_broken, clock } = Broken::new();
    let world = parts.start().await;
    let submitted = fail(&world, "research heat pumps", Priority::Normal).await;
    let row = dead_letter(&world, &submitted).await;
    let wait_ms = row.dead_letter.retry_at.expect("it has a retry time").since_ms(row.dead_letter.since);
    assert!((6 * 3_600_000..6 * 3_600_000 + 60_000).contains(&wait_ms), "six hours [S3 5.9]: {wait_ms}");
    assert_eq!(row.dead_letter.tried.len(), 3, "three strategies: {:?}", row.dead_letter.tried);
    kill_worker(&world).await;
    wait_for_scan(&world).await;
    assert_eq!(dead_letter(&world, &submitted).await.state, DeadLetterState::Waiting, "its time has not come");
    world.kernel.crash().await;

    is_broken.store(false, Relaxed);
    clock.set_by_ms(6 * HOUR_MS);
    let world = parts.start().await;
    let row = until(&world, &submitted, DeadLetterState::Retried).await;
    let retry = retry_of(&world, &row).await;
    assert_eq!((retry.priority, retry.source.as_str()), (Priority::Background, "dead_letter"));
    assert_eq!((retry.title.as_str(), retry.error), ("research heat pumps", None));
    for _ in 0..2 {
        kill_worker(&world).await;
        wait_for_scan(&world).await;
    }
    let log = world.log(submitted.conversation).await;
    assert_eq!(retries(&log), 1);
    check_log(&log);
    world.kernel.stop().await;
}

#[tokio::test]
async fn dead_letter_that_keeps_failing_is_archived_and_its_user_is_notified_once() {
    let Broken { mut parts, .. } = Broken::new();
    parts.limits.turn.dead_letters.retry_after_ms = 20;
    parts.limits.turn.dead_letters.archive_after_ms = 400;
    let world = parts.start().await;
    let submitted = fail(&world, "call the bank", Priority::Normal).await;
    let all = eventually("the last try is given up", async || {
        let all =
            world.kernel.dead_letters(own(), DeadLetterFilter::default(), Micros(i64::MAX).into(), 100).await.ok()?;
        let is_over =
            all.first()?.state == DeadLetterState::Archived && all.iter().all(|l| l.state != DeadLetterState::Waiting);
        is_over.then_some(all)
    })
    .await;
    assert!(all.len() > 1, "the task was retried: {all:#?}");
    let (last, first) = (&all[0], &all[all.len() - 1]);
    assert_eq!(first.task, submitted.task);
    assert!(
        all.iter().all(|l| l.dead_letter.since == first.dead_letter.since),
        "the archive counts from the first failure"
    );
    let detail = world.kernel.dead_letter(own(), last.task).await.expect("it is stored");
    assert_eq!(detail.text, "call the bank");
    assert_eq!(detail.before.first(), Some(&submitted.task), "the whole chain is shown");
    assert_eq!(detail.before.len(), all.len() - 1);
    assert_eq!(detail.row.dead_letter.tried.len(), 3 * all.len(), "all strategies: {:?}", detail.row.dead_letter.tried);
    assert!(detail.events.iter().any(|e| e.body.is_final()));
    let notifications_of_user = eventually("the user is notified", async || {
        let notifications_of_user = world.kernel.notifications(&ann(), 0, 100).await.ok()?;
        notifications_of_user.iter().any(|n| n.text.contains("given")).then_some(notifications_of_user)
    })
    .await;
    assert_eq!(
        notifications_of_user.iter().filter(|n| n.text.contains("given")).count(),
        1,
        "{notifications_of_user:#?}"
    );
    check_log(&world.log(submitted.conversation).await);
    world.kernel.stop().await;
}

#[tokio::test]
async fn dead_letter_retried_twice_by_hand_is_one_retry_and_other_users_may_not_retry_it() {
    let Broken { parts, is_broken, .. } = Broken::new();
    let world = parts.start().await;
    let mut asked = Submission::new(ann(), "test", "what is the weather");
    asked.priority = Some(Priority::High);
    let asked = world.kernel.submit(asked).await.expect("accepted");
    let failed = world.final_of(asked.conversation, asked.task).await;
    assert!(
        matches!(failed, EventBody::Failed { dead_letter: None, .. }),
        "a failed HIGH task leaves no dead letter: {failed:?}"
    );
    assert_eq!(world.kernel.count_dead_letters(own(), DeadLetterFilter::default()).await, Ok(0));

    let submitted = fail(&world, "research the weather", Priority::Normal).await;
    assert_eq!(dead_letter(&world, &submitted).await.state, DeadLetterState::Waiting);

    let bob = Scope::User(UserId::new("bob").expect("a user id"));
    let foreign = world.kernel.retry_dead_letter(bob.clone(), submitted.task, "bob").await;
    assert_eq!(foreign, Err(KernelError::NotFound("dead letter")));
    assert_eq!(
        world.kernel.discard_dead_letter(bob, submitted.task, "bob").await,
        Err(KernelError::NotFound("dead letter"))
    );

    is_broken.store(false, Relaxed);
    let again = world.kernel.retry_dead_letter(own(), submitted.task, "ann").await.expect("accepted");
    assert_eq!((again.conversation, again.priority, again.repeated), (submitted.conversation, Priority::High, false));
    assert_eq!(world.answer(&again).await, "Done after all.");
    let twice = world.kernel.retry_dead_letter(own(), submitted.task, "ann").await.expect("acknowledged again");
    assert_eq!((twice.task, twice.seq, twice.repeated), (again.task, again.seq, true));
    assert_eq!(
        world.kernel.discard_dead_letter(own(), submitted.task, "ann").await,
        Ok(false),
        "it is no longer waiting"
    );
    world.kernel.stop().await;
}

#[tokio::test]
async fn dead_letter_that_is_discarded_is_never_retried() {
    let Broken { parts, clock, .. } = Broken::new();
    let world = parts.start().await;
    let submitted = fail(&world, "research heat pumps", Priority::Normal).await;
    assert_eq!(world.kernel.discard_dead_letter(own(), submitted.task, "ann").await, Ok(true));
    assert_eq!(world.kernel.discard_dead_letter(own(), submitted.task, "ann").await, Ok(false));
    clock.set_by_ms(7 * HOUR_MS);
    kill_worker(&world).await;
    wait_for_scan(&world).await;
    assert_eq!(dead_letter(&world, &submitted).await.state, DeadLetterState::Discarded);
    let again = world.kernel.retry_dead_letter(own(), submitted.task, "ann").await;
    assert!(matches!(again, Err(KernelError::Stale(_))), "{again:?}");
    assert_eq!(retries(&world.log(submitted.conversation).await), 0);
    world.kernel.stop().await;
}

#[tokio::test]
async fn dead_letters_in_bulk_are_counted_before_they_are_retried_or_discarded() {
    let Broken { parts, is_broken, .. } = Broken::new();
    let world = parts.start().await;
    for text in ["research heat pumps", "research solar cells", "research wind"] {
        fail(&world, text, Priority::Normal).await;
    }
    fail(&world, "sort the photos", Priority::Low).await;
    let options = |class, limit, is_confirmed| ManyDeadLetters {
        scope: own(),
        filter: DeadLetterFilter { class: Some(class), ..DeadLetterFilter::default() },
        limit,
        is_confirmed,
    };
    let counted = world.kernel.retry_dead_letters(options(Priority::Normal, 100, false), "ann").await.expect("counted");
    assert_eq!((counted.matching, counted.done, counted.left), (3, 0, 3), "{counted:?}");
    is_broken.store(false, Relaxed);
    let done = world.kernel.retry_dead_letters(options(Priority::Normal, 2, true), "ann").await.expect("done");
    assert_eq!((done.matching, done.done, done.left, done.tasks.len()), (3, 2, 1, 2), "{done:?}");
    for task in done.tasks {
        let row = retried(&world, task).await;
        assert_eq!(retry_of(&world, &row).await.error, None);
    }
    let foreign = ManyDeadLetters {
        scope: Scope::User(UserId::new("bob").expect("a user id")),
        ..options(Priority::Low, 9, true)
    };
    assert_eq!(world.kernel.discard_dead_letters(foreign, "bob").await.expect("none").matching, 0);
    let discarded = world.kernel.discard_dead_letters(options(Priority::Low, 100, true), "ann").await.expect("done");
    assert_eq!((discarded.matching, discarded.done, discarded.left), (1, 1, 0), "{discarded:?}");
    let all = world
        .kernel
        .dead_letters(own(), DeadLetterFilter::default(), Micros(i64::MAX).into(), 100)
        .await
        .expect("readable");
    let states = |state| all.iter().filter(|row| row.state == state).count();
    use DeadLetterState::{Discarded, Retried, Waiting};
    assert_eq!((states(Retried), states(Discarded), states(Waiting)), (2, 1, 1));
    world.kernel.stop().await;
}

#[tokio::test]
async fn dead_letter_of_a_deleted_conversation_is_in_no_list_and_stops_no_bulk_call() {
    let Broken { parts, .. } = Broken::new();
    let world = parts.start().await;
    fail(&world, "research heat pumps", Priority::Normal).await;
    let deleted = fail(&world, "research wind", Priority::Normal).await;
    let by_ann = DeleteOptions { by: "ann".to_owned(), ..DeleteOptions::default() };
    world.kernel.delete_conversation(own(), deleted.conversation, by_ann).await.expect("deleted");
    let shown = world.kernel.dead_letter(own(), deleted.task).await.err();
    assert_eq!(shown, Some(KernelError::Deleted), "what is deleted is not shown");
    let options = ManyDeadLetters { scope: own(), filter: DeadLetterFilter::default(), limit: 100, is_confirmed: true };
    let done = world.kernel.discard_dead_letters(options, "ann").await.expect("done");
    assert_eq!((done.matching, done.done, done.left, done.stopped), (1, 1, 0, None));
    world.kernel.stop().await;
}

#[tokio::test]
async fn bulk_retry_that_fails_leaves_a_new_dead_letter() {
    let Broken { parts, .. } = Broken::new();
    let world = parts.start().await;
    fail(&world, "research heat pumps", Priority::Normal).await;
    let options = ManyDeadLetters { scope: own(), filter: DeadLetterFilter::default(), limit: 100, is_confirmed: true };
    let done = world.kernel.retry_dead_letters(options, "ann").await.expect("done");
    assert_eq!(done.done, 1, "{done:?}");
    eventually("the failed retry waits again", async || {
        let retry = world.kernel.dead_letter(own(), done.tasks[0]).await.ok()?.row.retried_by?;
        let row = world.kernel.dead_letter(own(), retry).await.ok()?.row;
        (row.state == DeadLetterState::Waiting).then_some(())
    })
    .await;
    world.kernel.stop().await;
}

#[tokio::test]
async fn bulk_retry_beyond_the_queue_limit_retries_all_and_leaves_capacity_for_the_user() {
    let model = ScriptedModel::new(|_, _| Ok(says("Done."))).taking(Duration::from_millis(20));
    let mut parts = WorldParts::with_model(Arc::new(model));
    parts.slots = 1;
    parts.limits.mode = Mode::SingleLoop;
    let dead = (0..12).map(|n| {
        let (id, at) = (uuid::Uuid::from_u128(n + 1), Micros(1_000));
        let dead_letter = DeadLetter { tried: Vec::new(), since: parts.env.now(), retry_at: None };
        let (code, text) = ("model_unavailable".to_owned(), "Sorry.".to_owned());
        let failed = EventBody::Failed { code, text, detail: String::new(), dead_letter: Some(dead_letter) };
        let submitted = Inbound { client_id: n.to_string(), text: "Report".to_owned(), ..Inbound::default() };
        let (task, agent) = (TaskId::from_uuid(id), AgentId::orchestrator);
        let events = [EventBody::Received(submitted), failed].map(|body| NewEvent { at, task, agent: agent(), body });
        Append {
            conversation: ConversationId::from_uuid(id),
            user: ann(),
            fence: Fence::Inbox,
            events: events.to_vec(),
        }
    });
    for stored in parts.store.commit(dead.collect()).await {
        stored.expect("stored");
    }
    let world = parts.start().await;
    let options = ManyDeadLetters { scope: own(), filter: DeadLetterFilter::default(), limit: 100, is_confirmed: true };
    let done = world.kernel.retry_dead_letters(options.clone(), "ann").await.expect("done");
    assert_eq!((done.matching, done.done, done.left, &done.stopped), (12, 12, 0, &None), "{done:?}");
    let again = world.kernel.retry_dead_letters(options, "ann").await.expect("done");
    assert_eq!((again.matching, again.done), (0, 0), "a due dead letter is not retried again: {again:?}");
    for _ in 0..2 {
        let mut message = Submission::new(ann(), "test", "hello");
        message.priority = Some(Priority::High);
        world.kernel.submit(message).await.expect("the user's own message is accepted");
    }
    kill_worker(&world).await;
    for task in done.tasks {
        let row = retried(&world, task).await;
        let retry = retry_of(&world, &row).await;
        assert_eq!((retry.priority, retry.error), (Priority::Background, None));
    }
    world.kernel.stop().await;
}

#[tokio::test]
async fn client_message_with_an_id_reserved_for_the_kernel_is_refused() {
    let Broken { parts, .. } = Broken::new();
    let world = parts.start().await;
    for id in ["dead_letter:task_1", "operation:op_1"] {
        let mut message = Submission::new(ann(), "test", "hello");
        message.client_id = Some(id.to_owned());
        let refused = world.kernel.submit(message).await;
        assert!(matches!(&refused, Err(KernelError::Invalid(why)) if why.contains("operation:")), "{refused:?}");
    }
    world.kernel.stop().await;
}

#[tokio::test]
async fn dead_letters_that_cannot_be_sent_now_do_not_block_others() {
    let model = ScriptedModel::new(|_, _| Ok(says("Done."))).hanging_when(|_, _| true);
    let parts = WorldParts::with_model(Arc::new(model));
    let bob = UserId::new("bob").expect("a user id");
    let died = |n: u128, user: &UserId| {
        let task = TaskId::from_uuid(uuid::Uuid::from_u128(n + 1));
        let at = Micros(1_000 + i64::try_from(n).expect("small"));
        let dead_letter = DeadLetter { tried: Vec::new(), since: parts.env.now(), retry_at: Some(at) };
        let failed = EventBody::Failed {
            code: "model_unavailable".to_owned(),
            text: "Sorry.".to_owned(),
            detail: String::new(),
            dead_letter: Some(dead_letter),
        };
        let submitted = Inbound { client_id: n.to_string(), text: "Report".to_owned(), ..Inbound::default() };
        let events = [EventBody::Received(submitted), failed];
        let events = events.map(|body| NewEvent { at, task, agent: AgentId::orchestrator(), body }).to_vec();
        let conversation = ConversationId::from_uuid(uuid::Uuid::from_u128(n + 1));
        (task, Append { conversation, user: user.clone(), fence: Fence::Inbox, events })
    };
    let mut appends: Vec<Append> = (0..150).map(|n| died(n, &bob).1).collect();
    let (task, last) = died(200, &ann());
    appends.push(last);
    for stored in parts.store.commit(appends).await {
        stored.expect("stored");
    }
    let world = parts.start().await;
    eventually("the last dead letter is retried", async || {
        let row = world.kernel.dead_letter(own(), task).await.ok()?.row;
        (row.state == DeadLetterState::Retried).then_some(())
    })
    .await;
    let waiting = world
        .kernel
        .dead_letters(
            Scope::User(bob),
            DeadLetterFilter::in_state(DeadLetterState::Waiting),
            Micros(i64::MAX).into(),
            500,
        )
        .await;
    assert!(waiting.expect("readable").len() > 100, "they wait for a queue position");
    world.kernel.stop().await;
}

/// The skill has taken effect when the model fails, and the model of each retry requests the same effect again.
#[tokio::test]
async fn dead_letter_with_an_effect_waits_for_a_person_and_its_retry_does_not_repeat_the_effect() {
    for is_known in [true, false] {
        let is_broken = Arc::new(AtomicBool::new(true));
        let fails = is_broken.clone();
        let mut parts = WorldParts::new(move |request, _| match request.messages.last() {
            Some(Message::Tool { .. }) if fails.load(Relaxed) => {
                Err(ModelError::new(ModelErrorKind::Unavailable, "the model is away"))
            }
            Some(Message::Tool { text, .. }) => Ok(says(text.clone())),
            _ => Ok(calls([("use_skill", json!({"skill": "test.send", "arguments": {"what": "the letter"}}))])),
        });
        let clock = Arc::new(TestClock::new());
        parts.env.clock = clock.clone();
        parts.limits.mode = Mode::SingleLoop;
        parts.limits.turn.defer_ms = 5;
        parts.limits.breaker.failures_max = u32::MAX;
        let sent = Outcome::success("Sent the letter to Bob");
        let outcome = if is_known { sent } else { Outcome::unknown("No receipt came.", json!({})) };
        parts.skills = Arc::new(FakeSkills::new(move |_| FakeBehaviour::Answer(outcome.clone())));
        let world = parts.start().await;
        let submitted = fail(&world, "send the letter", Priority::Normal).await;
        let row = dead_letter(&world, &submitted).await;
        assert_eq!(row.dead_letter.retry_at, None, "{row:?}");
        assert!(row.text.contains("won't try it again by myself"), "{}", row.text);
        clock.set_by_ms(7 * HOUR_MS);
        kill_worker(&world).await;
        wait_for_scan(&world).await;
        assert_eq!(dead_letter(&world, &submitted).await.state, DeadLetterState::Waiting);

        is_broken.store(false, Relaxed);
        let again = world.kernel.retry_dead_letter(own(), submitted.task, "ann").await.expect("accepted");
        let answer = world.answer(&again).await;
        let wanted = if is_known { "Sent the letter to Bob" } else { "may have happened already" };
        assert!(answer.contains(wanted), "{answer}");
        assert_eq!(parts.skills.count("test.send"), 1);
        check_log(&world.log(submitted.conversation).await);
        world.kernel.stop().await;
    }
}
