//! Promises to remind or to notify. An answer that promises a reminder is corrected, unless a receipt shows that one is set: by
//! `tasks.remind`, by a task with a time of day, or by another skill that notifies the user.

use std::sync::LazyLock;

use regex::Regex;

use super::{finds, own_sentences, pattern};
use crate::receipt::{Extent, Receipt};

/// Appended to an answer that promises to remind or to notify.
const NO_REMINDERS: &str = "(No reminder is set: what is saved stands in your list, but nothing will notify you of it. A reminder needs a time.)";
/// The same for a German answer.
const NO_REMINDERS_GERMAN: &str = "(Es ist keine Erinnerung gestellt: Gespeichertes steht in der Liste, aber nichts meldet sich. Eine Erinnerung braucht eine Uhrzeit.)";
/// Words in the names of skills that start something which notifies the user.
const REMINDING: [&str; 11] = [
    "remind",
    "reminder",
    "reminders",
    "alarm",
    "alarms",
    "timer",
    "notify",
    "calendar",
    "cron",
    "schedule",
    "schedules",
];

/// Every such promise contains one of these stems, so most answers need no further check.
const STEMS: [&str; 13] = [
    "remind",
    "notif",
    "alert",
    "ping",
    "nudge",
    "let you know",
    "heads",
    "alarm",
    "erinner",
    "benachrichtig",
    "bescheid",
    "melden",
    "wecker",
];

/// "I'll remind you on Friday", "You will be notified", "I've set a reminder for you".
static REMINDERS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(&format!(
        r"(?ix)
        \b (?: i | we | annie ) {WILL} (?: remind | notify | alert | ping | nudge ) \s+ you \b
        | \b (?: i | we | annie ) {WILL} (?: send | give ) \s+ you \s+ {ONE} (?: \w+ \s+ ){{0,2}} (?: {SIGNS} ) \b
        | \b (?: i | we | annie ) {WILL} let \s+ you \s+ know \s+ (?: when | once | on | at | in | before | as | tomorrow | later | the ) \b
        | \b you {WILL} be \s+ (?: reminded | notified | alerted ) \b
        | \b you {WILL} (?: get | receive ) \s+ {ONE} (?: \w+ \s+ ){{0,2}} (?: {SIGNS} ) \b
        | \b (?: reminder | alarm | notification ) s? \s+ will \s+ (?: be \s+ sent | go \s+ off | pop \s+ up | ring | appear ) \b
        | \b i (?: \s+ have | ['’]ve )? (?: \s+ (?: just | now | also | successfully ) )* \s+
          (?: set (?: \s+ up )? | scheduled | created | added ) \s+ {ONE} (?: new | daily | weekly | friendly | quick )? \s*
          (?: reminder | alarm ) s? \b
        | \b (?: reminder | alarm ) s? \b [^.!?\n]{{0,40}}? \b (?: is | are | has \s+ been | have \s+ been ) \s+ (?: now \s+ )? set \b"
    ))
});
const WILL: &str = r"(?: ['’]ll | \s+ will | \s+ am \s+ going \s+ to | ['’]m \s+ going \s+ to )
    (?: \s+ (?: also | then | now | just | definitely | certainly | (?: make | be ) \s+ sure \s+ to | of \s+ course ) )* \s+";
const ONE: &str = r"(?: (?: a | an | the | your | another ) \s+ )?";
const SIGNS: &str = "reminders? | notifications? | alerts? | heads[- ]up | nudge";

