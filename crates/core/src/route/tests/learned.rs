//! Tests of the state learned from calls: rate windows and health.

use super::*;
use crate::breaker::{Admission, BreakerLimits};

const LIMIT: RateWindow = RateWindow { requests_max: 10, window_ms: 60_000, reserve: 3 };
const LIMITS: BreakerLimits = BreakerLimits { failures_max: 5, open_ms: 60_000 };

fn ms(ms: i64) -> Micros {
    Micros(1_000_000_000).plus_ms(ms)
}

#[test]
fn rate_window_reserves_requests_for_urgent_classes() {
    let mut window = Window::new(Some(LIMIT));
    for n in 0..7 {
        window.may_start(Priority::Background, ms(n)).unwrap();
        window.started(ms(n));
    }
    let shut = window.may_start(Priority::Normal, ms(10)).unwrap_err();
    assert_eq!(shut, Shut { until: ms(60_000), by: ShutBy::Reserve });
    for n in 10..13 {
        window.may_start(Priority::High, ms(n)).unwrap();
        window.started(ms(n));
    }
    let full = window.may_start(Priority::Realtime, ms(20)).unwrap_err();
    assert_eq!(full, Shut { until: ms(60_000), by: ShutBy::Full });
    let low = window.may_start(Priority::Low, ms(20)).unwrap_err();
    assert_eq!(low, Shut { until: ms(60_003), by: ShutBy::Full }, "four requests must leave the window first");
    assert!(window.may_start(Priority::Low, ms(60_002)).is_err());
    assert!(window.may_start(Priority::Low, ms(60_003)).is_ok());
}

#[test]
fn rate_limit_response_closes_window_for_all_classes_until_given_time() {
    let mut window = Window::new(None);
    assert!(window.may_start(Priority::Low, ms(0)).is_ok());
    window.rate_limited(Some(5_000), ms(0));
    window.rate_limited(Some(1_000), ms(10));
    let shut = window.may_start(Priority::Realtime, ms(20)).unwrap_err();
    assert_eq!((shut.until, shut.by), (ms(5_000), ShutBy::Provider), "the later time counts");
    assert!(window.may_start(Priority::Low, ms(5_000)).is_ok());
    window.rate_limited(None, ms(6_000));
    assert_eq!(window.may_start(Priority::Normal, ms(6_000)).unwrap_err().until, ms(36_000));
    assert!(window.may_start(Priority::High, ms(6_000)).is_ok(), "an urgent request ignores a guessed time");
    window.rate_limited(Some(u64::MAX), ms(6_000));
    assert_eq!(window.may_start(Priority::High, ms(6_000)).unwrap_err().until, ms(6_000 + 86_400_000));
}

#[test]
fn rate_window_stays_closed_no_longer_than_its_length_after_clock_step() {
    let mut window = Window::new(Some(RateWindow { requests_max: 1, window_ms: 1_000, reserve: 0 }));
    window.started(ms(100_000_000));
    assert_eq!(window.may_start(Priority::High, ms(0)).unwrap_err().until, ms(1_000));
    window.rate_limited(Some(1_000), ms(500_000_000));
    assert!(window.may_start(Priority::High, ms(0)).unwrap_err().until <= ms(86_400_000));
}

#[test]
fn health_closes_backend_after_five_failures_and_one_probe_decides() {
    let mut health = Health::default();
    for n in 0..5 {
        assert_eq!(health.state(&LIMITS, ms(n)), HealthState::Up);
        assert_eq!(health.admit(&LIMITS, ms(n)), Admission::Pass);
        health.failed(&LIMITS, if n % 2 == 0 { Kind::Unavailable } else { Kind::Timeout }, false, ms(n));
    }
    assert_eq!(health.state(&LIMITS, ms(5)), HealthState::Down { until: ms(60_004) });
    assert_eq!(health.last_failure(), Some(Kind::Unavailable));
    assert!(matches!(health.admit(&LIMITS, ms(60_003)), Admission::Refuse { retry_after_ms: 1 }));
    assert_eq!(health.state(&LIMITS, ms(60_004)), HealthState::Probing);
    assert_eq!(health.admit(&LIMITS, ms(60_004)), Admission::Probe);
    assert!(matches!(health.admit(&LIMITS, ms(60_005)), Admission::Refuse { .. }));
    health.succeeded(true);
    assert_eq!((health.state(&LIMITS, ms(60_006)), health.last_failure()), (HealthState::Up, None));
}

#[test]
fn health_ignores_request_failures_and_closes_at_once_on_refused_key() {
    let mut health = Health::default();
    for n in 0..20 {
        let kinds = [Kind::RateLimited, Kind::Content, Kind::Overflow, Kind::InvalidRequest];
        health.failed(&LIMITS, kinds[n % 4], false, ms(0));
    }
    assert_eq!((health.state(&LIMITS, ms(0)), health.last_failure()), (HealthState::Up, None));
    health.failed(&LIMITS, Kind::Auth, false, ms(0));
    assert_eq!(health.state(&LIMITS, ms(1)), HealthState::Down { until: ms(60_000) });
    health.admit(&LIMITS, ms(60_000));
    health.failed(&LIMITS, Kind::RateLimited, true, ms(60_001));
    assert_eq!(health.state(&LIMITS, ms(60_002)), HealthState::Up, "a rate-limited backend is healthy");
}
