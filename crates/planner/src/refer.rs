//! Resolves references of a message to the earlier conversation: the answer to a question of the planner, and `it`.

use super::{
    answer::{LEFT, Origin},
    pattern::number,
    text::{Text, Word},
    turn::says_continue,
};

/// Begins a question before a deletion.
pub(super) const SHALL_I: &str = "Shall I delete ";
/// Introduces the text that confirms the question.
const SAY: &str = " Say: ";
/// How many answers back `it` may refer.
const ANSWERS_BACK_MAX: usize = 3;

/// Phrases that name a task by the number after them.
const NAMES_TASK: [&str; 4] = ["task #", "Task #", "- #", "delete #"];
/// A message without one of these words does not ask for a deletion.
const DELETES: [&str; 11] =
    ["delete", "remove", "erase", "discard", "drop", "archive", "trash", "rid", "take", "undo", "revert"];

/// Prepares a text for output. A text by another author may look like the planner's own questions, lists and task names,
/// which would change the meaning of a later `yes`, `continue` or `it`. Such lines are marked as quotations.
pub(super) fn quoted(text: &str, origin: Origin) -> String {
    if origin == Origin::Question {
        return text.to_owned();
    }
    let names_task = |line: &str| origin == Origin::Other && NAMES_TASK.iter().any(|lead| line.contains(lead));
    let line = |line: &str| {
        let start = line.trim_start();
        let is_alike = start.starts_with(SHALL_I) || start.starts_with(LEFT) || names_task(start);
        if is_alike && !start.starts_with(QUOTED) { format!("{QUOTED} {line}") } else { line.to_owned() }
    };
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// Marks a line by another author.
const QUOTED: char = '>';

/// The message after references are resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Referred {
    /// The requests to carry out.
    Requests(Vec<String>),
    /// The answer; there is nothing to carry out.
    Answer(String),
}

/// The question whether to delete these tasks.
pub(super) fn question(tasks: &[&str], ids: &[u64]) -> String {
    format!("{SHALL_I}{}?{SAY}{}", tasks.join(" and "), consent(ids))
}

fn consent(ids: &[u64]) -> String {
    let numbers: Vec<String> = ids.iter().map(u64::to_string).collect();
    format!("yes, delete task{} {}", if ids.len() > 1 { "s" } else { "" }, numbers.join(", "))
}

/// Reads a message after these answers, newest first; `before` is the user's message before the first of them.
pub(super) fn read(user_text: &str, before: &str, answers: &[&str]) -> Referred {
    // The planner asks only a user who requested a deletion.
    let may_ask =
        before.split(|c: char| !c.is_alphanumeric()).any(|word| DELETES.contains(&word.to_lowercase().as_str()));
    let last = answers.first().filter(|_| may_ask || says_continue(before));
    let asked: Vec<Vec<u64>> = last.map(|answer| questions(answer)).unwrap_or_default();
    if let Some(answer) = consented(user_text, &asked) {
        return answer;
    }
    let request = reminded(user_text, answers)
        .or_else(|| undoing(user_text, answers))
        .or_else(|| with_other_date(user_text, answers));
    match request {
        Some(request) => Referred::Requests(vec![request]),
        None => pronoun(user_text, answers),
    }
}

/// `undo that` after one creation or deletion: the request that reverses it. A new task is deleted after a question.
fn undoing(user_text: &str, answers: &[&str]) -> Option<String> {
    const UNDOES: [&str; 8] = ["undo", "revert", "take", "it", "that", "this", "back", "please"];
    let text = Text::new(user_text);
    let words: Vec<&str> = text.words.iter().map(|word| word.lower.as_str()).collect();
    let is_undo =
        words.iter().any(|w| ["undo", "revert"].contains(w)) || words.starts_with(&["take"]) && words.contains(&"back");
    if !is_undo || !words.iter().all(|word| UNDOES.contains(word)) {
        return None;
    }
    let answer = answers.first()?;
    // A text that was read out begins with its title.
    let (line, rest) = answer.split_once('\n').unwrap_or((answer, ""));
    if rest.lines().any(|line| line.starts_with("I ")) {
        return None;
    }
    let number = |after: &str| {
        let digits = line.strip_prefix(after)?;
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        digits[..end].parse::<u64>().ok()
    };
    if let Some(id) = number("I deleted task #") {
        return Some(format!("restore task {id}"));
    }
    if let Some(id) = number("I created task #") {
        return Some(format!("{}delete task {id}", super::choose::ASK_FIRST));
    }
    let title = line.strip_prefix("I deleted the note '").or_else(|| line.strip_prefix("I deleted note '"))?;
    Some(format!("restore the note {}", title.rsplit_once('\'')?.0))
}

