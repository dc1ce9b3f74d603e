//! Converts a turn into the chunks of a streamed completion. The answer is sent as content. Intermediate work is sent as
//! `reasoning_content` and never as `tool_calls`, because clients would try to run those. Calls of the client's own tools are
//! sent at the end.

#![deny(clippy::wildcard_enum_match_arm)]

use std::collections::VecDeque;

use annie_core::{
    approval,
    event::{Action, Event, EventBody},
    ids::TaskId,
    message::Usage,
    ports::Draft,
};
use serde_json::{Value, json};

use super::{
    chat::{Label, tool_call},
    turn::{Answer, Pieces, cut_off, failed},
    writer::AnswerWriter,
};
use crate::{api::FeedItem, error::ApiError, http::problem::openai};

/// The end marker of every successful stream.
const DONE: &str = "[DONE]";

/// The chunks of one completion.
pub struct Chunks {
    label: Label,
    task: TaskId,
    with_drafts: bool,
    with_usage: bool,
    writer: AnswerWriter,
    ready: VecDeque<(Option<&'static str>, String)>,
    over: bool,
}

impl Chunks {
    pub fn new(label: Label, task: TaskId, with_drafts: bool, with_usage: bool) -> Self {
        let writer = AnswerWriter::default();
        let mut chunks = Self { label, task, with_drafts, with_usage, writer, ready: VecDeque::new(), over: false };
        chunks.delta(json!({ "role": "assistant", "content": "" }), Value::Null);
        chunks
    }

    fn event(&mut self, event: &Event) {
        self.writer.event(event);
        let agent = &event.agent;
        match &event.body {
            EventBody::ModelReplied { .. } if !agent.is_orchestrator() => {}
            EventBody::ModelReplied { round, text, calls, .. } => {
                let is_the_answer = calls.iter().any(|call| call.action == Action::Caller);
                if !calls.is_empty() && !is_the_answer && !text.trim().is_empty() && !self.writer.has_drafted(*round) {
                    self.reasoning(format!("{}\n", text.trim()));
                }
                for call in calls {
                    if let Action::Dispatch(spec) = &call.action {
                        self.reasoning(format!("{}: {}\n", spec.agent, spec.mission));
                    }
                }
            }
            EventBody::SkillFinished { skill, outcome, .. } => {
                self.reasoning(format!("{agent}: {skill} ({})\n", outcome.status.as_str()));
            }
            EventBody::ApprovalRequested { skill, arguments, expires_at, .. } => {
                self.reasoning(format!("{}\n", approval::question(skill, arguments, *expires_at)));
            }
            EventBody::LoopDetected { found, .. } => self.reasoning(format!("{agent}: {}\n", found.text)),
            EventBody::AgentReported { report } => self.reasoning(format!("{agent}: {}\n", report.status.as_str())),
            EventBody::Answered { .. } | EventBody::Failed { .. } | EventBody::Cancelled { .. } => {
                match Answer::of(&event.body) {
                    Some(answer) => self.finish(&answer),
                    None => self.fail(&failed(&event.body)),
                }
            }
            EventBody::Received(_)
            | EventBody::Joined { .. }
            | EventBody::TurnStarted { .. }
            | EventBody::RoundBegan { .. }
            | EventBody::RoundNotBegun { .. }
            | EventBody::ModelFailed { .. }
            | EventBody::InterfaceChanged { .. }
            | EventBody::SkillStarted { .. }
            | EventBody::AgentStarted { .. }
            | EventBody::AgentSteered { .. }
            | EventBody::SteeringTaken { .. }
            | EventBody::AgentStopRequested { .. }
            | EventBody::CancelRequested { .. }
            | EventBody::Decided { .. }
            | EventBody::ApprovalDecided { .. }
            | EventBody::ResultsGiven
            | EventBody::Resumed { .. }
            | EventBody::Suspended { .. }
            | EventBody::Continued { .. }
            | EventBody::Reprioritised { .. }
            | EventBody::DeadlinePassed { .. }
            | EventBody::Deferred { .. }
            | EventBody::Retried { .. }
            | EventBody::Ordered { .. }
            | EventBody::DeadLetterDue { .. }
            | EventBody::DeadLetterMoved { .. }
            | EventBody::Copied(_)
            | EventBody::Compacted(_) => {}
        }
    }

