//! The verdicts of the kernel's own policies about the calls of a reply.

use serde::{Deserialize, Serialize};

/// The verdicts about the calls of one reply.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JudgedCalls {
    /// The verdicts, in the order of the calls. A call without a verdict may be made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub verdicts: Vec<JudgedCall>,
    /// Whether the run ends once these calls have results, because the loop guard has refused too often.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ends_run: bool,
}

impl JudgedCalls {
    /// The verdict about a call; `None` if there was no objection.
    #[must_use]
    pub fn of(&self, call_id: &str) -> Option<&CallVerdict> {
        self.verdicts.iter().find(|judged| judged.call_id == call_id).map(|judged| &judged.verdict)
    }
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
}
