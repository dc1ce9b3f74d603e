//! Approvals: a person decides whether a call of a skill is made.
//!
//! An approval is a hook outside the kernel with a fixed name, [`APPROVAL`], whose answer comes from a person. So a call waits
//! for a person as it waits for a program: no permit is held, and the calls beside it run. [`ApprovalPolicy`] says which calls
//! wait, and the concern of the turn (`turn/concern/approvals.rs`) keeps the requests and their verdicts.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    event::{HookAnswer, PlannedSkill},
    guard::FLAGGED,
    hooks::{Conditions, HookContext, HookPoint, HookSubject, skill_matches},
    skill::{Effect, SkillSet},
    time::Micros,
};

/// The name of the hook whose answers come from a person. No configured hook has it.
pub const APPROVAL: &str = "approval";
/// The reason of a request that was not answered in time.
const EXPIRED: &str = "It was not approved in time.";
/// The reason of a request whose call is no longer wanted. No model reads it.
const WITHDRAWN: &str = "The call is no longer wanted.";
/// The reason of a denial without one.
const DENIED: &str = "A person denied it.";
/// Messages that approve a request, in lower case.
const YES: [&str; 8] = ["yes", "yes please", "ja", "oui", "si", "sí", "haan", "approve"];
/// Messages that deny a request, in lower case.
const NO: [&str; 7] = ["no", "no thanks", "nein", "non", "nahi", "nahin", "deny"];

/// Whether a call waits for a person. A stricter mode is greater.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalMode {
    /// The call is made at once.
    #[default]
    Off,
    /// The call waits, unless a call of the same skill was approved in the conversation.
    AskFirstTime,
    /// The call waits, unless the skill was approved for the whole conversation.
    Ask,
    /// The call waits. An approval is for one call only.
    Always,
}

impl ApprovalMode {
    /// The wire word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::AskFirstTime => "ask_first_time",
            Self::Ask => "ask",
            Self::Always => "always",
        }
    }
}

/// The decision about a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum ApprovalVerdict {
    /// The call is made.
    Approve {
        /// Later calls of the skill in this conversation need no approval, unless the mode is [`ApprovalMode::Always`].
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        for_conversation: bool,
        /// The call is made with these arguments, an object. Absent means those of the request.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arguments: Option<Value>,
    },
    /// The call is not made.
    Deny {
        /// The reason, which the model reads. May be empty; at most [`ApprovalVerdict::REASON_CHARS_MAX`] characters.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
    },
    /// The time is over, so the call is not made.
    Expire,
    /// The call is no longer wanted: its agent or its turn ended first.
    Withdraw,
}

impl ApprovalVerdict {
    /// The maximum length of the reason of a denial, in characters. The model reads the reason.
    pub const REASON_CHARS_MAX: usize = 1_000;
    /// The maximum length of edited arguments, in bytes of JSON.
    pub const ARGUMENTS_BYTES_MAX: usize = 16 * 1024;

    /// An approval of one call with the arguments of the request.
    #[must_use]
    pub const fn once() -> Self {
        Self::Approve { for_conversation: false, arguments: None }
    }

    /// The verdict as the answer of the hook for which the call waits.
    #[must_use]
    pub fn answer(&self) -> HookAnswer {
        let refuse = |text: &str| HookAnswer::Refuse { text: text.to_owned() };
        match self {
            Self::Approve { arguments: None, .. } => HookAnswer::Continue,
            Self::Approve { arguments: Some(arguments), .. } => HookAnswer::Replace { arguments: arguments.clone() },
            Self::Deny { reason } if reason.trim().is_empty() => refuse(DENIED),
            Self::Deny { reason } => refuse(reason.trim()),
            Self::Expire => refuse(EXPIRED),
            Self::Withdraw => refuse(WITHDRAWN),
        }
    }

    /// The state of a request with this verdict.
    #[must_use]
    pub const fn state(&self) -> &'static str {
        match self {
            Self::Approve { .. } => "approved",
            Self::Deny { .. } => "denied",
            Self::Expire => "expired",
            Self::Withdraw => "withdrawn",
        }
    }
}

