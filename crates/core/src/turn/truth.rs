//! Answers are truthful (invariant 21): the claims, denials and omissions of a model's final text are checked against the
//! receipts of its turn. The lists are deliberately short, because a correction of the kernel below an answer must be rare and
//! right.

mod kinds;
mod reminders;

use std::sync::LazyLock;

use regex::Regex;

pub(super) use kinds::{Earlier, Kind, asks_for_prose, asks_what_was, has_request, only_thanks, requests_change};
pub(super) use reminders::promised_reminder;

use crate::receipt::{Extent, Receipt};

/// Appended to an answer that claims an effect in a turn without effects.
const NOTHING_CHANGED: &str = "(Nothing was changed: no skill that changes anything ran for this request.)";
/// The same for a German answer.
const NOTHING_CHANGED_GERMAN: &str = "(Es wurde nichts geändert: für diese Bitte lief kein Skill, der etwas ändert.)";
/// The longest denial, in bytes. A longer answer says more than that nothing was done.
const DENIAL_BYTES_MAX: usize = 400;
/// The longest answer in which "I moved it" is a claim, in bytes. In a longer answer it is as often part of a story.
const PRONOUN_BYTES_MAX: usize = 400;
/// The longest refusal that later prompts omit, in bytes.
const REFUSAL_BYTES_MAX: usize = 200;
/// How much overlap of two texts is checked when they are joined, in bytes.
const OVERLAP_BYTES_MAX: usize = 200;
/// The shortest overlap that counts as a repetition, in bytes.
const OVERLAP_BYTES_MIN: usize = 12;

fn pattern(text: &str) -> Option<Regex> {
    let pattern = Regex::new(text);
    debug_assert!(pattern.is_ok(), "{pattern:?}");
    pattern.ok()
}

/// "I have saved the note", "the task has been created", "task created successfully".
static CLAIMS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(&format!(
        r"(?ix)
        \b i (?: \s+ have | ['’]ve )?
            (?: \s+ (?: just | now | successfully | also | already | (?: gone | went ) \s+ ahead \s+ and ) )* \s+
          (?: {DONE} | {DONE_BY_ME} ) \s [^.!?\n]{{0,80}}? \b (?: {THINGS} | {OBJECTS} | it | that | this | them ) \b
        | \b i \s+ (?: found | checked | searched ) \b [^.!?\n]{{0,80}}? , \s+ (?: and \s+ )? (?: then \s+ )? (?: {DONE} | {DONE_BY_ME} ) \s
        | \b (?: {THINGS} ) \b [^.!?\n]{{0,60}}?
          \b (?: has | have ) \s+ (?: now \s+ | just \s+ )? been \s+ (?: successfully \s+ )? (?: {DONE} ) \b
        | \b (?: {THINGS} ) \b [^.!?\n]{{0,60}}? \b (?: successfully \s+ (?: {DONE} ) | (?: {DONE} ) \s+ successfully ) \b"
    ))
});

/// "Created the task", "Deleted it.", "Added milk to your list": claims without an "I". Advice and news begin in the same way
/// ("Set it to 180 degrees", "Added sugar is in ..."), so the claim must name an object of the user.
static CLAIMS_WITHOUT_I: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(&format!(
        r"(?ix)
        ^ \W* (?: ok(?:ay)? | done | sure | great | got \s+ it )? [\s,.!:]* (?: successfully \s+ )?
          (?: {DONE_FIRST} | {DONE_BY_ME} ) \s+
          (?: (?: the | your | a | an | new | this | that | one ) \s+ [^.!?\n]{{0,60}}? \b (?: {THINGS} | {OBJECTS} ) \b
            | (?: new \s+ )? (?: {THING} ) \b
            | (?: it | them ) \b
            | (?: that | this ) \s* (?: [.!] | $ )
            | (?: [\w'’-]+ \s+ ){{0,5}} (?: to | from | into ) \s+ (?: the | your | my ) \s+ [^.!?\n]{{0,40}}? \b (?: {THINGS} | {OBJECTS} ) \b )"
    ))
});

/// "I created the task and sent the e-mail": a second claim in the same sentence.
static CLAIMS_BEHIND: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(&format!(
        r"(?ix)
        \b (?: and | then | und ) \s+ (?: also \s+ | then \s+ | have \s+ | i \s+ (?: have \s+ )? )* (?: {DONE} | {DONE_BY_ME} )
          \s [^.!?\n]{{0,80}}? \b (?: {THINGS} | {OBJECTS} | it | that | this | them ) \b"
    ))
});

