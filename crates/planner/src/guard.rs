//! Refuses what must not be carried out: a message that retracts itself, depends on a condition or was not understood as a
//! whole, and requests that no skill can serve, which are answered in words.

use super::{
    catalog::Catalog,
    choose::{ASK_FIRST, How, asks, choose, lead, reads},
    clauses::Clause,
    fallback,
    fill::CONDITIONS,
    goal::Goal,
    pattern::number,
    rules::Shape,
    text::{Text, Word, shortened},
};

/// Phrases by which a message retracts itself.
const TAKEN_BACK: [&str; 12] = [
    "never mind",
    "nevermind",
    "scratch that",
    "on second thought",
    "no wait",
    "wait no",
    "just kidding",
    "actually no",
    "actually do not",
    "forget that request",
    "forget i said",
    "no do not",
];
/// Beginnings of an event to wait for, or of a condition, beside [`CONDITIONS`].
const EVENTS: [&str; 7] = ["once", "when", "while", "as soon as", "in case", "the moment", "only if"];
/// Words after `when` and `once` that make a question or a time of them.
const ASKS_ON: [&str; 17] = [
    "is", "are", "was", "were", "does", "do", "did", "will", "can", "should", "would", "am", "has", "have", "and",
    "again", "more",
];
/// Verbs that mark a clause as a request even if no skill serves it.
const REQUESTS: &str = "translate summarize summarise book order play call email mail send turn open draw tell write explain \
    calculate compute convert google buy pay print give set start run text message ring alert notify wake schedule plan find \
    look search show list read get make do check cook generate compose reply answer rewrite proofread correct describe \
    download upload share sync backup define spell count sum recommend suggest export import help remind post tweet sing";
/// Those of them that take a text of any length, perhaps several sentences by another author.
const TAKES_TEXT: &str = "translate summarize summarise tell write explain email mail send text message reply answer rewrite \
    proofread correct read print generate compose draw post tweet define describe google";

/// Replaces each deletion by a question, unless the message consists of one plain clause with the task's number.
pub(super) fn cautious(clauses: Vec<Clause>, catalog: &Catalog) -> Vec<Clause> {
    let alone = clauses.len() == 1;
    let careful = |mut clause: Clause| {
        let text = Text::new(&clause.text);
        let choice = choose(&text, &(0..text.words.len()), catalog);
        let Some(choice) = choice.filter(|c| c.skill == "tasks.delete") else { return clause };
        let by_phrase = matches!(&choice.how, How::Phrase { shape: Shape::One, .. });
        if by_phrase && !(alone && is_plain(&text.words[choice.start..])) {
            clause.text = format!("{ASK_FIRST}{}", text.slice(choice.start..text.words.len()));
        }
        clause
    };
    clauses.into_iter().map(careful).collect()
}

/// `delete the task 3 please`: a verb, a noun or `#`, one number, and nothing else.
fn is_plain(words: &[Word]) -> bool {
    const ELSE: [&str; 18] = [
        "the", "my", "task", "todo", "to-do", "reminder", "number", "no", "nr", "please", "now", "from", "off", "list",
        "thanks", "item", "annie", "get",
    ];
    let numbers = words.iter().filter(|w| number(&w.lower).is_some()).count();
    let named = words.windows(2).any(|pair| {
        let noun =
            ["task", "todo", "to-do", "reminder", "item", "number", "no", "nr"].contains(&pair[0].lower.as_str());
        number(&pair[1].lower).is_some() && (noun || pair[1].lower.starts_with('#'))
    });
    let rest =
        words.iter().skip(1).all(|w| !w.quoted && (number(&w.lower).is_some() || ELSE.contains(&w.lower.as_str())));
    numbers == 1 && named && rest
}

