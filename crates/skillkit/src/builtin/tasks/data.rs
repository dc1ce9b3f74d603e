//! To-dos as documents: their form, their keys, and the queries of the skills.

use std::sync::Arc;

use annie_core::{
    ids::UserId,
    ports::{
        Decide, Document, DocumentChange, DocumentOrder, DocumentQuery, DocumentWrite, Documents, ExportedDocument,
        Find, NumberRange, Seen, SkillCall, StoreError, StoreErrorKind, TextRange,
    },
    reminder::{Reminder, at_due},
    skill::ORIGIN_TAG,
    time::Micros,
};
use chrono::NaiveDateTime;
use chrono_tz::Tz;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::trash;

/// The most parts of a to-do that an answer names.
const PARTS_MAX: u32 = 20;

/// The to-dos of all users.
pub use annie_core::reminder::TODOS as TASKS;

/// Statuses of a to-do that still has to be done.
pub(crate) const OPEN: &[Status] = &[Status::Todo, Status::InProgress, Status::Blocked];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Priority {
    Low,
    Medium,
    High,
    Critical,
}

impl Priority {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }

    /// Priorities are stored as numbers, so that documents can be sorted by them.
    const fn level(self) -> u8 {
        match self {
            Self::Low => 0,
            Self::Medium => 1,
            Self::High => 2,
            Self::Critical => 3,
        }
    }

    const fn of(level: u8) -> Option<Self> {
        match level {
            0 => Some(Self::Low),
            1 => Some(Self::Medium),
            2 => Some(Self::High),
            3 => Some(Self::Critical),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    Todo,
    InProgress,
    Blocked,
    Done,
    Cancelled,
}

impl Status {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Todo => "todo",
            Self::InProgress => "in_progress",
            Self::Blocked => "blocked",
            Self::Done => "done",
            Self::Cancelled => "cancelled",
        }
    }

    pub(crate) fn is_open(self) -> bool {
        OPEN.contains(&self)
    }
}

/// A user's own task. In code such a task is called a to-do, because a task is what the scheduler orders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Todo {
    pub(crate) number: u64,
    pub(crate) title: String,
    pub(crate) description: String,
    pub(crate) status: Status,
    pub(crate) priority: Priority,
    /// The due time in the user's time zone: `2026-02-28` or `2026-02-28T14:00`.
    pub(crate) due: Option<String>,
    pub(crate) tags: Vec<String>,
    /// The number of the to-do that it is a part of.
    pub(crate) parent: Option<u64>,
    /// When the user is reminded of it.
    pub(crate) remind_at: Option<Micros>,
    /// The reminder, also after it was sent or cancelled.
    pub(crate) reminder: Option<Reminder>,
    pub(crate) created_at: Micros,
    pub(crate) updated_at: Micros,
}

/// The body of a document.
#[derive(Deserialize)]
struct Body {
    title: String,
    description: String,
    status: Status,
    priority: u8,
    due: Option<String>,
    tags: Vec<String>,
    /// Only older documents have this form of `part_of`.
    #[serde(default)]
    parent: Option<u64>,
    /// A text, because it is a key, and number keys are the priority and the reminder.
    #[serde(default)]
    part_of: Option<String>,
    #[serde(default)]
    remind_at: Option<Micros>,
    #[serde(default)]
    reminder: Option<Reminder>,
}

impl Todo {
    fn of(document: &Document) -> Result<Self, StoreError> {
        let Body { title, description, status, priority, due, tags, parent, part_of, remind_at, reminder } =
            Body::deserialize(&document.body).map_err(corrupt)?;
        let priority = Priority::of(priority).ok_or_else(|| corrupt(format!("unknown priority {priority}")))?;
        let part_of = part_of.map(|whole| whole.parse().map_err(corrupt)).transpose()?;
        let parent = part_of.or(parent);
        let Document { number, created_at, updated_at, .. } = *document;
        Ok(Self {
            number,
            title,
            description,
            status,
            priority,
            due,
            tags,
            parent,
            remind_at,
            reminder,
            created_at,
            updated_at,
        })
    }

    fn body(&self) -> Value {
        let Self { title, description, priority, due, tags, parent, remind_at, .. } = self.clone();
        NewTodo { title, description, priority, due, tags, parent, remind_at }
            .body_with(self.status, self.reminder.as_ref())
    }
}