/// Sentences that claim an effect if no skill ran at all. If a skill ran, they may only describe its result.
static LOOSE_CLAIMS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(&format!(
        r"(?ix)
        ^ \W* (?: your \s+ | the \s+ | new \s+ )* (?: {THINGS} ) (?: \s+ \#? \d+ )? \s+ (?: {DONE} ) \b
        | \b (?: your \s+ (?: \w+ \s+ ){{0,3}} (?: {THINGS} ) | {THINGS_OF_OURS} ) \b [^.!?\n]{{0,60}}?
          \b (?: was | were | (?: is | are ) \s+ now ) \s+ (?: {DONE} ) \b
        | \b (?: {THINGS} ) \b [^.!?\n]{{0,60}}? \b (?: was | were | (?: is | are ) \s+ now ) \s+ (?: {DONE} ) \s* (?: [.!] | $ )
        | \b (?: reminder | alarm | timer ) s? \b [^.!?\n]{{0,40}}? \b (?: is | are ) \s+ set \b
        | ^ \W* (?: {THINGS_GERMAN} ) \b [^.!?\n]{{0,40}}? \b (?: {DONE_GERMAN} ) \b"
    ))
});

/// "Task #1 is done": a claim only in answer to a request for a change.
static STATES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(&format!(
        r"(?ix) \b (?: {THINGS_OF_OURS} ) \b [^.!?\n]{{0,60}}? \b (?: is | are ) \s+ (?: now \s+ )?
          (?: {DONE} | {DONE_BY_ME} | done ) \b"
    ))
});

/// "Done.", "Ok, deleted.": a sentence of a participle alone is a claim only in answer to a request for a change.
static ONLY_DONE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(&format!(
        r"(?ix) ^ \W* (?: (?: ok(?:ay)? | sure | great | yes | all | it \s+ is | it['’]s | ja | klar | alles | ist ) \b \W* )*
          (?: {DONE_FIRST} | {DONE_BY_ME} | done | {DONE_GERMAN} ) \W* $"
    ))
});

/// "I'll remind you on Friday": a promise that no component keeps.
static PROMISES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(&format!(
        r"(?ix) \b i (?: ['’]ll | \s+ will ) \s+ (?: now \s+ | also \s+ )?
          (?: remember | remind \s+ you | make \s+ a \s+ note
            | (?: add | create | save | store | delete | remove | schedule | set \s+ up | set ) \s [^.!?\n]{{0,60}}? \b (?: {THINGS} | list ) \b )
        | \b ich \s+ (?: merke \s+ mir | werde \s+ (?: dich | sie ) \b [^.!?\n]{{0,60}}? \b erinnern | erinnere \s+ (?: dich | sie ) ) \b"
    ))
});

const THINGS: &str = "tasks? | notes? | memory | memories | reminders? | entry | entries | events? | items? | to-?dos? | appointments? | meetings? \
                      | alarms?";
/// A thing without an article before it: "Created task #5".
const THING: &str = "task | note | memory | reminder | entry | event | item | to-?do | appointment | meeting | alarm";
/// The things that only Annie stores. News also mentions meetings and events.
const THINGS_OF_OURS: &str = "tasks? | notes? | memory | memories | reminders? | to-?dos? | alarms?";
const OBJECTS: &str = "file | list | e-?mail | mail | message";
/// The first words of claims without an "I". "Set" is missing, because it is as often advice.
const DONE_FIRST: &str = "saved | stored | created | added | deleted | removed | updated | renamed | scheduled | marked | completed | sent \
                          | cancelled | canceled | booked";
const DONE: &str = "saved | stored | created | added | deleted | removed | updated | renamed | scheduled | marked | completed | sent \
                    | cancelled | canceled | set | booked";
/// Verbs that make a claim only after "I", because other sentences often use them.
const DONE_BY_ME: &str = "rescheduled | moved | postponed | changed | finished";
const THINGS_GERMAN: &str = "aufgabe\\w* | notiz\\w* | erinnerung\\w* | eintrag\\w* | termin\\w* | nachricht\\w*";
const DONE_GERMAN: &str = "gespeichert | angelegt | erstellt | gelöscht | hinzugefügt | aktualisiert | entfernt | erledigt | eingetragen | gesendet";

