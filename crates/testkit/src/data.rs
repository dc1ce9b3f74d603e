//! The data of the built-in skills in memory: [`FakeTodos`] and [`FakeMemories`], for tests of code that uses them. They keep
//! to the ports' contract, but rank and merge memories more simply than a store does.

use std::collections::{BTreeMap, HashMap};

use annie_core::{
    ids::{IntentId, UserId},
    ports::{
        Fut, Memories, Memory, MemoryHit, MemoryQuery, NewMemory, NewTodo, Saved, StoreError, StoreErrorKind, Todo,
        TodoPatch, TodoQuery, TodoStatus, TodoSummary, Todos,
    },
    time::Micros,
};
use parking_lot::Mutex;
use tokio::sync::watch;

/// A future that is ready with a value.
fn ready<T: Send + 'static>(value: T) -> Fut<'static, T> {
    Box::pin(std::future::ready(value))
}

fn locked(what: &'static str) -> StoreError {
    StoreError { kind: StoreErrorKind::Locked, what, detail: "told to fail".to_owned() }
}

#[derive(Default)]
struct TodoData {
    rows: BTreeMap<(UserId, u64), Todo>,
    archived: HashMap<UserId, u64>,
    made: HashMap<IntentId, u64>,
    fails: bool,
}

/// Users' tasks in memory.
#[derive(Default)]
pub struct FakeTodos {
    data: Mutex<TodoData>,
}

impl FakeTodos {
    /// From now on every call fails as with a locked database, or works again.
    pub fn fail(&self, fails: bool) {
        self.data.lock().fails = fails;
    }

    /// Number of a user's tasks, without archived ones.
    #[must_use]
    pub fn count(&self, user: &UserId) -> usize {
        self.data.lock().rows.keys().filter(|(own, _)| own == user).count()
    }

    fn with<T: Send + 'static>(&self, work: impl FnOnce(&mut TodoData) -> T) -> Fut<'_, Result<T, StoreError>> {
        let mut data = self.data.lock();
        ready(if data.fails { Err(locked("todos")) } else { Ok(work(&mut data)) })
    }
}

impl Todos for FakeTodos {
    fn create_todo(
        &self,
        user: UserId,
        intent: IntentId,
        new: NewTodo,
        at: Micros,
    ) -> Fut<'_, Result<Todo, StoreError>> {
        self.with(|data| {
            let known = data.made.get(&intent).and_then(|number| data.rows.get(&(user.clone(), *number)));
            if let Some(todo) = known {
                return todo.clone();
            }
            let last = data.rows.keys().filter(|(own, _)| *own == user).map(|(_, number)| *number).max();
            let number = last.max(data.archived.get(&user).copied()).unwrap_or(0) + 1;
            let todo = Todo {
                number,
                title: new.title,
                description: new.description,
                status: TodoStatus::Todo,
                priority: new.priority,
                due: new.due,
                tags: new.tags,
                created_at: at,
                updated_at: at,
            };
            data.made.insert(intent, number);
            data.rows.insert((user, number), todo.clone());
            todo
        })
    }

    fn todo(&self, user: UserId, number: u64) -> Fut<'_, Result<Option<Todo>, StoreError>> {
        self.with(|data| data.rows.get(&(user, number)).cloned())
    }

    fn find_todos(&self, user: UserId, query: TodoQuery) -> Fut<'_, Result<Vec<Todo>, StoreError>> {
        self.with(|data| {
            let own = data.rows.iter().filter(|((owner, _), _)| *owner == user).map(|(_, todo)| todo);
            let mut found: Vec<Todo> = own.filter(|todo| fits(todo, &query)).cloned().collect();
            let key = |t: &Todo| (t.due.is_none(), t.due.clone(), std::cmp::Reverse(t.priority), t.number);
            found.sort_by_key(key);
            found.truncate(query.limit as usize);
            found
        })
    }

    fn update_todo(
        &self,
        user: UserId,
        number: u64,
        patch: TodoPatch,
        at: Micros,
    ) -> Fut<'_, Result<Option<Todo>, StoreError>> {
        self.with(|data| {
            let todo = data.rows.get_mut(&(user, number))?;
            todo.title = patch.title.unwrap_or_else(|| todo.title.clone());
            todo.description = patch.description.unwrap_or_else(|| todo.description.clone());
            todo.status = patch.status.unwrap_or(todo.status);
            todo.priority = patch.priority.unwrap_or(todo.priority);
            todo.due = patch.due.unwrap_or_else(|| todo.due.clone());
            todo.tags = patch.tags.unwrap_or_else(|| todo.tags.clone());
            todo.updated_at = at;
            Some(todo.clone())
        })
    }

    fn delete_todo(&self, user: UserId, number: u64, _at: Micros) -> Fut<'_, Result<bool, StoreError>> {
        self.with(|data| {
            let last = data.archived.entry(user.clone()).or_default();
            *last = (*last).max(number);
            data.rows.remove(&(user, number)).is_some()
        })
    }

    fn todo_summary(&self, user: UserId, local_now: String) -> Fut<'_, Result<TodoSummary, StoreError>> {
        self.with(|data| {
            let today = local_now.split('T').next().unwrap_or_default().to_owned();
            let mut open: Vec<&Todo> = data
                .rows
                .iter()
                .filter(|((owner, _), todo)| *owner == user && todo.status.is_open())
                .map(|(_, todo)| todo)
                .collect();
            let late = |todo: &Todo| {
                todo.due.as_ref().is_some_and(|due| if due.contains('T') { *due < local_now } else { *due < today })
            };
            open.sort_by_key(|t| (!late(t), std::cmp::Reverse(t.priority), t.due.is_none(), t.due.clone(), t.number));
            let overdue = open.iter().filter(|t| late(t)).count() as u64;
            let due_today =
                open.iter().filter(|t| !late(t) && t.due.as_ref().is_some_and(|d| d.starts_with(&today))).count()
                    as u64;
            TodoSummary { open: open.len() as u64, overdue, due_today, top: open.first().map(|t| t.title.clone()) }
        })
    }
}

