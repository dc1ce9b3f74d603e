//! Tests of reading, checking and running workflows, without a turn.

use serde_json::{Value, json};

use super::*;
use crate::{context::Frames, skill::ArgKind};

fn args() -> Vec<ArgSpec> {
    let arg = |name: &str, kind, required| ArgSpec {
        name: name.to_owned(),
        kind,
        required,
        help: String::new(),
        minimum: None,
        maximum: None,
        default: Value::Null,
    };
    vec![arg("topic", ArgKind::Text, true), arg("days", ArgKind::Integer, false)]
}

fn read_steps(steps: &Value) -> Result<Workflow, Vec<String>> {
    let head = WorkflowHead { name: "demo".to_owned(), description: "Demo.".to_owned(), args: args() };
    read(head, steps, &WorkflowLimits::default())
        .map_err(|found| found.into_iter().map(|p| format!("{}: {}", p.step, p.what)).collect())
}

fn problems(steps: &Value) -> Vec<String> {
    read_steps(steps).expect_err("the file has problems")
}

fn begun(steps: &Value) -> WorkflowRun {
    begun_with(steps, WorkflowLimits::default())
}

fn begun_with(steps: &Value, limits: WorkflowLimits) -> WorkflowRun {
    let workflow = read_steps(steps).expect("the workflow has no problem");
    let start = workflow.start("--topic tea --days 3", &limits).expect("the arguments fit");
    WorkflowRun::begin(&start, "2026-02-18 14:05 Wednesday", &Frames::default())
}

/// The calls of the present step as `id: skill args` or `id: agent mission`.
fn calls(run: &WorkflowRun) -> Vec<String> {
    let Next::Calls(calls, _) = run.next() else { panic!("no calls: {:?}", run.next()) };
    let line = |call: &StepCall| match &call.work {
        CallWork::Skill { skill, args } => format!("{}: {skill} {}", call.id, Value::Object(args.clone())),
        CallWork::Agent { agent, mission, .. } => format!("{}: {agent} {mission}", call.id),
    };
    calls.iter().map(line).collect()
}

/// Ends all calls of the present step with this result.
fn end_with(run: &mut WorkflowRun, result: &StepResult) {
    let Next::Calls(calls, _) = run.next() else { panic!("no calls: {:?}", run.next()) };
    let ids: Vec<String> = calls.iter().map(|call| call.id.clone()).collect();
    for id in ids {
        run.finished(&id, result.clone());
    }
    run.settle(&Frames::default());
}

fn ok(text: &str) -> StepResult {
    StepResult::new(StepOutcome::Ok, "", text)
}

fn failed(error: &str) -> StepResult {
    StepResult::new(StepOutcome::Failed, error, "it did not work")
}

