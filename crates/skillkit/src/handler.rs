//! Built-in handlers: their declaration, and the type-erased form in which the runner calls them.

use std::sync::{Arc, Mutex, PoisonError};

use annie_core::{
    outcome::{OutboundRequest, Outcome},
    ports::{EgressReply, EgressRequest, Exchange, Fut, SkillCall},
    skill::{ArgSpec, Effect, SkillSpec, args_from_schema},
};
use chrono::{DateTime, NaiveDateTime};
use chrono_tz::Tz;
use schemars::JsonSchema;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{error::SkillError, runner::Tools, script::Programs};

/// The result of a handler before it is converted into an outcome.
pub(crate) type Ran = Result<Outcome, SkillError>;

/// A built-in command skill. Its arguments are one struct, from which flags, checks, the JSON Schema and the synopsis are
/// derived.
pub(crate) trait Handler: Send + Sync + 'static {
    /// The declared arguments; the fields' doc comments are the help texts of the flags.
    type Args: DeserializeOwned + JsonSchema + Send;
    /// `domain.verb`.
    const NAME: &'static str;
    /// Whether a run may be repeated.
    const EFFECT: Effect;
    /// Whether the skill accesses other machines.
    const EXTERNAL: bool = false;
    /// What the skill starts.
    const STARTS: Starts = Starts::Nothing;

    /// Runs the skill.
    fn run(ctx: Ctx, args: Self::Args) -> impl Future<Output = Ran> + Send;

    /// Determines the outcome of a `once` run without a receipt; `None` if that is not possible.
    fn reconcile(ctx: Ctx, args: Self::Args) -> impl Future<Output = Result<Option<Outcome>, SkillError>> + Send {
        let _ = (ctx, args);
        std::future::ready(Ok(None))
    }
}

/// What a skill starts besides its handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Starts {
    Nothing,
    /// One program in the sandbox.
    Program,
    /// A program of the operator's list in the sandbox.
    ListedProgram,
}

/// The context of a run.
pub(crate) struct Ctx {
    pub(crate) tools: Arc<Tools>,
    pub(crate) spec: Arc<SkillSpec>,
    pub(crate) call: SkillCall,
    /// The requests that this run has sent to other machines.
    pub(crate) requests: Arc<Mutex<Vec<OutboundRequest>>>,
}

impl Ctx {
    /// Sends a request to another machine. The outcome of the run records it. Secrets in the reply are masked before a skill
    /// can divide it into portions that no longer contain a whole secret.
    pub(crate) async fn send(&self, mut request: EgressRequest) -> Result<EgressReply, SkillError> {
        let egress = self.tools.egress.as_ref().ok_or(SkillError::EgressOff)?;
        request.user = Some(self.call.user.clone());
        let Exchange { requests, result } = egress.send(request).await;
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).extend(requests);
        let mut reply = result.map_err(SkillError::from)?;
        if let Some(secrets) = &self.tools.secrets {
            // Each byte is one character, so that the reply keeps its encoding. Secrets that are sent are ASCII.
            let text: String = reply.body.iter().copied().map(char::from).collect();
            reply.body = secrets.scrubbed(&text).chars().filter_map(|c| u8::try_from(c).ok()).collect();
        }
        Ok(reply)
    }

    /// The origins of texts of others that may have become a part of this call's arguments.
    pub(crate) fn untrusted_origins(&self) -> Vec<&str> {
        self.tools.untrusted.untrusted(&self.call.origin, &self.tools.all_skills.load())
    }

    /// The outcome of this run, with its requests.
    pub(crate) fn finished(&self, ran: Ran) -> Outcome {
        outcome_of(ran, &self.spec, &self.requests)
    }

    /// The way to start programs.
    pub(crate) fn programs(&self) -> Result<&Programs, SkillError> {
        self.tools.programs.as_ref().ok_or(SkillError::ProgramsOff)
    }

    /// The user's time zone; UTC if the name is unknown.
    pub(crate) fn zone(&self) -> Tz {
        self.call.timezone.parse().unwrap_or(Tz::UTC)
    }

    /// The start of the run in the user's time zone.
    pub(crate) fn now(&self) -> DateTime<Tz> {
        self.call.now.to_utc().with_timezone(&self.zone())
    }

    /// The same without its zone.
    pub(crate) fn local_now(&self) -> NaiveDateTime {
        self.now().naive_local()
    }
}

/// A handler in type-erased form.
pub(crate) struct Builtin {
    pub(crate) name: &'static str,
    pub(crate) effect: Effect,
    pub(crate) external: bool,
    pub(crate) starts: Starts,
    pub(crate) args: fn() -> Vec<ArgSpec>,
    pub(crate) run: fn(Ctx, Value) -> Fut<'static, Outcome>,
    pub(crate) reconcile: fn(Ctx, Value) -> Fut<'static, Option<Outcome>>,
}

fn outcome_of(ran: Ran, spec: &SkillSpec, requests: &Mutex<Vec<OutboundRequest>>) -> Outcome {
    let outcome = ran.unwrap_or_else(|error| error.into_outcome(spec));
    outcome.with_requests(std::mem::take(&mut *requests.lock().unwrap_or_else(PoisonError::into_inner)))
}

/// Erases the type of a handler.
pub(crate) const fn builtin<H: Handler>() -> Builtin {
    Builtin {
        name: H::NAME,
        effect: H::EFFECT,
        external: H::EXTERNAL,
        starts: H::STARTS,
        args: args_of::<H::Args>,
        run: |ctx, arguments| Box::pin(run::<H>(ctx, arguments)),
        reconcile: |ctx, arguments| Box::pin(reconcile::<H>(ctx, arguments)),
    }
}

