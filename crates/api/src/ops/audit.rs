//! The audit chain, and the audit trail of a conversation: who decided what and why, without the content.

use annie_actors::AuditPage;
use annie_core::{
    audit::{AuditRow, audit_row},
    ids::{ConversationId, Seq},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use super::row::{Call, Operation, Verb::Get, route};
use crate::{
    api::page::{self, Page},
    auth::{
        KeyScope::{Chat, OpsRead},
        Need::Scope,
    },
    error::ApiError,
    grpc::{convert::path_id, v1},
    http::extract::{Args, Id},
};

/// The operations of the audit.
pub(super) fn table() -> Vec<Operation> {
    vec![
        route(Get, "/api/v1/audit/verify", Scope(OpsRead), verify, Verified::from)
            .about("verify_audit", "audit", VERIFY, "audit verify")
            .rpc("/annie.v1.Audit/Verify", asked_verify, verified),
        route(Get, "/api/v1/conversations/{id}/audit", Scope(Chat), trail, Trail::from)
            .about("get_audit", "audit", TRAIL, "audit export")
            .rpc("/annie.v1.Audit/Trail", asked_trail, listed),
    ]
}

const VERIFY: &str = "Verify the seals of the audit chain against the stored events, a page of seals at a time.";
const TRAIL: &str = "List who decided what and why in a conversation, without the texts of messages and results.";

/// A page of a verification.
#[derive(Debug, Serialize, ToSchema)]
pub struct Verified {
    /// The number of seals that were verified.
    seals: u64,
    /// The number of events that they cover.
    events: u64,
    /// The number of these events whose content was erased, as a sealed event records.
    erased: u64,
    /// The number of differences.
    broken_total: u64,
    /// The first differences: `number` of the seal, `conversation`, and `what` is wrong.
    #[schema(value_type = Vec<Object>)]
    broken: Value,
    /// The number of the page's last seal.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_number: Option<u64>,
    /// The digest of the page's last seal. Note it outside of the database: a later verification can be compared with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_digest: Option<String>,
    /// When the page's last seal was made, RFC 3339: what was stored before is verified.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    last_at: Option<String>,
    /// The number of events that were stored since and have no seal yet, so that nothing says whether they were changed. On the
    /// last page only.
    #[serde(skip_serializing_if = "Option::is_none")]
    unsealed: Option<u64>,
    /// The cursor of the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

impl From<AuditPage> for Verified {
    fn from(page: AuditPage) -> Self {
        let AuditPage { seals, events, erased, broken_total, broken, last, last_at, has_more, unsealed } = page;
        let (last_number, last_digest) = last.unzip();
        Self {
            seals,
            events,
            erased,
            broken_total,
            broken: json!(broken),
            unsealed,
            next: last_number.filter(|_| has_more).map(|number| number.to_string()),
            last_number,
            last_digest,
            last_at: last_at.map(|at| at.to_string()),
        }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct VerifyPage {
    /// The `next` of an earlier page; this page continues after it.
    #[param(pattern = "^[0-9]{0,18}$")]
    next: Option<String>,
    /// The maximum number of seals; 100 by default.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 500)]
    limit: Option<String>,
}

fn asked_verify(asked: v1::VerifyAuditRequest) -> Result<Args<VerifyPage>, ApiError> {
    Ok(Args(VerifyPage { next: Some(asked.next), limit: page::text_of(asked.limit) }))
}

fn verified(page: AuditPage) -> v1::VerifyAuditResponse {
    let last_at_us = page.last_at.map(|at| at.0);
    let Verified { seals, events, erased, broken_total, broken, last_number, last_digest, unsealed, next, last_at: _ } =
        page.into();
    v1::VerifyAuditResponse {
        seals,
        events,
        erased,
        broken_total,
        broken: broken.as_array().into_iter().flatten().map(Value::to_string).collect(),
        last_number: last_number.unwrap_or(0),
        last_digest: last_digest.unwrap_or_default(),
        next: next.unwrap_or_default(),
        unsealed,
        last_at_us,
    }
}

async fn verify(call: Call, Args(asked): Args<VerifyPage>) -> Result<AuditPage, ApiError> {
    let limit = page::EVENTS.of_text(asked.limit.as_deref())?;
    let after: u64 = page::cursor(asked.next.as_deref())?.unwrap_or(0);
    Ok(call.state.kernel.verify_audit(after, limit).await?)
}

/// A page of an audit trail.
#[derive(Debug, Serialize, ToSchema)]
pub struct Trail {
    /// Oldest first: `at`, `seq`, `task_id`, `agent`, `component`, `event_type`, `decision`, `reasoning`, `alternatives`.
    #[schema(value_type = Vec<Object>)]
    rows: Vec<Value>,
    /// The cursor of the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

impl From<Page<AuditRow>> for Trail {
    fn from(page: Page<AuditRow>) -> Self {
        Self { rows: page.rows.iter().map(shown).collect(), next: page.next }
    }
}

fn shown(row: &AuditRow) -> Value {
    json!({
        "at": row.at.to_string(), "seq": row.seq, "conversation_id": row.conversation, "task_id": row.task, "agent": row.agent,
        "component": row.component, "event_type": row.event_type, "decision": row.decision, "reasoning": row.reasoning,
        "alternatives": row.alternatives,
    })
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TrailPage {
    /// The `next` of an earlier page; this page continues after it.
    #[param(pattern = "^[0-9]{0,18}$")]
    next: Option<String>,
    /// The maximum number of rows; 100 by default.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 500)]
    limit: Option<String>,
}

fn asked_trail(asked: v1::AuditTrailRequest) -> Result<(Id<ConversationId>, Args<TrailPage>), ApiError> {
    let v1::AuditTrailRequest { conversation_id, next, limit } = asked;
    let page = TrailPage { next: Some(next), limit: page::text_of(limit) };
    Ok((path_id("conversation_id", &conversation_id)?, Args(page)))
}

fn listed(page: Page<AuditRow>) -> v1::AuditTrailResponse {
    let rows = page.rows.iter().map(|row| shown(row).to_string()).collect();
    v1::AuditTrailResponse { rows, next: page.next.unwrap_or_default() }
}

async fn trail(
    call: Call,
    (Id(id), Args(asked)): (Id<ConversationId>, Args<TrailPage>),
) -> Result<Page<AuditRow>, ApiError> {
    let limit = page::EVENTS.of_text(asked.limit.as_deref())?;
    let after: u64 = page::cursor(asked.next.as_deref())?.unwrap_or(0);
    let events = call.state.kernel.audited_events(call.caller.scope(), id, Seq(after), limit).await?;
    let Page { rows, next } = Page::of(events, limit, |event| event.seq.0);
    Ok(Page { rows: rows.iter().map(audit_row).collect(), next })
}
