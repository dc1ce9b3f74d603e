//! `annie.v1.Operations`: the delivery of the results of long-running operations. The other methods are in the table of
//! operations.

use annie_actors::OperationResult;
use serde_json::Value;
use tonic::{Request, Response, Status};

use super::{Service, convert, refused, v1};
use crate::error::{ApiError, Code};

#[tonic::async_trait]
impl v1::operations_server::Operations for Service {
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
