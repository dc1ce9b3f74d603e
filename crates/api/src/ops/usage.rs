//! What model calls cost: sums of recorded usage.

use annie_core::spend::{Day, UsageBy, UsageQuery, UsageRow, UsageTotals, dollars};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::row::{Call, Operation, Verb::Get, route};
use crate::{
    api::page,
    auth::{
        KeyScope::{Admin, JobsRead},
        Need::Scope,
    },
    error::ApiError,
    grpc::v1,
    http::extract::Args,
};

/// The operations on usage.
pub(super) fn table() -> Vec<Operation> {
    vec![
        route(Get, "/api/v1/usage", Scope(JobsRead), get_usage, UsageReport::from)
            .about("get_usage", "jobs", "Show what your model calls cost.", "usage")
            .rpc("/annie.v1.Usage/Get", asked, wire),
    ]
}

/// A sum of recorded usage.
#[derive(Debug, Serialize, ToSchema)]
pub struct UsageSum {
    /// The day, the user, the conversation's id, the names of the skills that the rounds called, or the backend. Empty for the
    /// sum of all, and for rounds that called no skill.
    key: String,
    /// Model calls that were answered.
    rounds: u64,
    /// Tokens of prompts, cached ones included.
    input_tokens: u64,
    /// Input tokens read from the provider's cache.
    cached_tokens: u64,
    /// Input tokens written to the provider's cache.
    cache_written_tokens: u64,
    /// Tokens of answers, reasoning included.
    output_tokens: u64,
    /// Output tokens used for reasoning.
    reasoning_tokens: u64,
    /// US dollars.
    cost_usd: f64,
}

impl From<UsageRow> for UsageSum {
    fn from(UsageRow { key, totals }: UsageRow) -> Self {
        let UsageTotals {
            rounds,
            input_tokens,
            cached_tokens,
            cache_written_tokens,
            output_tokens,
            reasoning_tokens,
            nanodollars,
        } = totals;
        let cost_usd = dollars(nanodollars);
        Self {
            key,
            rounds,
            input_tokens,
            cached_tokens,
            cache_written_tokens,
            output_tokens,
            reasoning_tokens,
            cost_usd,
        }
    }
}

fn sum_of(row: UsageRow) -> v1::UsageSum {
    let UsageSum {
        key,
        rounds,
        input_tokens,
        cached_tokens,
        cache_written_tokens,
        output_tokens,
        reasoning_tokens,
        cost_usd,
    } = row.into();
    v1::UsageSum {
        key,
        rounds,
        input_tokens,
        cached_tokens,
        cache_written_tokens,
        output_tokens,
        reasoning_tokens,
        cost_usd,
    }
}

/// Sums of recorded usage.
#[derive(Debug, Serialize, ToSchema)]
pub struct UsageReport {
    /// Those that cost most first; days newest first.
    usage: Vec<UsageSum>,
    /// The sum of all, also of those that the limit left out.
    total: UsageSum,
}

/// The sums, and the sum of all.
type Summed = (Vec<UsageRow>, UsageTotals);

const fn total_row(totals: UsageTotals) -> UsageRow {
    UsageRow { key: String::new(), totals }
}

impl From<Summed> for UsageReport {
    fn from((rows, total): Summed) -> Self {
        Self { usage: rows.into_iter().map(Into::into).collect(), total: total_row(total).into() }
    }
}

fn wire((rows, total): Summed) -> v1::GetUsageResponse {
    let usage = rows.into_iter().map(sum_of).collect();
    v1::GetUsageResponse { usage, total: Some(sum_of(total_row(total))) }
}

/// Which usage is summed up, and how.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct UsageOptions {
    /// `day` (the default), `user`, `conversation`, `skill` or `backend`. A round that called several skills counts for their list.
    #[param(pattern = "^(day|user|conversation|skill|backend)?$")]
    by: Option<String>,
    /// The first day in UTC, such as `2026-02-18`; the beginning by default.
    #[param(pattern = "^([0-9]{4}-[0-9]{2}-[0-9]{2})?$")]
    from: Option<String>,
    /// The last day in UTC; today by default.
    #[param(pattern = "^([0-9]{4}-[0-9]{2}-[0-9]{2})?$")]
    to: Option<String>,
    /// The usage of all users; needs the scope `admin`.
    #[serde(default)]
    all: bool,
    /// The maximum number of rows; 50 by default.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 500)]
    limit: Option<String>,
}

fn asked(asked: v1::GetUsageRequest) -> Result<Args<UsageOptions>, ApiError> {
    let v1::GetUsageRequest { by, from, to, all, limit } = asked;
    Ok(Args(UsageOptions { by: Some(by), from: Some(from), to: Some(to), all, limit: page::text_of(limit) }))
}

fn by_of(text: &str) -> Result<UsageBy, ApiError> {
    let known = UsageBy::ALL.into_iter().find(|by| by.as_str() == text && *by != UsageBy::All);
    known.ok_or_else(|| {
        ApiError::invalid(format!("usage is summed by day, user, conversation, skill or backend, not by {text:?}"))
            .at("by")
    })
}

fn day_of(text: Option<&str>, field: &'static str) -> Result<Option<Day>, ApiError> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
    let day = Day::parse(text);
    let day =
        day.ok_or_else(|| ApiError::invalid(format!("{text:?} is no day; write one such as 2026-02-18")).at(field));
    day.map(Some)
}

async fn get_usage(call: Call, Args(options): Args<UsageOptions>) -> Result<Summed, ApiError> {
    if options.all {
        call.caller.must(Admin)?;
    }
    let by = options.by.as_deref().filter(|by| !by.is_empty()).map_or(Ok(UsageBy::Day), by_of)?;
    let limit = page::ROWS.of_text(options.limit.as_deref())?;
    let (from, to) = (day_of(options.from.as_deref(), "from")?, day_of(options.to.as_deref(), "to")?);
    let user = (!options.all).then(|| call.caller.user.clone());
    let all = UsageQuery::all(by, user);
    let query = UsageQuery { from: from.unwrap_or(all.from), to: to.unwrap_or(all.to), limit, ..all };
    if query.from > query.to {
        return Err(ApiError::invalid("the first day is after the last day").at("from"));
    }
    Ok(call.state.kernel.usage(query).await?)
}
