//! The fold over hand-written logs: waits, refused calls, and what ends with its task.

use std::collections::BTreeSet;

use annie_core::{
    event::{Event, EventBody},
    ids::{AgentId, ConversationId, Seq, TaskId},
    time::Micros,
};
use serde_json::{Value as Json, json};
use uuid::Uuid;

use super::*;
use crate::span::{SpanId, SpanKind, Value};

fn task() -> TaskId {
    TaskId::from_uuid(Uuid::from_u128(7))
}

/// A log: for each event its time in milliseconds, its agent and its body.
fn log(events: &[(i64, &str, Json)]) -> Vec<Event> {
    let event = |(n, (ms, agent, body)): (usize, &(i64, &str, Json))| Event {
        conversation: ConversationId::from_uuid(Uuid::from_u128(3)),
        seq: Seq(n as u64 + 1),
        at: Micros(1_771_423_500_000_000).plus_ms(*ms),
        task: task(),
        agent: if agent.is_empty() { AgentId::orchestrator() } else { AgentId::sub(agent).unwrap() },
        body: serde_json::from_value(body.clone()).unwrap(),
    };
    events.iter().enumerate().map(event).collect()
}

fn received() -> Json {
    json!({"kind": "received", "client_id": "c", "text": "hi", "source": "cli"})
}

fn started() -> Json {
    json!({
        "kind": "turn_started", "mode": "multi_agent", "route": ["gpu"],
        "facts": {"skills": "", "user_name": "Ann", "timezone": "UTC", "local_now": "now"},
    })
}

fn replied(round: u32, waited_ms: u64, calls: Json, judged: Json) -> Json {
    let mut reply = json!({
        "kind": "model_replied", "round": round, "text": "x", "calls": calls, "model": "m-2026", "backend": "gpu",
        "waited_ms": waited_ms, "usage": {"input_tokens": 7, "output_tokens": 3, "cost_usd": 0.5},
    });
    if !judged.is_null() {
        reply["judged"] = judged;
    }
    reply
}

fn run(id: &str, skill: &str) -> Json {
    json!({
        "id": id, "name": "use_skill", "raw": "{}", "action": {
            "action": "skill", "intent": intent(id), "skill": skill, "arguments": {"a": "secret words"},
            "effect": "once", "timeout_ms": 1000,
        },
    })
}

fn intent(id: &str) -> String {
    format!("int_{:032x}", id.bytes().map(u128::from).sum::<u128>())
}

fn of(events: &[(i64, &str, Json)]) -> Vec<Span> {
    let names = BackendNames { provider: "vllm".to_owned(), model: "m".to_owned() };
    let rules = TraceRules { backends: [("gpu".to_owned(), names)].into(), content: false };
    let (log, spans) = (log(events), |log: &[Event]| spans_of(task(), log, &rules));
    let all = spans(&log);
    assert_eq!(all, spans(&log), "the same log gives the same spans");
    let ids: BTreeSet<SpanId> = all.iter().map(|span| span.id).collect();
    assert_eq!(ids.len(), all.len(), "{all:#?}");
    assert!(all.iter().all(|span| span.start <= span.end), "{all:#?}");
    let inside = |parent: SpanId| ids.contains(&parent);
    assert!(all[1..].iter().all(|span| span.parent.is_some_and(inside)), "{all:#?}");
    all
}

fn named<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
    spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("no {name} among {names:?}"))
}

/// The start and the end of a span, in milliseconds after the first event.
fn times(spans: &[Span], span: &Span) -> (u64, u64) {
    (span.start.since_ms(spans[0].start), span.end.since_ms(spans[0].start))
}

fn answered() -> Json {
    json!({"kind": "answered", "text": "y"})
}

#[test]
fn trace_shows_the_waits_for_the_turn_and_for_the_permit() {
    let spans = of(&[
        (0, "", received()),
        (100, "", started()),
        (500, "", replied(1, 150, json!([]), Json::Null)),
        (510, "", answered()),
    ]);
    let waits: Vec<_> = spans.iter().filter(|span| span.name == "queue").map(|span| times(&spans, span)).collect();
    assert_eq!(waits, [(0, 100), (100, 250)]);
    let round = named(&spans, "chat m");
    assert_eq!((times(&spans, round), round.kind), ((250, 500), SpanKind::Client));
    let value = |key: &str| round.attributes.iter().find(|(name, _)| *name == key).map(|(_, value)| value.clone());
    assert_eq!(value("gen_ai.response.model"), Some("m-2026".into()));
    assert_eq!(value("gen_ai.provider.name"), Some("vllm".into()));
    assert_eq!(value("gen_ai.usage.input_tokens"), Some(Value::Whole(7)));
    assert_eq!(value("annie.usage.cost_usd"), Some(Value::Number(0.5)));
    assert_eq!(times(&spans, named(&spans, "message cli")), (0, 510));
}