/// The words of which every claim and every promise contains one. The pattern is searched first, because a text without any is the
/// usual case. It has no word boundary: at one, the regex crate leaves its fast automaton on the first letter that is not
/// ASCII. A text with such a word but without a claim costs what it would cost without this pattern.
static WORDS_OF_CLAIMS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(&format!(
        r"(?ix) (?: ^ | [^a-z0-9_] | okay | ok | done | sure | great | it )
          (?: (?: {DONE} | {DONE_FIRST} | {DONE_BY_ME} | done | {DONE_GERMAN}
                | add | create | save | store | delete | remove | schedule | set | remind | merke | erinnern | erinnere )
              (?: $ | [^a-z0-9_] )
            | remember | note )"
    ))
});

/// "Ich habe die Aufgabe angelegt", "die Notiz wurde gespeichert".
static CLAIMS_GERMAN: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(&format!(
        r"(?ix) (?: \b ich \s+ (?: habe | hab ) | \b (?: {THINGS_GERMAN} ) \b [^.!?\n]{{0,60}}? \b (?: wurde | wurden | ist | sind ) )
        \b [^.!?\n]{{0,100}}? \b (?: {DONE_GERMAN} ) \b"
    ))
});

/// Words before or in a claim that make it a question, an offer, a condition or a negation. Words after the claim do not
/// change it.
static HEDGES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(?:if|until|unless|should|would|could|can|cannot|no|not|never|wenn|falls|sobald|nicht|nichts|kein\w*)\b",
    )
});

/// Such words that count only in the clause of the claim: "once I have saved it, I tell you", but not "after a look at it, I
/// have saved it".
static HEDGES_OF_CLAUSE: LazyLock<Option<Regex>> = LazyLock::new(|| pattern(r"(?i)\b(?:when|once|after|before)\b"));

/// Phrases with "no" that are not hedges.
static COURTESIES: LazyLock<Option<Regex>> =
    LazyLock::new(|| pattern(r"(?i)\b(?:no (?:problem|worries|trouble)|kein problem)\b"));

/// Code and quotations, which are not the model's own words.
static QUOTATIONS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern("(?s)```.*?(?:```|$)|\"[^\"\n]{0,300}\"|“[^”\n]{0,300}”|„[^“”\n]{0,300}[“”]|«[^»\n]{0,300}»")
});

/// Expressions of doubt about what happened. "May" alone is advice ("you may want to") or a month.
static DOUBTS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"(?ix) \b (?: may | might ) (?: \s+ (?: or | may | might | not | already | well ) )* \s+ have \b
          | \b (?: unknown | not \s+ known | unclear | uncertain ) \b
          | (?: \b (?: not | cannot ) | n['’]t ) \s+ (?: \w+ \s+ )? (?: sure | certain | know | confirm\w* | verify ) \b
          | \b (?: möglicherweise | unbekannt | unklar | nicht \s+ sicher | weiß \s+ (?: \w+ \s+ )? nicht | nicht \s+ bekannt ) \b",
    )
});

/// Words that refer to an effect without naming it.
static OUTCOMES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"(?ix)\b(?: happen\w* | outcomes? | results? | effects? | (?: went | gone | go ) \s+ through | arrived | worked
          | passiert | geschehen | ergebnis | geklappt )\b",
    )
});

/// Pronouns that may refer to anything.
static PRONOUNS: LazyLock<Option<Regex>> = LazyLock::new(|| pattern(r"(?i)\b(?:it|that|this|them)\b"));

static DENIALS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"(?ix) \b i \s+ (?: did \s+ not | didn['’]t | have \s+ not | haven['’]t ) \b
        | \b i (?: \s+ am | ['’]m ) \s+ (?: sorry | unable | not \s+ able )
        | \b i \s+ (?: can['’]t | can \s* not | could \s+ not | couldn['’]t | was \s+ (?: unable | not \s+ able ) )
        | ^ \s* sorry \b | \b no \s+ input \b | \b as \s+ an \s+ ai \b
        | \b (?: nothing | no \s+ \w+ ) \s+ (?: (?: was | were | has \s+ been | have \s+ been ) \s+ )?
          (?: changed | created | added | saved | stored | deleted | removed | updated | done | sent ) \b
        | \b (?: there \s+ (?: is | was ) \s+ )? nothing \s+ to \s+ do \b
        | \b ich \s+ (?: kann | konnte | habe ) \b [^.!?\n]{0,60} \b (?: nicht | nichts | kein\w* ) \b
        | \b es \s+ wurde \s+ (?: nichts | kein\w* ) \b | \b tut \s+ mir \s+ leid \b | ^ \s* leider \b",
    )
});

