//! Built-in handlers: what one declares, and the erased form in which the runner calls it.

use std::sync::Arc;

use annie_core::{
    outcome::Outcome,
    ports::{Fut, SkillCall},
    skill::{ArgSpec, Effect, SkillSpec, args_from_schema},
};
use chrono::{DateTime, NaiveDateTime};
use chrono_tz::Tz;
use schemars::JsonSchema;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{error::SkillError, runner::Tools};

/// What a run of a handler comes to before it is an outcome.
pub(crate) type Ran = Result<Outcome, SkillError>;

/// A built-in command skill. Its arguments are one struct: flags, checks, the JSON Schema and the synopsis come from it.
pub(crate) trait Handler: Send + Sync + 'static {
    /// The declared arguments; the fields' docs are the flags' help.
    type Args: DeserializeOwned + JsonSchema + Send;
    /// `domain.verb`.
    const NAME: &'static str;
    /// What a repetition means.
    const EFFECT: Effect;
    /// Whether it reaches other machines.
    const EXTERNAL: bool = false;

    /// Does it.
    fn run(ctx: Ctx, args: Self::Args) -> impl Future<Output = Ran> + Send;

    /// Finds out what became of a `once` run without a receipt, if that can be found out.
    fn reconcile(ctx: Ctx, args: Self::Args) -> impl Future<Output = Result<Option<Outcome>, SkillError>> + Send {
        let _ = (ctx, args);
        std::future::ready(Ok(None))
    }
}

/// Everything that a run may know and use.
pub(crate) struct Ctx {
    pub(crate) tools: Arc<Tools>,
    pub(crate) spec: Arc<SkillSpec>,
    pub(crate) call: SkillCall,
}

impl Ctx {
    /// The user's time zone; an unknown name means UTC.
    pub(crate) fn zone(&self) -> Tz {
        self.call.timezone.parse().unwrap_or(Tz::UTC)
    }

    /// The run's start in the user's time zone.
    pub(crate) fn now(&self) -> DateTime<Tz> {
        self.call.now.to_utc().with_timezone(&self.zone())
    }

    /// The same without its zone.
    pub(crate) fn local_now(&self) -> NaiveDateTime {
        self.now().naive_local()
    }
}

/// A handler without its type.
pub(crate) struct Builtin {
    pub(crate) name: &'static str,
    pub(crate) effect: Effect,
    pub(crate) external: bool,
    pub(crate) args: fn() -> Vec<ArgSpec>,
    pub(crate) run: fn(Ctx, Value) -> Fut<'static, Outcome>,
    pub(crate) reconcile: fn(Ctx, Value) -> Fut<'static, Option<Outcome>>,
}

/// A handler's erased form.
pub(crate) const fn builtin<H: Handler>() -> Builtin {
    Builtin {
        name: H::NAME,
        effect: H::EFFECT,
        external: H::EXTERNAL,
        args: args_of::<H::Args>,
        run: |ctx, arguments| Box::pin(run::<H>(ctx, arguments)),
        reconcile: |ctx, arguments| Box::pin(reconcile::<H>(ctx, arguments)),
    }
}

async fn run<H: Handler>(ctx: Ctx, arguments: Value) -> Outcome {
    let spec = Arc::clone(&ctx.spec);
    let ran = match decode(arguments) {
        Ok(args) => H::run(ctx, args).await,
        Err(error) => Err(error),
    };
    ran.unwrap_or_else(|error| error.into_outcome(&spec))
}

/// What cannot be found out now is not known.
async fn reconcile<H: Handler>(ctx: Ctx, arguments: Value) -> Option<Outcome> {
    H::reconcile(ctx, decode(arguments).ok()?).await.ok().flatten()
}

/// Reads arguments; a null is the same as an absent one. The error names the flag.
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

/// The declared arguments of a struct. A default that says nothing (an empty list, `false`) is not worth showing.
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
    /// Reads one of the skill's supporting files instead, by the path that the instructions name.
    #[serde(default)]
    pub(crate) file: Option<String>,
}

/// The arguments of a prompt skill; the author's hint says what `--args` is to hold.
pub(crate) fn prompt_args(hint: Option<&str>) -> Vec<ArgSpec> {
    let mut args = args_of::<PromptArgs>();
    if let Some((hint, arg)) = hint.zip(args.iter_mut().find(|arg| arg.name == "args")) {
        arg.help = format!("{} Expected: {hint}", arg.help);
    }
    args
}

/// Reads the arguments of a prompt skill.
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
    fn a_structs_schema_gives_every_kind_of_argument() {
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
    fn an_argument_of_the_wrong_type_is_named() {
        let error = decode::<Sample>(json!({"title": "x", "limit": "many", "due": null})).unwrap_err();
        assert!(error.to_string().starts_with("--limit invalid type"), "{error}");
        let error = decode::<Sample>(json!({"limit": 3})).unwrap_err();
        assert!(error.to_string().contains("title"), "{error}");
    }
}
