//! Intents are stored before effects, receipts after them.

use std::sync::Arc;

use annie_core::{
    ids::{IntentId, Seq},
    outcome::Outcome,
    ports::{AppendError, IntentRow, IntentState, Store, StoreErrorKind},
    skill::Effect,
};
use serde_json::Value;

use crate::make::*;

async fn row(store: &dyn Store, id: IntentId) -> IntentRow {
    store.intents(task(1)).await.unwrap().into_iter().find(|row| row.id == id).unwrap()
}

pub async fn once_run_starts_exactly_once(store: Arc<dyn Store>) {
    let c = conversation(1);
    let epoch = opened(&*store, c, "ann", task(1), 1).await;
    let plan = plans(task(1), vec![planned(intent(1), "mail.send", Effect::Once)], 2);
    commit(&*store, owned(c, "ann", epoch, vec![plan])).await.unwrap();
    let wanted = IntentRow {
        id: intent(1),
        task: task(1),
        skill: "mail.send".into(),
        effect: Effect::Once,
        state: IntentState::Planned,
        attempts: 0,
    };
    assert_eq!(row(&*store, intent(1)).await, wanted);
    let start = || owned(c, "ann", epoch, vec![run_started(task(1), intent(1), 3)]);
    assert!(commit(&*store, start()).await.is_ok());
    assert_eq!(commit(&*store, start()).await, Err(AppendError::AlreadyStarted(intent(1))));
    let after = row(&*store, intent(1)).await;
    assert_eq!((after.state, after.attempts), (IntentState::Started, 1));
    assert_eq!(length(&*store, c).await, 3);
}

pub async fn run_that_ended_with_its_task_has_an_unknown_outcome(store: Arc<dyn Store>) {
    let c = conversation(1);
    let epoch = opened(&*store, c, "ann", task(1), 1).await;
    let runs = (1..=3).map(|n| planned(intent(n), "mail.send", Effect::Once)).collect();
    commit(&*store, owned(c, "ann", epoch, vec![plans(task(1), runs, 2)])).await.unwrap();
    let started = [1, 2].map(|n| run_started(task(1), intent(n), 3));
    commit(&*store, owned(c, "ann", epoch, started.into())).await.unwrap();
    let receipt = run_finished(task(1), intent(1), Outcome::success("sent"), 4);
    commit(&*store, owned(c, "ann", epoch, vec![receipt])).await.unwrap();
    let states = async || store.intents(task(1)).await.unwrap().iter().map(|row| row.state).collect::<Vec<_>>();
    assert_eq!(states().await, [IntentState::Done, IntentState::Started, IntentState::Planned]);
    commit(&*store, owned(c, "ann", epoch, vec![cancelled(task(1), 5)])).await.unwrap();
    assert_eq!(states().await, [IntentState::Done, IntentState::Unknown, IntentState::Planned]);
}

pub async fn idempotent_run_may_start_again_until_its_receipt(store: Arc<dyn Store>) {
    let c = conversation(1);
    let epoch = opened(&*store, c, "ann", task(1), 1).await;
    let plan = plans(task(1), vec![planned(intent(1), "notes.edit", Effect::Idempotent)], 2);
    commit(&*store, owned(c, "ann", epoch, vec![plan])).await.unwrap();
    let start = || owned(c, "ann", epoch, vec![run_started(task(1), intent(1), 3)]);
    for attempts in 1..=3 {
        assert!(commit(&*store, start()).await.is_ok());
        assert_eq!(row(&*store, intent(1)).await.attempts, attempts);
    }
    let receipt = run_finished(task(1), intent(1), Outcome::success("ok"), 4);
    commit(&*store, owned(c, "ann", epoch, vec![receipt])).await.unwrap();
    assert_eq!(commit(&*store, start()).await, Err(AppendError::AlreadyStarted(intent(1))));
    assert_eq!(row(&*store, intent(1)).await.state, IntentState::Done);
}

pub async fn read_run_stores_no_intent(store: Arc<dyn Store>) {
    let c = conversation(1);
    let epoch = opened(&*store, c, "ann", task(1), 1).await;
    let plan = plans(task(1), vec![planned(intent(1), "tasks.search", Effect::Read)], 2);
    let result = run_finished(task(1), intent(1), Outcome::success("none"), 3);
    commit(&*store, owned(c, "ann", epoch, vec![plan, result])).await.unwrap();
    assert_eq!(store.intents(task(1)).await.unwrap(), []);
}

