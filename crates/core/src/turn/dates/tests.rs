//! Tables of dates as people write them in English and German, of words that only resemble dates, and of the dates that
//! calls contain.

use super::*;

fn check(user_text: &str, value: &str) -> Result<(), Invented> {
    let mut dates = Dates::default();
    dates.add_user_text(user_text);
    dates.check(value)
}

#[test]
fn date_named_by_user_is_accepted_in_any_form() {
    for (user_text, value) in [
        ("Remind me to see the dentist on Thursday", "thursday"),
        ("Create a task to pay the rent due yesterday", "yesterday"),
        ("Erstelle bitte eine Aufgabe, fällig gestern", "2026-11-21"),
        ("Remind me to buy a turkey for Thanksgiving", "2026-11-26"),
        ("Remind me to see the dentist on Thursday", "2026-11-26"),
        ("Add a task: call Bob tomorrow at 5pm", "tomorrow 17:00"),
        ("Add a task for the 3rd of May", "2026-05-03"),
        ("Add a task for 3 May", "may 3rd"),
        ("Move task 2 to 3/5, please", "march 5"),
        ("Bitte eine Aufgabe für Donnerstag", "thursday"),
        ("Erstelle eine Aufgabe für übermorgen", "in 2 days"),
        ("Move the rent task to next week", "next monday"),
        ("Move the rent task to the end of the month", "end of month"),
        ("Add a task: call Bob at 14:00", "today 14:00"),
        ("Add a task: call Bob at 9 am", "today 9:00"),
        ("I need it in 3 days, add a task", "+3d"),
        ("Take the date off that task", "none"),
        ("Kup znaczki jutro", "tomorrow"),
        ("Comprar sellos mañana", "2026-11-23"),
        ("Remind me to call Bob at 5, please", "today 17:00"),
        ("Remind me of my call at five o'clock", "17:00"),
        ("Bitte erinnere mich um fünf an Bob", "today 17:00"),
        ("Remind me of my call at half past five", "17:30"),
        ("Please remind me in 20 mins of my tea", "in 20 minutes"),
        ("Please remind me in 20min of my tea", "in 20 minutes"),
        ("Please remind me in 2 hrs of my tea", "in 2 hours"),
        ("Please remind me in 3 wks of my tea", "+3w"),
        ("Please remind me of it after lunch", "today 13:00"),
        ("Please remind me of it on the 15", "2026-12-15"),
        ("Please remind me of it on the tenth", "2026-12-10"),
        ("Please remind me of it on 2026/11/26", "2026-11-26"),
        ("Please remind me of it on 11-26-2026", "2026-11-26"),
        ("Please add the task: tomorrow's dentist appointment", "tomorrow"),
        ("Please add the task: Monday's meeting", "monday"),
        ("Please remind me of it on New Year's Eve", "2026-12-31"),
        ("Please delete the due date of task 3", "none"),
        ("Please get rid of the due date", "none"),
        ("Pon todo en la lista para el lunes", "monday"),
        ("Crea una task para mañana", "tomorrow"),
        ("Prendre note pour mardi", "tuesday"),
        ("Remind me of my call on Fri", "friday"),
        ("The call is on 3 Dec, please add it", "2026-12-03"),
        ("I may need that on 5 June, please", "june 5"),
        ("Please remind me of the rent tommorow", "tomorrow"),
        ("Please remind me of the rent on Wensday", "wednesday"),
        ("Please remind me of the rent on firday", "friday"),
        ("Please remind me of the rent on the fifteenth", "2026-12-15"),
        ("Please remind me of the rent on the thirtieth", "2026-11-30"),
        ("Bitte erinnere mich am Freitagabend an meine Pizza", "friday 19:00"),
        ("Bitte erinnere mich am fünfzehnten an meine Miete", "2026-12-15"),
        ("Bitte verschiebe meine Aufgabe von Freitag auf Samstagabend", "saturday"),
        ("Bitte erstelle eine Aufgabe für übermorgen", "2026-11-24"),
    ] {
        assert_eq!(check(user_text, value), Ok(()), "{user_text}: {value}");
    }
}

#[test]
fn word_that_is_a_day_only_in_another_language_or_sense_is_no_date() {
    for (user_text, value) in [
        ("Ajoute une tâche pour demain : appeler mon médecin", "tomorrow"),
        ("Ajoute une tâche pour mardi : appeler mon médecin", "tuesday"),
        ("Ajoute une tâche pour le 27 novembre : voir mon avocat", "2026-11-27"),
        ("Please add the task: buy sun cream", "tomorrow"),
        ("Crea una task para mañana: llamar a mamá", "tomorrow"),
        ("Pon la reunión con The Team en la lista para el lunes", "monday"),
    ] {
        assert_eq!(check(user_text, value), Ok(()), "{user_text}: {value}");
    }
}

