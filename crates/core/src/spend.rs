//! What model calls cost, and the caps on it. Each round is recorded with its usage; [`UsageTotals`] are the sums that the store
//! keeps of these records. Before a round, its expected cost is reserved in three accounts: of its turn, of its conversation,
//! and of its user on this day. A round that would exceed a cap is not run.

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::{
    ids::{ConversationId, UserId},
    message::{ModelError, ModelErrorKind, Usage},
    route::{BackendFacts, Privacy},
    time::Micros,
};

const DAY_US: i64 = 24 * 60 * 60 * 1_000_000;
/// Nanodollars in a dollar. Money is summed in whole nanodollars, so that sums do not depend on their order.
const NANOS: f64 = 1e9;

/// A day of the accounts: days since 1970 in UTC, so that all nodes agree on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(pub i64);

impl Day {
    /// The day of an instant.
    #[must_use]
    pub const fn of(at: Micros) -> Self {
        Self(at.0.div_euclid(DAY_US))
    }

    /// The first instant of the day after.
    #[must_use]
    pub const fn end(self) -> Micros {
        Micros(self.0.saturating_add(1).saturating_mul(DAY_US))
    }

    /// The day of a date such as `2026-02-18`; `None` if the text is no such date.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let date = chrono::NaiveDate::parse_from_str(text, "%Y-%m-%d").ok().filter(|_| text.len() == 10)?;
        Some(Self::of(Micros::from_utc(date.and_time(chrono::NaiveTime::MIN).and_utc())))
    }
}

impl std::fmt::Display for Day {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let start = Micros(self.0.saturating_mul(DAY_US)).to_utc();
        write!(f, "{}", start.format("%Y-%m-%d"))
    }
}

/// An amount of money in whole nanodollars. Negative amounts and values that are no number count as 0.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the value is at least 0, and the cast saturates"
)]
pub fn nanodollars(usd: f64) -> u64 {
    (usd.max(0.0) * NANOS).round() as u64
}

/// An amount of nanodollars in dollars, for front ends.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "exact below nine million dollars")]
pub fn dollars(nanodollars: u64) -> f64 {
    nanodollars as f64 / NANOS
}

/// Tokens and money together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    /// Tokens of prompts and answers, as the provider counts them; cached ones included.
    pub tokens: u64,
    /// Money in nanodollars.
    pub nanodollars: u64,
}

impl Spent {
    /// What a call spent.
    #[must_use]
    pub fn of(usage: &Usage) -> Self {
        let tokens = usage.input_tokens.saturating_add(usage.output_tokens);
        Self { tokens, nanodollars: nanodollars(usage.cost_usd) }
    }

    /// The sum of both.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_add(other.tokens),
            nanodollars: self.nanodollars.saturating_add(other.nanodollars),
        }
    }

    /// The rest without `other`; at least 0.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_sub(other.tokens),
            nanodollars: self.nanodollars.saturating_sub(other.nanodollars),
        }
    }

    /// The larger of both in each unit.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { tokens: self.tokens.max(other.tokens), nanodollars: self.nanodollars.max(other.nanodollars) }
    }
}

/// An account with a cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cap {
    /// One turn, with its sub-agents.
    Turn,
    /// One conversation.
    Conversation,
    /// All conversations of one user on one day (UTC).
    UserDay,
}

impl Cap {
    /// The wire word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Turn => "turn",
            Self::Conversation => "conversation",
            Self::UserDay => "user_day",
        }
    }
}

/// `[spend]`: the caps. 0 means no cap.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SpendLimits {
    /// Tokens of one turn, with its sub-agents.
    pub turn_tokens_max: u64,
    /// US dollars of one turn, with its sub-agents.
    pub turn_usd_max: f64,
    /// Tokens of one conversation.
    pub conversation_tokens_max: u64,
    /// US dollars of one conversation.
    pub conversation_usd_max: f64,
    /// Tokens of one user on one day (UTC).
    pub user_day_tokens_max: u64,
    /// US dollars of one user on one day (UTC).
    pub user_day_usd_max: f64,
}

impl Default for SpendLimits {
    /// A turn with eight sub-agents that use all their rounds at the largest prompt stays below the tokens of a turn. The others
    /// are about a heavy day of one person; an endless loop reaches them within hours.
    fn default() -> Self {
        Self {
            turn_tokens_max: 2_000_000,
            turn_usd_max: 2.0,
            conversation_tokens_max: 20_000_000,
            conversation_usd_max: 20.0,
            user_day_tokens_max: 50_000_000,
            user_day_usd_max: 20.0,
        }
    }
}

impl SpendLimits {
    /// No caps.
    pub const NONE: Self = Self {
        turn_tokens_max: 0,
        turn_usd_max: 0.0,
        conversation_tokens_max: 0,
        conversation_usd_max: 0.0,
        user_day_tokens_max: 0,
        user_day_usd_max: 0.0,
    };

