//! What failed is kept, tried again, given up, or taken out by hand: each once, whoever dies in between.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use annie_actors::{KernelError, ManyLetters, Operation, Submission, Submitted};
use annie_core::{
    event::{Event, EventBody, Inbound, Mode, NewEvent, Priority, Scope},
    ids::{AgentId, ConversationId, TaskId, UserId},
    letter::{Letter, LetterState},
    message::{Message, ModelError, ModelErrorKind},
    outcome::Outcome,
    ports::{Append, Fence, LetterFilter, LetterRow, TaskRow},
    time::Micros,
};
use annie_testkit::{
    env::TestClock,
    scripted_model::{ScriptedModel, calls, says},
    skills::{Deed, FakeSkills},
};
use serde_json::json;

use crate::world::{World, WorldParts, ann, check_log, eventually};

const HOUR_MS: i64 = 3_600_000;

fn own() -> Scope {
    Scope::User(ann())
}

/// A world whose model fails for as long as it is told to, and whose clock can be set.
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
    let said = world.kernel.submit(message).await.expect("taken");
    let failed = world.final_of(said.conversation, said.task).await;
    assert!(matches!(failed, EventBody::Failed { letter: Some(_), .. }), "{failed:?}");
    said
}

async fn letter(world: &World, said: &Submitted) -> LetterRow {
    world.kernel.letter(own(), said.task).await.expect("there is a letter").row
}

async fn retried(world: &World, task: TaskId) -> LetterRow {
    eventually("the letter is tried again", async || {
        let row = world.kernel.letter(own(), task).await.ok()?.row;
        (row.state == LetterState::Retried).then_some(row)
    })
    .await
}

async fn until(world: &World, said: &Submitted, state: LetterState) -> LetterRow {
    eventually("the letter moves", async || {
        let row = letter(world, said).await;
        (row.state == state).then_some(row)
    })
    .await
}

/// The next life of the keeper has nothing but the store.
async fn kill_keeper(world: &World) {
    world.kernel.operate("/infra/letters", None, Operation::Kill, "a test").await.expect("it lives");
}

/// It has looked since it was started, and found nothing to do now.
async fn looked_through(world: &World) {
    eventually("it has looked", async || {
        let (_, view) = world.kernel.view("/infra/letters").await.ok()?;
        let view = view?;
        let (next, is_looking) = (view["lookout"]["next_at"].as_str(), view["lookout"]["is_looking"] == true);
        (!is_looking && next.is_none_or(|at| at > world.kernel.now().to_string().as_str())).then_some(())
    })
    .await;
}

fn retries(log: &[Event]) -> usize {
    log.iter().filter(|e| matches!(&e.body, EventBody::Received(inbound) if inbound.retry.is_some())).count()
}

async fn retry_of(world: &World, row: &LetterRow) -> TaskRow {
    let task = row.retried_by.expect("a task tries again");
    eventually("the retry ends", async || {
        let row = world.kernel.task(own(), task).await.ok()?;
        row.state.is_ended().then_some(row)
    })
    .await
}

#[tokio::test]
async fn what_nobody_waits_for_is_tried_again_once_after_six_hours_whoever_dies() {
    let Broken { parts, is_broken, clock } = Broken::new();
    let world = parts.start().await;
    let said = fail(&world, "research heat pumps", Priority::Normal).await;
    let row = letter(&world, &said).await;
    let wait_ms = row.letter.retry_at.expect("it is tried again").since_ms(row.letter.since);
    assert!((6 * 3_600_000..6 * 3_600_000 + 60_000).contains(&wait_ms), "six hours [S3 5.9]: {wait_ms}");
    assert_eq!(row.letter.tried.len(), 3, "three strategies: {:?}", row.letter.tried);
    kill_keeper(&world).await;
    looked_through(&world).await;
    assert_eq!(letter(&world, &said).await.state, LetterState::Waiting, "its time has not come");
    world.kernel.crash().await;

    is_broken.store(false, Relaxed);
    clock.set_by_ms(6 * HOUR_MS);
    let world = parts.start().await;
    let row = until(&world, &said, LetterState::Retried).await;
    let retry = retry_of(&world, &row).await;
    assert_eq!((retry.priority, retry.source.as_str()), (Priority::Background, "dead_letter"));
    assert_eq!((retry.title.as_str(), retry.error), ("research heat pumps", None));
    for _ in 0..2 {
        kill_keeper(&world).await;
        looked_through(&world).await;
    }
    let log = world.log(said.conversation).await;
    assert_eq!(retries(&log), 1);
    check_log(&log);
    world.kernel.stop().await;
}

