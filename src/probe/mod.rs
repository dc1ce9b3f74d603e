//! Probes the model of a backend with real requests: what the model can do, how fast it is, and which settings fit it. Used by
//! `annie doctor --probe` and `annie setup`. No skill is run: the calls in the replies are checked and discarded.

mod fit;
mod requests;
#[cfg(test)]
mod tests;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use annie_core::{
    command::{Resolution, extract_for, resolve},
    message::{Finish, ModelError, ModelErrorKind, ModelReply, ModelRequest, Repair},
    ports::{Clock, Draft, DraftSink, Env, Model, ServerFacts},
    skill::SkillSet,
};
use annie_llm::OpenAiModel;
use futures_util::future::join_all;
use serde::Serialize;

pub(crate) use fit::{Fit, quoted};
use requests::Requests;

use crate::config::is_in_own_network;

/// The maximum number of parallel requests when slots are tested.
const PARALLEL_MOST: u32 = 4;
/// The number of requests of a probe, without the parallel ones: a plain answer during which a server may load its model, a
/// plain answer on which the speed is measured, a tool call, and a command.
const REQUESTS: u32 = 4;

/// The result of one step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "outcome", content = "detail")]
pub(crate) enum Outcome {
    /// The model did what was asked.
    Well,
    /// The model wrote the call into its text, and the client extracted it.
    AsText,
    /// The model did something else; the start of its reply.
    Not(String),
    /// The answer was cut off at this number of tokens, so nothing is known about the model's ability.
    Cut(u32),
    /// The server refuses such requests.
    Refused(String),
    /// The request failed.
    Failed(String),
}

impl Outcome {
    /// The result as text for a table.
    pub fn describe(&self) -> String {
        match self {
            Self::Well => "works".to_owned(),
            Self::AsText => "written as text".to_owned(),
            Self::Not(reply_start) => format!("no: it said {reply_start:?}"),
            Self::Cut(tokens) => format!("not decided: its answer was cut at {tokens} tokens"),
            Self::Refused(why) => format!("refused: {why}"),
            Self::Failed(why) => format!("failed: {why}"),
        }
    }
}

/// The result of several parallel requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Parallel {
    pub requests: u32,
    /// How many requests were answered.
    pub answered: u32,
    /// How many requests were refused by a rate limit. These say nothing about the number of slots.
    pub rate_limited: u32,
    /// The time until all requests ended, in milliseconds.
    pub ms: u64,
}

/// The result of a probe of one backend.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Report {
    pub backend: String,
    pub model: String,
    /// Why the backend cannot be used; absent if it can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What the server reports about itself.
    pub server: ServerFacts,
    /// The time from the request to the first piece of the answer, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_token_ms: Option<u64>,
    /// The speed of processing a prompt that is not cached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_tokens_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens_per_s: Option<f64>,
    /// Why the speed is unknown although it was to be measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unmeasured: Option<String>,
    /// Whether the model reasons before it answers, which takes tokens from its answer.
    pub reasons: bool,
    /// Whether the address is in a private network, but not on this machine.
    #[serde(skip)]
    pub is_in_own_network: bool,
    /// Whether a plain answer had text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plain: Option<Outcome>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call: Option<Outcome>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<Outcome>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel: Option<Parallel>,
    /// The number of requests that were sent.
    pub requests: u32,
}

/// The settings of a probe.
pub(crate) struct Probe<'a> {
    pub env: &'a Env,
    pub skills: Arc<SkillSet>,
    pub timezone: String,
    /// The maximum duration of one step.
    pub step: Duration,
}

/// One reply with its times.
struct Timed {
    reply: ModelReply,
    /// The time until the first piece of a streamed answer; absent if none came before the end.
    first_ms: Option<u64>,
    whole_ms: u64,
    /// Whether reasoning was streamed.
    has_thought: bool,
    /// The requested maximum length of the answer, in tokens.
    tokens_max: u32,
}

impl Timed {
    /// Whether the model reasons before it answers: reasoning was streamed, counted, or removed from the text, or the whole
    /// answer was used up without text.
    fn reasons(&self) -> bool {
        let reply = &self.reply;
        let is_all_hidden = self.is_cut() && reply.text.trim().is_empty() && reply.tool_calls.is_empty();
        let is_counted = reply.usage.reasoning_tokens > 0 || reply.repairs.contains(&Repair::Thinking);
        self.has_thought || is_counted || is_all_hidden
    }

    fn is_cut(&self) -> bool {
        self.reply.finish == Finish::Length
    }
}