fn fits(todo: &Todo, query: &TodoQuery) -> bool {
    let text = format!("{} {} {}", todo.title, todo.description, todo.tags.join(" ")).to_lowercase();
    let due_fits = |bound: &Option<String>, fits: fn(&str, &str) -> bool| {
        bound.as_ref().is_none_or(|bound| todo.due.as_ref().is_some_and(|due| fits(due, bound)))
    };
    query.text.to_lowercase().split_whitespace().all(|word| text.contains(word))
        && query.status.is_none_or(|status| todo.status == status)
        && (!query.open || todo.status.is_open())
        && query.priority.is_none_or(|priority| todo.priority == priority)
        && query.tag.as_ref().is_none_or(|tag| todo.tags.contains(tag))
        && due_fits(&query.due_before, |due, bound| due < bound)
        && due_fits(&query.due_from, |due, bound| due >= bound)
}

#[derive(Default)]
struct MemoryData {
    rows: BTreeMap<(UserId, u64), Memory>,
    made: HashMap<IntentId, Saved>,
    touches_fail: bool,
}

/// Users' memories in memory. A near-duplicate is a memory with the same words. The rank is the share of the query's words that
/// are found, times the importance.
pub struct FakeMemories {
    data: Mutex<MemoryData>,
    touched: watch::Sender<Vec<u64>>,
}

impl Default for FakeMemories {
    fn default() -> Self {
        Self { data: Mutex::default(), touched: watch::Sender::new(Vec::new()) }
    }
}

impl FakeMemories {
    /// From now on touching memories fails, or works again.
    pub fn fail_touches(&self, fails: bool) {
        self.data.lock().touches_fail = fails;
    }

    /// The numbers of the last attempted touch, even if it failed.
    #[must_use]
    pub fn touched(&self) -> watch::Receiver<Vec<u64>> {
        self.touched.subscribe()
    }
}

fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = text
        .to_lowercase()
        .split(|c: char| !c.is_alphanumeric())
        .filter(|w| !w.is_empty())
        .map(str::to_owned)
        .collect();
    words.sort();
    words.dedup();
    words
}

impl Memories for FakeMemories {
    fn save_memory(
        &self,
        user: UserId,
        intent: IntentId,
        new: NewMemory,
        at: Micros,
    ) -> Fut<'_, Result<Saved, StoreError>> {
        let mut data = self.data.lock();
        if let Some(saved) = data.made.get(&intent) {
            return ready(Ok(saved.clone()));
        }
        let twin = data.rows.iter_mut().find(|((owner, _), memory)| {
            *owner == user && memory.category == new.category && words(&memory.content) == words(&new.content)
        });
        let saved = if let Some((_, memory)) = twin {
            let fresh: Vec<String> = new.tags.into_iter().filter(|tag| !memory.tags.contains(tag)).collect();
            memory.tags.extend(fresh);
            memory.importance = memory.importance.max(new.importance);
            if new.content.len() > memory.content.len() {
                memory.content = new.content;
            }
            memory.updated_at = at;
            Saved { memory: memory.clone(), merged: true }
        } else {
            let number = data.rows.keys().filter(|(owner, _)| *owner == user).count() as u64 + 1;
            let memory = Memory {
                number,
                content: new.content,
                tags: new.tags,
                category: new.category,
                importance: new.importance,
                created_at: at,
                updated_at: at,
                accessed_at: None,
            };
            data.rows.insert((user, number), memory.clone());
            Saved { memory, merged: false }
        };
        data.made.insert(intent, saved.clone());
        ready(Ok(saved))
    }

    fn find_memories(&self, user: UserId, query: MemoryQuery) -> Fut<'_, Result<Vec<MemoryHit>, StoreError>> {
        let data = self.data.lock();
        let wanted = words(&query.text);
        let mut hits: Vec<MemoryHit> = data
            .rows
            .iter()
            .filter(|((owner, _), memory)| {
                *owner == user
                    && (query.tags.is_empty() || query.tags.iter().any(|tag| memory.tags.contains(tag)))
                    && query.category.is_none_or(|category| memory.category == category)
                    && query.min_importance.is_none_or(|least| memory.importance >= least)
            })
            .filter_map(|(_, memory)| {
                let own = words(&memory.content);
                let found = wanted.iter().filter(|word| own.contains(word)).count();
                #[expect(clippy::cast_precision_loss, reason = "a handful of words")]
                let share = if wanted.is_empty() { 1.0 } else { found as f64 / wanted.len() as f64 };
                (share > 0.0).then(|| MemoryHit { memory: memory.clone(), rank: share * memory.importance })
            })
            .collect();
        hits.sort_by(|a, b| b.rank.total_cmp(&a.rank).then(a.memory.number.cmp(&b.memory.number)));
        hits.truncate(query.limit as usize);
        ready(Ok(hits))
    }

    fn touch_memories(&self, user: UserId, numbers: Vec<u64>, at: Micros) -> Fut<'_, Result<(), StoreError>> {
        let mut data = self.data.lock();
        let result = if data.touches_fail { Err(locked("touch")) } else { Ok(()) };
        if result.is_ok() {
            for number in &numbers {
                if let Some(memory) = data.rows.get_mut(&(user.clone(), *number)) {
                    memory.accessed_at = Some(at);
                }
            }
        }
        drop(data);
        self.touched.send_replace(numbers);
        ready(result)
    }
}
