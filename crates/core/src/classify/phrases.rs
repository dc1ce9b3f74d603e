//! Clear phrases of urgency, of its absence, and of long work. In doubt, the class of an interactive message is unchanged.

use crate::jobs::words::words;

/// How much of each end of a text is examined, in bytes. The middle of a long text is usually pasted.
const END_BYTES: usize = 400;
/// In a long text, phrases are recognised only within this many words of either end.
const END_WORDS: usize = 25;

const URGENT: &[&[&str]] = &[
    &["urgent"],
    &["urgently"],
    &["asap"],
    &["right", "now"],
    &["right", "away"],
    &["immediately"],
    &["emergency"],
    &["as", "soon", "as", "possible"],
    &["as", "fast", "as", "possible"],
    &["as", "quickly", "as", "possible"],
];
/// Words before `urgent` that negate it.
const NEGATIONS: &[&str] = &["not", "nothing", "no", "non", "isnt", "hardly", "wasnt", "arent"];
/// Phrases of absent urgency, recognised at either end of a clause.
const UNHURRIED: &[&[&str]] = &[
    &["no", "hurry"],
    &["no", "rush"],
    &["not", "urgent"],
    &["it", "is", "not", "urgent"],
    &["nothing", "urgent"],
    &["there", "is", "no", "hurry"],
    &["there", "is", "no", "rush"],
    &["take", "your", "time"],
    &["when", "you", "have", "time"],
    &["when", "you", "have", "some", "time"],
    &["when", "you", "have", "a", "moment"],
    &["when", "you", "have", "a", "minute"],
    &["whenever", "you", "have", "time"],
    &["when", "you", "find", "time"],
    &["when", "you", "find", "the", "time"],
    &["when", "you", "get", "time"],
    &["when", "you", "get", "a", "chance"],
    &["whenever", "you", "get", "a", "chance"],
    &["when", "you", "get", "around", "to", "it"],
    &["when", "you", "get", "to", "it"],
    &["when", "you", "are", "free"],
    &["whenever", "you", "are", "free"],
    &["when", "you", "are", "idle"],
    &["whenever", "it", "suits", "you"],
    &["at", "your", "leisure"],
    &["at", "your", "convenience"],
];
/// Words that introduce an indirect question. After them, "when you have time" is the question's subject.
const ASKING: &[&str] = &["know", "me", "ask", "say", "see", "check", "wonder", "remember"];
/// Words that may precede the verb of a request.
const POLITE: &[&str] = &[
    "hey", "hi", "hello", "annie", "please", "can", "could", "would", "will", "you", "i", "want", "need", "like", "to",
    "let", "us", "go", "and", "ok", "okay", "also", "then", "now", "just", "kindly", "help", "me", "would", "start",
    "begin", "id",
];
/// Verbs of work that can be done in the background.
const DOING: &[&str] = &[
    "do",
    "run",
    "work",
    "process",
    "handle",
    "prepare",
    "research",
    "check",
    "index",
    "download",
    "collect",
    "gather",
    "compile",
    "write",
    "make",
    "create",
    "build",
    "analyse",
    "analyze",
    "summarise",
    "find",
    "look",
    "keep",
    "continue",
    "investigate",
    "compare",
    "translate",
    "watch",
    "read",
    "plan",
    "draft",
];
/// Nouns after `research` that make it a modifier: "research papers on X".
const RESEARCH_NOUNS: &[&str] = &[
    "paper",
    "papers",
    "assistant",
    "assistants",
    "team",
    "teams",
    "group",
    "groups",
    "institute",
    "question",
    "shows",
    "show",
    "says",
    "suggests",
    "proposal",
    "grant",
    "is",
    "was",
    "in",
    "position",
    "job",
    "jobs",
    "or",
    "methods",
];

/// The phrases found in a text.
#[derive(Debug, Default)]
pub(super) struct Phrases {
    pub urgent: Option<String>,
    pub unhurried: Option<String>,
    /// The kind of long work that is requested.
    pub long_work: Option<&'static str>,
}

impl Phrases {
    pub fn of(text: &str) -> Self {
        let clauses = clauses(text);
        let first = request(clauses.iter().map(Vec::as_slice).find(|c| !request(c).is_empty()).unwrap_or_default());
        let find = |f: fn(&[&str]) -> Option<String>| clauses.iter().find_map(|c| f(&strs(c)));
        let in_background = clauses.iter().any(|c| is_background(&strs(c), first));
        Self {
            urgent: find(urgent),
            unhurried: find(unhurried).or_else(|| in_background.then(|| "in the background".to_owned())),
            long_work: long_work(first, text),
        }
    }
}

