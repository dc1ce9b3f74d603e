//! Times of schedules: grammar, words, changes of the clocks. Decisions: claim, catch-up, skip.

use chrono::{DateTime, NaiveDate};
use chrono_tz::Tz;
use proptest::prelude::*;

use super::{words::to_cron, *};

fn at(text: &str) -> Micros {
    Micros::from_utc(DateTime::parse_from_rfc3339(text).unwrap().to_utc())
}

fn times(when: &str, zone: &str) -> Recurrence {
    Recurrence::parse(when, zone).unwrap_or_else(|error| panic!("{when}: {error}"))
}

/// The occurrences of a year, each as its instant.
fn year(when: &str, zone: &str, year: i32) -> Vec<Micros> {
    let (times, mut found) = (times(when, zone), Vec::new());
    let zone: Tz = zone.parse().unwrap();
    let mut after = at(&format!("{}-12-30T00:00:00Z", year - 1));
    while let Some(next) = times.next_after(after) {
        let local = next.to_utc().with_timezone(&zone).date_naive();
        if local >= NaiveDate::from_ymd_opt(year + 1, 1, 1).unwrap() {
            break;
        }
        assert!(next > after, "{when} in {zone}: the occurrences ascend");
        after = next;
        if local >= NaiveDate::from_ymd_opt(year, 1, 1).unwrap() {
            found.push(next);
        }
    }
    found
}

#[test]
fn schedule_words_become_cron_expressions() {
    for (words, cron) in [
        ("every weekday at 8", "0 8 * * 1,2,3,4,5"),
        ("Every day at 7:30", "30 7 * * *"),
        ("every monday and thursday at 18:00", "0 18 * * 1,4"),
        ("every hour", "0 * * * *"),
        ("hourly", "0 * * * *"),
        ("every 15 minutes", "*/15 * * * *"),
        ("every six hours", "0 */6 * * *"),
        ("every hour on weekdays", "0 * * * 1,2,3,4,5"),
        ("on the first of the month", "0 9 1 * *"),
        ("on the 1st and 15th of every month at noon", "0 12 1,15 * *"),
        ("on the last day of the month at 6pm", "0 18 L * *"),
        ("every month on the 3rd at 8 am", "0 8 3 * *"),
        ("every year on march 3 at 10:15", "15 10 3 3 *"),
        ("daily", "0 9 * * *"),
        ("daily at 8 and 18:00", "0 8,18 * * *"),
        ("every morning", "0 9 * * *"),
        ("every friday at 7 in the evening", "0 19 * * 5"),
        ("every evening at 8:30", "30 20 * * *"),
        ("mondays at 9", "0 9 * * 1"),
        ("monday to friday at 8", "0 8 * * 1,2,3,4,5"),
        ("weekends at 10", "0 10 * * 0,6"),
        ("every sun, sat at midnight", "0 0 * * 0,6"),
        ("weekly on friday at 5 p.m.", "0 17 * * 5"),
    ] {
        assert_eq!(to_cron(words).as_deref(), Ok(cron), "{words}");
        times(words, "UTC").first(at("2026-02-18T14:05:00Z")).unwrap_or_else(|error| panic!("{words}: {error}"));
    }
}

#[test]
fn schedule_words_that_are_not_understood_are_refused_and_named() {
    for (words, part) in [
        ("every blue moon", "`blue`"),
        ("monday at 8", "no recurring time"),
        ("every week", "on which days"),
        ("every 7 minutes", "divide"),
        ("every 2 days", "minutes and hours"),
        ("every second monday", "every second day"),
        ("every day at 8:00 and 9:30", "different minutes"),
        ("every day at 25", "`at`"),
        ("every day at 13pm", "`at`"),
        ("every day 8", "`8`"),
        ("every hour at 8", "no other times"),
        ("every", "`every`"),
        ("every monday on the 3rd", "on which days"),
    ] {
        let error = to_cron(words).expect_err(words).to_string();
        assert!(error.contains(part), "{words}: {error}");
    }
    assert_eq!(to_cron("every 5 seconds"), Err(ScheduleError::TooOften { interval_ms: 5_000 }));
}