#[tokio::test]
async fn what_keeps_failing_is_given_up_and_its_user_is_told_once() {
    let Broken { mut parts, .. } = Broken::new();
    parts.limits.turn.letters.retry_after_ms = 20;
    parts.limits.turn.letters.archive_after_ms = 400;
    let world = parts.start().await;
    let said = fail(&world, "call the bank", Priority::Normal).await;
    let all = eventually("the last try is given up", async || {
        let all = world.kernel.letters(own(), LetterFilter::default(), Micros(i64::MAX).into(), 100).await.ok()?;
        let is_over =
            all.first()?.state == LetterState::Archived && all.iter().all(|l| l.state != LetterState::Waiting);
        is_over.then_some(all)
    })
    .await;
    assert!(all.len() > 1, "it was tried again: {all:#?}");
    let (last, first) = (&all[0], &all[all.len() - 1]);
    assert_eq!(first.task, said.task);
    assert!(all.iter().all(|l| l.letter.since == first.letter.since), "the archive counts from the first failure");
    let detail = world.kernel.letter(own(), last.task).await.expect("it is kept");
    assert_eq!(detail.text, "call the bank");
    assert_eq!(detail.before.first(), Some(&said.task), "the whole chain is shown");
    assert_eq!(detail.before.len(), all.len() - 1);
    assert_eq!(
        detail.row.letter.tried.len(),
        3 * all.len(),
        "everything that was tried: {:?}",
        detail.row.letter.tried
    );
    assert!(detail.events.iter().any(|e| e.body.is_final()));
    let told = eventually("the user is told", async || {
        let told = world.kernel.notifications(&ann(), 0, 100).await.ok()?;
        told.iter().any(|n| n.text.contains("given")).then_some(told)
    })
    .await;
    assert_eq!(told.iter().filter(|n| n.text.contains("given")).count(), 1, "{told:#?}");
    check_log(&world.log(said.conversation).await);
    world.kernel.stop().await;
}

#[tokio::test]
async fn a_person_who_was_told_decides_and_a_second_wish_is_the_same_try() {
    let Broken { parts, is_broken, .. } = Broken::new();
    let world = parts.start().await;
    let mut asked = Submission::new(ann(), "test", "what is the weather");
    asked.priority = Some(Priority::High);
    let asked = world.kernel.submit(asked).await.expect("taken");
    let failed = world.final_of(asked.conversation, asked.task).await;
    assert!(matches!(failed, EventBody::Failed { letter: None, .. }), "a person who waits was told: {failed:?}");
    assert_eq!(world.kernel.count_letters(own(), LetterFilter::default()).await, Ok(0));

    let said = fail(&world, "research the weather", Priority::Normal).await;
    assert_eq!(letter(&world, &said).await.state, LetterState::Waiting);

    let bob = Scope::User(UserId::new("bob").expect("a user id"));
    let foreign = world.kernel.retry_letter(bob.clone(), said.task, "bob").await;
    assert_eq!(foreign, Err(KernelError::NotFound("dead letter")));
    assert_eq!(world.kernel.discard_letter(bob, said.task, "bob").await, Err(KernelError::NotFound("dead letter")));

    is_broken.store(false, Relaxed);
    let again = world.kernel.retry_letter(own(), said.task, "ann").await.expect("taken");
    assert_eq!((again.conversation, again.priority, again.repeated), (said.conversation, Priority::High, false));
    assert_eq!(world.answer(&again).await, "Done after all.");
    let twice = world.kernel.retry_letter(own(), said.task, "ann").await.expect("acknowledged again");
    assert_eq!((twice.task, twice.seq, twice.repeated), (again.task, again.seq, true));
    assert_eq!(world.kernel.discard_letter(own(), said.task, "ann").await, Ok(false), "it does not wait any more");
    world.kernel.stop().await;
}

