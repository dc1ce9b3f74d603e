//! What the pool knows of a backend before anything is asked of it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{event::Mode, limits::MainInterface};

/// Where a backend's work is done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Privacy {
    /// On machines of the house: nothing leaves it.
    Local,
    /// At somebody else's. What is not known is taken for this.
    #[default]
    Cloud,
}

impl Privacy {
    /// The wire word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Cloud => "cloud",
        }
    }
}

/// Prices in US dollars per million tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Cost {
    /// For what is sent.
    pub input_usd: f64,
    /// For what comes back.
    pub output_usd: f64,
}

/// How many requests a provider takes in a sliding window: about 60 an hour for one of them [S3 10.5].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateWindow {
    /// Requests in any one window.
    pub requests_max: u32,
    /// The length of the window, in milliseconds.
    pub window_ms: u64,
    /// How many of them are kept for HIGH and REALTIME.
    #[serde(default)]
    pub reserve: u32,
}

impl RateWindow {
    /// The most requests that a window may count: each keeps the time it began.
    pub const REQUESTS_MAX: u32 = 100_000;
}

/// One backend of the pool, as far as choosing it goes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BackendFacts {
    /// Its name in the configuration.
    pub name: String,
    /// What it can do beyond answering, in words that the rules use: `tools`, `voice`, `files`, `git`, `shell`, `web` …
    pub capabilities: BTreeSet<String>,
    /// Where its work is done.
    pub privacy: Privacy,
    /// The longest prompt and answer together, in tokens; absent means what its server says. If that is nothing,
    /// anything is tried.
    pub context_tokens_max: Option<u32>,
    /// The longest answer that is asked for, in tokens; unknown means what the turn keeps for it.
    pub output_tokens_max: Option<u32>,
    /// Its model reasons before it answers, and what it reasons counts as output.
    pub reasons: bool,
    /// Its models are a provider's, whose windows are larger than any answer that is asked for by default.
    pub is_hosted: bool,
    /// Rounds at a time, at least 1.
    pub slots: u32,
    /// Nobody configured the slots: what the server says of them counts.
    pub learns_slots: bool,
    /// What it costs; nothing means free.
    pub cost: Option<Cost>,
    /// How many requests it takes; nothing means that only the provider's own words count.
    pub window: Option<RateWindow>,
    /// What users call it when they ask for it by name: `claude`.
    pub called: Vec<String>,
    /// How turns run whose rounds it is meant for, where neither the user nor the caller says; nothing means the general mode.
    pub mode: Option<Mode>,
    /// How the agent that answers the user calls skills there; nothing means the general setting.
    pub interface: Option<MainInterface>,
    /// It works by itself, as a command-line agent does: it is given one task instead of the conversation, and as its work
    /// may have effects outside, it is never asked a second time once it has begun.
    pub acts: bool,
}

impl Default for BackendFacts {
    fn default() -> Self {
        Self {
            name: String::new(),
            capabilities: BTreeSet::new(),
            privacy: Privacy::default(),
            context_tokens_max: None,
            output_tokens_max: None,
            reasons: false,
            is_hosted: false,
            slots: 1,
            learns_slots: false,
            cost: None,
            window: None,
            called: Vec::new(),
            mode: None,
            interface: None,
            acts: false,
        }
    }
}

impl BackendFacts {
    /// The price of a million tokens in and a million out, in US dollars: for comparing only.
    #[must_use]
    pub(super) fn price_usd(&self) -> f64 {
        self.cost.map_or(0.0, |c| c.input_usd + c.output_usd)
    }

    /// The first thing that does not fit, in words.
    pub(super) fn flaw(&self) -> Option<String> {
        const NAME_BYTES_MAX: usize = 64;
        let is_word = |w: &str| {
            let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-');
            !w.is_empty() && w.len() <= NAME_BYTES_MAX && w.bytes().all(fits)
        };
        if self.name.trim().is_empty() {
            return Some("it has no name".to_owned());
        }
        if let Some(word) = self.capabilities.iter().find(|w| !is_word(w)) {
            return Some(format!("capability {word:?} is no word of small letters, digits, dashes and underscores"));
        }
        if self.slots == 0 {
            return Some("slots is 0; give at least 1".to_owned());
        }
        if self.context_tokens_max == Some(0) {
            return Some("context_tokens_max is 0; leave it out if it is not known".to_owned());
        }
        if let Some(cost) = self.cost
            && ![cost.input_usd, cost.output_usd].iter().all(|usd| usd.is_finite() && *usd >= 0.0)
        {
            return Some("a cost is not a price".to_owned());
        }
        let named = |name: &&String| {
            let begins = name.chars().next().is_some_and(char::is_alphanumeric);
            !begins || name.len() > NAME_BYTES_MAX || name.contains([',', ':', '\n']) || name.ends_with(' ')
        };
        if let Some(name) = self.called.iter().find(named) {
            return Some(format!("nobody can call it {name:?}: a name begins with a letter and has no comma or colon"));
        }
        self.window.and_then(|w| {
            if w.requests_max == 0 || w.requests_max > RateWindow::REQUESTS_MAX || w.window_ms == 0 {
                let max = RateWindow::REQUESTS_MAX;
                return Some(format!("its window needs 1 to {max} requests and at least 1 ms"));
            }
            (w.reserve >= w.requests_max).then(|| "its window's reserve leaves nothing for the others".to_owned())
        })
    }
}
