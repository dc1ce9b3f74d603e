//! The offline planner: the model that Annie uses when none is configured. It is not a language model, and says so. It
//! splits a message into requests, finds the skills for them in the catalogue that the prompt lists, and answers in the
//! formats of a model: tool calls, `cmd` blocks, text. Its only input is the [`ModelRequest`]. It keeps no state between
//! calls, and gives the same reply for the same request.
//!
//! The modules in the order of processing: [`turn`] reads the user's message and the results so far; [`clauses`] splits the
//! message; [`choose`] finds the skill of each clause by [`rules`] or likeness; [`fill`] finds its arguments; [`goal`]
//! determines the next call; [`orchestrate`] and [`execute`] write the reply; [`answer`] reports the results. Requests that
//! must not be carried out are refused in [`guard`] (whole messages), `fill/vet.rs` (single clauses) and [`refer`]
//! (references to the earlier conversation); [`fallback`] answers what was not understood.

mod answer;
mod calendar;
mod catalog;
mod choose;
mod clauses;
mod clock;
mod dates;
mod execute;
mod fallback;
mod fill;
mod goal;
mod guard;
mod orchestrate;
mod pattern;
mod recur;
mod refer;
mod report;
mod rules;
#[cfg(test)]
mod testing;
mod text;
mod turn;

use annie_core::{
    message::{Finish, ModelError, ModelReply, ModelRequest, ToolCall},
    ports::{Draft, DraftSink, Fut, Model},
};
use answer::Answer;
use catalog::Catalog;
use execute::{Interface, Reply};
use turn::Turn;

/// The planner's name, in events and in `/v1/models`.
pub const OFFLINE_ID: &str = "offline-planner";

/// The answer to a program that brings its own tools.
const CALLERS_TOOLS: &str = "I am Annie's offline planner, not a language model: I cannot use the tools of another program. Configure a \
     language model for that.";

/// A deterministic planner in place of a language model.
#[derive(Debug, Clone, Copy, Default)]
pub struct OfflinePlanner;

impl OfflinePlanner {
    /// Creates the planner. It has no settings.
    #[must_use]
    pub const fn new() -> Self {
        Self
    }

    /// Computes the reply to a request, without side effects.
    #[must_use]
    pub fn plan(&self, request: &ModelRequest) -> ModelReply {
        if request.options.is_thread && !request.tools.is_empty() {
            let (model, text) = (OFFLINE_ID.to_owned(), CALLERS_TOOLS.to_owned());
            return ModelReply { model, text, declined: true, ..ModelReply::default() };
        }
        let catalog = Catalog::of(request);
        let has = |name: &str| request.tools.iter().any(|t| t.name == name);
        let turn = |is_mission| Turn::read(request, is_mission);
        let main = turn(false);
        let instructions = main.user_text.strip_prefix("[Skill: ").and_then(|rest| rest.split_once(']'));
        let reply = if let Some((skill, _)) = instructions.filter(|_| !request.tools.is_empty()) {
            let answers: Vec<&str> = main.tool_results("get_skill").collect();
            let mut catalog = catalog;
            for answer in &answers {
                catalog.read_answer(answer);
            }
            let is_known = catalog.get(skill).is_some_and(|known| !known.about.is_empty());
            if answers.is_empty() && !is_known && has("get_skill") {
                let arguments = serde_json::json!({"domain": "prompt"});
                return Self::written(request, Reply::Tools(vec![("get_skill".to_owned(), arguments)]));
            }
            Reply::Say(Answer { text: answer::instructions(skill, &catalog), is_declined: true })
        } else if let Some(text) = report::reply_text(main.user_text).filter(|_| !request.tools.is_empty()) {
            Reply::Say(Answer { text, is_declined: false })
        } else if let Some(text) =
            main.answer.clone().filter(|_| has("get_skill") || !has("use_skill") && !request.tools.is_empty())
        {
            Reply::Say(Answer { text, is_declined: true })
        } else if has("dispatch_agent") {
            orchestrate::orchestrate(&main, catalog)
        } else if has("use_skill") && has("get_skill") {
            execute::alone(&main, Interface::UseSkill, catalog)
        } else if has("use_skill") {
            execute::sub_agent(&turn(true), Interface::UseSkill, &catalog)
        } else if request.tools.is_empty() && !catalog.is_empty() {
            execute::sub_agent(&turn(true), Interface::Cmd, &catalog)
        } else {
            execute::alone(&main, Interface::Direct, catalog)
        };
        Self::written(request, reply)
    }

    /// Converts a reply into the format of a model.
    fn written(request: &ModelRequest, reply: Reply) -> ModelReply {
        let mut whole = ModelReply { model: OFFLINE_ID.to_owned(), ..ModelReply::default() };
        match reply {
            Reply::Say(answer) => {
                whole.text = answer.text;
                whole.declined = answer.is_declined;
            }
            Reply::Tools(calls) => {
                let round = fingerprint(request);
                whole.finish = Finish::ToolCalls;
                whole.tool_calls = calls
                    .into_iter()
                    .enumerate()
                    .map(|(n, (name, arguments))| ToolCall {
                        id: format!("plan_{round:016x}_{n}"),
                        name,
                        arguments: arguments.to_string(),
                    })
                    .collect();
            }
        }
        whole
    }
}

/// Identifies a round, so that no two rounds of a turn use the same call ids: FNV-1a over the content of the context.
fn fingerprint(request: &ModelRequest) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut eat = |text: &str| {
        for byte in text.bytes().chain([0xff]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    eat(&request.session_id);
    for message in &request.messages {
        use annie_core::message::Message;
        match message {
            Message::User { text, .. } | Message::Note { text } => eat(text),
            Message::Assistant { text, tool_calls, .. } => {
                eat(text);
                tool_calls.iter().for_each(|call| eat(&call.id));
            }
            Message::Tool { call_id, text, .. } => {
                eat(call_id);
                eat(text);
            }
        }
    }
    hash
}

/// Sends a text in chunks of a few words, like the stream of a model.
fn stream(text: &str, drafts: &DraftSink) {
    const WORDS_PER_CHUNK: usize = 4;
    let mut start = 0;
    let mut words = 0;
    for (at, _) in text.match_indices(' ') {
        words += 1;
        if words == WORDS_PER_CHUNK {
            drafts(Draft::Text(text[start..=at].to_owned()));
            start = at + 1;
            words = 0;
        }
    }
    if start < text.len() {
        drafts(Draft::Text(text[start..].to_owned()));
    }
}

impl Model for OfflinePlanner {
    fn id(&self) -> &str {
        OFFLINE_ID
    }

    fn summarises(&self) -> bool {
        false
    }

    fn about(&self) -> String {
        "Annie's offline planner: it carries out requests with the installed skills and is not a language model"
            .to_owned()
    }

    fn call<'a>(&'a self, request: &'a ModelRequest, drafts: DraftSink) -> Fut<'a, Result<ModelReply, ModelError>> {
        Box::pin(async move {
            let reply = self.plan(request);
            stream(&reply.text, &drafts);
            Ok(reply)
        })
    }

    fn check(&self) -> Fut<'_, Result<(), ModelError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

#[cfg(test)]
mod tests;
