//! `shell.run`: starts a program that the operator has listed, in the sandbox. No shell reads its arguments. It can read the
//! folders of `sandbox.read` and change nothing.

use annie_core::skill::Effect;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    handler::{Ctx, Handler, Ran, Starts},
    script::Job,
};

pub(crate) struct Run;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// The name of the program, such as date.
    program: String,
    /// Its arguments, each as one text.
    #[serde(default)]
    args: Vec<String>,
    /// Text that the program can read from stdin.
    #[serde(default)]
    input: Option<String>,
}

impl Handler for Run {
    type Args = Args;
    const NAME: &'static str = "shell.run";
    const EFFECT: Effect = Effect::Read;
    const STARTS: Starts = Starts::ListedProgram;

    async fn run(ctx: Ctx, args: Args) -> Ran {
        let programs = ctx.programs()?;
        let job = Job {
            program: programs.listed(&args.program)?,
            args: args.args.iter().map(|arg| arg.replace('\0', "\u{fffd}").into()).collect(),
            input: args.input.unwrap_or_default().into_bytes(),
            folder: None,
            network: false,
        };
        programs.run(job, &ctx.spec, &ctx.call).await
    }
}
