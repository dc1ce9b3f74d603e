//! Breaker rows, API keys and sealed secrets.

use annie_core::{
    breaker::{BreakerRow, BreakerState},
    ids::UserId,
    ports::{ApiKey, Breakers, Fut, Keys, SealedSecret, SealedSecrets, StoreError},
    time::Micros,
};

use super::MemoryStore;

impl Breakers for MemoryStore {
    fn breaker(&self, skill: String) -> Fut<'_, Result<Option<BreakerRow>, StoreError>> {
        Box::pin(self.read("breaker", move |data| data.breakers.get(&skill).copied()))
    }

    fn open_breakers(&self, limit: u32) -> Fut<'_, Result<Vec<String>, StoreError>> {
        Box::pin(self.read("open_breakers", move |data| {
            let open = data.breakers.iter().filter(|(_, row)| row.state != BreakerState::Closed);
            let mut skills: Vec<String> = open.map(|(skill, _)| skill.clone()).collect();
            skills.sort();
            skills.truncate(limit as usize);
            skills
        }))
    }

    fn put_breaker(&self, skill: String, row: BreakerRow) -> Fut<'_, Result<(), StoreError>> {
        Box::pin(self.write("put_breaker", move |data| {
            data.breakers.insert(skill, row);
        }))
    }
}

impl Keys for MemoryStore {
    fn key(&self, id: String) -> Fut<'_, Result<Option<ApiKey>, StoreError>> {
        Box::pin(self.read("key", move |data| data.keys.get(&id).cloned()))
    }

    fn keys(&self) -> Fut<'_, Result<Vec<ApiKey>, StoreError>> {
        Box::pin(self.read("keys", |data| {
            let mut keys: Vec<_> = data.keys.values().cloned().collect();
            keys.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
            keys
        }))
    }

    fn put_key(&self, key: ApiKey) -> Fut<'_, Result<(), StoreError>> {
        Box::pin(self.write("put_key", move |data| {
            let revoked_at = data.keys.get(&key.id).and_then(|known| known.revoked_at).or(key.revoked_at);
            data.keys.insert(key.id.clone(), ApiKey { revoked_at, ..key });
        }))
    }

    fn note_key_use(&self, id: String, at: Micros) -> Fut<'_, Result<(), StoreError>> {
        Box::pin(self.write("note_key_use", move |data| {
            if let Some(key) = data.keys.get_mut(&id) {
                key.last_used_at = key.last_used_at.max(Some(at));
            }
        }))
    }
}

impl SealedSecrets for MemoryStore {
    fn sealed_secret(&self, user: Option<UserId>, name: String) -> Fut<'_, Result<Option<SealedSecret>, StoreError>> {
        Box::pin(self.read("sealed_secret", move |data| data.sealed_secrets.get(&(user, name)).cloned()))
    }

    fn sealed_secrets(&self) -> Fut<'_, Result<Vec<SealedSecret>, StoreError>> {
        Box::pin(self.read("sealed_secrets", |data| data.sealed_secrets.values().cloned().collect()))
    }

    fn put_sealed_secret(&self, secret: SealedSecret) -> Fut<'_, Result<(), StoreError>> {
        Box::pin(self.write("put_sealed_secret", move |data| {
            data.sealed_secrets.insert((secret.user.clone(), secret.name.clone()), secret);
        }))
    }

    fn delete_sealed_secret(&self, user: Option<UserId>, name: String) -> Fut<'_, Result<bool, StoreError>> {
        Box::pin(self.write("delete_sealed_secret", move |data| data.sealed_secrets.remove(&(user, name)).is_some()))
    }
}
