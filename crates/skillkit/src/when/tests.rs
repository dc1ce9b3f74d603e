//! Tests of every rule for dates, on a fixed Saturday night in Berlin.

use chrono::{NaiveDate, TimeZone, Timelike};

use super::*;

/// 2026-11-21 is a Saturday.
fn now() -> DateTime<Tz> {
    Tz::Europe__Berlin.with_ymd_and_hms(2026, 11, 21, 14, 3, 0).unwrap()
}

fn read(text: &str) -> String {
    resolve(text, now()).map_or_else(|_| "?".to_owned(), |when| when.to_string())
}

/// The offline planner passes these words on unchanged (`crates/planner/src/dates.rs`).
#[test]
fn resolver_understands_every_date_of_the_planner() {
    let days = ["mon", "tue", "tues", "wed", "weds", "thu", "thur", "thurs", "fri", "sat", "sun", "sept 3", "3 sep"];
    let parts = ["morning", "noon", "midday", "afternoon", "evening", "tonight", "night", "midnight", "tmrw", "eod"];
    let more = ["eow", "eom", "day after tomorrow", "this weekend", "today evening", "3rd of may", "15th", "1.12.2026"];
    let ends = ["day", "week", "month", "year", "next day", "next week", "next month", "next year"];
    let counts = ["a", "an", "one", "six", "twelve", "9999"];
    let units = ["minute", "mins", "min", "hour", "hr", "hrs", "days", "weeks", "month", "years"];
    let mut texts: Vec<String> = days.iter().chain(&parts).chain(&more).map(|word| (*word).to_owned()).collect();
    texts.extend(ends.iter().map(|end| format!("end of {end}")));
    texts.extend(counts.iter().flat_map(|count| units.iter().map(move |unit| format!("in {count} {unit}"))));
    let unknown: Vec<&String> = texts.iter().filter(|text| read(text) == "?").collect();
    // The stored form has years of four digits, so 9,999 years from now are refused.
    assert_eq!(unknown, ["in 9999 years"]);
}

#[test]
fn named_days_are_resolved() {
    for (text, expected) in [
        ("today", "2026-11-21"),
        ("Tomorrow", "2026-11-22"),
        ("yesterday", "2026-11-20"),
        ("the day after tomorrow", "2026-11-23"),
        ("by friday", "2026-11-27"),
        ("Fri", "2026-11-27"),
        ("saturday", "2026-11-28"),
        ("this saturday", "2026-11-21"),
        ("next saturday", "2026-11-28"),
        ("next friday", "2026-11-27"),
        ("next monday", "2026-11-23"),
        ("last friday", "2026-11-20"),
        ("last saturday", "2026-11-14"),
        ("tues", "2026-11-24"),
        ("weds", "2026-11-25"),
        ("end of next day", "2026-11-22"),
        ("next week", "2026-11-23"),
        ("this week", "2026-11-22"),
        ("weekend", "2026-11-21"),
        ("next weekend", "2026-11-28"),
        ("next month", "2026-12-01"),
        ("next year", "2027-01-01"),
        ("end of week", "2026-11-22"),
        ("end of the month", "2026-11-30"),
        ("end of next month", "2026-12-31"),
        ("eoy", "2026-12-31"),
    ] {
        assert_eq!(read(text), expected, "{text}");
    }
}

#[test]
fn next_friday_on_a_monday_is_in_the_next_week() {
    let monday = Tz::UTC.with_ymd_and_hms(2026, 11, 16, 8, 0, 0).unwrap();
    assert_eq!(resolve("friday", monday).unwrap().to_string(), "2026-11-20");
    assert_eq!(resolve("next friday", monday).unwrap().to_string(), "2026-11-27");
}

#[test]
fn offsets_are_counted_from_today() {
    for (text, expected) in [
        ("+3d", "2026-11-24"),
        ("-2w", "2026-11-07"),
        ("+1mo", "2026-12-21"),
        ("+1y", "2027-11-21"),
        ("in 2 weeks", "2026-12-05"),
        ("in a month", "2026-12-21"),
        ("in three days", "2026-11-24"),
        ("2 days from now", "2026-11-23"),
        ("3 days ago", "2026-11-18"),
        ("in 2h", "2026-11-21T16:03"),
        ("in 90 minutes", "2026-11-21T15:33"),
        ("+3d 9:00", "2026-11-24T09:00"),
    ] {
        assert_eq!(read(text), expected, "{text}");
    }
}

#[test]
fn calendar_dates_are_read_with_and_without_a_year() {
    for (text, expected) in [
        ("2026-02-28", "2026-02-28"),
        ("2026-02-28T14:00", "2026-02-28T14:00"),
        ("2026-02-28 14:00:59", "2026-02-28T14:00"),
        ("2026-02-28T14:00:00Z", "2026-02-28T15:00"),
        ("2026/02/28", "2026-02-28"),
        ("28.2.2027", "2027-02-28"),
        ("24.12.", "2026-12-24"),
        ("March 3", "2027-03-03"),
        ("3rd of march, 2028", "2028-03-03"),
        ("nov 21", "2026-11-21"),
        ("dec 24th at 6pm", "2026-12-24T18:00"),
        ("the 15th", "2026-12-15"),
        ("31st", "2026-12-31"),
        ("feb 29", "2028-02-29"),
    ] {
        assert_eq!(read(text), expected, "{text}");
    }
}

