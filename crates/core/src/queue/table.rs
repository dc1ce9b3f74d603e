//! The table of all entries, indexed by task and by equal work, with counts by user and class.

use std::collections::HashMap;

use super::{
    Waiting, WorkKey,
    fair::{Item, Slot, UserKey},
    order::Ticket,
};
use crate::{
    event::Priority,
    ids::{TaskId, UserId},
    time::Micros,
};

/// One queued task and its position data.
#[derive(Debug)]
pub(super) struct Entry {
    pub waiting: Waiting,
    pub ticket: Ticket,
}

/// The entries of all backends.
#[derive(Debug, Default)]
pub(super) struct Table {
    entries: Vec<Option<Entry>>,
    free: Vec<Slot>,
    tasks: HashMap<TaskId, Slot>,
    works: HashMap<(UserKey, WorkKey), TaskId>,
    users: Users,
}

impl Table {
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    pub fn slot(&self, task: TaskId) -> Option<Slot> {
        self.tasks.get(&task).copied()
    }

    pub fn at(&self, slot: Slot) -> Option<&Entry> {
        self.entries.get(slot as usize)?.as_ref()
    }

    pub fn get(&self, task: TaskId) -> Option<&Entry> {
        self.at(self.slot(task)?)
    }

    pub fn depth(&self, user: &UserId, class: Priority) -> u32 {
        self.users.depth(user, class)
    }

    /// The user's queued task for this work, if it has not begun.
    pub fn task_for_work(&self, user: &UserId, work: WorkKey) -> Option<TaskId> {
        self.works.get(&(self.users.key(user)?, work)).copied()
    }

    /// Stores an entry. `ticket` is created from data that only the table knows, and the anchor.
    pub fn insert(&mut self, waiting: Waiting, ticket: impl FnOnce(Item, UserKey, Micros) -> Ticket) -> Ticket {
        let user = self.users.enter(&waiting.user, waiting.class);
        let slot = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            Slot::try_from(self.entries.len() - 1).unwrap_or(Slot::MAX)
        });
        self.tasks.insert(waiting.task, slot);
        if let Some(work) = open_work(&waiting) {
            self.works.entry((user, work)).or_insert(waiting.task);
        }
        let ticket = ticket(Item { slot, class: waiting.class }, user, waiting.anchor);
        self.entries[slot as usize] = Some(Entry { waiting, ticket });
        ticket
    }

    pub fn take(&mut self, slot: Slot) -> Option<Entry> {
        let entry = self.entries.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        self.tasks.remove(&entry.waiting.task);
        if let Some(work) = open_work(&entry.waiting) {
            let key = (entry.ticket.user, work);
            if self.works.get(&key) == Some(&entry.waiting.task) {
                self.works.remove(&key);
            }
        }
        self.users.leave(&entry.waiting.user, entry.waiting.class);
        Some(entry)
    }
}

/// The work that other tasks may join. Only a task that has not begun has any.
fn open_work(waiting: &Waiting) -> Option<WorkKey> {
    waiting.work.filter(|_| waiting.rounds_done == 0)
}

/// Users with queued tasks, under small numeric keys.
#[derive(Debug, Default)]
struct Users {
    keys: HashMap<UserId, UserKey>,
    depths: Vec<[u32; 5]>,
    free: Vec<UserKey>,
}

impl Users {
    fn key(&self, user: &UserId) -> Option<UserKey> {
        self.keys.get(user).copied()
    }

    fn depth(&self, user: &UserId, class: Priority) -> u32 {
        self.key(user).map_or(0, |key| self.depths[key as usize][usize::from(class.level())])
    }

    fn enter(&mut self, user: &UserId, class: Priority) -> UserKey {
        let key = self.key(user).unwrap_or_else(|| {
            let key = self.free.pop().unwrap_or_else(|| {
                self.depths.push([0; 5]);
                UserKey::try_from(self.depths.len() - 1).unwrap_or(UserKey::MAX)
            });
            self.keys.insert(user.clone(), key);
            key
        });
        self.depths[key as usize][usize::from(class.level())] += 1;
        key
    }

    fn leave(&mut self, user: &UserId, class: Priority) {
        let Some(key) = self.key(user) else { return };
        let depths = &mut self.depths[key as usize];
        depths[usize::from(class.level())] -= 1;
        if depths.iter().all(|depth| *depth == 0) {
            self.keys.remove(user);
            self.free.push(key);
        }
    }
}