/// "Ich erinnere dich am Freitag", "Du wirst benachrichtigt".
static REMINDERS_GERMAN: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"(?ix)
        \b (?: ich \s+ werde | werde \s+ ich ) \s+ (?: dich | sie | euch | dir | ihnen ) \b [^.!?\n]{0,80}? \b
          (?: erinnern | benachrichtigen | bescheid \s+ (?: geben | sagen ) | erinnerung \s+ schicken )
        | \b ich \s+ werde \s+ mich \b [^.!?\n]{0,60}? \b melden \b
        | \b (?: ich \s+ (?: erinnere | benachrichtige ) | (?: erinnere | benachrichtige ) \s+ ich ) \s+ (?: dich | sie | euch ) \b
        | \b (?: ich \s+ (?: gebe | sage ) | (?: gebe | sage ) \s+ ich ) \s+ (?: dir | ihnen | euch ) \b [^.!?\n]{0,40}? \b bescheid \b
        | \b (?: ich \s+ schicke | schicke \s+ ich ) \s+ (?: dir | ihnen | euch ) \b [^.!?\n]{0,40}? \b erinnerung \b
        | \b (?: du \s+ wirst | sie \s+ werden | wirst \s+ du | werden \s+ sie ) \b [^.!?\n]{0,60}? \b (?: erinnert | benachrichtigt ) \b
        | \b (?: du \s+ (?: bekommst | erhältst ) | sie \s+ (?: bekommen | erhalten ) ) \b [^.!?\n]{0,40}? \b (?: erinnerung | benachrichtigung ) \b
        | \b ich \s+ habe \b [^.!?\n]{0,60}? \b (?: erinnerung | wecker ) \b [^.!?\n]{0,60}? \b (?: gesetzt | eingestellt | eingerichtet | gestellt ) \b",
    )
});

/// Words before a promise that make it an offer or a denial. "When it is due" before a promise is part of the promise.
static OFFERS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"(?ix) \b (?: if | unless | should | would | could | can | cannot | no | not | never | falls | nicht | kein\w* | könnte | würde
            | wenn \s+ (?: du | sie | ihr ) \s+ (?: \w+ \s+ )? (?: willst | wollen | möchtest | möchten | magst | wünschst | wünschen ) ) \b
          | n['’]t \b",
    )
});

/// Words after a promise that cancel it: "I'll remind you that water is wet" reminds at once, "ich erinnere dich nicht" denies.
static NO_PROMISES: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"(?i)^\s*(?:(?:that|how|why|what|of what)\b|:|(?:\w+\s+){0,2}nicht\b)"));

/// The correction for an answer that promises a reminder although no component will send one. `shown` are the receipts of this
/// turn and of earlier turns. Words of the user or of a receipt are not a promise of the answer.
pub(in super::super) fn promised_reminder<'a>(
    text: &str,
    users: &str,
    shown: impl Iterator<Item = &'a Receipt>,
) -> Option<&'static str> {
    let small = text.to_lowercase();
    if !STEMS.iter().any(|stem| small.contains(stem)) {
        return None;
    }
    let mut known_words = vec![users.to_lowercase()];
    for receipt in shown {
        if receipt.extent == Extent::Accepted || reminds(&receipt.skill) || shows_reminder(&receipt.line) {
            return None;
        }
        known_words.push(receipt.line.to_lowercase());
    }
    // A promise beside a question to the user depends on the answer.
    let before_questions = text.split('?').next().unwrap_or_default();
    let before_questions = if text.contains('?') {
        before_questions.rsplit_once(['.', '!', '\n']).map_or("", |(whole, _)| whole)
    } else {
        text
    };
    let is_known = |words: &str| known_words.iter().any(|known| known.contains(&words.to_lowercase()));
    let sentences = own_sentences(before_questions);
    let is_promised = |pattern: &LazyLock<Option<Regex>>| {
        let in_sentence = |pattern: &Regex, sentence: &str| {
            pattern.find_iter(sentence).any(|found| {
                !is_known(found.as_str())
                    && !finds(&OFFERS, &sentence[..found.end()])
                    && !finds(&NO_PROMISES, &sentence[found.end()..])
            })
        };
        pattern.as_ref().is_some_and(|pattern| sentences.iter().any(|sentence| in_sentence(pattern, sentence)))
    };
    if is_promised(&REMINDERS_GERMAN) {
        return Some(NO_REMINDERS_GERMAN);
    }
    is_promised(&REMINDERS).then_some(NO_REMINDERS)
}