fn corrupt(error: impl ToString) -> StoreError {
    StoreError { kind: StoreErrorKind::Corrupt, what: "reading a task", detail: error.to_string() }
}

/// A to-do to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewTodo {
    pub(crate) title: String,
    pub(crate) description: String,
    pub(crate) priority: Priority,
    pub(crate) due: Option<String>,
    pub(crate) tags: Vec<String>,
    /// The number of the to-do that it is a part of.
    pub(crate) parent: Option<u64>,
    /// When the user is reminded of it.
    pub(crate) remind_at: Option<Micros>,
}

impl NewTodo {
    fn body_with(&self, status: Status, reminder: Option<&Reminder>) -> Value {
        let Self { title, description, priority, due, tags, parent, remind_at } = self;
        let mut body = json!({
            "title": title, "description": description, "status": status, "priority": priority.level(), "due": due,
            "tags": tags,
        });
        if let Some(parent) = parent {
            body["part_of"] = json!(parent.to_string());
        }
        if let Some(reminder) = reminder {
            body["remind_at"] = json!(remind_at);
            body["reminder"] = json!(reminder);
        }
        body
    }
}

/// A to-do in the trash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trashed {
    pub(crate) todo: Todo,
    pub(crate) deleted_at: Micros,
}

/// Changes to a to-do. `None` keeps a field.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TodoPatch {
    pub(crate) title: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) status: Option<Status>,
    pub(crate) priority: Option<Priority>,
    /// `Some(None)` removes the date.
    pub(crate) due: Option<Option<String>>,
    /// Replaces the tags, except those that record the origin of the texts.
    pub(crate) tags: Option<Vec<String>>,
    /// The tags of the origins of the new texts.
    pub(crate) origin_tags: Vec<String>,
    /// `Some(None)` cancels the reminder. Without it, a new due time and a reopening set the reminder to the due time.
    pub(crate) remind_at: Option<Option<Micros>>,
}

impl TodoPatch {
    fn applied_to(self, old: Todo, call: &SkillCall) -> Todo {
        let status = self.status.unwrap_or(old.status);
        let is_reopened = status.is_open() && !old.status.is_open();
        let is_moved = self.due.is_some();
        let due = self.due.unwrap_or_else(|| old.due.clone());
        let of_due = || due.as_ref().and_then(|due| reminder_of(due, call));
        let remind_at = match self.remind_at {
            _ if !status.is_open() => None,
            Some(asked) => asked,
            None if is_moved || is_reopened => of_due(),
            None => old.remind_at,
        };
        let mut tags = self.tags.unwrap_or_else(|| old.tags.clone());
        tags.retain(|tag| !tag.starts_with(ORIGIN_TAG));
        for tag in old.tags.iter().filter(|tag| tag.starts_with(ORIGIN_TAG)).chain(&self.origin_tags) {
            if !tags.contains(tag) {
                tags.push(tag.clone());
            }
        }
        let is_set = remind_at.is_some() && (remind_at != old.remind_at || old.reminder.is_none());
        Todo {
            title: self.title.unwrap_or(old.title),
            description: self.description.unwrap_or(old.description),
            status,
            priority: self.priority.unwrap_or(old.priority),
            due,
            tags,
            remind_at,
            reminder: if is_set { Some(Reminder::set_by(call)) } else { old.reminder },
            ..old
        }
    }
}

/// The reminder of a to-do that is due at this time.
pub(crate) fn reminder_of(due: &str, call: &SkillCall) -> Option<Micros> {
    at_due(due, call.timezone.parse().unwrap_or(Tz::UTC), call.now)
}

/// A query for to-dos. They are listed by due time, then by importance, then by number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TodoQuery {
    /// Words that title, description or tags must contain: all of them, ignoring case.
    pub(crate) text: String,
    /// An empty list matches all.
    pub(crate) statuses: &'static [Status],
    pub(crate) priority: Option<Priority>,
    /// Ranges of due times; an empty list matches all.
    pub(crate) due: Vec<TextRange>,
    pub(crate) tag: Option<String>,
    /// Only parts of this to-do.
    pub(crate) parent: Option<u64>,
    pub(crate) limit: u32,
}

