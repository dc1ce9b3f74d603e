//! `annie doctor` and `annie setup`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

/// `annie doctor`
#[derive(Debug, Default, Args)]
pub struct Doctor {
    /// Also read the whole log and compare all tables that are folded from it; changes nothing
    #[arg(long)]
    pub check: bool,
    /// Like --check, and repair the rows that differ from the log; no server may run
    #[arg(long, conflicts_with = "check")]
    pub repair: bool,
    /// Send requests to the configured models (may cost money): speed, window, tool calls, commands; print matching settings
    #[arg(long, conflicts_with_all = ["check", "repair"])]
    pub probe: bool,
    /// Probe this backend only
    #[arg(long, value_name = "NAME", requires = "probe")]
    pub backend: Option<String>,
    /// How long one step of a probe may take, in seconds
    #[arg(long, value_name = "N", requires = "probe", default_value_t = STEP_S_USUAL, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub step_s_max: u64,
}

/// `annie setup`
#[derive(Debug, Default, Args)]
#[command(after_help = SETUP_HELP)]
pub struct Setup {
    /// Use this model of the server; default: the first one
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// The key for --url is in this environment variable; the file will name the variable
    #[arg(long, value_name = "NAME", conflicts_with = "api_key_file")]
    pub api_key_env: Option<String>,
    /// The key for --url is in this file; the configuration will name it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub api_key_file: Option<PathBuf>,
    /// Check this port of this machine instead of the usual ones; may be given several times
    #[arg(long, value_name = "PORT")]
    pub port: Vec<u16>,
    /// Write without asking
    #[arg(long, short)]
    pub yes: bool,
    /// Replace an existing configuration; a backup is kept
    #[arg(long)]
    pub force: bool,
    /// How long one step of a probe may take, in seconds
    #[arg(long, value_name = "N", default_value_t = STEP_S_USUAL, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub step_s_max: u64,
}

/// Default of the time limit for one step of a probe, in seconds. A CPU may need a minute to read a prompt.
const STEP_S_USUAL: u64 = 180;

const SETUP_HELP: &str = "\
With --url URL only the server at that address is checked: http://127.0.0.1:8080, or a service with --api-key-env NAME.
Otherwise the usual ports of this machine: Ollama 11434, llama.cpp 8080, vLLM 8000, LM Studio 1234.
The file is written where annie reads it: ~/.config/annie/annie.toml, or --config FILE.

Exit codes: 0 written, 2 the file exists already, 3 no server found, 5 none can be used, 6 nothing was written because it was not confirmed.";