pub async fn refused_start_refuses_its_whole_append(store: Arc<dyn Store>) {
    let c = conversation(1);
    let epoch = opened(&*store, c, "ann", task(1), 1).await;
    let calls = vec![planned(intent(1), "a.b", Effect::Once), planned(intent(2), "a.c", Effect::Once)];
    let events = vec![plans(task(1), calls, 2), run_started(task(1), intent(1), 3)];
    commit(&*store, owned(c, "ann", epoch, events)).await.unwrap();
    let both = vec![run_started(task(1), intent(2), 4), run_started(task(1), intent(1), 4)];
    let refused = commit(&*store, owned(c, "ann", epoch, both)).await;
    assert_eq!(refused, Err(AppendError::AlreadyStarted(intent(1))));
    assert_eq!(row(&*store, intent(2)).await.state, IntentState::Planned);
    let one = owned(c, "ann", epoch, vec![run_started(task(1), intent(2), 5)]);
    assert_eq!(commit(&*store, one).await.unwrap().first, Seq(4));
}

pub async fn receipt_is_final_and_an_unknown_outcome_is_not(store: Arc<dyn Store>) {
    let c = conversation(1);
    let epoch = opened(&*store, c, "ann", task(1), 1).await;
    let plan = plans(task(1), vec![planned(intent(1), "mail.send", Effect::Once)], 2);
    let unknown = || run_finished(task(1), intent(1), Outcome::unknown("lost", Value::Null), 4);
    let events = vec![plan, run_started(task(1), intent(1), 3), unknown()];
    commit(&*store, owned(c, "ann", epoch, events)).await.unwrap();
    assert_eq!(row(&*store, intent(1)).await.state, IntentState::Unknown);
    let again = owned(c, "ann", epoch, vec![run_started(task(1), intent(1), 5)]);
    assert_eq!(commit(&*store, again).await, Err(AppendError::AlreadyStarted(intent(1))));
    let found = run_finished(task(1), intent(1), Outcome::success("it was sent"), 6);
    commit(&*store, owned(c, "ann", epoch, vec![found, unknown()])).await.unwrap();
    assert_eq!(row(&*store, intent(1)).await.state, IntentState::Done);
}

pub async fn intents_are_listed_in_the_order_of_their_plans(store: Arc<dyn Store>) {
    let c = conversation(1);
    let epoch = opened(&*store, c, "ann", task(1), 1).await;
    let calls = |ids: [u128; 2]| ids.map(|n| planned(intent(n), &format!("s.v{n}"), Effect::Once)).to_vec();
    let events =
        vec![plans(task(1), calls([9, 3]), 2), plans(task(1), calls([7, 1]), 2), plans(task(2), calls([2, 9]), 2)];
    commit(&*store, owned(c, "ann", epoch, events)).await.unwrap();
    let ids = async |t| -> Vec<IntentId> { store.intents(t).await.unwrap().iter().map(|row| row.id).collect() };
    assert_eq!(ids(task(1)).await, [9, 3, 7, 1].map(intent));
    assert_eq!(ids(task(2)).await, [intent(2)]);
}

pub async fn run_is_refused_if_it_was_never_planned_or_belongs_to_another_conversation(store: Arc<dyn Store>) {
    let (c, d) = (conversation(1), conversation(2));
    let epoch = opened(&*store, c, "ann", task(1), 1).await;
    let other = opened(&*store, d, "bob", task(2), 1).await;
    let plan = plans(task(1), vec![planned(intent(1), "mail.send", Effect::Once)], 2);
    commit(&*store, owned(c, "ann", epoch, vec![plan])).await.unwrap();
    let never = owned(c, "ann", epoch, vec![run_started(task(1), intent(5), 3)]);
    let foreign = owned(d, "bob", other, vec![run_started(task(2), intent(1), 3)]);
    for append in [never, foreign] {
        let refused = commit(&*store, append).await;
        assert!(matches!(&refused, Err(AppendError::Store(e)) if e.kind == StoreErrorKind::Internal), "{refused:?}");
    }
    let closed = run_finished(task(2), intent(1), Outcome::success("not mine"), 4);
    commit(&*store, owned(d, "bob", other, vec![closed])).await.unwrap();
    assert_eq!(row(&*store, intent(1)).await.state, IntentState::Planned);
}

pub async fn once_run_with_two_starts_in_one_batch_starts_once(store: Arc<dyn Store>) {
    let c = conversation(1);
    let epoch = opened(&*store, c, "ann", task(1), 1).await;
    let plan = plans(task(1), vec![planned(intent(1), "mail.send", Effect::Once)], 2);
    let start = || owned(c, "ann", epoch, vec![run_started(task(1), intent(1), 3)]);
    let answers = store.commit(vec![owned(c, "ann", epoch, vec![plan]), start(), start()]).await;
    assert!(answers[0].is_ok() && answers[1].is_ok());
    assert_eq!(answers[2], Err(AppendError::AlreadyStarted(intent(1))));
}
