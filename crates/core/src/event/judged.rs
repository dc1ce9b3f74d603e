//! The verdicts about the calls of a reply: of the kernel's own policies, and of hooks outside the kernel.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    ids::IntentId,
    loop_guard::{LoopDetector, LoopLevel},
};

/// The verdicts about the calls of one reply.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JudgedCalls {
    /// The verdicts, in the order of the calls. A call without a verdict may be made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub verdicts: Vec<JudgedCall>,
    /// Whether the run ends once these calls have results, because the loop guard has refused too often.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ends_run: bool,
    /// What the loop guard found in the calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loops: Vec<LoopFound>,
    /// The calls that wait for hooks outside the kernel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<AskedHooks>,
    /// Whether the texts of these calls, if all of them succeed, are the answer as they are.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub are_answer: bool,
}

impl JudgedCalls {
    /// The verdict about a call; `None` if there was no objection.
    #[must_use]
    pub fn of(&self, call_id: &str) -> Option<&CallVerdict> {
        self.verdicts.iter().find(|judged| judged.call_id == call_id).map(|judged| &judged.verdict)
    }

    /// The names of the hooks that must decide before a call is made, in their order.
    #[must_use]
    pub fn hooks_of(&self, call_id: &str) -> &[String] {
        self.hooks.iter().find(|asked| asked.call_id == call_id).map_or(&[][..], |asked| asked.hooks.as_slice())
    }
}

/// A pattern that the loop guard found in a call and the calls before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopFound {
    /// The id of the call, which is unique in its reply.
    pub call_id: String,
    /// The skill or tool.
    pub skill: String,
    /// The pattern.
    pub detector: LoopDetector,
    /// Whether the call is made with a warning, or refused.
    pub level: LoopLevel,
    /// The number of its occurrences.
    pub count: u32,
    /// What the model was told.
    pub text: String,
}

/// A call with the hooks that must decide before it is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedHooks {
    /// The id of the call, which is unique in its reply.
    pub call_id: String,
    /// The names of the hooks, in their order.
    pub hooks: Vec<String>,
}

/// The verdict of a hook outside the kernel about one call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookDecision {
    /// The name of the hook.
    pub hook: String,
    /// The intent of the planned run.
    pub intent: IntentId,
    /// The verdict. The text of a refusal is the result of the call, as the model reads it.
    #[serde(flatten)]
    pub verdict: HookAnswer,
}

/// What a hook outside the kernel answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum HookAnswer {
    /// The hook has no objection.
    Continue,
    /// The turn, or the call of the skill, does not happen.
    Refuse {
        /// The reason.
        text: String,
    },
    /// The skill runs with these arguments. Not allowed before a turn.
    Replace {
        /// The arguments, an object.
        arguments: Value,
    },
}

/// A verdict with the call that it is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JudgedCall {
    /// The id of the call, which is unique in its reply.
    pub call_id: String,
    /// The verdict.
    #[serde(flatten)]
    pub verdict: CallVerdict,
}

/// An objection to a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum CallVerdict {
    /// The call may be made, and its result is shown with this warning.
    Warn {
        /// The warning for the model.
        text: String,
    },
    /// The call is not made.
    Refuse {
        /// The reason, on which the consequences for the run depend.
        why: Refusal,
        /// The result of the call, as the model reads it.
        text: String,
    },
}

/// Why a call is not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// Its effect has a receipt.
    DoneAlready,
    /// All calls are used.
    CallLimit,
    /// Its effect may have happened already.
    InDoubt,
    /// The agent repeats itself without progress.
    NoProgress,
    /// The active skill does not allow the skill.
    NotAllowed,
}
