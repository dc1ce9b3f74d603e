//! `annie.v1.Jobs`: what became of messages.

use annie_core::time::Micros;
use tonic::{Request, Response, Status};

use super::{Door, caller, convert, refused, v1};
use crate::door::resume_conversation;

#[tonic::async_trait]
impl v1::jobs_server::Jobs for Door {
    async fn get(&self, request: Request<v1::GetTaskRequest>) -> Result<Response<v1::Task>, Status> {
        let caller = caller(&request)?;
        let id = convert::id("task_id", &request.into_inner().task_id)?;
        let row = self.state.kernel.task(caller.scope(), id).await.map_err(refused)?;
        Ok(Response::new(convert::task(row)))
    }

    async fn list(&self, request: Request<v1::ListTasksRequest>) -> Result<Response<v1::ListTasksResponse>, Status> {
        let caller = caller(&request)?;
        let wanted = request.into_inner();
        let before = Micros(if wanted.before_us == 0 { i64::MAX } else { wanted.before_us });
        let limit = convert::limit(wanted.limit, 50, annie_actors::PAGE_MAX);
        let rows = self.state.kernel.tasks(caller.scope(), wanted.open, before, limit).await.map_err(refused)?;
        Ok(Response::new(v1::ListTasksResponse { tasks: rows.into_iter().map(convert::task).collect() }))
    }

    async fn cancel(
        &self,
        request: Request<v1::CancelTaskRequest>,
    ) -> Result<Response<v1::CancelTaskResponse>, Status> {
        let caller = caller(&request)?;
        let id = convert::id("task_id", &request.into_inner().task_id)?;
        let cancelled = self.state.kernel.cancel(caller.scope(), id, &caller.name()).await.map_err(refused)?;
        Ok(Response::new(v1::CancelTaskResponse { cancelled }))
    }

    async fn resume_conversation(
        &self,
        request: Request<v1::ResumeConversationRequest>,
    ) -> Result<Response<v1::ResumeConversationResponse>, Status> {
        let caller = caller(&request)?;
        let id = convert::id("conversation_id", &request.into_inner().conversation_id)?;
        resume_conversation(&self.state, &caller, id).await.map_err(refused)?;
        Ok(Response::new(v1::ResumeConversationResponse {}))
    }
}
