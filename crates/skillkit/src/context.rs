//! What the built-in skills add to the prompt of each turn: the memories that fit the message, and one line about the user's
//! to-dos [S0 6.1].

use std::sync::Arc;

use annie_core::{
    event::Recalled,
    ports::{ContextPart, ContextQuery, ContextSource, Fut, Memories, Memory, MemoryQuery, TodoSummary, Todos},
    skill::ORIGIN_TAG,
};
use chrono_tz::Tz;

/// Memories in a prompt, at most.
const MEMORIES_MAX: u32 = 5;

/// The context sources of the built-in skills `memory.*` and `tasks.*`.
#[must_use]
pub fn context_sources(todos: Arc<dyn Todos>, memories: Arc<dyn Memories>) -> Vec<Arc<dyn ContextSource>> {
    vec![Arc::new(FittingMemories(memories)), Arc::new(OpenTodos(todos))]
}

/// The memories that fit the message, best first.
struct FittingMemories(Arc<dyn Memories>);

impl ContextSource for FittingMemories {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn read<'a>(&'a self, query: &'a ContextQuery) -> Fut<'a, Result<Vec<ContextPart>, String>> {
        Box::pin(async move {
            let search = MemoryQuery { text: query.text.clone(), limit: MEMORIES_MAX, ..MemoryQuery::default() };
            let hits = self.0.find_memories(query.user.clone(), search).await.map_err(|e| e.to_string())?;
            Ok(hits.into_iter().map(|hit| ContextPart::Memory(recalled(hit.memory))).collect())
        })
    }
}

fn recalled(memory: Memory) -> Recalled {
    let category = memory.category.as_str().to_owned();
    let origin: Vec<&str> = memory.tags.iter().filter_map(|tag| tag.strip_prefix(ORIGIN_TAG)).collect();
    Recalled { number: memory.number, category, origin: origin.join(", "), text: memory.content }
}

/// How many to-dos are open, overdue and due today, and which one is the most urgent.
struct OpenTodos(Arc<dyn Todos>);

impl ContextSource for OpenTodos {
    fn name(&self) -> &'static str {
        "tasks"
    }

    fn read<'a>(&'a self, query: &'a ContextQuery) -> Fut<'a, Result<Vec<ContextPart>, String>> {
        Box::pin(async move {
            let summary = self.0.todo_summary(query.user.clone(), local_minute(query)).await;
            let line = summary_line(&summary.map_err(|e| e.to_string())?);
            Ok(line.map(ContextPart::TodoSummary).into_iter().collect())
        })
    }
}

/// The beginning of the turn in the user's time zone, as due times are stored: `2026-02-18T14:05`.
fn local_minute(query: &ContextQuery) -> String {
    let zone: Tz = query.timezone.parse().unwrap_or(Tz::UTC);
    query.now.to_utc().with_timezone(&zone).format("%Y-%m-%dT%H:%M").to_string()
}

fn summary_line(summary: &TodoSummary) -> Option<String> {
    if summary.open == 0 {
        return None;
    }
    let mut line =
        format!("Tasks: {} open, {} overdue, {} due today", summary.open, summary.overdue, summary.due_today);
    if let Some(top) = &summary.top {
        line.push_str(&format!(" (most urgent: \"{top}\")"));
    }
    Some(line)
}

#[cfg(test)]
mod tests {
    use annie_core::{
        ids::{AgentId, IntentId, TaskId, UserId},
        ports::{MemoryCategory, NewMemory, NewTodo},
        time::Micros,
    };
    use annie_testkit::data::{FakeMemories, FakeTodos};
    use chrono::{TimeZone, Utc};

    use super::*;

    fn intent(name: &str) -> IntentId {
        IntentId::for_call(TaskId::from_uuid(Default::default()), &AgentId::orchestrator(), name)
    }

    #[tokio::test]
    async fn context_sources_show_memories_with_their_origin_and_todos_by_local_time() {
        let (todos, memories) = (Arc::new(FakeTodos::default()), Arc::new(FakeMemories::default()));
        let (ann, bob) = (UserId::new("ann").unwrap(), UserId::new("bob").unwrap());
        // 00:30 on 21 November in Berlin.
        let now = Micros::from_utc(Utc.with_ymd_and_hms(2026, 11, 20, 23, 30, 0).unwrap());
        let new = NewTodo { title: "Report".to_owned(), due: Some("2026-11-20".to_owned()), ..NewTodo::default() };
        todos.create_todo(ann.clone(), intent("todo"), new, now).await.unwrap();
        let new = NewMemory {
            content: "Bob prefers email".to_owned(),
            tags: vec!["people".to_owned(), "from:mail.read".to_owned(), "from:notes.read".to_owned()],
            category: MemoryCategory::Fact,
            importance: 0.5,
        };
        memories.save_memory(ann.clone(), intent("memory"), new, now).await.unwrap();
        let sources = context_sources(todos.clone(), memories);
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
        todos.fail(true);
        let query = ContextQuery { user: ann, text: String::new(), is_private: false, now, timezone: "UTC".to_owned() };
        assert!(sources[1].read(&query).await.is_err());
    }
}