static REFUSALS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"(?ix) \b i (?: \s+ am | ['’]m )? \s+ (?: sorry [,.]? \s+ (?: but \s+ )? i \s+ )? (?: can['’]t | can \s* not | unable \s+ to | not \s+ able \s+ to )
        \s+ (?: assist | help | do \s+ that | fulfil | comply | process )
        | \b (?: dabei | damit | hierbei ) \s+ (?: kann | konnte ) \s+ ich \b [^.!?\n]{0,40} \b nicht \b",
    )
});

/// Drafts of e-mails, from the salutation to the closing. The "I" in a draft is the user who sends it.
static DRAFTS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    pattern(
        r"(?ims)^[\s>*_]*(?:dear\s|subject:|betreff:|sehr geehrte|liebe[rs]?\s).*?(?:^[\s>*_]*(?:best|kind|warm)?\s*(?:regards|wishes|sincerely|cheers|viele grüße|mit freundlichen grüßen|liebe grüße)\b[^\n]*(?:\n[^\n]*)?|\z)",
    )
});

fn finds(pattern: &LazyLock<Option<Regex>>, text: &str) -> bool {
    pattern.as_ref().is_some_and(|p| p.is_match(text))
}

/// The sentences of a text that may contain claims: the model's own words, without emphasis.
fn own_sentences(text: &str) -> Vec<String> {
    let without = |pattern: &LazyLock<Option<Regex>>, text: &str| {
        pattern.as_ref().map_or_else(|| text.to_owned(), |p| p.replace_all(text, " ").into_owned())
    };
    let is_long = text.len() > PRONOUN_BYTES_MAX;
    let text = without(&DRAFTS, &without(&QUOTATIONS, text));
    let text = if is_long { without(&PRONOUNS, &text) } else { text };
    let text = without(&COURTESIES, &text).replace(['*', '_', '`'], "");
    sentences_of(&text).filter(|s| !s.ends_with('?') && !s.starts_with('>')).map(str::to_owned).collect()
}

fn sentences_of(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(['.', '!', '?', '\n']).map(str::trim)
}

/// The claims in a sentence that are not hedged before or inside the claim.
fn claims_in<'a>(pattern: &LazyLock<Option<Regex>>, sentence: &'a str) -> Vec<&'a str> {
    let Some(pattern) = pattern.as_ref() else { return Vec::new() };
    let is_hedged = |found: &regex::Match<'_>| {
        let clause = sentence[..found.start()].rfind(',').map_or(0, |comma| comma + 1);
        finds(&HEDGES, &sentence[..found.end()]) || finds(&HEDGES_OF_CLAUSE, &sentence[clause..found.end()])
    };
    let found = pattern.find_iter(sentence).filter(|found| !is_hedged(found));
    found.map(|found| found.as_str()).collect()
}

/// The claims in a sentence that are unambiguous.
fn firm_claims(sentence: &str) -> Vec<&str> {
    let mut claims = claims_in(&CLAIMS, sentence);
    claims.extend(claims_in(&CLAIMS_WITHOUT_I, sentence));
    claims.extend(claims_in(&CLAIMS_GERMAN, sentence));
    if !claims.is_empty() {
        claims.extend(claims_in(&CLAIMS_BEHIND, sentence));
    }
    claims
}

/// Whether a text contains a word of a claim, when it is read without emphasis, as [`own_sentences`] reads it.
fn may_claim(text: &str) -> bool {
    let plain = text.replace("```", " ").replace(['*', '_', '`'], "");
    WORDS_OF_CLAIMS.as_ref().is_none_or(|words| words.is_match(&plain))
}

