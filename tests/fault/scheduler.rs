//! Whoever dies between two rounds, the scheduler or the whole process: whose turn it is stays whose turn it is, and no round
//! is lost or run twice.

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
    skills::{Deed, FakeSkills},
};
use serde_json::json;

use crate::{
    flow::{
        kernel::last_text,
        scheduling::{Gated, Order, ended, one_slot, rounds_begun, say, user, waiting},
    },
    world::{World, WorldParts, eventually, kill},
};

/// The rounds of the answering agent that are in the log, in order.
async fn rounds_of(world: &World, who: &str, said: &Submitted) -> Vec<u32> {
    let log = world.kernel.events(Scope::User(user(who)), said.conversation, Seq(0), 500).await.expect("readable");
    let replied = |body: &EventBody| if let EventBody::ModelReplied { round, .. } = body { Some(*round) } else { None };
    log.iter().filter(|e| e.task == said.task).filter_map(|e| replied(&e.body)).collect()
}

fn told(order: &Order) -> Vec<String> {
    order.lock().expect("not poisoned").clone()
}

/// Where in the story of a NORMAL task of five rounds and a HIGH one that comes in its third somebody dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// The third round of the NORMAL task runs, and it is alone.
    Alone,
    /// The same, and the HIGH one waits.
    Waiting,
    /// The NORMAL one is parked, and the HIGH one runs.
    Parked,
    /// The NORMAL one has gone on with its fourth round.
    GoneOn,
}

const ALL: [At; 4] = [At::Alone, At::Waiting, At::Parked, At::GoneOn];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_normal_task_parks_for_a_high_one_and_goes_on_though_the_scheduler_is_killed() {
    for moment in ALL {
        let (parts, order, gate) = one_slot();
        let world = parts.start().await;
        let strike = async |at: At| {
            if at == moment {
                kill(&world, "/scheduler").await;
            }
        };
        let long = say(&world, "ann", "long 5", Priority::Normal).await;
        rounds_begun(&order, 1).await;
        gate.add_permits(2);
        rounds_begun(&order, 3).await;
        strike(At::Alone).await;
        let urgent = say(&world, "bob", "urgent 1", Priority::High).await;
        waiting(&world, 1).await;
        strike(At::Waiting).await;
        waiting(&world, 1).await;
        gate.add_permits(1);
        rounds_begun(&order, 4).await;
        waiting(&world, 1).await;
        strike(At::Parked).await;
        gate.add_permits(1);
        rounds_begun(&order, 5).await;
        strike(At::GoneOn).await;
        gate.add_permits(10);
        ended(&world, "ann", &long).await;
        ended(&world, "bob", &urgent).await;
        assert_eq!(told(&order), ["long", "long", "long", "urgent", "long", "long"], "killed {moment:?}");
        assert_eq!(rounds_of(&world, "ann", &long).await, [1, 2, 3, 4, 5], "killed {moment:?}");
        world.kernel.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_normal_task_parks_for_a_high_one_and_goes_on_though_the_process_is_killed() {
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
            // The round whose reply nobody heard begins again.
            rounds_begun(&order, 4).await;
        }
        let urgent = say(&world, "bob", "urgent 1", Priority::High).await;
        waiting(&world, 1).await;
        let mut begun = told(&order).len();
        // Not all actors of a process that is killed die at the same instant: the slot of one that is dead may go to another that
        // is about to die. Such a round is cut off, and counts for nothing.
        let mut cut = 0..0;
        if moment == At::Waiting {
            world.kernel.crash().await;
            cut = begun..told(&order).len();
            begun = cut.end;
            world = parts.start().await;
            // Nobody has the slot: whoever is back first takes it, and after that round at the latest it is the HIGH one's.
            rounds_begun(&order, begun + 1).await;
            waiting(&world, 1).await;
        } else {
            gate.add_permits(1);
            rounds_begun(&order, begun + 1).await;
            waiting(&world, 1).await;
        }
        begun += 1;
        let is_next = moment == At::Waiting || told(&order).last().is_some_and(|name| name == "urgent");
        assert!(is_next, "killed {moment:?}: {:?}", told(&order));
        if moment == At::Parked {
            let before = told(&order).len();
            world.kernel.crash().await;
            cut = before..told(&order).len();
            world = parts.start().await;
            begun = cut.end + 1;
            // Here too whoever is back first takes the slot, for one round.
            rounds_begun(&order, begun).await;
            waiting(&world, 1).await;
        }
        gate.add_permits(1);
        rounds_begun(&order, begun + 1).await;
        if moment == At::GoneOn {
            ended(&world, "bob", &urgent).await;
            world.kernel.crash().await;
            world = parts.start().await;
            rounds_begun(&order, begun + 2).await;
        }
        gate.add_permits(10);
        ended(&world, "ann", &long).await;
        ended(&world, "bob", &urgent).await;
        let mut seen = told(&order);
        seen.drain(cut);
        let wanted: &[&str] = match moment {
            At::Waiting if seen[3] == "long" => &["long", "long", "long", "long", "urgent", "long", "long"],
            At::Parked if seen[4] == "long" => &["long", "long", "long", "urgent", "long", "urgent", "long"],
            At::Alone => &["long", "long", "long", "long", "urgent", "long", "long"],
            At::Waiting => &["long", "long", "long", "urgent", "long", "long", "long"],
            At::Parked => &["long", "long", "long", "urgent", "urgent", "long", "long"],
            At::GoneOn => &["long", "long", "long", "urgent", "long", "long", "long"],
        };
        assert_eq!(seen, wanted, "killed {moment:?}");
        assert_eq!(rounds_of(&world, "ann", &long).await, [1, 2, 3, 4, 5], "killed {moment:?}");
        assert_eq!(rounds_of(&world, "bob", &urgent).await, [1], "killed {moment:?}");
        world.kernel.stop().await;
    }
}

