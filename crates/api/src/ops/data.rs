//! The data that skills keep of a user, as rows: to-dos and memories. Changes are runs of their skills (`run_skill`).

use annie_core::{
    ports::{Document, DocumentOrder, DocumentQuery, Find},
    time::Micros,
};
use annie_skillkit::{MEMORY, TASKS};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::row::{Call, Operation, Verb::Get, route};
use crate::{
    auth::{KeyScope::Chat, Need::Scope},
    error::ApiError,
    grpc::v1,
    http::extract::Args,
};

/// Rows of a list. A list has no pages: with more data, its user searches.
const ROWS_MAX: u32 = 500;

/// The operations on the data of skills.
pub(super) fn table() -> Vec<Operation> {
    vec![
        route(Get, "/api/v1/data", Scope(Chat), list_data, Documents::from)
            .about("list_data", "skills", "List or search your to-dos or your memories.", "data list")
            .rpc("/annie.v1.Skills/ListData", asked, listed),
    ]
}

/// A kind of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DataKind {
    Todos,
    Memories,
}

/// A piece of data.
#[derive(Debug, Serialize, ToSchema)]
pub struct DataRow {
    /// The number by which people and models refer to it.
    number: u64,
    /// The content, whose fields depend on the kind.
    #[schema(value_type = Object)]
    body: Value,
    /// RFC 3339.
    #[schema(format = DateTime)]
    created_at: String,
    /// RFC 3339.
    #[schema(format = DateTime)]
    updated_at: String,
    /// When a search returned it last; absent if none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    accessed_at: Option<String>,
    /// When it was deleted; absent unless it is in the trash.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    deleted_at: Option<String>,
}

/// A document, and when it was deleted.
type Row = (Document, Option<Micros>);

impl From<Row> for DataRow {
    fn from((document, deleted_at): Row) -> Self {
        Self {
            number: document.number,
            body: document.body,
            created_at: document.created_at.to_string(),
            updated_at: document.updated_at.to_string(),
            accessed_at: document.accessed_at.map(|at| at.to_string()),
            deleted_at: deleted_at.map(|at| at.to_string()),
        }
    }
}

/// The first 500 to-dos by due time, or memories by importance. Those of the trash by the time of their deletion, the last first.
#[derive(Debug, Serialize, ToSchema)]
pub struct Documents {
    documents: Vec<DataRow>,
}

impl From<Vec<Row>> for Documents {
    fn from(rows: Vec<Row>) -> Self {
        Self { documents: rows.into_iter().map(Into::into).collect() }
    }
}

fn listed(rows: Vec<Row>) -> v1::ListDataResponse {
    let documents = rows.into_iter().map(|(document, deleted_at)| v1::DataRow {
        number: document.number,
        body_json: document.body.to_string(),
        created_at_us: document.created_at.0,
        updated_at_us: document.updated_at.0,
        accessed_at_us: document.accessed_at.map(|at| at.0),
        deleted_at_us: deleted_at.map(|at| at.0),
    });
    v1::ListDataResponse { documents: documents.collect() }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DataArgs {
    /// `todos` or `memories`.
    #[param(inline)]
    kind: DataKind,
    /// Words to search for. The trash is not searched.
    query: Option<String>,
    /// List the trash instead.
    #[serde(default)]
    deleted: bool,
}

fn asked(asked: v1::ListDataRequest) -> Result<Args<DataArgs>, ApiError> {
    let v1::ListDataRequest { kind, query, deleted } = asked;
    let kind = match kind.as_str() {
        "todos" => DataKind::Todos,
        "memories" => DataKind::Memories,
        _ => return Err(ApiError::invalid("it must be `todos` or `memories`").at("kind")),
    };
    Ok(Args(DataArgs { kind, query: Some(query), deleted }))
}

async fn list_data(call: Call, Args(args): Args<DataArgs>) -> Result<Vec<Row>, ApiError> {
    let DataArgs { kind, query, deleted } = args;
    let text = query.filter(|query| !query.trim().is_empty());
    if deleted && text.is_some() {
        return Err(ApiError::invalid("the trash is not searched: leave out one of `query` and `deleted`").at("query"));
    }
    let (namespace, find, order) = match (kind, text) {
        (DataKind::Todos, None) => (&TASKS, Find::All, DocumentOrder::Text),
        (DataKind::Todos, Some(text)) => (&TASKS, Find::Containing(text), DocumentOrder::Text),
        (DataKind::Memories, None) => (&MEMORY, Find::All, DocumentOrder::Number),
        (DataKind::Memories, Some(text)) => (&MEMORY, Find::AnyWord(text), DocumentOrder::Rank),
    };
    let (kernel, user) = (&call.state.kernel, &call.caller.user);
    if deleted {
        let kept = kernel.deleted_documents(user, namespace, ROWS_MAX).await?;
        return Ok(kept.into_iter().map(|kept| (kept.document, kept.archived_at)).collect());
    }
    let query = DocumentQuery { find, order, limit: ROWS_MAX, ..DocumentQuery::default() };
    Ok(kernel.documents(user, namespace, query).await?.into_iter().map(|hit| (hit.document, None)).collect())
}
