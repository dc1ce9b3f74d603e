//! `annie.v1.Operations`: long-running operations, and the delivery of their results.

use annie_actors::OperationResult;
use annie_core::ports::OperationRow;
use serde_json::Value;
use tonic::{Request, Response, Status};

use super::{Service, caller, convert, refused, v1};
use crate::{
    api::page,
    error::{ApiError, Code},
};

#[tonic::async_trait]
impl v1::operations_server::Operations for Service {
    async fn list(
        &self,
        request: Request<v1::ListOperationsRequest>,
    ) -> Result<Response<v1::ListOperationsResponse>, Status> {
        let caller = caller(&request)?;
        let wanted = request.into_inner();
        let limit = page::ROWS.of_number(wanted.limit).map_err(refused)?;
        let before = convert::before(&wanted.next)?;
        let rows = self.state.kernel.operations(caller.scope(), wanted.open, before, limit).await.map_err(refused)?;
        let next = page::next_of(&rows, limit, OperationRow::page_start).unwrap_or_default();
        Ok(Response::new(v1::ListOperationsResponse { operations: rows.into_iter().map(operation).collect(), next }))
    }

    async fn get(&self, request: Request<v1::GetOperationRequest>) -> Result<Response<v1::Operation>, Status> {
        let caller = caller(&request)?;
        let id = convert::id("id", &request.into_inner().id)?;
        let row = self.state.kernel.operation(caller.scope(), id).await.map_err(refused)?;
        Ok(Response::new(operation(row)))
    }

    async fn key(&self, request: Request<v1::OperationKeyRequest>) -> Result<Response<v1::OperationKey>, Status> {
        let caller = caller(&request)?;
        let id = convert::id("id", &request.into_inner().id)?;
        let grant = self.state.kernel.operation_key(&caller.user, id).await.map_err(refused)?;
        Ok(Response::new(v1::OperationKey { id: grant.id.to_string(), key: grant.key, path: grant.path }))
    }

    async fn finish(
        &self,
        request: Request<v1::FinishOperationRequest>,
    ) -> Result<Response<v1::SubmitResponse>, Status> {
        let wanted = request.into_inner();
        if wanted.key.is_empty() {
            return Err(refused(ApiError::new(Code::Unauthenticated, "send the operation's key as `key`").at("key")));
        }
        let id = convert::id("id", &wanted.id)?;
        let data = match wanted.data_json.as_str() {
            "" => Value::Null,
            text => serde_json::from_str(text)
                .map_err(|e| refused(ApiError::invalid(format!("this is no JSON: {e}")).at("data_json")))?,
        };
        let result = OperationResult { ok: wanted.ok, text: wanted.text, data };
        let submitted = self.state.kernel.finish_operation(id, &wanted.key, result).await.map_err(refused)?;
        Ok(Response::new(convert::submitted(submitted)))
    }
}

fn operation(row: OperationRow) -> v1::Operation {
    v1::Operation {
        id: row.id.to_string(),
        conversation_id: row.conversation.to_string(),
        task_id: row.task.to_string(),
        skill: row.skill,
        open: row.closed_by.is_none(),
        opened_at_us: row.opened_at.0,
        expires_at_us: row.expires_at.0,
        closed_by: row.closed_by.map(|task| task.to_string()).unwrap_or_default(),
        closed_at_us: row.closed_at.map(|at| at.0),
    }
}
