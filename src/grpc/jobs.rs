//! `annie.v1.Jobs`: the state of tasks, and commands on them.

use annie_actors::Control;
use annie_core::{
    jobs::{JobLine, Style},
    ports::TaskRow,
};
use tonic::{Request, Response, Status};

use super::{Service, caller, convert, refused, v1};
use crate::{
    api::{describe_jobs, page, reason_of, resume_conversation, set_priority},
    error::ApiError,
};

impl Service {
    async fn control(
        &self,
        request: Request<v1::ControlTaskRequest>,
        control: Control,
    ) -> Result<Response<v1::ControlTaskResponse>, Status> {
        let caller = caller(&request)?;
        let id = convert::id("task_id", &request.into_inner().task_id)?;
        let kernel = &self.state.kernel;
        let done = kernel.control(caller.scope(), id, control, &caller.name()).await.map_err(refused)?;
        Ok(Response::new(v1::ControlTaskResponse { done }))
    }
}

#[tonic::async_trait]
impl v1::jobs_server::Jobs for Service {
    async fn get(&self, request: Request<v1::GetTaskRequest>) -> Result<Response<v1::Task>, Status> {
        let caller = caller(&request)?;
        let id = convert::id("task_id", &request.into_inner().task_id)?;
        let row = self.state.kernel.task(caller.scope(), id).await.map_err(refused)?;
        Ok(Response::new(convert::task(row)))
    }

    async fn list(&self, request: Request<v1::ListTasksRequest>) -> Result<Response<v1::ListTasksResponse>, Status> {
        let caller = caller(&request)?;
        let wanted = request.into_inner();
        let before = convert::before(&wanted.next)?;
        let limit = page::ROWS.of_number(wanted.limit).map_err(refused)?;
        let rows = self.state.kernel.tasks(caller.scope(), wanted.open, before, limit).await.map_err(refused)?;
        let next = page::next_of(&rows, limit, TaskRow::page_start).unwrap_or_default();
        Ok(Response::new(v1::ListTasksResponse { tasks: rows.into_iter().map(convert::task).collect(), next }))
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

    async fn list_jobs(&self, request: Request<v1::ListJobsRequest>) -> Result<Response<v1::ListJobsResponse>, Status> {
        let caller = caller(&request)?;
        let number = request.into_inner().text;
        let style = match v1::Words::try_from(number) {
            Ok(v1::Words::Unspecified) => None,
            Ok(v1::Words::Short) => Some(Style::Short),
            Ok(v1::Words::Detailed) => Some(Style::Detailed),
            Err(_) => return Err(refused(ApiError::invalid(format!("there is no such text: {number}")).at("text"))),
        };
        let lines = self.state.kernel.jobs(&caller.user).await.map_err(refused)?;
        let text = style.map(|style| describe_jobs(&lines, style)).unwrap_or_default();
        Ok(Response::new(v1::ListJobsResponse { jobs: lines.into_iter().map(job).collect(), text }))
    }

    async fn suspend(
        &self,
        request: Request<v1::ControlTaskRequest>,
    ) -> Result<Response<v1::ControlTaskResponse>, Status> {
        self.control(request, Control::Suspend).await
    }

    async fn r#continue(
        &self,
        request: Request<v1::ControlTaskRequest>,
    ) -> Result<Response<v1::ControlTaskResponse>, Status> {
        self.control(request, Control::Continue).await
    }

    async fn set_priority(
        &self,
        request: Request<v1::SetPriorityRequest>,
    ) -> Result<Response<v1::ControlTaskResponse>, Status> {
        let caller = caller(&request)?;
        let wanted = request.into_inner();
        let id = convert::id("task_id", &wanted.task_id)?;
        let priority = convert::priority(wanted.priority)?
            .ok_or_else(|| refused(ApiError::invalid("say which priority").at("priority")))?;
        let done = set_priority(&self.state, &caller, id, priority).await.map_err(refused)?;
        Ok(Response::new(v1::ControlTaskResponse { done }))
    }
}

fn job(line: JobLine) -> v1::Job {
    v1::Job {
        state: convert::job_state_of(&line).into(),
        reason: reason_of(&line).unwrap_or_default(),
        number: u32::try_from(line.number).unwrap_or(u32::MAX),
        task_id: line.task.to_string(),
        conversation_id: line.conversation.to_string(),
        title: line.title,
        priority: convert::priority_of(line.priority).into(),
        position: line.position.map(|p| p as u64),
        round: line.round.map(|(now, _)| now),
        rounds_max: line.round.map(|(_, max)| max),
        start_in_ms: line.start_in_ms,
        running_ms: line.running_ms,
        suspended_at_us: line.suspended_at.map(|at| at.0),
    }
}