impl TodoQuery {
    fn documents(self) -> DocumentQuery {
        let level = self.priority.map(|priority| f64::from(priority.level()));
        DocumentQuery {
            find: Find::Containing(self.text),
            texts: texts(self.statuses, self.parent),
            ranges: self.due,
            numbers: [NumberRange { min: level, max: level }, NumberRange::default()],
            tags: self.tag.into_iter().collect(),
            order: DocumentOrder::Text,
            limit: self.limit,
        }
    }
}

/// The filters by status and by the to-do that others are part of.
fn texts(statuses: &[Status], parent: Option<u64>) -> [Vec<String>; 3] {
    let statuses = statuses.iter().map(|status| status.as_str().to_owned()).collect();
    [Vec::new(), statuses, parent.map(|parent| parent.to_string()).into_iter().collect()]
}

/// Numbers of to-dos for the prompt [S0 6.1].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TodoSummary {
    pub(crate) open: u64,
    pub(crate) overdue: u64,
    /// Due before the end of today, without the overdue ones.
    pub(crate) due_today: u64,
    /// The most urgent open to-do, in words: overdue first, then by importance, then by date. A title that the user did not write
    /// must not stand in every prompt, so the number stands for it.
    pub(crate) top: Option<String>,
}

/// Creates a to-do, or returns the one that the same call has created before. `None` if it is to be a part of a to-do that
/// does not exist or is itself a part of another one.
pub(crate) async fn create(
    documents: &dyn Documents,
    call: &SkillCall,
    new: NewTodo,
) -> Result<Option<Todo>, StoreError> {
    let reminder = new.remind_at.map(|_| Reminder::set_by(call));
    let (body, is_part) = (new.body_with(Status::Todo, reminder.as_ref()), new.parent.is_some());
    let seen = new.parent.map_or(Seen::Nothing, Seen::Number);
    let decide: Decide = Arc::new(move |seen: &[Document]| {
        let has_place = match seen.first() {
            Some(parent) => Todo::of(parent)?.parent.is_none(),
            None => !is_part,
        };
        Ok(if has_place { DocumentChange::Insert(body.clone()) } else { DocumentChange::Keep })
    });
    write(documents, call, seen, decide).await
}

pub(crate) async fn get(documents: &dyn Documents, user: &UserId, number: u64) -> Result<Option<Todo>, StoreError> {
    documents.document(user.clone(), &TASKS, number).await?.as_ref().map(Todo::of).transpose()
}

pub(crate) async fn find(documents: &dyn Documents, user: &UserId, query: TodoQuery) -> Result<Vec<Todo>, StoreError> {
    let hits = documents.find_documents(user.clone(), &TASKS, query.documents()).await?;
    hits.iter().map(|hit| Todo::of(&hit.document)).collect()
}

/// The number of to-dos that match a query, without regard to its limit.
pub(crate) async fn count(documents: &dyn Documents, user: &UserId, query: TodoQuery) -> Result<u64, StoreError> {
    let counts = documents.count_documents(user.clone(), &TASKS, query.documents(), Vec::new()).await?;
    Ok(counts.first().copied().unwrap_or_default())
}

/// Changes a to-do. Returns `None` if it does not exist.
pub(crate) async fn update(
    documents: &dyn Documents,
    call: &SkillCall,
    number: u64,
    patch: TodoPatch,
) -> Result<Option<Todo>, StoreError> {
    let by = call.clone();
    let decide: Decide = Arc::new(move |seen: &[Document]| {
        let Some(document) = seen.first() else { return Ok(DocumentChange::Keep) };
        let body = patch.clone().applied_to(Todo::of(document)?, &by).body();
        Ok(DocumentChange::Replace { number, body })
    });
    write(documents, call, Seen::Number(number), decide).await
}

/// The open parts of a to-do.
pub(crate) async fn open_parts(documents: &dyn Documents, user: &UserId, of: u64) -> Result<Vec<Todo>, StoreError> {
    find(documents, user, TodoQuery { statuses: OPEN, parent: Some(of), limit: PARTS_MAX, ..TodoQuery::default() })
        .await
}

/// Moves a to-do into the trash. Returns `None` if it does not exist.
pub(crate) async fn delete(
    documents: &dyn Documents,
    call: &SkillCall,
    number: u64,
) -> Result<Option<Todo>, StoreError> {
    let decide: Decide = Arc::new(move |seen: &[Document]| {
        Ok(if seen.is_empty() { DocumentChange::Keep } else { DocumentChange::Archive(number) })
    });
    write(documents, call, Seen::Number(number), decide).await
}