/// What the stream has delivered so far.
struct Shown {
    /// The time of the first piece, in microseconds; 0 before it.
    first_us: AtomicU64,
    has_thought: AtomicBool,
}

/// The maximum number of requests of a probe.
pub(crate) const fn requests_of(slots: u32) -> u32 {
    REQUESTS + parallel_of(slots)
}

const fn parallel_of(slots: u32) -> u32 {
    match slots {
        0 | 1 => 0,
        more if more > PARALLEL_MOST => PARALLEL_MOST,
        more => more,
    }
}

impl Probe<'_> {
    /// Runs all steps of a probe. `slots` is the configured number.
    pub async fn run(&self, backend: &str, model: &OpenAiModel, slots: Option<u32>) -> Report {
        let mut report = Report::new(backend, model);
        report.server = model.describe().await.unwrap_or_default();
        let first = Requests::new(self, report.server.window_tokens());
        report.requests = 1;
        match self.ask(model, &first.plain(0)).await {
            Ok(timed) => {
                report.reasons |= timed.reasons();
                let is_silent = timed.is_cut() && timed.reply.text.trim().is_empty();
                report.plain = Some(if is_silent { Outcome::Cut(timed.tokens_max) } else { Outcome::Well });
            }
            Err(e) => {
                report.error = Some(e.to_string());
                return report;
            }
        }
        // A server that loads its model on the first request knows the context window only now.
        report.server = model.describe().await.unwrap_or(report.server);
        let ask = Requests::new(self, report.server.window_tokens());
        report.requests = REQUESTS;
        match self.ask(model, &ask.plain(1)).await {
            Ok(timed) => report.measure(&timed),
            Err(e) => report.unmeasured = Some(e.to_string()),
        }
        let tool_call = self.ask(model, &ask.by_tools(report.output_tokens_max())).await;
        report.tool_call = Some(report.outcome(tool_call, |reply| self.judge_call(reply)));
        let command = self.ask(model, &ask.by_commands(report.output_tokens_max())).await;
        report.command = Some(report.outcome(command, |reply| self.judge_command(reply)));
        let at_a_time = parallel_of(slots.or(report.server.slots).unwrap_or(1));
        if at_a_time > 1 {
            report.requests += at_a_time;
            report.parallel = Some(self.parallel(model, &ask, at_a_time).await);
        }
        report
    }

    async fn ask(&self, model: &OpenAiModel, request: &ModelRequest) -> Result<Timed, ModelError> {
        let clock = self.env.clock.clone();
        let begun_us = clock.monotonic_us();
        let shown = Arc::new(Shown { first_us: AtomicU64::new(0), has_thought: AtomicBool::new(false) });
        let sink = noting(clock.clone(), shown.clone());
        let answer = tokio::time::timeout(self.step, model.call(request, sink)).await;
        let whole_us = clock.monotonic_us().saturating_sub(begun_us);
        let late = || {
            ModelError::new(
                ModelErrorKind::Timeout,
                format!("no whole answer within {} s; --step-s-max allows more", self.step.as_secs()),
            )
        };
        let reply = answer.map_err(|_| late())??;
        let first_ms = match shown.first_us.load(Relaxed) {
            0 => None,
            _ if !model.config().stream => None,
            at => Some(at.saturating_sub(begun_us) / 1_000),
        };
        Ok(Timed {
            reply,
            first_ms,
            whole_ms: whole_us / 1_000,
            has_thought: shown.has_thought.load(Relaxed),
            tokens_max: request.output_tokens_max,
        })
    }

    /// Whether the reply calls a tool that leads to a known skill.
    fn judge_call(&self, reply: &ModelReply) -> Outcome {
        let is_meant = |call: &annie_core::message::ToolCall| {
            let arguments = serde_json::from_str::<serde_json::Value>(&call.arguments).unwrap_or_default();
            let skill = arguments["skill"].as_str().unwrap_or_default();
            let by_name = call.name.replace("__", ".").replacen('_', ".", 1);
            match call.name.as_str() {
                "get_skill" => arguments.is_object(),
                "use_skill" => self.skills.get(skill).is_some(),
                name => self.skills.get(name).or_else(|| self.skills.get(&by_name)).is_some(),
            }
        };
        if !reply.tool_calls.iter().any(is_meant) {
            return Outcome::Not(reply_start(reply));
        }
        if reply.repairs.contains(&Repair::TextCall) { Outcome::AsText } else { Outcome::Well }
    }

    /// Whether the reply contains commands, and every one of them can be run.
    fn judge_command(&self, reply: &ModelReply) -> Outcome {
        let commands = extract_for(&reply.text, &|name| self.skills.get(name).is_some());
        let runs = |line: &str| !matches!(resolve(line, &self.skills, None), Resolution::Error(_));
        let is_well =
            !commands.is_empty() && commands.iter().all(|command| command.as_ref().is_ok_and(|line| runs(line)));
        if is_well { Outcome::Well } else { Outcome::Not(reply_start(reply)) }
    }

    async fn parallel(&self, model: &OpenAiModel, ask: &Requests, count: u32) -> Parallel {
        let clock = &self.env.clock;
        let begun_us = clock.monotonic_us();
        let requests: Vec<ModelRequest> = (2..count + 2).map(|n| ask.plain(n)).collect();
        let answers = join_all(requests.iter().map(|request| self.ask(model, request))).await;
        let ms = clock.monotonic_us().saturating_sub(begun_us) / 1_000;
        let mut parallel = Parallel { requests: count, answered: 0, rate_limited: 0, ms };
        for answer in answers {
            match answer {
                Ok(_) => parallel.answered += 1,
                Err(e) if e.kind == ModelErrorKind::RateLimited => parallel.rate_limited += 1,
                Err(_) => {}
            }
        }
        parallel
    }
}

