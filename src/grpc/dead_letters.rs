//! `annie.v1.DeadLetters`: tasks that failed after all retries.

use annie_actors::{ManyDeadLetters, ManyDone};
use annie_core::{dead_letter::DeadLetterState, ports::DeadLetterRow, time::Micros};
use tonic::{Request, Response, Status};

use super::{Service, caller, convert, refused, v1};
use crate::{
    api::{DeadLetterOptions, page, scope_of},
    auth::Caller,
    error::ApiError,
};

#[tonic::async_trait]
impl v1::dead_letters_server::DeadLetters for Service {
    async fn list(
        &self,
        request: Request<v1::ListDeadLettersRequest>,
    ) -> Result<Response<v1::ListDeadLettersResponse>, Status> {
        let caller = caller(&request)?;
        let wanted = request.into_inner();
        let limit = page::ROWS.of_number(wanted.limit).map_err(refused)?;
        let before = convert::before(&wanted.next)?;
        let scope = scope_of(&caller, user_in(&wanted.user)).map_err(refused)?;
        let filter = DeadLetterOptions {
            state: state_from(wanted.state)?,
            error: Some(wanted.error),
            priority: convert::priority(wanted.priority)?,
            failed_from: wanted.failed_from_us.map(Micros),
            failed_before: wanted.failed_before_us.map(Micros),
        }
        .filter();
        let kernel = &self.state.kernel;
        let total = kernel.count_dead_letters(scope.clone(), filter.clone()).await.map_err(refused)?;
        let rows = kernel.dead_letters(scope, filter, before, limit).await.map_err(refused)?;
        let next = page::next_of(&rows, limit, DeadLetterRow::page_start).unwrap_or_default();
        let dead_letters = rows.into_iter().map(dead_letter).collect();
        Ok(Response::new(v1::ListDeadLettersResponse { dead_letters, next, total }))
    }

    async fn get(&self, request: Request<v1::GetDeadLetterRequest>) -> Result<Response<v1::WholeDeadLetter>, Status> {
        let caller = caller(&request)?;
        let id = convert::id("task_id", &request.into_inner().task_id)?;
        let found = self.state.kernel.dead_letter(caller.scope(), id).await.map_err(refused)?;
        Ok(Response::new(v1::WholeDeadLetter {
            dead_letter: Some(dead_letter(found.row)),
            text: found.text,
            before: found.before.iter().map(ToString::to_string).collect(),
            events: found.events.iter().map(convert::event).collect(),
        }))
    }

    async fn retry(
        &self,
        request: Request<v1::RetryDeadLetterRequest>,
    ) -> Result<Response<v1::SubmitResponse>, Status> {
        let caller = caller(&request)?;
        let id = convert::id("task_id", &request.into_inner().task_id)?;
        let submitted =
            self.state.kernel.retry_dead_letter(caller.scope(), id, &caller.name()).await.map_err(refused)?;
        Ok(Response::new(convert::submitted(submitted)))
    }

    async fn discard(
        &self,
        request: Request<v1::DiscardDeadLetterRequest>,
    ) -> Result<Response<v1::DiscardDeadLetterResponse>, Status> {
        let caller = caller(&request)?;
        let id = convert::id("task_id", &request.into_inner().task_id)?;
        let discarded =
            self.state.kernel.discard_dead_letter(caller.scope(), id, &caller.name()).await.map_err(refused)?;
        Ok(Response::new(v1::DiscardDeadLetterResponse { discarded }))
    }

    async fn retry_many(
        &self,
        request: Request<v1::ManyDeadLettersRequest>,
    ) -> Result<Response<v1::ManyDeadLettersResponse>, Status> {
        let caller = caller(&request)?;
        let options = many(&caller, request.into_inner())?;
        let done = self.state.kernel.retry_dead_letters(options, &caller.name()).await.map_err(refused)?;
        Ok(Response::new(many_done(done)))
    }

