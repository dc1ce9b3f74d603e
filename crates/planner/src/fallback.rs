//! Answers a message that was not understood: in the user's own language, or with the most similar request that is
//! supported.

use std::collections::BTreeSet;

use super::{
    answer::IDENTITY,
    choose::{asks, lead},
    dates,
    pattern::number,
    text::{Text, shortened},
};

/// How to configure a language model, in one sentence.
const MODEL: &str = "`annie config init` sets up a language model.";
/// Length limit for a message that an answer repeats, in characters.
const REPEATED_CHARS_MAX: usize = 120;

/// Words that identify a language, and the answer in that language.
const LANGUAGES: [(&str, &str); 3] = [
    (
        "der die das und ist nicht ich du mir mich bitte wie was wann wo heute morgen ein eine einen mit auf für zu von meine \
         mein kannst erinnere erstelle lösche aufgabe aufgaben notiz hallo danke wetter spät uhr zeig zeige welche sind dass",
        "Ich verstehe nur Englisch: Ich bin Annies Offline-Planer und kein Sprachmodell. Ein Beispiel: “create a task to call \
         Bob tomorrow”. Mit `annie config init` lässt sich ein Sprachmodell einrichten.",
    ),
    (
        "le la les et est pas je tu moi mon ma mes s'il vous plaît plait quelle quel heure aujourd'hui demain un une avec pour \
         de du des que qui rappelle crée supprime tâche tâches bonjour merci il comment quand où peux acheter fait",
        "Je ne comprends que l'anglais : je suis le planificateur hors ligne d'Annie, pas un modèle de langage. Un exemple : \
         “create a task to call Bob tomorrow”. `annie config init` permet de configurer un modèle de langage.",
    ),
    (
        "el la los las y es no yo tú mi mis por favor qué que hora hoy mañana un una con para de del cuál cómo cuándo dónde \
         recuérdame recuerda crea borra tarea tareas hola gracias puedes comprar leche llamar hace tiempo está",
        "Solo entiendo inglés: soy el planificador sin conexión de Annie, no un modelo de lenguaje. Un ejemplo: “create a task to \
         call Bob tomorrow”. `annie config init` permite configurar un modelo de lenguaje.",
    ),
];
/// Words that identify a text as English.
const ENGLISH: &str = "the a an is are was i you me my to of and for in on it what how when where who please this that with do \
    does can could would will at from hello hi thanks";

/// Key words of a subject, and an example request for it.
const EXAMPLES: [(&str, &str); 10] = [
    ("remind reminder alarm timer wake alert notify ping", "remind me to call Bob tomorrow at 5pm"),
    ("move postpone reschedule shift delay push bump defer", "move task 3 to Monday"),
    ("note notes memo jot shopping groceries journal", "create a note titled Groceries: milk and eggs"),
    ("remember memory memories know forget recall", "remember that Bob prefers email"),
    ("done finish finished complete completed tick check close", "mark task 3 as done"),
    ("delete remove erase cancel drop", "delete task 3"),
    ("rename retitle change edit update", "rename task 3 to Call Bob"),
    ("task tasks todo todos list agenda plan overdue due deadline week", "what is due this week"),
    ("time clock date day hour", "what time is it in Tokyo"),
    ("meeting appointment calendar schedule book event", "create a task to meet Bob on Friday at 10:00"),
];

/// What the planner is, and how to configure a language model.
pub(super) fn introduction_and_model() -> String {
    format!("{IDENTITY}. {MODEL}")
}

/// The answer to a request that depends on a condition or an event.
pub(super) fn cannot_wait(condition: &str) -> String {
    format!(
        "I cannot wait for a condition or an event (“{}”), so I did nothing. Say what to do without it, for example: “create \
         a task to call Bob on Friday”.",
        shortened(condition, 80)
    )
}

/// The answer to clauses that were not understood.
pub(super) fn not_understood(clauses: &[String]) -> String {
    let first = clauses.first().map_or("", String::as_str);
    if let Some(translated) = foreign(first) {
        return translated.to_owned();
    }
    let quoted: Vec<String> =
        clauses.iter().map(|c| format!("“{}”", shortened(&c.trim().replace('\n', " "), REPEATED_CHARS_MAX))).collect();
    let what = quoted.join(" or ");
    let text = Text::new(first);
    let asks_something =
        first.trim_end().ends_with('?') || asks(&text.words, lead(&text.words, &(0..text.words.len())));
    if asks_something {
        return format!(
            "I cannot answer {what}. {IDENTITY}: I keep tasks, notes and memories. For example: “{}”. {MODEL}",
            nearest(first)
        );
    }
    format!(
        "I did not understand {what}. {IDENTITY}; the nearest that I can do is for example “{}”. {MODEL}",
        nearest(first)
    )
}

