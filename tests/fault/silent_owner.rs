//! A message that arrives at a process whose Engine has just lost the conversation to another process, which then falls
//! silent: its user waits for seconds, and not until the longest round could be over.

use std::{sync::Arc, time::Duration};

use annie_core::ids::{ConversationId, Epoch};
use annie_store::MemoryStore;
use annie_testkit::scripted_model::ScriptedModel;
use tokio::sync::Semaphore;

use super::two_processes::{epoch_of, one_of_two};
use crate::world::{World, check_log, come_back_after, eventually};

/// How long the watch takes at most for such a message: its patience, and a second each for two hints and a look.
const SOON: Duration = Duration::from_millis(13_000);
/// Longer than the watch's patience with an owner of which nothing is heard.
const LONG_ROUND: Duration = Duration::from_millis(25_000);

/// The same store, as a process has it that hears of another one when a permit is added.
fn hearing(store: &MemoryStore, hints: &Arc<Semaphore>) -> MemoryStore {
    let hints = hints.clone();
    store.with_wakes(Arc::new(move || {
        let hints = hints.clone();
        Box::pin(async move { hints.acquire().await.expect("it is open").forget() })
    }))
}

async fn until_begun(world: &World, conversation: ConversationId, turns: usize) {
    eventually("the round runs", async || {
        let kinds = world.kinds(conversation).await;
        (kinds.iter().filter(|kind| kind.ends_with("turn_started")).count() == turns).then_some(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn message_to_an_engine_that_lost_its_conversation_is_answered_soon_though_the_owner_is_silent() {
    for is_within_a_round in [false, true] {
        let (store, hints) = (MemoryStore::new(), Arc::new(Semaphore::new(0)));
        let model = ScriptedModel::saying("here").hanging_when(move |_, call| is_within_a_round && call == 1);
        let here = one_of_two(7, model, hearing(&store, &hints), |_| {}).await;
        // Stands still within its round and hears nothing, as a process that is frozen.
        let silent = ScriptedModel::saying("never").hanging_when(|_, _| true);
        let owner = one_of_two(8, silent, store.clone(), |_| {}).await;
        let first = here.say("0").await;
        here.answer(&first).await;
        let conversation = first.conversation;
        let mut said = Vec::new();
        if is_within_a_round {
            // Its Engine stores nothing before this round is over, and so does not find out that it is fenced.
            said.push(here.say_in(conversation, "1").await);
            until_begun(&here, conversation, 2).await;
        }
        said.push(owner.say_in(conversation, "2").await);
        eventually("the other process claims it", async || {
            (epoch_of(&store, conversation).await == Epoch(2)).then_some(())
        })
        .await;
        until_begun(&owner, conversation, 2).await;
        said.push(here.say_in(conversation, "3").await);
        hints.add_permits(1);
        let answers = async {
            for said in &said {
                assert_eq!(here.answer(said).await, "here");
            }
        };
        let answers = tokio::time::timeout(SOON, answers).await;
        answers.unwrap_or_else(|_| panic!("it waits, within a round: {is_within_a_round}"));
        check_log(&here.log(conversation).await);
        assert_eq!(epoch_of(&store, conversation).await, Epoch(3), "it is claimed once");
        for world in [here, owner] {
            world.kernel.crash().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn message_to_an_engine_that_lost_its_conversation_is_left_to_an_owner_that_is_heard_elsewhere() {
    let (store, hints) = (MemoryStore::new(), Arc::new(Semaphore::new(0)));
    let here = one_of_two(7, ScriptedModel::saying("here"), store.clone(), |_| {}).await;
    let slow = ScriptedModel::saying("there").taking(LONG_ROUND);
    let owner = one_of_two(8, slow, hearing(&store, &hints), |_| {}).await;
    let first = here.say("0").await;
    here.answer(&first).await;
    let conversation = first.conversation;
    let second = owner.say_in(conversation, "1").await;
    until_begun(&owner, conversation, 2).await;
    let third = here.say_in(conversation, "2").await;
    let elsewhere = owner.say("other").await;
    for n in 0..6 {
        come_back_after(4_000).await;
        owner.say_in(elsewhere.conversation, &n.to_string()).await;
        assert_eq!(epoch_of(&store, conversation).await, Epoch(2), "its round is cut off");
    }
    hints.add_permits(1);
    for said in [&second, &third] {
        assert_eq!(owner.answer(said).await, "there");
    }
    assert_eq!(epoch_of(&store, conversation).await, Epoch(2));
    for world in [here, owner] {
        world.kernel.crash().await;
    }
}