#[test]
fn schedule_expression_has_five_or_six_fields_names_and_nicknames() {
    let now = at("2026-02-18T14:05:00Z");
    for (when, next) in [
        ("0 8 * * MON-FRI", "2026-02-19T08:00:00Z"),
        ("0 0 8 * * mon", "2026-02-23T08:00:00Z"),
        ("@daily", "2026-02-19T00:00:00Z"),
        ("@hourly", "2026-02-18T15:00:00Z"),
        ("*/30 * * * *", "2026-02-18T14:30:00Z"),
        ("0 9 13 * 5", "2026-02-20T09:00:00Z"),
        ("0 0 29 2 *", "2028-02-29T00:00:00Z"),
        ("every weekday at 8", "2026-02-19T08:00:00Z"),
    ] {
        assert_eq!(times(when, "UTC").first(now), Ok(at(next)), "{when}");
    }
    for when in ["", "0 8 * *", "61 * * * *", "0 0 8 * * * 2027", "@reboot", "* * * * * * * *", "0 8 * * XYZ"] {
        assert!(matches!(Recurrence::parse(when, "UTC"), Err(ScheduleError::When(_))), "{when}");
    }
    let zone = Recurrence::parse("@daily", "Mars/Olympus").unwrap_err();
    assert_eq!(zone, ScheduleError::Zone("Mars/Olympus".to_owned()));
}

#[test]
fn schedule_that_never_comes_or_comes_too_often_is_refused() {
    let now = at("2026-02-18T08:00:10Z");
    assert_eq!(times("0 0 30 2 *", "UTC").first(now), Err(ScheduleError::Never));
    for (when, interval_ms) in [("* * * * * *", 1_000), ("*/20 * * * * *", 20_000), ("0,30 0 8 18 2 *", 30_000)] {
        assert_eq!(times(when, "UTC").first(now), Err(ScheduleError::TooOften { interval_ms }), "{when}");
    }
    assert_eq!(times("* * * * *", "UTC").first(now), Ok(at("2026-02-18T08:01:00Z")));
}

#[test]
fn schedule_of_a_time_runs_once_on_each_day_of_a_year_in_every_zone() {
    for zone in [
        "UTC",
        "America/New_York",
        "Europe/London",
        "Europe/Prague",
        "Asia/Jerusalem",
        "Africa/Cairo",
        "Australia/Lord_Howe",
        "Australia/Sydney",
        "America/Santiago",
        "Asia/Kolkata",
    ] {
        let tz: Tz = zone.parse().unwrap();
        for when in ["0 0 * * *", "30 1 * * *", "15 2 * * *", "30 2 * * *", "0 8 * * *", "every day at 23:59"] {
            let found = year(when, zone, 2026);
            let mut days: Vec<NaiveDate> = found.iter().map(|at| at.to_utc().with_timezone(&tz).date_naive()).collect();
            days.dedup();
            assert_eq!((found.len(), days.len()), (365, 365), "{when} in {zone}");
        }
        let hours = year("every hour", zone, 2026).len();
        assert!((8_758..=8_761).contains(&hours), "{zone}: {hours} hours");
    }
}

