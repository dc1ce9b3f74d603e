//! Test data, made from small numbers.

use std::task::{Context, Poll};

use annie_core::{
    dead_letter::{DeadLetter, DeadLetterState},
    event::{
        Action, AgentReport, DispatchSpec, EventBody, Inbound, Mode, NewEvent, PlannedSkill, Priority, PromptFacts,
        ReportStatus, ResolvedCall, Retry, Scope,
    },
    ids::{AgentId, ConversationId, Epoch, IntentId, NodeIncarnation, OperationId, Seq, TaskId, UserId},
    limits::TurnLimits,
    message::{Finish, Usage},
    outcome::{Operation, Outcome},
    ports::{Append, AppendError, Appended, Fence, Fut, Store},
    skill::Effect,
    time::Micros,
};
use serde_json::json;
use uuid::Uuid;

pub fn conversation(n: u128) -> ConversationId {
    ConversationId::from_uuid(Uuid::from_u128(0xc0 << 64 | n))
}

pub fn task(n: u128) -> TaskId {
    TaskId::from_uuid(Uuid::from_u128(0x7a << 64 | n))
}

pub fn intent(n: u128) -> IntentId {
    IntentId::from_uuid(Uuid::from_u128(0x1e << 64 | n))
}

pub fn operation(n: u128) -> OperationId {
    OperationId::for_intent(intent(n))
}

pub fn node(n: u128) -> NodeIncarnation {
    NodeIncarnation::from_uuid(Uuid::from_u128(0x0d << 64 | n))
}

pub fn user(name: &str) -> UserId {
    UserId::new(name).unwrap()
}

pub fn of(name: &str) -> Scope {
    Scope::User(user(name))
}

pub fn event(task: TaskId, at: i64, body: EventBody) -> NewEvent {
    NewEvent { at: Micros(at), task, agent: AgentId::orchestrator(), body }
}

pub fn received(task: TaskId, client_id: &str, text: &str, at: i64) -> NewEvent {
    let inbound = Inbound {
        client_id: client_id.to_owned(),
        text: text.to_owned(),
        source: "http".to_owned(),
        priority: Priority::High,
        mode: Some(Mode::Direct),
        preamble: vec![("user".to_owned(), "before".to_owned())],
        ..Inbound::default()
    };
    event(task, at, EventBody::Received(inbound))
}

/// A message with the task's id as its client id, and further changes.
pub fn received_as(task: TaskId, at: i64, change: impl FnOnce(&mut Inbound)) -> NewEvent {
    let mut event = received(task, &task.to_string(), "Hello there", at);
    if let EventBody::Received(inbound) = &mut event.body {
        change(inbound);
    }
    event
}

pub fn started(task: TaskId, at: i64) -> NewEvent {
    let facts = PromptFacts { user_name: "Ann".to_owned(), ..PromptFacts::default() };
    let (mode, limits, route) = (Mode::MultiAgent, TurnLimits::default(), Vec::new());
    event(task, at, EventBody::TurnStarted { mode, facts, limits, route, continues: None })
}

pub fn answered(task: TaskId, text: &str, at: i64) -> NewEvent {
    event(task, at, EventBody::answered(text))
}

pub fn failed(task: TaskId, code: &str, at: i64) -> NewEvent {
    let (code, text, detail) = (code.to_owned(), "Sorry.".to_owned(), String::new());
    event(task, at, EventBody::Failed { code, text, detail, dead_letter: None })
}

/// A failure that becomes a dead letter.
pub fn died(task: TaskId, dead_letter: DeadLetter, at: i64) -> NewEvent {
    let (code, text, detail) = ("model_unavailable".to_owned(), "Sorry.".to_owned(), "refused".to_owned());
    event(task, at, EventBody::Failed { code, text, detail, dead_letter: Some(dead_letter) })
}

pub fn dead_letter(since: i64, retry_at: Option<i64>) -> DeadLetter {
    let tried = vec!["b1: \"refused\"".to_owned(), "b2: ü".to_owned()];
    DeadLetter { tried, since: Micros(since), retry_at: retry_at.map(Micros) }
}

pub fn dead_letter_moved(task: TaskId, state: DeadLetterState, at: i64) -> NewEvent {
    event(task, at, EventBody::DeadLetterMoved { state, by: "ann".to_owned() })
}

pub fn dead_letter_due(task: TaskId, at: i64) -> NewEvent {
    event(task, at, EventBody::DeadLetterDue { by: "ann".to_owned() })
}

/// The run of task and operation `n`, which continues elsewhere.
pub fn pending(n: u128, expires_at: i64, at: i64) -> NewEvent {
    let operation = Operation { id: operation(n), expires_at: Micros(expires_at) };
    run_finished(task(n), intent(n), Outcome::pending(operation, "It goes on."), at)
}

/// A message that retries a dead letter.
pub fn retries(task: TaskId, of: TaskId, at: i64) -> NewEvent {
    received_as(task, at, |inbound| inbound.retry = Some(Retry::of(of, Micros(1))))
}

/// A message that brings an operation's result.
pub fn resumes(task: TaskId, operation: OperationId, at: i64) -> NewEvent {
    received_as(task, at, |inbound| inbound.resumes = Some(operation))
}

pub fn suspended(task: TaskId, at: i64) -> NewEvent {
    event(task, at, EventBody::Suspended { by: "ann".to_owned() })
}

pub fn continued(task: TaskId, at: i64) -> NewEvent {
    event(task, at, EventBody::Continued { by: "ann".to_owned() })
}

pub fn reprioritised(task: TaskId, priority: Priority, at: i64) -> NewEvent {
    event(task, at, EventBody::Reprioritised { priority, by: "ann".to_owned() })
}