    /// The caps of an account: tokens and nanodollars, 0 for no cap.
    fn caps(&self, cap: Cap) -> Spent {
        let (tokens, usd) = match cap {
            Cap::Turn => (self.turn_tokens_max, self.turn_usd_max),
            Cap::Conversation => (self.conversation_tokens_max, self.conversation_usd_max),
            Cap::UserDay => (self.user_day_tokens_max, self.user_day_usd_max),
        };
        Spent { tokens, nanodollars: nanodollars(usd) }
    }

    /// Whether an account has a cap.
    #[must_use]
    pub fn has(&self, cap: Cap) -> bool {
        self.caps(cap) != Spent::default()
    }

    /// The first amount of money that is none: its key, and its value.
    #[must_use]
    pub fn flaw(&self) -> Option<(&'static str, f64)> {
        let amounts = [
            ("turn_usd_max", self.turn_usd_max),
            ("conversation_usd_max", self.conversation_usd_max),
            ("user_day_usd_max", self.user_day_usd_max),
        ];
        amounts.into_iter().find(|(_, usd)| !usd.is_finite() || *usd < 0.0)
    }

    /// Why a round of this expected cost may not run, if it may not.
    ///
    /// # Errors
    /// The cap that the round would exceed.
    pub fn check(&self, cap: Cap, account: &Account, expected: Expected) -> Result<(), SpendRefusal> {
        let max = self.caps(cap);
        let needed = expected.spent;
        let before = account.spent.plus(account.reserved);
        let after = before.plus(needed);
        let refuse = |unit| SpendRefusal { cap, unit, account: *account, needed, max };
        if max.tokens > 0 && after.tokens > max.tokens {
            return Err(refuse(Unit::Tokens));
        }
        // A backend that costs nothing may run whatever was spent on others. If the price is not known yet, the round may run
        // as long as the cap is not reached.
        let is_over = after.nanodollars > max.nanodollars || before.nanodollars >= max.nanodollars;
        if max.nanodollars > 0 && !expected.is_free && is_over {
            return Err(refuse(Unit::Money));
        }
        Ok(())
    }
}

/// The unit of a cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Tokens.
    Tokens,
    /// US dollars.
    Money,
}

/// What was spent on an account, and what rounds under way have reserved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Account {
    /// The usage of rounds that have ended.
    pub spent: Spent,
    /// The expected cost of rounds under way.
    pub reserved: Spent,
}

/// A cap that kept a round from running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpendRefusal {
    /// The account.
    pub cap: Cap,
    /// The unit of the cap.
    pub unit: Unit,
    /// The account before the round.
    pub account: Account,
    /// The expected cost of the round.
    pub needed: Spent,
    /// The caps of the account.
    pub max: Spent,
}

impl SpendRefusal {
    /// Whether the round fits as soon as rounds under way have ended for less than they have reserved.
    #[must_use]
    pub const fn may_pass(&self) -> bool {
        let without_others = self.account.spent.plus(self.needed);
        match self.unit {
            Unit::Tokens => self.account.reserved.tokens > 0 && without_others.tokens <= self.max.tokens,
            Unit::Money => {
                self.account.reserved.nanodollars > 0
                    && without_others.nanodollars <= self.max.nanodollars
                    && self.account.spent.nanodollars < self.max.nanodollars
            }
        }
    }

    /// The failure of the round, with a text for the user. `now` is the present time.
    #[must_use]
    pub fn into_error(self, now: Micros) -> ModelError {
        let kind = match self.cap {
            Cap::Turn => ModelErrorKind::TurnSpendCap,
            Cap::Conversation | Cap::UserDay => ModelErrorKind::SpendCap,
        };
        let retry_after_ms = (self.cap == Cap::UserDay).then(|| Day::of(now).end().since_ms(now));
        ModelError { retry_after_ms, ..ModelError::new(kind, self.text()) }
    }

    /// The refusal for the user: the cap, what was used of it, and what to do.
    #[must_use]
    pub fn text(&self) -> String {
        let (whose, next) = match self.cap {
            Cap::Turn => ("one request", "A new request has its own limit."),
            Cap::Conversation => {
                ("one conversation", "Start a new conversation, or ask the operator to raise the limit.")
            }
            Cap::UserDay => ("you in one day", "The day ends at 00:00 UTC; the operator can raise the limit."),
        };
        let (used, needed, max, key) = match self.unit {
            Unit::Tokens => (
                format!("{} tokens", self.account.spent.tokens),
                format!("about {} tokens", self.needed.tokens),
                format!("{} tokens", self.max.tokens),
                "tokens_max",
            ),
            Unit::Money => (
                money(self.account.spent.nanodollars),
                match self.needed.nanodollars {
                    0 => "an amount that is not known yet".to_owned(),
                    needed => format!("up to {}", money(needed)),
                },
                money(self.max.nanodollars),
                "usd_max",
            ),
        };
        let held = if self.account.reserved == Spent::default() { "" } else { ", beside other steps under way" };
        format!(
            "The limit of {max} for {whose} (`{}_{key}` in `[spend]`) stopped this: {used} are used, and the next step needs \
             {needed}{held}. {next}",
            self.cap.as_str()
        )
    }
}