/// Calls of these skills wait for a person.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ApprovalRule {
    /// Whether the calls wait.
    pub mode: ApprovalMode,
    /// The conditions on skill, user, channel and agent.
    pub when: Conditions,
    /// The effect of the skill is one of these. An empty list is no condition.
    pub effects: Vec<Effect>,
    /// Whether the skill must communicate with systems outside, or must not. `None` is no condition.
    pub external: Option<bool>,
}

impl ApprovalRule {
    fn holds(&self, at: &HookContext<'_>) -> bool {
        let HookSubject::Skill(planned) = at.subject else { return false };
        (self.effects.is_empty() || self.effects.contains(&planned.effect))
            && self.external.is_none_or(|external| external == planned.external)
            && self.when.hold(at)
    }
}

/// Which calls wait for a person, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalPolicy {
    /// The mode of the calls for which no rule holds.
    pub default: ApprovalMode,
    /// The rules of `[approval]`: the first one that holds decides.
    pub rules: Vec<ApprovalRule>,
    /// The `[[hook]]` rules that ask a person. They make the mode stricter and never less strict.
    pub hooks: Vec<ApprovalRule>,
    /// Whether calls of agents that have read untrusted text wait for a person.
    pub untrusted: UntrustedText,
    /// How long a request waits before it counts as denied, in milliseconds.
    pub expires_ms: u64,
}

impl Default for ApprovalPolicy {
    fn default() -> Self {
        Self {
            default: ApprovalMode::Off,
            rules: Vec::new(),
            hooks: Vec::new(),
            untrusted: UntrustedText::default(),
            expires_ms: Self::EXPIRES_MS_DEFAULT,
        }
    }
}

/// The rule about agents that have read text which the user did not write: a web page may contain instructions, and a model may
/// obey them. So an effect outside that such an agent requests needs a person. A call of the same reply as the call that reads,
/// and an agent that was dispatched before and has not read itself, are not affected.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UntrustedText {
    /// Whether the calls wait.
    pub mode: ApprovalMode,
    /// Whether calls wait that only read from other machines: an address may carry data out.
    pub reads: ApprovalMode,
    /// The skills whose results are untrusted although they do not communicate with systems outside: patterns of names.
    pub also: Vec<String>,
    /// The skills whose results are trusted although they do: patterns of names.
    pub trusted: Vec<String>,
}

/// The origin of answers and results that a client sends along, and of the calls of its model: they may hold the words of third
/// parties.
pub const CLIENT: &str = "client";

/// What pasted text, a program's thread, the sender of an operation's result, and text in which a guard found something are
/// called among the origins of text.
const OUTSIDE_ORIGINS: [&str; 4] = ["pasted", CLIENT, "operation", FLAGGED];

impl UntrustedText {
    /// The origin for which a call waits: the last one of `origins`, which an agent has read, that is untrusted. `None` if the
    /// mode of the call is off, or no origin is untrusted.
    #[must_use]
    pub fn origin<'a>(&self, planned: &PlannedSkill, origins: &'a [String], skills: &SkillSet) -> Option<&'a str> {
        if self.mode_of(planned) == ApprovalMode::Off {
            return None;
        }
        origins.iter().rev().map(String::as_str).find(|origin| self.is_untrusted(origin, skills))
    }

    /// Whether a call waits if its agent has read untrusted text. Off if the call does not reach other machines.
    #[must_use]
    pub const fn mode_of(&self, planned: &PlannedSkill) -> ApprovalMode {
        match (planned.external, planned.effect) {
            (false, _) => ApprovalMode::Off,
            (true, Effect::Read) => self.reads,
            (true, Effect::Idempotent | Effect::Once) => self.mode,
        }
    }

    /// The origins whose text may not become an instruction of the user, such as the message of a schedule: the untrusted ones,
    /// and all that are no skill of this installation. What the user's own to-dos and memories say is the user's.
    #[must_use]
    pub fn untrusted<'a>(&self, origins: &'a [String], skills: &SkillSet) -> Vec<&'a str> {
        let is_unknown = |origin: &str| !self.trusts(origin) && skills.get(origin).is_none();
        let origins = origins.iter().map(String::as_str);
        origins.filter(|origin| self.is_untrusted(origin, skills) || is_unknown(origin)).collect()
    }

    /// Whether the operator trusts the results of a skill.
    #[must_use]
    pub fn trusts(&self, skill: &str) -> bool {
        self.trusted.iter().any(|pattern| skill_matches(pattern, skill))
    }

    /// Whether text of this origin may have been written by an outside party, whatever the mode is.
    #[must_use]
    pub fn is_untrusted(&self, origin: &str, skills: &SkillSet) -> bool {
        let is_one_of = |patterns: &[String]| patterns.iter().any(|pattern| skill_matches(pattern, origin));
        if self.trusts(origin) {
            return false;
        }
        // The answer to an effect, such as the receipt of a sent message, comes from the system that the user chose. A server of
        // tools may be gone from the catalogue since.
        let reads_outside = || skills.get(origin).is_some_and(|skill| skill.external && skill.effect == Effect::Read);
        // The file of a skill may have been removed since it was read.
        let is_gone = || origin.contains('.') && !origin.starts_with("system.") && skills.get(origin).is_none();
        OUTSIDE_ORIGINS.contains(&origin)
            || origin.starts_with("mcp.")
            || is_one_of(&self.also)
            || reads_outside()
            || is_gone()
    }
}

