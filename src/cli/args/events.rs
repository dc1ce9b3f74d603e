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
    /// Only events at this time or later, RFC 3339: 2026-02-18T15:00:00Z
    #[arg(long, value_name = "TIME", conflicts_with = "newer_than")]
    pub from: Option<String>,
    /// Only events before this time, RFC 3339
    #[arg(long, value_name = "TIME", conflicts_with = "older_than")]
    pub before: Option<String>,
    /// Search the conversations of all users; needs the scope admin
    #[arg(long)]
    pub everyone: bool,
    /// Continue after the conversations of an earlier page: its cursor
    #[arg(long)]
    pub cursor: Option<String>,
}