/// An amount for people.
fn money(nanodollars: u64) -> String {
    format!("${:.4}", dollars(nanodollars))
}

/// The expected cost of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    /// The tokens and the money. No money if the price is not known.
    pub spent: Spent,
    /// Whether the backend is known to cost nothing.
    pub is_free: bool,
}

/// The expected cost of a round: the tokens of its prompt, and its answer at full length. `seen` is what a thousand tokens of
/// this backend cost last, in nanodollars, for backends whose provider reports the cost of each call. A local backend without a
/// price is free.
#[must_use]
pub fn expected(input_tokens: u64, output_tokens_max: u64, backend: &BackendFacts, seen: u64) -> Expected {
    let cost = backend.cost;
    let tokens = input_tokens.saturating_add(output_tokens_max);
    let priced = |tokens: u64, usd: f64| nanodollars(usd).saturating_mul(tokens) / 1_000_000;
    let nanodollars = match cost {
        Some(cost) => priced(input_tokens, cost.input_usd).saturating_add(priced(output_tokens_max, cost.output_usd)),
        None => seen.saturating_mul(tokens) / 1_000,
    };
    let is_free = nanodollars == 0 && (cost.is_some() || backend.privacy == Privacy::Local);
    Expected { spent: Spent { tokens, nanodollars }, is_free }
}

/// The sums of recorded usage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageTotals {
    /// Model calls that were answered.
    pub rounds: u64,
    /// Tokens of prompts, cached ones included.
    pub input_tokens: u64,
    /// Input tokens read from the provider's cache.
    pub cached_tokens: u64,
    /// Input tokens written to the provider's cache.
    pub cache_written_tokens: u64,
    /// Tokens of answers, reasoning included.
    pub output_tokens: u64,
    /// Output tokens used for reasoning.
    pub reasoning_tokens: u64,
    /// Money in nanodollars.
    pub nanodollars: u64,
}

impl UsageTotals {
    /// The sums of one round.
    #[must_use]
    pub fn of(usage: &Usage) -> Self {
        // Records of older versions may have any number.
        let usage = usage.bounded();
        Self {
            rounds: 1,
            input_tokens: usage.input_tokens,
            cached_tokens: usage.cached_tokens,
            cache_written_tokens: usage.cache_written_tokens,
            output_tokens: usage.output_tokens,
            reasoning_tokens: usage.reasoning_tokens,
            nanodollars: nanodollars(usage.cost_usd),
        }
    }

    /// Adds other sums. Saturates.
    pub const fn add(&mut self, other: &Self) {
        self.rounds = self.rounds.saturating_add(other.rounds);
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(other.cached_tokens);
        self.cache_written_tokens = self.cache_written_tokens.saturating_add(other.cache_written_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.reasoning_tokens = self.reasoning_tokens.saturating_add(other.reasoning_tokens);
        self.nanodollars = self.nanodollars.saturating_add(other.nanodollars);
    }

    /// Tokens and money.
    #[must_use]
    pub const fn spent(&self) -> Spent {
        Spent { tokens: self.input_tokens.saturating_add(self.output_tokens), nanodollars: self.nanodollars }
    }
}

/// What sums are made for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsageBy {
    /// One sum of all.
    All,
    /// By day (UTC).
    #[default]
    Day,
    /// By user.
    User,
    /// By conversation.
    Conversation,
    /// By the skills that the rounds called. A round that called several skills counts for their list, and one that called none
    /// for an empty name, so that the sums add up to the whole.
    Skill,
    /// By backend.
    Backend,
}

impl UsageBy {
    /// All words, as front ends accept them.
    pub const ALL: [Self; 6] = [Self::All, Self::Day, Self::User, Self::Conversation, Self::Skill, Self::Backend];

    /// The wire word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Day => "day",
            Self::User => "user",
            Self::Conversation => "conversation",
            Self::Skill => "skill",
            Self::Backend => "backend",
        }
    }
}

/// The sums that are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageQuery {
    /// What the sums are made for.
    pub by: UsageBy,
    /// Only this user. `None` means all users, for operators.
    pub user: Option<UserId>,
    /// Only this conversation of the user; the sum is one of [`UsageBy::All`]. Has no effect without a user.
    pub conversation: Option<ConversationId>,
    /// The first day.
    pub from: Day,
    /// The last day.
    pub to: Day,
    /// The maximum number of rows.
    pub limit: u32,
}

impl UsageQuery {
    /// All days of all conversations of a user, or of all users.
    #[must_use]
    pub const fn all(by: UsageBy, user: Option<UserId>) -> Self {
        Self { by, user, conversation: None, from: Day(i64::MIN), to: Day(i64::MAX), limit: 1 }
    }
}

/// One sum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageRow {
    /// The day, the user, the conversation's id, the skills or the backend. Empty for [`UsageBy::All`].
    pub key: String,
    /// The sums.
    pub totals: UsageTotals,
}
