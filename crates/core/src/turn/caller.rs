//! Turns that run for a program: the effect of its request on the rounds, its own tools, and the format of its answer.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    conversation::Turn,
    policy::{self, AnswerVerdict},
    resolve::{self, resolve},
    run::{AgentRun, Ending, OpenCall, Phase, Reply},
};
use crate::{
    caller::{AnswerFormat, CallOptions, Thread, ToolChoice},
    event::{Action, ResolvedCall},
    json_schema,
    message::{CacheTtl, Finish, Message, ModelReply, ModelRequest, SystemPart, ToolCall},
    route::AgentModels,
    skill::SkillSet,
};

/// The maximum number of calls of the caller's tools in one reply.
const CALLS_MAX: usize = 128;
/// The result of the valid calls of a reply that also has an invalid one, because the caller gets all calls or none.
const SEND_AGAIN: &str = "[not run] Another call of this reply was wrong. Send all of them again.";

/// Applies the options of the turn's caller to the request of a round.
pub(super) fn shape(request: &mut ModelRequest, turn: &Turn) {
    let Some(asked) = &turn.inbound.request else { return };
    let options = &asked.options;
    let (has_more_output, effort) = (request.options.has_more_output, request.options.effort);
    request.options = CallOptions { effort, has_more_output, ..options.clone() };
    if !asked.instructions.is_empty() {
        request.system.push(SystemPart { text: asked.instructions.clone(), cache: None });
    }
    if let Some(tokens_max) = options.sampling.output_tokens_max {
        request.output_tokens_max = tokens_max;
    }
    if let Some(thread) = turn.inbound.thread() {
        let own = SystemPart { text: thread.system.clone(), cache: Some(CacheTtl::FiveMinutes) };
        let tools = thread.tools.iter().cloned();
        if thread.with_skills {
            request.system.push(own);
            // If two tools have the same name, the caller's tool wins.
            request.tools.retain(|t| thread.tool(&t.name).is_none());
            request.tools.extend(tools);
        } else {
            request.options.is_thread = true;
            request.system = vec![SystemPart { text: asked.instructions.clone(), cache: None }, own];
            request.system.retain(|part| !part.text.is_empty());
            request.tools = tools.collect();
            request.skill_names = Vec::new();
        }
        // The caller's next request repeats all messages but the last.
        request.stable_messages = request.stable_messages.max(request.messages.len().saturating_sub(1));
    }
    if let Some(format) = &options.format {
        request.system.push(SystemPart { text: format.instruction(), cache: None });
    }
    if turn.format_repairs > 0 && !request.tools.is_empty() {
        request.options.tool_choice = Some(ToolChoice::None);
    }
}

/// Resolves the calls of a reply of the main agent. The caller runs the calls of its own tools.
#[must_use]
pub(super) fn resolve_main(
    reply: &ModelReply,
    turn: &Turn,
    skills: &SkillSet,
    models: AgentModels<'_>,
) -> Vec<ResolvedCall> {
    let resolve = || resolve(reply, turn.task, &turn.main, None, skills, &turn.limits, (models, &turn.route));
    let Some(thread) = turn.inbound.thread() else {
        return resolve();
    };
    if !thread.with_skills {
        return own_calls(thread, &turn.main, &reply.tool_calls);
    }
    let mut calls = resolve();
    // The call after the limit carries the error about the calls that were left out.
    for call in calls.iter_mut().take(resolve::CALLS_MAX) {
        if thread.tool(&call.name).is_some() {
            call.action = action(thread, &call.name, &call.raw);
        }
    }
    calls
}

fn own_calls(thread: &Thread, run: &AgentRun, called: &[ToolCall]) -> Vec<ResolvedCall> {
    let mut ids = BTreeSet::new();
    let understand = |(n, call): (usize, &ToolCall)| {
        let id = resolve::unique_id(&mut ids, call, run.round, n);
        let action = if n < CALLS_MAX {
            action(thread, &call.name, &call.arguments)
        } else {
            resolve::too_many(called.len(), CALLS_MAX)
        };
        ResolvedCall { id, name: call.name.clone(), raw: call.arguments.clone(), action }
    };
    called.iter().take(CALLS_MAX + 1).enumerate().map(understand).collect()
}