    async fn discard_many(
        &self,
        request: Request<v1::ManyDeadLettersRequest>,
    ) -> Result<Response<v1::ManyDeadLettersResponse>, Status> {
        let caller = caller(&request)?;
        let options = many(&caller, request.into_inner())?;
        let done = self.state.kernel.discard_dead_letters(options, &caller.name()).await.map_err(refused)?;
        Ok(Response::new(many_done(done)))
    }
}

/// The user, unless the text is empty.
fn user_in(text: &str) -> Option<&str> {
    Some(text).filter(|user| !user.is_empty())
}

fn many(caller: &Caller, wanted: v1::ManyDeadLettersRequest) -> Result<ManyDeadLetters, Status> {
    let filter = DeadLetterOptions {
        state: None,
        error: Some(wanted.error),
        priority: convert::priority(wanted.priority)?,
        failed_from: wanted.failed_from_us.map(Micros),
        failed_before: wanted.failed_before_us.map(Micros),
    }
    .filter();
    Ok(ManyDeadLetters {
        scope: scope_of(caller, user_in(&wanted.user)).map_err(refused)?,
        filter,
        limit: page::BULK.of_number(wanted.limit).map_err(refused)?,
        is_confirmed: wanted.confirmed,
    })
}

fn many_done(many: ManyDone) -> v1::ManyDeadLettersResponse {
    let ManyDone { matching, done, left, stopped, tasks } = many;
    let task_ids = tasks.iter().map(ToString::to_string).collect();
    v1::ManyDeadLettersResponse { matching, done, left, stopped: stopped.unwrap_or_default(), task_ids }
}

fn state_from(number: i32) -> Result<Option<DeadLetterState>, Status> {
    Ok(match v1::DeadLetterState::try_from(number) {
        Ok(v1::DeadLetterState::Unspecified) => None,
        Ok(v1::DeadLetterState::Waiting) => Some(DeadLetterState::Waiting),
        Ok(v1::DeadLetterState::Retried) => Some(DeadLetterState::Retried),
        Ok(v1::DeadLetterState::Discarded) => Some(DeadLetterState::Discarded),
        Ok(v1::DeadLetterState::Archived) => Some(DeadLetterState::Archived),
        Err(_) => return Err(refused(ApiError::invalid(format!("there is no state {number}")).at("state"))),
    })
}

const fn state_of(state: DeadLetterState) -> v1::DeadLetterState {
    match state {
        DeadLetterState::Waiting => v1::DeadLetterState::Waiting,
        DeadLetterState::Retried => v1::DeadLetterState::Retried,
        DeadLetterState::Discarded => v1::DeadLetterState::Discarded,
        DeadLetterState::Archived => v1::DeadLetterState::Archived,
    }
}

fn dead_letter(row: DeadLetterRow) -> v1::DeadLetter {
    v1::DeadLetter {
        task_id: row.task.to_string(),
        conversation_id: row.conversation.to_string(),
        title: row.title,
        priority: convert::priority_of(row.priority).into(),
        state: state_of(row.state).into(),
        error: row.code,
        answer: row.text,
        detail: row.detail,
        tried: row.dead_letter.tried,
        since_us: row.dead_letter.since.0,
        retry_at_us: row.dead_letter.retry_at.map(|at| at.0),
        retried_by: row.retried_by.map(|task| task.to_string()).unwrap_or_default(),
        failed_at_us: row.failed_at.0,
        changed_at_us: row.changed_at.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_dead_letter_state_conversion_round_trips() {
        for state in
            [DeadLetterState::Waiting, DeadLetterState::Retried, DeadLetterState::Discarded, DeadLetterState::Archived]
        {
            assert_eq!(state_from(state_of(state).into()).unwrap(), Some(state));
        }
        assert_eq!(state_from(0).unwrap(), None);
        assert_eq!(state_from(9).unwrap_err().code(), tonic::Code::InvalidArgument);
    }
}