/// `no, I meant the day after tomorrow` after an answer that reports a change of one task: its other date. The time of day stays.
fn with_other_date(user_text: &str, answers: &[&str]) -> Option<String> {
    const LEADS: [&str; 11] =
        ["no", "sorry", "oops", "wait", "actually", "well", "i", "meant", "mean", "rather", "annie"];
    const CHANGED: [&str; 3] = ["I created task #", "I updated task #", "I set a reminder for "];
    let text = Text::new(user_text);
    let is_lead = |word: &Word| !word.quoted && LEADS.contains(&word.lower.as_str());
    let from = text.words.iter().position(|word| !is_lead(word))?;
    let corrects = ["meant", "mean", "rather", "actually"];
    if !text.words[..from].iter().any(|word| corrects.contains(&word.lower.as_str())) {
        return None;
    }
    let answer = answers.first()?;
    let line = answer.lines().next().filter(|line| CHANGED.iter().any(|start| line.starts_with(start)))?;
    let [id] = named(answer)[..] else { return None };
    let date = super::dates::find(&text.words, from..text.words.len())?;
    let is_read = |at: usize| date.words.iter().any(|range| range.contains(&at)) || text.words[at].lower == "please";
    let is_clock =
        |word: &&str| word.len() == 5 && word.as_bytes()[2] == b':' && word.starts_with(|c: char| c.is_ascii_digit());
    let clock = line.split([' ', ',', '.', ';']).map(|word| word.trim_end_matches(':')).find(is_clock);
    let clock = clock.filter(|_| !super::dates::names_time(&date.text)).map(|clock| format!(" {clock}"));
    let clock = clock.unwrap_or_default();
    (from..text.words.len()).all(is_read).then(|| format!("move task {id} to {}{clock}", date.text))
}

/// The task of a reminder.
fn reminder_of(answer: &str) -> Option<u64> {
    let (_, after) = answer.strip_prefix("Reminder: ")?.rsplit_once("(task #")?;
    let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
    after[..end].parse().ok()
}

/// A reply to a reminder without the number of its task: `done`, `snooze for 10 minutes`, `remind me again tomorrow at 9`.
fn reminded(user_text: &str, answers: &[&str]) -> Option<String> {
    const DONE: [&str; 8] = ["done", "finished", "completed", "ok", "okay", "thanks", "already", "i'm"];
    const UNTIL: [&str; 8] = ["for", "until", "till", "to", "by", "in", "please", "again"];
    let id = answers.iter().take(ANSWERS_BACK_MAX).find_map(|answer| reminder_of(answer))?;
    let text = Text::new(user_text);
    let words: Vec<&str> = text.words.iter().map(|word| word.lower.as_str()).collect();
    let is_last = answers.first().is_some_and(|answer| reminder_of(answer).is_some());
    if is_last && words.iter().all(|word| DONE.contains(word)) && words.iter().any(|word| DONE[..3].contains(word)) {
        return Some(format!("mark task {id} as done"));
    }
    let start = super::choose::lead(&text.words, &(0..text.words.len()));
    let (rest, next) = match words.get(start..)? {
        ["snooze", rest @ ..] => (start + 1, rest.first()),
        ["remind", "me", "again", rest @ ..] => (start + 3, rest.first()),
        _ => return None,
    };
    let names_other = next.is_some_and(|word| !UNTIL.contains(word) && !super::dates::begins_date(word));
    (!names_other).then(|| format!("snooze task {id} {}", text.slice(rest..text.words.len())).trim().to_owned())
}

/// The tasks of each question in an answer.
fn questions(answer: &str) -> Vec<Vec<u64>> {
    let of_line = |line: &str| {
        let (_, consent) = line.trim().strip_prefix(SHALL_I)?.rsplit_once(SAY)?;
        let numbers = consent.strip_prefix("yes, delete task")?.trim_start_matches('s');
        numbers.split(',').map(|n| n.trim().parse().ok()).collect::<Option<Vec<u64>>>()
    };
    answer.lines().filter_map(of_line).collect()
}

/// `yes`, `no`, or the exact text that confirms a question.
fn consented(user_text: &str, asked: &[Vec<u64>]) -> Option<Referred> {
    const YES: [&str; 14] =
        ["yes", "y", "yep", "yeah", "sure", "ok", "okay", "please", "do", "it", "go", "ahead", "right", "confirm"];
    const NO: [&str; 10] = ["no", "nope", "n", "not", "don't", "do", "thanks", "stop", "please", "it"];
    let text = Text::new(user_text);
    let words: Vec<&str> = text.words.iter().map(|w| w.lower.as_str()).collect();
    if asked.is_empty() || words.is_empty() || words.len() > 40 {
        return None;
    }
    let delete = |ids: &[u64]| Referred::Requests(ids.iter().map(|id| format!("delete task {id}")).collect());
    let plain = |text: &str| text.to_lowercase().chars().filter(|c| c.is_alphanumeric()).collect::<String>();
    if let Some(ids) = asked.iter().find(|ids| plain(user_text) == plain(&consent(ids))) {
        return Some(delete(ids));
    }
    // `yes, delete it` says what was asked.
    let agrees = |w: &&str| YES.contains(w) || [DELETES[0], DELETES[1], "that", "them"].contains(w);
    if words.iter().all(agrees) && YES[..7].contains(&words[0]) && words.len() <= 4
        || words.iter().all(|w| YES.contains(w)) && words.len() <= 4
    {
        return Some(match asked {
            [only] => delete(only),
            _ => {
                Referred::Answer("I asked about several tasks: say which, for example “yes, delete task 3”.".to_owned())
            }
        });
    }
    let refuses = words.len() <= 4 && words.iter().all(|w| NO.contains(w)) && words.iter().any(|w| w.starts_with('n'));
    refuses.then(|| Referred::Answer("All right, nothing was deleted.".to_owned()))
}

