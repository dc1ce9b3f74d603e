//! Topic rules of the operator: messages about a topic are refused with an answer, or flagged.

use std::collections::BTreeSet;

use regex::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};

/// What follows a message about a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TopicAction {
    /// No turn begins, and the reply is the answer.
    Refuse,
    /// The finding is an event.
    Flag,
}

/// `[[guard.topic]]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopicRule {
    /// The name, for records and people.
    pub name: String,
    /// The message contains one of these phrases as whole words, ignoring case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub words: Vec<String>,
    /// The message matches this regular expression, ignoring case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// What follows.
    pub action: TopicAction,
    /// The answer if messages are refused.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reply: String,
}

/// A topic rule is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct TopicError {
    /// The number of the rule, from 0.
    pub index: usize,
    /// The key that is wrong.
    pub key: &'static str,
    /// The problem.
    pub what: String,
}

/// A compiled rule.
#[derive(Debug, Clone)]
pub struct Topic {
    rule: TopicRule,
    phrases: Vec<Vec<String>>,
    pattern: Option<Regex>,
}

/// The compiled rules, in their order.
#[derive(Debug, Clone, Default)]
pub struct Topics(Vec<Topic>);

impl TopicRule {
    /// The maximum length of the name, in bytes.
    const NAME_BYTES_MAX: usize = 64;
    /// The maximum number of phrases of a rule.
    const WORDS_MAX: usize = 200;
    /// The maximum length of a pattern, in bytes.
    const PATTERN_BYTES_MAX: usize = 2_000;
    /// The maximum memory of a compiled pattern, in bytes. A larger one would slow every message down.
    const PATTERN_SIZE_BYTES_MAX: usize = 1024 * 1024;
    /// The maximum length of the reply, in characters.
    const REPLY_CHARS_MAX: usize = 1_000;

    fn compiled(self, index: usize) -> Result<Topic, TopicError> {
        let wrong = |key, what: String| TopicError { index, key, what };
        let is_name = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, b'-' | b'_');
        if self.name.is_empty() || self.name.len() > Self::NAME_BYTES_MAX || !self.name.bytes().all(is_name) {
            return Err(wrong(
                "name",
                format!("{:?} is not 1 to 64 lower-case letters, digits, dashes and underscores", self.name),
            ));
        }
        if self.words.is_empty() && self.pattern.is_none() {
            return Err(wrong("words", "it has neither words nor a pattern, and would hold for nothing".to_owned()));
        }
        if self.words.len() > Self::WORDS_MAX {
            return Err(wrong(
                "words",
                format!("there are {}, at most {} are allowed", self.words.len(), Self::WORDS_MAX),
            ));
        }
        let phrases: Vec<Vec<String>> = self.words.iter().map(|phrase| words_of(phrase)).collect();
        if let Some((phrase, _)) = self.words.iter().zip(&phrases).find(|(_, words)| words.is_empty()) {
            return Err(wrong("words", format!("{phrase:?} has no word in it")));
        }
        let pattern = self.pattern.as_deref().map(Self::regex).transpose().map_err(|what| wrong("pattern", what))?;
        let chars = self.reply.chars().count();
        match self.action {
            TopicAction::Refuse if self.reply.trim().is_empty() => {
                return Err(wrong("reply", "it is missing: the user would get no answer".to_owned()));
            }
            TopicAction::Flag if !self.reply.is_empty() => {
                return Err(wrong("reply", "a flagged message is answered by the model".to_owned()));
            }
            TopicAction::Refuse | TopicAction::Flag => {}
        }
        if chars > Self::REPLY_CHARS_MAX {
            return Err(wrong(
                "reply",
                format!("it has {chars} characters, at most {} are allowed", Self::REPLY_CHARS_MAX),
            ));
        }
        Ok(Topic { rule: self, phrases, pattern })
    }

    fn regex(text: &str) -> Result<Regex, String> {
        if text.is_empty() || text.len() > Self::PATTERN_BYTES_MAX {
            return Err(format!("it needs 1 to {} bytes", Self::PATTERN_BYTES_MAX));
        }
        let built = RegexBuilder::new(text).case_insensitive(true).size_limit(Self::PATTERN_SIZE_BYTES_MAX).build();
        let regex = built.map_err(|error| format!("{text:?} is no usable pattern: {error}"))?;
        if regex.is_match("") { Err(format!("{text:?} fits every message")) } else { Ok(regex) }
    }
}

impl Topic {
    /// The name of the rule.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.rule.name
    }

    /// The answer if messages about it are refused.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        (self.rule.action == TopicAction::Refuse).then(|| self.rule.reply.clone())
    }

    fn fits(&self, text: &str, words: &[String]) -> bool {
        let has = |phrase: &Vec<String>| words.windows(phrase.len()).any(|part| part == phrase.as_slice());
        self.phrases.iter().any(has) || self.pattern.as_ref().is_some_and(|pattern| pattern.is_match(text))
    }
}

impl Topics {
    /// The maximum number of rules. Each message is compared with all of them.
    pub const RULES_MAX: usize = 50;

    /// Compiles the rules.
    ///
    /// # Errors
    /// The first rule that is not valid.
    pub fn new(rules: Vec<TopicRule>) -> Result<Self, TopicError> {
        if rules.len() > Self::RULES_MAX {
            let what = format!("there are {} rules, at most {} are allowed", rules.len(), Self::RULES_MAX);
            return Err(TopicError { index: Self::RULES_MAX, key: "name", what });
        }
        let mut names = BTreeSet::new();
        for (index, rule) in rules.iter().enumerate() {
            if !names.insert(rule.name.as_str()) {
                let what = format!("another topic is named {:?} too", rule.name);
                return Err(TopicError { index, key: "name", what });
            }
        }
        let each = rules.into_iter().enumerate();
        each.map(|(index, rule)| rule.compiled(index)).collect::<Result<_, _>>().map(Self)
    }

    /// Whether there are no rules.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The rules that hold for a text, in their order.
    pub(super) fn in_text<'a>(&'a self, text: &'a str) -> impl Iterator<Item = &'a Topic> {
        let words = if self.0.iter().all(|topic| topic.phrases.is_empty()) { Vec::new() } else { words_of(text) };
        self.0.iter().filter(move |topic| topic.fits(text, &words))
    }
}

fn words_of(text: &str) -> Vec<String> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
}