fn strs(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

/// The clauses at both ends of a text, as words.
fn clauses(text: &str) -> Vec<Vec<String>> {
    let cut = |text: &str| -> Vec<Vec<String>> {
        let parts = text.split([',', '.', ';', '!', '?', ':', '\n', '(', ')', '\u{2014}', '\u{2013}']);
        parts.map(words).filter(|c| !c.is_empty()).collect()
    };
    let mut head_end = text.len().min(END_BYTES);
    let mut tail_start = text.len().saturating_sub(END_BYTES).max(head_end);
    while !text.is_char_boundary(head_end) {
        head_end -= 1;
    }
    while !text.is_char_boundary(tail_start) {
        tail_start += 1;
    }
    if tail_start <= head_end {
        return cut(text);
    }
    let few = |clauses: &mut dyn Iterator<Item = Vec<String>>| -> Vec<Vec<String>> {
        let mut left = END_WORDS;
        clauses
            .take_while(|c| {
                let fits = c.len() <= left;
                left = left.saturating_sub(c.len());
                fits
            })
            .collect()
    };
    let mut ends = few(&mut cut(text.get(..head_end).unwrap_or_default()).into_iter());
    ends.extend(few(&mut cut(text.get(tail_start..).unwrap_or_default()).into_iter().rev()));
    ends
}

/// A clause, beginning with its verb.
fn request(clause: &[String]) -> &[String] {
    let start = clause.iter().position(|w| !POLITE.contains(&w.as_str())).unwrap_or(clause.len());
    clause.get(start..).unwrap_or_default()
}

fn starts_at(words: &[&str], phrase: &[&str]) -> Option<usize> {
    words.windows(phrase.len()).position(|w| w == phrase)
}

fn urgent(clause: &[&str]) -> Option<String> {
    let meant = |phrase: &&&[&str]| {
        starts_at(clause, phrase).is_some_and(|at| {
            let before = clause.get(at.saturating_sub(3)..at).unwrap_or_default();
            !before.iter().any(|w| NEGATIONS.contains(w))
        })
    };
    URGENT.iter().find(meant).map(|phrase| phrase.join(" "))
}

fn unhurried(clause: &[&str]) -> Option<String> {
    let tail = clause.strip_suffix(&["please"]).or_else(|| clause.strip_suffix(&["thanks"])).unwrap_or(clause);
    let meant = |phrase: &&&[&str]| {
        let at_end =
            tail.strip_suffix(**phrase).is_some_and(|before| !before.last().is_some_and(|w| ASKING.contains(w)));
        // Before a request: "no rush but research …", "when you have time do …".
        let at_start = clause.strip_prefix(**phrase).and_then(<[&str]>::first);
        at_end || at_start.is_some_and(|next| *next == "but" || *next == "please" || DOING.contains(next))
    };
    UNHURRIED.iter().find(meant).map(|phrase| phrase.join(" "))
}

fn is_background(clause: &[&str], request: &[String]) -> bool {
    const PHRASE: &[&str] = &["in", "the", "background"];
    let tail = clause.strip_suffix(&["please"]).unwrap_or(clause);
    let is_work = request.first().is_some_and(|verb| DOING.contains(&verb.as_str()));
    is_work && tail.ends_with(PHRASE) || clause == PHRASE
}

fn long_work(request: &[String], text: &str) -> Option<&'static str> {
    let words = strs(request);
    let is_summary = |w: &&str| w.starts_with("summar");
    match words.as_slice() {
        ["research", next, ..] if !RESEARCH_NOUNS.contains(next) => Some("research"),
        ["investigate", _, ..] | ["deep", "research", _, ..] => Some("research"),
        ["do" | "conduct", rest @ ..] => {
            let at = rest.iter().take(5).position(|w| *w == "research")?;
            rest.get(at + 1).is_some_and(|w| matches!(*w, "on" | "about" | "into" | "for")).then_some("research")
        }
        ["summarise" | "summarize", ..] | ["give" | "make" | "write", ..] | ["youtube" | "video", "summary", ..]
            if words.iter().take(6).any(is_summary) =>
        {
            let lower = text.get(..text.len().min(END_BYTES)).unwrap_or_default().to_lowercase();
            let is_link = lower.contains("youtube.com/") || lower.contains("youtu.be/");
            let is_video = words.iter().any(|w| matches!(*w, "video" | "videos" | "youtube"));
            (is_link || is_video).then_some("a video summary")
        }
        _ => None,
    }
}