    fn finish(&mut self, answer: &Answer<'_>) {
        let rest = self.writer.finish(answer.text);
        self.content(rest);
        for (index, call) in answer.calls.iter().enumerate() {
            let mut call = tool_call(call);
            call["index"] = index.into();
            self.delta(json!({ "tool_calls": [call] }), Value::Null);
        }
        self.delta(json!({}), json!(answer.finish_reason()));
        if self.with_usage {
            let cost = usage(answer.usage.unwrap_or(&Usage::default()));
            let chunk = self.chunk(json!([]), &cost);
            self.ready.push_back((None, chunk));
        }
        self.ready.push_back((None, DONE.to_owned()));
        self.over = true;
    }

    fn fail(&mut self, error: &ApiError) {
        self.ready.push_back((None, openai(error).to_string()));
        self.over = true;
    }

    fn content(&mut self, text: Option<String>) {
        if let Some(text) = text {
            self.delta(json!({ "content": text }), Value::Null);
        }
    }

    fn reasoning(&mut self, text: String) {
        self.delta(json!({ "reasoning_content": text }), Value::Null);
    }

    fn delta(&mut self, delta: Value, finish: Value) {
        let choices = json!([{ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish }]);
        let chunk = self.chunk(choices, &Value::Null);
        self.ready.push_back((None, chunk));
    }

    fn chunk(&self, choices: Value, cost: &Value) -> String {
        let mut chunk = json!({
            "id": self.label.id, "object": "chat.completion.chunk", "created": self.label.created_s,
            "model": self.label.model, "choices": choices,
        });
        if self.with_usage {
            chunk["usage"] = cost.clone();
        }
        chunk.to_string()
    }
}

impl Pieces for Chunks {
    fn take(&mut self, item: Result<Option<FeedItem>, ApiError>) {
        match item {
            Ok(Some(FeedItem::Event(event))) if event.task == self.task => self.event(&event),
            Ok(Some(FeedItem::Draft { task, round, draft })) if task == self.task && self.with_drafts => match draft {
                Draft::Text(piece) => {
                    let text = self.writer.draft(round, &piece);
                    self.content(text);
                }
                Draft::Reasoning(text) => self.reasoning(text),
            },
            Ok(Some(FeedItem::Again) | None) => {
                self.fail(&cut_off(self.task));
            }
            Ok(Some(_)) => {}
            Err(error) => self.fail(&error),
        }
    }

    fn ready(&mut self) -> &mut VecDeque<(Option<&'static str>, String)> {
        &mut self.ready
    }