#[test]
fn schedule_time_in_a_gap_runs_after_it_and_a_doubled_time_runs_the_first_time() {
    for (when, zone, before, next) in [
        ("30 2 * * *", "America/New_York", "2026-03-07T12:00:00Z", "2026-03-08T07:00:00Z"),
        ("30 1 * * *", "America/New_York", "2026-10-31T12:00:00Z", "2026-11-01T05:30:00Z"),
        ("30 1 * * *", "Europe/London", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z"),
        ("0 0 * * *", "Africa/Cairo", "2026-04-23T12:00:00Z", "2026-04-23T22:00:00Z"),
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z", "2026-10-03T15:30:00Z"),
        ("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T00:00:00Z", "2026-04-04T14:45:00Z"),
        ("0 8 * * *", "Pacific/Apia", "2011-12-29T18:30:00Z", "2011-12-30T18:00:00Z"),
    ] {
        assert_eq!(times(when, zone).next_after(at(before)), Some(at(next)), "{when} in {zone}");
    }
    let doubled = times("30 1 * * *", "America/New_York").next_after(at("2026-11-01T05:30:00Z"));
    assert_eq!(doubled, Some(at("2026-11-02T06:30:00Z")), "not a second time after an hour");
}

#[test]
fn schedule_is_caught_up_by_its_last_occurrence_within_the_window() {
    let (times, due) = (times("*/15 * * * *", "UTC"), at("2026-02-18T08:00:00Z"));
    let run = |now: &str| times.to_run(due, at(now), CATCH_UP_MS_MAX);
    assert_eq!(run("2026-02-18T07:59:00Z"), None, "not due");
    assert_eq!(run("2026-02-18T08:00:00Z"), Some(due));
    assert_eq!(run("2026-02-18T08:14:59Z"), Some(due));
    assert_eq!(run("2026-02-18T08:50:00Z"), Some(at("2026-02-18T08:45:00Z")));
    assert_eq!(run("2026-02-20T10:07:00Z"), Some(at("2026-02-20T10:00:00Z")));
    let daily = super::tests::times("0 8 * * *", "UTC");
    assert_eq!(daily.to_run(due, at("2026-02-18T09:00:00Z"), CATCH_UP_MS_MAX), Some(due));
    assert_eq!(daily.to_run(due, at("2026-02-18T09:00:01Z"), CATCH_UP_MS_MAX), None);
}

fn new(when: &str, text: &str) -> NewSchedule {
    let (text, when) = (text.to_owned(), when.to_owned());
    NewSchedule { text, when, timezone: "UTC".to_owned(), conversation: None, reply_to: None, file: None }
}

fn user() -> UserId {
    UserId::new("ann").unwrap()
}

/// A document with the body that a write stores.
fn stored(write: &DocumentWrite, seen: &[Document]) -> Option<Document> {
    let body = match (write.decide)(seen).unwrap() {
        DocumentChange::Insert(body) | DocumentChange::Replace { body, .. } => body,
        DocumentChange::Keep | DocumentChange::Archive(_) | DocumentChange::Restore(_) => return None,
    };
    Some(Document { number: 1, body, created_at: write.at, updated_at: write.at, accessed_at: None })
}

fn intent() -> IntentId {
    IntentId::from_uuid(Uuid::new_v8([7; 16]))
}

#[test]
fn schedule_occurrence_is_claimed_submitted_and_followed_by_the_next() {
    let now = at("2026-02-18T07:00:00Z");
    let due = at("2026-02-18T08:00:00Z");
    let task = TaskId::from_uuid(Uuid::new_v8([9; 16]));
    let change = |change: ScheduleChange, seen: &Document, now: Micros| {
        stored(&change.write(user(), 1, intent(), now), std::slice::from_ref(seen))
    };
    let claim = |is_running: bool| ScheduleChange::Claim { due_at: due, is_running };
    let of = |document: &Document| NumberedSchedule::of(document).unwrap().schedule;
    let first = stored(&new("0 8 * * *", "digest").write(user(), intent(), now).unwrap(), &[]).unwrap();
    assert_eq!((of(&first).due_at, of(&first).runs), (Some(due), 0));

    let claimed = change(claim(false), &first, due).unwrap();
    assert_eq!((of(&claimed).claimed, of(&claimed).due_at), (Some(due), Some(due)));
    assert_eq!(change(claim(false), &claimed, due), None, "one claim");
    let submitted = ScheduleChange::Submitted { occurrence: due, task };
    assert_eq!(change(submitted.clone(), &first, due), None, "no claim");
    let done = change(submitted.clone(), &claimed, due).unwrap();
    let next = at("2026-02-19T08:00:00Z");
    assert_eq!((of(&done).due_at, of(&done).runs, of(&done).last_task), (Some(next), 1, Some(task)));
    assert_eq!(of(&done).claimed, None);
    assert_eq!(change(submitted, &done, due), None, "recorded once");

    let skipped = change(claim(true), &first, due).unwrap();
    assert_eq!((of(&skipped).due_at, of(&skipped).skipped, of(&skipped).claimed), (Some(next), 1, None));
    let late = change(claim(false), &first, at("2026-02-18T12:00:00Z")).unwrap();
    assert_eq!((of(&late).due_at, of(&late).missed, of(&late).claimed), (Some(next), 1, None));

    let paused = change(ScheduleChange::Pause, &claimed, due).unwrap();
    assert_eq!((of(&paused).due_at, of(&paused).claimed, of(&paused).paused.is_some()), (None, None, true));
    assert_eq!(change(ScheduleChange::Pause, &paused, due), None);
    let resumed = change(ScheduleChange::Resume, &paused, at("2026-02-20T09:00:00Z")).unwrap();
    assert_eq!((of(&resumed).due_at, of(&resumed).paused), (Some(at("2026-02-21T08:00:00Z")), None));
    let refused = ScheduleChange::Refused { occurrence: due, why: "no such channel".to_owned() };
    let refused = change(refused, &claimed, due).unwrap();
    assert_eq!((of(&refused).due_at, of(&refused).paused.as_deref()), (None, Some("no such channel")));
}

#[test]
fn schedule_with_bad_input_or_beyond_the_limit_is_not_created() {
    let now = at("2026-02-18T07:00:00Z");
    for (when, text, error) in [
        ("0 8 * * *", " ", ScheduleError::Text),
        ("0 0 31 2 *", "x", ScheduleError::Never),
        ("* * * * * *", "x", ScheduleError::TooOften { interval_ms: 1_000 }),
    ] {
        assert_eq!(new(when, text).write(user(), intent(), now).unwrap_err(), error);
    }
    let long = "x".repeat(TEXT_BYTES_MAX + 1);
    assert_eq!(new("0 8 * * *", &long).write(user(), intent(), now).unwrap_err(), ScheduleError::Text);
    let write = new("0 8 * * *", "x").write(user(), intent(), now).unwrap();
    let one = stored(&write, &[]).unwrap();
    assert_eq!(stored(&write, &vec![one; SCHEDULES_MAX as usize]), None, "as many as a user may have");
}

proptest! {
    #[test]
    fn schedule_words_and_expressions_never_panic(text in any::<String>(), words in "[a-z0-9:*/, -]{0,40}") {
        for text in [text, words] {
            if let Ok(times) = Recurrence::parse(&text, "America/New_York") {
                // The start is a day on which a clock is set.
                let start = Micros(1_772_928_000_000_000);
                if let Some(next) = times.next_after(start) {
                    assert!(next > start);
                }
            }
        }
    }
}

#[test]
fn schedules_follow_the_files_and_leave_those_of_people_alone() {
    let user = UserId::new("ann").unwrap();
    let file = |skill: &str, when: &str| FileSchedule {
        skill: skill.to_owned(),
        text: format!("/{skill}"),
        when: when.to_owned(),
        timezone: None,
    };
    let stored = |number: u64, new: NewSchedule| {
        let write = new.write(user.clone(), IntentId::from_uuid(Uuid::from_u128(number.into())), Micros(0)).unwrap();
        let Ok(DocumentChange::Insert(body)) = (write.decide)(&[]) else { panic!("not created") };
        let at = Micros(0);
        NumberedSchedule::of(&Document { number, body, created_at: at, updated_at: at, accessed_at: None }).unwrap()
    };
    let files = [file("digest", "every weekday at 8"), file("report", "@monthly")];
    let made: Vec<NewSchedule> = follow_files(&user, "Europe/Berlin", &[], &files)
        .into_iter()
        .map(|change| match change {
            FileChange::Create(new) => new,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!((made.len(), made[0].timezone.as_str()), (2, "Europe/Berlin"));
    let own = stored(3, new("every hour", "mine"));
    let all: Vec<NumberedSchedule> = (1..).zip(made).map(|(number, new)| stored(number, new)).chain([own]).collect();
    assert_eq!(follow_files(&user, "Europe/Berlin", &all, &files), [], "nothing has changed");
    let changed = [file("digest", "every day at 9")];
    let wanted = ScheduleChange::Rewrite {
        text: "/digest".to_owned(),
        when: "every day at 9".to_owned(),
        timezone: "Europe/Berlin".to_owned(),
    };
    assert_eq!(
        follow_files(&user, "Europe/Berlin", &all, &changed),
        [FileChange::Change(1, wanted), FileChange::Remove(2)]
    );
}

#[test]
fn schedule_of_a_file_is_created_once() {
    let of_file = || NewSchedule { file: Some("digest".to_owned()), ..new("every hour", "/digest") };
    let write = |new: NewSchedule| new.write(user(), intent(), Micros(0)).unwrap();
    let first = stored(&write(of_file()), &[]).unwrap();
    assert!(stored(&write(of_file()), std::slice::from_ref(&first)).is_none(), "another node has created it");
    assert!(stored(&write(new("every hour", "mine")), &[first]).is_some());
}
