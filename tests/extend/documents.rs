//! Skills of an extension with data of their own: contacts, stored as documents of a namespace.

use std::sync::Arc;

use annie_core::{
    event::{EventBody, Mode},
    ids::{AgentId, IntentId, TaskId, UserId},
    message::Message,
    outcome::{Outcome, Status},
    ports::{
        Decide, Document, DocumentChange, DocumentQuery, DocumentWrite, Documents, FaultAction, Find, Fut, Namespace,
        Seen, SkillCall, SkillSource, StoreError,
    },
    skill::{Effect, SkillSet},
    time::Micros,
};
use annie_testkit::{
    faults::FaultPlan,
    scripted_model::{calls, says},
    skills::skill,
};
use serde_json::json;

use crate::world::{World, WorldParts, ann, check_log, last_text};

/// Contacts are sorted by name and found by a part of it.
static CONTACTS: Namespace = Namespace { texts: &["name"], contents: &["name"], ..Namespace::named("contacts") };

/// The skills `contacts.add` and `contacts.find`.
struct Contacts(Arc<dyn Documents>);

/// Adds a contact, or replaces the one of the same name. The same intent again changes nothing.
async fn add(documents: &dyn Documents, user: UserId, intent: IntentId, name: &str) -> Result<Document, StoreError> {
    let named =
        DocumentQuery { texts: [vec![name.to_owned()], Vec::new(), Vec::new()], limit: 1, ..DocumentQuery::default() };
    let body = json!({"name": name});
    let decide: Decide = Arc::new(move |seen: &[Document]| {
        Ok(match seen.first() {
            Some(known) => DocumentChange::Replace { number: known.number, body: body.clone() },
            None => DocumentChange::Insert(body.clone()),
        })
    });
    let (namespace, seen, at) = (&CONTACTS, Seen::Query(named), Micros(1));
    let written = documents.write_document(DocumentWrite { user, namespace, intent, seen, decide, at }).await?;
    Ok(written.document.expect("one is added or replaced"))
}

impl Contacts {
    async fn run_one(&self, call: SkillCall) -> Result<String, StoreError> {
        let what = call.arguments["what"].as_str().unwrap_or_default();
        if call.skill == "contacts.add" {
            let contact = add(&*self.0, call.user, call.intent, what).await?;
            return Ok(format!("Contact {} is {}", contact.number, contact.body["name"]));
        }
        let query = DocumentQuery { find: Find::Containing(what.to_owned()), limit: 9, ..DocumentQuery::default() };
        let hits = self.0.find_documents(call.user, &CONTACTS, query).await?;
        let names: Vec<&str> = hits.iter().filter_map(|hit| hit.document.body["name"].as_str()).collect();
        Ok(format!("Found: {}", names.join(", ")))
    }
}

impl SkillSource for Contacts {
    fn name(&self) -> &str {
        "contacts"
    }

    fn specs(&self) -> Result<Arc<SkillSet>, String> {
        let own = [skill("contacts.add", Effect::Idempotent, false), skill("contacts.find", Effect::Read, false)];
        Ok(Arc::new(SkillSet::new(own, [("contacts".to_owned(), "People and their names.".to_owned())], 1)))
    }

    fn run(&self, call: SkillCall) -> Fut<'_, Outcome> {
        Box::pin(async move {
            let ran = self.run_one(call).await;
            ran.map_or_else(|error| Outcome::transient("store", error.to_string()), Outcome::success)
        })
    }
}

/// Parts with the contacts and a model that calls the skill of a message such as `contacts.add: Bob`.
fn parts() -> WorldParts {
    let mut parts = WorldParts::new(|request, _| {
        if request.messages.iter().any(|message| matches!(message, Message::Tool { .. })) {
            return Ok(says("over"));
        }
        let text = last_text(request);
        let (skill, what) = text.split_once(": ").unwrap_or_default();
        Ok(calls([("use_skill", json!({"skill": skill, "arguments": {"what": what}}))]))
    });
    parts.limits.mode = Mode::SingleLoop;
    // One of these tests uses virtual time. The watchdog uses real time, so it is switched off.
    parts.limits.stuck_ms_max = 0;
    let contacts: Arc<dyn SkillSource> = Arc::new(Contacts(parts.store.clone()));
    parts.sources.push(contacts);
    parts
}

async fn outcome_of(world: &World, text: &str) -> Outcome {
    let sent = world.say(text).await;
    world.answer(&sent).await;
    let log = world.log(sent.conversation).await;
    check_log(&log);
    let outcome = log.iter().find_map(|event| {
        let EventBody::SkillFinished { outcome, .. } = &event.body else { return None };
        Some(outcome.clone())
    });
    outcome.expect("the skill was called")
}

/// The namespaces and names in a user's export.
async fn exported(parts: &WorldParts, user: UserId) -> Vec<(String, String)> {
    let exported = parts.store.export_documents(user, None, 9).await.expect("the store works");
    let name = |document: &Document| document.body["name"].as_str().unwrap_or_default().to_owned();
    exported.into_iter().map(|one| (one.namespace, name(&one.document))).collect()
}

fn contact(name: &str) -> (String, String) {
    ("contacts".to_owned(), name.to_owned())
}

#[tokio::test]
async fn documents_of_extension_are_stored_per_user_exported_and_deleted() {
    let parts = parts();
    let bob = UserId::new("bob").expect("a user id");
    let intent = IntentId::for_call(TaskId::from_uuid(Default::default()), &AgentId::orchestrator(), "bobs");
    add(&*parts.store, bob.clone(), intent, "Zoe of Bob").await.expect("the store works");
    let world = parts.start().await;
    let added = outcome_of(&world, "contacts.add: Zoe").await;
    assert_eq!((added.status, added.data.as_str()), (Status::Success, "Contact 1 is \"Zoe\""));
    assert_eq!(outcome_of(&world, "contacts.add: Adam").await.data, "Contact 2 is \"Adam\"");
    assert_eq!(outcome_of(&world, "contacts.add: Zoe").await.data, "Contact 1 is \"Zoe\"", "the name is known");
    assert_eq!(outcome_of(&world, "contacts.find: zo").await.data, "Found: Zoe");
    assert_eq!(outcome_of(&world, "contacts.find: a").await.data, "Found: Adam");
    assert_eq!(exported(&parts, ann()).await, [contact("Zoe"), contact("Adam")]);
    assert_eq!(parts.store.delete_documents(ann()).await.expect("the store works"), 2);
    assert_eq!(outcome_of(&world, "contacts.find: zo").await.data, "Found: ");
    assert_eq!(exported(&parts, bob).await, [contact("Zoe of Bob")]);
    world.kernel.stop().await;
}

#[tokio::test(start_paused = true)]
async fn documents_of_extension_are_written_once_if_the_run_is_repeated() {
    let plan = Arc::new(FaultPlan::once_at("run", "ran", 0, FaultAction::Panic));
    let parts = parts().faults(plan.clone());
    let world = parts.start().await;
    outcome_of(&world, "contacts.add: Zoe").await;
    assert_eq!(plan.injected().len(), 1, "the breaker ended after the write and before its receipt");
    let intent = IntentId::for_call(TaskId::from_uuid(Default::default()), &AgentId::orchestrator(), "again");
    for _ in 0..2 {
        let adam = add(&*parts.store, ann(), intent, "Adam").await.expect("the store works");
        assert_eq!(adam.number, 2, "the repeated run of the skill added no second Zoe");
    }
    assert_eq!(exported(&parts, ann()).await, [contact("Zoe"), contact("Adam")]);
    world.kernel.stop().await;
}
