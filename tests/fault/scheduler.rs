//! The scheduler or the whole process dies between two rounds. The order of the tasks stays the same, and no round is
//! lost or run twice.

use std::{sync::Arc, time::Duration};

use annie_actors::{Submission, Submitted};
use annie_core::{
    event::{EventBody, Mode, Priority, Scope},
    ids::Seq,
    limits::Deadline,
    message::Message,
    outcome::Outcome,
};
use annie_testkit::{
    scripted_model::{ScriptedModel, calls, says},
    skills::{FakeBehaviour, FakeSkills},
};
use serde_json::json;

use crate::{
    flow::scheduling::{Gated, Order, ended, one_slot, rounds_begun, say, user, waiting},
    world::{World, WorldParts, eventually, kill, last_text},
};

/// The rounds of the answering agent that are in the log, in order.
async fn rounds_of(world: &World, user_name: &str, sent: &Submitted) -> Vec<u32> {
    let log =
        world.kernel.events(Scope::User(user(user_name)), sent.conversation, Seq(0), 500).await.expect("readable");
    let replied = |body: &EventBody| if let EventBody::ModelReplied { round, .. } = body { Some(*round) } else { None };
    log.iter().filter(|e| e.task == sent.task).filter_map(|e| replied(&e.body)).collect()
}

fn begun_rounds(order: &Order) -> Vec<String> {
    order.lock().expect("not poisoned").clone()
}

/// The moment of the kill. A NORMAL task has five rounds; a HIGH task arrives during the third one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// The third round of the NORMAL task runs, and no other task waits.
    Alone,
    /// The same round runs, and the HIGH task waits.
    Waiting,
    /// The NORMAL task is preempted, and the HIGH task runs.
    Preempted,
    /// The NORMAL task has resumed with its fourth round.
    Resumed,
}