#[tokio::test]
async fn what_is_discarded_is_never_tried_again() {
    let Broken { parts, clock, .. } = Broken::new();
    let world = parts.start().await;
    let said = fail(&world, "research heat pumps", Priority::Normal).await;
    assert_eq!(world.kernel.discard_letter(own(), said.task, "ann").await, Ok(true));
    assert_eq!(world.kernel.discard_letter(own(), said.task, "ann").await, Ok(false));
    clock.set_by_ms(7 * HOUR_MS);
    kill_keeper(&world).await;
    looked_through(&world).await;
    assert_eq!(letter(&world, &said).await.state, LetterState::Discarded);
    let again = world.kernel.retry_letter(own(), said.task, "ann").await;
    assert!(matches!(again, Err(KernelError::Stale(_))), "{again:?}");
    assert_eq!(retries(&world.log(said.conversation).await), 0);
    world.kernel.stop().await;
}

#[tokio::test]
async fn many_letters_are_counted_before_they_are_retried_or_discarded() {
    let Broken { parts, is_broken, .. } = Broken::new();
    let world = parts.start().await;
    for text in ["research heat pumps", "research solar cells", "research wind"] {
        fail(&world, text, Priority::Normal).await;
    }
    fail(&world, "sort the photos", Priority::Low).await;
    let wish = |class, limit, is_confirmed| ManyLetters {
        scope: own(),
        filter: LetterFilter { class: Some(class), ..LetterFilter::default() },
        limit,
        is_confirmed,
    };
    let counted = world.kernel.retry_letters(wish(Priority::Normal, 100, false), "ann").await.expect("counted");
    assert_eq!((counted.matching, counted.done, counted.left), (3, 0, 3), "{counted:?}");
    is_broken.store(false, Relaxed);
    let done = world.kernel.retry_letters(wish(Priority::Normal, 2, true), "ann").await.expect("done");
    assert_eq!((done.matching, done.done, done.left, done.tasks.len()), (3, 2, 1, 2), "{done:?}");
    for task in done.tasks {
        let row = retried(&world, task).await;
        assert_eq!(retry_of(&world, &row).await.error, None);
    }
    let foreign =
        ManyLetters { scope: Scope::User(UserId::new("bob").expect("a user id")), ..wish(Priority::Low, 9, true) };
    assert_eq!(world.kernel.discard_letters(foreign, "bob").await.expect("none").matching, 0);
    let discarded = world.kernel.discard_letters(wish(Priority::Low, 100, true), "ann").await.expect("done");
    assert_eq!((discarded.matching, discarded.done, discarded.left), (1, 1, 0), "{discarded:?}");
    let all =
        world.kernel.letters(own(), LetterFilter::default(), Micros(i64::MAX).into(), 100).await.expect("readable");
    let states = |state| all.iter().filter(|row| row.state == state).count();
    use LetterState::{Discarded, Retried, Waiting};
    assert_eq!((states(Retried), states(Discarded), states(Waiting)), (2, 1, 1));
    world.kernel.stop().await;
}

#[tokio::test]
async fn retries_of_many_letters_that_fail_are_dead_letters_again() {
    let Broken { parts, .. } = Broken::new();
    let world = parts.start().await;
    fail(&world, "research heat pumps", Priority::Normal).await;
    let wish = ManyLetters { scope: own(), filter: LetterFilter::default(), limit: 100, is_confirmed: true };
    let done = world.kernel.retry_letters(wish, "ann").await.expect("done");
    assert_eq!(done.done, 1, "{done:?}");
    eventually("the failed retry waits again", async || {
        let retry = world.kernel.letter(own(), done.tasks[0]).await.ok()?.row.retried_by?;
        let row = world.kernel.letter(own(), retry).await.ok()?.row;
        (row.state == LetterState::Waiting).then_some(())
    })
    .await;
    world.kernel.stop().await;
}