/// The correction for a text that claims a change in a turn that changed nothing; `None` if none is needed. `has_run` says that
/// a skill ran, whose result the text may describe. Effects of earlier turns may be mentioned.
pub(super) fn untrue_claim(text: &str, has_run: bool, earlier: &Earlier<'_>) -> Option<&'static str> {
    if may_claim(text) {
        return search_untrue_claim(text, has_run, earlier);
    }
    debug_assert!(search_untrue_claim(text, has_run, earlier).is_none(), "a claim has none of the words of claims");
    None
}

fn search_untrue_claim(text: &str, has_run: bool, earlier: &Earlier<'_>) -> Option<&'static str> {
    let sentences = own_sentences(text);
    // The search for an earlier effect reads the whole text, so it comes after the search for a claim.
    let is_claim = |pattern, sentence: &str| !claims_in(pattern, sentence).is_empty() && !earlier.back(sentence, text);
    let claims = |pattern| sentences.iter().any(|sentence| is_claim(pattern, sentence));
    // A promise beside a question to the user depends on the answer.
    let promises = !has_run && !text.contains('?') && claims(&PROMISES);
    let is_vague = promises || !has_run && claims(&LOOSE_CLAIMS) || states_change(&sentences, text, has_run, earlier);
    if claims(&CLAIMS_GERMAN) || is_vague && is_german(text) {
        return Some(NOTHING_CHANGED_GERMAN);
    }
    (is_vague || claims(&CLAIMS) || claims(&CLAIMS_WITHOUT_I)).then_some(NOTHING_CHANGED)
}

/// Whether a text says, in answer to a request for a change, that it is done: "Task #1 is deleted.", "Done." After a skill that
/// reads, such a sentence may describe its result. Then the sentence counts only if it says that something was created, deleted
/// or sent, and no result says so.
fn states_change(sentences: &[String], text: &str, has_run: bool, earlier: &Earlier<'_>) -> bool {
    let is_claim = |sentence: &String| {
        let mut claims = claims_in(&ONLY_DONE, sentence);
        let names_thing = claims.is_empty();
        claims.extend(claims_in(&STATES, sentence));
        if has_run {
            claims.extend(claims_in(&LOOSE_CLAIMS, sentence));
            // An answer that asks for something has not done it yet.
            claims.retain(|claim| !text.contains('?') && earlier.is_unread(claim));
        }
        !claims.is_empty() && !earlier.back_state(sentence, text, names_thing)
    };
    earlier.has_request && sentences.iter().any(is_claim)
}

/// Whether a text says nothing but that something was changed, in claims that are unambiguous.
pub(super) fn only_claims(text: &str) -> bool {
    let sentences = own_sentences(text);
    let mut own = sentences.iter().filter(|sentence| sentence.contains(char::is_alphanumeric)).peekable();
    own.peek().is_some() && own.all(|sentence| !firm_claims(sentence).is_empty())
}

fn is_german(text: &str) -> bool {
    let words = text.split(|c: char| !c.is_alphabetic()).map(str::to_lowercase);
    words.into_iter().any(|word| {
        matches!(
            word.as_str(),
            "ich"
                | "die"
                | "der"
                | "das"
                | "und"
                | "ist"
                | "mir"
                | "dich"
                | "erledigt"
                | "gelöscht"
                | "gespeichert"
                | "angelegt"
                | "erstellt"
                | "entfernt"
                | "eingetragen"
                | "gesendet"
        ) || word.starts_with("aufgabe")
            || word.starts_with("erinnerung")
    })
}

/// Of the skills whose effects are in doubt, those for which the final text does not say so.
pub(super) fn undisclosed_doubts(text: &str, skills: &[String]) -> Vec<String> {
    let sentences: Vec<String> = sentences_of(text).filter(|s| finds(&DOUBTS, s)).map(str::to_lowercase).collect();
    let is_disclosed = |skill: &&String| sentences.iter().any(|s| finds(&OUTCOMES, s) || kinds::names(s, skill));
    skills.iter().filter(|skill| !is_disclosed(skill)).cloned().collect()
}

/// Of the skills that failed, those whose effect the text claims although no receipt shows an effect of that kind.
pub(super) fn claimed_failures<'a>(text: &str, failed: &[&'a str], shown: &[&str]) -> Vec<&'a str> {
    let claimed = claimed_kinds(text);
    let mut untrue: Vec<&str> = Vec::new();
    for skill in failed {
        let Some(kind) = Kind::of(skill) else { continue };
        let is_shown = shown.iter().any(|shown| Kind::of(shown) == Some(kind));
        if claimed.contains(&kind) && !is_shown && !untrue.contains(skill) {
            untrue.push(skill);
        }
    }
    untrue
}

