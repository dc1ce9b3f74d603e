//! Values of turns. They are in memory only: they end with the process, and the oldest turns are forgotten first.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use annie_core::{
    ids::TaskId,
    state::{KEYS_MAX, StateError, StateKey, StateText},
};

/// How many turns have values at once.
const TURNS_MAX: usize = 256;
/// How large the values of all turns are together, in bytes.
const BYTES_MAX: usize = 16 * 1024 * 1024;

/// The values of one turn.
type Values = BTreeMap<String, StateText>;

/// The values of the turns of this process.
#[derive(Default)]
pub(crate) struct TempState {
    turns: Mutex<VecDeque<(TaskId, Values)>>,
}

impl TempState {
    fn lock(&self) -> MutexGuard<'_, VecDeque<(TaskId, Values)>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets a value, and returns the one before.
    pub(crate) fn set(&self, task: TaskId, key: &StateKey, value: StateText) -> Result<Option<StateText>, StateError> {
        let mut turns = self.lock();
        let at = turns.iter().position(|(known, _)| *known == task);
        let mut values = at.and_then(|at| turns.remove(at)).map(|(_, values)| values).unwrap_or_default();
        let has_room = values.contains_key(&key.name) || values.len() < KEYS_MAX as usize;
        let before = if has_room { values.insert(key.name.clone(), value) } else { None };
        turns.push_back((task, values));
        let bytes = |turns: &VecDeque<(TaskId, Values)>| -> usize {
            turns.iter().flat_map(|(_, values)| values.values()).map(|value| value.text.len()).sum()
        };
        while turns.len() > TURNS_MAX || (turns.len() > 1 && bytes(&turns) > BYTES_MAX) {
            turns.pop_front();
        }
        if has_room { Ok(before) } else { Err(StateError::Full(key.scope.as_str())) }
    }

    pub(crate) fn get(&self, task: TaskId, key: &StateKey) -> Option<StateText> {
        let turns = self.lock();
        turns.iter().find(|(known, _)| *known == task).and_then(|(_, values)| values.get(&key.name)).cloned()
    }

    pub(crate) fn all(&self, task: TaskId) -> Values {
        let turns = self.lock();
        turns.iter().find(|(known, _)| *known == task).map(|(_, values)| values.clone()).unwrap_or_default()
    }

    pub(crate) fn delete(&self, task: TaskId, key: &StateKey) -> Option<StateText> {
        self.lock().iter_mut().find(|(known, _)| *known == task).and_then(|(_, values)| values.remove(&key.name))
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn task(n: u128) -> TaskId {
        TaskId::from_uuid(Uuid::from_u128(n))
    }

    fn key(name: &str) -> StateKey {
        StateKey::parse(&format!("temp:{name}")).unwrap()
    }

    fn text(text: &str) -> StateText {
        StateText { text: text.to_owned(), origin: Vec::new() }
    }

    #[test]
    fn value_of_a_turn_is_seen_by_that_turn_only_and_old_turns_are_forgotten() {
        let state = TempState::default();
        assert_eq!(state.set(task(0), &key("a"), text("1")), Ok(None));
        assert_eq!(state.set(task(0), &key("a"), text("2")), Ok(Some(text("1"))));
        assert_eq!((state.get(task(0), &key("a")), state.get(task(1), &key("a"))), (Some(text("2")), None));
        for n in 1..=TURNS_MAX as u128 {
            state.set(task(n), &key("a"), text("x")).unwrap();
        }
        assert_eq!(state.get(task(0), &key("a")), None);
        assert_eq!((state.delete(task(1), &key("a")), state.all(task(1)).len()), (Some(text("x")), 0));
    }

    #[test]
    fn turn_has_a_limited_number_of_keys() {
        let state = TempState::default();
        for n in 0..KEYS_MAX {
            state.set(task(0), &key(&format!("k{n}")), text("x")).unwrap();
        }
        assert_eq!(state.set(task(0), &key("more"), text("x")), Err(StateError::Full("temp")));
        assert_eq!(state.set(task(0), &key("k0"), text("y")), Ok(Some(text("x"))));
    }
}