#[test]
fn time_is_read_before_or_after_the_day_or_alone() {
    for (text, expected) in [
        ("tomorrow 14:00", "2026-11-22T14:00"),
        ("tomorrow at 2pm", "2026-11-22T14:00"),
        ("2:30 pm tomorrow", "2026-11-22T14:30"),
        ("12am tomorrow", "2026-11-22T00:00"),
        ("friday noon", "2026-11-27T12:00"),
        ("tomorrow in the morning", "2026-11-22T09:00"),
        ("this evening", "2026-11-21T18:00"),
        ("tonight", "2026-11-21T20:00"),
        ("tonight 8:00", "2026-11-21T20:00"),
        ("tonight at 9pm", "2026-11-21T21:00"),
        ("tomorrow evening 19:30", "2026-11-22T19:30"),
        ("tomorrow morning at 6:30", "2026-11-22T06:30"),
        ("15:00", "2026-11-21T15:00"),
        ("at 9am", "2026-11-22T09:00"),
        ("now", "2026-11-21T14:03"),
    ] {
        assert_eq!(read(text), expected, "{text}");
    }
}

#[test]
fn invalid_date_is_refused_with_examples() {
    for text in [
        "",
        " ",
        "soon",
        "2026-02-30",
        "13pm",
        "25:00",
        "3/4/2026",
        "+3m",
        "in 2h 15:00",
        "9:00 10:00",
        "midnight 8:00",
        "tomorrow morning 20:00",
        "tonight 12:00",
        "tonight 2:00",
        "tonight 14:00",
        "next",
        "-",
        "+",
        "99999999-01-01",
        "in 99999 years",
        "+99999y",
        "friday friday",
        "0am",
        "ünd",
        "+３d",
    ] {
        assert_eq!(read(text), "?", "{text}");
    }
    let error = resolve(&"x".repeat(500), now()).unwrap_err().to_string();
    assert!(error.contains("next friday") && error.len() < 400, "{error}");
}

#[test]
fn hour_offsets_are_correct_across_daylight_saving_changes() {
    let before = Tz::Europe__Berlin.with_ymd_and_hms(2026, 3, 29, 1, 30, 0).unwrap();
    assert_eq!(resolve("in 1 hour", before).unwrap().to_string(), "2026-03-29T03:30");
}

#[test]
fn spans_are_whole_days_weeks_and_months() {
    let days = |text: &str| span(text, now()).map(|s| format!("{} {}", s.from, s.before)).unwrap_or_default();
    assert_eq!(days("today"), "2026-11-21 2026-11-22");
    assert_eq!(days("tomorrow 14:00"), "2026-11-22 2026-11-23");
    assert_eq!(days("this_week"), "2026-11-16 2026-11-23");
    assert_eq!(days("next week"), "2026-11-23 2026-11-30");
    assert_eq!(days("this_month"), "2026-11-01 2026-12-01");
    assert_eq!(days("2026-12-31"), "2026-12-31 2027-01-01");
    assert_eq!(days("nonsense"), "");
}

#[test]
fn stored_date_is_shown_with_its_distance() {
    let now = now().naive_local();
    for (due, open, expected) in [
        ("2026-11-22", true, "2026-11-22 (tomorrow)"),
        ("2026-11-21", true, "2026-11-21 (today)"),
        ("2026-11-21T15:00", true, "2026-11-21 15:00 (today)"),
        ("2026-11-21T09:00", true, "2026-11-21 09:00 (overdue since today)"),
        ("2026-11-20", true, "2026-11-20 (overdue since yesterday)"),
        ("2026-11-18", true, "2026-11-18 (overdue by 3 days)"),
        ("2026-11-18", false, "2026-11-18 (3 days ago)"),
        ("2026-11-25", true, "2026-11-25 (Wednesday)"),
        ("2026-12-05", true, "2026-12-05 (in 14 days)"),
        ("whenever", true, "whenever"),
    ] {
        assert_eq!(describe_due(due, open, now), expected, "{due}");
    }
    assert!(!is_overdue("2026-11-21", now) && is_overdue("2026-11-21T14:02", now) && !is_overdue("x", now));
}

proptest::proptest! {
    #[test]
    fn resolver_never_panics_and_returns_the_stored_form(text in "\\PC{0,40}|[a-z0-9 :+./-]{0,30}") {
        if let Ok(when) = resolve(&text, now()) {
            let again = resolve(&when.to_string(), now());
            proptest::prop_assert_eq!(again, Ok(When::new(when.date, when.time.map(|t| t.with_second(0).unwrap()))));
        }
    }

    #[test]
    fn resolver_never_panics_on_date_words_in_any_order(
        words in proptest::collection::vec(proptest::sample::select(WORDS), 0..6)
    ) {
        let text = words.join(" ");
        let _ = (resolve(&text, now()), span(&text, now()));
    }
}

const WORDS: &[&str] = &[
    "next",
    "last",
    "this",
    "end",
    "of",
    "friday",
    "week",
    "month",
    "year",
    "in",
    "a",
    "2",
    "99999",
    "days",
    "years",
    "ago",
    "from",
    "now",
    "+3d",
    "-9999y",
    "may",
    "31st",
    "feb",
    "29",
    "2pm",
    "14:00",
    "tonight",
    "tomorrow",
    "9999-12-31",
    "noon",
];

#[test]
fn every_day_of_four_years_parses_back() {
    let first = NaiveDate::from_ymd_opt(2026, 1, 1).unwrap();
    for date in first.iter_days().take(4 * 366) {
        let when = When::new(date, None);
        assert_eq!(resolve(&when.to_string(), now()), Ok(when));
    }
}
