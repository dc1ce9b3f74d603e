//! The users' memories.

use annie_core::{
    ids::{IntentId, UserId},
    ports::{Fut, Memories, Memory, MemoryHit, MemoryQuery, NewMemory, Saved, StoreError},
    time::Micros,
};

use super::{MemoryStore, data::Data, search::Index};
use crate::{
    similar::{importance, merged, nearly_same},
    words::all_stems,
};

impl Memories for MemoryStore {
    fn save_memory(
        &self,
        user: UserId,
        intent: IntentId,
        new: NewMemory,
        at: Micros,
    ) -> Fut<'_, Result<Saved, StoreError>> {
        Box::pin(self.write("save_memory", move |data| save(data, user, intent, new, at)))
    }

    fn find_memories(&self, user: UserId, query: MemoryQuery) -> Fut<'_, Result<Vec<MemoryHit>, StoreError>> {
        Box::pin(self.read("find_memories", move |data| {
            let any = query.text.trim().is_empty();
            let ranks = if any { None } else { Some(Index::of(data.memories.values().map(stems)).ranks(&query.text)) };
            let mut hits: Vec<MemoryHit> = data
                .memories
                .iter()
                .enumerate()
                .filter(|(_, ((owner, _), memory))| *owner == user && fits(memory, &query))
                .filter_map(|(n, (_, memory))| {
                    let text_rank = ranks.as_ref().map_or(Some(1.0), |ranks| ranks.get(&n).copied())?;
                    Some(MemoryHit { memory: memory.clone(), rank: (text_rank * memory.importance).max(0.0) })
                })
                .collect();
            hits.sort_by(|a, b| b.rank.total_cmp(&a.rank).then(b.memory.number.cmp(&a.memory.number)));
            hits.truncate(query.limit as usize);
            hits
        }))
    }

    fn touch_memories(&self, user: UserId, numbers: Vec<u64>, at: Micros) -> Fut<'_, Result<(), StoreError>> {
        Box::pin(self.write("touch_memories", move |data| {
            for number in numbers {
                if let Some(memory) = data.memories.get_mut(&(user.clone(), number)) {
                    memory.accessed_at = memory.accessed_at.max(Some(at));
                }
            }
        }))
    }
}

fn save(data: &mut Data, user: UserId, intent: IntentId, new: NewMemory, at: Micros) -> Saved {
    if let Some((number, merged)) = data.memory_intents.get(&(user.clone(), intent)).copied()
        && let Some(memory) = data.memories.get(&(user.clone(), number))
    {
        return Saved { memory: memory.clone(), merged };
    }
    let own = || data.memories.range((user.clone(), 0)..=(user.clone(), u64::MAX)).map(|(_, memory)| memory);
    let same = own().find(|old| old.category == new.category && nearly_same(&old.content, &new.content)).cloned();
    let merging = same.is_some();
    let next = own().map(|memory| memory.number).max().unwrap_or(0) + 1;
    let memory = match same {
        Some(old) => merged(old, &new, at),
        None => Memory {
            number: next,
            content: new.content,
            tags: new.tags,
            category: new.category,
            importance: importance(new.importance),
            created_at: at,
            updated_at: at,
            accessed_at: None,
        },
    };
    data.memory_intents.insert((user.clone(), intent), (memory.number, merging));
    data.memories.insert((user, memory.number), memory.clone());
    Saved { memory, merged: merging }
}

fn stems(memory: &Memory) -> Vec<String> {
    all_stems(&memory.content).chain(memory.tags.iter().flat_map(|tag| all_stems(tag))).collect()
}

fn fits(memory: &Memory, query: &MemoryQuery) -> bool {
    query.category.is_none_or(|category| memory.category == category)
        && query.min_importance.is_none_or(|least| memory.importance >= least)
        && (query.tags.is_empty() || query.tags.iter().any(|tag| memory.tags.contains(tag)))
}