#[test]
fn confirmation_with_please_keeps_date_of_previous_message() {
    for (before, value) in [
        ("I have to pay the rent tomorrow", "tomorrow"),
        ("I have to pay the rent in three days", "+3d"),
        ("I have to pay the rent at 5 pm", "today 17:00"),
        ("I have to pay the rent on Thursday", "thursday"),
    ] {
        let (mut turn, mut known) = (Dates::default(), Dates::default());
        turn.add_user_text(before);
        known.learn(&turn);
        let mut in_thread = Dates::default();
        in_thread.add_earlier_user_text(before);
        assert_eq!(known, in_thread);
        for n in 0..LAST_TURNS_MAX {
            let mut next = known.clone();
            next.add_user_text("Yes, please, I need that for my flat");
            assert_eq!(next.check(value), Ok(()), "{n}: {before}: {value}");
            known.learn(&next);
        }
        let mut late = known.clone();
        late.add_user_text("Create a task to buy my stamps, please");
        assert_eq!(
            late.check("tomorrow"),
            Err(Invented::NoneNamed),
            "{before}: the date was named too many messages ago"
        );
    }
}

#[test]
fn date_after_long_paste_is_accepted_and_unexamined_text_is_not_judged() {
    let paste = "the cat and that ".repeat(2_000);
    assert_eq!(check(&format!("{paste} Please remind me of this on Friday"), "friday"), Ok(()));
    assert_eq!(check(&format!("{paste} Please remind me of this"), "friday"), Ok(()));
    assert_eq!(check(&paste[..20_000], "friday"), Err(Invented::NoneNamed));
}

#[test]
fn date_named_by_no_message_is_recognised_as_invented() {
    for (user_text, value, why) in [
        ("Create a task to buy stamps", "tomorrow", Invented::NoneNamed),
        ("Create a task to buy stamps", "2026-11-23", Invented::NoneNamed),
        ("Create a task to review PR 42", "+1w", Invented::NoneNamed),
        ("Add a high priority task: finish the tax return", "tomorrow", Invented::NoneNamed),
        ("Erstelle eine Aufgabe: Fahrrad reparieren", "next friday", Invented::NoneNamed),
        ("Rename the bread task to Buy rye bread", "none", Invented::NoneNamed),
        ("I am done with the milk, and no other task", "tomorrow", Invented::NoneNamed),
        ("See the dentist on Thursday, please", "4th of November", Invented::NamedOther("thursday".into())),
        ("See the dentist on Thursday, please", "2026-11-27", Invented::NamedOther("thursday".into())),
        ("See the dentist on Thursday, please", "tomorrow", Invented::NamedOther("thursday".into())),
        ("Move the dentist task to Friday", "2026-11-26", Invented::NamedOther("friday".into())),
        ("The task is due today or on Friday", "monday", Invented::NamedOthers),
        ("Please move my Friday task to tommorow", "tomorrow", Invented::Unclear),
        ("Please move my Friday task to next week", "monday", Invented::Unclear),
        ("Please add a task: prepare the slides for Friday", "thursday", Invented::NamedOther("friday".into())),
    ] {
        assert_eq!(check(user_text, value), Err(why), "{user_text}: {value}");
    }
}

#[test]
fn date_of_result_or_earlier_turn_is_accepted_and_confirmation_is_not_judged() {
    let mut dates = Dates::default();
    dates.add_user_text("I have to see the bank on Friday, and that is my only task");
    let mut next = Dates::default();
    next.learn(&dates);
    next.add_user_text("Add a task for that, please");
    assert_eq!(next.check("friday"), Ok(()));
    assert_eq!(next.check("monday"), Err(Invented::NoneNamed));
    next.add_shown_text("- #1 Send the parcel, due 2026-11-27 (tomorrow)");
    assert_eq!(next.check("2026-11-27"), Ok(()));
    assert_eq!(next.check("tomorrow"), Err(Invented::NoneNamed));
    let mut last = Dates::default();
    last.learn(&next);
    last.add_user_text("yes");
    assert_eq!(last.check("2026-11-30"), Ok(()));
}

#[test]
fn weekday_of_iso_date_is_correct() {
    for (date, day) in
        [("2026-11-22", "sunday"), ("2026-11-26", "thursday"), ("2024-02-29", "thursday"), ("2000-01-01", "saturday")]
    {
        assert_eq!(iso_weekday(date), Some(day), "{date}");
    }
    assert_eq!(iso_weekday("2026-13-01"), None);
    assert_eq!(iso_weekday("20-11-1"), None);
}

#[test]
fn word_with_weak_similarity_to_a_day_is_no_day() {
    for word in ["match", "money", "month", "sunny", "friend", "monitor", "toast", "order", "remember", "thirsty"] {
        assert_eq!(like_a_day(word), None, "{word}");
    }
    let long = "x".repeat(10_000);
    assert_eq!(like_a_day(&long), None);
}

#[test]
fn remembered_dates_are_bounded_and_names_of_days_are_kept() {
    let mut dates = Dates::default();
    dates.add_shown_text("It is due on Friday");
    for year in 1_000..1_000 + WORDS_MAX {
        dates.add_shown_text(&format!("{year}-01-01"));
    }
    assert_eq!(dates.seen.len(), WORDS_MAX);
    assert!(dates.seen.contains("friday") && !dates.seen.contains("1000-01-01"), "{:?}", dates.seen);
}
