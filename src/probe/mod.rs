//! Finds out by really asking what the model of a backend can do, how fast it is, and which settings fit it. Used by
//! `annie doctor --probe` and `annie setup`. Nothing here runs a skill: what the model asks for is read and thrown away.

mod fit;
mod requests;
#[cfg(test)]
mod tests;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use annie_core::{
    command::{Resolution, extract_for, resolve},
    message::{ModelError, ModelErrorKind, ModelReply, ModelRequest, Repair},
    ports::{Clock, Draft, DraftSink, Env, Model, ServerFacts},
    skill::SkillSet,
};
use futures_util::future::join_all;
use serde::Serialize;

pub(crate) use fit::{Fit, quoted};
use requests::Requests;

/// Requests at a time when slots are tried, at most.
const PARALLEL_MOST: u32 = 4;
/// Requests of a probe besides the parallel ones: a plain answer, a tool call, a command.
const REQUESTS: u32 = 3;

/// How a model did in one step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "outcome", content = "detail")]
pub(crate) enum Outcome {
    /// As it should.
    Well,
    /// It wrote the call into its text, where the client had to look for it.
    AsText,
    /// It did something else; its own words.
    Not(String),
    /// The server refuses such requests.
    Refused(String),
    /// The request failed.
    Failed(String),
}

impl Outcome {
    /// For a table.
    pub fn told(&self) -> String {
        match self {
            Self::Well => "works".to_owned(),
            Self::AsText => "written as text".to_owned(),
            Self::Not(said) => format!("no: it said {said:?}"),
            Self::Refused(why) => format!("refused: {why}"),
            Self::Failed(why) => format!("failed: {why}"),
        }
    }
}

/// Several requests at a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Parallel {
    pub requests: u32,
    /// How many of them were answered.
    pub answered: u32,
    /// How long all of them took.
    pub ms: u64,
}

/// What was found out about a backend.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Report {
    pub backend: String,
    pub model: String,
    /// Why it cannot be used; absent if it can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What its server says of itself.
    pub server: ServerFacts,
    /// From the request to the first piece of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_token_ms: Option<u64>,
    /// How fast it reads a prompt that it has not seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_tokens_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens_per_s: Option<f64>,
    /// It thinks before it answers, which takes from the length of its answer.
    pub reasons: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call: Option<Outcome>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<Outcome>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel: Option<Parallel>,
    /// How many requests it was sent.
    pub requests: u32,
}

/// How to probe.
pub(crate) struct Probe<'a> {
    pub env: &'a Env,
    pub skills: Arc<SkillSet>,
    pub timezone: String,
    /// How long one step may take.
    pub step: Duration,
}

/// One answer and how long it took.
struct Timed {
    reply: ModelReply,
    first_ms: u64,
    whole_ms: u64,
}

