//! `annie events`.

use clap::Args;

use super::work::age_ms;

/// `annie events`
#[derive(Debug, Args)]
pub struct Events {
    /// Words that an event must contain, next to each other, in any field
    pub text: Vec<String>,
    /// Only events of this kind, such as failed, skill_finished or decided
    #[arg(long)]
    pub kind: Option<String>,
    /// Only events at least so old: 30m, 6h, 2d
    #[arg(long, value_name = "AGE", value_parser = age_ms)]
    pub older_than: Option<i64>,
    /// Only events of the last: 30m, 6h, 2d
    #[arg(long, value_name = "AGE", value_parser = age_ms)]
    pub newer_than: Option<i64>,
    /// Search the conversations of all users; needs the scope admin
    #[arg(long)]
    pub everyone: bool,
    /// Continue after the conversations of an earlier page: its cursor
    #[arg(long)]
    pub cursor: Option<String>,
}
