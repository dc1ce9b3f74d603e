//! Invariant 19: every decision of the kernel is recorded. This list names the decision points and what records each one. A file in
//! one of the folders of decisions that is not on the list fails the test, and so does a point whose record is gone.

use super::tree::{all_well, sources};

/// How the decisions of a file are recorded.
enum Recorded {
    /// In an event of this kind, which code with this text in this file makes.
    Event(&'static str, &'static str, &'static str),
    /// Nothing is stored, because the request is refused before it is accepted: the caller gets the reason, and this counter counts.
    Counted(&'static str, &'static str),
    /// The file decides nothing by itself.
    Part(&'static str),
}

use Recorded::{Counted, Event, Part};

/// The folders whose files decide: policies of calls, hooks, the loop guard, routing, concerns of a turn, the Scheduler.
const FOLDERS: [&str; 6] = [
    "crates/core/src/turn/policy/",
    "crates/core/src/turn/concern/",
    "crates/core/src/hooks/",
    "crates/core/src/loop_guard/",
    "crates/core/src/route/",
    "actors/src/scheduler/",
];

const JUDGED: Recorded = Event("model_replied", "with_verdicts(", "actors/src/agent/result.rs");
const DECIDES: Recorded = Part("the events are those of the core's decisions: `Turn::decide`, `Conversation::decide`");
const ROUTE: Recorded = Event("decided", "component: \"route\"", "actors/src/effects/route.rs");

/// Every file of the folders, and the single decision points elsewhere.
const POINTS: &[(&str, Recorded)] = &[
    ("crates/core/src/turn/policy/mod.rs", JUDGED),
    ("crates/core/src/turn/policy/advice.rs", Event("skill_finished", "SkillFinished {", "actors/src/agent/result.rs")),
    ("crates/core/src/turn/policy/allowed_tools.rs", JUDGED),
    ("crates/core/src/turn/policy/arguments.rs", JUDGED),
    ("crates/core/src/turn/policy/call_limit.rs", JUDGED),
    ("crates/core/src/turn/policy/done_already.rs", JUDGED),
    (
        "crates/core/src/turn/policy/format.rs",
        Event("answered", "EventBody::Answered {", "crates/core/src/turn/concern/ending.rs"),
    ),
    ("crates/core/src/turn/policy/in_doubt.rs", JUDGED),
    (
        "crates/core/src/turn/policy/injection.rs",
        Event("skill_finished", "SkillFinished {", "actors/src/agent/result.rs"),
    ),
    ("crates/core/src/turn/policy/no_progress.rs", JUDGED),
    (
        "crates/core/src/turn/policy/retry.rs",
        Event("retried", "EventBody::Retried {", "crates/core/src/turn/concern/ending.rs"),
    ),
    ("crates/core/src/turn/policy/same_result.rs", JUDGED),
    (
        "crates/core/src/turn/alternatives.rs",
        Event("decided", "component: COMPONENT.to_owned()", "crates/core/src/alternatives.rs"),
    ),
    ("crates/core/src/loop_guard/mod.rs", JUDGED),
    ("crates/core/src/loop_guard/limits.rs", Part("numbers")),
    (
        "crates/core/src/hooks/mod.rs",
        Event("decided", "component: format!(\"hook {hook}\")", "actors/src/agent/hooks.rs"),
    ),
    (
        "crates/core/src/hooks/outside.rs",
        Event("decided", "component: format!(\"hook {hook}\")", "actors/src/agent/hooks.rs"),
    ),
    (
        "crates/core/src/hooks/rule.rs",
        Event("decided", "component: format!(\"hook {hook}\")", "actors/src/agent/hooks.rs"),
    ),
    (
        "crates/core/src/loop_guard/detect.rs",
        Event("loop_detected", "EventBody::LoopDetected {", "actors/src/agent/result.rs"),
    ),
    ("crates/core/src/loop_guard/sign.rs", Part("how calls are compared")),
    (
        "crates/core/src/turn/policy/confidence.rs",
        Event("skill_finished", "SkillFinished {", "actors/src/agent/result.rs"),
    ),
    (
        "crates/core/src/route/agent_models.rs",
        Event("model_replied", "EventBody::replied(", "actors/src/agent/result.rs"),
    ),
    ("crates/core/src/route/called.rs", ROUTE),
    ("crates/core/src/route/choose.rs", ROUTE),
    ("crates/core/src/route/defaults.rs", Part("the built-in rules, as data")),
    ("crates/core/src/route/facts.rs", Part("facts about backends")),
    ("crates/core/src/route/fail_over.rs", Event("model_replied", "EventBody::replied(", "actors/src/agent/result.rs")),
    ("crates/core/src/route/hand_over.rs", Part("the request to an agentic backend")),
    ("crates/core/src/route/health.rs", Part("what the Scheduler knows of a backend; its choice is recorded")),
    ("crates/core/src/route/mod.rs", Part("types")),
    (
        "crates/core/src/route/output.rs",
        Event("model_failed", "EventBody::ModelFailed {", "actors/src/agent/result.rs"),
    ),
    ("crates/core/src/route/rules.rs", ROUTE),
    ("crates/core/src/route/table.rs", ROUTE),
    ("crates/core/src/route/window.rs", Part("what the Scheduler knows of a backend; its choice is recorded")),
    (
        "crates/core/src/turn/concern/active_skill.rs",
        Event("turn_started", "EventBody::TurnStarted {", "actors/src/engine/record.rs"),
    ),
    ("crates/core/src/turn/concern/agent_control.rs", DECIDES),
    ("crates/core/src/turn/concern/approvals.rs", DECIDES),
    ("crates/core/src/turn/concern/budget.rs", DECIDES),
    (
        "crates/core/src/turn/concern/compaction.rs",
        Event("compacted", "EventBody::Compacted(Box::new(Compacted {", "crates/core/src/turn/concern/compaction.rs"),
    ),
    ("crates/core/src/turn/concern/control.rs", DECIDES),
    ("crates/core/src/turn/concern/copied.rs", Part("folds only")),
    ("crates/core/src/turn/concern/deadlines.rs", DECIDES),
    ("crates/core/src/turn/concern/deferral.rs", DECIDES),
    ("crates/core/src/turn/concern/effects.rs", DECIDES),
    ("crates/core/src/turn/concern/ending.rs", DECIDES),
    ("crates/core/src/turn/concern/inbox.rs", DECIDES),
    (
        "crates/core/src/turn/concern/job_commands.rs",
        Event("ordered", "EventBody::Ordered {", "actors/src/engine/job_commands.rs"),
    ),
    ("crates/core/src/turn/concern/joins.rs", DECIDES),
    (
        "crates/core/src/turn/concern/lanes.rs",
        Event("turn_started", "EventBody::TurnStarted {", "actors/src/engine/record.rs"),
    ),
    ("crates/core/src/turn/concern/mod.rs", Part("modules")),
    (
        "crates/core/src/turn/concern/opening.rs",
        Event("turn_started", "EventBody::TurnStarted {", "actors/src/engine/record.rs"),
    ),
    ("crates/core/src/turn/concern/plan.rs", DECIDES),
    ("crates/core/src/turn/concern/recovery.rs", DECIDES),
    ("crates/core/src/turn/concern/retry.rs", DECIDES),
    ("crates/core/src/turn/concern/rounds.rs", DECIDES),
    ("crates/core/src/turn/concern/steering.rs", DECIDES),
    ("actors/src/scheduler/admission_queue.rs", Counted("annie_tasks_refused_total", "actors/src/scheduler/admit.rs")),
    ("actors/src/scheduler/admit.rs", Counted("annie_tasks_refused_total", "actors/src/scheduler/admit.rs")),
    ("actors/src/scheduler/answered.rs", Part("which tasks were answered")),
    ("actors/src/scheduler/choice.rs", Event("decided", "component: \"scheduler\"", "actors/src/scheduler/choice.rs")),
    ("actors/src/scheduler/gate.rs", Event("decided", "component: \"scheduler\"", "actors/src/scheduler/choice.rs")),
    (
        "actors/src/scheduler/interface.rs",
        Event("interface_changed", "EventBody::InterfaceChanged {", "crates/core/src/turn/interface.rs"),
    ),
    ("actors/src/scheduler/known.rs", Part("facts about backends")),
    ("actors/src/scheduler/leases.rs", Part("permits and facts that survive the Scheduler")),
    ("actors/src/scheduler/load.rs", Part("reads open tasks")),
    ("actors/src/scheduler/messages.rs", Part("messages")),
    ("actors/src/scheduler/mod.rs", Part("the actor")),
    ("actors/src/scheduler/outcomes.rs", Part("what operators see of a backend")),
    ("actors/src/scheduler/permit.rs", Part("permits")),
    ("actors/src/scheduler/routes.rs", Event("model_replied", "EventBody::replied(", "actors/src/agent/result.rs")),
    ("actors/src/scheduler/show.rs", Part("views")),
    ("actors/src/scheduler/steer.rs", Counted("annie_tasks_refused_total", "actors/src/scheduler/admit.rs")),
    (
        "actors/src/scheduler/task_table.rs",
        Event("decided", "component: \"scheduler\"", "actors/src/scheduler/choice.rs"),
    ),
    // Decisions outside of the folders.
    ("crates/core/src/breaker.rs", Event("skill_finished", "SkillFinished {", "actors/src/agent/result.rs")),
    ("crates/core/src/classify/mod.rs", Event("decided", "component: \"classify\"", "actors/src/kernel/submit.rs")),
    (
        "crates/core/src/approval.rs",
        Event("approval_decided", "EventBody::ApprovalDecided {", "crates/core/src/turn/concern/approvals.rs"),
    ),
];

#[test]
fn decision_points_are_all_listed_with_what_records_them() {
    let mut wrong = Vec::new();
    for source in sources().iter().filter(|source| !source.is_for_tests()) {
        let decides = FOLDERS.iter().any(|folder| source.path.starts_with(folder));
        let rows = POINTS.iter().filter(|(path, _)| *path == source.path).count();
        if (decides && rows != 1) || rows > 1 {
            wrong.push(format!("{} is listed {rows} times", source.path));
        }
    }
    all_well("name in tests/tidy/decisions.rs what records the decisions of these files", &wrong);
}

#[test]
fn decision_points_are_recorded_where_the_list_says() {
    let text_of = |path: &str| sources().iter().find(|source| source.path == path).map(|source| source.text.as_str());
    let kinds = text_of("crates/core/src/event/kinds.rs").unwrap_or_default();
    let mut wrong = Vec::new();
    for (path, recorded) in POINTS {
        if text_of(path).is_none() {
            wrong.push(format!("{path} does not exist"));
        }
        let (text, file) = match recorded {
            Event(kind, text, file) => {
                if !kinds.contains(&format!("=> \"{kind}\"")) {
                    wrong.push(format!("{path}: there is no event {kind}"));
                }
                (*text, *file)
            }
            Counted(counter, file) => (*counter, *file),
            Part(why) => (*why, ""),
        };
        if !file.is_empty() && !text_of(file).is_some_and(|found| found.contains(text)) {
            wrong.push(format!("{path}: {file} has no {text:?}"));
        }
    }
    all_well("a decision without an event cannot be explained afterwards", &wrong);
}