/// A slot, a gate before every reply, and a skill between the rounds of who speaks that takes its time.
fn spoken() -> (WorldParts, Order, Arc<tokio::sync::Semaphore>) {
    let order: Order = Arc::default();
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let heard = order.clone();
    let model = ScriptedModel::new(move |request, _| {
        let mut users = request.messages.iter().filter_map(|m| match m {
            Message::User { text, .. } => Some(text.clone()),
            _ => None,
        });
        let name = users.next().unwrap_or_default();
        heard.lock().expect("not poisoned").push(name.clone());
        let is_called = request.messages.iter().any(|m| matches!(m, Message::Tool { .. }));
        Ok(match (name.as_str(), is_called) {
            ("voice", false) => calls([("use_skill", json!({"skill": "test.look", "arguments": {"what": "x"}}))]),
            _ => says(format!("{name} is done: {}", last_text(request))),
        })
    });
    let mut parts = WorldParts::with_model(Arc::new(Gated { model, gate: gate.clone() }));
    parts.skills = Arc::new(FakeSkills::new(|_| Deed::Slow(Duration::from_millis(300), Outcome::success("seen"))));
    parts.slots = 1;
    parts.limits.mode = Mode::SingleLoop;
    // How long a machine takes for the test is not what it is about.
    parts.limits.deadlines.realtime = Deadline { soft_ms: 60_000, hard_ms: 60_000 };
    (parts, order, gate)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_background_round_begins_while_somebody_speaks_though_the_scheduler_is_killed_each_time() {
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
        let voice = world.kernel.submit(voice).await.expect("taken");
        assert_eq!(voice.priority, Priority::Realtime);
        waiting(&world, 3).await;
        // It waits for the round in flight.
        if kills == 1 {
            kill(&world, "/scheduler").await;
        }
        assert_eq!(told(&order).len(), 1);
        gate.add_permits(1);
        rounds_begun(&order, 2).await;
        // It runs its first round.
        if kills == 2 {
            kill(&world, "/scheduler").await;
        }
        gate.add_permits(1);
        eventually("its skill runs", async || (parts.skills.count("test.look") == 1).then_some(())).await;
        // It is between two rounds: the slot is free, and not for others.
        if kills == 3 {
            kill(&world, "/scheduler").await;
        }
        rounds_begun(&order, 3).await;
        let begun = told(&order);
        assert_eq!(begun[1..], ["voice", "voice"], "killed at {kills}");
        assert!(begun[0].starts_with("background"), "{begun:?}");
        gate.add_permits(10);
        ended(&world, "dan", &voice).await;
        for (who, said) in ["ann", "bob", "cid"].into_iter().zip(&background) {
            ended(&world, who, said).await;
        }
        assert_eq!(told(&order).len(), 5, "no round twice: {:?}", told(&order));
        world.kernel.stop().await;
    }
}
