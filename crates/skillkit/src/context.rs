//! What the built-in skills add to the prompt of each turn: the memories that fit the message, and one line about the user's
//! to-dos [S0 6.1].

use std::sync::Arc;

use annie_core::{
    event::Recalled,
    ports::{ContextPart, ContextQuery, ContextSource, Documents, Fut},
    skill::ORIGIN_TAG,
};
use chrono::NaiveDateTime;
use chrono_tz::Tz;

use crate::builtin::{
    memory::data::{self as memories, Memory, MemoryDecay, MemoryQuery},
    tasks::data::{self as todos, TodoSummary},
};

/// Memories in a prompt, at most.
const MEMORIES_MAX: u32 = 5;

/// The context sources of the built-in skills `memory.*` and `tasks.*`. `decay` says how memories that are not used lose rank.
#[must_use]
pub fn context_sources(documents: Arc<dyn Documents>, decay: MemoryDecay) -> Vec<Arc<dyn ContextSource>> {
    vec![Arc::new(FittingMemories(documents.clone(), decay)), Arc::new(OpenTodos(documents))]
}

/// The memories that fit the message, best first.
struct FittingMemories(Arc<dyn Documents>, MemoryDecay);

impl ContextSource for FittingMemories {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn read<'a>(&'a self, query: &'a ContextQuery) -> Fut<'a, Result<Vec<ContextPart>, String>> {
        Box::pin(async move {
            let decay = Some((self.1, query.now));
            let search = MemoryQuery { text: query.text.clone(), limit: MEMORIES_MAX, decay, ..MemoryQuery::default() };
            let found = memories::find(&*self.0, &query.user, search).await.map_err(|e| e.to_string())?;
            Ok(found.into_iter().map(|memory| ContextPart::Memory(recalled(memory))).collect())
        })
    }
}

fn recalled(Memory { number, statement }: Memory) -> Recalled {
    let category = statement.category.as_str().to_owned();
    let origin: Vec<&str> = statement.tags.iter().filter_map(|tag| tag.strip_prefix(ORIGIN_TAG)).collect();
    Recalled { number, category, origin: origin.join(", "), text: statement.content }
}

/// How many to-dos are open, overdue and due today, and which one is the most urgent.
struct OpenTodos(Arc<dyn Documents>);

impl ContextSource for OpenTodos {
    fn name(&self) -> &'static str {
        "tasks"
    }

    fn read<'a>(&'a self, query: &'a ContextQuery) -> Fut<'a, Result<Vec<ContextPart>, String>> {
        Box::pin(async move {
            let summary = todos::summary(&*self.0, &query.user, local_now(query)).await;
            let line = summary_line(&summary.map_err(|e| e.to_string())?);
            Ok(line.map(ContextPart::TodoSummary).into_iter().collect())
        })
    }
}

/// The beginning of the turn in the user's time zone.
fn local_now(query: &ContextQuery) -> NaiveDateTime {
    let zone: Tz = query.timezone.parse().unwrap_or(Tz::UTC);
    query.now.to_utc().with_timezone(&zone).naive_local()
}

fn summary_line(summary: &TodoSummary) -> Option<String> {
    if summary.open == 0 {
        return None;
    }
    let mut line =
        format!("Tasks: {} open, {} overdue, {} due today", summary.open, summary.overdue, summary.due_today);
    if let Some(top) = &summary.top {
        line.push_str(&format!(" (most urgent: {top})"));
    }
    Some(line)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use annie_core::{
        ids::UserId,
        ports::{SkillCall, StoreErrorKind},
        time::Micros,
    };
    use annie_store::{MemoryStore, StoreFault, StorePoint};
    use chrono::{TimeZone, Utc};
    use serde_json::json;

    use super::*;
    use crate::{
        builtin::{
            memory::data::{Category, Statement},
            tasks::data::{NewTodo, Priority},
        },
        runner::tests::call,
    };

    fn of_ann(intent: &str) -> SkillCall {
        call(intent, "tasks.create", json!({}))
    }

    #[tokio::test]
    async fn context_sources_show_memories_with_their_origin_and_todos_by_local_time() {
        let fails = Arc::new(AtomicBool::new(false));
        let is_failing = fails.clone();
        let store = Arc::new(MemoryStore::new().with_hook(Arc::new(move |point| match point {
            StorePoint::Read(_) if is_failing.load(Relaxed) => StoreFault::Fail(StoreErrorKind::Locked),
            _ => StoreFault::Pass,
        })));
        let (ann, bob) = (UserId::new("ann").unwrap(), UserId::new("bob").unwrap());
        // 00:30 on 21 November in Berlin.
        let now = Micros::from_utc(Utc.with_ymd_and_hms(2026, 11, 20, 23, 30, 0).unwrap());
        let (title, due, priority) = ("Report".to_owned(), Some("2026-11-20".to_owned()), Priority::Medium);
        let new = NewTodo {
            title,
            description: String::new(),
            priority,
            due,
            tags: Vec::new(),
            parent: None,
            remind_at: None,
        };
        todos::create(&*store, &of_ann("todo"), new).await.unwrap();
        let new = Statement {
            content: "Bob prefers email".to_owned(),
            tags: vec!["people".to_owned(), "from:mail.read".to_owned(), "from:notes.read".to_owned()],
            category: Category::Fact,
            importance: 0.5,
        };
        memories::save(&*store, &of_ann("memory"), new).await.unwrap();
        let sources = context_sources(store, MemoryDecay::OFF);
        let read = async |user: &UserId, timezone: &str| {
            let (text, timezone) = ("How does Bob read?".to_owned(), timezone.to_owned());
            let query = ContextQuery { user: user.clone(), text, is_private: false, now, timezone };
            let mut parts = Vec::new();
            for source in &sources {
                parts.extend(source.read(&query).await.unwrap());
            }
            parts
        };
        let memory = ContextPart::Memory(Recalled {
            number: 1,
            text: "Bob prefers email".to_owned(),
            category: "fact".to_owned(),
            origin: "mail.read, notes.read".to_owned(),
        });
        let line = |due: &str| ContextPart::TodoSummary(format!("Tasks: 1 open, {due} (most urgent: \"Report\")"));
        let today = line("0 overdue, 1 due today");
        assert_eq!(read(&ann, "Europe/Berlin").await, [memory.clone(), line("1 overdue, 0 due today")]);
        assert_eq!(read(&ann, "UTC").await, [memory.clone(), today.clone()]);
        assert_eq!(read(&ann, "Atlantis").await, [memory, today], "an unknown time zone counts as UTC");
        assert_eq!(read(&bob, "UTC").await, []);
        fails.store(true, Relaxed);
        let query = ContextQuery { user: ann, text: String::new(), is_private: false, now, timezone: "UTC".to_owned() };
        assert!(sources[1].read(&query).await.is_err());
    }
}
