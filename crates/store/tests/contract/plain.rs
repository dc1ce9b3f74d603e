//! API keys, sealed secrets, breakers, and the store itself.

use std::sync::Arc;

use annie_core::{
    breaker::{BreakerRow, BreakerState},
    ports::{ApiKey, SealedSecret, Store},
    time::Micros,
};

use crate::make::*;

fn key(id: &str, at: i64) -> ApiKey {
    ApiKey {
        id: id.to_owned(),
        name: "laptop".to_owned(),
        user: user("ann"),
        secret_sha256: (0..32).collect(),
        scopes: vec!["chat".to_owned(), "jobs:read".to_owned()],
        created_at: Micros(at),
        expires_at: None,
        last_used_at: None,
        revoked_at: None,
    }
}

pub async fn api_key_is_read_as_written_and_replaced_by_its_id(store: Arc<dyn Store>) {
    assert_eq!(store.key("k1".into()).await.unwrap(), None);
    store.put_key(key("k1", 1)).await.unwrap();
    assert_eq!(store.key("k1".into()).await.unwrap(), Some(key("k1", 1)));
    let changed = ApiKey {
        name: "phone".into(),
        scopes: vec![],
        expires_at: Some(Micros(100)),
        last_used_at: Some(Micros(50)),
        revoked_at: Some(Micros(60)),
        ..key("k1", 1)
    };
    store.put_key(changed.clone()).await.unwrap();
    assert_eq!(store.keys().await.unwrap(), [changed]);
}

pub async fn api_key_use_keeps_a_revocation_by_another_process(store: Arc<dyn Store>) {
    store.put_key(key("k1", 1)).await.unwrap();
    let read_before = store.key("k1".into()).await.unwrap().unwrap();
    store.put_key(ApiKey { revoked_at: Some(Micros(60)), ..key("k1", 1) }).await.unwrap();
    store.note_key_use("k1".into(), Micros(70)).await.unwrap();
    store.note_key_use("k1".into(), Micros(65)).await.unwrap();
    store.note_key_use("unknown".into(), Micros(70)).await.unwrap();
    let noted = ApiKey { last_used_at: Some(Micros(70)), revoked_at: Some(Micros(60)), ..key("k1", 1) };
    assert_eq!(store.keys().await.unwrap(), [noted]);
    // A writer that read the row earlier, or that revokes the key again, does not undo the revocation.
    for revoked_at in [None, Some(Micros(80))] {
        store.put_key(ApiKey { revoked_at, ..read_before.clone() }).await.unwrap();
        assert_eq!(store.key("k1".into()).await.unwrap().unwrap().revoked_at, Some(Micros(60)));
    }
}

pub async fn api_keys_are_listed_oldest_first(store: Arc<dyn Store>) {
    for (id, at) in [("b", 20), ("a", 30), ("d", 10), ("c", 10)] {
        store.put_key(key(id, at)).await.unwrap();
    }
    let ids: Vec<String> = store.keys().await.unwrap().into_iter().map(|key| key.id).collect();
    assert_eq!(ids, ["c", "d", "b", "a"]);
}

pub async fn open_breakers_lists_every_row_that_is_not_closed(store: Arc<dyn Store>) {
    assert_eq!(store.open_breakers(10).await.unwrap(), Vec::<String>::new());
    for (skill, state) in [
        ("c.x", BreakerState::Open),
        ("a.x", BreakerState::HalfOpen),
        ("b.x", BreakerState::Closed),
        ("d.x", BreakerState::Open),
    ] {
        let row = BreakerRow { state, failures: 5, opened_at: Micros(1), trips: 1 };
        store.put_breaker(skill.into(), row).await.unwrap();
    }
    assert_eq!(store.open_breakers(10).await.unwrap(), ["a.x", "c.x", "d.x"]);
    assert_eq!(store.open_breakers(2).await.unwrap(), ["a.x", "c.x"]);
}

fn sealed(owner: Option<&str>, name: &str, at: i64) -> SealedSecret {
    SealedSecret {
        user: owner.map(user),
        name: name.to_owned(),
        key_id: "k1".to_owned(),
        nonce: vec![0, 1, 255],
        sealed: name.bytes().rev().collect(),
        updated_at: Micros(at),
    }
}

pub async fn sealed_secret_is_read_as_written_by_its_owner_only_and_can_be_deleted(store: Arc<dyn Store>) {
    assert_eq!(store.sealed_secret(None, "a".into()).await.unwrap(), None);
    let all = [sealed(None, "a", 1), sealed(None, "b", 2), sealed(Some("ann"), "a", 3), sealed(Some("bob"), "a", 4)];
    for secret in all.iter().rev() {
        store.put_sealed_secret(secret.clone()).await.unwrap();
    }
    for secret in &all {
        let read = store.sealed_secret(secret.user.clone(), secret.name.clone()).await.unwrap();
        assert_eq!(read.as_ref(), Some(secret));
    }
    assert_eq!(store.sealed_secret(Some(user("ann")), "b".into()).await.unwrap(), None, "it is the installation's");
    assert_eq!(store.sealed_secrets().await.unwrap(), all);
    let changed = SealedSecret { key_id: "k2".into(), nonce: vec![7], sealed: vec![], ..sealed(Some("ann"), "a", 9) };
    store.put_sealed_secret(changed.clone()).await.unwrap();
    assert_eq!(store.sealed_secret(Some(user("ann")), "a".into()).await.unwrap(), Some(changed));
    assert!(store.delete_sealed_secret(Some(user("ann")), "a".into()).await.unwrap());
    assert!(!store.delete_sealed_secret(Some(user("ann")), "a".into()).await.unwrap());
    store.rebuild().await.unwrap();
    let left: Vec<_> = store.sealed_secrets().await.unwrap().into_iter().map(|secret| secret.updated_at.0).collect();
    assert_eq!(left, [1, 2, 4], "a rebuild does not touch them");
}

pub async fn breaker_row_is_read_as_written_and_replaced(store: Arc<dyn Store>) {
    assert_eq!(store.breaker("mail.send".into()).await.unwrap(), None);
    for state in [BreakerState::Open, BreakerState::HalfOpen, BreakerState::Closed] {
        let row = BreakerRow { state, failures: 5, opened_at: Micros(-3), trips: 1 << 40 };
        store.put_breaker("mail.send".into(), row).await.unwrap();
        assert_eq!(store.breaker("mail.send".into()).await.unwrap(), Some(row));
    }
    assert_eq!(store.breaker("mail".into()).await.unwrap(), None);
}

pub async fn store_answers_a_ping_and_has_a_known_name(store: Arc<dyn Store>) {
    store.ping().await.unwrap();
    assert!(["sqlite", "memory", "postgres"].contains(&store.name()));
}