impl ApprovalPolicy {
    /// How long a request waits by default, in milliseconds: a day, so that a person need not be at hand.
    pub const EXPIRES_MS_DEFAULT: u64 = 24 * 3_600_000;
    /// The longest time that a request may wait, in milliseconds: 30 days.
    pub const EXPIRES_MS_MAX: u64 = 30 * 24 * 3_600_000;
    /// The maximum number of rules. Each call of a skill is compared with all of them.
    pub const RULES_MAX: usize = 64;

    /// Whether no call ever waits, apart from calls after untrusted text.
    #[must_use]
    pub fn is_off(&self) -> bool {
        let is_off = |rule: &ApprovalRule| rule.mode == ApprovalMode::Off;
        self.default == ApprovalMode::Off && self.rules.iter().all(is_off) && self.hooks.iter().all(is_off)
    }

    /// Whether a call waits for a person. Off before a turn, which is no call.
    #[must_use]
    pub fn mode(&self, at: &HookContext<'_>) -> ApprovalMode {
        if at.point != HookPoint::BeforeSkill {
            return ApprovalMode::Off;
        }
        let own = self.rules.iter().find(|rule| rule.holds(at)).map_or(self.default, |rule| rule.mode);
        self.hooks.iter().filter(|rule| rule.holds(at)).map(|rule| rule.mode).fold(own, ApprovalMode::max)
    }
}

/// The question to the user about a call that waits until `expires_at`.
#[must_use]
pub fn question(skill: &str, arguments: &Value, expires_at: Micros) -> String {
    format!(
        "May I run {skill} {arguments}? Answer yes or no, or decide with `annie approvals`. Without an approval until \
         {expires_at} it is not done."
    )
}

/// What became of a request, for the history of the conversation.
#[must_use]
pub fn outcome(number: u32, verdict: &ApprovalVerdict, by: &str) -> String {
    match verdict {
        ApprovalVerdict::Approve { .. } | ApprovalVerdict::Deny { .. } => {
            format!("Request {number} was {} by {by}.", verdict.state())
        }
        ApprovalVerdict::Expire => format!("Request {number} has expired: it was not approved in time."),
        ApprovalVerdict::Withdraw => format!("Request {number} was withdrawn: its call is no longer wanted."),
    }
}