/// Whether a skill, by its name, starts something which notifies the user.
fn reminds(skill: &str) -> bool {
    skill.split(|c: char| !c.is_alphanumeric()).any(|word| REMINDING.contains(&word.to_lowercase().as_str()))
}

/// Whether the line of a task names the time of its reminder.
fn shows_reminder(line: &str) -> bool {
    let after = line.rsplit_once(", reminder ").map(|(_, after)| after);
    after.is_some_and(|after| after.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Micros;

    fn receipt(skill: &str, line: &str, extent: Extent) -> Receipt {
        let (skill, line) = (skill.to_owned(), line.to_owned());
        Receipt { skill, call: String::new(), line, extent, ids: Vec::new(), names: Vec::new(), at: Micros(0) }
    }

    fn line(text: &str, shown: &[Receipt]) -> Option<&'static str> {
        promised_reminder(text, "remind me to buy milk on Friday", shown.iter())
    }

    #[test]
    fn reminder_promise_is_found_in_english_and_german() {
        let task = [receipt("tasks.create", "Created task #1 Buy milk", Extent::Done)];
        for text in [
            "I created the task. I will remind you on Friday.",
            "Done! I'll remind you to buy milk.",
            "I'll make sure to remind you.",
            "When it is due, I'll notify you.",
            "I've added it to your list and I'll send you a reminder on Friday.",
            "You'll be notified on Friday at 9.",
            "You will get a friendly reminder.",
            "I'll let you know when it is due.",
            "I've set a reminder for Friday.",
            "Your reminder to buy milk is set.",
            "The task is saved. I'll remind you. Anything else?",
        ] {
            assert_eq!(line(text, &task), Some(NO_REMINDERS), "{text}");
        }
        for text in [
            "Die Aufgabe ist angelegt. Ich werde dich am Freitag daran erinnern.",
            "Ich erinnere Sie am Freitag.",
            "Sobald sie fällig ist, benachrichtige ich dich.",
            "Ich sage dir am Freitag Bescheid.",
            "Du wirst am Freitag erinnert.",
            "Ich habe dir eine Erinnerung für Freitag eingerichtet.",
        ] {
            assert_eq!(line(text, &task), Some(NO_REMINDERS_GERMAN), "{text}");
        }
    }

    #[test]
    fn reminder_promise_excludes_words_of_others_and_kept_promises() {
        let titled = receipt("tasks.create", "Created task #1 I will remind you of Bob", Extent::Done);
        for text in [
            "The task 'remind Bob' was created.",
            "The task \"I will remind you\" was created.",
            "Created task #1 I will remind you of Bob.",
            "I can't remind you, but the task stands in your list.",
            "I will not remind you.",
            "If you like, I can remind you.",
            "Should I remind you?",
            "Which day? I'll remind you then.",
            "I'll remind you that water is wet.",
            "Remind me to buy milk on Friday: created as task #1.",
            "I'll let you decide.",
            "Dear Bob,\n\nI will remind you on Friday.\n\nBest regards,\nAnn",
            "Ich erinnere dich nicht daran, die Aufgabe steht in der Liste.",
            "Wenn du möchtest, erinnere ich dich.",
        ] {
            assert_eq!(line(text, std::slice::from_ref(&titled)), None, "{text}");
        }
        let timed =
            "Created task #1 Buy milk, due 2026-11-27 09:00 (friday), priority medium, reminder 2026-11-27 09:00";
        let kept = [
            receipt("mcp.calendar.create_event", "ok", Extent::Done),
            receipt("shop.order", "ok", Extent::Accepted),
            receipt("tasks.remind", "ok", Extent::Done),
            receipt("tasks.create", timed, Extent::Done),
        ];
        for shown in &kept {
            assert_eq!(line("I'll remind you on Friday.", std::slice::from_ref(shown)), None, "{shown:?}");
        }
    }
}
