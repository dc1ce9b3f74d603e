//! Authentication against a store: admission, user, and expiry of keys.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use annie_core::{ports::Keys, time::Micros};
use annie_store::{MemoryStore, StoreFault, StorePoint};
use annie_testkit::env::{TestClock, env};

use super::*;

struct Fixture {
    auth: Arc<Auth>,
    store: Arc<MemoryStore>,
}

async fn fixture() -> Fixture {
    let store = Arc::new(MemoryStore::new());
    let me = UserId::new("me").unwrap();
    Fixture { auth: Auth::load(store.clone(), env(1), me).await.unwrap(), store }
}

impl Fixture {
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
async fn auth_without_keys_admits_local_callers_as_default_user_only() {
    let fixture = fixture().await;
    let caller = fixture.enter(&[], true).await.unwrap();
    assert_eq!((caller.user.as_str(), caller.key), ("me", None));
    assert_eq!(caller.grants, Grants::all());
    assert_eq!(fixture.enter(&[], false).await, Err(Code::Unauthenticated));
}

#[tokio::test]
async fn auth_without_keys_refuses_keys_except_openai_placeholders() {
    let fixture = fixture().await;
    for key in ["annie_wrong", "whatever"] {
        assert_eq!(fixture.enter(&[("x-api-key", key)], true).await, Err(Code::Unauthenticated), "{key}");
    }
    let openai = async |key: &str| {
        let headers = HeaderMap::from_iter([(AUTHORIZATION, format!("Bearer {key}").parse().unwrap())]);
        fixture
            .auth
            .identify(&headers, true, Placeholder::Allowed)
            .await
            .map(|c| c.user.to_string())
            .map_err(|f| f.code)
    };
    assert_eq!(openai("unused-on-loopback").await, Ok("me".to_owned()));
    assert_eq!(openai("annie_wrong").await, Err(Code::Unauthenticated));
}

#[tokio::test]
async fn auth_after_first_key_refuses_callers_without_key() {
    let fixture = fixture().await;
    let (key, text) = fixture.key("ann", &[KeyScope::Chat]).await;
    assert_eq!(fixture.enter(&[], true).await, Err(Code::Unauthenticated));
    let bearer = format!("bearer {text}");
    for pair in [("authorization", bearer.as_str()), ("x-api-key", text.as_str())] {
        let caller = fixture.enter(&[pair], false).await.unwrap();
        assert_eq!((caller.user.as_str(), caller.key.as_deref()), ("ann", Some(key.id.as_str())));
        assert_eq!(caller.grants, Grants::of([KeyScope::Chat]));
    }
    fixture.auth.revoke(&key.id).await.unwrap();
    assert_eq!(fixture.enter(&[("x-api-key", &text)], false).await, Err(Code::Unauthenticated));
    assert_eq!(
        fixture.enter(&[], true).await,
        Err(Code::Unauthenticated),
        "a revoked key still counts as an existing key"
    );
}

#[tokio::test]
async fn auth_refuses_wrong_secret_for_known_key_id() {
    let fixture = fixture().await;
    let (key, _) = fixture.key("ann", &[KeyScope::Chat]).await;
    let forged = format!("annie_{}_{}", key.id, "a".repeat(43));
    for text in [forged.as_str(), "annie_aaaaaaaaaaaa_", "sk-1"] {
        assert_eq!(fixture.enter(&[("x-api-key", text)], true).await, Err(Code::Unauthenticated), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn auth_refuses_expired_key() {
    let fixture = fixture().await;
    let (_, text) = fixture.key("ann", &[KeyScope::Chat]).await;
    assert!(fixture.enter(&[("x-api-key", &text)], false).await.is_ok());
    tokio::time::advance(std::time::Duration::from_secs(61)).await;
    assert_eq!(fixture.enter(&[("x-api-key", &text)], false).await, Err(Code::Unauthenticated));
}

#[tokio::test]
async fn auth_user_header_requires_scope_impersonate() {
    let fixture = fixture().await;
    let (_, admin) = fixture.key("root", &[KeyScope::Admin]).await;
    let (_, front) = fixture.key("front", &[KeyScope::Chat, KeyScope::Impersonate]).await;
    assert_eq!(fixture.enter(&[("x-api-key", &admin), (USER_HEADER, "bob")], false).await, Err(Code::Forbidden));
    let caller = fixture.enter(&[("x-api-key", &front), (USER_HEADER, "bob")], false).await.unwrap();
    assert_eq!(caller.user.as_str(), "bob");
    assert_eq!(fixture.enter(&[("x-api-key", &front), (USER_HEADER, "")], false).await, Err(Code::InvalidRequest));
}

#[tokio::test(start_paused = true)]
async fn key_use_is_recorded_per_minute_and_never_undoes_revocation() {
    let fixture = fixture().await;
    let (key, text) = fixture.key("ann", &[KeyScope::Chat]).await;
    for _ in 0..3 {
        fixture.enter(&[("x-api-key", &text)], false).await.unwrap();
    }
    // The uses are recorded in background tasks; the revocation waits for those that are in progress.
    tokio::task::yield_now().await;
    let revoked = fixture.auth.revoke(&key.id).await.unwrap();
    tokio::task::yield_now().await;
    let stored = fixture.store.key(key.id).await.unwrap().unwrap();
    assert_eq!(stored, revoked);
    assert!(stored.last_used_at.is_some_and(|at| at >= TestClock::START && at < Micros(i64::MAX)));
}

#[tokio::test(start_paused = true)]
async fn auth_notices_key_made_by_another_process() {
    let fixture = fixture().await;
    let me = UserId::new("me").unwrap();
    let elsewhere = Auth::load(fixture.store.clone(), env(2), me.clone()).await.unwrap();
    let new = NewKey { name: "x".into(), user: me, scopes: vec![KeyScope::Chat], expires_at: None };
    elsewhere.create(new).await.unwrap();
    tokio::time::advance(std::time::Duration::from_secs(11)).await;
    assert_eq!(fixture.enter(&[], true).await, Err(Code::Unauthenticated));
}

/// How many seconds an open stream of this caller continues.
async fn seconds_until_refused(auth: &Arc<Auth>, caller: &Caller) -> u64 {
    let mut access = Access::of(auth, caller);
    let from = tokio::time::Instant::now();
    loop {
        match access.check_if_due().await {
            Ok(()) => access.due().await,
            Err(error) => {
                assert_eq!(error.code, Code::Unauthenticated);
                return from.elapsed().as_secs();
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn open_stream_ends_within_10_s_after_another_process_revokes_its_key() {
    // For any age of the table and of the last check at the time of the revocation.
    for age_ms in (0..10_000).step_by(700) {
        let fixture = fixture().await;
        let (key, text) = fixture.key("ann", &[KeyScope::Chat]).await;
        let elsewhere = Auth::load(fixture.store.clone(), env(2), UserId::new("me").unwrap()).await.unwrap();
        tokio::time::advance(std::time::Duration::from_millis(age_ms)).await;
        let caller = fixture.enter(&[("x-api-key", &text)], false).await.unwrap();
        elsewhere.revoke(&key.id).await.unwrap();
        let took_s = seconds_until_refused(&fixture.auth, &caller).await;
        assert!(took_s < 10, "{took_s} s, {age_ms} ms after the table was read");
    }
}

#[tokio::test(start_paused = true)]
async fn open_stream_of_expired_or_revoked_key_ends_while_store_is_unavailable() {
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
        let fixture = Fixture { auth: Auth::load(store.clone(), env(1), me).await.unwrap(), store };
        let (key, text) = fixture.key("ann", &[KeyScope::Chat]).await;
        let caller = fixture.enter(&[("x-api-key", &text)], false).await.unwrap();
        is_away.store(1, Relaxed);
        // From here on the table is too old to be used without a refresh.
        tokio::time::advance(std::time::Duration::from_secs(10)).await;
        let mut access = Access::of(&fixture.auth, &caller);
        assert!(access.check_if_due().await.is_ok(), "an unavailable store ends no stream of a valid key");
        let ends_after = if is_revoked {
            fixture.auth.revoke(&key.id).await.unwrap();
            0..=1
        } else {
            45..=60
        };
        let seconds = seconds_until_refused(&fixture.auth, &caller).await;
        assert!(ends_after.contains(&seconds), "it ended after {seconds} s");
    }
}

#[tokio::test(start_paused = true)]
async fn open_stream_ends_within_10_s_after_its_key_expires() {
    let fixture = fixture().await;
    let (_, text) = fixture.key("ann", &[KeyScope::Chat]).await;
    let caller = fixture.enter(&[("x-api-key", &text)], false).await.unwrap();
    let took_s = seconds_until_refused(&fixture.auth, &caller).await;
    assert!((60..70).contains(&took_s), "{took_s}");
}

#[tokio::test(start_paused = true)]
async fn open_stream_ends_at_once_when_this_process_revokes_its_key_or_makes_first_key() {
    let fixture = fixture().await;
    let keyless = fixture.enter(&[], true).await.unwrap();
    let mut access = Access::of(&fixture.auth, &keyless);
    access.check_if_due().await.unwrap();
    let (key, text) = fixture.key("ann", &[KeyScope::Chat]).await;
    assert_eq!(access.check_if_due().await.unwrap_err().code, Code::Unauthenticated);
    let caller = fixture.enter(&[("x-api-key", &text)], false).await.unwrap();
    let mut access = Access::of(&fixture.auth, &caller);
    access.check_if_due().await.unwrap();
    fixture.auth.revoke(&key.id).await.unwrap();
    assert_eq!(access.check_if_due().await.unwrap_err().code, Code::Unauthenticated);
}

#[tokio::test(start_paused = true)]
async fn wrong_keys_cause_one_database_read_per_second_for_known_and_unknown_ids() {
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
    let fixture = Fixture { auth, store };
    let (key, _) = fixture.key("ann", &[KeyScope::Chat]).await;
    for id in [key.id.as_str(), "aaaaaaaaaaaa"] {
        reads.store(0, Relaxed);
        for _ in 0..100 {
            let forged = format!("annie_{id}_{}", "b".repeat(43));
            assert_eq!(fixture.enter(&[("x-api-key", &forged)], false).await, Err(Code::Unauthenticated));
            tokio::time::advance(std::time::Duration::from_millis(50)).await;
        }
        let reads = reads.load(Relaxed);
        assert!((4..=6).contains(&reads), "{reads} reads in 5 s for the id {id}");
    }
}
