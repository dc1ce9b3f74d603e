//! The chains as data, with those of the configuration.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{ErrorKind, Step};

/// Chains by kind of error.
pub type Chains = BTreeMap<ErrorKind, Vec<Step>>;

/// How failures are routed. The configuration has it as a table of its own. It is recorded with each turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ErrorRules {
    /// Whether the kernel runs a call of a skill that only reads once more if its failure passes.
    pub retry_reads: bool,
    /// How long the kernel waits before it does, in milliseconds.
    pub retry_wait_ms: u64,
    /// Whether the kernel itself runs the alternative of a failed skill that only reads, if the alternative takes the same
    /// arguments and no rule asks about it.
    pub run_alternatives: bool,
    /// How often one agent may ask for another approach after its chains are used up. 0 turns that off.
    pub alternatives_per_goal_max: u32,
    /// How often all agents of a turn together may.
    pub alternatives_per_turn_max: u32,
    /// The backend, or the capability, that advises; empty means the first one of the turn that has a language model.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub alternatives_model: String,
    /// The chains that replace the built-in ones.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub chains: Chains,
    /// The alternatives of skills, in addition to those of the skills' files.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub alternatives: BTreeMap<String, Vec<String>>,
}

impl Default for ErrorRules {
    fn default() -> Self {
        Self {
            retry_reads: true,
            retry_wait_ms: 250,
            run_alternatives: true,
            alternatives_per_goal_max: 1,
            alternatives_per_turn_max: 3,
            alternatives_model: String::new(),
            chains: BTreeMap::new(),
            alternatives: BTreeMap::new(),
        }
    }
}

impl ErrorRules {
    /// The longest chain.
    pub const STEPS_MAX: usize = 8;
    /// The most requests for another approach that a limit may allow.
    pub const ALTERNATIVES_MAX: u32 = 10;
    /// The longest wait before a call is run again, in milliseconds: the agent waits, too.
    pub const RETRY_WAIT_MS_MAX: u64 = 10_000;

    /// Whether these are the defaults, which are not stored.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn alternatives_of(&self, skill: &str) -> &[String] {
        self.alternatives.get(skill).map(Vec::as_slice).unwrap_or_default()
    }

    /// The chain of a kind of error of a skill: that of the skill's file (`own`), else the operator's, else the built-in one.
    #[must_use]
    pub fn chain(&self, own: &Chains, kind: ErrorKind) -> Vec<Step> {
        self.set_chain(own, kind).cloned().unwrap_or_else(|| built_in(kind).to_vec())
    }

    /// The chain that the skill's file or the operator set.
    pub(crate) fn set_chain<'a>(&'a self, own: &'a Chains, kind: ErrorKind) -> Option<&'a Vec<Step>> {
        own.get(&kind).or_else(|| self.chains.get(&kind))
    }
}

/// The built-in chains [S3 4.4]. After the last step, the failure is reported.
const fn built_in(kind: ErrorKind) -> &'static [Step] {
    match kind {
        ErrorKind::Http403 => &[Step::OtherSkill, Step::OtherAddress, Step::OtherSource],
        ErrorKind::Http404 => &[Step::FindAddress, Step::OtherSkill],
        ErrorKind::Http429 => &[Step::BackOff, Step::OtherSkill],
        ErrorKind::HttpError | ErrorKind::BreakerOpen | ErrorKind::Unavailable => &[Step::OtherSkill],
        ErrorKind::Timeout => &[Step::Retry, Step::Simpler, Step::OtherSkill],
        ErrorKind::ParseError => &[Step::OtherForm, Step::Raw],
        ErrorKind::EmptyResult => &[Step::Broaden, Step::OtherSkill, Step::OtherSource],
        ErrorKind::Crashed => &[Step::Correct, Step::OtherSkill],
        // The error says what to do.
        ErrorKind::Validation => &[Step::Correct, Step::Correct, Step::Correct],
        ErrorKind::NotFound | ErrorKind::Conflict | ErrorKind::Other => {
            &[Step::Correct, Step::Correct, Step::OtherSkill]
        }
        ErrorKind::ContextOverflow => &[Step::Simpler],
        ErrorKind::SsrfBlocked | ErrorKind::Refused | ErrorKind::Cancelled | ErrorKind::UnknownEffect => &[],
    }
}
