//! A hook outside the kernel that answers as a test determines.

use std::sync::Arc;

use annie_core::{
    event::HookAnswer,
    hooks::{Conditions, HookPoint, HookQuestion, OnFailure, OutsideHook},
    ports::{Fut, HookRunner},
};
use parking_lot::Mutex;

/// The answer to a question, or the reason why there is none. `None` never answers.
pub type FakeAnswer = Option<Result<HookAnswer, String>>;

type Answers = Box<dyn Fn(&HookQuestion) -> FakeAnswer + Send + Sync>;

/// Answers by a function, and notes every question.
pub struct FakeHook {
    answers: Answers,
    asked: Mutex<Vec<HookQuestion>>,
}

impl FakeHook {
    /// A hook that answers by this function.
    #[must_use]
    pub fn new(answers: impl Fn(&HookQuestion) -> FakeAnswer + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { answers: Box::new(answers), asked: Mutex::new(Vec::new()) })
    }

    /// A hook without objections.
    #[must_use]
    pub fn continuing() -> Arc<Self> {
        Self::new(|_| Some(Ok(HookAnswer::Continue)))
    }

    /// All questions so far, in order.
    #[must_use]
    pub fn asked(&self) -> Vec<HookQuestion> {
        self.asked.lock().clone()
    }

    /// This hook under a name, before skills that match a pattern. It has 200 ms for each answer.
    #[must_use]
    pub fn before_skill(self: &Arc<Self>, name: &str, pattern: &str, on_failure: OnFailure) -> OutsideHook {
        let when = Conditions { skills: vec![pattern.to_owned()], ..Conditions::default() };
        let runner: Arc<dyn HookRunner> = self.clone();
        OutsideHook { name: name.to_owned(), point: HookPoint::BeforeSkill, when, on_failure, ms_max: 200, runner }
    }
}

impl HookRunner for FakeHook {
    fn ask<'a>(&'a self, question: &'a HookQuestion) -> Fut<'a, Result<HookAnswer, String>> {
        self.asked.lock().push(question.clone());
        match (self.answers)(question) {
            Some(answer) => Box::pin(std::future::ready(answer)),
            None => Box::pin(std::future::pending::<Result<HookAnswer, String>>()),
        }
    }
}
