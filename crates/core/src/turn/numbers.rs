//! The numbers in a text, and the numbers in a user's words that can be ids. Models invent numbers, so a skill may act only on
//! numbers that were named (invariant 20). The work is linear in the length of the text, because it is done while events are
//! folded.

use crate::calendar::NUMBERS;

/// Nouns of things that have an id: "task two", "Aufgabe 2".
const NOUNS: &str = "task tasks todo todos to-do to-dos number numbers no nos item items id ids note notes memory memories \
    schedule schedules reminder reminders nr nummer nummern aufgabe \
    aufgaben punkt tarea tareas tâche tâches tarefa tarefas taak taken compito uppgift zadanie";
/// Words after which a number is an id. After any other word, a number counts something ("in 3 days") or names something else
/// ("PR 42"); an id that is needed can be looked up.
const LEADS: &str = "delete remove drop complete completed finish finished done close closed archive mark update change edit \
    rename move postpone delay push reschedule cancel reopen restart start begin set tick check off tag prioritise prioritize \
    raise lower assign make get open show and or also then with of for on only just please is was are both either the \
    lösche lösch erledige erledigt entferne verschiebe ändere schließe markiere setze öffne und oder auch dann mit von für bitte";
/// Words that may follow an id. Before any other word, the number counts things: "delete 3 tasks".
const FOLLOWS: &str = "and or also then is are was to from on by as please too for with in done until till now again has have \
    must should can needs because instead into at off high low urgent medium finished completed the a it via und oder auch dann \
    ist sind auf als bitte erledigt löschen entfernen verschieben ab nach mit bis";

/// Words that join the numbers of a list.
const JOINS: &str = "and or und oder";

/// The ids in a user's words, including those that are spelled out: "task two".
pub(super) fn numbers_of_user(words: &str) -> Vec<u64> {
    let mut ids = numbers_meant(words, true).0;
    let words: Vec<String> =
        words.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()).map(str::to_lowercase).collect();
    for pair in words.windows(2) {
        let number = NUMBERS.iter().position(|n| *n == pair[1]).filter(|_| list_contains(NOUNS, &pair[0]));
        ids.extend(number.map(|at| at as u64 + 1));
    }
    ids
}

/// The numbers in any text that are explicitly ids: `#7`, "task 7", "tasks 7 and 8".
pub(super) fn numbers_of_things(words: &str) -> Vec<u64> {
    numbers_meant(words, false).0
}

/// The numbers in a text that can be ids; if `by_place`, also those at the beginning of a sentence or after a verb. The second
/// value is how many bytes of gaps between numbers were examined. Each gap is examined once, so it is at most the length of
/// the text.
fn numbers_meant(text: &str, by_place: bool) -> (Vec<u64>, usize) {
    let (mut meant, mut gaps_bytes) = (Vec::new(), 0);
    // The end of the previous number if it was an id: numbers that follow it in a list are ids, too.
    let mut list_end: Option<usize> = None;
    for n in numbers(text).filter(|n| n.is_standalone) {
        let before = text[..n.at.start].trim_end();
        let lead = before.trim_end_matches(|c: char| !c.is_alphanumeric());
        let word = lead.rsplit(|c: char| !c.is_alphabetic() && c != '-').next().unwrap_or_default().to_lowercase();
        let is_listed = list_end.take().is_some_and(|end| {
            let gap = &text[end..n.at.start];
            gaps_bytes += gap.len();
            gap.split(|c: char| !c.is_alphanumeric()).all(|w| w.is_empty() || list_contains(JOINS, &w.to_lowercase()))
        });
        let begins = before.is_empty() || before.ends_with(['.', '!', '?', ';', ':', ',', '(']);
        let next: String = text[n.at.end..].trim_start().chars().take_while(|c| c.is_alphabetic()).collect();
        let is_count = !next.is_empty() && !list_contains(FOLLOWS, &next.to_lowercase());
        let is_led = is_listed || by_place && (begins || list_contains(LEADS, &word));
        if n.is_named || list_contains(NOUNS, &word) || (is_led && !is_count) {
            meant.push(n.value);
            list_end = Some(n.at.end);
        }
    }
    (meant, gaps_bytes)
}