    fn is_over(&self) -> bool {
        self.over
    }
}

/// The usage of a whole turn in OpenAI's format.
pub fn usage(cost: &Usage) -> Value {
    json!({
        "prompt_tokens": cost.input_tokens, "completion_tokens": cost.output_tokens,
        "total_tokens": cost.input_tokens.saturating_add(cost.output_tokens),
        "prompt_tokens_details": { "cached_tokens": cost.cached_tokens },
        "completion_tokens_details": { "reasoning_tokens": cost.reasoning_tokens },
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use annie_core::{
        ids::{AgentId, ConversationId, Seq},
        message::Finish,
        time::Micros,
    };

    use super::*;

    fn task() -> TaskId {
        TaskId::from_uuid(uuid::Uuid::from_bytes([1; 16]))
    }

    fn chunks() -> Chunks {
        let label = Label { id: "chatcmpl-1".into(), created_s: 1, model: "annie".into() };
        Chunks::new(label, task(), true, true)
    }

    fn event(body: EventBody) -> Result<Option<FeedItem>, ApiError> {
        Ok(Some(FeedItem::Event(Arc::new(Event {
            conversation: ConversationId::from_uuid(uuid::Uuid::nil()),
            seq: Seq(1),
            at: Micros(0),
            task: task(),
            agent: AgentId::orchestrator(),
            body,
        }))))
    }

    fn draft(round: u32, text: &str) -> Result<Option<FeedItem>, ApiError> {
        Ok(Some(FeedItem::Draft { task: task(), round, draft: Draft::Text(text.into()) }))
    }

    fn all(chunks: &mut Chunks) -> Vec<String> {
        chunks.ready().drain(..).map(|piece| piece.1).collect()
    }

    fn texts(lines: &[String], field: &str) -> String {
        let values = lines.iter().filter_map(|l| serde_json::from_str::<Value>(l).ok());
        values.filter_map(|v| v["choices"][0]["delta"][field].as_str().map(str::to_owned)).collect()
    }

    #[test]
    fn chunk_stream_sends_role_content_finish_usage_and_done_in_order() {
        let mut chunks = chunks();
        chunks.take(draft(1, "Hel"));
        let mut answered = EventBody::answered("Hello");
        if let EventBody::Answered { usage, .. } = &mut answered {
            *usage = Usage { input_tokens: 3, output_tokens: 2, ..Usage::default() };
        }
        chunks.take(event(answered));
        let lines = all(&mut chunks);
        let values: Vec<Value> = lines.iter().filter_map(|l| serde_json::from_str(l).ok()).collect();
        assert_eq!(values[0]["choices"][0]["delta"], json!({ "role": "assistant", "content": "" }));
        assert_eq!(texts(&lines, "content"), "Hello");
        assert_eq!(values[values.len() - 2]["choices"][0]["finish_reason"], "stop");
        assert_eq!(values[values.len() - 1]["choices"], json!([]));
        assert_eq!(values[values.len() - 1]["usage"]["total_tokens"], 5);
        assert_eq!(lines.last().map(String::as_str), Some(DONE));
        assert!(chunks.is_over());
    }

    #[test]
    fn chunk_stream_sends_tool_round_text_as_reasoning_unless_already_sent() {
        let replied = |round, text: &str| {
            let spec =
                serde_json::from_value(json!({"agent": "s", "mission": "look", "skills": [], "max_tool_calls": 1}));
            let call = annie_core::event::ResolvedCall {
                id: "c".into(),
                name: "dispatch_agent".into(),
                raw: "{}".into(),
                action: Action::Dispatch(spec.unwrap()),
            };
            event(EventBody::ModelReplied {
                round,
                text: text.into(),
                calls: vec![call],
                finish: Finish::ToolCalls,
                usage: Usage::default(),
                model: String::new(),
                backend: String::new(),
                declined: false,
                provider_state: None,
                repairs: Vec::new(),
                cached: false,
                waited_ms: 0,
                prefill_ms: 0,
                judged: None,
            })
        };
        let mut chunks = chunks();
        chunks.take(replied(1, "I look."));
        chunks.take(draft(2, "I look again."));
        chunks.take(replied(2, "I look again."));
        chunks.take(event(EventBody::Cancelled { text: "Stopped.".into() }));
        let lines = all(&mut chunks);
        assert_eq!(texts(&lines, "reasoning_content"), "I look.\ns: look\ns: look\n");
        assert_eq!(texts(&lines, "content"), "I look again.\n\nStopped.");
    }

    #[test]
    fn chunk_stream_failure_sends_error_without_done() {
        let mut chunks = chunks();
        let (code, text, detail) = ("x".into(), "It failed.".into(), "secret".into());
        chunks.take(event(EventBody::Failed { code, text, detail, dead_letter: None }));
        let lines = all(&mut chunks);
        let error: Value = serde_json::from_str(lines.last().unwrap()).unwrap();
        assert_eq!(error["error"]["message"], "It failed.");
        assert!(chunks.is_over() && !lines.iter().any(|l| l == DONE || l.contains("secret")));
    }

    #[test]
    fn chunk_stream_ignores_other_tasks_of_the_conversation() {
        let mut chunks = chunks();
        let other = TaskId::from_uuid(uuid::Uuid::nil());
        chunks.take(Ok(Some(FeedItem::Draft { task: other, round: 1, draft: Draft::Text("no".into()) })));
        assert_eq!(texts(&all(&mut chunks), "content"), "");
        assert!(!chunks.is_over());
    }
}