/// How many requests a probe sends, at most.
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
    /// Asks a model everything. `slots` is what is configured.
    pub async fn run(&self, backend: &str, model: &dyn Model, slots: Option<u32>) -> Report {
        let mut report = Report {
            backend: backend.to_owned(),
            model: model.id().to_owned(),
            error: None,
            server: ServerFacts::default(),
            first_token_ms: None,
            input_tokens_per_s: None,
            output_tokens_per_s: None,
            reasons: false,
            tool_call: None,
            command: None,
            parallel: None,
            requests: 0,
        };
        report.server = model.describe().await.unwrap_or_default();
        let ask = Requests::new(self, report.server.context_tokens_max);
        report.requests = 1;
        let plain = self.ask(model, &ask.plain(0)).await;
        match plain {
            Ok(timed) => report.measure(&timed),
            Err(e) => {
                report.error = Some(e.to_string());
                return report;
            }
        }
        report.requests = REQUESTS;
        report.tool_call = Some(self.outcome(self.ask(model, &ask.by_tools()).await, |reply| self.judge_call(reply)));
        report.command =
            Some(self.outcome(self.ask(model, &ask.by_commands()).await, |reply| self.judge_command(reply)));
        let at_a_time = parallel_of(slots.or(report.server.slots).unwrap_or(1));
        if at_a_time > 1 {
            report.requests += at_a_time;
            report.parallel = Some(self.parallel(model, &ask, at_a_time).await);
        }
        // A server that loads a model when it is first asked knows its window only now.
        report.server = model.describe().await.unwrap_or(report.server);
        report
    }

    async fn ask(&self, model: &dyn Model, request: &ModelRequest) -> Result<Timed, ModelError> {
        let clock = self.env.clock.clone();
        let begun_us = clock.monotonic_us();
        let first_us = Arc::new(AtomicU64::new(0));
        let sink = noting(clock.clone(), first_us.clone());
        let answer = tokio::time::timeout(self.step, model.call(request, sink)).await;
        let whole_us = clock.monotonic_us().saturating_sub(begun_us);
        let late = || {
            ModelError::new(
                ModelErrorKind::Timeout,
                format!("no whole answer within {} s; --step-s-max allows more", self.step.as_secs()),
            )
        };
        let reply = answer.map_err(|_| late())??;
        let first_us = match first_us.load(Relaxed) {
            0 => whole_us,
            at => at.saturating_sub(begun_us),
        };
        Ok(Timed { reply, first_ms: first_us / 1_000, whole_ms: whole_us / 1_000 })
    }

    fn outcome(&self, asked: Result<Timed, ModelError>, judge: impl FnOnce(&ModelReply) -> Outcome) -> Outcome {
        match asked {
            Ok(timed) => judge(&timed.reply),
            Err(e) if e.refuses_tools() => Outcome::Refused(e.detail),
            Err(e) => Outcome::Failed(e.to_string()),
        }
    }

    /// Whether the reply calls a tool that leads to the skill that was meant.
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
            return Outcome::Not(said(reply));
        }
        if reply.repairs.contains(&Repair::TextCall) { Outcome::AsText } else { Outcome::Well }
    }

    /// Whether the reply holds commands, and every one of them can be run.
    fn judge_command(&self, reply: &ModelReply) -> Outcome {
        let commands = extract_for(&reply.text, &|name| self.skills.get(name).is_some());
        let runs = |line: &str| !matches!(resolve(line, &self.skills, None), Resolution::Error(_));
        let is_well =
            !commands.is_empty() && commands.iter().all(|command| command.as_ref().is_ok_and(|line| runs(line)));
        if is_well { Outcome::Well } else { Outcome::Not(said(reply)) }
    }

    async fn parallel(&self, model: &dyn Model, ask: &Requests, count: u32) -> Parallel {
        let clock = &self.env.clock;
        let begun_us = clock.monotonic_us();
        let requests: Vec<ModelRequest> = (1..=count).map(|n| ask.plain(n)).collect();
        let answers = join_all(requests.iter().map(|request| self.ask(model, request))).await;
        let answered = answers.iter().filter(|answer| answer.is_ok()).count();
        let ms = clock.monotonic_us().saturating_sub(begun_us) / 1_000;
        Parallel { requests: count, answered: u32::try_from(answered).unwrap_or(count), ms }
    }
}

/// Notes when the first piece comes.
fn noting(clock: Arc<dyn Clock>, first_us: Arc<AtomicU64>) -> DraftSink {
    Arc::new(move |draft: Draft| {
        let (Draft::Text(text) | Draft::Reasoning(text)) = draft;
        if !text.is_empty() {
            let _ = first_us.compare_exchange(0, clock.monotonic_us(), Relaxed, Relaxed);
        }
    })
}

/// The beginning of what a model said, and of what it called.
fn said(reply: &ModelReply) -> String {
    const CHARS_MAX: usize = 60;
    let calls = reply.tool_calls.iter().map(|call| format!("{} {}", call.name, call.arguments));
    let words = std::iter::once(reply.text.clone()).chain(calls).collect::<Vec<_>>().join(" ");
    words.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(CHARS_MAX).collect()
}

impl Report {
    fn measure(&mut self, timed: &Timed) {
        /// A shorter time says nothing of speed, in milliseconds.
        const MS_MIN: u64 = 1;
        let rate = |tokens: u64, ms: u64| {
            (tokens > 0 && ms >= MS_MIN).then(|| (tokens as f64 * 10_000.0 / ms as f64).round() / 10.0)
        };
        let usage = &timed.reply.usage;
        self.first_token_ms = Some(timed.first_ms);
        self.reasons = usage.reasoning_tokens > 0;
        self.input_tokens_per_s = rate(usage.input_tokens.saturating_sub(usage.cached_tokens), timed.first_ms);
        self.output_tokens_per_s = rate(usage.output_tokens, timed.whole_ms.saturating_sub(timed.first_ms));
    }
}