async fn run<H: Handler>(ctx: Ctx, arguments: Value) -> Outcome {
    let (spec, requests) = (Arc::clone(&ctx.spec), Arc::clone(&ctx.requests));
    let ran = match decode(arguments) {
        Ok(args) => H::run(ctx, args).await,
        Err(error) => Err(error),
    };
    outcome_of(ran, &spec, &requests)
}

/// If the reconciliation fails, the outcome remains unknown.
async fn reconcile<H: Handler>(ctx: Ctx, arguments: Value) -> Option<Outcome> {
    H::reconcile(ctx, decode(arguments).ok()?).await.ok().flatten()
}

/// Decodes arguments; `null` means absent. The error names the flag.
fn decode<A: DeserializeOwned>(mut arguments: Value) -> Result<A, SkillError> {
    if let Value::Object(map) = &mut arguments {
        map.retain(|_, value| !value.is_null());
    }
    serde_path_to_error::deserialize(arguments).map_err(|error| {
        let flag = error.path().iter().next().map(ToString::to_string);
        let what = error.into_inner().to_string();
        flag.map_or_else(|| SkillError::Arguments(what.clone()), |flag| SkillError::argument(&flag, what.clone()))
    })
}

/// The declared arguments of a struct. Trivial defaults (an empty list, `false`) are not shown.
pub(crate) fn args_of<A: JsonSchema>() -> Vec<ArgSpec> {
    let mut args = args_from_schema(schemars::schema_for!(A).as_value());
    for arg in &mut args {
        if arg.default == Value::Bool(false) || arg.default.as_array().is_some_and(Vec::is_empty) {
            arg.default = Value::Null;
        }
    }
    args
}

/// The arguments of every prompt skill.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct PromptArgs {
    /// What the instructions are about; fills their placeholders.
    #[serde(default)]
    pub(crate) args: Option<String>,
    /// Ends the skill once its work is done: its instructions no longer apply.
    #[serde(default)]
    pub(crate) done: bool,
    /// Reads one of the skill's supporting files instead, by the path that the instructions name.
    #[serde(default)]
    pub(crate) file: Option<String>,
    /// Runs one of the skill's scripts instead, by its path below the skill's folder; `--args` are its arguments.
    #[serde(default)]
    pub(crate) script: Option<String>,
    /// Text that the script can read from stdin.
    #[serde(default)]
    pub(crate) stdin: Option<String>,
}

/// The arguments of a prompt skill; the author's hint describes the value of `--args`.
pub(crate) fn prompt_args(hint: Option<&str>, has_scripts: bool) -> Vec<ArgSpec> {
    let mut args = args_of::<PromptArgs>();
    args.retain(|arg| has_scripts || !["script", "stdin"].contains(&arg.name.as_str()));
    if let Some((hint, arg)) = hint.zip(args.iter_mut().find(|arg| arg.name == "args")) {
        arg.help = format!("{} Expected: {hint}.", arg.help);
    }
    args
}

/// Decodes the arguments of a prompt skill.
pub(crate) fn decode_prompt(arguments: Value) -> Result<PromptArgs, SkillError> {
    decode(arguments)
}

#[cfg(test)]
mod tests {
    use annie_core::skill::ArgKind;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    enum Size {
        Small,
        VeryLarge,
    }

    /// One argument of every kind.
    #[derive(Debug, Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct Sample {
        /// What it
        /// is called.
        title: String,
        #[schemars(extend("format" = "date"))]
        due: Option<String>,
        size: Option<Size>,
        #[serde(default)]
        tags: Vec<String>,
        #[serde(default = "five")]
        #[schemars(range(min = 1, max = 20))]
        limit: u32,
        #[schemars(range(min = 0.0, max = 1.0))]
        weight: Option<f64>,
        #[serde(default)]
        all: bool,
    }

    fn five() -> u32 {
        5
    }

    #[test]
    fn schema_of_a_struct_gives_every_kind_of_argument() {
        let args = args_of::<Sample>();
        let shown: Vec<String> = args.iter().map(ArgSpec::help_line).collect();
        let kinds: Vec<&ArgKind> = args.iter().map(|a| &a.kind).collect();
        let size = ArgKind::Choice(vec!["small".into(), "very_large".into()]);
        assert_eq!(
            kinds,
            [
                &ArgKind::Text,
                &ArgKind::Bool,
                &ArgKind::Date,
                &ArgKind::Integer,
                &size,
                &ArgKind::List,
                &ArgKind::Number
            ]
        );
        assert_eq!(shown[0], "  --title TEXT  What it is called. (required)");
        assert_eq!(shown[3], "  --limit N   (default 5)");
        assert_eq!((args[3].minimum, args[3].maximum), (Some(1.0), Some(20.0)));
        assert_eq!((args[6].minimum, args[6].maximum), (Some(0.0), Some(1.0)));
        assert!(args[1].default.is_null() && args[5].default.is_null());
    }

    #[test]
    fn argument_of_the_wrong_type_is_named() {
        let error = decode::<Sample>(json!({"title": "x", "limit": "many", "due": null})).unwrap_err();
        assert!(error.to_string().starts_with("--limit invalid type"), "{error}");
        let error = decode::<Sample>(json!({"limit": 3})).unwrap_err();
        assert!(error.to_string().contains("title"), "{error}");
    }
}