/// The kinds of effect that a text claims although none of the `shown` skills, which had effects or may have had, has such an
/// effect.
pub(super) fn unbacked_kinds(text: &str, shown: &[&str], earlier: &Earlier<'_>) -> Vec<Kind> {
    let sentences = own_sentences(text);
    let sentences = sentences.iter().filter(|s| !firm_claims(s).is_empty() && !earlier.back(s, text));
    let mut claimed: Vec<Kind> = sentences.flat_map(|s| firm_claims(s)).flat_map(Kind::claimed_in).collect();
    claimed.sort_unstable();
    claimed.dedup();
    claimed.retain(|claimed| !shown.iter().any(|skill| Kind::of(skill).is_none_or(|kind| kind.backs(*claimed))));
    claimed
}

fn claimed_kinds(text: &str) -> Vec<Kind> {
    own_sentences(text).iter().flat_map(|s| firm_claims(s)).flat_map(Kind::claimed_in).collect()
}

/// Whether a final text denies that anything was done.
pub(super) fn denies(text: &str) -> bool {
    text.len() <= DENIAL_BYTES_MAX && finds(&DENIALS, text)
}

/// Whether a final text is only a refusal, which the model would imitate in later turns.
pub(super) fn refuses(text: &str) -> bool {
    text.len() <= REFUSAL_BYTES_MAX && !text.contains('?') && finds(&REFUSALS, text)
}

/// The list of a turn's effects for the user, from its receipts.
pub(super) fn done_in_this_turn<'a>(receipts: impl Iterator<Item = &'a Receipt>) -> String {
    listed(receipts, "Done in this turn:")
}

/// The same as a whole answer: a single effect is a sentence. Models imitate their earlier answers, headings too.
pub(super) fn done_without_words<'a>(receipts: impl Iterator<Item = &'a Receipt>) -> String {
    let receipts: Vec<&Receipt> = receipts.collect();
    match receipts.as_slice() {
        [only] if only.extent == Extent::Done && !only.summary().contains('\n') => {
            let summary = only.summary();
            let end = if summary.ends_with(['.', '!', '?']) { "" } else { "." };
            format!("{summary}{end}")
        }
        _ => done_in_this_turn(receipts.into_iter()),
    }
}

/// The list of the effects of the turns that a turn continues, for the user.
pub(super) fn done_before<'a>(receipts: impl Iterator<Item = &'a Receipt>) -> String {
    listed(receipts, "Done before:")
}

fn listed<'a>(receipts: impl Iterator<Item = &'a Receipt>, done: &str) -> String {
    let receipts: Vec<&Receipt> = receipts.collect();
    let parts = [
        (Extent::Done, done),
        (Extent::Partial, "Done in part:"),
        (Extent::Accepted, "Accepted, and the result comes later:"),
    ];
    let listed = parts.into_iter().filter_map(|(extent, heading)| {
        let of = receipts.iter().filter(|r| r.extent == extent);
        let lines: String = of.map(|r| format!("\n- {}", r.summary())).collect();
        (!lines.is_empty()).then(|| format!("{heading}{lines}"))
    });
    listed.collect::<Vec<_>>().join("\n\n")
}

/// Joins an answer that was cut off with its continuation.
pub(super) fn joined(before: &str, after: &str) -> String {
    let (before, rest) = (before.trim(), after.trim());
    if rest.is_empty() {
        return before.to_owned();
    }
    // Some models start the answer again from the beginning.
    let start: String = before.chars().take(40).collect();
    if start.len() >= OVERLAP_BYTES_MIN && rest.len() > before.len() && rest.starts_with(&start) {
        return rest.to_owned();
    }
    let overlap = (OVERLAP_BYTES_MIN..=OVERLAP_BYTES_MAX.min(before.len()).min(rest.len()))
        .rev()
        .filter(|n| before.is_char_boundary(before.len() - n) && rest.is_char_boundary(*n))
        .find(|n| before[before.len() - n..] == rest[..*n]);
    if let Some(n) = overlap {
        return format!("{before}{}", &rest[n..]);
    }
    // A model that continues with a whole word omits the blank before it.
    let is_word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let blank = after.starts_with(char::is_whitespace) || (is_word(rest.chars().next()) && !before.ends_with('-'));
    format!("{before}{}{rest}", if blank { " " } else { "" })
}

#[cfg(test)]
mod tests;