#[test]
fn trace_has_a_refused_call_with_its_reason_and_never_the_name_of_an_unknown_tool() {
    let unknown = json!({
        "id": "c", "name": "tell Bob", "raw": "", "action": {"action": "answer", "text": "no", "is_error": true, "is_unknown": true},
    });
    let judged = json!({"verdicts": [{"call_id": "b", "do": "refuse", "why": "call_limit", "text": "No."}]});
    let spans = of(&[
        (0, "", received()),
        (0, "", started()),
        (9, "", replied(1, 0, json!([run("b", "mail.send"), unknown]), judged)),
        (10, "", answered()),
    ]);
    assert_eq!(named(&spans, "execute_tool mail.send").error.as_deref(), Some("call_limit"));
    assert_eq!(named(&spans, "execute_tool unknown").error.as_deref(), Some("unknown_tool"));
    let all = format!("{spans:?}");
    assert!(!all.contains("Bob") && !all.contains("secret words"), "{all}");
}

#[test]
fn trace_of_a_cancelled_task_ends_what_is_open_in_it() {
    let dispatch = json!({
        "id": "d", "name": "dispatch_agent", "raw": "", "action": {
            "action": "dispatch", "agent": "a", "mission": "secret", "skills": ["mail.send"], "max_tool_calls": 3,
        },
    });
    let spans = of(&[
        (0, "", received()),
        (0, "", started()),
        (10, "", replied(1, 0, json!([dispatch]), Json::Null)),
        (12, "a", json!({"kind": "agent_started", "calls_granted": 3})),
        (30, "a", replied(1, 0, json!([run("b", "mail.send")]), Json::Null)),
        (50, "", json!({"kind": "cancelled", "text": "Cancelled."})),
    ]);
    let agent = named(&spans, "invoke_agent a");
    assert_eq!(times(&spans, agent), (12, 50));
    let open = named(&spans, "execute_tool mail.send");
    assert_eq!(
        (open.error.as_deref(), open.parent, times(&spans, open)),
        (Some("cancelled"), Some(agent.id), (30, 50))
    );
    assert_eq!(spans[0].error, None, "a cancellation is no error");
}

#[test]
fn trace_of_a_resumed_round_counts_from_the_resumption() {
    let spans = of(&[
        (0, "", received()),
        (0, "", started()),
        (5_000, "", json!({"kind": "resumed", "cause": "restart"})),
        (5_100, "", replied(1, 0, json!([run("b", "mail.send")]), Json::Null)),
        (
            5_300,
            "",
            json!({
                "kind": "skill_finished", "intent": intent("b"), "call_id": "b", "skill": "mail.send", "duration_ms": 80,
                "outcome": {"status": "error_transient", "data": "secret", "error_type": "http_503"},
            }),
        ),
        (5_400, "", json!({"kind": "failed", "code": "model_unavailable", "text": "secret", "detail": "secret"})),
    ]);
    assert_eq!(times(&spans, named(&spans, "chat m")), (5_000, 5_100));
    let skill = named(&spans, "execute_tool mail.send");
    assert_eq!((times(&spans, skill), skill.error.as_deref()), ((5_220, 5_300), Some("http_503")));
    let main = named(&spans, "invoke_agent orchestrator");
    assert_eq!((main.marks[0].name, main.error.as_deref()), ("resumed", Some("model_unavailable")));
    assert!(!format!("{spans:?}").contains("secret"), "{spans:#?}");
}

#[test]
fn trace_of_a_task_without_a_turn_is_its_message() {
    let into = TaskId::from_uuid(Uuid::from_u128(9));
    let spans = of(&[(0, "", received()), (3, "", json!({"kind": "joined", "into": into})), (9, "", answered())]);
    assert_eq!((spans.len(), spans[0].links.len()), (1, 1));
    assert_eq!(spans[0].links[0].span, SpanId::of_message(into));
}

#[test]
fn trace_of_a_log_without_its_beginning_has_what_is_there() {
    let spans = of(&[(0, "", replied(9, 0, json!([run("b", "mail.send")]), Json::Null)), (5, "", answered())]);
    assert_eq!(spans[0].name, "message");
    assert_eq!(named(&spans, "chat m").parent, Some(spans[0].id));
    assert!(spans_of(task(), &[], &TraceRules::default()).is_empty());
}

#[test]
fn trace_of_every_kind_of_event_is_folded() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../core/tests/golden/event_v1");
    let mut events = vec![(0, "", received()), (0, "", started())];
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|kind| kind == "json") {
            let body: Json = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
            events.push((1, "", body));
            count += 1;
        }
    }
    assert!(count > 20 && of(&events).len() > 4);
    let rules = TraceRules { content: true, ..TraceRules::default() };
    assert!(events.iter().any(|(_, _, body)| body["kind"] == "answered"));
    assert!(!spans_of(task(), &log(&events), &rules).is_empty());
    let last: EventBody = serde_json::from_value(answered()).unwrap();
    assert!(last.is_final());
}
