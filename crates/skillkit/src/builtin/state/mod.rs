//! State over the `Documents` port: values under keys whose prefix says how long they live (ADR 0059). Values of a turn are in the
//! memory of this process only.

pub(crate) mod delete;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod set;
pub(crate) mod temp;

use annie_core::{
    ports::{Documents, SkillCall, StoreError},
    state::{STATE, StateAuthor, StateEntry, StateError, StateKey, StatePlace, StateScope, StateText, shown},
};

use crate::{error::SkillError, handler::Ctx, runner::Tools};

/// The key of a call.
fn key(text: &str) -> Result<StateKey, SkillError> {
    StateKey::parse(text).map_err(|error| refused("key", &error))
}

fn refused(flag: &str, error: &StateError) -> SkillError {
    SkillError::argument(flag, format!("does not fit: {error}"))
}

fn missing(key: &StateKey) -> SkillError {
    SkillError::NotFound { what: format!("{key} is not set."), near: vec!["state.list".to_owned()] }
}

/// The place of the values of a scope, for the user and the conversation of a call.
fn place(scope: StateScope, call: &SkillCall) -> Result<StatePlace, SkillError> {
    StatePlace::of(scope, &call.user, Some(call.conversation)).map_err(|error| refused("key", &error))
}

/// What a call writes as.
fn author(ctx: &Ctx) -> StateAuthor {
    let SkillCall { agent, skill, origin, intent, now, .. } = &ctx.call;
    StateAuthor { by: format!("{skill} by {agent}"), origin: origin.clone(), intent: *intent, at: *now }
}

/// All values of a place, by key.
async fn entries(documents: &dyn Documents, place: &StatePlace) -> Result<Vec<StateEntry>, StoreError> {
    let hits = documents.find_documents(place.user.clone(), &STATE, place.all()).await?;
    let found: Result<Vec<Option<StateEntry>>, StoreError> =
        hits.iter().map(|hit| StateEntry::of(&hit.document)).collect();
    let mut found: Vec<StateEntry> = found?.into_iter().flatten().collect();
    found.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(found)
}

/// The text of a value; `None` if it is not set.
pub(crate) async fn value(tools: &Tools, call: &SkillCall, key: &StateKey) -> Result<Option<StateText>, SkillError> {
    if key.scope == StateScope::Temp {
        return Ok(tools.temp.get(call.task, key));
    }
    let found = entry(&*tools.documents, call, key).await?;
    Ok(found.map(|found| StateText { text: shown(&found.value), origin: found.origin }))
}

/// One value that is stored; `None` if it is not set.
async fn entry(documents: &dyn Documents, call: &SkillCall, key: &StateKey) -> Result<Option<StateEntry>, SkillError> {
    let place = place(key.scope, call)?;
    let hits = documents.find_documents(place.user.clone(), &STATE, place.one(key)).await?;
    let found = hits.first().map(|hit| StateEntry::of(&hit.document)).transpose()?;
    Ok(found.flatten())
}
