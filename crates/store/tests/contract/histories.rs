//! Every short history of two owners and a front end on one conversation, judged by the store and by a small model of it. It
//! covers what the tests by example leave out: all orders.

use std::sync::Arc;

use annie_core::{
    event::Scope,
    ids::{ConversationId, Epoch, IntentId, Seq, TaskId},
    outcome::Outcome,
    ports::{Append, AppendError, Appended, IntentState, Store},
    skill::Effect,
};

use crate::make::*;

/// Number of steps of a history after its beginning.
const STEPS: u32 = 4;
/// Number of concurrent histories; their steps with the same index share a batch.
const AT_ONCE: usize = 512;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Step {
    Claim(usize),
    Start(usize),
    Finish(usize),
    /// Both owners start the run in one batch, this one first.
    Race(usize),
    Handle,
}

const ALPHABET: [Step; 9] = [
    Step::Claim(0),
    Step::Claim(1),
    Step::Start(0),
    Step::Start(1),
    Step::Finish(0),
    Step::Finish(1),
    Step::Race(0),
    Step::Race(1),
    Step::Handle,
];

/// The expected state of the store, and the epoch that each owner believes to have.
struct Model {
    number: u128,
    steps: Vec<Step>,
    epoch: u64,
    known: [u64; 2],
    length: u64,
    intent: IntentState,
}

/// One append and its expected answer.
type Expected = (Append, Result<Appended, AppendError>);

impl Model {
    fn new(number: usize, count: usize) -> Self {
        let mut rest = number;
        let steps = (0..count).map(|_| {
            let step = ALPHABET[rest % ALPHABET.len()];
            rest /= ALPHABET.len();
            step
        });
        let steps = steps.collect();
        Self { number: number as u128 + 1, steps, epoch: 1, known: [1, 0], length: 2, intent: IntentState::Planned }
    }

    fn conversation(&self) -> ConversationId {
        conversation(self.number)
    }

    fn task(&self) -> TaskId {
        task(self.number)
    }

    fn intent(&self) -> IntentId {
        intent(self.number)
    }

    fn beginning(&self) -> Append {
        let message = received(self.task(), &self.task().to_string(), "Hello", 1);
        inbox(self.conversation(), "ann", vec![message])
    }

    fn plan(&self) -> Append {
        let plan = plans(self.task(), vec![planned(self.intent(), "mail.send", Effect::Once)], 2);
        owned(self.conversation(), "ann", Epoch(1), vec![plan])
    }

    fn stored(&mut self) -> Result<Appended, AppendError> {
        self.length += 1;
        Ok(Appended { first: Seq(self.length) })
    }

    fn start(&mut self, owner: usize) -> Expected {
        let event = run_started(self.task(), self.intent(), 3);
        let append = owned(self.conversation(), "ann", Epoch(self.known[owner]), vec![event]);
        let answer = if self.known[owner] != self.epoch {
            Err(AppendError::Fenced)
        } else if self.intent == IntentState::Planned {
            self.intent = IntentState::Started;
            self.stored()
        } else {
            Err(AppendError::AlreadyStarted(self.intent()))
        };
        (append, answer)
    }

    fn finish(&mut self, owner: usize) -> Expected {
        let event = run_finished(self.task(), self.intent(), Outcome::success("sent"), 4);
        let append = owned(self.conversation(), "ann", Epoch(self.known[owner]), vec![event]);
        if self.known[owner] != self.epoch {
            return (append, Err(AppendError::Fenced));
        }
        self.intent = IntentState::Done;
        let answer = self.stored();
        (append, answer)
    }

    fn handle(&mut self, step_index: usize) -> Expected {
        let other = task((step_index as u128 + 1) << 32 | self.number);
        let message = received(other, &other.to_string(), "And?", 5);
        let append = inbox(self.conversation(), "ann", vec![message]);
        let answer = self.stored();
        (append, answer)
    }

    /// The appends of a step for the next batch. A claim is not an append.
    fn step(&mut self, step_index: usize) -> Vec<Expected> {
        match self.steps[step_index] {
            Step::Claim(_) => Vec::new(),
            Step::Start(owner) => vec![self.start(owner)],
            Step::Finish(owner) => vec![self.finish(owner)],
            Step::Race(first) => vec![self.start(first), self.start(1 - first)],
            Step::Handle => vec![self.handle(step_index)],
        }
    }

    async fn claim(&mut self, store: &dyn Store, owner: usize) {
        let claim = store.claim(self.conversation(), node(owner as u128)).await.unwrap().unwrap();
        self.epoch += 1;
        self.known[owner] = self.epoch;
        assert_eq!((claim.epoch, claim.last), (Epoch(self.epoch), Seq(self.length)), "{:?}", self.steps);
    }

    async fn check_end(&self, store: &dyn Store) {
        let row = store.conversation(Scope::Operator, self.conversation()).await.unwrap().unwrap();
        let intents = store.intents(self.task()).await.unwrap();
        let now = (row.epoch, length(store, self.conversation()).await as u64, intents[0].state);
        assert_eq!(now, (Epoch(self.epoch), self.length, self.intent), "{:?}", self.steps);
    }
}

async fn all_stored(store: &dyn Store, batch: Vec<Append>) {
    let refused = store.commit(batch).await.into_iter().find_map(Result::err);
    assert_eq!(refused, None);
}

async fn run_histories(store: &dyn Store, models: &mut [Model]) {
    all_stored(store, models.iter().map(Model::beginning).collect()).await;
    for model in models.iter() {
        store.claim(model.conversation(), node(0)).await.unwrap();
    }
    all_stored(store, models.iter().map(Model::plan).collect()).await;
    for step_index in 0..STEPS as usize {
        let mut expected = Vec::new();
        for (at, model) in models.iter_mut().enumerate() {
            if let Step::Claim(owner) = model.steps[step_index] {
                model.claim(store, owner).await;
            }
            expected.extend(model.step(step_index).into_iter().map(|e| (at, e)));
        }
        let (batch, wanted): (Vec<_>, Vec<_>) =
            expected.into_iter().map(|(at, (append, answer))| (append, (at, answer))).unzip();
        let answers = store.commit(batch).await;
        assert_eq!(answers.len(), wanted.len());
        for (answer, (at, wanted)) in answers.into_iter().zip(wanted) {
            assert_eq!(answer, wanted, "step {step_index} of {:?}", models[at].steps);
        }
    }
    for model in models.iter() {
        model.check_end(store).await;
    }
}

pub async fn store_agrees_with_the_model_on_every_short_history_of_two_owners(store: Arc<dyn Store>) {
    let mut models: Vec<Model> =
        (0..ALPHABET.len().pow(STEPS)).map(|number| Model::new(number, STEPS as usize)).collect();
    for together in models.chunks_mut(AT_ONCE) {
        run_histories(&*store, together).await;
    }
}