const ALL: [At; 4] = [At::Alone, At::Waiting, At::Preempted, At::Resumed];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn normal_task_preempted_by_a_high_one_resumes_although_the_scheduler_is_killed() {
    for moment in ALL {
        let (parts, order, gate) = one_slot();
        let world = parts.start().await;
        let inject = async |at: At| {
            if at == moment {
                kill(&world, "/scheduler").await;
            }
        };
        let long = say(&world, "ann", "long 5", Priority::Normal).await;
        rounds_begun(&order, 1).await;
        gate.add_permits(2);
        rounds_begun(&order, 3).await;
        inject(At::Alone).await;
        let urgent = say(&world, "bob", "urgent 1", Priority::High).await;
        waiting(&world, 1).await;
        inject(At::Waiting).await;
        waiting(&world, 1).await;
        gate.add_permits(1);
        rounds_begun(&order, 4).await;
        waiting(&world, 1).await;
        inject(At::Preempted).await;
        gate.add_permits(1);
        rounds_begun(&order, 5).await;
        inject(At::Resumed).await;
        gate.add_permits(10);
        ended(&world, "ann", &long).await;
        ended(&world, "bob", &urgent).await;
        assert_eq!(begun_rounds(&order), ["long", "long", "long", "urgent", "long", "long"], "killed {moment:?}");
        assert_eq!(rounds_of(&world, "ann", &long).await, [1, 2, 3, 4, 5], "killed {moment:?}");
        world.kernel.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn normal_task_preempted_by_a_high_one_resumes_although_the_process_is_killed() {
    for moment in ALL {
        let (parts, order, gate) = one_slot();
        let mut world = parts.start().await;
        let long = say(&world, "ann", "long 5", Priority::Normal).await;
        rounds_begun(&order, 1).await;
        gate.add_permits(2);
        rounds_begun(&order, 3).await;
        if moment == At::Alone {
            world.kernel.crash().await;
            world = parts.start().await;
            // The round whose reply was not received begins again.
            rounds_begun(&order, 4).await;
        }
        let urgent = say(&world, "bob", "urgent 1", Priority::High).await;
        waiting(&world, 1).await;
        let mut begun = begun_rounds(&order).len();
        // The actors of a killed process do not all die at the same instant: the slot of a dead one may go to another
        // that is about to die. Such a round is interrupted and does not count.
        let mut interrupted = 0..0;
        if moment == At::Waiting {
            world.kernel.crash().await;
            interrupted = begun..begun_rounds(&order).len();
            begun = interrupted.end;
            world = parts.start().await;
            // The slot is free. The first task that is back takes it. After that round at the latest the slot goes to the
            // HIGH task.
            rounds_begun(&order, begun + 1).await;
            waiting(&world, 1).await;
        } else {
            gate.add_permits(1);
            rounds_begun(&order, begun + 1).await;
            waiting(&world, 1).await;
        }
        begun += 1;
        let is_next = moment == At::Waiting || begun_rounds(&order).last().is_some_and(|name| name == "urgent");
        assert!(is_next, "killed {moment:?}: {:?}", begun_rounds(&order));
        if moment == At::Preempted {
            let before = begun_rounds(&order).len();
            world.kernel.crash().await;
            interrupted = before..begun_rounds(&order).len();
            world = parts.start().await;
            begun = interrupted.end + 1;
            // Here too the first task that is back takes the slot for one round.
            rounds_begun(&order, begun).await;
            waiting(&world, 1).await;
        }
        gate.add_permits(1);
        rounds_begun(&order, begun + 1).await;
        if moment == At::Resumed {
            ended(&world, "bob", &urgent).await;
            world.kernel.crash().await;
            world = parts.start().await;
            rounds_begun(&order, begun + 2).await;
        }
        gate.add_permits(10);
        ended(&world, "ann", &long).await;
        ended(&world, "bob", &urgent).await;
        let mut seen = begun_rounds(&order);
        seen.drain(interrupted);
        let wanted: &[&str] = match moment {
            At::Waiting if seen[3] == "long" => &["long", "long", "long", "long", "urgent", "long", "long"],
            At::Preempted if seen[4] == "long" => &["long", "long", "long", "urgent", "long", "urgent", "long"],
            At::Alone => &["long", "long", "long", "long", "urgent", "long", "long"],
            At::Waiting => &["long", "long", "long", "urgent", "long", "long", "long"],
            At::Preempted => &["long", "long", "long", "urgent", "urgent", "long", "long"],
            At::Resumed => &["long", "long", "long", "urgent", "long", "long", "long"],
        };
        assert_eq!(seen, wanted, "killed {moment:?}");
        assert_eq!(rounds_of(&world, "ann", &long).await, [1, 2, 3, 4, 5], "killed {moment:?}");
        assert_eq!(rounds_of(&world, "bob", &urgent).await, [1], "killed {moment:?}");
        world.kernel.stop().await;
    }
}

/// One slot, a gate before every reply, and a slow skill between the two rounds of the voice task.
fn spoken() -> (WorldParts, Order, Arc<tokio::sync::Semaphore>) {
    let order: Order = Arc::default();
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let recorded = order.clone();
    let model = ScriptedModel::new(move |request, _| {
        let mut users = request.messages.iter().filter_map(|m| match m {
            Message::User { text, .. } => Some(text.clone()),
            _ => None,
        });
        let name = users.next().unwrap_or_default();
        recorded.lock().expect("not poisoned").push(name.clone());
        let is_called = request.messages.iter().any(|m| matches!(m, Message::Tool { .. }));
        Ok(match (name.as_str(), is_called) {
            ("voice", false) => calls([("use_skill", json!({"skill": "test.look", "arguments": {"what": "x"}}))]),
            _ => says(format!("{name} is done: {}", last_text(request))),
        })
    });
    let mut parts = WorldParts::with_model(Arc::new(Gated { model, gate: gate.clone() }));
    parts.skills =
        Arc::new(FakeSkills::new(|_| FakeBehaviour::Slow(Duration::from_millis(300), Outcome::success("seen"))));
    parts.slots = 1;
    parts.limits.mode = Mode::SingleLoop;
    // The duration of the test on a slow machine must not exceed a deadline.
    parts.limits.deadlines.realtime = Deadline { soft_ms: 60_000, hard_ms: 60_000 };
    (parts, order, gate)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn background_round_does_not_begin_during_a_voice_task_although_the_scheduler_is_killed() {
    for kills in 0..4 {
        let (parts, order, gate) = spoken();
        let world = parts.start().await;
        let background = [
            say(&world, "ann", "background 1", Priority::Background).await,
            say(&world, "bob", "background 2", Priority::Background).await,
            say(&world, "cid", "background 3", Priority::Background).await,
        ];
        rounds_begun(&order, 1).await;
        waiting(&world, 2).await;
        let voice = Submission::new(user("dan"), "voice", "voice");
        let voice = world.kernel.submit(voice).await.expect("accepted");
        assert_eq!(voice.priority, Priority::Realtime);
        waiting(&world, 3).await;
        // The voice task waits for the round in flight.
        if kills == 1 {
            kill(&world, "/scheduler").await;
        }
        assert_eq!(begun_rounds(&order).len(), 1);
        gate.add_permits(1);
        rounds_begun(&order, 2).await;
        // The voice task runs its first round.
        if kills == 2 {
            kill(&world, "/scheduler").await;
        }
        gate.add_permits(1);
        eventually("its skill runs", async || (parts.skills.count("test.look") == 1).then_some(())).await;
        // The voice task is between two rounds: its slot is free, but not for other classes.
        if kills == 3 {
            kill(&world, "/scheduler").await;
        }
        rounds_begun(&order, 3).await;
        let begun = begun_rounds(&order);
        assert_eq!(begun[1..], ["voice", "voice"], "killed at {kills}");
        assert!(begun[0].starts_with("background"), "{begun:?}");
        gate.add_permits(10);
        ended(&world, "dan", &voice).await;
        for (user_name, sent) in ["ann", "bob", "cid"].into_iter().zip(&background) {
            ended(&world, user_name, sent).await;
        }
        assert_eq!(begun_rounds(&order).len(), 5, "a round ran twice: {:?}", begun_rounds(&order));
        world.kernel.stop().await;
    }
}
