//! The provenance of numbers, dates and commands. Models invent numbers (`"id": 1`) and dates, and quote what they read. So
//! a skill that changes something accepts an id or a date only if the user, the context or a result of this conversation
//! named it (invariant 20), and a command that appears in a result does not run because a model quotes it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    dates::{self, Dates, Invented},
    numbers::{numbers, numbers_of_user},
    quotes::{CallPattern, is_in_user_words, may_hold_calls, plain_words, without_entities},
};
use crate::{
    approval::CLIENT,
    event::{AgentReport, CopiedExchange, Inbound, PromptFacts},
    guard::FLAGGED,
    inbound::{OPERATION, OUTSIDE},
    message::Message,
    outcome::{Outcome, floor_char_boundary},
    receipt::{fingerprint, ids_in},
    skill::Effect,
};

/// How many numbers are remembered; the least recently named are evicted first.
const IDS_MAX: usize = 1_000;
/// How many numbers of the user's own words in one turn are kept, however many others are named. A request stands before or
/// after the text that is pasted with it; the first numbers are kept here, the last ones are in `ids`.
const USER_IDS_MAX: usize = 4_000;
/// How many numbers from one agent's results its report contains; the least recently named are evicted first.
const FOUND_MAX: usize = 200;
/// How much text with commands a turn remembers, in bytes; the oldest is evicted first.
const QUOTES_BYTES_MAX: usize = 128 * 1024;
/// How much of one such text is remembered, in bytes, so that one text does not evict all others. No result is longer.
const QUOTE_BYTES_MAX: usize = QUOTES_BYTES_MAX / 4;
/// How much such text a conversation keeps between turns, in bytes. Every snapshot contains it.
const KEPT_QUOTES_BYTES_MAX: usize = QUOTES_BYTES_MAX / 2;
/// How many texts with commands a turn remembers; the oldest is evicted first.
const QUOTES_MAX: usize = 1_000;
/// How many calls of agents are remembered; the oldest is evicted first.
const MADE_MAX: usize = 200;
/// How much of the user's message is remembered, in bytes of the original text.
const USER_WORDS_BYTES_MAX: usize = 4 * 1024;
/// The skill whose results are the kernel's own text about skills.
const HELP: &str = "system.help";
/// The domain whose results contain no third-party text.
const SYSTEM: &str = "system.";
/// How many origins are remembered; the least recently read is evicted first. All built-in skills fit in, so that reading with one
/// after the other does not make an agent forget that it has read a page. Each stored text may have so many tags.
const READ_MAX: usize = 64;
/// The origin of pasted third-party text. A message with a code block, or with more lines than [`PASTED_LINES_MIN`], counts
/// as pasted.
const PASTED: &str = "pasted";
/// See `PASTED`.
const PASTED_LINES_MIN: usize = 8;
/// The sources of the numbers, dates and commands that an agent has seen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// Numbers that were named, least recently named first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ids: Vec<u64>,
    /// The first numbers in the user's words of this turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    user_ids: Vec<u64>,
    /// Of `ids`, the numbers that results of this agent's own calls named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    found: Vec<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    quotes: Vec<String>,
    /// Fingerprints of calls that agents have made and reported, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    made: Vec<String>,
    /// The first and last words of the user in this turn, normalised for comparison.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    user_words: String,
    /// The user's message of this turn may contain pasted third-party text.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_pasted: bool,
    #[serde(default, skip_serializing_if = "Dates::is_empty")]
    dates: Dates,
    /// The origins of text that is not the user's own: skills whose results were shown, origins of memories, `pasted`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    read: Vec<String>,
}

impl Provenance {
    /// Whether no provenance is recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The origins of text that is not the user's own, least recently read first: skills whose results were shown, origins of
    /// memories, `pasted`, `client`, `flagged`, and the sender of an operation's result.
    #[must_use]
    pub fn origins(&self) -> &[String] {
        &self.read
    }

    /// The numbers that results of this agent's own calls named, least recently named first.
    #[must_use]
    pub fn found_ids(&self) -> Vec<u64> {
        self.found.clone()
    }

    /// The provenance for an agent that is dispatched now, which has no results of its own yet.
    #[must_use]
    pub fn inherited(&self) -> Self {
        Self { found: Vec::new(), ..self.clone() }
    }

    /// Merges the provenance of a turn into the conversation's, for later turns.
    pub(super) fn remember(&mut self, turn: &Self) {
        self.add_recent(turn);
        self.forget_quotes_beyond(KEPT_QUOTES_BYTES_MAX);
    }

    /// Merges the provenance of the turn that this turn continues, because its context is shown again word for word.
    pub(super) fn continue_from(&mut self, paused: &Self) {
        self.add_recent(paused);
        self.user_ids.clone_from(&paused.user_ids);
        self.user_words.clone_from(&paused.user_words);
        self.is_pasted = paused.is_pasted;
        if !paused.dates.is_empty() {
            self.dates.clone_from(&paused.dates);
        }
        self.forget_quotes_beyond(QUOTES_BYTES_MAX);
    }

