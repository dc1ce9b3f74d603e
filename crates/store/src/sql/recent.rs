//! What the last commits left: heads of conversations and runs that are not through. A batch is judged by it first and says
//! in its guards what it took from here, so that something remembered wrongly costs a trip and decides nothing.

use std::{collections::HashMap, hash::Hash};

use annie_core::{
    ids::{ConversationId, IntentId},
    ports::IntentState,
};

use super::{Cell, Kind, Row, signed};
use crate::admission::{Desk, Head, Needs, Planned};

/// Conversations, and runs, of which at least the last used ones are remembered; at most twice as many.
const EACH_MAX: usize = 16_384;

/// What is remembered.
#[derive(Default)]
pub struct Recent {
    heads: Generations<ConversationId, Head>,
    intents: Generations<IntentId, Planned>,
}

impl Recent {
    /// The facts that a batch needs as far as they are remembered, and their guards. What is not remembered is taken for
    /// not there: mostly a conversation's first message is what nobody remembers. Messages and task ids need no guard: they
    /// are unique in their table.
    pub fn facts(&self, needs: &Needs) -> (Desk, Vec<Row>) {
        let mut desk = Desk::default();
        for id in &needs.conversations {
            if let Some(head) = self.heads.get(id) {
                desk.heads.insert(*id, head.clone());
            }
        }
        for id in &needs.intents {
            if let Some(planned) = self.intents.get(id) {
                desk.known.intents.insert(*id, *planned);
            }
        }
        let guards = guards(needs, &desk);
        (desk, guards)
    }

    /// The facts as a commit left them.
    pub fn learn(&mut self, desk: Desk) {
        for (id, head) in desk.heads {
            self.heads.put(id, head);
        }
        for (id, planned) in desk.known.intents {
            match planned.state {
                IntentState::Planned | IntentState::Started => self.intents.put(id, planned),
                IntentState::Done | IntentState::Unknown => self.intents.remove(&id),
            }
        }
    }

    /// A conversation as it is now.
    pub fn learn_head(&mut self, id: ConversationId, head: Head) {
        self.heads.put(id, head);
    }
}

/// What the database must agree with: each head and each intent of a batch as the desk has it, or that there is none.
pub fn guards(needs: &Needs, desk: &Desk) -> Vec<Row> {
    let heads = needs.conversations.iter().map(|id| {
        let mut cells = vec![Cell::Id(id.uuid())];
        if let Some(head) = desk.heads.get(id) {
            cells.push(Cell::from(&head.user));
            cells.push(Cell::Number(signed(head.epoch.0)));
            cells.push(Cell::Number(signed(head.next.0)));
        }
        (Kind::HeadGuard, cells)
    });
    let intents = needs.intents.iter().map(|id| {
        let mut cells = vec![Cell::Id(id.uuid())];
        if let Some(planned) = desk.known.intents.get(id) {
            cells.push(Cell::Id(planned.conversation.uuid()));
            cells.push(Cell::Word(planned.effect.as_str()));
            cells.push(Cell::Word(planned.state.as_str()));
        }
        (Kind::IntentGuard, cells)
    });
    heads.chain(intents).collect()
}

/// A bounded memory: when the young half is full, it becomes the old one, and what nobody put since is forgotten.
struct Generations<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K, V> Default for Generations<K, V> {
    fn default() -> Self {
        Self { young: HashMap::new(), old: HashMap::new() }
    }
}

impl<K: Eq + Hash, V> Generations<K, V> {
    fn get(&self, key: &K) -> Option<&V> {
        self.young.get(key).or_else(|| self.old.get(key))
    }

    fn put(&mut self, key: K, value: V) {
        if self.young.len() >= EACH_MAX && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }

    fn remove(&mut self, key: &K) {
        self.young.remove(key);
        self.old.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_remembered_and_the_number_is_bounded() {
        let mut memory = Generations::default();
        for n in 0..10 * EACH_MAX {
            memory.put(n, n);
            memory.put(7, 7);
        }
        assert!(memory.young.len() <= EACH_MAX && memory.old.len() <= EACH_MAX);
        let last = 10 * EACH_MAX;
        assert!((last - EACH_MAX / 2..last).all(|n| memory.get(&n) == Some(&n)));
        assert_eq!((memory.get(&7), memory.get(&8)), (Some(&7), None));
        memory.remove(&7);
        assert_eq!(memory.get(&7), None);
    }
}
