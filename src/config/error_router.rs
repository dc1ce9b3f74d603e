//! `[error_router]` and `[result_checks]`: what follows the failure of a skill, and when a result is doubted. The chains are
//! documented in [`annie_core::error_route`], the checks in [`annie_core::result_check`].

use annie_core::{
    error_route::{ErrorKind, ErrorRules, Step},
    skill::valid_skill_name,
};

use super::{settings::Config, typed::KeyError};

impl Config {
    /// The errors in `[error_router]`.
    pub(super) fn error_router_problems(&self) -> Vec<KeyError> {
        let ErrorRules { retry_wait_ms, chains, alternatives, .. } = &self.error_router;
        let mut found = Vec::new();
        let ms_max = ErrorRules::RETRY_WAIT_MS_MAX;
        if *retry_wait_ms > ms_max {
            let what = format!("{retry_wait_ms} is more than {ms_max}: the agent waits, too");
            found.push(KeyError::value(&["error_router", "retry_wait_ms"], &what, "give less"));
        }
        let (goal, turn, most) = (
            self.error_router.alternatives_per_goal_max,
            self.error_router.alternatives_per_turn_max,
            ErrorRules::ALTERNATIVES_MAX,
        );
        for (key, count) in [("alternatives_per_goal_max", goal), ("alternatives_per_turn_max", turn)] {
            if count > most {
                let what = format!("{count} is more than {most}: each is a call of a model");
                found.push(KeyError::value(&["error_router", key], &what, "give less"));
            }
        }
        for (kind, chain) in chains {
            found.extend(chain_problem(*kind, chain));
        }
        for (skill, others) in alternatives {
            for (at, other) in others.iter().enumerate() {
                let path = ["error_router", "alternatives", skill, &at.to_string()];
                if !valid_skill_name(other) {
                    let what = format!("{other:?} is no name of a skill");
                    found.push(KeyError::value(&path, &what, "write the name of a skill, such as notes.search"));
                } else if other == skill {
                    let fix = "name another skill, or remove it";
                    found.push(KeyError::value(&path, "a skill cannot stand in for itself", fix));
                }
            }
        }
        found
    }
}

impl Config {
    /// The errors in `[result_checks]`.
    pub(super) fn result_check_problems(&self) -> Vec<KeyError> {
        let checks = &self.result_checks;
        let percents =
            [("overlap_percent_min", checks.overlap_percent_min), ("flag_below_percent", checks.flag_below_percent)];
        let above = percents.iter().filter(|(_, percent)| *percent > 100);
        let mut found: Vec<KeyError> = above
            .map(|(key, percent)| {
                let what = format!("{percent} is more than 100 percent");
                KeyError::value(&["result_checks", key], &what, "give 0 to 100")
            })
            .collect();
        for (skill, size) in &checks.sizes {
            if size.chars_min > size.chars_max {
                let what = format!("{} is more than chars_max, {}", size.chars_min, size.chars_max);
                found.push(KeyError::value(&["result_checks", "sizes", skill, "chars_min"], &what, "lower it"));
            }
        }
        found
    }
}

fn chain_problem(kind: ErrorKind, chain: &[Step]) -> Option<KeyError> {
    let (path, steps_max) = (["error_router", "chains", kind.as_str()], ErrorRules::STEPS_MAX);
    if chain.len() > steps_max {
        let what = format!("it has {} steps, at most {steps_max} are allowed", chain.len());
        return Some(KeyError::value(&path, &what, "leave some of them out"));
    }
    let may_repeat = !matches!(kind, ErrorKind::UnknownEffect | ErrorKind::SsrfBlocked | ErrorKind::Refused);
    if !may_repeat && chain.iter().any(|step| *step != Step::Report) {
        let what = "such a failure is always reported: a guard refused the call, or its effect may have happened";
        return Some(KeyError::value(&path, what, "remove it"));
    }
    None
}