#[tokio::test]
async fn bulk_retry_of_more_letters_than_the_queue_takes_retries_all_and_leaves_room_for_their_user() {
    let model = ScriptedModel::new(|_, _| Ok(says("Done."))).taking(Duration::from_millis(20));
    let mut parts = WorldParts::with_model(Arc::new(model));
    parts.slots = 1;
    parts.limits.mode = Mode::SingleLoop;
    let dead = (0..12).map(|n| {
        let (id, at) = (uuid::Uuid::from_u128(n + 1), Micros(1_000));
        let letter = Letter { tried: Vec::new(), since: parts.env.now(), retry_at: None };
        let (code, text) = ("model_unavailable".to_owned(), "Sorry.".to_owned());
        let failed = EventBody::Failed { code, text, detail: String::new(), letter: Some(letter) };
        let said = Inbound { client_id: n.to_string(), text: "Report".to_owned(), ..Inbound::default() };
        let (task, agent) = (TaskId::from_uuid(id), AgentId::orchestrator);
        let events = [EventBody::Received(said), failed].map(|body| NewEvent { at, task, agent: agent(), body });
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
    let wish = ManyLetters { scope: own(), filter: LetterFilter::default(), limit: 100, is_confirmed: true };
    let done = world.kernel.retry_letters(wish.clone(), "ann").await.expect("done");
    assert_eq!((done.matching, done.done, done.left, &done.stopped), (12, 12, 0, &None), "{done:?}");
    let again = world.kernel.retry_letters(wish, "ann").await.expect("done");
    assert_eq!((again.matching, again.done), (0, 0), "what is due already is not meant: {again:?}");
    for _ in 0..2 {
        let mut message = Submission::new(ann(), "test", "hello");
        message.priority = Some(Priority::High);
        world.kernel.submit(message).await.expect("the user's own message has a place");
    }
    kill_keeper(&world).await;
    for task in done.tasks {
        let row = retried(&world, task).await;
        let retry = retry_of(&world, &row).await;
        assert_eq!((retry.priority, retry.error), (Priority::Background, None));
    }
    world.kernel.stop().await;
}

#[tokio::test]
async fn nobody_can_send_the_kernels_own_messages_in_its_place() {
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
async fn letters_that_cannot_be_sent_now_do_not_stand_in_the_way_of_others() {
    let model = ScriptedModel::new(|_, _| Ok(says("Done."))).hanging_when(|_, _| true);
    let parts = WorldParts::with_model(Arc::new(model));
    let bob = UserId::new("bob").expect("a user id");
    let died = |n: u128, user: &UserId| {
        let task = TaskId::from_uuid(uuid::Uuid::from_u128(n + 1));
        let at = Micros(1_000 + i64::try_from(n).expect("small"));
        let letter = Letter { tried: Vec::new(), since: parts.env.now(), retry_at: Some(at) };
        let failed = EventBody::Failed {
            code: "model_unavailable".to_owned(),
            text: "Sorry.".to_owned(),
            detail: String::new(),
            letter: Some(letter),
        };
        let said = Inbound { client_id: n.to_string(), text: "Report".to_owned(), ..Inbound::default() };
        let events = [EventBody::Received(said), failed];
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
    eventually("the last one is tried again", async || {
        let row = world.kernel.letter(own(), task).await.ok()?.row;
        (row.state == LetterState::Retried).then_some(())
    })
    .await;
    let waiting = world
        .kernel
        .letters(Scope::User(bob), LetterFilter::in_state(LetterState::Waiting), Micros(i64::MAX).into(), 500)
        .await;
    assert!(waiting.expect("readable").len() > 100, "they wait for a place");
    world.kernel.stop().await;
}

/// Its skill has taken effect when its model goes away; and the model of each new try asks for the same effect again.
#[tokio::test]
async fn work_that_had_an_effect_waits_for_a_person_and_the_retry_by_hand_does_not_repeat_it() {
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
        parts.skills = Arc::new(FakeSkills::new(move |_| Deed::Answer(outcome.clone())));
        let world = parts.start().await;
        let said = fail(&world, "send the letter", Priority::Normal).await;
        let row = letter(&world, &said).await;
        assert_eq!(row.letter.retry_at, None, "{row:?}");
        assert!(row.text.contains("won't try it again by myself"), "{}", row.text);
        clock.set_by_ms(7 * HOUR_MS);
        kill_keeper(&world).await;
        looked_through(&world).await;
        assert_eq!(letter(&world, &said).await.state, LetterState::Waiting);

        is_broken.store(false, Relaxed);
        let again = world.kernel.retry_letter(own(), said.task, "ann").await.expect("taken");
        let answer = world.answer(&again).await;
        let told = if is_known { "[done already] Sent the letter to Bob" } else { "may have happened already" };
        assert!(answer.contains(told), "{answer}");
        assert_eq!(parts.skills.count("test.send"), 1);
        check_log(&world.log(said.conversation).await);
        world.kernel.stop().await;
    }
}