/// Whether a message is exactly a clear yes or no; `None` for every other text.
#[must_use]
pub fn clear_word(text: &str) -> Option<bool> {
    let word = text.trim().trim_end_matches(['.', '!']).replace(',', "").to_lowercase();
    if YES.contains(&word.as_str()) {
        Some(true)
    } else if NO.contains(&word.as_str()) {
        Some(false)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ids::{AgentId, ConversationId, IntentId, TaskId, UserId};

    fn mode(policy: &ApprovalPolicy, skill: &str, effect: Effect, external: bool) -> ApprovalMode {
        let (task, agent) = (TaskId::from_uuid(uuid::Uuid::from_u128(1)), AgentId::orchestrator());
        let planned = PlannedSkill {
            intent: IntentId::for_call(task, &agent, "1"),
            skill: skill.to_owned(),
            arguments: json!({}),
            effect,
            external,
            timeout_ms: 1,
            origin: Vec::new(),
        };
        policy.mode(&HookContext {
            user: &UserId::local(),
            channels: &["http".to_owned()],
            conversation: ConversationId::from_uuid(uuid::Uuid::from_u128(2)),
            task,
            agent: &agent,
            point: HookPoint::BeforeSkill,
            subject: HookSubject::Skill(&planned),
        })
    }

    #[test]
    fn approval_policy_takes_the_first_rule_that_holds_and_hooks_only_make_it_stricter() {
        let skills = |pattern: &str| Conditions { skills: vec![pattern.to_owned()], ..Conditions::default() };
        let rule = |mode, pattern: &str| ApprovalRule { mode, when: skills(pattern), ..ApprovalRule::default() };
        let policy = ApprovalPolicy {
            rules: vec![
                rule(ApprovalMode::Off, "web.fetch"),
                ApprovalRule { mode: ApprovalMode::Ask, external: Some(true), ..ApprovalRule::default() },
                ApprovalRule { mode: ApprovalMode::Always, effects: vec![Effect::Once], ..ApprovalRule::default() },
            ],
            hooks: vec![rule(ApprovalMode::Ask, "tasks.*")],
            ..ApprovalPolicy::default()
        };
        assert!(!policy.is_off() && ApprovalPolicy::default().is_off());
        assert_eq!(mode(&policy, "web.fetch", Effect::Read, true), ApprovalMode::Off);
        assert_eq!(mode(&policy, "mail.send", Effect::Once, true), ApprovalMode::Ask);
        assert_eq!(mode(&policy, "bank.pay", Effect::Once, false), ApprovalMode::Always);
        assert_eq!(mode(&policy, "tasks.create", Effect::Idempotent, false), ApprovalMode::Ask);
        assert_eq!(mode(&policy, "tasks.pay", Effect::Once, false), ApprovalMode::Always);
        assert_eq!(mode(&policy, "notes.read", Effect::Read, false), ApprovalMode::Off);
    }

    #[test]
    fn text_of_a_skill_that_is_gone_counts_as_untrusted() {
        let (task, agent) = (TaskId::from_uuid(uuid::Uuid::from_u128(1)), AgentId::orchestrator());
        let planned = PlannedSkill {
            intent: IntentId::for_call(task, &agent, "1"),
            skill: "mail.send".to_owned(),
            arguments: json!({}),
            effect: Effect::Once,
            external: true,
            timeout_ms: 1,
            origin: Vec::new(),
        };
        let untrusted = UntrustedText { mode: ApprovalMode::Ask, ..UntrustedText::default() };
        let origins = ["tasks".to_owned(), "system.read_result".to_owned(), "feed.read".to_owned()];
        assert_eq!(untrusted.origin(&planned, &origins, &SkillSet::default()), Some("feed.read"));
        assert_eq!(untrusted.origin(&planned, &origins[..2], &SkillSet::default()), None);
    }

    #[test]
    fn approval_word_is_only_an_exact_yes_or_no() {
        for yes in ["yes", " Yes! ", "Ja.", "sí", "Yes, please."] {
            assert_eq!(clear_word(yes), Some(true), "{yes}");
        }
        for no in ["no", "No.", "nein", "No, thanks"] {
            assert_eq!(clear_word(no), Some(false), "{no}");
        }
        for other in ["", "ok", "yes but later", "no idea", "yes yes", "not yet", "y?", "maybe"] {
            assert_eq!(clear_word(other), None, "{other}");
        }
    }

    #[test]
    fn approval_verdict_becomes_the_answer_of_the_hook() {
        assert_eq!(ApprovalVerdict::once().answer(), HookAnswer::Continue);
        let edited =
            ApprovalVerdict::Approve { for_conversation: false, arguments: Some(json!({"title": "oat milk"})) };
        assert_eq!(edited.answer(), HookAnswer::Replace { arguments: json!({"title": "oat milk"}) });
        let refused = |verdict: ApprovalVerdict| match verdict.answer() {
            HookAnswer::Refuse { text } => text,
            HookAnswer::Continue | HookAnswer::Replace { .. } => String::new(),
        };
        assert_eq!(refused(ApprovalVerdict::Deny { reason: " Too dear. ".to_owned() }), "Too dear.");
        assert_eq!(refused(ApprovalVerdict::Deny { reason: String::new() }), DENIED);
        assert_eq!(refused(ApprovalVerdict::Expire), EXPIRED);
    }
}
