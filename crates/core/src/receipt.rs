//! Receipts of effects: what a turn can show for what it says it did (invariant 21).

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{outcome::Outcome, plan::first_line, projection::text_sha256};

/// A skill with an effect ran and succeeded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// The skill.
    pub skill: String,
    /// Tells calls apart: a fingerprint of the skill and its validated arguments.
    pub call: String,
    /// The first line of its result.
    pub line: String,
}

impl Receipt {
    /// The receipt of a call.
    #[must_use]
    pub fn of(skill: &str, arguments: &Value, outcome: &Outcome) -> Self {
        Self { skill: skill.to_owned(), call: fingerprint(skill, arguments), line: first_line(&outcome.data) }
    }

    /// Whether it is the receipt of an equal call.
    #[must_use]
    pub fn is_of(&self, skill: &str, arguments: &Value) -> bool {
        self.skill == skill && self.call == fingerprint(skill, arguments)
    }

    /// For a user or a model.
    #[must_use]
    pub fn told(&self) -> String {
        if self.line.is_empty() { self.skill.clone() } else { self.line.clone() }
    }
}

fn fingerprint(skill: &str, arguments: &Value) -> String {
    let digest = text_sha256(&format!("{skill} {arguments}"));
    digest.iter().take(12).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn receipt_is_of_the_same_skill_with_equal_arguments_only() {
        let receipt = Receipt::of("tasks.create", &json!({"title": "x"}), &Outcome::success("Created task #1 x\nmore"));
        assert!(receipt.is_of("tasks.create", &json!({"title": "x"})));
        assert!(!receipt.is_of("tasks.create", &json!({"title": "y"})));
        assert!(!receipt.is_of("tasks.update", &json!({"title": "x"})));
        assert_eq!(receipt.told(), "Created task #1 x");
    }
}
