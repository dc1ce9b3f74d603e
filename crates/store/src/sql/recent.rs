//! Results of the last commits: heads of conversations, and runs that are not finished. A batch is first judged by these. Its
//! guards state what it took from here, so that an outdated entry costs one more round trip and never decides anything.

use std::{collections::HashMap, hash::Hash};

use annie_core::{
    ids::{ConversationId, IntentId},
    ports::IntentState,
};

use super::{Cell, Kind, Row, SharedTexts, signed};
use crate::admission::{Admission, Head, Needs, Planned};

/// The number of conversations, and of runs, of which at least the last used ones are remembered; at most twice as many are
/// kept.
const EACH_MAX: usize = 16_384;

/// The remembered facts.
#[derive(Default)]
pub struct Recent {
    heads: Generations<ConversationId, Head>,
    intents: Generations<IntentId, Planned>,
    pub texts: SharedTexts,
}

impl Recent {
    /// The facts that a batch needs as far as they are remembered, and their guards. An entry that is not remembered is assumed
    /// not to exist, since in most cases it is the first message of a new conversation. Messages and task ids need no guard:
    /// they are unique in their table.
    pub fn facts(&self, needs: &Needs) -> (Admission, Vec<Row>) {
        let mut admission = Admission::default();
        for id in &needs.conversations {
            if let Some(head) = self.heads.get(id) {
                admission.heads.insert(*id, head.clone());
            }
        }
        for id in &needs.intents {
            if let Some(planned) = self.intents.get(id) {
                admission.known.intents.insert(*id, *planned);
            }
        }
        let guards = guards(needs, &admission);
        (admission, guards)
    }

    /// Stores the facts as a commit left them.
    pub fn learn(&mut self, admission: Admission) {
        for (id, head) in admission.heads {
            self.heads.put(id, head);
        }
        for (id, planned) in admission.known.intents {
            match planned.state {
                IntentState::Planned | IntentState::Started => self.intents.put(id, planned),
                IntentState::Done | IntentState::Unknown => self.intents.remove(&id),
            }
        }
    }

    /// Stores the current head of a conversation.
    pub fn learn_head(&mut self, id: ConversationId, head: Head) {
        self.heads.put(id, head);
    }
}

/// The conditions that the database must confirm: each head and each intent of a batch as `admission` has it, or its absence.
pub fn guards(needs: &Needs, admission: &Admission) -> Vec<Row> {
    let heads = needs.conversations.iter().map(|id| {
        let mut cells = vec![Cell::Id(id.uuid())];
        if let Some(head) = admission.heads.get(id) {
            cells.push(Cell::from(&head.user));
            cells.push(Cell::Number(signed(head.epoch.0)));
            cells.push(Cell::Number(signed(head.next.0)));
        }
        (Kind::HeadGuard, cells)
    });
    let intents = needs.intents.iter().map(|id| {
        let mut cells = vec![Cell::Id(id.uuid())];
        if let Some(planned) = admission.known.intents.get(id) {
            cells.push(Cell::Id(planned.conversation.uuid()));
            cells.push(Cell::Word(planned.effect.as_str()));
            cells.push(Cell::Word(planned.state.as_str()));
        }
        (Kind::IntentGuard, cells)
    });
    heads.chain(intents).collect()
}

/// A bounded map: when the young half is full, it becomes the old half, and entries that were not put since are dropped.
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
    fn recent_remembers_the_last_entries_and_is_bounded() {
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