/// Resolves a call of the caller's tools. A call that the caller could not use becomes an error for the model to correct.
fn action(thread: &Thread, name: &str, raw: &str) -> Action {
    let Some(tool) = thread.tool(name) else {
        let names: Vec<&str> = thread.tools.iter().take(CALLS_MAX).map(|t| t.name.as_str()).collect();
        let text = format!("there is no tool {:?}. Your tools are: {}.", resolve::shown(name), names.join(", "));
        return resolve::malformed(&text, true);
    };
    let arguments = match resolve::arguments_of(name, raw) {
        Ok(arguments) => Value::Object(arguments),
        Err(why) => return resolve::malformed(&why, false),
    };
    let misfit = if tool.strict { json_schema::validate(&tool.parameters, &arguments).err() } else { None };
    match misfit {
        None => Action::Caller,
        Some(why) => {
            let text = format!("the arguments of {name} do not fit its schema: {}.", why.join("; "));
            resolve::malformed(&text, false)
        }
    }
}

impl AgentRun {
    /// Ends the run with the open calls, once only calls of the caller's tools are open.
    pub(super) fn hand_to_caller(&mut self) {
        let Phase::Acting(calls) = &mut self.phase else { return };
        let is_open = |o: &&mut OpenCall| o.result.is_none();
        let mut open: Vec<&mut OpenCall> = calls.iter_mut().filter(is_open).collect();
        if open.is_empty() || open.iter().any(|o| o.call.action != Action::Caller) {
            return;
        }
        let handed_over = open
            .iter()
            .map(|o| {
                let is_empty = matches!(o.call.raw.trim(), "" | "null");
                let arguments = if is_empty { "{}".to_owned() } else { o.call.raw.clone() };
                ToolCall { id: o.call.id.clone(), name: o.call.name.clone(), arguments }
            })
            .collect();
        for call in &mut open {
            call.result = Some(SEND_AGAIN.to_owned());
        }
        let is_wrong = |o: &OpenCall| matches!(&o.call.action, Action::Answer { is_error: true, .. });
        if calls.iter().any(is_wrong) {
            return;
        }
        let reply_text = match self.messages.last() {
            Some(Message::Assistant { text, .. }) => text.trim().to_owned(),
            _ => String::new(),
        };
        self.end(Ending::Called(reply_text, handed_over));
    }
}

impl AgentRun {
    /// Ends the run with the empty reply of a model that used all its tokens before the first visible text.
    fn end_with_empty_text(&mut self, reply: &Reply<'_>) {
        self.usage.add(reply.usage);
        self.finish = reply.finish;
        self.end(Ending::Output(String::new()));
    }
}

impl Turn {
    /// Ends the run with an empty reply that the caller's own limit cut, because a retry would be cut again. Returns false for
    /// any other reply.
    pub(super) fn accept_cut_reply(&mut self, reply: &Reply<'_>) -> bool {
        let is_empty = reply.calls.is_empty() && reply.text.trim().is_empty();
        let is_cut = self.inbound.sets_length() && is_empty && reply.finish == Finish::Length;
        if is_cut {
            self.main.end_with_empty_text(reply);
        }
        is_cut
    }

    /// The format that the answer must have.
    pub(super) fn format(&self) -> Option<&AnswerFormat> {
        self.inbound.format()
    }

    /// Runs the policies about the final text.
    pub(super) fn judge_answer(&mut self) {
        let Phase::Ended(Ending::Output(text)) = &self.main.phase else { return };
        match policy::judge_answer(self, text) {
            Some(AnswerVerdict::Replace(text)) => self.main.end(Ending::Output(text)),
            Some(AnswerVerdict::Correct(note)) => {
                self.format_repairs += 1;
                self.main.note(&note);
                self.main.next_round();
            }
            Some(AnswerVerdict::Refuse(why)) => self.main.end(Ending::Unfit(why)),
            None => {}
        }
    }
}