/// Verbs after which `it` is a task.
const VERBS: &str = "mark set complete finish close resolve delete remove erase discard drop archive trash cancel abandon reopen \
    start begin postpone reschedule delay defer snooze move push shift bump make rename retitle tag update change edit modify \
    check tick show open display describe with finished completed did on schedule";
const PRONOUNS: [&str; 5] = ["it", "that", "this", "them", "those"];
/// States after `it is`.
const STATES: [&str; 8] = ["done", "finished", "complete", "completed", "blocked", "stuck", "cancelled", "canceled"];

/// Replaces `it` by the task that was named last.
fn pronoun(user_text: &str, answers: &[&str]) -> Referred {
    let text = Text::new(user_text);
    let head = text.payload_at();
    let words = &text.words[..head];
    let Some((from, to)) = pronoun_range(words) else { return Referred::Requests(vec![user_text.to_owned()]) };
    let ids = answers.iter().take(ANSWERS_BACK_MAX).map(|answer| named(answer)).find(|ids| !ids.is_empty());
    let ids = ids.unwrap_or_default();
    let word = &user_text[words[from].at.clone()];
    match ids.as_slice() {
        [id] => {
            let (start, end) = (words[from].at.start, words[to - 1].at.end);
            let changed = format!("{}task {id}{}", &user_text[..start], &user_text[end..]);
            // A deletion without the number is confirmed first.
            let asks = from > 0 && DELETES[..7].contains(&words[from - 1].lower.as_str()) && words.len() <= to + 4;
            Referred::Requests(vec![if asks {
                format!("{}delete task {id}", super::choose::ASK_FIRST)
            } else {
                changed
            }])
        }
        [] => Referred::Answer(format!(
            "Which task is “{word}”? None was named lately. Say its number, for example “mark task 3 as done”, or “what is on \
             my list” to see the numbers."
        )),
        many => {
            let list: Vec<String> = many.iter().take(10).map(|n| format!("task {n}")).collect();
            Referred::Answer(format!("Which one is “{word}”: {}? Say it with its number.", list.join(", ")))
        }
    }
}

/// The range of a pronoun, or of `that task`, that refers to a task.
fn pronoun_range(words: &[Word]) -> Option<(usize, usize)> {
    let is = |at: usize, any: &[&str]| words.get(at).is_some_and(|w| !w.quoted && any.contains(&w.lower.as_str()));
    let verb = |at: usize| words.get(at).is_some_and(|w| !w.quoted && VERBS.split(' ').any(|v| v == w.lower));
    let start = super::choose::lead(words, &(0..words.len()));
    if is(start, &PRONOUNS[..3]) && is(start + 1, &["is"]) {
        let at = start + 2 + usize::from(is(start + 2, &["already", "now"]));
        return is(at, &STATES).then_some((start, start + 1));
    }
    // The verb is at the beginning: `finish it`, `i am done with it`, `check it off`.
    let reach = words.len().min(start + 5);
    let near = (start..reach).find(|at| is(at + 1, &PRONOUNS) && verb(*at))?;
    let begins = near == start
        || (start..near).all(|at| verb(at) || is(at, &["i", "am", "have", "done", "working", "off", "just"]));
    if !begins {
        return None;
    }
    let from = near + 1;
    let noun = usize::from(is(from + 1, &["task", "todo", "one", "reminder", "item"]));
    // `remove this note`, `move it all`: the pronoun refers to something else, or the rest is not understood.
    let other = words.get(from + 1 + noun).is_some_and(|w| !w.quoted && number(&w.lower).is_some());
    let determines = noun == 0 && !is(from, &["it", "them"]) && words.get(from + 1).is_some_and(|w| !is_link(&w.lower));
    (!other && !determines).then_some((from, from + 1 + noun))
}

fn is_link(word: &str) -> bool {
    [
        "as",
        "to",
        "due",
        "by",
        "until",
        "on",
        "is",
        "done",
        "off",
        "for",
        "please",
        "now",
        "and",
        "high",
        "low",
        "urgent",
        "critical",
        "tomorrow",
        "today",
        "from",
        "next",
        "in",
        "a",
        "complete",
        "completed",
        "finished",
        "blocked",
        "back",
    ]
    .contains(&word)
}

/// The numbers of tasks in an answer, each once.
fn named(answer: &str) -> Vec<u64> {
    let mut ids = Vec::new();
    for line in answer.lines().filter(|line| !line.trim_start().starts_with(QUOTED)) {
        for lead in NAMES_TASK {
            for (at, _) in line.match_indices(lead) {
                let digits = &line[at + lead.len()..];
                let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
                if let Ok(id) = digits[..end].parse::<u64>()
                    && !ids.contains(&id)
                {
                    ids.push(id);
                }
            }
        }
    }
    ids
}

#[cfg(test)]
mod tests;