pub fn deferred(task: TaskId, until: i64, at: i64) -> NewEvent {
    event(task, at, EventBody::Deferred { until: Micros(until), reason: "deadline".to_owned(), after_failure: false })
}

pub fn deferred_after_failure(task: TaskId, until: i64, at: i64) -> NewEvent {
    let reason = "its model failed".to_owned();
    event(task, at, EventBody::Deferred { until: Micros(until), reason, after_failure: true })
}

pub fn cancelled(task: TaskId, at: i64) -> NewEvent {
    event(task, at, EventBody::Cancelled { text: "Cancelled.".to_owned() })
}

pub fn planned(intent: IntentId, skill: &str, effect: Effect) -> ResolvedCall {
    let action = Action::Skill(PlannedSkill {
        intent,
        skill: skill.to_owned(),
        arguments: json!({"to": ["bob"], "z": 1, "a": "ü"}),
        effect,
        external: true,
        timeout_ms: 30_000,
        origin: Vec::new(),
    });
    ResolvedCall { id: format!("call_{skill}"), name: "use_skill".to_owned(), raw: "{}".to_owned(), action }
}

pub fn dispatched(agent: &str, mission: &str, depends_on: &[&str]) -> ResolvedCall {
    let action = Action::Dispatch(DispatchSpec {
        agent: AgentId::sub(agent).unwrap(),
        mission: mission.to_owned(),
        skills: vec!["tasks.search".to_owned()],
        context: String::new(),
        depends_on: depends_on.iter().map(|a| AgentId::sub(a).unwrap()).collect(),
        max_tool_calls: 5,
        manual: Vec::new(),
        options: Default::default(),
    });
    ResolvedCall { id: format!("call_{agent}"), name: "dispatch_agent".to_owned(), raw: "{}".to_owned(), action }
}

pub fn replied(task: TaskId, agent: AgentId, calls: Vec<ResolvedCall>, at: i64) -> NewEvent {
    let body = EventBody::ModelReplied {
        round: 1,
        text: "Let me see.".to_owned(),
        calls,
        finish: Finish::ToolCalls,
        usage: Usage { input_tokens: 100, output_tokens: 20, cached_tokens: 60, cost_usd: 0.25, ..Usage::default() },
        model: "m1".to_owned(),
        backend: "b1".to_owned(),
        declined: false,
        provider_state: None,
        repairs: Vec::new(),
        cached: false,
        waited_ms: 0,
        prefill_ms: 0,
        judged: None,
    };
    NewEvent { agent, ..event(task, at, body) }
}

pub fn plans(task: TaskId, calls: Vec<ResolvedCall>, at: i64) -> NewEvent {
    replied(task, AgentId::orchestrator(), calls, at)
}

pub fn run_started(task: TaskId, intent: IntentId, at: i64) -> NewEvent {
    event(task, at, EventBody::SkillStarted { intent, call_id: "call".to_owned(), skill: "mail.send".to_owned() })
}

pub fn run_finished(task: TaskId, intent: IntentId, outcome: Outcome, at: i64) -> NewEvent {
    let (call_id, skill) = ("call".to_owned(), "mail.send".to_owned());
    event(task, at, EventBody::SkillFinished { intent, call_id, skill, outcome, duration_ms: 7, route: None })
}

pub fn agent_started(task: TaskId, agent: &str, at: i64) -> NewEvent {
    NewEvent { agent: AgentId::sub(agent).unwrap(), ..event(task, at, EventBody::AgentStarted { calls_granted: 5 }) }
}

pub fn agent_reported(task: TaskId, agent: &str, result: &str, at: i64) -> NewEvent {
    let report =
        AgentReport { tool_calls_used: 2, duration_ms: 40, ..AgentReport::bare(ReportStatus::Completed, result) };
    NewEvent { agent: AgentId::sub(agent).unwrap(), ..event(task, at, EventBody::AgentReported { report }) }
}

pub fn inbox(conversation: ConversationId, name: &str, events: Vec<NewEvent>) -> Append {
    Append { conversation, user: user(name), fence: Fence::Inbox, events }
}

pub fn owned(conversation: ConversationId, name: &str, epoch: Epoch, events: Vec<NewEvent>) -> Append {
    Append { conversation, user: user(name), fence: Fence::Owner(epoch), events }
}

/// Commits one append.
pub async fn commit(store: &dyn Store, append: Append) -> Result<Appended, AppendError> {
    let mut answers = store.commit(vec![append]).await;
    assert_eq!(answers.len(), 1);
    answers.remove(0)
}

/// Stores a conversation with one received message, and claims it.
pub async fn opened(store: &dyn Store, conversation: ConversationId, name: &str, task: TaskId, at: i64) -> Epoch {
    let message = received(task, &task.to_string(), "Hello there", at);
    commit(store, inbox(conversation, name, vec![message])).await.unwrap();
    store.claim(conversation, node(1)).await.unwrap().unwrap().epoch
}

/// Number of events of a conversation.
pub async fn length(store: &dyn Store, conversation: ConversationId) -> usize {
    store.events(Scope::Operator, conversation, Seq(0), u32::MAX).await.unwrap().len()
}

/// Polls a future at most `polls` times, each time when it is woken, and then drops it.
pub async fn drop_after_polls<T>(polls: u128, mut work: Fut<'_, T>) {
    let mut left = polls;
    let poll = |cx: &mut Context<'_>| {
        left -= 1;
        if work.as_mut().poll(cx).is_ready() || left == 0 { Poll::Ready(()) } else { Poll::Pending }
    };
    std::future::poll_fn(poll).await;
}
