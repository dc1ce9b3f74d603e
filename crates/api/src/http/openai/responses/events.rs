//! Converts a turn into the events of a streamed response.

use std::collections::VecDeque;

use annie_core::{event::Event, ids::TaskId, ports::Draft};
use serde_json::{Value, json};

use super::{
    super::{
        turn::{Answer, Pieces, cut_off, failed},
        writer::AnswerWriter,
    },
    items::{Label, call, has_text, message, status_of, text_part, with_output},
};
use crate::{api::FeedItem, error::ApiError};

/// The events of one response.
pub struct Events {
    label: Label,
    task: TaskId,
    with_drafts: bool,
    writer: AnswerWriter,
    /// All text that was sent; absent before the message has started.
    sent_text: Option<String>,
    sequence: u64,
    ready: VecDeque<(Option<&'static str>, String)>,
    over: bool,
}

impl Events {
    pub fn new(label: Label, task: TaskId, with_drafts: bool) -> Self {
        let (writer, ready) = (AnswerWriter::default(), VecDeque::new());
        let mut events = Self { label, task, with_drafts, writer, sent_text: None, sequence: 0, ready, over: false };
        for kind in ["response.created", "response.in_progress"] {
            let response = events.label.object("in_progress", Vec::new());
            events.send(kind, json!({ "response": response }));
        }
        events
    }

    fn send(&mut self, kind: &'static str, mut event: Value) {
        event["type"] = kind.into();
        event["sequence_number"] = self.sequence.into();
        self.sequence += 1;
        self.ready.push_back((Some(kind), event.to_string()));
    }

    fn event(&mut self, event: &Event) {
        self.writer.event(event);
        match Answer::of(&event.body) {
            Some(answer) => self.finish(&answer),
            None if event.body.is_final() => self.fail(&failed(&event.body)),
            None => {}
        }
    }

    fn text(&mut self, text: Option<String>) {
        let Some(text) = text else { return };
        self.open();
        let position = self.position();
        self.send("response.output_text.delta", with(position, json!({ "delta": text, "logprobs": [] })));
        if let Some(sent_text) = &mut self.sent_text {
            sent_text.push_str(&text);
        }
    }

    /// Starts the message item, unless it has started.
    fn open(&mut self) {
        if self.sent_text.is_some() {
            return;
        }
        self.sent_text = Some(String::new());
        let item = message(&self.label, "in_progress", Vec::new());
        self.send("response.output_item.added", json!({ "output_index": 0, "item": item }));
        let position = self.position();
        self.send("response.content_part.added", with(position, json!({ "part": text_part("") })));
    }

    fn position(&self) -> Value {
        json!({ "item_id": self.label.message_id(), "output_index": 0, "content_index": 0 })
    }

    fn finish(&mut self, answer: &Answer<'_>) {
        let rest = self.writer.finish(answer.text);
        self.text(rest);
        if has_text(answer) {
            self.open();
        }
        let mut index = 0;
        if let Some(text) = self.sent_text.clone() {
            index = 1;
            let position = self.position();
            self.send("response.output_text.done", with(position.clone(), json!({ "text": text, "logprobs": [] })));
            self.send("response.content_part.done", with(position, json!({ "part": text_part(&text) })));
            let item = message(&self.label, status_of(answer), vec![text_part(&text)]);
            self.send("response.output_item.done", json!({ "output_index": 0, "item": item }));
        }
        for (n, called) in answer.calls.iter().enumerate() {
            let index = index + n;
            let item = |status: &str, arguments: &str| call(&self.label, n, called, status, arguments);
            let (begun, done) = (item("in_progress", ""), item("completed", &called.arguments));
            let position = json!({ "item_id": self.label.call_id(n), "output_index": index });
            self.send("response.output_item.added", json!({ "output_index": index, "item": begun }));
            let delta = with(position.clone(), json!({ "delta": called.arguments }));
            self.send("response.function_call_arguments.delta", delta);
            let whole = with(position, json!({ "name": called.name, "arguments": called.arguments }));
            self.send("response.function_call_arguments.done", whole);
            self.send("response.output_item.done", json!({ "output_index": index, "item": done }));
        }
        let response = with_output(&self.label, answer, self.sent_text.as_deref().unwrap_or_default());
        let kind = if response["status"] == "completed" { "response.completed" } else { "response.incomplete" };
        self.send(kind, json!({ "response": response }));
        self.over = true;
    }

    fn fail(&mut self, error: &ApiError) {
        let response = self.label.failed(error);
        self.send("response.failed", json!({ "response": response }));
        self.over = true;
    }
}

fn with(mut object: Value, more: Value) -> Value {
    if let (Some(object), Value::Object(more)) = (object.as_object_mut(), more) {
        object.extend(more);
    }
    object
}

impl Pieces for Events {
    fn take(&mut self, item: Result<Option<FeedItem>, ApiError>) {
        match item {
            Ok(Some(FeedItem::Event(event))) if event.task == self.task => self.event(&event),
            Ok(Some(FeedItem::Draft { task, round, draft: Draft::Text(piece) }))
                if task == self.task && self.with_drafts =>
            {
                let text = self.writer.draft(round, &piece);
                self.text(text);
            }
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