    fn add_recent(&mut self, other: &Self) {
        self.add_ids(other.ids.iter().copied());
        self.dates.learn(&other.dates);
        other.read.iter().for_each(|read| self.has_read(read));
        self.add_made(&other.made);
        for quote in &other.quotes {
            if !self.quotes.contains(quote) {
                self.quotes.push(quote.clone());
            }
        }
    }

    fn add_made<'a>(&mut self, calls: impl IntoIterator<Item = &'a String>) {
        for call in calls {
            if !self.made.contains(call) {
                self.made.push(call.clone());
            }
        }
        self.made.drain(..self.made.len().saturating_sub(MADE_MAX));
    }

    fn forget_quotes_beyond(&mut self, bytes_max: usize) {
        let mut bytes: usize = self.quotes.iter().map(String::len).sum();
        let forgotten = self.quotes.iter().take_while(|quote| {
            let is_beyond = bytes > bytes_max;
            bytes -= if is_beyond { quote.len() } else { 0 };
            is_beyond
        });
        let count = forgotten.count().max(self.quotes.len().saturating_sub(QUOTES_MAX));
        self.quotes.drain(..count);
    }

    /// Whether a number was named.
    #[must_use]
    pub fn names(&self, id: u64) -> bool {
        self.ids.contains(&id) || self.user_ids.contains(&id)
    }

    /// The origins of what a call stores now: everything that was read before, or nothing if the user said it in this turn.
    pub(super) fn origin_of(&self, arguments: &Value) -> Vec<String> {
        if !self.is_pasted && is_in_user_words(&self.user_words, arguments) {
            return Vec::new();
        }
        self.origin()
    }

    fn origin(&self) -> Vec<String> {
        let mut origin = self.read.clone();
        origin.sort_unstable();
        origin
    }

    /// Records that third-party text from this origin was read.
    pub(super) fn has_read(&mut self, what: &str) {
        // Results of system skills are the kernel's own text.
        if what.is_empty() || what.starts_with(SYSTEM) {
            return;
        }
        // The most recently read origins are the most relevant for what is stored now.
        self.read.retain(|read| read != what);
        self.read.push(what.to_owned());
        self.read.drain(..self.read.len().saturating_sub(READ_MAX));
    }

    /// Checks that a date in a call was named before.
    pub(super) fn check_date(&self, value: &str) -> Result<(), Invented> {
        self.dates.check(value)
    }

    /// A day that the user named in this turn, as a call writes it; `None` if the words before it change its meaning in a way
    /// that calls cannot express.
    pub(super) fn day_to_copy(&self, day: &str, is_change: bool) -> Option<String> {
        dates::day_to_copy(&self.user_words, day, is_change)
    }

    /// Whether a call appears, in any notation, in a text that was shown. A call that the user requested in this turn is not a
    /// quote, and neither is a call that an agent has already made and reported.
    #[must_use]
    pub fn quotes_call(&self, name: &str, arguments: &Map<String, Value>) -> bool {
        let wanted = CallPattern::of(name, arguments);
        !wanted.is_asked_for_in(&self.user_words)
            && self.quotes.iter().any(|quote| wanted.appears_in(quote))
            && !self.made.contains(&fingerprint(name, &Value::Object(arguments.clone())))
    }

    /// Records the user's words of this turn: the numbers that can be ids, and the dates.
    pub(super) fn add_user_text(&mut self, words: &str) {
        self.note_pasted(words);
        self.add_trusted_text(words);
    }

    fn note_pasted(&mut self, words: &str) {
        if is_pasted(words) {
            self.has_read(PASTED);
            self.is_pasted = true;
        }
    }

    /// Records whether the values of a command that the user gave may contain pasted text. A message that contains them in JSON has
    /// one line.
    pub(super) fn note_pasted_values(&mut self, values: &Value) {
        match values {
            Value::String(text) => self.note_pasted(text),
            Value::Array(items) => items.iter().for_each(|item| self.note_pasted_values(item)),
            Value::Object(map) => map.values().for_each(|item| self.note_pasted_values(item)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Records words that count as the user's own: the author of a file of this installation pastes nothing of third parties.
    pub(super) fn add_trusted_text(&mut self, words: &str) {
        self.add_user_words(words);
        self.dates.add_user_text(words);
        let ids = numbers_of_user(words);
        let free = USER_IDS_MAX.saturating_sub(self.user_ids.len());
        self.user_ids.extend(ids.iter().take(free));
        self.add_ids(ids);
    }

    /// Remembers the beginning and the end of the user's message, because a request stands before or after pasted text.
    fn add_user_words(&mut self, words: &str) {
        let half = USER_WORDS_BYTES_MAX / 2;
        let head = floor_char_boundary(words, half);
        let tail = floor_char_boundary(words, words.len().saturating_sub(half)).max(head);
        self.user_words.push_str(&plain_words(&words[..head]));
        if tail < words.len() {
            self.user_words.push_str(&plain_words(&words[tail..]));
        }
        // The last words are the current request.
        let beyond = self.user_words.len().saturating_sub(2 * USER_WORDS_BYTES_MAX);
        self.user_words.drain(..floor_char_boundary(&self.user_words, beyond));
    }

    /// Records text that is not the user's own words of this turn: the numbers that it marks as ids (`#7`, `"id": 7`), its
    /// dates and its commands.
    pub(super) fn add_stored_text(&mut self, text: &str) {
        self.dates.add_shown_text(text);
        self.numbered(text);
    }

    /// Records text that an outside party sent with the key of an operation. That party is not the user.
    fn add_outside_text(&mut self, text: &str) {
        if !text.is_empty() {
            self.add_stored_text(text);
            self.has_read(OPERATION);
        }
    }

    fn numbered(&mut self, text: &str) {
        self.add_ids(numbers(text).filter(|n| n.is_named).map(|n| n.value));
        self.add_untrusted_text(text);
    }

    /// Records third-party text, if it may contain commands.
    pub(super) fn add_untrusted_text(&mut self, text: &str) {
        // A model that copies from a web page decodes its entities.
        let text = &*without_entities(text);
        if !may_hold_calls(text) {
            return;
        }
        // The model sees only the beginning of a text that is too long.
        let quote = on_one_line(&text[..floor_char_boundary(text, QUOTE_BYTES_MAX)]);
        if !self.quotes.contains(&quote) {
            self.quotes.push(quote);
            self.forget_quotes_beyond(QUOTES_BYTES_MAX);
        }
    }

    /// Records what a turn begins with: the message, its context, and the whole thread if the caller sends one.
    pub(super) fn begin(&mut self, inbound: &Inbound, facts: &PromptFacts, messages: &[Message]) {
        match inbound.outside_text() {
            Some((_, text)) => self.add_outside_text(text),
            // An agent that had read other texts wrote the arguments of the forked task.
            None if !inbound.origins.is_empty() => self.add_stored_text(&inbound.text),
            None => self.add_user_text(&inbound.text),
        }
        inbound.origins.iter().for_each(|origin| self.has_read(origin));
        if facts.is_flagged {
            // The words may be those of a third party that the user copied.
            self.is_pasted = true;
            self.has_read(FLAGGED);
        }
        self.context(facts);
        if inbound.thread().is_none() {
            return;
        }
        for message in messages {
            match message {
                Message::User { text, .. } => self.add_user_text(text),
                Message::Assistant { text, .. } | Message::Tool { text, .. } => {
                    self.add_stored_text(text);
                    self.has_read(CLIENT);
                }
                Message::Note { .. } => {}
            }
        }
    }

    /// Records a message that was answered without a turn, for later turns, whose history contains it. `is_flagged` says that a guard
    /// found something in it.
    pub(super) fn answered_without_turn(&mut self, inbound: &Inbound, is_flagged: bool) {
        match inbound.outside_text() {
            Some((_, text)) => self.add_outside_text(text),
            // The lines of a report, which an agent wrote, do not make it a text that the user pasted.
            None if inbound.is_fork_report() => self.add_stored_text(&inbound.text),
            None if is_pasted(&inbound.text) => self.has_read(PASTED),
            None => {}
        }
        inbound.origins.iter().for_each(|origin| self.has_read(origin));
        if is_flagged {
            self.has_read(FLAGGED);
        }
    }

    /// Records the earlier messages that a stateless front end sends along. Whether the kernel wrote their answers is unknown,
    /// so these count like results.
    pub(super) fn preamble(&mut self, preamble: &[(String, String)]) {
        for (role, text) in preamble {
            match role.as_str() {
                "assistant" => {
                    self.add_stored_text(text);
                    self.has_read(CLIENT);
                }
                OUTSIDE => self.add_outside_text(text.split_once('\n').map_or("", |(_, text)| text)),
                _ => {
                    self.add_ids(numbers_of_user(text));
                    self.dates.add_earlier_user_text(text);
                }
            }
        }
    }

    /// Records an exchange of the conversation that this one is a copy of.
    pub(super) fn copied(&mut self, exchange: &CopiedExchange) {
        self.has_read(CLIENT);
        if exchange.is_outside {
            self.add_untrusted_text(&exchange.user);
            self.add_untrusted_text(&exchange.answer);
            return;
        }
        self.add_ids(numbers_of_user(&exchange.user));
        self.dates.add_earlier_user_text(&exchange.user);
        self.add_stored_text(&exchange.answer);
    }

    /// Records a summary of earlier turns, which may repeat what they had read. The numbers in it are known from those turns, or
    /// are invented.
    pub(super) fn summarised(&mut self, summary: &str, origins: &[String]) {
        self.add_untrusted_text(summary);
        origins.iter().for_each(|read| self.has_read(read));
    }

    /// Records the parts of a turn's prompt beside the user's message.
    fn context(&mut self, facts: &PromptFacts) {
        // The summary always says how much is due today, so its dates are not recorded.
        self.numbered(&facts.todo_summary);
        for memory in &facts.memories {
            self.add_stored_text(memory);
        }
        for memory in &facts.recalled {
            self.add_stored_text(&memory.text);
            memory.origin.split(", ").for_each(|read| self.has_read(read));
        }
        for shown in &facts.texts {
            self.add_stored_text(&shown.text);
            self.has_read(&shown.source);
        }
    }

    /// Records a result. A failed result names no numbers, because it may repeat the invented one. If the text is from outside,
    /// such as a web page, its author could name the user's own things: then only the evidence names numbers, which the skill
    /// itself writes.
    pub(super) fn result(&mut self, skill: &str, outcome: &Outcome, is_from_outside: bool) {
        if outcome.status.is_ok() {
            let marked = numbers(&outcome.data).filter(|n| n.is_named && !is_from_outside);
            let mut found: Vec<u64> = marked.map(|n| n.value).collect();
            // A number counts only if the result's text shows it. Memories have numbers that are not shown.
            let evident = ids_in(&outcome.evidence);
            if !evident.is_empty() {
                let shown: BTreeSet<u64> = numbers(&outcome.data).map(|n| n.value).collect();
                found.extend(evident.into_iter().filter(|id| shown.contains(id)));
            }
            add_last(&mut self.found, found.iter().copied(), FOUND_MAX);
            self.add_ids(found);
        }
        if outcome.injection.is_some() {
            self.has_read(FLAGGED);
        }
        outcome.origins.iter().for_each(|origin| self.has_read(origin));
        // The text of a prompt skill is instructions that the operator installed.
        if skill.contains('.') && skill != HELP {
            self.dates.add_shown_text(&outcome.data);
            self.add_untrusted_text(&outcome.data);
        }
    }

    /// Records a text that another agent of the turn wrote for this one, and the origins that it had read.
    pub(super) fn passed_on(&mut self, text: &str, origins: &[String]) {
        self.add_stored_text(text);
        origins.iter().for_each(|origin| self.has_read(origin));
    }

    /// Records the report of another agent of the turn, and the origins that the agent had read.
    pub(super) fn reported(&mut self, report: &AgentReport) {
        self.dates.add_shown_text(&report.result);
        self.add_untrusted_text(&report.result);
        self.add_made(report.receipts.iter().map(|receipt| &receipt.call));
        if report.is_flagged {
            self.has_read(FLAGGED);
        }
        report.origins.iter().for_each(|origin| self.has_read(origin));
        if report.origins.is_empty() {
            // A report of an older version does not name them: what left no receipt was read.
            for ran in &report.skills_run {
                let name = ran.split(' ').next().unwrap_or_default();
                if !report.receipts.iter().any(|receipt| receipt.skill == name) {
                    self.has_read(name);
                }
            }
        }
    }

    /// Records numbers that were named elsewhere, for example to another agent of the turn.
    pub(super) fn add_ids(&mut self, ids: impl IntoIterator<Item = u64>) {
        add_last(&mut self.ids, ids, IDS_MAX);
    }
}

/// Appends numbers, moves numbers that are named again to the end, and keeps the last `count_max`. Adding a few numbers is
/// cheap, because a thread has many messages.
fn add_last(known: &mut Vec<u64>, new: impl IntoIterator<Item = u64>, count_max: usize) {
    let new: Vec<u64> = new.into_iter().collect();
    let mut seen = BTreeSet::new();
    let mut last: Vec<u64> = new.iter().rev().copied().filter(|id| seen.insert(*id)).take(count_max).collect();
    if last.is_empty() {
        return;
    }
    last.reverse();
    known.retain(|id| !seen.contains(id));
    known.extend(last);
    known.drain(..known.len().saturating_sub(count_max));
}

/// Whether a user's message may contain pasted text of third parties.
fn is_pasted(words: &str) -> bool {
    words.contains("```") || words.lines().count() > PASTED_LINES_MIN
}

/// Whether a skill with this effect class changes something.
pub(super) fn changes(effect: Effect) -> bool {
    effect != Effect::Read
}

fn on_one_line(text: &str) -> String {
    let text = text.trim().trim_start_matches("$ ");
    text.strip_prefix("cmd ").unwrap_or(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
