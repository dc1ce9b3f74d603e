//! `[approval]`: which calls of skills wait for a person. The policy is documented in [`annie_core::approval`].

use annie_core::{
    approval::{ApprovalMode, ApprovalPolicy, ApprovalRule, UntrustedText},
    hooks::{Conditions, valid_skill_pattern},
    skill::Effect,
};
use serde::{Deserialize, Serialize};

use super::{
    hooks::{HookKind, condition_problems},
    settings::Config,
    typed::KeyError,
};

/// The shortest time that a request waits, in milliseconds: a person must be able to read it.
const EXPIRES_MS_MIN: u64 = 1_000;

/// `[approval]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ApprovalSettings {
    /// The mode of the calls for which no rule holds.
    pub default: ApprovalMode,
    /// The rules: the first one that holds decides.
    pub rules: Vec<ApprovalRuleConfig>,
    /// The mode of effects outside that an agent requests after it has read text which the user did not write.
    pub after_untrusted: ApprovalMode,
    /// The same for calls that only read from other machines.
    pub reads_after_untrusted: ApprovalMode,
    /// Skills whose results count as such text, beside those of MCP servers and of skills that read from other machines.
    pub untrusted: Vec<String>,
    /// Skills whose results do not count as such text.
    pub trusted: Vec<String>,
    /// How long a request waits before it counts as denied, in milliseconds.
    pub expires_ms: u64,
}

impl Default for ApprovalSettings {
    /// Notes and files may be texts that other people wrote, and programs of the sandbox may read such files.
    fn default() -> Self {
        Self {
            default: ApprovalMode::Off,
            rules: Vec::new(),
            after_untrusted: ApprovalMode::Ask,
            reads_after_untrusted: ApprovalMode::Off,
            untrusted: ["notes.*", "files.*", "shell.*", "python.*"].map(str::to_owned).to_vec(),
            trusted: Vec::new(),
            expires_ms: ApprovalPolicy::EXPIRES_MS_DEFAULT,
        }
    }
}

/// One of `approval.rules`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalRuleConfig {
    /// Whether the calls wait.
    pub mode: ApprovalMode,
    /// The conditions on skill, user, channel and agent.
    #[serde(default)]
    pub when: Conditions,
    /// The effect of the skill is one of these; an empty list is no condition.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<Effect>,
    /// Whether the skill must communicate with systems outside, or must not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<bool>,
}

impl Config {
    /// Which calls wait for a person: by `[approval]`, and by the `[[hook]]` rules that ask.
    #[must_use]
    pub fn approval_policy(&self) -> ApprovalPolicy {
        let rule = |rule: &ApprovalRuleConfig| {
            let ApprovalRuleConfig { mode, when, effects, external } = rule.clone();
            ApprovalRule { mode, when, effects, external }
        };
        let asks = self.hook.iter().filter(|hook| hook.kind == HookKind::Ask);
        let hook =
            |when: &Conditions| ApprovalRule { mode: ApprovalMode::Ask, when: when.clone(), ..ApprovalRule::default() };
        ApprovalPolicy {
            default: self.approval.default,
            rules: self.approval.rules.iter().map(rule).collect(),
            hooks: asks.map(|asks| hook(&asks.when)).collect(),
            untrusted: UntrustedText {
                mode: self.approval.after_untrusted,
                reads: self.approval.reads_after_untrusted,
                also: self.approval.untrusted.clone(),
                trusted: self.approval.trusted.clone(),
            },
            expires_ms: self.approval.expires_ms,
        }
    }

    /// The errors in `[approval]`.
    pub(super) fn approval_problems(&self) -> Vec<KeyError> {
        let mut found = Vec::new();
        let ApprovalSettings { rules, expires_ms, .. } = &self.approval;
        let ms_max = ApprovalPolicy::EXPIRES_MS_MAX;
        if !(EXPIRES_MS_MIN..=ms_max).contains(expires_ms) {
            let what = format!("{expires_ms} is not between {EXPIRES_MS_MIN} and {ms_max}");
            found.push(KeyError::value(&["approval", "expires_ms"], &what, "86400000, a day, is the default"));
        }
        let (count, count_max) = (rules.len(), ApprovalPolicy::RULES_MAX);
        if count > count_max {
            let what = format!("there are {count} rules, at most {count_max} are allowed");
            found.push(KeyError::value(&["approval", "rules"], &what, "combine some of them"));
        }
        for (key, patterns) in [("untrusted", &self.approval.untrusted), ("trusted", &self.approval.trusted)] {
            let wrong = patterns.iter().find(|pattern| !valid_skill_pattern(pattern));
            found.extend(wrong.map(|pattern| {
                let what = format!("{pattern:?} is no pattern of skills");
                KeyError::value(&["approval", key], &what, "write a name, `domain.*` or `*`")
            }));
            if patterns.len() > count_max {
                let what = format!("there are {} patterns, at most {count_max} are allowed", patterns.len());
                found.push(KeyError::value(&["approval", key], &what, "combine some of them: `domain.*`"));
            }
        }
        for (at, rule) in rules.iter().enumerate() {
            found.extend(condition_problems(&["approval", "rules", &at.to_string()], &rule.when, &self.channel));
        }
        found
    }
}