/// Whether a list of words contains a word.
pub(super) fn list_contains(names: &str, word: &str) -> bool {
    names.split_whitespace().any(|name| name == word)
}

/// A whole number in a text.
pub(super) struct Number {
    pub value: u64,
    /// Its byte range in the text.
    at: std::ops::Range<usize>,
    /// It is not part of a word, a date, a time or a fraction.
    is_standalone: bool,
    /// The text marks it as an id: `#7`, `id: 7`, `"number": 7`.
    pub is_named: bool,
}

/// The whole numbers in a text.
pub(super) fn numbers(text: &str) -> impl Iterator<Item = Number> {
    let is_digit = |c: char| c.is_ascii_digit();
    let mut at = 0;
    std::iter::from_fn(move || {
        let from = at + text[at..].find(is_digit)?;
        let to = text[from..].find(|c| !is_digit(c)).map_or(text.len(), |len| from + len);
        at = to;
        Some((from, to))
    })
    .filter_map(move |(from, to)| {
        let (before, after) = (&text[..from], &text[to..]);
        let joins = |c: char| matches!(c, ':' | '-' | '/' | '.');
        let digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
        let mut back = before.chars().rev();
        let mut on = after.chars();
        let (last, next) = (back.next(), on.next());
        // "GPT-4", or the key in the tag of a frame.
        let in_name = last == Some('-') && back.clone().next().is_some_and(char::is_alphanumeric);
        let in_word =
            in_name || last.is_some_and(|c| c.is_alphabetic() || c == '_') || next.is_some_and(char::is_alphabetic);
        let in_date = (last.is_some_and(joins) && digit(back.next())) || (next.is_some_and(joins) && digit(on.next()));
        let lead = before.trim_end_matches([' ', ':', '=', '"', '\'']);
        let word = lead.rsplit(|c: char| !c.is_alphabetic()).next().unwrap_or_default().to_ascii_lowercase();
        let is_key = lead.len() < before.len() && matches!(word.as_str(), "id" | "ids" | "number");
        let is_standalone = !in_word && !in_date;
        let is_named = is_standalone && (last == Some('#') || is_key);
        Some(Number { value: text[from..to].parse().ok()?, at: from..to, is_standalone, is_named })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_user_include_ids_and_exclude_parts_of_dates() {
        for (words, ids) in [
            ("delete task 3", &[3][..]),
            ("delete #3, 4 and 5.", &[3, 4, 5]),
            ("delete task two", &[2]),
            ("cancel schedule 2", &[2]),
            ("forget memory 7", &[7]),
            ("snooze reminder 4 by an hour", &[4]),
            ("delete the dentist one", &[]),
            ("move it to 2026-02-18 at 14:05", &[]),
            ("at 5pm, v2, PR42, 1.5 kg", &[]),
            ("1,2,3", &[1, 2, 3]),
            ("löschе Aufgabe 12!", &[12]),
            ("99999999999999999999999", &[]),
            ("7 is done, and so is number 9", &[7, 9]),
            ("mark 7 as done. 8 too", &[7, 8]),
            ("I am done with 3 and 4", &[3, 4]),
            ("I finished reviewing PR 42, mark that task as done", &[]),
            ("move it to room 12, chapter 3, in 5 days", &[]),
            ("delete 3 tasks and buy 2 eggs", &[]),
            ("the GPT-4 task, F-16, <result-0042>", &[]),
            ("Erledige 3 und lösche Aufgabe 5", &[3, 5]),
        ] {
            assert_eq!(numbers_of_user(words), ids, "{words}");
        }
    }

    #[test]
    fn numbers_gaps_are_examined_once_for_any_count_of_numbers() {
        for part in ["x 2 ", "ü 2x 3 ", ", 99999999999999999999999 4 y 5 "] {
            for lead in ["#1\n".to_owned(), format!("#1{}", ",".repeat(10_000))] {
                let text = format!("{lead}{}", part.repeat(20_000));
                let (meant, gaps_bytes) = numbers_meant(&text, true);
                assert_eq!(meant.first(), Some(&1));
                assert!(gaps_bytes <= text.len(), "{gaps_bytes} of {}: {part}", text.len());
            }
        }
    }
}