#[test]
fn workflow_steps_follow_each_other_and_use_earlier_results() {
    let mut run = begun(&json!([
        {"id": "list", "skill": "tasks.search", "args": {"query": "{args.topic}", "limit": "{args.days}"}},
        {"id": "note", "skill": "notes.write", "args": {"text": "Found: {steps.list.result.0.title} at {today}"}},
        {"id": "end_text", "answer": "{steps.note.result} about {args.topic}"},
    ]));
    assert_eq!(calls(&run), [r#"list#1: tasks.search {"limit":3,"query":"tea"}"#]);
    end_with(&mut run, &ok(r#"[{"title": "green"}]"#));
    assert_eq!(calls(&run), [r#"note#2: notes.write {"text":"Found: green at 2026-02-18"}"#]);
    end_with(&mut run, &ok("written"));
    assert_eq!(run.next(), Next::Answer("written about tea"));
}

#[test]
fn workflow_without_answer_ends_with_its_last_result() {
    let mut run = begun(&json!([{"id": "a", "skill": "x.y"}]));
    end_with(&mut run, &ok("the end"));
    assert_eq!(run.next(), Next::Answer("the end"));
    let mut run = begun(&json!([{"id": "a", "skill": "x.y"}]));
    end_with(&mut run, &ok(""));
    assert_eq!(run.next(), Next::Answer("The workflow demo is done."));
}

#[test]
fn fan_out_makes_all_calls_at_once_and_gathers_them() {
    let mut run = begun(&json!([
        {"id": "both", "parallel": [
            {"id": "a", "skill": "x.a"},
            {"id": "b", "agent": "Look for {args.topic}.", "skills": ["x.b"]},
        ]},
        {"id": "done", "answer": "{steps.a.result} and {steps.b.result}: {steps.both.result}"},
    ]));
    assert_eq!(calls(&run), ["a#1: x.a {}", "b#2: b-2 Look for tea."]);
    run.finished("a#1", ok("one"));
    run.finished("b#2", ok("two"));
    run.settle(&Frames::default());
    assert_eq!(run.next(), Next::Answer(r#"one and two: {"a":"one","b":"two"}"#));
}

#[test]
fn fan_out_over_a_list_has_a_limit_and_an_empty_list_makes_no_call() {
    let steps = json!([
        {"id": "list", "skill": "x.list"},
        {"id": "all", "each": {"of": "{steps.list.result}", "skill": "x.one", "args": {"name": "{item}"}}},
        {"id": "done", "answer": "{steps.all.result}"},
    ]);
    let mut run = begun(&steps);
    end_with(&mut run, &ok("red\nblue\n"));
    assert_eq!(calls(&run), [r#"all#2: x.one {"name":"red"}"#, r#"all#3: x.one {"name":"blue"}"#]);
    end_with(&mut run, &ok("seen"));
    assert_eq!(run.next(), Next::Answer(r#"["seen","seen"]"#));
    let parts = json!([
        {"id": "all", "each": {"of": "[{\"id\": 7}]", "skill": "x.one", "args": {"id": "{item.id}"}}},
    ]);
    assert_eq!(calls(&begun(&parts)), [r#"all#1: x.one {"id":7}"#]);
    let mut run = begun(&steps);
    end_with(&mut run, &ok("[]"));
    assert_eq!(run.next(), Next::Answer("The workflow demo is done."));
    let mut run = begun(&steps);
    end_with(&mut run, &ok("1\n2\n3\n4\n5\n6\n7\n8\n9"));
    let Next::Fail(why) = run.next() else { panic!("{:?}", run.next()) };
    assert!(why.contains("9 items, and at most 8"), "{why}");
}

#[test]
fn loop_ends_by_its_condition_or_is_exhausted() {
    let steps = json!([
        {"id": "poll", "loop": {"max": 3, "until": "{steps.check.result} contains \"ready\"", "steps": [
            {"id": "check", "skill": "x.check", "args": {"n": "{steps.poll.passes}"}},
        ]}, "next": [{"on": "exhausted", "to": "late"}, {"to": "done"}]},
        {"id": "late", "answer": "late: {steps.poll.status}"},
        {"id": "done", "answer": "ready after {steps.poll.passes}"},
    ]);
    let mut run = begun(&steps);
    end_with(&mut run, &ok("not yet"));
    assert_eq!(calls(&run), [r#"check#2: x.check {"n":2}"#]);
    end_with(&mut run, &ok("READY"));
    assert_eq!(run.next(), Next::Answer("ready after 2"));
    let mut run = begun(&steps);
    for _ in 0..3 {
        end_with(&mut run, &ok("no"));
    }
    assert_eq!(run.next(), Next::Answer("late: exhausted"));
}

#[test]
fn routes_are_chosen_by_outcome_error_code_and_condition() {
    let steps = json!([
        {"id": "get", "skill": "x.get", "next": [
            {"on": "http_404", "to": "missing"},
            {"on": "denied", "to": "refused"},
            {"when": "{steps.get.result} > 10 and {args.topic} is tea", "to": "large"},
            {"to": "small"},
        ]},
        {"id": "missing", "answer": "missing"},
        {"id": "refused", "answer": "refused"},
        {"id": "large", "answer": "large"},
        {"id": "small", "answer": "small"},
    ]);
    let ended = |result: StepResult| {
        let mut run = begun(&steps);
        end_with(&mut run, &result);
        match run.next() {
            Next::Answer(text) => text.to_owned(),
            other => format!("{other:?}"),
        }
    };
    assert_eq!(ended(failed("http_404")), "missing");
    assert_eq!(ended(StepResult::new(StepOutcome::Denied, "", "no")), "refused");
    assert_eq!(ended(ok("11")), "large");
    assert_eq!(ended(ok("9")), "small");
    assert_eq!(ended(failed("http_500")), r#"Fail("Step `get` failed (http_500): it did not work")"#);
}

#[test]
fn step_in_a_cycle_is_exhausted_after_its_bound() {
    let mut run = begun(&json!([
        {"id": "try", "skill": "x.y", "max": 2, "next": [{"on": "exhausted", "to": "stop"}, {"on": "failed", "to": "try"}]},
        {"id": "good", "answer": "good"},
        {"id": "stop", "answer": "stopped after {steps.try.visits}"},
    ]));
    end_with(&mut run, &failed("busy"));
    assert_eq!(calls(&run), ["try#2: x.y {}"]);
    end_with(&mut run, &failed("busy"));
    assert_eq!(run.next(), Next::Answer("stopped after 3"));
}

#[test]
fn run_ends_at_its_limit_of_calls() {
    let limits = WorkflowLimits { calls_max: 3, ..WorkflowLimits::default() };
    let mut run = begun_with(&json!([{"id": "l", "loop": {"max": 9, "steps": [{"id": "a", "skill": "x.y"}]}}]), limits);
    for _ in 0..3 {
        end_with(&mut run, &ok("x"));
    }
    assert_eq!(run.next(), Next::Fail("It reached its limit of 3 calls at step `a`."));
}

#[test]
fn result_is_cut_at_the_limit_and_is_never_read_as_a_template() {
    let limits = WorkflowLimits { value_bytes_max: 100, ..WorkflowLimits::default() };
    let steps = json!([{"id": "a", "skill": "x.y"}, {"id": "b", "answer": "{steps.a.result}"}]);
    let mut run = begun_with(&steps, limits);
    end_with(&mut run, &ok(&"x".repeat(1_000)));
    let Next::Answer(text) = run.next() else { panic!("{:?}", run.next()) };
    assert!(text.len() <= 100 && text.contains("of 1000 bytes"), "{text}");
    let mut run = begun(&steps);
    end_with(&mut run, &ok("{args.topic} {steps.a.result}"));
    assert_eq!(run.next(), Next::Answer("{args.topic} {steps.a.result}"));
}

#[test]
fn fan_out_over_a_list_or_evidence_beyond_the_limit_fails() {
    let limits = WorkflowLimits { value_bytes_max: 100, ..WorkflowLimits::default() };
    let steps = |of: &str| {
        json!([
            {"id": "a", "loop": {"max": 1, "steps": [{"id": "list", "skill": "x.y"}]}},
            {"id": "all", "each": {"of": of, "skill": "x.one", "args": {"name": "{item}"}}},
        ])
    };
    let long = json!(vec!["twelve bytes"; 20]);
    for (of, why) in [
        ("{steps.list.result}", "the list is not whole"),
        ("{steps.a.result}", "the list is not whole"),
        ("first\n{steps.list.result}", "the list is not whole"),
        ("{steps.list.result.0}", "of which `0` is a part, is not whole"),
        ("{steps.list.evidence}", "has more than 100 bytes"),
    ] {
        let mut run = begun_with(&steps(of), limits.clone());
        end_with(&mut run, &StepResult { evidence: long.clone(), ..ok(&long.to_string()) });
        let Next::Fail(failure) = run.next() else { panic!("{of}: {:?}", run.next()) };
        assert!(failure.contains(why), "{of}: {failure}");
    }
    // The list of a fan-out is whole, although one of its texts was cut.
    let two = json!([
        {"id": "p", "each": {"of": "[1]", "skill": "x.y"}},
        {"id": "all", "each": {"of": "{steps.p.result}", "skill": "x.one", "args": {"name": "It is {item}"}}},
    ]);
    let mut run = begun_with(&two, WorkflowLimits { value_bytes_max: 120, ..limits });
    end_with(&mut run, &ok(&"x".repeat(130)));
    assert_eq!(calls(&run).len(), 1);
}

#[test]
fn values_of_one_text_share_twice_the_limit_and_its_author_loses_no_word() {
    let limits = WorkflowLimits { value_bytes_max: 400, ..WorkflowLimits::default() };
    let ids = ["a", "b", "c", "d", "e"];
    let branches = ids.map(|id| json!({"id": id, "skill": "x.y"}));
    let named = ids.map(|id| format!("{{steps.{id}.result}}")).join(" and ");
    let mission = format!("{named} {}the end", "word ".repeat(200));
    let steps = json!([{"id": "p", "parallel": branches}, {"id": "f", "agent": mission}]);
    let mut run = begun_with(&steps, limits);
    for (id, length) in [("a#1", 300), ("b#2", 1_000), ("c#3", 60), ("d#4", 1_000), ("e#5", 1_000)] {
        run.finished(id, ok(&"Q".repeat(length)));
    }
    run.settle(&Frames::default());
    let text = calls(&run).remove(0);
    assert!(text.ends_with("word the end") && text.matches("</result").count() == 5, "{text}");
    assert_eq!(text.matches("[cut:").count(), 4, "the short one is whole: {text}");
    let values = text.matches('Q').count();
    assert!((400..=800).contains(&values), "{values}: {text}");
}

#[test]
fn placeholder_without_its_brace_is_a_problem_whatever_letters_follow() {
    for letters in ["ü", "日", "🙂", "x", ""].map(|letter| format!("x{}", letter.repeat(30))) {
        let found = problems(&json!([{"id": "a", "skill": "x.y", "args": {"q": format!("é {{args.{letters}")}}]));
        assert!(found[0].contains("has no closing brace"), "{found:?}");
    }
}

#[test]
fn cut_value_is_no_exact_argument_and_decides_no_comparison_that_its_rest_could_change() {
    let limits = WorkflowLimits { value_bytes_max: 200, ..WorkflowLimits::default() };
    let long = ok(&format!("start {}", "x".repeat(1_000)));
    let ended = |when: &str| {
        let steps = json!([
            {"id": "a", "skill": "x.y", "next": [{"when": when, "to": "yes"}, {"to": "no"}]},
            {"id": "yes", "answer": "yes"},
            {"id": "no", "answer": "no"},
        ]);
        let mut run = begun_with(&steps, limits.clone());
        end_with(&mut run, &long);
        match run.next() {
            Next::Answer(text) | Next::Fail(text) => text.to_owned(),
            Next::Calls(..) => panic!("{when}: calls"),
        }
    };
    for (when, wanted) in [
        ("{steps.a.result} contains start", "yes"),
        ("{steps.a.result} lacks start", "no"),
        ("{steps.a.result} is not empty", "yes"),
        ("{steps.a.result} contains end", "not whole"),
        ("{steps.a.result} lacks end", "not whole"),
        ("{steps.a.result} != start", "not whole"),
        ("start < {steps.a.result}", "not whole"),
        ("start contains {steps.a.result}", "not whole"),
        ("{steps.a.status} is ok", "yes"),
    ] {
        assert!(ended(when).contains(wanted), "{when}: {}", ended(when));
    }
    let steps = |text: &str| {
        json!([
            {"id": "a", "skill": "x.y"},
            {"id": "b", "skill": "x.z", "args": {"text": text}, "next": {"on": "missing_value", "to": "late"}},
            {"id": "c", "answer": "made"},
            {"id": "late", "answer": "{steps.b.result}"},
        ])
    };
    let mut run = begun_with(&steps("{steps.a.result}"), limits.clone());
    end_with(&mut run, &long);
    let Next::Answer(text) = run.next() else { panic!("{:?}", run.next()) };
    assert!(text.contains("the value of {steps.a.result} is not whole") && text.contains("value_bytes_max"), "{text}");
    let mut run = begun_with(&steps("It says: {steps.a.result}"), limits);
    end_with(&mut run, &long);
    assert!(calls(&run)[0].contains("[cut: the first"), "in a text the cut is seen: {:?}", calls(&run));
}

#[test]
fn arguments_of_one_call_have_a_limit_together() {
    let limits = WorkflowLimits { value_bytes_max: 100, ..WorkflowLimits::default() };
    let arguments = |count: usize| (0..count).map(|n| (n.to_string(), json!("{steps.a.result}"))).collect();
    let steps = |count: usize| {
        let args: Map<String, Value> = arguments(count);
        let literal = json!("w".repeat(2_000));
        json!([
            {"id": "a", "skill": "x.y"},
            {"id": "b", "skill": "x.z", "args": {"all": [args], "more": literal}},
        ])
    };
    let mut run = begun_with(&steps(4), limits.clone());
    end_with(&mut run, &ok(&"x".repeat(90)));
    assert_eq!(calls(&run).len(), 1);
    let mut run = begun_with(&steps(8), limits);
    end_with(&mut run, &ok(&"x".repeat(90)));
    assert!(matches!(run.next(), Next::Fail(why) if why.contains("more than 400 bytes together")), "{:?}", run.next());
}

#[test]
fn loops_without_calls_end() {
    let inner = json!([{"id": "none", "each": {"of": "[]", "skill": "x.y"}}]);
    let two = json!({"max": 100, "steps": [{"id": "c", "loop": {"max": 100, "steps": inner}}]});
    let run = begun(&json!([{"id": "a", "loop": {"max": 100, "steps": [{"id": "b", "loop": two}]}}]));
    assert!(matches!(run.next(), Next::Fail(why) if why.contains("10000 steps")), "{:?}", run.next());
}

#[test]
fn missing_value_is_a_failure_that_a_route_may_handle() {
    let steps = |on: &str| {
        json!([
            {"id": "a", "skill": "x.y"},
            {"id": "b", "skill": "x.z", "args": {"id": "{steps.a.evidence.id}"}, "next": [{"on": on, "to": "c"}]},
            {"id": "c", "answer": "{steps.b.error}"},
        ])
    };
    let mut run = begun(&steps("failed"));
    end_with(&mut run, &ok("text"));
    assert_eq!(run.next(), Next::Answer("missing_value"));
    let mut run = begun(&steps("timeout"));
    end_with(&mut run, &StepResult { evidence: json!({"id": 7}), ..ok("text") });
    assert_eq!(calls(&run), [r#"b#2: x.z {"id":7}"#]);
}

#[test]
fn all_problems_of_a_file_are_reported_at_once() {
    let found = problems(&json!([
        {"id": "a", "skill": "x.y", "args": {"q": "{args.nothing} {steps.gone.result} {steps.a.colour}"}},
        {"id": "a", "skill": "x.y", "agent": "z"},
        {"id": "B", "answer": "x", "next": "nowhere"},
        {"id": "c", "skill": "x.y", "color": 1, "next": [{"on": "Not Ok", "to": "d"}, {"when": "{args.topic} likes tea"}]},
        {"id": "d", "loop": {"steps": [{"id": "e", "answer": "{item}"}]}},
        {"skill": "x.y"},
        "text",
    ]));
    for expected in [
        "a: the name is taken by another step",
        "a: it does several things: skill, agent",
        "B: this cannot be the name of a step",
        "c: unknown key `color`",
        "c: a part of `next` has no `to`",
        "d: the loop has no bound",
        "step 6: it has no name",
        ": a step is not a mapping",
        "a: `{steps.a.colour}` names no field of a step",
        "B: `next` names step `nowhere`, which does not exist",
        "B: an answer ends the workflow",
        "c: `on: Not Ok` is no outcome",
        "e: `{item}` has a meaning in a step with `each` only",
    ] {
        assert!(found.iter().any(|line| line.starts_with(expected)), "{expected} is missing in {found:#?}");
    }
}

#[test]
fn template_that_names_nothing_is_a_problem() {
    let found = problems(&json!([
        {"id": "a", "skill": "x.y", "args": {"q": ["{args.nothing}", {"r": "{steps.gone.result}"}]}},
        {"id": "b", "agent": "do {steps.a.status.x}"},
        {"id": "c", "answer": "{args.topic"},
    ]));
    assert_eq!(
        found,
        [
            "a: `{args.nothing}` is no argument",
            "a: `{steps.gone…}` names a step that does not exist",
            "b: `{steps.a.status.x}`: `status` has no parts",
            "c: `{args.topic` has no closing brace",
        ]
    );
}

#[test]
fn unreachable_step_and_cycle_without_a_bound_are_problems() {
    let step = |id: &str, next: Value| json!({"id": id, "skill": "x.y", "next": next});
    assert_eq!(
        problems(&json!([step("a", json!("c")), step("b", json!("c")), {"id": "c", "answer": "x"}])),
        ["b: no way leads to this step"]
    );
    let to = |on: &str, to: &str| json!({"on": on, "to": to});
    assert_eq!(
        problems(&json!([step("a", json!([])), step("b", json!([to("failed", "a")]))])),
        ["a: it is a part of a cycle that has no bound"]
    );
    let outer = json!({"id": "l", "loop": {"max": 2, "steps": [{"id": "x", "skill": "x.y"}]}, "next": [to("ok", "l")]});
    assert_eq!(problems(&json!([outer])), ["l: it is a part of a cycle that has no bound"]);
    let bounded = json!([{"id": "a", "skill": "x.y", "max": 3}, step("b", json!([to("failed", "a")]))]);
    assert!(read_steps(&bounded).is_ok());
}

#[test]
fn file_beyond_a_limit_is_refused() {
    let limits = WorkflowLimits { steps_max: 2, parallel_max: 1, loop_max: 4, ..WorkflowLimits::default() };
    let head = WorkflowHead { name: "demo".to_owned(), description: String::new(), args: Vec::new() };
    let call = |id: &str| json!({"id": id, "skill": "x.y"});
    let steps =
        json!([{"id": "p", "parallel": [call("a"), call("b")]}, {"id": "l", "loop": {"max": 5, "steps": [call("c")]}}]);
    let found = read(head, &steps, &limits).unwrap_err();
    let found: Vec<String> = found.into_iter().map(|p| format!("{}: {}", p.step, p.what)).collect();
    assert_eq!(
        found,
        [
            "p: it makes 2 calls at once, and at most 1 are allowed",
            "l: `max` must be a whole number from 1 to 4",
            ": it has 5 steps, and at most 2 are allowed",
        ]
    );
}

#[test]
fn arguments_are_checked_like_those_of_a_command() {
    let workflow = read_steps(&json!([{"id": "a", "answer": "x"}])).unwrap();
    let limits = WorkflowLimits::default();
    let start = workflow.start(r#"{"topic": "black tea", "days": "4"}"#, &limits).unwrap();
    assert_eq!(start.arguments, r#"{"days":4,"topic":"black tea"}"#);
    assert!(workflow.start("", &limits).unwrap_err().contains("missing required flag: --topic"));
    assert!(workflow.start("--topic x --colour red", &limits).unwrap_err().contains("--colour"));
    assert!(workflow.start("--help", &limits).unwrap_err().contains("Usage: demo --topic TEXT"));
}

#[test]
fn shown_run_names_done_running_and_pending_steps() {
    let mut run = begun(&json!([
        {"id": "a", "skill": "x.y"},
        {"id": "p", "parallel": [{"id": "b", "skill": "x.y"}, {"id": "c", "skill": "x.z"}]},
        {"id": "d", "answer": "x"},
    ]));
    end_with(&mut run, &ok("first"));
    run.finished("b#2", failed("busy"));
    let shown = run.shown();
    let line = |s: &ShownStep| format!("{} {} {} {}", s.id, s.work, s.state.as_str(), s.visits);
    let lines: Vec<String> = shown.steps.iter().map(line).collect();
    assert_eq!(
        lines,
        [
            "a skill x.y done 1",
            "p parallel running 1",
            "b skill x.y failed 0",
            "c skill x.z running 0",
            "d answer pending 0"
        ]
    );
    assert_eq!((shown.present.as_str(), shown.calls), ("p", 3));
}

#[test]
fn erased_definition_gives_a_run_that_fails() {
    let start = WorkflowStart {
        name: "demo".to_owned(),
        definition: "[redacted by erasure]".to_owned(),
        arguments: "[redacted by erasure]".to_owned(),
        limits: WorkflowLimits::default(),
        state: BTreeMap::new(),
    };
    let run = WorkflowRun::begin(&start, "", &Frames::default());
    assert_eq!(run.next(), Next::Fail("the definition of the workflow cannot be read"));
}
