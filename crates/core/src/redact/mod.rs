//! Redaction of answers: secrets and numbers of persons are replaced by marks before an answer is stored, and in the drafts
//! that are shown while it is written. What the user wrote in the same message is not redacted.
//!
//! Only what the user reads is redacted. The arguments of calls and the replies of the model in the log are as they were.

mod scan;

use serde::{Deserialize, Serialize};

use scan::{Found, find};

use crate::event::EventBody;

/// What is replaced in answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Redaction {
    /// API keys, access tokens and private keys, by the prefixes of their issuers.
    Secrets,
    /// Numbers of persons: payment cards and social security numbers of the United States.
    Pii,
}

/// The kind of a redacted text. Marks name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RedactedKind {
    /// A key of a service's API.
    ApiKey,
    /// A token that grants access, such as a JSON Web Token.
    AccessToken,
    /// A private key in PEM format.
    PrivateKey,
    /// The number of a payment card.
    CardNumber,
    /// A social security number.
    SocialSecurityNumber,
}

impl RedactedKind {
    /// The name in logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ApiKey => "api_key",
            Self::AccessToken => "access_token",
            Self::PrivateKey => "private_key",
            Self::CardNumber => "card_number",
            Self::SocialSecurityNumber => "social_security_number",
        }
    }

    /// The text in place of the redacted one.
    const fn mark(self) -> &'static str {
        match self {
            Self::ApiKey => "[redacted: API key]",
            Self::AccessToken => "[redacted: access token]",
            Self::PrivateKey => "[redacted: private key]",
            Self::CardNumber => "[redacted: card number]",
            Self::SocialSecurityNumber => "[redacted: social security number]",
        }
    }
}

/// Replaces what `what` names in a text, except what stands in `own`, the user's own words. Returns the kinds of what was
/// replaced, in the order of the text.
pub fn redact(text: &mut String, what: &[Redaction], own: &str) -> Vec<RedactedKind> {
    let mut rest = text.as_str();
    let (mut shown, mut kinds, mut last) = (String::new(), Vec::new(), None);
    while let Found::Match { range, kind } = find(rest, last, what, true) {
        let found = &rest[range.clone()];
        shown.push_str(&rest[..range.start]);
        if own.contains(found) {
            shown.push_str(found);
        } else {
            shown.push_str(kind.mark());
            kinds.push(kind);
        }
        last = found.chars().next_back();
        rest = &rest[range.end..];
    }
    if !kinds.is_empty() {
        shown.push_str(rest);
        *text = shown;
    }
    kinds
}

impl EventBody {
    /// Redacts the text for the user if this is a final event. `own` are the user's own words.
    #[must_use]
    pub fn redacted(mut self, what: &[Redaction], own: &str) -> Self {
        if let Self::Answered { text, redacted, .. } = &mut self {
            redacted.extend(redact(text, what, own));
        } else if let Self::Failed { text, .. } | Self::Cancelled { text } = &mut self {
            redact(text, what, own);
        }
        self
    }
}

/// Redacts a text that arrives in pieces. A piece is withheld as long as it may be the beginning of something that is
/// redacted, so that the pieces together are the beginning of the redacted text, however it is split.
#[derive(Debug)]
pub struct DraftRedactor {
    what: Vec<Redaction>,
    own: String,
    /// Text that is not decided yet.
    pending: String,
    /// The last character before the pending text.
    last: Option<char>,
}

impl DraftRedactor {
    /// A redactor of one text. `None` if nothing is redacted.
    #[must_use]
    pub fn new(what: &[Redaction], own: &str) -> Option<Self> {
        (!what.is_empty()).then(|| Self {
            what: what.to_vec(),
            own: own.to_owned(),
            pending: String::new(),
            last: None,
        })
    }

    /// Adds a piece of text. Returns the part of it, and of undecided earlier text, that may be shown.
    pub fn push(&mut self, piece: &str) -> String {
        self.pending.push_str(piece);
        let mut shown = String::new();
        loop {
            match find(&self.pending, self.last, &self.what, false) {
                Found::Match { range, kind } => {
                    let found = &self.pending[range.clone()];
                    shown.push_str(&self.pending[..range.start]);
                    shown.push_str(if self.own.contains(found) { found } else { kind.mark() });
                    self.take(range.end);
                }
                Found::Open(at) => {
                    shown.push_str(&self.pending[..at]);
                    self.take(at);
                    return shown;
                }
                Found::Nothing => {
                    shown.push_str(&self.pending);
                    self.take(self.pending.len());
                    return shown;
                }
            }
        }
    }

    /// Removes the decided text.
    fn take(&mut self, until: usize) {
        let rest = self.pending.split_off(until);
        let decided = std::mem::replace(&mut self.pending, rest);
        self.last = decided.chars().next_back().or(self.last);
    }
}

#[cfg(test)]
mod tests;