/// A supported request that is similar to this text.
fn nearest(clause: &str) -> String {
    const PLAIN_CHARS_MAX: usize = 60;
    let text = Text::new(clause);
    let at = lead(&text.words, &(0..text.words.len()));
    let has = |list: &str| {
        text.words[..text.payload_at()].iter().take(40).any(|w| !w.quoted && list.split(' ').any(|l| l == w.lower))
    };
    let numbered = text.words[..text.payload_at()].windows(2).find(|pair| {
        ["task", "todo", "reminder"].contains(&pair[0].lower.as_str()) && number(&pair[1].lower).is_some()
    });
    if let Some(pair) = numbered {
        return format!("mark task {} as done", pair[1].lower.trim_start_matches('#'));
    }
    let bare = text.slice(at..text.words.len()).trim_end_matches(['.', '!']);
    let dated = dates::find(&text.words, at..text.words.len()).is_some();
    let is_short = bare.chars().count() <= PLAIN_CHARS_MAX && !bare.contains(['\n', '?', '“', '"', ':']);
    let examples = EXAMPLES.iter().find(|(words, _)| has(words));
    let states = ["is", "are", "was", "has", "have", "likes", "prefers", "wants", "hates", "lives", "works"];
    let questions = asks(&text.words, at) || clause.trim_end().ends_with('?');
    if is_short && !questions && text.words.iter().skip(at + 1).any(|w| states.contains(&w.lower.as_str())) {
        return format!("remember that {bare}");
    }
    if dated && is_short && !questions && examples.is_none() {
        return format!("create a task to {bare}");
    }
    examples.map_or("create a task to call Bob tomorrow", |(_, example)| example).to_owned()
}

/// The answer in the language of a text that is not English.
pub(super) fn foreign(source: &str) -> Option<&'static str> {
    const WORDS_MAX: usize = 60;
    let text = Text::new(source);
    let words: Vec<&str> = text.words.iter().take(WORDS_MAX).map(|w| w.lower.as_str()).collect();
    let count = |list: &str| {
        let known: BTreeSet<&str> = list.split_whitespace().collect();
        words.iter().filter(|w| known.contains(**w)).collect::<BTreeSet<_>>().len()
    };
    let english = count(ENGLISH);
    let (hits, reply) = LANGUAGES.iter().map(|(list, reply)| (count(list), *reply)).max_by_key(|(hits, _)| *hits)?;
    let alphabetic = source.chars().filter(|c| c.is_alphabetic()).count();
    let others = source.chars().filter(|c| c.is_alphabetic() && !c.is_ascii() && *c > '\u{24f}').count();
    if others * 2 > alphabetic {
        return Some(
            "I understand English only: I am Annie's offline planner, not a language model. For example: “create a task to call \
             Bob tomorrow”. `annie config init` sets up a language model.",
        );
    }
    let accents = source.chars().any(|c| "äöüßéèêàçñ¿¡áíóú".contains(c));
    let enough = hits >= 2 || (hits == 1 && accents);
    (enough && hits > english).then_some(reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fallback_answers_in_the_language_of_the_text() {
        for (source, wanted) in [
            ("Erinnere mich morgen an Milch", "nur Englisch"),
            ("wie spät ist es?", "nur Englisch"),
            ("rappelle-moi d'acheter du lait demain", "que l'anglais"),
            ("quelle heure est-il ?", "que l'anglais"),
            ("recuérdame comprar leche mañana", "Solo entiendo inglés"),
            ("¿qué hora es?", "Solo entiendo inglés"),
            ("напомни мне завтра", "English only"),
        ] {
            let reply = not_understood(&[source.to_owned()]);
            assert!(reply.contains(wanted), "{source}: {reply}");
        }
        for source in ["dance a little", "what is die cast?", "play la la land", "I do not know", "xyzzy"] {
            assert_eq!(foreign(source), None, "{source}");
        }
    }

    #[test]
    fn fallback_suggests_the_most_similar_supported_request() {
        for (source, nearest) in [
            ("set an alarm for 7am", "remind me to call Bob tomorrow at 5pm"),
            ("move the couch somewhere", "move task 3 to Monday"),
            ("call mom tomorrow", "create a task to call mom tomorrow"),
            ("visit mom tomorrow", "create a task to visit mom tomorrow"),
            ("estimate task 7", "mark task 7 as done"),
            ("Bob's birthday is on May 3rd", "remember that Bob's birthday is on May 3rd"),
            ("xyzzy", "create a task to call Bob tomorrow"),
        ] {
            let reply = not_understood(&[source.to_owned()]);
            assert!(
                reply.contains(&format!("“{nearest}”")) && reply.contains(source) && reply.contains(IDENTITY),
                "{reply}"
            );
            assert!(reply.split_whitespace().count() < 50, "{reply}");
        }
    }
}
