//! Caps, expected cost, money and days.

use super::*;
use crate::route::Cost;

const NOON: Micros = Micros(20_502 * DAY_US + DAY_US / 2);

fn account(spent: u64, reserved: u64) -> Account {
    let of = |tokens: u64| Spent { tokens, nanodollars: tokens * 1_000_000 };
    Account { spent: of(spent), reserved: of(reserved) }
}

fn costing(spent: Spent) -> Expected {
    Expected { spent, is_free: false }
}

#[test]
fn cap_refuses_a_round_that_would_exceed_it_together_with_the_reservations() {
    let tokens = SpendLimits { turn_tokens_max: 100, ..SpendLimits::NONE };
    let money = SpendLimits { turn_usd_max: 0.1, ..SpendLimits::NONE };
    let needs = |tokens: u64| costing(Spent { tokens, nanodollars: tokens * 1_000_000 });
    for (spent, reserved, needed, is_within) in
        [(0, 0, 100, true), (0, 0, 101, false), (60, 0, 40, true), (60, 1, 40, false), (100, 0, 1, false)]
    {
        for limits in [tokens, money] {
            let checked = limits.check(Cap::Turn, &account(spent, reserved), needs(needed));
            assert_eq!(checked.is_ok(), is_within, "{limits:?}: {spent} + {reserved} + {needed}");
            assert_eq!(
                limits.check(Cap::UserDay, &account(spent, reserved), needs(needed)),
                Ok(()),
                "no cap is no limit"
            );
        }
    }
}

#[test]
fn free_round_is_not_refused_for_money_and_one_of_unknown_price_only_at_the_cap() {
    let limits = SpendLimits { user_day_usd_max: 1.0, ..SpendLimits::NONE };
    let spent = Spent { tokens: 5_000, nanodollars: 0 };
    for (before, is_free, is_within) in
        [(5_000, true, true), (5_000, false, false), (1_000, false, false), (999, false, true)]
    {
        let checked = limits.check(Cap::UserDay, &account(before, 0), Expected { spent, is_free });
        assert_eq!(checked.is_ok(), is_within, "{before} {is_free}");
    }
    let refusal = limits.check(Cap::UserDay, &account(5_000, 0), costing(spent)).unwrap_err();
    assert!(refusal.text().contains("needs an amount that is not known yet"), "{}", refusal.text());
}

#[test]
fn refusal_names_the_key_the_amounts_and_the_next_step() {
    let limits =
        SpendLimits { turn_tokens_max: 50, conversation_usd_max: 0.02, user_day_tokens_max: 90, ..SpendLimits::NONE };
    let needed = costing(Spent { tokens: 20, nanodollars: 20_000_000 });
    let error = |cap| limits.check(cap, &account(80, 0), needed).unwrap_err().into_error(NOON);
    for (cap, kind, parts) in [
        (
            Cap::Turn,
            ModelErrorKind::TurnSpendCap,
            ["50 tokens for one request", "`turn_tokens_max`", "80 tokens are used"],
        ),
        (
            Cap::Conversation,
            ModelErrorKind::SpendCap,
            ["$0.0200 for one conversation", "`conversation_usd_max`", "up to $0.0200"],
        ),
        (Cap::UserDay, ModelErrorKind::SpendCap, ["90 tokens for you", "`user_day_tokens_max`", "00:00 UTC"]),
    ] {
        let error = error(cap);
        assert_eq!(error.kind, kind);
        assert!(parts.iter().all(|part| error.detail.contains(part)), "{}", error.detail);
    }
    assert_eq!(error(Cap::UserDay).retry_after_ms, Some(12 * 60 * 60 * 1_000), "until the end of the day");
    assert_eq!(error(Cap::Turn).retry_after_ms, None);
}

#[test]
fn expected_cost_is_the_prompt_and_the_longest_answer_by_price_and_without_one_by_report() {
    let backend = |cost, privacy| BackendFacts { cost, privacy, ..BackendFacts::default() };
    let priced = backend(Some(Cost { input_usd: 3.0, output_usd: 15.0 }), Privacy::Cloud);
    let (cloud, local) = (backend(None, Privacy::Cloud), backend(None, Privacy::Local));
    let by_price = 1_000 * 3_000 + 500 * 15_000;
    for (backend, seen, nanodollars, is_free) in [
        (&priced, 0, by_price, false),
        (&priced, 4_000, by_price, false),
        (&priced, 12_600_000, by_price, false),
        (&cloud, 0, 0, false),
        (&cloud, 4_000, 6_000, false),
        (&local, 0, 0, true),
        (&local, 4_000, 6_000, false),
        (&backend(Some(Cost::default()), Privacy::Cloud), 0, 0, true),
    ] {
        let wanted = Expected { spent: Spent { tokens: 1_500, nanodollars }, is_free };
        assert_eq!(expected(1_000, 500, backend, seen), wanted);
    }
}

#[test]
fn money_is_whole_nanodollars_and_what_is_no_amount_is_nothing() {
    let got = [0.0041, 1e-9, -1.0, f64::NAN, f64::INFINITY, 0.0].map(nanodollars);
    assert_eq!(got, [4_100_000, 1, 0, 0, u64::MAX, 0]);
    let wrong = SpendLimits { conversation_usd_max: -1.0, ..SpendLimits::default() };
    assert_eq!((wrong.flaw(), SpendLimits::default().flaw()), (Some(("conversation_usd_max", -1.0)), None));
}

#[test]
fn day_is_the_date_in_utc() {
    let day = Day::of(NOON);
    assert_eq!((day.to_string().as_str(), Day::parse("2026-02-18")), ("2026-02-18", Some(day)));
    assert_eq!(Day::of(Micros(-1)).to_string(), "1969-12-31");
    for wrong in ["2026-2-18", "2026-02-30", "today", ""] {
        assert_eq!(Day::parse(wrong), None, "{wrong}");
    }
}
