//! The steps of a chain, and the rungs of the ladder that they belong to.

use serde::{Deserialize, Serialize};

use super::ErrorKind;

/// A rung of the ladder, from the cheapest to the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rung {
    /// The same again.
    Retry,
    /// Another way to the same goal.
    Replan,
    /// A smaller goal.
    Decompose,
    /// No further attempt.
    Report,
}

impl Rung {
    /// The wire word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Replan => "replan",
            Self::Decompose => "decompose",
            Self::Report => "report",
        }
    }
}

/// What follows a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// The same call once more.
    #[serde(rename = "retry_once")]
    Retry,
    /// The same call once more, later.
    #[serde(rename = "backoff_retry")]
    BackOff,
    /// Another address for the same thing.
    #[serde(rename = "try_alternative_url")]
    OtherAddress,
    /// Another skill for the same thing, one that the skill's author or the operator names.
    #[serde(rename = "use_alternative_skill")]
    OtherSkill,
    /// A search for the right address or name.
    #[serde(rename = "search_for_url")]
    FindAddress,
    /// The same in another form.
    #[serde(rename = "retry_with_different_parser")]
    OtherForm,
    /// The result as it is.
    #[serde(rename = "return_raw")]
    Raw,
    /// A broader question.
    #[serde(rename = "broaden_query")]
    Broaden,
    /// Another source.
    #[serde(rename = "try_alternative_source")]
    OtherSource,
    /// Other arguments: the error says which.
    #[serde(rename = "correct_arguments")]
    Correct,
    /// Less at a time.
    #[serde(rename = "try_simpler_request")]
    Simpler,
    /// No further attempt.
    #[serde(rename = "report_failure")]
    Report,
}

impl Step {
    /// All steps.
    pub const ALL: [Self; 12] = [
        Self::Retry,
        Self::BackOff,
        Self::OtherAddress,
        Self::OtherSkill,
        Self::FindAddress,
        Self::OtherForm,
        Self::Raw,
        Self::Broaden,
        Self::OtherSource,
        Self::Correct,
        Self::Simpler,
        Self::Report,
    ];

    /// The wire word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry_once",
            Self::BackOff => "backoff_retry",
            Self::OtherAddress => "try_alternative_url",
            Self::OtherSkill => "use_alternative_skill",
            Self::FindAddress => "search_for_url",
            Self::OtherForm => "retry_with_different_parser",
            Self::Raw => "return_raw",
            Self::Broaden => "broaden_query",
            Self::OtherSource => "try_alternative_source",
            Self::Correct => "correct_arguments",
            Self::Simpler => "try_simpler_request",
            Self::Report => "report_failure",
        }
    }

    /// The step with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|step| step.as_str() == name)
    }

    /// Its rung.
    #[must_use]
    pub const fn rung(self) -> Rung {
        match self {
            Self::Retry | Self::BackOff => Rung::Retry,
            Self::OtherAddress
            | Self::OtherSkill
            | Self::FindAddress
            | Self::OtherForm
            | Self::Raw
            | Self::Broaden
            | Self::OtherSource
            | Self::Correct => Rung::Replan,
            Self::Simpler => Rung::Decompose,
            Self::Report => Rung::Report,
        }
    }

    /// The skills that carry out a step which is no call of the failed skill, the best one first. `is_outside` says that the failed
    /// skill reaches other machines.
    pub(super) const fn helpers(self, is_outside: bool) -> &'static [&'static str] {
        match self {
            Self::OtherAddress | Self::FindAddress if is_outside => &["web.search"],
            Self::OtherSource if is_outside => &["web.search", "notes.search", "files.search"],
            Self::OtherSource => &["notes.search", "memory.search", "files.search", "tasks.search"],
            Self::OtherForm => &["python.run"],
            Self::Retry
            | Self::BackOff
            | Self::OtherAddress
            | Self::OtherSkill
            | Self::FindAddress
            | Self::Raw
            | Self::Broaden
            | Self::Correct
            | Self::Simpler
            | Self::Report => &[],
        }
    }

    /// What the model is told if a skill that the agent may run carries out the step; `None` for other steps.
    fn hint_with(self, helper: &str) -> Option<String> {
        Some(match self {
            Self::OtherAddress => format!("Look for another address of the same thing with {helper}."),
            Self::FindAddress => format!("Look for the right address with {helper} first."),
            Self::OtherSource => format!("Look in another place, with {helper}."),
            Self::OtherForm => format!("Ask for it in another form, or read it with {helper}."),
            Self::Retry
            | Self::BackOff
            | Self::OtherSkill
            | Self::Raw
            | Self::Broaden
            | Self::Correct
            | Self::Simpler
            | Self::Report => return None,
        })
    }

    /// What the model is told. Empty if the error itself says what to do. `helper` is a skill that carries out the step, if the agent
    /// may run one.
    pub(super) fn hint(self, kind: ErrorKind, skills: &[String], helper: Option<&str>) -> String {
        if let Some(hint) = helper.and_then(|helper| self.hint_with(helper)) {
            return hint;
        }
        let text = match self {
            Self::Retry => "Try it once more.",
            Self::BackOff => "Do something else first, then try it once more.",
            Self::OtherAddress => "Try another address for the same thing.",
            Self::OtherSkill => {
                return match skills {
                    [] => String::new(),
                    [one] => format!("Use {one} for this instead. Do not call the same again."),
                    [one, others @ ..] => {
                        format!("Use {one} for this instead, or {}. Do not call the same again.", others.join(", "))
                    }
                };
            }
            Self::FindAddress => "Look for the right address first.",
            Self::OtherForm => "Ask for it in another form.",
            Self::Raw => "Take it as it is, unread.",
            Self::Broaden => "Ask more broadly.",
            Self::OtherSource if kind == ErrorKind::EmptyResult => "Look in another place.",
            Self::OtherSource => "Work it out in another way, without this source.",
            Self::Correct => "",
            Self::Simpler => "Ask for less at a time.",
            Self::Report => "Nothing else is left to try here: say what failed.",
        };
        text.to_owned()
    }
}
