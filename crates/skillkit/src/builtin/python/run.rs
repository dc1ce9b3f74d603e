//! `python.run`: runs Python code in the sandbox. It reaches nothing and changes nothing, so it may be repeated.

use std::ffi::OsString;

use annie_core::skill::Effect;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    handler::{Ctx, Handler, Ran, Starts},
    script::{Job, find},
};

/// The interpreter.
const PYTHON: &str = "python3";

pub(crate) struct Run;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Args {
    /// The code; what it prints is the result.
    code: String,
    /// Text that the code can read from stdin.
    #[serde(default)]
    input: Option<String>,
}

impl Handler for Run {
    type Args = Args;
    const NAME: &'static str = "python.run";
    const EFFECT: Effect = Effect::Read;
    const STARTS: Starts = Starts::Program;

    async fn run(ctx: Ctx, args: Args) -> Ran {
        let programs = ctx.programs()?;
        let code = args.code.replace('\0', "\u{fffd}");
        let job = Job {
            program: find(PYTHON)?,
            // Isolated: no variable and no package of the user changes what the code does.
            args: ["-I", "-c", code.as_str()].map(OsString::from).to_vec(),
            input: args.input.unwrap_or_default().into_bytes(),
            folder: None,
            network: false,
        };
        programs.run(job, &ctx.spec, &ctx.call).await
    }
}
