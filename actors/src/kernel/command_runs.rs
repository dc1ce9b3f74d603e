//! The records of runs by command that must not be repeated. No conversation has them, so each is a document of its user: it is
//! stored before the run begins, and gets the outcome when the run has ended. A repetition under the same key finds it.

use std::sync::Arc;

use annie_core::{
    event::PlannedSkill,
    ids::{AgentId, IntentId, TaskId, UserId},
    outcome::Outcome,
    ports::{Decide, Document, DocumentChange, DocumentWrite, Namespace, Seen, StoreError},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::wiring::Wiring;

/// The runs. Stored documents have the fields of [`Record`]: an old one must stay readable.
static RUNS: Namespace = Namespace::named("skillruns");

/// A stored run.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    /// Tells the run that stored the document from its repetitions.
    run: String,
    skill: String,
    arguments: Value,
    /// The front end through which a person asked for it.
    source: String,
    intent: IntentId,
    /// Absent while the run is under way, and if it was interrupted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    outcome: Option<Outcome>,
}

/// A run that a person asked for expressly.
pub(super) struct CommandRun<'a> {
    pub user: &'a UserId,
    pub source: &'a str,
    /// The id in place of a task, which the key of the command gives.
    pub task: TaskId,
    pub planned: &'a PlannedSkill,
}

/// What is known when a run is to begin.
pub(super) enum Begun {
    /// It begins now. Its record has this number.
    Now {
        /// The number of the document.
        number: u64,
    },
    /// It began before, with this outcome.
    Before(Box<Outcome>),
}

impl CommandRun<'_> {
    /// Stores that the run begins, unless it began before.
    pub(super) async fn begin(&self, wiring: &Wiring) -> Result<Begun, StoreError> {
        let run = wiring.env.uuid().simple().to_string();
        let record = Record {
            run: run.clone(),
            skill: self.planned.skill.clone(),
            arguments: self.planned.arguments.clone(),
            source: self.source.to_owned(),
            intent: self.planned.intent,
            outcome: None,
        };
        let body = json!(record);
        let decide: Decide = Arc::new(move |_: &[Document]| Ok(DocumentChange::Insert(body.clone())));
        let (user, intent, at) = (self.user.clone(), self.planned.intent, wiring.env.now());
        let write = DocumentWrite { user, namespace: &RUNS, intent, seen: Seen::Nothing, decide, at };
        let document = wiring.documents.write_document(write).await?.document;
        let stored = document.and_then(|found| Some((found.number, Record::deserialize(&found.body).ok()?)));
        Ok(match stored {
            Some((number, record)) if record.run == run => Begun::Now { number },
            Some((_, Record { outcome: Some(outcome), .. })) => Begun::Before(Box::new(outcome)),
            // The user's data were deleted since, or the run has not ended here.
            Some(_) | None => Begun::Before(Box::new(Outcome::unknown(
                format!(
                    "{} was begun under this key before, and its outcome is not known. It was not run again. Its effect may or may \
                     not have happened.",
                    self.planned.skill
                ),
                json!({"intent": intent}),
            ))),
        })
    }

    /// Stores the outcome. If that fails, a repetition is told that the outcome is not known.
    pub(super) async fn end(&self, wiring: &Wiring, number: u64, outcome: &Outcome) {
        let outcome = json!(outcome);
        let decide: Decide = Arc::new(move |seen: &[Document]| {
            Ok(match seen.first() {
                Some(Document { number, body, .. }) => {
                    let mut body = body.clone();
                    body["outcome"] = outcome.clone();
                    DocumentChange::Replace { number: *number, body }
                }
                None => DocumentChange::Keep,
            })
        });
        let key = format!("end of {}", self.planned.intent);
        let intent = IntentId::for_call(self.task, &AgentId::orchestrator(), &key);
        let (user, at) = (self.user.clone(), wiring.env.now());
        let write = DocumentWrite { user, namespace: &RUNS, intent, seen: Seen::Number(number), decide, at };
        if let Err(error) = wiring.documents.write_document(write).await {
            tracing::warn!(%error, skill = self.planned.skill, "the outcome of a run by command was not stored");
        }
    }
}
