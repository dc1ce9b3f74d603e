//! The static facts about a backend.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{event::Mode, limits::MainInterface};

/// Location of a backend's processing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Privacy {
    /// On the operator's own machines: local only requests are allowed.
    Local,
    /// At a third party. Also assumed if the location is unknown.
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
    /// Price of input tokens.
    pub input_usd: f64,
    /// Price of output tokens.
    pub output_usd: f64,
}

/// A provider's limit of requests in a sliding window: about 60 per hour for one of them [S3 10.5].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateWindow {
    /// Maximum number of requests in any one window.
    pub requests_max: u32,
    /// The length of the window, in milliseconds.
    pub window_ms: u64,
    /// Number of requests reserved for HIGH and REALTIME.
    #[serde(default)]
    pub reserve: u32,
}

impl RateWindow {
    /// Maximum number of requests in a window. The start time of each request is stored.
    pub const REQUESTS_MAX: u32 = 100_000;
}

/// The facts about one backend of the pool that routing needs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BackendFacts {
    /// Its name in the configuration.
    pub name: String,
    /// Its capabilities beyond answering, by the names that rules use: `tools`, `voice`, `files`, `git`, `shell`, `web` …
    pub capabilities: BTreeSet<String>,
    /// Location of its processing.
    pub privacy: Privacy,
    /// Context window, prompt and answer together, in tokens. Absent means the value that its server reports. If the server
    /// reports none, requests of any size are tried.
    pub context_tokens_max: Option<u32>,
    /// Maximum length of an answer, in tokens. Absent means the turn's reserve.
    pub output_tokens_max: Option<u32>,
    /// Whether its model reasons before it answers. Reasoning counts as output.
    pub reasons: bool,
    /// Whether its models are hosted by a provider. Their windows exceed any answer length requested by default.
    pub is_hosted: bool,
    /// Number of concurrent rounds, at least 1.
    pub slots: u32,
    /// Whether the number of slots is not configured, so that the server's report is used.
    pub learns_slots: bool,
    /// Its price. Absent means free.
    pub cost: Option<Cost>,
    /// Its rate limit. Absent means that only the provider's own rate-limit responses count.
    pub window: Option<RateWindow>,
    /// The names by which users call it: `claude`.
    pub called: Vec<String>,
    /// The mode of turns for which it is the preferred backend, if neither the user nor the caller sets one. Absent means
    /// the general mode.
    pub mode: Option<Mode>,
    /// The skill interface of the agent that answers the user there. Absent means the general setting.
    pub interface: Option<MainInterface>,
    /// Whether it is an agentic backend, such as a command-line agent. It receives a single task instead of the
    /// conversation. Because its work may have effects outside, a round that has begun is never repeated.
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
    /// The price of a million input tokens and a million output tokens, in US dollars. For comparison only.
    #[must_use]
    pub(super) fn price_usd(&self) -> f64 {
        self.cost.map_or(0.0, |c| c.input_usd + c.output_usd)
    }

    /// The first invalid fact, described in words.
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
            return Some(format!(
                "users cannot call it {name:?}: a name begins with a letter and has no comma or colon"
            ));
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