/// Why no part of a message is carried out.
pub(super) fn refused(source: &str, goals: &[Goal<'_>]) -> Option<String> {
    let text = Text::new(source);
    let words = &text.words[..text.payload_at()];
    let acts =
        goals.iter().any(|g| g.skill.as_deref().is_some_and(|s| !reads(s)) || g.user_request().starts_with(ASK_FIRST));
    if let Some(at) = taken_back(words) {
        return Some(format!(
            "I took “{}” to mean that nothing is to be done, so I did nothing.",
            shortened(text.slice(at..words.len()), 80)
        ));
    }
    if let Some(goal) = goals.iter().find(|g| g.is_unrecognised() && begins_conditional(g.user_request()))
        && goals.len() + usize::from(acts) > 1
    {
        return Some(conditional(goal.user_request()));
    }
    if let [only] = goals
        && begins_conditional(only.user_request())
        && only.is_unrecognised()
    {
        return Some(conditional(only.user_request()));
    }
    if !acts {
        return None;
    }
    let last = goals.len() - 1;
    let foreign =
        goals.iter().enumerate().find(|(n, g)| g.is_unrecognised() && !is_request(g.user_request(), *n == last))?;
    (goals.len() > 1).then(|| {
        format!(
            "I did nothing, since I did not understand all of your message: “{}”. I take only plain requests together. {}",
            shortened(foreign.1.user_request().trim(), 120),
            fallback::introduction_and_model()
        )
    })
}

fn conditional(user_request: &str) -> String {
    fallback::cannot_wait(user_request.trim())
}

fn taken_back(words: &[Word]) -> Option<usize> {
    (0..words.len()).find(|at| TAKEN_BACK.iter().any(|phrase| says(words, *at, phrase)))
}

fn says(words: &[Word], at: usize, phrase: &str) -> bool {
    phrase.split(' ').enumerate().all(|(n, part)| words.get(at + n).is_some_and(|w| !w.quoted && w.lower == part))
}

fn begins_conditional(user_request: &str) -> bool {
    let text = Text::new(user_request);
    let at = lead(&text.words, &(0..text.words.len()));
    let asks_on = text.words.get(at + 1).is_some_and(|w| ASKS_ON.contains(&w.lower.as_str()));
    let bare = at + 1 >= text.words.len();
    let is_waiting = ["when", "once", "while"].iter().any(|w| says(&text.words, at, w));
    let begins = CONDITIONS.iter().chain(&EVENTS).any(|phrase| says(&text.words, at, phrase))
        && !bare
        && !(is_waiting && asks_on);
    let event = ["after", "before", "until", "till"].iter().any(|w| says(&text.words, at, w));
    begins || (event && text.words.len() > at + 3)
}

/// Whether a clause without a skill is still a request or a question, and not a text by another author.
fn is_request(user_request: &str, is_last: bool) -> bool {
    let text = Text::new(user_request);
    let at = lead(&text.words, &(0..text.words.len()));
    if asks(&text.words, at) && user_request.trim_end().ends_with('?') {
        return true;
    }
    let is_verb =
        |list: &str| text.words.get(at).is_some_and(|w| !w.quoted && list.split_whitespace().any(|v| v == w.lower));
    is_verb(REQUESTS) && (is_last || !is_verb(TAKES_TEXT))
}

/// The answer to a clause that must not be carried out, even if it resembles a skill.
pub(super) fn answer(text: &Text<'_>, catalog: &Catalog) -> Option<String> {
    let words = &text.words[..text.payload_at()];
    let start = if says(words, 0, ASK_FIRST.trim_end()) { ASK_FIRST.split_whitespace().count() } else { 0 };
    let at = lead(words, &(start..words.len()));
    let is = |at: usize, any: &[&str]| words.get(at).is_some_and(|w| !w.quoted && any.contains(&w.lower.as_str()));
    let forgets = is(at, &["do"]) && is(at + 1, &["not"]) && is(at + 2, &["forget", "let", "you", "i"]);
    let negated =
        (is(at, &["do"]) && is(at + 1, &["not"])) || is(at, &["never"]) || (is(at, &["stop"]) && words.len() > at + 1);
    if negated && !forgets {
        return Some("All right: I did nothing. (I cannot keep rules like this for later.)".to_owned());
    }
    if is(at, &["undo", "revert"]) || (is(at, &["take"]) && is(at + 2, &["back"])) {
        let what = "I can undo only the one creation of a task, or deletion of a task or note, that my last answer reports, so nothing \
                    was changed. You can set things right with a request of your own, for example: “restore task 3”, “reopen task 3” or “rename task 3 \
                    to Call Bob”.";
        return Some(what.to_owned());
    }
    let names_schedule = words[at.min(words.len())..].iter().any(|w| !w.quoted && w.lower.starts_with("schedule"));
    if is(at, &["pause", "suspend", "resume", "unpause", "continue"]) && names_schedule {
        let what = "I cannot pause or resume a schedule, so nothing was changed. “cancel schedule 1” ends one; the page Schedules and \
                    `annie cron pause 1` pause it.";
        return Some(what.to_owned());
    }
    if is(at, &["should", "could", "may", "can", "must", "shall"]) && is(at + 1, &["i", "we"]) {
        return None;
    }
    if is(at, &["forget"]) && is(at + 1, &["it", "that", "this"]) && words.len() == at + 2 {
        return Some("All right: I did nothing.".to_owned());
    }
    wants(words, at).or_else(|| forgotten(words, at, catalog))
}

/// `I want to learn Rust`, `I have to go`: not a request for a task, or an ambiguous one.
fn wants(words: &[Word], at: usize) -> Option<String> {
    const TALK: [&str; 22] = [
        "go",
        "say",
        "admit",
        "see",
        "talk",
        "think",
        "leave",
        "sleep",
        "be",
        "apologize",
        "apologise",
        "confess",
        "laugh",
        "cry",
        "run",
        "ask",
        "know",
        "tell",
        "thank",
        "agree",
        "disagree",
        "understand",
    ];
    let is = |at: usize, any: &[&str]| words.get(at).is_some_and(|w| !w.quoted && any.contains(&w.lower.as_str()));
    if !is(at, &["i", "we"]) {
        return None;
    }
    let must = usize::from(is(at + 1, &["have"]) && is(at + 2, &["got"]));
    let needs = is(at + 1 + must, &["need", "have", "got", "ought"]) && is(at + 2 + must, &["to"]);
    let bare = is(at + 1, &["must", "gotta"]);
    let rest = if needs { at + 3 + must } else { at + 2 };
    ((needs || bare) && is(rest, &TALK)).then(|| {
        let rest_words: Vec<&str> = words[rest..].iter().map(|w| w.lower.as_str()).collect();
        format!(
            "I put nothing on your list, since I am not sure that this is a task. If it is, say: “create a task to {}”.",
            shortened(&rest_words.join(" "), 80)
        )
    })
}

/// `forget what I said about Bob`, `delete my notes`: only tasks can be deleted.
fn forgotten(words: &[Word], at: usize, catalog: &Catalog) -> Option<String> {
    const VERBS: [&str; 13] = [
        "delete", "remove", "erase", "forget", "drop", "discard", "clear", "wipe", "purge", "destroy", "trash",
        "unlearn", "empty",
    ];
    let is = |at: usize, any: &[&str]| words.get(at).is_some_and(|w| !w.quoted && any.contains(&w.lower.as_str()));
    if !is(at, &VERBS) {
        return None;
    }
    let able = |domain: &str| {
        let verbs = ["delete", "forget", "remove", "erase"];
        verbs.iter().any(|verb| catalog.get(&format!("{domain}.{verb}")).is_some())
    };
    let names = |any: &[&str]| (at + 1..words.len()).any(|n| is(n, any));
    let forget = is(at, &["forget"]);
    if (forget || names(&["memory", "memories", "remember", "remembered"])) && !able("memory") {
        return Some(
            "I cannot forget yet: there is no skill that deletes memories, so everything that I was told to remember is still \
             there. “what do you know about Bob” shows what that is."
                .to_owned(),
        );
    }
    if names(&["note", "notes", "memo", "memos"]) && !able("notes") && !names(&["task", "tasks", "todo", "reminder"]) {
        return Some(
            "I cannot delete notes or take text out of them: there is no skill for that, so nothing was changed. “read the note \
             Groceries” shows one, “add butter to the note Groceries” adds to it."
                .to_owned(),
        );
    }
    if names(&["note", "notes"]) && names(&["from", "out"]) && !names(&["task", "tasks", "todo", "reminder"]) {
        return Some(
            "I cannot take text out of notes, so nothing was changed. “delete the note Groceries” deletes a whole note, “add butter \
             to the note Groceries” adds to it."
                .to_owned(),
        );
    }
    if names(&["conversation", "conversations", "history", "chat", "chats", "messages"]) {
        return Some("I cannot delete conversations: there is no skill for that, so nothing was changed.".to_owned());
    }
    if forget && names(&["all", "everything", "anything"]) && names(&["about", "of", "on", "regarding"]) {
        return Some(
            "I forget one memory at a time, so nothing was forgotten. “what do you know about Bob” shows the memories with their \
             numbers, and “forget memory 3” deletes one."
                .to_owned(),
        );
    }
    let all = names(&["all", "everything", "every", "tasks", "todos", "reminders"])
        && !words[at..].iter().any(|w| number(&w.lower).is_some());
    all.then(|| {
        "I delete tasks only one at a time, or a few by their numbers, so nothing was deleted. Say for example: “delete task 3”."
            .to_owned()
    })
}