/// Brings a to-do back from the trash. Returns `None` if it is not there.
pub(crate) async fn restore(
    documents: &dyn Documents,
    call: &SkillCall,
    number: u64,
) -> Result<Option<Todo>, StoreError> {
    let decide: Decide = Arc::new(move |seen: &[Document]| {
        Ok(if seen.is_empty() { DocumentChange::Keep } else { DocumentChange::Restore(number) })
    });
    write(documents, call, Seen::Archived(number), decide).await
}

/// The to-do that the same call has written before.
pub(crate) async fn written_before(documents: &dyn Documents, call: &SkillCall) -> Result<Option<Todo>, StoreError> {
    write(documents, call, Seen::Nothing, Arc::new(|_: &[Document]| Ok(DocumentChange::Keep))).await
}

/// The to-dos in the trash, the last deleted first.
pub(crate) async fn trashed(documents: &dyn Documents, user: &UserId) -> Result<Vec<Trashed>, StoreError> {
    let archived = documents.archived_documents(user.clone(), &TASKS, trash::SHOWN_MAX).await?;
    let trashed = |kept: &ExportedDocument| {
        let deleted_at = kept.archived_at.unwrap_or_default();
        Todo::of(&kept.document).map(|todo| Trashed { todo, deleted_at })
    };
    archived.iter().map(trashed).collect()
}

async fn write(
    documents: &dyn Documents,
    call: &SkillCall,
    seen: Seen,
    decide: Decide,
) -> Result<Option<Todo>, StoreError> {
    let SkillCall { user, intent, now: at, .. } = call;
    let write = DocumentWrite { user: user.clone(), namespace: &TASKS, intent: *intent, seen, decide, at: *at };
    documents.write_document(write).await?.document.as_ref().map(Todo::of).transpose()
}

/// The numbers of to-dos at a local time. Of a user without open to-dos the store is asked once at most.
pub(crate) async fn summary(
    documents: &dyn Documents,
    user: &UserId,
    now: NaiveDateTime,
) -> Result<TodoSummary, StoreError> {
    let open = DocumentQuery { texts: texts(OPEN, None), ..DocumentQuery::default() };
    let groups = vec![overdue(now), due_later_today(now)];
    let counts = documents.count_documents(user.clone(), &TASKS, open.clone(), groups).await?;
    let &[count, late, due_today] = counts.as_slice() else { return Err(corrupt("the counts are not complete")) };
    if count == 0 {
        return Ok(TodoSummary::default());
    }
    let ranges = if late > 0 { overdue(now) } else { Vec::new() };
    let first = DocumentQuery { ranges, order: DocumentOrder::Number, limit: 1, ..open };
    let hits = documents.find_documents(user.clone(), &TASKS, first).await?;
    let in_words = |todo: Todo| match todo.tags.iter().any(|tag| tag.starts_with(ORIGIN_TAG)) {
        true => format!("task #{}", todo.number),
        false => format!("\"{}\"", todo.title),
    };
    let top = hits.first().map(|hit| Todo::of(&hit.document)).transpose()?.map(in_words);
    Ok(TodoSummary { open: count, overdue: late, due_today, top })
}

/// A date without a time is overdue when its day is over, one with a time when that time has passed. In stored texts these
/// are two ranges: everything before today, and times of today before now.
pub(crate) fn overdue(now: NaiveDateTime) -> Vec<TextRange> {
    let today = now.date().to_string();
    vec![range(None, Some(today.clone())), range(Some(format!("{today}T00:00")), Some(minute(now)))]
}

/// Due today and not overdue: the day itself, and its times from now on.
fn due_later_today(now: NaiveDateTime) -> Vec<TextRange> {
    let today = now.date().to_string();
    let tomorrow = now.date().succ_opt().map(|day| day.to_string());
    vec![range(Some(today.clone()), Some(format!("{today}T00:00"))), range(Some(minute(now)), tomorrow)]
}

fn minute(now: NaiveDateTime) -> String {
    now.format("%Y-%m-%dT%H:%M").to_string()
}

fn range(from: Option<String>, before: Option<String>) -> TextRange {
    TextRange { from, before }
}

#[cfg(test)]
mod tests;
