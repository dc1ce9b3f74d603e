//! The calls of a step with their values, as the state of a run has them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::StepResult;
use crate::effort::Effort;

/// One call that a step makes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepCall {
    /// The id of the call, unique in the turn.
    pub id: String,
    /// The step or the branch that makes it.
    pub of: String,
    /// What is called.
    pub work: CallWork,
    /// The result, once there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<StepResult>,
}

/// What a call of a step calls, with its values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallWork {
    /// A skill.
    Skill {
        /// Its name.
        skill: String,
        /// Its arguments.
        args: Map<String, Value>,
    },
    /// A sub-agent.
    Agent {
        /// Its name, unique in the turn.
        agent: String,
        /// Its goal.
        mission: String,
        /// The skills it may use.
        skills: Vec<String>,
        /// Maximum number of its calls; `None` means the default.
        calls_max: Option<u32>,
        /// How hard its model should think.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        effort: Option<Effort>,
    },
}
