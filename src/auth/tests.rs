//! Keys against a store: who is let in, as whom, and for how long.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use annie_core::{ports::Keys, time::Micros};
use annie_store::{MemoryStore, StoreFault, StorePoint};
use annie_testkit::env::{TestClock, env};

use super::*;

struct Door {
    auth: Arc<Auth>,
    store: Arc<MemoryStore>,
}

async fn door() -> Door {
    let store = Arc::new(MemoryStore::new());
    let me = UserId::new("me").unwrap();
    Door { auth: Auth::load(store.clone(), env(1), me).await.unwrap(), store }
}

impl Door {
    async fn key(&self, user: &str, scopes: &[KeyScope]) -> (ApiKey, String) {
        let new = NewKey {
            name: user.into(),
            user: UserId::new(user).unwrap(),
            scopes: scopes.to_vec(),
            expires_at: Some(TestClock::START.plus_ms(60_000)),
        };
        let made = self.auth.create(new).await.unwrap();
        (made.key, made.secret)
    }

    async fn enter(&self, pairs: &[(&'static str, &str)], local: bool) -> Result<Caller, Code> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(*name, value.parse().unwrap());
        }
        self.auth.identify(&headers, local, Placeholder::Refused).await.map_err(|f| f.code)
    }
}

#[tokio::test]
async fn without_keys_this_machine_is_the_default_user_and_others_are_nobody() {
    let door = door().await;
    let caller = door.enter(&[], true).await.unwrap();
    assert_eq!((caller.user.as_str(), caller.key), ("me", None));
    assert_eq!(caller.grants, Grants::all());
    assert_eq!(door.enter(&[], false).await, Err(Code::Unauthenticated));
}

#[tokio::test]
async fn a_key_shown_to_a_server_without_keys_is_refused_but_for_placeholders_of_openai_libraries() {
    let door = door().await;
    for key in ["annie_wrong", "whatever"] {
        assert_eq!(door.enter(&[("x-api-key", key)], true).await, Err(Code::Unauthenticated), "{key}");
    }
    let openai = async |key: &str| {
        let headers = HeaderMap::from_iter([(AUTHORIZATION, format!("Bearer {key}").parse().unwrap())]);
        door.auth.identify(&headers, true, Placeholder::Allowed).await.map(|c| c.user.to_string()).map_err(|f| f.code)
    };
    assert_eq!(openai("unused-on-loopback").await, Ok("me".to_owned()));
    assert_eq!(openai("annie_wrong").await, Err(Code::Unauthenticated));
}

#[tokio::test]
async fn the_first_key_closes_the_door_for_everybody_without_one() {
    let door = door().await;
    let (key, text) = door.key("ann", &[KeyScope::Chat]).await;
    assert_eq!(door.enter(&[], true).await, Err(Code::Unauthenticated));
    let bearer = format!("bearer {text}");
    for pair in [("authorization", bearer.as_str()), ("x-api-key", text.as_str())] {
        let caller = door.enter(&[pair], false).await.unwrap();
        assert_eq!((caller.user.as_str(), caller.key.as_deref()), ("ann", Some(key.id.as_str())));
        assert_eq!(caller.grants, Grants::of([KeyScope::Chat]));
    }
    door.auth.revoke(&key.id).await.unwrap();
    assert_eq!(door.enter(&[("x-api-key", &text)], false).await, Err(Code::Unauthenticated));
    assert_eq!(door.enter(&[], true).await, Err(Code::Unauthenticated), "a revoked key still counts as one");
}

#[tokio::test]
async fn another_secret_under_a_known_id_opens_nothing() {
    let door = door().await;
    let (key, _) = door.key("ann", &[KeyScope::Chat]).await;
    let forged = format!("annie_{}_{}", key.id, "a".repeat(43));
    for text in [forged.as_str(), "annie_aaaaaaaaaaaa_", "sk-1"] {
        assert_eq!(door.enter(&[("x-api-key", text)], true).await, Err(Code::Unauthenticated), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_ends_at_its_time() {
    let door = door().await;
    let (_, text) = door.key("ann", &[KeyScope::Chat]).await;
    assert!(door.enter(&[("x-api-key", &text)], false).await.is_ok());
    tokio::time::advance(std::time::Duration::from_secs(61)).await;
    assert_eq!(door.enter(&[("x-api-key", &text)], false).await, Err(Code::Unauthenticated));
}

#[tokio::test]
async fn only_a_key_with_that_scope_speaks_for_others() {
    let door = door().await;
    let (_, admin) = door.key("root", &[KeyScope::Admin]).await;
    let (_, front) = door.key("front", &[KeyScope::Chat, KeyScope::Impersonate]).await;
    assert_eq!(door.enter(&[("x-api-key", &admin), (USER_HEADER, "bob")], false).await, Err(Code::Forbidden));
    let caller = door.enter(&[("x-api-key", &front), (USER_HEADER, "bob")], false).await.unwrap();
    assert_eq!(caller.user.as_str(), "bob");
    assert_eq!(door.enter(&[("x-api-key", &front), (USER_HEADER, "")], false).await, Err(Code::InvalidRequest));
}

#[tokio::test(start_paused = true)]
async fn the_use_of_a_key_is_noted_to_the_minute_and_never_undoes_a_revocation() {
    let door = door().await;
    let (key, text) = door.key("ann", &[KeyScope::Chat]).await;
    for _ in 0..3 {
        door.enter(&[("x-api-key", &text)], false).await.unwrap();
    }
    // The notes are beside the requests; the revocation queues behind those that are under way.
    tokio::task::yield_now().await;
    let revoked = door.auth.revoke(&key.id).await.unwrap();
    tokio::task::yield_now().await;
    let stored = door.store.key(key.id).await.unwrap().unwrap();
    assert_eq!(stored, revoked);
    assert!(stored.last_used_at.is_some_and(|at| at >= TestClock::START && at < Micros(i64::MAX)));
}

#[tokio::test(start_paused = true)]
async fn a_key_that_another_process_made_is_noticed() {
    let door = door().await;
    let me = UserId::new("me").unwrap();
    let elsewhere = Auth::load(door.store.clone(), env(2), me.clone()).await.unwrap();
    let new = NewKey { name: "x".into(), user: me, scopes: vec![KeyScope::Chat], expires_at: None };
    elsewhere.create(new).await.unwrap();
    tokio::time::advance(std::time::Duration::from_secs(11)).await;
    assert_eq!(door.enter(&[], true).await, Err(Code::Unauthenticated));
}

/// How many seconds an open stream of this caller goes on.
async fn seconds_until_refused(auth: &Arc<Auth>, caller: &Caller) -> u64 {
    let mut access = Access::of(auth, caller);
    let from = tokio::time::Instant::now();
    loop {
        match access.check_if_due().await {
            Ok(()) => access.due().await,
            Err(fault) => {
                assert_eq!(fault.code, Code::Unauthenticated);
                return from.elapsed().as_secs();
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_open_stream_ends_within_10_s_after_another_process_revoked_its_key() {
    // Whatever the age of the table and of the last check at the revocation.
    for age_ms in (0..10_000).step_by(700) {
        let door = door().await;
        let (key, text) = door.key("ann", &[KeyScope::Chat]).await;
        let elsewhere = Auth::load(door.store.clone(), env(2), UserId::new("me").unwrap()).await.unwrap();
        tokio::time::advance(std::time::Duration::from_millis(age_ms)).await;
        let caller = door.enter(&[("x-api-key", &text)], false).await.unwrap();
        elsewhere.revoke(&key.id).await.unwrap();
        let took_s = seconds_until_refused(&door.auth, &caller).await;
        assert!(took_s < 10, "{took_s} s, {age_ms} ms after the table was read");
    }
}

#[tokio::test(start_paused = true)]
async fn open_stream_of_an_expired_or_revoked_key_ends_while_the_store_is_away() {
    for is_revoked in [false, true] {
        let is_away = Arc::new(AtomicUsize::new(0));
        let away = is_away.clone();
        let store = MemoryStore::new().with_hook(Arc::new(move |point| match point {
            StorePoint::Read("keys") if away.load(Relaxed) > 0 => {
                StoreFault::Fail(annie_core::ports::StoreErrorKind::Unavailable)
            }
            _ => StoreFault::Pass,
        }));
        let store = Arc::new(store);
        let me = UserId::new("me").unwrap();
        let door = Door { auth: Auth::load(store.clone(), env(1), me).await.unwrap(), store };
        let (key, text) = door.key("ann", &[KeyScope::Chat]).await;
        let caller = door.enter(&[("x-api-key", &text)], false).await.unwrap();
        is_away.store(1, Relaxed);
        // From here on the table is older than it is believed.
        tokio::time::advance(std::time::Duration::from_secs(10)).await;
        let mut access = Access::of(&door.auth, &caller);
        assert!(access.check_if_due().await.is_ok(), "a store that is away ends no stream of a valid key");
        let ends_after = if is_revoked {
            door.auth.revoke(&key.id).await.unwrap();
            0..=1
        } else {
            45..=60
        };
        let seconds = seconds_until_refused(&door.auth, &caller).await;
        assert!(ends_after.contains(&seconds), "it ended after {seconds} s");
    }
}

#[tokio::test(start_paused = true)]
async fn an_open_stream_ends_within_10_s_after_its_key_expired() {
    let door = door().await;
    let (_, text) = door.key("ann", &[KeyScope::Chat]).await;
    let caller = door.enter(&[("x-api-key", &text)], false).await.unwrap();
    let took_s = seconds_until_refused(&door.auth, &caller).await;
    assert!((60..70).contains(&took_s), "{took_s}");
}

#[tokio::test(start_paused = true)]
async fn an_open_stream_ends_at_once_when_this_process_revokes_its_key_or_makes_the_first() {
    let door = door().await;
    let keyless = door.enter(&[], true).await.unwrap();
    let mut access = Access::of(&door.auth, &keyless);
    access.check_if_due().await.unwrap();
    let (key, text) = door.key("ann", &[KeyScope::Chat]).await;
    assert_eq!(access.check_if_due().await.unwrap_err().code, Code::Unauthenticated);
    let caller = door.enter(&[("x-api-key", &text)], false).await.unwrap();
    let mut access = Access::of(&door.auth, &caller);
    access.check_if_due().await.unwrap();
    door.auth.revoke(&key.id).await.unwrap();
    assert_eq!(access.check_if_due().await.unwrap_err().code, Code::Unauthenticated);
}

#[tokio::test(start_paused = true)]
async fn wrong_keys_read_the_database_once_a_second_whether_their_ids_are_known_or_not() {
    let reads = Arc::new(AtomicUsize::new(0));
    let counter = reads.clone();
    let store = MemoryStore::new().with_hook(Arc::new(move |point| {
        if matches!(point, StorePoint::Read("key" | "keys")) {
            counter.fetch_add(1, Relaxed);
        }
        StoreFault::Pass
    }));
    let store = Arc::new(store);
    let auth = Auth::load(store.clone(), env(1), UserId::new("me").unwrap()).await.unwrap();
    let door = Door { auth, store };
    let (key, _) = door.key("ann", &[KeyScope::Chat]).await;
    for id in [key.id.as_str(), "aaaaaaaaaaaa"] {
        reads.store(0, Relaxed);
        for _ in 0..100 {
            let forged = format!("annie_{id}_{}", "b".repeat(43));
            assert_eq!(door.enter(&[("x-api-key", &forged)], false).await, Err(Code::Unauthenticated));
            tokio::time::advance(std::time::Duration::from_millis(50)).await;
        }
        let reads = reads.load(Relaxed);
        assert!((4..=6).contains(&reads), "{reads} reads in 5 s for the id {id}");
    }
}