/// Records the time of the first piece, and whether it is reasoning.
fn noting(clock: Arc<dyn Clock>, shown: Arc<Shown>) -> DraftSink {
    Arc::new(move |draft: Draft| {
        let (Draft::Text(text) | Draft::Reasoning(text)) = &draft;
        if !text.is_empty() {
            let _ = shown.first_us.compare_exchange(0, clock.monotonic_us(), Relaxed, Relaxed);
            shown.has_thought.fetch_or(matches!(draft, Draft::Reasoning(_)), Relaxed);
        }
    })
}

/// The start of a reply's text and calls.
fn reply_start(reply: &ModelReply) -> String {
    const CHARS_MAX: usize = 60;
    let calls = reply.tool_calls.iter().map(|call| format!("{} {}", call.name, call.arguments));
    let words = std::iter::once(reply.text.clone()).chain(calls).collect::<Vec<_>>().join(" ");
    words.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(CHARS_MAX).collect()
}

impl Report {
    fn new(backend: &str, model: &OpenAiModel) -> Self {
        Self {
            backend: backend.to_owned(),
            model: model.id().to_owned(),
            error: None,
            server: ServerFacts::default(),
            first_token_ms: None,
            input_tokens_per_s: None,
            output_tokens_per_s: None,
            unmeasured: None,
            reasons: model.config().reasons(),
            is_in_own_network: is_in_own_network(model.config().base()),
            plain: None,
            tool_call: None,
            command: None,
            parallel: None,
            requests: 0,
        }
    }

    /// The maximum answer of a step, in tokens: a model that reasons needs additional tokens before it acts.
    fn output_tokens_max(&self) -> u32 {
        let thinking = fit::output(true, self.server.context_tokens_max).filter(|_| self.reasons);
        thinking.unwrap_or(requests::OUTPUT_TOKENS_MAX)
    }

    /// The result of a step. A truncated answer does not show that the model lacks an ability.
    fn outcome(&mut self, asked: Result<Timed, ModelError>, judge: impl FnOnce(&ModelReply) -> Outcome) -> Outcome {
        match asked {
            Ok(timed) => {
                self.reasons |= timed.reasons();
                match judge(&timed.reply) {
                    Outcome::Not(_) if timed.is_cut() => Outcome::Cut(timed.tokens_max),
                    outcome => outcome,
                }
            }
            Err(e) if e.refuses_tools() => Outcome::Refused(e.detail),
            Err(e) => Outcome::Failed(e.to_string()),
        }
    }

    fn measure(&mut self, timed: &Timed) {
        /// A shorter time is not used for a speed, in milliseconds.
        const MS_MIN: u64 = 1;
        let rate = |tokens: u64, ms: u64| {
            (tokens > 0 && ms >= MS_MIN).then(|| (tokens as f64 * 10_000.0 / ms as f64).round() / 10.0)
        };
        self.reasons |= timed.reasons();
        // Without a first piece it is unknown when prompt processing ended and generation began.
        let Some(first_ms) = timed.first_ms else { return };
        let usage = &timed.reply.usage;
        self.first_token_ms = Some(first_ms);
        self.output_tokens_per_s = rate(usage.output_tokens, timed.whole_ms.saturating_sub(first_ms));
        // Hidden reasoning lies between the prompt and the first piece.
        if usage.reasoning_tokens == 0 || timed.has_thought {
            self.input_tokens_per_s = rate(usage.input_tokens.saturating_sub(usage.cached_tokens), first_ms);
        }
    }
}
